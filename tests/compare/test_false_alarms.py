"""How often recordings of the same load are said to differ or are called better, and how often a difference is found.

Recordings are written and read as files; only pgbench's own lines are in them.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pytest

from pgtop_tune.compare.comparison import compare
from pgtop_tune.compare.sides.figures import line_sums
from pgtop_tune.compare.sides.from_recording import read_recording
from pgtop_tune.compare.sides.material import ComparedRun, Gathered, LoadKey, Material
from pgtop_tune.model.bench import BenchProgress, BenchRun, BenchSample, RunState
from pgtop_tune.model.frame import Frame
from pgtop_tune.model.postgres import CheckpointCounters, PostgresSample
from tests.support.sides import recorded

SECONDS: Final = 300
LEVEL: Final = 1000.0
Process = Callable[[random.Random], Iterator[tuple[float, int]]]
"""Second by second a deviation as a share, and how many checkpoints have begun."""


def autoregressive(keeps: float, spread: float) -> Process:
    """Each deviation keeps a part of the one before."""

    def process(chance: random.Random) -> Iterator[tuple[float, int]]:
        deviation = chance.gauss(0.0, spread)
        while True:
            yield deviation, 0
            deviation = keeps * deviation + chance.gauss(0.0, spread * (1 - keeps**2) ** 0.5)

    return process


def with_dips(process: Process, period: int, lasts: int) -> Process:
    """The same with a checkpoint now and then, begun at any moment of its cycle."""

    def dipping(chance: random.Random) -> Iterator[tuple[float, int]]:
        phase = chance.randrange(period)
        for second, (deviation, _) in enumerate(process(chance), phase):
            yield deviation - (0.4 if second % period < lasts else 0.0), second // period

    return dipping


KINDS: Final = {
    "independent": autoregressive(0.0, 0.05),
    "half": autoregressive(0.5, 0.05),
    "sticky": autoregressive(0.9, 0.03),
    "checkpoints": with_dips(autoregressive(0.5, 0.04), 50, 8),
    "few checkpoints": with_dips(autoregressive(0.5, 0.04), 110, 20),
}


def verdict(directory: Path, process: Process, seed: str, gain: float = 1.0) -> str:
    """Of B against A, both drawn from the same process, B with a gain."""
    sides = []
    for name, level in (("a", LEVEL), ("b", LEVEL * gain)):
        deviations = process(random.Random(f"{seed} {name}"))
        path = directory / f"{name}.jsonl"
        path.unlink(missing_ok=True)
        recorded([frame(second, level, *next(deviations)) for second in range(SECONDS)], path)
        sides.append(read_recording(path))
    row = compare(*sides).phases[0].row("tps")
    assert row is not None
    return row.verdict


def frame(second: int, level: float, deviation: float, checkpoints: int) -> Frame:
    tps = max(level * (1.0 + deviation), 1.0)
    run = BenchRun(1, "tpcb-like", "pgbench", "18.1", 7, 0, RunState.RUNNING, 16, 4, SECONDS, None, "prepared", 1.0)
    line = BenchProgress(float(second + 1), tps, 16_000.0 / tps, 1.0)
    begun = CheckpointCounters(float(second), checkpoints, 0, 0.0, 0.0, 0, 0, 0, None, 0, None, None, None)
    return Frame(
        second, second * 1000, float(second), postgres=PostgresSample(checkpoints=begun),
        bench=BenchSample(float(second), run, (line,)),
    )  # fmt: skip


def called_different(directory: Path, pairs: int, gain: float = 1.0) -> list[str]:
    found = []
    for kind, process in KINDS.items():
        verdicts = [verdict(directory, process, f"{kind} {pair}", gain) for pair in range(pairs)]
        found += [f"{kind} {pair}" for pair, said in enumerate(verdicts) if said in ("better", "worse", "differ")]
    return found


def found_gains(directory: Path, pairs: int) -> int:
    """Twenty per cent more, in one run a side."""
    process = autoregressive(0.0, 0.02 * 5**0.5)
    return sum(verdict(directory, process, f"gain {pair}", 1.20) == "better" for pair in range(pairs))


def test_recordings_of_the_same_load_are_seldom_called_different(tmp_path: Path) -> None:
    assert len(called_different(tmp_path, 3)) <= 1


def test_twenty_per_cent_more_is_found_in_most_pairs(tmp_path: Path) -> None:
    assert found_gains(tmp_path, 5) >= 4


def repeated(chance: random.Random, runs: int, gain: float = 1.0) -> list[Material]:
    """Two sides of runs of a minute measured in turn, which differ by 2 % among each other and by 3 % from second to
    second; throughput of B has a gain."""
    made: list[list[ComparedRun]] = [[], []]
    for place in range(2 * runs):
        which, level = (place + 1) // 2 % 2, LEVEL * math.exp(chance.gauss(0.0, 0.02))
        gathered = Gathered()
        for second in range(60):
            tps = level * (gain if which else 1.0) * (1.0 + chance.gauss(0.0, 0.03))
            for figure, part, whole in line_sums(BenchProgress(second + 1.0, tps, 16_000.0 / tps, 1.0), 1.0):
                gathered.add(figure, float(second), part, whole)
        made[which].append(ComparedRun(place * 100_000, LoadKey("tpcb-like", 16), gathered, seconds=60.0, steady=True))
    return [Material(name, 0, 0.0, tuple(runs), ()) for name, runs in zip("AB", made, strict=True)]


def verdicts_of(pairs: int, runs: int, gain: float = 1.0) -> list[set[str]]:
    """Of all figures, comparison by comparison."""
    chance = random.Random(f"{runs} runs, {gain}")
    phases = [compare(*repeated(chance, runs, gain)).phases[0] for _ in range(pairs)]
    return [{row.verdict for row in phase.rows} for phase in phases]


def test_with_two_per_cent_from_run_to_run_single_runs_are_seldom_called_better_or_worse() -> None:
    assert sum(bool(each & {"better", "worse", "more", "less"}) for each in verdicts_of(60, 1)) <= 2


def test_with_two_per_cent_from_run_to_run_four_runs_a_side_are_seldom_called_better_or_worse() -> None:
    assert sum(bool(each & {"better", "worse"}) for each in verdicts_of(100, 4)) <= 5


def test_eight_per_cent_more_is_found_in_most_comparisons_of_four_runs_a_side() -> None:
    assert sum("better" in each for each in verdicts_of(20, 4, 1.08)) >= 16


def sides(directory: Path, process: Process) -> list[Material]:
    found = []
    for name in ("a", "b"):
        deviations = process(random.Random(name))
        found.append(
            read_recording(recorded([frame(at, LEVEL, *next(deviations)) for at in range(SECONDS)], directory / name))
        )
    return found


def test_windows_with_checkpoints_are_cut_to_whole_cycles(tmp_path: Path) -> None:
    phase = compare(*sides(tmp_path, KINDS["checkpoints"])).phases[0]
    assert phase.period_s == 50
    row = phase.row("tps")
    assert row is not None
    assert row.effect is not None
    for run in (*phase.a, *phase.b):
        assert (run.seconds - run.warm_up_s) % 50 == pytest.approx(0, abs=0.5)
    assert row.a == pytest.approx(LEVEL * (1 - 0.4 * 8 / 50), rel=0.01)
    assert any("whole cycles" in note for note in phase.notes)


def test_windows_with_too_few_checkpoints_name_them(tmp_path: Path) -> None:
    phase = compare(*sides(tmp_path, KINDS["few checkpoints"])).phases[0]
    assert phase.period_s is None
    assert any(note.startswith("checkpoints: A") for note in phase.notes)


@pytest.mark.long
def test_of_two_hundred_pairs_at_most_ten_are_called_different(tmp_path: Path) -> None:
    assert len(called_different(tmp_path, 40)) <= 10


@pytest.mark.long
def test_twenty_per_cent_more_is_found_in_at_least_four_of_five_pairs(tmp_path: Path) -> None:
    assert found_gains(tmp_path, 50) >= 40
