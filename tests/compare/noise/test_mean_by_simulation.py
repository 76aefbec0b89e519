"""Repeats until an interval is narrow, on simulated truth: what is told at the stop holds it."""

from __future__ import annotations

import math

import numpy as np
import pytest

from pgtop_tune.compare.noise import mean_half, more_runs
from pgtop_tune.compare.statistics.effect import RunSpread, run_noise, spread_of

SERIES = 3000
WITHIN_SD = 0.005


def until(chance: np.random.Generator, sd: float, known: RunSpread, goal: float = 0.02) -> tuple[int, bool]:
    """Runs that were made, and whether the interval at the stop holds the truth, which is 0."""
    logs = list(chance.normal(0.0, math.hypot(sd, WITHIN_SD), 2))
    while True:
        half = mean_half(run_noise(logs, (), WITHIN_SD**2, known), len(logs))
        if half <= goal or len(logs) == 12:
            return len(logs), abs(float(np.mean(logs))) <= math.log1p(half)
        logs.append(chance.normal(0.0, math.hypot(sd, WITHIN_SD)))


# In 15,000 series the rate is 99 % at 2 %, 97 % at 3 %, 96 % at 5 %: there the assumed 2 % are most wrong.
@pytest.mark.parametrize("sd", [0.005, 0.01, 0.02, 0.03, 0.05])
@pytest.mark.parametrize("earlier", [False, True])
def test_the_interval_at_the_stop_holds_the_truth_in_at_least_95_per_cent(sd: float, earlier: bool) -> None:
    chance = np.random.default_rng(7)
    held = 0
    for _ in range(SERIES):
        groups = chance.normal(0.0, math.hypot(sd, WITHIN_SD), (8, 3)) if earlier else np.empty((0, 3))
        held += until(chance, sd, spread_of([list(map(float, group)) for group in groups]))[1]
    assert held / SERIES >= 0.95 - 2 * math.sqrt(0.05 * 0.95 / SERIES)


def test_history_spares_runs_where_runs_are_alike() -> None:
    chance = np.random.default_rng(8)
    known = RunSpread(squares=16 * 0.01**2, degrees=16)
    with_it = [until(chance, 0.01, known)[0] for _ in range(200)]
    without = [until(chance, 0.01, RunSpread())[0] for _ in range(200)]
    assert np.mean(with_it) < np.mean(without) - 2


def test_the_runs_that_are_said_to_be_needed_are_enough() -> None:
    noise = run_noise((), (), history=RunSpread(squares=16 * 0.03**2, degrees=16))
    needed = more_runs(noise, 0, 0.02)
    assert needed is not None
    assert needed > 12
    logs = [0.03 * (-1) ** place for place in range(needed)]
    again = run_noise(logs, (), history=RunSpread(squares=16 * 0.03**2, degrees=16))
    assert mean_half(again, needed) <= 0.021
    assert more_runs(noise, 0, 0.0001) is None
