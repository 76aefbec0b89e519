"""Pairs of blocks: the bound, the verdict, and the two cross-checks."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest
from scipy import stats

from pgtop_tune.compare.statistics.switchback import (
    FEWEST_PAIRS,
    MOST_PAIRS,
    PairedVerdict,
    builds_up,
    cross_check,
    decide,
)
from pgtop_tune.metrics.overload import always_valid_t


def test_the_bound_is_the_study_s_and_falls_towards_that_of_a_fixed_sample() -> None:
    assert [round(always_valid_t(n, 0.05), 2) for n in (5, 6, 8, 10, 20, 60)] == [5.83, 4.82, 4.14, 3.87, 3.52, 3.43]
    assert always_valid_t(2, 0.05) == math.inf
    for pairs in range(4, 61):
        assert always_valid_t(pairs, 0.05) > stats.t.ppf(0.975, pairs - 1)


def test_nothing_is_said_of_fewer_than_four_pairs() -> None:
    for pairs in range(FEWEST_PAIRS):
        found = decide([0.5] * pairs)
        assert found.verdict is PairedVerdict.MEASURING
        assert (found.low, found.high, found.more_pairs) == (None, None, None)
        assert not found.over


@pytest.mark.parametrize(
    ("ratios", "verdict"),
    [
        ([0.10, 0.11, 0.09, 0.10, 0.105, 0.095], PairedVerdict.BETTER),
        ([-0.10, -0.11, -0.09, -0.10, -0.105, -0.095], PairedVerdict.WORSE),
        ([0.001, -0.001] * 20, PairedVerdict.EQUIVALENT),
        ([0.05, -0.05] * 4, PairedVerdict.UNDECIDED),
    ],
)
def test_pairs_end_in_one_of_four_verdicts(ratios: list[float], verdict: PairedVerdict) -> None:
    found = decide(ratios)
    assert found.verdict is verdict
    assert found.over is (verdict is not PairedVerdict.UNDECIDED)
    assert found.low is not None
    assert found.high is not None
    assert found.low <= found.relative <= found.high
    assert (found.more_pairs == 0) is found.over


def test_of_latency_less_is_better() -> None:
    assert decide([-0.1, -0.11, -0.09, -0.1, -0.1], higher_is_better=False).verdict is PairedVerdict.BETTER


def test_an_undecided_experiment_says_about_how_many_pairs_more() -> None:
    draw = random.Random("a")
    ratios = [draw.gauss(0.02, 0.02) for _ in range(8)]
    found = decide(ratios)
    assert found.verdict is PairedVerdict.UNDECIDED
    assert found.more_pairs is not None
    assert 5 < found.more_pairs <= MOST_PAIRS - 8


def test_more_pairs_than_an_experiment_can_have_are_not_promised() -> None:
    draw = random.Random("a")
    found = decide([draw.gauss(0.02, 0.4) for _ in range(8)])
    assert (found.verdict, found.more_pairs) == (PairedVerdict.UNDECIDED, None)
    assert found.out_of_reach.startswith("even 60 pairs, the limit, would hardly decide: pairs differ by ")
    assert decide([0.5] * 8).out_of_reach == decide([0.5] * 3).out_of_reach == ""


def test_the_cross_check_is_scipy_s_permutation_test_of_signs_and_the_pseudomedian() -> None:
    draw = random.Random("signs")
    for pairs in (5, 9, 12, 30):
        ratios = [draw.gauss(0.02, 0.03) for _ in range(pairs)]
        found = cross_check(ratios, seed=3)
        known = stats.permutation_test(
            (np.array(ratios),), np.mean, permutation_type="samples", n_resamples=2**13, random_state=1
        )
        assert found.chance == pytest.approx(known.pvalue, abs=0.001 if pairs <= 12 else 0.03)
        walsh = np.median([(a + b) / 2 for place, a in enumerate(ratios) for b in ratios[place:]])
        assert found.relative == pytest.approx(math.expm1(float(walsh)))


def test_an_effect_that_still_grows_within_its_blocks_is_noticed() -> None:
    draw = random.Random("grows")
    assert builds_up([draw.gauss(0.05, 0.03) for _ in range(12)])
    assert not builds_up([draw.gauss(0.0, 0.03) for _ in range(12)])
    assert not builds_up([0.5, 0.5, 0.5])
