"""Clocks that are set while a session runs: rates come from the monotonic clock, ages are never negative."""

from __future__ import annotations

import re

import psycopg
import pytest
from msgspec.structs import replace

from pgtop_tune.metrics.catalogue import Interval
from pgtop_tune.metrics.server import TPS
from pgtop_tune.model.frame import Frame
from pgtop_tune.sampling.postgres_sampler import SessionClock
from pgtop_tune.tui.widgets.lines import plain_text
from tests.hostile.watched import assert_fits_and_obeys_nothing, everything, session_of
from tests.sampling.test_live_source import answered, watching

HOUR_MS = 3_600_000
NEGATIVE_AGE = re.compile(r"(?<![\w.])-\d+(\.\d+)?(ms|s|m|h|d)\b")


@pytest.mark.parametrize(
    "step_ms", [pytest.param(-HOUR_MS, id="back"), pytest.param(HOUR_MS, id="forth", marks=pytest.mark.long)]
)
async def test_the_wall_clock_is_set_while_we_watch(
    database: str, monkeypatch: pytest.MonkeyPatch, step_ms: int
) -> None:
    real = SessionClock.wall_ms
    async with watching(database, 0.4) as watcher:
        first = await watcher.until(lambda frame: answered(frame) and frame.sequence >= 3)
        monkeypatch.setattr(SessionClock, "wall_ms", staticmethod(lambda: real() + step_ms))
        last = await watcher.until(lambda frame: answered(frame) and frame.sequence >= first.sequence + 4)
    assert abs(last.taken_at_ms - first.taken_at_ms) > HOUR_MS / 2
    elapsed = [frame.elapsed_s for frame in watcher.frames]
    assert elapsed == sorted(elapsed)
    assert elapsed[-1] < 60.0
    rates = [TPS(Interval(watcher.frames[:end])) for end in range(2, len(watcher.frames) + 1)]
    assert all(rate is None or rate < 500.0 for rate in rates)
    assert any(rate is not None for rate in rates[-3:])
    assert_no_negative_age(watcher.frames)


async def test_the_servers_clock_is_set_back(database: str) -> None:
    with psycopg.connect(database) as idle:
        idle.execute("SELECT 1")
        async with watching(database, 0.4) as watcher:
            frame = await watcher.until(lambda frame: answered(frame) and frame.sequence >= 4)
    activity = frame.postgres.activity
    assert any(backend.xact_start_ms for backend in activity.backends)
    earlier = replace(frame.postgres, activity=replace(activity, now_ms=activity.now_ms - HOUR_MS))
    set_back = replace(frame, sequence=frame.sequence + 1, elapsed_s=frame.elapsed_s + 0.4, postgres=earlier)
    assert_no_negative_age([*watcher.frames, set_back])


def assert_no_negative_age(frames: list[Frame]) -> None:
    """Everything can be drawn, and nothing of it is younger than nothing."""
    session = session_of(frames)
    assert_fits_and_obeys_nothing(session)
    negative = [
        (where, plain_text(line)) for where, _, line in everything(session) if NEGATIVE_AGE.search(plain_text(line))
    ]
    assert negative == []
