"""Ticks on the tape: what happened, when, and what did it."""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct
from msgspec.structs import replace

from pgtop_tune.secret import without_secrets


class EventKind(StrEnum):
    """Kinds of ticks. The words stand in recordings."""

    PARAMETER = "parameter"
    CHECKPOINT = "checkpoint"
    AUTOVACUUM = "autovacuum"
    LOAD = "load"
    RESTART = "restart"
    ROLE = "role"
    """A standby became a primary, or where we are connected now has another role."""
    GAP = "gap"
    """This program did not look: it was stopped, or had no CPU. The frame that says so is the first one after it."""
    RESET = "reset"
    DEADLOCK = "deadlock"
    PRESSURE = "pressure"
    CONNECTION = "connection"
    RECORDING = "recording"
    """Frames were not recorded: a disk was full. The frame that says so is the first one that was."""
    NOTE = "note"
    WARNING = "warning"


class Event(Struct, frozen=True):
    """One tick.

    Attributes:
        at_ms: Milliseconds since the epoch on this machine's clock.
        text: A few words for the tape: "max_wal_size 1GB→16GB". May hold foreign text.
        detail: More words for the list of events.
    """

    at_ms: int
    kind: EventKind
    text: str
    detail: str = ""

    def masked(self) -> Event:
        """The same without secrets: notes, messages and parameters come from everywhere."""
        return replace(self, text=without_secrets(self.text), detail=without_secrets(self.detail))
