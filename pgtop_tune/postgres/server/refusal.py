"""The reason why a server refuses a login, in any language: asyncpg reports the SQLSTATE of a failed connection, libpq
does not.

Nobody is asked where a keyword takes libpq: asyncpg would send a password to a server that the keyword shuts out.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Final

import asyncpg

from pgtop_tune.postgres.server.connection import CLIENT_ERRORS
from pgtop_tune.postgres.server.conninfo import ConnInfo, beyond_asyncpg
from pgtop_tune.postgres.server.failures import sqlstate_of
from pgtop_tune.postgres.server.search_path import pinned_first

_TIMEOUT_S: Final = 3.0


def refused_with(conninfo: ConnInfo) -> str:
    """The same as `refusal`, for who has no event loop."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, refusal(conninfo)).result()


async def refusal(conninfo: ConnInfo) -> str:
    """The sqlstate of a server that refuses us; "" where it does not answer, lets us in now, or may not be asked."""
    if beyond_asyncpg(conninfo):
        return ""
    found = ""
    for arguments in conninfo.as_asyncpg():
        try:
            connection = await pinned_first(partial(_connected, arguments))
        except asyncpg.PostgresError as error:
            found = sqlstate_of(error)
        except CLIENT_ERRORS:
            continue
        except ValueError:
            continue
        else:
            connection.terminate()
            return ""
    return found


async def _connected(arguments: Mapping[str, Any], settings: Mapping[str, str]) -> Any:
    given = arguments.get("server_settings", {})
    return await asyncpg.connect(**{**arguments, "timeout": _TIMEOUT_S, "server_settings": {**given, **settings}})
