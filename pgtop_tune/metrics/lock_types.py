"""Waits for heavyweight locks by type of lock: what pg_stat_lock counts beside what was sampled."""

from __future__ import annotations

from msgspec import Struct

from pgtop_tune.metrics import sections
from pgtop_tune.metrics.catalogue import Interval
from pgtop_tune.metrics.growth import Grown, grown_rows
from pgtop_tune.metrics.waits import wait_profile
from pgtop_tune.model.waits import LockCounters


class LockType(Struct, frozen=True):
    """Waits for one type of heavyweight lock.

    Attributes:
        grown: The row of pg_stat_lock with its growth.
        sampled: Mean sessions seen waiting for such a lock over the last 10 s; None when nobody looked.
    """

    grown: Grown[LockCounters]
    sampled: float | None


def lock_types(interval: Interval) -> list[LockType]:
    """Growth of pg_stat_lock by type of lock, beside the sampled waits; empty without the section."""
    profile = {(wait.wait_event_type, wait.wait_event): wait.sessions for wait in wait_profile(interval)}
    rows = grown_rows(
        interval,
        sections.lock_counters,
        lambda sample: sample.types,
        lambda row: row.locktype,
        lambda row: row.stats_reset_ms,
        ("waits", "wait_us", "fastpath_exceeded"),
    )
    return [LockType(row, profile.get(("Lock", row.row.locktype), 0.0) if profile else None) for row in rows]
