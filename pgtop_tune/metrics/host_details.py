"""Numbers of the machine beyond the dashboard: kinds of CPU time, interrupts, frequency, huge pages, run queues."""

from __future__ import annotations

from typing import Final

from pgtop_tune.metrics import host_values as values
from pgtop_tune.metrics import process_values, sections
from pgtop_tune.metrics.catalogue import Interval, Keyed, Metric
from pgtop_tune.metrics.host_places import row_gauge, section_rate

CPU_NICE = Metric(
    "host.cpu.nice", "nice", "%", "Part of usr: time in programs with lowered priority (nice above 0); all cores are 100.",
    "/proc/stat cpu: Δ nice / Δ all", values.cpu_share(lambda cpu: cpu.nice_ticks),
)  # fmt: skip
CPU_GUEST = Metric(
    "host.cpu.guest", "guest", "%", "Part of usr: time this machine ran its own virtual machines; all cores are 100.",
    "/proc/stat cpu: Δ(guest + guest_nice) / Δ all", values.cpu_share(values.guest_ticks),
)  # fmt: skip
CPU_HARD = Metric(
    "host.cpu.hardirq", "hirq", "%", "Part of irq: time in interrupt handlers of devices; all cores are 100.",
    "/proc/stat cpu: Δ irq / Δ all", values.cpu_share(lambda cpu: cpu.irq_ticks),
)  # fmt: skip
CPU_SOFT = Metric(
    "host.cpu.softirq", "sirq", "%", "Part of irq: time in deferred work of interrupts, mostly network packets; all cores are 100.",
    "/proc/stat cpu: Δ softirq / Δ all", values.cpu_share(lambda cpu: cpu.softirq_ticks),
)  # fmt: skip
INTERRUPTS = Metric(
    "host.interrupts", "intr", "1/s", "Interrupts of devices and timers served per second on all cores.",
    "/proc/stat: Δ first number of intr / Δt", section_rate(sections.cpu, lambda cpu: cpu.interrupts),
)  # fmt: skip
FREQUENCY = Metric(
    "host.frequency", "MHz", "MHz", "Mean frequency of the CPUs when last looked at, every 5 s.",
    "/sys/devices/system/cpu/cpufreq/policyN/scaling_cur_freq",
    values.gauge(sections.frequency, lambda sample: sum(row.mhz for row in sample.policies) / len(sample.policies) if sample.policies else None),
)  # fmt: skip
FREQUENCY_SHARE: Final[Keyed[str]] = Keyed(
    "host.core.frequency", "MHz", "%", "Frequency of a core as a share of its highest, turbo included; low under load means a power limit, heat or a power-saving governor.",
    "/sys/devices/system/cpu/cpufreq/policyN: scaling_cur_freq / cpuinfo_max_freq",
    row_gauge(sections.frequency, lambda sample: sample.policies, lambda row: row.policy, lambda row: 100.0 * row.mhz / row.highest_mhz if row.highest_mhz else None),
)  # fmt: skip
COMMIT_LIMIT = Metric(
    "host.memory.commit_limit", "limit", "bytes", "Limit of promised memory; it applies only with vm.overcommit_memory=2.",
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
HUGE_SURPLUS: Final[Keyed[int]] = Keyed(
    "host.huge.surplus", "surplus", "pages", "Huge pages above nr_hugepages, made on demand (nr_overcommit_hugepages).",
    "HugePages_Surp, surplus_hugepages", values.huge_pages(lambda pool: pool.surplus),
)  # fmt: skip

_PERCENT_OF_MS_PER_S: Final = 0.1
PROCESS_RUN_DELAY: Final[Keyed[int]] = Keyed(
    "host.process.run_delay", "delay%", "%",
    "Share of the time this process was ready to run and waited for a CPU. Near its CPU% means that the machine has half the CPUs it needs.",
    "/proc/PID/schedstat: Δ second field (ns) / Δt",
    process_values.process_io(lambda process: process.run_delay_ms, _PERCENT_OF_MS_PER_S),
)  # fmt: skip


def _busiest_thread(interval: Interval) -> dict[int, float]:
    pair = process_values.processes_of_one_boot(interval)
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


BUSIEST_THREAD: Final[Keyed[int]] = Keyed(
    "host.process.busiest_thread", "thread%", "%",
    "CPU of the busiest thread of pgbench; one core is 100. At 100 that thread keeps its clients waiting and the server looks slower than it is.",
    "/proc/PID/task/TID/stat: largest Δ(utime + stime) / (ticks per second · Δt)", _busiest_thread, critical=90.0,
)  # fmt: skip

_SEEN_OF_OTHERS: Final = section_rate(sections.storage_io, lambda io: io.others_read_bytes + io.others_write_bytes)


def _others_io(interval: Interval) -> float | None:
    """None where nothing is seen, and there are programs that this account may not look at."""
    seen, io = _SEEN_OF_OTHERS(interval), interval.now(sections.storage_io)
    return None if seen == 0.0 and io is not None and io.refused else seen


IO_OTHERS = Metric(
    "host.io.others", "others' I/O", "bytes/s", "Read from storage and written by other programs than the server, pgbench and this one, at least; only while an experiment runs.",
    "/proc/PID/io: Δ(read_bytes + least of wchar and write_bytes) / Δt",
    _others_io,
)  # fmt: skip
IO_OWN = Metric(
    "host.io.own", "own I/O", "bytes/s", "Read from storage and written by the server, pgbench and this program; only while an experiment runs.",
    "/proc/PID/io: Δ(read_bytes + least of wchar and write_bytes) / Δt",
    section_rate(sections.storage_io, lambda io: io.own_read_bytes + io.own_write_bytes),
)  # fmt: skip

METRICS: Final = (
    CPU_NICE, CPU_GUEST, CPU_HARD, CPU_SOFT, INTERRUPTS, FREQUENCY, COMMIT_LIMIT, SHMEM_HUGE, FILE_HUGE,
    IO_OTHERS, IO_OWN,
)  # fmt: skip
KEYED: Final = (FREQUENCY_SHARE, HUGE_SURPLUS, PROCESS_RUN_DELAY, BUSIEST_THREAD)
