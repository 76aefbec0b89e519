"""Memory per NUMA node, and the limits of the server's control group."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from pgtop_tune.metrics import sections
from pgtop_tune.metrics.catalogue import Interval, Keyed, Metric, share
from pgtop_tune.metrics.host_rows import row_gauge, row_rate, section_rate
from pgtop_tune.metrics.host_values import gauge, same_boot, with_facts
from pgtop_tune.model.machine import CgroupSample, NumaNode


def _node_gauge(pick: Callable[[NumaNode], float | None]) -> Callable[[Interval], dict[int, float]]:
    return row_gauge(sections.numa, lambda sample: sample.nodes, lambda row: row.node, pick)


def _node_rate(pick: Callable[[NumaNode], float]) -> Callable[[Interval], dict[int, float]]:
    return row_rate(sections.numa, lambda sample: sample.nodes, lambda row: row.node, pick)


_NODE: Final = "/sys/devices/system/node/nodeN"
NODE_TOTAL: Final[Keyed[int]] = Keyed(
    "host.node.total", "memory", "bytes", "Memory of this node.", f"{_NODE}/meminfo MemTotal", _node_gauge(lambda row: row.total_bytes),
)  # fmt: skip
NODE_FREE: Final[Keyed[int]] = Keyed(
    "host.node.free", "free", "bytes", "Free memory of this node. If only some nodes have free memory, allocations cross nodes.",
    f"{_NODE}/meminfo MemFree", _node_gauge(lambda row: row.free_bytes),
)  # fmt: skip
NODE_FILES: Final[Keyed[int]] = Keyed(
    "host.node.files", "files", "bytes", "Page cache on this node, shared memory included.", f"{_NODE}/meminfo FilePages", _node_gauge(lambda row: row.file_bytes),
)  # fmt: skip
NODE_ANON: Final[Keyed[int]] = Keyed(
    "host.node.anon", "private", "bytes", "Private memory of processes on this node.", f"{_NODE}/meminfo AnonPages", _node_gauge(lambda row: row.anon_bytes),
)  # fmt: skip
NODE_SHARED: Final[Keyed[int]] = Keyed(
    "host.node.shared", "shared", "bytes", "Shared memory on this node; shared_buffers all on one node is slow from the others.",
    f"{_NODE}/meminfo Shmem", _node_gauge(lambda row: row.shmem_bytes),
)  # fmt: skip
NODE_DIRTY: Final[Keyed[int]] = Keyed(
    "host.node.dirty", "dirty", "bytes", "File pages on this node that wait to be written.", f"{_NODE}/meminfo Dirty", _node_gauge(lambda row: row.dirty_bytes),
)  # fmt: skip
NODE_HUGE: Final[Keyed[int]] = Keyed(
    "host.node.huge_used", "huge used", "pages", "Huge pages of the default size in use on this node.",
    f"{_NODE}/meminfo HugePages_Total − HugePages_Free", _node_gauge(lambda row: row.huge_pages - row.huge_pages_free),
)  # fmt: skip
NODE_HIT: Final[Keyed[int]] = Keyed(
    "host.node.hit", "hit", "1/s", "Pages per second allocated on this node as intended.", f"{_NODE}/numastat: Δ numa_hit / Δt", _node_rate(lambda row: row.hit_pages),
)  # fmt: skip
NODE_MISS: Final[Keyed[int]] = Keyed(
    "host.node.miss", "miss", "1/s", "Pages per second allocated on this node although intended for another.",
    f"{_NODE}/numastat: Δ numa_miss / Δt", _node_rate(lambda row: row.miss_pages),
)  # fmt: skip
NODE_FOREIGN: Final[Keyed[int]] = Keyed(
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
    """Share of the periods in which the quota ran out."""
    pair = same_boot(interval, _look)
    if pair is None or pair[0].section.path != pair[1].section.path:
        return None
    older, newer = pair[0].section, pair[1].section
    if None in (older.cpu_periods, newer.cpu_periods, older.cpu_throttled_periods, newer.cpu_throttled_periods):
        return None
    periods = (newer.cpu_periods or 0) - (older.cpu_periods or 0)
    throttled = (newer.cpu_throttled_periods or 0) - (older.cpu_throttled_periods or 0)
    return share(throttled, periods) if throttled >= 0 else None


GROUP_MEMORY = Metric(
    "host.cgroup.memory", "memory", "bytes", "Memory charged to the control group that limits the server, including page cache.",
    "memory.current, memory.usage_in_bytes (version 1)", _of_group(lambda group: group.memory_bytes),
)  # fmt: skip
GROUP_MEMORY_MAX = Metric(
    "host.cgroup.memory_max", "limit", "bytes", "The tightest memory limit above the server; at it the kernel reclaims, then kills.",
    "memory.max, memory.limit_in_bytes (version 1)", _of_group(lambda group: group.memory_max_bytes),
)  # fmt: skip
GROUP_MEMORY_SHARE = Metric(
    "host.cgroup.memory_share", "of limit", "%", "Charged memory as a share of the limit. Page cache fills it up in time; look at the limit's hits.",
    "memory.current / memory.max", _of_group(_memory_share),
)  # fmt: skip
GROUP_MEMORY_HITS = Metric(
    "host.cgroup.memory_hits", "limit hits", "1/s", "Times per second the group was about to go over its memory limit.",
    "memory.events max, memory.failcnt (version 1): Δ / Δt", section_rate(sections.cgroup, lambda group: group.memory_max_events),
)  # fmt: skip
GROUP_OOM_KILLS = Metric(
    "host.cgroup.oom_kills", "oom kills", "", "Processes of the group that the kernel has killed for lack of memory since it was created.",
    "memory.events oom_kill, memory.oom_control (version 1)", _of_group(lambda group: group.oom_kills), critical=1.0,
)  # fmt: skip
GROUP_CPUS = Metric(
    "host.cgroup.cpus", "cpus", "", "CPU time the group may use, in CPUs.",
    "cpu.max quota / period, cpu.cfs_quota_us / cpu.cfs_period_us (version 1)", _of_group(lambda group: group.cpu_quota_cores),
)  # fmt: skip
GROUP_THROTTLED = Metric(
    "host.cgroup.throttled", "throttled", "%", "Share of the periods (100 ms by default) in which the group was throttled after using up its quota.",
    "cpu.stat: Δ nr_throttled / Δ nr_periods", _throttled, critical=5.0,
)  # fmt: skip
GROUP_THROTTLED_TIME = Metric(
    "host.cgroup.throttled_time", "quota wait", "ms/s", "Time the group was kept from running, summed over CPUs, per second.",
    "cpu.stat: Δ throttled_usec, throttled_time (version 1) / Δt",
    section_rate(sections.cgroup, lambda group: group.cpu_throttled_us, 1e-3),
)  # fmt: skip
GROUP_IO_SOME = Metric(
    "host.cgroup.io_some", "io", "%", "Share of the time in which at least one task of the group waited for a disk.",
    "io.pressure some: Δ total / Δt", section_rate(sections.cgroup, lambda group: group.io_some_us, 1e-4),
)  # fmt: skip
GROUP_IO_FULL = Metric(
    "host.cgroup.io_full", "io full", "%", "Share of the time in which tasks of the group waited for a disk and none made progress.",
    "io.pressure full: Δ total / Δt", section_rate(sections.cgroup, lambda group: group.io_full_us, 1e-4),
)  # fmt: skip
GROUP_MEMORY_SOME = Metric(
    "host.cgroup.memory_some", "mem", "%", "Share of the time in which at least one task of the group waited for memory.",
    "memory.pressure some: Δ total / Δt", section_rate(sections.cgroup, lambda group: group.memory_some_us, 1e-4), critical=5.0,
)  # fmt: skip

NODE_METRICS: Final = (
    NODE_TOTAL, NODE_FREE, NODE_FILES, NODE_ANON, NODE_SHARED, NODE_DIRTY, NODE_HUGE, NODE_HIT, NODE_MISS, NODE_FOREIGN,
)  # fmt: skip
GROUP_METRICS: Final = (
    GROUP_MEMORY, GROUP_MEMORY_MAX, GROUP_MEMORY_SHARE, GROUP_MEMORY_HITS, GROUP_OOM_KILLS, GROUP_CPUS, GROUP_THROTTLED,
    GROUP_THROTTLED_TIME, GROUP_IO_SOME, GROUP_IO_FULL, GROUP_MEMORY_SOME,
)  # fmt: skip
