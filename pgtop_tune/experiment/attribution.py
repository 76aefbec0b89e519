"""Whether a difference can be put down to what was changed, where others took more CPU time beside one side. Pure.

On a full machine other programs get more CPU time beside the arm that uses less of it. The difference is still
attributable where it is beyond what that time could have given: in proportion to the load's own, and as much again for
those who wait for a session that waits for a CPU.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean
from typing import Final

from msgspec import Struct

FOREIGN_POINTS: Final = 5.0
"""Of all CPU time: others that take so much more beside one arm make no difference attributable."""
_GRANTED: Final = 2.0
"""Times the CPU time that others took more of."""


class CpuBeside(Struct, frozen=True):
    """CPU time that others took beside B, less that beside A.

    Attributes:
        words: Who.
        points: Per cent of all CPUs.
        cpus: Of the machine; 0 where not known.
        own: Of the load, of each run or block of the arm that was hindered; per cent of all CPUs.
    """

    words: str
    points: float
    cpus: int
    own: Sequence[float]

    @property
    def hindered(self) -> str:
        """The arm beside which they took more."""
        return "B" if self.points > 0.0 else "A"


def attribution(
    beside: Sequence[CpuBeside],
    low: float | None,
    high: float | None,
    names: tuple[str, str] = ("A", "B"),
    *,
    higher_is_better: bool = True,
) -> tuple[str, str]:
    """Why a difference cannot be put down to what was changed, and a remark where it can all the same; each may be "".

    Args:
        beside: The first one with enough points counts.
        low, high: Interval of B / A - 1; without one nothing is claimed yet, and who took more is the remark.
        names: Of the arms.
    """
    logs = None if low is None or high is None else (math.log1p(low), math.log1p(high))
    if logs is not None and not higher_is_better:
        logs = -logs[1], -logs[0]
    for each in beside:
        if abs(each.points) <= FOREIGN_POINTS:
            continue
        points = abs(each.points)
        took = f"{points / 100.0 * each.cpus:.1f} cores" if each.cpus else f"{points:.0f} points of the CPU time"
        told = f"{each.words} took {took} more beside {names[each.hindered == 'B']}"
        own = fmean(each.own) if each.own else 0.0
        if logs is None:
            return "", told
        if own <= 0.0 or not _beyond(logs, each.hindered, math.log1p(_GRANTED * points / own)):
            return f"{told}: not attributable", ""
        return "", f"{told}, which explains less than the effect"
    return "", ""


def _beyond(logs: tuple[float, float], hindered: str, explained: float) -> bool:
    """Whether the interval lies beyond what the hindered arm could have gained; or the hindered arm is ahead."""
    return max(logs[0] - explained * (hindered == "A"), -logs[1] - explained * (hindered == "B")) > 0.0
