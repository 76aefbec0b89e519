"""The regression of before and after: checked against numpy, and against series whose variance is known."""

from __future__ import annotations

import math

import numpy as np
import pytest

from pgtop_tune.compare.statistics.before_after import (
    Second,
    difference,
    long_run_variances,
    mean_variance,
    moving,
)
from tests.support.noises import sample


def autoregressive(phi: float, length: int, seed: int) -> list[float]:
    draw, value, found = np.random.default_rng(seed), 0.0, []
    for _ in range(length):
        value = phi * value + float(draw.normal(0.0, math.sqrt(1.0 - phi * phi)))
        found.append(value)
    return found


@pytest.mark.parametrize("phi", [0.0, 0.6, 0.8])
def test_the_long_run_variance_is_that_of_the_process(phi: float) -> None:
    """Of an autoregression with variance 1 it is (1 + phi) / (1 - phi)."""
    known = (1.0 + phi) / (1.0 - phi)
    found = [long_run_variances(autoregressive(phi, 600, seed), 300)[0] for seed in range(60)]
    assert float(np.mean(found)) == pytest.approx(known, rel=0.25 if phi else 0.6)
    means = [float(np.mean(autoregressive(phi, 300, seed))) for seed in range(200, 400)]
    told = [mean_variance(autoregressive(phi, 300, seed)) for seed in range(60)]
    assert float(np.mean(told)) == pytest.approx(float(np.var(means)), rel=0.4 if phi else 0.7)


def test_the_coefficients_are_those_of_weighted_least_squares_with_priors() -> None:
    drawn = sample("C1", 1, 400, seed=4)
    seconds = [
        Second(float(place - 200), float(value) * 1000.0, (float(writes),))
        for place, (value, writes) in enumerate(zip(drawn.tps[0], drawn.checkpoint[0], strict=True))
    ]
    found = difference(seconds[:200], seconds[205:])
    # A normal prior is one more row of data: the slope has sd 0.04, the column 0.2.
    sides = seconds[:200], seconds[205:]
    readings = [
        np.log(mean) + np.array([each.value for each in side]) / mean - 1.0
        for side in sides
        if (mean := float(np.mean([each.value for each in side])))
    ]
    rows = [[1.0, float(place), each.at_s / 600.0, *each.columns] for place, side in enumerate(sides) for each in side]
    estimates = []
    for weight in (1.0, 2.0, 0.5):
        scale = np.array([1.0] * len(sides[0]) + [weight] * len(sides[1]))
        white = np.vstack([np.array(rows) * scale[:, None], [[0, 0, 1e-9, 0], [0, 0, 0, 1e-9]]])
        answer = np.linalg.lstsq(white, np.concatenate([np.concatenate(readings) * scale, [0, 0]]), rcond=None)[0]
        estimates.append(float(answer[1]))
    assert min(estimates) - found.error <= found.change <= max(estimates) + found.error
    assert 0.0 < found.error < 0.05
    assert found.degrees == 8 + 8


def test_a_slope_before_the_change_is_told_only_where_it_is_clear() -> None:
    flat = [
        Second(float(second - 200), float(value), ()) for second, value in enumerate(sample("A6", 1, 200, 9).tps[0])
    ]
    assert moving(flat) is None
    rising = [Second(each.at_s, each.value * (1.0 + 0.5 * each.at_s / 600.0), ()) for each in flat]
    found = moving(rising)
    assert found is not None
    assert found == pytest.approx(0.5, abs=0.2)
    assert moving(rising[:20]) is None


def test_nothing_can_be_divided_by_nothing() -> None:
    idle = [Second(float(second), 0.0) for second in range(40)]
    with pytest.raises(ValueError, match="nothing to be divided by"):
        difference(idle, idle)
    with pytest.raises(ValueError, match="nothing to be divided by"):
        difference([], idle)
