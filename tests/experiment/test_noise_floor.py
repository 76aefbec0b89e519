"""The noise floor out of made runs, and what it says can be seen."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest

from pgtop_tune.base.errors import RecordingProblem, UsageProblem
from pgtop_tune.cli.commands.experiment.noise_floor import (
    MeasuredNoise,
    Shares,
    noise_json,
    noise_markdown,
    noise_text,
    shares,
)
from pgtop_tune.compare.noise import KnownNoise, NoiseGroup, known_words, load_fingerprint, long_run_variance
from pgtop_tune.compare.sides.figures import TPS
from pgtop_tune.compare.sides.from_records import material_of_records
from pgtop_tune.compare.sides.material import ComparedRun, Gathered, LoadKey
from pgtop_tune.compare.statistics.before_after import Second, difference
from pgtop_tune.compare.statistics.effect import RunSpread, run_noise, t_quantile
from pgtop_tune.experiment.noise_floor import (
    Floor,
    SecondSeen,
    before_after_half,
    floor_of,
    pairs_needed,
    runs_a_side,
    seen_of,
    visible,
)
from pgtop_tune.model.run_result import as_json as record_json
from tests.support.results import result
from tests.support.sides import frames, side

COIN = 5


def run_of(values: list[float], **more: object) -> ComparedRun:
    gathered = Gathered()
    for second, value in enumerate(values):
        gathered.add(TPS, float(second), value, 1.0)
    return ComparedRun(
        began_ms=1000, key=LoadKey(name="tpcb-like", clients=4), gathered=gathered, seconds=float(len(values)),
        steady=True, **more,  # type: ignore[arg-type]
    )  # fmt: skip


def autoregressive(seconds: int, phi: float, sd: float, seed: int = 1) -> list[float]:
    chance, value, found = np.random.default_rng(seed), 0.0, []
    for _ in range(seconds):
        value = phi * value + math.sqrt(1.0 - phi * phi) * chance.normal(0.0, sd)
        found.append(1000.0 * math.exp(value))
    return found


def floor(run: ComparedRun, seen: dict[int, SecondSeen] | None = None) -> Floor:
    return floor_of(run, seen or {}, random.Random(COIN))


def test_white_noise_has_the_pair_deviation_that_arithmetic_gives_and_no_neighbours() -> None:
    """White noise of 3 %: the ratio of two means of ten seconds deviates by 3 % · √(2/10)."""
    found = floor(run_of(autoregressive(1200, 0.0, 0.03)))
    assert found.kept.pair_sd == pytest.approx(0.03 * math.sqrt(0.2), rel=0.2)
    assert found.kept.pairs == 60
    assert found.kept.autocorrelation_s < 1.5
    assert found.kept.variance == pytest.approx(0.03**2, rel=0.6)


def test_neighbouring_seconds_that_resemble_each_other_are_counted_as_one() -> None:
    """First-order autoregression of 0.6: (1 + 0.6)/(1 − 0.6) = 4 seconds count as one."""
    found = floor(run_of(autoregressive(3000, 0.6, 0.04)))
    assert found.kept.autocorrelation_s == pytest.approx(4.0, rel=0.4)
    assert found.kept.pair_sd == pytest.approx(0.032, rel=0.25)


def test_nothing_changed_is_seldom_called_a_change() -> None:
    claimed = 0
    for seed in range(200):
        verdict = floor(run_of(autoregressive(300, 0.6, 0.04, seed))).paired.verdict
        claimed += verdict in ("better", "worse")
    assert claimed <= 10


def test_checkpoints_have_a_period_and_a_depth_and_pairs_at_their_edges_are_left_out() -> None:
    values = autoregressive(600, 0.0, 0.01)
    writing = {second: second % 180 < 54 for second in range(600)}
    dipped = [value * (0.85 if writing[second] else 1.0) for second, value in enumerate(values)]
    seen = {second: SecondSeen(wrote, 10.0) for second, wrote in writing.items()}
    found = floor(run_of(dipped, checkpoints_s=[0.0, 180.0, 360.0, 540.0]), seen)
    assert found.kept.checkpoint_period_s == 180.0
    assert found.kept.checkpoint_depth == pytest.approx(0.15, abs=0.01)
    assert 0 < found.left_out < 10
    assert found.kept.pair_sd < 0.02
    assert found.kept.foreign_cpu == 10.0


def test_without_a_checkpoint_neither_is_known() -> None:
    found = floor(run_of(autoregressive(300, 0.0, 0.01)))
    assert (found.kept.checkpoint_period_s, found.kept.checkpoint_depth, found.kept.foreign_cpu) == (None, None, None)


@pytest.mark.parametrize("values", [[], [1000.0] * 20, [0.0] * 100])
def test_a_load_that_is_too_short_or_does_nothing_is_refused(values: list[float]) -> None:
    with pytest.raises(RecordingProblem, match="too short"):
        floor(run_of(values))


def test_a_run_without_any_deviation_is_told_all_the_same() -> None:
    found = floor(run_of([1000.0] * 300))
    assert found.paired.verdict == "equivalent"
    assert all(each.before_after for each in visible(found.kept, None) if each.share >= 0.02)


def test_frames_tell_what_weighed_on_each_second() -> None:
    made = frames(seconds=40)
    seen = seen_of(made, 1)
    assert {10, 20, 30} <= set(seen)
    assert all(each.writing is False for each in seen.values())
    assert seen_of(made, 2) == {}
    assert floor(side(made).runs[0], seen).kept.seconds >= 30


@pytest.mark.parametrize(("phi", "sd"), [(0.0, 0.03), (0.6, 0.04)])
def test_the_interval_of_before_and_after_is_that_of_its_regression(phi: float, sd: float) -> None:
    halves, told = [], []
    for seed in range(12):
        values = autoregressive(780, phi, sd, seed)
        before = [Second(at - 302.0, value) for at, value in enumerate(values[:300])]
        after = [Second(at + 5.0, value) for at, value in enumerate(values[300:])]
        found = difference(before, after)
        halves.append(math.expm1(t_quantile(0.995, found.degrees) * found.error))
        told.append(before_after_half(long_run_variance(values)))
    assert float(np.mean(told)) == pytest.approx(float(np.mean(halves)), rel=0.2)


def test_smaller_differences_take_longer() -> None:
    pairs = [pairs_needed(0.032, share) for share in (0.02, 0.03, 0.05, 0.10)]
    assert pairs == sorted(pairs, key=lambda each: -(each or 0))
    assert pairs_needed(0.5, 0.01) is None
    noise = run_noise((), (), history=RunSpread(16 * 0.02**2, 16))
    runs = [runs_a_side(noise, share) for share in (0.02, 0.03, 0.05, 0.10)]
    assert runs == sorted(runs, key=lambda each: -(each or 0))
    assert runs_a_side(run_noise((), (), history=RunSpread(16 * 0.5**2, 16)), 0.01) is None


@pytest.mark.parametrize(
    ("seconds", "runs", "expected"),
    [
        (600, None, Shares(300, 6, 50)),
        (120, None, Shares(60, 2, 30)),
        (120, 0, Shares(120, 0, 0)),
        (3600, None, Shares(3240, 6, 60)),
        (600, 10, Shares(300, 10, 30)),
    ],
)
def test_half_of_the_time_is_for_separate_runs(seconds: float, runs: int | None, expected: Shares) -> None:
    assert shares(seconds, runs) == expected


@pytest.mark.parametrize(("seconds", "runs"), [(60, None), (0, None), (30, 0), (300, 20), (100_000, None)])
def test_a_time_that_does_not_fit_is_refused(seconds: float, runs: int | None) -> None:
    with pytest.raises(UsageProblem):
        shares(seconds, runs)


def told(found: Floor, not_kept: str = "") -> MeasuredNoise:
    known = material_of_records([record_json(result())], "")
    return MeasuredNoise(
        load=load_fingerprint(known, known.runs[0]), floor=found, cell=None, run_s=60, not_kept=not_kept
    )


def test_the_words_say_the_figures_and_what_can_be_seen() -> None:
    seen = {second: SecondSeen(False, 21.0) for second in range(600)}
    said = "\n".join(noise_text(told(floor(run_of(autoregressive(600, 0.6, 0.04)), seen))))
    assert said.startswith("noise floor of tpcb-like ×16 at scale 50, PostgreSQL ")
    assert "of a pair of 10 s blocks" in said
    assert "judged as A/A: " in said
    assert "other programs used 21 % of the CPU time" in said
    assert "saved: later comparisons" in said
    assert "before/after detects ±" in said


def test_few_pairs_and_what_is_not_kept_are_said() -> None:
    said = noise_markdown(told(floor(run_of(autoregressive(60, 0.0, 0.01))), "pgbench was the bottleneck"))
    assert any("3 pairs are few" in line for line in said)
    assert "- not saved: pgbench was the bottleneck" in said
    assert '"kept": false' in noise_json(told(floor(run_of(autoregressive(60, 0.0, 0.01))), "x"))[0]


def test_what_is_known_of_a_load_is_one_line() -> None:
    found = told(floor(run_of(autoregressive(600, 0.6, 0.04))))
    assert found.load is not None
    group = NoiseGroup(at_ms=1_700_000_000_000, began_ms=(1, 2), spreads={"tps": RunSpread(0.0009, 1)})
    said = known_words(KnownNoise(found.load, (group,), found.floor.kept))
    assert "runs differ by 3.0 %, pairs of 10 s blocks by 2." in said
    assert "\n" not in said
    assert known_words(None) == known_words(KnownNoise(found.load)) == ""
