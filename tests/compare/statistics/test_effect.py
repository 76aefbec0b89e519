"""Verdicts on simulated loads: noise that resembles its neighbours, checkpoints, drift; same and different."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from statistics import fmean

import pytest

from pgtop_tune.compare.statistics.effect import (
    Effect,
    Verdict,
    autocorrelation_time,
    block_length,
    block_means,
    certain_together,
    effect_of_whole,
    verdict,
)

PAIRS = 200
SECONDS = 600
Process = Callable[[random.Random], list[float]]


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


def effect_of(a: list[float], b: list[float]) -> Effect | None:
    """Of means of blocks."""
    length = block_length((a, b))
    return effect_of_whole((fmean(a), fmean(b)), block_means(a, length), block_means(b, length), length)


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


def test_nothing_is_said_of_nothing() -> None:
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


def test_figures_judged_together_are_corrected_by_holm() -> None:
    assert certain_together({"a": 0.001, "b": 0.009, "c": 0.5}) == {"a", "b"}
    assert certain_together({"a": 0.009, "b": 0.009, "c": 0.5}) == frozenset()
    assert certain_together({"a": 0.019}) == {"a"}
    assert certain_together({}) == frozenset()
