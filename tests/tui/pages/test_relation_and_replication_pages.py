"""Pages 8 and 9, and the tables of connections: pictures, absences said in place, foreign names never obeyed."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from pgtop_tune.model.absence import Reason, Unavailable
from pgtop_tune.model.replication import Receiver
from pgtop_tune.runtime.ports import Step
from pgtop_tune.runtime.session import Session
from pgtop_tune.tui.pages import relations, replication, sessions
from pgtop_tune.tui.pages.listing import first_view, listing_lines, ordered
from pgtop_tune.tui.pages.page import Page, PageTable, row_lines
from pgtop_tune.tui.pages.relations import TEMP_FILES
from pgtop_tune.tui.widgets.lines import UNICODE, plain_text, width
from tests.support.frames import EPOCH_MS, GIB
from tests.support.pictures import assert_picture
from tests.support.relation_frames import moment, watched
from tests.support.relation_frames import replication as replication_of

GOLDENS = Path(__file__).parents[1] / "goldens"
CONNECTIONS = replace(sessions.PAGE, id="connections", tables=sessions.PAGE.tables[1:])
PAGES = (relations.PAGE, replication.PAGE, CONNECTIONS)
TABLES = [(page, table) for page in PAGES for table in page.tables]
SECTIONS = {
    "tables": "relations", "indexes": "relations", "vacuum": "relations", "progress": "progress",
    "wraparound": "database_limits", "temp-files": "temp_files", "senders": "replication", "slots": "slots",
    "horizon": "horizon", "prepared": "horizon", "subscriptions": "subscriptions", "connections": "activity",
    "limits": "activity", "settings": "parameters", "log": "server_log",
}  # fmt: skip


@pytest.fixture
def utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Times of day in pictures do not depend on where they are drawn."""
    with monkeypatch.context() as patch:
        patch.setenv("TZ", "UTC")
        time.tzset()
        yield
    time.tzset()


def picture(session: Session, page: Page, table: PageTable, cells: int, rows: int) -> list[str]:
    summary = page.summary(
        session, cells, min(page.summary_rows(cells, rows), page.summary_needs(session, cells)), UNICODE
    )
    found = table.rows(session)
    view = first_view(table)
    shown = found if isinstance(found, Unavailable) else ordered(table, view, found)
    lines = [*summary, *listing_lines(page.tables, table, view, shown, cells, rows - len(summary), UNICODE)]
    assert all(width(line) <= cells for line in lines)
    return [plain_text(line) for line in lines]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.id)
@pytest.mark.parametrize(("cells", "rows"), [(80, 24), (160, 48)])
def test_every_table_as_a_picture(page: Page, cells: int, rows: int, utc: None) -> None:
    session = watched(46)
    rows_of_all = [line for table in page.tables for line in [*picture(session, page, table, cells, 14), ""]]
    assert_picture(GOLDENS / f"page-{page.id}-{cells}x{rows}.txt", rows_of_all)


@pytest.mark.parametrize(
    ("section", "label"),
    [
        ("progress", "commands in progress"),
        ("relations", "past their dead-row threshold"),
        ("parameters", "past their dead-row threshold"),
    ],
)
def test_a_section_that_is_not_there_counts_as_unknown_and_not_as_nothing(section: str, label: str) -> None:
    session = Session()
    missing = Unavailable(Reason.NOT_SUPPORTED, "column started_by does not exist")
    session.apply(Step((moment(1, **{section: missing}),)))
    summary = picture(session, relations.PAGE, relations.PAGE.tables[0], 160, 20)[0]
    assert f"{label} -" in summary
    session.apply(Step((moment(2),)))
    assert re.search(f"{label} [0-9]", picture(session, relations.PAGE, relations.PAGE.tables[0], 160, 20)[0])


@pytest.mark.parametrize("state", ["paused", "pause requested"])
def test_a_replay_that_somebody_stopped_is_said_on_the_smallest_screen(state: str) -> None:
    receiver = Receiver(
        "streaming", "/var/run/postgresql-primary:5432", "kept", 2_000, 2_000, EPOCH_MS, 1_000, EPOCH_MS, state
    )
    session = Session()
    session.apply(Step((moment(1, replication=replication_of(1, receiver)),)))
    page = replication.PAGE
    line = picture(session, page, page.tables[0], 80, 24)[0]
    assert f"replay {state}" in line
    assert "behind" in line


@pytest.mark.parametrize(("page", "table"), TABLES, ids=lambda each: each.id)
def test_what_is_missing_says_why_in_its_place(page: Page, table: PageTable) -> None:
    session = Session()
    session.apply(Step((moment(1, **{SECTIONS[table.id]: Unavailable(Reason.NO_PERMISSION, "GRANT it TO me")}),)))
    assert "GRANT it TO me" in "\n".join(picture(session, page, table, 80, 20))


@pytest.mark.parametrize(("page", "table"), TABLES, ids=lambda each: each.id)
def test_before_the_first_frame_nothing_breaks(page: Page, table: PageTable) -> None:
    assert picture(Session(), page, table, 80, 20)


@pytest.mark.parametrize(("page", "table"), TABLES, ids=lambda each: each.id)
def test_details_name_every_column_and_hold_no_control_characters(page: Page, table: PageTable) -> None:
    session = watched(31)
    rows = table.rows(session)
    assert not isinstance(rows, Unavailable)
    assert rows
    for row in rows:
        texts = [plain_text(line) for line in row_lines(table, session, row, 100, UNICODE)]
        assert all(column.title in "\n".join(texts) for column in table.columns)
        cells = [column.text(row) for column in table.columns]
        assert not {"\x1b", "\u202e", "\n"} & set("".join(cells))
    keys = [table.key_of(row) for row in rows]
    assert len(set(keys)) == len(keys)


@pytest.mark.parametrize(("page", "table"), TABLES, ids=lambda each: each.id)
def test_every_column_has_an_id_of_its_own_and_says_what_it_is(page: Page, table: PageTable) -> None:
    ids = [column.id for column in table.columns]
    assert len(set(ids)) == len(ids)
    assert all(column.definition.endswith(".") and column.source for column in table.columns)


def test_a_standby_says_how_far_it_is_behind() -> None:
    receiver = Receiver(
        "streaming", "db0:5432", "standby1", 40 * GIB, 40 * GIB + 1024, EPOCH_MS, 40 * GIB - 4096, EPOCH_MS - 7_000,
        "not paused",
    )  # fmt: skip
    session = Session()
    session.apply(Step((moment(1, replication=replication_of(1, receiver)),)))
    words = picture(session, replication.PAGE, replication.SENDERS, 160, 20)[0]
    assert "streaming from db0:5432" in words
    assert "behind 8.0 s" in words
    assert "not replayed 4.00 kB" in words


def test_a_command_is_bound_to_the_session_that_runs_it() -> None:
    session = watched(3)
    rows = relations.PROGRESS.rows(session)
    assert not isinstance(rows, Unavailable)
    assert relations.PROGRESS.backend_of is not None
    found = {row.row.pid: relations.PROGRESS.backend_of(row) for row in rows}
    assert found[2_231] == (2_231, EPOCH_MS - 60_000)
    assert found[4_100] is None


def test_temporary_files_lead_to_the_session_that_makes_them() -> None:
    session = watched(3)
    rows = TEMP_FILES.rows(session)
    assert not isinstance(rows, Unavailable)
    assert TEMP_FILES.backend_of is not None
    assert [TEMP_FILES.backend_of(row) for row in rows] == [(2_231, EPOCH_MS - 60_000)]
    said = picture(session, relations.PAGE, TEMP_FILES, 120, 20)
    assert any("2231" in line and "14.0 MB" in line and "bench" in line and "UPDATE" in line for line in said)


@pytest.mark.parametrize(("name", "said"), [("replication", "senders - "), ("slots", "slots - ")])
def test_what_may_not_be_seen_is_not_counted_as_none(name: str, said: str) -> None:
    session = Session()
    session.apply(Step((moment(1, **{name: Unavailable(Reason.NO_PERMISSION, "GRANT it TO me")}),)))
    assert said in picture(session, replication.PAGE, replication.SENDERS, 80, 20)[0] + " "
