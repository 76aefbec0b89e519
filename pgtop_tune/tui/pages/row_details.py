"""One row in full: what Enter shows of it and what `y` copies."""

from __future__ import annotations

from typing import Any, Final

from rich.cells import cell_len

from pgtop_tune.runtime.session import Session
from pgtop_tune.safe_text import printable
from pgtop_tune.tui.pages.page import PageColumn, PageTable
from pgtop_tune.tui.widgets.glyphs import Glyphs
from pgtop_tune.tui.widgets.lines import PLAIN, Line
from pgtop_tune.tui.widgets.wrapping import labelled

_LABEL_CELLS: Final = 18
_VALUE_CELLS: Final = 16
_LEAST: Final = 24
"""Cells a definition must get to be worth beginning."""
_TEXT: Final = 10_000


def row_lines(table: PageTable, session: Session, row: Any, cells: int, glyphs: Glyphs) -> list[Line]:
    """What the table says of the row; every column, hidden ones included, where it has nothing more to say.

    Args:
        table: Whose row it is.
        session: What is known.
        row: The row; None when it is not there any more.
        cells: Width.
        glyphs: Characters.
    """
    if row is None:
        return [(("this row is gone", "warning"),)]
    if table.details is not None:
        return table.details(session, row, cells, glyphs)
    return [line for column in table.columns for line in _fact(column, row, cells, glyphs)]


def _fact(column: PageColumn, row: Any, cells: int, glyphs: Glyphs) -> list[Line]:
    """Title and value; behind a short value what it means, as far as there is room."""
    text, style = printable(column.text(row).strip(), _TEXT), column.style(row)
    room = cells - _LABEL_CELLS - _VALUE_CELLS
    if room < _LEAST or cell_len(text) >= _VALUE_CELLS:
        return labelled(column.title, text, cells, style, _LABEL_CELLS)
    said = column.definition if len(column.definition) <= room else column.definition[: room - 1] + glyphs.ellipsis
    padding = " " * (_VALUE_CELLS - cell_len(text))
    return [((column.title.ljust(_LABEL_CELLS), "label"), (text, style), (padding, PLAIN), (said, "dim"))]


def row_text(table: PageTable, row: Any) -> str:
    """What is copied: what the table names, else every column, separated by tabs; "" of a row that is gone."""
    if row is None:
        return ""
    if table.copied is not None:
        return table.copied(row)
    return "\t".join(column.text(row).strip() for column in table.columns)
