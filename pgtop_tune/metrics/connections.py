"""Connections in groups, the share of each limit in use, and changed parameters."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from typing import Final

from msgspec import Struct

from pgtop_tune.metrics import sections
from pgtop_tune.metrics.catalogue import Interval
from pgtop_tune.metrics.server import client_backends, number
from pgtop_tune.model.events import Event, EventKind
from pgtop_tune.model.postgres import Backend, Parameter

WORKING: Final = frozenset({"active", "fastpath function call"})
IN_TRANSACTION: Final = "idle in transaction"
UNLIMITED: Final = -1
_RESERVED: Final = ("superuser_reserved_connections", "reserved_connections")


class ConnectionGroup(Struct, frozen=True):
    """Sessions of the same user, database, application and client.

    Attributes:
        sessions: Number of sessions.
        active: Number of sessions that run a statement.
        in_transaction: Number of sessions idle in a transaction, including aborted ones.
        idle: Number of idle sessions.
        waiting: Number of sessions that wait for a lock.
        oldest_xact_s: Age of the oldest transaction; None without one.
        oldest_session_s: Age of the oldest session.
    """

    usename: str
    datname: str
    application_name: str
    client: str
    sessions: int
    active: int
    in_transaction: int
    idle: int
    waiting: int
    oldest_xact_s: float | None
    oldest_session_s: float | None

    @property
    def key(self) -> tuple[str, str, str, str]:
        """Return the properties that all sessions of the group have."""
        return self.usename, self.datname, self.application_name, self.client


def groups(interval: Interval) -> list[ConnectionGroup]:
    """Return client backends by user, database, application and client, most sessions first; empty without the section."""
    activity = interval.now(sections.activity)
    if activity is None:
        return []
    backends: defaultdict[tuple[str, str, str, str], list[Backend]] = defaultdict(list)
    for backend in client_backends(activity):
        key = (backend.usename or "", backend.datname or "", backend.application_name or "", backend.client or "")
        backends[key].append(backend)
    connection_groups = [_group(key, members, activity.now_ms) for key, members in backends.items()]
    return sorted(connection_groups, key=lambda group: (-group.sessions, group.key))


def _group(key: tuple[str, str, str, str], members: list[Backend], now_ms: int) -> ConnectionGroup:
    states = Counter(member.state or "" for member in members)
    xacts = [member.xact_start_ms for member in members if member.xact_start_ms is not None]
    starts = [member.backend_start_ms for member in members if member.backend_start_ms is not None]
    return ConnectionGroup(
        *key,
        sessions=len(members),
        active=sum(states[state] for state in WORKING),
        in_transaction=sum(count for state, count in states.items() if state.startswith(IN_TRANSACTION)),
        idle=states["idle"],
        waiting=sum(1 for member in members if member.wait_event_type == "Lock"),
        oldest_xact_s=_age_s(now_ms, xacts),
        oldest_session_s=_age_s(now_ms, starts),
    )


def _age_s(now_ms: int, moments_ms: list[int]) -> float | None:
    return max(now_ms - min(moments_ms), 0) / 1000.0 if moments_ms else None


class ConnectionLimit(Struct, frozen=True):
    """A limit on connections.

    Attributes:
        scope: "server", "database" or "role".
        name: Name of the database or role; for the server, name of the parameter.
        used: Sessions that count against it; for the server including those of this tool.
        limit: Most sessions; None where it is not known.
    """

    scope: str
    name: str
    used: int
    limit: int | None

    @property
    def percent(self) -> float | None:
        """Used connections in per cent of the limit; 100 for a limit of 0."""
        if self.limit is None:
            return None
        return 100.0 * self.used / self.limit if self.limit else 100.0


def limits(interval: Interval) -> list[ConnectionLimit]:
    """Return the server's limit, then those of databases and roles; empty without the sessions.

    Source: pg_stat_activity, max_connections without the reserved connections, pg_database.datconnlimit,
    pg_roles.rolconnlimit.
    """
    activity = interval.now(sections.activity)
    if activity is None:
        return []
    clients = client_backends(activity)
    connection_limits = list(_of_server(interval, len(clients) + activity.own_backends))
    catalogue = interval.now(sections.database_limits)
    if catalogue is not None:
        by_database = Counter(backend.datname for backend in clients)
        by_role = Counter(backend.usename for backend in clients)
        connection_limits += [
            ConnectionLimit(
                scope="database", name=database.name, used=by_database[database.name], limit=database.connection_limit
            )
            for database in catalogue.databases
            if database.connection_limit > UNLIMITED
        ]
        connection_limits += [
            ConnectionLimit(scope="role", name=role.name, used=by_role[role.name], limit=role.connection_limit)
            for role in catalogue.role_limits
        ]
    return connection_limits


def _of_server(interval: Interval, used: int) -> Iterator[ConnectionLimit]:
    most = number(interval, "max_connections")
    yield ConnectionLimit(scope="server", name="max_connections", used=used, limit=None if most is None else int(most))
    if most is None:
        return
    reserved = sum(number(interval, name) or 0 for name in _RESERVED)
    yield ConnectionLimit(scope="server", name="not reserved", used=used, limit=max(int(most - reserved), 0))


# Parameters, and which of them are set to another value than the server's default.

_OF_SESSION: Final = frozenset({"client", "session"})
"""Sources of values that only our own connection has."""
_OWN: Final = _OF_SESSION | {"default", "override"}
"""Sources of values that no operator has chosen, or that only our own connection has."""


class WatchedParameter(Struct, frozen=True):
    """A parameter and its last change.

    Attributes:
        parameter: The row.
        changed_ms: Time of its last change since the session began; None without one.
        change: The change in the words of its event: "1GB→16GB"; "" without one.
    """

    parameter: Parameter
    changed_ms: int | None
    change: str

    @property
    def value(self) -> str | None:
        """Return the value in the format of SHOW; None where our own connection has set another one."""
        return None if self.parameter.source in _OF_SESSION else self.parameter.shown

    @property
    def is_set(self) -> bool:
        """Return whether an operator has set it, it waits for a restart, or it changed since the session began."""
        return self.parameter.source not in _OWN or self.parameter.pending_restart or self.changed_ms is not None


def watched_parameters(interval: Interval, events: Iterable[Event]) -> list[WatchedParameter]:
    """Return every parameter.

    Args:
        interval: Frames.
        events: Events of the session, oldest first; the event of a change begins with the name of the parameter.
    """
    sample = interval.now(sections.parameters)
    if sample is None:
        return []
    changes: dict[str, tuple[int, str]] = {}
    for event in events:
        if event.kind is EventKind.PARAMETER:
            name, _, change = event.text.partition(" ")
            changes[name] = event.at_ms, change
    return [WatchedParameter(parameter, *changes.get(parameter.name, (None, ""))) for parameter in sample.parameters]
