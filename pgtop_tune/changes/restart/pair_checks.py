"""Checks that a primary and its standby can change roles and back, before a promotion that the operator allows."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import aclosing
from pathlib import Path
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from pgtop_tune.base.errors import UsageProblem
from pgtop_tune.base.safe_text import one_line
from pgtop_tune.changes.restart.outages import allowed_place, checked_place
from pgtop_tune.changes.server.control import PostgresControl
from pgtop_tune.changes.start.places import find_place
from pgtop_tune.model.instance import ServerPair
from pgtop_tune.postgres.server.conninfo import ConnInfo
from pgtop_tune.postgres.server.replication_login import turned_round, why_refused

if TYPE_CHECKING:
    from pgtop_tune.changes.restart.control import RestartService
    from pgtop_tune.changes.server.operator_session import OperatorSession

_HINT: Final = "pass host=A,B port=A,B target_session_attrs=read-write, and --allow-outage for each of both"
_THROWAWAY: Final = 'set servers = "throwaway" in the plan'
_FOLLOWS_ROLES: Final = ("read-write", "primary")
_LOCAL: Final = ("localhost", "127.0.0.1", "::1")
_PRIMARY: Final = """
SELECT ARRAY(SELECT state FROM pg_stat_replication) AS states,
       string_to_array(replace(current_setting('unix_socket_directories'), ' ', ''), ',') AS sockets,
       current_setting('port') AS port,
       EXISTS (SELECT FROM pg_replication_slots WHERE slot_type = 'logical') AS has_logical
"""
_STANDBY: Final = """
SELECT pg_is_in_recovery() AS in_recovery, current_setting('primary_conninfo') AS source,
       current_setting('synchronous_standby_names') AS synchronous,
       EXISTS (SELECT FROM pg_settings WHERE pending_restart) AS has_pending,
       (SELECT sender_host FROM pg_stat_wal_receiver WHERE status = 'streaming') AS sender_host,
       (SELECT sender_port::text FROM pg_stat_wal_receiver WHERE status = 'streaming') AS sender_port
"""
_UNFIT: Final = """
SELECT name FROM pg_settings
 WHERE name IN ('recovery_target', 'recovery_target_lsn', 'recovery_target_name', 'recovery_target_time',
                'recovery_target_xid') AND setting <> ''
    OR name = 'recovery_target_timeline' AND setting <> 'latest'
    OR name = 'recovery_min_apply_delay' AND setting <> '0'
    OR name IN ('promote_trigger_file', 'recovery_end_command') AND setting <> ''
    OR name = 'max_wal_senders' AND setting = '0'
"""
_SIZES: Final = """
SELECT name, setting::bigint AS size FROM pg_settings
 WHERE name IN ('max_connections', 'max_worker_processes', 'max_wal_senders', 'max_prepared_transactions',
                'max_locks_per_transaction')
"""
"""A standby needs at least those of its primary (CheckRequiredParameterValues)."""


async def checked_pair(
    control: PostgresControl, service: RestartService, allowed: Sequence[str], conninfo: ConnInfo
) -> ServerPair:
    """Return a control's server and its standby, where a promotion is allowed and ours to take back.

    Args:
        control: The parameters of the primary.
        service: Its restarts.
        allowed: HOST:PORT of the servers that the operator allows.
        conninfo: The connection, which names both servers.

    Raises:
        UsageProblem: It is not.
        ServerProblem: The primary would not start again.
    """
    primary = await checked_place(control, service, allowed)
    conninfo_of_standby = standby_conninfo(conninfo, primary.endpoint)
    if conninfo_of_standby is None:
        raise UsageProblem("a promotion needs a connection that names the primary and one standby", _HINT)
    [endpoint] = conninfo_of_standby.endpoints
    standby_control = PostgresControl(conninfo_of_standby)
    async with aclosing(standby_control):
        standby = await standby_control.ask(lambda session: allowed_place(find_place(session), allowed))
        standby_row = await standby_control.ask(lambda session: session.rows(_STANDBY)[0])
        sides = [await side.ask(_side) for side in (control, standby_control)]
    primary_row = await control.ask(lambda session: session.rows(_PRIMARY)[0])
    follows = standby_row["sender_port"] == primary_row["port"] and (
        standby_row["sender_host"] in (*primary_row["sockets"], *_LOCAL, primary.endpoint.rpartition(":")[0])
    )
    unfit = [name for _, names, _ in sides for name in names]
    smaller = [name for name, size in sides[0][2].items() if size < sides[1][2].get(name, 0)]
    program = Path(primary.program)
    reasons = (
        (not standby_row["in_recovery"] or sides[0][0] != sides[1][0], "it is no standby of this primary", _HINT),
        (standby_row["sender_port"] is None, "it does not stream", "wait until pg_stat_wal_receiver shows streaming"),
        (
            not follows,
            f"it streams from {standby_row['sender_host']}:{standby_row['sender_port']}, not from {primary.endpoint}",
            "name the primary in the connection as its primary_conninfo does",
        ),
        (
            primary_row["states"] != ["streaming"],
            "the primary has other standbys, which would be left behind",
            f"stop them, or {_THROWAWAY}",
        ),
        (
            bool(standby_row["synchronous"]),
            "its commits would wait for a synchronous standby",
            "empty its synchronous_standby_names",
        ),
        (standby_row["has_pending"], "a parameter of it waits for a restart", "restart it"),
        (bool(unfit), f"{', '.join(unfit)} forbid the way back", "reset them on both servers"),
        (
            primary_row["has_logical"],
            "logical slots of the primary would not outlive its time as a standby",
            _THROWAWAY,
        ),
        (
            bool(smaller),
            f"{', '.join(smaller)} of the primary are less than those of the standby",
            "set them to the standby's values on the primary",
        ),
        (not program.with_name("pg_ctl").is_file(), f"pg_ctl is missing beside {one_line(str(program))}", "install it"),
    )
    for holds, reason, hint in reasons:
        if holds:
            raise UsageProblem(f"{endpoint} cannot be promoted and made a standby again: {reason}", hint)
    source = turned_round(standby_row["source"], endpoint)
    if problem := await asyncio.to_thread(why_refused, source, primary):
        raise UsageProblem(
            f"{primary.endpoint} could not follow {endpoint} during the promotion: {problem}",
            "let the replication role of primary_conninfo in, in pg_hba.conf of both servers",
        )
    return ServerPair(primary=primary, standby=standby, source=source)


def standby_conninfo(conninfo: ConnInfo, primary: str) -> ConnInfo | None:
    """Return the connection to the other one of two servers; None where it does not follow the primary, or names more.

    Args:
        conninfo: The connection that names both.
        primary: Endpoint of the primary.
    """
    endpoints = [endpoint for endpoint in conninfo.endpoints if str(endpoint) != primary]
    if len(endpoints) != 1 or conninfo.keywords.get("target_session_attrs") not in _FOLLOWS_ROLES:
        return None
    keywords = {key: value for key, value in conninfo.keywords.items() if key != "target_session_attrs"}
    return replace(conninfo.only(endpoints[0]), keywords=keywords)


def _side(session: OperatorSession) -> tuple[str, list[str], dict[str, int]]:
    """Return identity, parameters that forbid the way back, and sizes that both need."""
    unfit = [row["name"] for row in session.rows(_UNFIT)]
    return session.instance.system_identifier, unfit, {row["name"]: row["size"] for row in session.rows(_SIZES)}
