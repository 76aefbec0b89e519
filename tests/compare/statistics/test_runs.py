"""Runs against runs: the interval, its assumption, and how often it is wrong; scipy is the reference."""

from __future__ import annotations

import math
import random
from statistics import fmean, variance

import pytest
from scipy import stats

from pgtop_tune.compare.statistics.effect import (
    WRONG,
    Effect,
    RunSpread,
    Verdict,
    certain_together,
    half_width,
    run_noise,
    runs_effect,
    runs_needed,
    verdict,
)


def of_runs(a: list[float], b: list[float], *, foreseen: bool = True) -> Effect:
    logs = [[math.log(value) for value in side] for side in (a, b)]
    return runs_effect(logs[0], logs[1], run_noise(logs[0], logs[1], foreseen=foreseen))


def test_the_interval_is_student_s_with_an_assumed_variance_of_four_degrees() -> None:
    a, b = [1000.0, 1040.0, 975.0], [1100.0, 1060.0, 1085.0, 1130.0]
    logs = [[math.log(value) for value in side] for side in (a, b)]
    squares = sum((len(side) - 1) * variance(side) for side in logs)
    sd = math.sqrt((4 * 0.02**2 + squares) / 9)
    error = sd * math.sqrt(1 / 3 + 1 / 4)
    change = fmean(logs[1]) - fmean(logs[0])
    found = of_runs(a, b)
    assert found.relative == pytest.approx(math.expm1(change))
    assert found.low == pytest.approx(math.expm1(change - stats.t.ppf(0.99, 9) * error))
    assert found.high == pytest.approx(math.expm1(change + stats.t.ppf(0.99, 9) * error))
    assert found.chance == pytest.approx(2 * stats.t.sf(abs(change) / error, 9))
    assert found.confidence == 0.98


def test_of_a_figure_that_is_not_foreseen_the_wider_one_is_student_s_own() -> None:
    a, b = [10.0, 30.0, 12.0, 25.0], [11.0, 28.0, 16.0, 24.0]
    logs = [[math.log(value) for value in side] for side in (a, b)]
    known = stats.ttest_ind(logs[1], logs[0])
    found = of_runs(a, b, foreseen=False)
    assert found.chance == pytest.approx(known.pvalue, rel=1e-6)
    interval = known.confidence_interval(0.98)
    assert found.low == pytest.approx(math.expm1(interval.low), rel=1e-6)
    tight = of_runs([100.0, 100.1, 100.0], [101.0, 101.1, 101.0], foreseen=False)
    assert tight.low is not None
    assert tight.low < 0.0, "three alike by chance are not certain"


def test_one_run_a_side_has_the_assumption_and_history_replaces_it() -> None:
    alone = run_noise([7.0], [7.0])
    assert (alone.measured, alone.sd) == (0, pytest.approx(0.02))
    assert half_width(alone, 1, 1) == pytest.approx(math.expm1(stats.t.ppf(0.99, 4) * 0.02 * math.sqrt(2)), rel=1e-6)
    steady = run_noise([7.0], [7.0], history=RunSpread(12 * 0.01**2, 12))
    assert steady.from_history == 12
    assert half_width(steady, 1, 1) < 0.06
    old = run_noise([7.0], [7.0], history=RunSpread(160 * 0.05**2, 160))
    assert old.from_history == 16, "a machine changes: history weighs as much as sixteen runs at most"
    assert old.sd == pytest.approx(math.sqrt((4 * 0.02**2 + 16 * 0.05**2) / 20))


def test_what_the_seconds_of_a_run_leave_open_is_never_less_than_the_whole() -> None:
    assert run_noise([7.0], [7.0], within=0.1**2).sd >= 0.1


@pytest.mark.parametrize("runs", [4, 6])
def test_unchanged_runs_are_called_better_or_worse_no_more_often_than_promised(runs: int) -> None:
    """2 % from run to run; thirteen other figures beside the first, each with noise of its own."""
    chance = random.Random(f"unchanged, {runs}")
    pairs, first, others, either = 1_000, 0, 0, 0
    for _ in range(pairs):
        effects = [
            of_runs(
                *([1000.0 * math.exp(chance.gauss(0.0, spread)) for _ in range(runs)] for _ in range(2)),
                foreseen=not place,
            )
            for place, spread in enumerate((0.02, *[0.02, 0.1] * 6, 0.3))
        ]
        chances = [effect.chance for effect in effects if effect.chance is not None]
        assert len(chances) == 14
        found = chances[0] < WRONG, bool(certain_together(dict(enumerate(chances[1:]))))
        first, others, either = first + found[0], others + found[1], either + any(found)
    assert 0 < first <= 0.03 * pairs
    assert 0 < others <= 0.035 * pairs
    assert either <= 0.05 * pairs


def test_the_interval_holds_the_truth_as_often_as_it_says() -> None:
    chance = random.Random("cover")
    held = 0
    for _ in range(400):
        effect = of_runs(*([chance.gauss(mean, 0.02 * mean) for _ in range(8)] for mean in (1000.0, 1030.0)))
        assert effect.low is not None
        assert effect.high is not None
        held += effect.low <= 0.03 <= effect.high
    assert held >= 0.965 * 400


def test_percentages_are_compared_by_points() -> None:
    a, b = [0.0, 0.01, 0.005, 0.005], [0.05, 0.06, 0.055, 0.055]
    found = runs_effect(a, b, run_noise(a, b), ratio=False)
    assert found.relative == pytest.approx(0.05)
    assert found.low is not None
    assert found.low < 0.05


def test_less_latency_is_better_and_a_difference_too_small_for_the_noise_says_how_many_runs_it_takes() -> None:
    slow, fast = [10.0, 10.1, 9.9, 10.0, 10.05], [8.0, 8.1, 7.9, 8.0, 8.05]
    assert verdict(of_runs(slow, fast), higher_is_better=False) is Verdict.BETTER
    wide = of_runs([980.0, 1020.0], [1005.0, 1035.0])
    assert verdict(wide, higher_is_better=True) is Verdict.UNDECIDED
    logs = [[math.log(value) for value in side] for side in ([980.0, 1020.0], [1005.0, 1035.0])]
    needed = runs_needed(wide, run_noise(*logs))
    assert needed is not None
    assert 5 < needed < 30
