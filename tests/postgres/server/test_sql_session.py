"""SQL for those who may not know a driver: rows, refusals, cancelled statements, sessions that end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

import psycopg
import pytest

from pgtop_tune.base.errors import ConnectionProblem, ServerProblem
from pgtop_tune.cluster.throwaway import Throwaway
from pgtop_tune.postgres.server.conninfo import APPLICATION_NAME, resolve
from pgtop_tune.postgres.server.own_sessions import OwnSessions
from pgtop_tune.postgres.server.sql_session import PsycopgSession, open_sql_session
from tests.support.processes import eventually
from tests.support.servers import conninfo


@pytest.fixture
async def sql_session(database: str) -> AsyncIterator[PsycopgSession]:
    opened = await open_sql_session(resolve(database))
    yield opened
    await opened.aclose()


async def test_several_statements_are_one_transaction(sql_session: PsycopgSession) -> None:
    await sql_session.execute("CREATE TABLE public.t (n int); INSERT INTO public.t SELECT generate_series(1, 3)")
    with pytest.raises(ServerProblem, match="division by zero"):
        await sql_session.execute("INSERT INTO public.t VALUES (4); SELECT 1 / 0")
    assert await sql_session.rows("SELECT count(*), 100 % 3 FROM public.t") == [(3, 1)]
    assert await sql_session.rows("SELECT n FROM public.t WHERE n > %s ORDER BY n", [1]) == [(2,), (3,)]
    await sql_session.execute("VACUUM public.t")


async def test_a_refusal_has_the_servers_words_and_the_session_goes_on(sql_session: PsycopgSession) -> None:
    with pytest.raises(ServerProblem, match='relation "nowhere" does not exist') as caught:
        await sql_session.rows("SELECT * FROM nowhere")
    assert caught.value.sqlstate == "42P01"
    assert await sql_session.rows("SELECT 1") == [(1,)]


async def test_a_cancelled_call_ends_its_statement(sql_session: PsycopgSession, database: str) -> None:
    running = "SELECT count(*) FROM pg_stat_activity WHERE state = 'active' AND query LIKE 'SELECT % pg_sleep(600)'"
    with psycopg.connect(database, autocommit=True) as watching:

        def count() -> int:
            row = watching.execute(running).fetchone()
            assert row is not None
            return int(row[0])

        task = asyncio.create_task(sql_session.rows("SELECT pg_sleep(600)"))
        assert await asyncio.to_thread(eventually, lambda: count() == 1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert eventually(lambda: count() == 0)
    assert await sql_session.rows("SELECT 1") == [(1,)]


async def test_it_is_known_as_ours_while_it_is_there(all_servers: Throwaway) -> None:
    own = OwnSessions()
    sql_session = await open_sql_session(resolve(conninfo(all_servers)), own)
    [(pid, name, checked)] = await sql_session.rows(
        "SELECT pg_backend_pid(), current_setting('application_name'),"
        " current_setting('client_connection_check_interval')"
    )
    assert own.pids == {pid}
    assert str(name).startswith(APPLICATION_NAME)
    assert checked == "1s"
    await sql_session.aclose()
    assert own.pids == set()


async def test_a_server_that_goes_away_is_said_so(make_server: Callable[..., Throwaway]) -> None:
    server = make_server()
    sql_session = await open_sql_session(resolve(conninfo(server)))
    server.stop("immediate")
    with pytest.raises(ConnectionProblem):
        await sql_session.rows("SELECT 1")
    await sql_session.aclose()
    with pytest.raises(ConnectionProblem, match=r"nothing is listening"):
        await open_sql_session(resolve(conninfo(server)))
