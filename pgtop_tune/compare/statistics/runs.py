"""Runs against runs: how runs of one setting differ is in every interval, also with one run on a side.

    s² = (4·(0.02² + w²) + squares of history + squares now) / (4 + f_history + f_now),  at least w²
    half = t(0.99, 4 + f_history + f_now) · s · √(1/n_A + 1/n_B)

on the logarithms of the runs' figures; w² is the variance that a run's figure has from its own seconds. Without any
history runs are assumed to differ by 2 % (standard deviation). The interval has 98 %: runs are added until something
shows, and 95 % would be wrong in one of eight.

That assumption is one about throughput and mean latency. Of other figures (percentiles, waits) nothing is known
beforehand: Student's interval of the runs themselves stands where it is wider, and one run a side decides nothing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from pgtop_tune.compare.statistics.effect import SAME, Effect, RunSpread, spread_of
from pgtop_tune.compare.statistics.student import t_probability, t_quantile

ASSUMED_SD: Final = 0.02
"""By which runs of one setting differ as long as nothing is known of this machine and load."""
PRIOR_DEGREES: Final = 4
MOST_HISTORY: Final = 16
"""Degrees of freedom that history may have: a machine changes."""
CONFIDENCE: Final = 0.98
_DECIDES: Final = (1.0 + CONFIDENCE) / 2.0
_MOST_RUNS: Final = 200


class RunNoise(Struct, frozen=True):
    """How the figures of runs of one setting differ, as far as it is known.

    Attributes:
        sd: Standard deviation of the logarithm of one run's figure.
        degrees: Of freedom behind it, the prior's four included.
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
    """From the runs of both sides, what history knows, and the prior.

    Args:
        a, b: Logarithms of the runs' figures (or shares).
        within: Variance of one such value from the run's own seconds.
        history: Squares about the means of groups of earlier runs that were made alike.
        foreseen: The assumption holds for this figure: throughput or mean latency.
        spread: Of these runs, where it is not that about the means of both sides.
    """
    past = history or RunSpread()
    kept = min(past.degrees, MOST_HISTORY)
    squares = past.squares * kept / past.degrees if past.degrees else 0.0
    now = spread or spread_of((a, b))
    squares += now.squares
    measured = kept + now.degrees
    degrees = PRIOR_DEGREES + measured
    found = RunNoise(
        sd=math.sqrt(max((PRIOR_DEGREES * (ASSUMED_SD**2 + within) + squares) / degrees, within)),
        degrees=degrees, from_history=kept, measured=measured,
    )  # fmt: skip
    if foreseen or not measured:
        return found
    alone = RunNoise(sd=math.sqrt(squares / measured), degrees=measured, from_history=kept, measured=measured)
    return max(found, alone, key=lambda noise: t_quantile(_DECIDES, noise.degrees) * noise.sd)


def runs_effect(
    a: Sequence[float],
    b: Sequence[float],
    noise: RunNoise,
    *,
    ratio: bool = True,
    change: float | None = None,
    root: float | None = None,
) -> Effect:
    """B against A; at least one run on each side.

    Args:
        a, b: Logarithms of the runs' figures, or shares where `ratio` is not set.
        change: The difference, where it is not that of the means (a percentile of all runs together).
        root: What a run's deviation is multiplied with for the error of the difference, where runs are in blocks.
    """
    moved = fmean(b) - fmean(a) if change is None else change
    if root is None:
        root = math.sqrt(1.0 / len(a) + 1.0 / len(b))
    half = t_quantile(_DECIDES, noise.degrees) * noise.sd * root
    seen = half + t_quantile(0.8, noise.degrees) * noise.sd * root
    told = math.expm1 if ratio else float
    return Effect(
        relative=told(moved),
        low=told(moved - half),
        high=told(moved + half),
        blocks_a=len(a),
        blocks_b=len(b),
        block_s=1,
        smallest_seen=told(seen),
        chance=2.0 * t_probability(-abs(moved) / (noise.sd * root), noise.degrees) if noise.sd else float(not moved),
        confidence=CONFIDENCE,
    )


def half_width(noise: RunNoise, runs_a: int, runs_b: int) -> float:
    """Half of the interval, as a share, with so many runs on each side."""
    root = math.sqrt(1.0 / runs_a + 1.0 / runs_b)
    return math.expm1(t_quantile(_DECIDES, noise.degrees) * noise.sd * root)


def runs_needed(effect: Effect, noise: RunNoise) -> int | None:
    """More runs on each side until an interval as narrow as the effect, or 2 %, is likely; None beyond 200.

    0 when there are enough.
    """
    goal, have = max(abs(effect.relative), SAME), min(effect.blocks_a, effect.blocks_b)
    for runs in range(have, _MOST_RUNS):
        degrees = noise.degrees + 2 * (runs - have)
        if half_width(replace(noise, degrees=degrees), runs, runs) <= goal:
            return runs - have
    return None
