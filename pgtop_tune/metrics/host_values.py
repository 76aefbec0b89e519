"""Computation of the numbers of the machine and of its processes; `metrics.host` has their definitions.

No value spans a reboot, which resets every counter: both readings must have the same boot_id. There may be a thousand
processes, so the result of two readings of them is kept until there is a newer one.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, Generic, TypeVar

from msgspec import Struct

from pgtop_tune.metrics import sections
from pgtop_tune.metrics.catalogue import WHOLE_S, Interval, Reading, pair_rate, rate, share
from pgtop_tune.model.absence import Reason, Unavailable
from pgtop_tune.model.frame import Frame
from pgtop_tune.model.host import (
    CpuSample,
    CpuTimes,
    DiskCounters,
    HostFacts,
    HugePages,
    MemorySample,
    ProcessCounters,
    ProcessSample,
)

S = TypeVar("S", bound=Reading)


class HostLook(Struct, Generic[S], frozen=True):
    """A section together with the facts of the machine in the same frame."""

    section: S
    facts: HostFacts | None

    @property
    def at_s(self) -> float:
        return self.section.at_s

    @property
    def boot_id(self) -> str:
        return self.facts.boot_id if self.facts else ""


def with_facts(reach: Callable[[Frame], S | Unavailable]) -> Callable[[Frame], HostLook[S] | Unavailable]:
    def look(frame: Frame) -> HostLook[S] | Unavailable:
        reading = reach(frame)
        if isinstance(reading, Unavailable):
            return reading
        facts = sections.machine(frame)
        return HostLook(reading, None if isinstance(facts, Unavailable) else facts)

    return look


_cpu = with_facts(sections.cpu)
_memory = with_facts(sections.memory)
_disks = with_facts(sections.disks)


def same_boot(
    interval: Interval, look: Callable[[Frame], HostLook[S] | Unavailable]
) -> tuple[HostLook[S], HostLook[S]] | None:
    pair = interval.pair(look)
    return None if pair is None or pair[0].boot_id != pair[1].boot_id else pair


def untold(frame: Frame, metric: str) -> Unavailable | None:
    """Return why the source of host numbers lacks a figure; None where it has it, and without a reading of the machine."""
    facts = sections.machine(frame)
    if isinstance(facts, Unavailable):
        return None
    reason = next((figure.why for figure in facts.untold if figure.metric == metric), None)
    return None if reason is None else Unavailable(Reason.NOT_SUPPORTED, reason)


def all_ticks(times: CpuTimes) -> int:
    """Return the sum of all kinds of CPU time; user and nice contain guest time."""
    return (
        times.user_ticks + times.nice_ticks + times.system_ticks + times.idle_ticks
        + (times.iowait_ticks or 0) + (times.irq_ticks or 0) + (times.softirq_ticks or 0) + (times.steal_ticks or 0)
    )  # fmt: skip


def idle_ticks(times: CpuTimes) -> int:
    """Return the time without work; waits for I/O are part of it."""
    return times.idle_ticks + (times.iowait_ticks or 0)


def busy_ticks(times: CpuTimes) -> int:
    """Return all CPU time but idle and iowait; stolen time counts, because the machine wanted it."""
    return all_ticks(times) - idle_ticks(times)


def irq_ticks(times: CpuTimes) -> int | None:
    """Return the time of hardware and software interrupts; without the latter where the system has none (FreeBSD)."""
    return None if times.irq_ticks is None else times.irq_ticks + (times.softirq_ticks or 0)


def guest_ticks(times: CpuTimes) -> int | None:
    """Return the time of this machine's own virtual machines, including those with lowered priority."""
    return None if times.guest_ticks is None else times.guest_ticks + (times.guest_nice_ticks or 0)


def growth(older: CpuTimes, newer: CpuTimes) -> CpuTimes:
    """Return the growth of each kind of CPU time; 0 for a counter that fell.

    iowait may fall (proc.rst), idle with a core that goes off line, steal when the machine moves to another host.
    """
    # In the order of the fields, for hundreds of cores: keywords would take twice as long.
    return CpuTimes(
        newer.cpu,
        max(newer.user_ticks - older.user_ticks, 0),
        max(newer.nice_ticks - older.nice_ticks, 0),
        max(newer.system_ticks - older.system_ticks, 0),
        max(newer.idle_ticks - older.idle_ticks, 0),
        _grown(older.iowait_ticks, newer.iowait_ticks),
        _grown(older.irq_ticks, newer.irq_ticks),
        _grown(older.softirq_ticks, newer.softirq_ticks),
        _grown(older.steal_ticks, newer.steal_ticks),
        _grown(older.guest_ticks, newer.guest_ticks),
        _grown(older.guest_nice_ticks, newer.guest_nice_ticks),
    )


def _grown(before: int | None, after: int | None) -> int | None:
    return None if before is None or after is None else max(after - before, 0)


def ticks_share(older: CpuTimes, newer: CpuTimes, pick: Callable[[CpuTimes], int | None]) -> float | None:
    """Return the growth of some kinds of CPU time in per cent of the growth of all kinds, 0 to 100."""
    grown = growth(older, newer)
    picked = pick(grown)
    percent = None if picked is None else share(picked, all_ticks(grown))
    return None if percent is None else min(percent, 100.0)


def cpu_share(pick: Callable[[CpuTimes], int | None]) -> Callable[[Interval], float | None]:
    """Make a metric of a share of the time of all CPUs, 0 to 100; None for a kind of time that the system lacks."""

    def value(interval: Interval) -> float | None:
        pair = same_boot(interval, _cpu)
        return None if pair is None else ticks_share(pair[0].section.total, pair[1].section.total, pick)

    return value


def core_busy(interval: Interval) -> dict[str, float]:
    """Return the busy share per core, of cores that both readings have."""
    pair = same_boot(interval, _cpu)
    if pair is None:
        return {}
    older = {core.cpu: core for core in pair[0].section.cores}
    shares = (
        (core.cpu, ticks_share(older[core.cpu], core, busy_ticks))
        for core in pair[1].section.cores
        if core.cpu in older
    )
    return {cpu: busy for cpu, busy in shares if busy is not None}


def section_rate(
    reach: Callable[[Frame], S | Unavailable], pick: Callable[[S], float | None], scale: float = 1.0
) -> Callable[[Interval], float | None]:
    """Make a metric of the increase of a section's counter per second, times the scale."""
    look = with_facts(reach)

    def value(interval: Interval) -> float | None:
        per_second = pair_rate(same_boot(interval, look), lambda reading: pick(reading.section))
        return None if per_second is None else per_second * scale

    return value


def stalled(
    reach: Callable[[Frame], S | Unavailable], pick: Callable[[S], float | None]
) -> Callable[[Interval], float | None]:
    """Make a metric of the share of time in which tasks were stalled, 0 to 100, from a counter in microseconds."""
    value = section_rate(reach, pick, 1e-4)

    def at_most_all(interval: Interval) -> float | None:
        percent = value(interval)
        # The file is read a few microseconds after the clock, so a full stall can come out as 100.001.
        return None if percent is None else min(percent, 100.0)

    return at_most_all


def gauge(
    reach: Callable[[Frame], S | Unavailable], pick: Callable[[S], float | None]
) -> Callable[[Interval], float | None]:
    """Make a metric of a number of the newest reading."""

    def value(interval: Interval) -> float | None:
        section = interval.now(reach)
        number = None if section is None else pick(section)
        return None if number is None else float(number)

    return value


def page_cache_bytes(memory: MemorySample) -> int | None:
    """Return the file pages that the kernel can free. The kernel's own figure of cached pages includes shared memory."""
    if memory.buffers_bytes is None or memory.cached_bytes is None or memory.shmem_bytes is None:
        return None
    return max(memory.buffers_bytes + memory.cached_bytes - memory.shmem_bytes, 0)


def used_bytes(memory: MemorySample) -> int | None:
    """Return memory that is neither free nor page cache nor cache of ZFS: processes, shared memory, huge pages, the kernel.

    Where the page cache is not known, this is the memory that is not available.
    """
    cache, arc = page_cache_bytes(memory), memory.arc_bytes or 0
    if cache is not None:
        return max(memory.total_bytes - memory.free_bytes - cache - arc, 0)
    return None if memory.available_bytes is None else max(memory.total_bytes - memory.available_bytes - arc, 0)


def swap_used_bytes(memory: MemorySample) -> int | None:
    """Return the swap space in use; None where its size or its free space is not known."""
    total, free = memory.swap_total_bytes, memory.swap_free_bytes
    return None if total is None or free is None else max(total - free, 0)


def swap_rate(pick: Callable[[MemorySample], int | None]) -> Callable[[Interval], float | None]:
    """Make a metric of swapped pages, in bytes per second."""

    def value(interval: Interval) -> float | None:
        pair = same_boot(interval, _memory)
        pages = pair_rate(pair, lambda look: pick(look.section))
        facts = pair[1].facts if pair else None
        return None if pages is None or facts is None else pages * facts.page_size_bytes

    return value


def huge_pages(pick: Callable[[HugePages], int]) -> Callable[[Interval], dict[int, float]]:
    """Make a metric of a number of pages per pool, by page size in bytes."""

    def values(interval: Interval) -> dict[int, float]:
        memory = interval.now(sections.memory)
        return {} if memory is None else {pool.page_bytes: float(pick(pool)) for pool in memory.huge_pages}

    return values


class DiskDelta(Struct, frozen=True):
    """Counters of one device at two readings."""

    older: DiskCounters
    newer: DiskCounters
    seconds: float

    def grown(self, pick: Callable[[DiskCounters], int | None]) -> int | None:
        """Return the increase of a counter; None when it is not known, or went backwards (another device of this name, or
        a wrap at 2^32 ms)."""
        after, before = pick(self.newer), pick(self.older)
        return None if after is None or before is None or after < before else after - before

    def per_second(self, pick: Callable[[DiskCounters], int | None]) -> float | None:
        """Return the increase of a counter per second."""
        change = self.grown(pick)
        return None if change is None else change / self.seconds

    def quotient(
        self, part: Callable[[DiskCounters], int | None], divisor: Callable[[DiskCounters], int]
    ) -> float | None:
        """Return the increase of one counter per increase of another; None when the other did not increase."""
        above, below = self.grown(part), self.grown(divisor)
        return None if above is None or not below else above / below


def disk_value(value_of: Callable[[DiskDelta], float | None]) -> Callable[[Interval], dict[str, float]]:
    """Make a metric of a number per device that both readings have; devices without the number are left out."""

    def values(interval: Interval) -> dict[str, float]:
        numbers = ((delta.newer.name, value_of(delta)) for delta in _disk_deltas(interval))
        return {name: value for name, value in numbers if value is not None}

    return values


def _disk_deltas(interval: Interval) -> Iterator[DiskDelta]:
    pair = same_boot(interval, _disks)
    if pair is None:
        return
    before = {disk.name: disk for disk in pair[0].section.disks}
    seconds = pair[1].at_s - pair[0].at_s
    for disk in pair[1].section.disks:
        if disk.name in before:
            yield DiskDelta(before[disk.name], disk, seconds)


IO_WINDOW_S: Final = 10.0
"""Age up to which an earlier I/O reading of a process counts: each tick reads those of some processes only."""
_processes = with_facts(sections.processes)


def process_cpu(interval: Interval) -> dict[int, float]:
    """Return CPU time per process in per cent of one core."""
    between = _cpu_of_processes(interval)
    return {} if between is None else between.shares


def foreign_cpu(interval: Interval) -> float | None:
    """Return the share of all CPU time used by other programs than the server, pgbench and this one, 0 to 100."""
    pair = same_boot(interval, _processes)
    return None if pair is None else _foreign(interval, pair, None)


def foreign_cpu_over(interval: Interval, window_s: float) -> float | None:
    """Return the same share over the last seconds."""
    looks = interval.recent(_processes, window_s, least=2)
    if len(looks) < 2 or looks[0].boot_id != looks[-1].boot_id:
        return None
    # Readings before the first answer of the server lack its processes: use a shorter window then.
    shares = (_foreign(interval, (older, looks[0]), window_s) for older in reversed(looks[1:]))
    return next((share for share in shares if share is not None), None)


def _foreign(
    interval: Interval, pair: tuple[HostLook[ProcessSample], HostLook[ProcessSample]], window_s: float | None
) -> float | None:
    """Return the share between two readings of processes; with many processes they are seconds apart, and seconds old."""
    older, newer = (_cpu_at(interval, look.at_s) for look in pair)
    if pair[1].facts is None or older is None or newer is None:
        return None
    busy = ticks_share(older.total, newer.total, busy_ticks)
    between = interval.kept(_cpu_between, pair[0].section, pair[1].section, pair[1].facts, whose=window_s)
    if busy is None or not between.cpus or between.unseen:
        return None
    return max(busy - (sum(between.shares.values()) + between.ended) / between.cpus, 0.0)


def cpu_split(interval: Interval) -> dict[str, float]:
    """Return all CPU time by its user in per cent, together 100: keys of `CPU_USERS`, and "idle" with waits for disks.

    Mean of `SPLIT_S`, or of the time between two readings of many processes: ticks of one second are too few.

    Where the user is not known, all busy time but steal is "unknown". Without the processes of this machine, over SQL,
    the load belongs to the others.
    """
    lately = interval.over(SPLIT_S)
    used = _cpu_used(lately) or _cpu_used(interval)
    pair = same_boot(lately, _cpu) or same_boot(interval, _cpu)
    older, newer = used[:2] if used is not None else (None, None) if pair is None else (look.section for look in pair)
    if older is None or newer is None:
        return {}
    grown = growth(older.total, newer.total)
    everything = all_ticks(grown)
    if not everything:
        return {}
    steal = 100.0 * (grown.steal_ticks or 0) / everything
    busy = 100.0 * busy_ticks(grown) / everything - steal
    split = {"steal": steal}
    if used is None:
        split["unknown"] = busy
    else:
        # Over SQL all processes are the server's.
        of_server, of_ours = (used[2] + used[3], 0.0) if _is_of_server(interval) else used[2:]
        # The kernel counts busy CPUs by ticks, and processes exactly: these may have used more than the CPUs were busy.
        scale = min(1.0, (100.0 - steal) / max(of_server + of_ours, 1e-9))
        split |= {"postgres": of_server * scale, "others": max(busy - of_server - of_ours, 0.0)}
        if not _is_of_server(interval):
            split["ours"] = of_ours * scale
    return split | {"idle": max(100.0 - sum(split.values()), 0.0)}


SPLIT_S: Final = 3.0
CPU_USERS: Final = ("postgres", "ours", "others", "unknown", "steal")
"""Users of the CPUs: the server, pgbench and this program, other programs, one of these three, the hypervisor."""


def _is_of_server(interval: Interval) -> bool:
    facts = sections.machine(interval.newest)
    return not isinstance(facts, Unavailable) and facts.is_of_server


def _cpu_used(interval: Interval) -> tuple[CpuSample, CpuSample, float, float] | None:
    """Return the readings of the CPUs at two readings of the processes; and what server, and pgbench with this program,
    used in between, in per cent of all CPUs. None where it is not known.
    """
    pair = same_boot(interval, _processes)
    of_processes, between = cpu_of_server(interval), _cpu_of_processes(interval)
    if pair is None or of_processes is None or between is None or between.unseen or not between.cpus:
        return None
    older, newer = (_cpu_at(interval, look.at_s) for look in pair)
    if older is None or newer is None or older is newer:
        return None
    return older, newer, of_processes[0] / between.cpus, of_processes[1] / between.cpus


def cpu_of_server(interval: Interval) -> tuple[float, float] | None:
    """Return the CPU time of the server, and of pgbench and this program, in per cent of one core; None where not known.

    Processes that began or ended in between are the server's.
    """
    between, sample = _cpu_of_processes(interval), interval.now(sections.processes)
    if between is None or sample is None:
        return None
    server_pids = _server_pids(interval, sample.at_s)
    of_server = [share for pid, share in between.shares.items() if pid in server_pids]
    if not of_server:
        return None
    return sum(of_server) + between.ended, sum(between.shares.values()) - sum(of_server)


def _server_pids(interval: Interval, at_s: float) -> set[int]:
    """Return the pids of the server at a time, also shortly after its last answer; none where it has not answered."""
    for frame in reversed(interval.frames):
        if frame.elapsed_s < at_s - WHOLE_S:
            break
        activity, server = sections.activity(frame), sections.server(frame)
        if isinstance(activity, Unavailable) or activity.at_s > at_s:
            continue
        pids = {backend.pid for backend in activity.backends}
        postmaster = None if isinstance(server, Unavailable) else server.postmaster_pid
        return pids if postmaster is None else pids | {postmaster}
    return set()


def _cpu_at(interval: Interval, at_s: float) -> CpuSample | None:
    """Return the reading nearest to a time."""
    nearest = None
    for reading in interval.recent(sections.cpu, WHOLE_S, least=2):
        if nearest is not None and abs(reading.at_s - at_s) > abs(nearest.at_s - at_s):
            break
        nearest = reading
    return nearest


class _ProcessCpu(Struct, frozen=True):
    """CPU time between two readings, in per cent of one core.

    Attributes:
        shares: By pid, of processes in both readings.
        ended: Sum of processes that began or ended in between.
        cpus: CPUs of the machine.
        unseen: Whether some processes began before the first reading and are missing in it, because the server did not
            answer then. Their CPU time in between is not known.
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
    """Compute the CPU time between two readings.

    The kernel adds the time of a child that has ended to its parent: sessions and workers to the postmaster, programs of
    archive_command to the archiver.

    A new process with more CPU time than the time between the readings began before the first one, which missed it.
    """
    most = (newer.at_s - older.at_s) * facts.ticks_per_s
    before = {process.pid: process for process in older.processes}
    shares: dict[int, float] = {}
    reaped, began, per_ms = 0, 0.0, facts.ticks_per_s / 1000.0
    newest_before, unseen = max((process.start_ticks for process in older.processes), default=0), False
    share = 100.0 / most
    for process in newer.processes:
        older_process = before.get(process.pid)
        if older_process is process:
            # The same object: its counters have not changed.
            shares[process.pid] = 0.0
            del before[process.pid]
            continue
        # The pid may have been reused.
        if older_process is None or older_process.start_ticks != process.start_ticks:
            ticks = _ticks(process, per_ms)
            if older_process is None and process.start_ticks < newest_before:
                unseen = True
            else:
                began += ticks if ticks <= most else 0.0
            continue
        del before[process.pid]
        reaped += max(process.reaped_ticks - older_process.reaped_ticks, 0)
        if process.run_ms is not None and older_process.run_ms is not None:
            used = (process.run_ms - older_process.run_ms) * per_ms
        else:
            used = process.user_ticks + process.system_ticks - older_process.user_ticks - older_process.system_ticks
        if used >= 0:
            shares[process.pid] = used * share
    ended_ticks = sum([_ticks(process, per_ms) for process in before.values()])
    ended = (began + max(reaped - ended_ticks, 0.0)) * share
    return _ProcessCpu(shares=shares, ended=ended, cpus=facts.cpu_count, unseen=unseen)


def _ticks(process: ProcessCounters, per_ms: float) -> float:
    """Return all CPU time of a process, with fractions of ticks where known: of hundreds of processes they add up."""
    return process.user_ticks + process.system_ticks if process.run_ms is None else process.run_ms * per_ms


def other_programs(interval: Interval) -> dict[int, float]:
    """Return the CPU time of the largest other programs by pid, in per cent of one core."""
    sample = interval.now(sections.processes)
    return {} if sample is None else {program.pid: program.cpu_percent for program in sample.others}


def process_gauge(pick: Callable[[ProcessCounters], float]) -> Callable[[Interval], dict[int, float]]:
    """Make a metric of a number per process of the newest reading."""

    def values(interval: Interval) -> dict[int, float]:
        sample = interval.now(sections.processes)
        return {} if sample is None else {process.pid: float(pick(process)) for process in sample.processes}

    return values


def process_io(
    pick: Callable[[ProcessCounters], int | None], scale: float = 1.0
) -> Callable[[Interval], Mapping[int, float]]:
    """Make a metric of a counter's growth per second and process between its two newest readings, times a scale.

    The older reading is at most `IO_WINDOW_S` old.
    """

    def values(interval: Interval) -> Mapping[int, float]:
        return _IoRates(interval.once(_io_looks), pick, scale)

    return values


class _IoLook:
    """Processes of one reading: the start of each, and those with readings of I/O or run-queue delay."""

    def __init__(self, sample: ProcessSample) -> None:
        self.sample = sample
        self.began = {process.pid: process.start_ticks for process in sample.processes}
        self.read = {
            process.pid: process
            for process in sample.processes
            if process.run_delay_ms is not None or process.read_bytes is not None
        }


def _io_looks(interval: Interval) -> list[_IoLook]:
    """Return the readings since the machine was booted, newest first."""
    looks = interval.recent(_processes, IO_WINDOW_S, least=2)
    samples = [look.section for look in itertools.takewhile(lambda look: look.boot_id == looks[0].boot_id, looks)]
    return interval.each(_IoLook, samples)


class _IoRates(Mapping[int, float]):
    """Rates by pid, each computed on access: of hundreds of processes a screen shows some dozens."""

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
        """Return the rate of a pid, or the default; without the exception that `Mapping.get` would catch."""
        per_second = self._rate(pid)
        return default if per_second is None else per_second

    def __getitem__(self, pid: int) -> float:
        per_second = self._rate(pid)
        if per_second is None:
            raise KeyError(pid)
        return per_second

    def __iter__(self) -> Iterator[int]:
        return (pid for pid in (self._looks[0].began if self._looks else ()) if self._rate(pid) is not None)

    def __len__(self) -> int:
        return sum(1 for _ in self)


def processes_of_one_boot(interval: Interval) -> tuple[HostLook[ProcessSample], HostLook[ProcessSample]] | None:
    """Return the two newest readings of processes, older first; None across a reboot."""
    return same_boot(interval, _processes)
