"""Filled charts: areas behind each other, curves over them, labelled gridlines, gaps for what is not known.

A column is one cell wide and drawn in eighths of a cell, so that a chart which moves on changes little but its edge.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final

from msgspec import Struct

from pgtop_tune.tui.widgets.chart import GUTTER, LABEL, ArmBand, ChartMark, bands_of_columns, column_of, label_cells
from pgtop_tune.tui.widgets.glyphs import Glyphs
from pgtop_tune.tui.widgets.lines import ELSE, ON, PLAIN, Line, Span, on

_PARTS: Final = 8
"""Steps of a cell."""
_GRIDS: Final = (4, 3, 2)
"""Gridlines above zero, as many as there is room for at round values."""
_ROWS_PER_GRID: Final = 2

Columns = Sequence[float | None]
Cell = tuple[str, str]


class Area(Struct, frozen=True):
    """A curve that is filled down to the area in front of it, or to zero.

    Attributes:
        values: One per column; None is a gap.
        style: A name of `STYLES`.
        density: Which of `Glyphs.densities` fills it.
        alarms: Columns in which a value of zero is an alarm.
    """

    values: Columns
    style: str
    density: int = 0
    alarms: Collection[int] = ()


class Level(Struct, frozen=True):
    """A curve drawn as a line over the areas.

    Attributes:
        values: One per column; None is a gap.
        style: A name of `STYLES`.
        char: What it is drawn with; "" is `Glyphs.level`.
        apart: Drawn only where it is at least a cell away from the foremost area.
    """

    values: Columns
    style: str
    char: str = ""
    apart: bool = False


def filled_lines(
    areas: Sequence[Area],
    levels: Sequence[Level] = (),
    *,
    width: int,
    height: int,
    since_s: float,
    until_s: float,
    top: float,
    unit_format: Callable[[float], str],
    glyphs: Glyphs,
    marks: Sequence[ChartMark] = (),
    bands: Sequence[ArmBand] = (),
) -> list[Line]:
    """`height` lines of exactly `width` cells, the first `GUTTER` of them labels.

    Args:
        areas: The foremost first: each hides those behind it up to its own height.
        levels: Later ones are drawn over earlier ones.
        width: Cells of every line, the gutter included.
        height: Lines.
        since_s: The window's begin on the session's clock.
        until_s: Its end.
        top: The value at the upper edge; what is above it is cut.
        unit_format: Makes labels of at most five cells of a value.
        glyphs: Characters.
        marks: Moments, as uprights around the edge of the areas; their labels stand in the first line.
        bands: Shaded instead of filled.
    """
    columns = width - GUTTER
    if height <= 0:
        return []
    if columns < 1:
        return [((" " * width, PLAIN),)] * height
    heights = [[_height(value, top, height) for value in area.values[:columns]] for area in areas]
    cells = _area_cells(areas, heights, columns, height, glyphs)
    _shade(cells, bands_of_columns(bands, since_s, until_s, columns), glyphs)
    for level in levels:
        _draw_level(cells, level, heights[0] if areas else [], top, glyphs)
    uprights = {
        column: (glyphs.mark_upright, mark.style)
        for mark in marks
        if (column := column_of(mark.at_s, since_s, until_s, columns)) is not None
    }
    labels = _grid_labels(height, top, unit_format)
    over = label_cells(marks, columns, since_s, until_s)
    return [
        (
            (f"{labels.get(row, ''):>{LABEL}} {glyphs.axis}", "dim"),
            *_spans(cells[row], uprights, {} if row else over, glyphs.grid if row in labels else " ", columns, glyphs),
        )
        for row in range(height)
    ]


def _height(value: float | None, top: float, rows: int) -> int | None:
    """In eighths of a cell; what is known always shows."""
    if value is None:
        return None
    return max(1, round(min(value / top, 1.0) * rows * _PARTS)) if top > 0 else 1


def _area_cells(
    areas: Sequence[Area], heights: Sequence[Sequence[int | None]], columns: int, rows: int, glyphs: Glyphs
) -> list[dict[int, Cell]]:
    """Drawn cells by row from the top and column."""
    found: list[dict[int, Cell]] = [{} for _ in range(rows)]
    fillings = {id(area): filling(area.density, area.style, glyphs) for area in areas}
    for column in range(columns):
        known = [
            (area, high)
            for area, of_columns in zip(areas, heights, strict=True)
            if column < len(of_columns) and (high := of_columns[column]) is not None
        ]
        filled, edges = 0, set()
        for area, high in known:
            if high <= filled:
                continue
            cell = fillings[id(area)]
            for row in range(-(-filled // _PARTS), high // _PARTS):
                found[rows - 1 - row][column] = cell
            if high % _PARTS:
                edges.add(high // _PARTS)
            filled = high
        for row in edges:
            base = row * _PARTS
            edge = _edge(known, base, glyphs)
            found[rows - 1 - row][column] = _top(known, filled, base, column, glyphs) if edge is None else edge
    return found


def _top(known: Sequence[tuple[Area, int]], tallest: int, base: int, column: int, glyphs: Glyphs) -> Cell:
    """The upper edge of all, in the style of the foremost area that fills at least half of what is drawn there."""
    part = tallest - base
    area = next(area for area, high in known if high >= base + part / 2)
    alarm = column in area.alarms and not area.values[column]
    return _partial(part, glyphs), "critical" if alarm else area.style


def _edge(known: Sequence[tuple[Area, int]], base: int, glyphs: Glyphs) -> Cell | None:
    """A cell that two areas fill, the lower one drawn on the other's colour; None where one does, or it is not full.

    Of three those with the largest parts. Without colours the one that fills at least half has the cell.
    """
    parts: list[tuple[int, int, Area]] = []
    filled, full = base, base + _PARTS
    for area, high in known:
        if high > filled:
            top = high if high < full else full
            parts.append((top - filled, top - base, area))
            filled = top
            if filled == full:
                break
    if len(parts) < 2 or filled < full:
        return None
    if len(parts) > 2:
        parts = sorted(sorted(parts, key=lambda part: -part[0])[:2], key=lambda part: part[1])
    lower, upper = parts
    last = len(glyphs.rising) - 1
    char = glyphs.rising[min(max(1, round(lower[1] / _PARTS * last)), last - 1)]
    foremost = lower[2] if 2 * lower[1] >= _PARTS else upper[2]
    return char, on(lower[2].style, upper[2].style, glyphs.densities[foremost.density])


def filling(density: int, style: str, glyphs: Glyphs) -> Cell:
    """A full cell of an area: with colours all of it, without them as dense as it is."""
    return glyphs.densities[density], on(style, style) if density else style


def _partial(part: int, glyphs: Glyphs) -> str:
    """The edge of an area."""
    return glyphs.rising[max(1, round(part / _PARTS * (len(glyphs.rising) - 1)))]


def _shade(cells: Sequence[dict[int, Cell]], bands: Mapping[int, ArmBand], glyphs: Glyphs) -> None:
    """Draws the arms of an experiment into the full cells; an arm's letter stands at its first column's foot."""
    for column, band in bands.items():
        for row in cells:
            if row.get(column, ("", ""))[0] in glyphs.densities:
                row[column] = (glyphs.shades[band.arm == "B"], band.style)
        if bands.get(column - 1) is not band:
            cells[-1][column] = (band.arm, band.style)


def _draw_level(
    cells: Sequence[dict[int, Cell]], level: Level, foremost: Sequence[int | None], top: float, glyphs: Glyphs
) -> None:
    rows = len(cells)
    for column, value in enumerate(level.values):
        if value is None or value > top:
            continue
        high = _height(value, top, rows) or 1
        front = foremost[column] if column < len(foremost) else None
        if level.apart and front is not None and abs(high - front) < _PARTS:
            continue
        row = cells[rows - 1 - (high - 1) // _PARTS]
        ground = _ground(row.get(column), glyphs)
        row[column] = (level.char or glyphs.level, on(level.style, ground) if ground else level.style)


def _ground(cell: Cell | None, glyphs: Glyphs) -> str:
    """The style of the area that a line goes through; "" where there is none."""
    if cell is None:
        return ""
    front, _, behind = cell[1].partition(ELSE)[0].partition(ON)
    return front if cell[0] in glyphs.densities else behind


def _grid_labels(rows: int, top: float, unit_format: Callable[[float], str]) -> dict[int, str]:
    """Labels by row: the upper edge, zero, and up to three between them."""
    parts = next((parts for parts in _GRIDS if rows // parts >= _ROWS_PER_GRID and _is_round(top / parts)), 1)
    labels = {round(rows * index / parts): unit_format(top * (parts - index) / parts)[:LABEL] for index in range(parts)}
    return labels | {rows - 1: unit_format(0.0)[:LABEL]} if rows > 1 else labels


def _is_round(value: float) -> bool:
    """Whether it has two digits at most."""
    return value <= 0.0 or abs(float(f"{value:.1e}") - value) < 1e-9 * value


def _spans(
    cells: Mapping[int, Cell], uprights: Mapping[int, Cell], over: Mapping[int, Cell], empty: str, columns: int,
    glyphs: Glyphs,
) -> list[Span]:  # fmt: skip
    """Cells joined to spans; a blank takes the style of its left neighbour, which costs nothing to write."""
    spans: list[Span] = []
    text: list[str] = []
    current = PLAIN
    for column in range(columns):
        cell = over.get(column)
        if cell is None:
            drawn, mark = cells.get(column), uprights.get(column)
            # An upright goes through the inside of an area and leaves its edge.
            inside = drawn is None or drawn[0] in glyphs.densities
            cell = mark if mark is not None and inside else drawn or ((empty, "dim") if empty != " " else None)
        if cell is None and ON not in current:
            text.append(" ")
            continue
        char, style = cell or (" ", PLAIN)
        if style != current:
            if text:
                spans.append(("".join(text), current))
            text, current = [], style
        text.append(char)
    spans.append(("".join(text), current))
    return spans
