"""Everything the screen can draw of what a live source saw, and the names a stranger would choose."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from psycopg.conninfo import make_conninfo

from pgtop_tune.model.absence import Unavailable
from pgtop_tune.model.frame import Frame
from pgtop_tune.runtime.ports import Step
from pgtop_tune.runtime.session import Session
from pgtop_tune.tui.actions import all_pages
from pgtop_tune.tui.dashboard.screen import DashboardState, dashboard_layout, dashboard_lines
from pgtop_tune.tui.pages.listing import first_view, listing_lines, ordered
from pgtop_tune.tui.pages.page import Page, PageTable, row_lines
from pgtop_tune.tui.widgets.lines import UNICODE, Line, plain_text, width
from pgtop_tune.tui.widgets.time_axis import CHARTED

SIZES = ((80, 24), (160, 48))
NASTY = "o'b\"r %s [red]x[/red] \\\n\x1b]0;x\x07\u202e漢字\u200d\U0001f468❤\ufe0f"
"""A name of at most 63 bytes, as the server keeps them."""
assert len(NASTY.encode()) < 64


def as_user(target: str, user: str, dbname: str | None = None) -> str:
    """The same server for another role, or another database."""
    return make_conninfo(target, user=user, **({} if dbname is None else {"dbname": dbname}))


def session_of(frames: Sequence[Frame]) -> Session:
    """A session that has seen these frames."""
    session = Session(CHARTED)
    for frame in frames:
        session.apply(Step((frame,)))
    return session


def page_text(session: Session, page: Page, table: PageTable, cells: int, rows: int) -> list[Line]:
    """One page as it opens with that table: summary and list."""
    summary = page.summary(session, cells, page.summary_rows(cells, rows), UNICODE)
    found = table.rows(session)
    view = first_view(table)
    shown = found if isinstance(found, Unavailable) else ordered(table, view, found)
    return [*summary, *listing_lines(page.tables, table, view, shown, cells, rows - len(summary), UNICODE)]


def everything(session: Session) -> Iterator[tuple[str, int, Line]]:
    """Every line of the dashboard, of every page with every table, and of the details of every row; with its room."""
    for cells, rows in SIZES:
        panes = dashboard_lines(session, dashboard_layout(cells, rows), cells, UNICODE, DashboardState())
        for pane, lines in panes.items():
            yield from ((f"dashboard {pane}", cells, line) for line in lines)
        for page in all_pages():
            for table in page.tables:
                where = f"{page.id}/{table.id}"
                yield from ((where, cells, line) for line in page_text(session, page, table, cells, rows))
                found = table.rows(session)
                for row in () if isinstance(found, Unavailable) else found[:30]:
                    yield from ((where, cells, line) for line in row_lines(table, session, row, cells, UNICODE))


def assert_fits_and_obeys_nothing(session: Session) -> str:
    """Every line stays in its room and holds nothing a terminal would obey; all of it as one text."""
    texts = []
    for where, cells, line in everything(session):
        text = plain_text(line)
        assert width(line) <= cells, (where, text)
        assert not any(ord(character) < 32 or 0x7F <= ord(character) < 0xA0 for character in text), (where, text)
        assert not set(text) & set("\u202e\u200d\ufe0f"), (where, text)
        texts.append(text)
    return "\n".join(texts)
