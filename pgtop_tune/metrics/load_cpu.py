"""CPU time of the load: the time that pgbench's backends ran, and the time that they waited in the run queue.

It is computed from the same processes in the oldest and the newest reading of a window. Several windows need it for each
frame, so the results of a reading are kept: readings never change.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence, Set
from operator import attrgetter
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from pgtop_tune.metrics import sections
from pgtop_tune.metrics.catalogue import Interval
from pgtop_tune.model.absence import Unavailable
from pgtop_tune.model.frame import Frame
from pgtop_tune.model.host import HostFacts, ProcessCounters, ProcessSample
from pgtop_tune.model.postgres import Activity
from pgtop_tune.model.waits import LOAD_APPLICATION

COVERED: Final = 0.8
"""Least share of the load's backends with known processes for which CPU time is computed."""


class CpuUse(Struct, frozen=True):
    """CPU use of the load's backends.

    Attributes:
        used: Mean number of CPUs they ran on.
        queued: Mean number of backends in the run queue; None where the kernel does not count it.
        system: Share of system time (stime).
        share: Part of the window that is covered: less than 1 where the backends are younger.
    """

    used: float
    queued: float | None
    system: float = 0.0
    share: float = 1.0


def cpu_of_load(interval: Interval, window_s: float) -> CpuUse | None:
    """Return CPU time and run-queue time of pgbench's backends over the last seconds.

    Backends that have ended within the window are included.
    None where processes are not known: on another machine, or with sessions too short-lived (pgbench -C).
    Source: /proc/PID/schedstat fields 1 and 2, without it /proc/PID/stat utime and stime, of backends with
    application_name pgbench.
    """
    return interval.once(_UseOver(window_s))


class _UseOver(Struct, frozen=True):
    window_s: float

    def __call__(self, interval: Interval) -> CpuUse | None:
        host = interval.newest.host
        if isinstance(host, Unavailable) or isinstance(host.facts, Unavailable):
            return None
        activity = interval.now(sections.activity)
        pids: frozenset[int] = frozenset() if activity is None else _LOAD_SEEN.pids(activity)
        lost = activity is None or interval.once(_lost_s) > activity.at_s - self.window_s
        earlier_pids = (
            [_LOAD_SEEN.pids(look) for look in interval.recent(sections.activity, self.window_s)] if lost else []
        )
        last = pids or next(filter(None, earlier_pids), pids)
        most = max((group for group in set(earlier_pids) if last <= group), key=len, default=last)
        parts = [use for group in (pids, most - pids) if group and (use := self._of(interval, group, host.facts))]
        return _together(parts) if len(parts) > 1 else next(iter(parts), None)

    def _of(self, interval: Interval, pids: frozenset[int], facts: HostFacts) -> CpuUse | None:
        """Return the use of some backends, for the time in which most of them existed."""
        looks = _LOAD_SEEN
        recent = interval.recent(sections.processes, self.window_s, least=2)
        enough = COVERED * len(pids)
        last = next((at for at, look in enumerate(recent) if len(looks.processes(look, pids).who) >= enough), None)
        if last is None:
            return None
        newest = looks.processes(recent[last], pids)
        for oldest in reversed(recent[last + 1 :]):
            grown = interval.kept(_growth, looks.processes(oldest, pids), newest, whose=self)
            if grown.processes >= enough:
                seconds = recent[last].at_s - oldest.at_s
                use = _use(grown, seconds, facts.ticks_per_s, len(pids) / grown.processes)
                return use and replace(use, share=seconds / (recent[0].at_s - recent[-1].at_s))
        return None


def _lost_s(interval: Interval) -> float:
    """Return when the load last lost a session; the time of the newest reading where the one before is not known."""
    looks = interval.recent(sections.activity, 0.0, least=2)
    return interval.carried(_Losses, _Losses).newest_s(looks, are_all=len(interval.frames) == len(looks))


class _Losses:
    """Tracks the sessions of the load: as long as it loses none, no earlier reading has further sessions."""

    def __init__(self) -> None:
        self._at_s = math.nan
        self._lost_s = math.inf

    def newest_s(self, looks: Sequence[Activity], *, are_all: bool) -> float:
        """Return the time of the last loss, given the newest readings.

        Args:
            looks: The newest reading and the one before.
            are_all: Whether these are all readings that exist.
        """
        if looks and looks[0].at_s != self._at_s:
            pids = _LOAD_SEEN.pids(looks[0])
            kept = all(_LOAD_SEEN.pids(look) <= pids for look in looks)
            if are_all:
                self._lost_s = -math.inf
            if not kept or not (are_all or (len(looks) > 1 and looks[1].at_s == self._at_s)):
                self._lost_s = looks[0].at_s
            self._at_s = looks[0].at_s
        return self._lost_s


def _together(parts: Sequence[CpuUse]) -> CpuUse:
    """Add up the use of present backends and of those that have ended, over the whole window."""
    used = [part.used * part.share for part in parts]
    queued = [part.queued * part.share for part in parts if part.queued is not None]
    total = sum(used)
    return CpuUse(
        used=total,
        queued=sum(queued) if len(queued) == len(parts) else None,
        system=sum(part_used * part.system for part_used, part in zip(used, parts, strict=True)) / total
        if total
        else 0.0,
    )


class _Times:
    """A time of some processes, which may be unknown for some.

    Attributes:
        sum: Sum of the known times.
        are_known: Whether all times are known.
    """

    def __init__(self, rows: Sequence[ProcessCounters], pick: Callable[[ProcessCounters], int | None]) -> None:
        self._rows = rows
        self._pick = pick
        times = list(map(pick, rows))
        self.are_known = None not in times
        self.sum = sum(filter(None, times))

    def grown_to(self, newer: _Times) -> tuple[int, int]:
        """Return the number of processes with both times known, and the growth of these together.

        Args:
            newer: Times of the same processes in a later reading.
        """
        if self.are_known and newer.are_known:
            return len(self._rows), newer.sum - self.sum
        before = {row.pid: time for row in self._rows if (time := self._pick(row)) is not None}
        after = ((row.pid, self._pick(row)) for row in newer._rows)
        of_both = [now - before[pid] for pid, now in after if now is not None and pid in before]
        return len(of_both), sum(of_both)


_DELAY: Final = attrgetter("run_delay_ms")
_RUN: Final = attrgetter("run_ms")


class _LoadProcesses:
    """Processes of a reading, with their times.

    Attributes:
        who: Pid and start of each.
        user_ticks: Sum of utime.
        system_ticks: Sum of stime.
        delays_ms: Time in the run queue.
        runs_ms: Time on CPUs. The kernel's ticks are too coarse for hundreds of processes that began together: all of
            them reach the next hundredth of a second at once.
    """

    def __init__(self, rows: Sequence[ProcessCounters], before: _LoadProcesses | None = None) -> None:
        self.rows = rows
        self.who = [(row.pid, row.start_ticks) for row in rows]
        if before is not None and before.who == self.who:
            # The same object is compared faster later.
            self.who = before.who
        self.user_ticks = sum([row.user_ticks for row in rows])
        self.system_ticks = sum([row.system_ticks for row in rows])
        self.delays_ms = _Times(rows, _DELAY)
        self.runs_ms = _Times(rows, _RUN)

    def among(self, processes: Set[tuple[int, int]]) -> _LoadProcesses:
        """Return the part that consists of these processes."""
        return _LoadProcesses([row for row, process in zip(self.rows, self.who, strict=True) if process in processes])


def _of_both(older: _LoadProcesses, newer: _LoadProcesses) -> tuple[_LoadProcesses, _LoadProcesses]:
    """Return both without the processes that only one of them has."""
    if older.who is newer.who or older.who == newer.who:
        return older, newer
    common = set(older.who).intersection(newer.who)
    return older.among(common), newer.among(common)


class _LoadSeen:
    """Cache of results of the newest readings, which windows and intervals share."""

    def __init__(self) -> None:
        self._pids: dict[int, tuple[Activity, frozenset[int]]] = {}
        self._newest_pids: frozenset[int] = frozenset()
        self._newest: _LoadProcesses | None = None
        self._processes: dict[tuple[int, frozenset[int]], tuple[ProcessSample, _LoadProcesses]] = {}

    def pids(self, activity: Activity) -> frozenset[int]:
        """Return the pids of the load's backends, see `_of_load`."""
        entry = self._pids.get(id(activity))
        if entry is None or entry[0] is not activity:
            pids = _of_load(activity)
            if pids == self._newest_pids:
                # The same object is a faster key.
                pids = self._newest_pids
            self._newest_pids = pids
            entry = self._pids[id(activity)] = activity, pids
            _forget_older(self._pids, activity.at_s)
        return entry[1]

    def processes(self, sample: ProcessSample, pids: frozenset[int]) -> _LoadProcesses:
        """Return the processes of a reading that have one of these pids."""
        entry = self._processes.get((id(sample), pids))
        if entry is None or entry[0] is not sample:
            rows = [row for row in sample.processes if row.pid in pids]
            self._newest = _LoadProcesses(rows, self._newest)
            entry = self._processes[id(sample), pids] = sample, self._newest
            _forget_older(self._processes, sample.at_s)
        return entry[1]


_SEEN_S: Final = 12.0
"""Age up to which results are kept, as long as a session keeps all readings."""
_MOST_SEEN: Final = 32


def _forget_older(entries: dict[Any, tuple[Any, Any]], at_s: float) -> None:
    """Remove old entries, without relying on being the only thread; other sessions have other clocks."""
    looks = list(entries.items())
    for index, (key, (look, _)) in enumerate(looks):
        if look.at_s < at_s - _SEEN_S or index < len(looks) - _MOST_SEEN:
            entries.pop(key, None)


_LOAD_SEEN: Final = _LoadSeen()


def load_pids(frame: Frame) -> frozenset[int]:
    """Return the pids of pgbench's sessions in a frame, without parallel workers."""
    activity = sections.activity(frame)
    return frozenset() if isinstance(activity, Unavailable) else _LOAD_SEEN.pids(activity)


def _of_load(activity: Activity) -> frozenset[int]:
    rows = activity.backends
    return frozenset(row.pid for row in rows if row.application_name == LOAD_APPLICATION and row.leader_pid is None)


class _Growth(Struct, frozen=True):
    """Times that processes used between two readings.

    Attributes:
        processes: Number of processes in both readings.
        user_ticks, system_ticks: Growth of utime and stime.
        delays, delay_ms: Number of processes with a known time in the run queue, and its growth together.
        runs, run_ms: Number of processes with a known time on CPUs, and its growth together.
    """

    processes: int
    user_ticks: int
    system_ticks: int
    delays: int
    delay_ms: int
    runs: int
    run_ms: int


def _growth(older: _LoadProcesses, newer: _LoadProcesses) -> _Growth:
    older, newer = _of_both(older, newer)
    delays, delay_ms = older.delays_ms.grown_to(newer.delays_ms)
    runs, run_ms = older.runs_ms.grown_to(newer.runs_ms)
    return _Growth(
        processes=len(newer.who),
        user_ticks=newer.user_ticks - older.user_ticks,
        system_ticks=newer.system_ticks - older.system_ticks,
        delays=delays,
        delay_ms=delay_ms,
        runs=runs,
        run_ms=run_ms,
    )


def _use(grown: _Growth, seconds: float, ticks_per_s: int, all_to_known: float) -> CpuUse | None:
    if seconds <= 0 or ticks_per_s <= 0:
        return None
    ticks = grown.user_ticks + grown.system_ticks
    queued = None
    if grown.delays >= COVERED * grown.processes:
        queued = grown.delay_ms / 1000.0 / seconds * all_to_known * grown.processes / grown.delays
    used = ticks / ticks_per_s / seconds * all_to_known
    if grown.runs >= COVERED * grown.processes:
        used = grown.run_ms / 1000.0 / seconds * all_to_known * grown.processes / grown.runs
    return CpuUse(used=used, queued=queued, system=grown.system_ticks / ticks if ticks > 0 else 0.0)
