"""Memory, background writer and log: values that suit no server."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pgtop_tune.base.units import GB, MB
from pgtop_tune.changes.statements import elements
from pgtop_tune.health import needs
from pgtop_tune.health.bounds import BadValue, bounded, thresholds
from pgtop_tune.health.check import Check, CheckFinding, Evidence, Findings, Fix, Limits, Severity, about_several
from pgtop_tune.health.facts import CheckFacts
from pgtop_tune.health.fixes import by_hand
from pgtop_tune.health.needs import Parameters
from pgtop_tune.health.questions import CONFIGURED, SCOPED
from pgtop_tune.health.rules import Scoped, as_shown, first_few, on_standby, scoped, scoped_finding
from pgtop_tune.model.absence import Unavailable
from pgtop_tune.model.parameter_values import message_levels
from pgtop_tune.model.postgres import Parameter

_LOG: Final = "logging and statistics"
_TIMES: Final = ("%m", "%t", "%n")
_PROCESSES: Final = ("%p", "%c")
_FILES: Final = frozenset({"csvlog", "jsonlog"})
_SILENT_LEVELS: Final = frozenset({"error", "log", "fatal", "panic"})


def _tells_too_little(parameters: Parameters, row: Parameter) -> bool:
    return not all(any(word in row.setting for word in escapes) for escapes in (_TIMES, _PROCESSES))


def _has_no_collector(parameters: Parameters, row: Parameter) -> bool:
    destinations = {part.strip() for part in row.setting.lower().split(",")}
    return bool(destinations & _FILES) and not parameters.on("logging_collector")


def _grows_forever(parameters: Parameters, row: Parameter) -> bool:
    return parameters.on("logging_collector") and parameters.number("log_rotation_size") == 0 == parameters.number(
        row.name
    )


def _never_empties(parameters: Parameters, row: Parameter) -> bool:
    """Return whether the log only grows: only rotation by time empties it. Source: logfile_rotate() in syslogger.c."""
    return parameters.on("logging_collector") and parameters.on("log_truncate_on_rotation") and "%" not in row.setting


def _others_may_read(parameters: Parameters, row: Parameter) -> bool:
    return parameters.on("logging_collector") and bool(int(row.setting, 8) & 0o007)


_VISIBLE: Final = (
    BadValue("track_activities", "on", "pg_stat_activity does not show the statements of sessions", texts=("off",)),
    BadValue(
        "track_activity_query_size", "1kB", "statements are cut off before their condition", below=1024, unit="bytes"
    ),
)
_MEMORY: Final = (
    BadValue(
        "maintenance_work_mem",
        "64MB",
        "index builds sort on disk, and vacuum reads indexes several times",
        below=64 * MB,
        unit="bytes",
    ),
    BadValue(
        "autovacuum_work_mem",
        "-1",
        "autovacuum reads the indexes of large tables several times",
        below=64 * MB,
        unit="bytes",
    ),
    BadValue(
        "temp_buffers",
        "8MB",
        "each session with temporary tables may keep this much until it ends",
        above=GB,
        unit="bytes",
    ),
    BadValue("hash_mem_multiplier", "2", "each hash of each session may take this many times work_mem", above=8),
    BadValue(
        "dynamic_shared_memory_type",
        "posix",
        "parallel queries exchange rows through files in the data directory",
        texts=("mmap",),
    ),
    BadValue(
        "shared_memory_type",
        "mmap",
        "the kernel's limits for System V memory apply",
        texts=("sysv",),
        severity=Severity.INFO,
    ),
)
_PROCESSES_OWN: Final = (
    BadValue(
        "max_files_per_process",
        "1000",
        "sessions with many relations keep closing and reopening files",
        below=500,
        special=(),
    ),
    BadValue(
        "max_stack_depth",
        "2MB",
        "long expressions and deep views fail with an error",
        below=MB,
        unit="bytes",
        special=(),
    ),
)
_BACKGROUND: Final = (
    BadValue(
        "bgwriter_delay", "200ms", "backends write dirty buffers themselves between two rounds", above=1, unit="s"
    ),
    BadValue(
        "bgwriter_lru_multiplier",
        "2",
        "the background writer cleans fewer buffers than backends will need",
        below=1,
        special=(),
    ),
    BadValue("bgwriter_lru_maxpages", "100", "the background writer stops after this few buffers per round", below=50),
)
_LINES: Final = (
    BadValue(
        "log_min_messages",
        "warning",
        "the log lacks the server's warnings, perhaps also its errors",
        judged=lambda parameters, row: not _SILENT_LEVELS.isdisjoint(message_levels(row.setting)),
    ),
    BadValue(
        "log_min_error_statement",
        "error",
        "the log shows errors without the failed statements",
        texts=("log", "fatal", "panic"),
    ),
    BadValue("log_error_verbosity", "default", "the log lacks details and hints of errors", texts=("terse",)),
    BadValue(
        "log_line_prefix",
        "%m [%p] %q%u@%d ",
        "log lines lack the time or the process id",
        judged=_tells_too_little,
    ),
    BadValue("log_hostname", "off", "each new connection waits for a host name lookup", texts=("on",)),
    BadValue(
        "log_destination",
        "stderr",
        "only the logging collector writes these files, and logging_collector is off",
        judged=_has_no_collector,
    ),
    BadValue(
        "log_file_mode",
        "0600",
        "every user of the machine can read logged statements and the data in them",
        judged=_others_may_read,
    ),
    BadValue(
        "log_rotation_age",
        "1d",
        "log_rotation_size is 0 as well, so one file grows until the disk is full",
        judged=_grows_forever,
    ),
    BadValue(
        "log_filename",
        "postgresql-%Y-%m-%d_%H%M%S.log",
        "with a fixed name, log_truncate_on_rotation never empties the file",
        judged=_never_empties,
    ),
)


_CONNECTIONS: Final = "connections"
_CONFIGURATION: Final = "configuration"
_SHOWN: Final = 5
_MENDED: Final = 20
_PATH: Final = "search_path"
_HIDDEN: Final = "functions and tables of a schema before pg_catalog override the server's own"
_UNLIMITED: Final = {"statement_timeout": "0", "lock_timeout": "0", "temp_file_limit": "-1"}


def _leaves_few(parameters: Parameters, row: Parameter) -> bool:
    """Return whether more than half of max_connections is reserved for a few roles."""
    reserved = parameters.number(row.name) + parameters.number("superuser_reserved_connections")
    return reserved > parameters.number("max_connections") / 2


_SESSION_LIMITS: Final = (
    BadValue("statement_timeout", "0", "dumps, VACUUM and index builds end with an error", below=1, unit="s"),
    BadValue("transaction_timeout", "0", "dumps, VACUUM and index builds lose their session", below=60, unit="s"),
    BadValue(
        "temp_file_limit",
        "-1",
        "queries that sort slightly more than work_mem fail",
        below=64 * MB,
        unit="bytes",
        special=(-1.0,),
    ),
    BadValue(
        "reserved_connections",
        "0",
        "too few connections are left for all other roles, and the server refuses them",
        judged=_leaves_few,
    ),
    BadValue("lock_timeout", "0", "statements that wait for a short update of the same row fail", below=0.1, unit="s"),
    BadValue(
        "idle_in_transaction_session_timeout",
        "5min",
        "transactions of clients that are only slow are ended",
        below=1,
        unit="s",
        limit="idle_in_transaction_low",
    ),
    BadValue(
        "idle_in_transaction_session_timeout",
        "5min",
        "a forgotten transaction keeps locks and dead rows for hours",
        above=3600,
        unit="s",
        limit="idle_in_transaction_high",
    ),
    BadValue(
        "idle_session_timeout",
        "0",
        "idle sessions of connection pools are ended",
        above=0,
        unit="s",
        severity=Severity.INFO,
    ),
    BadValue(
        "deadlock_timeout",
        "1s",
        "even a short lock wait costs a deadlock check",
        below=0.1,
        unit="s",
        limit="deadlock_timeout_low",
    ),
    BadValue(
        "deadlock_timeout",
        "1s",
        "deadlocked sessions hang this long, and log_lock_waits reports no shorter wait",
        above=10,
        unit="s",
        limit="deadlock_timeout_high",
    ),
    BadValue(
        "max_locks_per_transaction",
        "64",
        "dumps and queries of partitioned tables run out of shared memory for locks",
        below=64,
    ),
    BadValue(
        "superuser_reserved_connections",
        "3",
        "when all connections are in use, no operator can connect",
        below=1,
        special=(),
    ),
)


def _is_not_empty(parameters: Parameters, row: Parameter) -> bool:
    return row.setting != ""


_SWITCHES: Final = (
    *(
        BadValue(name, better, says, texts=bad, severity=Severity.HIGH)
        for name, bad, better, says in (
            (
                "session_replication_role",
                ("replica", "local"),
                "origin",
                "with replica, triggers and foreign keys are disabled in all sessions",
            ),
            ("ignore_system_indexes", ("on",), "off", "each catalog lookup reads the whole catalog"),
            ("allow_system_table_mods", ("on",), "off", "one wrong statement of a superuser damages the catalog"),
        )
    ),
    *(
        BadValue(name, better, says, texts=bad)
        for name, bad, better, says in (
            ("default_transaction_read_only", ("on",), "off", "writes fail unless a session turns it off"),
            (
                "standard_conforming_strings",
                ("off",),
                "on",
                "backslashes in literals are escapes, which enables SQL injection",
            ),
            ("backslash_quote", ("on",), "safe_encoding", "\\' can hide the end of a literal"),
            ("transform_null_equals", ("on",), "off", "x = NULL means x IS NULL, against the standard"),
            ("exit_on_error", ("on",), "off", "each error ends its session"),
            ("row_security", ("off",), "on", "queries of tables with row security fail"),
            ("event_triggers", ("off",), "on", "no event trigger runs, not even for auditing"),
            ("array_nulls", ("off",), "on", "NULL in an array literal becomes a string"),
            ("lo_compat_privileges", ("on",), "off", "every role can read and write all large objects"),
            (
                "client_min_messages",
                ("debug5", "debug4", "debug3", "debug2", "debug1", "debug"),
                "notice",
                "each statement sends debug messages to its client",
            ),
            (
                "check_function_bodies",
                ("off",),
                "on",
                "a function with an invalid body is created, and fails when it runs",
            ),
        )
    ),
    BadValue(
        "gin_fuzzy_search_limit",
        "0",
        "searches with GIN indexes silently leave out rows at random",
        above=0,
        severity=Severity.HIGH,
    ),
    BadValue(
        "extra_float_digits", "1", "clients receive floating-point numbers with missing digits", below=0, special=()
    ),
    BadValue(
        "debug_io_direct",
        "",
        "a developer option: the server reads and writes past the kernel's cache",
        judged=_is_not_empty,
    ),
    *(
        BadValue(name, "0", "a developer option: each new connection waits for a debugger", above=0, unit="s")
        for name in ("post_auth_delay", "pre_auth_delay")
    ),
    BadValue(
        "default_transaction_isolation",
        "read committed",
        "clients have to retry transactions that fail to serialize",
        texts=("repeatable read", "serializable"),
        severity=Severity.INFO,
    ),
)
_FIND_SWITCHES: Final = bounded(_SWITCHES)


def _switches_of_sessions(facts: CheckFacts, limits: Limits) -> Findings:
    yield from _FIND_SWITCHES(facts, limits)
    for assignment in scoped(facts, {_PATH}):
        if _hides_the_catalogue(assignment.value):
            yield scoped_finding(assignment, Severity.WARNING, _HIDDEN)
    # Our session sets its own search_path: only the files have the server's.
    lines = CONFIGURED.of(facts)
    for _, line in () if isinstance(lines, Unavailable) else lines:
        if line.name == _PATH and _hides_the_catalogue(line.setting or ""):
            yield CheckFinding(
                says=f"{_PATH} is {line.setting}: {_HIDDEN}",
                evidence=(Evidence(f"{_PATH}={line.setting}", CONFIGURED.source),),
                fix=by_hand(f"Remove pg_catalog from {_PATH} in {line.place}, then SELECT pg_reload_conf();"),
                subject=_PATH,
            )


def _hides_the_catalogue(path: str) -> bool:
    """Return whether a path names pg_catalog after another schema; the server looks there first if it is not named."""
    return "pg_catalog" in (elements(_PATH, path) or ())[1:]


def _unlimited(facts: CheckFacts, limits: Limits) -> Findings:
    parameters = needs.parameters(facts)
    elsewhere = {assignment.name for assignment in scoped(facts, _UNLIMITED)}
    free = [
        name
        for name, off in _UNLIMITED.items()
        if name not in elsewhere and (row := parameters.find(name)) is not None and row.setting == off
    ]
    if free and not on_standby(facts):
        yield CheckFinding(
            severity=Severity.INFO,
            says=f"no session is limited by {', '.join(free)}",
            evidence=(as_shown(facts, *free), Evidence("set for no role or database", "pg_db_role_setting")),
            fix=by_hand(
                "Give the roles of applications limits: ALTER ROLE … SET statement_timeout = '1min', lock_timeout = "
                "'10s'; ALTER SYSTEM SET temp_file_limit.",
                "ALTER ROLE … RESET statement_timeout",
            ),
            subject="limits",
        )


def _overriding_settings(facts: CheckFacts, limits: Limits) -> Findings:
    assignments = [
        Scoped(database=row.database, role=row.role, name=name, value=value)
        for _, row in facts.have(SCOPED)
        for name, _, value in (assignment.partition("=") for assignment in row.settings)
    ]
    if assignments:
        yield about_several(
            assignments, lambda scoped: f"{scoped.where} {scoped.name}", lambda some, _: _overriding_finding(some)
        )


def _overriding_finding(assignments: Sequence[Scoped]) -> CheckFinding:
    names = first_few((f"{assignment.name} for {assignment.where}" for assignment in assignments), _SHOWN, "; ")
    fixes = [assignment.fix for assignment in assignments[:_MENDED]]
    verb = "override" if len(assignments) > 1 else "overrides"
    return CheckFinding(
        severity=Severity.INFO,
        says=f"{len(assignments)} {'settings' if len(assignments) > 1 else 'setting'} of roles and databases {verb} "
        f"the server's: {names}",
        evidence=tuple(
            Evidence(f"{assignment.where}: {assignment.name}={assignment.value}", SCOPED.source)
            for assignment in assignments[:_SHOWN]
        ),
        fix=Fix(
            do="\n".join(fix.do for fix in fixes),
            undo="\n".join(fix.undo for fix in fixes),
            remark="for new sessions; only where a setting is not needed"
            + (f"; {len(assignments) - _MENDED} more are not listed" if len(assignments) > _MENDED else ""),
        ),
        subject="settings",
    )


_GROUP: Final = "vacuum"
_MANY: Final = 10_000
_NOT_FROZEN: Final = "insert-only tables are not frozen until wraparound forces it, all at once"
_FAILSAFE: Final = ("vacuum_failsafe_age", "vacuum_multixact_failsafe_age")
_FULL_READS: Final = {
    "vacuum_freeze_table_age": "autovacuum_freeze_max_age",
    "vacuum_multixact_freeze_table_age": "autovacuum_multixact_freeze_max_age",
}
"""Age from which VACUUM reads whole tables → age at which autovacuum is forced to."""


def _is_beyond(parameters: Parameters, row: Parameter) -> bool:
    """Return whether the value is beyond the forced age; a default is not, however early autovacuum freezes."""
    return row.setting != row.boot_val and parameters.number(row.name) > parameters.number(_FULL_READS[row.name])


def _has_no_threshold(parameters: Parameters, row: Parameter) -> bool:
    return parameters.number(row.name) == 0 == parameters.number(row.name.replace("threshold", "scale_factor"))


_STARTS: Final = (
    BadValue(
        "autovacuum_naptime",
        "1min",
        "small busy tables fill with dead rows before autovacuum processes them",
        above=300,
        unit="s",
    ),
    BadValue("autovacuum_max_workers", "3", "while one large table is vacuumed, all others wait", below=2, special=()),
    BadValue(
        "autovacuum_max_workers",
        "3",
        "no more workers start than autovacuum_worker_slots allows",
        limited_by="autovacuum_worker_slots",
        special=(),
    ),
    *(
        BadValue(name, better, says, above=limit)
        for name, limit, better, says in (
            ("autovacuum_vacuum_scale_factor", 0.2, "0.2", "this share of a large table is dead before it is vacuumed"),
            ("autovacuum_analyze_scale_factor", 0.2, "0.1", "this share of a large table changes before ANALYZE"),
            ("autovacuum_vacuum_threshold", _MANY, "50", "smaller tables are never vacuumed"),
            ("autovacuum_analyze_threshold", _MANY, "50", "smaller tables are never analyzed"),
            ("autovacuum_vacuum_insert_scale_factor", 1, "0.2", _NOT_FROZEN),
            ("autovacuum_vacuum_insert_threshold", 1_000_000, "1000", _NOT_FROZEN),
        )
    ),
    *(
        BadValue(
            name,
            "50",
            "its scale factor is 0 as well, so each round processes all tables with a changed row",
            judged=_has_no_threshold,
        )
        for name in ("autovacuum_vacuum_threshold", "autovacuum_analyze_threshold")
    ),
    *(
        BadValue(name, better, says, above=1_000_000_000, limit=f"{name}_high")
        for name, better, says in (
            (
                "autovacuum_freeze_max_age",
                "200000000",
                "freezing begins only when half of all transaction ids are used",
            ),
            (
                "autovacuum_multixact_freeze_max_age",
                "400000000",
                "freezing begins only when half of all multixacts are used",
            ),
        )
    ),
    *(
        BadValue(
            name,
            better,
            "all tables are read again and again to freeze rows, at unplanned hours",
            below=100_000_000,
            limit=f"{name}_low",
        )
        for name, better in (
            ("autovacuum_freeze_max_age", "200000000"),
            ("autovacuum_multixact_freeze_max_age", "400000000"),
        )
    ),
    *(
        BadValue(
            name,
            "1600000000",
            "VACUUM ignores cost limits and skips indexes long before there is danger",
            below=1_000_000_000,
            special=(),
        )
        for name in _FAILSAFE
    ),
    *(
        BadValue(
            name,
            "1600000000",
            "the failsafe starts when too few ids are left to finish VACUUM in time",
            above=2_000_000_000,
            limit=f"{name}_high",
        )
        for name in _FAILSAFE
    ),
    BadValue("autovacuum_vacuum_insert_threshold", "1000", _NOT_FROZEN, texts=("-1",)),
    *(
        BadValue(
            name,
            "150000000",
            "VACUUM reads whole tables again and again, even where nothing has changed",
            below=10_000_000,
            special=(),
        )
        for name in _FULL_READS
    ),
    *(
        BadValue(
            name,
            "150000000",
            f"VACUUM uses 95 % of {forced} instead, and freezes only shortly before it must",
            judged=_is_beyond,
            severity=Severity.INFO,
        )
        for name, forced in _FULL_READS.items()
    ),
    BadValue(
        "vacuum_freeze_min_age",
        "50000000",
        "VACUUM leaves nearly all rows unfrozen until wraparound forces a freeze",
        above=200_000_000,
    ),
    BadValue(
        "autovacuum_vacuum_cost_delay",
        "2ms",
        "autovacuum reads and writes without a pause, whatever the load",
        texts=("0",),
        severity=Severity.INFO,
    ),
    BadValue(
        "vacuum_cost_delay",
        "0",
        "manual VACUUM and ANALYZE are throttled, which is meant for autovacuum",
        above=0,
        unit="s",
        severity=Severity.INFO,
    ),
)


CHECKS: Final[tuple[Check, ...]] = (
    Check(
        id="MEM-08",
        group="memory",
        title="memory of single operations",
        why="These settings are multiplied by sessions, or decide how often a job reads the same data again.",
        page="runtime-config-resource.html#RUNTIME-CONFIG-RESOURCE-MEMORY",
        needs=(needs.PARAMETERS,),
        look=bounded((*_MEMORY, *_PROCESSES_OWN)),
        thresholds=thresholds((*_MEMORY, *_PROCESSES_OWN)),
    ),
    Check(
        id="BGW-04",
        group="background writer",
        title="background writer rounds",
        why="If the background writer does too little, backends write dirty pages before they read their own.",
        page="runtime-config-resource.html#RUNTIME-CONFIG-RESOURCE-BACKGROUND-WRITER",
        needs=(needs.PARAMETERS,),
        look=bounded(_BACKGROUND),
        thresholds=thresholds(_BACKGROUND),
    ),
    Check(
        id="LOG-06",
        group=_LOG,
        title="content of the log",
        why="After an incident, a log without times, processes, statements or warnings explains nothing.",
        page="runtime-config-logging.html#RUNTIME-CONFIG-LOGGING-WHAT",
        needs=(needs.PARAMETERS,),
        look=bounded(_LINES),
        thresholds=thresholds(_LINES),
    ),
    Check(
        id="OBS-04",
        group=_LOG,
        title="visible sessions",
        why="An operator who cannot see running statements cannot end a harmful one.",
        page="runtime-config-statistics.html#GUC-TRACK-ACTIVITIES",
        needs=(needs.PARAMETERS,),
        look=bounded(_VISIBLE),
        thresholds=thresholds(_VISIBLE),
    ),
    Check(
        id="CON-05",
        group=_CONNECTIONS,
        title="session limits",
        why="A limit that is too short ends good statements; one that is too long tolerates bad ones.",
        page="runtime-config-client.html#RUNTIME-CONFIG-CLIENT-STATEMENT",
        needs=(needs.PARAMETERS, SCOPED),
        look=bounded(_SESSION_LIMITS),
        thresholds=thresholds(_SESSION_LIMITS),
    ),
    Check(
        id="CON-06",
        group=_CONNECTIONS,
        title="sessions without limits",
        why="One forgotten query can hold dead rows for days, or fill the disk with temporary files.",
        severity=Severity.INFO,
        page="runtime-config-client.html#GUC-STATEMENT-TIMEOUT",
        needs=(needs.SERVER, needs.PARAMETERS, SCOPED),
        look=_unlimited,
    ),
    Check(
        id="CFG-08",
        group=_CONFIGURATION,
        title="switches meant for single sessions",
        why="These switches are for one session and one purpose; on a whole server they change what statements do.",
        severity=Severity.HIGH,
        page="runtime-config-client.html",
        needs=(needs.PARAMETERS, SCOPED),
        look=_switches_of_sessions,
        thresholds=thresholds(_SWITCHES),
    ),
    Check(
        id="CFG-09",
        group=_CONFIGURATION,
        title="settings of roles and databases",
        why="A test with one role measures settings that sessions of other roles do not have.",
        severity=Severity.INFO,
        page="sql-alterrole.html",
        needs=(SCOPED,),
        look=_overriding_settings,
    ),
    Check(
        id="VAC-07",
        group=_GROUP,
        title="autovacuum limits",
        why="With limits for small tables and rare changes, large tables grow for weeks before autovacuum begins.",
        page="runtime-config-autovacuum.html",
        needs=(needs.PARAMETERS,),
        look=bounded(_STARTS),
        thresholds=thresholds(_STARTS),
    ),
)
