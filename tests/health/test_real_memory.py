"""Checks of memory and age on a real server, on a machine of the test's making, at a time of its choosing."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from datetime import date
from pathlib import Path

import psycopg
import pytest
from msgspec.structs import replace

from pgtop_tune.cluster.throwaway import Throwaway
from pgtop_tune.health import needs
from pgtop_tune.health.check import Severity
from pgtop_tune.health.checks import configuration
from pgtop_tune.health.checks.configuration import Release, Releases
from pgtop_tune.health.facts import CheckFacts
from pgtop_tune.health.gather import gather
from pgtop_tune.health.judge import judge
from pgtop_tune.health.registry import chosen, thresholds
from pgtop_tune.health.report import Report
from pgtop_tune.model.postgres import PostgresSample
from tests.health.test_machine_tree import COMMON
from tests.postgres.conftest import place
from tests.support.machine_tree import write
from tests.support.servers import conninfo

DEADLINE_S = 30.0
HOUR_MS = 3_600_000
MIB_KB = 1024
MEMORY = ("MEM-01", "MEM-02", "MEM-03", "MEM-04", "MEM-05", "MEM-06", "HUGE-01", "PLAN-01")
GREEDY = {
    "shared_buffers": "512MB", "max_connections": "40", "huge_pages": "off", "work_mem": "128MB",
    "hash_mem_multiplier": "4", "effective_cache_size": "8GB", "autovacuum_work_mem": "128MB",
    "autovacuum_max_workers": "3", "max_parallel_workers": "8", "random_page_cost": "4",
}  # fmt: skip
MODEST = {
    "work_mem": "4MB", "hash_mem_multiplier": "2", "effective_cache_size": "1GB", "autovacuum_work_mem": "32MB",
    "random_page_cost": "1.1",
}  # fmt: skip
FOUND = {
    "MEM-01": Severity.CRITICAL, "MEM-02": Severity.HIGH, "MEM-03": Severity.WARNING, "MEM-04": Severity.WARNING,
    "MEM-05": Severity.WARNING, "MEM-06": Severity.HIGH, "HUGE-01": Severity.WARNING,
    "PLAN-01": Severity.WARNING,
}  # fmt: skip


OF_AGE = ("MEM-07", "WAL-06", "CFG-04", "CFG-05")
FOUND_AFTER_AN_HOUR = {"MEM-07": Severity.WARNING, "WAL-06": Severity.INFO}
LONG_AGO_MS = 1_770_000_000_000
"""February 2026: PostgreSQL 18 is new."""
LATE_MS = 1_930_000_000_000
"""February 2031: it gets no fixes any more."""


def machine(root: Path, memory_mib: int, data: Path) -> Path:
    """A tree of a machine with so much memory, no huge pages, and one flash disk under a directory."""
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
            "proc/diskstats": " 259 0 nvme0n1 5 0 40 1 5 0 40 1 0 2 2\n",
        },
    )
    number = data.stat().st_dev
    disk = root / f"sys/dev/block/{os.major(number)}:{os.minor(number)}"
    disk.parent.mkdir(parents=True)
    disk.symlink_to(root / "sys/block/nvme0n1")
    return root


async def looked(server: Throwaway, root: Path) -> CheckFacts:
    return await gather(place(server), chosen((*MEMORY, *OF_AGE), ()), root=root)


def judged(facts: CheckFacts, *limits: str) -> Report:
    return judge(chosen(MEMORY, ()), facts, thresholds(limits))


def worst(report: Report) -> dict[str, Severity]:
    assert [(check.id, why.reason) for check, why in report.unknowns] == []
    return {result.check.id: result.severity for result in report.results if result.severity is not None}


async def test_a_server_that_asks_for_more_memory_than_there_is(
    make_server: Callable[..., Throwaway], tmp_path: Path
) -> None:
    server = make_server(18, **GREEDY)
    report = judged(
        await looked(server, machine(tmp_path / "small", 700, Path(str(server.data_dir)))), "HUGE-01.warning=536870912"
    )
    assert worst(report) == FOUND
    arithmetic = next(finding for check, finding in report.findings if check.id == "MEM-01").evidence[0].says
    assert "40 connections × (work_mem 128 MB × hash_mem_multiplier 4 + temp_buffers 8 MB)" in arithmetic
    with psycopg.connect(conninfo(server), autocommit=True) as admin:
        for name, value in MODEST.items():
            admin.execute(psycopg.sql.SQL("ALTER SYSTEM SET {} = {}").format(psycopg.sql.Identifier(name), value))
        admin.execute("SELECT pg_reload_conf()")
    until = time.monotonic() + DEADLINE_S
    roomy = machine(tmp_path / "roomy", 2048, Path(str(server.data_dir)))
    while found := worst(judged(await looked(server, roomy))):
        assert time.monotonic() < until, found


async def test_a_server_that_has_worked_with_too_little_for_an_hour(
    make_server: Callable[..., Throwaway], tmp_path: Path
) -> None:
    server = make_server(18, wal_buffers="32kB")
    root = machine(tmp_path, 2048, Path(str(server.data_dir)))
    fresh = await looked(server, root)
    with psycopg.connect(conninfo(server), autocommit=True) as connection:
        connection.execute("SET work_mem = '64kB'")
        for _ in range(8):
            connection.execute("SELECT g FROM generate_series(1, 20000) g ORDER BY -g OFFSET 19999")
        connection.execute("CREATE TABLE written AS SELECT repeat('x', 100) FROM generate_series(1, 100000)")
    checks, limits = chosen(("MEM-07", "WAL-06"), ()), thresholds(("MEM-07.bytes_warning=1000",))
    until = time.monotonic() + DEADLINE_S
    seen = await looked(server, root)
    while (found := worst(judge(checks, later(seen), limits))) != FOUND_AFTER_AN_HOUR:
        assert time.monotonic() < until, found
        seen = await looked(server, root)
    assert worst(judge(checks, later(fresh), limits)) == {}
    said = judge(checks, fresh, limits)
    assert said.findings == ()
    assert {check.id for check, why in said.unknowns if "too young" in why.reason} == {"MEM-07", "WAL-06"}


async def test_a_release_without_fixes(server: Throwaway, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = await looked(server, machine(tmp_path, 2048, Path(str(server.data_dir))))
    (end_of_life, minor) = (chosen((id_,), ()) for id_ in ("CFG-04", "CFG-05"))
    assert worst(judge(end_of_life, at(seen, LONG_AGO_MS), {})) == {}
    assert worst(judge(end_of_life, at(seen, LATE_MS), {})) == {"CFG-04": Severity.WARNING}
    running = seen.have(needs.SERVER).version_num % 10_000
    for behind, expected in ((0, {}), (1, {"CFG-05": Severity.INFO}), (2, {"CFG-05": Severity.WARNING})):
        known = Releases(date(2026, 2, 1), {18: Release(running + behind, date(2030, 11, 14))})
        monkeypatch.setattr(configuration, "releases", lambda known=known: known)
        assert worst(judge(minor, seen, {})) == expected


def later(facts: CheckFacts) -> CheckFacts:
    """The server as it is, judged as if an hour more had passed."""
    return at(facts, facts.frames[-1].taken_at_ms + HOUR_MS)


def at(facts: CheckFacts, at_ms: int) -> CheckFacts:
    """The same, as if it were seen at another time."""
    newest = facts.frames[-1]
    assert isinstance(newest.postgres, PostgresSample)
    activity = replace(facts.have(needs.ACTIVITY), now_ms=at_ms)
    made = replace(newest, taken_at_ms=at_ms, postgres=replace(newest.postgres, activity=activity))
    return replace(facts, frames=(*facts.frames[:-1], made))
