"""More metrics of the machine: network, file systems, NUMA nodes, control group, kinds of CPU time."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import Final, TypeVar

from msgspec import Struct

from pgtop_tune.metrics import host, sections
from pgtop_tune.metrics import host_values as values
from pgtop_tune.metrics.catalogue import Interval, Keyed, Metric, Reading, rate, share
from pgtop_tune.metrics.host_values import gauge, same_boot, section_rate, stalled, with_facts
from pgtop_tune.model.absence import Unavailable
from pgtop_tune.model.frame import Frame
from pgtop_tune.model.host import FileSystem, InterfaceCounters
from pgtop_tune.model.machine import CgroupSample, NumaNode

# Numbers per row of a section of the machine: an interface, a file system, a node.

S = TypeVar("S", bound=Reading)
R = TypeVar("R")
K = TypeVar("K", bound=Hashable)


def row_gauge(
    reach: Callable[[Frame], S | Unavailable],
    rows: Callable[[S], Iterable[R]],
    key: Callable[[R], K],
    pick: Callable[[R], float | None],
) -> Callable[[Interval], dict[K, float]]:
    """Make a metric of a number per row of the newest reading; rows without the number are left out."""

    def values(interval: Interval) -> dict[K, float]:
        section = interval.now(reach)
        numbers = () if section is None else ((key(row), pick(row)) for row in rows(section))
        return {name: float(value) for name, value in numbers if value is not None}

    return values


def row_rate(
    reach: Callable[[Frame], S | Unavailable],
    rows: Callable[[S], Iterable[R]],
    key: Callable[[R], K],
    pick: Callable[[R], float | None],
    scale: float = 1.0,
) -> Callable[[Interval], dict[K, float]]:
    """Make a metric of a counter's increase per second, times the scale, for each row that both readings have.

    It has no value across a reboot.
    """
    look = with_facts(reach)

    def values(interval: Interval) -> dict[K, float]:
        pair = same_boot(interval, look)
        if pair is None:
            return {}
        before = {key(row): pick(row) for row in rows(pair[0].section)}
        numbers: dict[K, float] = {}
        for row in rows(pair[1].section):
            per_second = rate(before.get(key(row)), pick(row), pair[0].at_s, pair[1].at_s)
            if per_second is not None:
                numbers[key(row)] = per_second * scale
        return numbers

    return values


_WINDOW_S: Final = 120.0
_SHORTEST_S: Final = 9.0
"""Least time between two readings of file systems that a rate takes."""


def _per_interface(
    pick: Callable[[InterfaceCounters], float | None], scale: float = 1.0
) -> Callable[[Interval], dict[str, float]]:
    return row_rate(sections.network, lambda sample: sample.interfaces, lambda row: row.name, pick, scale)


def _network_busy(interval: Interval) -> dict[str, float]:
    network = interval.now(sections.network)
    received, sent = NETWORK_RECEIVED(interval), NETWORK_SENT(interval)
    return {
        row.name: 800.0 * max(received[row.name], sent[row.name]) / row.speed_bits_per_s
        for row in (network.interfaces if network else ())
        if row.speed_bits_per_s and row.name in received and row.name in sent
    }


NETWORK_RECEIVED = Keyed(
    "host.network.received", "in", "bytes/s", "Bytes received per second.",
    "/proc/net/dev: Δ receive bytes / Δt", _per_interface(lambda row: row.received_bytes),
)  # fmt: skip
NETWORK_SENT = Keyed(
    "host.network.sent", "out", "bytes/s", "Bytes sent per second.",
    "/proc/net/dev: Δ transmit bytes / Δt", _per_interface(lambda row: row.sent_bytes),
)  # fmt: skip
NETWORK_RECEIVED_PACKETS = Keyed(
    "host.network.received_packets", "in p", "1/s", "Packets received per second.",
    "/proc/net/dev: Δ receive packets / Δt", _per_interface(lambda row: row.received_packets),
)  # fmt: skip
NETWORK_SENT_PACKETS = Keyed(
    "host.network.sent_packets", "out p", "1/s", "Packets sent per second.",
    "/proc/net/dev: Δ transmit packets / Δt", _per_interface(lambda row: row.sent_packets),
)  # fmt: skip
NETWORK_ERRORS = Keyed(
    "host.network.errors", "errors", "1/s", "Packets with errors per second, in and out; usual causes: cable, driver, duplex.",
    "/proc/net/dev: Δ(receive errs + transmit errs) / Δt",
    _per_interface(lambda row: row.received_errors + row.sent_errors), critical=0.01,
)  # fmt: skip
NETWORK_DROPS = Keyed(
    "host.network.drops", "drops", "1/s", "Packets dropped per second for lack of buffers, in and out; each costs a retransmission.",
    "/proc/net/dev: Δ(receive drop + transmit drop) / Δt",
    _per_interface(lambda row: row.received_drops + row.sent_drops),
)  # fmt: skip
NETWORK_BUSY = Keyed(
    "host.network.busy", "busy", "%", "The busier direction as a share of the speed of the link; empty if the speed is unknown.",
    "/proc/net/dev: Δ bytes · 8 / Δt; /sys/class/net/NAME/speed", _network_busy, critical=90.0,
)  # fmt: skip


def _per_mount(pick: Callable[[FileSystem], float | None]) -> Callable[[Interval], dict[str, float]]:
    return row_gauge(sections.file_systems, lambda sample: sample.file_systems, lambda row: row.mount, pick)


def _growth(interval: Interval) -> dict[str, float]:
    """Return the bytes per second by which the available space shrank since the oldest reading of the window, by mount."""
    looks = interval.recent(sections.file_systems, _WINDOW_S)
    if len(looks) < 2:
        return {}
    newest = {row.mount: row for row in looks[0].file_systems}
    by_mount: dict[str, float] = {}
    for look in reversed(looks[1:]):
        seconds = looks[0].at_s - look.at_s
        for row in look.file_systems:
            now = newest.get(row.mount)
            # A file system with another size is another one, or was enlarged.
            if now is None or row.mount in by_mount or now.total_bytes != row.total_bytes or seconds < _SHORTEST_S:
                continue
            by_mount[row.mount] = (row.available_bytes - now.available_bytes) / seconds
    return by_mount


def _minutes_left(interval: Interval) -> dict[str, float]:
    sample = interval.now(sections.file_systems)
    grown = _growth(interval)
    return {
        row.mount: row.available_bytes / grown[row.mount] / 60.0
        for row in (sample.file_systems if sample else ())
        if grown.get(row.mount, 0.0) > 0
    }


SPACE_TOTAL = Keyed(
    "host.space.total", "size", "bytes", "Size of the file system.", "statvfs f_blocks · f_frsize", _per_mount(lambda row: row.total_bytes),
)  # fmt: skip
SPACE_AVAILABLE = Keyed(
    "host.space.available", "left", "bytes", "Space that the server can still write, without blocks reserved for root.",
    "statvfs f_bavail · f_frsize", _per_mount(lambda row: row.available_bytes),
)  # fmt: skip
SPACE_USED = Keyed(
    "host.space.used", "used", "%", "Used space as a share of used plus writable space, as in df.",
    "statvfs: (f_blocks − f_bfree) / (f_blocks − f_bfree + f_bavail)",
    _per_mount(lambda row: share(row.total_bytes - row.free_bytes, row.total_bytes - row.free_bytes + row.available_bytes)), critical=95.0,
)  # fmt: skip
SPACE_GROWTH = Keyed(
    "host.space.growth", "grows", "bytes/s", "Decrease of free space per second over the last two minutes; negative if free space has grown.",
    "statvfs: −Δ f_bavail · f_frsize / Δt", _growth,
)  # fmt: skip
MINUTES_LEFT = Keyed(
    "host.space.minutes_left", "full in", "min", "Minutes until the file system is full at the rate of the last two minutes; empty while it is not filling.",
    "space left / growth", _minutes_left,
)  # fmt: skip
INODES_USED = Keyed(
    "host.space.inodes", "inodes", "%", "Inodes in use; empty if the file system creates them on demand (btrfs, XFS).",
    "statvfs: 1 − f_favail / f_files", _per_mount(lambda row: share(row.inodes - row.inodes_free, row.inodes)), critical=95.0,
)  # fmt: skip

NETWORK_METRICS: Final = (
    NETWORK_RECEIVED, NETWORK_SENT, NETWORK_BUSY, NETWORK_RECEIVED_PACKETS, NETWORK_SENT_PACKETS, NETWORK_ERRORS, NETWORK_DROPS,
)  # fmt: skip
SPACE_METRICS: Final = (SPACE_TOTAL, SPACE_AVAILABLE, SPACE_USED, SPACE_GROWTH, MINUTES_LEFT, INODES_USED)


# Memory per NUMA node, and the limits of the server's control group.


def _node_gauge(pick: Callable[[NumaNode], float | None]) -> Callable[[Interval], dict[int, float]]:
    return row_gauge(sections.numa, lambda sample: sample.nodes, lambda row: row.node, pick)


def _node_rate(pick: Callable[[NumaNode], float | None]) -> Callable[[Interval], dict[int, float]]:
    return row_rate(sections.numa, lambda sample: sample.nodes, lambda row: row.node, pick)


_NODE: Final = "/sys/devices/system/node/nodeN"
NODE_TOTAL = Keyed(
    "host.node.total", "memory", "bytes", "Memory of this node.", f"{_NODE}/meminfo MemTotal", _node_gauge(lambda row: row.total_bytes),
)  # fmt: skip
NODE_FREE = Keyed(
    "host.node.free", "free", "bytes", "Free memory of this node. If only some nodes have free memory, processes on the others get remote memory.",
    f"{_NODE}/meminfo MemFree", _node_gauge(lambda row: row.free_bytes),
)  # fmt: skip
NODE_FILES = Keyed(
    "host.node.files", "files", "bytes", "Page cache on this node, shared memory included.", f"{_NODE}/meminfo FilePages", _node_gauge(lambda row: row.file_bytes),
)  # fmt: skip
NODE_ANON = Keyed(
    "host.node.anon", "private", "bytes", "Private memory of processes on this node.", f"{_NODE}/meminfo AnonPages", _node_gauge(lambda row: row.anon_bytes),
)  # fmt: skip
NODE_SHARED = Keyed(
    "host.node.shared", "shared", "bytes", "Shared memory on this node; if shared_buffers lies entirely on one node, access from the others is slow.",
    f"{_NODE}/meminfo Shmem", _node_gauge(lambda row: row.shmem_bytes),
)  # fmt: skip
NODE_DIRTY = Keyed(
    "host.node.dirty", "dirty", "bytes", "Dirty file pages on this node.", f"{_NODE}/meminfo Dirty", _node_gauge(lambda row: row.dirty_bytes),
)  # fmt: skip
NODE_HUGE = Keyed(
    "host.node.huge_used", "huge used", "pages", "Huge pages of the default size in use on this node.",
    f"{_NODE}/meminfo HugePages_Total − HugePages_Free", _node_gauge(lambda row: row.huge_pages - row.huge_pages_free),
)  # fmt: skip
NODE_HIT = Keyed(
    "host.node.hit", "hit", "1/s", "Pages per second allocated on this node as intended.", f"{_NODE}/numastat: Δ numa_hit / Δt", _node_rate(lambda row: row.hit_pages),
)  # fmt: skip
NODE_MISS = Keyed(
    "host.node.miss", "miss", "1/s", "Pages per second allocated on this node although intended for another.",
    f"{_NODE}/numastat: Δ numa_miss / Δt", _node_rate(lambda row: row.miss_pages),
)  # fmt: skip
NODE_FOREIGN = Keyed(
    "host.node.foreign", "foreign", "1/s", "Pages per second intended for this node and allocated on another.",
    f"{_NODE}/numastat: Δ numa_foreign / Δt", _node_rate(lambda row: row.foreign_pages),
)  # fmt: skip


def _of_group(pick: Callable[[CgroupSample], float | None]) -> Callable[[Interval], float | None]:
    return gauge(sections.cgroup, pick)


def _memory_share(group: CgroupSample) -> float | None:
    if group.memory_bytes is None or group.memory_max_bytes is None:
        return None
    return share(group.memory_bytes, group.memory_max_bytes)


_look = with_facts(sections.cgroup)


def _throttled(interval: Interval) -> float | None:
    """Return the share of the periods in which the quota was used up."""
    pair = same_boot(interval, _look)
    if pair is None or pair[0].section.path != pair[1].section.path:
        return None
    older, newer = pair[0].section, pair[1].section
    if None in (older.cpu_periods, newer.cpu_periods, older.cpu_throttled_periods, newer.cpu_throttled_periods):
        return None
    periods = (newer.cpu_periods or 0) - (older.cpu_periods or 0)
    throttled = (newer.cpu_throttled_periods or 0) - (older.cpu_throttled_periods or 0)
    percent = share(throttled, periods) if throttled >= 0 else None
    return None if percent is None else min(percent, 100.0)


GROUP_MEMORY = Metric(
    "host.cgroup.memory", "memory", "bytes", "Memory charged to the control group that limits the server, including page cache.",
    "memory.current, memory.usage_in_bytes (version 1)", _of_group(lambda group: group.memory_bytes),
)  # fmt: skip
GROUP_MEMORY_MAX = Metric(
    "host.cgroup.memory_max", "limit", "bytes", "The tightest memory limit of the server's control groups; at the limit the "
    "kernel reclaims memory, then kills processes.",
    "memory.max, memory.limit_in_bytes (version 1)", _of_group(lambda group: group.memory_max_bytes),
)  # fmt: skip
GROUP_MEMORY_SHARE = Metric(
    "host.cgroup.memory_share", "of limit", "%", "Charged memory as a share of the limit. Page cache fills it over time, so check limit hits.",
    "memory.current / memory.max", _of_group(_memory_share),
)  # fmt: skip
GROUP_MEMORY_HITS = Metric(
    "host.cgroup.memory_hits", "limit hits", "1/s", "Times per second that the group was about to exceed its memory limit.",
    "memory.events max, memory.failcnt (version 1): Δ / Δt", section_rate(sections.cgroup, lambda group: group.memory_max_events),
)  # fmt: skip
GROUP_OOM_KILLS = Metric(
    "host.cgroup.oom_kills", "oom kills", "", "Processes of the group killed by the OOM killer since the group was created.",
    "memory.events oom_kill, memory.oom_control (version 1)", _of_group(lambda group: group.oom_kills), critical=1.0,
)  # fmt: skip
GROUP_CPUS = Metric(
    "host.cgroup.cpus", "cpus", "", "CPUs the server may use, by quota, cpuset or affinity.",
    "cpu.max quota / period, cpu.cfs_quota_us / cpu.cfs_period_us (version 1); /proc/PID/status Cpus_allowed_list",
    _of_group(lambda group: group.cpus),
)  # fmt: skip
GROUP_THROTTLED = Metric(
    "host.cgroup.throttled", "throttled", "%", "Share of the periods (100 ms by default) in which the group was throttled after using up its quota.",
    "cpu.stat: Δ nr_throttled / Δ nr_periods", _throttled, critical=5.0,
)  # fmt: skip
GROUP_THROTTLED_TIME = Metric(
    "host.cgroup.throttled_time", "quota wait", "ms/s", "Time per second for which the group was throttled, summed over CPUs.",
    "cpu.stat: Δ throttled_usec, throttled_time (version 1) / Δt",
    section_rate(sections.cgroup, lambda group: group.cpu_throttled_us, 1e-3),
)  # fmt: skip
GROUP_IO_SOME = Metric(
    "host.cgroup.io_some", "io", "%", "Share of the time in which at least one task of the group waited for a disk.",
    "io.pressure some: Δ total / Δt", stalled(sections.cgroup, lambda group: group.io_some_us),
)  # fmt: skip
GROUP_IO_FULL = Metric(
    "host.cgroup.io_full", "io full", "%", "Share of the time in which tasks of the group waited for a disk and none made progress.",
    "io.pressure full: Δ total / Δt", stalled(sections.cgroup, lambda group: group.io_full_us),
)  # fmt: skip
GROUP_MEMORY_SOME = Metric(
    "host.cgroup.memory_some", "mem", "%", "Share of the time in which at least one task of the group waited for memory.",
    "memory.pressure some: Δ total / Δt", stalled(sections.cgroup, lambda group: group.memory_some_us), critical=5.0,
)  # fmt: skip

NODE_METRICS: Final = (
    NODE_TOTAL, NODE_FREE, NODE_FILES, NODE_ANON, NODE_SHARED, NODE_DIRTY, NODE_HUGE, NODE_HIT, NODE_MISS, NODE_FOREIGN,
)  # fmt: skip
GROUP_METRICS: Final = (
    GROUP_MEMORY, GROUP_MEMORY_MAX, GROUP_MEMORY_SHARE, GROUP_MEMORY_HITS, GROUP_OOM_KILLS, GROUP_CPUS, GROUP_THROTTLED,
    GROUP_THROTTLED_TIME, GROUP_IO_SOME, GROUP_IO_FULL, GROUP_MEMORY_SOME,
)  # fmt: skip


CPU_NICE = Metric(
    "host.cpu.nice", "nice", "%", "Part of usr: programs with lowered priority (nice above 0); 100 % = all cores.",
    "/proc/stat cpu: Δ nice / Δ all", values.cpu_share(lambda cpu: cpu.nice_ticks),
)  # fmt: skip
CPU_GUEST = Metric(
    "host.cpu.guest", "guest", "%", "Part of usr: virtual machines that run on this machine; 100 % = all cores.",
    "/proc/stat cpu: Δ(guest + guest_nice) / Δ all", values.cpu_share(values.guest_ticks),
)  # fmt: skip
CPU_HARD = Metric(
    "host.cpu.hardirq", "hirq", "%", "Part of irq: interrupt handlers of devices; 100 % = all cores.",
    "/proc/stat cpu: Δ irq / Δ all", values.cpu_share(lambda cpu: cpu.irq_ticks),
)  # fmt: skip
CPU_SOFT = Metric(
    "host.cpu.softirq", "sirq", "%", "Part of irq: deferred work of interrupts, mostly network packets; 100 % = all cores.",
    "/proc/stat cpu: Δ softirq / Δ all", values.cpu_share(lambda cpu: cpu.softirq_ticks),
)  # fmt: skip
INTERRUPTS = Metric(
    "host.interrupts", "intr", "1/s", "Interrupts from devices and timers per second, on all cores.",
    "/proc/stat: Δ first number of intr / Δt", section_rate(sections.cpu, lambda cpu: cpu.interrupts),
)  # fmt: skip
FREQUENCY = Metric(
    "host.frequency", "MHz", "MHz", "Mean frequency of the CPUs, read every 5 s.",
    "/sys/devices/system/cpu/cpufreq/policyN/scaling_cur_freq",
    values.gauge(sections.frequency, lambda sample: sum(row.mhz for row in sample.policies) / len(sample.policies) if sample.policies else None),
)  # fmt: skip
FREQUENCY_SHARE = Keyed(
    "host.core.frequency", "MHz", "%", "Frequency of a core as a share of its maximum, including turbo. A low value under load means a power limit, heat or a power-saving governor.",
    "/sys/devices/system/cpu/cpufreq/policyN: scaling_cur_freq / cpuinfo_max_freq",
    row_gauge(sections.frequency, lambda sample: sample.policies, lambda row: row.policy, lambda row: 100.0 * row.mhz / row.highest_mhz if row.highest_mhz else None),
)  # fmt: skip
COMMIT_LIMIT = Metric(
    "host.memory.commit_limit", "limit", "bytes", "Limit of committed memory; it applies only with vm.overcommit_memory=2.",
    "/proc/meminfo CommitLimit", values.gauge(sections.memory, lambda memory: memory.commit_limit_bytes),
)  # fmt: skip
SHMEM_HUGE = Metric(
    "host.memory.shmem_huge", "shmem huge", "bytes", "Shared memory in transparent huge pages (shmem_enabled).",
    "/proc/meminfo ShmemHugePages", values.gauge(sections.memory, lambda memory: memory.shmem_huge_bytes),
)  # fmt: skip
FILE_HUGE = Metric(
    "host.memory.file_huge", "file huge", "bytes", "Page cache in transparent huge pages.",
    "/proc/meminfo FileHugePages", values.gauge(sections.memory, lambda memory: memory.file_huge_bytes),
)  # fmt: skip
HUGE_SURPLUS = Keyed(
    "host.huge.surplus", "surplus", "pages", "Huge pages beyond nr_hugepages, allocated on demand (nr_overcommit_hugepages).",
    "HugePages_Surp, surplus_hugepages", values.huge_pages(lambda pool: pool.surplus),
)  # fmt: skip

_PERCENT_OF_MS_PER_S: Final = 0.1
PROCESS_RUN_DELAY = Keyed(
    "host.process.run_delay", "delay%", "%",
    "Share of the time in which this process was ready to run and waited for a CPU. If it equals CPU%, the machine has half the CPUs that the process needs.",
    "/proc/PID/schedstat: Δ second field (ns) / Δt",
    values.process_io(lambda process: process.run_delay_ms, _PERCENT_OF_MS_PER_S),
)  # fmt: skip


def _busiest_thread(interval: Interval) -> dict[int, float]:
    pair = values.processes_of_one_boot(interval)
    if pair is None or pair[1].facts is None:
        return {}
    older = {thread.tid: thread for thread in pair[0].section.threads}
    scale = 100.0 / (pair[1].facts.ticks_per_s * (pair[1].at_s - pair[0].at_s))
    busiest: dict[int, float] = {}
    for thread in pair[1].section.threads:
        before = older.get(thread.tid)
        if before is None or before.start_ticks != thread.start_ticks:
            continue
        ticks = thread.user_ticks + thread.system_ticks - before.user_ticks - before.system_ticks
        if ticks >= 0:
            busiest[thread.pid] = max(busiest.get(thread.pid, 0.0), ticks * scale)
    return busiest


BUSIEST_THREAD = Keyed(
    "host.process.busiest_thread", "thread%", "%",
    "CPU time of the busiest pgbench thread; 100 % = one core. At 100 % the thread delays its clients, and the server appears slower than it is.",
    "/proc/PID/task/TID/stat: largest Δ(utime + stime) / (ticks per second · Δt)", _busiest_thread, critical=90.0,
)  # fmt: skip

_SEEN_OF_OTHERS: Final = section_rate(sections.storage_io, lambda io: io.others_read_bytes + io.others_write_bytes)


def _others_io(interval: Interval) -> float | None:
    """Return the I/O of other programs; None where it is 0 and this account may not read all programs."""
    bytes_per_s, io = _SEEN_OF_OTHERS(interval), interval.now(sections.storage_io)
    return None if bytes_per_s == 0.0 and io is not None and io.refused else bytes_per_s


IO_OTHERS = Metric(
    "host.io.others", "others' I/O", "bytes/s", "Bytes read from storage and written by programs other than the server, pgbench and pgtop-tune; a lower bound, only while an experiment runs.",
    "/proc/PID/io: Δ(read_bytes + smaller of wchar and write_bytes) / Δt",
    _others_io,
)  # fmt: skip
IO_OWN = Metric(
    "host.io.own", "own I/O", "bytes/s", "Bytes read from storage and written by the server, pgbench and pgtop-tune; only while an experiment runs.",
    "/proc/PID/io: Δ(read_bytes + smaller of wchar and write_bytes) / Δt",
    section_rate(sections.storage_io, lambda io: io.own_read_bytes + io.own_write_bytes),
)  # fmt: skip

METRICS: Final = (
    CPU_NICE, CPU_GUEST, CPU_HARD, CPU_SOFT, INTERRUPTS, FREQUENCY, COMMIT_LIMIT, SHMEM_HUGE, FILE_HUGE,
    IO_OTHERS, IO_OWN,
)  # fmt: skip
KEYED: Final = (FREQUENCY_SHARE, HUGE_SURPLUS, PROCESS_RUN_DELAY, BUSIEST_THREAD)


_ROLES: Final = ("data", "wal")


class DataDisk(Struct, frozen=True):
    """A figure of the disk that holds the data directory, else WAL; None where neither is known."""

    keyed: Keyed[str]

    @property
    def id(self) -> str:
        """Id of the family with the suffix ".data"."""
        return f"{self.keyed.id}.data"

    def __call__(self, interval: Interval) -> float | None:
        name = data_disk(interval)
        return None if name is None else self.keyed(interval).get(name)


def data_disk(interval: Interval) -> str | None:
    """Return the name of the disk that holds the data directory, else WAL; None where neither is known."""
    sample = interval.now(sections.disks)
    if sample is None:
        return None
    for role in _ROLES:
        name = next((disk.name for disk in sample.disks if role in disk.roles), None)
        if name is not None:
            return name
    return None


DATA_DISK_READ: Final = DataDisk(host.DISK_READ_BYTES)
DATA_DISK_WRITE: Final = DataDisk(host.DISK_WRITE_BYTES)
DATA_READ_AWAIT: Final = DataDisk(host.DISK_READ_AWAIT)
DATA_WRITE_AWAIT: Final = DataDisk(host.DISK_WRITE_AWAIT)
CHARTED_CPU: Final = (host.CPU_USER, host.CPU_SYSTEM, host.CPU_IOWAIT, host.CPU_STEAL)
CHARTED_MEMORY: Final = (host.MEMORY_USED, host.MEMORY_CACHE)
CHARTED_PRESSURE: Final = (host.PSI_CPU_SOME, host.PSI_IO_SOME, host.PSI_MEMORY_SOME)
CHARTED: Final = (
    *CHARTED_CPU,
    DATA_DISK_READ,
    DATA_DISK_WRITE,
    DATA_READ_AWAIT,
    DATA_WRITE_AWAIT,
    *CHARTED_MEMORY,
    *CHARTED_PRESSURE,
)
