"""Every page besides the dashboard: the header, lines above, one of the page's tables, the keys."""

from __future__ import annotations

import json
from collections.abc import Callable, Hashable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from msgspec.structs import replace
from rich.cells import cell_len, set_cell_size

from pgtop_tune.base.paths import content_of, private, replacing, state_dir
from pgtop_tune.base.safe_text import one_line
from pgtop_tune.model.absence import Unavailable
from pgtop_tune.model.backend_action import BackendKey, StatementToPlan
from pgtop_tune.runtime.session import Session
from pgtop_tune.tui.actions import PAGES, ROWS, Action, with_keys
from pgtop_tune.tui.dialogs.dialog import DetailsDialog, Dialog
from pgtop_tune.tui.dialogs.help import Entry, explained, why_untold
from pgtop_tune.tui.pages import listing
from pgtop_tune.tui.pages.listing import HEAD_ROWS, ListingView, first_view, listing_lines
from pgtop_tune.tui.pages.page import MOST_ROWS, Page, PageTable, row_lines, row_text
from pgtop_tune.tui.scene.header import footer_line, header_line
from pgtop_tune.tui.scene.scene import (
    ABOVE,
    BELOW,
    FINDING,
    KeyMoved,
    KeyUnknown,
    MarksUnwanted,
    Scene,
    SceneScreen,
    span_at,
)
from pgtop_tune.tui.widgets.lines import PLAIN, Glyphs, Line, wrapped
from pgtop_tune.tui.widgets.phrase import head

# Which columns of which table are shown: chosen in a dialog, remembered from session to session.

_FILE: Final = "columns.json"
_LARGEST: Final = 1_000_000


class ColumnChoice:
    """Deviations from what the tables show by themselves, so that a column invented later appears.

    A file that cannot be read or makes no sense counts as empty; one that cannot be written costs the memory only.
    """

    def __init__(self) -> None:
        self._tables: dict[str, dict[str, bool]] = _read(state_dir() / _FILE)

    def of(self, table: PageTable) -> frozenset[str]:
        """Return ids of the columns to show; the key column always among them."""
        chosen = self._tables.get(table.id, {})
        visible = {column.id for column in table.columns if chosen.get(column.id, column.visible)}
        return frozenset(visible | {table.columns[0].id})

    def choose(self, table: PageTable, columns: frozenset[str]) -> str:
        """Remember a choice.

        Returns:
            Why it will be forgotten with this session; "" when it was written down.
        """
        deviations = {
            column.id: column.id in columns for column in table.columns if (column.id in columns) != column.visible
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
        table: {name: is_shown for name, is_shown in columns.items() if isinstance(is_shown, bool)}
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
        table: The table with the columns.
        shown_ids: Ids of the columns that are shown now.
        glyphs: Characters of the drawing.
    """

    CELLS = 92
    KEYS = "Space on/off  d default  Enter ok  Esc back"

    def __init__(self, table: PageTable, shown_ids: frozenset[str], glyphs: Glyphs) -> None:
        super().__init__(f"columns of {table.title}", glyphs)
        self._table = table
        self._shown = shown_ids
        self._at = 0
        self._top_column = 0

    def content(self, cells: int) -> list[Line]:
        """Return a line per column, and under the list what the one pointed at says and where it comes from."""
        columns = self._table.columns
        room = max(self.app.size.height - _BESIDES, 1)
        self._top_column = min(max(self._top_column, self._at - room + 1), self._at)
        visible = range(self._top_column, min(self._top_column + room, len(columns)))
        at = columns[self._at]
        explanation = [*wrapped(at.definition, cells), *wrapped(at.source, cells, "dim")][:_SAID]
        return [*(self._line(index, cells) for index in visible), (), *explanation, *[()] * (_SAID - len(explanation))]

    def _line(self, index: int, cells: int) -> Line:
        column = self._table.columns[index]
        mark = self.glyphs.bullet if column.id in self._shown else self.glyphs.ring
        text = f" {mark} {column.title.ljust(_TITLE)} {column.definition}"
        style = "cursor" if index == self._at else "" if column.id in self._shown else "dim"
        if cell_len(text) > cells:
            text = set_cell_size(text, cells - 1) + self.glyphs.ellipsis
        return ((set_cell_size(text, cells), style),)

    async def pressed(self, key: str, character: str | None) -> bool:
        """Move, show or hide a column, or leave."""
        by = {"up": -1, "k": -1, "down": 1, "j": 1, "pageup": -10, "pagedown": 10, "home": -1000, "g": -1000,
              "end": 1000, "G": 1000}  # fmt: skip
        columns = self._table.columns
        if key in by:
            self._at = min(max(self._at + by[key], 0), len(columns) - 1)
        elif key in ("space", "x", "insert"):
            # A row is known by its key column.
            if self._at > 0:
                self._shown ^= {columns[self._at].id}
        elif key == "d":
            self._shown = frozenset(column.id for column in columns if column.visible)
        elif key in ("enter", "o"):
            self.dismiss(self._shown | {columns[0].id})
        return key in (*by, "space", "x", "insert", "d", "enter", "o")


_NEXT_TABLE: Final = "next-table"
_REASON: Final = 300
_LEAST_TABLE: Final = 6
"""Rows the table keeps when the summary wants all of them."""


_WORKS: Final[Mapping[str, Callable[[Page, PageTable], bool]]] = {
    _NEXT_TABLE: lambda page, table: len(page.tables) > 1,
    "previous-table": lambda page, table: len(page.tables) > 1,
    "idle": lambda page, table: table.quiet is not None,
    "cancel": lambda page, table: table.backend_of is not None,
    "terminate": lambda page, table: table.backend_of is not None,
    "explain": lambda page, table: table.backend_of is not None or table.statement_of is not None,
}
"""Action → whether it does something with a table; all others always do."""


def _rank(action: Action) -> int:
    return 0 if action.id == _NEXT_TABLE else 1 if action.group == ROWS else 2


class PageScreen(SceneScreen):
    """Shows the page it was last turned to; holds what the operator chose in each table.

    Attributes:
        page: The page in view.
        table: The table of it.
    """

    STACK = (*ABOVE, "header", FINDING, "summary", "table", *BELOW, "footer")

    def __init__(
        self, glyphs: Glyphs, actions: Sequence[Action], keymap: Mapping[str, str], target: str, first: Scene
    ) -> None:
        super().__init__(glyphs, actions, keymap, target, first)
        self._columns = ColumnChoice()
        self._beside = listing.RowBeside()
        self._views: dict[str, ListingView] = {}
        self._chosen: dict[str, PageTable] = {}
        self._moment: tuple[object, ...] = ()
        self._asked: dict[str, Sequence[Any] | Unavailable] = {}
        self._all: Sequence[Any] | Unavailable = ()
        self._order: tuple[object, ...] = ()
        self._in_order: Sequence[Any] = ()
        self._table_height = 0
        self._summary_height = 0
        self.page: Page = PAGES[0].page
        self.table: PageTable = self.page.tables[0]

    def turn_to(self, page: Page, scene: Scene, table: str = "") -> None:
        """Turn to another page, with the table of that id; without one as it was left."""
        self._filtering = None
        chosen = next((candidate for candidate in page.tables if candidate.id == table), None)
        if chosen is not None:
            self._chosen[page.id] = chosen
        self.page, self.table = page, self._chosen.get(page.id, page.tables[0])
        self._scene = scene
        if self.is_mounted:
            self._arrange()
            self.paint_soon()

    def heights(self, width: int, height: int) -> dict[str, int]:
        """Return the summary gets what it asks for as long as the table keeps a few rows."""
        self._summary_height = self._summary_wanted(width, height)
        self._table_height = max(height - 2 - self._summary_height, 0)
        return {"header": 1, "summary": self._summary_height, "table": self._table_height, "footer": 1}

    def _summary_wanted(self, width: int, height: int) -> int:
        wanted_rows = min(self.page.summary_rows(width, height), self.page.summary_needs(self._scene.session, width))
        return max(min(wanted_rows, height - 2 - _LEAST_TABLE), 0)

    def show(self, scene: Scene) -> None:
        """Draw another scene; first give the summary the room it needs now."""
        self._scene = scene
        wanted_rows = self._summary_wanted(self.app.size.width, self.rows_for_panes)
        if self.is_mounted and wanted_rows != self._summary_height:
            self._arrange()
            self.paint_soon()
        super().show(scene)

    def drawn(self, width: int) -> Mapping[str, Sequence[Line]]:
        scene, session = self._scene, self._scene.session
        rows = self.rows
        view = self._view
        if not isinstance(rows, Unavailable):
            view = listing.without_gone_tags(self.table, view, self._all)
            view = listing.without_unused(self.table, view, rows)
            view = listing.scrolled(self.table, view, rows, self.visible_rows)
            view = listing.sideways(self.table, view, 0, self._table_width)
            self._views[self.table.id] = view
        in_source = 0 if isinstance(self._all, Unavailable) else len(self._all)
        width_of_table = self._table_width
        beside = None if width_of_table == width else self._beside.row(self.table, view, self._found)
        table = listing_lines(
            tables=self.page.tables,
            table=self.table,
            view=view,
            rows=rows,
            width=width_of_table,
            height=self._table_height,
            glyphs=self._glyphs,
            left_out=max(in_source - MOST_ROWS, 0),
            pointed=None if beside is None else listing.row_key(self.table, beside),
            hidden=in_source - len(self._found),
            idle_key=self._key_of("idle"),
        )
        below = [candidate for candidate in self._others if candidate not in self.page.drawn_above(width)]
        table = listing.with_others(table, below, self._rows_of, self._view_of, width_of_table, self._glyphs)
        if width_of_table < width:
            right = self._beside.lines(
                self.table, view, beside, session, width - width_of_table - len(listing.APART),
                self._table_height, self._glyphs,
            )  # fmt: skip
            table = [(*line, (listing.APART, PLAIN), *beside) for line, beside in zip(table, right, strict=True)]
        header = header_line(
            session, width, self._glyphs, recording=scene.recording, offset_s=scene.behind_s, target=self._target,
            load=scene.load,
        )  # fmt: skip
        summary = self.page.summary(session, width, self._summary_height, self._glyphs) if self._summary_height else ()
        footer = footer_line(self.footer_keys(), width, self.page_names(self.page.key))
        return {"header": [header], "summary": summary, "table": table, "footer": [footer]}

    def offered(self) -> tuple[Action, ...]:
        """Return the keys, those of this table first."""
        return tuple(sorted(super().offered(), key=_rank))

    def _offers(self, action: Action) -> bool:
        works = _WORKS.get(action.id)
        return (works is None or works(self.page, self.table)) and super()._offers(action)

    @property
    def _others(self) -> Sequence[PageTable]:
        """The tables of the page that Tab leads to, in that order."""
        at = self.page.tables.index(self.table)
        return (*self.page.tables[at + 1 :], *self.page.tables[:at])

    @property
    def _table_width(self) -> int:
        """Cells of the table; on a wide screen the selected row stands beside it."""
        width, rows = self.app.size.width, self.rows
        if isinstance(rows, Unavailable) or not (rows or self._beside.had(self.table)):
            return width
        return listing.table_width(self.table, self._view, width)

    @property
    def visible_rows(self) -> int:
        """Rows of the table that are in view."""
        has_total = listing.total_of(self.table, self._found) is not None
        return max(self._table_height - HEAD_ROWS - has_total - self.covered_rows, 0)

    def _view_of(self, table: PageTable) -> ListingView:
        if table.id not in self._views:
            self._views[table.id] = first_view(table, self._columns.of(table))
        return self._views[table.id]

    @property
    def _view(self) -> ListingView:
        return self._view_of(self.table)

    @property
    def view(self) -> ListingView:
        """The operator's choices in the table in view."""
        return self._view

    @property
    def rows(self) -> Sequence[Any] | Unavailable:
        """The rows of the table in view, in order; asked for once per frame, ordered anew when the order is another."""
        all_rows = self._rows_of(self.table)
        if self._all is not all_rows:
            self._all, self._order = all_rows, ()
        if isinstance(self._all, Unavailable):
            return self._all
        view = self._view
        order = (view.sort, view.descending, view.filter, view.hide_quiet, view.columns)
        if self._order != order:
            self._order, self._in_order = order, listing.ordered(self.table, view, self._all)
        return self._in_order

    def _rows_of(self, table: PageTable) -> Sequence[Any] | Unavailable:
        """Return all rows of a table of the page, or why there are none; asked for once per frame."""
        moment = (id(self._scene.session), self._scene.session.now, self.page.id)
        if self._moment != moment:
            self._moment, self._asked = moment, {}
        if table.id not in self._asked:
            self._asked[table.id] = table.rows(self._scene.session)
        return self._asked[table.id]

    @property
    def _found(self) -> Sequence[Any]:
        rows = self.rows
        return () if isinstance(rows, Unavailable) else rows

    def _choose(self, view: ListingView) -> None:
        self._views[self.table.id] = view
        self.paint()

    def select(self, key: Hashable) -> None:
        """Select the row with that key."""
        self._choose(replace(self._view, selected=key))

    @property
    def help_at(self) -> str:
        """The column that the operator sorted by, else the table."""
        column = listing.column_of(self.table, self._view.sort)
        chosen = column is not None and self._view.sort != self.table.sort
        return (column.title or column.id) if chosen and column is not None else self.table.title

    def explained(self, cells: int) -> list[Line]:
        """Return the columns of the table in view, the numbers of the summary, the columns of the other tables."""
        other_tables = [table for table in self.page.tables if table is not self.table]
        lines = self._columns_explained(self.table, cells)
        if self.page.numbers:
            lines += [(), head(((f"{self.page.title}: above the table", "title"),), cells, self._glyphs)]
            now = self._scene.session.now
            lines += [line for row in self.page.numbers for line in explained(row, cells, why_untold(row, now))]
        return [*lines, *(line for table in other_tables for line in self._columns_explained(table, cells))]

    def _columns_explained(self, table: PageTable, cells: int) -> list[Line]:
        lines: list[Line] = [(), head(((table.title, "title"),), cells, self._glyphs)]
        for column in table.columns:
            lines += explained(
                Entry(title=column.title or column.id, unit="", definition=column.definition, source=column.source),
                cells,
                why_untold(column.metric, self._scene.session.now),
            )
        return lines

    def chosen_backends(self) -> tuple[BackendKey, ...]:
        """Return the sessions of the tagged rows, also of those that the filter hides; without any, of the selected
        one.
        """
        view, table = self._view, self.table
        keys = view.tagged or ({view.selected} if view.selected is not None else frozenset())
        everything = () if isinstance(self._all, Unavailable) else self._all
        return self._backends([row for row in everything if listing.row_key(table, row) in keys])

    def chosen_statement(self) -> StatementToPlan | str | None:
        statement_of, selected = self.table.statement_of, self._view.selected
        if statement_of is None:
            return None
        row = None if selected is None else _row(self.table, self._scene.session, selected)
        return "select a statement with the arrows first" if row is None else statement_of(self._scene.session, row)

    def listed_backends(self) -> tuple[BackendKey, ...]:
        return self._backends(self._found) if self._view.filter else ()

    def _backends(self, rows: Sequence[Any]) -> tuple[BackendKey, ...]:
        """Return each session once, in the order of the rows."""
        backend_of = self.table.backend_of
        keys = () if backend_of is None else (backend_of(row) for row in rows)
        return tuple(dict.fromkeys(key for key in keys if key is not None))

    @property
    def table_in_view(self) -> str:
        return f"{self.page.id} {self.table.id}"

    @property
    def has_selection(self) -> bool:
        return self._view.selected is not None or bool(self._view.tagged)

    @property
    def selected(self) -> Hashable:
        return self._view.selected

    @property
    def filtered_by(self) -> str:
        return self._view.filter

    def filter_by(self, text: str) -> None:
        self._choose(replace(self._view, filter=text, top=0))

    def action_table(self, by: int) -> None:
        """Show the next or the previous table of the page."""
        tables = self.page.tables
        self.table = tables[(tables.index(self.table) + by) % len(tables)]
        self._chosen[self.page.id] = self.table
        self.paint()

    def action_move(self, by: int) -> None:
        """Select the row so many further down."""
        self._choose(listing.cursor_moved(self.table, self._view, self._found, by, self.visible_rows))

    def action_edge(self, by: int) -> None:
        """Select the first or the last row."""
        rows = self._found
        if rows:
            at = 0 if by < 0 else len(rows) - 1
            self._choose(listing.selected(self.table, self._view, rows, at, self.visible_rows))

    def action_top(self) -> None:
        """Select the first row."""
        self.post_message(KeyMoved("top"))
        self.action_edge(-1)

    def action_bottom(self) -> None:
        """Select the last row."""
        self.post_message(KeyMoved("bottom"))
        self.action_edge(1)

    async def action_sideways(self, by: int) -> None:
        """Scroll by a column; where none is hidden on that side, go one frame back or forward."""
        scrolled = listing.sideways(self.table, self._view, by, self._table_width)
        if scrolled == self._view:
            await self.app.run_action(f"app.step({by})")
        else:
            self._choose(scrolled)

    def action_unselect(self) -> None:
        """Clear selection, tags and filter; where there is none, clear the marks."""
        if self._view.selected is None and not self._view.tagged and not self._view.filter:
            self.post_message(MarksUnwanted())
        self._choose(replace(self._view, selected=None, tagged=frozenset(), filter="", top=0))

    def action_sort(self, by: int) -> None:
        """Sort by the next or the previous column."""
        view = listing.sorted_by_next(self.table, self._view, by)
        self._choose(listing.sort_in_sight(self.table, view, self._table_width))

    def action_reverse(self) -> None:
        """Sort the other way round."""
        if self._view.sort == listing.NATURAL:
            hint = "{reverse} reverses an order of yours: {sort}, {sort-left} and {sort-right} sort"
            self.post_message(KeyUnknown(with_keys(hint, self._keymap)))
        self._choose(listing.turned_round(self._view))

    def action_idle(self) -> None:
        """Hide or show what is at rest."""
        if self.table.quiet is not None:
            self._choose(replace(self._view, hide_quiet=not self._view.hide_quiet))

    def action_tag(self) -> None:
        """Tag the selected row and go to the next."""
        self._choose(listing.tag_turned(self.table, self._view, self._found, self.visible_rows))

    def action_columns(self) -> None:
        """Ask which columns to show."""
        table = self.table

        def chosen(columns: frozenset[str] | None) -> None:
            if columns is None:
                return
            problem = self._columns.choose(table, columns)
            if problem:
                self.app.notify(problem, markup=False, severity="warning")
            self._views[table.id] = listing.with_columns(table, self._views[table.id], columns)
            self.paint()

        self.app.push_screen(ColumnsDialog(table, self._view.columns, self._glyphs), chosen)

    async def action_details(self) -> None:
        """Open all details of the selected row; without one, of the bottleneck."""
        table, key, rows = self.table, self._view.selected, self.rows
        if key is None:
            await self.open_bottleneck()
            return
        if isinstance(rows, Unavailable):
            self.app.notify(one_line(str(rows), _REASON), markup=False, severity="warning")
            return
        row = _row(table, self._scene.session, key)
        if row is None:
            self.app.notify("the selected row is gone", markup=False, severity="warning")
            return
        glyphs = self._glyphs

        def lines(session: Session, cells: int) -> Sequence[Line]:
            return row_lines(table, session, _row(table, session, key), cells, glyphs)

        def copied(session: Session) -> str:
            return row_text(table, _row(table, session, key))

        title = f"{table.title}: {table.columns[0].text(row) if table.called is None else table.called(row)}"
        more = self.keys_for(table.backend_of(row) if table.backend_of is not None else None)
        self.app.push_screen(DetailsDialog(title, self._scene.session, lines, copied, glyphs, more))

    def action_copy(self) -> None:
        """Copy the selected row, or what of it is worth copying."""
        key = self._view.selected
        text = "" if key is None else row_text(self.table, _row(self.table, self._scene.session, key))
        self.copy_or_warn(text, "copied to your terminal's clipboard", "select a row with the arrows first")

    def moment_at(self, pane: str, x: int, y: int) -> float | None:
        size = self.app.size.width, self._summary_height
        return self.page.moment_at(self._scene.session, size, (x, y)) if pane == "summary" else None

    def clicked_in(self, pane: str, x: int, y: int) -> None:
        """Select a row, sort by a heading, or turn to a table that the head names."""
        rows, at = self._found, y - HEAD_ROWS + self._view.top
        if pane != "table" or x >= self._table_width:
            return
        if y == 0:
            name = span_at(self._drawn[pane][y], x)
            named = next((table for table in self.page.tables if table.title == name), None)
            if named is not None:
                self.action_table(self.page.tables.index(named) - self.page.tables.index(self.table))
        elif y == HEAD_ROWS - 1:
            column = listing.heading_at(self.table, self._view, self._table_width, x, self._glyphs)
            if column is not None:
                self._choose(listing.sorted_by(self._view, column))
        elif at < len(rows) and at < self._view.top + self.visible_rows:
            self._choose(replace(self._view, selected=listing.row_key(self.table, rows[at])))


def _row(table: PageTable, session: Session, key: Hashable) -> Any:
    """Return the row with that key in the newest frame; None when it is not there any more."""
    rows = table.rows(session)
    if isinstance(rows, Unavailable):
        return None
    single = () if table.folded is None else table.folded(rows)
    return next((row for row in (*rows, *single) if listing.row_key(table, row) == key), None)
