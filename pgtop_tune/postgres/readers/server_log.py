"""Reader of the server's log over SQL: the text since the last reading, at most 64 kB of it."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any, Final

import asyncpg

from pgtop_tune.model.absence import Reason, Unavailable, grant
from pgtop_tune.model.events import LogLine, LogTail
from pgtop_tune.postgres.log_entries import log_entries
from pgtop_tune.postgres.log_language import ENGLISH, LogLanguage, catalogue_paths, is_english, read_catalogue
from pgtop_tune.postgres.readers.section_readers import ReadContext
from pgtop_tune.postgres.server.failures import server_words

PIECE_BYTES: Final = 65_536
LINES_KEPT: Final = 100
_LONGEST_LINE: Final = PIECE_BYTES // 2
"""Length from which on a line without an end is skipped."""
_FUNCTIONS: Final = (
    "EXECUTE ON FUNCTION pg_current_logfile(), pg_stat_file(text, boolean), "
    "pg_read_binary_file(text, bigint, bigint, boolean)"
)
"""Rights that pg_monitor does not have before 16."""
_CODES: Final = "set log_destination = csvlog, or log_line_prefix with %e before any %q, to identify lines"
_MOST_LANGUAGES: Final = 8


class LogReader:
    """Reader of the log; it keeps its file and position, and the words of the server's languages."""

    def __init__(self) -> None:
        self._file = ""
        self._position = 0
        self._skipped = 0
        self._left_out = 0
        self._lines: deque[LogLine] = deque(maxlen=LINES_KEPT)
        self._is_foreign = False
        self._form: tuple[Any, ...] = ()
        self._language = ENGLISH
        self._no_words = ""
        """Reason why the words of a language are not known."""

    async def read(self, context: ReadContext) -> LogTail | Unavailable:
        """Return the newest entries, with those of earlier readings."""
        row = (await context.fetch("server_log", self._file, self._position, PIECE_BYTES))[0]
        if row["file"] is None:
            return _not_collected(row)
        if row["content"] is None:
            return Unavailable(Reason.FAILED, f"{row['file']} no longer exists")
        await self._learn(context, row)
        self._take(row["file"], row["start"], row["content"])
        if self._is_foreign and (self._no_words or not self._lines):
            return Unavailable(Reason.FAILED, self._no_words or f"no log line has a known severity; {_CODES}")
        return LogTail(
            at_s=context.at_s,
            file=self._file,
            skipped_bytes=self._skipped,
            left_out=self._left_out,
            lines=tuple(self._lines),
        )

    async def _learn(self, context: ReadContext, row: Any) -> None:
        """Learn languages, encodings and log_line_prefix, if they have changed since the last reading."""
        names = ("languages", "encodings", "line_prefix", "may_read_catalogue")
        form = tuple(str(row[name]) for name in names)
        if form == self._form:
            return
        self._form, self._no_words = form, ""
        self._is_foreign = False
        catalogues: list[dict[str, str]] = []
        for language in sorted(row["languages"])[:_MOST_LANGUAGES]:
            if is_english(language):
                continue
            try:
                catalogues += await _catalogues(context, language, may_read=row["may_read_catalogue"])
            except (asyncpg.PostgresError, ValueError) as error:
                reason = server_words(error) if isinstance(error, asyncpg.PostgresError) else str(error)
                self._no_words = f"the log is in another language (lc_messages = {language}), and {reason}; {_CODES}"
        self._language = LogLanguage(*catalogues, encodings=row["encodings"], line_prefix=row["line_prefix"])

    def _take(self, file: str, start: int, content: bytes) -> None:
        if file == self._file and start > self._position:
            self._skipped += start - self._position
        if start and (file != self._file or start != self._position):
            # The piece begins in the middle of a line.
            torn = content.find(b"\n") + 1
            start, content = start + torn, content[torn:]
        piece = log_entries(file, content, self._language)
        consumed = piece.consumed or (len(content) if len(content) > _LONGEST_LINE else 0)
        for entry in piece.entries:
            line = LogLine(
                id=f"{file}:{start + entry.offset}", severity=entry.severity, prefix=entry.prefix, message=entry.message
            )
            self._lines.append(line)
        self._left_out += piece.left_out
        if piece.consumed:
            self._is_foreign = piece.is_foreign or (self._is_foreign and bool(self._no_words))
        self._file, self._position = file, start + consumed


async def _catalogues(context: ReadContext, language: str, *, may_read: bool) -> Sequence[dict[str, str]]:
    """Return the server's catalogues of a language; none where it has none and writes English.

    Raises:
        asyncpg.PostgresError: The server refuses the reading.
        ValueError: The content is no catalogue, or our role may not read it.
    """
    if not may_read:
        role = context.facts.user
        needed = f"{grant('pg_read_all_settings', role)}; {grant('pg_read_server_files', role)}"
        raise ValueError(f"its message catalogue is hidden: {needed} show it")
    directory = (await context.fetch("locale_directory"))[0]["setting"]
    rows = await context.fetch("message_catalogues", list(catalogue_paths(directory, language, context.major)))
    return [read_catalogue(row["content"]) for row in rows]


def _not_collected(row: Any) -> Unavailable:
    """Return the reason why there is no log file."""
    destinations = {name.strip().lower() for name in row["destination"].split(",")}
    elsewhere = " and ".join(sorted(destinations - {"stderr", "csvlog", "jsonlog"}))
    if elsewhere and (row["collector"] or not destinations & {"stderr", "csvlog", "jsonlog"}):
        return Unavailable(Reason.SWITCHED_OFF, f"log_destination is {elsewhere}: the server writes no log file")
    if row["collector"]:
        return Unavailable(Reason.FAILED, "the server reports no log file, although logging_collector is on")
    return Unavailable(
        Reason.SWITCHED_OFF,
        f"logging_collector is off: the server logs to its stderr{f' and to {elsewhere}' if elsewhere else ''}",
    )


def log_closed(_: str, user: str) -> str:
    """Return the GRANTs that open the server's log."""
    return (
        f"the server's log is hidden: {grant('pg_monitor', user)}; {grant(_FUNCTIONS, user)} "
        "show it (superusers can read it)"
    )
