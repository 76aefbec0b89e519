"""Memory, background writer and log: values that suit no server."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from pgtop_tune.base.units import GB, MB
from pgtop_tune.changes.statements import elements
from pgtop_tune.health import needs
from pgtop_tune.health.bounds import Bound, bounded, thresholds
from pgtop_tune.health.check import Check, Evidence, Finding, Fix, Limits, Severity, Unknown, about_several
from pgtop_tune.health.facts import CheckFacts
from pgtop_tune.health.fixes import words
from pgtop_tune.health.needs import Parameters
from pgtop_tune.health.questions import CONFIGURED, SCOPED
from pgtop_tune.health.rules import Scoped, on_standby, scoped, scoped_finding, setting
from pgtop_tune.model.absence import Unavailable
from pgtop_tune.model.parameter_values import message_levels
from pgtop_tune.model.postgres import Parameter

_LOG: Final = "logging and statistics"
_TIMES: Final = ("%m", "%t", "%n")
_PROCESSES: Final = ("%p", "%c")
_FILES: Final = frozenset({"csvlog", "jsonlog"})
_SILENT_LEVELS: Final = frozenset({"error", "log", "fatal", "panic"})


def _tells_too_little(known: Parameters, row: Parameter) -> bool:
    return not all(any(word in row.setting for word in words) for words in (_TIMES, _PROCESSES))


def _has_no_collector(known: Parameters, row: Parameter) -> bool:
    destinations = {part.strip() for part in row.setting.lower().split(",")}
    return bool(destinations & _FILES) and not known.on("logging_collector")


def _grows_forever(known: Parameters, row: Parameter) -> bool:
    return known.on("logging_collector") and known.number("log_rotation_size") == 0 == known.number(row.name)


def _never_empties(known: Parameters, row: Parameter) -> bool:
    """A file is emptied only when rotation by time begins another one. Source: logfile_rotate() in syslogger.c."""
    return known.on("logging_collector") and known.on("log_truncate_on_rotation") and "%" not in row.setting


def _others_may_read(known: Parameters, row: Parameter) -> bool:
    return known.on("logging_collector") and bool(int(row.setting, 8) & 0o007)


_VISIBLE: Final = (
    Bound(
        name="track_activities",
        words=("off",),
        better="on",
        says="pg_stat_activity does not show what sessions do",
    ),
    Bound(
        name="track_activity_query_size",
        below=1024,
        unit="bytes",
        better="1kB",
        says="statements are cut before their condition",
    ),
)
_MEMORY: Final = (
    Bound(
        name="maintenance_work_mem",
        below=64 * MB,
        unit="bytes",
        better="64MB",
        says="index builds sort on disk, and vacuum reads indexes several times",
    ),
    Bound(
        name="autovacuum_work_mem",
        below=64 * MB,
        unit="bytes",
        better="-1",
        says="autovacuum reads the indexes of large tables several times",
    ),
    Bound(
        name="temp_buffers",
        above=GB,
        unit="bytes",
        better="8MB",
        says="each session that uses temporary tables keeps that much until it ends",
    ),
    Bound(
        name="hash_mem_multiplier",
        above=8,
        better="2",
        says="each hash of each session may take that many times work_mem",
    ),
    Bound(
        name="dynamic_shared_memory_type",
        words=("mmap",),
        better="posix",
        says="parallel queries exchange rows through files of the data directory",
    ),
    Bound(
        name="shared_memory_type",
        words=("sysv",),
        better="mmap",
        severity=Severity.INFO,
        says="the kernel's limits for System V memory apply",
    ),
)
_PROCESSES_OWN: Final = (
    Bound(
        name="max_files_per_process",
        below=500,
        better="1000",
        special=(),
        says="a session with many relations closes and opens their files all the time",
    ),
    Bound(
        name="max_stack_depth",
        below=MB,
        unit="bytes",
        better="2MB",
        special=(),
        says="long expressions and deep views fail with an error",
    ),
)
_BACKGROUND: Final = (
    Bound(
        name="bgwriter_delay",
        above=1,
        unit="s",
        better="200ms",
        says="backends write dirty buffers themselves between two rounds",
    ),
    Bound(
        name="bgwriter_lru_multiplier",
        below=1,
        better="2",
        special=(),
        says="it writes fewer buffers than backends will need",
    ),
    Bound(
        name="bgwriter_lru_maxpages",
        below=50,
        better="100",
        says="it stops after so few buffers of a round",
    ),
)
_LINES: Final = (
    Bound(
        name="log_min_messages",
        judged=lambda known, row: not _SILENT_LEVELS.isdisjoint(message_levels(row.setting)),
        better="warning",
        says="the log lacks warnings of the server, or errors as well",
    ),
    Bound(
        name="log_min_error_statement",
        words=("log", "fatal", "panic"),
        better="error",
        says="the log has errors without the statements that failed",
    ),
    Bound(
        name="log_error_verbosity",
        words=("terse",),
        better="default",
        says="the log lacks details and hints of errors",
    ),
    Bound(
        name="log_line_prefix",
        judged=_tells_too_little,
        better="%m [%p] %q%u@%d ",
        says="lines of the log lack their time or their process",
    ),
    Bound(
        name="log_hostname",
        words=("on",),
        better="off",
        says="each new connection waits for the name server",
    ),
    Bound(
        name="log_destination",
        judged=_has_no_collector,
        better="stderr",
        says="only the collector writes these files, and logging_collector is off",
    ),
    Bound(
        name="log_file_mode",
        judged=_others_may_read,
        better="0600",
        says="each user of the machine may read statements, and the data in them",
    ),
    Bound(
        name="log_rotation_age",
        judged=_grows_forever,
        better="1d",
        says="log_rotation_size is 0 as well, so one file grows until the disk is full",
    ),
    Bound(
        name="log_filename",
        judged=_never_empties,
        better="postgresql-%Y-%m-%d_%H%M%S.log",
        says="with one name for ever, log_truncate_on_rotation never empties the file",
    ),
)


_CONNECTIONS: Final = "connections"
_CONFIGURATION: Final = "configuration"
_SHOWN: Final = 5
_MENDED: Final = 20
_PATH: Final = "search_path"
_HIDDEN: Final = "functions and tables of a schema before pg_catalog take the place of the server's own"
_UNLIMITED: Final = {"statement_timeout": "0", "lock_timeout": "0", "temp_file_limit": "-1"}


def _leaves_few(known: Parameters, row: Parameter) -> bool:
    """More than half of max_connections is for members of pg_use_reserved_connections and superusers."""
    reserved = known.number(row.name) + known.number("superuser_reserved_connections")
    return reserved > known.number("max_connections") / 2


_SESSION_LIMITS: Final = (
    Bound(
        name="statement_timeout",
        below=1,
        unit="s",
        better="0",
        says="dumps, VACUUM and index builds end with an error",
    ),
    Bound(
        name="transaction_timeout",
        below=60,
        unit="s",
        better="0",
        says="dumps, VACUUM and index builds lose their session",
    ),
    Bound(
        name="temp_file_limit",
        below=64 * MB,
        unit="bytes",
        better="-1",
        special=(-1.0,),
        says="queries fail that sort a little more than work_mem",
    ),
    Bound(
        name="reserved_connections",
        judged=_leaves_few,
        better="0",
        says="so few connections are left for all other roles that the server refuses them",
    ),
    Bound(
        name="lock_timeout",
        below=0.1,
        unit="s",
        better="0",
        says="statements fail that only wait for a short update of the same row",
    ),
    Bound(
        name="idle_in_transaction_session_timeout",
        below=1,
        unit="s",
        better="5min",
        limit="idle_in_transaction_low",
        says="it ends transactions of clients that are only slow",
    ),
    Bound(
        name="idle_in_transaction_session_timeout",
        above=3600,
        unit="s",
        better="5min",
        limit="idle_in_transaction_high",
        says="a forgotten transaction keeps locks and dead rows for hours",
    ),
    Bound(
        name="idle_session_timeout",
        above=0,
        unit="s",
        better="0",
        severity=Severity.INFO,
        says="it ends sessions that a pool of connections keeps for later",
    ),
    Bound(
        name="deadlock_timeout",
        below=0.1,
        unit="s",
        better="1s",
        limit="deadlock_timeout_low",
        says="each short wait for a lock pays for a search for deadlocks",
    ),
    Bound(
        name="deadlock_timeout",
        above=10,
        unit="s",
        better="1s",
        limit="deadlock_timeout_high",
        says="sessions in a deadlock hang that long, and log_lock_waits reports no shorter wait",
    ),
    Bound(
        name="max_locks_per_transaction",
        below=64,
        better="64",
        says="dumps and partitioned tables run out of shared memory for locks",
    ),
    Bound(
        name="superuser_reserved_connections",
        below=1,
        better="3",
        special=(),
        says="with all connections in use, no operator gets in",
    ),
)


def _is_set(known: Parameters, row: Parameter) -> bool:
    return row.setting != ""


_SWITCHES: Final = (
    *(
        Bound(name=name, words=bad, better=better, severity=Severity.HIGH, says=says)
        for name, bad, better, says in (
            (
                "session_replication_role",
                ("replica", "local"),
                "origin",
                "with replica, triggers and foreign keys of all sessions are off",
            ),
            ("ignore_system_indexes", ("on",), "off", "each look into the catalogue reads it whole"),
            ("allow_system_table_mods", ("on",), "off", "one wrong statement of a superuser damages the catalogue"),
        )
    ),
    *(
        Bound(name=name, words=bad, better=better, says=says)
        for name, bad, better, says in (
            ("default_transaction_read_only", ("on",), "off", "writes fail unless a session asks for more"),
            (
                "standard_conforming_strings",
                ("off",),
                "on",
                "backslashes in literals escape, which opens injections",
            ),
            ("backslash_quote", ("on",), "safe_encoding", "\\' in literals can hide the end of a literal"),
            ("transform_null_equals", ("on",), "off", "x = NULL means x IS NULL, against the standard"),
            ("exit_on_error", ("on",), "off", "each error ends its session"),
            ("row_security", ("off",), "on", "queries of tables with row security fail"),
            ("event_triggers", ("off",), "on", "no event trigger runs, those of an audit included"),
            ("array_nulls", ("off",), "on", "NULL in the text of an array becomes the word"),
            ("lo_compat_privileges", ("on",), "off", "every role reads and writes all large objects"),
            (
                "client_min_messages",
                ("debug5", "debug4", "debug3", "debug2", "debug1", "debug"),
                "notice",
                "each statement sends lines for developers to its client",
            ),
            ("check_function_bodies", ("off",), "on", "a function with a wrong body is made, and fails when it runs"),
        )
    ),
    Bound(
        name="gin_fuzzy_search_limit",
        above=0,
        better="0",
        severity=Severity.HIGH,
        says="searches with GIN indexes leave out rows at random, without a word",
    ),
    Bound(
        name="extra_float_digits",
        below=0,
        better="1",
        special=(),
        says="clients read floating-point numbers with digits missing",
    ),
    Bound(
        name="debug_io_direct",
        judged=_is_set,
        better="",
        says="a developer option: the server reads and writes past the kernel's cache",
    ),
    *(
        Bound(name=name, above=0, unit="s", better="0", says="each new connection waits, for a debugger to attach")
        for name in ("post_auth_delay", "pre_auth_delay")
    ),
    Bound(
        name="default_transaction_isolation",
        words=("read uncommitted", "repeatable read", "serializable"),
        better="read committed",
        severity=Severity.INFO,
        says="clients have to repeat transactions that fail to serialize",
    ),
)
_SWITCHED: Final = bounded(_SWITCHES)


def _switched(facts: CheckFacts, limits: Limits) -> Iterator[Finding | Unknown]:
    yield from _SWITCHED(facts, limits)
    for each in scoped(facts, {_PATH}):
        if _hides_the_catalogue(each.value):
            yield scoped_finding(each, Severity.WARNING, _HIDDEN)
    # Our own session has a path of its own: what the server has stands only in its files.
    lines = CONFIGURED.of(facts)
    for _, line in () if isinstance(lines, Unavailable) else lines:
        if line.name == _PATH and _hides_the_catalogue(line.setting or ""):
            yield Finding(
                severity=Severity.WARNING,
                says=f"{_PATH} is {line.setting}: {_HIDDEN}",
                evidence=(Evidence(f"{_PATH}={line.setting}", CONFIGURED.source),),
                fix=words(f"Leave pg_catalog out of it in {line.place}, then SELECT pg_reload_conf();"),
                subject=_PATH,
            )


def _hides_the_catalogue(path: str) -> bool:
    """Where a path does not name pg_catalog, the server looks there first."""
    return "pg_catalog" in (elements(_PATH, path) or ())[1:]


def _unlimited(facts: CheckFacts, limits: Limits) -> Iterator[Finding]:
    known = needs.parameters(facts)
    elsewhere = {found.name for found in scoped(facts, _UNLIMITED)}
    free = [
        name
        for name, off in _UNLIMITED.items()
        if name not in elsewhere and (row := known.find(name)) is not None and row.setting == off
    ]
    if free and not on_standby(facts):
        yield Finding(
            severity=Severity.INFO,
            says=f"no session has a limit by {', '.join(free)}",
            evidence=(setting(facts, *free), Evidence("no role or database has one", "pg_db_role_setting")),
            fix=words(
                "Give the roles of applications limits: ALTER ROLE … SET statement_timeout = '1min', lock_timeout = "
                "'10s'; ALTER SYSTEM SET temp_file_limit.",
                "ALTER ROLE … RESET statement_timeout",
            ),
            subject="limits",
        )


def _overriding(facts: CheckFacts, limits: Limits) -> Iterator[Finding]:
    found = [
        Scoped(database=row.database, role=row.role, name=name, value=value)
        for _, row in facts.have(SCOPED)
        for name, _, value in (assignment.partition("=") for assignment in row.settings)
    ]
    if found:
        yield about_several(found, lambda each: f"{each.where} {each.name}", lambda some, _: _overridden(some))


def _overridden(found: Sequence[Scoped]) -> Finding:
    shown = "; ".join(f"{each.name} for {each.where}" for each in found[:_SHOWN]) + (
        " …" if len(found) > _SHOWN else ""
    )
    fixes = [each.fix for each in found[:_MENDED]]
    verb = "override" if len(found) > 1 else "overrides"
    return Finding(
        severity=Severity.INFO,
        says=f"{len(found)} {'settings' if len(found) > 1 else 'setting'} of roles and databases {verb} the "
        f"server's: {shown}",
        evidence=tuple(Evidence(f"{each.where}: {each.name}={each.value}", SCOPED.source) for each in found[:_SHOWN]),
        fix=Fix(
            do="\n".join(fix.do for fix in fixes),
            undo="\n".join(fix.undo for fix in fixes),
            remark="for new sessions; where a setting has no use"
            + (f"; {len(found) - _MENDED} more are not listed" if len(found) > _MENDED else ""),
        ),
        subject="settings",
    )


_GROUP: Final = "vacuum"
_MANY: Final = 10_000
_NOT_FROZEN: Final = "tables that only grow are not frozen until wraparound forces it, all at once"
_FAILSAFE: Final = ("vacuum_failsafe_age", "vacuum_multixact_failsafe_age")
_FULL_READS: Final = {
    "vacuum_freeze_table_age": "autovacuum_freeze_max_age",
    "vacuum_multixact_freeze_table_age": "autovacuum_multixact_freeze_max_age",
}
"""Age from which VACUUM reads whole tables → age at which autovacuum is forced to."""


def _is_beyond(known: Parameters, row: Parameter) -> bool:
    """A default is not: it is as good as any, however early autovacuum freezes."""
    return row.setting != row.boot_val and known.number(row.name) > known.number(_FULL_READS[row.name])


def _at_each_row(known: Parameters, row: Parameter) -> bool:
    return known.number(row.name) == 0 == known.number(row.name.replace("threshold", "scale_factor"))


_STARTS: Final = (
    Bound(
        name="autovacuum_naptime",
        above=300,
        unit="s",
        better="1min",
        says="small busy tables are full of dead rows before autovacuum looks at them",
    ),
    Bound(
        name="autovacuum_max_workers",
        below=2,
        better="3",
        special=(),
        says="while one large table is vacuumed, no other one is",
    ),
    Bound(
        name="autovacuum_max_workers",
        other="autovacuum_worker_slots",
        better="3",
        special=(),
        says="no more workers start than autovacuum_worker_slots allows",
    ),
    *(
        Bound(name=name, above=limit, better=better, says=says)
        for name, limit, better, says in (
            ("autovacuum_vacuum_scale_factor", 0.2, "0.2", "that share of a large table is dead before it is vacuumed"),
            ("autovacuum_analyze_scale_factor", 0.2, "0.1", "that share of a large table changes before ANALYZE"),
            ("autovacuum_vacuum_threshold", _MANY, "50", "smaller tables are never vacuumed"),
            ("autovacuum_analyze_threshold", _MANY, "50", "smaller tables are never analyzed"),
            ("autovacuum_vacuum_insert_scale_factor", 1, "0.2", _NOT_FROZEN),
            ("autovacuum_vacuum_insert_threshold", 1_000_000, "1000", _NOT_FROZEN),
        )
    ),
    *(
        Bound(
            name=name,
            judged=_at_each_row,
            better="50",
            says="its scale factor is 0 as well, so each round works on all tables with a changed row",
        )
        for name in ("autovacuum_vacuum_threshold", "autovacuum_analyze_threshold")
    ),
    *(
        Bound(name=name, above=1_000_000_000, better=better, says=says, limit=f"{name}_high")
        for name, better, says in (
            ("autovacuum_freeze_max_age", "200000000", "freezing begins with half of all transaction ids used"),
            (
                "autovacuum_multixact_freeze_max_age",
                "400000000",
                "freezing begins with half of all multixacts used",
            ),
        )
    ),
    *(
        Bound(
            name=name,
            below=100_000_000,
            better=better,
            limit=f"{name}_low",
            says="all tables are read again and again to freeze rows, at unplanned hours",
        )
        for name, better in (
            ("autovacuum_freeze_max_age", "200000000"),
            ("autovacuum_multixact_freeze_max_age", "400000000"),
        )
    ),
    *(
        Bound(
            name=name,
            below=1_000_000_000,
            better="1600000000",
            special=(),
            says="vacuum drops its cost limits, and leaves indexes out, long before there is danger",
        )
        for name in _FAILSAFE
    ),
    *(
        Bound(
            name=name,
            above=2_000_000_000,
            better="1600000000",
            limit=f"{name}_high",
            says="vacuum hurries when too few ids are left for it to end in time",
        )
        for name in _FAILSAFE
    ),
    Bound(
        name="autovacuum_vacuum_insert_threshold",
        words=("-1",),
        better="1000",
        says=_NOT_FROZEN,
    ),
    *(
        Bound(
            name=name,
            below=10_000_000,
            better="150000000",
            special=(),
            says="VACUUM reads whole tables again and again, also where nothing has changed",
        )
        for name in _FULL_READS
    ),
    *(
        Bound(
            name=name,
            judged=_is_beyond,
            better="150000000",
            severity=Severity.INFO,
            says=f"VACUUM takes 95 % of {forced} for it, and freezes shortly before it is forced to",
        )
        for name, forced in _FULL_READS.items()
    ),
    Bound(
        name="vacuum_freeze_min_age",
        above=200_000_000,
        better="50000000",
        says="vacuum leaves nearly all rows unfrozen for the one that wraparound forces",
    ),
    Bound(
        name="autovacuum_vacuum_cost_delay",
        words=("0",),
        better="2ms",
        severity=Severity.INFO,
        says="autovacuum reads and writes without a pause, whatever the load",
    ),
    Bound(
        name="vacuum_cost_delay",
        above=0,
        unit="s",
        better="0",
        severity=Severity.INFO,
        says="VACUUM and ANALYZE of sessions sleep, which is meant for autovacuum",
    ),
)


CHECKS: Final[tuple[Check, ...]] = (
    Check(
        id="MEM-08",
        group="memory",
        title="memory for single purposes",
        why="These settings are multiplied by sessions, or decide how often a job reads everything again.",
        severity=Severity.WARNING,
        page="runtime-config-resource.html#RUNTIME-CONFIG-RESOURCE-MEMORY",
        needs=(needs.PARAMETERS,),
        look=bounded((*_MEMORY, *_PROCESSES_OWN)),
        thresholds=thresholds((*_MEMORY, *_PROCESSES_OWN)),
    ),
    Check(
        id="BGW-04",
        group="background writer",
        title="rounds of the background writer",
        why="Where the background writer does too little, each backend writes old pages before it reads its own.",
        severity=Severity.WARNING,
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
        severity=Severity.WARNING,
        page="runtime-config-logging.html#RUNTIME-CONFIG-LOGGING-WHAT",
        needs=(needs.PARAMETERS,),
        look=bounded(_LINES),
        thresholds=thresholds(_LINES),
    ),
    Check(
        id="OBS-04",
        group=_LOG,
        title="visible sessions",
        why="An operator who does not see what sessions run cannot end the one that does harm.",
        severity=Severity.WARNING,
        page="runtime-config-statistics.html#GUC-TRACK-ACTIVITIES",
        needs=(needs.PARAMETERS,),
        look=bounded(_VISIBLE),
        thresholds=thresholds(_VISIBLE),
    ),
    Check(
        id="CON-05",
        group=_CONNECTIONS,
        title="limits of sessions",
        why="A limit that is too short fails good statements, one that is too long keeps bad ones.",
        severity=Severity.WARNING,
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
        title="switches for single sessions",
        why="These switches are for one session and one purpose; for a whole server they change what statements do.",
        severity=Severity.HIGH,
        page="runtime-config-client.html",
        needs=(needs.PARAMETERS, SCOPED),
        look=_switched,
        thresholds=thresholds(_SWITCHES),
    ),
    Check(
        id="CFG-09",
        group=_CONFIGURATION,
        title="settings of roles and databases",
        why="A test with one role measures other settings than the sessions of another one.",
        severity=Severity.INFO,
        page="sql-alterrole.html",
        needs=(SCOPED,),
        look=_overriding,
    ),
    Check(
        id="VAC-07",
        group=_GROUP,
        title="limits of autovacuum",
        why="With limits for small tables and rare changes, large tables grow for weeks before autovacuum begins.",
        severity=Severity.WARNING,
        page="runtime-config-autovacuum.html",
        needs=(needs.PARAMETERS,),
        look=bounded(_STARTS),
        thresholds=thresholds(_STARTS),
    ),
)
