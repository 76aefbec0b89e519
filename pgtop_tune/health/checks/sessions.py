"""Settings that every session gets from the server: time limits, and switches that change the meaning of statements."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from pgtop_tune.base.units import MB
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
from pgtop_tune.model.postgres import Parameter

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


_TIMES: Final = (
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


CHECKS: Final[tuple[Check, ...]] = (
    Check(
        id="CON-05",
        group=_CONNECTIONS,
        title="limits of sessions",
        why="A limit that is too short fails good statements, one that is too long keeps bad ones.",
        severity=Severity.WARNING,
        page="runtime-config-client.html#RUNTIME-CONFIG-CLIENT-STATEMENT",
        needs=(needs.PARAMETERS, SCOPED),
        look=bounded(_TIMES),
        thresholds=thresholds(_TIMES),
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
)
