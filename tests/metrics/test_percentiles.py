"""Percentiles from log-scaled histograms: within the stated error of numpy, and well-behaved."""

from __future__ import annotations

import math
from collections import Counter
from functools import reduce

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from pgtop_tune.metrics import percentiles as p
from pgtop_tune.metrics.load import QUANTILES
from pgtop_tune.model.bench import LatencySecond
from tests.support.latencies import bucket_counts

PER_CENTS = tuple(quantile.per_cent for quantile in QUANTILES)

US = st.integers(min_value=0, max_value=1 << 41)
LATENCIES = st.lists(st.one_of(US, st.integers(0, 5000), st.integers(65_000, 66_000)), min_size=1, max_size=200)
QUANTILE = st.floats(0, 100)


def histogram(latencies: list[int], second: int = 0) -> LatencySecond:
    return LatencySecond(
        second, len(latencies), sum(latencies), max(latencies, default=0), p.ascending(bucket_counts(latencies))
    )


@given(US)
def test_a_value_lies_between_the_edges_of_its_bucket(us: int) -> None:
    low, behind = p.bucket_edges(p.bucket_of(us))
    assert low <= us < behind
    assert behind - 1 <= low * (1 + p.WORST_RELATIVE_ERROR)


@pytest.mark.parametrize("us", range(55))
def test_small_values_are_exact(us: int) -> None:
    assert p.bucket_edges(p.bucket_of(us)) == (us, us + 1)


def test_out_of_range_values_land_in_the_outermost_buckets() -> None:
    assert p.bucket_of(-3) == 0
    last = p.bucket_of(1 << 60)
    with pytest.raises(IndexError):
        p.bucket_edges(last + 1)
    assert bucket_counts([0, 1 << 60]) == Counter({0: 1, last: 1})


@given(LATENCIES)
def test_counting_many_agrees_with_counting_one_by_one(latencies: list[int]) -> None:
    assert bucket_counts(latencies) == Counter(p.bucket_of(us) for us in latencies)


@given(LATENCIES, QUANTILE)
def test_within_the_stated_error_of_numpy(latencies: list[int], q: float) -> None:
    true = float(np.percentile(latencies, q))
    (found,) = p.estimates(histogram(latencies).buckets, (q,), max(latencies))
    assert abs(found - true) <= p.WORST_RELATIVE_ERROR * true + 1e-6 * max(true, 1.0)
    assert found <= max(latencies)


def test_within_the_stated_error_of_scipy_on_a_long_tail() -> None:
    generator = np.random.default_rng(7)
    latencies = [int(us) for us in generator.lognormal(8, 1, 50_000)]
    found = p.estimates(histogram(latencies).buckets, PER_CENTS, max(latencies))
    for q, value in zip(PER_CENTS, found, strict=True):
        assert value == pytest.approx(stats.scoreatpercentile(latencies, q), rel=p.WORST_RELATIVE_ERROR)


@given(LATENCIES, st.lists(QUANTILE, min_size=2, max_size=6).map(sorted))
def test_never_falls_as_the_quantile_rises(latencies: list[int], quantiles: list[float]) -> None:
    found = p.estimates(histogram(latencies).buckets, quantiles, max(latencies))
    assert list(found) == sorted(found)


@given(LATENCIES)
def test_the_hundredth_is_the_largest_exactly(latencies: list[int]) -> None:
    assert p.percentiles(histogram(latencies).buckets, (100,), max(latencies)) == (max(latencies),)


def test_an_empty_histogram_has_no_percentiles() -> None:
    assert p.percentiles((), PER_CENTS, 0) == ()


@pytest.mark.parametrize(("q", "needed"), [(50, 20), (95, 200), (99, 1000), (99.9, 10_000), (99.99, 100_000), (100, 1)])
def test_a_percentile_of_too_few_is_none(q: float, needed: int) -> None:
    assert p.needed(q) == needed
    enough = histogram([1000] * needed).buckets
    assert p.percentiles(enough, (q,), 1000)[0] == pytest.approx(1000, rel=p.WORST_RELATIVE_ERROR)
    assert not any(p.percentiles(histogram([1000] * (needed - 1)).buckets, (q,), 1000))


@given(st.lists(st.lists(US, max_size=20), max_size=6))
def test_merging_does_not_depend_on_order_or_grouping(groups: list[list[int]]) -> None:
    parts = [histogram(group, second) for second, group in enumerate(groups)]
    at_once = p.merge(parts)
    assert at_once == reduce(lambda so_far, part: p.merge((so_far, part)), parts, p.merge(()))
    assert at_once == p.merge(reversed(parts))
    everything = [us for group in groups for us in group]
    assert (at_once.logged, at_once.sum_us) == (len(everything), sum(everything))
    assert at_once.buckets == p.ascending(bucket_counts(everything))


def test_one_value_is_every_percentile() -> None:
    found = p.estimates(histogram([1234]).buckets, PER_CENTS, 1234)
    assert all(math.isclose(value, 1234) for value in found)


def test_the_lookup_table_has_every_value_in_its_place() -> None:
    everything = list(range(1 << 16))
    assert bucket_counts(everything) == Counter(map(p.bucket_of, everything))
