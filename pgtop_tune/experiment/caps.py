"""Limits of the machine that bound throughput whatever a parameter removes: cores, measured flushes, caps of disks.

Each is arithmetic over what a transaction uses of it now. A limit does not bound a parameter that may save what it is
a limit of.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from msgspec import Struct

from pgtop_tune import units
from pgtop_tune.advice.reach import reached
from pgtop_tune.metrics import sections
from pgtop_tune.metrics.active_sessions import WAITS_WINDOW_S
from pgtop_tune.metrics.budget import LatencyBudget
from pgtop_tune.metrics.catalogue import Interval
from pgtop_tune.metrics.ceilings import MOST_FLUSHES, disk_headroom
from pgtop_tune.metrics.io import WAL_FLUSHES
from pgtop_tune.metrics.load_cpu import cpu_of_load
from pgtop_tune.metrics.server import client_backends
from pgtop_tune.model.waits import CPU, QUEUE

_FEWEST_FLUSHES: Final = 1.0
"""A second; fewer say nothing of a transaction."""


class Cap(Struct, frozen=True):
    """The lowest limit.

    Attributes:
        most: More throughput until it is reached, as a share.
        words: What is the case then: "the CPUs are full".
    """

    most: float
    words: str


class _Row(Struct, frozen=True):
    """A limit.

    Attributes:
        saved_by: Beginnings of the labels of waits; a parameter that reaches one of them may save what this limits.
        most: Times the throughput of now, with the milliseconds of waiting that the parameter may save; None where the
            limit is not known, or nothing of it is used.
        words: What is the case then.
    """

    saved_by: tuple[str, ...]
    most: Callable[[Interval, LatencyBudget, float], float | None]
    words: Callable[[Interval], str]


def lowest_cap(interval: Interval, budget: LatencyBudget, reach: Sequence[str]) -> Cap | None:
    """The limit that is reached first; None where none is known that these waits leave as it is.

    Args:
        reach: As `advice.reach.reach_of` gives it.
    """
    saved_ms = sum(part.ms for part in budget.parts if part.label not in (CPU, QUEUE) and reached(part.label, reach))
    found = [
        Cap(max(times - 1.0, 0.0), row.words(interval))
        for row in _ROWS
        if not any(reached(prefix, row.saved_by) for prefix in reach)
        and (times := row.most(interval, budget, saved_ms)) is not None
    ]
    return min(found, key=lambda cap: cap.most, default=None)


def _by_cores(interval: Interval, budget: LatencyBudget, saved_ms: float) -> float | None:
    """Less waiting is fewer system calls: a millisecond of it that goes takes one of the kernel's along at most."""
    cpu, use = interval.now(sections.cpu), cpu_of_load(interval, WAITS_WINDOW_S)
    cpu_ms = sum(part.ms for part in budget.parts if part.label == CPU)
    if cpu is None or not cpu.cores or cpu_ms <= 0.0 or budget.tps <= 0.0:
        return None
    cpu_ms -= min(saved_ms, cpu_ms * (0.0 if use is None else use.system))
    return 1000.0 * len(cpu.cores) / cpu_ms / budget.tps if cpu_ms > 0.0 else None


def _by_flushes(interval: Interval, budget: LatencyBudget, _saved_ms: float) -> float | None:
    """A flush takes the commits along that came while the one before was under way: half of the clients at best."""
    flushes, most = WAL_FLUSHES(interval), MOST_FLUSHES(interval)
    if flushes is None or flushes < _FEWEST_FLUSHES or most is None or budget.tps <= 0.0:
        return None
    commits = max(budget.tps / flushes, _clients(interval) / 2.0)
    return most * commits / budget.tps


def _clients(interval: Interval) -> int:
    bench, activity = interval.now(sections.bench), interval.now(sections.activity)
    if bench is not None:
        return bench.run.clients
    return 0 if activity is None else len(client_backends(activity))


def _flush_words(interval: Interval) -> str:
    return f"the WAL device does its measured {MOST_FLUSHES(interval) or 0.0:,.0f} flushes/s"


def _by_disks(interval: Interval, _budget: LatencyBudget, _saved_ms: float) -> float | None:
    return min((room.times for room in disk_headroom(interval)), default=None)


def _disk_words(interval: Interval) -> str:
    room = min(disk_headroom(interval), key=lambda each: each.times)
    cap = f"{room.iops:,.0f} requests/s" if room.iops else f"{units.size(room.bytes_per_s)}B/s"
    return f"{room.disk} is at its cap of {cap}"


_ROWS: Final = (
    _Row((CPU,), _by_cores, lambda interval: "the CPUs are full"),
    _Row(("IO:WalSync", "IO:WALSync"), _by_flushes, _flush_words),
    _Row(("IO",), _by_disks, _disk_words),
)
