"""Rights of a role that no foreign code should get.

Planning a statement runs functions in it, as the role that plans, and that code may become any role that the login role
may become: SET ROLE ends with RESET ROLE. So a role has the powers of every role it is a member of, inherited or not.

Source: PostgreSQL documentation, "Role Attributes" and "Predefined Roles"; pg_has_role(…, 'MEMBER').
"""

from __future__ import annotations

from typing import Any, Final

import psycopg
from psycopg.rows import dict_row

from pgtop_tune.postgres import queries
from pgtop_tune.postgres.server.own_sessions import marked
from pgtop_tune.postgres.server.powerful import PREDEFINED

SUPERUSER: Final = "SUPERUSER"
ATTRIBUTES: Final = ("CREATEROLE", "REPLICATION", "BYPASSRLS")
"""Making and altering roles; copying all data and keeping WAL; reading what row security hides."""

Connection = psycopg.AsyncConnection[dict[str, Any]]


async def powers(connection: Connection, role: str) -> tuple[str, ...]:
    """The rights of a role that foreign code should not have, in words; () for an ordinary role.

    Args:
        connection: To the server.
        role: A role of it.
    """
    text = queries.sql("role_powers", connection.info.server_version // 10_000)
    cursor = psycopg.AsyncRawCursor(connection, row_factory=dict_row)
    rows = await (await cursor.execute(marked(text).encode(), (role, list(PREDEFINED)))).fetchall()
    found = []
    for row in rows:
        name = row["name"]
        if row[SUPERUSER]:
            # A superuser is a member of every role: naming more says nothing.
            return ("a superuser" if name == role else f"a member of {name}, a superuser",)
        attributes = [attribute for attribute in ATTRIBUTES if row[attribute]]
        if name == role:
            found += attributes
        elif attributes:
            found.append(f"a member of {name} ({', '.join(attributes)})")
        else:
            found.append(f"a member of {name}")
    return tuple(found)
