"""The statements that change a parameter, by scope, and how a value stands in the server's catalogue afterwards.

SQL is composed from identifiers and literals, never from strings.
Source: SQL commands ALTER SYSTEM, ALTER ROLE, ALTER DATABASE; pg_db_role_setting; guc_funcs.c
(flatten_set_variable_args).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final, LiteralString

from pgtop_tune.model.change import SYSTEM, Scope, ScopeKind

if TYPE_CHECKING:
    from psycopg import sql

QUOTED_LISTS: Final = frozenset(
    {
        "local_preload_libraries",
        "search_path",
        "session_preload_libraries",
        "shared_preload_libraries",
        "temp_tablespaces",
        "unix_socket_directories",
    }
)
"""GUC_LIST_QUOTE parameters (pg_dump's variable_is_guc_list_quote): one literal would be taken for one element."""

STORED: Final = """
SELECT substr(entry, strpos(entry, '=') + 1) AS value
  FROM pg_db_role_setting s CROSS JOIN LATERAL unnest(s.setconfig) AS entry
 WHERE s.setdatabase = coalesce((SELECT oid FROM pg_database WHERE datname = %s), 0)
   AND s.setrole = coalesce((SELECT oid FROM pg_roles WHERE rolname = %s), 0)
   AND lower(split_part(entry, '=', 1)) = lower(%s)
"""
"""What a role, a database or a role in a database has set: one row or none. Arguments: database, role, name."""

_ELEMENT: Final = re.compile(r'\s*(?:"((?:[^"]|"")*)"|([^",]*))\s*(?:,|$)')
_TARGETS: Final[Mapping[ScopeKind, LiteralString]] = {
    ScopeKind.SYSTEM: "ALTER SYSTEM",
    ScopeKind.ROLE: "ALTER ROLE {role}",
    ScopeKind.DATABASE: "ALTER DATABASE {database}",
    ScopeKind.ROLE_IN_DATABASE: "ALTER ROLE {role} IN DATABASE {database}",
}
_SAID: Final = {
    ScopeKind.SYSTEM: "all sessions",
    ScopeKind.ROLE: "sessions of role {role}",
    ScopeKind.DATABASE: "sessions in database {database}",
    ScopeKind.ROLE_IN_DATABASE: "sessions of role {role} in database {database}",
}


def statement(name: str, value: str | None, scope: Scope = SYSTEM) -> sql.Composed:
    """The statement that sets a parameter, or RESETs it when there is no value."""
    # Who only compares values needs no psycopg.
    from psycopg import sql

    from pgtop_tune.postgres.quoting import identifier, literal

    target = sql.SQL(_TARGETS[scope.kind]).format(role=identifier(scope.role), database=identifier(scope.database))
    parameter = identifier(*name.split("."))
    if value is None:
        return sql.SQL("{} RESET {}").format(target, parameter)
    pieces = elements(value) if name.lower() in QUOTED_LISTS else (value,)
    literals = sql.SQL(", ").join(literal(piece) for piece in pieces or ("",))
    return sql.SQL("{} SET {} = {}").format(target, parameter, literals)


def said(scope: Scope) -> str:
    """For whom it is, in words. Foreign text."""
    return _SAID[scope.kind].format(role=scope.role, database=scope.database)


def elements(value: str) -> tuple[str, ...]:
    """The elements of a list as varlena.c splits them (SplitDirectoriesString): commas, double quotes doubled inside.

    Case stays as it is: the server folds what needs folding. What is no list is one element.
    """
    pieces: list[str] = []
    at = 0
    while at < len(value):
        match = _ELEMENT.match(value, at)
        if match is None:
            return (value,)
        quoted, plain = match.groups()
        pieces.append(quoted.replace('""', '"') if quoted is not None else plain.strip())
        at = match.end()
    return tuple(pieces)


def same(name: str, one: str | None, other: str | None) -> bool:
    """Whether two stored values of a parameter are the same: lists by their elements, all else as texts."""
    if one is None or other is None or name.lower() not in QUOTED_LISTS:
        return one == other
    return elements(one) == elements(other)


def out_of_order(have: Sequence[str], wanted: Sequence[str]) -> tuple[str, ...]:
    """Which names have to be written anew, each at the end, so that the lines stand as wanted; those it is about."""
    for index, (standing, meant) in enumerate(zip(have, wanted, strict=True)):
        if standing != meant:
            return tuple(wanted[index:])
    return ()
