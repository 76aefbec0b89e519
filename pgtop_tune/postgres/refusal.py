"""Why a server lets nobody in, in any language: libpq tells no sqlstate of a connection that failed, asyncpg does."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import asyncpg

from pgtop_tune.postgres.conninfo import ConnInfo
from pgtop_tune.postgres.failures import sqlstate_of

_TIMEOUT_S: Final = 3.0


def refused_with(conninfo: ConnInfo) -> str:
    """The same as `refusal`, for who has no event loop."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, refusal(conninfo)).result()


async def refusal(conninfo: ConnInfo) -> str:
    """The sqlstate that the server refuses a connection with; "" where it does not answer, or lets us in now."""
    found = ""
    for arguments in conninfo.as_asyncpg():
        try:
            connection = await asyncpg.connect(**{**arguments, "timeout": _TIMEOUT_S})
        except asyncpg.PostgresError as error:
            found = sqlstate_of(error)
        except (OSError, TimeoutError, asyncpg.InterfaceError, ValueError):
            continue
        else:
            connection.terminate()
            return ""
    return found
