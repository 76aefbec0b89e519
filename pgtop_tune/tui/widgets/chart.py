"""What every chart has: a window that stands still and moves on in steps, a zero-based scale, marks, arms, and sparks.

The window fills from the left; when it is full it moves on by a sixteenth, or some columns. So most ticks change one
column, and little of the chart is empty.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from msgspec import Struct

from pgtop_tune.tui.widgets.gauges import fold_to_largest
from pgtop_tune.tui.widgets.glyphs import Glyphs

GUTTER: Final = 7
"""Cells left of the first column: a label, a blank, the axis."""
LABEL: Final = GUTTER - 2
"""Cells of a label."""
_NICE: Final = (1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0)
_STEPS: Final = 16
"""A full window moves on by so small a part of itself,"""
_FEWEST: Final = 6
"""and by so many columns at least, up to a quarter: each time all of it is drawn anew."""
_NEXT_TO_ZERO: Final = 1e-9
"""Below this a scale would magnify rounding errors."""


class ChartMark(Struct, frozen=True):
    """A moment drawn as an upright through the empty cells of a chart, faint unless it has a style of its own.

    Attributes:
        label: What stands at its top, over the curves: a value beyond the scale. "" is nothing.
    """

    at_s: float
    style: str = "dim"
    label: str = ""


class ArmBand(Struct, frozen=True):
    """A stretch of time in which an arm of an experiment was in force: shaded under the curves.

    Attributes:
        arm: "A" or "B": stands at the foot of its first column.
    """

    since_s: float
    until_s: float
    arm: str

    @property
    def style(self) -> str:
        """A name of `STYLES`."""
        return f"arm-{self.arm.lower()}"


def window(now_s: float, columns: int, s_per_column: float = 1.0) -> tuple[float, float]:
    """The time span a chart of so many columns shows at that moment: (since_s, until_s).

    It stays the same while it fills from the left, and moves on by a sixteenth of itself when full. `now_s` always
    lies in [since_s, until_s).
    """
    span = columns * s_per_column
    if now_s < span:
        return 0.0, span
    step = min(max(columns // _STEPS, _FEWEST), max(columns // 4, 1)) * s_per_column
    since = step * (math.floor((now_s - span) / step) + 1)
    return since, since + span


def column_of(at_s: float, since_s: float, until_s: float, columns: int) -> int | None:
    """The column, from 0, in which a moment is drawn; None outside the window."""
    if not since_s <= at_s < until_s:
        return None
    # Multiplied first, whole seconds stay exact: else the begin of some columns falls into the one before.
    return min(columns - 1, int((at_s - since_s) * columns / (until_s - since_s)))


def nice_ceiling(value: float) -> float:
    """The smallest round number not below a value: 1, 1.5, 2, 3, 4, 5, 6, 8 times a power of ten; 1 for next to 0."""
    if value < _NEXT_TO_ZERO:
        return 1.0
    power = 10.0 ** math.floor(math.log10(value))
    return next((step * power for step in _NICE if step * power >= value * (1 - 1e-9)), 10.0 * power)


def spark(values: Sequence[float | None], width: int, glyphs: Glyphs, maximum: float | None = None) -> str:
    """A curve of one line, zero-based; exactly `width` cells, filled from the left.

    Args:
        values: Oldest first; None, or what is no number, leaves a gap. More values than cells share a cell, which
            shows the largest.
        width: Cells.
        glyphs: Drawn with `glyphs.rising`.
        maximum: The value of a full block; the largest of the values when not given.
    """
    known = [value if value is not None and math.isfinite(value) else None for value in values]
    values = fold_to_largest(known, width)
    top = maximum if maximum is not None else max((value for value in values if value is not None), default=0.0)
    blocks = glyphs.rising
    highest = len(blocks) - 1
    drawn = [
        " "
        if value is None
        else blocks[max(1, round(min(max(value / top, 0.0), 1.0) * highest))]
        if top > 0
        else blocks[1]
        for value in values
    ]
    return "".join(drawn).ljust(width)


def label_cells(marks: Sequence[ChartMark], columns: int, since_s: float, until_s: float) -> dict[int, tuple[str, str]]:
    """Characters and styles of the labels by column; the longest has its room first, the first of it at the mark."""
    found: dict[int, tuple[str, str]] = {}
    for mark in sorted(marks, key=lambda mark: -len(mark.label)):
        column = column_of(mark.at_s, since_s, until_s, columns)
        if column is None or not mark.label:
            continue
        mark_char, number = mark.label[0], mark.label[1:]
        # Right of the mark, or left of it where the chart ends.
        begin = column + 1 if column + len(number) < columns else column - len(number)
        cells = {column: mark_char} | {begin + index: char for index, char in enumerate(number)}
        found = {at: (char, mark.style) for at, char in cells.items() if at >= 0} | found
    return found


def bands_of_columns(bands: Sequence[ArmBand], since_s: float, until_s: float, columns: int) -> dict[int, ArmBand]:
    """The band of each column that has one; where two meet, the later one."""
    found: dict[int, ArmBand] = {}
    for band in bands:
        first = column_of(max(band.since_s, since_s), since_s, until_s, columns)
        if first is None or band.until_s <= since_s:
            continue
        last = column_of(band.until_s, since_s, until_s, columns)
        found |= dict.fromkeys(range(first, columns if last is None else last + 1), band)
    return found
