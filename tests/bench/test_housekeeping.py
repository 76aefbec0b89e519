"""Housekeeping on a real server: what it does to the data set, and to nothing else."""

from __future__ import annotations

from collections.abc import AsyncIterator

import psycopg
import pytest

from pgtop_tune.bench.housekeeping import CHECKPOINT, PREWARM, TRUNCATE, USUAL, VACUUM, find_tables, tidy
from pgtop_tune.cluster.throwaway import Throwaway
from pgtop_tune.postgres.server.conninfo import resolve
from pgtop_tune.postgres.server.sql_session import PsycopgSession, open_sql_session
from tests.support.servers import conninfo

PGBENCH = """
CREATE TABLE pgbench_branches (bid int PRIMARY KEY, bbalance int, filler char(88));
CREATE TABLE pgbench_tellers (tid int PRIMARY KEY, bid int, tbalance int, filler char(84));
CREATE TABLE pgbench_accounts (aid int PRIMARY KEY, bid int, abalance int, filler char(84));
CREATE UNLOGGED TABLE pgbench_history (tid int, bid int, aid int, delta int, mtime timestamp, filler char(22));
CREATE TABLE other AS SELECT 1 AS n;
INSERT INTO pgbench_history (tid) VALUES (1);
"""
SEEN = "SELECT relname FROM pg_stat_user_tables WHERE last_vacuum IS NOT NULL AND last_analyze IS NOT NULL ORDER BY 1"


@pytest.fixture
async def sql_session(database: str) -> AsyncIterator[PsycopgSession]:
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute(PGBENCH)
    opened = await open_sql_session(resolve(database))
    yield opened
    await opened.aclose()


async def test_the_data_set_is_found_with_what_is_unlogged(sql_session: PsycopgSession) -> None:
    found = await find_tables(sql_session, "pgbench")
    assert [(table.sql, table.unlogged) for table in found] == [
        ("public.pgbench_accounts", False),
        ("public.pgbench_branches", False),
        ("public.pgbench_history", True),
        ("public.pgbench_tellers", False),
    ]
    assert all(table.owned for table in found)
    assert await find_tables(sql_session, "") == await find_tables(sql_session, "bus") == ()


async def test_history_is_emptied_and_only_the_data_set_is_vacuumed(sql_session: PsycopgSession) -> None:
    told: list[str] = []
    done = await tidy(sql_session, USUAL, await find_tables(sql_session, "pgbench"), told.append)
    assert told == [TRUNCATE, VACUUM, CHECKPOINT]
    assert [(step.name, step.problem) for step in done] == [(name, "") for name in told]
    assert await sql_session.rows("SELECT count(*) FROM public.pgbench_history") == [(0,)]
    assert [name for (name,) in await sql_session.rows(SEEN)] == [
        "pgbench_accounts", "pgbench_branches", "pgbench_history", "pgbench_tellers",
    ]  # fmt: skip


async def test_only_what_was_asked_for_is_done(sql_session: PsycopgSession) -> None:
    done = await tidy(sql_session, (VACUUM,), await find_tables(sql_session, "pgbench"), lambda step: None)
    assert [step.name for step in done] == [VACUUM]
    assert await sql_session.rows("SELECT count(*) FROM public.pgbench_history") == [(1,)]


async def test_a_history_of_somebody_else_is_not_emptied(sql_session: PsycopgSession) -> None:
    await sql_session.execute(
        "DROP TABLE public.pgbench_history; CREATE TABLE public.pgbench_history AS SELECT 1 AS event"
    )
    await tidy(sql_session, (TRUNCATE,), await find_tables(sql_session, "pgbench"), lambda step: None)
    assert await sql_session.rows("SELECT count(*) FROM public.pgbench_history") == [(1,)]


async def test_what_a_role_may_not_do_is_told_and_does_not_end_it(database: str, sql_session: PsycopgSession) -> None:
    await sql_session.execute("CREATE ROLE plain LOGIN; GRANT SELECT ON ALL TABLES IN SCHEMA public TO plain")
    plain = await open_sql_session(resolve(f"{database} user=plain"))
    try:
        done = await tidy(plain, USUAL, await find_tables(plain, "pgbench"), lambda step: None)
    finally:
        await plain.aclose()
        await sql_session.execute("DROP OWNED BY plain; DROP ROLE plain")
    problems = {step.name: step.problem for step in done}
    assert "permission denied" in problems[TRUNCATE]
    assert problems[VACUUM].startswith("not the owner of pgbench_accounts")
    assert problems[CHECKPOINT]


async def test_every_major_understands_it(all_servers: Throwaway) -> None:
    opened = await open_sql_session(resolve(conninfo(all_servers)))
    try:
        done = await tidy(opened, USUAL, await find_tables(opened, "pgbench"), lambda step: None)
    finally:
        await opened.aclose()
    assert [step.problem for step in done] == ["", "", ""]


BLOCKS = """
SELECT count(*) > 0 FROM public.pg_buffercache b
 WHERE b.relfilenode = pg_relation_filenode('public.pgbench_accounts_pkey')
   AND b.reldatabase = (SELECT oid FROM pg_database WHERE datname = current_database())
"""
STOLEN = """
CREATE TABLE public.stolen (n int);
CREATE FUNCTION public.pg_prewarm(regclass) RETURNS int8 LANGUAGE sql
    AS 'INSERT INTO public.stolen VALUES (1) RETURNING 1::int8';
CREATE FUNCTION public.pg_prewarm(regclass, text) RETURNS int8 LANGUAGE sql
    AS 'INSERT INTO public.stolen VALUES (2) RETURNING 1::int8';
"""


async def test_tables_and_indexes_are_read_in_by_the_extension_and_by_no_function_of_its_name(
    sql_session: PsycopgSession,
) -> None:
    tables = await find_tables(sql_session, "pgbench")
    (without,) = await tidy(sql_session, (PREWARM,), tables, lambda step: None)
    assert (without.name, "the extension pg_prewarm is missing" in without.problem) == (PREWARM, True)
    await sql_session.execute(
        "CREATE EXTENSION pg_prewarm SCHEMA public; CREATE EXTENSION pg_buffercache SCHEMA public"
    )
    await sql_session.execute("INSERT INTO public.pgbench_accounts SELECT generate_series(1, 100)")
    await sql_session.execute(STOLEN)
    (step,) = await tidy(sql_session, (PREWARM,), tables, lambda step: None)
    assert step.problem == ""
    assert await sql_session.rows(BLOCKS) == [(True,)]
    assert await sql_session.rows("SELECT count(*) FROM public.stolen") == [(0,)]
