"""Proof of a change: the value in running and new sessions, its source, and any setting that overrides it. Blocking.

Another session's values cannot be read in PostgreSQL. A session takes new values over between two statements, so the
proof is: our session, which is older than the change, a new one, and how many are still within an older statement.
Source: pg_settings, pg_file_settings, pg_db_role_setting, pg_conf_load_time(); postgres.c (ProcessConfigFile).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from pgtop_tune.base.errors import PgtopError
from pgtop_tune.changes.model.change import ParameterChange, Proof, Scope, ScopeKind
from pgtop_tune.changes.server.session_runner import operator_session
from pgtop_tune.changes.start.next_start import AT_START
from pgtop_tune.changes.statements import STORED, is_same_value, scope_words
from pgtop_tune.model.postgres import Parameter
from pgtop_tune.postgres.server.conninfo import ConnInfo
from pgtop_tune.postgres.server.own_sessions import OwnSessions

if TYPE_CHECKING:
    from pgtop_tune.changes.server.operator_session import OperatorSession

_BEHIND: Final = """
SELECT count(*) AS behind
  FROM pg_stat_activity
 WHERE backend_type = 'client backend' AND state = 'active'
   AND pid <> pg_backend_pid() AND query_start < pg_conf_load_time()
"""
_LINES: Final = """
SELECT sourcefile, sourceline, setting, applied, coalesce(error, '') AS error
  FROM pg_file_settings
 WHERE lower(name) = lower(%s) OR error IS NOT NULL AND name IS NULL
 ORDER BY seqno
"""
_MANAGED: Final = """
SELECT min(split_part(name, '.', 1)) AS provider,
       (SELECT count(*) FROM pg_file_settings WHERE sourcefile LIKE '%%/postgresql.base.conf') > 0 AS patroni
  FROM pg_settings
 WHERE name ~ '^(rds|cloudsql|azure|alloydb|neon|supautils)[.]'
"""
_AUTO_CONF: Final = "/postgresql.auto.conf"
_ADVICE: Final = {
    "command line": "change it where the server is started: values given there override every file",
    "environment variable": "change it in the environment the server is started in",
    "database": "ALTER DATABASE … RESET, or change it for that database",
    "user": "ALTER ROLE … RESET, or change it for that role",
    "database user": "ALTER ROLE … IN DATABASE … RESET, or change it there",
    "client": "PGOPTIONS or options= of the connection sets it",
    "override": "the server sets it by itself, for instance in recovery",
}
"""pg_settings.source → what to do."""


def prove(
    session: OperatorSession, conninfo: ConnInfo, changes: Sequence[ParameterChange], own_sessions: OwnSessions
) -> tuple[Proof, ...]:
    """Return the proof of each change, in their order.

    Args:
        session: A session that is older than the changes.
        conninfo: Of the sessions it is about: role and database of the load.
        changes: In force.
        own_sessions: Where the fresh session is counted.

    Raises:
        ConnectionProblem: No new session can be had.
        ServerProblem: The server refuses what is asked.
    """
    fresh = operator_session(conninfo, own_sessions)
    try:
        return tuple(_proof(session, fresh, change) for change in changes)
    finally:
        fresh.close()


def _proof(session: OperatorSession, fresh: OperatorSession, change: ParameterChange) -> Proof:
    now, shown_parameter = session.parameter(change.name), fresh.parameter(change.name)
    role, database = fresh.identity
    overrides, advice = _against(fresh, session, change, shown_parameter)
    return Proof(
        name=change.name,
        wanted=change.value,
        running=now.shown,
        fresh=shown_parameter.shown,
        role=role,
        database=database,
        source=shown_parameter.source,
        place=shown_parameter.sourcefile,
        pending_restart=shown_parameter.pending_restart,
        behind=session.rows(_BEHIND)[0]["behind"],
        overrides=overrides,
        advice=advice,
    )


def _against(
    fresh: OperatorSession, session: OperatorSession, change: ParameterChange, shown_parameter: Parameter
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the settings that win over a change, and the remedies."""
    overrides: list[str] = []
    advice: list[str] = []
    role, database = fresh.identity
    if change.scope.is_system:
        for line in _lines(session, change):
            overrides.append(line)
        for scope in _narrower(role, database):
            rows = session.rows(STORED, scope.database or None, scope.role or None, change.name)
            if rows and not is_same_value(change.name, rows[0]["value"], change.value):
                overrides.append(f"{scope_words(scope)} have {rows[0]['value']}")
                advice.append(_ADVICE[_SOURCES[scope.kind]])
        if shown_parameter.source in (*AT_START, "client", "override") and change.value is not None:
            overrides.append(f"the {shown_parameter.source} has {shown_parameter.shown}")
            advice.append(_ADVICE[shown_parameter.source])
    advice += _owners(session) if overrides else []
    return tuple(overrides), tuple(dict.fromkeys(advice))


_SOURCES: Final = {
    ScopeKind.ROLE_IN_DATABASE: "database user",
    ScopeKind.ROLE: "user",
    ScopeKind.DATABASE: "database",
}


def _narrower(role: str, database: str) -> tuple[Scope, ...]:
    """Return scopes that win over the system for a session, strongest first."""
    return (
        Scope(ScopeKind.ROLE_IN_DATABASE, role, database),
        Scope(ScopeKind.ROLE, role),
        Scope(ScopeKind.DATABASE, database=database),
    )


def _lines(session: OperatorSession, change: ParameterChange) -> list[str]:
    """Return the objections of the files: another file that is read later, or a fault that keeps all of them from being
    read."""
    objections: list[str] = []
    rows: list[dict[str, Any]] = session.rows(_LINES, change.name)
    for row in rows:
        where = f"{row['sourcefile']}:{row['sourceline']}"
        restart = "restart" in row["error"] or "could not be applied" in row["error"]
        if row["error"] and not restart:
            objections.append(f"{where}: {row['error']}")
        elif row["applied"] and change.value is not None and not row["sourcefile"].endswith(_AUTO_CONF):
            objections.append(f"{where} sets {row['setting']}")
    return objections


def _owners(session: OperatorSession) -> list[str]:
    """Return the programs and services that manage the configuration as well."""
    try:
        row = session.rows(_MANAGED)[0]
    except PgtopError:
        return []
    managers = []
    if row["patroni"]:
        managers.append(
            "Patroni manages this server: change it with patronictl edit-config, otherwise Patroni restores it"
        )
    if row["provider"]:
        managers.append(f"a managed service ({row['provider']}): change it in the provider's parameter group")
    return managers
