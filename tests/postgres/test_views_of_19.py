"""What PostgreSQL 19 tells for the first time, made by real activity: long lock waits, recovery, REPACK, autovacuum."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import psycopg
import pytest

from pgtop_tune.cluster.throwaway import Throwaway
from pgtop_tune.metrics import sections
from pgtop_tune.metrics.catalogue import Interval
from pgtop_tune.metrics.progress import CommandProgress, progress_rows
from pgtop_tune.metrics.replication import ReceiverLag, receiver_lag
from pgtop_tune.model.postgres import Activity, WalCounters
from pgtop_tune.model.relations import ProgressSample, RelationSample
from pgtop_tune.model.replication import ReplicationSample, SlotSample
from pgtop_tune.model.waits import LockCounters, LockCounterSample
from pgtop_tune.postgres.reader import PostgresReader
from tests.postgres.conftest import place
from tests.postgres.reading import DEADLINE_S, eventually, reading
from tests.postgres.test_progress import SLOW, Start, progress_of
from tests.support.crowd import Connection, Crowd
from tests.support.frames import frame, postgres_sample
from tests.support.servers import conninfo
from tests.support.standby import standby_of

MAJOR = 19
UPDATE = "UPDATE queue SET n = n + 1 WHERE id = 1"


@pytest.fixture
def newest(server_for_major: Callable[[int], Throwaway]) -> Throwaway:
    return server_for_major(MAJOR)


async def counters(reader: PostgresReader) -> dict[str, LockCounters]:
    sample = await reader.read(sections.lock_counters)
    assert isinstance(sample, LockCounterSample)
    return {row.locktype: row for row in sample.types}


async def commands(reader: PostgresReader) -> list[CommandProgress]:
    progress, activity = await reader.read(sections.progress), await reader.read(sections.activity)
    assert isinstance(progress, ProgressSample)
    assert isinstance(activity, Activity)
    return progress_rows(Interval((frame(0, postgres=postgres_sample(0, progress=progress, activity=activity)),)))


def impatient(crowd: Crowd) -> Connection:
    """A session whose waits count as long ones at once."""
    return crowd.session("SET deadlock_timeout = '10ms'")


async def test_a_jam_counts_under_its_type_of_lock_when_it_is_over(
    make_server: Callable[..., Throwaway],
) -> None:
    server = make_server(MAJOR)
    where = conninfo(server)
    with psycopg.connect(where, autocommit=True) as connection:
        connection.execute("CREATE TABLE queue AS SELECT 1 AS id, 0 AS n")
        connection.execute("CREATE TABLE other (id int)")
        connection.execute("CREATE TABLE parts (id int) PARTITION BY LIST (id)")
        for number in range(200):
            connection.execute(f"CREATE TABLE part_{number} PARTITION OF parts FOR VALUES IN ({number})")
    crowd = Crowd(where)
    try:
        roots = crowd.session(UPDATE, "LOCK TABLE other", "SELECT pg_advisory_xact_lock(7)")
        waiters = [impatient(crowd) for _ in range(4)]
        # One waits for the transaction, the next for its place behind the row.
        crowd.queues(waiters[0], UPDATE)
        crowd.queues(waiters[1], UPDATE)
        crowd.queues(waiters[2], "SELECT * FROM other")
        crowd.queues(waiters[3], "SELECT pg_advisory_lock(7)")
        wanted = {"transactionid", "tuple", "relation", "advisory"}
        async with reading(place(server)) as reader:
            before = await counters(reader)
            assert {name for name in wanted if before[name].waits} == set()
            await asyncio.sleep(0.1)
            roots.rollback()

            async def over() -> bool:
                for waiter in waiters:
                    if waiter.info.transaction_status == psycopg.pq.TransactionStatus.INTRANS:
                        # A session that ends reports its counters; one that is idle may take ten seconds.
                        waiter.commit()
                        waiter.close()
                now = await counters(reader)
                return all(now[name].waits and now[name].wait_us >= 10_000 for name in wanted)

            await eventually(over)
            crowd.session("SELECT count(*) FROM parts").close()

            async def exceeded() -> bool:
                return (await counters(reader))["relation"].fastpath_exceeded > 0

            await eventually(exceeded)
    finally:
        crowd.close()


async def test_repack_shows_its_phase_and_its_blocks(newest: Throwaway, busy: Start) -> None:
    where = conninfo(newest)
    with psycopg.connect(where, autocommit=True) as connection:
        connection.execute("DROP TABLE IF EXISTS packed")
        connection.execute(
            "CREATE TABLE packed AS SELECT i AS id, repeat('x', 200) AS words FROM generate_series(1, 300000) i"
        )
        connection.execute("DELETE FROM packed WHERE id % 2 = 0")
    pid = busy(where, "REPACK packed", before="SET statement_timeout = '60s'", again=True)
    row = await progress_of(newest, lambda row: row.pid == pid and row.phase == "seq scanning heap" and bool(row.done))
    assert (row.command, row.relation, row.unit) == ("REPACK", "packed", "blocks")
    assert row.total is not None
    assert row.total > 4_000
    # A CLUSTER goes through the same view under its own name.
    with psycopg.connect(where, autocommit=True) as connection:
        connection.execute("SET statement_timeout = '60s'")
        connection.execute("CREATE INDEX packed_id ON packed (id)")
    pid = busy(where, "CLUSTER packed USING packed_id", again=True)
    row = await progress_of(newest, lambda row: row.pid == pid and bool(row.tuples))
    assert (row.command, row.relation) == ("CLUSTER", "packed (packed_id)")


async def test_repack_concurrently_catches_up_with_a_decoding_worker_that_is_no_parallel_one(
    make_server: Callable[..., Throwaway], busy: Start
) -> None:
    server = make_server(MAJOR, wal_level="logical", max_parallel_maintenance_workers="0")
    where = conninfo(server)
    with psycopg.connect(where, autocommit=True) as connection:
        connection.execute(
            "CREATE TABLE packed AS SELECT i AS id, repeat('x', 200) AS words FROM generate_series(1, 300000) i"
        )
        connection.execute("ALTER TABLE packed ADD PRIMARY KEY (id)")
    pid = busy(where, "REPACK (CONCURRENTLY) packed", before="SET statement_timeout = '60s'", again=True)
    found: list[CommandProgress] = []
    async with reading(place(server)) as reader:

        async def helped() -> bool:
            found[:] = [row for row in await commands(reader) if row.row.pid == pid and row.decoding]
            return bool(found)

        await eventually(helped)
    (row,) = found
    assert (row.row.command, row.row.relation, row.workers) == ("REPACK", "packed", 0)


async def test_a_vacuum_tells_who_began_it_and_how_thorough_it_is(newest: Throwaway, busy: Start) -> None:
    where = conninfo(newest)
    with psycopg.connect(where, autocommit=True) as connection:
        for name in ("swept", "sampled"):
            connection.execute(f"DROP TABLE IF EXISTS {name}".encode())
            filled = f"CREATE TABLE {name} AS SELECT repeat('x', 200) AS words FROM generate_series(1, 20000)"
            connection.execute(filled.encode())
    pid = busy(where, "VACUUM (FREEZE) swept", before=SLOW)
    row = await progress_of(newest, lambda row: row.pid == pid and bool(row.done))
    assert (row.started_by, row.mode) == ("manual", "aggressive")
    pid = busy(where, "ANALYZE sampled", before=SLOW)
    row = await progress_of(newest, lambda row: row.pid == pid)
    assert (row.started_by, row.mode) == ("manual", "")


async def test_the_parallel_workers_of_an_autovacuum_are_counted(make_server: Callable[..., Throwaway]) -> None:
    server = make_server(
        MAJOR, autovacuum_naptime="1s", autovacuum_max_parallel_workers="2", min_parallel_index_scan_size="0",
        autovacuum_vacuum_cost_delay="10ms", autovacuum_vacuum_cost_limit="100",
    )  # fmt: skip
    with psycopg.connect(conninfo(server), autocommit=True) as connection:
        connection.execute("CREATE TABLE swept (a int, b int, c int) WITH (autovacuum_enabled = off)")
        connection.execute("INSERT INTO swept SELECT i, i, i FROM generate_series(1, 100000) i")
        for column in "abc":
            connection.execute(f"CREATE INDEX ON swept ({column})")
        connection.execute("DELETE FROM swept WHERE a % 2 = 0")
        connection.execute("ALTER TABLE swept SET (autovacuum_enabled = on, autovacuum_parallel_workers = 2)")
    found: list[CommandProgress] = []
    rests = False

    async with reading(place(server)) as reader:
        with psycopg.connect(conninfo(server), autocommit=True) as connection:

            async def helped() -> bool:
                nonlocal rests
                seen = await commands(reader)
                found[:] = [row for row in seen if row.workers and row.row.relation == "swept"]
                if not (seen or rests):
                    # The first one is over, or has not begun: there is work for another one.
                    connection.execute("UPDATE swept SET a = a + 1")
                rests = not seen
                return bool(found)

            await eventually(helped)
    (row,) = found
    assert (row.row.command, row.row.started_by) == ("VACUUM", "autovacuum")
    assert row.workers <= 2


async def test_replay_that_waits_for_a_query_says_since_when(make_server: Callable[..., Throwaway]) -> None:
    primary = make_server(MAJOR, max_standby_streaming_delay="-1", hot_standby_feedback="off", autovacuum="off")
    standby = standby_of(primary, make_server, "kept", primary.binaries)

    async def lag() -> ReceiverLag:
        sample = await reader.read(sections.replication)
        assert isinstance(sample, ReplicationSample)
        found = receiver_lag(Interval((frame(0, postgres=postgres_sample(0, replication=sample)),)))
        assert found is not None
        return found

    async with reading(place(standby)) as reader:
        with (
            psycopg.connect(conninfo(primary), autocommit=True) as writer,
            psycopg.connect(conninfo(standby)) as query,
        ):
            writer.execute("CREATE TABLE swept AS SELECT generate_series(1, 1000) AS id")

            async def there() -> bool:
                found = query.execute("SELECT to_regclass('swept') IS NOT NULL").fetchone()
                query.commit()
                return found == (True,)

            await eventually(there)
            query.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            query.execute("SELECT count(*) FROM swept")
            writer.execute("DELETE FROM swept")
            writer.execute("VACUUM swept")

            async def stuck() -> bool:
                return (await lag()).not_caught_up_s is not None

            await eventually(stuck)
            first = await lag()
            assert first.receiver.replay_timeline == 1
            assert first.receiver.promoting is False

            async def longer() -> bool:
                return ((await lag()).not_caught_up_s or 0.0) > (first.not_caught_up_s or 0.0) + 0.5

            await eventually(longer)
            query.rollback()

            async def free() -> bool:
                return (await lag()).not_caught_up_s is None

            await eventually(free)


async def test_full_page_images_are_counted_in_bytes(newest: Throwaway) -> None:
    async with reading(place(newest)) as reader:

        async def wal() -> WalCounters:
            sample = await reader.read(sections.wal)
            assert isinstance(sample, WalCounters)
            return sample

        before = await wal()
        with psycopg.connect(conninfo(newest), autocommit=True) as connection:
            connection.execute("DROP TABLE IF EXISTS pages")
            connection.execute("CREATE TABLE pages AS SELECT generate_series(1, 10000) AS id")
            connection.execute("CHECKPOINT")
            connection.execute("UPDATE pages SET id = id + 1")
        deadline = time.monotonic() + DEADLINE_S
        while (now := await wal()).wal_fpi - before.wal_fpi < 40:
            assert time.monotonic() < deadline
        images, image_bytes = now.wal_fpi - before.wal_fpi, (now.wal_fpi_bytes or 0) - (before.wal_fpi_bytes or 0)
        assert 0 < image_bytes <= images * 8192
        assert image_bytes < now.wal_bytes - before.wal_bytes


async def test_a_table_past_its_threshold_has_a_score_from_one_on(newest: Throwaway) -> None:
    with psycopg.connect(conninfo(newest), autocommit=True) as connection:
        connection.execute("DROP TABLE IF EXISTS urgent")
        connection.execute("CREATE TABLE urgent (id int) WITH (autovacuum_enabled = off)")
        connection.execute("INSERT INTO urgent SELECT generate_series(1, 1000)")
        connection.execute("VACUUM ANALYZE urgent")
        connection.execute("DELETE FROM urgent")
        # Reported when the session ends.
    async with reading(place(newest)) as reader:

        async def scored() -> bool:
            sample = await reader.read(sections.relations)
            assert isinstance(sample, RelationSample)
            scores = {table.name: table.autovacuum_score for table in sample.tables}
            return (scores["public.urgent"] or 0.0) >= 1.0

        await eventually(scored)


async def test_decoding_that_runs_out_of_memory_is_counted_at_its_slot(make_server: Callable[..., Throwaway]) -> None:
    server = make_server(MAJOR, wal_level="logical", logical_decoding_work_mem="64kB")
    with psycopg.connect(conninfo(server), autocommit=True) as connection:
        connection.execute("SELECT pg_create_logical_replication_slot('decoded', 'test_decoding')")
        connection.execute("CREATE TABLE large AS SELECT repeat('x', 100) FROM generate_series(1, 20000)")
        connection.execute("SELECT count(*) FROM pg_logical_slot_get_changes('decoded', NULL, NULL)")
    async with reading(place(server)) as reader:

        async def counted() -> bool:
            sample = await reader.read(sections.slots)
            assert isinstance(sample, SlotSample)
            (slot,) = sample.slots
            return bool(slot.mem_exceeded) and slot.sync_skip_reason == ""

        await eventually(counted)
