"""The machinery of every page's table: order, filter, selection, tags, sideways scrolling; rows become lines. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Sequence
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from pgtop_tune.base.safe_text import one_line
from pgtop_tune.base.units import mean, size, unit_of
from pgtop_tune.model.absence import Unavailable
from pgtop_tune.runtime.history import SeriesPoint
from pgtop_tune.runtime.session import Session
from pgtop_tune.tui.pages.page import MOST_ROWS, PageColumn, PageTable, SortValue, grown, row_lines
from pgtop_tune.tui.widgets.chart import GUTTER, Area, Peak, TimeAxis, filled_lines, nice_ceiling, window
from pgtop_tune.tui.widgets.lines import (
    GAP,
    PLAIN,
    Column,
    Glyphs,
    Line,
    Span,
    column_widths,
    ellipsized,
    first_in_view,
    next_row,
    plain_text,
    table_lines,
    wrap,
    wrapped,
)
from pgtop_tune.tui.widgets.lines import width as cells_of
from pgtop_tune.tui.widgets.phrase import Phrase, absence, dot, head, lasting, padded

# The right half of a page on a wide screen: one row in full, below the history of its foremost number. Pure but for
# the memory of that history.
#
# A table that needs less than its share of the screen leaves the rest to this half, and one that never had a row
# keeps
# all of it. Without a selected row the first one stands here, and stays until it is gone: a half that follows every
# new
# order could not be read. Of the lock tree the present root stands here. The table points at the row.

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
    """Return cells of the table on a screen that wide; all of them where there is one half."""
    if width < FROM:
        return width
    columns = shown_columns(table, view)
    needed = 1 + sum(max(column.width, column.most) + GAP for column in columns)
    most = int(width * _SHARE)
    return most if any(column.elastic for column in columns) else min(needed, most)


class RowBeside:
    """Remembers which row stands in the right half, and the history of its number while it does."""

    def __init__(self) -> None:
        self._keys: dict[str, Hashable] = {}
        self._of: tuple[Hashable, ...] = ()
        self._points: deque[SeriesPoint] = deque(maxlen=_KEPT)

    def lines(
        self, table: PageTable, view: ListingView, row: Any | None, session: Session, width: int, height: int,
        glyphs: Glyphs,
    ) -> list[Line]:  # fmt: skip
        """Return so many lines of so many cells.

        Args:
            table: The table in view.
            view: The operator's choices in it.
            row: Of `row`.
            session: The session that is shown.
            width: Cells.
            height: Lines.
            glyphs: Characters.
        """
        blank: Line = ((" " * width, PLAIN),)
        if row is None:
            return [head((("no row", "dim"),), width, glyphs), *[blank] * (height - 1)]
        name = ellipsized(_name(table, row), max(min(_TITLE, width - 4), 1), glyphs.ellipsis).rstrip()
        lines = [head(((name, "title"),), width, glyphs)]
        if height >= _CHARTED_FROM:
            lines += self._history(table, view, row, session, width, glyphs)
        facts = row_lines(table, session, row, width, glyphs, height - len(lines))
        lines += [padded(line, width) for line in facts]
        return [*lines, *[blank] * (height - len(lines))][:height]

    def had(self, table: PageTable) -> bool:
        """Return whether a row of the table ever stood here."""
        return self._keys.get(table.id) is not None

    def row(self, table: PageTable, view: ListingView, rows: Sequence[Any]) -> Any | None:
        """Return the selected row; else the one that stood here before, or the first.

        Args:
            table: The table in view.
            view: The operator's choices in it.
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
        shown_s = now_s - self._points[0].at_s
        # A value stands in the column that it ends.
        axis = TimeAxis(*window(now_s, max(width - GUTTER, 1)), width)
        values = axis.means(list(self._points))
        highest, form = max((value for value in values if value is not None), default=0.0), column.form
        facts = [Phrase(((f"since {lasting(shown_s)} ago", "label"),))]
        if form is size:
            # Bytes have round steps on the axis in the unit of the largest.
            unit_bytes, unit = unit_of(highest)
            values = [None if value is None else value / unit_bytes for value in values]
            highest, form = highest / unit_bytes, mean
            facts.insert(0, Phrase(((f"in {unit}", "label"),), 1))
        return [
            head(((column.title, "label"), (f"  {column.text(row).strip()}", "strong")), width, glyphs, facts),
            *filled_lines(
                [Area(values, "series-1")], axis=axis, height=_CHART_ROWS - 1, top=nice_ceiling(highest),
                unit_format=form, glyphs=glyphs, peak=Peak(values, form),
            ),
        ]  # fmt: skip


def _name(table: PageTable, row: Any) -> str:
    """Return the name of the row; "PID 4711" for one without another name."""
    key = table.columns[0]
    return f"{key.title} {key.text(row).strip()}" if table.called is None else table.called(row).strip()


def _foremost(table: PageTable, view: ListingView, row: Any, kept: Hashable) -> PageColumn | None:
    """Return the number that the table is sorted by, else the one shown before, else the first that is known."""
    key, *columns_after = shown_columns(table, view)
    numbers = [column for column in columns_after if _is_number(column)]
    # A table that is sorted by its key column at first has a number there, and not a name.
    by = next(
        (
            column
            for column in (key, *numbers)
            if column.id == view.sort and (column is not key or key.id == table.sort)
        ),
        None,
    )
    before = next((column for column in numbers if column.id == kept), None)
    return by or before or next((column for column in numbers if _value(column, row) is not None), None)


def _is_number(column: PageColumn) -> bool:
    return column.value is not None and column.align == "right"


def _value(column: PageColumn, row: Any) -> float | None:
    value = None if column.value is None else column.value(row)
    return float(value) if isinstance(value, int | float) else None


# The titles in the head of a page's table, and which of its rows are in sight.


def titles(tables: Sequence[PageTable], table: PageTable, cells: int, glyphs: Glyphs) -> Line:
    """Return the tables' titles from the first one on, or as near to it as the one in view allows; the others are
    counted.
    """
    at = tables.index(table)
    line: Line = ()
    for first in range(at + 1):
        for end in range(len(tables), at, -1):
            line = _some_titles(tables, table, first, end, glyphs)
            if cells_of(line) <= cells:
                return line
    return line


def _some_titles(tables: Sequence[PageTable], table: PageTable, first: int, end: int, glyphs: Glyphs) -> Line:
    spans: list[Span] = [(f"{glyphs.pointer_left}{first}", "label")] if first else []
    for shown_table in tables[first:end]:
        if spans:
            spans.append(dot(glyphs))
        spans.append((shown_table.title, "title" if shown_table is table else "dim"))
    behind = len(tables) - end
    return (*spans, *((dot(glyphs), (f"{behind}{glyphs.pointer}", "label")) if behind else ()))


def unseen(before: int, behind: int, glyphs: Glyphs) -> str:
    """Return "columns ◂2 3▸": columns without room on either side."""
    text = f"{glyphs.pointer_left}{before}" if before else ""
    if behind:
        text += f" {behind}{glyphs.pointer}"
    return f"columns {text.strip()}"


def rows_in_sight(top: int, visible: int, count: int) -> str:
    """Return "1-20 of 64", or the number alone where all rows are in sight, or none."""
    return f"{top + 1}-{min(top + visible, count)} of {count}" if count > visible > 0 else str(count)


HEAD_ROWS: Final = 2
"""Lines above the first row: the table's head and the headings of the columns."""
_MARK: Final = 1
"""Cells before the key column: where a tag stands."""
_FILTER: Final = 30
_TITLE_SHARE: Final = 0.6
_LEAST: Final = 4
"""Cells a column must get to be worth showing."""
_NO_KEY: Final = ("",)
NATURAL: Final = ""
"""The sort of a table in its own order."""


class ListingView(Struct, frozen=True):
    """The operator's choices in one table.

    Attributes:
        sort: Id of the column sorted by; "" is the table's own order.
        descending: Largest first, z to a.
        filter: Text that a row must contain, upper and lower case alike; "" for all.
        hide_quiet: Leaves out the rows that the table calls quiet.
        selected: Key of the selected row, also while it is not shown.
        tagged: Keys of tagged rows.
        top: First row shown.
        scrolled_past: Columns scrolled past; the key column and an elastic last one stay.
        columns: Ids of the columns chosen, the key column included.
        unused: Ids of those among them that are left out, because no row has anything in them.
    """

    sort: str = NATURAL
    descending: bool = False
    filter: str = ""
    hide_quiet: bool = False
    selected: Hashable | None = None
    tagged: frozenset[Hashable] = frozenset()
    top: int = 0
    scrolled_past: int = 0
    columns: frozenset[str] = frozenset()
    unused: frozenset[str] = frozenset()


def first_view(table: PageTable, columns: frozenset[str] | None = None) -> ListingView:
    """Return the view a table begins with.

    Args:
        table: The table.
        columns: Ids of the columns the operator chose earlier; None for those the table shows by itself.
    """
    chosen = frozenset(column.id for column in table.columns if column.visible) if columns is None else columns
    by = column_of(table, table.sort)
    largest_first = by is not None and by.largest_first
    return ListingView(table.sort, largest_first, hide_quiet=table.hides_quiet, columns=chosen | {table.columns[0].id})


def row_key(table: PageTable, row: Any) -> Hashable:
    """Return the key that a row's selection is bound to; never None, which stands for no selection."""
    key = table.key_of(row)
    return _NO_KEY if key is None else key


def column_of(table: PageTable, name: str) -> PageColumn | None:
    """Return the column of that id."""
    return next((column for column in table.columns if column.id == name), None)


def shown_columns(table: PageTable, view: ListingView) -> tuple[PageColumn, ...]:
    """Return the chosen columns from left to right, without the unused ones; the key column is always among them."""
    ids = view.columns - view.unused
    return tuple(column for column in table.columns if column.id in ids or column is table.columns[0])


def without_unused(table: PageTable, view: ListingView, rows: Sequence[Any]) -> ListingView:
    """Return the view that leaves out the columns in which no row ever had anything, but for that sorted by."""
    unused = frozenset(
        column.id
        for column in table.columns
        if column.used is not None and column.id != view.sort and not any(map(column.used, rows))
    )
    return view if unused == view.unused else replace(view, unused=unused)


def _laid_out(table: PageTable, view: ListingView) -> list[PageColumn]:
    """Return the shown columns; that sorted by is wide enough for its whole heading and the arrow behind it."""
    columns = list(shown_columns(table, view))
    for index, column in enumerate(columns):
        if column.id == view.sort and column.width <= len(column.title):
            columns[index] = replace(column, width=len(column.title) + 1)
    return columns


def ordered(table: PageTable, view: ListingView, rows: Sequence[Any], most: int = MOST_ROWS) -> list[Any]:
    """Return the rows that pass filter and quiet, in order, of the first `most`.

    Sorting is stable: rows that compare alike keep the table's own order. Unknown values stand last either way.
    """
    kept = list(rows[:most])
    if view.hide_quiet and table.folded is not None:
        # Who filters looks for single rows.
        kept = kept if view.filter else list(table.folded(kept))
    elif view.hide_quiet and table.quiet is not None:
        quiet = table.quiet
        kept = [row for row in kept if not quiet(row)]
    if view.filter:
        pattern = view.filter.casefold()
        kept = [row for row in kept if any(pattern in text.casefold() for text in _searched(table, view, row))]
    by = column_of(table, view.sort)
    if by is None or by.value is None:
        return kept
    values = list(map(by.value, kept))
    # NaN is not even equal to itself.
    known_at = [at for at, value in enumerate(values) if value is not None and value == value]
    unknown = [at for at, value in enumerate(values) if value is None or value != value]
    numbers = all(isinstance(values[at], float | int) for at in known_at)
    keys: list[Any] = values if numbers else list(map(_compared, values))
    known_at.sort(key=keys.__getitem__, reverse=view.descending)
    return [kept[at] for at in (*known_at, *unknown)]


def _compared(value: SortValue) -> tuple[bool, SortValue]:
    """Return numbers and words never meet in a comparison."""
    return (True, value.casefold()) if isinstance(value, str) else (False, value)


def _searched(table: PageTable, view: ListingView, row: Any) -> Sequence[str]:
    if table.searched is not None:
        return table.searched(row)
    return [column.text(row) for column in shown_columns(table, view)]


def cursor_of(table: PageTable, view: ListingView, rows: Sequence[Any]) -> int | None:
    """Return the index of the selected row; None when none is selected or it is not among the rows."""
    if view.selected is None:
        return None
    return next((index for index, row in enumerate(rows) if row_key(table, row) == view.selected), None)


def scrolled(table: PageTable, view: ListingView, rows: Sequence[Any], visible: int) -> ListingView:
    """Return the view with its first row such that no line is left empty and the selected row is shown."""
    top = first_in_view(view.top, cursor_of(table, view, rows), len(rows), visible)
    return view if top == view.top else replace(view, top=top)


def cursor_moved(table: PageTable, view: ListingView, rows: Sequence[Any], by: int, visible: int) -> ListingView:
    """Return the view with the selection moved by so many rows, see `next_row`."""
    if not rows:
        return view
    at = next_row(view.top, cursor_of(table, view, rows), by, len(rows), visible)
    return selected(table, view, rows, at, visible)


def selected(table: PageTable, view: ListingView, rows: Sequence[Any], at: int, visible: int) -> ListingView:
    """Return the view with the row at that index selected and shown."""
    return scrolled(table, replace(view, selected=row_key(table, rows[at])), rows, visible)


def sorted_by_next(table: PageTable, view: ListingView, by: int) -> ListingView:
    """Return the view sorted by the next (or previous) shown column that can be, from the top."""
    names = [column.id for column in shown_columns(table, view) if column.value is not None]
    if table.sort == NATURAL:
        names.insert(0, NATURAL)
    if not names:
        return view
    at = names.index(view.sort) + by if view.sort in names else 0
    name = names[at % len(names)]
    column = column_of(table, name)
    return replace(view, sort=name, descending=column is not None and column.largest_first, top=0)


def sorted_by(view: ListingView, column: PageColumn) -> ListingView:
    """Return the view sorted by that column, or in the opposite order where it is already."""
    if view.sort == column.id:
        return turned_round(view)
    return replace(view, sort=column.id, descending=column.largest_first, top=0)


def heading_at(table: PageTable, view: ListingView, width: int, x: int, glyphs: Glyphs) -> PageColumn | None:
    """Return the column that can be sorted by whose heading stands in that cell; None where there is none."""
    columns, _, _ = placed(table, view, width)
    at = 0
    for column, cells in zip(columns, column_widths(_headings(columns, view, width, glyphs), width), strict=True):
        if at <= x < at + cells:
            return column if column.value is not None else None
        at += cells + GAP
    return None


def turned_round(view: ListingView) -> ListingView:
    """Return the view in the opposite order; a table's own order has none."""
    return view if view.sort == NATURAL else replace(view, descending=not view.descending, top=0)


def tag_turned(table: PageTable, view: ListingView, rows: Sequence[Any], visible: int) -> ListingView:
    """Return the view with the selected row tagged, or not any more, and the next one selected."""
    cursor = cursor_of(table, view, rows)
    if cursor is None or view.selected is None:
        return cursor_moved(table, view, rows, 1, visible)
    return cursor_moved(table, replace(view, tagged=view.tagged ^ {view.selected}), rows, 1, visible)


def without_gone_tags(table: PageTable, view: ListingView, rows: Sequence[Any] | Unavailable) -> ListingView:
    """Return the view without the tags of rows that are not there any more; all stay while the rows cannot be read."""
    if not view.tagged or isinstance(rows, Unavailable):
        return view
    kept = view.tagged & {row_key(table, row) for row in rows}
    return view if kept == view.tagged else replace(view, tagged=kept)


def with_columns(table: PageTable, view: ListingView, columns: frozenset[str]) -> ListingView:
    """Return the view with other columns; one that is sorted by and hidden gives way to the table's first order."""
    view = replace(view, columns=columns | {table.columns[0].id}, scrolled_past=0)
    if view.sort in view.columns or view.sort == NATURAL:
        return view
    first = first_view(table)
    return replace(view, sort=first.sort, descending=first.descending)


def placed(table: PageTable, view: ListingView, width: int) -> tuple[tuple[PageColumn, ...], int, int]:
    """Return the columns that have room.

    Returns:
        The columns from left to right, how many are scrolled past or out of sight on the left, and how many on the
        right. The key column stays where it is, and so does an elastic last column, with its least width.
    """
    key, *columns = _laid_out(table, view)
    tail = columns.pop() if columns and columns[-1].elastic else None
    columns = [replace(column, width=column.least(width)) if column.share else column for column in columns]
    room = width - _MARK - key.width - (0 if tail is None else tail.least(width) + GAP)
    past = min(view.scrolled_past, _furthest(columns, room))
    middle: list[PageColumn] = []
    for column in columns[past:]:
        if room < column.width + GAP:
            break
        room -= column.width + GAP
        middle.append(column)
    hidden = len(columns) - past - len(middle)
    if tail is None:
        return grown((key, *middle), 0 if past or hidden else room), past, hidden
    return (key, *middle, tail), past, hidden


def _furthest(columns: Sequence[PageColumn], room: int) -> int:
    """Return how far to scroll until the last column is in sight."""
    for index in range(len(columns) - 1, -1, -1):
        room -= columns[index].width + GAP
        if room < 0:
            return min(index + 1, len(columns) - 1)
    return 0


def sideways(table: PageTable, view: ListingView, by: int, width: int) -> ListingView:
    """Return the view scrolled by so many columns, as far as there are any."""
    _, past, _ = placed(table, view, width)
    return replace(view, scrolled_past=placed(table, replace(view, scrolled_past=max(past + by, 0)), width)[1])


def sort_in_sight(table: PageTable, view: ListingView, width: int) -> ListingView:
    """Return the view scrolled just as far as it takes to see the column sorted by, where that has room."""
    columns = len(shown_columns(table, view))
    for past in sorted(range(columns), key=lambda past: abs(past - view.scrolled_past)):
        scrolled_to = replace(view, scrolled_past=past)
        if any(column.id == view.sort for column in placed(table, scrolled_to, width)[0]):
            return sideways(table, scrolled_to, 0, width)
    return view


def total_of(table: PageTable, rows: Sequence[Any]) -> Any | None:
    """Return the row of the sum below the rows; None of a table without a sum, and of a single row."""
    return table.total(rows) if table.total is not None and len(rows) > 1 else None


def listing_lines(
    tables: Sequence[PageTable],
    table: PageTable,
    view: ListingView,
    rows: Sequence[Any] | Unavailable,
    width: int,
    height: int,
    glyphs: Glyphs,
    left_out: int = 0,
    pointed: Hashable = None,
    hidden: int = 0,
    idle_key: str = "i",
) -> list[Line]:
    """Return the head, headings and as many rows as fit; `height` lines of `width` cells.

    Args:
        tables: All tables of the page, named in the head.
        table: The one that is shown.
        view: The operator's choices; its `top` and `scrolled_past` as `scrolled` and `placed` leave them.
        rows: Rows in order, or why there are none.
        width: Cells.
        height: Rows, head and headings included.
        glyphs: Characters.
        left_out: Rows the source had beyond `MOST_ROWS`.
        pointed: Key of the row that stands beside the table; None for none.
        hidden: Rows that are left out because they are quiet.
        idle_key: Lists them.
    """
    blank: Line = ((" " * width, PLAIN),)
    if isinstance(rows, Unavailable):
        reason = wrapped(str(rows), max(width - 2, 2), absence(rows)[0][1])
        lines = [
            _head(tables=tables, table=table, view=view, rows=(), width=width, visible=0, glyphs=glyphs),
            blank,
        ]
        lines += [padded((("  ", PLAIN), *line), width) for line in reason]
        return [*lines, *[blank] * (height - len(lines))][:height]
    total = total_of(table, rows)
    visible = max(height - HEAD_ROWS - (total is not None), 0)
    columns, _, _ = placed(table, view, width)
    cursor = cursor_of(table, view, rows)
    cells = [_cells(table, view, row, columns, glyphs, pointed) for row in rows[view.top : view.top + visible]]
    if total is not None:
        cells.append([(text, "label") for text, _ in _cells(table, view, total, columns, glyphs, None)])
    lines = table_lines(
        _headings(columns, view, width, glyphs),
        cells,
        width=width,
        height=max(height - 1, 0),
        cursor=None if cursor is None else cursor - view.top,
        glyphs=glyphs,
    )
    if not rows and len(lines) > 1:
        message = f'no row contains "{one_line(view.filter, _FILTER)}"' if view.filter else table.empty
        elsewhere = view.filter or (view.hide_quiet and hidden)
        if view.hide_quiet and hidden and not view.filter:
            message = f"{hidden} {table.quiet_word}: {idle_key} lists them"
        message_lines = [
            *((("  ", PLAIN), *line) for line in wrapped(message, width - 3, PLAIN)),
            *([] if elsewhere else _would_stand_here(table, view, width)),
        ]
        lines[1:] = [padded(line, width) for line in message_lines[: len(lines) - 1]] + lines[1 + len(message_lines) :]
    return [
        _head(
            tables=tables,
            table=table,
            view=view,
            rows=rows,
            width=width,
            visible=visible,
            glyphs=glyphs,
            left_out=left_out,
        ),
        *lines,
    ][:height]


# The room that a table leaves: the other tables of its page.

_STEP: Final = 4
"""Lines by which the others move on: they stay where they are while a few rows come and go."""


def with_others(
    lines: list[Line], tables: Sequence[PageTable], rows_of: Callable[[PageTable], Sequence[Any] | Unavailable],
    view_of: Callable[[PageTable], ListingView], width: int, glyphs: Glyphs,
) -> list[Line]:  # fmt: skip
    """Return the lines of a table with other tables of its page in the room that it leaves.

    Args:
        lines: Of `listing_lines`.
        tables: The others, in the order in which they stand.
        rows_of: All rows of a table, or why there are none.
        view_of: The operator's choices in a table.
        width: Cells.
        glyphs: Characters.
    """
    used_lines = max((number for number, line in enumerate(lines, 1) if plain_text(line).strip()), default=0)
    top = -(-(used_lines + 1) // _STEP) * _STEP
    return [*lines[:top], *tables_below(tables, rows_of, view_of, width, len(lines) - top, glyphs)][: len(lines)]


def tables_below(
    tables: Sequence[PageTable], rows_of: Callable[[PageTable], Sequence[Any] | Unavailable],
    view_of: Callable[[PageTable], ListingView], width: int, height: int, glyphs: Glyphs,
) -> list[Line]:  # fmt: skip
    """Return the tables that have rows one under the other, as far as there is room; exactly `height` lines."""
    lines: list[Line] = []
    for table in tables:
        all_rows = rows_of(table) if height - len(lines) > HEAD_ROWS else ()
        view = replace(view_of(table), top=0, selected=None)
        rows = () if isinstance(all_rows, Unavailable) else ordered(table, view, all_rows)
        if rows:
            room = min(height - len(lines), HEAD_ROWS + len(rows) + (total_of(table, rows) is not None))
            view = sideways(table, without_unused(table, view, rows), 0, width)
            lines += listing_lines((table,), table, view, rows, width, room, glyphs)
    return [*lines, *[padded((), width)] * (height - len(lines))][: max(height, 0)]


def _would_stand_here(table: PageTable, view: ListingView, width: int) -> list[Line]:
    """Return what a row of an empty table is, and what each of its columns says."""
    lines: list[Line] = [()]
    if table.about:
        lines += [(("  ", PLAIN), *line) for line in wrapped(table.about, width - 3, "label")] + [()]
    columns = shown_columns(table, view)
    title_cells = max(len(column.title) for column in columns) + GAP
    for column in columns:
        title, *more = wrap(column.definition, max(width - title_cells - 5, 8))
        lines.append((("  ", PLAIN), (column.title.ljust(title_cells), "label"), ("  ", PLAIN), (title, "dim")))
        lines += [((" " * (title_cells + 4), PLAIN), (line, "dim")) for line in more]
    return lines


def _headings(columns: Sequence[PageColumn], view: ListingView, width: int, glyphs: Glyphs) -> list[Column]:
    headings = []
    for index, column in enumerate(columns):
        mark, title = _MARK if index == 0 else 0, column.title
        if column.id == view.sort:
            title += glyphs.down if view.descending else glyphs.up
        if mark:
            title = " " * mark + (title.rjust(column.width) if column.align == "right" else title)
        headings.append(
            Column(
                title=title,
                width=column.width + mark,
                align="left" if mark else column.align,
                elastic=column.elastic,
                prose=column.prose,
            )
        )
    return _without_slivers(headings, width)


def _without_slivers(headings: list[Column], width: int) -> list[Column]:
    """Return the headings without one that a narrow screen would cut to nothing legible."""
    widths = column_widths(headings, width)
    return [
        column if cells >= min(column.width, _LEAST) else replace(column, title="")
        for column, cells in zip(headings, widths, strict=True)
    ]


def _cells(
    table: PageTable, view: ListingView, row: Any, columns: Sequence[PageColumn], glyphs: Glyphs, pointed: Hashable
) -> list[tuple[str, str]]:
    cells = [(column.text(row), column.style(row)) for column in columns]
    text, style = cells[0]
    if columns[0].align == "right":
        text = text.rjust(columns[0].width)
    is_tagged = bool(view.tagged) and row_key(table, row) in view.tagged
    mark = glyphs.pointer if pointed is not None and row_key(table, row) == pointed else " "
    cells[0] = (glyphs.bullet + text, "key") if is_tagged else (mark + text, style)
    return cells


def _head(
    tables: Sequence[PageTable],
    table: PageTable,
    view: ListingView,
    rows: Sequence[Any],
    width: int,
    visible: int,
    glyphs: Glyphs,
    left_out: int = 0,
) -> Line:
    by = column_of(table, view.sort)
    _, before, behind = placed(table, view, width)
    quiet_words = "hidden" if table.folded is None else "folded"
    facts = [
        Phrase(((f"/{one_line(view.filter, _FILTER)}", "key"),) if view.filter else (), 0),
        Phrase(((f"{len(view.tagged)} tagged", "key"),) if view.tagged else (), 1),
        Phrase(((f"{table.quiet_word} {quiet_words}", "key"),) if view.hide_quiet else (), 3),
        Phrase(((f"by {by.title}", "label"),) if by is not None else (), 5),
        Phrase(((unseen(before, behind, glyphs), "label"),) if before or behind else (), 4),
        Phrase(((f"{left_out} more not listed", "warning"),) if left_out else (), 3),
        Phrase(((rows_in_sight(view.top, visible, len(rows)), "label"),) if rows else (), 2),
    ]
    title = titles(tables, table, int(width * _TITLE_SHARE), glyphs)
    return head(title, width, glyphs, [fact for fact in facts if fact.line])
