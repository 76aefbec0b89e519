"""The noise floor of a machine and load: one continuous run judged as if something had been switched in it (A/A), and
separate runs; and what difference can be seen over it, in how many minutes.

Blocks of ten seconds stand in pairs; a coin says which one is called B. So a pair's log ratio has the noise that a
switchback would have.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Sequence
from itertools import pairwise
from statistics import fmean, median
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from pgtop_tune.base.errors import RecordingProblem
from pgtop_tune.base.units import duration
from pgtop_tune.compare.noise import NoiseFloor, fingerprint_of, known_noise, long_run_variance
from pgtop_tune.compare.sides.figures import TPS
from pgtop_tune.compare.sides.fingerprint import FactsSeen
from pgtop_tune.compare.sides.from_recording import load_key
from pgtop_tune.compare.sides.material import ComparedRun
from pgtop_tune.compare.statistics.before_after import FEWEST_BEFORE, LOOKS, SPENT
from pgtop_tune.compare.statistics.effect import RunNoise, autocorrelation_time, half_width, t_quantile
from pgtop_tune.compare.statistics.switchback import FEWEST_PAIRS, MOST_PAIRS, Paired, decide
from pgtop_tune.experiment.attribution import known_mean
from pgtop_tune.metrics.catalogue import Interval
from pgtop_tune.metrics.checkpoints import CHECKPOINT_WRITES
from pgtop_tune.metrics.host import CPU_FOREIGN
from pgtop_tune.metrics.overload import always_valid_t
from pgtop_tune.model.absence import Unavailable
from pgtop_tune.model.bench import BenchRun
from pgtop_tune.model.frame import Frame

# The noise floor of the load that runs, as `experiment noise` has measured it, and what a time shows beside it.

_TWICE: Final = 1.0
"""A difference, as a share: a time that does not even show such a one is no time for an experiment."""


def known_floor(frame: Frame, run: BenchRun) -> NoiseFloor | None:
    """Return the noise floor of this machine and load; None where it was never measured. Blocking.

    Args:
        frame: The newest, for machine, server and data.
    """
    facts = FactsSeen()
    facts.take(frame)
    noise = known_noise(fingerprint_of(facts.facts(()), load_key(run), tuple(filter(None, run.script_hashes))))
    return None if noise is None else noise.floor


class SeenInTime(Struct, frozen=True):
    """The differences that pairs of blocks show in a time.

    Attributes:
        sentence: The answer for the operator.
        needed_s: What an experiment needs where the time shows not even twice as much; None where it does, and where
            the most pairs do not suffice.
        hopeless: Whether the time shows not even twice as much.
    """

    sentence: str
    needed_s: float | None = None
    hopeless: bool = False


def seen_in(floor: NoiseFloor, for_s: float, pair_s: float, quick_s: float) -> SeenInTime:
    """Return the smallest difference that the always-valid interval of so many pairs excludes. Pure.

    Args:
        for_s: The time for pairs.
        pair_s: The length of a pair.
        quick_s: The length of a pair with a large effect that is there at once.
    """
    differ = f"pairs of blocks of this load differ by {100.0 * floor.pair_sd:.1f} %"
    if _smallest(floor, for_s, quick_s) < _TWICE:
        visible_words = (
            f"{duration(for_s)} can show differences of {100.0 * _smallest(floor, for_s, pair_s):.1f} % or more"
        )
        return SeenInTime(f"noise known: {differ}; {visible_words}")
    needed = pairs_needed(floor.pair_sd, _TWICE)
    return SeenInTime(
        sentence=f"{differ}, and {duration(for_s)} is too short to show even doubled throughput",
        needed_s=None if needed is None else needed * quick_s,
        hopeless=True,
    )


def _smallest(floor: NoiseFloor, for_s: float, pair_s: float) -> float:
    pairs = min(max(int(for_s / pair_s), FEWEST_PAIRS), MOST_PAIRS)
    return math.expm1(always_valid_t(pairs, 0.05) * floor.pair_sd / math.sqrt(pairs))


BLOCK_S: Final = 10
PAIR_S: Final = 28.0
"""A pair of a switchback with the time in which a change settles, on average."""
SHARES: Final = (0.01, 0.02, 0.03, 0.05, 0.10)
"""Differences for which the effort to see them is shown."""
_APART: Final = 0.2
"""Shares of two blocks under a checkpoint that differ by more make no pair."""
_PAST: Final = 130
_MOST_RUNS: Final = 100
_BEFORE_S: Final = 300
_SETTLING_S: Final = 5
_NOTICED_S: Final = 2
_DRIFT: Final = 0.04
"""The drift in ten minutes that the regression of `statistics.before_after` allows."""
_DEGREES: Final = 16
"""Degrees of freedom of both sides of its last look."""
_DRIFT_S: Final = 600.0


class SecondSeen(Struct, frozen=True):
    """Weights on a second of a run besides the load.

    Attributes:
        writing: A checkpoint wrote; None where that is not known.
        foreign_cpu: The CPU time of other programs, per cent of all cores; None where that is not known.
    """

    writing: bool | None
    foreign_cpu: float | None


Seen = dict[int, SecondSeen]
"""Weights by second since the run began."""


class Floor(Struct, frozen=True):
    """Findings of a continuous run.

    Attributes:
        kept: The floor for the noise store.
        paired: The verdict on its pairs: the same against itself.
        left_out: Pairs that a checkpoint made unlike.
        doubts: Ids of what speaks against the run.
    """

    kept: NoiseFloor
    paired: Paired
    left_out: int
    doubts: tuple[str, ...]


class Visible(Struct, frozen=True):
    """The pairs and runs that it takes to see a difference.

    Attributes:
        share: The difference.
        pairs: The pairs of a switchback; None beyond 400.
        runs: On each side; None beyond 100.
        before_after: Whether the title can see it at its last look.
    """

    share: float
    pairs: int | None
    runs: int | None
    before_after: bool


def seen_of(frames: Iterable[Frame], number: int) -> Seen:
    """Return what frames tell of the seconds of one run, from its first frame on."""
    seconds_seen: Seen = {}
    past: list[Frame] = []
    began_s: float | None = None
    for frame in frames:
        past.append(frame)
        del past[:-_PAST]
        if isinstance(frame.bench, Unavailable) or frame.bench.run.run != number:
            continue
        if began_s is None:
            began_s = frame.elapsed_s
            continue
        interval = Interval(past)
        writes = CHECKPOINT_WRITES(interval)
        second = int(frame.elapsed_s - began_s)
        seconds_seen[second] = SecondSeen(None if writes is None else writes > 0.0, CPU_FOREIGN(interval))
    return seconds_seen


def floor_of(run: ComparedRun, seconds_seen: Seen, coin: random.Random) -> Floor:
    """Return the floor that a continuous run shows.

    Args:
        seconds_seen: The weights on its seconds.
        coin: The coin that decides which block of a pair is called B.

    Raises:
        RecordingProblem: It is too short.
    """
    step_s = run.gathered.step_s
    values = [part / total for part, total in run.gathered.sums(TPS, run.warm_up_s)]
    if len(values) < FEWEST_BEFORE or fmean(values) <= 0.0:
        raise RecordingProblem(
            f"{len(values)} s after the warm-up are too short to measure the noise", "measure longer: --for 10m"
        )
    first_s = int(run.warm_up_s)
    writing = [_writing(seconds_seen, first_s + index * step_s) for index in range(len(values))]
    ratios, left_out = _pairs(values, writing, max(BLOCK_S // step_s, 1), coin)
    paired = decide(ratios)
    begins = [at_s for at_s in run.checkpoints_s or () if at_s >= 0.0]
    kept = NoiseFloor(
        at_ms=run.began_ms,
        seconds=float(len(values) * step_s),
        pair_sd=paired.pair_sd,
        pairs=len(ratios),
        autocorrelation_s=autocorrelation_time(values) * step_s,
        variance=long_run_variance(values) * step_s,
        checkpoint_period_s=median(b - a for a, b in pairwise(begins)) if len(begins) > 1 else None,
        checkpoint_depth=_depth(values, writing),
        foreign_cpu=known_mean(weight.foreign_cpu for second, weight in seconds_seen.items() if second >= first_s),
        steady=run.steady,
    )
    return Floor(kept=kept, paired=paired, left_out=left_out, doubts=tuple(doubt.id for doubt in run.doubts))


def _writing(seconds_seen: Seen, second: int) -> bool | None:
    weight = seconds_seen.get(second) or seconds_seen.get(second + 1) or seconds_seen.get(second - 1)
    return None if weight is None else weight.writing


def _pairs(
    values: Sequence[float], writing: Sequence[bool | None], length: int, coin: random.Random
) -> tuple[list[float], int]:
    """Return log ratios of the pairs that are alike, and how many are not; all where half of them are not."""
    ratios, unlike = [], []
    for start in range(0, len(values) - 2 * length + 1, 2 * length):
        blocks = [slice(start + index * length, start + (index + 1) * length) for index in (0, 1)]
        means = [fmean(values[block]) for block in blocks]
        if min(means) <= 0.0:
            continue
        shares = [sum(wrote is True for wrote in writing[block]) / length for block in blocks]
        ratios.append(math.log(means[1] / means[0]) * coin.choice((1.0, -1.0)))
        unlike.append(abs(shares[1] - shares[0]) > _APART)
    if 2 * sum(unlike) >= len(ratios):
        return ratios, 0
    return [ratio for ratio, apart in zip(ratios, unlike, strict=True) if not apart], sum(unlike)


def _depth(values: Sequence[float], writing: Sequence[bool | None]) -> float | None:
    """Return by which share a checkpoint lowers throughput; None where it always wrote, or for under 10 s."""
    during = [value for value, wrote in zip(values, writing, strict=True) if wrote]
    beside = [value for value, wrote in zip(values, writing, strict=True) if wrote is False]
    if min(len(during), len(beside)) < BLOCK_S:
        return None
    return 1.0 - fmean(during) / fmean(beside)


# What can be seen over it.


def visible(floor: NoiseFloor | None, noise: RunNoise | None) -> tuple[Visible, ...]:
    """Return differences, each with the effort to see it.

    Args:
        floor: None where no continuous run was measured.
        noise: The differences of runs; None where they are not known.
    """
    half = None if floor is None else before_after_half(floor.variance)
    return tuple(
        Visible(
            share=share,
            pairs=None if floor is None else pairs_needed(floor.pair_sd, share),
            runs=None if noise is None else runs_a_side(noise, share),
            before_after=half is not None and half <= share,
        )
        for share in SHARES
    )


def pairs_needed(pair_sd: float, share: float) -> int | None:
    """Return the pairs until the always-valid interval is as narrow as the difference; None beyond `MOST_PAIRS`."""
    goal = math.log1p(share)
    pairs = range(FEWEST_PAIRS, MOST_PAIRS + 1)
    return next((n for n in pairs if always_valid_t(n, 0.05) * pair_sd / math.sqrt(n) < goal), None)


def runs_a_side(noise: RunNoise, share: float) -> int | None:
    """Run on each side until the 98 % interval is as narrow as the difference; None beyond 100."""
    for runs in range(1, _MOST_RUNS + 1):
        degrees = noise.degrees + 2 * (runs - 1)
        if half_width(replace(noise, degrees=degrees), runs, runs) <= share:
            return runs
    return None


def before_after_half(variance: float, before_s: int = _BEFORE_S) -> float:
    """Return half of the interval of the title's last look, as a share, with seconds of this long-run variance.

    The slope has a prior of 4 % in ten minutes, as `statistics.before_after` has it; both sides inform it:

        var = V/n₀ + V/n₁ + (t₁ − t₀)² / ((n₀³ + n₁³) / (12·600²·V) + 1/0.04²)        t: middle of a side, in 600 s
    """
    after_s = LOOKS[-1]
    apart = (_NOTICED_S + before_s / 2 + _SETTLING_S + after_s / 2) / _DRIFT_S
    slope = (before_s**3 + after_s**3) / (12.0 * _DRIFT_S**2 * variance) + 1.0 / _DRIFT**2
    error = math.sqrt(variance / before_s + variance / after_s + apart**2 / slope)
    return math.expm1(t_quantile(1.0 - SPENT[-1] / 2.0, _DEGREES) * error)
