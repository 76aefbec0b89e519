"""Curves as lines: braille dots, a zero-based scale, gaps for what is not known, and a tape of events below.

The window of a chart stands still and fills from the left; when it is full it moves on by a sixteenth, or some
columns. So most ticks change one column, and little of the chart is empty.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import pairwise
from statistics import median_low
from typing import Final

from msgspec import Struct

from pgtop_tune.runtime.history import SeriesPoint
from pgtop_tune.tui.widgets.gauges import fold_to_largest
from pgtop_tune.tui.widgets.glyphs import Glyphs
from pgtop_tune.tui.widgets.lines import PLAIN, Line, Span

GUTTER: Final = 7
"""Cells left of the first column: a label, a blank, the axis."""
LABEL: Final = GUTTER - 2
"""Cells of a label."""
_NICE: Final = (1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0)
_BRAILLE_BITS: Final = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))
_HALVES: Final = " '.:"
_STEPS: Final = 16
"""A full window moves on by so small a part of itself,"""
_FEWEST: Final = 6
"""and by so many columns at least, up to a quarter: each time all of it is drawn anew."""
_NEXT_TO_ZERO: Final = 1e-9
"""Below this a scale would magnify rounding errors."""
_PAUSE: Final = 4.0
"""Points further apart than so many usual distances are not joined by a line."""


class ChartSeries(Struct, frozen=True):
    """One curve.

    Attributes:
        points: Oldest first, on the session's clock; a value of None is a gap.
        style: A name of `STYLES`.
        dim: A baseline overlay: drawn in the style "dim" under all others.
    """

    points: Sequence[SeriesPoint]
    style: str
    dim: bool = False


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


def chart_lines(
    series: Sequence[ChartSeries],
    *,
    width: int,
    height: int,
    since_s: float,
    until_s: float,
    unit_format: Callable[[float], str],
    glyphs: Glyphs,
    marks: Sequence[ChartMark] = (),
    cursor_s: float | None = None,
    maximum: float | None = None,
    bands: Sequence[ArmBand] = (),
) -> list[Line]:
    """Curves over a time window; `height` lines of exactly `width` cells, the first `GUTTER` of them labels.

    Args:
        series: Later ones are drawn over earlier ones, baseline overlays under all.
        width: Cells of every line, the gutter included.
        height: Lines; one line is drawn as a spark of the last series that is no baseline overlay.
        since_s: The window's begin on the session's clock.
        until_s: Its end.
        unit_format: Makes labels of at most five cells of a value.
        glyphs: Braille or half cells.
        marks: Events.
        cursor_s: A moment whose column is drawn as an upright.
        maximum: The value at the top edge; otherwise the smallest nice number that holds every value in the window.
        bands: Shaded below the lowest curve of each column.
    """
    columns = width - GUTTER
    if height <= 0:
        return []
    if columns < 1:
        return [((" " * width, PLAIN),)] * height
    visible = [(one, _inside(one.points, since_s, until_s)) for one in series]
    top = maximum
    if top is None:
        top = nice_ceiling(
            max((point.value for _, points in visible for point in points if point.value is not None), default=0.0)
        )
    if height == 1:
        return [
            _spark_line(
                visible=visible,
                columns=columns,
                since_s=since_s,
                until_s=until_s,
                top=top,
                unit_format=unit_format,
                glyphs=glyphs,
            )
        ]
    across, down = (2, 4) if glyphs.braille else (1, 2)
    masks = [[0] * columns for _ in range(height)]
    styles = [[PLAIN] * columns for _ in range(height)]
    for one, points in sorted(visible, key=lambda pair: not pair[0].dim):
        dots = _dots(points, columns * across, height * down, since_s, until_s, top)
        _stamp(dots, "dim" if one.dim else one.style, masks, styles, across, down)
    uprights = {
        column: (glyphs.mark_upright, mark.style)
        for mark in marks
        if (column := column_of(mark.at_s, since_s, until_s, columns)) is not None
    }
    if cursor_s is not None and (column := column_of(cursor_s, since_s, until_s, columns)) is not None:
        uprights[column] = (glyphs.upright, "strong")
    labels = _labels(height, top, unit_format)
    over = label_cells(marks, columns, since_s, until_s)
    shades = _shades(bands, masks, since_s, until_s, glyphs)
    return [
        (
            (f"{labels.get(y, ''):>{LABEL}} {glyphs.axis}", "dim"),
            *_runs(masks[y], styles[y], shades[y] | uprights, {} if y else over, glyphs),
        )
        for y in range(height)
    ]


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


def _inside(points: Sequence[SeriesPoint], since_s: float, until_s: float) -> list[SeriesPoint]:
    """The points of the window; a value that is no number is a gap like any other unknown one."""
    return [
        point if point.value is None or math.isfinite(point.value) else SeriesPoint(point.at_s, None)
        for point in points
        if since_s <= point.at_s < until_s
    ]


def _labels(height: int, top: float, unit_format: Callable[[float], str]) -> dict[int, str]:
    rows = {0: top, height - 1: 0.0}
    if height >= 7:
        rows[height // 2] = top / 2
    return {row: unit_format(value)[:LABEL] for row, value in rows.items()}


def _dots(
    points: Sequence[SeriesPoint], columns: int, rows: int, since_s: float, until_s: float, top: float
) -> dict[int, tuple[int, int]]:
    """Lowest and highest dot row (from the bottom) per dot column, neighbours joined by straight lines."""
    dots: dict[int, tuple[int, int]] = {}
    distances = [after.at_s - before.at_s for before, after in pairwise(points)]
    # Of a single distance nobody knows whether it is usual.
    usual_s = median_low(distances) if len(distances) > 1 else 0.0
    longest = _PAUSE * max(usual_s, (until_s - since_s) / columns)
    per_s = columns / (until_s - since_s)
    before: tuple[int, int] | None = None
    before_s = 0.0
    for point in points:
        if point.value is None:
            before = None
            continue
        x = min(columns - 1, int((point.at_s - since_s) * per_s))
        y = round(min(max(point.value / top, 0.0), 1.0) * (rows - 1))
        if before is not None and point.at_s - before_s <= longest:
            _join(dots, *before, x, y)
        else:
            _join(dots, x, y, x, y)
        before, before_s = (x, y), point.at_s
    return dots


def _join(dots: dict[int, tuple[int, int]], x0: int, y0: int, x1: int, y1: int) -> None:
    steps = x1 - x0
    last = y0
    for x in range(x0, x1 + 1):
        y = y1 if steps == 0 else y0 + round((y1 - y0) * (x - x0) / steps)
        low, high = (last, y) if last <= y else (y, last)
        if steps and abs(y - last) > 1 and x > x0:
            low, high = (last + 1, y) if y > last else (y, last - 1)
        if x in dots:
            low, high = min(low, dots[x][0]), max(high, dots[x][1])
        dots[x] = (low, high)
        last = y


def _stamp(
    dots: dict[int, tuple[int, int]],
    style: str,
    masks: list[list[int]],
    styles: list[list[str]],
    across: int,
    down: int,
) -> None:
    height = len(masks)
    for x, (low, high) in dots.items():
        column, dx = divmod(x, across)
        for y in range(low, high + 1):
            row = height - 1 - y // down
            dy = down - 1 - y % down
            bit = _BRAILLE_BITS[dy][dx] if down == 4 else 1 << dy
            if styles[row][column] == "dim" and style != "dim":
                masks[row][column] = 0
            masks[row][column] |= bit
            styles[row][column] = style


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


def _shades(
    bands: Sequence[ArmBand], masks: Sequence[Sequence[int]], since_s: float, until_s: float, glyphs: Glyphs
) -> list[dict[int, tuple[str, str]]]:
    """Characters and styles under the curves by row and column; the arm's letter begins the lowest row."""
    height = len(masks)
    found: list[dict[int, tuple[str, str]]] = [{} for _ in masks]
    of_columns = bands_of_columns(bands, since_s, until_s, len(masks[0]))
    for column, band in of_columns.items():
        drawn = [y for y in range(height) if masks[y][column]]
        for y in range(drawn[-1] + 1, height) if drawn else ():
            found[y][column] = (glyphs.shades[band.arm == "B"], band.style)
        if of_columns.get(column - 1) is not band and not masks[-1][column]:
            found[-1][column] = (band.arm, band.style)
    return found


def _runs(
    masks: list[int],
    styles: list[str],
    uprights: dict[int, tuple[str, str]],
    over: dict[int, tuple[str, str]],
    glyphs: Glyphs,
) -> list[Span]:
    """Cells joined to spans; a blank takes the style of its left neighbour, which costs nothing to write."""
    runs: list[Span] = []
    text: list[str] = []
    current = PLAIN
    for column, mask in enumerate(masks):
        if column in over:
            char, style = over[column]
        elif mask:
            char, style = (chr(0x2800 + mask) if glyphs.braille else _HALVES[mask]), styles[column]
        elif column in uprights:
            char, style = uprights[column]
        else:
            text.append(" ")
            continue
        if style != current:
            if text:
                runs.append(("".join(text), current))
            text, current = [], style
        text.append(char)
    runs.append(("".join(text), current))
    return runs


def _spark_line(
    visible: Sequence[tuple[ChartSeries, list[SeriesPoint]]],
    columns: int,
    since_s: float,
    until_s: float,
    top: float,
    unit_format: Callable[[float], str],
    glyphs: Glyphs,
) -> Line:
    values: list[float | None] = [None] * columns
    style = PLAIN
    for one, points in visible:
        if one.dim:
            continue
        values, style = [None] * columns, one.style
        for point in points:
            column = column_of(point.at_s, since_s, until_s, columns)
            if column is not None and point.value is not None:
                values[column] = max(point.value, values[column] or 0.0)
    label = f"{unit_format(top)[:LABEL]:>{LABEL}} {glyphs.axis}"
    return (label, "dim"), (spark(values, columns, glyphs, top), style)
