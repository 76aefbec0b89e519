"""Connections of libpq with a search_path that is pinned from the start (see `search_path`).

A pooler that does not know the parameter refuses the connection; it is then opened without, and each caller pins its
transactions with `pin`.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from typing import Any, Final

import psycopg

from pgtop_tune.base.start_options import with_settings
from pgtop_tune.postgres.server.conninfo import ConnInfo
from pgtop_tune.postgres.server.search_path import AT_START, pinned_first, refused

CONNECT_TIMEOUT_S: Final = 5
"""Time-out without connect_timeout of the operator."""
_MULE: Final = "MULE_INTERNAL"
_FROM_MULE: Final = {"client_encoding": "LATIN1"}
"""Encoding to which the server converts from MULE_INTERNAL (pg_conversion); psycopg leaves other texts as bytes."""


def connect(conninfo: ConnInfo, application_name: str, *, options: str = "", **more: Any) -> psycopg.Connection[Any]:
    """Open a connection in autocommit mode.

    Args:
        conninfo: The server.
        application_name: application_name of the session.
        options: Options of the start-up packet, after those of the operator.
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


def cut(connection: psycopg.Connection[Any] | psycopg.AsyncConnection[Any]) -> None:
    """Make a call that hangs, in another thread too, fail at once."""
    try:
        with socket.socket(fileno=os.dup(connection.fileno())) as line:
            line.shutdown(socket.SHUT_RDWR)
    except (OSError, psycopg.Error):
        pass


async def connect_async(
    conninfo: ConnInfo, application_name: str, *, pinned: bool = True, **more: Any
) -> psycopg.AsyncConnection[Any]:
    """Open a connection for an event loop; arguments and exceptions as those of `connect`.

    Args:
        conninfo: The server.
        application_name: application_name of the session.
        pinned: False for a session that must be like others; it must look up no names.
        more: Further arguments of `psycopg.AsyncConnection.connect`.
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
    """Return whether the server has no conversion between UTF-8 and the database; the name is in every language."""
    return _MULE in str(refusal)


def _words(conninfo: ConnInfo, application_name: str, options: str) -> dict[str, Any]:
    """Return keyword arguments for psycopg."""
    arguments: dict[str, Any] = {"connect_timeout": CONNECT_TIMEOUT_S, **conninfo.as_psycopg()}
    options = f"{arguments.get('options', '')} {options}".strip()
    return {**arguments, "application_name": conninfo.session_name(application_name), "options": options}


def _with(arguments: Mapping[str, Any], settings: Mapping[str, str]) -> dict[str, Any]:
    return {**arguments, "options": with_settings(arguments["options"], settings)}
