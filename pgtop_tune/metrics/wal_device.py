"""How busy the WAL device is with this server's WAL, as the sessions see it.

One process at a time writes and flushes WAL (WALWriteLock), so the mean number of sessions that do is the share of the
time in which it happens, and 1 is the end. It needs no number of the device: behind an I/O limit of a control group a
disk is idle while flushes wait.
"""

from __future__ import annotations

from typing import Final

from pgtop_tune.metrics import sections
from pgtop_tune.metrics.active_sessions import CLIENT_BACKEND, WAITS_WINDOW_S, sessions
from pgtop_tune.metrics.catalogue import Interval, Metric
from pgtop_tune.model.waits import WaitCount

_FLUSH: Final = frozenset({"walsync"})
_WRITING: Final = frozenset({"walsync", "walwrite", "walinitsync", "walinitwrite"})


def _mean(interval: Interval, events: frozenset[str]) -> float | None:
    found = sessions(interval, WAITS_WINDOW_S)
    return None if found is None else sum(one.mean for one in found if _is_of_client(one.kind, events))


def _is_of_client(kind: WaitCount, events: frozenset[str]) -> bool:
    return kind.wait_event_type == "IO" and kind.backend_type == CLIENT_BACKEND and kind.wait_event.lower() in events


def _busy(interval: Interval) -> float | None:
    writing = _mean(interval, _WRITING)
    return None if writing is None else min(100.0 * writing, 100.0)


def _flush_ms(interval: Interval) -> float | None:
    recent = interval.recent(sections.wal, WAITS_WINDOW_S, least=2)
    if len(recent) < 2 or recent[0].stats_reset_ms != recent[-1].stats_reset_ms:
        return None
    newer, older = recent[0], recent[-1]
    if newer.wal_syncs is None or older.wal_syncs is None or newer.wal_syncs <= older.wal_syncs:
        return None
    flushes = newer.wal_syncs - older.wal_syncs
    timed_us = (newer.wal_sync_us or 0) - (older.wal_sync_us or 0)
    if timed_us > 0:
        return timed_us / flushes / 1000.0
    waiting = _mean(interval, _FLUSH)
    return None if waiting is None else 1000.0 * waiting * (newer.at_s - older.at_s) / flushes


WAL_BUSY = Metric(
    "io.wal.busy", "WAL busy", "%",
    "Share of the time in which a session writes or flushes WAL; one does at a time, so at 100 no more commits fit. Mean of 10 s.",
    "mean client backends in IO:WalSync, WalWrite, WalInitSync and WalInitWrite, sampled", _busy, critical=90.0,
)  # fmt: skip
WAL_FLUSH_MS = Metric(
    "io.wal.flush_ms", "flush", "ms",
    "Mean time of a WAL flush over the last 10 s; without track_wal_io_timing from samples, good to about 15 %.",
    "Δ wal_sync_time / Δ wal_sync of pg_stat_wal (from 18 on pg_stat_io, object wal), else mean client backends in IO:WalSync / flushes per second",
    _flush_ms,
)  # fmt: skip

METRICS: Final = (WAL_BUSY, WAL_FLUSH_MS)
