"""Points of a series in the columns of a chart: means weighted by time, or the worst; gaps for what is not known."""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite

from pgtop_tune.runtime.column_means import PAUSE, ColumnMeans, usual_s
from pgtop_tune.runtime.history import SeriesPoint


def mean_columns(points: Sequence[SeriesPoint], since_s: float, until_s: float, columns: int) -> list[float | None]:
    """Mean per column, each point weighted by the time it speaks for; None where less than half is known."""
    if columns < 1:
        return []
    drawn = ColumnMeans(since_s, until_s, columns, usual_s([point.at_s for point in points]))
    drawn.take((point.at_s, point.value) for point in points)
    return drawn.means


def worst_columns(
    points: Sequence[SeriesPoint], since_s: float, until_s: float, columns: int, pause: float = PAUSE
) -> list[float | None]:
    """The largest value per column; None where there is none. A column between two points is the later one's."""
    if columns < 1:
        return []
    found: list[float | None] = [None] * columns
    per_s = columns / (until_s - since_s)
    joined_s = pause * max(usual_s([point.at_s for point in points]), 1.0 / per_s)
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
