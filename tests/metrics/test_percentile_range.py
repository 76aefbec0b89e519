"""What a sampled log leaves open about a percentile."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom

from pgtop_tune.metrics.load import QUANTILES
from pgtop_tune.metrics.percentiles import ascending
from pgtop_tune.metrics.run_validity import CONFIDENCE, binomial_quantile, incomplete_range, percentile_range
from tests.support.latencies import bucket_counts

PER_CENTS = tuple(quantile.per_cent for quantile in QUANTILES)


@given(
    st.integers(1, 200_000),
    st.sampled_from((0.0, 0.01, 0.3, 0.5, 0.95, 0.99, 0.999, 0.9999, 1.0)),
    st.sampled_from((0.005, 0.025, 0.5, 0.975, 0.995)),
)
def test_quantiles_of_the_binomial_distribution_agree_with_scipy(tries: int, share: float, tail: float) -> None:
    assert binomial_quantile(tries, share, tail) == pytest.approx(binom.ppf(tail, tries, share), abs=1)


@pytest.mark.parametrize("q", PER_CENTS)
def test_the_true_percentile_is_inside_as_often_as_said(q: float) -> None:
    """A tenth of log-normal latencies, 200 times over."""
    draw = np.random.default_rng(int(q * 100))
    every = draw.lognormal(7, 1, 20_000).astype(int)
    true = np.percentile(every, q)
    inside = 0
    for _ in range(200):
        sample = every[draw.random(every.size) < 0.1]
        low, high = percentile_range(ascending(bucket_counts(sample.tolist())), q, 0.1)
        inside += (low is None or low <= true) and (high is None or true <= high)
    assert inside >= binom.ppf(0.0001, 200, CONFIDENCE)


def test_more_is_logged_and_less_is_open() -> None:
    draw = np.random.default_rng(1)
    widths: list[float] = []
    for logged in (100, 1000, 10_000, 100_000):
        low, high = percentile_range(ascending(bucket_counts(draw.integers(1, 10**6, logged).tolist())), 50, 0.1)
        assert low is not None
        assert high is not None
        widths.append(high - low)
    assert widths == sorted(widths, reverse=True)


def test_too_little_logged_has_no_upper_end() -> None:
    buckets = ascending(bucket_counts(list(range(1000, 3000))))
    low, high = percentile_range(buckets, 99.99, 0.1)
    assert low is not None
    assert high is None
    assert percentile_range((), 50, 0.1) == (None, None)


@given(st.lists(st.integers(0, 10**7), min_size=1, max_size=300), st.floats(0, 100))
def test_a_whole_log_leaves_the_width_of_the_buckets(latencies: list[int], q: float) -> None:
    low, high = percentile_range(ascending(bucket_counts(latencies)), q, 1.0)
    assert low is not None
    assert high is not None
    assert low <= np.percentile(latencies, q, method="lower")
    assert high >= np.percentile(latencies, q, method="higher")


@given(st.lists(st.integers(0, 10**7), min_size=1, max_size=300), st.data(), st.floats(0, 100))
def test_whichever_transactions_are_lost_the_percentile_is_in_the_range(
    every: list[int], data: st.DataObject, q: float
) -> None:
    lost = data.draw(st.sets(st.integers(0, len(every) - 1), max_size=len(every) - 1))
    part = [us for number, us in enumerate(every) if number not in lost]
    low, high = incomplete_range(ascending(bucket_counts(part)), q, len(lost))
    true = float(np.percentile(every, q))
    assert low is None or low <= true * (1 + 1e-9)
    assert high is None or true <= high * (1 + 1e-9)
