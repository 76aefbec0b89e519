"""How evaluations differ that should not: the variance that all races share, and the budget that it takes.

    s² = (4·0.02² + squares) / (4 + degrees),  at least the mean variance that evaluations have from their own pairs

The prior is the one of `compare.statistics.runs`: 2 %, with the weight of four.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean
from typing import Final

from pgtop_tune.compare.statistics.runs import ASSUMED_SD, PRIOR_DEGREES
from pgtop_tune.compare.statistics.student import t_quantile

POWER: Final = 0.8
_FARTHEST: Final = 500


class Spread:
    """Of evaluations of one pair of points, pooled over all pairs of points."""

    def __init__(self) -> None:
        self._squares = PRIOR_DEGREES * ASSUMED_SD**2
        self._degrees = PRIOR_DEGREES
        self._within: list[float] = []

    def add(self, effects: Sequence[float], known: float | None = None) -> None:
        """Log ratios of one pair of points; `known` is their true mean, 0 for a setting against itself."""
        if not effects:
            return
        mean = fmean(effects) if known is None else known
        self._squares += math.fsum((effect - mean) ** 2 for effect in effects)
        self._degrees += len(effects) - (known is None)

    def within(self, error: float) -> None:
        """The standard error that an evaluation has from its own pairs of blocks."""
        self._within.append(error**2)

    @property
    def degrees(self) -> int:
        """Of freedom, the prior's four included."""
        return self._degrees

    def sd(self, beside: Sequence[float] = ()) -> float:
        """Of one evaluation's log ratio; `beside` are those of a race that still runs."""
        squares, degrees = self._squares, self._degrees
        if len(beside) > 1:
            mean = fmean(beside)
            squares += math.fsum((effect - mean) ** 2 for effect in beside)
            degrees += len(beside) - 1
        return math.sqrt(max(squares / degrees, fmean(self._within) if self._within else 0.0))


def evaluations_needed(sd: float, effect: float, confidence: float, least: int) -> int:
    """So many, at least `least`, that a one-sided t test finds the effect in four of five cases; at most 500.

    Args:
        sd: Of one evaluation.
        effect: Log ratio, above 0.
        confidence: Of the test, 0.975 for the lower end of a 95 % interval.
    """
    for count in range(least, _FARTHEST):
        if (t_quantile(confidence, count - 1) + t_quantile(POWER, count - 1)) * sd / math.sqrt(count) <= effect:
            return count
    return _FARTHEST
