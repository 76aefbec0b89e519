"""Advice on all parameters but those of WAL; the values for memory and connections come from `plan`."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Final

from pgtop_tune.advice.facts import OUT_OF_REACH, STARTED_WITH, Advice, AdviceFacts
from pgtop_tune.advice.plan import (
    LEAST_WORK_MEM,
    SMALL_BUFFERS,
    MemoryPlan,
    autovacuum_workers,
    most_connections,
)
from pgtop_tune.base.units import MB, about, as_set, memory
from pgtop_tune.metrics import memory_rule
from pgtop_tune.model.machine import DiskKind, Workload


def shared_buffers(facts: AdviceFacts, plan: MemoryPlan) -> Advice:
    """Advise a quarter of the memory, at most 40 %."""
    if "shared_buffers" in facts.started_with:
        return Advice(None, OUT_OF_REACH[STARTED_WITH])
    quarter, fits = plan.buffers_bytes, ""
    if facts.data_bytes is not None:
        verb = "fit" if facts.data_bytes <= quarter else "do not fit"
        fits = f" The data, {about(facts.data_bytes)}, {verb} into it."
    return Advice(
        value=memory(quarter),
        because=f"A quarter of {about(plan.use.ram_bytes)} of memory; the rest caches files as well.{fits}",
        low=memory(max(plan.use.ram_bytes / 10, 128 * MB)),
        high=memory(plan.use.ram_bytes * 0.4),
    )


def effective_cache_size(facts: AdviceFacts, plan: MemoryPlan) -> Advice:
    """Advise three quarters of the memory: shared_buffers and the kernel's cache."""
    ram_bytes = plan.use.ram_bytes
    return Advice(
        value=memory(ram_bytes * 0.75),
        because=f"Three quarters of {about(ram_bytes)}: what shared_buffers and the kernel cache. It reserves nothing.",
        low=memory(ram_bytes / 2),
        high=memory(ram_bytes * 0.9),
    )


def maintenance_work_mem(facts: AdviceFacts, plan: MemoryPlan) -> Advice:
    """See `metrics.memory_rule.maintenance_bytes`."""
    cap = "" if facts.major >= 17 else "; VACUUM uses at most 1 GB of it before 17"
    return Advice(
        value=memory(plan.maintenance_bytes),
        because=f"A sixteenth of {about(plan.use.ram_bytes)}, and a tenth at most for all of "
        f"{plan.use.autovacuum_max_workers} autovacuum workers{cap}.",
        low="4MB",
        high=memory(plan.use.ram_bytes / 8),
    )


def autovacuum_work_mem(facts: AdviceFacts, plan: MemoryPlan) -> Advice:
    """Advise the set value where the memory allows it, else -1."""
    if plan.autovacuum_work_mem == "-1":
        return Advice("-1", f"maintenance_work_mem, {memory(plan.maintenance_bytes)}, also applies to the workers.")
    return Advice(plan.autovacuum_work_mem, f"The set value fits {plan.use.autovacuum_max_workers} times.")


def work_mem(facts: AdviceFacts, plan: MemoryPlan) -> Advice:
    """Advise half of the ceiling, 4 to 64 MB."""
    use = plan.use
    if plan.refused:
        return Advice(
            value=memory(LEAST_WORK_MEM),
            because=f"{plan.refused} Fewer connections, or a pooler, before more work_mem.",
            low="1MB",
            high="4MB",
        )
    ceiling = memory_rule.work_mem_ceiling_bytes(use)
    multiplier = memory_rule.hash_multiplier(use.major, use.hash_mem_multiplier)
    return Advice(
        value=as_set(use.work_mem_bytes),
        because=f"{about(ceiling)} is left for each of {use.max_connections} connections and {use.parallel_workers} "
        f"parallel workers if all hash at once (hash_mem_multiplier {multiplier:g}). If temporary files appear, raise "
        "work_mem per role or session.",
        low="4MB",
        high=memory(ceiling),
    )


def max_connections(facts: AdviceFacts, plan: MemoryPlan | None, number: int) -> Advice | None:
    """See `plan.connections`; fewer where the memory rule would not hold."""
    if facts.max_connections == number and facts.in_recovery:
        return Advice(None, "A standby needs as many as its primary: change it there first.")
    if plan is not None and plan.refused:
        return Advice(None, plan.refused)
    if not facts.cores and (plan is None or number == facts.max_connections):
        return None
    if number == facts.max_connections and facts.cores and number > most_connections(facts.cores):
        reason = (
            f"{facts.sessions} sessions are connected now: put a pooler in front before you allow fewer connections."
        )
        return Advice(None, reason)
    if number == facts.max_connections:
        return Advice(str(number), f"The set value does not exceed what {facts.cores} cores and the memory can carry.")
    because = (
        f"{facts.cores} cores run as many sessions at once; more only wait, and each costs memory and snapshot time. "
        "Put a pooler in front for more clients."
    )
    if plan is not None and plan.use.work_mem_bytes <= LEAST_WORK_MEM:
        ram = about(plan.use.ram_bytes)
        because = f"{ram} of memory carry no more connections with 4 MB of work_mem. Put a pooler in front."
    return Advice(str(number), because)


def huge_pages(facts: AdviceFacts, plan: MemoryPlan) -> Advice:
    """Advise 'on' where huge pages can be reserved for the server or it already has them, else 'try'."""
    buffers = plan.buffers_bytes
    if buffers < SMALL_BUFFERS:
        return Advice("try", f"shared_buffers is only {about(buffers)}: little to save.")
    table_bytes, sessions = memory_rule.page_tables_bytes(buffers, facts.page_bytes), plan.use.max_connections
    costs = (
        f"With {about(facts.page_bytes)} pages a backend that has touched all of shared_buffers has "
        f"{about(table_bytes)} of page tables, {sessions} of them {about(table_bytes * sessions)}"
    )
    if plan.pages is not None:
        return Advice(
            "on",
            f"{costs}; it needs vm.nr_hugepages of at least {plan.pages}. 'try' would silently continue without them.",
        )
    is_served = facts.huge_pages == "on" and facts.in_huge_pages is not False
    if is_served and buffers <= (facts.running_buffers_bytes or 0):
        return Advice("on", "The server already uses huge pages.")
    if plan.pages_refused:
        return Advice("try", f"{plan.pages_refused} 'on' would not start.")
    return Advice(
        "try", f"{costs}. 'on' only together with reserved pages: the server's machine is not visible from here."
    )


# Advice on planner, parallel queries, autovacuum, I/O, time limits and what is logged.

SLOW_CLOCK_NS: Final = 500.0
_FLASH: Final = frozenset({DiskKind.SSD, DiskKind.NVME})
_RANDOM: Final[Mapping[DiskKind, tuple[str, str]]] = {
    DiskKind.HDD: ("4", "A rotating disk reads far faster in sequence than at random."),
    DiskKind.NETWORK: ("1.5", "A disk array with a cache reads at random almost as fast as in sequence."),
    DiskKind.SSD: ("1.1", "Flash reads at random as fast as in sequence."),
    DiskKind.NVME: ("1.1", "Flash reads at random as fast as in sequence."),
}
_DEPTH: Final[Mapping[DiskKind, str]] = {
    DiskKind.HDD: "2", DiskKind.NETWORK: "100", DiskKind.SSD: "100", DiskKind.NVME: "200",
}  # fmt: skip


def random_page_cost(facts: AdviceFacts) -> Advice | None:
    """Advise a cost by the kind of disk."""
    if facts.disk is None:
        return None
    value, because = _RANDOM[facts.disk]
    return Advice(value=value, because=because, low="1", high="4")


def io_depth(facts: AdviceFacts) -> Advice | None:
    """Advise a depth by the kind of disk."""
    if facts.disk is None:
        return None
    value = _DEPTH[facts.disk]
    return Advice(
        value=value,
        because=f"The number of requests that this kind of disk ({facts.disk.value.upper()}) serves at once, as a "
        "starting point.",
        low="1",
        high="512",
    )


def jit(facts: AdviceFacts) -> Advice:
    """Advise on for data warehouses (OLAP), else off."""
    if facts.workload is Workload.OLAP:
        return Advice("on", "Long analytical queries gain from compiled expressions.")
    return Advice("off", "Short queries gain nothing, and a wrong estimate costs them tens of milliseconds.")


def default_statistics_target(facts: AdviceFacts) -> Advice:
    """Advise 500 for data warehouses (OLAP), else 100."""
    if facts.workload is Workload.OLAP:
        return Advice("500", "Large skewed tables and long queries: better estimates are worth a longer ANALYZE.")
    return Advice(
        value="100",
        because="The default; raise it for single columns whose estimates are wrong.",
        low="100",
        high="1000",
    )


def _by_cores(of_cores: Callable[[int], float], because: str) -> Callable[[AdviceFacts], Advice | None]:
    def rule(facts: AdviceFacts) -> Advice | None:
        if not facts.cores:
            return None
        return Advice(str(int(of_cores(facts.cores))), because.format(cores=facts.cores))

    return rule


def max_parallel_workers_per_gather(facts: AdviceFacts) -> Advice | None:
    """Advise half of the cores for data warehouses (OLAP), else at most 2."""
    if not facts.cores:
        return None
    half = max(math.ceil(facts.cores / 2), 1)
    if facts.workload is Workload.OLAP:
        return Advice(
            value=str(half), because=f"Half of {facts.cores} cores for one query.", low="0", high=str(facts.cores)
        )
    return Advice(
        value=str(min(half, 2)),
        because="Many sessions already share the cores; two workers help the occasional long query.",
        low="0",
        high=str(half),
    )


def autovacuum_max_workers(facts: AdviceFacts) -> Advice | None:
    """See `plan.autovacuum_workers`."""
    if not facts.cores:
        return None
    value = str(autovacuum_workers(facts))
    return Advice(
        value=value, because="Workers share one cost limit: raise that first, then their number.", low=value, high="10"
    )


def autovacuum_vacuum_cost_limit(facts: AdviceFacts) -> Advice | None:
    """Advise a limit by the kind of disk: a dirtied page costs 20, and vacuum sleeps for 2 ms at the limit."""
    if facts.disk is None:
        return None
    limit = 2000 if facts.disk in _FLASH else 400
    rate = limit / 20 * facts.block_bytes / 0.002 / 1e6
    return Advice(
        value=str(limit),
        because=f"{limit} ÷ 20 for each page dirtied, every 2 ms, is up to {rate:.0f} MB/s for all workers together; "
        f"the default, 200, gives {rate * 200 / limit:.0f} MB/s.",
        low="200",
        high="10000",
    )


def max_worker_processes(facts: AdviceFacts) -> Advice | None:
    """Advise one for each core, at least 8; on a standby at least the set value."""
    if not facts.cores:
        return None
    primary_workers = facts.max_worker_processes if facts.in_recovery else None
    value = max(facts.cores, 8, primary_workers or 0)
    return Advice(str(value), f"One for each of {facts.cores} cores, at least 8; a standby no fewer than its primary.")


def track_io_timing(facts: AdviceFacts) -> Advice:
    """Advise on, unless reading the clock was measured to be slow."""
    if facts.clock_ns is not None and facts.clock_ns > SLOW_CLOCK_NS:
        return Advice("off", f"Reading the clock takes {facts.clock_ns:.0f} ns, twice for each I/O.")
    return Advice("on", "Without it, waits of queries for the disk stay unknown.")


def _fixed(value: str, because: str, low: str = "", high: str = "") -> Callable[[AdviceFacts], Advice]:
    advice = Advice(value=value, because=because, low=low, high=high)
    return lambda facts: advice


RULES: Final[Mapping[str, Callable[[AdviceFacts], Advice | None]]] = {
    "random_page_cost": random_page_cost,
    "effective_io_concurrency": io_depth,
    "maintenance_io_concurrency": io_depth,
    "jit": jit,
    "default_statistics_target": default_statistics_target,
    "max_worker_processes": max_worker_processes,
    "max_parallel_workers": _by_cores(lambda cores: cores, "One for each of {cores} cores."),
    "max_parallel_workers_per_gather": max_parallel_workers_per_gather,
    "max_parallel_maintenance_workers": _by_cores(
        lambda cores: min(max(math.ceil(cores / 2), 1), 4), "Half of {cores} cores, at most 4."
    ),
    "autovacuum": _fixed("on", "Without it tables grow and transaction ids run out."),
    "track_counts": _fixed("on", "These counts trigger autovacuum."),
    "autovacuum_max_workers": autovacuum_max_workers,
    "autovacuum_vacuum_cost_limit": autovacuum_vacuum_cost_limit,
    "autovacuum_naptime": _fixed("15s", "Small hot tables, such as pgbench_branches, are full within a minute.", "1s"),
    "autovacuum_vacuum_scale_factor": _fixed(
        "0.05", "The default, a fifth of a large table, allows many dead rows.", "0.01", "0.2"
    ),
    "autovacuum_analyze_scale_factor": _fixed("0.05", "Estimates go wrong before a tenth has changed.", "0.01", "0.1"),
    "io_method": _fixed("worker", "The default, for every kernel; measure io_uring if the kernel permits it."),
    "io_workers": _by_cores(lambda cores: min(max(3, cores // 4), 32), "A quarter of {cores} cores, at least 3."),
    "io_max_workers": _by_cores(
        lambda cores: min(max(8, cores // 4), 32), "A quarter of {cores} cores, at least the default: idle ones end."
    ),
    "idle_in_transaction_session_timeout": _fixed(
        "5min", "A forgotten transaction holds locks and keeps dead rows from being removed.", "10s", "1h"
    ),
    "client_connection_check_interval": _fixed("15s", "Queries of disconnected clients stop within seconds."),
    "synchronous_commit": _fixed("on", "Every acknowledged commit is on disk."),
    "fsync": _fixed("on", "No other value survives a crash."),
    "full_page_writes": _fixed("on", "The WAL repairs torn pages."),
    "commit_delay": _fixed("0", "Worth trying only if many sessions wait for WALSync on a slow disk.", "0", "1000"),
    "track_io_timing": track_io_timing,
    "track_activities": _fixed("on", "Without it, the work of sessions is invisible."),
    "compute_query_id": _fixed("auto", "On if pg_stat_statements is loaded."),
    "log_checkpoints": _fixed("on", "One line each; the default since 15."),
    "log_lock_waits": _fixed("on", "Lock waits beyond deadlock_timeout appear in the log."),
    "log_temp_files": _fixed(
        "10MB", "Shows statements that need more work_mem, without a line for every small sort.", "0"
    ),
    "log_min_duration_statement": _fixed("1s", "Logs slow statements without slowing the others.", "100ms"),
    "log_autovacuum_min_duration": _fixed("10s", "Shows long runs of autovacuum.", "0", "10min"),
    "log_autoanalyze_min_duration": _fixed("10s", "Shows long runs of ANALYZE by autovacuum.", "0", "10min"),
}
