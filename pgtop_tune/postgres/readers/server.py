"""Readings of the whole server: its parameters, and its machine over SQL."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

import asyncpg
from msgspec.structs import replace

from pgtop_tune.base.secret import without_secrets
from pgtop_tune.model.absence import Reason, Unavailable
from pgtop_tune.model.machine import ServerPlaces
from pgtop_tune.model.parameter_values import has_own_value
from pgtop_tune.model.postgres import Parameter, ParameterSample
from pgtop_tune.postgres.queries import sql
from pgtop_tune.postgres.readers.section_readers import ReadContext
from pgtop_tune.postgres.server import own_sessions
from pgtop_tune.postgres.server.failures import absence
from pgtop_tune.postgres.server.search_path import AT_START

_OF_OUR_SESSION: Final = frozenset({*AT_START, "client_encoding"})
"""Parameters that all of our sessions begin with: pg_settings shows our value and hides the server's."""


async def read_parameters(context: ReadContext, in_files: bool) -> ParameterSample:
    """Read pg_settings as other sessions have it, without the parameters that ours begin with.

    Args:
        context: The server.
        in_files: Whether this role may read pg_file_settings, which has the entries of postgresql.auto.conf.
    """
    rows = await context.connection.fetch_without_own_settings(sql("parameters", context.major))
    at_s = context.clock()
    in_auto_conf: frozenset[str] | None = None
    if in_files:
        in_auto_conf = frozenset(row[0] for row in await context.fetch("auto_conf"))
    parameters = {row["name"]: _parameter(row, in_auto_conf) for row in rows if row["name"] not in _OF_OUR_SESSION}
    waiting = [row.name for row in parameters.values() if row.pending_restart]
    if waiting and in_files:
        for line in await context.fetch("pending", waiting):
            row = parameters[line["name"]]
            if line["setting"] is None and has_own_value(row):
                parameters[row.name] = replace(row, pending_restart=False)
            else:
                parameters[row.name] = replace(row, pending=without_secrets(line["setting"] or row.boot_val))
    lifted = [row for row in parameters.values() if own_sessions.is_lifted(row)]
    if lifted:
        names = [row.name for row in lifted]
        nearer = {row["name"]: row for row in await context.fetch("limits_of_session", names)}
        lines = await context.connection.fetch(own_sessions.IN_FILES.replace("%s", "$1"), names) if in_files else ()
        files = {row["name"]: (row["setting"], row["place"]) for row in lines}
        parameters |= {row.name: _as_set(row, nearer.get(row.name), files.get(row.name)) for row in lifted}
    return ParameterSample(at_s, tuple(parameters.values()))


def _as_set(row: Parameter, nearer: Any, line: tuple[str, str] | None) -> Parameter:
    """Return a limit that our session has lifted with the value of other sessions of our role and database."""
    from_start = row.source == "client"
    if nearer is None:
        return own_sessions.as_set(row, line, from_start=from_start)
    parameter = own_sessions.as_set(row, (nearer["setting"], ""), from_start=from_start)
    return replace(parameter, source=nearer["source"])


def _parameter(row: Any, in_auto_conf: frozenset[str] | None) -> Parameter:
    fields = dict(zip(row.keys(), row, strict=True))
    in_file = None if in_auto_conf is None else fields["name"] in in_auto_conf
    fields["enumvals"] = tuple(fields["enumvals"])
    if fields["vartype"] == "string":
        # primary_conninfo and commands may hold passwords, and frames are recorded; PostgreSQL's defaults hold none.
        default = None if "." in fields["name"] else fields["boot_val"]
        for name in ("setting", "shown", "reset_val", "boot_val"):
            value = fields[name] or ""
            fields[name] = value if value == default else without_secrets(value)
    return Parameter(**fields, in_auto_conf=in_file)


# The machine of the server over SQL: directories of the server, and files of the kernel.

_NAME: Final = re.compile(r'"((?:[^"]|"")*)"|([^,"\s]+)')


async def read_places(context: ReadContext) -> ServerPlaces:
    """Read pg_tablespace_location(), temp_tablespaces, log_directory. Raises as `ReadConnection.fetch` does."""
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
    """Return the names in a list of identifiers as the server writes it: `fast, "Two words"`."""
    return tuple(
        quoted.replace('""', '"') if quoted else plain
        for quoted, plain in _NAME.findall(identifiers)
        if quoted or plain
    )


async def read_files(context: ReadContext, paths: Sequence[str]) -> list[bytes | None] | Unavailable:
    """Read files on the server's machine, in the order of the paths; None for one that does not exist.

    One statement calls pg_read_binary_file(path, offset, length, missing_ok): with a length, every major from 14 on
    reads /proc files in full. A file that cannot be read makes the result Unavailable, with the server's message.
    """
    try:
        rows = await context.fetch("server_files", list(paths))
    except asyncpg.InsufficientPrivilegeError as error:
        return Unavailable(Reason.NO_PERMISSION, str(error))
    except asyncpg.PostgresError as error:
        return absence(error)
    contents: list[bytes | None] = [None] * len(paths)
    for number, content in rows:
        contents[number - 1] = content
    return contents
