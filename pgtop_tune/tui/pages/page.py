"""The parts of a page: tables of rows with declared columns, the sources of their rows, and lines above them.

One machinery (`listing`, `pages.screen`) sorts, filters, scrolls, hides columns, tags rows, opens details and copies;
a page only says what its rows are and what stands in each column.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any, Final, Literal

from msgspec import Struct
from msgspec.structs import replace
from rich.cells import cell_len

from pgtop_tune.base.safe_text import one_line, printable
from pgtop_tune.base.units import UNKNOWN, age, count, ms, percent, size
from pgtop_tune.metrics.active_sessions import hidden_sessions
from pgtop_tune.metrics.catalogue import Interval
from pgtop_tune.model.absence import NOT_YET, Unavailable
from pgtop_tune.model.backend_action import BackendKey, StatementToPlan
from pgtop_tune.model.frame import Frame
from pgtop_tune.runtime.session import Session
from pgtop_tune.tui.widgets.lines import CUT, PLAIN, Glyphs, Line, clauses, labelled, wrap

if TYPE_CHECKING:
    from pgtop_tune.tui.dialogs.help import DescribedNumber

SortValue = float | int | str | None
"""What rows are compared by; None is unknown and stands last in either direction."""


class PageColumn(Struct, frozen=True):
    """A column of a table.

    Attributes:
        id: Stable, unique within the table: the operator's choice of columns is remembered by it.
        title: Heading.
        width: Cells; of an elastic column the least.
        text: Text of a row's cell. Foreign text goes through `safe_text.one_line`; unknown is "-".
        definition: Meaning of the column, one sentence, for `?`.
        source: View and column, or kernel file and field, with the formula.
        value: Value that sorting compares; None where the column cannot be sorted by.
        largest_first: Direction of the first sort by this column: numbers largest first, names from a to z.
        style: Name of a style for a row's cell.
        align: Numbers stand right.
        elastic: Takes what the others leave.
        share: Part of the table's cells that it gets at least, up to `_ENOUGH`.
        used: Whether the counter behind a row's cell ever counted anything; a column that no row used is left out.
        most: Cells it grows to where all columns of the table have room and some is left; 0 for never.
        visible: Whether it is shown until the operator chooses otherwise.
        metric: Id in the catalogue of the number it shows; "" where it is none.
        form: Writes its number, also in the chart of a row's history.
        unit: Unit of its value, as in the catalogue: "bytes/s", "ms"; "" for a count and for words.
        prose: Whether it holds sentences of ours, which end with a clause where room is short.
        raw: Value for programs, where it is another one than sorting compares: `show` writes it.
    """

    id: str
    title: str
    width: int
    text: Callable[[Any], str]
    definition: str
    source: str
    value: Callable[[Any], SortValue] | None = None
    largest_first: bool = True
    style: Callable[[Any], str] = lambda row: PLAIN
    align: Literal["left", "right"] = "left"
    elastic: bool = False
    share: float = 0.0
    used: Callable[[Any], object] | None = None
    visible: bool = True
    most: int = 0
    metric: str = ""
    form: Callable[[float | None], str] = count
    unit: str = ""
    prose: bool = False
    raw: Callable[[Any], object] | None = None

    @property
    def for_programs(self) -> Callable[[Any], object] | None:
        """Return the function that gives the value of a row for programs; None for a drawing."""
        return self.raw or self.value

    def least(self, width: int) -> int:
        """Return the cells that it gets at least in a table of so many cells."""
        return max(self.width, min(int(width * self.share), _ENOUGH))


_ENOUGH: Final = 50
"""Cells beyond which no column gets a share."""


def grown(columns: Sequence[PageColumn], room: int) -> tuple[PageColumn, ...]:
    """Return the columns, those that may grow as much wider as there is room, from left to right."""
    wider = []
    for column in columns:
        more = min(max(column.most - column.width, 0), room)
        room -= more
        wider.append(replace(column, width=column.width + more) if more else column)
    return tuple(wider)


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
        called: Name of a row above its details; by default its first cell.
        copied: The text that `y` copies.
        backend_of: The session a row is about, for cancel, terminate and EXPLAIN; None for rows about none.
        statement_of: The statement a row is about, for EXPLAIN, or why it cannot be planned; None for rows about none.
        empty: Message when there are no rows: "no locks are waited for".
        about: What a row is, and when there are any; stands below the message, above the columns.
        quiet: Whether a row is at rest and may be hidden with `i`; None where no row is.
        quiet_word: Word for such rows: "idle".
        hides_quiet: Whether the quiet rows are hidden until the operator asks for them.
        folded: The rows with one in place of those quiet ones that are alike: so they are hidden; None hides them all.
        total: The sum of some rows, as a row under them; None where a sum says nothing.
        leads: Whether the first row is the one to look at, and stands beside the table until another is chosen; of
            other tables the row that stood there before does.
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
    statement_of: Callable[[Session, Any], StatementToPlan | str] | None = None
    empty: str = "no data to show"
    about: str = ""
    quiet: Callable[[Any], bool] | None = None
    quiet_word: str = "idle"
    hides_quiet: bool = False
    folded: Callable[[Sequence[Any]], Sequence[Any]] | None = None
    total: Callable[[Sequence[Any]], Any] | None = None
    leads: bool = False


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
        numbers: Numbers of the summary, for `?`.
        summary_needs: For how many lines it has something in this session on a screen that wide; the others go to the
            table. What comes and goes from look to look counts as there, so that the table stays where it is.
        drawn_above: Of the width of the screen: the tables that the summary has.
        moment_at: Of width and height of the summary, and a place in it: the moment that a chart shows there, on the
            session's clock; None where there is no chart.
    """

    key: str
    id: str
    title: str
    tables: tuple[PageTable, ...]
    summary: Callable[[Session, int, int, Glyphs], list[Line]] = lambda session, width, height, glyphs: []
    summary_rows: Callable[[int, int], int] = lambda width, height: 0
    numbers: tuple[DescribedNumber, ...] = ()
    summary_needs: Callable[[Session, int], int] = lambda session, width: MOST_ROWS
    drawn_above: Callable[[int], Sequence[PageTable]] = lambda width: ()
    moment_at: Callable[[Session, tuple[int, int], tuple[int, int]], float | None] = lambda session, size, at: None


# Where the rows of a table come from: a section of the newest frame and what a metric makes of it.

TEXT: Final = 300
"""Characters of a foreign text that are looked at: more than any column shows."""


def section_rows(
    section: Callable[[Frame], Any], rates: Callable[[Interval], Sequence[Any] | Unavailable]
) -> Callable[[Session], Sequence[Any] | Unavailable]:
    """Return the function that gives the rows of a table, or why the section they depend on is not there."""

    def rows(session: Session) -> Sequence[Any] | Unavailable:
        frame, interval = session.now, session.interval
        if frame is None or interval is None:
            return NOT_YET
        section_value = section(frame)
        return section_value if isinstance(section_value, Unavailable) else rates(interval)

    return rows


def unless_hidden(
    rows: Callable[[Session], Sequence[Any] | Unavailable],
) -> Callable[[Session], Sequence[Any] | Unavailable]:
    """Return the same rows about sessions; where there are none and this role may not see everybody's, the GRANT
    instead.
    """

    def shown(session: Session) -> Sequence[Any] | Unavailable:
        session_rows = rows(session)
        if session_rows or session.now is None:
            return session_rows
        return hidden_sessions(session.now) or session_rows

    return shown


def foreign(text: Callable[[Any], str | None]) -> Callable[[Any], str]:
    """Return a name or other words of a stranger, on one line; "" without."""

    def safe(row: Any) -> str:
        return one_line(text(row) or "", TEXT)

    return safe


def of_backend(name: str) -> Callable[[Any], str]:
    """Return the function that gives a text of the row's session; "" of a row without one."""
    return foreign(lambda row: None if row.backend is None else getattr(row.backend, name))


def growth_of(*names: str) -> Callable[[Any], float | None]:
    """Return a reader of the growth per second of a row's counters together."""

    def value(row: Any) -> float | None:
        rate: float | None = row.per_s(*names)
        return rate

    return value


def session_key(row: Any) -> BackendKey | None:
    """Return the key of the row's session; None of a row without one."""
    return None if row.backend is None else (row.backend.pid, row.backend.backend_start_ms)


def whole(value: float | None) -> str:
    """Return a number without decimals."""
    return UNKNOWN if value is None else f"{value:.0f}"


# Columns of numbers, one line each.

Value = Callable[[Any], float | None]


def figure(
    id: str,
    title: str,
    width: int,
    value: Value,
    unit: Callable[[float | None], str],
    definition: str,
    source: str,
    *,
    visible: bool = True,
    critical: float | None = None,
    metric: str = "",
    used: Callable[[Any], object] | None = None,
    measure: str | None = None,
) -> PageColumn:
    """Return a column that stands right and sorts largest first; nothing and unknown are dim.

    Args:
        id, title, width, definition, source, visible, metric, used: As of `PageColumn`.
        value: The number of a row.
        unit: How it is written, from `units`.
        critical: Red from there on.
        measure: Unit of the number; None where form and heading tell it.
    """
    return PageColumn(
        id=id,
        title=title,
        width=width,
        text=partial(_text, value, unit),
        definition=definition,
        source=source,
        value=value,
        style=partial(_style, value, critical),
        align="right",
        visible=visible,
        metric=metric,
        used=used,
        form=unit,
        unit=_measure(unit, title) if measure is None else measure,
    )


_MEASURES: Final = {size: "bytes", ms: "ms", percent: "%", age: "s"}
"""Units of the numbers that these functions of `units` write."""


def _measure(unit: Callable[[float | None], str], title: str) -> str:
    per_unit = _MEASURES.get(unit, "")
    return f"{per_unit or 1}/s" if title.endswith("/s") else per_unit


def _text(value: Value, unit: Callable[[float | None], str], row: Any) -> str:
    figure = value(row)
    return "0" if figure == 0 else unit(figure)


def _style(value: Value, critical: float | None, row: Any) -> str:
    figure = value(row)
    if not figure:
        return "dim"
    return "critical" if critical is not None and figure >= critical else PLAIN


def word(
    id: str,
    title: str,
    width: int,
    text: Callable[[Any], str],
    definition: str,
    source: str,
    *,
    visible: bool = True,
    elastic: bool = False,
    most: int = 0,
    share: float = 0.0,
    prose: bool = False,
    raw: Callable[[Any], object] | None = None,
) -> PageColumn:
    """Return a column of words that sorts from a to z; an empty one is drawn as unknown."""
    return PageColumn(
        id=id,
        title=title,
        width=width,
        text=partial(_word, text),
        definition=definition,
        source=source,
        value=text,
        largest_first=False,
        elastic=elastic,
        most=most,
        share=share,
        visible=visible,
        prose=prose,
        raw=raw,
    )


def _word(text: Callable[[Any], str], row: Any) -> str:
    return text(row) or UNKNOWN


# Everything known of one row: what Enter shows of it, and what `y` copies.

_LABEL_CELLS: Final = 18
_VALUE_CELLS: Final = 16
_LEAST: Final = 24
"""Cells a definition must get to be worth beginning."""
_TEXT: Final = 10_000


def row_lines(
    table: PageTable, session: Session, row: Any, cells: int, glyphs: Glyphs, most: int | None = None
) -> list[Line]:
    """Return the table's details of the row; without such, every column, hidden ones included.

    Args:
        table: The table of the row.
        session: The session that is shown.
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
    """Return the title and value; behind a short value what it means, on one line where it is cut."""
    text, style = printable(column.text(row).strip(), _TEXT), column.style(row)
    room = cells - _LABEL_CELLS - _VALUE_CELLS
    if room < _LEAST or cell_len(text) >= _VALUE_CELLS:
        return labelled(column.title, text, cells, style, _LABEL_CELLS)
    definition = [clauses(column.definition, room, CUT)] if cut else wrap(column.definition, room)
    padding = " " * (_VALUE_CELLS - cell_len(text))
    first: Line = ((column.title.ljust(_LABEL_CELLS), "label"), (text, style), (padding, PLAIN), (definition[0], "dim"))
    below = " " * (_LABEL_CELLS + _VALUE_CELLS)
    return [first, *(((below, PLAIN), (line, "dim")) for line in definition[1:])]


def row_text(table: PageTable, row: Any) -> str:
    """Return the text to copy: the table's own, else every column, separated by tabs; "" of a row that is gone."""
    if row is None:
        return ""
    if table.copied is not None:
        return table.copied(row)
    return "\t".join(column.text(row).strip() for column in table.columns)
