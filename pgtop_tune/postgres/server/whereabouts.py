"""What a session says of itself that a process of this machine can be recognised by."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import cast

from msgspec import Struct

from pgtop_tune.postgres.queries import OLDEST_MAJOR, sql
from pgtop_tune.postgres.server.conninfo import ConnInfo
from pgtop_tune.postgres.server.sql_session import open_sql_session


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
    hand = await open_sql_session(conninfo)
    try:
        ((pid, start_ms, directory),) = await hand.rows(sql("own_backend", OLDEST_MAJOR))
        yield Whereabouts(cast("int", pid), cast("int", start_ms), str(directory))
    finally:
        await hand.aclose()
