"""Tables as lines: fixed columns, elastic ones for what is left, a header, a cursor row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal

from msgspec import Struct
from rich.cells import cell_len, set_cell_size

from pgtop_tune.base.safe_text import printable
from pgtop_tune.tui.widgets.glyphs import Glyphs
from pgtop_tune.tui.widgets.lines import PLAIN, Line, Span

Cell = tuple[str, str]
Row = Sequence[Cell]
GAP: Final = 1
"""Blank cells between two columns."""


class Column(Struct, frozen=True):
    """A column of a table.

    Attributes:
        title: Its heading; foreign text is welcome.
        width: Cells; of an elastic column the least it takes.
        align: Numbers stand right, words left.
        elastic: Shares with other elastic columns what the fixed ones leave.
    """

    title: str
    width: int
    align: Literal["left", "right"] = "left"
    elastic: bool = False


def column_widths(columns: Sequence[Column], width: int) -> tuple[int, ...]:
    """Cells of each column in a table of `width` cells; the last elastic one gets the odd cells.

    Columns that do not fit any more are cut at the right edge and get 0 when they lie behind it.
    """
    elastic = [index for index, column in enumerate(columns) if column.elastic]
    spare = width - sum(column.width for column in columns) - GAP * (len(columns) - 1)
    cells = [column.width for column in columns]
    if elastic and spare > 0:
        each, odd = divmod(spare, len(elastic))
        for index in elastic:
            cells[index] += each
        cells[elastic[-1]] += odd
    left = width
    for index, wanted in enumerate(cells):
        cells[index] = max(0, min(wanted, left))
        left -= wanted + GAP
    return tuple(cells)


def table_lines(
    columns: Sequence[Column],
    rows: Sequence[Row],
    *,
    width: int,
    height: int,
    cursor: int | None,
    top: int,
    glyphs: Glyphs,
) -> list[Line]:
    """The header and as many rows as fit below it; `height` lines of exactly `width` cells.

    Args:
        columns: Left to right.
        rows: Cells in the order of the columns; texts may be foreign and are made printable. A number that does not
            fit is cut with an ellipsis, never silently.
        width: Cells of every line.
        height: Lines, the header included.
        cursor: Index into `rows` of the selected row; None for none.
        top: Index into `rows` of the first row shown.
        glyphs: For the ellipsis.
    """
    if height <= 0:
        return []
    cells = column_widths(columns, width)
    header = tuple((column.title, "title") for column in columns)
    lines = [_row_line(header, columns, cells, width, glyphs)]
    shown = rows[top : top + height - 1]
    for index, row in enumerate(shown, top):
        line = _row_line(row, columns, cells, width, glyphs)
        lines.append((("".join(text for text, _ in line), "cursor"),) if index == cursor else line)
    blank: Line = ((" " * width, PLAIN),)
    lines.extend([blank] * (height - len(lines)))
    return lines


def _row_line(row: Row, columns: Sequence[Column], widths: Sequence[int], width: int, glyphs: Glyphs) -> Line:
    spans: list[Span] = []
    run = ""
    run_style = PLAIN
    used = 0
    for (text, style), column, cells in zip(row, columns, widths, strict=True):
        if cells <= 0:
            break
        gap = " " * min(GAP, width - used - cells)
        drawn = _cell(text, cells, column.align == "right", glyphs) + gap
        used += cells + len(gap)
        if style == run_style:
            run += drawn
            continue
        if run:
            spans.append((run, run_style))
        run, run_style = drawn, style
    if used < width:
        if run_style == PLAIN:
            run += " " * (width - used)
        else:
            spans.append((run, run_style))
            run, run_style = " " * (width - used), PLAIN
    spans.append((run, run_style))
    return tuple(spans)


def _cell(text: str, cells: int, right: bool, glyphs: Glyphs) -> str:
    if text.isascii() and text.isprintable():
        length = len(text)
        if length <= cells:
            return text.rjust(cells) if right else text.ljust(cells)
        return text[: cells - 1] + glyphs.ellipsis
    text = printable(text, cells * 4 + 64)
    length = cell_len(text)
    if length > cells:
        return set_cell_size(text, cells - 1) + glyphs.ellipsis
    return " " * (cells - length) + text if right else text + " " * (cells - length)
