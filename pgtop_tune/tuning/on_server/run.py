"""Runs a search on a server: one evaluation after the other, each outcome on the disk before the next one begins."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from pgtop_tune.errors import ConnectionProblem, PgtopError
from pgtop_tune.experiment.plan.log import ExperimentLog
from pgtop_tune.experiment.plan.parts import Stopped
from pgtop_tune.experiment.plan.run import SPARE_BYTES
from pgtop_tune.tuning.on_server.evaluating import Disturbed, Evaluator, KnobsChanged
from pgtop_tune.tuning.on_server.journal import write_event
from pgtop_tune.tuning.on_server.words import evaluation_line, outcome_line
from pgtop_tune.tuning.protocol import Released, Tuning
from pgtop_tune.tuning.result import Result
from pgtop_tune.tuning.search import Evaluation, Outcome, Phase
from pgtop_tune.units import about

_ATTEMPTS: Final = 3
"""At one evaluation, before the candidate, or the machine, is held to be the reason."""
_AGAIN_S: Final = 5.0
_BACK_S: Final = 600.0
"""A server that has ended is waited for so long."""


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
            outcome = await self._measured(wanted)
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

    async def _measured(self, wanted: Evaluation) -> Outcome:
        """The outcome, after as many attempts as it takes.

        Raises:
            KnobsChanged: See `Evaluator.measure`.
            PgtopError: The setting of before cannot be measured, or the server does not come back.
        """
        why = ""
        for attempt in range(_ATTEMPTS):
            try:
                return await self._evaluator.measure(wanted, _coin(self._seed, wanted, attempt))
            except Disturbed as disturbed:
                why = str(disturbed)
                self._parts.told(f"evaluation {wanted.number} has no outcome: {why}")
                if disturbed.gone:
                    await self._until_back()
        if wanted.phase is Phase.NOISE:
            raise Stopped(f"the load cannot be measured: {why}", "`pgtop-tune experiment noise` shows how it runs")
        return Outcome(effect=None, stopped=f"no outcome in {_ATTEMPTS} attempts: {why}")

    async def _until_back(self) -> None:
        """Waits for a server that has ended. Raises a ConnectionProblem where it does not come back."""
        deadline_s = time.monotonic() + _BACK_S
        while True:
            await asyncio.sleep(_AGAIN_S)
            try:
                await self._parts.answers()
                return
            except ConnectionProblem:
                if time.monotonic() > deadline_s:
                    raise

    async def _check_limits(self) -> None:
        """Raises Stopped where it must not go on."""
        stop_file = self._parts.stop_file
        if stop_file is not None and stop_file.exists():
            raise Stopped(f"{stop_file} is there", "remove it, then `pgtop-tune tune --resume`")
        free_bytes = await self._parts.free_bytes()
        if free_bytes is not None and free_bytes < SPARE_BYTES:
            raise Stopped(
                f"{about(free_bytes)} are left on the disk of the data, less than {about(SPARE_BYTES)}",
                "free some space, then `pgtop-tune tune --resume`",
            )


def _coin(seed: int, wanted: Evaluation, attempt: int) -> int:
    """The seed of the coin that orders the blocks of an evaluation: resumed, it falls as it would have."""
    return seed * 1_000_003 + wanted.number * 11 + attempt


def why_unfinished(problem: BaseException) -> str:
    """For the journal."""
    if isinstance(problem, PgtopError):
        return problem.message
    return "stopped by a signal" if isinstance(problem, asyncio.CancelledError) else type(problem).__name__
