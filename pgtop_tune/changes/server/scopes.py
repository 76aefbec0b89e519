"""Finds the role and the database of a change by oid: they may have another name by now, and others may have theirs.

Blocking.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from msgspec import Struct
from msgspec.structs import replace

from pgtop_tune.changes.model.change import ParameterChange, Scope, ScopeKind

if TYPE_CHECKING:
    from pgtop_tune.changes.server.operator_session import OperatorSession

_BY_NAME: Final = """
SELECT (SELECT oid::bigint FROM pg_roles WHERE rolname = %s) AS role,
       (SELECT oid::bigint FROM pg_database WHERE datname = %s) AS database
"""
_BY_OID: Final = """
SELECT (SELECT rolname FROM pg_roles WHERE oid = %s::bigint) AS role,
       (SELECT datname FROM pg_database WHERE oid = %s::bigint) AS database
"""


class PresentScope(Struct, frozen=True):
    """Where the scope of a change is now.

    Attributes:
        change: With the names of now; as it was where its role or database is gone.
        gone: That its role or database is gone, in words; "" where it is there.
        renamed: That it has another name, in words; "" where it has not.
    """

    change: ParameterChange
    gone: str = ""
    renamed: str = ""


def oids(session: OperatorSession, scope: Scope) -> tuple[int, int]:
    """Return the oids of a scope's role and database, 0 for one that it does not have, or that is not there."""
    if scope.kind is ScopeKind.SYSTEM:
        return 0, 0
    found = session.rows(_BY_NAME, scope.role, scope.database)[0]
    return found["role"] or 0, found["database"] or 0


def present(session: OperatorSession, change: ParameterChange) -> PresentScope:
    """Return the scope of a change as it is named now."""
    scope = change.scope
    if scope.kind is ScopeKind.SYSTEM:
        return PresentScope(change)
    role_oid, database_oid = oids(session, scope)
    if not (change.role_oid or change.database_oid):
        # An older version wrote it, and knew names alone.
        missing = _missing(scope, role=bool(role_oid), database=bool(database_oid))
        return PresentScope(change, f"there is no {missing} any more, and this journal knows no oid" if missing else "")
    names = session.rows(_BY_OID, change.role_oid, change.database_oid)[0]
    missing = _missing(scope, role=names["role"] is not None, database=names["database"] is not None)
    if missing:
        again = (scope.role and role_oid != 0) if names["role"] is None else (scope.database and database_oid != 0)
        another = "; the one that has its name now is another one" if again else ""
        return PresentScope(change, f"{missing} was dropped, and its setting with it{another}")
    now = replace(scope, role=names["role"] or "", database=names["database"] or "")
    pairs = (("role", scope.role, now.role), ("database", scope.database, now.database))
    renamed = "; ".join(f"{kind} {old} is {new} now" for kind, old, new in pairs if old != new)
    return PresentScope(replace(change, scope=now), renamed=renamed)


def named_now(session: OperatorSession, changes: Iterable[ParameterChange]) -> tuple[ParameterChange, ...]:
    """Return changes with the names that their roles and databases have now."""
    return tuple(present(session, change).change for change in changes)


def _missing(scope: Scope, *, role: bool, database: bool) -> str:
    """The role or the database that a scope has and the server has not."""
    if scope.role and not role:
        return f"role {scope.role}"
    return f"database {scope.database}" if scope.database and not database else ""
