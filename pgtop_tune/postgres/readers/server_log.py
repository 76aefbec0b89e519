"""Follows the server's log over SQL: what was written since the last look, at most 64 kB of it."""

from __future__ import annotations

from collections import deque
from typing import Final

from pgtop_tune.model.absence import Reason, Unavailable, grant
from pgtop_tune.model.events import LogLine, LogTail
from pgtop_tune.postgres.log_entries import log_entries
from pgtop_tune.postgres.readers.section_readers import ReadContext

PIECE_BYTES: Final = 65_536
LINES_KEPT: Final = 100
_LONGEST_LINE: Final = PIECE_BYTES // 2
"""A line without an end for so long is given up."""
_FUNCTIONS: Final = (
    "EXECUTE ON FUNCTION pg_stat_file(text, boolean), pg_read_binary_file(text, bigint, bigint, boolean)"
)
NOT_COLLECTED: Final = Unavailable(Reason.SWITCHED_OFF, "logging_collector is off: the server logs to its stderr")


class LogReader:
    """Remembers where in which file it is."""

    def __init__(self) -> None:
        self._file = ""
        self._position = 0
        self._skipped = 0
        self._left_out = 0
        self._lines: deque[LogLine] = deque(maxlen=LINES_KEPT)

    async def read(self, context: ReadContext) -> LogTail | Unavailable:
        """The newest entries, with those of earlier looks."""
        row = (await context.fetch("server_log", self._file, self._position, PIECE_BYTES))[0]
        if row["file"] is None:
            return NOT_COLLECTED
        if row["content"] is None:
            return Unavailable(Reason.FAILED, f"{row['file']} is gone")
        self._take(row["file"], row["start"], row["content"])
        return LogTail(
            at_s=context.at_s,
            file=self._file,
            skipped_bytes=self._skipped,
            left_out=self._left_out,
            lines=tuple(self._lines),
        )

    def _take(self, file: str, start: int, content: bytes) -> None:
        if file == self._file and start > self._position:
            self._skipped += start - self._position
        if start and (file != self._file or start != self._position):
            # We came in the middle of a line.
            torn = content.find(b"\n") + 1
            start, content = start + torn, content[torn:]
        found = log_entries(file, content)
        consumed = found.consumed or (len(content) if len(content) > _LONGEST_LINE else 0)
        for entry in found.entries:
            line = LogLine(
                id=f"{file}:{start + entry.offset}", severity=entry.severity, prefix=entry.prefix, message=entry.message
            )
            self._lines.append(line)
        self._left_out += found.left_out
        self._file, self._position = file, start + consumed


def log_closed(_: str, user: str) -> str:
    """The GRANTs that open the server's log."""
    return (
        f"the server's log is closed to us: {grant('pg_monitor', user)}; {grant(_FUNCTIONS, user)} "
        "open it (a superuser reads it)"
    )
