"""Memory checks on a real server, on a machine whose memory is of the test's making."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import psycopg

from pgtop_tune.cluster.throwaway import Throwaway
from pgtop_tune.health.check import Severity
from pgtop_tune.health.facts import Facts
from pgtop_tune.health.gather import gather
from pgtop_tune.health.judge import judge
from pgtop_tune.health.registry import chosen, thresholds
from pgtop_tune.health.report import Report
from tests.health.test_machine_tree import COMMON
from tests.postgres.conftest import place
from tests.support.machine_tree import write
from tests.support.servers import conninfo

DEADLINE_S = 30.0
HOUR_MS = 3_600_000
MIB_KB = 1024
MEMORY = ("MEM-01", "MEM-02", "MEM-03", "MEM-04", "MEM-05", "MEM-06", "HUGE-01")
GREEDY = {
    "shared_buffers": "512MB", "max_connections": "40", "huge_pages": "off", "work_mem": "128MB",
    "hash_mem_multiplier": "4", "effective_cache_size": "8GB", "autovacuum_work_mem": "128MB",
    "autovacuum_max_workers": "3", "max_parallel_workers": "8",
}  # fmt: skip
MODEST = {
    "work_mem": "4MB", "hash_mem_multiplier": "2", "effective_cache_size": "1GB", "autovacuum_work_mem": "32MB",
}  # fmt: skip
FOUND = {
    "MEM-01": Severity.CRITICAL, "MEM-02": Severity.HIGH, "MEM-03": Severity.WARNING, "MEM-04": Severity.WARNING,
    "MEM-05": Severity.WARNING, "MEM-06": Severity.HIGH, "HUGE-01": Severity.WARNING,
}  # fmt: skip


def machine(root: Path, memory_mib: int) -> Path:
    """A tree of a machine with so much memory and no huge pages."""
    amounts = {
        "MemTotal": memory_mib, "MemFree": 10, "MemAvailable": 100, "Buffers": 1, "Cached": 90, "SReclaimable": 0,
        "Shmem": 0, "Dirty": 0, "Writeback": 0, "PageTables": 1, "AnonHugePages": 0, "ShmemHugePages": 0,
        "FileHugePages": 0, "CommitLimit": memory_mib, "Committed_AS": 100, "SwapTotal": 0, "SwapFree": 0,
        "SwapCached": 0, "Hugepagesize": 2,
    }  # fmt: skip
    lines = [f"{name}: {amount * MIB_KB} kB\n" for name, amount in amounts.items()]
    pages = "HugePages_Total: 0\nHugePages_Free: 0\nHugePages_Rsvd: 0\nHugePages_Surp: 0\n"
    ticks = "1000 0 100 1000 0 0 0 0 0 0"
    write(
        root,
        {
            **COMMON,
            "proc/meminfo": "".join(lines) + pages,
            "proc/stat": f"cpu  {ticks}\ncpu0 {ticks}\nintr 1\nctxt 1\nprocs_running 1\nprocs_blocked 0\n",
            "proc/vmstat": "pswpin 0\npswpout 0\n",
        },
    )
    return root


async def looked(server: Throwaway, root: Path) -> Facts:
    return await gather(place(server), chosen(("MEM", "HUGE-01"), ()), root=root)


def judged(facts: Facts, *limits: str) -> Report:
    return judge(chosen(MEMORY, ()), facts, thresholds(limits))


def worst(report: Report) -> dict[str, Severity]:
    assert [(check.id, why.reason) for check, why in report.unknowns] == []
    return {result.check.id: result.severity for result in report.results if result.severity is not None}


async def test_a_server_that_asks_for_more_memory_than_there_is(
    make_server: Callable[..., Throwaway], tmp_path: Path
) -> None:
    server = make_server(18, **GREEDY)
    report = judged(await looked(server, machine(tmp_path / "small", 700)), "HUGE-01.warning=536870912")
    assert worst(report) == FOUND
    arithmetic = next(finding for check, finding in report.findings if check.id == "MEM-01").evidence[0].says
    assert "40 connections × (work_mem 128 MB × hash_mem_multiplier 4 + temp_buffers 8 MB)" in arithmetic
    with psycopg.connect(conninfo(server), autocommit=True) as admin:
        for name, value in MODEST.items():
            admin.execute(psycopg.sql.SQL("ALTER SYSTEM SET {} = {}").format(psycopg.sql.Identifier(name), value))
        admin.execute("SELECT pg_reload_conf()")
    until = time.monotonic() + DEADLINE_S
    roomy = machine(tmp_path / "roomy", 2048)
    while found := worst(judged(await looked(server, roomy))):
        assert time.monotonic() < until, found


async def test_sorts_that_write_temporary_files(fresh_server: Throwaway, tmp_path: Path) -> None:
    with psycopg.connect(conninfo(fresh_server), autocommit=True) as connection:
        connection.execute("SET work_mem = '64kB'")
        for _ in range(8):
            connection.execute("SELECT g FROM generate_series(1, 20000) g ORDER BY -g OFFSET 19999")
    (check,) = chosen(("MEM-07",), ())
    until = time.monotonic() + DEADLINE_S
    facts = await looked(fresh_server, machine(tmp_path, 2048))
    small = thresholds(("MEM-07.bytes_warning=1000",))
    # The server is of now, its counters are real; they are judged as if an hour had passed.
    while not (said := judge((check,), later(facts), small)).findings and time.monotonic() < until:
        facts = await looked(fresh_server, tmp_path)
    ((_, finding),) = said.findings
    assert finding.severity is Severity.WARNING
    assert "temporary files an hour" in finding.says
    assert judge((check,), later(facts), {}).findings == ()
    ((_, why),) = judge((check,), facts, small).unknowns
    assert "too young" in why.reason


def later(facts: Facts) -> Facts:
    """The same, seen a little more than an hour later."""
    frames = (*facts.frames[:-1], replace(facts.frames[-1], taken_at_ms=facts.frames[-1].taken_at_ms + HOUR_MS))
    return replace(facts, frames=frames)
