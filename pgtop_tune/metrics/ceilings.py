"""Measured limits and their use: limits of the server from `check --measure`, caps of disks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Final

from msgspec import Struct

from pgtop_tune.metrics import sections
from pgtop_tune.metrics.catalogue import Interval, Metric, share
from pgtop_tune.metrics.io import WAL_FLUSHES
from pgtop_tune.model.absence import Unavailable
from pgtop_tune.model.host import DiskCounters, DiskSample

_FLUSHES: Final = "wal-flushes"


def _most_flushes(interval: Interval) -> float | None:
    measured = sections.ceilings(interval.newest)
    return None if isinstance(measured, Unavailable) else measured.value(_FLUSHES)


def _flushes_used(interval: Interval) -> float | None:
    now, most = WAL_FLUSHES(interval), _most_flushes(interval)
    return None if now is None or most is None else share(now, most)


def _age(interval: Interval) -> float | None:
    measured = sections.ceilings(interval.newest)
    if isinstance(measured, Unavailable) or not measured.at_ms:
        return None
    return max(interval.newest.taken_at_ms - measured.at_ms, 0) / 1000


MOST_FLUSHES = Metric(
    "ceiling.wal_flushes", "WAL device", "1/s",
    "Measured limit of the WAL device: consecutive flushes per second, from `check --measure`.",
    "pg_test_fsync with the server's wal_sync_method, or pgtop-tune's own writes to an unlinked file in pg_wal", _most_flushes,
)  # fmt: skip
FLUSHES_USED = Metric(
    "ceiling.wal_flushes_used", "of its flushes", "%",
    "Flushes as a share of the WAL device's measured limit. Near 100 %, a higher commit rate needs more commits per flush (commit_delay, more sessions) or a faster device. A value above 100 % means that the measurement was disturbed.",
    "flushes / flushes of the WAL device", _flushes_used, critical=95.0,
)  # fmt: skip
CEILING_AGE = Metric(
    "ceiling.age", "measured ago", "s", "Time since the server was measured.",
    "the measurement in the user's state directory, one file per system identifier", _age,
)  # fmt: skip

METRICS: Final = (MOST_FLUSHES, FLUSHES_USED, CEILING_AGE)


# Disks at their cap: a limit of the cloud or the device that more requests do not exceed.
#
# A cap is given (--disk-cap) or learned: requests or bytes per second have been constant within 3 % for 20 s, always with
# more than one request in progress, while requests took longer and longer. A steady load below the cap is constant as
# well, but its requests do not take longer.

STANDS_S: Final = 20.0
_SAME: Final = 0.03
_QUEUE: Final = 1.0
_SLOWER: Final = 1.1
"""Least ratio of the request times in the last and in the first third of the window."""
_LOOK_BACK_S: Final = 140.0
_FEWEST: Final = 8


class CapReached(Struct, frozen=True):
    """A disk at its cap.

    Attributes:
        iops: Cap of requests per second; None when the disk is not at it.
        bytes_per_s: Cap of bytes per second; None when the disk is not at it.
        learned: Whether the cap was observed and not given.
    """

    iops: float | None
    bytes_per_s: float | None
    learned: bool


class _Second(Struct, frozen=True):
    """Work of one device between two readings."""

    at_s: float
    seconds: float
    iops: float
    bytes_per_s: float
    queue: float
    await_ms: float


def disks_at_cap(interval: Interval) -> dict[str, CapReached]:
    """Return the disks that are at their cap now, by name.

    A given cap is reached at 97 % of it. A learned cap is searched for in the last two minutes; it is reached while the
    disk works at it, also when the load was lighter in between.
    """
    pair = interval.pair(sections.disks)
    if pair is None:
        return {}
    at_cap: dict[str, CapReached] = {}
    looks: Sequence[DiskSample] = ()
    for disk in pair[1].disks:
        is_given = disk.cap_iops is not None or disk.cap_bytes_per_s is not None
        latest = _history(pair[::-1], disk.name)
        if not latest or (not is_given and latest[0].queue <= _QUEUE):
            continue
        now = latest[0]
        looks = looks or interval.recent(sections.disks, _LOOK_BACK_S)
        history = _history(looks, disk.name)
        iops = disk.cap_iops if is_given else _learned(history, lambda second: second.iops)
        bytes_per_s = disk.cap_bytes_per_s if is_given else _learned(history, lambda second: second.bytes_per_s)
        reached = (_reached(now.iops, iops, now, is_given), _reached(now.bytes_per_s, bytes_per_s, now, is_given))
        if any(cap is not None for cap in reached):
            at_cap[disk.name] = CapReached(*reached, learned=not is_given)
    return at_cap


class Headroom(Struct, frozen=True):
    """A disk below or at its cap.

    Attributes:
        disk: Its name.
        times: Cap as a multiple of the present rate; the lower one of requests and bytes.
        iops, bytes_per_s: The cap that is reached first; the other is None.
    """

    disk: str
    times: float
    iops: float | None
    bytes_per_s: float | None


def disk_headroom(interval: Interval) -> list[Headroom]:
    """Return the headroom of each active disk of the server whose cap is given or was learned."""
    pair = interval.pair(sections.disks)
    if pair is None:
        return []
    reached, headrooms = interval.once(disks_at_cap), []
    for disk in pair[1].disks:
        latest = _history(pair[::-1], disk.name) if disk.roles else []
        cap = reached.get(disk.name) or CapReached(disk.cap_iops, disk.cap_bytes_per_s, learned=False)
        rooms = [
            Headroom(disk.name, limit / now, *((limit, None) if kind == "iops" else (None, limit)))
            for kind, limit, now in (
                ("iops", cap.iops, latest[0].iops if latest else 0.0),
                ("bytes", cap.bytes_per_s, latest[0].bytes_per_s if latest else 0.0),
            )
            if limit and now > 0.0
        ]
        headrooms += [min(rooms, key=lambda room: room.times)] if rooms else []
    return headrooms


def _reached(value: float, cap: float | None, now: _Second, is_given: bool) -> float | None:
    if cap is None or value < cap * (1 - _SAME):
        return None
    return cap if is_given or now.queue > _QUEUE else None


def _history(looks: Sequence[DiskSample], name: str) -> list[_Second]:
    """Return the work between readings, oldest first; it ends where a counter went backwards."""
    rows = [(look.at_s, row) for look in looks for row in look.disks if row.name == name]
    seconds: list[_Second] = []
    for (newer_s, newer), (older_s, older) in pairwise(rows):
        second = _between(older_s, older, newer_s, newer)
        if second is None:
            break
        seconds.append(second)
    return seconds[::-1]


def _between(older_s: float, older: DiskCounters, newer_s: float, newer: DiskCounters) -> _Second | None:
    seconds = newer_s - older_s
    requests = newer.reads + newer.writes - older.reads - older.writes
    transferred = newer.read_bytes + newer.write_bytes - older.read_bytes - older.write_bytes
    waited_ms = _grown(newer, older, lambda disk: disk.read_ms) + _grown(newer, older, lambda disk: disk.write_ms)
    weighted_ms = _grown(newer, older, lambda disk: disk.weighted_ms)
    if seconds <= 0 or min(requests, transferred, waited_ms, weighted_ms) < 0:
        return None
    return _Second(
        at_s=newer_s, seconds=seconds, iops=requests / seconds, bytes_per_s=transferred / seconds, queue=weighted_ms / 1000 / seconds,
        await_ms=waited_ms / requests if requests else 0.0,
    )  # fmt: skip


def _grown(newer: DiskCounters, older: DiskCounters, pick: Callable[[DiskCounters], int | None]) -> int:
    """Return the growth of a counter; 0 where it is not known, because a cap is learned only from a known queue."""
    after, before = pick(newer), pick(older)
    return 0 if after is None or before is None else after - before


def _learned(history: Sequence[_Second], value: Callable[[_Second], float]) -> float | None:
    """Return the constant rate of the newest stretch of `STANDS_S`; None when there was none."""
    end = len(history)
    while end >= _FEWEST:
        low = high = value(history[end - 1])
        stood_s, start = 0.0, end
        while start and stood_s < STANDS_S:
            second = history[start - 1]
            low, high = min(low, value(second)), max(high, value(second))
            if second.queue <= _QUEUE:
                end = start  # no window with this second in it
                break
            if high <= 0 or high - low > _SAME * high:
                break
            stood_s += second.seconds
            start -= 1
        window = history[start:end]
        # Intervals of 0.9998 s: twenty of them are twenty seconds.
        if stood_s >= STANDS_S * 0.99 and len(window) >= _FEWEST and _slowing(window):
            return sum(map(value, window)) / len(window)
        end -= 1
    return None


def _slowing(window: Sequence[_Second]) -> bool:
    third = len(window) // 3
    first, last = window[:third], window[-third:]
    return sum(second.await_ms for second in last) > _SLOWER * sum(second.await_ms for second in first) > 0
