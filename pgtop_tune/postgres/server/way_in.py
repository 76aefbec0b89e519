"""The way into a server that ends each new session for a library, a setting, or a trigger of its own.

A value in the start-up packet wins over the files, the database and the role, and is read before the libraries are
loaded and the login triggers run. Superusers may set all of them there, other roles some; a pooler refuses the packet.
Source: postinit.c (process_startup_options before process_settings), postgres.c (process_session_preload_libraries,
EventTriggerOnLogin).
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from pgtop_tune.base.errors import ConnectionProblem, LockedOut, NoAnswer
from pgtop_tune.base.start_options import with_settings
from pgtop_tune.postgres.server.failures import libpq_problem, refused_in_other_words

if TYPE_CHECKING:
    import psycopg

    from pgtop_tune.postgres.server.conninfo import ConnInfo

DELAY: Final[Mapping[str, str]] = MappingProxyType({"post_auth_delay": "0"})
"""What lets in where the login hangs."""
_OF_EVERY_ROLE: Final = {"local_preload_libraries": "", **DELAY}
_OF_SUPERUSERS: Final = {"session_preload_libraries": "", **_OF_EVERY_ROLE}
_WITH_TRIGGERS: Final = {"event_triggers": "off", **_OF_SUPERUSERS}
SETTINGS: Final[tuple[Mapping[str, str], ...]] = (_WITH_TRIGGERS, _OF_SUPERUSERS, _OF_EVERY_ROLE)
"""Parameters of the start-up packet, attempt after attempt: PostgreSQL 17 brought event_triggers, and a parameter that
the server or the role does not have ends the login."""
OPTIONS: Final = with_settings("", _OF_SUPERUSERS)
"""The same for PGOPTIONS; what event triggers do is left to the operator."""
_NOT_OURS: Final = ("08", "28", "3D", "53", "57P", "42704")
"""Beginnings of sqlstates of other refusals: network, password, database, no free place, a server that starts."""
_HINT: Final = (
    f"`pgtop-tune revert` reverts a change of pgtop-tune; a superuser can log in with PGOPTIONS='{OPTIONS}', directly "
    "and not through a pooler"
)


def login_problem(error: psycopg.OperationalError, state: str, conninfo: ConnInfo) -> ConnectionProblem:
    """Return why libpq has no connection: LockedOut where the server has taken the credentials.

    Args:
        error: The exception of libpq.
        state: The sqlstate, if it is known.
        conninfo: Where to.
    """
    problem = libpq_problem(error, conninfo, state)
    if not refused_in_other_words(error) or state.startswith(_NOT_OURS):
        return problem
    return LockedOut(problem.message, _HINT)


def attempts(problem: Exception) -> tuple[Mapping[str, str], ...]:
    """Return what the start-up packet says, attempt after attempt, after a login has failed.

    Args:
        problem: The failure of the login: a time-out may be a login that hangs.
    """
    if isinstance(problem, LockedOut):
        return SETTINGS
    return (DELAY,) if isinstance(problem, NoAnswer) else ()
