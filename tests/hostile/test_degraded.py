"""What a role may not see or a server does not count is said in its place, with what opens it, on every page."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest
from psycopg import sql

from pgtop_tune.cluster.throwaway import Throwaway
from pgtop_tune.metrics import sections
from pgtop_tune.model.absence import Reason, Unavailable, grant
from pgtop_tune.runtime.session import Session
from pgtop_tune.tui.actions import page_of
from pgtop_tune.tui.widgets.lines import plain_text
from tests.hostile.watched import NASTY, as_user, assert_fits_and_obeys_nothing, page_text, session_of
from tests.sampling.test_live_source import answered, watching
from tests.support.servers import conninfo

OF_THE_LOG = {"server_log"}
STATEMENTS = {"statements", "statement_counters", "statement_texts"}
MAJORS = (14, 18)


@contextmanager
def member(server: Throwaway, name: str, *groups: str) -> Iterator[str]:
    """A role that may log in; dropped in the end."""
    role = sql.Identifier(name)
    with psycopg.connect(conninfo(server), autocommit=True) as connection:
        connection.execute(sql.SQL("CREATE ROLE {} LOGIN").format(role))
        try:
            for group in groups:
                connection.execute(sql.SQL("GRANT {} TO {}").format(sql.Identifier(group), role))
            yield name
        finally:
            connection.execute(sql.SQL("DROP OWNED BY {}; DROP ROLE {}").format(role, role))


async def watched(target: str) -> tuple[Session, Mapping[str, Unavailable]]:
    """A session of a few answers, all of it drawn; and the sections that are missing."""
    async with watching(target, 0.4) as watcher:
        first = await watcher.until(answered)
        frame = await watcher.until(lambda frame: answered(frame) and frame.sequence >= first.sequence + 4)
        session = session_of(watcher.frames)
    assert_fits_and_obeys_nothing(session)
    every = {name: getattr(frame.postgres, name) for name in frame.postgres.__struct_fields__}
    return session, {name: each for name, each in every.items() if isinstance(each, Unavailable)}


def page(session: Session, page_id: str, table_id: str) -> str:
    """A page as text."""
    found = page_of(page_id)
    table = next(table for table in found.tables if table.id == table_id)
    return "\n".join(plain_text(line) for line in page_text(session, found, table, 160, 24))


def not_supported(major: int) -> set[str]:
    return {name for name, first in (("io", 16), ("lock_counters", 19)) if major < first}


@pytest.mark.parametrize("major", MAJORS)
async def test_pg_monitor_misses_nothing_but_the_log(server_for_major: Callable[[int], Throwaway], major: int) -> None:
    server = server_for_major(major)
    with member(server, "watcher", "pg_monitor") as name:
        session, absent = await watched(as_user(conninfo(server), name))
    assert absent.keys() == OF_THE_LOG | not_supported(major)
    assert "hidden" not in page(session, "waits", "waits-events")


@pytest.mark.parametrize("major", MAJORS)
async def test_a_plain_role_is_told_the_grant_in_every_place(
    server_for_major: Callable[[int], Throwaway], major: int
) -> None:
    server = server_for_major(major)
    with member(server, NASTY) as name:
        session, absent = await watched(as_user(conninfo(server), name))
    opens = grant("pg_monitor", name)
    closed = {name: each.detail for name, each in absent.items() if each.reason is Reason.NO_PERMISSION}
    assert {"wal_files", "temp_files"} <= closed.keys()
    assert all(opens in detail for detail in closed.values())
    assert absent.keys() - closed.keys() <= OF_THE_LOG | not_supported(major)
    assert "hidden: GRANT pg_monitor" in page(session, "sessions", "sessions")
    for page_id, table_id in (("waits", "waits-events"), ("locks", "locks"), ("repl", "horizon")):
        shown = page(session, page_id, table_id)
        assert "GRANT pg_monitor TO" in shown, shown
        assert "nobody" not in shown


@pytest.mark.parametrize("major", [14, pytest.param(18, marks=pytest.mark.long)])
async def test_an_old_version_of_the_extension_in_another_schema_says_how_to_update_it(
    server_for_major: Callable[[int], Throwaway], major: int
) -> None:
    server = server_for_major(major)
    with psycopg.connect(conninfo(server), autocommit=True) as connection:
        connection.execute("CREATE DATABASE aged")
    target = conninfo(server, "aged")
    try:
        with psycopg.connect(target, autocommit=True) as inside:
            inside.execute('DROP EXTENSION IF EXISTS pg_stat_statements; CREATE SCHEMA "Odd %s {x}"')
            inside.execute("CREATE EXTENSION pg_stat_statements SCHEMA \"Odd %s {x}\" VERSION '1.8'")
            _, absent = await watched(target)
            assert {absent[name].detail for name in STATEMENTS} == {
                "pg_stat_statements 1.8 is older than 1.9: ALTER EXTENSION pg_stat_statements UPDATE"
            }
            inside.execute("ALTER EXTENSION pg_stat_statements UPDATE")
        _, absent = await watched(target)
        assert not STATEMENTS & absent.keys()
    finally:
        with psycopg.connect(conninfo(server), autocommit=True) as connection:
            connection.execute("DROP DATABASE aged WITH (FORCE)")


@pytest.mark.parametrize(
    ("setting", "missing"),
    [
        ("track_activities", {"activity", "waits", "tail"}),
        ("track_counts", {"database", "databases", "relations"}),
        ("compute_query_id", STATEMENTS),
        ("track_io_timing", set()),
    ],
)
async def test_what_is_switched_off_names_the_setting(server: Throwaway, setting: str, missing: set[str]) -> None:
    with psycopg.connect(conninfo(server), autocommit=True) as connection:
        connection.execute("CREATE ROLE switched LOGIN SUPERUSER")
        try:
            connection.execute(sql.SQL("ALTER ROLE switched SET {} = 'off'").format(sql.Identifier(setting)))
            _, absent = await watched(as_user(conninfo(server), "switched"))
        finally:
            connection.execute("DROP OWNED BY switched; DROP ROLE switched")
    assert absent.keys() == missing | OF_THE_LOG | not_supported(18)
    for name in missing:
        assert absent[name].reason is Reason.SWITCHED_OFF
        assert f"{setting} is off" in absent[name].detail


@pytest.mark.long
async def test_every_page_is_drawn_of_a_standby(make_server: Callable[..., Throwaway]) -> None:
    server = make_server()
    (Path(str(server.data_dir)) / "standby.signal").touch()
    server.restart()
    session, absent = await watched(conninfo(server))
    assert absent.keys() == OF_THE_LOG | not_supported(18)
    assert session.now is not None
    server_facts = sections.server(session.now)
    assert not isinstance(server_facts, Unavailable)
    assert server_facts.in_recovery
