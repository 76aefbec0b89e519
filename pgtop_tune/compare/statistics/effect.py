"""The difference of two windows or of two sets of runs: ratio with a 95 % interval, and the verdict it allows.

Windows, cut into blocks (`block_length`):

    log(mean B / mean A) ± t · √(c · (s²A/(kA·mean²A) + s²B/(kB·mean²B)))

t is Student's with min(kA, kB) − 1 degrees of freedom: fewer than Welch's formula gives, because block lengths were
estimated from the same data. c is 1.2: the variance of means of blocks three autocorrelation times long is too small by
about 1 − 1/(2·3) (exactly so for a first-order autoregressive series). Noise from run to run is not in that interval.

Runs, each of which is one value, are judged further below, with the difference between runs of one setting in the
interval.

A verdict takes more than the interval that is shown: 98 % instead of 95 %. Of several figures judged together Holm's
correction says which are certain (Holm, "A simple sequentially rejective multiple test procedure", 1979).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from enum import StrEnum
from functools import lru_cache
from statistics import fmean, variance
from typing import Final, TypeVar

from msgspec import Struct
from msgspec.structs import replace

# Quantiles of Student's t distribution, for intervals; accurate to eight digits (checked against scipy in the tests).
#
# Formula: the distribution function by the regularised incomplete beta function, as a continued fraction evaluated by
# Lentz's method (Abramowitz and Stegun 26.5.8, 26.7.1), inverted by bisection.

_TINY: Final = 1e-300
_PRECISE: Final = 1e-14
_MOST_TERMS: Final = 10_000


def _fraction(a: float, b: float, x: float) -> float:
    c, d = 1.0, 1.0 - (a + b) * x / (a + 1.0)
    d = 1.0 / (d if abs(d) > _TINY else _TINY)
    result = d
    for m in range(1, _MOST_TERMS):
        for numerator in (
            m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)),
        ):
            d = 1.0 + numerator * d
            d = 1.0 / (d if abs(d) > _TINY else _TINY)
            c = 1.0 + numerator / c
            c = c if abs(c) > _TINY else _TINY
            result *= c * d
        if abs(c * d - 1.0) < _PRECISE:
            break
    return result


def _incomplete_beta(a: float, b: float, x: float) -> float:
    """Return I_x(a, b)."""
    if x <= 0.0 or x >= 1.0:
        return 0.0 if x <= 0.0 else 1.0
    front = math.exp(math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x))
    if x < (a + 1.0) / (a + b + 2.0):
        return front * _fraction(a, b, x) / a
    return 1.0 - front * _fraction(b, a, 1.0 - x) / b


def t_probability(t: float, degrees: float) -> float:
    """Return P(T ≤ t) with so many degrees of freedom.

    Raises:
        ValueError: There are no degrees of freedom.
    """
    if degrees <= 0:
        raise ValueError("no degrees of freedom")
    square = t * t
    if square < degrees:
        # Near 0 the other half of the integral: 1 − degrees / (degrees + t²) would lose all digits of t.
        tail = 0.5 - 0.5 * _incomplete_beta(0.5, degrees / 2.0, square / (degrees + square))
    else:
        tail = 0.5 * _incomplete_beta(degrees / 2.0, 0.5, degrees / (degrees + square))
    return 1.0 - tail if t > 0 else tail


@lru_cache(maxsize=512)
def t_quantile(probability: float, degrees: float) -> float:
    """Return the t with P(T ≤ t) = probability.

    Raises:
        ValueError: The probability is not between 0 and 1, or there are no degrees of freedom.
    """
    if not 0.0 < probability < 1.0:
        raise ValueError("a probability between 0 and 1 is needed")
    if probability < 0.5:
        return -t_quantile(1.0 - probability, degrees)
    low, high = 0.0, 1.0
    while t_probability(high, degrees) < probability:
        low, high = high, high * 2.0
    while high - low > _PRECISE * max(1.0, high):
        middle = (low + high) / 2.0
        if middle in (low, high):
            break
        low, high = (middle, high) if t_probability(middle, degrees) < probability else (low, middle)
    return (low + high) / 2.0


# Runs against runs: how runs of one setting differ is in every interval, also with one run on a side.
#
#     s² = (4·(0.02² + w²) + squares of history + squares now) / (4 + f_history + f_now),  at least w²
#     half = t(0.99, 4 + f_history + f_now) · s · √(1/n_A + 1/n_B)
#
# on the logarithms of the runs' figures; w² is the variance that a run's figure has from its own seconds. Without any
# history runs are assumed to differ by 2 % (standard deviation). The interval has 98 %: runs are added until
# something shows, and 95 % would be wrong in one of eight.
#
# That assumption holds for throughput and mean latency only. Of other figures (percentiles, waits) nothing is known
# beforehand: Student's interval of the runs themselves stands where it is wider, and one run a side decides nothing.

ASSUMED_SD: Final = 0.02
"""Standard deviation of runs of one setting, assumed while nothing is known of this machine and load."""
PRIOR_DEGREES: Final = 4
MOST_HISTORY: Final = 16
"""Degrees of freedom that history may have: a machine changes."""
CONFIDENCE: Final = 0.98
_DECIDES: Final = (1.0 + CONFIDENCE) / 2.0
_MOST_RUNS: Final = 200


class RunNoise(Struct, frozen=True):
    """The noise from run to run with one setting, as far as it is known.

    Attributes:
        sd: Standard deviation of the logarithm of one run's figure.
        degrees: Degrees of freedom behind it, the prior's four included.
        from_history: How many of them earlier runs gave.
        measured: How many runs gave, these and earlier ones; 0 where all is assumed.
    """

    sd: float
    degrees: int
    from_history: int
    measured: int


def run_noise(
    a: Sequence[float],
    b: Sequence[float],
    within: float = 0.0,
    history: RunSpread | None = None,
    *,
    foreseen: bool = True,
    spread: RunSpread | None = None,
) -> RunNoise:
    """Return the noise from the runs of both sides, history, and the prior.

    Args:
        a, b: Logarithms of the runs' figures (or shares).
        within: Variance of one such value from the run's own seconds.
        history: Squares about the means of groups of earlier runs that were made alike.
        foreseen: Whether `ASSUMED_SD` holds for this figure: throughput or mean latency.
        spread: Spread of these runs, where it is not their spread about the means of both sides.
    """
    past = history or RunSpread()
    kept = min(past.degrees, MOST_HISTORY)
    squares = past.squares * kept / past.degrees if past.degrees else 0.0
    now = spread or spread_of((a, b))
    squares += now.squares
    measured = kept + now.degrees
    degrees = PRIOR_DEGREES + measured
    with_prior = RunNoise(
        sd=math.sqrt(max((PRIOR_DEGREES * (ASSUMED_SD**2 + within) + squares) / degrees, within)),
        degrees=degrees, from_history=kept, measured=measured,
    )  # fmt: skip
    if foreseen or not measured:
        return with_prior
    alone = RunNoise(sd=math.sqrt(squares / measured), degrees=measured, from_history=kept, measured=measured)
    return max(with_prior, alone, key=lambda noise: t_quantile(_DECIDES, noise.degrees) * noise.sd)


def runs_effect(
    a: Sequence[float],
    b: Sequence[float],
    noise: RunNoise,
    *,
    ratio: bool = True,
    change: float | None = None,
    root: float | None = None,
) -> Effect:
    """Return the effect of B against A; at least one run on each side.

    Args:
        a, b: Logarithms of the runs' figures, or shares where `ratio` is not set.
        change: The difference, where it is not that of the means (a percentile of all runs together).
        root: Factor from a run's deviation to the error of the difference, where runs are in blocks.
    """
    moved = fmean(b) - fmean(a) if change is None else change
    if root is None:
        root = math.sqrt(1.0 / len(a) + 1.0 / len(b))
    half = t_quantile(_DECIDES, noise.degrees) * noise.sd * root
    detectable = half + t_quantile(0.8, noise.degrees) * noise.sd * root
    on_scale_of_effect = math.expm1 if ratio else float
    return Effect(
        relative=on_scale_of_effect(moved),
        low=on_scale_of_effect(moved - half),
        high=on_scale_of_effect(moved + half),
        blocks_a=len(a),
        blocks_b=len(b),
        block_s=1,
        smallest_seen=on_scale_of_effect(detectable),
        chance=2.0 * t_probability(-abs(moved) / (noise.sd * root), noise.degrees) if noise.sd else float(not moved),
        confidence=CONFIDENCE,
    )


def half_width(noise: RunNoise, runs_a: int, runs_b: int) -> float:
    """Return half of the interval with so many runs on each side, as a share."""
    root = math.sqrt(1.0 / runs_a + 1.0 / runs_b)
    return math.expm1(t_quantile(_DECIDES, noise.degrees) * noise.sd * root)


def runs_needed(effect: Effect, noise: RunNoise) -> int | None:
    """Return the further runs on each side that likely narrow the interval to the effect, or 2 %; None beyond 200.

    0 when there are enough.
    """
    goal, have = max(abs(effect.relative), SAME), min(effect.blocks_a, effect.blocks_b)
    for runs in range(have, _MOST_RUNS):
        degrees = noise.degrees + 2 * (runs - have)
        if half_width(replace(noise, degrees=degrees), runs, runs) <= goal:
            return runs - have
    return None


# Seconds to blocks: neighbouring seconds resemble each other, so that the mean of a block is the smallest sample.
#
# The length of a block comes from the series itself: three times its integrated autocorrelation time, with the window
# of Sokal ("Monte Carlo Methods in Statistical Mechanics", 1997), or whole periods of what is known to recur
# (checkpoints), whichever is longer. The effect allows for the correlation that is left between blocks so short.

FEWEST: Final = 4
"""Blocks in a window below which nothing is concluded."""
TIMES: Final = 3.0
_SHORTEST: Final = 5
_WINDOW: Final = 5.0


def autocorrelation_time(values: Sequence[float]) -> float:
    """Return the integrated autocorrelation time in steps: how many neighbours count as one. At least 1."""
    n = len(values)
    mean = fmean(values) if values else 0.0
    centred = [value - mean for value in values]
    squares = math.fsum(value * value for value in centred)
    if n < 4 or squares <= 0.0:
        return 1.0
    time = 1.0
    for lag in range(1, n // 2):
        time += 2.0 * math.fsum(a * b for a, b in zip(centred, centred[lag:], strict=False)) / squares
        if lag >= _WINDOW * max(time, 1.0):
            break
    return max(time, 1.0)


def block_length(series: Sequence[Sequence[float]], period: int | None = None) -> int:
    """Return the steps of a block that fits all series to be compared.

    Args:
        period: Steps of something that recurs in them; blocks become whole multiples of it.
    """
    longest = max((autocorrelation_time(values) for values in series), default=1.0)
    length = max(math.ceil(TIMES * longest) if longest > 1.5 else _SHORTEST, _SHORTEST)
    if period is not None and period > 0:
        return math.ceil(length / period) * period
    return length


def block_means(values: Sequence[float], length: int) -> list[float]:
    """Return means of whole blocks; the rest at the beginning, nearest to a warm-up, is left out."""
    start = len(values) % length
    return [fmean(values[at : at + length]) for at in range(start, len(values), length)]


T = TypeVar("T")
SAME: Final = 0.02
"""Differences within this share are of no consequence."""
LEAST: Final = 0.01
"""A difference below this share is not called better or worse, however certain."""
WRONG: Final = 0.02
"""Share of equal figures that are called different all the same."""
_SHOWN: Final = 0.975
_DECIDED: Final = 1.0 - WRONG / 2.0
_STILL_ALIKE: Final = 1.0 / (1.0 - 0.5 / TIMES)
_POWER: Final = 0.8
_MOST_BLOCKS: Final = 10_000
_LARGEST: Final = 700.0
"""Largest logarithm of a number that a float can hold."""


class Verdict(StrEnum):
    """A statement that the data allow."""

    BETTER = "better"
    WORSE = "worse"
    NO_DIFFERENCE = "no difference distinguishable"
    UNDECIDED = "undecided"
    DIFFER = "differ"
    """These runs differ, which says nothing of further runs: it is not known how runs of one setting differ, or the
    runs were not steady."""


class Effect(Struct, frozen=True):
    """B against A.

    Attributes:
        relative: mean B / mean A − 1.
        low, high: Interval of `relative`; None with fewer than four blocks on a side.
        blocks_a, blocks_b: How many there were.
        block_s: Steps (seconds) of a block; 1 where each is a run.
        smallest_seen: The relative difference that this many blocks would have found four times out of five.
        chance: How often so large a difference would be seen where there is none, two-sided; None without an interval.
        confidence: Confidence of the interval.
    """

    relative: float
    low: float | None
    high: float | None
    blocks_a: int
    blocks_b: int
    block_s: int
    smallest_seen: float | None
    chance: float | None = None
    confidence: float = 0.95

    @property
    def certain(self) -> bool:
        """Return whether 0 is outside the wider interval that a verdict takes."""
        return self.chance is not None and self.chance < WRONG

    def within(self, share: float) -> bool:
        """Return whether the whole interval is closer to 0 than this."""
        return self.low is not None and self.high is not None and self.low >= -share and self.high <= share

    def without_interval(self) -> Effect:
        """Return the effect without its interval."""
        return replace(self, low=None, high=None, smallest_seen=None, chance=None)

    def moved_to(self, relative: float) -> Effect:
        """Return the effect with the difference that a table shows: unlike blocks, it leaves out no rest of steps."""
        off = relative - self.relative
        if self.low is None or self.high is None:
            return replace(self, relative=relative)
        return replace(self, relative=relative, low=self.low + off, high=self.high + off)

    def scaled(self, scale: float) -> tuple[float, float | None, float | None]:
        """Return the difference and its interval, multiplied by `scale`."""
        if self.low is None or self.high is None:
            return self.relative * scale, None, None
        return self.relative * scale, self.low * scale, self.high * scale


class RunSpread(Struct, frozen=True):
    """The spread of runs with one setting.

    Attributes:
        squares: Sum of the squared deviations of logarithms, or of shares, from the mean of each group of runs.
        degrees: Degrees of freedom: runs less groups. 0 when nothing is known.
    """

    squares: float = 0.0
    degrees: int = 0

    def __add__(self, spread: RunSpread) -> RunSpread:
        return RunSpread(self.squares + spread.squares, self.degrees + spread.degrees)


def spread_of(groups: Sequence[Sequence[float]]) -> RunSpread:
    """Return the spread within groups of runs that were made alike."""
    spread = RunSpread()
    for values in groups:
        if len(values) > 1:
            mean = fmean(values)
            spread += RunSpread(math.fsum((value - mean) ** 2 for value in values), len(values) - 1)
    return spread


def effect_of_whole(overall: tuple[float, float], a: Sequence[float], b: Sequence[float], length: int) -> Effect | None:
    """Return the effect over the whole windows; None where one of these figures is not above 0.

    Args:
        overall: The figure over all of A, and of B.
        a, b: The figure of each block, for the uncertainty.
        length: Steps of a block.
    """
    if min(overall) <= 0:
        return None
    ratio = overall[1] / overall[0]
    if min(len(a), len(b)) < FEWEST or min(fmean(a), fmean(b)) <= 0:
        return Effect(ratio - 1.0, None, None, len(a), len(b), length, None)
    variances = variance(a) / len(a) / fmean(a) ** 2 + variance(b) / len(b) / fmean(b) ** 2
    counts = len(a), len(b)
    return _effect(math.log(ratio), math.sqrt(_STILL_ALIKE * variances), counts, length, ratio=True)


def share_effect(a: Sequence[float], b: Sequence[float], total: float) -> Effect | None:
    """Return the change of a part as a share of the total: 2 ms less of a wait in 10 ms of latency are −20 %.

    A part may be 0 on one side, so differences take the place of ratios: (mean B − mean A) ± t · error.

    Args:
        a, b: The part in each block, in the unit of `total`.
    """
    if not a or not b or total <= 0:
        return None
    difference, counts = (fmean(b) - fmean(a)) / total, (len(a), len(b))
    if min(counts) < FEWEST:
        return Effect(difference, None, None, *counts, 1, None)
    error = math.sqrt(_STILL_ALIKE * (variance(a) / len(a) + variance(b) / len(b))) / total
    return _effect(difference, error, counts, 1, ratio=False)


def on_scale(values: Sequence[float], points: float | None) -> list[float]:
    """Return values on the scale on which a spread of runs is told: logarithms, or shares of so many points."""
    return [math.log(value) if points is None else value / points for value in values]


def _effect(change: float, error: float, counts: tuple[int, int], block_s: int, *, ratio: bool) -> Effect:
    """Return an effect with its interval, of a change of logarithms (a ratio) or of shares."""
    degrees = min(counts) - 1
    t, decided = t_quantile(_SHOWN, degrees), t_quantile(_DECIDED, degrees)

    def told(size: float) -> float:
        return math.expm1(min(size, _LARGEST)) if ratio else size

    chance = 2.0 * t_probability(-abs(change) / error, degrees) if error > 0 else float(change == 0.0)
    return Effect(
        relative=told(change),
        low=told(change - t * error),
        high=told(change + t * error),
        blocks_a=counts[0],
        blocks_b=counts[1],
        block_s=block_s,
        smallest_seen=told((decided + t_quantile(_POWER, degrees)) * error),
        chance=chance,
    )


def certain_together(chances: Mapping[T, float]) -> frozenset[T]:
    """Return the figures that differ for certain; all together are wrong in no more than 2 % (Holm)."""
    certain: set[T] = set()
    for rank, (name, chance) in enumerate(sorted(chances.items(), key=lambda name_and_chance: name_and_chance[1])):
        if chance >= WRONG / (len(chances) - rank):
            break
        certain.add(name)
    return frozenset(certain)


def verdict(effect: Effect, *, higher_is_better: bool, certain: bool | None = None) -> Verdict:
    """Return better or worse only when that is certain and the difference is worth mentioning.

    Args:
        certain: Whether a correction for several figures leaves the difference certain; None: `effect.certain`.
    """
    if effect.low is None or effect.high is None:
        return Verdict.UNDECIDED
    if (effect.certain if certain is None else certain) and abs(effect.relative) >= LEAST:
        return Verdict.BETTER if (effect.relative > 0) == higher_is_better else Verdict.WORSE
    if effect.within(SAME):
        return Verdict.NO_DIFFERENCE
    return Verdict.UNDECIDED


def without_verdict(judged: Verdict) -> Verdict:
    """Weaken a verdict where the runs allow none."""
    return Verdict.DIFFER if judged in (Verdict.BETTER, Verdict.WORSE) else Verdict.UNDECIDED


def blocks_needed(effect: Effect) -> int | None:
    """Return the blocks on each side that find a difference of this size, or 2 %, four times out of five.

    None when there are too few to say, or when there are enough already.
    """
    if effect.smallest_seen is None:
        return FEWEST
    goal = max(abs(effect.relative), SAME)
    have = min(effect.blocks_a, effect.blocks_b)
    needed = min(math.ceil(have * (math.log1p(effect.smallest_seen) / math.log1p(goal)) ** 2), _MOST_BLOCKS)
    return needed if needed > have else None
