"""Views and functions of pg_catalog that an administrator has revoked from PUBLIC, and the GRANTs that open them.

The server checks rights before a statement begins, also for parts of it that would never run. So a statement that must
succeed is sent again without its closed parts: an empty relation of the same type replaces a closed view.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from typing import Final

import asyncpg
from msgspec import Struct
from msgspec.structs import replace

from pgtop_tune.base.errors import ServerProblem
from pgtop_tune.model.absence import Reason, Unavailable, grant
from pgtop_tune.postgres.server.connection import ReadConnection, Rows
from pgtop_tune.postgres.server.failures import server_words

_NAME: Final = re.compile(r"\bpg_[a-z0-9_]+\b")
_WORD: Final = re.compile(r"\b[a-z][a-z0-9_]*\b")
_BEHIND: Final[Mapping[str, str]] = {"pg_settings": "pg_show_all_settings"}
"""View → the function that it calls with the rights of its reader; of the views that a start needs."""
_WITHOUT_CALL: Final[Mapping[str, tuple[tuple[str, str], ...]]] = {
    "pg_stat_get_activity": (
        (r"pg_stat_get_activity\(pg_backend_pid\(\)\)", "(SELECT NULL::timestamptz AS backend_start)"),
    ),
    "current_setting": (
        (r"current_setting\(('[a-z_.]+')(?:, true)?\)", r"(SELECT setting FROM pg_settings WHERE name = \1)"),
    ),
    "pg_size_bytes": (
        (
            r"pg_size_bytes\(current_setting\('wal_segment_size'\)\)",
            "(SELECT setting FROM pg_settings WHERE name = 'wal_segment_size')",
        ),
    ),
    "pg_backend_pid": ((r"pg_backend_pid\(\)", "0"),),
    "pg_is_in_recovery": ((r"pg_is_in_recovery\(\)", "current_setting('in_hot_standby')::bool"),),
    # The checkpointer starts with the server; a role that may not see that either sees no restart.
    "pg_postmaster_start_time": (
        (
            r"pg_postmaster_start_time\(\)",
            "COALESCE((SELECT min(a.backend_start) FROM pg_stat_activity a WHERE a.backend_type = 'checkpointer'),"
            " to_timestamp(0))",
        ),
    ),
    "pg_get_userbyid": ((r"pg_get_userbyid\(([a-z.]+)\)", r"\1::regrole"),),
    # Only the bootstrap superuser counts as trusted.
    "pg_has_role": (
        (r"pg_has_role\(o\.owner, [^()]*\)", "(o.owner = 10)"),
        (r"pg_has_role\(session_user, r\.oid, [^()]*\)", "true"),
        (r"pg_has_role\([^()]*\)", "false"),
    ),
    "has_function_privilege": ((r"has_function_privilege\('[a-z_]+\(\)', 'execute'\)", "false"),),
    "has_schema_privilege": ((r"has_schema_privilege\([^()]*\)", "true"),),
    "date_part": ((r"\bdate_part\(", '"extract"('),),
    "version": ((r"\bversion\(\)", "current_setting('server_version')"),),
}
"""Function → its calls in the first statements, and their replacement where it is closed."""
_CLOSED: Final = (
    """
SELECT c.relname::text AS name, 'SELECT ON ' || c.relname AS opening
  FROM pg_class c
 WHERE c.relnamespace = 'pg_catalog'::regnamespace AND c.relkind IN ('r', 'v') AND c.relname::text = ANY ($1::text[])
   AND NOT has_any_column_privilege(c.oid, 'select')
 ORDER BY 1
""",
    """
SELECT p.proname::text AS name, 'EXECUTE ON FUNCTION ' || p.oid::regprocedure AS opening
  FROM pg_proc p
 WHERE p.pronamespace = 'pg_catalog'::regnamespace AND p.proname::text = ANY ($1::text[])
   AND NOT has_function_privilege(p.oid, 'execute')
 ORDER BY 1
""",
)
"""Queries for closed relations and functions: two, because one of both catalogues may be closed itself."""


class ClosedRight(Struct, frozen=True):
    """A view, table or function that this role may not use.

    Attributes:
        name: Its name without schema.
        opening: Privilege for a GRANT: "SELECT ON pg_settings".
    """

    name: str
    opening: str


async def closed_rights(connection: ReadConnection, texts: Sequence[str], refusal: str) -> tuple[ClosedRight, ...]:
    """Return views and functions in some statements that our role may not use, as far as the server tells.

    Args:
        connection: Connection of the role.
        texts: The statements.
        refusal: The server's message: in every language it names the closed object, also a function behind a view.

    Raises:
        ConnectionProblem: The server is gone.
    """
    names = {name for text in texts for name in _NAME.findall(text)}
    names |= {function for view, function in _BEHIND.items() if view in names}
    rights: list[ClosedRight] = []
    for question in _CLOSED:
        with suppress(asyncpg.PostgresError, ServerProblem):
            rows = await connection.fetch(question, sorted(names | set(_WORD.findall(refusal))))
            rights += [ClosedRight(**row) for row in rows]
    named = {right.name for right in rights}
    calls = {name for text in texts for name in re.findall(r"\b([a-z0-9_]+)\(", text)}
    for name in sorted(set(_WORD.findall(refusal)) & (names | calls) - named):
        is_function = name in calls or name in _BEHIND.values()
        rights.append(ClosedRight(name, f"{'EXECUTE ON FUNCTION' if is_function else 'SELECT ON'} {name}"))
    return tuple(rights)


async def with_grants(connection: ReadConnection, absence: Unavailable, texts: Sequence[str]) -> Unavailable:
    """Return a refusal of some statements with the GRANTs for what they read, if rights are the reason."""
    if absence.reason is not Reason.NO_PERMISSION:
        return absence
    rights = await closed_rights(connection, texts, absence.detail)
    grants = "; ".join(grant(right.opening, connection.conninfo.user) for right in rights)
    return replace(absence, detail=f"{absence.detail}: {grants}") if grants else absence


async def fetch_open(connection: ReadConnection, text: str, *arguments: object) -> tuple[Rows, frozenset[ClosedRight]]:
    """Return the rows of a statement without its closed parts, and these parts. Raises as `fetch` does."""
    closed: frozenset[ClosedRight] = frozenset()
    while True:
        try:
            return await connection.fetch(_without(text, closed), *arguments), closed
        except asyncpg.InsufficientPrivilegeError as refusal:
            more = closed | set(await closed_rights(connection, [_without(text, closed)], server_words(refusal)))
            if _without(text, more) == _without(text, closed):
                raise
            closed = more


def _without(text: str, closed: Collection[ClosedRight]) -> str:
    """Return a statement with replacements of its closed views and functions."""
    names = {right.name for right in closed}
    # Twice, because a replacement may contain another closed call.
    for function, calls in (*_WITHOUT_CALL.items(), *_WITHOUT_CALL.items()):
        if function in names:
            for call, instead in calls:
                text = re.sub(call, instead, text)
    views = {right.name for right in closed if right.opening.startswith("SELECT")}
    views |= {view for view, function in _BEHIND.items() if function in names}
    if not views:
        return text
    empty = ", ".join(f"{view} AS (SELECT (NULL::pg_catalog.{view}).* WHERE false)" for view in sorted(views))
    return f"WITH {empty}, {text.removeprefix('WITH ')}" if text.startswith("WITH ") else f"WITH {empty} {text}"
