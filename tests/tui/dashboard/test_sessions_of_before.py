"""The list of sessions while the server does not answer: the last one, with its age, and never as one of now."""

from __future__ import annotations

import pytest
from rich.cells import cell_len

from pgtop_tune.metrics.host import PROCESS_CPU
from pgtop_tune.model.absence import Reason, Unavailable
from pgtop_tune.runtime.ports import Step
from pgtop_tune.runtime.session import Session
from pgtop_tune.tui.dashboard.session_rows import session_rows
from pgtop_tune.tui.dashboard.sessions import sessions_lines
from pgtop_tune.tui.pages.sessions import PAGE, TABLE
from pgtop_tune.tui.widgets.lines import UNICODE, plain_text
from tests.support.frames import frame, session_of

GONE = Unavailable(Reason.NO_ANSWER, "connection refused; trying again")


def gone_since(second: int, until: int) -> Session:
    return session_of(until, change=lambda now: {"postgres": GONE} if now >= second else {})


@pytest.mark.parametrize("until", [20, 165])
def test_the_last_list_stands_there_greyed_with_its_age_however_long_the_server_is_away(until: int) -> None:
    session = gone_since(10, until)
    head, _, *rows = sessions_lines(session, 160, 12, UNICODE)
    before = [plain_text(line).split()[0] for line in sessions_lines(gone_since(10, 10), 160, 12, UNICODE)[2:]]
    assert [plain_text(line).split()[0] for line in rows] == before != []
    assert {style for line in rows for text, style in line if text.strip()} <= {"dim"}
    assert [words in plain_text(head) for words in ("sessions of ", " ago", "connection refused")] == [True] * 3
    assert all(row.figure(PROCESS_CPU) is None for row in session_rows(session)), "its processes may be others by now"
    assert TABLE.rows(session)
    assert PAGE.summary_needs(session, 160) == 1
    assert " ago" in plain_text(PAGE.summary(session, 160, 1, UNICODE)[0])


@pytest.mark.parametrize("width", [60, 80, 250])
def test_a_server_that_never_answered_has_reason_and_hint_whole_where_sessions_would_stand(width: int) -> None:
    """At 80 columns the reason was cut, and the hint stood nowhere."""
    parts = ["app@/run/there:5999/app: nothing is listening on this socket", "trying again in 4 s",
             "check that the server runs, or pass another socket directory or host with -h"]  # fmt: skip
    never = Unavailable(Reason.NO_ANSWER, "; ".join(parts))
    session = session_of(10, change=lambda now: {"postgres": never})
    lines = [plain_text(line) for line in sessions_lines(session, width, 9, UNICODE)]
    assert " ".join(" ".join(lines[1:]).split()) == " ".join(parts)
    assert {cell_len(line) for line in lines} == {width}


def test_once_it_answers_the_list_is_of_now() -> None:
    session = gone_since(10, 20)
    session.apply(Step((frame(20),)))
    assert not any(row.stale for row in session_rows(session))
    assert " ago" not in plain_text(sessions_lines(session, 160, 12, UNICODE)[0])
    assert PAGE.summary_needs(session, 160) == 0


def test_in_the_past_there_is_no_list_of_later() -> None:
    session = session_of(30, change=lambda now: {"postgres": GONE} if now < 10 else {})
    session.apply(Step((), back_to_s=5.0))
    assert session_rows(session) == []
