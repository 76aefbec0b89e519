"""Contracts: each lets its own facts vary and refuses every other difference by its name."""

from __future__ import annotations

from functools import cache

import pytest
from msgspec.structs import replace

from pgtop_tune.compare.comparison import Comparison, compare
from pgtop_tune.compare.figure_rows import NOT_COMPARABLE
from pgtop_tune.compare.reports.sheets import sheets
from pgtop_tune.compare.reports.written import comparison_json, sheets_text
from pgtop_tune.compare.sides.contract_names import Contract
from pgtop_tune.compare.sides.fingerprint import DATA, LOAD, MACHINE, PARAMETERS, SERVER, SYSTEM
from pgtop_tune.compare.sides.material import Fact, FactKind, Material
from tests.support.sides import repeated

SETTING, CONDITION, IDENTITY = FactKind.SETTING, FactKind.CONDITION, FactKind.IDENTITY


def fact(group: str, name: str, value: str, kind: FactKind = CONDITION, *, shipped: bool = False) -> Fact:
    return Fact(group=group, name=name, value=value, kind=kind, shipped=shipped)


PAIRS = {
    "parameter": [fact(PARAMETERS, "max_wal_size", value, SETTING) for value in ("1GB", "3GB")],
    "default": [fact(PARAMETERS, "io_method", value, SETTING, shipped=True) for value in ("sync", "worker")],
    "checksums": [fact(PARAMETERS, "data_checksums", value, shipped=True) for value in ("off", "on")],
    "sysctl": [fact(SYSTEM, "vm.swappiness", value, SETTING) for value in ("60", "1")],
    "scheduler": [fact(SYSTEM, "scheduler of the disk below data", value, SETTING) for value in ("none", "bfq")],
    "mount": [fact(SYSTEM, "mount options of data", value, SETTING) for value in ("rw", "rw,noatime")],
    "file system": [fact(MACHINE, "file system of data", value) for value in ("ext4", "xfs")],
    "CPUs": [fact(MACHINE, "CPUs", value) for value in ("4", "8")],
    "version": [fact(SERVER, "PostgreSQL", value) for value in ("17.2", "18.1")],
    "extensions": [fact(SERVER, "extensions", value, SETTING) for value in ("pg_stat_statements 1.11", "1.12")],
    "block size": [fact(SERVER, "block size", value) for value in ("8 kB", "4 kB")],
    "scale": [fact(DATA, "pgbench scale", value) for value in ("10", "20")],
    "threads": [fact(LOAD, "threads", value) for value in ("1", "4")],
    "host name": [fact(MACHINE, "host name", value, IDENTITY) for value in ("one", "other")],
}
ALLOWED = {
    Contract.CONFIG: {"parameter", "default", "sysctl"},
    Contract.STORAGE: {"scheduler", "mount", "file system"},
    Contract.MACHINE: {"sysctl", "scheduler", "mount", "file system", "CPUs"},
    Contract.MAJOR: {"default", "version", "extensions"},
    Contract.REPEAT: set[str](),
}


@cache
def base() -> tuple[Material, Material]:
    """Four runs a side; nothing changes them."""
    a, b = repeated(1000.0, 1080.0)
    return a, b


def sides(*names: str) -> tuple[Material, Material]:
    """The same but for some facts."""
    a, b = base()
    left, right = ([PAIRS[name][place] for name in names] for place in (0, 1))
    return replace(a, facts=(*a.facts, *left)), replace(b, facts=(*b.facts, *right))


def bare(name: str, contract: Contract) -> Comparison:
    """Without the facts of the made-up frames: only what differs."""
    a, b = sides()
    return compare(replace(a, facts=(PAIRS[name][0],)), replace(b, facts=(PAIRS[name][1],)), contract=contract)


@pytest.mark.parametrize("contract", list(Contract))
def test_each_contract_lets_only_its_own_facts_vary(contract: Contract) -> None:
    comparable = {name for name in PAIRS if bare(name, contract).comparable}
    assert comparable == ALLOWED[contract] | {"host name"}


def test_a_refusal_names_the_dimension_both_values_and_the_contract_that_fits() -> None:
    found = bare("parameter", Contract.REPEAT)
    assert found.reasons == ("--as repeat: max_wal_size differs: A 1GB, B 3GB; use --as config",)
    assert {row.verdict for row in found.phases[0].rows} == {NOT_COMPARABLE}
    assert "NOT COMPARABLE" in sheets_text(sheets(found))


def test_without_a_contract_that_fits_all_the_refusal_names_the_option() -> None:
    found = compare(*sides("parameter", "CPUs", "scale"), contract=Contract.CONFIG)
    assert [reason.rpartition("; ")[2] for reason in found.reasons] == [
        "use --under-test CPUs",
        "use --under-test 'pgbench scale'",
    ]
    joined = compare(*sides("parameter", "scale"), ["data"], contract=Contract.CONFIG)
    assert joined.comparable, "--under-test adds to a contract"


def test_a_repeat_of_equal_sides_has_its_verdicts_and_says_the_contract() -> None:
    found = compare(*sides("host name"), contract=Contract.REPEAT)
    assert found.comparable
    row = found.phases[0].row("tps")
    assert row is not None
    assert row.verdict == "better"
    assert "--as repeat allows differences in: nothing" in sheets_text(sheets(found))


def test_a_contract_says_what_it_could_not_check() -> None:
    a, b = sides()
    one = replace(a, facts=(*a.facts, PAIRS["sysctl"][0]))
    assert "known for one side only: vm.swappiness" in sheets_text(sheets(compare(one, b, contract=Contract.REPEAT)))
    bare_sides = (replace(side, facts=(PAIRS["CPUs"][0],)) for side in (a, b))
    told = sheets_text(sheets(compare(*bare_sides, contract=Contract.REPEAT)))
    assert "not checked, because neither side records it: system, server, parameters, data, load" in told


def test_json_has_the_contract_and_what_broke_it() -> None:
    told = comparison_json([bare("parameter", Contract.REPEAT)])["comparisons"][0]
    assert told["contract"]["as"] == "repeat"
    assert told["contract"]["broken_by"] == ["max_wal_size"]
    assert comparison_json([compare(*sides())])["comparisons"][0]["contract"] is None
