"""What is a stall, and what only slow."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from pgtop_tune.metrics.catalogue import Interval
from pgtop_tune.metrics.load import OLDEST, SILENT, SILENT_SECONDS, SLOW_SECONDS, stall, stalled_s, stalls
from pgtop_tune.model.absence import Reason, Unavailable
from pgtop_tune.model.bench import LatencySecond, RunState, Silence
from pgtop_tune.model.postgres import Activity
from tests.support.frames import EPOCH_MS, backend, bench_sample, frame, postgres_sample

NOW_S = 100


def silent(seconds: float, usual_ms: float | None = 8.0, rate_per_s: float | None = None, **run: object) -> Interval:
    """A load of which no transaction has ended for so long."""
    since_ms = EPOCH_MS + 1000 * NOW_S - round(1000 * seconds)
    bench = bench_sample(NOW_S, progress=(), latencies=(), silences=(Silence(since_ms, None, seconds, usual_ms),))
    bench = replace(bench, run=replace(bench.run, rate_per_s=rate_per_s, **run))
    return Interval([frame(NOW_S, bench=bench)])


@pytest.mark.parametrize(
    ("seconds", "usual_ms", "rate_per_s", "stands_still"),
    [
        (2.9, 8.0, None, False),
        (3.1, 8.0, None, True),
        (5.0, 5000.0, None, False),  # One client, a transaction takes 5 s.
        (24.0, 5000.0, None, False),
        (26.0, 5000.0, None, True),
        (45.0, 2.0, 0.2, False),  # One transaction in 5 s by its rate, which leaves gaps by chance.
        (51.0, 2.0, 0.2, True),
        (3.1, 2.0, 500.0, True),
        (29.0, None, None, False),  # None has ended yet: nobody knows how long one takes.
        (31.0, None, None, True),
    ],
)
def test_a_load_stands_still_beyond_what_its_pace_explains(
    seconds: float, usual_ms: float | None, rate_per_s: float | None, *, stands_still: bool
) -> None:
    interval = silent(seconds, usual_ms, rate_per_s)
    assert stalled_s(interval) == (pytest.approx(seconds) if stands_still else None)
    assert SILENT(interval) == pytest.approx(seconds), "the number itself is told all the same"


def test_a_run_that_ended_or_none_at_all_does_not_stand_still() -> None:
    assert stall(silent(60.0, state=RunState.STOPPED)) is None
    assert stall(Interval([frame(NOW_S, load=False)])) is None
    assert SILENT(Interval([frame(NOW_S, load=False)])) is None
    assert SILENT(Interval([frame(NOW_S)])) == 0.0


def test_one_that_is_over_is_judged_by_how_long_it_was() -> None:
    sample = bench_sample(NOW_S, silences=(Silence(EPOCH_MS, EPOCH_MS + 2000, 1.0, 8.0), Silence(0, 9000, 8.0, 8.0)))
    assert [silence.zero_s for silence in stalls(sample, EPOCH_MS + 99_000)] == [8.0]


def test_the_oldest_transaction_is_that_of_the_load() -> None:
    now_ms = EPOCH_MS + 1000 * NOW_S
    rows = (
        backend(1, now_ms, application_name="psql", xact_start_ms=now_ms - 90_000),
        backend(2, now_ms, application_name="pgbench", xact_start_ms=now_ms - 84_200),
        backend(3, now_ms, application_name="pgbench", xact_start_ms=now_ms - 10),
        backend(4, now_ms, application_name="pgbench", xact_start_ms=None),
    )
    of_load = postgres_sample(NOW_S, activity=Activity(float(NOW_S), now_ms, rows))
    idle = postgres_sample(NOW_S, activity=Activity(float(NOW_S), now_ms, rows[:1]))
    assert OLDEST(Interval([frame(NOW_S, postgres=of_load)])) == pytest.approx(84.2)
    assert OLDEST(Interval([frame(NOW_S, postgres=idle)])) is None
    assert OLDEST(Interval([frame(NOW_S, postgres=Unavailable(Reason.NO_ANSWER))])) is None


def test_seconds_without_a_transaction_and_slow_seconds_are_counted_apart() -> None:
    """A gap of 5 s ended, another has lasted for 2 s; of two slow seconds one came twice."""
    quick, slow = (
        LatencySecond(second=1, logged=10, sum_us=10, max_us=max_us, buckets=()) for max_us in (9_000, 1_200_000)
    )
    now_ms = EPOCH_MS + 1000 * NOW_S
    over, lasts = Silence(now_ms - 9_000, now_ms - 4_000, 5.0, 8.0), Silence(now_ms - 2_000, None, 2.0, 8.0)
    samples = (
        bench_sample(NOW_S - 2, silences=(over,), latencies=(slow, replace(quick, second=2))),
        bench_sample(NOW_S - 1, silences=(replace(lasts, zero_s=1.0),), latencies=(slow, replace(slow, second=3))),
        bench_sample(NOW_S, silences=(lasts,), latencies=()),
    )
    found = Interval([frame(NOW_S - 2 + at, bench=sample) for at, sample in enumerate(samples)])
    assert (SILENT_SECONDS(found), SLOW_SECONDS(found)) == (7.0, 2.0)
    assert SILENT_SECONDS(Interval([frame(NOW_S, load=False)])) is None
    assert SLOW_SECONDS(Interval([frame(NOW_S, load=False)])) is None
