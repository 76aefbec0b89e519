"""What we send ourselves can be told from what others send."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest

from pgtop_tune.changes.server.control import PostgresControl
from pgtop_tune.cluster.throwaway import Throwaway
from pgtop_tune.metrics import sections
from pgtop_tune.model.backend_action import BackendAct
from pgtop_tune.model.postgres import Activity
from pgtop_tune.model.statements import OWN_MARK, StatementTexts
from pgtop_tune.model.waits import LockSample
from pgtop_tune.postgres.commit_meter import measure_round_trips
from pgtop_tune.postgres.reader import PostgresReader
from pgtop_tune.postgres.server.own_sessions import OwnSessions
from pgtop_tune.postgres.statements.backend_control import PostgresBackends
from tests.hostile.watched import as_user
from tests.postgres.conftest import Superuser, place
from tests.postgres.reading import eventually, reading
from tests.postgres.statements.test_backend_control import agreed_plan, key_of
from tests.sampling.test_live_source import answered, watching
from tests.support.crowd import Crowd
from tests.support.servers import conninfo
from tests.support.undoing import undo_all

HOUSEKEEPING = re.compile("SET |RESET |COMMIT|ROLLBACK")


def unmarked(superuser: Superuser, user: str) -> list[str]:
    """Statements of this user that nothing in pg_stat_statements shows to be ours."""
    rows = superuser.execute(
        "SELECT query FROM pg_stat_statements s JOIN pg_roles r ON r.oid = s.userid WHERE rolname = %s", (user,)
    ).fetchall()
    queries = [str(query) for (query,) in rows]
    assert any(OWN_MARK in query for query in queries)
    return [query for query in queries if OWN_MARK not in query and not HOUSEKEEPING.match(query)]


@pytest.fixture
def crowd(server: Throwaway, superuser: Superuser) -> Iterator[Crowd]:
    superuser.execute("CREATE EXTENSION IF NOT EXISTS pg_stat_statements")
    found = Crowd(conninfo(server))
    yield found
    found.close()


async def test_every_query_of_ours_bears_our_mark_and_page_5_leaves_it_out(
    server: Throwaway, superuser: Superuser, role: Callable[..., str]
) -> None:
    # Other tests send the same texts without our mark to this server, and what others send is not ours.
    superuser.execute("SELECT pg_stat_statements_reset()")
    user = role("pg_monitor")
    async with watching(as_user(conninfo(server), user), 0.5) as watcher:
        await watcher.until(answered)
        frame = await watcher.until(
            lambda frame: (
                answered(frame) and frame.sequence > 6 and isinstance(frame.postgres.statement_texts, StatementTexts)
            )
        )
    assert unmarked(superuser, user) == []
    shown = {text.queryid: text.query for text in frame.postgres.statement_texts.texts}
    names = {row.queryid for row in frame.postgres.statement_counters.statements if row.usename == user}
    of_us = [query for queryid, query in shown.items() if queryid in names]
    assert [query for query in of_us if query != OWN_MARK and not HOUSEKEEPING.match(query)] == []


async def test_what_is_asked_only_at_times_bears_our_mark_as_well(
    server: Throwaway, superuser: Superuser, role: Callable[..., str], crowd: Crowd
) -> None:
    user = role("pg_monitor")
    crowd.session("SELECT pg_advisory_xact_lock(5001)")
    crowd.waits(crowd.session(), "SELECT pg_advisory_xact_lock(5001)")
    async with reading(place(server, user=user)) as reader:
        await eventually(lambda: _sees_the_queue(reader))
    assert unmarked(superuser, user) == []


async def _sees_the_queue(reader: PostgresReader) -> bool:
    activity, locks = await reader.read(sections.activity), await reader.read(sections.locks)
    assert isinstance(activity, Activity)
    assert isinstance(locks, LockSample)
    return any(backend.blocked_by for backend in activity.backends) and bool(locks.waits)


async def test_what_the_operator_does_bears_our_mark(
    server: Throwaway, superuser: Superuser, role: Callable[..., str], crowd: Crowd, tmp_path: Path
) -> None:
    user = role("pg_monitor")
    superuser.execute(f"ALTER ROLE {user} SUPERUSER")
    control = PostgresControl(place(server, user=user), directory=tmp_path)
    await control.apply("log_temp_files", "5001kB")
    await undo_all(control)
    await control.aclose()
    with psycopg.connect(conninfo(server), autocommit=True) as other:
        backends, key = PostgresBackends(place(server, user=user)), key_of(server, other)
        other.execute("SELECT relname FROM pg_class")
        await agreed_plan(backends, key, "SELECT relname FROM pg_class")
        await backends.signal(BackendAct.CANCEL, [key])
    await measure_round_trips(place(server, user=user), OwnSessions(), 0.01)
    assert unmarked(superuser, user) == []


async def test_what_others_send_as_well_is_not_taken_for_ours(
    server: Throwaway, superuser: Superuser, role: Callable[..., str]
) -> None:
    user, ours = role("pg_monitor"), role("pg_monitor")
    await measure_round_trips(place(server, user=ours), OwnSessions(), 0.01)
    async with reading(place(server)) as reader:
        await reader.read(sections.statement_counters)
        with psycopg.connect(as_user(conninfo(server), user), autocommit=True) as other:
            other.execute("SELECT 1")
        sample = await reader.read(sections.statement_counters)
        texts = await reader.read(sections.statement_texts)
    assert isinstance(texts, StatementTexts)
    queryids = {row.queryid for row in sample.statements if row.usename == user}  # type: ignore[union-attr]
    assert [text.query for text in texts.texts if text.queryid in queryids and OWN_MARK not in text.query] != []
