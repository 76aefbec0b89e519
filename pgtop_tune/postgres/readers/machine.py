"""The machine of the server, as far as SQL shows it: where it keeps what, and files of its kernel."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

import asyncpg

from pgtop_tune.model.absence import Reason, Unavailable
from pgtop_tune.model.machine import ServerPlaces
from pgtop_tune.postgres.readers.section_readers import ReadContext
from pgtop_tune.postgres.server.failures import absence

_NAME: Final = re.compile(r'"((?:[^"]|"")*)"|([^,"\s]+)')


async def read_places(context: ReadContext) -> ServerPlaces:
    """pg_tablespace_location(), temp_tablespaces, log_directory. Raises as `ReadConnection.fetch` does."""
    row = (await context.fetch("places"))[0]
    log, data = row["log_directory"] or "", row["data_directory"] or ""
    if log and not log.startswith("/"):
        log = f"{data}/{log}" if data else ""
    return ServerPlaces(
        tablespaces=tuple(zip(row["tablespace_names"], row["tablespace_directories"], strict=True)),
        temp_tablespaces=names_of(row["temp_tablespaces"]),
        log_directory=log,
    )


def names_of(identifiers: str) -> tuple[str, ...]:
    """Names of a list of identifiers as the server writes it: `fast, "Two words"`."""
    return tuple(
        quoted.replace('""', '"') if quoted else plain
        for quoted, plain in _NAME.findall(identifiers)
        if quoted or plain
    )


async def read_files(context: ReadContext, paths: Sequence[str]) -> list[bytes | None] | Unavailable:
    """Contents of files on the server's machine, in the order of the paths; None for one that is not there.

    One statement, pg_read_binary_file(path, offset, length, missing_ok): with a length, /proc files read in full on
    every major from 14 on. One file that refuses to be read makes all of it Unavailable with the server's words.
    """
    try:
        rows = await context.fetch("server_files", list(paths))
    except asyncpg.InsufficientPrivilegeError as error:
        return Unavailable(Reason.NO_PERMISSION, str(error))
    except asyncpg.PostgresError as error:
        return absence(error)
    found: list[bytes | None] = [None] * len(paths)
    for number, content in rows:
        found[number - 1] = content
    return found
