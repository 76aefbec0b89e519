"""One row of a heat map: a cell per column of time, its height and its colour by how much there was."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby, pairwise
from statistics import median
from typing import Final

from pgtop_tune.runtime.history import SeriesPoint
from pgtop_tune.tui.widgets.chart import column_of
from pgtop_tune.tui.widgets.glyphs import Glyphs
from pgtop_tune.tui.widgets.lines import PLAIN, Line

_HEAT: Final = ("heat-0", "heat-1", "heat-2", "heat-3", "heat-4")
_PAUSE: Final = 4.0
_NOTHING: Final = 0.02
"""Share of the full scale below which a cell is drawn as nothing."""


def columns_of(points: Sequence[SeriesPoint], since_s: float, until_s: float, columns: int) -> list[float | None]:
    """Mean per column of time; None where nothing is known.

    A point speaks for the time since the one before it, unless that is longer ago than `_PAUSE` usual distances.
    """
    found: list[list[float]] = [[] for _ in range(columns)]
    usual_s = median([after.at_s - before.at_s for before, after in pairwise(points)] or [0.0])
    before: int | None = None
    before_s = 0.0
    for point in points:
        column = column_of(point.at_s, since_s, until_s, columns)
        if column is not None and point.value is not None:
            joined = before is not None and point.at_s - before_s <= _PAUSE * usual_s
            first = column if before is None or not joined else min(before + 1, column)
            for each in range(first, column + 1):
                found[each].append(point.value)
        before, before_s = (column, point.at_s) if point.value is not None else (None, 0.0)
    return [sum(values) / len(values) if values else None for values in found]


def heat_row(values: Sequence[float | None], full: float, glyphs: Glyphs) -> Line:
    """A cell per value: blank where unknown, a dim speck for nothing, a block that grows with its share of `full`.

    Block and colour say the same, so that one of them is enough.
    """
    drawn = (_cell(value, full, glyphs) for value in values)
    return tuple(("".join(text for text, _ in run), style) for style, run in groupby(drawn, key=lambda cell: cell[1]))


def _cell(value: float | None, full: float, glyphs: Glyphs) -> tuple[str, str]:
    if value is None:
        return " ", PLAIN
    share = min(value / full, 1.0) if full > 0 else 0.0
    if share < _NOTHING:
        return glyphs.speck, "dim"
    highest = len(glyphs.rising) - 1
    return glyphs.rising[max(1, round(share * highest))], _HEAT[min(int(share * 5), 4)]
