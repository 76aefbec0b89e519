"""Percentiles per second, whenever their transactions arrived."""

from __future__ import annotations

import pytest

from pgtop_tune.metrics.percentiles import ascending
from pgtop_tune.model.bench import LatencySecond
from pgtop_tune.runtime.history import LatencyHistory
from tests.support.latencies import bucket_counts


def second(number: int, latencies: list[int]) -> LatencySecond:
    return LatencySecond(number, len(latencies), sum(latencies), max(latencies), ascending(bucket_counts(latencies)))


def test_transactions_that_come_late_join_their_second_from_then_on() -> None:
    history = LatencyHistory()
    history.add([second(7, [1000] * 30), second(8, [1000] * 30), second(9, [1000] * 30)], 0.0, known_s=10.0)
    history.add([second(7, [9000] * 2), second(8, [4000])], 0.0, known_s=12.0)
    history.add([second(8, [5000])], 0.0, known_s=13.0)
    assert [(point.second, point.logged, point.max_ms) for point in history.series()] == [
        (7, 32, 9.0), (8, 32, 5.0), (9, 30, 1.0),
    ]  # fmt: skip
    assert history.series()[0].span_mean_ms == (30 * 1.0 + 2 * 9.0) / 32
    past = LatencyHistory()
    past.adopt(history, until_s=12.0)
    assert [(point.second, point.logged) for point in past.series()] == [(7, 32), (8, 31), (9, 30)]
    past.adopt(history, until_s=11.0)
    assert [point.logged for point in past.series()] == [30, 30, 30]


def test_a_second_of_few_transactions_has_no_percentiles_but_a_maximum() -> None:
    history = LatencyHistory()
    history.add([second(7, [1000] * 19), second(8, [1000] * 200)], 0.0)
    first, other = history.series()
    assert (first.quantiles_ms, first.max_ms) == ((None, None, None, None), 1.0)
    assert [value is not None for value in other.quantiles_ms] == [True, True, False, False]


def test_a_slow_load_has_percentiles_of_so_many_seconds_as_they_need() -> None:
    history = LatencyHistory()
    history.add([second(at, [1000 * at] * 300) for at in range(1, 6)], 0.0, run=1)
    first, *_, newest = history.series()
    assert (first.span_s, first.quantiles_ms[2]) == (1, None), "the load began in this second"
    assert first.quantiles_ms[:2] == pytest.approx((1.0, 1.0), rel=0.03)
    assert (newest.span_s, newest.logged, newest.span_max_ms) == (4, 300, 5.0)
    assert newest.span_mean_ms == (2.0 + 3.0 + 4.0 + 5.0) / 4
    assert newest.quantiles_ms[2] == pytest.approx(5.0, rel=0.03)
    history.add([second(6, [6000] * 300)], 0.0, run=2)
    assert history.series()[-1].span_mean_ms == 6.0, "the run before is another load"
    history.add([second(at, [1000] * 20) for at in (7, 30)], 0.0, run=2)
    assert [point.span_s for point in history.series()[-3:]] == [1, 2, 10], "not even ten seconds have enough"
