"""As whom a session's statement is planned.

Planning executes functions of the statement that are marked IMMUTABLE or STABLE, as the role that plans, and SET ROLE
is no fence: the function takes it back. So the session's own role plans, logged in as itself, or an ordinary role of
the operator; a powerful role only once the operator has agreed to it.
"""

from __future__ import annotations

from typing import Any

import psycopg
from msgspec.structs import replace
from psycopg.rows import dict_row

from pgtop_tune.model.backend_action import PlanRisk
from pgtop_tune.postgres import queries
from pgtop_tune.postgres.server.own_sessions import marked
from pgtop_tune.postgres.server.role_powers import powers
from pgtop_tune.postgres.statements.explain import SeenStatement

Connection = psycopg.AsyncConnection[dict[str, Any]]


async def planners(connection: Connection, found: SeenStatement) -> tuple[str | None, ...]:
    """Roles that may plan a statement, to be tried in this order; None is the operator's own, which stands last.

    The session's own role comes first, but not a powerful one where the operator's is an ordinary one.

    Args:
        connection: The operator's.
        found: The statement.
    """
    operator, _ = await _logged_in_as(connection)
    if found.role in ("", operator):
        return (None,)
    if await powers(connection, found.role) and not await powers(connection, operator):
        return (None,)
    return found.role, None


async def login_role(connection: Connection, role: str | None) -> str | None:
    """The role that a connection is logged in as; None where it is not the one that was asked for.

    A pooler may have made it another.

    Args:
        connection: To the server.
        role: See `planners`.
    """
    login, acting = await _logged_in_as(connection)
    return login if role is None or (login, acting) == (role, role) else None


async def unagreed(
    connection: Connection, found: SeenStatement, role: str, not_as_session: str, agreed: PlanRisk | None
) -> PlanRisk | None:
    """The risk of planning, where the role of this connection is powerful and that was not agreed to; else None.

    Args:
        connection: To the database of the session.
        found: The statement.
        role: The role that is logged in there.
        not_as_session: Why the session's own role does not plan.
        agreed: See `PostgresBackends.explain`.
    """
    found_powers = await powers(connection, role)
    risk = PlanRisk(
        query=found.query,
        database=found.datname,
        role=role,
        powers=found_powers,
        session_role=found.role,
        not_as_session=not_as_session,
    )
    agreed_to = agreed is not None and replace(agreed, not_as_session=not_as_session) == risk
    return risk if found_powers and not agreed_to else None


async def _logged_in_as(connection: Connection) -> tuple[str, str]:
    text = queries.sql("login_role", connection.info.server_version // 10_000)
    cursor = psycopg.AsyncRawCursor(connection, row_factory=dict_row)
    row = await (await cursor.execute(marked(text).encode())).fetchone()
    assert row is not None
    return row["login"], row["acting"]
