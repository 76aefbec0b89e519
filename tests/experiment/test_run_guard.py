"""Reasons to end a run before its time, from its frames."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from pgtop_tune.base.errors import UsageProblem
from pgtop_tune.experiment.run_guard import RunGuard, abort_condition
from pgtop_tune.metrics.catalogue import Interval
from pgtop_tune.model.bench import BenchProgress, BenchSample
from pgtop_tune.model.frame import Frame
from tests.support.frames import bench_sample, frame


def frames(seconds: list[BenchProgress], rate: float | None = None) -> list[Frame]:
    samples = [replace(bench_sample(second), progress=(line,)) for second, line in enumerate(seconds)]
    run = replace(samples[0].run, rate_per_s=rate, duration_s=None)
    return [
        replace(frame(second), bench=replace(sample, run=run, latencies=())) for second, sample in enumerate(samples)
    ]


def ended_at(guard: RunGuard, every: list[Frame]) -> int | None:
    return next((n for n in range(len(every)) if guard.ends(Interval(every[: n + 1]))), None)


def line(second: int, tps: float, failed: int = 0, lag_ms: float | None = None) -> BenchProgress:
    return BenchProgress(float(second + 1), tps, 5.0 + (lag_ms or 0.0), 1.0, failed, lag_ms)


def test_a_condition_ends_a_run_only_when_it_has_held_without_a_pause() -> None:
    speeds = [500.0] * 10 + [50.0] * 5 + [500.0] * 3 + [50.0] * 20
    guard = RunGuard([abort_condition("tps < 100 for 8s")])
    assert ended_at(guard, frames([line(n, tps) for n, tps in enumerate(speeds)])) == 26
    assert guard.ended_for is not None
    assert guard.ended_for.doubt == "ABORTED"
    assert guard.ended_for.reason == "tps<100 for 8 s"


def test_a_pause_of_the_load_trips_no_condition() -> None:
    every = frames([line(n, 500.0 if n < 10 else 0.0) for n in range(40)])
    samples = [bench for each in every if isinstance(bench := each.bench, BenchSample)]
    paused = [
        replace(each, bench=replace(bench, run=replace(bench.run, paused=10 <= n < 30)))
        for n, (each, bench) in enumerate(zip(every, samples, strict=True))
    ]
    assert ended_at(RunGuard([abort_condition("tps < 100 for 8s")]), paused) == 38


def test_a_slow_load_whose_log_comes_in_parts_seconds_apart_is_ended_by_its_percentiles() -> None:
    every = frames([line(n, 6.0) for n in range(60)])
    for n in (15, 40):
        sample = bench_sample(n)
        assert sample.latencies
        every[n] = replace(every[n], bench=replace(every[n].bench, latencies=sample.latencies))
    assert ended_at(RunGuard([abort_condition("p99 > 0.01ms for 10s")]), every) == 40
    assert ended_at(RunGuard([abort_condition("p99 > 100s for 10s")]), every) is None


def test_the_failed_share_is_in_per_cent_of_all_transactions() -> None:
    every = frames([line(n, 99.0, failed=1 if n < 12 else 4) for n in range(30)])
    assert ended_at(RunGuard([abort_condition("failed > 2% for 3s")]), every) is not None
    assert ended_at(RunGuard([abort_condition("failed > 4.5% for 3s")]), every) is None


@pytest.mark.parametrize("stops", [True, False])
def test_overload_ends_a_run_or_is_only_told(stops: bool) -> None:
    told: list[str] = []
    guard = RunGuard(stops=stops, tell=told.append)
    every = frames([line(n, 100.0, lag_ms=300.0 * n) for n in range(40)], rate=140.0)
    at = ended_at(guard, every)
    assert (at is not None) is stops
    assert len(told) == (0 if stops else 1)
    assert "the backlog grows" in guard.overload


@pytest.mark.parametrize("text", ["p99 > 50ms", "p99 = 5 for 3s", "p99 > 5GB for 3s", "tps < 5 for ever", ""])
def test_what_is_no_condition_is_told(text: str) -> None:
    with pytest.raises(UsageProblem):
        abort_condition(text)
