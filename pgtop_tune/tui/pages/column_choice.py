"""Which columns of which table are shown: chosen in a dialog, remembered from session to session."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

from rich.cells import cell_len, set_cell_size
from textual import events

from pgtop_tune.paths import content_of, private, replacing, state_dir
from pgtop_tune.tui.dialogs.dialog import Dialog
from pgtop_tune.tui.pages.page import PageTable
from pgtop_tune.tui.widgets.glyphs import Glyphs
from pgtop_tune.tui.widgets.lines import Line, wrapped

_FILE: Final = "columns.json"
_LARGEST: Final = 1_000_000


class ColumnChoice:
    """Deviations from what the tables show by themselves, so that a column invented later appears.

    A file that cannot be read or makes no sense counts as empty; one that cannot be written costs the memory only.
    """

    def __init__(self) -> None:
        self._tables: dict[str, dict[str, bool]] = _read(state_dir() / _FILE)

    def of(self, table: PageTable) -> frozenset[str]:
        """Ids of the columns to show; the key column always among them."""
        chosen = self._tables.get(table.id, {})
        shown = {column.id for column in table.columns if chosen.get(column.id, column.shown)}
        return frozenset(shown | {table.columns[0].id})

    def choose(self, table: PageTable, columns: frozenset[str]) -> str:
        """Remembers a choice.

        Returns:
            Why it will be forgotten with this session; "" when it was written down.
        """
        deviations = {
            column.id: column.id in columns for column in table.columns if (column.id in columns) != column.shown
        }
        path = state_dir() / _FILE
        # Another session may have chosen meanwhile, for another table.
        self._tables = _read(path) | {table.id: deviations}
        try:
            private(path.parent)
            with replacing(path) as file:
                file.write(json.dumps({"version": 1, "tables": self._tables}, indent=1).encode())
        except OSError as problem:
            return f"the choice of columns is not saved: {problem.strerror or problem}"
        return ""


def _read(path: Path) -> dict[str, dict[str, bool]]:
    try:
        read: Any = json.loads(content_of(path, _LARGEST))
    except (OSError, ValueError, RecursionError):
        return {}
    tables = read.get("tables") if isinstance(read, dict) else None
    if not isinstance(tables, dict):
        return {}
    return {
        table: {name: shown for name, shown in columns.items() if isinstance(shown, bool)}
        for table, columns in tables.items()
        if isinstance(columns, dict)
    }


# Which columns of a table are shown: all of them with their definitions, on or off.

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
