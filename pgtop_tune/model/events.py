"""Ticks on the tape: what happened, when, and what did it.

What was seen in the server's log: its own words, without the statements of its clients.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from msgspec import Struct
from msgspec.structs import replace

from pgtop_tune.base.secret import without_secrets
from pgtop_tune.model.recorded_as import KeyedBy


class LogLine(Struct, frozen=True, gc=False):
    """One entry of the log.

    Attributes:
        id: "file:byte offset": where it begins.
        severity: LOG, WARNING, ERROR, FATAL, PANIC; "" when the line has none we know.
        prefix: What log_line_prefix put before it. Foreign text, as `message`.
        message: The message, with DETAIL and HINT behind it; at most 500 characters.
    """

    id: str
    severity: str
    prefix: str
    message: str


class LogTail(Struct, frozen=True, gc=False):
    """The newest entries of the server's log that are not about single statements.

    Attributes:
        file: As pg_current_logfile() names it.
        skipped_bytes: What came faster than we read, since the session began.
        left_out: Entries about statements and connections (log_statement, log_duration, log_connections) left out.
        lines: Oldest first, at most a hundred.
    """

    at_s: float
    file: str
    skipped_bytes: int
    left_out: int
    lines: Annotated[tuple[LogLine, ...], KeyedBy("id")]


class EventKind(StrEnum):
    """Kinds of ticks. The words stand in recordings."""

    PARAMETER = "parameter"
    CHECKPOINT = "checkpoint"
    AUTOVACUUM = "autovacuum"
    LOAD = "load"
    SWITCH = "switch"
    """An experiment put another arm into force, or ended: "A: work_mem=4MB"."""
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


class Event(Struct, frozen=True, gc=False):
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
