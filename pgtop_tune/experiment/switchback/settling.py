"""How soon an effect is in force: measured at the changes of the arm, where it is large enough to be seen there. Pure.

Shorter blocks reach a verdict sooner, and a large effect shows within the seconds of one change whether it builds up.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import pairwise
from statistics import fmean
from typing import Final

from msgspec import Struct

from pgtop_tune.experiment.switchback.blocks import QUICK, Block, Pair

_UNTIL: Final = 3
"""Pairs after which lengths stay as they are."""
_LATER_S: Final = int(QUICK.settle_s)
"""Seconds of a change that are never looked at: the load tells its seconds late."""
_FEWEST: Final = 3
"""Seconds of settling behind them that are looked at."""
_COVERED: Final = 0.9
"""Share of the step that has been made then. Sure to be at least `_SURELY`, one-sided at 95 %."""
_SURELY: Final = 0.6
_ONE_SIDED: Final = 1.645
_CLEAR: Final = 27.0
"""Times its variance that the square of a step has to be: three standard errors, of seconds that resemble each other
so much that a third of them count."""


def at_once(pairs: Sequence[Pair]) -> bool:
    """Whether the changes of the arm so far show the whole effect after its settle time: `QUICK` blocks will do.

    The share of the step that the seconds behind it have made, over all changes by least squares through the origin,
    has to be 90 %, and surely more than 60 %; an effect that is small beside the noise shows nothing.
    """
    steps = [*_steps([block for pair in pairs for block in pair.blocks])]
    size = math.fsum(step.tps**2 for step in steps)
    if len(pairs) > _UNTIL or size <= _CLEAR * math.fsum(step.variance for step in steps):
        return False
    made = math.fsum(step.tps * step.made for step in steps) / size
    error = math.sqrt(math.fsum(step.tps**2 * step.made_variance for step in steps)) / size
    return made >= _COVERED and made - _ONE_SIDED * error >= _SURELY


class _Step(Struct, frozen=True):
    """A change of the arm, in transactions per second.

    Attributes:
        tps: Mean after it less mean before.
        variance: Of that.
        made: How much of it had been made while it settled.
        made_variance: Of that.
    """

    tps: float
    variance: float
    made: float
    made_variance: float


def _steps(blocks: Sequence[Block]) -> Iterator[_Step]:
    for before, after in pairwise(blocks):
        settling = after.settling[_LATER_S:]
        if before.arm is after.arm or len(settling) < _FEWEST or min(len(before.tps), len(after.tps)) < _FEWEST:
            continue
        level, of_level = fmean(before.tps), _variance(before.tps) / len(before.tps)
        spread = _variance(after.tps)
        yield _Step(
            tps=fmean(after.tps) - level,
            variance=of_level + spread / len(after.tps),
            made=fmean(settling) - level,
            made_variance=of_level + spread / len(settling),
        )


def _variance(seconds: Sequence[float]) -> float:
    mean = fmean(seconds)
    return math.fsum((each - mean) ** 2 for each in seconds) / (len(seconds) - 1)
