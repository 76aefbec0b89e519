"""Views and functions of pg_catalog that an administrator has taken from PUBLIC: which, and the GRANTs that open them.

Rights are looked at before a statement begins, also for a part of it that would never run. So a statement that has to
succeed is asked again without what is closed: a view is then one without rows, made of its type.
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
"""View → the function that it calls with the rights of whoever reads it; of views without which there is no start."""
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
    # The checkpointer starts with the server; who may not see that either sees no restart.
    "pg_postmaster_start_time": (
        (
            r"pg_postmaster_start_time\(\)",
            "COALESCE((SELECT min(a.backend_start) FROM pg_stat_activity a WHERE a.backend_type = 'checkpointer'),"
            " to_timestamp(0))",
        ),
    ),
    "pg_get_userbyid": ((r"pg_get_userbyid\(([a-z.]+)\)", r"\1::regrole"),),
    # The bootstrap superuser may have what others may not.
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
"""Function → how the first statements call it, and what stands there where it is closed."""
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
"""Relations, functions: each is asked by itself, for the catalogue of the other may be closed."""


class ClosedRight(Struct, frozen=True):
    """A view, table or function that this role may not use.

    Attributes:
        name: Without its schema.
        opening: What a GRANT has to name: "SELECT ON pg_settings".
    """

    name: str
    opening: str


async def closed_rights(connection: ReadConnection, texts: Sequence[str], refusal: str) -> tuple[ClosedRight, ...]:
    """Return what these statements name and our role may not use, as far as the server tells.

    Args:
        connection: Of the role.
        texts: The statements.
        refusal: The server's words: in every language they name what is closed, also a function behind a view.

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
    """Return a refusal of these statements with the GRANTs that open what they read, where it is a matter of rights."""
    if absence.reason is not Reason.NO_PERMISSION:
        return absence
    rights = await closed_rights(connection, texts, absence.detail)
    grants = "; ".join(grant(right.opening, connection.conninfo.user) for right in rights)
    return replace(absence, detail=f"{absence.detail}: {grants}") if grants else absence


async def fetch_open(connection: ReadConnection, text: str, *arguments: object) -> tuple[Rows, frozenset[ClosedRight]]:
    """Return rows of a statement without what our role may not use, and what that is. Raises as `fetch` does."""
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
    """The statement with empty views in place of those that are closed."""
    names = {right.name for right in closed}
    # What stands for one call may be another that is closed.
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
