"""Opens the read-only connection, of the kind that fits what stands between us and the server."""

from __future__ import annotations

from typing import Any, Final

import asyncpg

from pgtop_tune.errors import ConnectionProblem
from pgtop_tune.postgres.connection import ANSWER_TIMEOUT_S, ReadConnection
from pgtop_tune.postgres.conninfo import APPLICATION_NAME, ConnInfo, Endpoint
from pgtop_tune.postgres.failures import connection_problem, sqlstate_of
from pgtop_tune.postgres.own_sessions import OwnSessions, marked
from pgtop_tune.postgres.pooled_connection import PooledConnection
from pgtop_tune.postgres.search_path import NAME, PINNED, refuses_start_option

CONNECT_TIMEOUT_S: Final = 5.0
_PINNED: Final = {NAME: PINNED}
_ENCODING: Final = {"client_encoding": "UTF8"}
"""As the server writes it: PgBouncer takes asyncpg's 'utf-8' for another one and sets it anew for every transaction."""


async def open_connection(conninfo: ConnInfo, own: OwnSessions, patience_s: float = ANSWER_TIMEOUT_S) -> ReadConnection:
    """Connects to the first endpoint that lets us in.

    Args:
        conninfo: Where to.
        own: Our sessions.
        patience_s: How long one answer is waited for.

    Raises:
        ConnectionProblem: None did; speaks of the last.
        PasswordNeeded: It wants a password and there was none to send.
    """
    error: BaseException = OSError("nowhere to connect to")
    for number, arguments in enumerate(conninfo.as_asyncpg()):
        endpoint = conninfo.endpoints[number % len(conninfo.endpoints)]
        try:
            return await _opened(arguments, endpoint, conninfo, own, patience_s)
        except (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError, ValueError) as problem:
            error = problem
    raise connection_problem(error, conninfo) from None


async def _opened(
    arguments: dict[str, Any], endpoint: Endpoint, conninfo: ConnInfo, own: OwnSessions, patience_s: float
) -> ReadConnection:
    settings = {**arguments.pop("server_settings", {}), "application_name": APPLICATION_NAME, **_ENCODING}
    words = {"timeout": CONNECT_TIMEOUT_S, **arguments, "statement_cache_size": 0, "command_timeout": patience_s}
    try:
        raw = await asyncpg.connect(**words, server_settings={**settings, **_PINNED})
    except asyncpg.PostgresError as refused:
        if not refuses_start_option(sqlstate_of(refused), str(refused)):
            raise
        raw = await asyncpg.connect(**words, server_settings=settings)
    try:
        kind = PooledConnection if await _behind_pooler(raw, own) else ReadConnection
        connection = kind(raw, endpoint, conninfo, own)
    except BaseException:
        raw.terminate()
        raise
    try:
        await connection.settle()
        if raw.get_settings().server_encoding == "SQL_ASCII":
            await connection.read_bytes_as_they_are()
    except ConnectionProblem:
        raise
    except BaseException:
        connection.terminate()
        raise
    return connection


async def _behind_pooler(raw: Any, own: OwnSessions) -> bool:
    """Whether the process that serves us is not the one we were told of when we connected.

    A pooler answers the start-up packet itself, with a key of its own making for cancel requests. Asked before
    anything is set. Source: BackendKeyData, chapter "Message Flow", Start-up.
    """
    own.statements += 1
    own.calls += 1
    own.transactions += 1
    return bool(await raw.fetchval(marked("SELECT pg_catalog.pg_backend_pid()")) != raw.get_server_pid())
