"""Views and functions of pg_catalog that an administrator has taken from PUBLIC: which, and the GRANTs that open them.

Rights are looked at before a statement begins, also for a part of it that would never run. So a statement that has to
succeed is asked again without what is closed: a view is then one without rows, made of its type.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final

import asyncpg
from msgspec import Struct
from msgspec.structs import replace

from pgtop_tune.base.errors import ServerProblem
from pgtop_tune.model.absence import Reason, Unavailable, grant
from pgtop_tune.postgres.server.connection import ReadConnection, Rows

_NAME: Final = re.compile(r"\bpg_[a-z0-9_]+\b")
_BEHIND: Final[Mapping[str, str]] = {"pg_settings": "pg_show_all_settings"}
"""View → the function that it calls with the rights of whoever reads it; of views without which there is no start."""
_WITHOUT_CALL: Final[Mapping[str, tuple[str, str]]] = {
    "pg_stat_get_activity": ("pg_stat_get_activity(pg_backend_pid())", "(SELECT NULL::timestamptz AS backend_start)"),
}
"""Function → how the first statements call it, and what stands there where it is closed."""
_CLOSED: Final = """
SELECT c.relname::text AS name, 'SELECT ON ' || c.relname AS opening
  FROM pg_class c
 WHERE c.relnamespace = 'pg_catalog'::regnamespace AND c.relkind IN ('r', 'v') AND c.relname::text = ANY ($1::text[])
   AND NOT has_any_column_privilege(c.oid, 'select')
 UNION ALL
SELECT p.proname::text, 'EXECUTE ON FUNCTION ' || p.oid::regprocedure
  FROM pg_proc p
 WHERE p.pronamespace = 'pg_catalog'::regnamespace AND p.proname::text = ANY ($1::text[])
   AND NOT has_function_privilege(p.oid, 'execute')
 ORDER BY 1
"""


class ClosedRight(Struct, frozen=True):
    """A view, table or function that this role may not use.

    Attributes:
        name: Without its schema.
        opening: What a GRANT has to name: "SELECT ON pg_settings".
    """

    name: str
    opening: str


async def closed_rights(connection: ReadConnection, texts: Sequence[str]) -> tuple[ClosedRight, ...]:
    """Return what these statements name and our role may not use. Raises as `ReadConnection.fetch` does."""
    names = {name for text in texts for name in _NAME.findall(text)}
    names |= {function for view, function in _BEHIND.items() if view in names}
    return tuple(ClosedRight(**row) for row in await connection.fetch(_CLOSED, sorted(names)))


async def with_grants(connection: ReadConnection, why: Unavailable, texts: Sequence[str]) -> Unavailable:
    """Return a refusal of these statements with the GRANTs that open what they read, where it is a matter of rights."""
    if why.reason is not Reason.NO_PERMISSION:
        return why
    try:
        rights = await closed_rights(connection, texts)
    except (asyncpg.PostgresError, ServerProblem):
        return why
    grants = "; ".join(grant(right.opening, connection.conninfo.user) for right in rights)
    return replace(why, detail=f"{why.detail}: {grants}") if grants else why


async def fetch_open(connection: ReadConnection, text: str, *arguments: object) -> Rows:
    """Return rows of a statement, without those of views that our role may not read. Raises as `fetch` does."""
    try:
        return await connection.fetch(text, *arguments)
    except asyncpg.InsufficientPrivilegeError:
        open_text = _without(text, await closed_rights(connection, [text]))
        if open_text == text:
            raise
        return await connection.fetch(open_text, *arguments)


def _without(text: str, closed: Sequence[ClosedRight]) -> str:
    """The statement with empty views in place of those that are closed."""
    names = {right.name for right in closed}
    for function, (call, instead) in _WITHOUT_CALL.items():
        if function in names:
            text = text.replace(call, instead)
    views = {right.name for right in closed if right.opening.startswith("SELECT")}
    views |= {view for view, function in _BEHIND.items() if function in names}
    if not views:
        return text
    empty = ", ".join(f"{view} AS (SELECT (NULL::pg_catalog.{view}).* WHERE false)" for view in sorted(views))
    return f"WITH {empty}, {text.removeprefix('WITH ')}" if text.startswith("WITH ") else f"WITH {empty} {text}"
