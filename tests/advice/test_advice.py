"""Advice: the known disagreement of calculators, our own arithmetic, and what the newest server takes."""

from __future__ import annotations

import itertools

import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgtop_tune.advice.advise import RULES, advise
from pgtop_tune.advice.calculators import opinions
from pgtop_tune.advice.facts import DiskKind, Facts, Workload
from pgtop_tune.advice.knobs.catalogue import BY_NAME, FENCED
from pgtop_tune.advice.rules.memory import page_tables_bytes, work_mem_ceiling_bytes
from pgtop_tune.advice.rules.wal import needed_max_wal_bytes
from pgtop_tune.cluster.throwaway import Throwaway
from pgtop_tune.model.parameter_values import parse
from pgtop_tune.units import GB, MB, memory
from tests.support.servers import conninfo

LARGE = Facts(
    major=18, ram_bytes=64 * GB, cores=16, disk=DiskKind.SSD, max_connections=300, shared_buffers_bytes=16 * GB,
    max_worker_processes=16,
)  # fmt: skip


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


def test_work_mem_is_half_of_what_the_memory_rule_leaves() -> None:
    # (64 - 2 - 16 - 3 × 2) GB over 300 connections that each may hash with twice work_mem.
    ceiling = work_mem_ceiling_bytes(LARGE)
    assert ceiling == pytest.approx((64 - 2 - 16 - 3 * 2) * GB / (300 * 2))
    assert ceiling is not None
    advice = advise("work_mem", LARGE)
    assert advice is not None
    assert advice.value == memory(ceiling / 2)
    assert "300 connections" in advice.because


def test_a_server_with_too_many_connections_is_told_so_instead_of_given_more_memory() -> None:
    # The book's broken case: 16 GB, 1000 connections, shared_buffers 20 GB.
    broken = Facts(major=16, ram_bytes=16 * GB, max_connections=1000, shared_buffers_bytes=20 * GB)
    advice = advise("work_mem", broken)
    assert advice is not None
    assert advice.value == "4MB"
    assert "fewer connections" in advice.because


def test_max_wal_size_follows_the_measured_rate_and_stops_at_the_disk() -> None:
    measured = Facts(
        major=18, wal_bytes_per_s=50 * MB, checkpoint_timeout_s=300, checkpoint_completion_target=0.9,
        wal_disk_bytes=100 * GB,
    )  # fmt: skip
    assert needed_max_wal_bytes(measured) == pytest.approx(50 * MB * 300 * 1.9 * 1.2)
    advice = advise("max_wal_size", measured)
    assert advice is not None
    assert parse(advice.value or "", "MB", integer=True) == pytest.approx(50 * 300 * 1.9 * 1.2, rel=0.07)
    small = advise("max_wal_size", Facts(major=18, wal_bytes_per_s=50 * MB, wal_disk_bytes=10 * GB))
    assert small is not None
    assert small.value == "6GB"
    assert "60 %" in small.because
    unmeasured = advise("max_wal_size", Facts(major=18))
    assert unmeasured is not None
    assert "not measured" in unmeasured.because


def test_page_tables_are_the_case_for_huge_pages() -> None:
    # 32 GB of buffers: 64 MB of page tables in each of 500 backends, 31 GB together.
    facts = Facts(major=18, shared_buffers_bytes=32 * GB, max_connections=500, huge_pages_needed=17000)
    assert page_tables_bytes(facts) == 64 * MB
    advice = advise("huge_pages", facts)
    assert advice is not None
    assert advice.value == "on"
    assert "31.2 GB" in advice.because
    assert "17000" in advice.because


def test_without_facts_nothing_is_made_up() -> None:
    for name in ("shared_buffers", "work_mem", "effective_cache_size", "random_page_cost", "max_connections"):
        advice = advise(name, Facts(major=18))
        assert advice is None or advice.value is None, name


def test_advice_never_loses_data() -> None:
    for knob, disk, workload in itertools.product(FENCED, DiskKind, Workload):
        advice = advise(knob.name, Facts(major=18, ram_bytes=GB, cores=4, disk=disk, workload=workload))
        if advice is not None:
            assert advice.value not in {value for value, _ in knob.unsafe}


def test_every_rule_is_about_a_knob() -> None:
    assert set(RULES) <= set(BY_NAME)


@pytest.mark.parametrize("disk", DiskKind)
@pytest.mark.parametrize("ram_gb", [1, 1500])
def test_the_newest_server_takes_every_value_advised(server: Throwaway, ram_gb: int, disk: DiskKind) -> None:
    with psycopg.connect(conninfo(server)) as connection:
        rows = connection.execute(
            "SELECT name, vartype, coalesce(unit, ''), min_val, max_val, enumvals FROM pg_settings"
        ).fetchall()
    known = {row[0]: row[1:] for row in rows}
    for workload, cores in itertools.product(Workload, (1, 384)):
        facts = Facts(
            major=18, ram_bytes=ram_gb * GB, cores=cores, disk=disk, workload=workload, max_connections=200,
            shared_buffers_bytes=ram_gb * GB // 4, wal_bytes_per_s=10 * MB, wal_disk_bytes=50 * GB, data_bytes=GB,
        )  # fmt: skip
        for name in BY_NAME:
            advice = advise(name, facts)
            if advice is None:
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
