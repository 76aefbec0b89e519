"""What was seen in the server's log: its own words, without the statements of its clients."""

from __future__ import annotations

from typing import Annotated

from msgspec import Struct

from pgtop_tune.model.recorded_as import Keyed


class LogLine(Struct, frozen=True):
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


class LogTail(Struct, frozen=True):
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
    lines: Annotated[tuple[LogLine, ...], Keyed("id")]
