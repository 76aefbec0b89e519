"""The route of a connection: straight to a server or not, and the process of this machine that serves it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import cast

from msgspec import Struct
from msgspec.structs import replace

from pgtop_tune.base.errors import PgtopError
from pgtop_tune.postgres.queries import OLDEST_MAJOR, sql
from pgtop_tune.postgres.server.conninfo import ConnInfo, Reached
from pgtop_tune.postgres.server.other_address import leads_there
from pgtop_tune.postgres.server.sql_session import PsycopgSession, open_sql_session


class Way(Struct, frozen=True):
    """The place where the sessions of a load will arrive.

    Attributes:
        reached: The address of the server or of the pooler in front of it; None where we are not allowed to log in.
        straight: The connection ends at the watched server, with nothing in between.
        elsewhere: The connection surely ends at another server.
        refusal: Why no session could be opened there; "" where one was, or none was needed. Foreign text.
    """

    reached: Reached | None
    straight: bool
    elsewhere: bool = False
    refusal: str = ""


async def way_of(load_conninfo: ConnInfo, sql_session: PsycopgSession) -> Way:
    """Return the place where a load would arrive.

    The way is straight where the load has the address of the watched session. Otherwise a session is opened there: the
    way is straight when it reaches the same server (start of the postmaster) with nothing in between
    (`AnsweringServer.straight`).

    Args:
        load_conninfo: The connection settings of the load.
        sql_session: A session on the watched server.
    """
    watched, knocked = sql_session.reached, load_conninfo.endpoints[0]
    if len(load_conninfo.endpoints) == 1 and await asyncio.to_thread(leads_there, knocked, watched.endpoint):
        return Way(replace(watched, endpoint=replace(knocked, hostaddr=watched.endpoint.hostaddr)), straight=True)
    try:
        there = await open_sql_session(load_conninfo)
    except PgtopError as problem:
        return Way(None, straight=False, refusal=problem.message)
    try:
        server = await there.server()
        same = server.started_ms == (await sql_session.server()).started_ms
        return Way(there.reached, straight=same and server.straight, elsewhere=not same)
    except PgtopError:
        return Way(there.reached, straight=False)
    finally:
        await there.aclose()


# What a session says of itself that a process of this machine can be recognised by.


class Whereabouts(Struct, frozen=True):
    """The whereabouts of one session.

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
    """Ask in a session of its own, which lasts as long as the block: its process can be looked at in there.

    Raises:
        ConnectionProblem: The server is not there or does not let us in.
    """
    sql_session = await open_sql_session(conninfo)
    try:
        ((pid, start_ms, directory),) = await sql_session.rows(sql("own_backend", OLDEST_MAJOR))
        yield Whereabouts(cast("int", pid), cast("int", start_ms), str(directory))
    finally:
        await sql_session.aclose()
