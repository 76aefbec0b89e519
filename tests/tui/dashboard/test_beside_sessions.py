"""Statements and locks beside the sessions of a wide dashboard."""

from __future__ import annotations

import pytest
from rich.cells import cell_len

from pgtop_tune.model.absence import Reason, Unavailable
from pgtop_tune.model.postgres import Activity
from pgtop_tune.runtime.ports import Step
from pgtop_tune.tui.dashboard.beside import TopStatements, beside_sessions
from pgtop_tune.tui.dashboard.screen import DashboardState, dashboard_lines
from pgtop_tune.tui.widgets.lines import ASCII, UNICODE, plain_text
from tests.support.frames import EPOCH_MS, backend, frame
from tests.support.statement_frames import HOSTILE, sample, session_with, statement, texts
from tests.support.wait_frames import queueing_session

WIDE = "\u8868" * 63


def section(second: int) -> dict[str, object]:
    at = second // 2 * 2
    entries = [statement(1, calls=10 * at, exec_us=90_000 * at), statement(2, calls=10 * at, exec_us=9_000 * at),
               statement(3, calls=10 * at, exec_us=900 * at), statement(4, calls=70, exec_us=9)]  # fmt: skip
    seen = backend(7, EPOCH_MS, query="UPDATE only_a_session_knows", query_id=3)
    return {
        "statement_counters": sample(float(at), float(at - 2) if at >= 2 else None, entries),
        "statement_texts": texts(0.0, {1: WIDE, 2: HOSTILE}),
        "activity": Activity(float(second), EPOCH_MS + second * 1000, (seen,)),
    }


@pytest.mark.parametrize("glyphs", [UNICODE, ASCII])
@pytest.mark.parametrize("size", [(70, 4), (72, 11), (90, 30)])
def test_the_most_expensive_statements_stand_above_the_locks(size: tuple[int, int], glyphs: object) -> None:
    session = session_with([section(second) for second in range(9)])
    lines = [plain_text(line) for line in beside_sessions(session, TopStatements(), *size, glyphs)]  # type: ignore[arg-type]
    assert len(lines) == size[1]
    assert {cell_len(line) for line in lines} == {size[0]}
    assert not {"\x1b", "\u202e"} & set("".join(lines))
    assert "no session waits for a lock" in lines[-1]
    if size[1] > 10:
        assert [line.split()[0] for line in lines[2:5]] == ["90.0", "9.00", "0.90"]
        assert "UPDATE only_a_session_knows" in lines[4]
        assert not lines[5].strip(), "one that did nothing is not listed"


def test_without_a_statement_that_ended_the_pane_says_so() -> None:
    """In a jam it was an empty heading."""
    quiet = {"statement_counters": sample(1.0, 0.0, [statement(1, calls=7, exec_us=70)])}
    session = session_with([quiet, quiet])
    text = "\n".join(plain_text(line) for line in beside_sessions(session, TopStatements(), 70, 12, UNICODE))
    assert "no statement ended since the sample before" in text


def test_the_lock_tree_stands_there_while_a_session_waits() -> None:
    text = "\n".join(plain_text(line) for line in beside_sessions(queueing_session(), TopStatements(), 80, 20, UNICODE))
    assert "locks waiting 5" in text
    assert "> 101" in text
    assert "cart row (3,7)" in text


def test_without_statements_the_reason_stands_there_and_below_200_cells_the_sessions_are_alone() -> None:
    why = Unavailable(Reason.NO_EXTENSION, "pg_stat_statements: not loaded (needs shared_preload_libraries)")
    session = session_with([{**section(second), "statement_counters": why} for second in range(3)])
    for width, beside in ((199, False), (200, True)):
        state = DashboardState(statements=TopStatements())
        drawn = dashboard_lines(session, (("sessions", 12),), width, UNICODE, state)["sessions"]
        assert ("needs shared_preload_libraries" in "\n".join(map(plain_text, drawn))) is beside
        assert {cell_len(plain_text(line)) for line in drawn} == {width}


def test_a_silent_server_that_had_only_background_processes_fills_the_pane() -> None:
    alone = Activity(0.0, EPOCH_MS, (backend(9, EPOCH_MS, backend_type="checkpointer", state=None, query=""),))
    session = session_with([{"activity": alone}])
    silent = Unavailable(Reason.NO_ANSWER, "no answer; trying again in 2 s")
    session.apply(Step((frame(1, postgres=silent),)))
    for width in (120, 200):
        state = DashboardState(statements=TopStatements())
        lines = dashboard_lines(session, (("sessions", 12),), width, UNICODE, state)["sessions"]
        assert len(lines) == 12
        assert "1 background process" in plain_text(lines[-1])
