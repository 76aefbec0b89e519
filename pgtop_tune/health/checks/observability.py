"""Log and counters of the server: too much distorts a benchmark, too little leaves its result unexplained."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import PurePosixPath
from typing import Final

from pgtop_tune.advice.rules.server import SLOW_CLOCK_NS
from pgtop_tune.base.sql_quoting import composed, identifier
from pgtop_tune.changes.statements import elements
from pgtop_tune.health import needs
from pgtop_tune.health.bounds import BadValue, bounded
from pgtop_tune.health.check import Check, CheckFinding, Evidence, Findings, Limits, Severity, Threshold, Unknown
from pgtop_tune.health.facts import CheckFacts
from pgtop_tune.health.fixes import by_hand, preloading, set_parameter
from pgtop_tune.health.needs import Parameters
from pgtop_tune.health.questions import OBJECTS, SCOPED
from pgtop_tune.health.rules import (
    advice_facts,
    advised_or,
    also_scoped,
    as_shown,
    in_database,
    on_standby,
    scoped,
    scoped_finding,
    value_finding,
    value_is,
)
from pgtop_tune.model.parameter_values import message_levels
from pgtop_tune.model.postgres import Parameter

_GROUP: Final = "logging and statistics"
_WITH_VIEWS: Final = ("pg_stat_statements", "pg_stat_kcache", "pg_wait_sampling", "pg_qualstats", "pg_stat_monitor")
"""Libraries that count for views of the extension of their name."""
_EXTENSIONS_MOST: Final = 50
"""Extensions that the question asks of each database."""
_DEVELOPER: Final = (
    *(
        BadValue(name, "off", "every statement writes to the log", texts=("on",))
        for name in (
            "log_parser_stats",
            "log_planner_stats",
            "log_executor_stats",
            "log_statement_stats",
            "debug_print_parse",
            "debug_print_rewritten",
            "debug_print_plan",
            "log_duration",
        )
    ),
    BadValue(
        "log_min_messages",
        "warning",
        "the server fills the log with debug messages",
        judged=lambda parameters, row: any(level.startswith("debug") for level in message_levels(row.setting)),
    ),
)
_DURATIONS: Final = ("log_min_duration_statement", "log_min_duration_sample")
_SAMPLED: Final = "log_transaction_sample_rate"
_STATEMENTS: Final = frozenset({"mod", "all"})
_DISTORTS: Final = "every statement writes to the log and waits for it"


def _log_statement(facts: CheckFacts, limits: Limits) -> Findings:
    row = needs.parameters(facts).row("log_statement")
    if row.setting in _STATEMENTS:
        fix = set_parameter(row, "ddl")
        yield value_finding(facts, row, _DISTORTS, fix, beside=("log_destination",), subject="")
    for assignment in scoped(facts, {"log_statement"}):
        if assignment.value.lower() in _STATEMENTS:
            yield scoped_finding(assignment, Severity.WARNING, _DISTORTS)


def _log_duration(facts: CheckFacts, limits: Limits) -> Findings:
    parameters = needs.parameters(facts)
    for name in _DURATIONS:
        limit_s = parameters.number(name)
        sampled = name.endswith("sample")
        if (
            limit_s < 0
            or limit_s >= limits["seconds"]
            or (sampled and parameters.number("log_statement_sample_rate") == 0)
        ):
            continue
        row = parameters.row(name)
        fix = set_parameter(row, "-1") if sampled else advised_or(facts, name, "1s")
        yield value_finding(facts, row, "under load most statements are logged", fix, beside=("log_destination",))
    rate = parameters.find(_SAMPLED)
    if rate is not None and parameters.number(_SAMPLED) > limits["share"]:
        says, fix = "every statement of this share of transactions is logged", set_parameter(rate, "0")
        yield value_finding(facts, rate, says, fix, beside=("log_destination",))


def _auto_explain(facts: CheckFacts, limits: Limits) -> Findings:
    parameters = needs.parameters(facts)
    limit = parameters.find("auto_explain.log_min_duration")
    if limit is None or parameters.number("auto_explain.log_min_duration") < 0:
        return
    analyze, timing = parameters.on("auto_explain.log_analyze"), parameters.on("auto_explain.log_timing")
    if analyze and timing:
        yield CheckFinding(
            says="auto_explain measures every node of every statement (log_analyze with log_timing), logged or not",
            evidence=(
                as_shown(facts, "auto_explain.log_analyze", "auto_explain.log_timing", "auto_explain.log_min_duration"),
            ),
            fix=set_parameter(parameters.row("auto_explain.log_timing"), "off"),
            subject="log_timing",
        )
    if parameters.number("auto_explain.log_min_duration") < limits["seconds"]:
        says, fix = "under load most plans are logged", set_parameter(limit, "1s")
        yield value_finding(facts, limit, says, fix, subject="log_min_duration")


def _io_timing(facts: CheckFacts, limits: Limits) -> Findings:
    row = needs.parameters(facts).row("track_io_timing")
    server = advice_facts(facts)
    clock_ns = None if server is None else server.clock_ns
    dear = clock_ns is not None and clock_ns > limits["nanoseconds"]
    cost = () if clock_ns is None else (Evidence(f"{clock_ns:.0f} ns to read the clock", "--measure"),)
    if row.setting == "off" and not dear:
        yield CheckFinding(
            severity=Severity.INFO,
            says="track_io_timing is off: the duration of reads and writes is unknown",
            evidence=(as_shown(facts, "track_io_timing"), *cost),
            fix=advised_or(facts, "track_io_timing", "on"),
        )
    elif row.setting == "on" and dear:
        yield CheckFinding(
            says=f"track_io_timing is on, and reading the clock takes {clock_ns:.0f} ns: each I/O reads it twice",
            evidence=(as_shown(facts, "track_io_timing"), *cost),
            fix=advised_or(facts, "track_io_timing", "off"),
        )


def _statements(facts: CheckFacts, limits: Limits) -> Findings:
    parameters = needs.parameters(facts)
    track, queries = parameters.find("pg_stat_statements.track"), parameters.row("compute_query_id")
    if track is None:
        library = parameters.visible("shared_preload_libraries")
        yield CheckFinding(
            severity=Severity.INFO,
            says="pg_stat_statements is not loaded: the cost of individual statements is unknown",
            evidence=(Evidence("no parameter pg_stat_statements.track", "pg_settings.name"),),
            fix=preloading(library, "pg_stat_statements", " on the primary" if on_standby(facts) else ""),
        )
    for row, wrong, better in ((track, "none", "top"), (queries, "off", "auto")) if track is not None else ():
        if row.setting == wrong:
            yield CheckFinding(
                says=f"pg_stat_statements is loaded but counts nothing: {row.name} is {row.setting}",
                evidence=(as_shown(facts, row.name),),
                fix=advised_or(facts, row.name, better),
                subject=row.name,
            )
    for assignment in scoped(facts, {"compute_query_id", "pg_stat_statements.track"}) if track is not None else ():
        if assignment.is_off or assignment.value.lower() == "none":
            yield scoped_finding(assignment, Severity.INFO, "pg_stat_statements counts none of its statements")
    planning = parameters.find("pg_stat_statements.track_planning")
    if planning is not None and planning.setting == "on":
        says = "sessions that run the same statement contend for its entry"
        yield value_finding(facts, planning, says, set_parameter(planning, "off"), subject="track_planning")
    yield from _created_nowhere(facts, parameters)


def _created_nowhere(facts: CheckFacts, parameters: Parameters) -> Findings:
    """Yield libraries that count and whose views no database has."""
    library = parameters.find("shared_preload_libraries")
    named = () if library is None else elements(library.name, library.setting) or ()
    loaded = {PurePosixPath(name).name.removesuffix(".so") for name in named}
    names = [name for name in _WITH_VIEWS if name in loaded]
    if not names:
        return
    extensions = facts.have(OBJECTS)
    rows = [row for _, row in extensions if row.kind == "extension"]
    created = {row.name[0] for row in rows}
    home = "postgres" if "postgres" in extensions.databases or not extensions.databases else extensions.databases[0]
    for name in names:
        if name in created:
            continue
        if extensions.refused or any(row.n_all > _EXTENSIONS_MOST for row in rows):
            yield Unknown(f"extension {name} may be in a database that was not read completely")
            continue
        do, undo = (composed(f"{verb} EXTENSION {{name}};", name=identifier(name)) for verb in ("CREATE", "DROP"))
        yield CheckFinding(
            says=f"{name} is loaded and counts, but no database has its extension to read the counts",
            evidence=(
                as_shown(facts, "shared_preload_libraries"),
                Evidence(f"{len(extensions.databases)} databases without {name}", "pg_extension.extname"),
            ),
            fix=in_database(home, do, undo, remark="on the primary" if on_standby(facts) else ""),
            subject=f"extension {name}",
        )


def _off(row: Parameter) -> bool:
    return row.setting == "off"


def _disabled(row: Parameter) -> bool:
    return row.setting == "-1"


_HELPFUL: Final[tuple[tuple[str, Callable[[Parameter], bool], str, str], ...]] = (
    ("log_checkpoints", _off, "on", "the duration and volume of checkpoints"),
    ("log_lock_waits", _off, "on", "lock waits and their blockers"),
    ("log_temp_files", _disabled, "10MB", "statements that spilled to disk"),
    ("log_autovacuum_min_duration", _disabled, "10min", "the VACUUM runs of autovacuum"),
    ("log_autoanalyze_min_duration", _disabled, "10min", "the ANALYZE runs of autovacuum"),
)
"""Parameter, what is wrong, what is better, what the log then tells."""


def _log_too_little(facts: CheckFacts, limits: Limits) -> Findings:
    parameters: Parameters = needs.parameters(facts)
    for name, wrong, better, tells in _HELPFUL:
        row = parameters.find(name)
        if row is not None and wrong(row):
            fix = advised_or(facts, name, better)
            yield value_finding(facts, row, f"the log lacks {tells}", fix, severity=Severity.INFO)


_SLOW: Final = (Threshold("seconds", 0.1, "s", "a limit below this logs most statements under load"),)

CHECKS: Final[tuple[Check, ...]] = (
    Check(
        id="LOG-01",
        group=_GROUP,
        title="statement logging",
        why="Logging a statement can take longer than running it, and a benchmark then measures the log's disk.",
        page="runtime-config-logging.html#GUC-LOG-STATEMENT",
        needs=(needs.PARAMETERS, SCOPED),
        look=_log_statement,
    ),
    Check(
        id="LOG-02",
        group=_GROUP,
        title="slow statement logging",
        why="A limit near 0 logs every statement as soon as load slows them down, which slows them further.",
        page="runtime-config-logging.html#GUC-LOG-MIN-DURATION-STATEMENT",
        needs=(needs.PARAMETERS,),
        look=also_scoped(_log_duration, *_DURATIONS, _SAMPLED),
        thresholds=(*_SLOW, Threshold("share", 0.1, "", "share of logged transactions: a warning above it")),
    ),
    Check(
        id="LOG-03",
        group=_GROUP,
        title="developer options",
        why="These options help to debug the server, and cost more than most statements do.",
        page="runtime-config-developer.html",
        needs=(needs.PARAMETERS,),
        look=bounded(_DEVELOPER),
    ),
    Check(
        id="LOG-04",
        group=_GROUP,
        title="auto_explain",
        why="Timing every node of a plan reads the clock twice for every row.",
        page="auto-explain.html",
        needs=(needs.PARAMETERS,),
        look=also_scoped(_auto_explain, "auto_explain.log_timing", "auto_explain.log_min_duration"),
        thresholds=_SLOW,
    ),
    Check(
        id="LOG-05",
        group=_GROUP,
        title="missing log lines",
        why="After an incident the log is the only evidence.",
        severity=Severity.INFO,
        page="runtime-config-logging.html#RUNTIME-CONFIG-LOGGING-WHAT",
        needs=(needs.PARAMETERS,),
        look=_log_too_little,
    ),
    Check(
        id="OBS-01",
        group=_GROUP,
        title="track_io_timing",
        why="Without track_io_timing a slow disk looks like a slow server; the option costs two clock readings for "
        "each I/O.",
        page="runtime-config-statistics.html#GUC-TRACK-IO-TIMING",
        needs=(needs.PARAMETERS,),
        look=also_scoped(_io_timing, "track_io_timing"),
        thresholds=(Threshold("nanoseconds", SLOW_CLOCK_NS, "ns", "a slower measured clock is too expensive"),),
    ),
    Check(
        id="OBS-02",
        group=_GROUP,
        title="pg_stat_statements",
        why="Tuning without knowing the statements is guesswork.",
        page="pgstatstatements.html",
        needs=(needs.PARAMETERS,),
        asks=(OBJECTS, SCOPED),
        look=_statements,
    ),
    Check(
        id="OBS-03",
        group=_GROUP,
        title="assertions",
        why="A development build checks itself all the time, and its results do not apply to a production build.",
        severity=Severity.HIGH,
        page="runtime-config-preset.html#GUC-DEBUG-ASSERTIONS",
        needs=(needs.PARAMETERS,),
        look=value_is(
            "debug_assertions",
            {"on"},
            "off",
            Severity.HIGH,
            "the server was built with assertions: several times slower than a production build",
            fixed=by_hand("Install a server built without --enable-cassert."),
        ),
    ),
)
