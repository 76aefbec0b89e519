"""Opens connections of libpq whose search_path is pinned from the start (see `search_path`).

A pooler that does not know the parameter refuses the connection; it is then opened without, and each user pins its
transactions with `pin`.
"""

from __future__ import annotations

from typing import Any, Final

import psycopg

from pgtop_tune.postgres.conninfo import ConnInfo
from pgtop_tune.postgres.failures import sqlstate_of
from pgtop_tune.postgres.search_path import refuses_start_option, with_start_option

CONNECT_TIMEOUT_S: Final = 5
"""Unless the operator's connect_timeout says otherwise."""


def connect(conninfo: ConnInfo, application_name: str, *, options: str = "", **more: Any) -> psycopg.Connection[Any]:
    """A connection in autocommit.

    Args:
        conninfo: Where to.
        application_name: What the server calls us.
        options: Of the start-up packet, behind the operator's own.
        more: Further arguments of `psycopg.connect`.

    Raises:
        psycopg.OperationalError, OSError, UnicodeError: As psycopg does.
    """
    words, pinned = _words(conninfo, application_name, options)
    try:
        return psycopg.connect(autocommit=True, **{**words, **pinned}, **more)
    except psycopg.OperationalError as refused:
        if not refuses_start_option(sqlstate_of(refused), str(refused)):
            raise
    return psycopg.connect(autocommit=True, **words, **more)


async def connect_async(
    conninfo: ConnInfo, application_name: str, *, pinned: bool = True, **more: Any
) -> psycopg.AsyncConnection[Any]:
    """The same for an event loop; arguments and exceptions as those of `connect`.

    Args:
        pinned: False for a session that has to be as others are; it must look nothing up.
    """
    words, options = _words(conninfo, application_name, "")
    try:
        if not pinned:
            return await psycopg.AsyncConnection.connect(autocommit=True, **words, **more)
        return await psycopg.AsyncConnection.connect(autocommit=True, **{**words, **options}, **more)
    except psycopg.OperationalError as refused:
        if not pinned or not refuses_start_option(sqlstate_of(refused), str(refused)):
            raise
    return await psycopg.AsyncConnection.connect(autocommit=True, **words, **more)


def _words(conninfo: ConnInfo, application_name: str, options: str) -> tuple[dict[str, Any], dict[str, str]]:
    """Keyword arguments, and those of them that differ where the search_path is pinned."""
    words: dict[str, Any] = {"connect_timeout": CONNECT_TIMEOUT_S, **conninfo.as_psycopg()}
    words["application_name"] = application_name
    words["options"] = f"{words.get('options', '')} {options}".strip()
    return words, {"options": with_start_option(words["options"])}
