"""How often recordings of the same load are called different, and how often a real difference is found.

Recordings are written and read as files; only pgbench's own lines are in them.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pytest

from pgtop_tune.analysis.comparison import compare
from pgtop_tune.analysis.from_recording import read_recording
from pgtop_tune.model.bench import BenchProgress, BenchRun, BenchSample, RunState
from pgtop_tune.model.frame import Frame
from tests.support.sides import recorded

SECONDS: Final = 300
LEVEL: Final = 1000.0
Process = Callable[[random.Random], Iterator[float]]


def autoregressive(keeps: float, spread: float) -> Process:
    """Deviations, as shares: each keeps a part of the one before."""

    def process(chance: random.Random) -> Iterator[float]:
        deviation = chance.gauss(0.0, spread)
        while True:
            yield deviation
            deviation = keeps * deviation + chance.gauss(0.0, spread * (1 - keeps**2) ** 0.5)

    return process


def with_dips(process: Process, period: int, lasts: int) -> Process:
    """The same with a checkpoint now and then, begun at any moment of its cycle."""

    def dipping(chance: random.Random) -> Iterator[float]:
        phase = chance.randrange(period)
        for second, deviation in enumerate(process(chance), phase):
            yield deviation - (0.4 if second % period < lasts else 0.0)

    return dipping


KINDS: Final = {
    "independent": autoregressive(0.0, 0.05),
    "half": autoregressive(0.5, 0.05),
    "sticky": autoregressive(0.9, 0.03),
    "checkpoints": with_dips(autoregressive(0.5, 0.04), 60, 10),
}


def verdict(directory: Path, process: Process, seed: str, gain: float = 1.0) -> str:
    """Of B against A, both drawn from the same process, B with a gain."""
    sides = []
    for name, level in (("a", LEVEL), ("b", LEVEL * gain)):
        deviations = process(random.Random(f"{seed} {name}"))
        path = directory / f"{name}.jsonl"
        path.unlink(missing_ok=True)
        recorded([frame(second, level * (1.0 + next(deviations))) for second in range(SECONDS)], path)
        sides.append(read_recording(path))
    row = compare(*sides).phases[0].row("tps")
    assert row is not None
    return row.verdict


def frame(second: int, tps: float) -> Frame:
    run = BenchRun(1, "tpcb-like", "pgbench", "18.1", 7, 0, RunState.RUNNING, 16, 4, SECONDS, None, "prepared", 1.0)
    line = BenchProgress(float(second + 1), max(tps, 1.0), 16_000.0 / max(tps, 1.0), 1.0)
    return Frame(second, second * 1000, float(second), bench=BenchSample(float(second), run, (line,)))


def called_different(directory: Path, pairs: int, gain: float = 1.0) -> list[str]:
    found = []
    for kind, process in KINDS.items():
        verdicts = [verdict(directory, process, f"{kind} {pair}", gain) for pair in range(pairs)]
        found += [f"{kind} {pair}" for pair, said in enumerate(verdicts) if said in ("better", "worse")]
    return found


def found_gains(directory: Path, pairs: int) -> int:
    """Five per cent more, where blocks of five seconds scatter by two per cent."""
    process = autoregressive(0.0, 0.02 * 5**0.5)
    return sum(verdict(directory, process, f"gain {pair}", 1.05) == "better" for pair in range(pairs))


def test_recordings_of_the_same_load_are_seldom_called_different(tmp_path: Path) -> None:
    assert len(called_different(tmp_path, 4)) <= 1


def test_five_per_cent_more_is_found_in_most_pairs(tmp_path: Path) -> None:
    assert found_gains(tmp_path, 5) >= 4


@pytest.mark.long
def test_of_two_hundred_pairs_at_most_ten_are_called_different(tmp_path: Path) -> None:
    assert len(called_different(tmp_path, 50)) <= 10


@pytest.mark.long
def test_five_per_cent_more_is_found_in_at_least_four_of_five_pairs(tmp_path: Path) -> None:
    assert found_gains(tmp_path, 50) >= 40
