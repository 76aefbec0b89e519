"""A change of a parameter: what is asked, and what came of it."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from msgspec import Struct


class ChangeState(StrEnum):
    """How far a change got. The words stand in the journal."""

    INTENDED = "intended"
    """Written down, about to be made; after a crash nobody knows whether it was."""
    APPLIED = "applied"
    """Made and read back."""
    FAILED = "failed"
    """Refused by the server; nothing changed."""
    REVERTED = "reverted"
    """Undone, read back."""
    SUPERSEDED = "superseded"
    """Not undone: the scope has a value of somebody else's by now, or of a later change."""


class ScopeKind(StrEnum):
    """For whom a parameter is changed. The words stand in the journal."""

    SYSTEM = "system"
    """ALTER SYSTEM: the whole server."""
    ROLE = "role"
    """ALTER ROLE … SET: sessions of a role that start from now on."""
    DATABASE = "database"
    """ALTER DATABASE … SET: sessions in a database that start from now on."""
    ROLE_IN_DATABASE = "role in database"
    """ALTER ROLE … IN DATABASE … SET."""


class Scope(Struct, frozen=True):
    """For whom a parameter is changed.

    Attributes:
        role: Name, where the kind has one.
        database: Name, where the kind has one.
    """

    kind: ScopeKind = ScopeKind.SYSTEM
    role: str = ""
    database: str = ""


SYSTEM: Final = Scope()


class ParameterChange(Struct, frozen=True):
    """A change of one parameter.

    Attributes:
        id: Unique within the journal.
        at_ms: When it was intended, milliseconds since the epoch.
        name: Parameter.
        value: New value as typed ("16GB"), or None for RESET.
        shown_before: SHOW's text before the change; of a role or a database the value it had of its own, if any.
        shown_after: SHOW's text read back after the change; "" until then.
        auto_conf_before: What the scope had before: the value in postgresql.auto.conf, for a role or a database that
            of pg_db_role_setting; None when it had no entry there.
        source_before: pg_settings.source before.
        state: How far it got.
        message: The server's words when it failed, or why the value read back differs.
        scope: For whom.
        set_id: Changes with the same one belong together and are reverted together; "" for a single change.
        by: Who made it: "user@host, pid".
        reason: Why, in the operator's words. Foreign text.
        kept: Whether it stays until somebody reverts it; else it is on trial.
        until_ms: When the trial is over, milliseconds since the epoch; None without one.
        followed_by: Names whose lines stood after this one's in postgresql.auto.conf, in their order: a line that is
            written anew goes to the end.
        loss: What this value can lose, where it had to be unlocked; "" otherwise.
        restart: Whether it takes a restart of the server (context postmaster).
        stored_after: What the scope has after it, as the server has written it; None after a RESET and until it is
            read back.
    """

    id: str
    at_ms: int
    name: str
    value: str | None
    shown_before: str
    auto_conf_before: str | None
    source_before: str
    state: ChangeState
    shown_after: str = ""
    message: str = ""
    scope: Scope = SYSTEM
    set_id: str = ""
    by: str = ""
    reason: str = ""
    kept: bool = True
    until_ms: int | None = None
    followed_by: tuple[str, ...] = ()
    loss: str = ""
    restart: bool = False
    stored_after: str | None = None

    @property
    def told_after(self) -> str:
        """`shown_after`; as it was typed where SHOW prints the value before alike: real numbers have six digits."""
        alike = self.shown_after == self.shown_before and not self.message
        return self.value if alike and self.value is not None else self.shown_after


class Wanted(Struct, frozen=True):
    """A parameter as somebody wants it.

    Attributes:
        value: As typed, None to reset it.
    """

    name: str
    value: str | None
    scope: Scope = SYSTEM


class Terms(Struct, frozen=True):
    """On which terms a set of changes is made.

    Attributes:
        keep_within_s: It is taken back after so many seconds unless somebody keeps it; None keeps it at once.
        reason: Why, in the operator's words.
        confirmed: Names of parameters that were typed to unlock values that can lose data.
        set_id: Of the set they are part of, where others are made elsewhere; "" makes one up where one is needed.
        with_restart: What takes it back after our end restarts the server where the old values need it.
        trip_wires: Lines that take it back at once, as typed: the journal has them for the next owner of the set.
    """

    keep_within_s: float | None = None
    reason: str = ""
    confirmed: frozenset[str] = frozenset()
    set_id: str = ""
    with_restart: bool = False
    trip_wires: tuple[str, ...] = ()
