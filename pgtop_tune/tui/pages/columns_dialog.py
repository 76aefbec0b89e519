"""Which columns of a table are shown: all of them with their definitions, on or off."""

from __future__ import annotations

from typing import Final

from rich.cells import cell_len, set_cell_size
from textual import events

from pgtop_tune.tui.dialogs.dialog import Dialog
from pgtop_tune.tui.pages.page import PageTable
from pgtop_tune.tui.widgets.glyphs import Glyphs
from pgtop_tune.tui.widgets.lines import Line
from pgtop_tune.tui.widgets.wrapping import wrapped

_TITLE: Final = 14
_SAID: Final = 4
"""Lines kept for the words about the column pointed at."""
_BESIDES: Final = _SAID + 3
"""Rows of the screen that are not for the list: those words, a blank line, the box's edges."""


class ColumnsDialog(Dialog[frozenset[str]]):
    """Returns the ids of the columns to show, None when nothing is to change.

    Args:
        table: Whose columns.
        shown: Ids of those shown now.
        glyphs: What it is drawn with.
    """

    CELLS = 92

    def __init__(self, table: PageTable, shown: frozenset[str], glyphs: Glyphs) -> None:
        super().__init__(f"columns of {table.title}", glyphs, keys="Space on/off  d default  Enter ok  Esc back")
        self._table = table
        self._shown = shown
        self._at = 0
        self._top_column = 0

    def content(self, cells: int) -> list[Line]:
        """A line per column, and under the list what the one pointed at says and where it comes from."""
        columns = self._table.columns
        room = max(self.app.size.height - _BESIDES, 1)
        self._top_column = min(max(self._top_column, self._at - room + 1), self._at)
        shown = range(self._top_column, min(self._top_column + room, len(columns)))
        at = columns[self._at]
        said = [*wrapped(at.definition, cells), *wrapped(at.source, cells, "dim")][:_SAID]
        return [*(self._line(index, cells) for index in shown), (), *said, *[()] * (_SAID - len(said))]

    def _line(self, index: int, cells: int) -> Line:
        column = self._table.columns[index]
        mark = self.glyphs.bullet if column.id in self._shown else self.glyphs.ring
        words = f" {mark} {column.title.ljust(_TITLE)} {column.definition}"
        style = "cursor" if index == self._at else "" if column.id in self._shown else "dim"
        if cell_len(words) > cells:
            words = set_cell_size(words, cells - 1) + self.glyphs.ellipsis
        return ((set_cell_size(words, cells), style),)

    def on_key(self, event: events.Key) -> None:
        """Moving, switching, leaving."""
        by = {"up": -1, "k": -1, "down": 1, "j": 1, "pageup": -10, "pagedown": 10, "home": -1000, "end": 1000}
        columns = self._table.columns
        if event.key in by:
            self._at = min(max(self._at + by[event.key], 0), len(columns) - 1)
        elif event.key in ("space", "x", "insert"):
            # The key column is what a row is known by.
            if self._at > 0:
                self._shown ^= {columns[self._at].id}
        elif event.key == "d":
            self._shown = frozenset(column.id for column in columns if column.shown)
        elif event.key in ("enter", "o"):
            event.stop()
            self.dismiss(self._shown | {columns[0].id})
            return
        else:
            return
        event.stop()
        self.repaint()
