"""`check` has no advice of its own: what a fix sets is what `advise` and the parameter screen say."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from msgspec.structs import replace

from pgtop_tune.advice.proposal import propose
from pgtop_tune.health.check import Severity
from pgtop_tune.health.facts import CheckFacts
from pgtop_tune.health.judge import judge
from pgtop_tune.health.registry import CHECKS
from pgtop_tune.health.rules import advice_facts
from pgtop_tune.model.absence import Unavailable
from pgtop_tune.model.host import MemorySample
from tests.health.test_server_checks import CASES as SERVER_CASES
from tests.support.frames import host_sample
from tests.support.health_facts import GIB, MIB, details, found, spoilt
from tests.support.server_facts import spoiled

P2 = {
    "max_connections": "1000", "shared_buffers": "20GB", "work_mem": "32MB", "maintenance_work_mem": "1GB",
    "huge_pages": "try", "huge_pages_status": "off", "effective_cache_size": "4GB", "shared_memory_size": "21040MB",
}  # fmt: skip
AS_SHIPPED = {
    "vm.nr_hugepages": "0", "vm.overcommit_memory": "0", "vm.overcommit_ratio": "50", "vm.swappiness": "60",
    "vm.dirty_background_bytes": "0", "vm.dirty_background_ratio": "10", "kernel.numa_balancing": "1",
}  # fmt: skip
RAM_BYTES = int(23.5 * GIB)


def memory(committed_gib: float, **other: object) -> MemorySample:
    sample = host_sample(100).memory
    assert not isinstance(sample, Unavailable)
    return replace(sample, committed_bytes=int(committed_gib * GIB), swap_total_bytes=GIB, huge_pages=(), **other)


def p2(parameters: dict[str, str], settings: dict[str, str], committed_gib: float) -> CheckFacts:
    return spoilt(
        parameters, memory_bytes=RAM_BYTES, host={"memory": memory(committed_gib, total_bytes=RAM_BYTES)},
        machine=details(settings, numa_nodes=2),
    )  # fmt: skip


@pytest.mark.parametrize("committed_gib", [1.0, 5.8, 22.0])
def test_every_fix_has_the_value_of_the_proposal(committed_gib: float) -> None:
    facts = p2(P2, AS_SHIPPED, committed_gib)
    known = advice_facts(facts)
    assert known is not None
    proposal = propose(known)
    offered = {name: each.value for name, each in {**proposal.machine_half(), **proposal.server_half()}.items()}
    fixes = [(check.id, finding.fix) for check, finding in judge(CHECKS, facts).findings if finding.fix is not None]
    set_ = {(id_, *fix.parameter) for id_, fix in fixes if fix.parameter is not None and fix.parameter[0] in offered}
    assert {name: value for _, name, value in set_ if offered[name] != value} == {}
    assert {"shared_buffers", "vm.nr_hugepages", "vm.swappiness"} <= {name for _, name, _ in set_}
    scripts = "\n".join(fix.do for _, fix in fixes)
    assert "/etc/sysctl.d/99-pgtop-tune.conf" in scripts
    assert "90-postgresql" not in scripts
    # The server runs with 20 GB: strict accounting would leave no room before it is restarted.
    assert "sysctl -w vm.overcommit_memory=2" not in scripts
    assert "sysctl -w vm.overcommit_ratio" not in scripts


def conditions() -> Iterator[CheckFacts]:
    """Everything that checks of the server, of memory and of the machine find."""
    yield from (spoiled(**condition) for _, condition, _ in SERVER_CASES)
    yield spoiled({"log_autovacuum_min_duration": "-1", "track_io_timing": "off", "wal_keep_size": "900000"})
    yield from (p2(P2, AS_SHIPPED, committed_gib) for committed_gib in (1.0, 22.0))


def test_a_fix_sets_a_number_of_its_own_only_where_none_is_advised() -> None:
    """WAL-06 doubled wal_buffers, LOG-05 logged autovacuum from 10 minutes on, PLAN-02 switched jit off for reports."""
    others, seen = set[tuple[str, str, str, str | None]](), set[str]()
    for facts in conditions():
        known = advice_facts(facts)
        if known is None:
            continue
        proposal = propose(known)
        offered = {**proposal.machine_half(), **proposal.server_half()}
        for check, finding in judge(CHECKS, facts).findings:
            name, value = (finding.fix.parameter if finding.fix is not None else None) or ("", "")
            advised = offered[name].value if name in offered else None
            seen |= {name}
            others |= {(check.id, name, value, advised)} if advised not in (None, value) else set()
    assert others == set()
    assert {"wal_buffers", "max_slot_wal_keep_size", "log_autovacuum_min_duration", "max_wal_size"} <= seen


def test_the_server_of_p2_as_proposed_has_no_high_finding_of_memory() -> None:
    facts = p2(P2, AS_SHIPPED, 5.8)
    known = advice_facts(facts)
    assert known is not None
    proposal = propose(known)
    values = {name: each.value for name, each in proposal.parameters.items() if each.value is not None and name in P2}
    pages = int(proposal.settings["vm.nr_hugepages"].value or 0)
    made = {**P2, **values, "huge_pages_status": "on", "shared_memory_size": f"{pages * 2 - 30}MB"}
    settings = {name: each.value for name, each in proposal.settings.items() if each.value is not None}
    after = p2(made, {**AS_SHIPPED, **settings}, 5.8)
    said = judge([check for check in CHECKS if check.id[:3] in ("MEM", "HUG", "OS-", "CON")], after)
    assert [(check.id, each.says) for check, each in said.findings if each.severity.rank >= Severity.HIGH.rank] == []


def test_a_value_that_a_threshold_of_the_operators_finds_is_not_changed_for_it() -> None:
    facts = spoilt({"work_mem": "20MB"})
    check = next(check for check in CHECKS if check.id == "MEM-04")
    (finding,) = found(check, facts, warning=MIB)
    assert finding.fix is not None
    assert finding.fix.parameter is None
    assert "is the advised value" in finding.fix.do
