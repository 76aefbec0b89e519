"""Change sets pending confirmation, and the processes that revert each of them at its deadline."""

from __future__ import annotations

import re
import socket
import time
from collections.abc import Iterable, Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Any, Final, Generic, TypeVar

from msgspec import Struct

from pgtop_tune.changes.model.change import HostChange, ParameterChange
from pgtop_tune.process.process_key import ProcessKey, boot_clock_mark, boot_clock_s, boot_id, process_key_of

# Deadlines: on the boot clock within one boot, on the wall clock for people and after a reboot.
#
# A wall clock that is set, or a machine that slept, neither cuts a deadline short nor puts it off.

NO_DEADLINE: Final[Mapping[str, Any]] = MappingProxyType({"until_ms": None, "until_boot_ms": None, "boot_clock": ""})
"""Fields of a confirmed change."""


def now_ms() -> int:
    """Return the milliseconds since the epoch."""
    return time.time_ns() // 1_000_000


def deadline_in(within_s: float) -> dict[str, Any]:
    """Return the fields of a change that has this many seconds from now."""
    within_ms = int(within_s * 1000)
    return {
        "until_ms": now_ms() + within_ms,
        "until_boot_ms": int(boot_clock_s() * 1000) + within_ms,
        "boot_clock": boot_clock_mark(),
    }


def deadline_ms(change: ParameterChange | HostChange) -> int | None:
    """Return the deadline on the wall clock as that runs now, milliseconds since the epoch; None without one."""
    if change.until_ms is None or change.until_boot_ms is None or not change.boot_clock:
        return change.until_ms
    if change.boot_clock != boot_clock_mark():
        return change.until_ms
    return now_ms() + change.until_boot_ms - int(boot_clock_s() * 1000)


NOT_CONFIRMED: Final = "not confirmed in time"
"""Why a set is reverted at its deadline."""
GRACE_S: Final = 10.0
"""How long after the deadline other programs leave a set to the process that holds it."""
_BY: Final = re.compile(r".*@(?P<host>.*), (?P<pid>\d{1,10})", re.DOTALL)
"""As `by` of a change: "user@host, pid"."""

C = TypeVar("C", ParameterChange, HostChange)


class SetOwner(Struct, frozen=True):
    """The program that holds a change set, as the journal keeps it; the last one written wins.

    Attributes:
        set_id: Id of the change set.
        by: "user@host, pid" of the program.
        program: Its process; None where /proc did not say.
        watchdog: Its revert watchdog; likewise.
        trip_wires: As typed ("p99>50ms"): they hold for the next owner, too.
        with_restart: Whether reverting restarts the server where the old values need it.
        left_alone: The watchdog waits for the deadline and not for the program's end: a screen may adopt the set.
    """

    set_id: str
    by: str
    program: ProcessKey | None = None
    watchdog: ProcessKey | None = None
    trip_wires: tuple[str, ...] = ()
    with_restart: bool = False
    left_alone: bool = False


class Holder(StrEnum):
    """The process that reverts a set in time."""

    PROGRAM = "program"
    """The program that made or adopted it runs."""
    WATCHDOG = "revert watchdog"
    """The program is gone, and its revert watchdog reverts the set."""
    LEFT_ALONE = "revert watchdog alone"
    """A program that did not stay left a revert watchdog, which waits for the deadline."""
    ELSEWHERE = "elsewhere"
    """On another machine or in another container: whether it runs cannot be seen from here."""
    NOBODY = "nobody"
    """Both are gone: the set is to be adopted, or to be reverted where its deadline is over."""


class PendingSet(Struct, Generic[C], frozen=True):
    """A change set in force that goes back at its deadline; of one journal.

    Attributes:
        set_id: Id of the set in the journal.
        changes: In the order they were made.
        until_ms: The deadline on the wall clock as it runs now, milliseconds since the epoch.
        owner: As recorded; made up from `by` of the changes where an older version wrote them.
        holder: The present holder.
    """

    set_id: str
    changes: tuple[C, ...]
    until_ms: int
    owner: SetOwner
    holder: Holder

    def adoptable(self, now_ms: int, *, to_hold: bool) -> bool:
        """Return whether a program takes the set over.

        Args:
            now_ms: Milliseconds since the epoch; a set whose deadline is over is reverted instead.
            to_hold: Whether the program stays, so that its operator can confirm the set.
        """
        return self.until_ms > now_ms and (
            self.holder is Holder.NOBODY or (to_hold and self.holder is Holder.LEFT_ALONE)
        )

    def overdue(self, now_ms: int) -> bool:
        """Return whether every program may revert the set: it has no holder, or its holder is late."""
        grace_ms = 0 if self.holder is Holder.NOBODY else int(GRACE_S * 1000)
        return self.until_ms + grace_ms < now_ms


def pending_sets(in_force: Iterable[C], owners: Mapping[str, SetOwner]) -> tuple[PendingSet[C], ...]:
    """Return sets that are pending confirmation.

    Args:
        in_force: Changes of one journal, oldest first.
        owners: Owners in the same journal, by set.
    """
    changes_by_set: dict[str, list[C]] = {}
    deadlines: dict[str, int] = {}
    for change in in_force:
        until_ms = None if change.kept else deadline_ms(change)
        if until_ms is not None:
            set_id = change.set_key
            changes_by_set.setdefault(set_id, []).append(change)
            deadlines[set_id] = min(until_ms, deadlines.get(set_id, until_ms))
    return tuple(
        PendingSet(
            set_id=set_id,
            changes=tuple(changes),
            until_ms=deadlines[set_id],
            owner=owners.get(set_id) or SetOwner(set_id, changes[0].by),
            holder=holder_of(set_id, changes[0].by, owners),
        )
        for set_id, changes in changes_by_set.items()
    )


def outlived_losses(in_force: Iterable[ParameterChange], owners: Mapping[str, SetOwner]) -> tuple[ParameterChange, ...]:
    """Return confirmed changes that can lose data, and outlive the program they were to end with."""
    return tuple(
        change
        for change in in_force
        if change.loss and change.kept and holder_of(change.set_key, change.by, owners) is Holder.NOBODY
    )


def holder_of(set_id: str, by: str, owners: Mapping[str, SetOwner]) -> Holder:
    """Return the process that reverts a set in time.

    Args:
        set_id: Id of the set.
        by: Of its changes; it decides where no owner was recorded.
        owners: Owners in the journal, by set.
    """
    owner = owners.get(set_id)
    if owner is None or owner.program is None:
        return _holder_by_words(by if owner is None else owner.by)
    if not owner.program.is_of_here:
        return _holder_elsewhere(owner)
    watched = owner.watchdog is not None and owner.watchdog.lives
    if owner.left_alone:
        return Holder.LEFT_ALONE if watched else Holder.NOBODY
    if owner.program.lives:
        return Holder.PROGRAM
    return Holder.WATCHDOG if watched else Holder.NOBODY


def _holder_elsewhere(owner: SetOwner) -> Holder:
    """Return the holder of a set of another boot, machine or container: after a reboot of this one nobody."""
    match = _BY.fullmatch(owner.by)
    of_this_machine = match is not None and match["host"] == socket.gethostname()
    then, now = "" if owner.program is None else owner.program.boot_id, boot_id()
    # Without /proc one of them is not known, and the other program may well run.
    rebooted = bool(then and now) and then != now
    return Holder.NOBODY if of_this_machine and rebooted else Holder.ELSEWHERE


def _holder_by_words(by: str) -> Holder:
    match = _BY.fullmatch(by)
    if match is None or match["host"] != socket.gethostname():
        return Holder.ELSEWHERE
    return Holder.NOBODY if process_key_of(int(match["pid"])) is None else Holder.PROGRAM
