"""Names in our statements mean what PostgreSQL ships, whatever the owner of a database has made under the same name.

An operator or a function of a schema in search_path is taken where it fits better than the one of pg_catalog, and runs
with the rights of the role that asks. ALTER DATABASE … SET search_path even puts a schema before pg_catalog. So every
session of ours looks names up in pg_catalog alone: by the start-up packet, which wins over the settings of role and
database and comes before login triggers; behind a pooler, which refuses that, at the begin of every transaction.

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
"""Without pg_temp at its end, tables and types of ours would be looked for among temporary ones first."""
NAME: Final = "search_path"
AT_START: Final[Mapping[str, str]] = {NAME: PINNED, "default_transaction_deferrable": "off"}
"""What the start-up packet says, over the settings of role and database. A serializable transaction that only reads and
is deferrable waits, without any limit of time, until others have ended: revert would never come to its turn."""
_REFUSED: Final = "08P01"
_REFUSED_WORDS: Final = "unsupported startup parameter"
_T = TypeVar("_T")
_ELEMENT: Final = re.compile(r'\s*(?:"(?P<quoted>(?:[^"]|"")*)"|(?P<plain>[^",]*?))\s*(?:,|$)')


async def pinned_first(connect: Callable[[Mapping[str, str]], Awaitable[_T]]) -> _T:
    """A connection that is pinned from the start, where nothing on the way refuses that.

    Args:
        connect: Makes one; is handed further parameters of the start-up packet. Its exceptions are passed on.
    """
    try:
        return await connect(AT_START)
    except Exception as refusal:
        if not refused(refusal):
            raise
    return await connect({})


def refused(error: BaseException) -> bool:
    """Whether a pooler let us not in for a parameter that it does not know.

    libpq tells no sqlstate of a connection that failed. Source: PgBouncer, client.c (set_startup_options).
    """
    state = sqlstate_of(error)
    return state == _REFUSED or (not state and _REFUSED_WORDS in str(error).lower())


def pin(*, local: bool) -> str:
    """The expression that pins a session, or the transaction it stands in; nothing is looked up to run it."""
    return f"pg_catalog.set_config('{NAME}', '{PINNED}', {'true' if local else 'false'})"


def unpinned(row: Parameter, line: tuple[str, str] | None) -> Parameter:
    """A parameter of `AT_START` as the server's files have it: a pinned session shows its own.

    Args:
        row: What pg_settings shows in our session.
        line: Value and place in the files; None where they have none or we may not look.
    """
    value, source_line = line if line is not None else (row.boot_val, "")
    source = "configuration file" if line is not None else "default"
    return replace(row, setting=value, shown=value, reset_val=value, source=source, sourcefile=source_line)


def schemas(setting: str, user: str) -> tuple[str, ...]:
    """The schemas of a search_path in its order, as sessions of a role look through it.

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
    """A search_path of these schemas in which nothing comes before pg_catalog; "" where nothing does as it is.

    pg_catalog comes first where it is not named.
    """
    return in_order(names) if "pg_catalog" in names[1:] else ""


def in_order(names: Sequence[str]) -> str:
    """A search_path of these schemas, behind pg_catalog, and temporary tables behind them."""
    schema_names = [quoted(name) for name in names if name not in ("pg_catalog", "pg_temp")]
    return ", ".join((*schema_names, "pg_temp"))
