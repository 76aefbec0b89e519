"""The planner: costs that fit the disk, and disabled plan types."""

from __future__ import annotations

from typing import Final

from pgtop_tune.health import needs
from pgtop_tune.health.bounds import BadValue, bounded, thresholds
from pgtop_tune.health.check import Check, CheckFinding, Evidence, Findings, Limits, Severity, Threshold, Unknown
from pgtop_tune.health.facts import CheckFacts
from pgtop_tune.health.fixes import set_parameter
from pgtop_tune.health.questions import SCOPED
from pgtop_tune.health.rules import (
    advice_facts,
    advised_or,
    also_scoped,
    as_shown,
    scoped,
    scoped_finding,
    value_finding,
)
from pgtop_tune.model.machine import Workload

_GROUP: Final = "planner"
_ENABLES: Final = "enable_"
_OFF_BY_DEFAULT: Final = frozenset({"enable_partitionwise_join", "enable_partitionwise_aggregate"})


def _random(facts: CheckFacts, limits: Limits) -> Findings:
    queues = [queue for queue in facts.have(needs.MACHINE).queues if not queue.stacked]
    if not queues:
        yield Unknown("the disks under the data directory are not visible")
        return
    unsure = [queue.name for queue in queues if not queue.nvme and (queue.virtual or queue.rotational is None)]
    if unsure:
        yield Unknown(f"{', '.join(unsure)}: unknown whether flash or rotating (virtual disk)")
        return
    parameters = needs.parameters(facts)
    cost = parameters.number("random_page_cost")
    turning = [queue.name for queue in queues if not queue.nvme and queue.rotational]
    if not turning and cost > limits["cost"]:
        yield CheckFinding(
            says=f"random_page_cost is {cost:g} on flash ({', '.join(queue.name for queue in queues)}): indexes "
            "look more expensive than they are",
            evidence=(
                as_shown(facts, "random_page_cost", "seq_page_cost"),
                Evidence(
                    ", ".join(f"{queue.name} does not rotate" for queue in queues), "/sys/block/*/queue/rotational"
                ),
            ),
            fix=advised_or(facts, "random_page_cost", "1.1"),
        )


def _jit(facts: CheckFacts, limits: Limits) -> Findings:
    parameters = needs.parameters(facts)
    advice = advice_facts(facts)
    reports = advice is not None and advice.workload is Workload.OLAP
    if parameters.on("jit") and parameters.number("jit_above_cost") >= 0 and not reports:
        yield value_finding(
            facts,
            parameters.row("jit"),
            "a wrong estimate costs a short query tens of milliseconds for compilation",
            advised_or(facts, "jit", "off"),
            severity=Severity.INFO,
            beside=("jit_above_cost",),
            subject="",
        )


def _enabled(facts: CheckFacts, limits: Limits) -> Findings:
    parameters, names = needs.parameters(facts), set()
    for shown_row in facts.have(needs.PARAMETERS).parameters:
        if not shown_row.name.startswith(_ENABLES) or shown_row.vartype != "bool" or shown_row.name in _OFF_BY_DEFAULT:
            continue
        names.add(shown_row.name)
        row = parameters.row(shown_row.name)
        if row.setting == "off" and row.boot_val == "on":
            yield value_finding(facts, row, "all queries are planned without it", set_parameter(row, "on"))
    for assignment in scoped(facts, names):
        if assignment.is_off:
            yield scoped_finding(assignment, Severity.WARNING, "all its queries are planned without it")


def _compiles(facts: CheckFacts) -> bool:
    return needs.parameters(facts).on("jit")


def _reads_by_workers(facts: CheckFacts) -> bool:
    method = needs.parameters(facts).find("io_method")
    return method is not None and method.setting == "worker"


_COSTS: Final = (
    BadValue("random_page_cost", "4", "indexes look more expensive than they are on any disk", above=4),
    BadValue(
        "random_page_cost",
        "1.1",
        "random reads look cheaper than sequential reads, to which all costs are relative",
        below=1,
        special=(),
        limit="random_page_cost_low",
    ),
    BadValue("seq_page_cost", "1", "all other costs are relative to a value of 1", above=1, severity=Severity.INFO),
    BadValue(
        "default_statistics_target", "100", "estimates rest on a few hundred rows of each table", below=50, special=()
    ),
    BadValue(
        "default_statistics_target",
        "100",
        "ANALYZE and the planning of queries take several times as long",
        above=2000,
        limit="default_statistics_target_high",
    ),
    BadValue(
        "plan_cache_mode",
        "auto",
        "the server no longer chooses by cost whether to plan a prepared statement again",
        texts=("force_generic_plan", "force_custom_plan"),
    ),
    BadValue("join_collapse_limit", "8", "joins run in the order in which queries list them", below=8, special=()),
    BadValue(
        "join_collapse_limit",
        "8",
        "planning one query with many joins can take minutes",
        above=20,
        limit="join_collapse_limit_high",
    ),
    BadValue(
        "from_collapse_limit", "8", "subqueries are planned separately from their outer queries", below=8, special=()
    ),
    *(
        BadValue(name, better, says, below=least, special=())
        for name, least, better, says in (
            ("cpu_tuple_cost", 0.001, "0.01", "reading rows looks free, so plans that read most rows win"),
            ("cpu_operator_cost", 0.0001, "0.0025", "conditions look free, so plans that test each row win"),
            ("cpu_index_tuple_cost", 0.0001, "0.005", "index scans look free, however many entries they read"),
            ("parallel_setup_cost", 100, "1000", "the shortest queries start parallel workers"),
            ("parallel_tuple_cost", 0.001, "0.1", "plans move all rows from worker to leader as if that were free"),
            ("geqo_threshold", 8, "12", "the genetic optimizer orders even joins of a few tables"),
        )
    ),
    BadValue(
        "jit_above_cost",
        "100000",
        "the shortest queries are compiled, which takes longer than they run",
        below=10_000,
        special=(-1.0,),
        when=_compiles,
    ),
    BadValue(
        "effective_io_concurrency",
        "16",
        "bitmap scans and vacuum read one page at a time, on disks that serve many reads at once",
        below=1,
        special=(),
    ),
    BadValue(
        "maintenance_io_concurrency",
        "16",
        "vacuum and recovery read one page at a time, on disks that serve many reads at once",
        below=1,
        special=(),
    ),
    BadValue(
        "io_workers",
        "3",
        "all sessions wait for a single I/O worker",
        below=2,
        special=(),
        when=_reads_by_workers,
    ),
    BadValue(
        "io_method",
        "worker",
        "each session waits for one read after another, as before PostgreSQL 18",
        texts=("sync",),
        severity=Severity.INFO,
    ),
    BadValue(
        "constraint_exclusion",
        "partition",
        "queries on inheritance trees and UNION ALL views read all children",
        texts=("off",),
    ),
    BadValue(
        "geqo",
        "on",
        "queries with a dozen or more joins are planned exhaustively",
        texts=("off",),
        severity=Severity.INFO,
    ),
)
_PARALLEL: Final = (
    BadValue(
        "max_parallel_workers",
        "8",
        "max_worker_processes is the limit for all workers, including those of extensions",
        limited_by="max_worker_processes",
    ),
    BadValue(
        "max_parallel_workers_per_gather",
        "2",
        "plans count on workers that never start",
        limited_by="max_parallel_workers",
    ),
    BadValue(
        "max_parallel_maintenance_workers",
        "2",
        "index builds count on workers that never start",
        limited_by="max_parallel_workers",
    ),
    BadValue(
        "max_worker_processes",
        "8",
        "parallel queries, logical replication and extensions share them",
        below=4,
        special=(),
    ),
    *(
        BadValue(
            name,
            "off",
            "a developer option: queries run in parallel workers even where that is slower",
            texts=("on", "regress"),
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
        page="runtime-config-query.html#GUC-RANDOM-PAGE-COST",
        needs=(needs.PARAMETERS, needs.MACHINE),
        look=also_scoped(_random, "random_page_cost"),
        thresholds=(Threshold("cost", 2, "", "more, on flash, is a warning"),),
    ),
    Check(
        id="PLAN-02",
        group=_GROUP,
        title="just-in-time compilation",
        why="Compilation pays off in queries of seconds, and costs short ones more than their run time.",
        severity=Severity.INFO,
        page="jit-decision.html",
        needs=(needs.PARAMETERS,),
        look=also_scoped(_jit, "jit"),
    ),
    Check(
        id="PLAN-03",
        group=_GROUP,
        title="disabled plan types",
        why="An enable_… switch helps to find out why a plan was not chosen; left off, it degrades other queries.",
        page="runtime-config-query.html#RUNTIME-CONFIG-QUERY-ENABLE",
        needs=(needs.PARAMETERS, SCOPED),
        look=_enabled,
    ),
    Check(
        id="PLAN-04",
        group=_GROUP,
        title="costs and estimates",
        why="Costs unlike those of any disk, or poor row estimates, lead to bad plans everywhere.",
        page="runtime-config-query.html",
        needs=(needs.PARAMETERS,),
        look=bounded(_COSTS),
        thresholds=thresholds(_COSTS),
    ),
    Check(
        id="PLAN-05",
        group=_GROUP,
        title="parallel workers",
        why="If the workers of a parallel plan do not start, it takes a multiple of its estimate.",
        page="runtime-config-resource.html#GUC-MAX-PARALLEL-WORKERS",
        needs=(needs.PARAMETERS,),
        look=bounded(_PARALLEL),
        thresholds=thresholds(_PARALLEL),
    ),
)
