"""Runs a search on a server: one evaluation after the other, each outcome on the disk before the next one begins."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from pgtop_tune.base.errors import PgtopError
from pgtop_tune.base.units import about, duration
from pgtop_tune.experiment.plan.log import ExperimentLog
from pgtop_tune.experiment.plan.parts import Stopped
from pgtop_tune.experiment.plan.run import SPARE_BYTES
from pgtop_tune.tuning.on_server.attempts import Attempts
from pgtop_tune.tuning.on_server.conditions import Change
from pgtop_tune.tuning.on_server.evaluating import ConditionsChanged, Evaluator, KnobsChanged
from pgtop_tune.tuning.on_server.journal import write_event
from pgtop_tune.tuning.on_server.words import evaluation_line, outcome_line
from pgtop_tune.tuning.protocol import Event, NewConditions, Released, Tuning
from pgtop_tune.tuning.result import Result
from pgtop_tune.tuning.search import Evaluation

_LOAD_S: Final = 600.0
"""A load that has stopped is waited for so long."""
MOST_CHANGES: Final = 3
_AMONG: Final = 8
"""Things that the search was told, the changes among them: as many as the shortest confirmation."""


class RunParts(Struct, frozen=True, kw_only=True):
    """What a search needs of its surroundings.

    Attributes:
        answers: Waits until frames show the server as it is; raises a ConnectionProblem where it does not answer.
        load_runs: Waits for the load of another program, at most so many seconds; whether it runs.
        free_bytes: On the disk of the data; None where it is not known.
        stop_file: The search stops before its next evaluation once this is there; None for none.
        told: Takes what is going on, one line.
        changed: Told after each thing that the search was told.
    """

    answers: Callable[[], Awaitable[None]]
    load_runs: Callable[[float], Awaitable[bool]]
    free_bytes: Callable[[], Awaitable[int | None]]
    stop_file: Path | None
    told: Callable[[str], None]
    changed: Callable[[], None]


class TuningRun:
    """A search on a server, in the engine's loop.

    Args:
        tuning: As it stands: new, or replayed from the journal.
        log: The journal, open.
        evaluator: Measures.
        seed: Of the coins that order blocks.
    """

    def __init__(self, tuning: Tuning, log: ExperimentLog, evaluator: Evaluator, parts: RunParts, seed: int) -> None:
        self._seed: Final = seed
        self._tuning: Final = tuning
        self._log: Final = log
        self._evaluator: Final = evaluator
        self._parts: Final = parts
        self._begun: Final = len(tuning.events)
        self._attempts: Final = Attempts(evaluator, parts.answers, parts.told)

    async def run(self) -> Result:
        """Runs to the result; everything is put back before it returns, or raises.

        Raises:
            Stopped: The stop file is there, the disk is nearly full, or the conditions go on changing; what was
                measured is kept.
            PgtopError: It cannot go on: the load does not run, the server is gone, a change cannot be reverted.
            asyncio.CancelledError: It was stopped; the evaluation under way is lost.
        """
        why = "the search stopped"
        try:
            while not isinstance(wanted := self._tuning.next(), Result):
                await self._check_limits()
                await self._step(wanted)
            why = "the search has ended"
            return wanted
        finally:
            await asyncio.shield(self._evaluator.put_back(why))

    async def _step(self, wanted: Evaluation) -> None:
        self._log.write("began", number=wanted.number)
        self._parts.told(evaluation_line(wanted))
        began_s = time.monotonic()
        try:
            outcome = await self._attempts.outcome(wanted, self._seed)
        except KnobsChanged as changed:
            for name in changed.names:
                self._parts.told(f"{name} was changed by someone else: the search lets go of it")
                self._tuning.release(name)
                write_event(self._log, Released(name))
            self._parts.changed()
            return
        except ConditionsChanged as changed:
            await self._conditions_changed(wanted, changed.change, time.monotonic() - began_s)
            return
        outcome = replace(outcome, took=max(round(time.monotonic() - began_s, 1), 0.1))
        self._tuning.tell(outcome)
        write_event(self._log, self._tuning.events[-1])
        self._parts.told(outcome_line(wanted, outcome))
        self._parts.changed()

    async def _conditions_changed(self, wanted: Evaluation, change: Change, took_s: float) -> None:
        """Discards the evaluation. Raises Stopped where no conditions last long enough for a search."""
        self._parts.told(f"   {wanted.number}: discarded, and made again: {change.words}")
        self._tuning.conditions_changed(change.words, max(round(took_s, 1), 0.1))
        write_event(self._log, self._tuning.events[-1])
        self._parts.changed()
        if change.stopped:
            self._parts.told(f"waiting for the load, {duration(_LOAD_S)} at most")
            if not await self._parts.load_runs(_LOAD_S):
                raise Stopped(change.words, "start the load, then `pgtop-tune tune --resume`")
        check_conditions(self._tuning.events[self._begun :])

    async def _check_limits(self) -> None:
        """Raises Stopped where it must not go on."""
        check_stop_file(self._parts.stop_file)
        check_room(await self._parts.free_bytes())


def check_conditions(events: Sequence[Event]) -> None:
    """Raises Stopped where the newest of these have too many changes of the conditions among them."""
    changes = [event.words for event in events[-_AMONG:] if isinstance(event, NewConditions)]
    if len(changes) >= MOST_CHANGES:
        raise Stopped(
            f"the conditions changed {MOST_CHANGES} times within {_AMONG} evaluations; at last {changes[-1]}",
            "`pgtop-tune tune --resume` continues once they last",
        )


def check_stop_file(stop_file: Path | None) -> None:
    """Raises Stopped where it is there."""
    if stop_file is not None and stop_file.exists():
        raise Stopped(f"{stop_file} is there", "remove it, then `pgtop-tune tune --resume`")


def check_room(free_bytes: int | None) -> None:
    """Raises Stopped where the disk of the data is nearly full."""
    if free_bytes is not None and free_bytes < SPARE_BYTES:
        raise Stopped(
            f"{about(free_bytes)} are left on the disk of the data, less than {about(SPARE_BYTES)}",
            "free some space, then `pgtop-tune tune --resume`",
        )


def why_unfinished(problem: BaseException) -> str:
    """For the journal."""
    if isinstance(problem, PgtopError):
        return problem.message
    return "stopped by a signal" if isinstance(problem, asyncio.CancelledError) else type(problem).__name__
