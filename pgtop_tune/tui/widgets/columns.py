"""Points of a series in the columns of a chart: means weighted by time, or the worst; gaps for what is not known."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import isfinite
from statistics import median_low
from typing import Final

from pgtop_tune.runtime.history import SeriesPoint

PAUSE: Final = 4.0
"""A point speaks for the time since the one before it, unless that is longer than so many usual distances."""
_ENOUGH: Final = 0.5
"""Share of a column that must be known for its mean to be drawn."""
_DONE: Final = 0.95
"""And of the newest column, where it has several seconds: a part is not shown for the whole."""


def mean_columns(points: Sequence[SeriesPoint], since_s: float, until_s: float, columns: int) -> list[float | None]:
    """Mean per column, each point weighted by the time it speaks for; None where less than half is known."""
    if columns < 1:
        return []
    each_s = (until_s - since_s) / columns
    usual_s = _usual_s(points) or each_s
    sums, known_s = [0.0] * columns, [0.0] * columns
    before_s: float | None = None
    for point in points:
        at_s = point.at_s
        begin_s = at_s - usual_s if before_s is None or at_s - before_s > PAUSE * usual_s else before_s
        before_s = at_s
        if point.value is None or not isfinite(point.value) or at_s <= since_s:
            continue
        begin_s = max(begin_s, since_s)
        for column in range(int((begin_s - since_s) / each_s), min(int((at_s - since_s) / each_s) + 1, columns)):
            left_s = since_s + column * each_s
            overlap_s = min(at_s, left_s + each_s) - max(begin_s, left_s)
            if overlap_s > 0:
                sums[column] += overlap_s * point.value
                known_s[column] += overlap_s
    newest = int((before_s - since_s) / each_s) if before_s is not None and each_s > 1.5 * usual_s else columns
    return [
        value / known if known >= each_s * (_DONE if column == newest else _ENOUGH) else None
        for column, (value, known) in enumerate(zip(sums, known_s, strict=True))
    ]


def worst_columns(
    points: Sequence[SeriesPoint], since_s: float, until_s: float, columns: int, pause: float = PAUSE
) -> list[float | None]:
    """The largest value per column; None where there is none. A column between two points is the later one's."""
    if columns < 1:
        return []
    found: list[float | None] = [None] * columns
    per_s = columns / (until_s - since_s)
    joined_s = pause * max(_usual_s(points), 1.0 / per_s)
    before: int | None = None
    before_s = 0.0
    for point in points:
        if point.value is None or not isfinite(point.value):
            before = None
            continue
        if since_s <= point.at_s < until_s:
            column = min(columns - 1, int((point.at_s - since_s) * per_s))
            first = column if before is None or point.at_s - before_s > joined_s else min(before + 1, column)
            for each in range(first, column + 1):
                known = found[each]
                found[each] = point.value if known is None else max(known, point.value)
            before, before_s = column, point.at_s
    return found


def _usual_s(points: Sequence[SeriesPoint]) -> float:
    """The usual distance; 0 of a single point, of which nobody knows."""
    distances = [after.at_s - before.at_s for before, after in pairwise(points)]
    return median_low(distances) if distances else 0.0
