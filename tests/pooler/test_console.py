"""The console of a real PgBouncer: what it says, and what becomes of one that is not there, says no, or hangs."""

from __future__ import annotations

import asyncio
import itertools
import socket
from collections.abc import Iterator

import psycopg
import pytest

from pgtop_tune.base.errors import ConnectionProblem, NotLetIn, PasswordNeeded, ServerProblem
from pgtop_tune.base.secret import Secret
from pgtop_tune.cluster.throwaway import Throwaway
from pgtop_tune.model.pooler import ConsoleSample, Pool, PoolerAddress
from pgtop_tune.pooler.console import PoolerConsole
from pgtop_tune.postgres.server.conninfo import resolve
from tests.support.poolers import PgBouncer, look_once
from tests.support.servers import conninfo


def address_of(uri: str, password: str = "") -> PoolerAddress:
    found = resolve(uri)
    secrets = {"password": Secret(password)} if password else {}
    return PoolerAddress("bouncer", found.describe(), found.host, found.port, found.as_psycopg(), secrets)


@pytest.fixture(scope="module")
def bouncer(server: Throwaway) -> Iterator[PgBouncer]:
    with PgBouncer(server, default_pool_size=2, reserve_pool_size=1, max_db_connections=7) as running:
        yield running


async def looked(bouncer: PgBouncer) -> ConsoleSample:
    return await look_once(address_of(bouncer.console()))


def pool_of(sample: ConsoleSample, database: str) -> Pool:
    (found,) = [pool for pool in sample.pools if pool.database == database]
    return found


async def test_pools_counters_databases_and_settings_are_those_of_the_pooler(
    bouncer: PgBouncer, server: Throwaway
) -> None:
    before = await looked(bouncer)
    with bouncer.connect() as client, client.transaction():
        for _ in range(3):
            client.execute("SELECT 1")
        during = await looked(bouncer)
    after = await looked(bouncer)
    assert before.kind == "PgBouncer"
    assert before.version.split(".")[0] == "1"
    assert during.settings.default_pool_size == 2
    assert during.settings.max_client_conn == 200
    assert during.settings.pool_mode == "transaction"
    pool = pool_of(during, "postgres")
    assert (pool.user, pool.pool_mode, pool.cl_active, pool.sv_active) == (server.user, "transaction", 1, 1)
    assert pool_of(after, "postgres").sv_active == 0
    (database,) = [each for each in during.databases if each.name == "postgres"]
    assert (database.pool_size, database.reserve_pool_size, database.max_connections) == (2, 1, 7)
    assert (database.force_user, database.port) == (server.user, server.port)
    seen = {each.database: each for each in after.counters}["postgres"]
    known = {each.database: each for each in before.counters}.get("postgres")
    assert seen.xacts is not None
    assert seen.queries is not None
    assert seen.xacts - ((known and known.xacts) or 0) == 1
    assert seen.queries - ((known and known.queries) or 0) == 5, "BEGIN, three SELECTs, COMMIT"
    assert during.clients is not None
    assert during.clients >= 2, "the client and our own look"
    assert "pgbouncer" not in {pool.database for pool in during.pools}, "the console is no pool"


async def test_clients_that_wait_are_counted_and_how_long(bouncer: PgBouncer, server: Throwaway) -> None:
    with bouncer.connect() as one, bouncer.connect() as two, one.transaction(), two.transaction():
        one.execute("SELECT 1")
        two.execute("SELECT 1")
        third = await psycopg.AsyncConnection.connect(bouncer.conninfo(), autocommit=True)
        waiting = asyncio.create_task(third.execute("SELECT 1"))
        for _ in range(3000):
            await asyncio.sleep(0.01)
            pool = pool_of(await looked(bouncer), "postgres")
            if pool.cl_waiting and pool.maxwait_us:
                break
        assert (pool.cl_waiting, pool.sv_active) == (1, 2)
        assert pool.maxwait_us
    await waiting
    await third.close()


async def test_one_connection_serves_all_looks_and_is_made_anew_when_it_is_lost(server: Throwaway) -> None:
    ticks = itertools.count()
    with PgBouncer(server) as bouncer:
        console = PoolerConsole(address_of(bouncer.console()), lambda: float(next(ticks)), "pgtop-tune")
        first = await console.look()
        second = await console.look()
        assert second.at_s > first.at_s
        assert second.clients == 1, "the second look came over the connection of the first"
        bouncer.stop()
        with pytest.raises(ConnectionProblem):
            await console.look()
        with pytest.raises(ConnectionProblem, match=f"127.0.0.1:{bouncer.port}.*refused"):
            await console.look()
        console.close()


async def test_a_pooler_that_hangs_costs_a_time_out_and_nothing_stays_open(
    server: Throwaway, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pgtop_tune.pooler.console.ANSWER_TIMEOUT_S", 0.2)
    monkeypatch.setattr("pgtop_tune.pooler.console.CONNECT_TIMEOUT_S", 0.2)
    with PgBouncer(server) as bouncer:
        console = PoolerConsole(address_of(bouncer.console()), lambda: 1.0, "pgtop-tune")
        await asyncio.wait_for(_patient(console), 60)
        bouncer.freeze()
        with pytest.raises(ConnectionProblem, match="no answer"):
            await console.look()
        with pytest.raises(ConnectionProblem, match="no answer"):
            await console.look()
        bouncer.thaw()
        assert (await asyncio.wait_for(_patient(console), 60)).kind == "PgBouncer"
        console.close()


async def _patient(console: PoolerConsole) -> ConsoleSample:
    """The first look that comes through: a busy machine may need more than the shortened time."""
    while True:
        try:
            return await console.look()
        except ConnectionProblem:
            await asyncio.sleep(0.05)


async def test_a_password_is_asked_for_taken_and_refused(server: Throwaway) -> None:
    with PgBouncer(server, password="s3cret") as bouncer:
        uri = bouncer.console()
        with pytest.raises(PasswordNeeded):
            await look_once(address_of(uri))
        with pytest.raises(NotLetIn) as wrong:
            await look_once(address_of(uri, "wr0ng-one"))
        assert "wr0ng-one" not in str(wrong.value)
        assert (await look_once(address_of(uri, "s3cret"))).kind == "PgBouncer"
        console = address_of(uri, "s3cret")
        assert "s3cret" not in repr(console)


async def test_a_user_who_may_not_look_is_told_which_setting_decides(server: Throwaway) -> None:
    with PgBouncer(server, password="s3cret", stats_users="somebody_else") as bouncer:
        with pytest.raises(NotLetIn, match="not allowed") as refused:
            await look_once(address_of(bouncer.console(), "s3cret"))
        assert "stats_users" in refused.value.hint


async def test_a_server_in_place_of_a_console_is_said_to_be_none(server: Throwaway) -> None:
    with pytest.raises(ServerProblem, match="pools") as refused:
        await look_once(address_of(conninfo(server)))
    assert "console" in refused.value.hint


async def test_options_of_the_environment_do_not_keep_us_out(
    bouncer: PgBouncer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGOPTIONS", "-c work_mem=1MB")
    monkeypatch.setenv("PGCLIENTENCODING", "LATIN1")
    assert (await looked(bouncer)).kind == "PgBouncer"


async def test_nobody_there_and_somebody_who_says_nothing_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pgtop_tune.pooler.console.CONNECT_TIMEOUT_S", 0.3)
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        port = silent.getsockname()[1]
        uri = f"postgresql://stats@127.0.0.1:{port}/pgbouncer?sslmode=disable"
        with pytest.raises(ConnectionProblem) as refused:
            await look_once(address_of(uri))
        assert refused.value.message == f"stats@127.0.0.1:{port}/pgbouncer: Connection refused"
        silent.listen()
        with pytest.raises(ConnectionProblem, match="no answer"):
            await look_once(address_of(uri))
