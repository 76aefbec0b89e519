"""The steady state of a run's throughput after its warm-up, and activity on a server before a run.

MSER-5 finds the end of the warm-up (White, "An effective truncation heuristic for bias reduction in simulation output",
1997; White, Cobb and Spratt 2000): it tries every length of warm-up, in steps of five seconds, and takes the one after
which the mean has the smallest standard error. If that is half of the run or more, the run has not settled. The
remaining seconds must not drift: the medians of their two halves may differ by 2 % or by three standard errors, whichever is more. Standard
errors come from means of batches, because of autocorrelation. If they are so large that they could hide a drift of more
than 10 %, the run is not steady either.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from statistics import fmean, median, stdev
from typing import Final

from pgtop_tune.metrics import sections
from pgtop_tune.metrics.catalogue import Interval
from pgtop_tune.metrics.host import DISK_BUSY
from pgtop_tune.metrics.server import client_backends
from pgtop_tune.model.postgres import Activity, Backend
from pgtop_tune.model.run_result import SteadyState, ThroughputSpread

FEWEST_S: Final = 20
"""Length of the shortest run for which a steady state is computed."""
DRIFT: Final = 0.02
"""Share by which the medians of the two halves may always differ."""
HIDDEN: Final = 0.10
"""Greatest drift, as a share, that the noise of a steady run may hide."""
_BATCH: Final = 5
_MOST_BATCHES: Final = 10
_FEWEST_BATCHES: Final = 4
_STANDARD_ERRORS: Final = 3.0
_MEDIAN_TO_MEAN: Final = math.sqrt(math.pi / 2)
"""Standard error of a median over that of a mean, for a normal distribution."""
_T_975: Final = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262)
"""Student's t for 1 to 9 degrees of freedom, two-sided 95 %."""
_SLOW: Final = 0.5
"""Share of the median below which a second is slow."""


def steady_state(seconds: Sequence[float], hidden: float = HIDDEN) -> SteadyState:
    """Return whether and when throughput settled, and its mean from then on.

    Args:
        seconds: Transactions per second, second by second (pgbench's progress lines).
        hidden: Greatest drift that the noise may hide.
    """
    n = len(seconds)
    if n < FEWEST_S:
        error = mean_error(seconds)
        reason = f"{n} s is too short to tell warm-up from noise: at least {FEWEST_S} s needed"
        return SteadyState(
            steady=None,
            warm_up_s=None,
            tps=fmean(seconds) if seconds else None,
            error_tps=error,
            drift=None,
            reason=reason,
        )
    cut = warm_up(seconds)
    if cut is None:
        reason = "throughput still changed in the second half of the run"
        return SteadyState(
            steady=False,
            warm_up_s=None,
            tps=fmean(seconds),
            error_tps=mean_error(seconds),
            drift=_drift(seconds),
            reason=reason,
        )
    steady_seconds = seconds[cut:]
    drift, allowed = _drift(steady_seconds), _allowed_drift(steady_seconds)
    steady = drift is not None and abs(drift) <= allowed <= hidden
    finding = (
        "no transaction ended"
        if drift is None
        else f"the second half differs from the first by {drift:+.1%}, {allowed:.1%} allowed"
    )
    if allowed > hidden:
        finding = f"throughput varies so much that a drift of {100.0 * allowed:.0f} % could go unnoticed"
    reason = f"warm-up of {cut} s; {finding}"
    return SteadyState(
        steady=steady,
        warm_up_s=float(cut),
        tps=fmean(steady_seconds),
        error_tps=mean_error(steady_seconds),
        drift=drift,
        reason=reason,
    )


def warm_up(seconds: Sequence[float]) -> int | None:
    """Return the seconds that MSER-5 cuts off; None when that would be half of them or more.

    Fewer than 50 seconds are taken in smaller batches, down to one second.
    """
    size = max(1, min(_BATCH, len(seconds) // _MOST_BATCHES))
    batches = [fmean(seconds[start : start + size]) for start in range(0, len(seconds) - size + 1, size)]
    half = len(batches) // 2
    smallest_error, best_cut = math.inf, 0
    for cut in range(half + 1):
        remaining = batches[cut:]
        mean = fmean(remaining)
        squared_error = math.fsum((value - mean) ** 2 for value in remaining) / len(remaining) ** 2
        if squared_error < smallest_error:
            smallest_error, best_cut = squared_error, cut
    return None if best_cut >= half > 0 else best_cut * size


def mean_error(seconds: Sequence[float]) -> float | None:
    """Return the half width of the mean's 95 % interval, from the means of up to ten batches; None below 8 seconds."""
    batches = _batch_means(seconds)
    if len(batches) < _FEWEST_BATCHES:
        return None
    return _T_975[len(batches) - 2] * stdev(batches) / math.sqrt(len(batches))


def spread(seconds: Sequence[float]) -> ThroughputSpread | None:
    """Return the median, the slow seconds and those without a transaction; None without seconds."""
    if not seconds:
        return None
    ordered = sorted(seconds)
    middle = median(ordered)
    return ThroughputSpread(
        median_tps=middle,
        p5_tps=_quantile(ordered, 0.05),
        p1_tps=_quantile(ordered, 0.01),
        slow_s=sum(1 for value in seconds if 0 < value < _SLOW * middle),
        zero_s=sum(1 for value in seconds if value <= 0),
    )


def _quantile(ordered: Sequence[float], share: float) -> float:
    """Return a quantile, linear between neighbours."""
    rank = share * (len(ordered) - 1)
    below = math.floor(rank)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (rank - below)


def _batch_means(seconds: Sequence[float]) -> list[float]:
    count = min(_MOST_BATCHES, len(seconds) // 2)
    if count < 2:
        return []
    edges = [round(index * len(seconds) / count) for index in range(count + 1)]
    return [fmean(seconds[start:end]) for start, end in pairwise(edges)]


def _drift(seconds: Sequence[float]) -> float | None:
    middle = median(seconds)
    if middle <= 0:
        return None
    half = len(seconds) // 2
    return (median(seconds[half:]) - median(seconds[:half])) / middle


def _allowed_drift(seconds: Sequence[float]) -> float:
    half, middle = len(seconds) // 2, median(seconds)
    errors = [_standard_error(seconds[:half]), _standard_error(seconds[half:])]
    if middle <= 0:
        return DRIFT
    return max(DRIFT, _STANDARD_ERRORS * _MEDIAN_TO_MEAN * math.hypot(*errors) / middle)


def _standard_error(seconds: Sequence[float]) -> float:
    batches = _batch_means(seconds)
    return stdev(batches) / math.sqrt(len(batches)) if len(batches) > 1 else 0.0


# Activity on a server that disturbs a measurement.

DISK_BUSY_BELOW: Final = 20.0
AUTOVACUUM: Final = "autovacuum worker"
ACTIVE: Final = ("active", "fastpath function call")
SILENT: Final = ("the server does not answer",)
_PREFIX: Final = "autovacuum: "


def unrest(interval: Interval) -> tuple[str, ...]:
    """Return the activity on the server, a phrase for each kind; () when it is quiet. Foreign text.

    Sessions of this tool do not count. Source: pg_stat_activity for active sessions and autovacuum workers,
    /proc/diskstats for the server's disks that are busy for 20 % of the time since the frame before, or more.
    """
    activity = interval.now(sections.activity)
    if activity is None:
        return SILENT
    return (*_sessions(activity), *_workers(activity), *_disks(interval))


def vacuumed_table(worker: Backend) -> str:
    """Return the table that an autovacuum worker processes, without its schema; "" between two tables."""
    parts = (worker.query or "").removeprefix(_PREFIX).split(" (")[0].split()
    return parts[-1].rsplit(".", 1)[-1] if len(parts) > 1 else ""


def _sessions(activity: Activity) -> list[str]:
    busy = [backend for backend in client_backends(activity) if backend.state in ACTIVE]
    if not busy:
        return []
    names = ", ".join(dict.fromkeys(backend.application_name or backend.usename or "?" for backend in busy))
    return [f"{len(busy)} other active session{'s' if len(busy) > 1 else ''} ({names})"]


def _workers(activity: Activity) -> list[str]:
    return [
        f"autovacuum of {vacuumed_table(backend) or 'a table'}"
        for backend in activity.backends
        if backend.backend_type == AUTOVACUUM
    ]


def _disks(interval: Interval) -> list[str]:
    disks = interval.now(sections.disks)
    busy = DISK_BUSY(interval)
    server_disks = [] if disks is None else [disk.name for disk in disks.disks if disk.roles]
    return [
        f"disk {name} {busy[name]:.0f} % busy"
        for name in server_disks
        if name in busy and busy[name] >= DISK_BUSY_BELOW
    ]
