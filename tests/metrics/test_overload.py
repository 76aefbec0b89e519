"""Overload: found by a backlog and a latency that rise, not by a stall, a burst or a running checkpoint."""

from __future__ import annotations

import pytest

from pgtop_tune.metrics.overload import OverloadWatch, overload_in
from pgtop_tune.model.bench import BenchProgress


def line(second: int, lag_s: float, *, tps: float = 100.0, skipped: int | None = None) -> BenchProgress:
    return BenchProgress(
        elapsed_s=float(second), tps=tps, latency_ms=1000.0 * lag_s + 5.0, stddev_ms=1.0, lag_ms=1000.0 * lag_s,
        skipped=skipped,
    )  # fmt: skip


def test_a_backlog_that_grows_is_found_with_its_beginning() -> None:
    found = overload_in([line(n, max(n - 40, 0) * 0.2) for n in range(1, 80)], 120.0)
    assert found is not None
    assert abs(found.onset_s - 40.0) <= 3.0
    assert 50.0 <= found.found_s <= 62.0
    assert abs(found.growth - 0.2) < 0.02
    assert "grows by 0.19 s per second" in found.sentence


def test_a_stall_that_is_worked_off_is_none() -> None:
    lines = [line(n, 0.0) for n in range(1, 30)]
    lines += [line(n, 0.0, tps=0.0) for n in range(30, 38)]
    lines += [line(n, max(8.0 - (n - 38) * 0.25, 0.0)) for n in range(38, 120)]
    assert overload_in(lines, 100.0) is None


def test_with_a_latency_limit_the_skipped_share_is_the_backlog() -> None:
    assert overload_in([line(n, 0.02, skipped=20) for n in range(1, 40)], 120.0) is not None
    assert overload_in([line(n, 0.02, skipped=90 if n == 10 else 0) for n in range(1, 40)], 120.0) is None


def test_a_checkpoint_that_ends_in_time_explains_a_backlog_and_what_grows_on_behind_it_does_not() -> None:
    watch = OverloadWatch(120.0)
    grows = [line(n, max(n - 10, 0) * 0.15) for n in range(1, 100)]
    assert not any(watch.take(each, excused=True) for each in grows[:60])
    found = next(filter(None, (watch.take(each) for each in grows[60:])), None)
    assert found is not None
    assert abs(found.onset_s - 10.0) <= 3.0
    assert found.found_s >= 70.0


def test_a_rate_that_begins_in_mid_run_has_its_own_beginning() -> None:
    watch = OverloadWatch(100.0)
    for second in range(300, 340):
        watch.take(line(second, 0.3 * (second - 299)))
    assert watch.overload is not None
    assert 298 <= watch.overload.onset_s <= 302
    assert watch.overload.growth == pytest.approx(0.3, rel=0.1)
    assert watch.overload.found_s <= 320
