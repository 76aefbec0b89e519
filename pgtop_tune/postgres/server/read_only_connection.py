"""Opening of the read-only connection, directly or behind a pooler; and the sqlstate of a refused login.

A pooler may lend a server session for one transaction at a time (PgBouncer). There, a setting made with SET stays in a
session that others use next, and a prepared statement may be in another session than the one that is to run it. So
every reading is a transaction with its own limits, and every statement is parsed in the message that runs it. Source:
PgBouncer's "Features" page, SQL feature map for pooling modes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Final

import asyncpg

from pgtop_tune.base.errors import ConnectionProblem
from pgtop_tune.base.foreign_answers import MALFORMED, malformed
from pgtop_tune.model.statements import OWN_MARK
from pgtop_tune.postgres.server import own_sessions
from pgtop_tune.postgres.server.connection import (
    ANSWER_TIMEOUT_S,
    CLIENT_ERRORS,
    SESSION_SETTINGS,
    ReadConnection,
    Rows,
)
from pgtop_tune.postgres.server.conninfo import APPLICATION_NAME, ConnInfo, ServerEndpoint, beyond_asyncpg
from pgtop_tune.postgres.server.encodings import RAW
from pgtop_tune.postgres.server.failures import connection_problem, sqlstate_of, takes_connections
from pgtop_tune.postgres.server.own_sessions import READ_ONLY_BEGIN, OwnSessions, marked
from pgtop_tune.postgres.server.search_path import pin, pinned_first

_PER_SESSION: Final = frozenset({"default_transaction_read_only", "idle_session_timeout"})
"""Settings without an effect within a transaction."""
_BEGIN: Final = f"{READ_ONLY_BEGIN}; SELECT {OWN_MARK} {pin(local=True)}"
_LIMITS: Final = ", ".join(
    f"pg_catalog.set_config('{name}', '{value}', true)"
    for name, value in SESSION_SETTINGS.items()
    if name not in _PER_SESSION
)
_BEGIN_LIMITED: Final = f"{_BEGIN}, {_LIMITS}"


class PooledConnection(ReadConnection):
    """Connection over a pooler; each statement may be served by another backend."""

    pooled = True
    _calls_of_a_reset = 4

    async def settle(self) -> None:
        """Set nothing: the next client of the same session would find our settings."""

    async def execute(self, text: str) -> None:
        """Run statements without parameters in a transaction of their own. Raises as `fetch` does."""
        await super().execute(f"{_BEGIN}; {text}; COMMIT")

    async def _fetch(self, text: str, arguments: Sequence[object]) -> Rows:
        return await self._timed(self._inside(_BEGIN_LIMITED, text, arguments), calls=4)  # type: ignore[no-any-return]

    async def _inside_reset(self, text: str) -> Rows:
        return await self._inside(_BEGIN, text, ())

    async def _inside(self, begin: str, text: str, arguments: Sequence[object]) -> Rows:
        await self._raw.execute(begin)
        try:
            statement = self._prepared.get(text)
            if statement is None:
                # Unnamed: asyncpg keeps its description and parses it anew in the message that runs it.
                statement = self._prepared[text] = await self._raw.prepare(marked(text), name="")
            rows = await statement.fetch(*arguments)
        except (asyncpg.PostgresError, UnicodeDecodeError):
            await self._raw.execute("ROLLBACK")
            raise
        await self._raw.execute("COMMIT")
        return rows  # type: ignore[no-any-return]


CONNECT_TIMEOUT_S: Final = 5.0
_ENCODING: Final = {"client_encoding": "UTF8"}
"""Encoding in the server's spelling: PgBouncer takes asyncpg's 'utf-8' for another one, and sets it anew for every
transaction."""
_RAW: Final = {"client_encoding": RAW}
_LIFTED: Final[tuple[Mapping[str, Any], ...]] = (
    {},
    *({"limits": dict.fromkeys(own_sessions.of_major(major), "0")} for major in (14, own_sessions.ALL_SINCE)),
)
"""Extra parameters of the start-up packet, one mapping for each attempt. The next attempt is made when a limit of the
database or the role ended our session before it could lift the limit. A server that does not know one of the parameters
refuses the login."""


async def open_connection(
    conninfo: ConnInfo, our_sessions: OwnSessions, patience_s: float = ANSWER_TIMEOUT_S
) -> ReadConnection:
    """Connect to the first endpoint that accepts us.

    Args:
        conninfo: The server.
        our_sessions: Our sessions.
        patience_s: Longest wait for an answer.

    Raises:
        ConnectionProblem: No endpoint accepts us; the message is about the last one.
        PasswordNeeded: The server asks for a password, and there is none.
    """
    error: BaseException = OSError("no host to connect to")
    through_libpq = bool(beyond_asyncpg(conninfo))
    connect = _connected_by_libpq if through_libpq else _connected
    for number, arguments in enumerate(conninfo.as_libpq() if through_libpq else conninfo.as_asyncpg()):
        endpoint = conninfo.endpoints[number % len(conninfo.endpoints)]
        for limits in _LIFTED:
            try:
                return await _opened(connect, {**arguments, **limits}, endpoint, conninfo, our_sessions, patience_s)
            except asyncpg.TargetServerAttributeNotMatched:
                error = _unfit(arguments["target_session_attrs"], conninfo)
            except (*CLIENT_ERRORS, asyncpg.PostgresError, ValueError, ConnectionProblem) as problem:
                error = problem
            except MALFORMED as problem:
                error = malformed(problem)
            if not _ended_by_limit(error, conninfo):
                break
    if isinstance(error, ConnectionProblem):
        raise error from None
    reached = isinstance(error, TimeoutError) and await asyncio.to_thread(takes_connections, endpoint)
    raise connection_problem(error, conninfo, reached=reached) from None


def _ended_by_limit(error: BaseException, conninfo: ConnInfo) -> bool:
    state = sqlstate_of(error)
    # asyncpg reports a session that ended between two statements with its own state (08003).
    message = (error if isinstance(error, ConnectionProblem) else connection_problem(error, conninfo)).message
    return own_sessions.bites(message, "" if state.startswith("08") else state)


def _unfit(wish: str, conninfo: ConnInfo) -> ConnectionProblem:
    """Return the problem of a server that does not match target_session_attrs: a standby before its promotion."""
    hint = "change target_session_attrs; after a failover, promote the standby first"
    return ConnectionProblem(f"{conninfo.describe()}: no server at this address is {wish}", hint)


async def _connected(arguments: dict[str, Any], settings: dict[str, str], conninfo: ConnInfo, patience_s: float) -> Any:
    return await asyncpg.connect(
        **{"timeout": CONNECT_TIMEOUT_S, **arguments},
        server_settings=settings,
        statement_cache_size=0,
        command_timeout=patience_s,
    )


async def _connected_by_libpq(
    arguments: dict[str, Any], settings: dict[str, str], conninfo: ConnInfo, patience_s: float
) -> Any:
    # Imported here only, because watching otherwise does without psycopg.
    from pgtop_tune.postgres.server import libpq_connection

    return await libpq_connection.connect(arguments, settings, conninfo, CONNECT_TIMEOUT_S, patience_s)


async def _opened(
    connect: Callable[[dict[str, Any], dict[str, str], ConnInfo, float], Awaitable[Any]],
    arguments: dict[str, Any],
    endpoint: ServerEndpoint,
    conninfo: ConnInfo,
    our_sessions: OwnSessions,
    patience_s: float,
) -> ReadConnection:
    limits = arguments.pop("limits", {})
    name = conninfo.session_name(APPLICATION_NAME)
    settings = {**arguments.pop("server_settings", {}), **limits, "application_name": name, **_ENCODING}

    async def connected(pinned: Mapping[str, str]) -> Any:
        try:
            return await connect(arguments, {**settings, **pinned}, conninfo, patience_s)
        except asyncpg.FeatureNotSupportedError:
            # The server has no conversion between UTF-8 and MULE_INTERNAL.
            return await connect(arguments, {**settings, **pinned, **_RAW}, conninfo, patience_s)

    raw = await pinned_first(connected)
    try:
        kind = PooledConnection if await _behind_pooler(raw, our_sessions) else ReadConnection
        connection = kind(raw, endpoint, conninfo, our_sessions)
    except BaseException:
        raw.terminate()
        raise
    try:
        await connection.settle()
        await connection.read_texts()
    except ConnectionProblem:
        raise
    except BaseException:
        connection.terminate()
        raise
    return connection


async def _behind_pooler(raw: Any, our_sessions: OwnSessions) -> bool:
    """Return whether the backend that serves us is not the one that the answer to the start-up packet names.

    A pooler answers the start-up packet itself, with its own key for cancel requests. This is checked before anything
    is set. Source: BackendKeyData, chapter "Message Flow", Start-up.
    """
    our_sessions.statements += 1
    our_sessions.calls += 1
    our_sessions.transactions += 1
    server_pid = raw.get_server_pid()
    try:
        return bool(await raw.fetchval(marked("SELECT pg_catalog.pg_backend_pid()")) != server_pid)
    except asyncpg.InsufficientPrivilegeError:
        # This role may not execute the function; a session that reads pg_locks holds a lock on it.
        locked = "SELECT FROM pg_catalog.pg_locks WHERE relation = 'pg_catalog.pg_locks'::regclass AND pid ="
        return not await raw.fetchval(marked(f"SELECT EXISTS ({locked} {server_pid:d})"))


_TIMEOUT_S: Final = 3.0


def refused_with(conninfo: ConnInfo) -> str:
    """Return `refusal`, for callers without an event loop."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, refusal(conninfo)).result()


async def refusal(conninfo: ConnInfo) -> str:
    """Return the sqlstate with which a server refuses a login; libpq reports only a message, in the server's language.

    The sqlstate is "" where the server does not answer or accepts the login, and where a keyword needs libpq: asyncpg
    would send a password to a server that the keyword excludes.
    """
    if beyond_asyncpg(conninfo):
        return ""
    sqlstate = ""
    for arguments in conninfo.as_asyncpg():
        try:
            connection = await pinned_first(partial(_connected_within, arguments))
        except asyncpg.PostgresError as error:
            sqlstate = sqlstate_of(error)
        except CLIENT_ERRORS:
            continue
        except ValueError:
            continue
        else:
            connection.terminate()
            return ""
    return sqlstate


async def _connected_within(arguments: Mapping[str, Any], settings: Mapping[str, str]) -> Any:
    own_settings = arguments.get("server_settings", {})
    return await asyncpg.connect(
        **{**arguments, "timeout": _TIMEOUT_S, "server_settings": {**own_settings, **settings}}
    )
