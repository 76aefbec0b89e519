"""Readings of the server's I/O: databases, pg_stat_io, SLRU caches, archiver, WAL directory.

Times are whole microseconds (the views have fractions of milliseconds) and stay 0 while track_io_timing (for WAL
track_wal_io_timing) is off.
"""

from __future__ import annotations

from typing import Annotated

from msgspec import Struct

from pgtop_tune.model.recorded_as import KeyedBy


class DatabaseRow(Struct, frozen=True, gc=False):
    """One row of pg_stat_database."""

    datid: int
    """0 for the shared objects."""
    datname: str | None
    numbackends: int | None
    xact_commit: int
    xact_rollback: int
    blks_read: int
    blks_hit: int
    tup_returned: int
    tup_fetched: int
    tup_inserted: int
    tup_updated: int
    tup_deleted: int
    conflicts: int
    temp_files: int
    temp_bytes: int
    deadlocks: int
    checksum_failures: int | None
    """None while data checksums are off."""
    blk_read_us: int
    blk_write_us: int
    session_us: int
    active_us: int
    idle_in_transaction_us: int
    sessions: int
    sessions_abandoned: int
    sessions_fatal: int
    sessions_killed: int
    stats_reset_ms: int | None
    parallel_workers: int | None = None
    """Parallel workers that were launched; from 18 on."""


class DatabaseSample(Struct, frozen=True, gc=False):
    """The databases with the most transactions."""

    at_s: float
    databases: Annotated[tuple[DatabaseRow, ...], KeyedBy("datid")]
    left_out: int = 0
    """Number of databases that are not in `databases`."""


class IoCounters(Struct, frozen=True, gc=False):
    """One row of pg_stat_io (16+). None for operations that cannot happen."""

    id: str
    """"backend_type/object/context"."""
    backend_type: str
    object: str
    """relation, temp relation, wal (18+)."""
    context: str
    """normal, vacuum, bulkread, bulkwrite, init (18+)."""
    reads: int | None
    read_bytes: int | None
    read_us: int | None
    writes: int | None
    write_bytes: int | None
    write_us: int | None
    writebacks: int | None
    writeback_us: int | None
    extends: int | None
    extend_bytes: int | None
    extend_us: int | None
    hits: int | None
    evictions: int | None
    reuses: int | None
    fsyncs: int | None
    fsync_us: int | None


class IoSample(Struct, frozen=True, gc=False):
    """pg_stat_io without rows that have counted nothing."""

    at_s: float
    stats_reset_ms: int | None
    rows: Annotated[tuple[IoCounters, ...], KeyedBy("id")]


class SlruCounters(Struct, frozen=True, gc=False):
    """One row of pg_stat_slru, in pages of 8 kB."""

    name: str
    """The server's name: "Xact" to 16, "transaction" from 17 on."""
    blks_zeroed: int
    blks_hit: int
    blks_read: int
    blks_written: int
    blks_exists: int
    flushes: int
    truncates: int
    stats_reset_ms: int | None


class SlruSample(Struct, frozen=True, gc=False):
    """pg_stat_slru: the small caches of transaction states and the like."""

    at_s: float
    slrus: Annotated[tuple[SlruCounters, ...], KeyedBy("name")]


class ArchiverStatus(Struct, frozen=True, gc=False):
    """pg_stat_archiver."""

    at_s: float
    archived_count: int
    last_archived_wal: str
    """A segment, a backup label or a timeline's history; "" before the first."""
    last_archived_ms: int | None
    failed_count: int
    last_failed_wal: str
    last_failed_ms: int | None
    stats_reset_ms: int | None


class WalFiles(Struct, frozen=True, gc=False):
    """pg_ls_waldir(): segments in the WAL directory."""

    at_s: float
    segments: int
    wal_bytes: int
    """Size of all files in the WAL directory."""
    recycled: int | None
    """Segments prepared for reuse, behind the one being written; None on a standby."""
