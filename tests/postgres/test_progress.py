"""Commands that take their time, made by real sessions: the reader sees how far they are."""

from __future__ import annotations

import asyncio
import os
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest

from pgtop_tune.cluster.throwaway import Throwaway
from pgtop_tune.metrics import sections
from pgtop_tune.model.relations import ProgressRow, ProgressSample
from pgtop_tune.postgres.reader import PostgresReader
from tests.postgres.conftest import place
from tests.support.servers import conninfo

DEADLINE_S = 60.0
VARIANTS = (14, 17, 18, 19)
"""Majors whose progress views differ."""
SLOW = "SET vacuum_cost_delay = '100ms'; SET vacuum_cost_limit = 2"
"""Makes VACUUM and ANALYZE of some hundred pages last for minutes: they are seen by those who come late, too."""
Start = Callable[..., int]


async def progress_of(server: Throwaway, fits: Callable[[ProgressRow], bool]) -> ProgressRow:
    """The first row that fits, within the deadline."""
    reader = PostgresReader(place(server), time.monotonic)
    await reader.connect()
    seen: list[ProgressRow] = []
    try:
        deadline = time.monotonic() + DEADLINE_S
        while time.monotonic() < deadline:
            sample = await reader.read(sections.progress)
            assert isinstance(sample, ProgressSample)
            seen = list(sample.commands) or seen
            for row in sample.commands:
                if fits(row):
                    return row
            await asyncio.sleep(0.01)
    finally:
        await reader.aclose()
    raise AssertionError(f"never seen; last: {seen}")


@pytest.fixture(params=VARIANTS, ids=lambda major: f"pg{major}")
def filled(request: pytest.FixtureRequest, server_for_major: Callable[[int], Throwaway]) -> Iterator[Throwaway]:
    """A server with a table of some thousand pages, a third of its rows dead."""
    server = server_for_major(request.param)
    with psycopg.connect(conninfo(server), autocommit=True) as connection:
        connection.execute("DROP TABLE IF EXISTS large")
        connection.execute("CREATE TABLE large (id int, words text) WITH (autovacuum_enabled = off)")
        connection.execute("INSERT INTO large SELECT i, repeat('x', 200) FROM generate_series(1, 60000) i")
        connection.execute("CREATE INDEX ON large (id)")
        connection.execute("DELETE FROM large WHERE id % 3 = 0")
    yield server
    with psycopg.connect(conninfo(server), autocommit=True) as connection:
        connection.execute("DROP TABLE IF EXISTS large CASCADE")


async def test_a_vacuum_shows_how_many_blocks_are_done(filled: Throwaway, busy: Start) -> None:
    pid = busy(conninfo(filled), "VACUUM large", before=SLOW)
    row = await progress_of(filled, lambda row: row.command == "VACUUM" and bool(row.done))
    assert (row.pid, row.datname, row.relation, row.phase) == (pid, "postgres", "large", "scanning heap")
    assert row.total is not None
    assert 1_000 < row.total < 5_000
    assert row.done is not None
    assert row.done <= row.total
    assert (row.unit, row.steps_total) == ("blocks", row.total)
    assert row.memory_limit_bytes is not None
    assert row.memory_bytes is not None
    assert row.memory_limit_bytes > row.memory_bytes
    later = await progress_of(filled, lambda later: later.pid == pid and bool(later.tuples))
    assert (later.done or 0) >= row.done


async def test_an_index_under_way_shows_its_phase(filled: Throwaway, busy: Start) -> None:
    with psycopg.connect(conninfo(filled), autocommit=True) as connection:
        connection.execute(
            "CREATE OR REPLACE FUNCTION slow(id int) RETURNS int LANGUAGE plpgsql IMMUTABLE AS "
            "$$ BEGIN IF id % 100 = 0 THEN PERFORM pg_sleep(0.2); END IF; RETURN id; END $$"
        )
    pid = busy(
        conninfo(filled), "CREATE INDEX slowly ON large (slow(id))", before="SET max_parallel_maintenance_workers=0"
    )
    row = await progress_of(filled, lambda row: row.command == "CREATE INDEX" and bool(row.done))
    assert row.pid == pid
    assert row.relation.startswith("large")
    assert "building index" in row.phase
    assert row.unit == "blocks"
    assert row.total is not None
    assert row.total > 1_000


async def test_an_analyze_counts_sampled_blocks(filled: Throwaway, busy: Start) -> None:
    pid = busy(conninfo(filled), "ANALYZE large", before=SLOW)
    row = await progress_of(filled, lambda row: row.command == "ANALYZE" and bool(row.done))
    assert (row.pid, row.relation, row.phase) == (pid, "large", "acquiring sample rows")
    assert row.total is not None
    assert row.total > 1_000


async def test_a_copy_counts_bytes_and_rows(filled: Throwaway) -> None:
    with psycopg.connect(conninfo(filled)) as connection, connection.cursor() as cursor:
        with cursor.copy("COPY large FROM STDIN") as copy:
            for number in range(20_000):
                copy.write_row((number, "y" * 50))
            row = await progress_of(filled, lambda row: row.command == "COPY FROM" and bool(row.tuples))
            assert row.pid == connection.info.backend_pid
            assert (row.relation, row.phase, row.unit, row.total) == ("large", "pipe", "bytes", None)
            assert row.done is not None
            assert row.tuples is not None
            assert row.done >= row.tuples * 50
        connection.rollback()


async def test_a_relation_of_another_database_is_a_number(filled: Throwaway, busy: Start) -> None:
    with psycopg.connect(conninfo(filled), autocommit=True) as connection:
        connection.execute("DROP DATABASE IF EXISTS elsewhere")
        connection.execute("CREATE DATABASE elsewhere")
    try:
        where = conninfo(filled, "elsewhere")
        with psycopg.connect(where, autocommit=True) as connection:
            connection.execute("CREATE TABLE far AS SELECT repeat('x', 200) FROM generate_series(1, 20000)")
        pid = busy(where, "VACUUM far", before=SLOW)
        row = await progress_of(filled, lambda row: row.pid == pid)
        assert row.datname == "elsewhere"
        assert row.relation.isdigit()
    finally:
        with psycopg.connect(conninfo(filled), autocommit=True) as connection:
            connection.execute("DROP DATABASE elsewhere WITH (FORCE)")


@pytest.mark.parametrize("major", [14, 18, 19])
async def test_a_base_backup_counts_bytes(
    server_for_major: Callable[[int], Throwaway], server: Throwaway, major: int, tmp_path: Path
) -> None:
    # It copies older servers and not newer ones.
    tools, server = server_for_major(max(major, server.binaries.major)).binaries, server_for_major(major)
    backup = subprocess.Popen(
        [
            str(tools.program("pg_basebackup")), "--max-rate=1M", "--checkpoint=fast", "--no-sync",
            # Its other process, for the WAL, would outlive it and hold the connection open.
            "--wal-method=none", f"--pgdata={tmp_path / 'backup'}", f"--host={server.socket_dir}",
            f"--username={server.user}",
        ],
        env={**os.environ, **tools.environment()}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        row = await progress_of(server, lambda row: row.command == "BASE BACKUP" and bool(row.done))
    finally:
        backup.terminate()
        backup.wait(DEADLINE_S)
    assert (row.phase, row.unit, row.steps_total) == ("streaming database files", "bytes", 1)
    assert row.mode == ("full" if major >= 19 else "")
    assert row.total is not None
    assert row.done is not None
    assert row.done < row.total
