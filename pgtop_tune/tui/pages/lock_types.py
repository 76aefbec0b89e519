"""Waits for heavyweight locks by type of lock, on page 4: counted by the server beside the sampled ones."""

from __future__ import annotations

from typing import Any, Final

from pgtop_tune.metrics import sections
from pgtop_tune.metrics.lock_types import lock_types
from pgtop_tune.tui.pages.page import PageTable, foreign, number, rows_of, word
from pgtop_tune.units import count, ms

_US_PER_S: Final = 1e6
_LONG: Final = "Counted when a wait ends with the lock, if it lasted longer than deadlock_timeout"


def _waited(row: Any) -> float | None:
    """Sessions: microseconds per second."""
    waited = row.grown.per_s("wait_us")
    return None if waited is None else waited / _US_PER_S


def _mean_ms(waited_us: int | None, waits: int | None) -> float | None:
    return waited_us / waits / 1000.0 if waits and waited_us is not None else None


_COLUMNS: Final = (
    word("type", "lock type", 17, foreign(lambda row: row.grown.row.locktype), "Kind of lock.",
         "pg_stat_lock.locktype"),
    number("sampled", "sampled", 8, lambda row: row.sampled, count,
           "Mean sessions that wait for such a lock, over 10 s; short waits count, too.",
           "pg_stat_activity.wait_event where wait_event_type = 'Lock', sampled: observations / samples"),
    number("waits", "waits/s", 8, lambda row: row.grown.per_s("waits"), count, f"Long waits per second. {_LONG}.",
           "Δ pg_stat_lock.waits / Δt"),
    number("waited", "sessions", 8, _waited, count, f"Mean sessions in long waits, over 10 s. {_LONG}.",
           "Δ pg_stat_lock.wait_time / Δt"),
    number("each", "ms/wait", 8, lambda row: _mean_ms(row.grown.sum("wait_us"), row.grown.sum("waits")), ms,
           "Milliseconds per long wait, over 10 s.", "Δ pg_stat_lock.wait_time / Δ waits"),
    number("all-waits", "waits", 8, lambda row: row.grown.row.waits, count, "Long waits since the reset.",
           "pg_stat_lock.waits"),
    number("all-each", "ms each", 8, lambda row: _mean_ms(row.grown.row.wait_us, row.grown.row.waits), ms,
           "Milliseconds per long wait since the reset.", "pg_stat_lock.wait_time / waits"),
    number("fast-path", "full/s", 8, lambda row: row.grown.per_s("fastpath_exceeded"), count,
           "Locks per second that found the fast-path slots of their session full: raise max_locks_per_transaction.",
           "Δ pg_stat_lock.fastpath_exceeded / Δt"),
    number("all-fast-path", "full", 8, lambda row: row.grown.row.fastpath_exceeded, count,
           "Such locks since the reset.", "pg_stat_lock.fastpath_exceeded"),
)  # fmt: skip

LOCK_TYPES: Final = PageTable(
    id="lock-types",
    title="by type",
    columns=_COLUMNS,
    rows=rows_of(sections.lock_counters, lock_types),
    key_of=lambda row: row.grown.row.locktype,
    sort="sampled",
    quiet=lambda row: not (row.sampled or row.grown.row.waits or row.grown.row.fastpath_exceeded),
)
