"""Pages 3 and 4 as they look: heat map, drill-down, lock tree, and reasons in the place of tables."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from pgtop_tune.model.absence import Reason, Unavailable
from pgtop_tune.model.postgres import Activity, ServerFacts
from pgtop_tune.model.waits import WaitCount, WaitSample
from pgtop_tune.runtime.session import Session
from pgtop_tune.tui.dashboard.waits import stacked_waits, waits_needs
from pgtop_tune.tui.pages import locks, waits
from pgtop_tune.tui.pages.listing import first_view, listing_lines, ordered
from pgtop_tune.tui.pages.page import Page, PageTable, row_lines, row_text
from pgtop_tune.tui.widgets.lines import ASCII, ON, UNICODE, Glyphs, Line, plain_text, width
from pgtop_tune.tui.widgets.phrase import wait_style
from pgtop_tune.tui.widgets.time_axis import CHARTED
from tests.support.frames import CORES, EPOCH_MS, postgres_sample, session_of
from tests.support.pictures import assert_picture
from tests.support.wait_frames import HOSTILE, UPDATE, queueing_session, waiting_session

GOLDENS = Path(__file__).parents[1] / "goldens"
TABLES = {table.id: table for page in (waits.PAGE, locks.PAGE) for table in page.tables}
MADE: dict[str, Callable[[], Session]] = {"waits": waiting_session, "locks": queueing_session}


def shown(
    page: Page, table: PageTable, session: Session, cells: int, height: int, glyphs: Glyphs = UNICODE
) -> list[str]:
    """Summary and table as on the screen."""
    rows = table.rows(session)
    view = first_view(table)
    found = rows if isinstance(rows, Unavailable) else ordered(table, view, rows)
    room = min(page.summary_rows(cells, height), page.summary_needs(session, cells))
    lines = page.summary(session, cells, room, glyphs)
    assert len(lines) <= room
    return [
        plain_text(line)
        for line in (*lines, *listing_lines(page.tables, table, view, found, cells, height - room - 4, glyphs))
    ]


@pytest.mark.parametrize(("cells", "height"), [(80, 24), (160, 48)])
@pytest.mark.parametrize(
    "name",
    [
        "waits-events",
        "waits-queries",
        "waits-databases",
        "waits-users",
        "waits-types",
        "waits-tail",
        "locks",
        "lock-types",
    ],
)
def test_pictures(name: str, cells: int, height: int) -> None:
    page = locks.PAGE if name.startswith("lock") else waits.PAGE
    rows = shown(page, TABLES[name], MADE[page.id](), cells, height)
    assert_picture(GOLDENS / f"page-{name}-{cells}x{height}.txt", rows)


def test_ascii_picture() -> None:
    rows = shown(waits.PAGE, TABLES["waits-events"], waiting_session(), 80, 24, ASCII)
    assert all(row.isascii() for row in rows)
    assert_picture(GOLDENS / "page-waits-ascii-80x24.txt", rows)


def rows_of(table: str, session: Session) -> dict[str, waits.WaitGroup]:
    rows = TABLES[table].rows(session)
    assert not isinstance(rows, Unavailable)
    return {row.name: row for row in rows}


def test_sessions_shares_and_milliseconds_are_what_was_seen() -> None:
    session = waiting_session(90)
    rows = rows_of("waits-events", session)
    sync, turn = rows["IO:WalSync"], rows["Client:think"]
    assert sync.group.sessions == pytest.approx(3.0)
    assert sync.share == pytest.approx(100 * 3.0 / 7.0)
    assert turn.group.sessions == pytest.approx(5.0), "between two transactions as well: one part of the budget"
    assert (turn.share, turn.share_long) == (None, None)
    tps = 1000.0 * sync.group.sessions / (sync.ms_per_transaction or 0.0)
    assert 1000 < tps < 1400
    assert sum(row.share or 0.0 for row in rows.values()) == pytest.approx(100.0)


def test_the_peak_of_a_herd_stands_beside_the_mean() -> None:
    rows = rows_of("waits-events", waiting_session(90))
    sync, locked, turn = (rows[name].group for name in ("IO:WalSync", "Lock:transactionid", "Client:think"))
    assert (sync.peak, locked.peak, turn.peak) == (20, 2, 4)
    assert sync.burst == pytest.approx(20 / 3.0)


def test_the_long_window_remembers_what_the_short_one_has_forgotten() -> None:
    session = waiting_session(50)
    sync = rows_of("waits-events", session)["IO:WalSync"]
    assert sync.group.sessions == pytest.approx(3.0)
    assert sync.group.sessions_long == pytest.approx(3.0 * 20 / 50)


@pytest.mark.parametrize(
    ("table", "expected"),
    [
        ("waits-queries", {"11": 3.0, "12": 3.0, "13": 1.0}),
        ("waits-databases", {"bench": 6.0, "shop": 1.0}),
        ("waits-users", {"bench": 6.0, 'odd "name"': 1.0}),
        ("waits-types", {"client backend": 7.0, "checkpointer": 0.5}),
    ],
)
def test_every_dimension_adds_up_to_the_sessions_at_work(table: str, expected: dict[str, float]) -> None:
    found = {name: row.group.sessions for name, row in rows_of(table, waiting_session()).items()}
    assert found == pytest.approx(expected)
    assert sum(found.values()) == pytest.approx(7.5 if table == "waits-types" else 7.0)


def test_texts_come_from_the_statistics_else_from_a_session_that_ran_it() -> None:
    rows = rows_of("waits-queries", waiting_session())
    assert {name: row.query for name, row in rows.items()} == {"11": "END", "12": UPDATE, "13": HOSTILE}
    assert row_text(TABLES["waits-queries"], rows["12"]) == UPDATE


def test_enter_drills_down_by_everything_else() -> None:
    session = waiting_session()
    row = rows_of("waits-queries", session)["12"]
    lines = [plain_text(line).split() for line in row_lines(TABLES["waits-queries"], session, row, 90, UNICODE)]
    assert ["2.00", "Lock:transactionid"] in lines
    assert ["1.00", "CPU"] in lines
    assert ["3.00", "bench"] in lines
    assert not any("IO:WalSync" in words for words in lines)


def test_classes_stand_on_each_other_with_a_line_at_the_number_of_cpus() -> None:
    title, *chart = stacked_waits(waiting_session(), 120, 14, UNICODE)
    assert "active sessions mean of 10 s" in plain_text(title)
    assert f"CPUs {CORES}" in plain_text(title)
    newest = 6 + plain_text(chart[-2]).rindex("█") - 6
    column = [next(style for at, style in cells(line) if at == newest) for line in chart[:-1]]
    drawn = [style.split(ON)[0] for style in column if style not in ("dim", "strong", "")]
    assert list(dict.fromkeys(reversed(drawn)))[:2] == ["cpu", "wait-io"], "CPU is at the bottom"
    (limit,) = (row for row, line in enumerate(chart) if "strong" in {style for _, style in line})
    top = float(plain_text(chart[0])[:5])
    assert limit == pytest.approx((1 - CORES / top) * 12, abs=1.0)


@pytest.mark.parametrize(("watched", "short", "long"), [(90, 10, 60), (30, 10, 30), (9, 9, 9), (1, 1, 1)])
def test_means_are_said_to_be_of_the_time_that_was_watched(watched: int, short: int, long: int) -> None:
    title = plain_text(stacked_waits(waiting_session(watched), 120, 14, UNICODE)[0])
    assert f"active sessions mean of {short} s ─" in title
    assert f" · {long} s " in title


def cells(line: Line) -> list[tuple[int, str]]:
    return [(at, style) for at, style in enumerate(style for text, style in line for _ in text)]


@pytest.mark.parametrize("major", [18, 19])
def test_waits_for_pages_have_a_row_of_their_own_from_19_on(major: int) -> None:
    ours = "client backend"
    seen = {
        18: (WaitCount("BufferPin", "BufferPin", ours, 10), WaitCount("LWLock", "BufferContent", ours, 20)),
        19: (WaitCount("Buffer", "BufferCleanup", ours, 10), WaitCount("Buffer", "BufferShared", ours, 20)),
    }[major]

    def change(second: int) -> dict[str, object]:
        base = postgres_sample(second, waits=WaitSample(float(second), 10, seen))
        assert isinstance(base.server, ServerFacts)
        return {"postgres": replace(base, server=replace(base.server, version_num=major * 10_000))}

    session = session_of(12, charted=CHARTED, change=change)
    lines = [plain_text(line) for line in stacked_waits(session, 160, waits_needs(session, 160), UNICODE)]
    figures = {line[-19:-8].strip(): line.split()[-1] for line in lines[1:] if line[-19:].strip()}
    expected = {18: {"LWLock": "2.00", "other": "1.00"}, 19: {"Buffer": "3.00"}}[major]
    assert {name: figure for name, figure in figures.items() if figure != "0"} == expected
    assert ("Buffer" in figures) is (major == 19)
    assert "think" in figures
    # The events below and the bars of the dashboard have the colour of that row.
    assert wait_style("Buffer") == wait_style("BufferPin") != wait_style("Extension")


def test_little_room_keeps_a_name_for_every_colour_of_the_chart() -> None:
    names = [plain_text(line)[-19:-8].strip() for line in stacked_waits(waiting_session(), 80, 5, UNICODE)[1:]]
    assert names == ["Lock", "IO", "CPU", "think"]


def test_a_background_writer_is_not_called_background_twice() -> None:
    names = [
        waits._event_name(("background", event)) for event in ("background writer IO:DataFileWrite", "walwriter CPU")
    ]
    assert names == ["background writer IO:DataFileWrite", "background walwriter CPU"]


def test_lock_rows_know_whom_to_cancel() -> None:
    rows = locks.TABLE.rows(queueing_session())
    assert not isinstance(rows, Unavailable)
    backend_of = locks.TABLE.backend_of
    assert backend_of is not None
    found = {row.node.pid: backend_of(row) for row in rows}
    assert found[0] is None
    assert found[101] == (101, EPOCH_MS - 60_000)
    assert len({row.key for row in rows}) == len(rows)


def test_idle_root_stands_out_and_its_story_is_told() -> None:
    session = queueing_session()
    summary = [plain_text(line) for line in locks.PAGE.summary(session, 160, 3, UNICODE)]
    assert "waiting 5" in summary[0]
    assert "longest wait 1m00s" in summary[0]
    assert "deadlock in the making: 104 105" in summary[0]
    assert "3 more wait" in summary[0]
    assert summary[1].startswith(" 100 app idle in transaction for 3m12s blocks 2: SELECT")
    assert "'pay ''now'''" in summary[2]
    rows = locks.TABLE.rows(session)
    assert not isinstance(rows, Unavailable)
    state = next(column for column in locks.TABLE.columns if column.id == "state")
    styles = {row.node.pid: state.style(row) for row in rows}
    assert (styles[100], styles[0], styles[101]) == ("critical", "critical", "")


def test_a_query_of_a_root_that_is_cut_says_so() -> None:
    told = plain_text(locks.PAGE.summary(queueing_session(), 66, 3, UNICODE)[1])
    assert len(told) == 66
    assert told.endswith("…")


def test_details_of_a_wait_say_what_has_no_id_and_mark_what_is_cut() -> None:
    session = waiting_session()
    table = TABLES["waits-events"]
    rows = table.rows(session)
    assert not isinstance(rows, Unavailable)
    lines = [plain_text(line) for row in rows for line in row_lines(table, session, row, 40, UNICODE)]
    assert any("(without an id: commits and o…" in line for line in lines)
    assert any(line.endswith("UPDATE pgbench_branches SET b…") for line in lines)
    assert all(len(line) <= 40 for line in lines)


def test_details_of_a_prepared_transaction_say_how_to_end_it() -> None:
    session = queueing_session()
    rows = locks.TABLE.rows(session)
    assert not isinstance(rows, Unavailable)
    prepared = next(row for row in rows if row.node.pid == 0)
    text = " ".join(plain_text(line) for line in row_lines(locks.TABLE, session, prepared, 120, UNICODE))
    assert "ROLLBACK PREPARED 'pay ''now'''" in text
    waiter = next(row for row in rows if row.node.pid == 101)
    text = " ".join(plain_text(line) for line in row_lines(locks.TABLE, session, waiter, 120, UNICODE))
    assert "ShareLock on cart row (3,7), xid 812 (transactionid)" in text
    assert "100 ExclusiveLock" in text


@pytest.mark.parametrize("glyphs", [UNICODE, ASCII])
@pytest.mark.parametrize("size", [(40, 10), (80, 24), (131, 33), (250, 60)])
def test_every_line_fits_and_no_foreign_text_is_obeyed(size: tuple[int, int], glyphs: Glyphs) -> None:
    for page in (waits.PAGE, locks.PAGE):
        session = MADE[page.id]()
        for table in page.tables:
            rows = table.rows(session)
            assert not isinstance(rows, Unavailable)
            for column in table.columns:
                for row in rows:
                    assert not {"\x1b", "\u202e", "\n"} & set(column.text(row)), (table.id, column.id)
            lines = page.summary(session, size[0], page.summary_rows(*size), glyphs)
            assert all(width(line) <= size[0] for line in lines)
            shown(page, table, session, *size, glyphs)


def test_missing_sections_say_why_in_the_place_of_their_tables() -> None:
    why = Unavailable(Reason.SWITCHED_OFF, "track_activities is off: the server keeps no session states")
    session = session_of(
        3,
        charted=CHARTED,
        change=lambda second: {"postgres": postgres_sample(second, waits=why, activity=why, lock_counters=why)},
    )
    for page in (waits.PAGE, locks.PAGE):
        for table in page.tables:
            assert "track_activities is off" in "\n".join(shown(page, table, session, 120, 40))


def test_a_refused_pg_locks_leaves_the_tree() -> None:
    refused = Unavailable(Reason.TOO_SLOW, "canceling statement due to statement timeout")
    queue = queueing_session()
    assert queue.now is not None
    session = session_of(
        2, change=lambda second: {
            "postgres": postgres_sample(second, activity=queue.now.postgres.activity, locks=refused)  # type: ignore[union-attr]
        }
    )  # fmt: skip
    text = "\n".join(shown(locks.PAGE, locks.TABLE, session, 120, 40))
    assert "statement timeout" in text
    assert "> 101" in text


def test_nobody_waits() -> None:
    session = session_of(2, change=lambda second: {"postgres": postgres_sample(second, clients=1)})
    assert "no session waits for a lock" in "\n".join(shown(locks.PAGE, locks.TABLE, session, 120, 40))


@pytest.mark.parametrize(("cells", "height"), [(60, 15), (80, 24), (200, 50)])
def test_an_empty_table_says_why_and_what_would_stand_there(cells: int, height: int) -> None:
    calm = Activity(0.0, EPOCH_MS, ())
    session = session_of(1, change=lambda second: {"postgres": postgres_sample(second, activity=calm)})
    lines = shown(locks.PAGE, TABLES["locks"], session, cells, height)
    text = " ".join(" ".join(lines).split())
    assert "no session waits for a lock" in text
    assert "each waiter below its blocker" in text
    assert all(width(((line, ""),)) == cells for line in lines[1:])
    if height >= 24:
        assert "waits Time that it has waited for this lock" in text
