"""A search as screens show it. Pure."""

from __future__ import annotations

import math
import time
from typing import Final

from msgspec.structs import replace

from pgtop_tune.experiment.switchback.state import SwitchbackState
from pgtop_tune.runtime.experiment_control import ArmValues, ExperimentState
from pgtop_tune.tuning.on_server.journal import KeptTuning
from pgtop_tune.tuning.on_server.words import SAME_MIX_WORDS, evaluation_line, outcome_line, progress_line, result_lines
from pgtop_tune.tuning.protocol import Tuning
from pgtop_tune.tuning.result import Result
from pgtop_tune.tuning.search import Evaluation

_LAST: Final = 6
"""Evaluations that the details show."""


class ShownTuning:
    """Takes what happens in a search, and has its state for screens.

    Args:
        kept: Of its journal.
        tuning: As it stands.

    Attributes:
        newest: As shown. Thread-safe.
    """

    def __init__(self, kept: KeptTuning, tuning: Tuning) -> None:
        self._kept: Final = kept
        self._tuning: Final = tuning
        self._began_s: Final = time.monotonic()
        self.newest = self._shown()

    def _shown(self) -> ExperimentState:
        return shown_tuning(self._kept, self._tuning, time.monotonic() - self._began_s, under_way=True)

    def changed(self) -> None:
        """The search was told something, and asks for another evaluation."""
        self.newest = self._shown()

    def take(self, state: SwitchbackState) -> None:
        """The evaluation under way; of the start against itself no arm is shown, because nothing is switched."""
        arm = "" if state.arm is None or not self.newest.values else str(state.arm)
        if arm and arm != self.newest.arm:
            self.newest = replace(self.newest, arm_since_ms=time.time_ns() // 1_000_000)
        elapsed_s = time.monotonic() - self._began_s
        self.newest = replace(self.newest, arm=arm or self.newest.arm, elapsed_s=elapsed_s)


def shown_tuning(kept: KeptTuning, tuning: Tuning, elapsed_s: float, *, under_way: bool) -> ExperimentState:
    """Where it stands: phase, evaluations, time, and the newest of them."""
    progress, now = tuning.progress(), tuning.next()
    objective = kept.request.objective or SAME_MIX_WORDS
    result = now if isinstance(now, Result) else None
    lines = [progress_line(progress)]
    if isinstance(now, Result):
        lines = [*result_lines(now, objective)]
    else:
        lines += [
            line
            for tried in tuning.tried[-_LAST:]
            for line in (evaluation_line(tried.evaluation), outcome_line(tried.evaluation, tried.outcome))
        ]
        lines.append(evaluation_line(now))
    confirmed = None if result is None else result.confirmed
    return ExperimentState(
        number=1,
        kind="tuning",
        under_way=under_way,
        values=() if isinstance(now, Result) else arm_values(now),
        phase="" if isinstance(now, Result) else str(now.phase),
        pair=progress.evaluations,
        elapsed_s=elapsed_s,
        remaining_s=max(progress.budget - progress.spent, 0.0),
        figure=objective,
        effect=None if confirmed is None else math.expm1(confirmed.effect),
        low=None if confirmed is None else math.expm1(confirmed.low),
        high=None if confirmed is None else math.expm1(confirmed.high),
        counted=progress.evaluations,
        ending="" if under_way or result is None else str(result.ending),
        details="\n".join(lines),
    )


def arm_values(wanted: Evaluation) -> tuple[ArmValues, ...]:
    """What the two arms of an evaluation differ in."""
    against = wanted.against_values
    return tuple(
        ArmValues(name, against[name], value) for name, value in wanted.values.items() if against[name] != value
    )
