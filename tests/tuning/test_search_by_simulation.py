"""How often the tuner is wrong, by simulated truth, and two searches that do not confirm beside it.

The short tests are what a change of the code would break at once; the long ones count as many searches as the
documentation gives rates for (`docs/guide/tuning.md`, printed by `tests/benchmarks/tuner_on_surfaces.py`).
"""

from __future__ import annotations

import math
from statistics import fmean

import pytest

from tests.support.tuning_rates import of_hand, of_trials, ours, rates
from tests.support.tuning_surfaces import KINDS

NOTHING_TO_FIND = ("start best", "nothing")
TO_FIND = tuple(kind for kind in KINDS if kind not in NOTHING_TO_FIND)


def test_a_search_does_not_end_worse_and_finds_most_of_the_gain_where_there_is_one() -> None:
    for kind in KINDS:
        found = rates([ours(kind, seed, 0.02) for seed in range(12)])
        assert found.wrong == 0.0
        if kind in NOTHING_TO_FIND:
            assert found.changed <= 0.1
        else:
            assert found.gained > 0.8


def test_the_reported_gain_is_that_of_the_confirmation_and_not_the_searchs_own() -> None:
    ends = [ours("two of eight", seed, 0.02) for seed in range(60)]
    own, reported = rates(ends).own, rates(ends).off
    assert own is not None
    assert reported is not None
    assert own > 0.01
    assert abs(reported) < 0.004
    assert fmean(bool(end.covered) for end in ends) >= 0.88


def test_the_rule_to_compare_with_does_end_worse_where_the_start_is_best() -> None:
    assert rates([of_hand("start best", seed, 0.02) for seed in range(40)]).wrong > 0.15


@pytest.mark.long
@pytest.mark.parametrize("sd", [0.01, 0.02, 0.04])
def test_of_three_hundred_searches_at_most_two_per_cent_end_worse_and_the_interval_holds_the_truth(sd: float) -> None:
    ends = {kind: [ours(kind, seed, sd) for seed in range(300)] for kind in KINDS}
    for kind, each in ends.items():
        found = rates(each)
        print(f"{kind} {sd}: {found}")
        assert found.wrong <= 0.02
        assert found.changed <= 0.04 or kind not in NOTHING_TO_FIND
        by_hand = rates([of_hand(kind, seed, sd) for seed in range(300)])
        print(f"{kind} {sd} by hand: {by_hand}")
        assert found.gained > by_hand.gained - 0.02
    every = [end for each in ends.values() for end in each]
    confirmed = [end for end in every if end.confirmed_covered is not None and end.confirmed_off is not None]
    assert 0.93 <= fmean(bool(end.confirmed_covered) for end in confirmed) <= 0.97
    off = [end.confirmed_off or 0.0 for end in confirmed]
    assert abs(fmean(off)) < 4.0 * sd / math.sqrt(8 * len(off))
    found_something = [end for kind in TO_FIND for end in ends[kind] if end.covered is not None]
    assert 0.93 <= fmean(bool(end.covered) for end in found_something) <= 0.97


@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS)
def test_the_bayesian_engine_does_not_end_worse_either(kind: str) -> None:
    for sd in (0.01, 0.02, 0.04):
        found = rates([ours(kind, seed, sd, "bayes") for seed in range(20)])
        print(f"{kind} {sd} bayes: {found}")
        assert found.wrong <= 0.02
        print(f"{kind} {sd} best of 60: {rates([of_trials(kind, seed, sd) for seed in range(20)])}")
