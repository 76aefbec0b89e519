"""Change sets pending confirmation that this program took over from one that is gone."""

from __future__ import annotations

from typing import Protocol

from msgspec import Struct

from pgtop_tune.model.change import ParameterChange
from pgtop_tune.model.system_setting import HostChange


class AdoptedSet(Struct, frozen=True):
    """A set, or the half of one, as it was adopted.

    Attributes:
        set_id: The same for both halves.
        changes: Of the server or of its machine, in the order they were made.
        until_ms: The deadline, milliseconds since the epoch.
        by: The program that is gone: "user@host, pid".
        trip_wires: As typed.
        with_restart: Whether reverting restarts the server where the old values need it.
    """

    set_id: str
    changes: tuple[ParameterChange | HostChange, ...]
    until_ms: int
    by: str
    trip_wires: tuple[str, ...] = ()
    with_restart: bool = False


class AdoptionControl(Protocol):
    """The sets that a session has adopted so far."""

    def adopted(self) -> tuple[AdoptedSet, ...]:
        """All of them, oldest first, also those that have been confirmed or reverted since. Thread-safe."""
        ...
