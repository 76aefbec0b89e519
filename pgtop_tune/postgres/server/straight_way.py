"""Whether a connection leads to a server straight, and which process of this machine serves it."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncIterator, Set
from contextlib import asynccontextmanager
from typing import Final, cast

from msgspec import Struct

from pgtop_tune.errors import PgtopError
from pgtop_tune.postgres.queries import OLDEST_MAJOR, sql
from pgtop_tune.postgres.server.conninfo import ConnInfo, ServerEndpoint
from pgtop_tune.postgres.server.sql_session import PsycopgSession, open_sql_session

_WHERE: Final = (
    "SELECT extract(epoch FROM pg_postmaster_start_time())::text, pg_backend_pid(),"
    " host(inet_server_addr()), inet_server_port()"
)


async def leads_straight(way: ConnInfo, sql_session: PsycopgSession, watched: ConnInfo) -> bool:
    """Whether `way` ends at the server that is watched with nothing in between.

    It does where it has the watched connection's own address. Else a session is opened there. It is straight when that
    is the same server (start of the postmaster), when the process that let us in is the one that answers (poolers give
    a number of their own in the key for cancelling), and when the server was reached where we knocked (a proxy of TCP
    connects from its own side, mostly to another port).

    Args:
        way: Where a load would be sent.
        sql_session: A session on the server that is watched.
        watched: What `sql_session` was opened with.

    Returns:
        False also where nobody lets us in: nothing is known then.
    """
    knocked = way.endpoints[0]
    places = await asyncio.to_thread(_places, knocked)
    if places & await asyncio.to_thread(_places, watched.endpoints[0]):
        return True
    try:
        there = await open_sql_session(way)
        try:
            [(started, pid, address, port)] = await there.rows(_WHERE)
        finally:
            await there.aclose()
        [(watched_started, *_)] = await sql_session.rows(_WHERE)
    except PgtopError:
        return False
    same = started == watched_started and pid == there.backend_pid
    return same and answers_there(knocked, places, address, port)


def answers_there(knocked: ServerEndpoint, places: Set[tuple[str, int]], address: object, port: object) -> bool:
    """Whether the server was reached where we knocked.

    Args:
        knocked: What we connected to.
        places: Its addresses and port.
        address, port: inet_server_addr() and inet_server_port() there: the server's end, NULL for a Unix socket.
    """
    return port is None if knocked.is_socket else (address, port) in places


def _places(endpoint: ServerEndpoint) -> set[tuple[str, int]]:
    """Addresses and port, or directory and number of a socket; names are looked up."""
    if endpoint.is_socket:
        return {(os.path.realpath(endpoint.host), endpoint.port)}
    name = endpoint.hostaddr or endpoint.host
    try:
        found = socket.getaddrinfo(name, endpoint.port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return {(name, endpoint.port)}
    return {(str(address[0]).partition("%")[0], endpoint.port) for *_, address in found}


# What a session says of itself that a process of this machine can be recognised by.


class Whereabouts(Struct, frozen=True):
    """Of one session.

    Attributes:
        backend_pid: pg_backend_pid().
        backend_start_ms: pg_stat_activity.backend_start, milliseconds since the epoch.
        data_directory: The server's; "" where the role may not see it.
    """

    backend_pid: int
    backend_start_ms: int | None
    data_directory: str


@asynccontextmanager
async def whereabouts(conninfo: ConnInfo) -> AsyncIterator[Whereabouts]:
    """Asks in a session of its own, which lasts as long as the block: its process can be looked at in there.

    Raises:
        ConnectionProblem: The server is not there or does not let us in.
    """
    sql_session = await open_sql_session(conninfo)
    try:
        ((pid, start_ms, directory),) = await sql_session.rows(sql("own_backend", OLDEST_MAJOR))
        yield Whereabouts(cast("int", pid), cast("int", start_ms), str(directory))
    finally:
        await sql_session.aclose()
