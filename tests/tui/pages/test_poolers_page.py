"""Page 0: pictures, the worst first, a pooler that is away said in place, foreign names never obeyed."""

from __future__ import annotations

from pathlib import Path

import pytest

from pgtop_tune.model.absence import Reason, Unavailable
from pgtop_tune.model.pooler import ConsoleSample
from pgtop_tune.runtime.ports import Step
from pgtop_tune.runtime.session import Session
from pgtop_tune.tui.pages import poolers as page_module
from pgtop_tune.tui.pages.listing import first_view, listing_lines, ordered
from pgtop_tune.tui.pages.page import PageTable, row_lines
from pgtop_tune.tui.widgets.lines import UNICODE, plain_text, width
from tests.support.frames import frame
from tests.support.pictures import assert_picture
from tests.support.pooler_frames import AWAY, bouncer, database, pool, poolers

GOLDENS = Path(__file__).parents[1] / "goldens"
PAGE = page_module.PAGE


def watched(**consoles: ConsoleSample | Unavailable) -> Session:
    session = Session()
    session.apply(Step(tuple(frame(second, pooler=poolers(second, **consoles)) for second in (10, 11))))
    return session


def picture(session: Session, table: PageTable, cells: int, rows: int) -> list[str]:
    summary = PAGE.summary(
        session, cells, min(PAGE.summary_rows(cells, rows), PAGE.summary_needs(session, cells)), UNICODE
    )
    found = table.rows(session)
    view = first_view(table)
    shown = found if isinstance(found, Unavailable) else ordered(table, view, found)
    lines = [*summary, *listing_lines(PAGE.tables, table, view, shown, cells, rows - len(summary), UNICODE)]
    assert all(width(line) <= cells for line in lines)
    return [plain_text(line) for line in lines]


@pytest.mark.parametrize(("cells", "rows"), [(80, 24), (160, 48)])
def test_every_table_as_a_picture(cells: int, rows: int) -> None:
    session = watched()
    lines = [line for table in PAGE.tables for line in [*picture(session, table, cells, 22), ""]]
    assert_picture(GOLDENS / f"page-poolers-{cells}x{rows}.txt", lines)


@pytest.mark.parametrize("table", PAGE.tables, ids=lambda table: table.id)
def test_without_a_pooler_the_page_says_how_to_name_one(table: PageTable) -> None:
    session = Session()
    missing = Unavailable(Reason.NO_POOLER, "no pooler was named: --pooler NAME=URI")
    session.apply(Step((frame(1, pooler=missing),)))
    assert "--pooler NAME=URI" in "\n".join(picture(session, table, 80, 20))


@pytest.mark.parametrize("table", PAGE.tables, ids=lambda table: table.id)
def test_before_the_first_frame_nothing_breaks(table: PageTable) -> None:
    assert picture(Session(), table, 80, 20)


def test_a_pooler_that_is_away_is_named_with_its_reason_beside_those_that_answer() -> None:
    lines = picture(watched(bouncer=bouncer(11), away=AWAY), page_module.POOLS, 120, 24)
    assert "PgBouncer 1.25.0" in lines[0]
    assert "away" in lines[1]
    assert "Connection refused" in lines[1]


def test_more_than_the_server_has_is_drawn_as_a_warning() -> None:
    wide = bouncer(11, databases=(database("app", pool_size=200), database("bench")))
    session = watched(b=wide)
    (line, *_) = PAGE.summary(session, 160, 4, UNICODE)
    assert ("warning") in [style for text, style in line if "at most" in text]
    (calm, *_) = PAGE.summary(watched(b=bouncer(11, pools=())), 160, 4, UNICODE)
    assert "warning" not in [style for text, style in calm if "at most" in text]


def test_names_of_strangers_reach_no_terminal_as_they_are() -> None:
    evil = "x\x1b[31m[bold]"
    found = bouncer(11, kind=evil, pools=(pool(evil, evil),), databases=(database(evil, host=evil),))
    session = watched(b=found, gone=Unavailable(Reason.NO_ANSWER, evil))
    for table in PAGE.tables:
        rows = table.rows(session)
        assert not isinstance(rows, Unavailable)
        lines = picture(session, table, 160, 24)
        details = [plain_text(line) for row in rows for line in row_lines(table, session, row, 60, UNICODE)]
        assert "\x1b" not in "".join([*lines, *details])
