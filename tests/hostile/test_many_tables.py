"""Ten thousand tables: looked at within the time limits, with frames, recordings and memory that stay small."""

from __future__ import annotations

import json
import time
from pathlib import Path

import psycopg
import pytest

from pgtop_tune.cluster.throwaway import Throwaway
from pgtop_tune.metrics import sections
from pgtop_tune.model.absence import Unavailable
from pgtop_tune.model.frame import Frame
from pgtop_tune.model.relations import RelationSample
from pgtop_tune.postgres.reader import PostgresReader
from pgtop_tune.postgres.server.conninfo import resolve
from pgtop_tune.recording.recorder import Recorder
from pgtop_tune.runtime.ports import Step
from tests.hostile.watched import assert_fits_and_obeys_nothing, session_of
from tests.sampling.test_live_source import answered, watching
from tests.support.servers import conninfo

TABLES = 10_000
AT_ONCE = 500
MOST_ROWS = 320
MOST_BYTES_A_FRAME = 60_000


@pytest.mark.long
async def test_ten_thousand_tables_are_watched_within_the_limits(fresh_server: Throwaway, tmp_path: Path) -> None:
    target = conninfo(fresh_server)
    with psycopg.connect(target, autocommit=True) as connection:
        for first in range(0, TABLES, AT_ONCE):
            connection.execute(
                "DO $$ BEGIN FOR i IN "
                + str(first)
                + " .. "
                + str(first + AT_ONCE - 1)
                + " LOOP EXECUTE format('CREATE TABLE t%s (id int PRIMARY KEY, word text)', i); END LOOP; END $$"
            )
        connection.execute("INSERT INTO t77 SELECT i, 'x' FROM generate_series(1, 1000) i")
    reader = PostgresReader(resolve(target), time.monotonic)
    await reader.connect()
    spent_ms = []
    for _ in range(3):
        before = reader.own.statement_ms
        sample = await reader.read(sections.relations)
        assert isinstance(sample, RelationSample), sample
        spent_ms.append(round(reader.own.statement_ms - before))
    await reader.aclose()
    assert sample.n_tables >= TABLES
    assert len(sample.tables) <= MOST_ROWS
    assert "public.t77" in {table.name for table in sample.tables}

    async with watching(target, 0.5) as watcher:
        await watcher.until(answered)
        last = await watcher.until(lambda frame: answered(frame) and frame.sequence > 20)
    assert not isinstance(last.postgres.relations, Unavailable)
    assert_fits_and_obeys_nothing(session_of(watcher.frames))
    sizes = recorded_bytes(watcher.frames, tmp_path / "many.jsonl")
    assert sizes / len(watcher.frames) < MOST_BYTES_A_FRAME
    with psycopg.connect(target, autocommit=True) as connection:
        rows = connection.execute(
            "SELECT round(mean_exec_time::numeric, 1)::text, round(max_exec_time::numeric, 1)::text, calls,"
            " regexp_replace(left(query, 90), '\\s+', ' ', 'g'), query FROM pg_stat_statements"
            " WHERE query LIKE '%%pgtop-tune%%' ORDER BY max_exec_time DESC LIMIT 6"
        ).fetchall()
    print(json.dumps({"relations_ms": spent_ms, "bytes_per_frame": sizes // len(watcher.frames)}))
    for row in rows:
        print(row[:4])
    assert not any(word in str(row[4]) for row in rows for word in ("pg_relation_size", "pg_total_relation_size"))


def recorded_bytes(frames: list[Frame], path: Path) -> int:
    """Size of a recording of the frames."""
    recorder = Recorder("somewhere", 0.5)
    recorder.start(str(path))
    for frame in frames:
        recorder.accept(Step((frame,)))
    recorder.close()
    return path.stat().st_size
