"""The arithmetic of numbers of single processes; `metrics.host` says what the numbers mean.

There may be a thousand processes: a result of two looks is kept as long as these are the newest ones.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from msgspec import Struct

from pgtop_tune.metrics import sections
from pgtop_tune.metrics.catalogue import WHOLE_S, Interval, rate
from pgtop_tune.metrics.host_values import HostLook, busy_ticks, same_boot, ticks_share, with_facts
from pgtop_tune.model.host import CpuSample, HostFacts, ProcessCounters, ProcessSample

IO_WINDOW_S: Final = 10.0
"""How far back a process's earlier I/O reading may lie: they are read for some processes at a time."""
_processes = with_facts(sections.processes)


def process_cpu(interval: Interval) -> dict[int, float]:
    """CPU time per process as a share of one core."""
    found = _cpu_of_processes(interval)
    return {} if found is None else found.shares


def ended_cpu(interval: Interval) -> float:
    """CPU time of processes that began or ended between two looks (sessions, parallel workers), share of one core."""
    between = _cpu_of_processes(interval)
    return 0.0 if between is None else between.ended


def foreign_cpu(interval: Interval) -> float | None:
    """Share of the time of all CPUs that neither the server nor pgbench nor we used, 0 to 100."""
    pair = same_boot(interval, _processes)
    return None if pair is None else _foreign(interval, pair, None)


def foreign_cpu_over(interval: Interval, window_s: float) -> float | None:
    """The same of the last seconds."""
    looks = interval.recent(_processes, window_s, least=2)
    if len(looks) < 2 or looks[0].boot_id != looks[-1].boot_id:
        return None
    # Looks from before the server answered did not see its processes: less time, then.
    shares = (_foreign(interval, (older, looks[0]), window_s) for older in reversed(looks[1:]))
    return next((share for share in shares if share is not None), None)


def _foreign(
    interval: Interval, pair: tuple[HostLook[ProcessSample], HostLook[ProcessSample]], window_s: float | None
) -> float | None:
    """Of the time between two looks at processes, which are seconds apart and ago where there are many."""
    older, newer = (_cpu_at(interval, look.at_s) for look in pair)
    if pair[1].facts is None or older is None or newer is None:
        return None
    busy = ticks_share(older.total, newer.total, busy_ticks)
    known = interval.kept(_cpu_between, pair[0].section, pair[1].section, pair[1].facts, whose=window_s)
    if busy is None or not known.cpus or known.unseen:
        return None
    return max(busy - (sum(known.shares.values()) + known.ended) / known.cpus, 0.0)


def _cpu_at(interval: Interval, at_s: float) -> CpuSample | None:
    """The reading nearest to a moment."""
    nearest = None
    for reading in interval.recent(sections.cpu, WHOLE_S, least=2):
        if nearest is not None and abs(reading.at_s - at_s) > abs(nearest.at_s - at_s):
            break
        nearest = reading
    return nearest


class _ProcessCpu(Struct, frozen=True):
    """CPU time between two looks, shares of one core.

    Attributes:
        shares: By pid, of processes that both looks saw.
        ended: Of those that began or ended in between.
        cpus: CPUs of the machine.
        unseen: Whether there are some that had begun before the first look, which did not see them: the server did not
            answer then. Their part of the time between is not known.
    """

    shares: dict[int, float]
    ended: float
    cpus: int
    unseen: bool


def _cpu_of_processes(interval: Interval) -> _ProcessCpu | None:
    pair = same_boot(interval, _processes)
    if pair is None or pair[1].facts is None:
        return None
    return interval.kept(_cpu_between, pair[0].section, pair[1].section, pair[1].facts)


def _cpu_between(older: ProcessSample, newer: ProcessSample, facts: HostFacts) -> _ProcessCpu:
    """CPU time between two looks.

    The kernel adds the time of a child that has ended to its parent: sessions and workers to the postmaster, programs of
    archive_command to the archiver.

    A session whose whole time is more than the looks are apart began before, and was not looked at then.
    """
    most = (newer.at_s - older.at_s) * facts.ticks_per_s
    before = {process.pid: process for process in older.processes}
    shares: dict[int, float] = {}
    reaped, began, per_ms = 0, 0.0, facts.ticks_per_s / 1000.0
    newest_before, unseen = max((process.start_ticks for process in older.processes), default=0), False
    share = 100.0 / most
    for process in newer.processes:
        known = before.get(process.pid)
        if known is process:
            # It has done nothing.
            shares[process.pid] = 0.0
            del before[process.pid]
            continue
        # A pid may name another process by now.
        if known is None or known.start_ticks != process.start_ticks:
            ticks = _ticks(process, per_ms)
            if known is None and process.start_ticks < newest_before:
                unseen = True
            else:
                began += ticks if ticks <= most else 0.0
            continue
        del before[process.pid]
        reaped += max(process.reaped_ticks - known.reaped_ticks, 0)
        if process.run_ms is not None and known.run_ms is not None:
            used = (process.run_ms - known.run_ms) * per_ms
        else:
            used = process.user_ticks + process.system_ticks - known.user_ticks - known.system_ticks
        if used >= 0:
            shares[process.pid] = used * share
    gone = sum([_ticks(process, per_ms) for process in before.values()])
    ended = (began + max(reaped - gone, 0.0)) * share
    return _ProcessCpu(shares=shares, ended=ended, cpus=facts.cpu_count, unseen=unseen)


def _ticks(process: ProcessCounters, per_ms: float) -> float:
    """All its CPU time, with parts of ticks where these are known: of hundreds that end at once they are a second."""
    return process.user_ticks + process.system_ticks if process.run_ms is None else process.run_ms * per_ms


def process_gauge(pick: Callable[[ProcessCounters], float]) -> Callable[[Interval], dict[int, float]]:
    """A number per process of the newest look."""

    def values(interval: Interval) -> dict[int, float]:
        sample = interval.now(sections.processes)
        return {} if sample is None else {process.pid: float(pick(process)) for process in sample.processes}

    return values


def process_io(
    pick: Callable[[ProcessCounters], int | None], scale: float = 1.0
) -> Callable[[Interval], Mapping[int, float]]:
    """A counter's growth per second and process, between its two latest readings within `IO_WINDOW_S`, times a scale."""

    def values(interval: Interval) -> Mapping[int, float]:
        return _IoRates(interval.once(_io_looks), pick, scale)

    return values


class _IoLook:
    """Processes of one look: when each began, and those whose I/O or delay was read."""

    def __init__(self, sample: ProcessSample) -> None:
        self.sample = sample
        self.began = {process.pid: process.start_ticks for process in sample.processes}
        self.read = {
            process.pid: process
            for process in sample.processes
            if process.run_delay_ms is not None or process.read_bytes is not None
        }


def _io_looks(interval: Interval) -> list[_IoLook]:
    """Those since the machine was started, newest first."""
    looks = interval.recent(_processes, IO_WINDOW_S, least=2)
    samples = [look.section for look in itertools.takewhile(lambda look: look.boot_id == looks[0].boot_id, looks)]
    return interval.each(_IoLook, samples)


class _IoRates(Mapping[int, float]):
    """Rates by pid, each computed when it is asked for: of hundreds of processes a screen shows some dozens."""

    def __init__(self, looks: Sequence[_IoLook], pick: Callable[[ProcessCounters], int | None], scale: float) -> None:
        self._looks = looks
        self._pick = pick
        self._scale = scale

    def _rate(self, pid: int) -> float | None:
        began = self._looks[0].began.get(pid) if self._looks else None
        newer: tuple[int, float] | None = None
        for look in self._looks if began is not None else ():
            process = look.read.get(pid)
            value = None if process is None or process.start_ticks != began else self._pick(process)
            if value is None:
                continue
            if newer is None:
                newer = value, look.sample.at_s
                continue
            per_second = rate(value, newer[0], look.sample.at_s, newer[1])
            return None if per_second is None else per_second * self._scale
        return None

    def get(self, pid: int, default: Any = None) -> Any:
        """As of any mapping, without an exception for a pid that has none."""
        found = self._rate(pid)
        return default if found is None else found

    def __getitem__(self, pid: int) -> float:
        found = self._rate(pid)
        if found is None:
            raise KeyError(pid)
        return found

    def __iter__(self) -> Iterator[int]:
        return (pid for pid in (self._looks[0].began if self._looks else ()) if self._rate(pid) is not None)

    def __len__(self) -> int:
        return sum(1 for _ in self)


def processes_of_one_boot(interval: Interval) -> tuple[HostLook[ProcessSample], HostLook[ProcessSample]] | None:
    """The two newest looks at processes, older first; None across a reboot."""
    return same_boot(interval, _processes)
