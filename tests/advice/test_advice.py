"""Advice: the known disagreement of calculators, our own arithmetic, and what the newest server takes."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from pgtop_tune.advice.calculators import opinions
from pgtop_tune.advice.facts import Advice, AdviceFacts, Machine
from pgtop_tune.advice.knobs.catalogue import BY_NAME
from pgtop_tune.advice.plan import plan
from pgtop_tune.advice.proposal import ADVISED, propose
from pgtop_tune.advice.rules.wal import needed_max_wal_bytes, steady
from pgtop_tune.base.units import GB, MB, memory
from pgtop_tune.cluster.throwaway import Throwaway
from pgtop_tune.metrics.setting_risks import RISKS, risk_of
from pgtop_tune.metrics.value_risks import RiskClass
from pgtop_tune.model.machine import DiskKind, Workload
from pgtop_tune.model.parameter_values import parse
from tests.support.servers import conninfo

LARGE = AdviceFacts(
    major=18, ram_bytes=64 * GB, cores=16, disk=DiskKind.SSD, max_connections=300, shared_buffers_bytes=16 * GB,
    max_worker_processes=16,
)  # fmt: skip


def advise(name: str, facts: AdviceFacts) -> Advice | None:
    return propose(facts).parameters.get(name)


def test_blocks_and_pages_have_the_sizes_of_this_server_and_kernel() -> None:
    usual = AdviceFacts(major=18, ram_bytes=64 * GB, cores=8, disk=DiskKind.NVME)
    other = replace(usual, block_bytes=32 * 1024, page_bytes=64 * 1024)
    vacuum, vacuum_of_other = (advise("autovacuum_vacuum_cost_limit", facts) for facts in (usual, other))
    pages, pages_of_other = (advise("huge_pages", facts) for facts in (usual, other))
    words = [each.because for each in (vacuum, vacuum_of_other, pages, pages_of_other) if each is not None]
    expected = ("410 MB/s", "1638 MB/s", "has 32 MB of page tables", "has 2 MB of page tables")
    assert all(part in because for part, because in zip(expected, words, strict=True))


def test_calculators_disagree_twentyfold_on_work_mem() -> None:
    # The worked example of the study: 64 GB, 16 CPUs, 300 connections, OLTP, SSD.
    said = {opinion.who: parse(opinion.value, "kB", integer=True) / 1024 for opinion in opinions("work_mem", LARGE)}
    assert said == {
        "pgtune": pytest.approx(51.8, rel=0.07),
        "pgconfig.org": pytest.approx(76.5, rel=0.07),
        "timescaledb-tune": pytest.approx(10.7, rel=0.07),
        "pg_gather": pytest.approx(47.7, rel=0.07),
        "autobase": 64,
        "pgtune of 2008": pytest.approx(218, rel=0.07),
    }
    assert max(said.values()) / min(said.values()) > 20


@pytest.mark.parametrize(
    ("facts", "said"),
    [
        # Two cores: pgtune leaves parallel workers alone, and counts 8 of them for work_mem: 24 GB / (108 × 3) / 2.
        (
            AdviceFacts(major=18, ram_bytes=32 * GB, cores=2, max_connections=100, max_worker_processes=2,
                        workload=Workload.MIXED, disk=DiskKind.SSD),
            {"work_mem": "38836kB", "random_page_cost": "1.1"},
        ),
        # 24 GB / (116 × 3), and 30 % more for data that fit into the memory.
        (
            AdviceFacts(major=18, ram_bytes=32 * GB, cores=16, max_connections=100, max_worker_processes=8,
                        data_bytes=GB, disk=DiskKind.HDD),
            {"work_mem": "94012kB", "random_page_cost": "1.1", "max_worker_processes": "16",
             "max_parallel_workers": "16", "max_parallel_workers_per_gather": "4",
             "max_parallel_maintenance_workers": "4"},
        ),
        (
            AdviceFacts(major=18, cores=6, disk=DiskKind.HDD, workload=Workload.OLAP),
            {"random_page_cost": "4", "max_worker_processes": "6", "max_parallel_workers": "6",
             "max_parallel_workers_per_gather": "3", "max_parallel_maintenance_workers": "3"},
        ),
    ],
)  # fmt: skip
def test_pgtunes_numbers_are_those_of_its_code(facts: AdviceFacts, said: dict[str, str]) -> None:
    """As of 2026-07-30, worked out by hand."""
    names = (
        "work_mem", "random_page_cost", "max_worker_processes", "max_parallel_workers",
        "max_parallel_workers_per_gather", "max_parallel_maintenance_workers", "io_workers",
    )  # fmt: skip
    found = {name: each.value for name in names for each in opinions(name, facts) if each.who == "pgtune"}
    assert found.keys() == said.keys()
    for name, value in said.items():
        wanted, ours = (
            parse(each, "kB", integer=True) if name == "work_mem" else float(each) for each in (value, found[name])
        )
        assert ours == pytest.approx(wanted, rel=0.07), name


def test_work_mem_is_half_of_what_the_memory_rule_leaves() -> None:
    # 90 % of 64 GB, less 2 for the system, 16.9 of shared memory, 4 autovacuum workers × 1.6, and for each of 160
    # connections 8 MB of temp_buffers and 32 of page tables; for these and 16 parallel workers, which hash in twice it.
    drawn = plan(LARGE)
    assert drawn is not None
    ceiling = (0.9 * 64 - 2 - 16.8625 - 4 * 1.5625 - 160 * 40 / 1024) * GB / ((160 + 16) * 2)
    advice = advise("work_mem", replace(LARGE, workload=Workload.WEB))
    assert advice is not None
    assert parse(advice.value or "", "kB", integer=True) * 1024 == pytest.approx(min(ceiling / 2, 64 * MB), rel=0.05)
    assert "160 connections" in advice.because


def test_a_server_with_too_many_connections_is_told_so_instead_of_given_more_memory() -> None:
    # The book's broken case: 16 GB, 1000 connections, shared_buffers 20 GB.
    broken = AdviceFacts(major=16, ram_bytes=16 * GB, cores=4, max_connections=1000, shared_buffers_bytes=20 * GB)
    assert [getattr(advise(name, broken), "value", None) for name in ("shared_buffers", "max_connections")] == [
        "4GB",
        "100",
    ]
    busy = propose(replace(broken, sessions=900))
    assert busy.parameters["work_mem"].value == "4MB"
    assert busy.parameters["max_connections"].value is None
    ((name, why),) = busy.refusals
    assert name == "max_connections"
    assert "1000 connections × (work_mem 4 MB × hash_mem_multiplier 2 + temp_buffers 8 MB)" in why
    assert "of 16 GB of memory" in why


def test_max_wal_size_follows_the_measured_rate_and_stops_at_the_disk() -> None:
    measured = AdviceFacts(
        major=18, wal_bytes_per_s=50 * MB, checkpoint_timeout_s=300, checkpoint_completion_target=0.9,
        wal_disk_bytes=100 * GB,
    )  # fmt: skip
    assert needed_max_wal_bytes(measured) == pytest.approx(50 * MB * 300 * 1.9 * 1.2)
    advice = advise("max_wal_size", measured)
    assert advice is not None
    # checkpoint_timeout is advised to be 15 min: 50 × 900 × 1.9 × 1.2 MB are 100 GB, more than 60 % of the disk.
    assert advice.value == "60GB"
    roomy = advise("max_wal_size", replace(measured, wal_disk_bytes=None, wal_bytes_per_s=10 * MB))
    assert roomy is not None
    assert roomy.value == "24GB"
    small = advise("max_wal_size", AdviceFacts(major=18, wal_bytes_per_s=50 * MB, wal_disk_bytes=10 * GB))
    assert small is not None
    assert small.value == "6GB"
    assert "60 %" in small.because
    unmeasured = advise("max_wal_size", AdviceFacts(major=18))
    assert unmeasured is not None
    assert "not measured" in unmeasured.because


def test_page_tables_are_the_case_for_huge_pages() -> None:
    # 32 GB of buffers: 64 MB of page tables in each of 500 backends, 31 GB together.
    facts = AdviceFacts(major=18, ram_bytes=128 * GB, cores=50, shared_buffers_bytes=32 * GB, max_connections=500,
                  shared_memory_bytes=34_000 * MB, machine=Machine(ram_bytes=128 * GB, huge_page_bytes=2 * MB),
    )  # fmt: skip
    advice = advise("huge_pages", facts)
    assert advice is not None
    assert advice.value == "on"
    assert "64 MB of page tables" in advice.because
    assert "31.2 GB" in advice.because
    assert "17000" in advice.because
    elsewhere = advise("huge_pages", replace(facts, machine=None))
    assert elsewhere is not None
    assert elsewhere.value == "try"


def test_without_facts_nothing_is_made_up() -> None:
    for name in ("shared_buffers", "work_mem", "effective_cache_size", "random_page_cost", "max_connections"):
        advice = advise(name, AdviceFacts(major=18))
        assert advice is None or advice.value is None, name


def test_advice_never_loses_data() -> None:
    for name, disk, workload in itertools.product(RISKS, DiskKind, Workload):
        advice = advise(name, AdviceFacts(major=18, ram_bytes=GB, cores=4, disk=disk, workload=workload))
        risk = None if advice is None else risk_of(name, advice.value)
        assert risk is None or risk.kind is RiskClass.RUNS_CODE, name


def test_every_rule_is_about_a_knob() -> None:
    assert set(BY_NAME) >= ADVISED


@pytest.mark.parametrize("disk", DiskKind)
@pytest.mark.parametrize("ram_gb", [1, 1500])
@pytest.mark.parametrize("major", [18, 19])
def test_the_newest_servers_take_every_value_advised(
    server_for_major: Callable[[int], Throwaway], major: int, ram_gb: int, disk: DiskKind
) -> None:
    with psycopg.connect(conninfo(server_for_major(major))) as connection:
        rows = connection.execute(
            "SELECT name, vartype, coalesce(unit, ''), min_val, max_val, enumvals FROM pg_settings"
        ).fetchall()
    known = {row[0]: row[1:] for row in rows}
    for workload, cores in itertools.product(Workload, (1, 384)):
        facts = AdviceFacts(
            major=major, ram_bytes=ram_gb * GB, cores=cores, disk=disk, workload=workload, max_connections=200,
            shared_buffers_bytes=ram_gb * GB // 4, wal_bytes_per_s=10 * MB, wal_disk_bytes=50 * GB, data_bytes=GB,
        )  # fmt: skip
        proposal = propose(facts)
        for name in BY_NAME:
            advice = proposal.parameters.get(name)
            if advice is None or name not in known:
                continue
            vartype, unit, low, high, words = known[name]
            # An opinion is quoted as its author has it, beyond the server's range or not.
            for value in filter(None, (advice.value, advice.low, advice.high)):
                if vartype in {"integer", "real"}:
                    number = parse(value, unit, integer=vartype == "integer")
                    assert float(low) <= number <= float(high), (name, value)
                elif vartype == "bool":
                    assert value in {"on", "off"}, (name, value)
                elif name not in {"wal_compression", "io_method"}:
                    assert value in words, (name, value)


@given(st.integers(16 * 1024, 2**46))
def test_a_size_is_typed_rounded_down_a_little(size_bytes: int) -> None:
    typed = parse(memory(size_bytes), "kB", integer=True) * 1024
    assert size_bytes * 7 / 8 < typed <= size_bytes


def test_a_rate_that_comes_and_goes_does_not_change_what_is_shown() -> None:
    """7680MB, 11GB and 6GB were advised within half a minute."""
    shown: AdviceFacts | None = None
    said = []
    for rate_mb in (3.4, 4.9, 2.7, None, 5.5, 3.0, 4.9):
        now = AdviceFacts(major=18, max_wal_size_bytes=GB, wal_bytes_per_s=None if rate_mb is None else rate_mb * MB)
        shown = steady(shown, now)
        said.append(propose(shown).parameters["max_wal_size"].value)
    assert said == ["8GB", "12GB", "12GB", "12GB", "12GB", "12GB", "12GB"]


def test_sessions_that_come_and_go_do_not_change_what_is_shown() -> None:
    shown: AdviceFacts | None = None
    said = []
    for sessions, committed_gb in ((79, 20), (82, 21), (78, 19), (50, 20), (30, 2)):
        machine = Machine(ram_bytes=64 * GB, swap_bytes=0, committed_bytes=committed_gb * GB)
        now = AdviceFacts(major=18, ram_bytes=64 * GB, cores=4, max_connections=300, sessions=sessions, machine=machine)
        shown = steady(shown, now)
        assert shown.machine is not None
        said.append((propose(shown).parameters["max_connections"].value, (shown.machine.committed_bytes or 0) // GB))
    assert said == [("100", 20), (None, 20), (None, 20), (None, 20), ("100", 2)]


def test_what_is_set_is_not_lowered_for_a_quiet_moment() -> None:
    for rate in (None, 0.0, 10.0 * MB):
        assert propose(AdviceFacts(major=18, max_wal_size_bytes=30 * GB, wal_bytes_per_s=rate)).parameters[
            "max_wal_size"
        ].value == "30GB"  # fmt: skip
