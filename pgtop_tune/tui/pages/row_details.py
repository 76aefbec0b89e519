"""One row in full: what Enter shows of it, followed through the frames, and what `y` copies."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf
from typing import Any, Final

from msgspec import Struct
from rich.cells import cell_len
from textual import events

from pgtop_tune.base.safe_text import printable
from pgtop_tune.runtime.session import Session
from pgtop_tune.tui.dialogs.dialog import Dialog
from pgtop_tune.tui.pages.page import PageColumn, PageTable
from pgtop_tune.tui.terminal.clipboard import copy
from pgtop_tune.tui.widgets.glyphs import Glyphs
from pgtop_tune.tui.widgets.lines import CUT, PLAIN, Line, labelled, shortened, wrap

_LABEL_CELLS: Final = 18
_VALUE_CELLS: Final = 16
_LEAST: Final = 24
"""Cells a definition must get to be worth beginning."""
_TEXT: Final = 10_000


def row_lines(
    table: PageTable, session: Session, row: Any, cells: int, glyphs: Glyphs, most: int | None = None
) -> list[Line]:
    """What the table says of the row; every column, hidden ones included, where it has nothing more to say.

    Args:
        table: Whose row it is.
        session: What is known.
        row: The row; None when it is not there any more.
        cells: Width.
        glyphs: Characters.
        most: Lines there are: definitions of columns that have no room for a second one are cut.
    """
    if row is None:
        return [(("this row is gone", "warning"),)]
    if table.details is not None:
        return table.details(session, row, cells, glyphs)
    facts = [_fact(column, row, cells) for column in table.columns]
    spare = inf if most is None else most - len(facts)
    lines: list[Line] = []
    for column, fact in zip(table.columns, facts, strict=True):
        more = len(fact) - 1
        if more > spare:
            fact, more = _fact(column, row, cells, cut=True), 0
        spare -= more
        lines += fact
    return lines


def _fact(column: PageColumn, row: Any, cells: int, *, cut: bool = False) -> list[Line]:
    """Title and value; behind a short value what it means, on one line where it is cut."""
    text, style = printable(column.text(row).strip(), _TEXT), column.style(row)
    room = cells - _LABEL_CELLS - _VALUE_CELLS
    if room < _LEAST or cell_len(text) >= _VALUE_CELLS:
        return labelled(column.title, text, cells, style, _LABEL_CELLS)
    said = [shortened(column.definition, room, CUT)] if cut else wrap(column.definition, room)
    padding = " " * (_VALUE_CELLS - cell_len(text))
    first: Line = ((column.title.ljust(_LABEL_CELLS), "label"), (text, style), (padding, PLAIN), (said[0], "dim"))
    below = " " * (_LABEL_CELLS + _VALUE_CELLS)
    return [first, *(((below, PLAIN), (line, "dim")) for line in said[1:])]


def row_text(table: PageTable, row: Any) -> str:
    """What is copied: what the table names, else every column, separated by tabs; "" of a row that is gone."""
    if row is None:
        return ""
    if table.copied is not None:
        return table.copied(row)
    return "\t".join(column.text(row).strip() for column in table.columns)


# Everything known of one row: what its table says of it, followed through the frames for as long as it is open.


class RowKey(Struct, frozen=True):
    """A key that does something with the row shown.

    Attributes:
        keys: Any of these, as Textual names them.
        shown: The first of them, as people write it.
        word: For the lower edge.
        action: Of the application; runs once the dialog is closed.
    """

    keys: tuple[str, ...]
    shown: str
    word: str
    action: str


class DetailsDialog(Dialog[None]):
    """Shows one row for as long as it is open; follows the frames.

    Args:
        title: What it is about; may be foreign text.
        session: What the screen shows.
        lines: Everything known of the row, or one line saying that it is gone, for a session and a width.
        copied: What `y` copies.
        glyphs: What it is drawn with.
        more: Further keys.
    """

    CELLS = 110
    LIVE = False

    def __init__(
        self,
        title: str,
        session: Session,
        lines: Callable[[Session, int], Sequence[Line]],
        copied: Callable[[Session], str],
        glyphs: Glyphs,
        more: Sequence[RowKey] = (),
    ) -> None:
        words = "".join(f"{key.shown} {key.word}  " for key in more)
        super().__init__(title, glyphs, keys=f"y copy  {words}Esc back")
        self._more_keys = {name: key for key in more for name in key.keys}
        self._session = session
        self._lines = lines
        self._copied = copied

    def content(self, cells: int) -> Sequence[Line]:
        """What is known now."""
        return self._lines(self._session, cells)

    def frames_arrived(self, session: Session) -> None:
        """A newer look."""
        self._session = session
        self.repaint()

    async def on_key(self, event: events.Key) -> None:
        """Scrolling, copying, what the row's keys do."""
        more = self._more_keys.get(event.key) or self._more_keys.get(event.character or "")
        if more is not None:
            event.stop()
            self.dismiss(None)
            await self.app.run_action(more.action)
            return
        if event.key == "y":
            event.stop()
            copied = self._copied(self._session)
            if copied:
                self.app.notify(copy(self.app, copied, "copied to your terminal's clipboard"), markup=False)
        elif event.key == "enter":
            event.stop()
            self.dismiss(None)
        elif self.scroll_key(event.key):
            event.stop()
