"""Rights of a role that no foreign code should get.

Planning a statement runs functions in it, as the role that plans, and that code may become any role that the login role
may become: SET ROLE ends with RESET ROLE. So a role has the powers of every role it is a member of, inherited or not.

Source: PostgreSQL documentation, "Role Attributes" and "Predefined Roles"; pg_has_role(…, 'MEMBER').
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import psycopg
from psycopg.rows import dict_row

from pgtop_tune.postgres import queries
from pgtop_tune.postgres.server.own_sessions import marked

# Predefined roles whose rights no foreign code should have. For the sampler, too: nothing is imported.
#
# Not among them, because they read figures or take nothing from anybody: pg_monitor and its parts
# (pg_read_all_settings,
# pg_read_all_stats, pg_stat_scan_tables), pg_checkpoint, pg_use_reserved_connections, pg_signal_autovacuum_worker,
# pg_database_owner.
#
# Source: PostgreSQL documentation, "Predefined Roles".

PREDEFINED: Final[Mapping[str, str]] = {
    "pg_execute_server_program": "run programs on the server's machine",
    "pg_write_server_files": "overwrite files of the server's machine",
    "pg_read_server_files": "read files of the server's machine",
    "pg_read_all_data": "read all tables",
    "pg_write_all_data": "write all tables",
    "pg_maintain": "lock, cluster and refresh all tables",
    "pg_signal_backend": "end other sessions",
    "pg_create_subscription": "connect from the server to other servers",
}
"""Each with what foreign code would do with it."""


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
