"""Seconds to blocks: neighbouring seconds resemble each other, so that the mean of a block is the smallest sample.

The length of a block comes from the series itself: three times its integrated autocorrelation time, with the window of
Sokal ("Monte Carlo Methods in Statistical Mechanics", 1997), or whole periods of what is known to recur
(checkpoints), whichever is longer. What correlation is left between blocks so short, the effect allows for.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean
from typing import Final

FEWEST: Final = 4
"""Blocks in a window below which nothing is concluded."""
TIMES: Final = 3.0
_SHORTEST: Final = 5
_WINDOW: Final = 5.0


def autocorrelation_time(values: Sequence[float]) -> float:
    """Integrated autocorrelation time in steps of the series: how many neighbours count as one. At least 1."""
    n = len(values)
    mean = fmean(values) if values else 0.0
    centred = [value - mean for value in values]
    variance = math.fsum(value * value for value in centred)
    if n < 4 or variance <= 0.0:
        return 1.0
    time = 1.0
    for lag in range(1, n // 2):
        time += 2.0 * math.fsum(a * b for a, b in zip(centred, centred[lag:], strict=False)) / variance
        if lag >= _WINDOW * max(time, 1.0):
            break
    return max(time, 1.0)


def block_length(series: Sequence[Sequence[float]], period: int | None = None) -> int:
    """Steps to a block that fits all the series to be compared.

    Args:
        period: Steps of something that recurs in them; blocks become whole multiples of it.
    """
    longest = max((autocorrelation_time(values) for values in series), default=1.0)
    length = max(math.ceil(TIMES * longest) if longest > 1.5 else _SHORTEST, _SHORTEST)
    if period is not None and period > 0:
        return math.ceil(length / period) * period
    return length


def block_means(values: Sequence[float], length: int) -> list[float]:
    """Means of whole blocks; the rest at the beginning, nearest to a warm-up, is left out."""
    start = len(values) % length
    return [fmean(values[at : at + length]) for at in range(start, len(values), length)]
