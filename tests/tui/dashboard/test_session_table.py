"""Which sessions are shown, in which order, and whom the cursor means."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from pgtop_tune.model.absence import Reason, Unavailable
from pgtop_tune.model.host import ProcessCounters, ProcessSample
from pgtop_tune.model.postgres import HIDDEN_QUERY, Activity, Backend
from pgtop_tune.runtime.session import Session
from pgtop_tune.tui.dashboard.screen import dashboard_lines
from pgtop_tune.tui.dashboard.session_rows import (
    SORTS,
    SessionsView,
    cursor_of,
    next_sort,
    scrolled,
    selection_moved,
    session_rows,
)
from pgtop_tune.tui.dashboard.sessions import ON_DASHBOARD, columns_for, sessions_lines
from pgtop_tune.tui.pages.listing import first_view, ordered
from pgtop_tune.tui.pages.page import row_lines
from pgtop_tune.tui.pages.sessions import TABLE
from pgtop_tune.tui.widgets.lines import UNICODE, plain_text
from tests.support.frames import EPOCH_MS, backend, host_sample, postgres_sample, session_of
from tests.support.wait_frames import queueing_session

NOW_MS = EPOCH_MS + 1000


def session_with(*rows: Backend, processes: dict[int, tuple[int, int]] | None = None) -> Session:
    """Two frames of these sessions; `processes`: pid → (CPU ticks, bytes written) in the second between."""

    def change(second: int) -> dict[str, object]:
        counted = tuple(
            ProcessCounters(pid, 1, "S", ticks * second, 0, 0, 0, 0, written * second)
            for pid, (ticks, written) in (processes or {}).items()
        )
        return {
            "postgres": postgres_sample(second, activity=Activity(float(second), NOW_MS, rows)),
            "host": host_sample(second, processes=ProcessSample(float(second), counted)),
        }

    return session_of(2, change=change)


def pids(session: Session, view: SessionsView | None = None) -> list[int]:
    return [row.backend.pid for row in session_rows(session, view or SessionsView())]


def row_of(session: Session, pid: int, width: int = 120) -> str:
    lines = [plain_text(line) for line in sessions_lines(session, width, 40, UNICODE)]
    return next(line for line in lines if line.split()[:1] == [str(pid)])


CROWD = (
    backend(9, NOW_MS, state="idle", xact_start_ms=None, state_change_ms=NOW_MS - 1_000),
    backend(8, NOW_MS, xact_start_ms=NOW_MS - 3),
    backend(7, NOW_MS, xact_start_ms=NOW_MS - 900),
    backend(6, NOW_MS, xact_start_ms=NOW_MS - 90_000),
    backend(5, NOW_MS, state="idle in transaction", xact_start_ms=NOW_MS - 500_000, state_change_ms=NOW_MS - 9_000),
    backend(4, NOW_MS, state=None, backend_type="checkpointer", usename=None, query=None, xact_start_ms=None),
)


def test_busy_sessions_first_the_longest_transaction_above_them_idle_ones_last() -> None:
    assert pids(session_with(*CROWD)) == [6, 7, 8, 5, 4, 9]


def test_short_transactions_stand_in_the_order_of_pids_so_that_rows_stay_where_they_are() -> None:
    ages_ms = ((1, 900), (2, 3), (3, 400))
    before = session_with(*(backend(pid, NOW_MS, xact_start_ms=NOW_MS - age_ms) for pid, age_ms in ages_ms))
    after = session_with(*(backend(pid, NOW_MS, xact_start_ms=NOW_MS - 999 + age_ms) for pid, age_ms in ages_ms))
    assert pids(before) == pids(after) == [1, 2, 3]


@pytest.mark.parametrize("state", ["active", "idle in transaction", "idle"])
def test_session_between_two_statements_keeps_its_row_and_its_brightness(state: str) -> None:
    session = session_with(backend(1, NOW_MS), backend(2, NOW_MS, state=state), backend(3, NOW_MS))
    assert pids(session, SessionsView(hide_idle=True)) == [1, 2, 3]
    assert {style for line in sessions_lines(session, 80, 5, UNICODE)[2:] for _, style in line} <= {
        "",
        "cpu",
        "wait-other",
    }
    assert ("idle in tx 1" in plain_text(sessions_lines(session, 120, 5, UNICODE)[0])) == (
        state == "idle in transaction"
    )
    assert "warning" not in {style for _, style in sessions_lines(session, 120, 5, UNICODE)[0]}


def test_processes_are_joined_by_pid_and_auxiliary_ones_have_rows() -> None:
    session = session_with(*CROWD, processes={8: (40, 2_097_152), 4: (3, 0)})
    assert row_of(session, 8).split()[:4] == ["8", "40", "0", "2048"]
    assert row_of(session, 7).split()[:4] == ["7", "-", "-", "-"], "unknown is not 0"
    assert "checkpointer" in row_of(session, 4)


def test_sort_by_what_processes_do_puts_unknown_and_idle_ones_last() -> None:
    session = session_with(*CROWD, processes={9: (99, 0), 8: (40, 5), 7: (2, 7), 5: (50, 6)})
    assert pids(session, SessionsView(sort="cpu")) == [5, 8, 7, 4, 6, 9]
    assert pids(session, SessionsView(sort="write")) == [7, 5, 8, 4, 6, 9]
    assert pids(session, SessionsView(sort="write", reverse=True)) == [8, 5, 7, 4, 6, 9]
    assert pids(session, SessionsView(sort="pid")) == [4, 5, 6, 7, 8, 9]


@pytest.mark.parametrize(
    ("text", "found"),
    [("SHOP", {2}), ("clerk", {2}),
     ("orders", {3}), ("FileRead", {3}), ("io:data", {3}), ("Insert", {1}), ("walw", {4})],
)  # fmt: skip
def test_filter_looks_at_user_database_application_state_wait_and_query(text: str, found: set[int]) -> None:
    session = session_with(
        backend(1, NOW_MS, query="INSERT INTO t VALUES (1)"),
        backend(2, NOW_MS, usename="clerk", application_name="Shop"),
        backend(3, NOW_MS, datname="orders", wait_event_type="IO", wait_event="DataFileRead"),
        backend(4, NOW_MS, backend_type="walwriter", query=None),
    )
    assert set(pids(session, SessionsView(filter=text))) == found


def test_idle_sessions_can_be_hidden() -> None:
    assert 9 not in pids(session_with(*CROWD), SessionsView(hide_idle=True))


def test_idle_sessions_that_are_alike_are_one_row_of_their_page_until_they_are_listed_or_filtered() -> None:
    """Forty sleeping sessions of a pool filled the page; an act on their row is no act on one of them."""
    rest = {"state": "idle", "xact_start_ms": None, "application_name": "shop"}
    pool = [backend(pid, NOW_MS, **rest, state_change_ms=NOW_MS - 2_000) for pid in range(20, 27)]
    few = [backend(pid, NOW_MS, **rest | {"application_name": "x"}, state_change_ms=NOW_MS - 2_000) for pid in (30, 31)]
    session = session_with(*CROWD, *pool, *few, processes=dict.fromkeys(range(20, 27), (3, 1024)))
    rows, view = session_rows(session), first_view(TABLE)
    folded = ordered(TABLE, view, rows)
    assert [len(row.alike) for row in folded if row.alike] == [7]
    assert len(folded) == len(rows) - 6
    assert len(ordered(TABLE, replace(view, hide_quiet=False), rows)) == len(rows)
    assert len(ordered(TABLE, replace(view, filter="shop"), rows)) == 7
    one = next(row for row in folded if row.alike)
    drawn = [column.text(one) for column in TABLE.columns if column.id in ("pid", "cpu", "write", "query")]
    assert drawn == ["7x", "21", "7", "shop: " + (pool[0].query or "")]
    assert TABLE.backend_of is not None
    assert TABLE.backend_of(one) is None
    assert one.key not in {row.key for row in rows}
    assert "7 idle sessions" in "".join(map(plain_text, row_lines(TABLE, session, one, 80, UNICODE)))


def test_an_idle_session_that_holds_others_up_is_not_at_rest() -> None:
    root = backend(3, NOW_MS, state="idle", xact_start_ms=None, state_change_ms=NOW_MS - 60_000)
    session = session_with(root, backend(4, NOW_MS, blocked_by=(3,)))
    assert 3 in pids(session, SessionsView(hide_idle=True))


def test_the_head_says_that_there_are_more_roots_than_the_one_it_names() -> None:
    waiters = [backend(pid, NOW_MS, blocked_by=(root,)) for pid, root in ((4, 1), (5, 1), (6, 2))]
    assert "blocked 3 (root 1, 1 more)" in plain_text(sessions_lines(session_with(*waiters), 160, 9, UNICODE)[0])
    assert "blocked 2 (root 1)" in plain_text(sessions_lines(session_with(*waiters[:2]), 160, 9, UNICODE)[0])


@pytest.mark.parametrize(("cells", "said"), [
    (80, "others are hidden: GRANT pg_monitor"), (160, "other users' sessions are hidden: GRANT pg_monitor TO "
        "bench"),
])  # fmt: skip
def test_what_a_role_may_not_see_is_not_counted_as_none(cells: int, said: str) -> None:
    others = backend(3, NOW_MS, state=None, query=HIDDEN_QUERY)
    head = plain_text(sessions_lines(session_with(others), cells, 9, UNICODE)[0])
    assert said in head
    assert "active" not in head


def test_selection_follows_the_session_to_another_row() -> None:
    session = session_with(*CROWD)
    view = selection_moved(SessionsView(), session_rows(session), 1, 10)
    assert view.selected == (6, EPOCH_MS - 60_000)
    by_pid = replace(view, sort="pid")
    assert cursor_of(session_rows(session, by_pid), by_pid) == 2


def test_selection_never_passes_to_a_later_session_with_the_same_pid() -> None:
    view = selection_moved(SessionsView(), session_rows(session_with(backend(6, NOW_MS))), 1, 10)
    later = session_rows(session_with(backend(6, NOW_MS, backend_start_ms=NOW_MS)))
    assert cursor_of(later, view) is None
    assert not [
        line for line in sessions_lines(session_with(*CROWD[:2]), 80, 9, UNICODE, view=view) if line[0][1] == "cursor"
    ]


def test_cursor_row_is_drawn_and_stays_on_the_screen() -> None:
    session = session_of(2, backends=40)
    rows = session_rows(session)
    view = SessionsView()
    for _ in range(30):
        view = selection_moved(view, rows, 1, 5)
    lines = sessions_lines(session, 100, 7, UNICODE, view=view)
    assert [plain_text(line).split()[0] for line in lines if line[0][1] == "cursor"] == [str(rows[29].backend.pid)]
    assert f"{view.top + 1}-{view.top + 5} of {len(rows)}" in plain_text(lines[0])


@given(st.lists(st.integers(-90, 90), max_size=8), st.integers(0, 30), st.integers(0, 60))
def test_moving_never_leaves_the_rows(steps: list[int], visible: int, top: int) -> None:
    rows = session_rows(SESSION)
    view = scrolled(SessionsView(top=top), rows, visible)
    for step in steps:
        view = selection_moved(view, rows, step, visible)
        cursor = cursor_of(rows, view)
        assert cursor is not None
        assert visible == 0 or view.top <= cursor < view.top + visible
        assert 0 <= view.top <= max(len(rows) - visible, 0) or visible == 0


SESSION = session_of(2, backends=10)


def test_sort_keys_go_round() -> None:
    view = SessionsView()
    for _ in SORTS:
        view = next_sort(view, 1)
    assert view.sort == next_sort(next_sort(view, 1), -1).sort == SessionsView().sort


@given(st.integers(80, 320))
def test_query_keeps_its_cells_and_columns_go_in_the_declared_order(width: int) -> None:
    columns = columns_for(width)
    header = plain_text(sessions_lines(SESSION, width, 4, UNICODE)[1])
    assert width - header.index(" query ") - 1 >= 20
    dropped = [column.rank for column in ON_DASHBOARD if column not in columns]
    assert min(dropped, default=99) >= max(column.rank for column in columns)


def test_wide_screen_shows_every_column() -> None:
    assert columns_for(250) == ON_DASHBOARD


def test_idle_rows_are_dim_and_waits_have_the_colour_of_their_class() -> None:
    waiting = backend(3, NOW_MS, wait_event_type="Lock", wait_event="tuple", blocked_by=(1,))
    lines = sessions_lines(session_with(waiting, CROWD[0]), 100, 6, UNICODE)
    assert ("wait-lock", True) in {(style, "Lock:tuple" in text) for text, style in lines[2]}
    assert {style for text, style in lines[3] if text.strip()} == {"dim"}


def test_query_of_several_lines_reads_as_one() -> None:
    session = session_with(backend(3, NOW_MS, query="SELECT 1\n\t  FROM t"), backend(4, NOW_MS, usename="two\n lines"))
    assert row_of(session, 3).rstrip().endswith("SELECT 1 FROM t")
    assert " two lines " in row_of(session, 4)


def test_the_root_of_a_queue_is_red_once_somebody_waits_for_a_second() -> None:
    """Rows that every transaction of a load updates are waited for all the time, for milliseconds."""
    for waited_ms, style in ((20, "label"), (1_000, "critical")):
        waiting = backend(4, NOW_MS, blocked_by=(3,), query_start_ms=NOW_MS - waited_ms)
        head = sessions_lines(session_with(backend(3, NOW_MS), waiting), 120, 9, UNICODE)[0]
        assert [name for text, name in head if "root 3" in text] == [style]


def test_the_session_that_holds_up_others_stands_first_and_is_red() -> None:
    """It stood below all that waited for it: of a queue longer than the screen nobody saw it."""
    idle_ms = {"state_change_ms": NOW_MS - 40_000, "xact_start_ms": NOW_MS - 40_000}
    root = backend(90, NOW_MS, state="idle in transaction", **idle_ms)
    for waited_ms, order in ((40_000, [90, 4, 5, 6]), (20, [4, 5, 6, 90])):
        waiting = [backend(pid, NOW_MS, blocked_by=(90,), query_start_ms=NOW_MS - waited_ms) for pid in (4, 5, 6)]
        session = session_with(root, *waiting)
        assert pids(session) == order
        red = {text.strip() for text, style in sessions_lines(session, 120, 9, UNICODE)[2] if style == "critical"}
        assert red == ({"90", "idle tx"} if order[0] == 90 else set())
    assert pids(session_with(root, *waiting), SessionsView(sort="pid")) == [4, 5, 6, 90]


def test_the_client_takes_what_its_addresses_need_and_the_query_the_rest() -> None:
    local = sessions_lines(session_with(backend(3, NOW_MS, client="local")), 120, 9, UNICODE)
    remote = sessions_lines(session_with(backend(3, NOW_MS, client="192.168.100.200")), 120, 9, UNICODE)
    at = [plain_text(lines[1]).index("query") for lines in (local, remote)]
    assert at[1] - at[0] == len("192.168.100.200") - len("[local]")
    assert "192.168.100.200 " in plain_text(remote[2])


def test_title_counts_states_and_names_the_root_of_the_queue() -> None:
    title = plain_text(sessions_lines(session_of(2), 120, 5, UNICODE)[0])
    assert "sessions 33/100 · active 16 · idle in tx 1 · blocked 8 (root 2231)" in title


def test_process_numbers_that_cannot_be_had_say_why() -> None:
    reason = Unavailable(Reason.NOT_LOCAL, "server on another machine")
    session = session_of(2, change=lambda second: {"host": host_sample(second, processes=reason)})
    assert "CPU, R/s, W/s: server on another machine" in plain_text(sessions_lines(session, 160, 5, UNICODE)[0])


def test_those_that_wait_for_a_root_stand_below_it_as_in_the_tree() -> None:
    """A prepared transaction has no row to stand below, nor has a deadlock a root."""
    lines = [plain_text(line).split()[0] for line in sessions_lines(queueing_session(), 100, 8, UNICODE)[2:]]
    assert lines == ["100", ">101", ">102", "103", "104", "105"]
    by_pid = SessionsView(sort="pid")
    drawn = sessions_lines(queueing_session(), 100, 8, UNICODE, view=by_pid)
    lines = [plain_text(line).split()[0] for line in drawn[2:]]
    assert lines == ["100", "101", "102", "103", "104", "105"]


def test_sessions_out_of_view_are_counted_and_alike_ones_named_together() -> None:
    waiting = {"state": "active", "wait_event_type": "LWLock", "wait_event": "WALWrite", "query": "END;"}
    many = [backend(pid, NOW_MS, application_name="pgbench", **waiting) for pid in range(100, 160)]
    few = [backend(pid, NOW_MS, state="active", query=f"SELECT {pid}") for pid in range(160, 164)]
    vacuums = backend(9, NOW_MS, backend_type="checkpointer", state=None, query="")
    session = session_with(*many, *few, vacuums)
    for rows, line in (
        (12, "55 more · 51 on LWLock:WALWrite (pgbench): END; · 1 background process"),
        (64, "3 more · 1 background process"),
        (80, "1 background process"),
    ):
        last = dashboard_lines(session, (("sessions", rows),), 120, UNICODE)["sessions"][-1]
        assert plain_text(last).strip() == line
    hidden = session_with(*(backend(pid, NOW_MS, state=None, query=HIDDEN_QUERY) for pid in range(100, 160)), vacuums)
    assert "51 more · 51 hidden" in plain_text(
        dashboard_lines(hidden, (("sessions", 12),), 80, UNICODE)["sessions"][-1]
    )
