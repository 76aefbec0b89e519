"""Warm-up and drift: found where they were put, and "not steady" where there is no steady state."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from pgtop_tune.metrics.steady_state import FEWEST_S, mean_error, spread, steady_state, warm_up


def noisy(n: int, mean: float = 1000.0, share: float = 0.03, seed: int = 1) -> list[float]:
    chance = random.Random(seed)
    return [mean * (1.0 + share * chance.gauss(0.0, 1.0)) for _ in range(n)]


def test_a_level_throughput_is_steady_from_the_start() -> None:
    found = steady_state(noisy(120))
    assert found.steady
    assert found.warm_up_s is not None
    assert found.warm_up_s <= 15
    assert found.tps == pytest.approx(1000, rel=0.01)
    assert found.error_tps is not None
    assert 0 < found.error_tps < 20


@pytest.mark.parametrize("ramp_s", [10, 20, 30])
def test_a_ramp_is_cut_off_and_does_not_count(ramp_s: int) -> None:
    ramp = [1000.0 * (0.2 + 0.8 * second / ramp_s) for second in range(ramp_s)]
    found = steady_state([*ramp, *noisy(150)])
    assert found.steady
    assert found.warm_up_s is not None
    assert ramp_s - 5 <= found.warm_up_s <= ramp_s + 10
    assert found.tps == pytest.approx(1000, rel=0.01)


def test_what_rises_to_the_end_is_not_steady() -> None:
    found = steady_state([500.0 + 5.0 * second for second in range(120)])
    assert found.steady is False
    assert found.warm_up_s is None


def test_a_step_down_in_the_middle_of_a_long_run_is_not_steady() -> None:
    assert steady_state([*noisy(100), *noisy(100, mean=900.0, seed=2)]).steady is False


def test_noise_in_which_a_drift_could_hide_is_not_steady() -> None:
    found = steady_state(noisy(40, share=0.5))
    assert found.steady is False
    assert found.warm_up_s is None or "could go unnoticed" in found.reason


def test_a_few_seconds_say_nothing_and_that_is_said() -> None:
    found = steady_state(noisy(FEWEST_S - 1))
    assert (found.steady, found.warm_up_s) == (None, None)
    assert "too short" in found.reason
    assert found.tps is not None
    assert steady_state([]).tps is None


def test_slow_seconds_and_those_without_a_transaction_are_counted_apart() -> None:
    seconds = [1000.0] * 90 + [100.0] * 4 + [0.0] * 6
    found = spread(seconds)
    assert found is not None
    assert (found.median_tps, found.slow_s, found.zero_s) == (1000.0, 4, 6)
    assert found.words.endswith(" tps, 4 s below half the median, 6 s without a transaction")
    assert spread([0.0] * 3 + [5.0]).zero_s == 3  # type: ignore[union-attr]
    assert (found.p5_tps, found.p1_tps) == pytest.approx(tuple(np.percentile(seconds, (5, 1))))
    assert spread([]) is None


def test_the_interval_of_the_mean_is_the_one_of_scipy_over_the_batches() -> None:
    seconds = noisy(100)
    means = np.mean(np.reshape(seconds, (10, 10)), axis=1)
    low, high = stats.t.interval(0.95, 9, loc=np.mean(means), scale=stats.sem(means))
    assert mean_error(seconds) == pytest.approx((high - low) / 2, rel=1e-3)
    assert mean_error(seconds[:7]) is None
    assert mean_error(seconds[:8]) is not None


def test_the_cut_has_the_smallest_standard_error_of_all() -> None:
    seconds = [*(10.0 * second for second in range(20)), *noisy(80, mean=200.0)]
    cut = warm_up(seconds)
    assert cut is not None
    batches = np.mean(np.reshape(seconds, (20, 5)), axis=1)
    # White 1997: sum of squared deviations over the squared number of batches that are left.
    errors = [np.sum((batches[d:] - batches[d:].mean()) ** 2) / len(batches[d:]) ** 2 for d in range(11)]
    assert cut == 5 * int(np.argmin(errors))


@given(st.lists(st.floats(0, 1e6), max_size=200))
def test_any_seconds_give_an_answer_with_finite_numbers(seconds: list[float]) -> None:
    found = steady_state(seconds)
    for number in (found.tps, found.error_tps, found.drift):
        assert number is None or math.isfinite(number)
    assert found.warm_up_s is None or 0 <= found.warm_up_s < len(seconds) / 2 + 5
