"""Everything known of one session, in particular: how much of its query."""

from __future__ import annotations

import re

from msgspec.structs import replace

from pgtop_tune.model.absence import Unavailable
from pgtop_tune.model.statements import StatementText, StatementTexts
from pgtop_tune.runtime.session import Session
from pgtop_tune.tui.dashboard.session_details import session_lines
from pgtop_tune.tui.widgets.lines import plain_text
from tests.support.frames import postgres_sample, session_of

PID_AT = 0
QUERY_ID = 77


def details(query: str, texts: StatementTexts | None = None) -> str:
    seen = postgres_sample(3).activity
    assert not isinstance(seen, Unavailable)
    backend = replace(seen.backends[PID_AT], query=query, query_id=QUERY_ID)
    other: dict[str, object] = {"activity": replace(seen, backends=(backend, *seen.backends[1:]))}
    if texts is not None:
        other["statement_texts"] = texts
    session = session_of(4, change=lambda second: {"postgres": postgres_sample(second, **other)})
    return shown(session, (backend.pid, backend.backend_start_ms))


def shown(session: Session, key: tuple[int, int | None]) -> str:
    return "\n".join(plain_text(line) for line in session_lines(session, key, 76))


def test_a_query_that_is_known_whole_is_not_called_cut() -> None:
    text = details("SELECT 1")
    assert text.endswith("query  as in pg_stat_activity\nSELECT 1")
    assert "statement" not in text


def test_a_query_that_was_cut_says_so_and_the_statement_stands_below_it() -> None:
    whole = "SELECT " + ", ".join(f"column_{number}" for number in range(100)) + " FROM wide WHERE id = $1"
    text = details(whole.replace("$1", "12")[:500], StatementTexts(1.0, (StatementText(QUERY_ID, whole, len(whole)),)))
    assert "query  cut: the first 500 characters, as in pg_stat_activity" in text
    assert f"statement  all {len(whole)} characters, as in pg_stat_statements: constants replaced" in text
    assert "".join(text.split()).endswith("column_99FROMwideWHEREid=$1")


def test_a_statement_that_was_cut_as_well_says_of_how_much() -> None:
    texts = StatementTexts(1.0, (StatementText(QUERY_ID, "SELECT " + "x" * 3_993, 1_000_000),))
    assert "statement  the first 4000 of 1.00M characters" in details("SELECT " + "x" * 493, texts)


def test_processor_time_is_told_in_seconds() -> None:
    session = session_of(4)
    backend = session.now.postgres.activity.backends[0]  # type: ignore[union-attr]
    text = shown(session, (backend.pid, backend.backend_start_ms))
    assert "s user" in text
    assert "ticks" not in text


def test_the_details_call_a_running_session_without_a_wait_what_the_list_calls_it() -> None:
    seen = postgres_sample(3).activity
    assert not isinstance(seen, Unavailable)
    for state, said in (("active", "CPU"), ("idle", "-")):
        backend = replace(seen.backends[PID_AT], state=state, wait_event_type=None, wait_event=None)
        activity = replace(seen, backends=(backend, *seen.backends[1:]))
        session = session_of(4, change=lambda second: {"postgres": postgres_sample(second, activity=activity)})  # noqa: B023
        text = shown(session, (backend.pid, backend.backend_start_ms))
        assert re.search(rf"^wait +{said}$", text, re.MULTILINE)
