"""What a page is made of: tables of rows with declared columns, and lines above them.

One machinery (`listing`, `screens.page`) sorts, filters, scrolls, hides columns, tags rows, opens details and copies;
a page only says what its rows are and what stands in each column.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any, Final, Literal

from msgspec import Struct
from msgspec.structs import replace

from pgtop_tune.model.absence import Unavailable
from pgtop_tune.model.backend_action import BackendKey
from pgtop_tune.runtime.session import Session
from pgtop_tune.tui.scene.explain import Described
from pgtop_tune.tui.widgets.glyphs import Glyphs
from pgtop_tune.tui.widgets.lines import PLAIN, Line

SortValue = float | int | str | None
"""What rows are compared by; None is unknown and stands last in either direction."""


def _plain(row: Any) -> str:
    return PLAIN


class PageColumn(Struct, frozen=True):
    """A column of a table.

    Attributes:
        id: Stable, unique within the table: the operator's choice of columns is remembered by it.
        title: Heading.
        width: Cells; of an elastic column the least.
        text: What stands in a row's cell. Foreign text goes through `safe_text.one_line`; unknown is "-".
        definition: What it says, one sentence, for `?`.
        source: View and column, or kernel file and field, with the formula.
        value: What sorting compares; None where the column cannot be sorted by.
        largest_first: Direction of the first sort by this column: numbers largest first, names from a to z.
        style: Name of a style for a row's cell.
        align: Numbers stand right.
        elastic: Takes what the others leave.
        most: Cells it grows to where all columns of the table have room and some is left; 0 for never.
        shown: Whether it is shown until the operator chooses otherwise.
    """

    id: str
    title: str
    width: int
    text: Callable[[Any], str]
    definition: str
    source: str
    value: Callable[[Any], SortValue] | None = None
    largest_first: bool = True
    style: Callable[[Any], str] = _plain
    align: Literal["left", "right"] = "left"
    elastic: bool = False
    shown: bool = True
    most: int = 0


def grown(columns: Sequence[PageColumn], room: int) -> tuple[PageColumn, ...]:
    """The columns, those that may grow as much wider as there is room, from left to right."""
    found = []
    for column in columns:
        more = min(max(column.most - column.width, 0), room)
        room -= more
        found.append(replace(column, width=column.width + more) if more else column)
    return tuple(found)


class PageTable(Struct, frozen=True):
    """One table of a page; Tab goes from table to table.

    Attributes:
        id: Stable: "statements".
        title: Heading, also in the list of a page's tables.
        columns: The first is the key column, which stays where it is when the others scroll sideways.
        rows: Rows of the newest frames in their natural order (a tree in its own), or why there are none.
        key_of: What a selection is bound to; survives from frame to frame.
        sort: Column sorted by at first; "" keeps the natural order.
        searched: Texts the filter looks into; by default every shown cell.
        details: Everything known of a row, for Enter; None where there is nothing more.
        called: What a row is called above its details; by default its first cell.
        copied: What `y` copies.
        backend_of: The session a row is about, for cancel, terminate and EXPLAIN; None for rows about none.
        empty: What is said when there are no rows: "no locks are waited for".
        quiet: Whether a row is at rest and may be hidden with `i`; None where no row is.
        quiet_word: What such rows are called: "idle".
    """

    id: str
    title: str
    columns: tuple[PageColumn, ...]
    rows: Callable[[Session], Sequence[Any] | Unavailable]
    key_of: Callable[[Any], Hashable]
    sort: str = ""
    searched: Callable[[Any], Sequence[str]] | None = None
    details: Callable[[Session, Any, int, Glyphs], list[Line]] | None = None
    called: Callable[[Any], str] | None = None
    copied: Callable[[Any], str] | None = None
    backend_of: Callable[[Any], BackendKey | None] | None = None
    empty: str = "nothing to show"
    quiet: Callable[[Any], bool] | None = None
    quiet_word: str = "idle"


def _no_summary(session: Session, width: int, height: int, glyphs: Glyphs) -> list[Line]:
    return []


def _no_rows(width: int, height: int) -> int:
    return 0


def _all_rows(session: Session, width: int) -> int:
    return MOST_ROWS


MOST_ROWS: Final = 10_000
"""Rows a table takes from its source; a page with more says how many are left out."""


class Page(Struct, frozen=True):
    """A screen besides the dashboard.

    Attributes:
        key: "2" … "9".
        id: Stable: "statements".
        title: In the footer and the head: "statements".
        tables: At least one.
        summary: Lines above the table, at most `height` of them, none wider than `width`.
        summary_rows: How many lines the summary gets on a screen of this size.
        numbers: What the summary shows, for `?`.
        summary_needs: For how many lines it has something in this session on a screen that wide; the others go to the
            table. What comes and goes from look to look counts as there, so that the table stays where it is.
    """

    key: str
    id: str
    title: str
    tables: tuple[PageTable, ...]
    summary: Callable[[Session, int, int, Glyphs], list[Line]] = _no_summary
    summary_rows: Callable[[int, int], int] = _no_rows
    numbers: tuple[Described, ...] = ()
    summary_needs: Callable[[Session, int], int] = _all_rows
