"""Changes of parameters and of settings of the operating system: request, scope, state, and the proof that a parameter
is in force.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from msgspec import Struct


def joined_notes(*notes: str) -> str:
    """Return the notes that are there, as one sentence."""
    return "; ".join(filter(None, notes))


class WantedSetting(Struct, frozen=True):
    """A setting of the operating system as it is asked for.

    Attributes:
        name: As in SystemSetting.
        value: As typed.
        until_boot: It is live only, also where its set is to survive a reboot: no file of sysctl.d sets it.
    """

    name: str
    value: str
    until_boot: bool = False


class HostChange(Struct, frozen=True):
    """A change of one setting of the operating system, as the journal keeps it.

    Attributes:
        id: Unique within the journal.
        at_ms: When it was intended, milliseconds since the epoch.
        name: Setting, as in SystemSetting.
        path: The kernel's file.
        value: New value.
        value_before: Value of the file before.
        state: How far it got.
        boot_id: /proc/sys/kernel/random/boot_id at the change: a live value is gone after a reboot.
        also_before: Path and value of settings that the kernel changes along with this one (vm.dirty_ratio becomes 0
            when vm.dirty_bytes is set).
        drop_in: File that makes the value survive a reboot; "" when the change is live only.
        drop_in_before: Its whole content before; None when there was no such file.
        shown_after: Value of the file after the change; "" until then.
        message: Why it failed, or why the value read back differs.
        set_id: Changes with the same one belong together, also with those of parameters; "" for a single change.
        by: Maker of the change: "user@host, pid".
        reason: Why, in the operator's words. Foreign text.
        kept: Whether it is confirmed; else it is pending and reverts at its deadline.
        until_ms: The deadline, milliseconds since the epoch; None without one.
        until_boot_ms: The same on the boot clock; None where an older version wrote it.
        boot_clock: Which boot clock (`process.process_key`).
    """

    id: str
    at_ms: int
    name: str
    path: str
    value: str
    value_before: str
    state: ChangeState
    boot_id: str = ""
    also_before: tuple[tuple[str, str], ...] = ()
    drop_in: str = ""
    drop_in_before: str | None = None
    shown_after: str = ""
    message: str = ""
    set_id: str = ""
    by: str = ""
    reason: str = ""
    kept: bool = True
    until_ms: int | None = None
    until_boot_ms: int | None = None
    boot_clock: str = ""

    @property
    def set_key(self) -> str:
        """Id of its set; its own where it is a single change."""
        return self.set_id or self.id


class Proof(Struct, frozen=True):
    """A parameter as the server shows it after a change.

    Attributes:
        name: Parameter.
        wanted: Value as it was asked for, None for the default.
        running: SHOW in a session that began before the change.
        fresh: SHOW in a session that began after it; the role and the database of the load where those are given.
        role: Role of the fresh session.
        database: Database of the fresh session.
        source: pg_settings.source of the fresh session: "configuration file", "database", "command line", …
        place: File and line it comes from, "" where there is none or we may not look.
        pending_restart: It is in the files and waits for a restart.
        behind: Sessions that run a statement since before the reload: they have the old value until it ends.
        overrides: Settings that win over the value, or keep it from being read, one sentence each; foreign text.
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


class ChangeState(StrEnum):
    """Progress of a change. The values stand in the journal."""

    INTENDED = "intended"
    """Written down, about to be made; after a crash its state is unknown."""
    APPLIED = "applied"
    """Made and read back."""
    FAILED = "failed"
    """Refused by the server; nothing changed."""
    REVERTED = "reverted"
    """Undone, read back."""
    SUPERSEDED = "superseded"
    """Not undone: the scope has another user's value by now, or that of a later change."""


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

    @property
    def is_system(self) -> bool:
        """Return whether it is the whole server."""
        return self.kind is ScopeKind.SYSTEM


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
        auto_conf_before: Value of the scope before: the one in postgresql.auto.conf, for a role or a database that
            of pg_db_role_setting; None when it had no entry there.
        source_before: pg_settings.source before.
        state: How far it got.
        message: The server's words when it failed, or why the value read back differs.
        scope: For whom.
        set_id: Changes with the same one belong together and are reverted together; "" for a single change.
        by: Maker of the change: "user@host, pid".
        reason: Why, in the operator's words. Foreign text.
        kept: Whether it is confirmed; else it is pending and reverts at its deadline.
        until_ms: The deadline, milliseconds since the epoch; None without one.
        followed_by: Names whose lines stood after this one's in postgresql.auto.conf, in their order: a line that is
            written anew goes to the end.
        loss: Loss that this value can cause, where it had to be unlocked; "" otherwise.
        restart: Whether it takes a restart of the server (context postmaster).
        with_restart: Its set restarted the server, or was to.
        stored_after: Value of the scope after it, as the server has written it; None after a RESET and until it is
            read back.
        until_boot_ms: The deadline on the boot clock; None where an older version wrote it.
        boot_clock: Which boot clock (`process.process_key`).
        role_oid: Of the scope's role, which may be renamed; 0 without one, and where an older version wrote it.
        database_oid: Of the scope's database, likewise.
        displaced: A revert of the confirmed change found another value in its place and wrote nothing: when this one's
            value is there again (that other change was undone), it is in force again.
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
    until_boot_ms: int | None = None
    boot_clock: str = ""
    role_oid: int = 0
    database_oid: int = 0
    with_restart: bool = False
    displaced: bool = False

    @property
    def set_key(self) -> str:
        """Id of its set; its own where it is a single change."""
        return self.set_id or self.id

    def covers(self, second: ParameterChange) -> bool:
        """Return whether both change the same parameter of the same role and database, whatever those were called."""
        if (self.name, self.scope.kind) != (second.name, second.scope.kind):
            return False
        own_oids, second_oids = (self.role_oid, self.database_oid), (second.role_oid, second.database_oid)
        return own_oids == second_oids if any(own_oids) and any(second_oids) else self.scope == second.scope

    @property
    def told_after(self) -> str:
        """`shown_after`; as it was typed where SHOW prints the value before alike: real numbers have six digits."""
        alike = self.shown_after == self.shown_before and not self.message
        return self.value if alike and self.value is not None else self.shown_after


class WantedParameter(Struct, frozen=True):
    """A requested change of a parameter.

    Attributes:
        value: As typed, None to reset it.
    """

    name: str
    value: str | None
    scope: Scope = SYSTEM


class Terms(Struct, frozen=True):
    """Terms on which a set of changes is made.

    Attributes:
        keep_within_s: Seconds after which the set is reverted unless it is confirmed; None confirms it at once.
        reason: Why, in the operator's words.
        confirmed: Names of parameters that were typed to unlock values that can lose data.
        set_id: The set that the changes belong to, where others are made elsewhere; "" makes one up where it is needed.
        with_restart: The process that reverts the set after our end restarts the server where the old values need it.
        trip_wires: Lines that take it back at once, as typed: the journal has them for the next owner of the set.
        of_experiment: An experiment makes them: no other change touches the parameters that it switches.
    """

    keep_within_s: float | None = None
    reason: str = ""
    confirmed: frozenset[str] = frozenset()
    set_id: str = ""
    with_restart: bool = False
    trip_wires: tuple[str, ...] = ()
    of_experiment: bool = False


# For whom a parameter can be changed, narrowest first, and what that does to sessions already connected. Pure.
#
# Source: pg_settings.context, documentation of the view and of "Setting Parameters".


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
        connected: Effect on sessions that are connected already, one clause.
    """

    reach: Reach
    connected: str


_OF_SESSIONS: Final = frozenset({"user", "superuser", "backend", "superuser-backend"})
_NARROW: Final = (
    ReachChoice(Reach.LOAD, "connected sessions keep their value; the next load starts with the new one"),
    ReachChoice(Reach.ROLE, "connected sessions keep their value; new sessions of the role get the new one"),
    ReachChoice(Reach.DATABASE, "connected sessions keep their value; new sessions in the database get the new one"),
)
_RELOAD: Final = "connected sessions use it from their next statement, unless they have their own value"
_SYSTEM: Final = {
    "sighup": "takes effect on reload, server-wide",
    "postmaster": "takes effect when the server is restarted, which ends all sessions",
    "backend": "connected sessions keep their value",
    "superuser-backend": "connected sessions keep their value",
}


def choices(context: str) -> tuple[ReachChoice, ...]:
    """Return the ways to change a parameter, the narrowest that shows its effect first; none where it cannot be
    changed.

    Args:
        context: pg_settings.context.
    """
    if context == "internal":
        return ()
    system = ReachChoice(Reach.SYSTEM, _SYSTEM.get(context, _RELOAD))
    return (*_NARROW, system) if context in _OF_SESSIONS else (system,)


def narrowest(context: str, *, can_load: bool, connected: bool) -> ReachChoice | None:
    """Return the narrowest way that shows the effect, where nobody says for whom; None where it cannot be changed.

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
    """Return the effect of a way of changing on connected sessions; None where the parameter cannot be changed in this
    way."""
    return next((choice for choice in choices(context) if choice.reach is reach), None)
