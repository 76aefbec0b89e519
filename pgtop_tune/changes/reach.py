"""For whom a parameter can be changed, narrowest first, and what that does to sessions already connected. Pure.

Source: pg_settings.context, documentation of the view and of "Setting Parameters".
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from msgspec import Struct


class Reach(StrEnum):
    """For whom a change is made."""

    LOAD = "load"
    """Sessions of the next load, by PGOPTIONS."""
    ROLE = "role"
    DATABASE = "database"
    SYSTEM = "system"


class ReachChoice(Struct, frozen=True):
    """One way to change a parameter.

    Attributes:
        connected: What becomes of sessions that are connected already, one clause.
    """

    reach: Reach
    connected: str


_OF_SESSIONS: Final = frozenset({"user", "superuser", "backend", "superuser-backend"})
_NARROW: Final = (
    ReachChoice(Reach.LOAD, "sessions already connected keep their value; the next load begins with it"),
    ReachChoice(Reach.ROLE, "sessions already connected keep their value; new ones of the role get it"),
    ReachChoice(Reach.DATABASE, "sessions already connected keep their value; new ones in the database get it"),
)
_RELOAD: Final = "sessions already connected apply it between two statements, unless they have their own value"
_SYSTEM: Final = {
    "sighup": "the server's processes apply it at the reload; it is the same for all sessions",
    "postmaster": "nothing changes before the server is restarted, which ends all sessions",
    "backend": "sessions already connected keep their value",
    "superuser-backend": "sessions already connected keep their value",
}


def choices(context: str) -> tuple[ReachChoice, ...]:
    """The ways to change a parameter, the narrowest that shows its effect first; none where it cannot be changed.

    Args:
        context: pg_settings.context.
    """
    if context == "internal":
        return ()
    system = ReachChoice(Reach.SYSTEM, _SYSTEM.get(context, _RELOAD))
    return (*_NARROW, system) if context in _OF_SESSIONS else (system,)


def narrowest(context: str, *, can_load: bool, connected: bool) -> ReachChoice | None:
    """The narrowest way that shows the effect, where nobody says for whom; None where it cannot be changed.

    Sessions that are connected are reached by nothing less than the whole server: narrower ways are for those to come.

    Args:
        context: pg_settings.context.
        can_load: Whether a load of ours can be started.
        connected: Whether sessions are connected that are to show it.
    """
    possible = choices(context)
    first = [choice for choice in possible if choice.reach is Reach.LOAD and can_load and not connected]
    return next(iter((*first, *possible[-1:])), None)


def of_reach(context: str, reach: Reach) -> ReachChoice | None:
    """What a way of changing does to sessions already connected; None where it is none for this parameter."""
    return next((choice for choice in choices(context) if choice.reach is reach), None)
