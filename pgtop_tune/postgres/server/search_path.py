"""The pinned search_path of our sessions: names in our statements always mean PostgreSQL's own objects.

An operator or a function in a schema of search_path is used if it fits better than the one in pg_catalog, and runs with
the rights of the calling role. ALTER DATABASE … SET search_path can even put a schema before pg_catalog. So all of our
sessions look names up in pg_catalog alone: by the start-up packet, which overrides the settings of role and database
and precedes login triggers; behind a pooler, which refuses that, at the begin of every transaction.

Source: CVE-2018-1058; documentation of search_path, and of "Function Type Resolution"; postinit.c
(process_startup_options before EventTriggerOnLogin).
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final, TypeVar

from msgspec.structs import replace

from pgtop_tune.base.errors import UsageProblem
from pgtop_tune.base.sql_quoting import quoted
from pgtop_tune.model.postgres import Parameter
from pgtop_tune.postgres.server.failures import sqlstate_of

PINNED: Final = "pg_catalog, pg_temp"
"""The pinned value. Without pg_temp at its end, PostgreSQL would search temporary tables and types first."""
NAME: Final = "search_path"
AT_START: Final[Mapping[str, str]] = {NAME: PINNED, "default_transaction_deferrable": "off"}
"""Parameters of the start-up packet, which override the settings of role and database. A serializable, read-only,
deferrable transaction waits for others without a time limit, so a revert might never begin."""
_REFUSED: Final = "08P01"
_REFUSED_WORDS: Final = "unsupported startup parameter"
_T = TypeVar("_T")
_ELEMENT: Final = re.compile(r'\s*(?:"(?P<quoted>(?:[^"]|"")*)"|(?P<plain>[^",]*?))\s*(?:,|$)')


async def pinned_first(connect: Callable[[Mapping[str, str]], Awaitable[_T]]) -> _T:
    """Open a connection that is pinned from the start; without the pin where a pooler refuses it.

    Args:
        connect: Opens a connection, given further parameters of the start-up packet. Its exceptions are passed on.
    """
    try:
        return await connect(AT_START)
    except Exception as refusal:
        if not refused(refusal):
            raise
    return await connect({})


def refused(error: BaseException) -> bool:
    """Return whether a pooler refused the login for an unknown parameter.

    libpq reports no sqlstate of a failed connection. Source: PgBouncer, client.c (set_startup_options).
    """
    state = sqlstate_of(error)
    return state == _REFUSED or (not state and _REFUSED_WORDS in str(error).lower())


def pin(*, local: bool) -> str:
    """Return the expression that pins a session, or its transaction; its own names need no search_path."""
    return f"pg_catalog.set_config('{NAME}', '{PINNED}', {'true' if local else 'false'})"


def unpinned(row: Parameter, line: tuple[str, str] | None) -> Parameter:
    """Return a parameter of `AT_START` with the value of the server's files; a pinned session shows its own.

    Args:
        row: Row of pg_settings in our session.
        line: Value and line in the files; None without a line, or without the right to read them.
    """
    value, source_line = line if line is not None else (row.boot_val, "")
    source = "configuration file" if line is not None else "default"
    return replace(row, setting=value, shown=value, reset_val=value, source=source, sourcefile=source_line)


def schemas(setting: str, user: str) -> tuple[str, ...]:
    """Return the schemas of a search_path in the order in which sessions of a role search them.

    Source: namespace.c (recomputeNamespacePath), varlena.c (SplitIdentifierString).
    """
    names: list[str] = []
    at = 0
    while at < len(setting):
        match = _ELEMENT.match(setting, at)
        if match is None or match.end() == at:
            raise UsageProblem(f"the server's {NAME} cannot be read: {setting}")
        name = match["quoted"].replace('""', '"') if match["quoted"] is not None else match["plain"].lower()
        names += [user if name == "$user" else name] if name else []
        at = match.end()
    return tuple(dict.fromkeys(names))


def catalog_first(names: Sequence[str]) -> str:
    """Return a search_path of some schemas with pg_catalog first; "" where it already is.

    PostgreSQL searches pg_catalog first where it is not named.
    """
    return in_order(names) if "pg_catalog" in names[1:] else ""


def in_order(names: Sequence[str]) -> str:
    """Return a search_path of some schemas, after pg_catalog, and before temporary tables."""
    schema_names = [quoted(name) for name in names if name not in ("pg_catalog", "pg_temp")]
    return ", ".join((*schema_names, "pg_temp"))
