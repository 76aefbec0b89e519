"""Opens connections of libpq whose search_path is pinned from the start (see `search_path`).

A pooler that does not know the parameter refuses the connection; it is then opened without, and each user pins its
transactions with `pin`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import psycopg

from pgtop_tune.base.start_options import with_settings
from pgtop_tune.postgres.server.conninfo import ConnInfo
from pgtop_tune.postgres.server.search_path import AT_START, pinned_first, refused

CONNECT_TIMEOUT_S: Final = 5
"""Unless the operator's connect_timeout says otherwise."""
_MULE: Final = "MULE_INTERNAL"
_FROM_MULE: Final = {"client_encoding": "LATIN1"}
"""The server converts between these two (pg_conversion); psycopg takes what is not converted for bytes."""


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
    arguments = _words(conninfo, application_name, options)
    try:
        return psycopg.connect(autocommit=True, **_with(arguments, AT_START), **more)
    except psycopg.OperationalError as refusal:
        if not refused(refusal) and not _is_of_mule(refusal):
            raise
        again = _with(arguments, {}) if refused(refusal) else {**_with(arguments, AT_START), **_FROM_MULE}
    return psycopg.connect(autocommit=True, **again, **more)


async def connect_async(
    conninfo: ConnInfo, application_name: str, *, pinned: bool = True, **more: Any
) -> psycopg.AsyncConnection[Any]:
    """The same for an event loop; arguments and exceptions as those of `connect`.

    Args:
        pinned: False for a session that has to be as others are; it must look nothing up.
    """
    arguments = _words(conninfo, application_name, "")

    async def connected(settings: Mapping[str, str]) -> psycopg.AsyncConnection[Any]:
        try:
            return await psycopg.AsyncConnection.connect(autocommit=True, **_with(arguments, settings), **more)
        except psycopg.OperationalError as refusal:
            if not _is_of_mule(refusal):
                raise
        again = {**_with(arguments, settings), **_FROM_MULE}
        return await psycopg.AsyncConnection.connect(autocommit=True, **again, **more)

    return await (pinned_first(connected) if pinned else connected({}))


def _is_of_mule(refusal: psycopg.OperationalError) -> bool:
    """Return whether the server converts nothing between UTF-8 and the database: it says so in any language."""
    return _MULE in str(refusal)


def _words(conninfo: ConnInfo, application_name: str, options: str) -> dict[str, Any]:
    """Keyword arguments of psycopg."""
    arguments: dict[str, Any] = {"connect_timeout": CONNECT_TIMEOUT_S, **conninfo.as_psycopg()}
    options = f"{arguments.get('options', '')} {options}".strip()
    return {**arguments, "application_name": application_name, "options": options}


def _with(arguments: Mapping[str, Any], settings: Mapping[str, str]) -> dict[str, Any]:
    return {**arguments, "options": with_settings(arguments["options"], settings)}
