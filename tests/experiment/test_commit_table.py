"""The table of the counting clients: runs that begin and end at once, and a lock that holds up the count."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import psycopg
import pytest

from pgtop_tune.bench.commit_log import AcknowledgedLines
from pgtop_tune.cluster.throwaway import Throwaway
from pgtop_tune.experiment import commit_table
from pgtop_tune.experiment.commit_table import SCHEMA, CommitTable, create_table
from pgtop_tune.experiment.server_times import OpenSqlSession
from pgtop_tune.postgres.server.conninfo import resolve
from pgtop_tune.postgres.server.sql_session import open_sql_session
from tests.support.servers import conninfo


def sessions_on(server: Throwaway) -> OpenSqlSession:
    where = resolve(conninfo(server))
    return lambda: open_sql_session(where)


async def test_runs_that_begin_and_end_at_once_each_have_a_table(make_server: Callable[..., Throwaway]) -> None:
    server = make_server(18)

    async def one_run() -> None:
        for _ in range(10):
            table = await create_table(sessions_on(server), 60)
            assert isinstance(table, CommitTable), table
            commits = await table.compare((), 60)
            assert (commits.problem, commits.left_behind) == ("", "")

    await asyncio.gather(*(one_run() for _ in range(4)))
    with psycopg.connect(conninfo(server)) as connection:
        assert connection.execute("SELECT to_regnamespace(%s)", [SCHEMA]).fetchone() == (None,)


async def test_a_synchronous_standby_that_is_away_does_not_keep_the_table(
    make_server: Callable[..., Throwaway], monkeypatch: pytest.MonkeyPatch
) -> None:
    server = make_server(18, synchronous_standby_names="nobody")
    table = await create_table(sessions_on(server), 60)
    assert isinstance(table, CommitTable), table
    monkeypatch.setattr(commit_table, "_STATEMENTS_S", 5.0)
    commits = await table.compare((), 60)
    assert commits.left_behind == ""
    with psycopg.connect(conninfo(server)) as connection:
        assert connection.execute("SELECT to_regnamespace(%s)", [SCHEMA]).fetchone() == (None,)


async def test_a_lock_on_the_table_does_not_hold_up_the_end_of_a_run(
    make_server: Callable[..., Throwaway], monkeypatch: pytest.MonkeyPatch
) -> None:
    server = make_server(18)
    table = await create_table(sessions_on(server), 60)
    assert isinstance(table, CommitTable), table
    monkeypatch.setattr(commit_table, "_STATEMENTS_S", 0.5)
    with psycopg.connect(conninfo(server)) as connection:
        connection.execute(f"LOCK TABLE {SCHEMA}.{table._name}")
        async with asyncio.timeout(60):
            commits = await table.compare([AcknowledgedLines(1, 1, 0, 5)], 60)
    assert commits.missing is None
    assert "no answer within" in commits.problem
    assert "a later run drops it" in commits.left_behind
