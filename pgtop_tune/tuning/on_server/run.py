"""Runs a search on a server: one evaluation after the other, each outcome on the disk before the next one begins."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from pgtop_tune.errors import PgtopError
from pgtop_tune.experiment.plan.log import ExperimentLog
from pgtop_tune.experiment.plan.parts import Stopped
from pgtop_tune.experiment.plan.run import SPARE_BYTES
from pgtop_tune.tuning.on_server.attempts import Attempts
from pgtop_tune.tuning.on_server.evaluating import Evaluator, KnobsChanged
from pgtop_tune.tuning.on_server.journal import write_event
from pgtop_tune.tuning.on_server.words import evaluation_line, outcome_line
from pgtop_tune.tuning.protocol import Released, Tuning
from pgtop_tune.tuning.result import Result
from pgtop_tune.tuning.search import Evaluation
from pgtop_tune.units import about


class RunParts(Struct, frozen=True, kw_only=True):
    """What a search needs of its surroundings.

    Attributes:
        answers: Waits until frames show the server as it is; raises a ConnectionProblem where it does not answer.
        free_bytes: On the disk of the data; None where it is not known.
        stop_file: The search stops before its next evaluation once this is there; None for none.
        told: Takes what is going on, one line.
        changed: Told after each thing that the search was told.
    """

    answers: Callable[[], Awaitable[None]]
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
        self._attempts: Final = Attempts(evaluator, parts.answers, parts.told)

    async def run(self) -> Result:
        """Runs to the result; everything is put back before it returns, or raises.

        Raises:
            Stopped: The stop file is there, or the disk is nearly full; what was measured is kept.
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
        outcome = replace(outcome, took=max(round(time.monotonic() - began_s, 1), 0.1))
        self._tuning.tell(outcome)
        write_event(self._log, self._tuning.events[-1])
        self._parts.told(outcome_line(wanted, outcome))
        self._parts.changed()

    async def _check_limits(self) -> None:
        """Raises Stopped where it must not go on."""
        check_stop_file(self._parts.stop_file)
        check_room(await self._parts.free_bytes())


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
