"""Quantiles of the load's latency as rows of the catalogue."""

from __future__ import annotations

from msgspec.structs import replace

from pgtop_tune.metrics.catalogue import Interval
from pgtop_tune.metrics.load import P50, P99, P99_99, PER_SECOND, QUANTILES, newest_seconds, quantiles_ms
from pgtop_tune.metrics.percentiles import merge
from pgtop_tune.model.absence import Reason, Unavailable
from pgtop_tune.model.bench import BenchSample
from tests.support.frames import frame

LOADED = [frame(second) for second in range(20)]


def test_a_row_tells_the_newest_seconds_of_the_log() -> None:
    interval = Interval(LOADED)
    newest = newest_seconds(interval)
    assert newest is not None
    assert newest.logged >= 1000, "a p99 can be said"
    assert tuple(row(interval) for row in QUANTILES) == quantiles_ms(newest, QUANTILES)
    assert [row.id for row in PER_SECOND] == [f"client.latency.p{each}" for each in ("50", "95", "99", "99.9")]


def test_of_too_few_a_quantile_is_unknown_and_an_estimate_is_not() -> None:
    bench = LOADED[-1].bench
    assert isinstance(bench, BenchSample)
    few = merge([bench.latencies[-1]])
    assert P99_99.of(few) is None
    estimate, p99 = P99_99.estimate(few), P99.estimate(few)
    assert estimate is not None
    assert p99 is not None
    assert p99 < estimate <= few.max_us / 1000
    assert P50.estimate(merge(())) is None


def test_without_a_load_nothing_is_told() -> None:
    bare = [replace(each, bench=Unavailable(Reason.NO_LOAD)) for each in LOADED]
    assert P99(Interval(bare)) is None
