"""The right half of a page on a wide screen: one row in full, below the history of its foremost number. Pure but for
the memory of that history.

A table that needs less than its share of the screen leaves the rest to this half, and one that never had a row keeps
all of it. Without a selected row the first one stands here, and stays until it is gone: a half that follows every new
order could not be read. Of the lock tree the present root stands here. The table points at the row.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Sequence
from typing import Any, Final

from pgtop_tune.base.units import count
from pgtop_tune.runtime.history import SeriesPoint
from pgtop_tune.runtime.session import Session
from pgtop_tune.tui.pages.listing import ListingView, row_key, shown_columns
from pgtop_tune.tui.pages.page import PageColumn, PageTable
from pgtop_tune.tui.pages.row_details import row_lines
from pgtop_tune.tui.widgets.chart import GUTTER, nice_ceiling, window
from pgtop_tune.tui.widgets.columns import mean_columns
from pgtop_tune.tui.widgets.filled import Area, filled_lines
from pgtop_tune.tui.widgets.glyphs import Glyphs
from pgtop_tune.tui.widgets.lines import PLAIN, Line, shortened
from pgtop_tune.tui.widgets.phrase import Phrase, head, lasting, padded
from pgtop_tune.tui.widgets.table import GAP

FROM: Final = 160
"""Cells of a screen from which on it has two halves."""
APART: Final = "  "
_SHARE: Final = 0.62
"""The most that a table gets."""
_CHART_ROWS: Final = 5
_CHARTED_FROM: Final = 16
"""Rows of the half from which on the history has room."""
_KEPT: Final = 600
"""Moments: ten minutes at one a second."""
_TITLE: Final = 60


def table_width(table: PageTable, view: ListingView, width: int) -> int:
    """Cells of the table on a screen that wide; all of them where there is one half."""
    if width < FROM:
        return width
    columns = shown_columns(table, view)
    wanted = 1 + sum(max(column.width, column.most) + GAP for column in columns)
    most = int(width * _SHARE)
    return most if any(column.elastic for column in columns) else min(wanted, most)


class Beside:
    """Remembers which row stands in the right half, and the history of its number while it does."""

    def __init__(self) -> None:
        self._keys: dict[str, Hashable] = {}
        self._of: tuple[Hashable, ...] = ()
        self._points: deque[SeriesPoint] = deque(maxlen=_KEPT)

    def lines(
        self, table: PageTable, view: ListingView, row: Any | None, session: Session, width: int, height: int,
        glyphs: Glyphs,
    ) -> list[Line]:  # fmt: skip
        """So many lines of so many cells.

        Args:
            table: The table in view.
            view: What the operator chose in it.
            row: Of `row`.
            session: What is known.
            width: Cells.
            height: Lines.
            glyphs: Characters.
        """
        blank: Line = ((" " * width, PLAIN),)
        if row is None:
            return [head((("no row", "dim"),), width, glyphs), *[blank] * (height - 1)]
        name = shortened(_name(table, row), max(min(_TITLE, width - 4), 1), glyphs.ellipsis).rstrip()
        found = [head(((name, "title"),), width, glyphs)]
        if height >= _CHARTED_FROM:
            found += self._history(table, view, row, session, width, glyphs)
        told = row_lines(table, session, row, width, glyphs, height - len(found))
        found += [padded(line, width) for line in told]
        return [*found, *[blank] * (height - len(found))][:height]

    def had(self, table: PageTable) -> bool:
        """Whether a row of the table ever stood here."""
        return self._keys.get(table.id) is not None

    def row(self, table: PageTable, view: ListingView, rows: Sequence[Any]) -> Any | None:
        """The selected row; else the one that stood here before, or the first.

        Args:
            table: The table in view.
            view: What the operator chose in it.
            rows: All rows that the filter shows, in order.
        """
        by_key = {row_key(table, row): row for row in rows}
        before = None if table.leads else self._keys.get(table.id)
        key = view.selected if view.selected in by_key else before
        if key not in by_key:
            key = next(iter(by_key), None)
        if key is not None:
            self._keys[table.id] = key
        return by_key.get(key)

    def _history(
        self, table: PageTable, view: ListingView, row: Any, session: Session, width: int, glyphs: Glyphs
    ) -> list[Line]:
        kept = self._of[2] if self._of[:2] == (table.id, row_key(table, row)) else None
        column = _foremost(table, view, row, kept)
        now_s = None if session.now is None else session.now.elapsed_s
        if column is None or now_s is None:
            return []
        of = table.id, row_key(table, row), column.id
        if of != self._of or (self._points and now_s < self._points[-1].at_s):
            self._of = of
            self._points.clear()
        if not self._points or now_s > self._points[-1].at_s:
            self._points.append(SeriesPoint(now_s, _value(column, row)))
        columns = max(width - GUTTER, 1)
        shown_s = now_s - self._points[0].at_s
        since_s, until_s = window(shown_s + 1.0, columns)
        # A value stands in the column that it ends.
        begin_s = self._points[0].at_s - 1.0 + since_s
        values = mean_columns(list(self._points), begin_s, begin_s + until_s - since_s, columns)
        top = nice_ceiling(max((value for value in values if value is not None), default=0.0))
        said = Phrase(((f"since {lasting(shown_s)} ago", "label"),))
        return [
            head(((column.title, "label"), (f"  {column.text(row).strip()}", "strong")), width, glyphs, [said]),
            *filled_lines(
                [Area(values, "series-1", fades=True)], width=width, height=_CHART_ROWS - 1, since_s=begin_s,
                until_s=begin_s + until_s - since_s, top=top, unit_format=count, glyphs=glyphs,
            ),
        ]  # fmt: skip


def _name(table: PageTable, row: Any) -> str:
    """What the row is called; "PID 4711" of one that has no other name."""
    key = table.columns[0]
    return f"{key.title} {key.text(row).strip()}" if table.called is None else table.called(row).strip()


def _foremost(table: PageTable, view: ListingView, row: Any, kept: Hashable) -> PageColumn | None:
    """The number that the table is sorted by, else the one that stood here before, else the first that is known."""
    key, *others = shown_columns(table, view)
    numbers = [column for column in others if _is_number(column)]
    # A table that is sorted by its key column at first has a number there, and not a name.
    by = next(
        (each for each in (key, *numbers) if each.id == view.sort and (each is not key or key.id == table.sort)), None
    )
    before = next((column for column in numbers if column.id == kept), None)
    return by or before or next((column for column in numbers if _value(column, row) is not None), None)


def _is_number(column: PageColumn) -> bool:
    return column.value is not None and column.align == "right"


def _value(column: PageColumn, row: Any) -> float | None:
    found = None if column.value is None else column.value(row)
    return float(found) if isinstance(found, int | float) else None
