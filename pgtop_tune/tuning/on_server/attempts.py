"""One evaluation, attempted again where something else than its candidate has spoiled it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Final

from pgtop_tune.base.errors import ConnectionProblem
from pgtop_tune.experiment.plan.parts import Stopped
from pgtop_tune.tuning.on_server.evaluating import ConditionsChanged, Disturbed, Evaluator
from pgtop_tune.tuning.search import Evaluation, Outcome, Phase

_ATTEMPTS: Final = 3
"""At one evaluation, before the candidate, or the machine, is held to be the reason."""
_AGAIN_S: Final = 5.0
_BACK_S: Final = 600.0
"""A server that has ended is waited for so long."""


class Attempts:
    """Makes evaluations.

    Args:
        evaluator: Measures.
        answers: Waits until frames show the server as it is; raises a ConnectionProblem where it does not answer.
        told: Takes what is going on, one line.
    """

    def __init__(
        self, evaluator: Evaluator, answers: Callable[[], Awaitable[None]], told: Callable[[str], None]
    ) -> None:
        self._evaluator: Final = evaluator
        self._answers: Final = answers
        self._told: Final = told

    async def outcome(self, wanted: Evaluation, seed: int) -> Outcome:
        """The outcome, after as many attempts as it takes.

        Args:
            wanted: The evaluation.
            seed: Of the search.

        Raises:
            KnobsChanged, ConditionsChanged: See `Evaluator.measure`.
            Stopped: The setting of before cannot be measured.
            PgtopError: The server does not come back.
        """
        why = ""
        for attempt in range(_ATTEMPTS):
            try:
                return await self._evaluator.measure(wanted, _coin(seed, wanted, attempt))
            except ConditionsChanged:
                raise
            except Disturbed as disturbed:
                why = str(disturbed)
                self._told(f"evaluation {wanted.number} has no outcome: {why}")
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
                await self._answers()
                return
            except ConnectionProblem:
                if time.monotonic() > deadline_s:
                    raise


def _coin(seed: int, wanted: Evaluation, attempt: int) -> int:
    """The seed of the coin that orders the blocks of an evaluation: resumed, it falls as it would have."""
    return seed * 1_000_003 + wanted.number * 11 + attempt
