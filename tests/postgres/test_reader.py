"""The sampler's connection against real servers: what it sees and what it leaves out."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import psycopg
import pytest
from psycopg import sql

from pgtop_tune.base.errors import ConnectionProblem
from pgtop_tune.cluster.throwaway import Throwaway
from pgtop_tune.metrics import sections
from pgtop_tune.metrics.server import ended_transactions
from pgtop_tune.model.absence import Unavailable
from pgtop_tune.model.postgres import (
    NEWEST_MAJOR,
    Activity,
    DatabaseCounters,
    ParameterSample,
    StatementTotals,
    WalCounters,
)
from pgtop_tune.model.waits import WaitCount, WaitLook
from pgtop_tune.postgres.queries import inventory
from pgtop_tune.postgres.reader import PostgresReader
from pgtop_tune.postgres.readers.section_readers import ReadContext
from pgtop_tune.postgres.server import connection as connection_module
from pgtop_tune.postgres.server.connection import ReadConnection, Rows
from pgtop_tune.postgres.server.conninfo import ConnInfo
from pgtop_tune.postgres.server.own_sessions import OwnSessions
from tests.postgres.conftest import Superuser, by_libpq, place
from tests.postgres.reading import DEADLINE_S, backends, eventually, reading
from tests.support.servers import conninfo


async def test_every_section_comes_from_every_major(all_servers: Throwaway) -> None:
    async with reading(place(all_servers)) as reader:
        facts = await reader.facts()
        assert not isinstance(facts, Unavailable)
        assert facts.version_num // 10_000 == all_servers.binaries.major
        assert facts.data_directory == str(all_servers.data_dir)
        assert facts.endpoint == f"{all_servers.socket_dir}:{all_servers.port}"
        assert (facts.superuser, facts.monitor_role, facts.in_recovery) == (True, True, False)
        assert facts.system_identifier.isdigit()
        absent = {}
        for section in sections.READ:
            found = await reader.read(section)
            assert isinstance(found, (section.struct, Unavailable)), section.name  # type: ignore[arg-type]
            if isinstance(found, Unavailable):
                absent[section.name] = str(found)
        later = {16: ("io", "pg_stat_io"), 19: ("lock_counters", "pg_stat_lock")}
        assert absent.pop("server_log").startswith("logging_collector is off")
        assert absent == {
            name: f"{view} needs PostgreSQL {major}"
            for major, (name, view) in later.items()
            if all_servers.binaries.major < major
        }
        assert isinstance(await reader.waits(60_000), WaitLook)


async def test_a_section_is_read_with_the_files_that_its_row_names(
    all_servers: Throwaway, monkeypatch: pytest.MonkeyPatch
) -> None:
    fetch, asked = ReadContext.fetch, set[str]()

    async def noting(context: ReadContext, query: str, *arguments: object) -> Rows:
        asked.add(query)
        return await fetch(context, query, *arguments)

    monkeypatch.setattr(ReadContext, "fetch", noting)
    async with reading(place(all_servers)) as reader:
        for section in sections.READ:
            asked.clear()
            await reader.read(section)
            assert asked <= set(section.queries), section.name
            assert set(section.queries) <= inventory().keys()


def _says(monkeypatch: pytest.MonkeyPatch, version_num: int) -> None:
    """Lets servers say that they are of another version."""
    fetch = ReadConnection.fetch

    async def answer(connection: ReadConnection, text: str, *arguments: object) -> Rows:
        if text == "SHOW server_version_num":
            return await fetch(connection, f"SELECT '{version_num}'")
        return await fetch(connection, text, *arguments)

    monkeypatch.setattr(ReadConnection, "fetch", answer)


async def test_a_server_newer_than_any_we_know_is_read_as_the_newest_known_one(
    server_for_major: Callable[[int], Throwaway], monkeypatch: pytest.MonkeyPatch
) -> None:
    _says(monkeypatch, 250_003)
    async with reading(place(server_for_major(NEWEST_MAJOR))) as reader:
        looks = {section.name: await reader.read(section) for section in sections.READ}
        others = {read.__name__: await read() for read in (reader.facts, reader.places)}
        others["waits"] = await reader.waits(60_000)
        assert {name for name, found in (looks | others).items() if isinstance(found, Unavailable)} == {"server_log"}


async def test_a_server_older_than_any_we_know_is_refused_with_its_version(
    server: Throwaway, monkeypatch: pytest.MonkeyPatch
) -> None:
    _says(monkeypatch, 130_021)
    with pytest.raises(ConnectionProblem, match="PostgreSQL 13 is older than 14"):
        await PostgresReader(place(server), time.monotonic).connect()


async def test_counters_count_what_happens(server: Throwaway, superuser: Superuser) -> None:
    async with reading(place(server)) as reader:
        database, wal, statements = (
            await reader.read(sections.database),
            await reader.read(sections.wal),
            await reader.read(sections.statements),
        )
        assert isinstance(database, DatabaseCounters)
        assert isinstance(wal, WalCounters)
        assert isinstance(statements, StatementTotals)
        superuser.execute("CREATE TABLE IF NOT EXISTS counted (n int)")
        for number in range(30):
            superuser.execute("INSERT INTO counted VALUES (%s)", (number,))
        superuser.execute("SELECT pg_stat_force_next_flush()")
        superuser.execute("DROP TABLE counted")

        async def seen() -> bool:
            later = await reader.read(sections.database)
            assert isinstance(later, DatabaseCounters)
            return later.xact_commit >= database.xact_commit + 32 and later.tup_inserted >= database.tup_inserted + 30

        await eventually(seen)
        later_wal, later_statements = await reader.read(sections.wal), await reader.read(sections.statements)
        assert isinstance(later_wal, WalCounters)
        assert isinstance(later_statements, StatementTotals)
        assert later_wal.wal_records >= wal.wal_records + 30
        assert (later_wal.lsn_bytes or 0) > (wal.lsn_bytes or 0)
        assert later_statements.calls >= statements.calls + 32


async def settled(reader: PostgresReader) -> DatabaseCounters:
    """A backend reports its own transactions when it has been idle for a while: waits until two looks agree."""
    previous = -1
    while True:
        seen = await reader.read(sections.database)
        assert isinstance(seen, DatabaseCounters)
        others = seen.xact_commit + seen.xact_rollback - seen.own_transactions
        if others == previous:
            return seen
        previous = others
        await asyncio.sleep(1.1)


async def test_looks_made_meanwhile_do_not_pass_for_the_work_of_others(make_server: Callable[..., Throwaway]) -> None:
    async with reading(place(make_server(autovacuum="off"))) as reader:
        await reader.waits(60_000)
        await settled(reader)
        others = set()
        for _ in range(20):
            _, seen, _, _ = await asyncio.gather(
                reader.waits(60_000), reader.read(sections.database), reader.waits(60_000), reader.waits(60_000)
            )
            assert isinstance(seen, DatabaseCounters)
            others.add(seen.xact_commit + seen.xact_rollback - seen.own_transactions)
        assert len(others) == 1


@pytest.mark.parametrize("way", [lambda where: where, by_libpq], ids=["asyncpg", "libpq"])
async def test_what_we_do_ourselves_is_known_exactly(
    make_server: Callable[..., Throwaway], way: Callable[[ConnInfo], ConnInfo]
) -> None:
    server = make_server(autovacuum="off")
    async with reading(way(place(server))) as reader:
        looks = 25

        before, calls_before = await settled(reader), await reader.read(sections.statements)
        for _ in range(looks):
            await reader.waits(60_000)
            await reader.read(sections.activity)
        await reader.read(sections.parameters)
        calls_after, after = await reader.read(sections.statements), await settled(reader)
        assert isinstance(calls_before, StatementTotals)
        assert isinstance(calls_after, StatementTotals)
        ours = after.own_transactions - before.own_transactions
        assert ours >= 2 * looks
        seen = after.xact_commit + after.xact_rollback - before.xact_commit - before.xact_rollback
        assert seen == ours
        assert calls_after.calls - calls_before.calls == calls_after.own_calls - calls_before.own_calls > 2 * looks


async def test_starts_of_sessions_and_workers_are_no_transactions(make_server: Callable[..., Throwaway]) -> None:
    """100 queries with two workers each were 501 transactions."""
    server = make_server(autovacuum="off", debug_parallel_query="on")
    async with reading(place(server)) as reader:
        before = await settled(reader)
        with psycopg.connect(conninfo(server), autocommit=True) as session:
            workers = [session.execute("SELECT count(*) FROM pg_class").fetchone() for _ in range(20)]
        after = await settled(reader)
    ended = ended_transactions(after) - ended_transactions(before) - after.own_transactions + before.own_transactions
    assert after.parallel_workers - before.parallel_workers == len(workers)
    # The report of a look may be late.
    assert len(workers) <= ended <= len(workers) + 1


async def test_our_own_sessions_are_left_out_and_counted(server: Throwaway) -> None:
    own = OwnSessions()
    async with reading(place(server), own=own) as reader, reading(place(server), own=own) as second:
        assert own.pids == {reader.own_backend()[0], second.own_backend()[0]}
        activity = await reader.read(sections.activity)
        assert isinstance(activity, Activity)
        assert activity.own_backends == 2
        assert not own.pids & {backend.pid for backend in activity.backends}
        assert abs(activity.now_ms / 1000 - time.time()) < 60
    assert own.pids == set()
    async with reading(place(server)) as reader, reading(place(server)) as stranger:
        # Another instance that watches is no load either.
        assert stranger.own_backend()[0] not in await backends(reader)


async def test_auxiliary_processes_have_rows(all_servers: Throwaway) -> None:
    async with reading(place(all_servers)) as reader:
        kinds = {backend.backend_type for backend in (await backends(reader)).values()}
        assert {"checkpointer", "background writer", "walwriter"} <= kinds


async def test_a_session_is_described(server: Throwaway, busy: Callable[..., int]) -> None:
    pid = busy(f"{conninfo(server)} application_name=shop", "SELECT pg_sleep(60) /* \x1b[31m red ☃ */")
    async with reading(place(server)) as reader:

        async def sleeping() -> bool:
            return pid in (now := await backends(reader)) and now[pid].wait_event == "PgSleep"

        await eventually(sleeping)
        backend = (await backends(reader))[pid]
        assert backend.query == "SELECT pg_sleep(60) /* \x1b[31m red ☃ */"
        assert (backend.state, backend.wait_event_type) == ("active", "Timeout")
        assert (backend.usename, backend.datname, backend.application_name) == ("postgres", "postgres", "shop")
        assert backend.client == "local"
        assert backend.backend_xmin_age is not None
        started_ms, now_ms = backend.query_start_ms, time.time() * 1000
        assert started_ms is not None
        assert now_ms - 60_000 < started_ms <= now_ms + 1000
        again = (await backends(reader))[pid]
        assert again is backend, "a backend that has not changed is not built again"


async def test_long_queries_are_cut_and_bytes_of_another_encoding_are_shown(
    server: Throwaway, superuser: Superuser, busy: Callable[..., int]
) -> None:
    superuser.execute("CREATE DATABASE latin ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0")
    try:
        foreign = busy(conninfo(server, "latin"), "SELECT pg_sleep(60), 'é'", before="SET client_encoding = 'UTF8'")
        long = busy(conninfo(server), f"SELECT pg_sleep(60), '{'é' * 700}'")
        async with reading(place(server)) as reader:

            async def both() -> bool:
                now = await backends(reader)
                return all((each := now.get(pid)) and each.wait_event == "PgSleep" for pid in (foreign, long))

            await eventually(both)
            now = await backends(reader)
            assert now[foreign].query == "SELECT pg_sleep(60), 'é'"
            assert (now[long].query or "").startswith("SELECT pg_sleep(60), 'éééé")
            assert len(now[long].query or "") == 500
    finally:
        superuser.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = 'latin'")
        superuser.execute("DROP DATABASE latin WITH (FORCE)")


@pytest.mark.parametrize("encoding", ["SQL_ASCII", "LATIN1"])
async def test_databases_that_are_not_utf8_can_be_watched(
    server: Throwaway, superuser: Superuser, busy: Callable[..., int], encoding: str
) -> None:
    name = f"odd_{encoding.lower()}"
    superuser.execute(
        sql.SQL("CREATE DATABASE {} ENCODING {} LOCALE 'C' TEMPLATE template0").format(
            sql.Identifier(name), sql.Literal(encoding)
        )
    )
    try:
        pid = busy(f"{conninfo(server, name)} client_encoding={encoding}", "SELECT pg_sleep(60)")
        async with reading(place(server, name)) as reader:
            for section in (
                sections.activity,
                sections.database,
                sections.wal,
                sections.checkpoints,
                sections.parameters,
            ):
                assert not isinstance(await reader.read(section), Unavailable)
            for answer in (await reader.waits(60_000), await reader.facts()):
                assert not isinstance(answer, Unavailable)
            assert pid in await backends(reader)
            if encoding == "SQL_ASCII":
                raw = psycopg.connect(f"{conninfo(server, name)} client_encoding=SQL_ASCII", autocommit=True)
                with raw:
                    raw.execute(b"SET application_name = 'caf\xe9'; SELECT '\xff\xfe'")
                    seen = (await backends(reader))[raw.info.backend_pid]
                assert "SELECT '\ufffd\ufffd'" in (seen.query or "")
    finally:
        superuser.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))


async def test_who_blocks_whom(server: Throwaway, database: str, busy: Callable[..., int]) -> None:
    lock = "LOCK TABLE wanted IN ACCESS EXCLUSIVE MODE"
    with psycopg.connect(database) as holder:
        holder.execute("CREATE TABLE wanted (n int)")
        holder.commit()
        holder.execute(lock)
        waiting = busy(database, lock, before="BEGIN")
        async with reading(place(server)) as reader:

            async def blocked() -> bool:
                return waiting in (now := await backends(reader)) and now[waiting].wait_event_type == "Lock"

            await eventually(blocked)
            now = await backends(reader)
            assert now[waiting].blocked_by == (holder.info.backend_pid,)
            assert now[holder.info.backend_pid].blocked_by == ()
            assert now[holder.info.backend_pid].state == "idle in transaction"
            look = await reader.waits(60_000)
            assert isinstance(look, WaitLook)
            (lock,) = (count for count in look.counts if count.wait_event_type == "Lock")
            assert lock.query_id is not None
            name = holder.info.dbname
            assert lock == WaitCount("Lock", "relation", "client backend", 1, lock.query_id, name, "postgres")


async def test_only_work_counts_as_waiting(fresh_server: Throwaway, busy: Callable[..., int]) -> None:
    with psycopg.connect(conninfo(fresh_server)) as idle_in_transaction:
        idle_in_transaction.execute("SELECT 1")
        for _ in range(3):
            busy(conninfo(fresh_server), "SELECT pg_sleep(60)")
        async with reading(place(fresh_server)) as reader:
            seen: dict[tuple[str, str], int] = {}

            async def three() -> bool:
                look = await reader.waits(60_000)
                assert isinstance(look, WaitLook)
                seen.clear()
                seen.update({(each.wait_event_type, each.wait_event): each.observations for each in look.counts})
                return seen.get(("Timeout", "PgSleep")) == 3

            await eventually(three)
            assert "Activity" not in {kind for kind, _ in seen}

            async def lingering() -> bool:
                return await three() and not any(kind == "Client" for kind, _ in seen)

            await eventually(lingering)


async def test_a_transaction_s_pause_is_the_client_s_turn(server: Throwaway, database: str) -> None:
    with psycopg.connect(f"{database} application_name=pgbench", autocommit=True) as load:
        async with reading(place(server)) as reader:

            async def found(event: str) -> list[WaitCount]:
                look = await reader.waits(60_000)
                assert isinstance(look, WaitLook)
                return [
                    count for count in look.counts if (count.wait_event_type, count.wait_event) == ("Client", event)
                ]

            load.execute("SELECT 1")
            (between,) = await found("between")
            assert (between.of_load, between.usename, between.query_id) == (True, "postgres", None)
            load.execute("BEGIN")
            (turn,) = await found("turn")
            assert (turn.of_load, turn.datname, turn.is_idle) == (True, load.info.dbname, True)
            assert not await found("between")


async def test_a_backend_that_computes_counts_as_cpu(server: Throwaway, busy: Callable[..., int]) -> None:
    busy(conninfo(server), "DO $$BEGIN LOOP NULL; END LOOP; END$$")
    async with reading(place(server)) as reader:

        async def computing() -> bool:
            look = await reader.waits(60_000)
            assert isinstance(look, WaitLook)
            return any(
                count.wait_event_type == "CPU" and count.backend_type == "client backend" for count in look.counts
            )

        await eventually(computing)


async def test_parameters_are_the_server_s_not_those_of_our_own_session(server: Throwaway) -> None:
    async with reading(place(server)) as reader:
        sample = await reader.read(sections.parameters)
        assert isinstance(sample, ParameterSample)
        found = {parameter.name: parameter for parameter in sample.parameters}
        for name in connection_module.SESSION_SETTINGS:
            assert found[name].source == "default", name
        assert found["shared_buffers"].unit == "8kB"
        assert found["shared_buffers"].shown == "32MB"
        assert found["shared_buffers"].in_auto_conf is False
        assert found["wal_level"].enumvals == ("minimal", "replica", "logical")
        with psycopg.connect(conninfo(server)) as probe:
            assert probe.execute("SHOW default_transaction_read_only").fetchone() == ("off",)


async def test_the_password_of_a_standbys_connection_is_in_no_frame(fresh_server: Throwaway) -> None:
    with psycopg.connect(conninfo(fresh_server), autocommit=True) as connection:
        connection.execute("ALTER SYSTEM SET primary_conninfo = 'host=db1 password=sesame-4711 user=repl'")
        connection.execute("SELECT pg_reload_conf()")
    async with reading(place(fresh_server)) as reader:
        found = await eventually_set(reader)
    assert "user=repl" in found
    assert "sesame" not in found


async def eventually_set(reader: PostgresReader) -> str:
    """The row of primary_conninfo once the server has read its files."""
    deadline_s = time.monotonic() + DEADLINE_S
    while time.monotonic() < deadline_s:
        sample = await reader.read(sections.parameters)
        assert isinstance(sample, ParameterSample)
        (row,) = (each for each in sample.parameters if each.name == "primary_conninfo")
        if row.shown:
            return repr(row)
        await asyncio.sleep(0.05)
    raise AssertionError("the server did not read its files")
