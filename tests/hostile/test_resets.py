"""Counters that begin anew and databases that come and go, while a load runs: gaps and an event, never a spike."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
import pytest
from msgspec.structs import replace
from psycopg.conninfo import conninfo_to_dict

from pgtop_tune.cluster.throwaway import Throwaway
from pgtop_tune.metrics.catalogue import Interval
from pgtop_tune.metrics.io import database_rates
from pgtop_tune.metrics.server import METRICS, QPS, TPS
from pgtop_tune.model.events import EventKind
from pgtop_tune.model.io import DatabaseSample
from tests.hostile.watched import assert_fits_and_obeys_nothing, session_of
from tests.sampling.test_live_source import Watcher, answered, watching
from tests.support.servers import conninfo

RESETS = (
    "SELECT pg_stat_reset()",
    "SELECT pg_stat_reset_shared('bgwriter')",
    "SELECT pg_stat_reset_shared('wal')",
    "SELECT pg_stat_reset_shared('archiver')",
    "SELECT pg_stat_reset_slru(NULL)",
    "SELECT pg_stat_statements_reset()",
)


@contextmanager
def load(target: str) -> Iterator[list[int]]:
    """Transactions one after the other; how many there were so far."""
    done, stop = [0], threading.Event()

    def work() -> None:
        with psycopg.connect(target, autocommit=True) as connection:
            while not stop.wait(0.002):
                connection.execute("SELECT 1")
                done[0] += 1

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield done
    finally:
        stop.set()
        thread.join()


def spikes(watcher: Watcher, most_per_s: float) -> list[tuple[str, float]]:
    """Rates of transactions and statements, frame by frame, that nobody can have made; and whatever is negative."""
    found = []
    for end in range(2, len(watcher.frames) + 1):
        interval = Interval(watcher.frames[:end])
        for metric in (TPS, QPS):
            value = metric(interval)
            if value is not None and value > most_per_s:
                found.append((metric.id, value))
        found += [(metric.id, value) for metric in METRICS if (value := metric(interval)) is not None and value < 0]
    return found


async def answers(watcher: Watcher, count: int) -> None:
    """So many answers more."""
    for _ in range(count):
        last = watcher.frames[-1].sequence
        await watcher.until(lambda frame, last=last: answered(frame) and frame.sequence > last)


async def test_resets_of_every_kind_are_gaps_and_events(battered: Throwaway) -> None:
    target = conninfo(battered)
    with load(target), psycopg.connect(target, autocommit=True) as operator:
        async with watching(target, 0.4) as watcher:
            await watcher.until(answered)
            await answers(watcher, 4)
            for reset in RESETS:
                operator.execute(reset.encode())
                await answers(watcher, 2)
            await answers(watcher, 6)
    assert spikes(watcher, 2_000.0) == []
    assert_fits_and_obeys_nothing(session_of(watcher.frames))
    events = [event for frame in watcher.frames for event in frame.events if event.kind is EventKind.RESET]
    said = " ".join(event.detail for event in events)
    for what in ("pg_stat_database", "pg_stat_wal", "checkpoints", "pg_stat_archiver", "pg_stat_statements"):
        assert what in said
    assert {event.text for event in events} == {"statistics reset"}


@pytest.mark.long
async def test_databases_dropped_and_made_again_leave_no_trace_in_the_rates(battered: Throwaway) -> None:
    target = conninfo(battered)
    with psycopg.connect(target, autocommit=True) as operator:
        operator.execute("CREATE DATABASE passing")
        with psycopg.connect(conninfo(battered, "passing"), autocommit=True) as connection:
            for _ in range(3000):
                connection.execute("SELECT 1")
            connection.execute("SELECT pg_stat_reset()")
            for _ in range(3000):
                connection.execute("SELECT 1")
        with load(target) as done:
            async with watching(target, 0.4) as watcher:
                await watcher.until(answered)
                await answers(watcher, 4)
                for _ in range(2):
                    operator.execute("DROP DATABASE passing")
                    await answers(watcher, 3)
                    operator.execute("CREATE DATABASE passing")
                    await answers(watcher, 3)
                assert done[0] > 0
    assert spikes(watcher, 2_000.0) == []
    rates = [TPS(Interval(watcher.frames[:end])) for end in range(3, len(watcher.frames) + 1)]
    assert None in rates
    assert watcher.events(EventKind.RESET) == []
    names = [row.datname for row in watcher.frames[-1].postgres.databases.databases]
    assert names.count("passing") == 1
    assert conninfo_to_dict(target)["dbname"] in names


async def test_an_oid_that_is_another_database_by_now_has_no_growth(server: Throwaway) -> None:
    async with watching(conninfo(server), 0.5) as watcher:
        await watcher.until(answered)
        first = await watcher.until(answered)
        older = first.postgres.databases
        assert isinstance(older, DatabaseSample)
        rows = tuple(replace(row, datname="new", xact_commit=row.xact_commit + 10**9) for row in older.databases)
        newer = replace(older, at_s=older.at_s + 2.0, databases=rows)
        later = replace(first, sequence=first.sequence + 1, postgres=replace(first.postgres, databases=newer))
        assert [grown.by for grown in database_rates(Interval((first, later)))] == [None] * len(rows)


async def test_a_drop_that_the_others_work_hides_is_a_gap_all_the_same(server: Throwaway) -> None:
    async with watching(conninfo(server), 0.5) as watcher:
        first = await watcher.until(answered)
        older = first.postgres.database
        newer = replace(older, at_s=older.at_s + 1.0, xact_commit=older.xact_commit + 100)
        for databases, rate in ((older.databases + 1, 100.0), (older.databases, 100.0), (older.databases - 1, None)):
            changed = replace(first.postgres, database=replace(newer, databases=databases))
            later = replace(first, sequence=first.sequence + 1, postgres=changed)
            # The moments are seconds with many digits: their difference is not exactly one.
            assert TPS(Interval((first, later))) == (None if rate is None else pytest.approx(rate))
