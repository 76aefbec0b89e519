"""Whether a change of a parameter is in force, and for whom: what the server shows after it."""

from __future__ import annotations

from msgspec import Struct


class Proof(Struct, frozen=True):
    """What the server shows of one parameter after a change.

    Attributes:
        name: Parameter.
        wanted: Value as it was asked for, None for the default.
        running: SHOW in a session that began before the change.
        fresh: SHOW in a session that began after it; the role and the database of the load where those are given.
        role: Of the fresh session.
        database: Of the fresh session.
        source: pg_settings.source of the fresh session: "configuration file", "database", "command line", …
        place: File and line it comes from, "" where there is none or we may not look.
        pending_restart: It is in the files and waits for a restart.
        behind: Sessions that run a statement since before the reload: they have the old value until it ends.
        overrides: What wins over the value, or keeps it from being read, one sentence each; foreign text.
        advice: What to do about it, one sentence each.
    """

    name: str
    wanted: str | None
    running: str
    fresh: str
    role: str
    database: str
    source: str
    place: str = ""
    pending_restart: bool = False
    behind: int = 0
    overrides: tuple[str, ...] = ()
    advice: tuple[str, ...] = ()
