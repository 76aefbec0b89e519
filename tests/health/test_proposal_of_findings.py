"""Whatever a check warns of, the proposal has a value for, or there is a reason why only people can decide."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from msgspec.structs import replace

from pgtop_tune.advice.facts import Advice
from pgtop_tune.health.check import Check, CheckFinding, Severity
from pgtop_tune.health.facts import CheckFacts
from pgtop_tune.health.judge import judge
from pgtop_tune.health.proposals import ProposedValues, in_place, proposed_values, replacements_of_unsuitable
from pgtop_tune.health.registry import CHECKS
from pgtop_tune.health.rules import COUNTED_SINCE
from pgtop_tune.model.absence import Reason, Unavailable
from tests.health.test_advised_fixes import conditions
from tests.health.test_host_checks import CASES as HOST_CASES
from tests.support.health_facts import parameter, spoilt
from tests.support.made_conditions import PARAMETERS
from tests.support.server_facts import spoiled

GONE: Final = Unavailable(Reason.NOT_LOCAL, "the server is on another machine")
COUNTERS: Final = "its counters stay as they are after a change: only an operator knows whether it was made since"
CHOICE: Final = "people choose"
OBJECT: Final = "an object of a database or a session, no setting"
HARDWARE: Final = "hardware, the kernel's command line or the service that starts the server"
BY_HAND: Final = {
    **dict.fromkeys(("OS-01", "HUGE-02", "HUGE-03"), "several settings in an order, which advice has rules for"),
    **dict.fromkeys(("OBS-01", "LOG-07", "SEC-10"), "one parameter, which the conditions of this test do not spoil"),
    **dict.fromkeys(("BGW-01", "BGW-03", "WAL-01", "WAL-02"), COUNTERS),
    **dict.fromkeys(
        (
            "OS-05", "OS-08", "OS-09", "OS-10", "OS-11", "TIME-01", "CPU-01", "CPU-02", "CPU-03", "DISK-01", "DISK-02",
            "DISK-03", "DISK-04", "DISK-08", "DUR-06", "OBS-03", "CFG-04", "CFG-05",
        ),
        HARDWARE,
    ),
    **dict.fromkeys(
        (
            "ARC-02", "ARC-03", "ARC-04", "ARC-05", "BAK-01", "CON-01", "CON-03", "CON-04", "SEC-01", "SEC-03",
            "SEC-04", "SEC-05", "SEC-07", "SEC-08", "SEC-09", "SEC-11", "SEC-12", "SEC-13", "SEC-15", "CFG-01",
            "CFG-02", "CFG-03", "BEN-01", "BEN-02", "BEN-03", "REP-01", "REP-03", "REP-04", "REP-06", "MEM-03",
            "MEM-04", "MEM-07", "EXT-01", "EXT-02", "VAC-05", "REP-07", "BAK-02", "CON-07", "SEC-16", "SEC-17",
        ),
        CHOICE,
    ),
    **dict.fromkeys(
        (
            "SLOT-01", "SLOT-02", "TXN-02", "TXN-03", "TXN-04", "TXN-05", "VAC-02", "VAC-03", "VAC-04", "VAC-08",
            "TAB-01", "TAB-02", "TAB-03", "TAB-04", "TAB-06", "TAB-07", "TAB-08", "IDX-01", "IDX-02", "IDX-03",
            "IDX-04", "KEY-01", "KEY-02", "COL-01",
        ),
        OBJECT,
    ),
}  # fmt: skip
"""Checks above info that set no parameter, and why."""


def facts_of_all() -> Iterator[CheckFacts]:
    yield from (offering(facts) for facts in conditions())
    yield from (spoilt(**spoils) for _, spoils, _, _ in HOST_CASES)


def offering(facts: CheckFacts) -> CheckFacts:
    """The facts of a server that takes any word for an enum, with values that a file has set; made-up rows have not."""
    words = tuple(
        {
            finding.fix.parameter[1]
            for _, finding in judge(CHECKS, facts).findings
            if finding.fix is not None and finding.fix.parameter is not None
        }
    )
    newest = facts.frames[-1]
    assert not isinstance(newest.postgres, Unavailable)
    sample = newest.postgres.parameters
    assert not isinstance(sample, Unavailable)
    rows = tuple(
        replace(row, enumvals=words if row.vartype == "enum" else (), source="configuration file")
        for row in sample.parameters
    )
    postgres = replace(newest.postgres, parameters=replace(sample, parameters=rows))
    return replace(facts, frames=(*facts.frames[:-1], replace(newest, postgres=postgres)))


def to_be_proposed(findings: Sequence[tuple[Check, CheckFinding]]) -> Iterator[tuple[Check, str, str]]:
    """Findings above info that set one thing to a value; not those that counters keep."""
    for check, finding in findings:
        fix, stays = finding.fix, any(each.source == COUNTED_SINCE for each in finding.evidence)
        if finding.severity is not Severity.INFO and not stays and fix is not None and fix.parameter is not None:
            yield check, *fix.parameter


def test_a_value_that_a_check_warns_of_is_proposed_to_be_another_one() -> None:
    """random_page_cost 40 on an unknown disk and a background writer that is off were warned of, and not proposed."""
    left = set[tuple[str, str, str, str | None]]()
    seen = {check for check, _, _ in PARAMETERS}
    for facts in facts_of_all():
        findings = judge(CHECKS, facts).findings
        values = proposed_values(facts, findings)
        assert isinstance(values, ProposedValues)
        proposed = {row.name: row.proposed for row in values.rows}
        for check, name, value in to_be_proposed(findings):
            seen.add(check.id)
            # An empty value is none that a proposal can show; the machine of a case is seen in two places.
            if value and proposed.get(name) != value and name != "transparent_hugepage/enabled":
                left.add((check.id, name, value, proposed.get(name)))
    assert left == set()
    above_info = {check.id for check in CHECKS if check.severity is not Severity.INFO}
    assert above_info - seen - BY_HAND.keys() == set()
    assert BY_HAND.keys() - above_info == set()


def test_advice_has_what_the_check_of_the_same_frames_would_set() -> None:
    facts = spoiled({"bgwriter_lru_maxpages": "0", "fsync": "off", "log_duration": "on"})
    assert set(replacements_of_unsuitable(facts.frames)) >= {"bgwriter_lru_maxpages", "fsync", "log_duration"}
    assert replacements_of_unsuitable(facts.frames)["bgwriter_lru_maxpages"].value == "100"
    assert set(replacements_of_unsuitable(spoiled().frames)) == set()


def test_the_worst_finding_has_the_say_and_what_is_only_worth_knowing_has_none() -> None:
    findings = judge(CHECKS, spoiled({"jit": "on", "bgwriter_lru_maxpages": "0"})).findings
    assert in_place(findings) == {
        "bgwriter_lru_maxpages": Advice(
            "100",
            "BGW-02: bgwriter_lru_maxpages is 0: the background writer is off, and backends clean buffers themselves",
        )
    }


def test_a_value_beyond_another_one_is_proposed_to_be_no_more_than_that() -> None:
    """max_parallel_workers was to become 8 where max_worker_processes is 5."""
    rows = tuple(parameter(name, value, vartype="integer") for name, value in (("max_parallel_workers", "64"),))
    facts = spoiled({"max_worker_processes": "5"}, more=rows)
    facts = replace(facts, frames=tuple(replace(frame, host=GONE) for frame in facts.frames), machine=GONE)
    (check,) = (each for each in CHECKS if each.id == "PLAN-05")
    (finding,) = (each for _, each in judge([check], facts).findings if each.subject == "max_parallel_workers")
    assert finding.fix is not None
    assert finding.fix.parameter == ("max_parallel_workers", "5")
