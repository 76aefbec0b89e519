"""Events on the tape with their time and cause, and entries of the server's log without statements of its clients."""

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
        id: "file:byte offset" of the entry's first byte.
        severity: LOG, WARNING, ERROR, FATAL, PANIC; "" if unknown.
        prefix: Text of log_line_prefix. Foreign text, as `message`.
        message: The message, followed by DETAIL and HINT; at most 500 characters.
    """

    id: str
    severity: str
    prefix: str
    message: str


class LogTail(Struct, frozen=True, gc=False):
    """The newest entries of the server's log, without entries about single statements.

    Attributes:
        file: Name from pg_current_logfile().
        skipped_bytes: Bytes skipped since the session began, because the log grew faster than pgtop-tune read it.
        left_out: Number of entries about statements and connections (log_statement, log_duration, log_connections).
        lines: Entries, oldest first, at most a hundred.
    """

    at_s: float
    file: str
    skipped_bytes: int
    left_out: int
    lines: Annotated[tuple[LogLine, ...], KeyedBy("id")]


class EventKind(StrEnum):
    """Kind of an event. Recordings hold these words."""

    PARAMETER = "parameter"
    CHECKPOINT = "checkpoint"
    AUTOVACUUM = "autovacuum"
    LOAD = "load"
    SWITCH = "switch"
    """An experiment put another arm into force, or ended: "A: work_mem=4MB"."""
    RESTART = "restart"
    ROLE = "role"
    """A standby became a primary, or the connected server has another role."""
    GAP = "gap"
    """pgtop-tune took no samples: it was stopped, or got no CPU time. The first frame after the gap has this event."""
    RESET = "reset"
    DEADLOCK = "deadlock"
    PRESSURE = "pressure"
    CONNECTION = "connection"
    RECORDING = "recording"
    """Frames were not recorded, because a disk was full. The first recorded frame after the gap has this event."""
    NOTE = "note"
    WARNING = "warning"


class Event(Struct, frozen=True, gc=False):
    """One event on the tape.

    Attributes:
        at_ms: Milliseconds since the epoch on this machine's clock.
        kind: Its kind.
        text: A few words for the tape: "max_wal_size 1GB→16GB". May hold foreign text.
        detail: Further text for the list of events.
    """

    at_ms: int
    kind: EventKind
    text: str
    detail: str = ""

    def masked(self) -> Event:
        """Return the event without secrets, which notes, messages and parameters may contain."""
        return replace(self, text=without_secrets(self.text), detail=without_secrets(self.detail))
