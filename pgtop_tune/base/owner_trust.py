"""SQL conditions for the owners whose objects a superuser may touch, in one place for data sets, loads and extensions.

Reading a table evaluates expressions of its owner, writing to it runs that role's triggers, and the owner of a schema
or a database can put other objects in their place at any moment: all of it with the rights of the role that asks. So a
superuser trusts only owners who could become that superuser anyway. Any other role risks no more than its own rights.
"""

from __future__ import annotations

from typing import Final

ME: Final = (
    "(SELECT r.oid, r.rolsuper, d.datdba FROM pg_roles r, pg_database d"
    " WHERE r.rolname = session_user AND d.datname = current_database()) me"
)
"""To be joined: this session's role and its database."""


def real_owner(owner: str) -> str:
    """Return the role behind an owner's oid: pg_database_owner (owner of public since 15) stands for that of the
    database."""
    return f"(CASE WHEN {owner} = 'pg_database_owner'::regrole THEN me.datdba ELSE {owner} END)"


def trusted(owner: str) -> str:
    """Return the condition that this session may run what the owner has made; for use next to `ME`."""
    return f"(NOT me.rolsuper OR pg_has_role({real_owner(owner)}, me.oid, 'MEMBER'))"
