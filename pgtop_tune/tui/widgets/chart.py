"""Filled charts: areas behind each other, curves over them, labelled gridlines, gaps for what is not known.

A column is one cell wide and drawn in eighths of a cell, so that a chart which moves on changes little but its edge.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import lru_cache
from math import isfinite
from typing import Final

from msgspec import Struct

from pgtop_tune.base.units import age, axis_label
from pgtop_tune.runtime.history import PAUSE, Charted, ColumnMeans, SeriesPoint, usual_s
from pgtop_tune.runtime.session import Session
from pgtop_tune.tui.widgets.lines import ELSE, ON, PLAIN, Glyphs, Line, Span, fold_to_largest, on

# What every chart has: a window whose right edge is now, a zero-based scale, marks, arms, and sparks.
#
# A window moves on by whole columns, which keep their contents: the terminal moves their cells (`line_diff`).

GUTTER: Final = 7
"""Cells left of the first column: a label, a blank, the axis."""
LABEL: Final = GUTTER - 2
"""Cells of a label."""
Columns = Sequence[float | None]
Cell = tuple[str, str]

_NICE: Final = (1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0)
_LATE_S: Final = 0.3
"""A frame comes so late at most after the second that it is of: the window goes on by one column a second."""
LEGEND: Final = 14
"""Cells right of the columns for the names and the present values of the curves."""
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


class CurveEnd(Struct, frozen=True):
    """The name and the present value of a curve, right of its last column.

    Attributes:
        label: Its name.
        text: Its value.
        style: A name of `STYLES`.
        values: The curve: the line stands as high as its last columns do.
        rank: Where rows are few the highest ranks have none.
    """

    label: str
    text: str
    style: str
    values: Columns = ()
    rank: int = 0


def ends_with_room(ends: Sequence[CurveEnd], rows: int) -> list[CurveEnd]:
    """Return those that find room beside so many rows."""
    kept = sorted(range(len(ends)), key=lambda index: ends[index].rank)[: max(rows, 0)]
    return [end for index, end in enumerate(ends) if index in kept]


class Peak(Struct, frozen=True):
    """The highest column of a curve, marked with its value.

    Attributes:
        values: One per column; None is a gap.
        form: Makes the text of a value.
    """

    values: Columns
    form: Callable[[float], str]


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


class TimeAxis(Struct, frozen=True):
    """A window of the session's time in columns.

    Attributes:
        since_s: Its begin on the session's clock.
        until_s: Its end.
        width: Cells of gutter and columns together.
        beside: Cells right of the columns: the legend of a chart, the figures of a spark.
    """

    since_s: float
    until_s: float
    width: int
    beside: int = 0

    @property
    def columns(self) -> int:
        """Cells that show time."""
        return max(self.width - GUTTER, 0)

    @property
    def column_s(self) -> float:
        """Seconds of a column."""
        return (self.until_s - self.since_s) / max(self.columns, 1)

    @property
    def words(self) -> str:
        """Length of the window: "3m13s"."""
        return age(self.until_s - self.since_s)

    def column_of(self, at_s: float) -> int | None:
        """Return the column, from 0, of a moment, the last one for the present; None outside the window."""
        if self.until_s <= at_s <= self.until_s + _LATE_S:
            return self.columns - 1
        return column_of(at_s, self.since_s, self.until_s, self.columns)

    def moment_of(self, x: int) -> float | None:
        """Return the middle of the column in the cell `x` of gutter and columns; None where there is no column."""
        column = x - GUTTER
        return self.since_s + (column + 0.5) * self.column_s if 0 <= column < self.columns else None

    def means(self, points: Sequence[SeriesPoint]) -> list[float | None]:
        """Return a series in its columns, see `mean_columns`."""
        return mean_columns(points, self.since_s, self.until_s, self.columns)

    def means_of(self, session: Session, metric: Charted) -> list[float | None]:
        """Return a series that the session keeps, in its columns."""
        return session.history.means(metric, self.since_s, self.until_s, self.columns) if self.columns > 0 else []


def window(now_s: float, columns: int, s_per_column: float = 1.0) -> tuple[float, float]:
    """Return the time span a chart of so many columns shows at that moment: (since_s, until_s).

    Its last column is the newest of which something is known, also while it reaches back to before the session began.
    """
    until_s = math.ceil((now_s - _LATE_S) / s_per_column) * s_per_column
    return until_s - columns * s_per_column, until_s


def column_of(at_s: float, since_s: float, until_s: float, columns: int) -> int | None:
    """Return the column, from 0, in which a moment is drawn; None outside the window."""
    if not since_s <= at_s < until_s:
        return None
    # Multiplied first, whole seconds stay exact: else the begin of some columns falls into the one before.
    return min(columns - 1, int((at_s - since_s) * columns / (until_s - since_s)))


def nice_ceiling(value: float) -> float:
    """Return the smallest round number not below a value: 1, 1.5, 2, 3, 4, 5, 6, 8 times a power of ten; 1 for next to
    0.
    """
    if value < _NEXT_TO_ZERO:
        return 1.0
    power = 10.0 ** math.floor(math.log10(value))
    return next((step * power for step in _NICE if step * power >= value * (1 - 1e-9)), 10.0 * power)


def spark(values: Sequence[float | None], width: int, glyphs: Glyphs) -> str:
    """Return a curve of one line, zero-based; exactly `width` cells, filled from the left.

    Args:
        values: Oldest first; None, or what is no number, leaves a gap. More values than cells share a cell, which
            shows the largest. The largest of all is a full block.
        width: Cells.
        glyphs: Drawn with `glyphs.rising`.
    """
    finite = [value if value is not None and math.isfinite(value) else None for value in values]
    values = fold_to_largest(finite, width)
    top = max((value for value in values if value is not None), default=0.0)
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


def label_cells(
    marks: Sequence[ChartMark], axis: TimeAxis, drawn: Sequence[Cell | None] = ()
) -> dict[int, tuple[str, str]]:
    """Return characters and styles of the labels by column; the longest has its room first, the first of it at the
    mark.

    Args:
        marks: With a label or without.
        axis: The window.
        drawn: Cells of the line in which they stand: a label hides as few of them as it can.
    """
    cells_of_labels: dict[int, tuple[str, str]] = {}
    for mark in sorted(marks, key=lambda mark: -len(mark.label)):
        column = axis.column_of(mark.at_s)
        if column is None or not mark.label:
            continue
        mark_char, number = mark.label[0], mark.label[1:]
        # Right of the mark, or left of it.
        after, before = range(column + 1, column + 1 + len(number)), range(column - len(number), column)
        hidden = [sum(1 for at in side if drawn[at : at + 1] not in ((), (None,))) for side in (after, before)]
        fits = after.stop <= axis.columns
        side = after if before.start < 0 or (fits and hidden[0] <= hidden[1]) else before
        cells = {column: mark_char} | dict(zip(side, number, strict=True))
        cells_of_labels = {
            at: (char, mark.style) for at, char in cells.items() if 0 <= at < axis.columns
        } | cells_of_labels
    return cells_of_labels


def bands_of_columns(bands: Sequence[ArmBand], since_s: float, until_s: float, columns: int) -> dict[int, ArmBand]:
    """Return the band of each column that has one; where two meet, the later one."""
    by_column: dict[int, ArmBand] = {}
    for band in bands:
        first = column_of(max(band.since_s, since_s), since_s, until_s, columns)
        if first is None or band.until_s <= since_s:
            continue
        last = column_of(band.until_s, since_s, until_s, columns)
        by_column |= dict.fromkeys(range(first, columns if last is None else last + 1), band)
    return by_column


# Points of a series in the columns of a chart: means weighted by time, or the worst; gaps for what is not known.


def mean_columns(points: Sequence[SeriesPoint], since_s: float, until_s: float, columns: int) -> list[float | None]:
    """Return the mean per column, each point weighted by the time it speaks for; None where less than half is known."""
    if columns < 1:
        return []
    drawn = ColumnMeans(since_s, until_s, columns, usual_s([point.at_s for point in points]))
    drawn.take((point.at_s, point.value) for point in points)
    return drawn.means


def worst_columns(
    points: Sequence[SeriesPoint], since_s: float, until_s: float, columns: int, pause: float = PAUSE
) -> list[float | None]:
    """Return the largest value per column; None where there is none. A column between two points is the later one's."""
    if columns < 1:
        return []
    largest: list[float | None] = [None] * columns
    per_s = columns / (until_s - since_s)
    joined_s = pause * max(usual_s([point.at_s for point in points]), 1.0 / per_s)
    before: int | None = None
    before_s = 0.0
    for point in points:
        at_s, value = point.at_s, point.value
        if value is None or not isfinite(value):
            before = None
        elif since_s <= at_s < until_s:
            column = min(columns - 1, int((at_s - since_s) * per_s))
            first = column if before is None or at_s - before_s > joined_s else min(before + 1, column)
            before, before_s = column, at_s
            for index in range(first, column + 1):
                highest = largest[index]
                if highest is None or value > highest:
                    largest[index] = value
    return largest


_PARTS: Final = 8
"""Steps of a cell."""
_GRIDS: Final = (4, 3, 2)
"""Gridlines above zero, as many as there is room for at round values."""
_ROWS_PER_GRID: Final = 2
_YOUNG: Final = 8
"""Columns at the right edge that still change: lines of pgbench's log come seconds late."""


class Area(Struct, frozen=True):
    """A curve that is filled down to the area in front of it, or to zero.

    Attributes:
        values: One per column; None is a gap.
        style: A name of `STYLES`.
        density: Which of `Glyphs.densities` fills it.
        alarms: Columns that are an alarm: one colour from their foot to their edge.
    """

    values: Columns
    style: str
    density: int = 0
    alarms: Collection[int] = ()


def highest_columns(areas: Sequence[Area]) -> Columns:
    """Return the upper edge of all areas together."""
    edges = zip(*(area.values for area in areas), strict=True)
    return [max((value for value in values if value is not None), default=None) for values in edges]


class Level(Struct, frozen=True):
    """A curve drawn as a line over the areas.

    Attributes:
        values: One per column; None is a gap.
        style: A name of `STYLES`.
        char: The character that it is drawn with; "" is `Glyphs.level`.
        apart: Drawn only where it is at least a cell away from the foremost area.
        yields: Whether it leaves cells in which an area ends: its speck there would hide the area.
    """

    values: Columns
    style: str
    char: str = ""
    apart: bool = False
    yields: bool = False


def filled_lines(
    areas: Sequence[Area],
    levels: Sequence[Level] = (),
    *,
    axis: TimeAxis,
    height: int,
    top: float,
    unit_format: Callable[[float], str],
    glyphs: Glyphs,
    marks: Sequence[ChartMark] = (),
    bands: Sequence[ArmBand] = (),
    ends: Sequence[CurveEnd] = (),
    peak: Peak | None = None,
) -> list[Line]:
    """Return `height` lines: `GUTTER` cells of labels, the columns, and the legend for which the axis has room.

    Args:
        areas: The foremost first: each hides those behind it up to its own height.
        levels: Later ones are drawn over earlier ones.
        axis: The window.
        height: Lines.
        top: The value at the upper edge; what is above it is cut.
        unit_format: Makes labels of at most five cells of a value.
        glyphs: Characters.
        marks: Moments, as uprights around the edge of the areas; their labels stand in the first line.
        bands: Shaded instead of filled.
        ends: The legend.
        peak: The curve whose highest column is marked.
    """
    columns = axis.columns
    if height <= 0:
        return []
    if columns < 1:
        return [((" " * (axis.width + axis.beside), PLAIN),)] * height
    drawing = _drawing(
        tuple((area.style, area.density) for area in areas),
        tuple((level.style, level.char or glyphs.level, level.apart, level.yields) for level in levels),
        height,
        top,
        (glyphs.rising, glyphs.densities, glyphs.shades),
    )
    of_columns = bands_of_columns(bands, axis.since_s, axis.until_s, columns)
    rows = drawing.rows(_contents(areas, levels, of_columns, columns))
    uprights = {
        column: (glyphs.mark_upright, mark.style) for mark in marks if (column := axis.column_of(mark.at_s)) is not None
    }
    labels = _grid_labels(height, top, unit_format)
    written = {} if peak is None else _peak_label(peak, top, axis, rows, glyphs)
    written[0] = written.get(0, {}) | label_cells(marks, axis)
    legend = _legend(ends, top, height, axis.beside)
    return [
        (
            (f"{labels.get(row, ''):>{LABEL}} {glyphs.axis if row in labels else glyphs.upright}", "dim"),
            *drawing.spans(
                row, cells, uprights, written.get(row, {}),
                glyphs.grid if row in labels and row < height - 1 else " ",
            ),
            *legend[row],
        )
        for row, cells in enumerate(rows)
    ]  # fmt: skip


def _row_of(value: float, top: float, rows: int) -> int:
    """Return the row, from the top, in which the upper edge of a value lies."""
    return rows - 1 - ((_height(value, top, rows) or 1) - 1) // _PARTS


def _peak_label(
    peak: Peak, top: float, axis: TimeAxis, rows: Sequence[tuple[Cell | None, ...]], glyphs: Glyphs
) -> dict[int, dict[int, Cell]]:
    """Return the cells of the mark and the value by row and column: above the highest column, if there is a row."""
    values = [value or 0.0 for value in peak.values[: axis.columns]]
    highest = max(values, default=0.0)
    if highest <= 0.0:
        return {}
    row = max(_row_of(highest, top, len(rows)) - 1, 0)
    at_s = axis.since_s + (values.index(highest) + 0.5) * axis.column_s
    return {row: label_cells((ChartMark(at_s, "label", glyphs.down + peak.form(highest)),), axis, rows[row])}


_RECENT: Final = 12
"""Columns whose mean is the height of a curve's end: it does not jump."""


def _legend(ends: Sequence[CurveEnd], top: float, rows: int, cells: int) -> list[Line]:
    """Return the legend by row, each end as near to its curve as those above and below it allow."""
    if cells < 1:
        return [()] * rows
    ends = ends_with_room(ends, rows)
    highs = []
    for end in ends:
        recent = [value for value in end.values if value is not None][-_RECENT:]
        highs.append(sum(recent) / len(recent) if recent else 0.0)
    order = sorted(range(len(ends)), key=lambda index: -highs[index])
    places: list[int] = []
    for index in order:
        places.append(max(_row_of(highs[index], top, rows), places[-1] + 1 if places else 0))
    for back in range(len(places) - 1, -1, -1):
        places[back] = min(places[back], rows - len(places) + back)
    legend: list[Line] = [((" " * cells, PLAIN),)] * rows
    for row, index in zip(places, order, strict=True):
        end = ends[index]
        label = f" {end.label} "
        legend[row] = ((f"{label}{end.text.rjust(cells - len(label) - 1)} "[:cells], end.style),)
    return legend


def _height(value: float | None, top: float, rows: int) -> int | None:
    """Return the height of a value in eighths of a cell; a known value always shows."""
    if value is None:
        return None
    return max(1, round(min(value / top, 1.0) * rows * _PARTS)) if top > 0 else 1


_Fill = tuple[str, int]
"""Style and density of an area."""
_Line = tuple[str, str, bool, bool]
"""Style and character of a level, whether it is drawn only apart from the foremost area, and whether it yields."""
_Content = tuple[tuple[float | None, ...], tuple[bool, ...], str, bool]
"""All of which a column is made: a value per area and level, per area whether it is an alarm, the arm ("" without
one), and whether it begins here."""


def _contents(
    areas: Sequence[Area], levels: Sequence[Level], bands: Mapping[int, ArmBand], columns: int
) -> list[_Content]:
    series = [area.values for area in areas] + [level.values for level in levels]
    values = [[*curve[:columns], *[None] * (columns - len(curve))] for curve in series]
    of_columns = list(zip(*values, strict=True)) if values else [()] * columns
    alarmed = any(area.alarms for area in areas)
    return [
        (
            of_column,
            tuple([column in area.alarms for area in areas]) if alarmed else (),
            bands[column].arm if column in bands else "",
            column in bands and bands.get(column - 1) is not bands[column],
        )
        for column, of_column in enumerate(of_columns)
    ]


class _Drawing:
    """Draws columns, each from its own content alone; a column, and a row, that is as before is not drawn again.

    Args:
        fills: The areas, the foremost first.
        lines: The levels.
        height: Rows.
        top: The value at the upper edge.
        characters: `Glyphs.rising`, `.densities` and `.shades`.
    """

    def __init__(
        self, fills: tuple[_Fill, ...], lines: tuple[_Line, ...], height: int, top: float,
        characters: tuple[str, str, tuple[str, str]],
    ) -> None:  # fmt: skip
        self._fills = fills
        self._lines = lines
        self._height = height
        self._top = top
        self._rising, self._densities, self._shades = characters
        self._contents: list[_Content] = []
        self._columns: list[tuple[Cell | None, ...]] = []
        self._rows: dict[int, tuple[object, list[Span]]] = {}

    def rows(self, contents: list[_Content]) -> list[tuple[Cell | None, ...]]:
        """Return cells by row from the top; None where nothing is drawn."""
        by = self._gone_on(contents)
        before = zip(self._contents[by:], self._columns[by:], strict=True)
        self._columns = [
            cached[1] if (cached := next(before, None)) is not None and cached[0] == content else self._column(*content)
            for content in contents
        ]
        self._contents = contents
        return list(zip(*self._columns, strict=True))

    def _gone_on(self, contents: list[_Content]) -> int:
        """Return by how many columns the chart has moved; 0 as well where that is not seen."""
        before, old = self._contents, len(contents) - _YOUNG
        if len(before) != len(contents):
            return 0
        return next((by for by in range(min(_YOUNG, max(old, 0))) if before[by:old] == contents[: old - by]), 0)

    def spans(
        self, row: int, cells: tuple[Cell | None, ...], uprights: Mapping[int, Cell], mark_labels: Mapping[int, Cell],
        empty: str,
    ) -> list[Span]:  # fmt: skip
        """Return a row's cells as spans.

        Args:
            row: Its number.
            cells: Cells of that row.
            uprights: Go through empty cells and the inside of areas.
            mark_labels: Stand over everything.
            empty: Character of empty cells.
        """
        content = cells, uprights, mark_labels, empty
        cached = self._rows.get(row)
        if cached is None or cached[0] != content:
            cached = self._rows[row] = content, _spans(cells, uprights, mark_labels, empty, self._densities)
        return cached[1]

    def _column(
        self, values: tuple[float | None, ...], alarms: tuple[bool, ...], arm: str, begins: bool
    ) -> tuple[Cell | None, ...]:
        cells: list[Cell | None] = [None] * self._height
        of_areas = values[: len(self._fills)]
        heights = [_height(value, self._top, self._height) for value in of_areas]
        fills = [
            ("critical", density) if is_alarm else (style, density)
            for (style, density), is_alarm in zip(self._fills, alarms or (False,) * len(self._fills), strict=True)
        ]
        filled_areas = [(fill, high) for fill, high in zip(fills, heights, strict=True) if high is not None]
        filled, edges = 0, set()
        for fill, high in filled_areas:
            if high <= filled:
                continue
            cell = _filling(*fill, self._densities)
            for row in range(-(-filled // _PARTS), high // _PARTS):
                cells[-1 - row] = cell
            if high % _PARTS:
                edges.add(high // _PARTS)
            filled = high
        for row in edges:
            base = row * _PARTS
            cells[-1 - row] = self._edge(filled_areas, base) or self._upper(filled_areas, filled, base)
        if arm:
            self._shade(cells, arm, begins=begins)
        for line, value in zip(self._lines, values[len(self._fills) :], strict=True):
            self._draw_level(cells, line, value, heights[0] if heights else None)
        return tuple(cells)

    def _upper(self, filled_areas: Sequence[tuple[_Fill, int]], tallest: int, base: int) -> Cell:
        """Return the upper edge of all, in the style of the foremost area that fills at least half of what is drawn
        there.
        """
        part = tallest - base
        fill = next(fill for fill, high in filled_areas if high >= base + part / 2)
        return self._rising[max(1, round(part / _PARTS * (len(self._rising) - 1)))], fill[0]

    def _edge(self, filled_areas: Sequence[tuple[_Fill, int]], base: int) -> Cell | None:
        """Return a cell that two areas fill, the lower one on the other's colour; None where one does, or it is not
        full.

        Of three those with the largest parts. Without colours the one that fills at least half has the cell.
        """
        parts: list[tuple[int, int, _Fill]] = []
        filled, full = base, base + _PARTS
        for fill, high in filled_areas:
            if high > filled:
                top = high if high < full else full
                parts.append((top - filled, top - base, fill))
                filled = top
                if filled == full:
                    break
        if len(parts) < 2 or filled < full:
            return None
        if len(parts) > 2:
            parts = sorted(sorted(parts, key=lambda part: -part[0])[:2], key=lambda part: part[1])
        (_, lower_part, lower), (_, _, upper) = parts
        last = len(self._rising) - 1
        char = self._rising[min(max(1, round(lower_part / _PARTS * last)), last - 1)]
        foremost = lower if 2 * lower_part >= _PARTS else upper
        return char, on(lower[0], upper[0], self._densities[foremost[1]])

    def _shade(self, cells: list[Cell | None], arm: str, *, begins: bool) -> None:
        """Draw an arm of an experiment into the full cells, on their own colour; its letter stands at the foot of its
        first column.
        """
        style = f"arm-{arm.lower()}"
        for row, cell in enumerate(cells):
            if cell is not None and cell[0] in self._densities:
                cells[row] = self._shades[arm == "B"], on(style, cell[1].partition(ON)[0])
        if begins:
            cells[-1] = arm, style

    def _draw_level(self, cells: list[Cell | None], line: _Line, value: float | None, front: int | None) -> None:
        style, char, apart, yields = line
        if value is None or value > self._top:
            return
        high = _height(value, self._top, self._height) or 1
        if apart and front is not None and abs(high - front) < _PARTS:
            return
        row = -1 - (high - 1) // _PARTS
        ground = _ground(cells[row], self._densities)
        if yields and not ground and cells[row] is not None:
            return
        cells[row] = char, on(style, ground) if ground else style


def _ground(cell: Cell | None, densities: str) -> str:
    """Return the style of the area that a line goes through; "" where there is none."""
    if cell is None:
        return ""
    front, _, behind = cell[1].partition(ELSE)[0].partition(ON)
    return behind or (front if cell[0] in densities else "")


_drawing = lru_cache(maxsize=8)(_Drawing)
"""As many charts as a page has: one and the same, as long as its styles, size and scale are."""


def filling(density: int, style: str, glyphs: Glyphs) -> Cell:
    """Return a full cell of an area: with colours all of it, without them as dense as it is."""
    return _filling(style, density, glyphs.densities)


def _filling(style: str, density: int, densities: str) -> Cell:
    return densities[density], on(style, style) if density else style


def _grid_labels(rows: int, top: float, unit_format: Callable[[float], str]) -> dict[int, str]:
    """Return labels by row: the upper edge, zero, and up to three between them, where a curve would lie."""
    parts = next((parts for parts in _GRIDS if rows // parts >= _ROWS_PER_GRID and _is_round(top / parts)), 1)
    labels = {
        rows * index // parts: axis_label(unit_format(top * (parts - index) / parts))[:LABEL] for index in range(parts)
    }
    return labels | {rows - 1: axis_label(unit_format(0.0))[:LABEL]} if rows > 1 else labels


def _is_round(value: float) -> bool:
    """Return whether it has one digit."""
    return value <= 0.0 or abs(float(f"{value:.0e}") - value) < 1e-9 * value


def _spans(
    cells: Sequence[Cell | None],
    uprights: Mapping[int, Cell],
    mark_labels: Mapping[int, Cell],
    empty: str,
    densities: str,
) -> list[Span]:
    """Return cells joined to spans; a blank takes the style of its left neighbour, which costs nothing to write."""
    drawn = list(cells)
    for column, (char, style) in uprights.items():
        cell = drawn[column]
        if cell is None or cell[0] in densities:
            # An upright goes through the inside of an area and leaves its edge.
            ground = _ground(cell, densities)
            drawn[column] = char, on(style, ground) if ground else style
    for column, label in mark_labels.items():
        if column < len(drawn):
            drawn[column] = label
    spans: list[Span] = []
    text, current = "", PLAIN
    blank = (empty, "dim") if empty != " " else None
    for cell in drawn:
        char, style = cell or blank or (" ", PLAIN if ON in current else current)
        if style == current:
            text += char
            continue
        if text:
            spans.append((text, current))
        text, current = char, style
    spans.append((text, current))
    return spans
