"""Opens what the operator's acts go through.

psycopg is imported by the first of them: it takes a tenth of a second and 11 MB, and a screen that only watches, or a
recording, has no use for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from pgtop_tune.postgres.server.conninfo import ConnInfo
from pgtop_tune.postgres.server.own_sessions import OwnSessions

if TYPE_CHECKING:
    from pgtop_tune.changes.server.operator_session import OperatorSession
    from pgtop_tune.postgres.server.sql_session import PsycopgSession


def operator_session(conninfo: ConnInfo, own: OwnSessions) -> OperatorSession:
    """Connects for changes; blocking. See `OperatorSession`."""
    from pgtop_tune.changes.server.operator_session import OperatorSession

    return OperatorSession(conninfo, own)


async def sql_hand(conninfo: ConnInfo, own: OwnSessions) -> PsycopgSession:
    """Connects for data sets and housekeeping. See `open_sql_session`."""
    # Frames are sampled in the caller's loop.
    opened = await asyncio.to_thread(_hand)
    return await opened(conninfo, own)


def _hand() -> Callable[[ConnInfo, OwnSessions], Awaitable[PsycopgSession]]:
    from pgtop_tune.postgres.server.sql_session import open_sql_session

    return open_sql_session
