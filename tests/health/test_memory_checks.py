"""Memory checks: the arithmetic, the edges of thresholds, what is not known."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from pgtop_tune.health.check import Check, Severity
from pgtop_tune.health.registry import CHECKS
from pgtop_tune.model.absence import Reason, Unavailable
from pgtop_tune.model.host import HostFacts, HostSample
from pgtop_tune.model.io import DatabaseRow, DatabaseSample
from tests.support import frames
from tests.support.health_facts import GIB, MIB, details, found, result, spoilt, unknown
from tests.support.host_frames import cgroup
from tests.support.statement_frames import database as database_row

HOUR_MS = 3_600_000
BY_ID = {check.id: check for check in CHECKS}


def check(id_: str) -> Check:
    return BY_ID[id_]


BROKEN = {
    "max_connections": "1000",
    "shared_buffers": "20GB",
    "work_mem": "32MB",
    "maintenance_work_mem": "1GB",
    "huge_pages": "try",
    "huge_pages_status": "off",
}
"""The configuration of a book's first day, on 16 GB."""


def test_the_broken_configuration_fails_the_memory_rule_with_its_arithmetic() -> None:
    facts = spoilt(BROKEN, without=("shared_memory_size",))
    (finding,) = found(check("MEM-01"), facts)

    assert finding.severity is Severity.CRITICAL
    arithmetic = finding.evidence[0].says
    for term in (
        "1000 connections × (work_mem 32 MB × hash_mem_multiplier 2 + temp_buffers 8 MB)",
        "shared_buffers and related memory 20 GB",
        "3 autovacuum workers × 1 GB",
        "4 parallel workers × work_mem 32 MB × hash_mem_multiplier 2",
        "1000 connections × 40 MB of page tables, without huge pages",
        "operating system 2 GB",
    ):
        assert term in arithmetic
    # 1000 × 72 MB + 20 GB + 3 GB + 4 × 64 MB + 1000 × 40 MB + 2 GB
    total = 1000 * 72 * MIB + 20 * GIB + 3 * GIB + 4 * 64 * MIB + 1000 * 40 * MIB + 2 * GIB
    assert f"{100 * total / (16 * GIB):.0f} % of the memory" in finding.says
    assert finding.fix is not None
    # No single one of them would end it.
    assert finding.fix.do.splitlines() == [
        """ALTER SYSTEM SET "work_mem" = '8704kB';""",
        """ALTER SYSTEM SET "max_connections" = '100';""",
        """ALTER SYSTEM SET "shared_buffers" = '2560MB';""",
        "SELECT pg_reload_conf();",
    ]
    assert 'ALTER SYSTEM RESET "shared_buffers"' in finding.fix.undo
    assert "pgtop-tune set work_mem=8704kB max_connections=100 shared_buffers=2560MB" in finding.fix.remark


@pytest.mark.parametrize(
    ("parameters", "name"),
    [
        ({"work_mem": "1GB"}, "work_mem"),
        ({"shared_buffers": "22GB", "shared_memory_size": "22500MB", "huge_pages_status": "off"}, "shared_buffers"),
        ({"maintenance_work_mem": "8GB"}, "maintenance_work_mem"),
        ({"autovacuum_work_mem": "8GB"}, "autovacuum_work_mem"),
        ({"temp_buffers": "1GB"}, "temp_buffers"),
        ({"hash_mem_multiplier": "64"}, "hash_mem_multiplier"),
    ],
)
def test_the_memory_rule_is_kept_by_the_parameter_that_breaks_it(parameters: dict[str, str], name: str) -> None:
    (finding,) = found(check("MEM-01"), spoilt(parameters, memory_bytes=24 * GIB))
    assert finding.fix is not None
    assert finding.fix.parameter is not None
    assert finding.fix.parameter[0] == name


def test_a_well_set_server_passes_every_memory_check() -> None:
    facts = spoilt()
    said = {check.id: result(check, facts) for check in CHECKS if check.group == "memory"}
    assert {id_: each.findings for id_, each in said.items() if each.findings} == {}
    assert {id_: each.unknowns for id_, each in said.items() if each.unknowns} == {}


def test_the_limit_of_a_control_group_counts_instead_of_the_memory() -> None:
    facts = spoilt(memory_bytes=64 * GIB, host={"cgroup": cgroup(100)}, parameters={"max_connections": "2000"})
    (finding,) = found(check("MEM-01"), facts)
    assert any("control group" in evidence.says for evidence in finding.evidence)


@pytest.mark.parametrize(
    ("id_", "parameter", "silent", "loud"),
    [
        ("MEM-02", "shared_buffers", "6.3GB", "6.5GB"),
        ("MEM-02", "shared_buffers", "2458MB", "2457MB"),
        ("MEM-04", "work_mem", "64MB", "65MB"),
        ("MEM-04", "work_mem", "4MB", "4095kB"),
        ("MEM-05", "effective_cache_size", "16GB", "16385MB"),
        ("MEM-05", "effective_cache_size", "4GB", "4095MB"),
        ("MEM-06", "maintenance_work_mem", "682MB", "684MB"),
    ],
)
def test_the_edge_of_a_threshold(id_: str, parameter: str, silent: str, loud: str) -> None:
    assert not found(check(id_), spoilt({parameter: silent}))
    (finding,) = found(check(id_), spoilt({parameter: loud}, machine=details({"vm.overcommit_memory": "0"})))
    assert finding.fix is not None
    assert finding.fix.parameter is not None


def test_a_threshold_that_is_given_counts_instead_of_ours() -> None:
    facts = spoilt({"work_mem": "128MB"})
    assert found(check("MEM-04"), facts)
    assert not found(check("MEM-04"), facts, warning=128 * MIB)


def test_memory_in_huge_pages_is_not_counted_against_a_control_group() -> None:
    group = replace(cgroup(100), memory_max_bytes=8 * GIB)
    large = {"shared_buffers": "7GB", "shared_memory_size": "7400MB"}
    said = {}
    for status in ("on", "off"):
        pages = {**large, "huge_pages": status, "huge_pages_status": status}
        said[status] = found(check("MEM-01"), spoilt(pages, memory_bytes=64 * GIB, host={"cgroup": group}))
    assert said["on"] == ()
    (finding,) = said["off"]
    assert "7 GB" in finding.evidence[0].says
    more = {**large, "huge_pages": "on", "huge_pages_status": "on", "max_connections": "2000"}
    (finding,) = found(check("MEM-01"), spoilt(more, memory_bytes=64 * GIB, host={"cgroup": group}))
    assert "shared_buffers" not in finding.evidence[0].says
    assert any("does not count memory in huge pages" in each.says for each in finding.evidence)


def test_page_tables_count_only_without_huge_pages() -> None:
    many = {"max_connections": "1000"}
    assert not found(check("MEM-03"), spoilt(many))
    (finding,) = found(check("MEM-03"), spoilt({**many, "huge_pages": "off", "huge_pages_status": "off"}))
    assert finding.severity is Severity.HIGH
    assert "7.81 GB" in finding.says
    large = {**many, "shared_buffers": "64GB", "huge_pages": "off", "huge_pages_status": "off"}
    facts = spoilt(large)
    host = facts.frames[-1].host
    assert isinstance(host, HostSample)
    assert isinstance(host.facts, HostFacts)
    arm64 = replace(host, facts=replace(host.facts, page_size_bytes=64 * 1024))
    facts = replace(facts, frames=(*facts.frames[:-1], replace(facts.frames[-1], host=arm64)))
    (finding,) = found(check("MEM-03"), facts)
    assert "shared_buffers 64 GB ÷ 64 kB × 8 bytes = 8 MB each" in finding.evidence[0].says


@pytest.mark.parametrize(("files", "gigabytes", "severity"), [
    (120, 25, None), (121, 24, None), (121, 25, Severity.WARNING), (500, 121, Severity.HIGH),
])  # fmt: skip
def test_temporary_files_are_a_rate_since_the_statistics_began_whenever_the_server_was_restarted(
    files: int, gigabytes: int, severity: Severity | None
) -> None:
    a_day_ago_ms = frames.EPOCH_MS + 101_000 - 24 * HOUR_MS
    counted = database_row(5, temp_files=files, temp_bytes=gigabytes * GIB, stats_reset_ms=a_day_ago_ms)
    facts = spoilt(
        postgres={"databases": DatabaseSample(101.0, (counted,))}, server={"started_ms": frames.EPOCH_MS - 2 * HOUR_MS}
    )
    assert [finding.severity for finding in found(check("MEM-07"), facts)] == ([] if severity is None else [severity])


def _filled(hours: float | None, files: int, datid: int = 5) -> DatabaseRow:
    """A database with so many temporary files of a gigabyte since so many hours; since ever for None."""
    reset_ms = None if hours is None else frames.EPOCH_MS + 101_000 - int(hours * HOUR_MS)
    return database_row(datid, temp_files=files, temp_bytes=files * GIB, stats_reset_ms=reset_ms)


def test_each_database_has_its_own_age_of_temporary_files() -> None:
    """One that was reset a moment ago does not make the files of years look like those of a moment."""
    long_ago, just_now = _filled(10_000, 30_000), _filled(0.5, 0, 6)
    assert not found(check("MEM-07"), spoilt(postgres={"databases": DatabaseSample(101.0, (long_ago, just_now))}))
    busy = replace(just_now, temp_files=50, temp_bytes=50 * GIB)
    (said,) = unknown(check("MEM-07"), spoilt(postgres={"databases": DatabaseSample(101.0, (long_ago, busy))}))
    assert "of 1 of 2 databases are 30m" in said.reason
    (more,) = unknown(check("MEM-07"), spoilt(postgres={"databases": DatabaseSample(101.0, (long_ago,), 7)}))
    assert "7 databases" in more.reason
    both = DatabaseSample(101.0, (_filled(10, 40), _filled(10, 20, 6)))
    (finding,) = found(check("MEM-07"), spoilt(postgres={"databases": both}))
    assert "6 temporary files an hour" in finding.says
    assert "db5: 40 files" in finding.evidence[0].says


def test_what_was_never_reset_counts_since_there_are_statistics_and_not_since_a_restart() -> None:
    seen = frames.postgres_sample(101, 4).wal
    assert not isinstance(seen, Unavailable)
    began = replace(seen, stats_reset_ms=frames.EPOCH_MS - 1_000 * HOUR_MS)
    restarted = {"started_ms": frames.EPOCH_MS - 2 * HOUR_MS}
    filled = {"databases": DatabaseSample(101.0, (_filled(None, 500),)), "wal": began}
    assert not found(check("MEM-07"), spoilt(postgres=filled, server=restarted))
    (finding,) = found(check("MEM-07"), spoilt(postgres=filled, server=restarted), files_warning=0.4, bytes_warning=1.0)
    assert "500 files" in finding.evidence[0].says


def test_a_machine_that_is_not_seen_makes_the_memory_rule_unknown() -> None:
    facts = spoilt(host=Unavailable(Reason.NOT_LOCAL, "the server runs on another machine"))
    (said,) = unknown(check("MEM-01"), facts)
    assert "another machine" in said.reason
