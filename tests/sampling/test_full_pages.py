"""The share of full-page images in the WAL, beside what pg_walinspect reads out of the WAL itself."""

from __future__ import annotations

import time
from collections.abc import Callable

import psycopg
import pytest
from msgspec.structs import replace

from pgtop_tune.cluster.throwaway import Throwaway
from pgtop_tune.metrics import sections
from pgtop_tune.metrics.catalogue import Interval
from pgtop_tune.metrics.server import FULL_PAGES, full_pages
from pgtop_tune.model.frame import Frame
from pgtop_tune.model.postgres import PostgresSample
from pgtop_tune.postgres.reader import PostgresReader
from pgtop_tune.runtime.ports import Step
from pgtop_tune.runtime.session import Session
from pgtop_tune.tui.dashboard.wal import wal_lines
from pgtop_tune.tui.widgets.lines import UNICODE, plain_text
from tests.postgres.conftest import place
from tests.support.frames import frame
from tests.support.servers import conninfo

TRUTH = "SELECT 100.0 * sum(fpi_size) / sum(combined_size) FROM pg_get_wal_stats(%s, %s)"


async def looked(reader: PostgresReader, second: int) -> Frame:
    sample = PostgresSample(
        server=await reader.facts(),
        wal=await reader.read(sections.wal),
        parameters=await reader.read(sections.parameters),
        checkpoints=await reader.read(sections.checkpoints),
    )
    return frame(second, postgres=sample)


@pytest.mark.parametrize("compression", ["off", "pglz"])
async def test_by_bytes_and_not_by_records(make_server: Callable[..., Throwaway], compression: str) -> None:
    server = make_server(wal_compression=compression, autovacuum="off")
    reader = PostgresReader(place(server), time.monotonic)
    await reader.connect()
    try:
        with psycopg.connect(conninfo(server), autocommit=True) as psql:
            psql.execute("CREATE EXTENSION pg_walinspect")
            psql.execute("CREATE TABLE t AS SELECT n, repeat('x', 60) AS filler FROM generate_series(1, 60000) n")
            psql.execute("CHECKPOINT")
            psql.execute("SELECT pg_stat_force_next_flush()")
            before = await looked(reader, 0)
            first = psql.execute("SELECT pg_current_wal_insert_lsn()").fetchone()
            # A few changes of each page: most records carry no image, most bytes are images.
            psql.execute("UPDATE t SET n = -n WHERE n % 9 = 0")
            psql.execute("SELECT pg_stat_force_next_flush()")
            psql.execute("SELECT 1")
            after = await looked(reader, 1)
            last = psql.execute("SELECT pg_current_wal_flush_lsn()").fetchone()
            assert first is not None
            assert last is not None
            row = psql.execute(TRUTH, (first[0], last[0])).fetchone()
    finally:
        await reader.aclose()
    assert row is not None
    truth = float(row[0])
    found = full_pages(Interval((before, after)))
    assert found is not None
    assert (found.estimated, found.compressed) == (True, compression != "off")
    assert FULL_PAGES(Interval((before, after))) == found.percent <= 100.0
    session = Session()
    session.apply(Step((before, after)))
    text = plain_text(wal_lines(session, 300, 1, UNICODE)[0])
    if compression == "off":
        assert found.percent == pytest.approx(truth, abs=8.0)
        assert found.percent > 30.0
        assert f"full pages ~{found.percent:.0f} %" in text
    else:
        assert found.percent > truth + 10.0, "what pglz saves is in no counter"
        assert f"full pages at most {found.percent:.0f} % (wal_compression)" in text


def test_bytes_that_the_server_counts_are_no_estimate() -> None:
    frames = []
    for second in (0, 1):
        made = frame(second)
        wal = replace(made.postgres.wal, wal_bytes=1_000_000 * second, wal_fpi_bytes=860_000 * second)
        frames.append(replace(made, postgres=replace(made.postgres, wal=wal)))
    found = full_pages(Interval(frames))
    assert found is not None
    assert (found.percent, found.estimated, found.compressed) == (86.0, False, False)


def test_next_to_no_wal_has_no_share() -> None:
    """ "full pages ~100 %" stood beside WAL of 0 B/s."""
    pair = [replace(made := frame(second), postgres=replace(
        made.postgres, wal=replace(made.postgres.wal, wal_bytes=8_000 * second, wal_fpi_bytes=8_000 * second)
    )) for second in (0, 1)]  # fmt: skip
    assert full_pages(Interval(pair)) is None
