"""Where a row of measurements changed its level: for the same measurement repeated over weeks.

Binary segmentation with Student's t, as Hunter and its successor Otava have it (Fleming et al., "Hunter: Using Change
Point Detection to Hunt for Performance Regressions", ICPE 2023), on logarithms:

1. Of all places that leave at least four runs on both sides, the one whose two sides differ most: the largest
   |mean right − mean left| / (s · √(1/n + 1/m)), s² pooled over both sides, n + m − 2 degrees of freedom.
2. It is a change when that is beyond the quantile for 1 %, shared among all the places tried and all the figures
   searched at the same time (Bonferroni), and the level changed by at least 2 %.
3. Where there is none, a level that came and went could hide in it: the same with every stretch of at least four
   runs against all that is outside (circular binary segmentation, Olshen et al., Biostatistics 5, 2004).
4. The same in all parts.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import pairwise
from statistics import fmean
from typing import Final

from msgspec import Struct

from pgtop_tune.compare.statistics.student import t_quantile

FEWEST: Final = 4
"""Runs that a level takes."""
LEAST: Final = 0.02
"""A change of level below this share is none."""
_WRONG: Final = 0.01
_EXACT: Final = 1e-9
"""A spread below this share is taken for this: equal figures do not make any difference certain."""


class ChangePoint(Struct, frozen=True):
    """A change of level.

    Attributes:
        at: Index of the first measurement of the new level.
        before, after: Geometric means of the levels on both sides, up to the next change.
    """

    at: int
    before: float
    after: float

    @property
    def relative(self) -> float:
        """The change as a share."""
        return self.after / self.before - 1.0


def change_points(values: Sequence[float], figures: int = 1) -> tuple[ChangePoint, ...]:
    """Changes in the order of time; none with fewer than eight values, or where one is not above 0.

    Args:
        figures: So many rows are searched at the same time, and all of them together are to be wrong as seldom.
    """
    if len(values) < 2 * FEWEST or min(values) <= 0:
        return ()
    logs = [math.log(value) for value in values]
    edges = [0, *sorted(_splits(logs, 0, len(logs), _WRONG / figures)), len(logs)]
    levels = [math.exp(fmean(logs[first:last])) for first, last in pairwise(edges)]
    return tuple(
        ChangePoint(at, before, after) for at, before, after in zip(edges[1:-1], levels, levels[1:], strict=False)
    )


def _splits(logs: Sequence[float], first: int, last: int, wrong: float) -> list[int]:
    inner = range(first + FEWEST, last - FEWEST + 1)
    for stretches in ([(first, place) for place in inner], list(_inside(first, last))):
        found = _best(logs, first, last, stretches, wrong)
        if found is not None:
            edges = [first, *(edge for edge in found if first < edge < last), last]
            return [*edges[1:-1], *(each for part in pairwise(edges) for each in _splits(logs, *part, wrong))]
    return []


def _inside(first: int, last: int) -> Iterator[tuple[int, int]]:
    """Stretches with runs on both sides."""
    for begin in range(first + FEWEST, last - 2 * FEWEST + 1):
        for end in range(begin + FEWEST, last - FEWEST + 1):
            yield begin, end


def _best(
    logs: Sequence[float], first: int, last: int, stretches: Sequence[tuple[int, int]], wrong: float
) -> tuple[int, int] | None:
    """The stretch that differs most from what is outside of it, when that is certain and worth mentioning."""
    best, highest = None, t_quantile(1.0 - wrong / 2.0 / max(len(stretches), 1), max(last - first - 2, 1))
    for begin, end in stretches:
        inside, outside = logs[begin:end], [*logs[first:begin], *logs[end:last]]
        score, moved = _score(inside, outside)
        if score > highest and moved >= math.log1p(LEAST):
            best, highest = (begin, end), score
    return best


def _score(left: Sequence[float], right: Sequence[float]) -> tuple[float, float]:
    """Student's t, and the difference of the means."""
    means = fmean(left), fmean(right)
    squares = math.fsum((x - means[0]) ** 2 for x in left) + math.fsum((x - means[1]) ** 2 for x in right)
    spread = max(math.sqrt(squares / (len(left) + len(right) - 2)), _EXACT)
    moved = abs(means[1] - means[0])
    return moved / (spread * math.sqrt(1.0 / len(left) + 1.0 / len(right))), moved
