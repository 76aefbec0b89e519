"""Progress of commands: completed share, rate and remaining time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from pgtop_tune.metrics import sections
from pgtop_tune.metrics.active_sessions import DECODING
from pgtop_tune.metrics.catalogue import Interval, rate
from pgtop_tune.model.backend_action import BackendKey
from pgtop_tune.model.relations import ProgressRow, ProgressSample

WINDOW_S: Final = 10.0
_PARALLEL: Final = "parallel worker"


class CommandProgress(Struct, frozen=True):
    """A command under way.

    Attributes:
        row: The newest row.
        percent: Completed share of its phase; None where the server does not report the total.
        per_s: Rate in the row's unit, as a mean of the last 10 s of the same phase.
        remaining_s: Time until the phase is done, at that rate.
        backend: pid and backend_start_ms; None where the session is not visible.
        workers: Number of its parallel workers.
        decoding: Whether a worker decodes concurrent changes, for REPACK (CONCURRENTLY).
    """

    row: ProgressRow
    percent: float | None
    per_s: float | None
    remaining_s: float | None
    backend: BackendKey | None = None
    workers: int = 0
    decoding: bool = False


def progress_rows(interval: Interval) -> list[CommandProgress]:
    """Return the commands of the newest frame, those of one kind by pid; empty without the section.

    The server's own order is that of its backend slots, which is arbitrary.
    """
    recent = interval.recent(sections.progress, WINDOW_S, least=2)
    if not recent:
        return []
    activity = interval.now(sections.activity)
    backends = () if activity is None else activity.backends
    sessions = {backend.pid: backend.backend_start_ms for backend in backends}
    helped = Counter((backend.leader_pid, backend.backend_type) for backend in backends)
    return [
        replace(
            _progress(row, recent),
            backend=(row.pid, sessions[row.pid]) if row.pid in sessions else None,
            workers=helped[row.pid, _PARALLEL],
            decoding=bool(helped[row.pid, DECODING]),
        )
        for row in _by_kind(recent[0].commands)
    ]


def _by_kind(rows: Sequence[ProgressRow]) -> list[ProgressRow]:
    kinds = list(dict.fromkeys(_kind(row) for row in rows))
    return sorted(rows, key=lambda row: (kinds.index(_kind(row)), row.pid))


def _kind(row: ProgressRow) -> str:
    """Return the first word of the command: CREATE INDEX with and without CONCURRENTLY are one kind."""
    return row.command.partition(" ")[0]


def _progress(row: ProgressRow, recent: Sequence[ProgressSample]) -> CommandProgress:
    percent = None
    if row.done is not None and row.total:
        percent = min(100.0 * row.done / row.total, 100.0)
    per_s = _rate(row, recent)
    remaining = None
    if per_s and row.done is not None and row.total is not None:
        remaining = max(row.total - row.done, 0) / per_s
    return CommandProgress(row=row, percent=percent, per_s=per_s, remaining_s=remaining)


def _rate(row: ProgressRow, recent: Sequence[ProgressSample]) -> float | None:
    oldest: tuple[int, float] | None = None
    for sample in recent[1:]:
        older = next((candidate for candidate in sample.commands if _is_same_phase(candidate, row)), None)
        if older is None or older.done is None:
            break
        oldest = older.done, sample.at_s
    if oldest is None or row.done is None:
        return None
    return rate(oldest[0], row.done, oldest[1], recent[0].at_s)


def _is_same_phase(one: ProgressRow, earlier: ProgressRow) -> bool:
    return (one.pid, one.command, one.relation, one.phase) == (
        earlier.pid,
        earlier.command,
        earlier.relation,
        earlier.phase,
    )
