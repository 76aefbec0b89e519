"""What the server does beside what it was measured to do at most (`check --measure`)."""

from __future__ import annotations

from typing import Final

from pgtop_tune.metrics import sections
from pgtop_tune.metrics.catalogue import Interval, Metric, share
from pgtop_tune.metrics.io import WAL_FLUSHES
from pgtop_tune.model.absence import Unavailable

_FLUSHES: Final = "wal-flushes"


def _most_flushes(interval: Interval) -> float | None:
    measured = sections.ceilings(interval.newest)
    return None if isinstance(measured, Unavailable) else measured.value(_FLUSHES)


def _flushes_used(interval: Interval) -> float | None:
    now, most = WAL_FLUSHES(interval), _most_flushes(interval)
    return None if now is None or most is None else share(now, most)


def _age(interval: Interval) -> float | None:
    measured = sections.ceilings(interval.newest)
    if isinstance(measured, Unavailable) or not measured.at_ms:
        return None
    return max(interval.newest.taken_at_ms - measured.at_ms, 0) / 1000


MOST_FLUSHES = Metric(
    "ceiling.wal_flushes", "WAL device", "1/s",
    "Measured limit of the WAL device: consecutive flushes per second, from `check --measure`.",
    "pg_test_fsync with the server's wal_sync_method, or writes of our own into an unlinked file in pg_wal", _most_flushes,
)  # fmt: skip
FLUSHES_USED = Metric(
    "ceiling.wal_flushes_used", "of its flushes", "%",
    "Flushes as a share of the WAL device's measured limit. Near 100, more commits need more commits per flush (commit_delay, more sessions) or another device; a disturbed measurement allows values above 100.",
    "flushes / flushes of the WAL device", _flushes_used, critical=95.0,
)  # fmt: skip
CEILING_AGE = Metric(
    "ceiling.age", "measured ago", "s", "Time since the server was measured.",
    "the measurement, kept in the user's state directory by system identifier", _age,
)  # fmt: skip

METRICS: Final = (MOST_FLUSHES, FLUSHES_USED, CEILING_AGE)
