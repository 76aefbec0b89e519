"""A search as screens show it. Pure."""

from __future__ import annotations

import math
from typing import Final

from pgtop_tune.runtime.experiment_control import ExperimentState
from pgtop_tune.tuning.on_server.journal import KeptTuning
from pgtop_tune.tuning.on_server.words import SAME_MIX_WORDS, evaluation_line, outcome_line, progress_line, result_lines
from pgtop_tune.tuning.protocol import Tuning
from pgtop_tune.tuning.result import Result

_LAST: Final = 6
"""Evaluations that the details show."""


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
