"""The run of a search: one evaluation after the other, each outcome on the disk before the next one begins."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Final, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from pgtop_tune.base.units import duration
from pgtop_tune.experiment.plan.results import ExperimentLog
from pgtop_tune.experiment.plan.run import Stopped, check_room
from pgtop_tune.experiment.workers import LOOK_S, UnitFailed, WorkerGone, comes_back
from pgtop_tune.tuning.on_server.conditions import Change
from pgtop_tune.tuning.on_server.evaluation import Attempts, ConditionsChanged, Evaluator, KnobsChanged
from pgtop_tune.tuning.on_server.journal import write_event
from pgtop_tune.tuning.on_server.report import evaluation_line, outcome_line
from pgtop_tune.tuning.plan import Point, TuningPlan
from pgtop_tune.tuning.protocol import Event, NewConditions, Released, SearchResult, Tuning
from pgtop_tune.tuning.search import Evaluation, Outcome, SearchPhase

# A search on several servers: evaluations that do not depend on each other run at the same time.
#
# The search asks for one evaluation after the other. Which ones it will ask for next is found by telling a copy of it
# what the outcomes under way probably are; those are begun ahead, and count only if the search asks for them. Both arms
# of an evaluation run on one server, so no effect contains the speed of a server.

_Question: TypeAlias = tuple[SearchPhase, Point, Point]
"""Phase and points: an evaluation of the confirmation never asks the same as one of the search."""


class ServersParts(Struct, frozen=True, kw_only=True):
    """The surroundings of a search on several servers.

    Attributes:
        measure: (server, evaluation) → outcome. Raises KnobsChanged, ConditionsChanged, and as `DaskWorkers.run`.
        servers: Names of those that are there now.
        stop_file: The search stops before its next evaluation once this is there; None for none.
        tell: Takes what is going on, one line.
    """

    measure: Callable[[str, Evaluation], Awaitable[Outcome]]
    servers: Callable[[], Awaitable[Sequence[str]]]
    stop_file: Path | None
    tell: Callable[[str], None]


class _Flight(Struct, eq=False):
    server: str
    question: _Question
    task: asyncio.Task[Outcome]


class TuningOnServers:
    """A search on several servers.

    Args:
        tuning: The search as it stands: new, or replayed from the journal.
        plan: Its plan.
        allowed: Its guards.
        log: The journal, open.
        servers: The servers that take part.
    """

    def __init__(
        self,
        tuning: Tuning,
        plan: TuningPlan,
        allowed: Callable[[Mapping[str, str]], bool],
        log: ExperimentLog,
        servers: Sequence[str],
        parts: ServersParts,
    ) -> None:
        self._tuning: Final = tuning
        self._plan: Final = plan
        self._allowed: Final = allowed
        self._log: Final = log
        self._servers: Final = list(servers)
        self._parts: Final = parts
        self._flights: Final[list[_Flight]] = []
        self._discarded: Final[Counter[str]] = Counter()
        self._waiting: Final[dict[str, asyncio.Task[bool]]] = {}
        self._told_s = time.monotonic()

    async def run(self) -> SearchResult:
        """Run to the result; units under way put everything back before this returns, or raises.

        Raises:
            Stopped: The stop file is there, no server is left, or the load cannot be measured.
            PgtopError: The journal cannot be written.
            asyncio.CancelledError: It was stopped; evaluations under way are lost.
        """
        try:
            while not isinstance(evaluation := self._tuning.next(), SearchResult):
                check_stop_file(self._parts.stop_file)
                if self._failures():
                    continue
                flight = next(
                    (
                        flight_under_way
                        for flight_under_way in self._flights
                        if flight_under_way.question == _question_of(evaluation)
                    ),
                    None,
                )
                if flight is not None and flight.task.done():
                    self._land(evaluation, flight)
                    continue
                self._begin()
                await self._any_news()
            return evaluation
        finally:
            await asyncio.shield(self._stopped())

    def _land(self, evaluation: Evaluation, flight: _Flight) -> None:
        """Tell the search the outcome of a flight; of several that ask the same, the first to begin comes first."""
        self._flights.remove(flight)
        self._discarded.pop(flight.server, None)
        now_s = time.monotonic()
        outcome = replace(flight.task.result(), took=max(round(now_s - self._told_s, 1), 0.1))
        self._told_s = now_s
        self._tuning.tell(outcome)
        write_event(self._log, self._tuning.events[-1])
        self._parts.tell(outcome_line(evaluation, outcome))

    def _failures(self) -> bool:
        """Handle flights that ended without an outcome; return whether there were any."""
        failed = [flight for flight in self._flights if flight.task.done() and flight.task.exception() is not None]
        for flight in failed:
            self._flights.remove(flight)
            try:
                flight.task.result()
            except KnobsChanged as changed:
                for name in changed.names:
                    self._parts.tell(f"{name} was changed by another user on {flight.server}: the search drops it")
                    self._tuning.release(name)
                    write_event(self._log, Released(name))
            except ConditionsChanged as changed:
                self._parts.tell(f"an evaluation is discarded: {changed.change.description}, on {flight.server}")
                self._discarded[flight.server] += 1
                if self._discarded[flight.server] >= MOST_CHANGES:
                    self._servers.remove(flight.server)
                    self._parts.tell(f"the conditions of {flight.server} keep changing; it takes no more evaluations")
            except WorkerGone as gone:
                self._parts.tell(f"an evaluation is lost: {gone.message}")
                self._waiting[flight.server] = asyncio.ensure_future(comes_back(flight.server, self._parts.servers))
            except UnitFailed as problem:
                self._servers.remove(flight.server)
                self._parts.tell(f"{problem.message}; {flight.server} takes no more evaluations")
        return bool(failed)

    def _begin(self) -> None:
        """Give every idle server an evaluation that the search asks for, or will ask for."""
        busy = {flight.server for flight in self._flights if not flight.task.done()}
        idle = [server for server in self._servers if server not in busy and server not in self._waiting]
        if not self._servers:
            raise Stopped("no worker is left", "start workers, then `pgtop-tune tune --resume`")
        for evaluation in self._ahead(len(self._flights) + len(idle)) if idle else ():
            server = idle.pop(0)
            self._parts.tell(f"{evaluation_line(evaluation)}, on {server}")
            task = asyncio.ensure_future(self._parts.measure(server, evaluation))
            self._flights.append(_Flight(server, _question_of(evaluation), task))
            if not idle:
                return

    def _ahead(self, most: int) -> Iterator[Evaluation]:
        """Yield evaluations that are not under way, of the next ones that the search will probably ask for."""
        copy = Tuning.replay(self._plan, self._tuning.events, self._allowed)
        unused = list(self._flights)
        for _ in range(most):
            evaluation = copy.next()
            if isinstance(evaluation, SearchResult):
                return
            flight = next((candidate for candidate in unused if candidate.question == _question_of(evaluation)), None)
            if flight is None:
                yield evaluation
            else:
                unused.remove(flight)
            copy.tell(self._probable(evaluation, flight))

    def _probable(self, evaluation: Evaluation, flight: _Flight | None) -> Outcome:
        """Return the outcome where it is known; else what the same question gave before, or no effect."""
        if flight is not None and flight.task.done():
            return flight.task.result()
        tried = [step.outcome for step in self._tuning.tried if not step.outcome.stopped]
        alike = [
            step.outcome.effect
            for step in self._tuning.tried
            if _question_of(step.evaluation) == _question_of(evaluation) and step.outcome.effect is not None
        ]
        figures = (
            tried[-1].figures
            if tried
            else {
                constraint.figure: constraint.most or constraint.least or 0.0 for constraint in self._plan.constraints
            }
        )
        return Outcome(effect=fmean(alike) if alike else 0.0, figures=figures, against_figures=figures)

    async def _any_news(self) -> None:
        """Wait until a flight has landed, or a worker has come back or is given up."""
        running = [flight.task for flight in self._flights if not flight.task.done()]
        await asyncio.wait([*running, *self._waiting.values()], timeout=LOOK_S, return_when=asyncio.FIRST_COMPLETED)
        for server in [server for server, task in self._waiting.items() if task.done()]:
            if not self._waiting.pop(server).result():
                self._servers.remove(server)
                self._parts.tell(f"the worker of {server} has not returned: other workers take its evaluations")

    async def _stopped(self) -> None:
        """Cancel the evaluations under way and the waits for workers."""
        tasks = [*(flight.task for flight in self._flights), *self._waiting.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _question_of(evaluation: Evaluation) -> _Question:
    return evaluation.phase, evaluation.candidate, evaluation.against


_LOAD_S: Final = 600.0
"""Longest wait for a load that has stopped."""
MOST_CHANGES: Final = 3
_AMONG: Final = 8
"""Newest events of a search, in which `MOST_CHANGES` changes stop it: as many as the shortest confirmation takes."""


class RunParts(Struct, frozen=True, kw_only=True):
    """The surroundings of a search.

    Attributes:
        answers: Waits until frames show the server as it is; raises a ConnectionProblem where it does not answer.
        load_runs: Waits for the load of another program, at most so many seconds; returns whether it runs.
        free_bytes: Returns the free bytes on the disk of the data; None where they are not known.
        stop_file: The search stops before its next evaluation once this is there; None for none.
        tell: Takes what is going on, one line.
        changed: A callback after each thing that the search was told.
    """

    answers: Callable[[], Awaitable[None]]
    load_runs: Callable[[float], Awaitable[bool]]
    free_bytes: Callable[[], Awaitable[int | None]]
    stop_file: Path | None
    tell: Callable[[str], None]
    changed: Callable[[], None]


class TuningRun:
    """A search on a server, in the engine's loop.

    Args:
        tuning: The search as it stands: new, or replayed from the journal.
        log: The journal, open.
        evaluator: Measures the evaluations.
        seed: The seed of the coins that order blocks.
    """

    def __init__(self, tuning: Tuning, log: ExperimentLog, evaluator: Evaluator, parts: RunParts, seed: int) -> None:
        self._seed: Final = seed
        self._tuning: Final = tuning
        self._log: Final = log
        self._evaluator: Final = evaluator
        self._parts: Final = parts
        self._begun: Final = len(tuning.events)
        self._attempts: Final = Attempts(evaluator, parts.answers, parts.tell)

    async def run(self) -> SearchResult:
        """Run to the result; everything is put back before this returns, or raises.

        Raises:
            Stopped: The stop file is there, the disk is nearly full, or the conditions go on changing; what was
                measured is kept.
            PgtopError: It cannot go on: the load does not run, the server is gone, a change cannot be reverted.
            asyncio.CancelledError: It was stopped; the evaluation under way is lost.
        """
        reason = "the search stopped"
        try:
            while not isinstance(evaluation := self._tuning.next(), SearchResult):
                await self._check_limits()
                await self._step(evaluation)
            reason = "the search has ended"
            return evaluation
        finally:
            await asyncio.shield(self._evaluator.put_back(reason))

    async def _step(self, evaluation: Evaluation) -> None:
        self._log.write("began", number=evaluation.number)
        self._parts.tell(evaluation_line(evaluation))
        began_s = time.monotonic()
        try:
            outcome = await self._attempts.outcome(evaluation, self._seed)
        except KnobsChanged as changed:
            for name in changed.names:
                self._parts.tell(f"{name} was changed by another user: the search drops it")
                self._tuning.release(name)
                write_event(self._log, Released(name))
            self._parts.changed()
            return
        except ConditionsChanged as changed:
            await self._conditions_changed(evaluation, changed.change, time.monotonic() - began_s)
            return
        outcome = replace(outcome, took=max(round(time.monotonic() - began_s, 1), 0.1))
        self._tuning.tell(outcome)
        write_event(self._log, self._tuning.events[-1])
        self._parts.tell(outcome_line(evaluation, outcome))
        self._parts.changed()

    async def _conditions_changed(self, evaluation: Evaluation, change: Change, took_s: float) -> None:
        """Discard the evaluation. Raises Stopped where no conditions last long enough for a search."""
        self._parts.tell(f"   {evaluation.number}: discarded and repeated: {change.description}")
        self._tuning.conditions_changed(change.description, max(round(took_s, 1), 0.1))
        write_event(self._log, self._tuning.events[-1])
        self._parts.changed()
        if change.stopped:
            self._parts.tell(f"waiting for the load, {duration(_LOAD_S)} at most")
            if not await self._parts.load_runs(_LOAD_S):
                raise Stopped(change.description, "start the load, then `pgtop-tune tune --resume`")
        check_conditions(self._tuning.events[self._begun :])

    async def _check_limits(self) -> None:
        """Raise Stopped where the stop file is there or the disk is nearly full."""
        check_stop_file(self._parts.stop_file)
        check_room(await self._parts.free_bytes(), "pgtop-tune tune --resume")


def check_conditions(events: Sequence[Event]) -> None:
    """Raise Stopped where too many of the newest events are changes of the conditions."""
    changes = [event.words for event in events[-_AMONG:] if isinstance(event, NewConditions)]
    if len(changes) >= MOST_CHANGES:
        raise Stopped(
            f"the conditions changed {MOST_CHANGES} times within {_AMONG} evaluations; last change: {changes[-1]}",
            "continue with `pgtop-tune tune --resume` once the conditions are stable",
        )


def check_stop_file(stop_file: Path | None) -> None:
    """Raise Stopped where the stop file is there."""
    if stop_file is not None and stop_file.exists():
        raise Stopped(f"the stop file {stop_file} exists", "remove it, then `pgtop-tune tune --resume`")
