"""Whose objects a superuser may touch: pieces of SQL that say it, in one place for data sets, loads and extensions.

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
    """The role behind an owner's oid: pg_database_owner, which has public from 15 on, stands for the database's."""
    return f"(CASE WHEN {owner} = 'pg_database_owner'::regrole THEN me.datdba ELSE {owner} END)"


def trusted(owner: str) -> str:
    """Whether what that owner has made may be run by this session; next to `ME`."""
    return f"(NOT me.rolsuper OR pg_has_role({real_owner(owner)}, me.oid, 'MEMBER'))"
