"""What an operator is told about a restart: why it failed, and the values that are in force. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from pgtop_tune.base.secret import without_secrets
from pgtop_tune.changes.model.change import ParameterChange
from pgtop_tune.cluster.service import LogPiece
from pgtop_tune.postgres.log_entries import LogEntry, log_entries
from pgtop_tune.postgres.log_language import ENGLISH, LogLanguage

_LOG_LINES: Final = 12
_ENDED: Final = re.compile("database system is shut down")
_GRAVE: Final = frozenset({"WARNING", "ERROR", "FATAL", "PANIC"})
_SUMMARY: Final = re.compile(r"contains errors|^could not (?:load|create any)")
"""What a server says once it has logged each fault of a file or an address (guc.c, postmaster.c)."""
_BEGIN: Final = re.compile(r"^(?:starting (?:PostgreSQL|%s)|listening on)")
_OF_PROGRAM: Final = re.compile(r"^(?:\S*/)?postgres: (.+)$", re.MULTILINE)
"""What a server says before it has a log: with neither prefix nor severity (postmaster.c, write_stderr)."""


def explaining(
    pieces: Sequence[LogPiece], said: Sequence[str] = (), language: LogLanguage = ENGLISH
) -> tuple[str, ...]:
    """The lines of a log that explain why a server did not start, graver ones alone where there are any.

    Args:
        pieces: What it wrote while it was started.
        said: What the program said that started it; used where the log has nothing.
        language: Of the log.
    """
    ended = language.saying(_ENDED)
    entries: list[LogEntry] = []
    for piece in pieces:
        entries += _since_the_end(log_entries(piece.file, piece.content, language).entries, ended)
    grave = _with_causes(entries, language)
    lines = [words for piece in pieces for words in _of_program(piece.content, ended)]
    lines += [f"{entry.severity}:  {entry.message}" for entry in (grave or ([] if lines else entries))]
    return tuple(dict.fromkeys(lines))[-_LOG_LINES:] or tuple(said)[-_LOG_LINES:]


def _with_causes(entries: Sequence[LogEntry], language: LogLanguage) -> list[LogEntry]:
    """Return the graver lines, each summary of faults with the lines of those faults before it."""
    summary, begin = language.saying(_SUMMARY), language.saying(_BEGIN)
    kept: list[LogEntry] = []
    for at, entry in enumerate(entries):
        if entry.severity in _GRAVE:
            if summary.search(entry.message):
                before = entries[max(at - _LOG_LINES, 0) : at]
                kept += [fault for fault in before if fault.severity == "LOG" and not begin.search(fault.message)]
            kept.append(entry)
    return kept


def _of_program(content: bytes, ended: re.Pattern[str]) -> list[str]:
    since = ended.split(content.decode("utf-8", "replace"))[-1]
    return [f"FATAL:  {without_secrets(words)}" for words in _OF_PROGRAM.findall(since)]


def _since_the_end(entries: Sequence[LogEntry], ended: re.Pattern[str]) -> Sequence[LogEntry]:
    """What follows the end of the server before; a server that does not start says so of its own end, too."""
    last = next((at for at, entry in enumerate(entries) if ended.match(entry.message)), -1)
    return entries[last + 1 :]


def values(changes: Sequence[ParameterChange]) -> str:
    """ "shared_buffers = 1GB, max_connections = 200": as they are shown now. Foreign text."""
    return ", ".join(f"{change.name} = {change.shown_after}" for change in changes)
