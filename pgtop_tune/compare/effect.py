"""The difference of two windows: ratio of means with a 95 % interval over blocks, and the verdict it allows.

log(mean B / mean A) ± t · √(c · (s²A/(kA·mean²A) + s²B/(kB·mean²B)))

t is Student's with min(kA, kB) − 1 degrees of freedom: fewer than Welch's formula gives, because block lengths were
estimated from the same data. c is 1.2 where blocks are cut from a series: the variance of means of blocks three
autocorrelation times long is too small by about 1 − 1/(2·3) (exactly so for a first-order autoregressive series).
A verdict takes more than the interval that is shown: 98 % instead of 95 %, so that windows picked by eye are seldom
called different when they are not.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from enum import StrEnum
from statistics import fmean, variance
from typing import Final

from msgspec import Struct

from pgtop_tune.compare.blocks import FEWEST, TIMES, block_length, block_means
from pgtop_tune.compare.student import t_quantile

SAME: Final = 0.02
"""Differences within this share are of no consequence."""
LEAST: Final = 0.01
"""A difference below this share is not called better or worse, however certain."""
_SHOWN: Final = 0.975
_DECIDED: Final = 0.99
_STILL_ALIKE: Final = 1.0 / (1.0 - 0.5 / TIMES)
_POWER: Final = 0.8
_MOST_BLOCKS: Final = 10_000


class Verdict(StrEnum):
    """What may be said."""

    BETTER = "better"
    WORSE = "worse"
    NO_DIFFERENCE = "no difference distinguishable"
    UNDECIDED = "undecided"


class Effect(Struct, frozen=True):
    """B against A.

    Attributes:
        relative: mean B / mean A − 1.
        low, high: Its 95 % interval; None with fewer than four blocks on a side.
        blocks_a, blocks_b: How many there were.
        block_s: Steps (seconds) of a block.
        smallest_seen: The relative difference that this many blocks would have found four times out of five.
        certain: Whether 0 is outside of the wider interval a verdict takes.
    """

    relative: float
    low: float | None
    high: float | None
    blocks_a: int
    blocks_b: int
    block_s: int
    smallest_seen: float | None
    certain: bool = False


def effect_of(a: Sequence[float], b: Sequence[float], period: int | None = None) -> Effect | None:
    """How B differs from A; None when one of them is empty or its mean is not above 0.

    Args:
        a, b: Evenly spaced readings of a positive number (transactions per second, milliseconds).
        period: Steps of something that recurs in both (checkpoints).
    """
    if not a or not b or fmean(a) <= 0 or fmean(b) <= 0:
        return None
    length = block_length((a, b), period)
    blocks_a, blocks_b = block_means(a, length), block_means(b, length)
    if min(len(blocks_a), len(blocks_b)) < FEWEST:
        return Effect(fmean(b) / fmean(a) - 1.0, None, None, len(blocks_a), len(blocks_b), length, None)
    return _effect(fmean(blocks_b) / fmean(blocks_a), blocks_a, blocks_b, length, _STILL_ALIKE)


def effect_of_whole(whole: tuple[float, float], a: Sequence[float], b: Sequence[float], length: int) -> Effect | None:
    """The same for a figure that is no mean of its blocks, as a percentile: it is told from the whole windows.

    Args:
        whole: The figure over all of A, and of B.
        a, b: The figure of each block, for the uncertainty.
        length: Steps of a block; 1 where each is a run of its own.
    """
    if min(whole) <= 0:
        return None
    ratio = whole[1] / whole[0]
    if min(len(a), len(b)) < FEWEST or min(fmean(a), fmean(b)) <= 0:
        return Effect(ratio - 1.0, None, None, len(a), len(b), length, None)
    return _effect(ratio, a, b, length, _STILL_ALIKE if length > 1 else 1.0)


def effect_of_blocks(a: Sequence[float], b: Sequence[float]) -> Effect | None:
    """The same where each value is a block already, such as the mean of a whole run."""
    if not a or not b or fmean(a) <= 0 or fmean(b) <= 0:
        return None
    if min(len(a), len(b)) < FEWEST:
        return Effect(fmean(b) / fmean(a) - 1.0, None, None, len(a), len(b), 1, None)
    return _effect(fmean(b) / fmean(a), a, b, 1, 1.0)


def share_effect(a: Sequence[float], b: Sequence[float], whole: float) -> Effect | None:
    """How a part of something changed, as a share of the whole: 2 ms less of a wait in 10 ms of latency are −20 %.

    A part may be 0 in one of them, so that differences are taken in place of ratios: (mean B − mean A) ± t · error.

    Args:
        a, b: The part in each block, in the unit of `whole`.
    """
    if not a or not b or whole <= 0:
        return None
    difference = (fmean(b) - fmean(a)) / whole
    if min(len(a), len(b)) < FEWEST:
        return Effect(difference, None, None, len(a), len(b), 1, None)
    error = math.sqrt(_STILL_ALIKE * (variance(a) / len(a) + variance(b) / len(b))) / whole
    degrees = min(len(a), len(b)) - 1
    t, decided = t_quantile(_SHOWN, degrees), t_quantile(_DECIDED, degrees)
    return Effect(
        relative=difference,
        low=difference - t * error,
        high=difference + t * error,
        blocks_a=len(a),
        blocks_b=len(b),
        block_s=1,
        smallest_seen=(decided + t_quantile(_POWER, degrees)) * error,
        certain=abs(difference) > decided * error,
    )


def _effect(ratio: float, a: Sequence[float], b: Sequence[float], length: int, alike: float) -> Effect:
    error = math.sqrt(alike * (variance(a) / len(a) / fmean(a) ** 2 + variance(b) / len(b) / fmean(b) ** 2))
    degrees = min(len(a), len(b)) - 1
    t, decided = t_quantile(_SHOWN, degrees), t_quantile(_DECIDED, degrees)
    return Effect(
        relative=ratio - 1.0,
        low=ratio * math.exp(-t * error) - 1.0,
        high=ratio * math.exp(t * error) - 1.0,
        blocks_a=len(a),
        blocks_b=len(b),
        block_s=length,
        smallest_seen=math.expm1((decided + t_quantile(_POWER, degrees)) * error),
        certain=abs(math.log(ratio)) > decided * error,
    )


def verdict(effect: Effect, *, higher_is_better: bool) -> Verdict:
    """Better or worse only when that is certain and the difference is worth mentioning."""
    if effect.low is None or effect.high is None:
        return Verdict.UNDECIDED
    if effect.certain and abs(effect.relative) >= LEAST:
        return Verdict.BETTER if (effect.relative > 0) == higher_is_better else Verdict.WORSE
    if effect.low >= -SAME and effect.high <= SAME:
        return Verdict.NO_DIFFERENCE
    return Verdict.UNDECIDED


def blocks_needed(effect: Effect) -> int | None:
    """Blocks on each side until a difference as large as this one, or 2 %, would be found four times out of five.

    None when there are too few to say, or when there are enough already.
    """
    if effect.smallest_seen is None:
        return FEWEST
    wanted = max(abs(effect.relative), SAME)
    have = min(effect.blocks_a, effect.blocks_b)
    needed = min(math.ceil(have * (math.log1p(effect.smallest_seen) / math.log1p(wanted)) ** 2), _MOST_BLOCKS)
    return needed if needed > have else None
