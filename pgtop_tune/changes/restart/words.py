"""What an operator is told about a restart: why it failed, and the values that are in force. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pgtop_tune.changes.model.change import ParameterChange
from pgtop_tune.cluster.service import LogPiece
from pgtop_tune.postgres.log_entries import LogEntry, log_entries

_LOG_LINES: Final = 12
_ENDED: Final = "database system is shut down"
_GRAVE: Final = frozenset({"WARNING", "ERROR", "FATAL", "PANIC"})


def explaining(pieces: Sequence[LogPiece], said: Sequence[str] = ()) -> tuple[str, ...]:
    """The lines of a log that explain why a server did not start, graver ones alone where there are any.

    Args:
        pieces: What it wrote while it was started.
        said: What the program said that started it; used where the log has nothing.
    """
    entries = [entry for piece in pieces for entry in _since_the_end(log_entries(piece.file, piece.content).entries)]
    grave = [entry for entry in entries if entry.severity in _GRAVE]
    lines = [f"{entry.severity}:  {entry.message}" for entry in grave or entries]
    return tuple(dict.fromkeys(lines))[-_LOG_LINES:] or tuple(said)[-_LOG_LINES:]


def _since_the_end(entries: Sequence[LogEntry]) -> Sequence[LogEntry]:
    """What follows the end of the server before; a server that does not start says so of its own end, too."""
    ended = next((at for at, entry in enumerate(entries) if entry.message.startswith(_ENDED)), -1)
    return entries[ended + 1 :]


def values(changes: Sequence[ParameterChange]) -> str:
    """ "shared_buffers = 1GB, max_connections = 200": as they are shown now. Foreign text."""
    return ", ".join(f"{change.name} = {change.shown_after}" for change in changes)
