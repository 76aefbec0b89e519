"""Active sessions of real servers beside what psql would count: sleeps that are meant and io workers are none."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final, LiteralString

import psycopg
import pytest

from pgtop_tune.cluster.throwaway import Throwaway
from pgtop_tune.metrics.catalogue import Interval
from pgtop_tune.metrics.waits import CLASSES, IO_WORKERS, METRICS, io_worker_processes, mean_over
from tests.sampling.test_live_source import Watcher, answered, watching
from tests.support.processes import eventually
from tests.support.servers import conninfo

SLEEPS: Final = {"PgSleep", "VacuumDelay", "CheckpointWriteDelay"}


def one(psql: psycopg.Connection[tuple[Any, ...]], question: LiteralString) -> Any:
    row = psql.execute(question).fetchone()
    return None if row is None else row[0]


def waited(psql: psycopg.Connection[tuple[Any, ...]]) -> set[str]:
    """Events that somebody waits for now."""
    return {row[0] for row in psql.execute("SELECT wait_event FROM pg_stat_activity WHERE wait_event IS NOT NULL")}


@contextmanager
def executing(target: str, statement: LiteralString, before: LiteralString = "SELECT 1") -> Iterator[None]:
    """A session that executes a statement until it is cancelled."""
    connection = psycopg.connect(target, autocommit=True)
    connection.execute(before)

    def execute() -> None:
        with suppress(psycopg.Error):
            connection.execute(statement)

    thread = threading.Thread(target=execute)
    thread.start()
    try:
        yield
    finally:
        connection.cancel_safe()
        thread.join(30)
        connection.close()


def over(watcher: Watcher, since: int) -> dict[str, float]:
    """Means of the frames since that one, by title."""
    frames = [frame for frame in watcher.frames if frame.sequence >= since]
    interval, window_s = Interval(frames), frames[-1].elapsed_s - frames[0].elapsed_s + 0.1
    return {metric.title: mean_over(metric, interval, window_s) or 0.0 for metric in METRICS}


@pytest.mark.parametrize("major", [pytest.param(14, marks=pytest.mark.long), 18])
async def test_an_idle_server_has_no_active_session_and_sleeps_stand_beside(
    make_server: Callable[..., Throwaway], major: int
) -> None:
    server = make_server(major, archive_mode="on", archive_command="sleep 600", autovacuum="off")
    target = conninfo(server)
    with psycopg.connect(target, autocommit=True) as psql:
        psql.execute("CREATE TABLE t AS SELECT n, repeat('x', 500) AS filler FROM generate_series(1, 20000) n")
        psql.execute("SELECT pg_switch_wal()")
        archives = (
            "SELECT wait_event IS DISTINCT FROM 'ArchiverMain' FROM pg_stat_activity WHERE backend_type = 'archiver'"
        )
        assert await asyncio.to_thread(eventually, lambda: bool(one(psql, archives)))
        async with watching(target) as watcher:
            await watcher.until(answered)
            first = (await watcher.more(4)).newest.sequence
            await watcher.more(5)
            idle = over(watcher, first)

            psql.execute("UPDATE t SET filler = upper(filler)")
            backup = "pg_start_backup('b', false, false)" if major < 15 else "pg_backup_start('b', false)"
            slow = "SET vacuum_cost_delay = '100ms'; SET vacuum_cost_limit = 1"
            with (
                executing(target, f"SELECT {backup}"),
                executing(target, "SELECT pg_sleep(90)"),
                executing(target, "VACUUM t", slow),
            ):
                sleeping = await asyncio.to_thread(eventually, lambda: waited(psql) >= SLEEPS)
                # A frame that came since may hold samples from before. A busy machine has fewer looks.
                all_wait = await watcher.until(lambda frame: over(watcher, frame.sequence)["Timeout"] >= 1.0)
                await watcher.more(8)
                found = over(watcher, all_wait.sequence)
    assert idle["active sessions"] < 0.2
    assert idle["pacing"] == pytest.approx(1.0, abs=0.3), "the archiver waits for its command"
    assert sleeping
    # pg_sleep, and the session that waits for the checkpoint.
    assert (found["Timeout"], found["IPC"]) == pytest.approx((1.0, 1.0), abs=0.1)
    assert found["active sessions"] == pytest.approx(2.0, abs=0.6)
    assert found["pacing"] == pytest.approx(3.0, abs=0.7), "checkpointer, VACUUM and archiver"
    assert found["active sessions"] == pytest.approx(sum(found[metric.title] for metric in CLASSES))


async def test_busy_io_workers_are_a_gauge_of_their_own(make_server: Callable[..., Throwaway]) -> None:
    server = make_server(io_method="worker", io_workers="2", shared_buffers="1MB", autovacuum="off")
    target = conninfo(server)
    with psycopg.connect(target, autocommit=True) as psql:
        psql.execute("CREATE TABLE t AS SELECT n, repeat('x', 900) AS filler FROM generate_series(1, 60000) n")
        scans = "DO $$ BEGIN FOR i IN 1..10000 LOOP PERFORM count(*) FROM t; END LOOP; END $$"
        with executing(target, scans, "SET max_parallel_workers_per_gather = 0"):
            async with watching(target) as watcher:
                await watcher.until(lambda frame: bool(IO_WORKERS(Interval((frame,)))))
                interval = await watcher.more(5)
        workers = one(psql, "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'io worker'")
    assert io_worker_processes(interval) == workers == 2
    found = over(watcher, 0)
    assert 0.0 < found["io workers busy"] <= 2.0
    # One session scans; what reads for it is not counted again.
    assert found["active sessions"] < 1.3
