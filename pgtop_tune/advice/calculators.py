"""Results of known calculators by parameter: their published formulas, computed for the facts of this server.

Sources: the code or the answers of pgtune (le0pard, 2026), pgconfig.org's API, timescaledb-tune, pg_gather's report,
the defaults of autobase, and Greg Smith's first pgtune. None of them measures anything.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

from pgtop_tune.advice.facts import AdviceFacts, Opinion
from pgtop_tune.base.units import GB, KB, MB, memory
from pgtop_tune.model.machine import DiskKind, Workload

Says = Callable[[AdviceFacts], str | None]
"""Formula of a calculator: returns a value as one types it; None where facts are missing or it gives none."""

_WEB, _OLTP, _OLAP, _MIXED = Workload.WEB, Workload.OLTP, Workload.OLAP, Workload.MIXED


def _of_memory(share: float) -> Says:
    return lambda facts: memory(facts.ram_bytes * share) if facts.ram_bytes else None


def _always(value: str) -> Says:
    return lambda facts: value


def _by_workload(**values: str) -> Says:
    return lambda facts: values.get(facts.workload.value)


def _by_disk(values: Mapping[DiskKind, str]) -> Says:
    return lambda facts: values.get(facts.disk) if facts.disk is not None else None


def _per_core(of_cores: Callable[[int], float]) -> Says:
    return lambda facts: str(int(of_cores(facts.cores))) if facts.cores else None


def _pgtune_work_mem(facts: AdviceFacts) -> str | None:
    if not (facts.ram_bytes and facts.max_connections):
        return None
    buffers = facts.ram_bytes / 4
    workers = facts.cores if facts.cores and facts.cores >= _PGTUNE_PARALLEL else 8
    session_bytes = (facts.ram_bytes - buffers) / ((facts.max_connections + workers) * 3)
    divisor = {_OLAP: 2, _MIXED: 2}.get(facts.workload, 1)
    if facts.data_bytes is not None:
        session_bytes *= 1.3 if facts.data_bytes < facts.ram_bytes else 0.9
    return memory(max(session_bytes / divisor, 4 * MB))


def _pgconfig_work_mem(facts: AdviceFacts) -> str | None:
    share = {_WEB: 0.25, _OLTP: 0.35, _OLAP: 0.5, _MIXED: 0.2}[facts.workload]
    if not (facts.ram_bytes and facts.max_connections):
        return None
    return memory(facts.ram_bytes * share / facts.max_connections)


def _timescale_work_mem(facts: AdviceFacts) -> str | None:
    if not (facts.ram_bytes and facts.max_connections and facts.cores):
        return None
    session_bytes = facts.ram_bytes / GB * (400 * MB / facts.max_connections) / max(round(facts.cores / 2), 1)
    return memory(max(session_bytes, 64 * KB))


def _gather_work_mem(facts: AdviceFacts) -> str | None:
    if not (facts.ram_bytes and facts.max_connections):
        return None
    return memory(min(facts.ram_bytes / MB / (5 * facts.max_connections) + 4, 64) * MB)


def _first_work_mem(facts: AdviceFacts) -> str | None:
    divisor = {_WEB: 1, _OLTP: 1, _OLAP: 2, _MIXED: 2}[facts.workload]
    if not (facts.ram_bytes and facts.max_connections):
        return None
    return memory(facts.ram_bytes / facts.max_connections / divisor)


def _pgtune_maintenance(facts: AdviceFacts) -> str | None:
    if not facts.ram_bytes:
        return None
    return memory(min(facts.ram_bytes / (8 if facts.workload is _OLAP else 16), 8 * GB))


def _timescale_maintenance(facts: AdviceFacts) -> str | None:
    return memory(min(facts.ram_bytes / GB * 128 * MB, 2047 * MB)) if facts.ram_bytes else None


def _timescale_max_wal(facts: AdviceFacts) -> str | None:
    if not facts.wal_disk_bytes:
        return "1GB"
    return memory(math.ceil(facts.wal_disk_bytes * 0.6 / (16 * MB)) * 16 * MB)


def _gather_max_wal(facts: AdviceFacts) -> str | None:
    if facts.wal_bytes_per_s is None:
        return None
    hour_bytes = facts.wal_bytes_per_s * 3600
    return memory(max(math.ceil(hour_bytes / (10 * GB)) * 10 * GB, 8 * GB))


def _pgtune_parallel(of_cores: Callable[[int], float]) -> Says:
    """Return a value by cores; pgtune leaves parallel workers alone on small machines."""
    return lambda facts: str(int(of_cores(facts.cores))) if facts.cores and facts.cores >= _PGTUNE_PARALLEL else None


def _pgtune_random(facts: AdviceFacts) -> str | None:
    if facts.ram_bytes and facts.data_bytes is not None and facts.data_bytes < facts.ram_bytes:
        return "1.1"
    if facts.disk is None:
        return None
    return "4" if facts.disk is DiskKind.HDD or facts.workload is _OLAP else "1.1"


def _pgtune_per_gather(facts: AdviceFacts) -> str | None:
    if not facts.cores or facts.cores < _PGTUNE_PARALLEL:
        return None
    half = math.ceil(facts.cores / 2)
    return str(half if facts.workload is _OLAP else min(half, 4))


def _pgtune_huge_pages(facts: AdviceFacts) -> str | None:
    if not facts.ram_bytes:
        return None
    return "try" if facts.ram_bytes / 4 >= 2 * GB else "off"


def _pgtune_autovacuum_workers(facts: AdviceFacts) -> str | None:
    if not facts.cores:
        return None
    return "5" if facts.cores >= 32 else "4" if facts.cores >= 16 else None


_PGTUNE_PARALLEL: Final = 4
"""Cores from which on pgtune has parallel workers."""
_PGTUNE_DEPTHS: Final = {DiskKind.HDD: "2", DiskKind.SSD: "200", DiskKind.NETWORK: "300", DiskKind.NVME: "1000"}
_PGCONFIG_DEPTHS: Final = {DiskKind.HDD: "2", DiskKind.SSD: "200", DiskKind.NETWORK: "300", DiskKind.NVME: "200"}
_GATHER_RANDOM: Final = {DiskKind.HDD: "4", DiskKind.SSD: "1.1", DiskKind.NETWORK: "1.5", DiskKind.NVME: "1.1"}
_MOST_RANDOM: Final = {DiskKind.HDD: "4", DiskKind.SSD: "1.1", DiskKind.NETWORK: "1.1", DiskKind.NVME: "1.1"}

_PGTUNE, _PGCONFIG, _TIMESCALE, _GATHER, _AUTOBASE, _FIRST = (
    "pgtune", "pgconfig.org", "timescaledb-tune", "pg_gather", "autobase", "pgtune of 2008",
)  # fmt: skip

OPINIONS: Final[Mapping[str, tuple[tuple[str, Says], ...]]] = MappingProxyType(
    {
        "max_connections": (
            (_PGTUNE, _by_workload(web="200", oltp="300", olap="40", mixed="100")),
            (_GATHER, _per_core(lambda cores: 10 * cores)),
            (_AUTOBASE, _always("1000")),
        ),
        "shared_buffers": ((_PGTUNE, _of_memory(0.25)), (_TIMESCALE, _of_memory(0.25)), (_AUTOBASE, _of_memory(0.25))),
        "effective_cache_size": (
            (_PGTUNE, _of_memory(0.75)),
            (_PGCONFIG, _of_memory(0.75)),
            (_AUTOBASE, _of_memory(0.75)),
        ),
        "work_mem": (
            (_PGTUNE, _pgtune_work_mem),
            (_PGCONFIG, _pgconfig_work_mem),
            (_TIMESCALE, _timescale_work_mem),
            (_GATHER, _gather_work_mem),
            (_AUTOBASE, _always("64MB")),
            (_FIRST, _first_work_mem),
        ),
        "maintenance_work_mem": (
            (_PGTUNE, _pgtune_maintenance),
            (_PGCONFIG, _of_memory(0.05)),
            (_TIMESCALE, _timescale_maintenance),
            (_AUTOBASE, _always("512MB")),
        ),
        "wal_buffers": ((_PGTUNE, _always("16MB")), (_PGCONFIG, _always("-1")), (_AUTOBASE, _always("32MB"))),
        "max_wal_size": (
            (_PGTUNE, _by_workload(web="4GB", oltp="8GB", olap="16GB", mixed="4GB")),
            (_PGCONFIG, _always("3GB")),
            (_TIMESCALE, _timescale_max_wal),
            (_GATHER, _gather_max_wal),
            (_AUTOBASE, _always("8GB")),
        ),
        "min_wal_size": (
            (_PGTUNE, _by_workload(web="1GB", oltp="2GB", olap="4GB", mixed="1GB")),
            (_PGCONFIG, _always("2GB")),
            (_AUTOBASE, _always("1GB")),
        ),
        "checkpoint_timeout": ((_GATHER, _always("30min")), (_AUTOBASE, _always("15min"))),
        "checkpoint_completion_target": ((_PGTUNE, _always("0.9")), (_PGCONFIG, _always("0.9"))),
        "random_page_cost": (
            (_PGTUNE, _pgtune_random),
            (_PGCONFIG, _by_disk(_MOST_RANDOM)),
            (_TIMESCALE, _always("1.1")),
            (_GATHER, _by_disk(_GATHER_RANDOM)),
            (_AUTOBASE, _always("1.1")),
        ),
        "effective_io_concurrency": (
            (_PGTUNE, _by_disk(_PGTUNE_DEPTHS)),
            (_PGCONFIG, _by_disk(_PGCONFIG_DEPTHS)),
            (_TIMESCALE, _always("256")),
            (_AUTOBASE, _always("200")),
        ),
        "default_statistics_target": (
            (_PGTUNE, _by_workload(web="100", oltp="100", olap="500", mixed="100")),
            (_AUTOBASE, _always("1000")),
        ),
        "max_worker_processes": (
            (_PGTUNE, _pgtune_parallel(lambda cores: cores)),
            (_PGCONFIG, _always("8")),
            (_TIMESCALE, _per_core(lambda cores: 3 + 16 + cores)),
            (_AUTOBASE, _per_core(lambda cores: max(cores, 16))),
        ),
        "max_parallel_workers": (
            (_PGTUNE, _pgtune_parallel(lambda cores: cores)),
            (_PGCONFIG, _always("2")),
            (_AUTOBASE, _per_core(lambda cores: max(cores / 2, 8))),
        ),
        "max_parallel_workers_per_gather": (
            (_PGTUNE, _pgtune_per_gather),
            (_PGCONFIG, _always("2")),
            (_TIMESCALE, _per_core(lambda cores: round(cores / 2))),
        ),
        "max_parallel_maintenance_workers": (
            (_PGTUNE, _pgtune_parallel(lambda cores: min(math.ceil(cores / 2), 4))),
            (_AUTOBASE, _always("2")),
        ),
        "autovacuum_max_workers": (
            (_PGTUNE, _pgtune_autovacuum_workers),
            (_TIMESCALE, _always("10")),
            (_AUTOBASE, _always("5")),
        ),
        "autovacuum_naptime": ((_TIMESCALE, _always("10s")), (_AUTOBASE, _always("1s"))),
        "autovacuum_vacuum_cost_limit": ((_AUTOBASE, _always("500")),),
        "autovacuum_vacuum_scale_factor": ((_AUTOBASE, _always("0.01")),),
        "bgwriter_delay": ((_AUTOBASE, _always("20ms")),),
        "bgwriter_lru_maxpages": ((_AUTOBASE, _always("1000")),),
        "huge_pages": ((_PGTUNE, _pgtune_huge_pages), (_GATHER, _always("on")), (_AUTOBASE, _always("try"))),
        "wal_compression": (
            (_PGTUNE, lambda facts: "lz4" if facts.major >= 15 else "on"),
            (_AUTOBASE, _always("on")),
        ),
        "jit": (
            (_PGTUNE, _by_workload(web="off", oltp="off", mixed="off")),
            (_TIMESCALE, _always("off")),
            (_AUTOBASE, _always("off")),
        ),
        "io_method": ((_PGTUNE, _always("io_uring")), (_PGCONFIG, _always("worker"))),
        "io_workers": ((_PGCONFIG, _per_core(lambda cores: max(math.ceil(cores * 0.3), 2))),),
        "idle_in_transaction_session_timeout": ((_GATHER, _always("5min")), (_AUTOBASE, _always("10min"))),
        "client_connection_check_interval": ((_GATHER, _always("15s")),),
        "max_locks_per_transaction": ((_AUTOBASE, _always("512")),),
    }
)


def opinions(name: str, facts: AdviceFacts) -> tuple[Opinion, ...]:
    """Return the value of each calculator that has an opinion on a parameter."""
    values = ((calculator, says(facts)) for calculator, says in OPINIONS.get(name, ()))
    return tuple(Opinion(calculator, value) for calculator, value in values if value is not None)
