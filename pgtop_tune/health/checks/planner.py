"""The planner: costs that fit the disk, and disabled plan types."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from pgtop_tune.advice.facts import Workload
from pgtop_tune.health import needs
from pgtop_tune.health.check import Check, Evidence, Finding, Limits, Severity, Threshold, Unknown
from pgtop_tune.health.facts import CheckFacts
from pgtop_tune.health.fixes import set_parameter
from pgtop_tune.health.questions import SCOPED
from pgtop_tune.health.rules import advice_facts, advised_or, also_scoped, scoped, scoped_finding, setting

_GROUP: Final = "planner"
_ENABLES: Final = "enable_"
_OFF_BY_DEFAULT: Final = frozenset({"enable_partitionwise_join", "enable_partitionwise_aggregate"})


def _random(facts: CheckFacts, limits: Limits) -> Iterator[Finding | Unknown]:
    queues = [queue for queue in facts.have(needs.MACHINE).queues if not queue.stacked]
    if not queues:
        yield Unknown("the disks under the data directory are not visible")
        return
    unsure = [queue.name for queue in queues if not queue.nvme and (queue.virtual or queue.rotational is None)]
    if unsure:
        yield Unknown(f"{', '.join(unsure)} does not report whether it rotates (a virtual disk)")
        return
    known = needs.parameters(facts)
    cost = known.number("random_page_cost")
    turning = [queue.name for queue in queues if not queue.nvme and queue.rotational]
    if not turning and cost > limits["cost"]:
        yield Finding(
            severity=Severity.WARNING,
            says=f"random_page_cost is {cost:g} on flash ({', '.join(queue.name for queue in queues)}): indexes "
            "look more "
            "expensive than they are",
            evidence=(
                setting(facts, "random_page_cost", "seq_page_cost"),
                Evidence(
                    ", ".join(f"{queue.name} does not rotate" for queue in queues), "/sys/block/*/queue/rotational"
                ),
            ),
            fix=advised_or(facts, "random_page_cost", "1.1"),
        )


def _jit(facts: CheckFacts, limits: Limits) -> Iterator[Finding]:
    known = needs.parameters(facts)
    advice = advice_facts(facts)
    reports = advice is not None and advice.workload is Workload.WAREHOUSE
    if known.on("jit") and known.number("jit_above_cost") >= 0 and not reports:
        yield Finding(
            severity=Severity.INFO,
            says="jit is on: a wrong estimate makes a short query pay tens of milliseconds for compiling",
            evidence=(setting(facts, "jit", "jit_above_cost"),),
            fix=advised_or(facts, "jit", "off"),
        )


def _enabled(facts: CheckFacts, limits: Limits) -> Iterator[Finding]:
    known, names = needs.parameters(facts), set()
    for each in facts.have(needs.PARAMETERS).parameters:
        if not each.name.startswith(_ENABLES) or each.vartype != "bool" or each.name in _OFF_BY_DEFAULT:
            continue
        names.add(each.name)
        row = known.row(each.name)
        if row.setting == "off" and row.boot_val == "on":
            yield Finding(
                severity=Severity.WARNING,
                says=f"{row.name} is off: all queries of all sessions run without it",
                evidence=(setting(facts, row.name),),
                fix=set_parameter(row, "on"),
                subject=row.name,
            )
    for found in scoped(facts, names):
        if found.is_off:
            yield scoped_finding(found, Severity.WARNING, "all its queries run without it")


CHECKS: Final[tuple[Check, ...]] = (
    Check(
        id="PLAN-01",
        group=_GROUP,
        title="cost of random reads",
        why="The default of 4 is for rotating disks; on flash it makes the planner read whole tables.",
        severity=Severity.WARNING,
        page="runtime-config-query.html#GUC-RANDOM-PAGE-COST",
        needs=(needs.PARAMETERS, needs.MACHINE),
        look=also_scoped(_random, "random_page_cost"),
        thresholds=(Threshold("cost", 2, "", "more, on flash, is a warning"),),
    ),
    Check(
        id="PLAN-02",
        group=_GROUP,
        title="just-in-time compilation",
        why="Compiling pays off in queries of seconds, and costs short ones more than their run time.",
        severity=Severity.INFO,
        page="jit-decision.html",
        needs=(needs.PARAMETERS,),
        look=also_scoped(_jit, "jit"),
    ),
    Check(
        id="PLAN-03",
        group=_GROUP,
        title="disabled plan types",
        why="An enable_… switch helps to find out why a plan was not chosen; left off it degrades other queries.",
        severity=Severity.WARNING,
        page="runtime-config-query.html#RUNTIME-CONFIG-QUERY-ENABLE",
        needs=(needs.PARAMETERS, SCOPED),
        look=_enabled,
    ),
)
