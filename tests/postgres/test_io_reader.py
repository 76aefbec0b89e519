"""Databases, pg_stat_io, SLRU, archiver, WAL files on real servers: work done there shows in the rows."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import psycopg
import pytest

from pgtop_tune.cluster.throwaway import Throwaway
from pgtop_tune.metrics import sections
from pgtop_tune.metrics.io import segment_number
from pgtop_tune.model.absence import Reason, Unavailable
from pgtop_tune.model.io import ArchiverStatus, DatabaseRow, DatabaseSample, IoSample, SlruSample, WalFiles
from pgtop_tune.model.postgres import CheckpointCounters, WalCounters
from pgtop_tune.postgres.reader import PostgresReader
from tests.postgres.conftest import place
from tests.postgres.reading import reading
from tests.support.servers import conninfo

DEADLINE_S = 60.0


async def eventually(look: Callable[[], Awaitable[bool]], nudge: Callable[[], object]) -> None:
    """Until it is so; statistics reach the views up to a second after the work, when a session does more."""
    deadline = time.monotonic() + DEADLINE_S
    while not await look():
        assert time.monotonic() < deadline, "did not happen"
        nudge()


async def rows_of(reader: PostgresReader) -> dict[str | None, DatabaseRow]:
    found = await reader.read(sections.databases)
    assert isinstance(found, DatabaseSample), found
    return {row.datname: row for row in found.databases}


async def test_each_database_counts_its_own(all_servers: Throwaway) -> None:
    with psycopg.connect(conninfo(all_servers), autocommit=True) as admin:
        admin.execute('DROP DATABASE IF EXISTS "odd ""name"')
        admin.execute('CREATE DATABASE "odd ""name"')
        try:
            async with reading(place(all_servers)) as reader:
                other = (await rows_of(reader))["template1"]
                with psycopg.connect(f"{conninfo(all_servers)} dbname='odd \"name'", autocommit=True) as inside:
                    inside.execute("CREATE TABLE t (n int)")
                    for number in range(200):
                        inside.execute("INSERT INTO t VALUES (%s)", (number,))
                    inside.execute("UPDATE t SET n = n + 1")

                    async def counted() -> bool:
                        row = (await rows_of(reader))['odd "name']
                        return row.xact_commit >= 202 and row.tup_inserted >= 200 and row.tup_updated >= 200

                    await eventually(counted, lambda: inside.execute("SELECT pg_sleep(0.2)"))
                    row = (await rows_of(reader))['odd "name']
                    assert row.numbackends == 1
                    assert row.sessions >= 1
                    assert row.active_us > 0
                # Autovacuum looks in there as well, on a slow machine more than once.
                assert (await rows_of(reader))["template1"].xact_commit - other.xact_commit < 100
                assert (await rows_of(reader))[None].datid == 0
        finally:
            admin.execute('DROP DATABASE "odd ""name" WITH (FORCE)')


async def test_of_many_databases_the_busiest_are_kept(fresh_server: Throwaway) -> None:
    with psycopg.connect(conninfo(fresh_server), autocommit=True) as admin:
        for number in range(105):
            admin.execute(f"CREATE DATABASE many_{number} STRATEGY file_copy".encode())
        async with reading(place(fresh_server)) as reader:
            found = await reader.read(sections.databases)
            assert isinstance(found, DatabaseSample)
            assert len(found.databases) == 100
            assert found.left_out == 9
            assert "postgres" in {row.datname for row in found.databases}


async def test_work_shows_in_pg_stat_io(all_servers: Throwaway) -> None:
    async with reading(place(all_servers)) as reader:
        before = await reader.read(sections.io)
        if all_servers.binaries.major < 16:
            assert before == Unavailable(Reason.NOT_SUPPORTED, "pg_stat_io needs PostgreSQL 16")
            return
        assert isinstance(before, IoSample)
        assert before.stats_reset_ms is not None
        old = next(row for row in before.rows if row.id == "client backend/relation/normal")
        with psycopg.connect(conninfo(all_servers), autocommit=True) as connection:
            connection.execute("CREATE TABLE IF NOT EXISTS big_rows (words text)")
            connection.execute("INSERT INTO big_rows SELECT repeat('x', 1000) FROM generate_series(1, 3000)")

            async def extended() -> bool:
                now = await reader.read(sections.io)
                assert isinstance(now, IoSample)
                row = next(row for row in now.rows if row.id == old.id)
                return (row.extend_bytes or 0) >= (old.extend_bytes or 0) + 3_000_000

            await eventually(extended, lambda: connection.execute("SELECT pg_sleep(0.2)"))
            connection.execute("DROP TABLE big_rows")
        after = await reader.read(sections.io)
        assert isinstance(after, IoSample)
        assert len({row.id for row in after.rows}) == len(after.rows)
        assert ("wal" in {row.object for row in after.rows}) == (all_servers.binaries.major >= 18)
        assert all(
            any((row.reads, row.writes, row.extends, row.hits, row.fsyncs, row.writebacks)) for row in after.rows
        )


async def test_wal_is_written_and_synced_on_every_major(make_server: Callable[..., Throwaway], major: int) -> None:
    server = make_server(major, fsync="on", track_wal_io_timing="on", autovacuum="off")
    async with reading(place(server)) as reader:
        before = await reader.read(sections.wal)
        assert isinstance(before, WalCounters)
        assert before.wal_syncs is not None
        with psycopg.connect(conninfo(server), autocommit=True) as connection:
            connection.execute("CREATE TABLE logged (n int)")
            for number in range(30):
                connection.execute("INSERT INTO logged VALUES (%s)", (number,))

            async def synced() -> bool:
                now = await reader.read(sections.wal)
                assert isinstance(now, WalCounters)
                return (now.wal_syncs or 0) >= (before.wal_syncs or 0) + 31

            await eventually(synced, lambda: connection.execute("SELECT pg_sleep(0.2)"))
        after = await reader.read(sections.wal)
        assert isinstance(after, WalCounters)
        assert (after.wal_writes or 0) >= (before.wal_writes or 0) + 31
        assert (after.wal_sync_us or 0) > (before.wal_sync_us or 0)
        assert (after.wal_write_us or 0) > (before.wal_write_us or 0)


async def test_checkpoints_and_who_syncs(all_servers: Throwaway) -> None:
    async with reading(place(all_servers)) as reader:
        before = await reader.read(sections.checkpoints)
        with psycopg.connect(conninfo(all_servers), autocommit=True) as connection:
            connection.execute("CREATE TABLE IF NOT EXISTS touched (n int)")
            connection.execute("INSERT INTO touched SELECT generate_series(1, 1000)")
            connection.execute("CHECKPOINT")
            assert isinstance(before, CheckpointCounters)
            after = before

            async def counted() -> bool:
                nonlocal after
                found = await reader.read(sections.checkpoints)
                assert isinstance(found, CheckpointCounters)
                after = found
                return after.requested >= before.requested + 1

            await eventually(counted, lambda: connection.execute("SELECT pg_sleep(0.1)"))
            connection.execute("DROP TABLE touched")
        assert after.backend_fsyncs == before.backend_fsyncs
        if all_servers.binaries.major >= 18:
            assert (after.done or 0) >= (before.done or 0) + 1
            assert after.slru_written is not None
        else:
            assert (after.done, after.slru_written) == (None, None)


async def test_caches_of_transaction_states_have_rows(all_servers: Throwaway) -> None:
    async with reading(place(all_servers)) as reader:
        found = await reader.read(sections.slru)
        assert isinstance(found, SlruSample)
        assert len(found.slrus) == 8
        names = {row.name for row in found.slrus}
        assert ("transaction" if all_servers.binaries.major >= 17 else "Xact") in names


async def test_archiving_and_its_failures(make_server: Callable[..., Throwaway]) -> None:
    # The command runs in the data directory.
    server = make_server(archive_mode="on", archive_command="test -e archiving_works")
    async with reading(place(server)) as reader:

        async def seen() -> ArchiverStatus:
            found = await reader.read(sections.archiver)
            assert isinstance(found, ArchiverStatus)
            return found

        assert (await seen()).last_archived_wal == ""
        with psycopg.connect(conninfo(server), autocommit=True) as connection:
            connection.execute("CREATE TABLE moved (n int)")
            connection.execute("SELECT pg_switch_wal()")

            async def failed() -> bool:
                return (await seen()).failed_count > 0

            await eventually(failed, lambda: connection.execute("SELECT pg_sleep(0.2)"))
            status = await seen()
            assert status.last_failed_ms is not None
            assert segment_number(status.last_failed_wal, 16 << 20) == 1
            (Path(str(server.data_dir)) / "archiving_works").touch()

            async def archived() -> bool:
                return (await seen()).archived_count > 0

            await eventually(archived, lambda: connection.execute("SELECT pg_sleep(0.2)"))
        assert (segment_number((await seen()).last_archived_wal, 16 << 20) or 0) >= 1


async def test_segments_are_counted_and_their_directory_needs_a_right(
    all_servers: Throwaway, server: Throwaway, role: Callable[..., str]
) -> None:
    async with reading(place(all_servers)) as reader:
        found = await reader.read(sections.wal_files)
        assert isinstance(found, WalFiles)
        directory = Path(str(all_servers.data_dir)) / "pg_wal"
        assert found.segments == len([name for name in directory.iterdir() if len(name.name) == 24])
        assert found.wal_bytes >= found.segments * (16 << 20)
        assert found.recycled is not None
        assert 0 <= found.recycled < found.segments
    name = role()
    async with reading(place(server, user=name)) as reader:
        refused = await reader.read(sections.wal_files)
        assert isinstance(refused, Unavailable)
        assert refused.reason is Reason.NO_PERMISSION
        assert f"GRANT pg_monitor TO {name}" in refused.detail
        for section in (sections.databases, sections.io, sections.slru, sections.archiver):
            assert not isinstance(await reader.read(section), Unavailable)
    async with reading(place(server, user=role("pg_monitor"))) as reader:
        assert isinstance(await reader.read(sections.wal_files), WalFiles)


@pytest.fixture(params=(14, 15, 16, 17, 18), ids=lambda major: f"pg{major}")
def major(request: pytest.FixtureRequest) -> int:
    return int(request.param)
