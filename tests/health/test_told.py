"""A machine that cannot be seen, as of a managed server: what the operator says of it is judged; what is seen stays."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from pgtop_tune.base.errors import UsageProblem
from pgtop_tune.health.check import Check
from pgtop_tune.health.facts import CheckFacts
from pgtop_tune.health.formats.for_people import text_lines
from pgtop_tune.health.judge import judge
from pgtop_tune.health.proposals import proposed_values
from pgtop_tune.health.registry import by_id
from pgtop_tune.health.report import ProposedValues
from pgtop_tune.health.setup import CheckSetup, OperatorClaims
from pgtop_tune.model.absence import Reason, Unavailable
from pgtop_tune.model.machine import DiskKind, Workload
from tests.support.health_facts import found, parameter, spoilt, unknown
from tests.support.machine_frames import GIB

GONE = Unavailable(Reason.NOT_LOCAL, "the server is on another machine")
MEMORY: Check = by_id("MEM-01")


def managed() -> CheckFacts:
    """Over TCP, without a look at the machine."""
    facts = spoilt()
    return replace(facts, frames=tuple(replace(frame, host=GONE) for frame in facts.frames), machine=GONE)


def proposed(facts: CheckFacts) -> dict[str, str]:
    values = proposed_values(facts)
    assert isinstance(values, ProposedValues)
    return {row.name: row.proposed for row in values.rows}


def test_the_memory_rule_is_judged_by_what_is_said() -> None:
    assert unknown(MEMORY, managed())
    small, large = (OperatorClaims(memory_bytes=size * GIB, cpus=4).of(managed()) for size in (4, 64))
    assert found(MEMORY, small)
    assert (found(MEMORY, large), unknown(MEMORY, large)) == ((), ())


def test_values_are_proposed_for_what_is_said() -> None:
    assert "shared_buffers" not in proposed(managed())
    told = OperatorClaims(memory_bytes=64 * GIB, cpus=16, disk=DiskKind.NETWORK, workload=Workload.OLAP)
    values = proposed(told.of(managed()))
    assert values["shared_buffers"] == "16GB"
    assert not any(name.startswith("vm.") for name in values), "its machine is not ours to set"


def test_what_is_seen_is_not_talked_over() -> None:
    assert judge([MEMORY], OperatorClaims(memory_bytes=GIB, cpus=1).of(spoilt())) == judge([MEMORY], spoilt())


def test_a_report_tells_words_that_counted() -> None:
    wanted = CheckSetup((MEMORY,), {}, told=OperatorClaims(memory_bytes=64 * GIB, cpus=4))
    assert wanted.judged(spoilt()).changed == ()
    shown = wanted.judged(managed())
    assert shown.changed == (("the operator's words on the machine", "64 GB of memory, 4 CPUs"),)
    assert dict(shown.identity)["machine"] == "4 CPUs, 64 GB of memory"


def test_disk_and_purpose_are_what_is_said() -> None:
    def costs(value: str, disk: DiskKind) -> str | None:
        made = spoilt(parameters={"random_page_cost": parameter("random_page_cost", value)})
        return proposed(OperatorClaims(disk=disk).of(made)).get("random_page_cost")

    assert costs("4", DiskKind.NVME) == "1.1"
    assert costs("1.1", DiskKind.HDD) == "4"


def test_a_report_through_a_pooler_says_so() -> None:
    facts = spoilt()
    server = facts.frames[-1].postgres
    assert not isinstance(server, Unavailable)
    assert not isinstance(server.server, Unavailable)
    pooled = replace(server, server=replace(server.server, pooled=True))
    shown = judge([MEMORY], replace(facts, frames=(*facts.frames[:-1], replace(facts.frames[-1], postgres=pooled))))
    assert text_lines(shown)[1] == "through a pooler: findings about sessions are about the pooler's"
    assert not any("pooler" in line for line in text_lines(judge([MEMORY], facts)))


@pytest.mark.parametrize(
    ("memory", "cpus", "said"),
    [
        ("64GB", None, "need each other"),
        ("", 4, "need each other"),
        ("-5GB", 4, "not a plausible memory size"),
        ("0", 4, "not a plausible memory size"),
        ("64", 4, "not a plausible memory size"),
        ("99999999TB", 4, "not a plausible memory size"),
        ("much", 4, "not a number"),
    ],
)
def test_memory_and_cpus_are_those_of_a_machine(memory: str, cpus: int | None, said: str) -> None:
    from pgtop_tune.cli.commands.check import CheckRequest
    from pgtop_tune.cli.commands.check.report import _given_machine

    with pytest.raises(UsageProblem, match=said):
        _given_machine(CheckRequest(host_memory=memory, host_cpus=cpus))
