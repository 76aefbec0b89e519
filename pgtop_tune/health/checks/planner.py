"""The planner: costs that fit the disk, and disabled plan types."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from pgtop_tune.health import needs
from pgtop_tune.health.bounds import Bound, bounded, thresholds
from pgtop_tune.health.check import Check, Evidence, Finding, Limits, Severity, Threshold, Unknown
from pgtop_tune.health.facts import CheckFacts
from pgtop_tune.health.fixes import set_parameter
from pgtop_tune.health.questions import SCOPED
from pgtop_tune.health.rules import advice_facts, advised_or, also_scoped, scoped, scoped_finding, setting
from pgtop_tune.model.machine import Workload

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
    reports = advice is not None and advice.workload is Workload.OLAP
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


def _compiles(facts: CheckFacts) -> bool:
    return needs.parameters(facts).on("jit")


def _reads_by_workers(facts: CheckFacts) -> bool:
    method = needs.parameters(facts).find("io_method")
    return method is not None and method.setting == "worker"


_COSTS: Final = (
    Bound(
        name="random_page_cost",
        above=4,
        better="4",
        says="indexes look more expensive than they are on any disk",
    ),
    Bound(
        name="random_page_cost",
        below=1,
        better="1.1",
        special=(),
        limit="random_page_cost_low",
        says="reading at random looks cheaper than the costs that all others are relative to",
    ),
    Bound(
        name="seq_page_cost",
        above=1,
        better="1",
        severity=Severity.INFO,
        says="all other costs are meant relative to 1",
    ),
    Bound(
        name="default_statistics_target",
        below=50,
        better="100",
        special=(),
        says="estimates rest on a few hundred rows of each table",
    ),
    Bound(
        name="default_statistics_target",
        above=2000,
        better="100",
        limit="default_statistics_target_high",
        says="each ANALYZE and each planning of a query takes a multiple",
    ),
    Bound(
        name="plan_cache_mode",
        words=("force_generic_plan", "force_custom_plan"),
        better="auto",
        says="the server no longer chooses by cost whether a prepared statement is planned anew",
    ),
    Bound(
        name="join_collapse_limit",
        below=8,
        better="8",
        special=(),
        says="joins run in the order in which queries name them",
    ),
    Bound(
        name="join_collapse_limit",
        above=20,
        better="8",
        limit="join_collapse_limit_high",
        says="planning one query with many joins can take minutes",
    ),
    Bound(
        name="from_collapse_limit",
        below=8,
        better="8",
        special=(),
        says="subqueries are planned apart from the queries around them",
    ),
    *(
        Bound(name=name, below=least, better=better, special=(), says=says)
        for name, least, better, says in (
            ("cpu_tuple_cost", 0.001, "0.01", "reading rows looks free, and the plans that read most of them win"),
            ("cpu_operator_cost", 0.0001, "0.0025", "conditions look free, and plans that test each row win"),
            ("cpu_index_tuple_cost", 0.0001, "0.005", "reading an index looks free, however much of it is read"),
            ("parallel_setup_cost", 100, "1000", "the shortest queries start parallel workers"),
            ("parallel_tuple_cost", 0.001, "0.1", "plans move all rows from worker to leader as if that were free"),
            ("geqo_threshold", 8, "12", "joins of a few tables are ordered by chance"),
        )
    ),
    Bound(
        name="jit_above_cost",
        below=10_000,
        better="100000",
        special=(-1.0,),
        when=_compiles,
        says="the shortest queries are compiled, which takes longer than they run",
    ),
    Bound(
        name="effective_io_concurrency",
        below=1,
        better="16",
        special=(),
        says="bitmap scans and vacuum read one page after the other, on a disk that can do many at once",
    ),
    Bound(
        name="maintenance_io_concurrency",
        below=1,
        better="16",
        special=(),
        says="vacuum and recovery read one page after the other, on a disk that can do many at once",
    ),
    Bound(
        name="io_workers",
        below=2,
        better="3",
        special=(),
        when=_reads_by_workers,
        says="all sessions wait for the one process that reads for them",
    ),
    Bound(
        name="io_method",
        words=("sync",),
        better="worker",
        severity=Severity.INFO,
        says="each session waits for its reads one after the other, as before PostgreSQL 18",
    ),
    Bound(
        name="constraint_exclusion",
        words=("off",),
        better="partition",
        says="queries of inheritance children and UNION ALL read all of them",
    ),
    Bound(
        name="geqo",
        words=("off",),
        better="on",
        severity=Severity.INFO,
        says="queries with a dozen joins and more are planned exhaustively",
    ),
)
_PARALLEL: Final = (
    Bound(
        name="max_parallel_workers",
        other="max_worker_processes",
        better="8",
        says="there are no more processes than max_worker_processes, which extensions need as well",
    ),
    Bound(
        name="max_parallel_workers_per_gather",
        other="max_parallel_workers",
        better="2",
        says="plans count on workers that never start",
    ),
    Bound(
        name="max_parallel_maintenance_workers",
        other="max_parallel_workers",
        better="2",
        says="index builds count on workers that never start",
    ),
    Bound(
        name="max_worker_processes",
        below=4,
        better="8",
        special=(),
        says="parallel queries, logical replication and extensions share them",
    ),
    *(
        Bound(
            name=name,
            words=("on", "regress"),
            better="off",
            says="queries run in parallel workers where that is slower, for tests of the server",
        )
        for name in ("debug_parallel_query", "force_parallel_mode")
    ),
)

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
    Check(
        id="PLAN-04",
        group=_GROUP,
        title="costs and estimates",
        why="Costs of another order than those of any disk, or guessed numbers of rows, make wrong plans everywhere.",
        severity=Severity.WARNING,
        page="runtime-config-query.html",
        needs=(needs.PARAMETERS,),
        look=bounded(_COSTS),
        thresholds=thresholds(_COSTS),
    ),
    Check(
        id="PLAN-05",
        group=_GROUP,
        title="parallel workers",
        why="A plan made for workers that do not start runs alone, at a multiple of its estimate.",
        severity=Severity.WARNING,
        page="runtime-config-resource.html#GUC-MAX-PARALLEL-WORKERS",
        needs=(needs.PARAMETERS,),
        look=bounded(_PARALLEL),
        thresholds=thresholds(_PARALLEL),
    ),
)
