"""Checkpoints come when they were forecast, on real servers under a steady stream of WAL."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import psycopg
import pytest

from pgtop_tune.cluster.throwaway import Throwaway
from pgtop_tune.metrics import sections
from pgtop_tune.metrics.catalogue import Interval
from pgtop_tune.metrics.checkpoints import NextCheckpoint, next_checkpoint
from pgtop_tune.metrics.server import checkpoints_between
from tests.sampling.test_live_source import Watcher, answered, watching
from tests.support.servers import conninfo


@contextmanager
def stream(where: str, bytes_per_s: int) -> Iterator[None]:
    """Writes WAL at a steady rate until left."""
    over = threading.Event()
    chunk = 100_000

    def run() -> None:
        with psycopg.connect(where, autocommit=True) as connection:
            began, written = time.monotonic(), 0
            while not over.is_set():
                connection.execute("SELECT pg_logical_emit_message(false, 'stream', repeat('x', %s))", (chunk,))
                written += chunk
                over.wait(max(began + written / bytes_per_s - time.monotonic(), 0.0))

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(10)


async def forecast_and_truth(watcher: Watcher, by: str, ahead_s: float) -> tuple[float, float, NextCheckpoint]:
    """The moment first forecast, at least so long ahead, and when one began, in seconds of the session."""
    found: list[tuple[float, NextCheckpoint]] = []
    while True:
        interval = await watcher.more(1)
        pair = interval.pair(sections.checkpoints)
        if pair is not None and found and sum(checkpoints_between(*pair) or ()):
            at_s, forecast = found[0]
            return at_s + forecast.in_s, pair[1].at_s, forecast
        coming = next_checkpoint(interval)
        if coming is not None and coming.by == by and coming.in_s >= ahead_s and _rate_is_known(interval):
            found.append((interval.newest.elapsed_s, coming))


def _rate_is_known(interval: Interval) -> bool:
    recent = interval.recent(sections.wal, 10.0)
    return recent[0].at_s - recent[-1].at_s > 3.0


@pytest.mark.long
@pytest.mark.parametrize("major", [14, 18])
async def test_forced_checkpoints_come_when_forecast(make_server: Callable[..., Throwaway], major: int) -> None:
    server = make_server(major, max_wal_size="64MB", min_wal_size="32MB", checkpoint_timeout="1h")
    target = conninfo(server)
    with psycopg.connect(target, autocommit=True) as connection:
        connection.execute("CHECKPOINT")
    with stream(target, 4_000_000):
        async with watching(target, 0.25) as watcher:
            await watcher.until(answered)
            for _ in range(2):
                forecast_s, truth_s, forecast = await asyncio.wait_for(
                    forecast_and_truth(watcher, "max_wal_size", 2.0), 40
                )
                assert forecast.forced
                assert forecast_s == pytest.approx(truth_s, abs=0.25 * forecast.in_s + 0.5)


@pytest.mark.long
async def test_timed_checkpoints_come_within_seconds(make_server: Callable[..., Throwaway]) -> None:
    server = make_server(checkpoint_timeout="30s", max_wal_size="10GB")
    target = conninfo(server)
    with stream(target, 200_000):
        async with watching(target, 0.5) as watcher:
            await watcher.until(answered)
            for _ in range(2):
                forecast_s, truth_s, forecast = await asyncio.wait_for(
                    forecast_and_truth(watcher, "checkpoint_timeout", 8.0), 70
                )
                assert not forecast.forced
                assert forecast_s == pytest.approx(truth_s, abs=3.0)
