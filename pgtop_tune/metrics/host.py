"""Metrics of the machine and of this program: CPU, memory, pressure, disks, processes. `host_values` computes them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from pgtop_tune.metrics import host_values as values
from pgtop_tune.metrics import sections
from pgtop_tune.metrics.catalogue import Interval, Keyed, Metric, pair_rate
from pgtop_tune.metrics.host_values import DiskDelta
from pgtop_tune.model.frame import Footprint

CPU_USER = Metric(
    "host.cpu.user", "usr", "%", "CPU time in user mode, including nice and virtual guests; 100 % = all cores.",
    "/proc/stat cpu: Δ(user + nice) / Δ all", values.cpu_share(lambda cpu: cpu.user_ticks + cpu.nice_ticks),
)  # fmt: skip
CPU_SYSTEM = Metric(
    "host.cpu.system", "sys", "%", "CPU time in the kernel on behalf of programs, without interrupts; 100 % = all cores.",
    "/proc/stat cpu: Δ system / Δ all", values.cpu_share(lambda cpu: cpu.system_ticks),
)  # fmt: skip
CPU_IOWAIT = Metric(
    "host.cpu.iowait", "io", "%",
    "Idle CPU time while a task last run on that CPU waited for a disk; 100 % = all cores. A lower bound: on a CPU with other work the wait is not counted, so check psi io as well.",
    "/proc/stat cpu: Δ iowait / Δ all", values.cpu_share(lambda cpu: cpu.iowait_ticks),
)  # fmt: skip
CPU_STEAL = Metric(
    "host.cpu.steal", "st", "%",
    "Time this virtual machine was ready to run while the hypervisor ran others; 100 % = all cores. It distorts measurements.",
    "/proc/stat cpu: Δ steal / Δ all", values.cpu_share(lambda cpu: cpu.steal_ticks), critical=5.0,
)  # fmt: skip
CPU_IDLE = Metric(
    "host.cpu.idle", "id", "%", "Idle CPU time while no task waited for a disk; 100 % = all cores.",
    "/proc/stat cpu: Δ idle / Δ all", values.cpu_share(lambda cpu: cpu.idle_ticks),
)  # fmt: skip
CPU_INTERRUPTS = Metric(
    "host.cpu.irq", "irq", "%", "CPU time in hardware and software interrupts, mostly network traffic; 100 % = all cores.",
    "/proc/stat cpu: Δ(irq + softirq) / Δ all", values.cpu_share(values.irq_ticks),
)  # fmt: skip
CPU_BUSY = Metric(
    "host.cpu.busy", "cpu", "%", "Time the CPUs were busy, including stolen time, excluding waits for disks; 100 % = all cores.",
    "/proc/stat cpu: 1 − Δ(idle + iowait) / Δ all", values.cpu_share(values.busy_ticks), critical=95.0,
)  # fmt: skip
CPU_FOREIGN = Metric(
    "host.cpu.foreign", "foreign", "%",
    "CPU time of programs other than the server, pgbench and pgtop-tune, including stolen time; 100 % = all cores.",
    "/proc/stat cpu: 1 − Δ(idle + iowait) / Δ all, less Δ(utime + stime + cutime + cstime) of /proc/PID/stat, between two readings of the processes", values.foreign_cpu,
)  # fmt: skip
CPU_SPLIT = Keyed(
    "host.cpu.split", "postgres ours others steal", "%",
    "CPU time by user, mean of 3 s; 100 % = all cores. ours: this program and pgbench on its machine; others: all other programs, the kernel's own work, interrupts; steal: the hypervisor. The rest is idle or waits for disks. Busy time of an unknown user is a line in the bar. Over SQL, others includes a pgbench on the server's machine.",
    "/proc/stat cpu between two readings of the processes; Δ(utime + stime + cutime + cstime) of /proc/PID/stat", values.cpu_split,
)  # fmt: skip
OTHER_PROGRAMS = Keyed(
    "host.process.other", "other programs", "%",
    "The two largest other programs, mean of 5 s; 100 % = one core. Searched for only while other programs take 15 % of all CPU time, from 10 % of a core on.",
    "/proc/*/stat: Δ(utime + stime) / Δt", values.other_programs,
)  # fmt: skip
CORE_BUSY = Keyed(
    "host.core.busy", "cores", "%", "Time this core was busy; 100 % = one core. One busy core among idle ones is a bottleneck that the total hides.",
    "/proc/stat cpuN: 1 − Δ(idle + iowait) / Δ all", values.core_busy, critical=95.0,
)  # fmt: skip
RUN_QUEUE = Metric(
    "host.run_queue", "run queue", "",
    "Tasks that run or wait for a CPU now, including the one that reads this number. More tasks than cores means that some wait.",
    "/proc/stat procs_running", values.gauge(sections.cpu, lambda cpu: cpu.procs_running),
)  # fmt: skip
BLOCKED_TASKS = Metric(
    "host.blocked", "in I/O", "", "Tasks that wait for a disk now.",
    "/proc/stat procs_blocked", values.gauge(sections.cpu, lambda cpu: cpu.procs_blocked),
)  # fmt: skip
CONTEXT_SWITCHES = Metric(
    "host.context_switches", "ctx", "1/s", "Context switches per second on all cores.",
    "/proc/stat: Δ ctxt / Δt", values.section_rate(sections.cpu, lambda cpu: cpu.context_switches),
)  # fmt: skip
LOAD_1M = Metric(
    "host.load_1m", "load", "", "Tasks running, waiting for a CPU or in uninterruptible sleep, averaged over about a minute.",
    "/proc/loadavg, first field", values.gauge(sections.cpu, lambda cpu: cpu.load_1m),
)  # fmt: skip
LOAD_5M = Metric(
    "host.load_5m", "load 5m", "", "Like load, averaged over about five minutes.",
    "/proc/loadavg, second field", values.gauge(sections.cpu, lambda cpu: cpu.load_5m),
)  # fmt: skip
LOAD_15M = Metric(
    "host.load_15m", "load 15m", "", "Like load, averaged over about fifteen minutes.",
    "/proc/loadavg, third field", values.gauge(sections.cpu, lambda cpu: cpu.load_15m),
)  # fmt: skip

MEMORY_TOTAL = Metric(
    "host.memory.total", "memory", "bytes", "Total memory usable by the kernel.",
    "/proc/meminfo MemTotal", values.gauge(sections.memory, lambda memory: memory.total_bytes),
)  # fmt: skip
MEMORY_USED = Metric(
    "host.memory.used", "used", "bytes",
    "Memory that is neither free nor page cache: processes, shared memory (shared_buffers once touched), huge pages even when unused, the kernel. "
    "used + cache + ARC + free = total. If the page cache is unknown: total − available − ARC.",
    "/proc/meminfo MemTotal − MemFree − (Buffers + Cached + SReclaimable − Shmem) − ARC",
    values.gauge(sections.memory, values.used_bytes),
)  # fmt: skip
MEMORY_CACHE = Metric(
    "host.memory.cache", "cache", "bytes", "Page cache that the kernel can reclaim: files, directories, buffers; without shared memory.",
    "/proc/meminfo Buffers + Cached + SReclaimable − Shmem", values.gauge(sections.memory, values.page_cache_bytes),
)  # fmt: skip
MEMORY_ARC = Metric(
    "host.memory.arc", "ARC", "bytes", "Cache of ZFS. It releases memory under pressure, but more slowly than the page cache; the kernel counts it as used.",
    "/proc/spl/kstat/zfs/arcstats size", values.gauge(sections.memory, lambda memory: memory.arc_bytes),
)  # fmt: skip
MEMORY_FREE = Metric(
    "host.memory.free", "free", "bytes", "Unused memory, not even used as cache.",
    "/proc/meminfo MemFree", values.gauge(sections.memory, lambda memory: memory.free_bytes),
)  # fmt: skip
MEMORY_AVAILABLE = Metric(
    "host.memory.available", "available", "bytes", "The kernel's estimate of memory still available without swapping.",
    "/proc/meminfo MemAvailable", values.gauge(sections.memory, lambda memory: memory.available_bytes),
)  # fmt: skip
MEMORY_SHARED = Metric(
    "host.memory.shared", "shared", "bytes", "Shared memory and tmpfs; includes the touched part of shared_buffers unless it is in huge pages.",
    "/proc/meminfo Shmem", values.gauge(sections.memory, lambda memory: memory.shmem_bytes),
)  # fmt: skip
MEMORY_DIRTY = Metric(
    "host.memory.dirty", "dirty", "bytes", "File pages changed in memory whose write has not started; the fsync of a checkpoint must wait for its share.",
    "/proc/meminfo Dirty", values.gauge(sections.memory, lambda memory: memory.dirty_bytes),
)  # fmt: skip
MEMORY_WRITEBACK = Metric(
    "host.memory.writeback", "wb", "bytes", "File pages being written to a disk now.",
    "/proc/meminfo Writeback", values.gauge(sections.memory, lambda memory: memory.writeback_bytes),
)  # fmt: skip
PAGE_TABLES = Metric(
    "host.memory.page_tables", "page tables", "bytes",
    "Memory for page tables. Each backend has its own for shared_buffers; huge pages make them hundreds of times smaller.",
    "/proc/meminfo PageTables", values.gauge(sections.memory, lambda memory: memory.page_tables_bytes),
)  # fmt: skip
ANON_HUGE = Metric(
    "host.memory.anon_huge", "thp", "bytes", "Private memory in transparent huge pages.",
    "/proc/meminfo AnonHugePages", values.gauge(sections.memory, lambda memory: memory.anon_huge_bytes),
)  # fmt: skip
COMMITTED = Metric(
    "host.memory.committed", "committed", "bytes", "Memory allocated to programs, touched or not.",
    "/proc/meminfo Committed_AS", values.gauge(sections.memory, lambda memory: memory.committed_bytes),
)  # fmt: skip
SWAP_USED = Metric(
    "host.swap.used", "swap", "bytes", "Swap space in use. Unused pages there do no harm; check swap in and out.",
    "/proc/meminfo SwapTotal − SwapFree",
    values.gauge(sections.memory, values.swap_used_bytes),
)  # fmt: skip
SWAP_IN = Metric(
    "host.swap.in", "in", "bytes/s", "Bytes read back from swap per second: a task waited for each page.",
    "/proc/vmstat: Δ pswpin · page size / Δt", values.swap_rate(lambda memory: memory.swap_in_pages), critical=1.0,
)  # fmt: skip
SWAP_OUT = Metric(
    "host.swap.out", "out", "bytes/s", "Bytes written to swap per second: memory is short.",
    "/proc/vmstat: Δ pswpout · page size / Δt", values.swap_rate(lambda memory: memory.swap_out_pages), critical=1.0,
)  # fmt: skip
HUGE_TOTAL = Keyed(
    "host.huge_pages.total", "huge", "pages", "Huge pages in the pool (vm.nr_hugepages), per page size in bytes.",
    "/proc/meminfo HugePages_Total, /sys/kernel/mm/hugepages/*/nr_hugepages", values.huge_pages(lambda pool: pool.total),
)  # fmt: skip
HUGE_FREE = Keyed(
    "host.huge_pages.free", "free", "pages", "Untouched huge pages, including reserved ones.",
    "HugePages_Free, free_hugepages", values.huge_pages(lambda pool: pool.free),
)  # fmt: skip
HUGE_USED = Keyed(
    "host.huge_pages.used", "used", "pages", "Huge pages in use: touched, or reserved by a mapping that will touch them.",
    "HugePages_Total − HugePages_Free + HugePages_Rsvd", values.huge_pages(lambda pool: pool.total - pool.free + pool.reserved),
)  # fmt: skip
HUGE_RESERVED = Keyed(
    "host.huge_pages.reserved", "reserved", "pages", "Huge pages reserved for a mapping (shared_buffers) and not yet touched.",
    "HugePages_Rsvd, resv_hugepages", values.huge_pages(lambda pool: pool.reserved),
)  # fmt: skip

PSI_CPU_SOME = Metric(
    "host.psi.cpu_some", "psi cpu", "%", "Share of the time in which at least one task waited for a CPU.",
    "/proc/pressure/cpu some: Δ total / Δt", values.stalled(sections.pressure, lambda psi: psi.cpu.some_us),
)  # fmt: skip
PSI_CPU_FULL = Metric(
    "host.psi.cpu_full", "psi cpu full", "%", "Like psi cpu, while no task ran; for the whole machine the kernel always reports 0.",
    "/proc/pressure/cpu full: Δ total / Δt", values.stalled(sections.pressure, lambda psi: psi.cpu.full_us),
)  # fmt: skip
PSI_IO_SOME = Metric(
    "host.psi.io_some", "psi io", "%", "Share of the time in which at least one task waited for a disk.",
    "/proc/pressure/io some: Δ total / Δt", values.stalled(sections.pressure, lambda psi: psi.io.some_us),
)  # fmt: skip
PSI_IO_FULL = Metric(
    "host.psi.io_full", "psi io full", "%", "Share of the time in which tasks waited for a disk and none made progress.",
    "/proc/pressure/io full: Δ total / Δt", values.stalled(sections.pressure, lambda psi: psi.io.full_us),
)  # fmt: skip
PSI_MEMORY_SOME = Metric(
    "host.psi.memory_some", "psi mem", "%", "Share of the time in which at least one task waited for memory (reclaim, swap, refaults).",
    "/proc/pressure/memory some: Δ total / Δt", values.stalled(sections.pressure, lambda psi: psi.memory.some_us), critical=5.0,
)  # fmt: skip
PSI_MEMORY_FULL = Metric(
    "host.psi.memory_full", "psi mem full", "%", "Share of the time in which tasks waited for memory and none made progress.",
    "/proc/pressure/memory full: Δ total / Δt", values.stalled(sections.pressure, lambda psi: psi.memory.full_us), critical=1.0,
)  # fmt: skip


def _busy(delta: DiskDelta) -> float | None:
    busy_ms = delta.per_second(lambda disk: disk.busy_ms)
    return None if busy_ms is None else min(busy_ms / 10, 100.0)


def _queue(delta: DiskDelta) -> float | None:
    waited_ms = delta.per_second(lambda disk: disk.weighted_ms)
    return None if waited_ms is None else waited_ms / 1000


DISK_BUSY = Keyed(
    "host.disk.busy", "busy", "%",
    "Share of the time in which the device had at least one request. An SSD serves many at once and can be 100 % busy and "
    "still fast: check await and queue too.",
    "/proc/diskstats: Δ io_ticks / Δt", values.disk_value(_busy),
)  # fmt: skip
DISK_READS = Keyed(
    "host.disk.reads", "r", "1/s", "Read requests finished per second, after merging.",
    "/proc/diskstats: Δ reads completed / Δt", values.disk_value(lambda delta: delta.per_second(lambda disk: disk.reads)),
)  # fmt: skip
DISK_WRITES = Keyed(
    "host.disk.writes", "w", "1/s", "Write requests finished per second, after merging.",
    "/proc/diskstats: Δ writes completed / Δt", values.disk_value(lambda delta: delta.per_second(lambda disk: disk.writes)),
)  # fmt: skip
DISK_READ_BYTES = Keyed(
    "host.disk.read_bytes", "r", "bytes/s", "Bytes read per second.",
    "/proc/diskstats: Δ sectors read · 512 / Δt", values.disk_value(lambda delta: delta.per_second(lambda disk: disk.read_bytes)),
)  # fmt: skip
DISK_WRITE_BYTES = Keyed(
    "host.disk.write_bytes", "w", "bytes/s", "Bytes written per second.",
    "/proc/diskstats: Δ sectors written · 512 / Δt", values.disk_value(lambda delta: delta.per_second(lambda disk: disk.write_bytes)),
)  # fmt: skip
DISK_READ_AWAIT = Keyed(
    "host.disk.read_await", "await r", "ms", "Mean time of a read request, including the queue; empty if none finished.",
    "/proc/diskstats: Δ ms reading / Δ reads", values.disk_value(lambda delta: delta.quotient(lambda disk: disk.read_ms, lambda disk: disk.reads)),
)  # fmt: skip
DISK_WRITE_AWAIT = Keyed(
    "host.disk.write_await", "await w", "ms", "Mean time of a write request, including the queue; empty if none finished.",
    "/proc/diskstats: Δ ms writing / Δ writes", values.disk_value(lambda delta: delta.quotient(lambda disk: disk.write_ms, lambda disk: disk.writes)),
)  # fmt: skip
DISK_QUEUE = Keyed(
    "host.disk.queue", "queue", "", "Mean number of requests in progress, including the queue.",
    "/proc/diskstats: Δ weighted ms / Δt", values.disk_value(_queue),
)  # fmt: skip
DISK_REQUEST_BYTES = Keyed(
    "host.disk.request_bytes", "size", "bytes", "Mean size of a request, reads and writes together; empty if none finished.",
    "/proc/diskstats: Δ sectors · 512 / Δ requests",
    values.disk_value(lambda delta: delta.quotient(lambda disk: disk.read_bytes + disk.write_bytes, lambda disk: disk.reads + disk.writes)),
)  # fmt: skip

PROCESS_CPU = Keyed(
    "host.process.cpu", "CPU%", "%", "CPU time of this process, user and system; 100 % = one core, as in top.",
    "/proc/PID/schedstat: Δ first field (ns) / Δt; without it, and for several threads, /proc/PID/stat: Δ(utime + stime) / (ticks per second · Δt)",
    values.process_cpu,
)  # fmt: skip
PROCESS_READ_BYTES = Keyed(
    "host.process.read_bytes", "R", "bytes/s", "Bytes read from storage for this process per second, without reads from the page cache.",
    "/proc/PID/io: Δ read_bytes / Δt", values.process_io(lambda process: process.read_bytes),
)  # fmt: skip
PROCESS_WRITE_BYTES = Keyed(
    "host.process.write_bytes", "W", "bytes/s",
    "Bytes this process passed to write calls per second (WAL, relations, temporary files); they reach storage later, charged to the process that flushes. The kernel's own count of bytes written to storage is not used: with large folios it is a hundred times too high.",
    "/proc/PID/io: Δ wchar / Δt", values.process_io(lambda process: process.write_bytes),
)  # fmt: skip
PROCESS_RSS = Keyed(
    "host.process.rss", "RES", "bytes", "Resident memory of this process, including touched shared memory; a sum over processes counts shared memory several times.",
    "/proc/PID/stat rss · page size", values.process_gauge(lambda process: process.rss_bytes),
)  # fmt: skip

METRICS: Final = (
    CPU_USER, CPU_SYSTEM, CPU_IOWAIT, CPU_STEAL, CPU_IDLE, CPU_INTERRUPTS, CPU_BUSY, CPU_FOREIGN,
    RUN_QUEUE, BLOCKED_TASKS, CONTEXT_SWITCHES, LOAD_1M, LOAD_5M, LOAD_15M,
    MEMORY_TOTAL, MEMORY_USED, MEMORY_CACHE, MEMORY_ARC, MEMORY_FREE, MEMORY_AVAILABLE, MEMORY_SHARED, MEMORY_DIRTY,
    MEMORY_WRITEBACK, PAGE_TABLES, ANON_HUGE, COMMITTED, SWAP_USED, SWAP_IN, SWAP_OUT,
    PSI_CPU_SOME, PSI_CPU_FULL, PSI_IO_SOME, PSI_IO_FULL, PSI_MEMORY_SOME, PSI_MEMORY_FULL,
)  # fmt: skip
CORE_METRICS: Final = (CORE_BUSY,)
USER_METRICS: Final = (CPU_SPLIT, OTHER_PROGRAMS)
HUGE_PAGE_METRICS: Final = (HUGE_TOTAL, HUGE_FREE, HUGE_USED, HUGE_RESERVED)
DISK_METRICS: Final = (
    DISK_BUSY, DISK_READS, DISK_WRITES, DISK_READ_BYTES, DISK_WRITE_BYTES,
    DISK_READ_AWAIT, DISK_WRITE_AWAIT, DISK_QUEUE, DISK_REQUEST_BYTES,
)  # fmt: skip
PROCESS_METRICS: Final = (PROCESS_CPU, PROCESS_READ_BYTES, PROCESS_WRITE_BYTES, PROCESS_RSS)


OWN_WINDOW_S: Final = 5.0


def _per_second(pick: Callable[[Footprint], float], factor: float = 1.0) -> Callable[[Interval], float | None]:
    def value(interval: Interval) -> float | None:
        recent = interval.recent(sections.footprint, OWN_WINDOW_S, least=2)
        if len(recent) < 2:
            return None
        per_second = pair_rate((recent[-1], recent[0]), pick)
        return None if per_second is None else factor * per_second

    return value


def _rss(interval: Interval) -> float | None:
    footprint = interval.now(sections.footprint)
    return None if footprint is None else float(footprint.rss_bytes)


OWN_CPU = Metric(
    "own.cpu", "own cost", "%", "CPU time of this program, user and system, in per cent of one core; mean of 5 s.",
    "Δ getrusage / Δt", _per_second(lambda footprint: footprint.cpu_s, 100.0), critical=5.0,
)  # fmt: skip
OWN_TERMINAL_BYTES = Metric(
    "own.terminal_bytes", "terminal", "bytes/s", "Bytes this program writes to the terminal per second; mean of 5 s.",
    "Δ bytes written / Δt", _per_second(lambda footprint: float(footprint.terminal_bytes)),
)  # fmt: skip
OWN_STATEMENT_MS = Metric(
    "own.statement_ms", "server", "ms/s", "Time per second in which a statement of this program runs on the server; mean of 5 s.",
    "Δ wall time between sending a statement and its answer / Δt", _per_second(lambda footprint: footprint.statement_ms),
)  # fmt: skip
OWN_RSS = Metric(
    "own.rss", "memory", "bytes", "Resident memory of this program.", "/proc/self/statm", _rss,
)  # fmt: skip

OWN_METRICS: Final = (OWN_CPU, OWN_TERMINAL_BYTES, OWN_STATEMENT_MS, OWN_RSS)
