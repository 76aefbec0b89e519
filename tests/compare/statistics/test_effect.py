"""Verdicts on simulated loads: noise that resembles its neighbours, checkpoints, drift; same and different."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from statistics import fmean

import pytest
from scipy import stats

from pgtop_tune.compare.statistics.effect import (
    WRONG,
    Effect,
    RunSpread,
    Verdict,
    autocorrelation_time,
    block_length,
    block_means,
    blocks_needed,
    certain_together,
    effect_of,
    effect_of_runs,
    spread_of,
    verdict,
    widened,
)

PAIRS = 200
SECONDS = 600
Process = Callable[[random.Random], list[float]]


def of_runs(a: list[float], b: list[float]) -> Effect | None:
    return effect_of_runs((fmean(a), fmean(b)), a, b)


def autoregressive(rho: float, spread: float) -> Process:
    """Each second keeps a share of the deviation of the one before."""

    def draw(chance: random.Random) -> list[float]:
        deviation, values = chance.gauss(0.0, spread), []
        for _ in range(SECONDS):
            deviation = rho * deviation + chance.gauss(0.0, spread * math.sqrt(1.0 - rho * rho))
            values.append(1000.0 * (1.0 + deviation))
        return values

    return draw


def with_checkpoints(base: Process, every_s: int, length_s: int, depth: float) -> Process:
    """Throughput falls for some seconds, at a phase of its own in each window."""

    def draw(chance: random.Random) -> list[float]:
        phase = chance.randrange(every_s)
        return [
            value * (1.0 - depth if (second + phase) % every_s < length_s else 1.0)
            for second, value in enumerate(base(chance))
        ]

    return draw


def with_stalls(base: Process, probability: float) -> Process:
    """Now and then a second in which next to nothing happens."""
    return lambda chance: [value * (0.05 if chance.random() < probability else 1.0) for value in base(chance)]


PROCESSES: dict[str, Process] = {
    "independent seconds": autoregressive(0.0, 0.05),
    "resembling seconds": autoregressive(0.7, 0.05),
    "long memory": autoregressive(0.9, 0.05),
    "checkpoints": with_checkpoints(autoregressive(0.5, 0.03), 60, 8, 0.4),
    "rare deep checkpoints": with_checkpoints(autoregressive(0.7, 0.04), 90, 15, 0.6),
    "stalls": with_stalls(autoregressive(0.5, 0.04), 0.01),
}


@pytest.mark.parametrize("name", PROCESSES)
def test_two_windows_of_the_same_process_are_seldom_called_different(name: str) -> None:
    chance = random.Random(f"same {name}")
    draw = PROCESSES[name]
    wrong = 0
    for _ in range(PAIRS):
        effect = effect_of(draw(chance), draw(chance))
        assert effect is not None
        wrong += verdict(effect, higher_is_better=True) in (Verdict.BETTER, Verdict.WORSE)
    assert wrong <= 0.05 * PAIRS


@pytest.mark.long
def test_five_per_cent_more_at_two_per_cent_of_block_noise_is_found() -> None:
    # Blocks of 30 s whose means vary by 2 %, ten minutes on each side.
    chance = random.Random("five per cent")
    found = 0
    for _ in range(PAIRS):
        blocks = [[chance.gauss(mean, 0.02 * mean) for _ in range(20)] for mean in (1000.0, 1050.0)]
        a, b = ([chance.gauss(mean, 0.01 * mean) for mean in side for _ in range(30)] for side in blocks)
        effect = effect_of(a, b)
        assert effect is not None
        found += verdict(effect, higher_is_better=True) is Verdict.BETTER
    assert found >= 0.8 * PAIRS


def test_whole_runs_are_blocks_already() -> None:
    chance = random.Random("runs")
    found = 0
    for _ in range(PAIRS):
        a, b = ([chance.gauss(mean, 0.02 * mean) for _ in range(8)] for mean in (1000.0, 1050.0))
        effect = of_runs(a, b)
        assert effect is not None
        found += verdict(effect, higher_is_better=True) is Verdict.BETTER
    assert found >= 0.8 * PAIRS


def test_the_interval_holds_the_truth_nineteen_times_out_of_twenty() -> None:
    chance = random.Random("cover")
    held = 0
    for _ in range(400):
        a, b = ([chance.gauss(mean, 0.02 * mean) for _ in range(8)] for mean in (1000.0, 1030.0))
        effect = of_runs(a, b)
        assert effect is not None
        assert effect.low is not None
        assert effect.high is not None
        held += effect.low <= 0.03 <= effect.high
    assert held >= 0.94 * 400


def test_less_latency_is_better() -> None:
    slow, fast = [10.0, 10.1, 9.9, 10.0, 10.05], [8.0, 8.1, 7.9, 8.0, 8.05]
    effect = of_runs(slow, fast)
    assert effect is not None
    assert effect.relative == pytest.approx(-0.2, abs=0.005)
    assert verdict(effect, higher_is_better=False) is Verdict.BETTER
    assert verdict(effect, higher_is_better=True) is Verdict.WORSE


def test_three_runs_can_estimate_and_cannot_decide() -> None:
    effect = of_runs([100.0, 101.0, 99.0], [150.0, 151.0, 149.0])
    assert effect is not None
    assert effect.relative == pytest.approx(0.5)
    assert effect.low is None
    assert verdict(effect, higher_is_better=True) is Verdict.UNDECIDED
    assert blocks_needed(effect) == 4


def test_a_tight_interval_around_nothing_says_no_difference_and_a_wide_one_how_much_more_it_takes() -> None:
    chance = random.Random("tight")
    tight = of_runs(*([chance.gauss(1000, 5) for _ in range(20)] for _ in range(2)))
    assert tight is not None
    assert verdict(tight, higher_is_better=True) is Verdict.NO_DIFFERENCE
    wide = of_runs([900.0, 1100.0, 950.0, 1050.0], [920.0, 1110.0, 940.0, 1070.0])
    assert wide is not None
    assert verdict(wide, higher_is_better=True) is Verdict.UNDECIDED
    needed = blocks_needed(wide)
    assert needed is not None
    assert needed > 50


def test_nothing_is_said_of_nothing() -> None:
    assert effect_of([], [1.0]) is None
    assert effect_of([0.0] * 100, [1.0] * 100) is None


def test_the_memory_of_a_series_is_found() -> None:
    # Of an AR(1) process it is (1 + rho) / (1 - rho).
    chance = random.Random("memory")
    for rho, known in ((0.0, 1.0), (0.5, 3.0), (0.9, 19.0)):
        deviation, values = 0.0, []
        for _ in range(40_000):
            deviation = rho * deviation + chance.gauss(0.0, 1.0)
            values.append(deviation)
        assert autocorrelation_time(values) == pytest.approx(known, rel=0.2, abs=0.2)


def test_blocks_are_whole_periods_and_leave_out_the_beginning() -> None:
    flat = [float(value % 2) for value in range(100)]
    assert block_length((flat,), period=30) == 30
    assert block_means([100.0, 1.0, 1.0, 2.0, 2.0], 2) == [1.0, 2.0]


def test_the_interval_of_runs_is_that_of_student_s_test_on_logarithms() -> None:
    a, b = [1000.0, 1040.0, 975.0, 1010.0, 1022.0], [1100.0, 1060.0, 1085.0, 1130.0]
    logs = [[math.log(value) for value in side] for side in (a, b)]
    whole = tuple(math.exp(fmean(side)) for side in logs)
    effect = effect_of_runs((whole[0], whole[1]), a, b)
    known = stats.ttest_ind(logs[1], logs[0])
    interval = known.confidence_interval(0.95)
    assert effect is not None
    assert effect.chance == pytest.approx(known.pvalue, rel=1e-6)
    assert effect.low == pytest.approx(math.expm1(interval.low), rel=1e-6)
    assert effect.high == pytest.approx(math.expm1(interval.high), rel=1e-6)


def test_percentages_of_runs_are_compared_by_points() -> None:
    a, b = [0.0, 1.0, 0.5, 0.5], [5.0, 6.0, 5.5, 5.5]
    effect = effect_of_runs((fmean(a), fmean(b)), a, b, 100.0)
    known = stats.ttest_ind(b, a).confidence_interval(0.95)
    assert effect is not None
    assert effect.relative == pytest.approx(0.05)
    assert effect.low == pytest.approx(known.low / 100.0)
    assert effect.high == pytest.approx(known.high / 100.0)


@pytest.mark.parametrize("runs", [4, 6])
def test_unchanged_runs_are_called_better_or_worse_no_more_often_than_promised(runs: int) -> None:
    """2 % from run to run; thirteen other figures beside the first, each with noise of its own."""
    chance = random.Random(f"unchanged, {runs}")
    pairs, first, others, either = 2_000, 0, 0, 0
    for _ in range(pairs):
        effects = [
            of_runs(*([1000.0 * math.exp(chance.gauss(0.0, spread)) for _ in range(runs)] for _ in range(2)))
            for spread in (0.02, *[0.02, 0.1] * 6, 0.3)
        ]
        chances = [effect.chance for effect in effects if effect is not None and effect.chance is not None]
        assert len(chances) == 14
        found = chances[0] < WRONG, bool(certain_together(dict(enumerate(chances[1:]))))
        first, others, either = first + found[0], others + found[1], either + any(found)
    assert 0 < first <= 0.03 * pairs
    assert 0 < others <= 0.03 * pairs
    assert either <= 0.05 * pairs


def test_figures_judged_together_are_corrected_by_holm() -> None:
    assert certain_together({"a": 0.001, "b": 0.009, "c": 0.5}) == {"a", "b"}
    assert certain_together({"a": 0.009, "b": 0.009, "c": 0.5}) == frozenset()
    assert certain_together({"a": 0.019}) == {"a"}
    assert certain_together({}) == frozenset()


def test_what_runs_differ_by_widens_the_interval_of_fewer_and_never_narrows_it() -> None:
    chance = random.Random("widened")
    effect = effect_of(*([chance.gauss(mean, 10.0) for _ in range(300)] for mean in (1000.0, 1030.0)))
    assert effect is not None
    assert effect.certain
    spread = spread_of([[math.log(chance.gauss(1000.0, 30.0)) for _ in range(5)] for _ in range(2)])
    assert spread.degrees == 8
    wide = widened(effect, spread, (1, 1), ratio=True)
    assert wide.low is not None
    assert effect.low is not None
    assert wide.low < effect.low < 0.03
    assert wide.relative == effect.relative
    assert not wide.certain
    assert widened(effect, RunSpread(), (1, 1), ratio=True) == effect
    assert widened(effect, RunSpread(1e-9, 8), (1, 1), ratio=True) == effect
