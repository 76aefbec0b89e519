"""The knee of a series: the load beyond which throughput does not rise.

Clients: the knee is the fewest clients whose throughput is within 5 % of the highest of all steps, or within the
uncertainty of both where that is more. If the first step reaches that, the knee is there or below, and was not seen.
Steps of the same load count as one, with their mean. Rates: the knee is the highest rate of which at least 95 % were
done. If that is the last step, there is no knee: throughput was still rising, or every rate was reached.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean
from typing import Final

from msgspec import Struct

from pgtop_tune.base.units import number

WITHIN: Final = 0.05
REACHED: Final = 0.95
_FEWEST: Final = 3


class LoadPoint(Struct, frozen=True):
    """One step of a series.

    Attributes:
        load: Clients, or the requested rate in transactions per second.
        tps: Throughput; None when the step failed.
        error_tps: Half width of its 95 % interval, None when not known.
        p99_ms: Latency; None when not known.
    """

    load: float
    tps: float | None
    error_tps: float | None = None
    p99_ms: float | None = None


class Knee(Struct, frozen=True):
    """Position of the knee.

    Attributes:
        load: Clients, or rate; None when no knee was seen.
        reason: One sentence, with numbers.
    """

    load: float | None
    reason: str


def knee_of_clients(points: Sequence[LoadPoint]) -> Knee:
    """Find the fewest clients with (nearly) the highest throughput; points in any order, failed ones are ignored."""
    steps = _distinct(points)
    if len(steps) < _FEWEST:
        return Knee(None, f"no knee seen: needs {_FEWEST} successful steps with different loads, got {len(steps)}")
    best = max(steps, key=lambda point: point.tps or 0.0)
    first = next(point for point in steps if _as_good(point, best))
    if first is steps[-1]:
        before = steps[-2]
        gain = (first.tps or 0.0) / before.tps - 1.0 if before.tps else math.inf
        return Knee(
            None,
            f"no knee seen: throughput still rises at {first.load:.0f} clients, {gain:+.0%} over {before.load:.0f} clients",
        )
    if first is steps[0] and first.load > 1:
        return Knee(
            None,
            f"no knee seen: {first.load:.0f} clients reach {first.tps:.1f} tps, and no higher step is better by more than"
            f" 5 % or the noise (highest {best.tps:.1f} tps at {best.load:.0f}); start with fewer clients to see it",
        )
    return Knee(
        first.load,
        f"knee at {first.load:.0f} client{'s' if first.load != 1 else ''}: {first.tps:.1f} tps, and no higher step is better by more than 5 % or the noise"
        f" (highest {best.tps:.1f} tps at {best.load:.0f})",
    )


def knee_of_rates(points: Sequence[LoadPoint]) -> Knee:
    """Find the highest rate that was reached."""
    steps = _distinct(points)
    if not steps:
        return Knee(None, "no knee seen: no step succeeded")
    reached = [point for point in steps if (point.tps or 0.0) >= REACHED * point.load]
    if not reached:
        lowest = steps[0]
        return Knee(None, f"no rate was reached: {lowest.tps:.1f} tps at a rate of {number(lowest.load)} per second")
    last = reached[-1]
    if last is steps[-1]:
        return Knee(None, f"no knee seen: even {number(last.load)} per second was reached")
    beyond = next(point for point in steps if point.load > last.load)
    return Knee(
        last.load,
        f"knee at {number(last.load)} per second: a rate of {number(beyond.load)} reached only {beyond.tps:.1f} tps",
    )


def _distinct(points: Sequence[LoadPoint]) -> list[LoadPoint]:
    """Return points with a throughput, in the order of load; points of the same load as their mean."""
    groups: dict[float, list[LoadPoint]] = {}
    for point in sorted((point for point in points if point.tps is not None), key=lambda point: point.load):
        groups.setdefault(point.load, []).append(point)
    return [group[0] if len(group) == 1 else _mean(group) for group in groups.values()]


def _mean(points: Sequence[LoadPoint]) -> LoadPoint:
    error = math.hypot(*(point.error_tps or 0.0 for point in points)) / len(points)
    return LoadPoint(points[0].load, fmean(point.tps or 0.0 for point in points), error or None)


def _as_good(point: LoadPoint, best: LoadPoint) -> bool:
    tps, most = point.tps or 0.0, best.tps or 0.0
    noise = math.hypot(point.error_tps or 0.0, best.error_tps or 0.0)
    return tps >= most - max(WITHIN * most, noise)
