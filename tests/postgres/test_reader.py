"""The sampler's connection against real servers: what it sees, what it leaves out, what it survives."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import psycopg
import pytest
from psycopg import sql

from pgtop_tune.cluster.throwaway import Throwaway
from pgtop_tune.errors import ConnectionProblem
from pgtop_tune.model.absence import Reason, Unavailable
from pgtop_tune.model.postgres import (
    Activity,
    Backend,
    CheckpointCounters,
    DatabaseCounters,
    ParameterSample,
    StatementTotals,
    WalCounters,
)
from pgtop_tune.model.statements import OWN_MARK
from pgtop_tune.model.waits import WaitCount
from pgtop_tune.postgres import connection as connection_module
from pgtop_tune.postgres.conninfo import ConnInfo
from pgtop_tune.postgres.own_sessions import OwnSessions
from pgtop_tune.postgres.reader import PostgresReader
from tests.postgres.conftest import Superuser, place
from tests.support.servers import conninfo

DEADLINE_S = 60.0


class Clock:
    """A clock the test moves."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


@asynccontextmanager
async def reading(
    where: ConnInfo, clock: Callable[[], float] = time.monotonic, own: OwnSessions | None = None
) -> AsyncIterator[PostgresReader]:
    reader = PostgresReader(where, clock, own)
    await reader.connect()
    try:
        yield reader
    finally:
        await reader.aclose()


async def eventually(look: Callable[[], Awaitable[bool]]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not await look():
        assert time.monotonic() < deadline, "did not happen"
        await asyncio.sleep(0.02)


async def backends(reader: PostgresReader) -> dict[int, Backend]:
    activity = await reader.activity()
    assert isinstance(activity, Activity)
    return {backend.pid: backend for backend in activity.backends}


@pytest.fixture
def busy() -> object:
    """Starts statements that do not come back by themselves, in threads; cancelled after the test."""
    running: list[tuple[psycopg.Connection[tuple[object, ...]], threading.Thread]] = []

    def start(where: str, text: str, *, before: str = "") -> int:
        connection = psycopg.connect(where, autocommit=True)
        if before:
            connection.execute(before.encode())

        def run() -> None:
            try:
                connection.execute(text.encode())
            except psycopg.Error:
                pass

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        running.append((connection, thread))
        return connection.info.backend_pid

    yield start
    for connection, _ in reversed(running):
        connection.cancel_safe()
    for connection, thread in running:
        thread.join(DEADLINE_S)
        connection.close()


async def test_every_section_comes_from_every_major(all_servers: Throwaway) -> None:
    async with reading(place(all_servers)) as reader:
        facts = await reader.facts()
        assert not isinstance(facts, Unavailable)
        assert facts.version_num // 10_000 == all_servers.binaries.major
        assert facts.data_directory == str(all_servers.data_dir)
        assert facts.endpoint == f"{all_servers.socket_dir}:{all_servers.port}"
        assert (facts.superuser, facts.monitor_role, facts.in_recovery) == (True, True, False)
        assert facts.system_identifier.isdigit()
        wanted = {
            reader.database: DatabaseCounters,
            reader.wal: WalCounters,
            reader.checkpoints: CheckpointCounters,
            reader.statements: StatementTotals,
            reader.parameters: ParameterSample,
            reader.activity: Activity,
        }
        for read, kind in wanted.items():
            assert isinstance(await read(), kind)
        assert reader.over_socket
        assert isinstance(await reader.waits(), list)


async def test_counters_count_what_happens(server: Throwaway, superuser: Superuser) -> None:
    async with reading(place(server)) as reader:
        database, wal, statements = await reader.database(), await reader.wal(), await reader.statements()
        assert isinstance(database, DatabaseCounters)
        assert isinstance(wal, WalCounters)
        assert isinstance(statements, StatementTotals)
        superuser.execute("CREATE TABLE IF NOT EXISTS counted (n int)")
        for number in range(30):
            superuser.execute("INSERT INTO counted VALUES (%s)", (number,))
        superuser.execute("SELECT pg_stat_force_next_flush()")
        superuser.execute("DROP TABLE counted")

        async def seen() -> bool:
            later = await reader.database()
            assert isinstance(later, DatabaseCounters)
            return later.xact_commit >= database.xact_commit + 32 and later.tup_inserted >= database.tup_inserted + 30

        await eventually(seen)
        later_wal, later_statements = await reader.wal(), await reader.statements()
        assert isinstance(later_wal, WalCounters)
        assert isinstance(later_statements, StatementTotals)
        assert later_wal.wal_records >= wal.wal_records + 30
        assert (later_wal.lsn_bytes or 0) > (wal.lsn_bytes or 0)
        assert later_statements.calls >= statements.calls + 32


async def settled(reader: PostgresReader) -> DatabaseCounters:
    """A backend reports its own transactions when it has been idle for a while: waits until two looks agree."""
    previous = -1
    while True:
        seen = await reader.database()
        assert isinstance(seen, DatabaseCounters)
        others = seen.xact_commit + seen.xact_rollback - seen.own_transactions
        if others == previous:
            return seen
        previous = others
        await asyncio.sleep(1.1)


async def test_looks_made_meanwhile_do_not_pass_for_the_work_of_others(make_server: Callable[..., Throwaway]) -> None:
    async with reading(place(make_server(autovacuum="off"))) as reader:
        await reader.waits()
        await settled(reader)
        others = set()
        for _ in range(20):
            _, seen, _, _ = await asyncio.gather(reader.waits(), reader.database(), reader.waits(), reader.waits())
            assert isinstance(seen, DatabaseCounters)
            others.add(seen.xact_commit + seen.xact_rollback - seen.own_transactions)
        assert len(others) == 1


async def test_what_we_do_ourselves_is_known_exactly(make_server: Callable[..., Throwaway]) -> None:
    server = make_server(autovacuum="off")
    async with reading(place(server)) as reader:
        looks = 25

        before, calls_before = await settled(reader), await reader.statements()
        for _ in range(looks):
            await reader.waits()
            await reader.activity()
        await reader.parameters()
        calls_after, after = await reader.statements(), await settled(reader)
        assert isinstance(calls_before, StatementTotals)
        assert isinstance(calls_after, StatementTotals)
        ours = after.own_transactions - before.own_transactions
        assert ours >= 2 * looks
        seen = after.xact_commit + after.xact_rollback - before.xact_commit - before.xact_rollback
        assert seen == ours
        assert calls_after.calls - calls_before.calls == calls_after.own_calls - calls_before.own_calls > 2 * looks


async def test_our_own_sessions_are_left_out_and_counted(server: Throwaway) -> None:
    own = OwnSessions()
    async with reading(place(server), own=own) as reader, reading(place(server), own=own) as second:
        assert own.pids == {reader.backend_pid, second.backend_pid}
        activity = await reader.activity()
        assert isinstance(activity, Activity)
        assert activity.own_backends == 2
        assert not own.pids & {backend.pid for backend in activity.backends}
        assert abs(activity.now_ms / 1000 - time.time()) < 60
    assert own.pids == set()
    async with reading(place(server)) as reader, reading(place(server)) as stranger:
        assert stranger.backend_pid in await backends(reader)


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
            assert now[foreign].query == "SELECT pg_sleep(60), '\ufffd'"
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
            for read in (reader.activity, reader.waits, reader.database, reader.wal, reader.checkpoints, reader.facts):
                assert not isinstance(await read(), Unavailable)
            assert not isinstance(await reader.parameters(), Unavailable)
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
            counts = await reader.waits()
            assert isinstance(counts, list)
            (lock,) = (count for count in counts if count.wait_event_type == "Lock")
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
                counts = await reader.waits()
                assert not isinstance(counts, Unavailable)
                seen.clear()
                seen.update({(each.wait_event_type, each.wait_event): each.observations for each in counts})
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
                counts = await reader.waits()
                assert isinstance(counts, list)
                return [count for count in counts if (count.wait_event_type, count.wait_event) == ("Client", event)]

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
            counts = await reader.waits()
            assert isinstance(counts, list)
            return any(count.wait_event_type == "CPU" and count.backend_type == "client backend" for count in counts)

        await eventually(computing)


async def test_parameters_are_the_server_s_not_those_of_our_own_session(server: Throwaway) -> None:
    async with reading(place(server)) as reader:
        sample = await reader.parameters()
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


async def test_the_session_cannot_write_and_does_not_wait(server: Throwaway, superuser: Superuser) -> None:
    async with reading(place(server)) as reader:
        assert reader._connection is not None
        values = await reader._connection.fetch(
            "SELECT current_setting('transaction_read_only'), current_setting('lock_timeout'),"
            " current_setting('statement_timeout'), current_setting('jit'), current_setting('application_name')"
        )
        assert tuple(values[0]) == ("on", "50ms", "1s", "off", "pgtop-tune")


async def test_a_role_without_pg_monitor_is_told_what_it_misses(
    server: Throwaway, role: Callable[..., str], busy: Callable[..., int]
) -> None:
    name = role()
    pid = busy(conninfo(server), "SELECT pg_sleep(60)")
    async with reading(place(server, user=name)) as reader:
        facts = await reader.facts()
        assert not isinstance(facts, Unavailable)
        assert (facts.superuser, facts.monitor_role, facts.data_directory) == (False, False, "")
        hidden = (await backends(reader))[pid]
        assert hidden.query == "<insufficient privilege>"
        assert (hidden.backend_type, hidden.state) == ("client backend", None)
        for read in (reader.database, reader.wal, reader.checkpoints, reader.statements, reader.waits):
            assert not isinstance(await read(), Unavailable)
        sample = await reader.parameters()
        assert isinstance(sample, ParameterSample)
        assert {parameter.in_auto_conf for parameter in sample.parameters} == {None}
        capabilities = reader.capabilities
        assert not isinstance(capabilities, Unavailable)
        assert any(f"GRANT pg_monitor TO {name}" in sentence for sentence in capabilities.limits(facts))


async def test_pg_monitor_is_enough(server: Throwaway, role: Callable[..., str], busy: Callable[..., int]) -> None:
    pid = busy(conninfo(server), "SELECT pg_sleep(60)")
    async with reading(place(server, user=role("pg_monitor"))) as reader:
        facts, capabilities = await reader.facts(), reader.capabilities
        assert not isinstance(facts, Unavailable)
        assert not isinstance(capabilities, Unavailable)
        assert facts.data_directory
        assert capabilities.limits(facts) == ()
        assert "pg_sleep" in ((await backends(reader))[pid].query or "")


async def test_without_the_extension_the_section_says_how_to_get_it(
    server: Throwaway, superuser: Superuser, database: str
) -> None:
    name = database.rsplit("dbname=", 1)[1]
    with psycopg.connect(database, autocommit=True) as inside:
        inside.execute("DROP EXTENSION IF EXISTS pg_stat_statements")
        async with reading(place(server, name)) as reader:
            missing = await reader.statements()
            assert isinstance(missing, Unavailable)
            assert missing.reason is Reason.NO_EXTENSION
            assert "CREATE EXTENSION pg_stat_statements" in missing.detail
            inside.execute('CREATE SCHEMA "Odd ""schema"')
            inside.execute('CREATE EXTENSION pg_stat_statements SCHEMA "Odd ""schema"')
            await reader.parameters()
            assert isinstance(await reader.statements(), StatementTotals)


async def test_all_that_a_session_of_ours_executes_is_marked_in_pg_stat_statements(
    server: Throwaway, superuser: Superuser, role: Callable[..., str]
) -> None:
    name = role("pg_monitor")
    superuser.execute("CREATE EXTENSION IF NOT EXISTS pg_stat_statements")
    async with reading(place(server, user=name)) as reader:
        await reader.parameters()
        await reader.activity()
        await reader.database()
        assert isinstance(await reader.waits(), list)
    texts = superuser.execute(
        "SELECT query FROM pg_stat_statements WHERE userid = (SELECT oid FROM pg_roles WHERE rolname = %s)", [name]
    ).fetchall()
    assert len(texts) > 4
    assert [text for (text,) in texts if OWN_MARK not in text] == []


async def test_without_the_library_the_section_says_so(make_server: Callable[..., Throwaway]) -> None:
    async with reading(place(make_server(shared_preload_libraries=""))) as reader:
        missing = await reader.statements()
        assert isinstance(missing, Unavailable)
        assert "shared_preload_libraries" in missing.detail


async def test_a_refused_query_is_left_alone_for_a_while_and_then_tried_again(
    database: str, server: Throwaway, superuser: Superuser, role: Callable[..., str]
) -> None:
    clock, name = Clock(), role()
    with psycopg.connect(database, autocommit=True) as inside:
        inside.execute("REVOKE EXECUTE ON FUNCTION pg_control_checkpoint() FROM PUBLIC")
        async with reading(place(server, database.rsplit("dbname=", 1)[1], name), clock) as reader:
            refused = await reader.checkpoints()
            assert isinstance(refused, Unavailable)
            assert refused.reason is Reason.NO_PERMISSION
            assert "permission denied for function pg_control_checkpoint" in refused.detail
            sent = reader.own.statements
            assert await reader.checkpoints() == refused
            assert reader.own.statements == sent, "nothing is sent while it is switched off"
            inside.execute("GRANT EXECUTE ON FUNCTION pg_control_checkpoint() TO PUBLIC")
            clock.now_s += 3
            assert isinstance(await reader.checkpoints(), Unavailable)
            clock.now_s += 3
            assert isinstance(await reader.checkpoints(), CheckpointCounters)


async def test_the_pause_grows_while_the_server_keeps_refusing(
    database: str, server: Throwaway, role: Callable[..., str]
) -> None:
    clock, name = Clock(), role()
    with psycopg.connect(database, autocommit=True) as inside:
        inside.execute("REVOKE EXECUTE ON FUNCTION pg_control_checkpoint() FROM PUBLIC")
    async with reading(place(server, database.rsplit("dbname=", 1)[1], name), clock) as reader:
        asked = []
        for _ in range(600):
            before = reader.own.statements
            await reader.checkpoints()
            if reader.own.statements != before:
                asked.append(clock.now_s - 1000)
            clock.now_s += 1
        assert asked == [0, 5, 15, 35, 75, 155, 315]


async def test_the_server_plans_each_query_once(server: Throwaway) -> None:
    async with reading(place(server)) as reader:
        for _ in range(7):
            for read in (reader.waits, reader.activity, reader.wal, reader.database, reader.checkpoints):
                assert not isinstance(await read(), Unavailable)
        assert reader._connection is not None
        plans = await reader._connection.fetch(
            "SELECT statement, generic_plans + custom_plans FROM pg_prepared_statements"
        )
        used = [uses for text, uses in plans if "FROM pg_stat_" in text and "pg_extension" not in text]
        assert used == [7] * 5


async def test_a_prepared_statement_survives_a_change_of_what_it_reads(server: Throwaway, superuser: Superuser) -> None:
    superuser.execute("CREATE TABLE shape (n int)")
    superuser.execute("INSERT INTO shape VALUES (1)")
    async with reading(place(server)) as reader:
        assert reader._connection is not None
        assert len((await reader._connection.fetch("SELECT * FROM shape"))[0]) == 1
        superuser.execute("ALTER TABLE shape ADD COLUMN m text DEFAULT 'x'")
        assert len((await reader._connection.fetch("SELECT * FROM shape"))[0]) == 2
        superuser.execute("DROP TABLE shape")


async def test_a_terminated_session_is_a_problem_and_connecting_again_goes_on(
    server: Throwaway, superuser: Superuser
) -> None:
    async with reading(place(server)) as reader:
        superuser.execute("SELECT pg_terminate_backend(%s, 5000)", (reader.backend_pid,))
        with pytest.raises(ConnectionProblem):
            await reader.waits()
        assert not reader.connected
        with pytest.raises(ConnectionProblem, match="not connected"):
            await reader.activity()
        await reader.connect()
        assert isinstance(await reader.activity(), Activity)


async def test_a_server_restart_is_survived(fresh_server: Throwaway) -> None:
    async with reading(place(fresh_server)) as reader:
        before = await reader.facts()
        await asyncio.to_thread(fresh_server.restart)
        with pytest.raises(ConnectionProblem):
            await reader.database()
        after = await reader.connect()
        assert not isinstance(before, Unavailable)
        assert after.started_ms > before.started_ms


async def test_a_server_that_does_not_answer_is_given_up(
    fresh_server: Throwaway, monkeypatch: pytest.MonkeyPatch
) -> None:
    import os
    import signal

    monkeypatch.setattr(connection_module, "ANSWER_TIMEOUT_S", 0.3)
    async with reading(place(fresh_server)) as reader:
        pid = reader.backend_pid
        assert pid is not None
        os.kill(pid, signal.SIGSTOP)
        try:
            with pytest.raises(ConnectionProblem, match="no answer in time"):
                await asyncio.wait_for(reader.waits(), DEADLINE_S)
            assert not reader.connected
        finally:
            os.kill(pid, signal.SIGCONT)
        await reader.connect()
        assert isinstance(await reader.waits(), list)


async def test_a_slow_query_is_cut_off_by_the_server_and_switched_off(server: Throwaway, superuser: Superuser) -> None:
    async with reading(place(server)) as reader:

        async def slow(connection: object) -> object:
            return await connection.fetch("SELECT pg_sleep(30)")  # type: ignore[attr-defined]

        refused = await reader._guarded("slow", slow)
        assert isinstance(refused, Unavailable)
        assert refused.reason is Reason.TOO_SLOW
        assert reader.connected


async def test_calls_may_overlap(server: Throwaway) -> None:
    async with reading(place(server)) as reader:
        answers = await asyncio.gather(
            *(read() for read in (reader.waits, reader.activity, reader.wal) for _ in range(5))
        )
        assert not any(isinstance(answer, Unavailable) for answer in answers)


async def test_track_activities_off_is_said(make_server: Callable[..., Throwaway]) -> None:
    async with reading(place(make_server(track_activities="off"))) as reader:
        missing = await reader.activity()
        assert isinstance(missing, Unavailable)
        assert missing.reason is Reason.SWITCHED_OFF


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
        sample = await reader.parameters()
        assert isinstance(sample, ParameterSample)
        (row,) = (each for each in sample.parameters if each.name == "primary_conninfo")
        if row.shown:
            return repr(row)
        await asyncio.sleep(0.05)
    raise AssertionError("the server did not read its files")
