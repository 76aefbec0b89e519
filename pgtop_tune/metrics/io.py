"""I/O of the server: databases, reads and writes by backend type, SLRU caches, WAL and its archive."""

from __future__ import annotations

from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from pgtop_tune.metrics import sections
from pgtop_tune.metrics.active_sessions import CLIENT_BACKEND, WAITS_WINDOW_S, sessions
from pgtop_tune.metrics.catalogue import PUBLISHED_S, Interval, Metric, outer_pair, pair_rate
from pgtop_tune.metrics.growth import Grown, grown_rows, growth, readings
from pgtop_tune.metrics.server import OF_WORKER, committed, number
from pgtop_tune.model.absence import Unavailable
from pgtop_tune.model.io import DatabaseRow, IoCounters, SlruCounters
from pgtop_tune.model.waits import WaitCount

_SLOW_WINDOW_S: Final = 120.0
_SEGMENT_NAME: Final = 24
_MB: Final = 1024 * 1024


def _counted(model: type[Struct], *without: str) -> tuple[str, ...]:
    return tuple(name for name in model.__struct_fields__ if name not in without)


DATABASE_COUNTED: Final = _counted(DatabaseRow, "datid", "datname", "numbackends", "stats_reset_ms")
IO_COUNTED: Final = _counted(IoCounters, "id", "backend_type", "object", "context")
SLRU_COUNTED: Final = _counted(SlruCounters, "name", "stats_reset_ms")


def database_rates(interval: Interval) -> list[Grown[DatabaseRow]]:
    """Return the growth of pg_stat_database by database, without this tool's, and starts of sessions and workers."""
    counted_rows = grown_rows(
        interval,
        sections.databases,
        lambda sample: sample.databases,
        lambda row: (row.datid, row.datname),
        lambda row: row.stats_reset_ms,
        DATABASE_COUNTED,
    )
    rows = [_without_starts(row) for row in counted_rows]
    server = sections.server(interval.newest)
    if isinstance(server, Unavailable):
        return rows
    return [_without_ours(row, interval) if row.row.datname == server.database else row for row in rows]


def _without_starts(grown: Grown[DatabaseRow]) -> Grown[DatabaseRow]:
    """Return the growth of a database as `server.committed` counts it."""
    by = grown.by
    if by is None:
        return grown
    starts = by["sessions"] + OF_WORKER * by.get("parallel_workers", 0)
    return replace(grown, by={**by, "xact_commit": max(by["xact_commit"] - starts, 0)})


def _without_ours(grown: Grown[DatabaseRow], interval: Interval) -> Grown[DatabaseRow]:
    activity, looks = interval.now(sections.activity), readings(interval, sections.database)
    connected = grown.row.numbackends
    if connected is not None and activity is not None:
        connected = max(connected - activity.own_backends, 0)
    by = grown.by
    if by is not None and len(looks) > 1:
        # Sums and rows are read one after the other, so their windows differ by up to a tick.
        own_per_s = (looks[0].own_transactions - looks[-1].own_transactions) / (looks[0].at_s - looks[-1].at_s)
        by = {**by, "xact_commit": max(by["xact_commit"] - round(max(own_per_s, 0.0) * grown.seconds), 0)}
    return replace(grown, row=replace(grown.row, numbackends=connected), by=by)


def slru_rates(interval: Interval) -> list[Grown[SlruCounters]]:
    """Return the growth of pg_stat_slru, by cache."""
    return grown_rows(
        interval,
        sections.slru,
        lambda sample: sample.slrus,
        lambda row: row.name,
        lambda row: row.stats_reset_ms,
        SLRU_COUNTED,
    )


def io_rates(interval: Interval) -> list[Grown[IoCounters]]:
    """Return the growth of pg_stat_io by backend type, object and context; a row that is new had counted nothing."""
    recent = readings(interval, sections.io)
    if not recent:
        return []
    newer, older = recent[0], recent[-1]
    seconds = newer.at_s - older.at_s
    before = {row.id: row for row in older.rows}
    comparable = seconds > 0 and newer.stats_reset_ms == older.stats_reset_ms
    return [
        Grown(row, seconds, growth(before.get(row.id), row, IO_COUNTED) if comparable else None) for row in newer.rows
    ]


class IoShare(Struct, frozen=True):
    """Reads or writes of one kind of process.

    Attributes:
        backend_type: "checkpointer", "client backend", …
        bytes_per_s: Bytes of relations that it reads, or writes and extends, per second.
    """

    backend_type: str
    bytes_per_s: float


def readers_and_writers(interval: Interval) -> tuple[list[IoShare], list[IoShare]] | None:
    """Return reads and writes of relations, including temporary ones, by kind of process, most bytes first.

    None when they are not known.
    """
    rates = io_rates(interval)
    if not rates or all(row.by is None for row in rates):
        return None
    sums: dict[str, list[float]] = {}
    for rate in rates:
        if rate.row.object == "wal":
            continue
        bytes_per_s = sums.setdefault(rate.row.backend_type, [0.0, 0.0])
        bytes_per_s[0] += rate.per_s("read_bytes") or 0.0
        bytes_per_s[1] += rate.per_s("write_bytes", "extend_bytes") or 0.0
    return _shares(sums, 0), _shares(sums, 1)


def _shares(sums: dict[str, list[float]], column: int) -> list[IoShare]:
    shares = [IoShare(name, bytes_per_s[column]) for name, bytes_per_s in sums.items() if bytes_per_s[column] > 0]
    return sorted(shares, key=lambda share: (-share.bytes_per_s, share.backend_type))


def _backend_fsyncs(interval: Interval) -> float | None:
    pair = outer_pair(readings(interval, sections.checkpoints))
    return pair_rate(pair, lambda counters: counters.backend_fsyncs)


def segment_number(name: str, segment_bytes: int) -> int | None:
    """Return the number of a WAL segment, counted from 0/0 on any timeline; None for other files."""
    try:
        log, part = int(name[8:16], 16), int(name[16:_SEGMENT_NAME], 16)
    except ValueError:
        return None
    if len(name) < _SEGMENT_NAME or segment_bytes <= 0:
        return None
    return log * ((1 << 32) // segment_bytes) + part


def _archive_backlog(interval: Interval) -> float | None:
    archiver, wal, server = (
        interval.now(sections.archiver),
        interval.now(sections.wal),
        sections.server(interval.newest),
    )
    if archiver is None or wal is None or isinstance(server, Unavailable) or wal.lsn_bytes is None:
        return None
    segment_bytes = server.wal_segment_bytes
    last, failed = (
        segment_number(name, segment_bytes) for name in (archiver.last_archived_wal, archiver.last_failed_wal)
    )
    # The archiver retries the oldest segment until it succeeds.
    first = last + 1 if last is not None else failed
    return None if first is None else float(max(wal.lsn_bytes // segment_bytes - first, 0))


def _since_archived(interval: Interval) -> float | None:
    archiver = interval.now(sections.archiver)
    return None if archiver is None else passed_s(interval, archiver.last_archived_ms)


def passed_s(interval: Interval, moment_ms: int | None) -> float | None:
    """Return the seconds since a moment of the server's clock; None without one."""
    activity = interval.now(sections.activity)
    now_ms = interval.newest.taken_at_ms if activity is None else activity.now_ms
    return None if moment_ms is None else max(now_ms - moment_ms, 0) / 1000.0


def _wal_directory(interval: Interval) -> float | None:
    files = interval.now(sections.wal_files)
    return None if files is None else float(files.wal_bytes)


def _wal_directory_growth(interval: Interval) -> float | None:
    recent = interval.recent(sections.wal_files, _SLOW_WINDOW_S)
    if len(recent) < 2:
        return None
    return (recent[0].wal_bytes - recent[-1].wal_bytes) / (recent[0].at_s - recent[-1].at_s)


def wal_disk_free_bytes(interval: Interval) -> float | None:
    """Return the available bytes of the file system of the WAL directory; None when they are not known."""
    sample = interval.now(sections.file_systems)
    if sample is None:
        return None
    return next(
        (float(file_system.available_bytes) for file_system in sample.file_systems if "wal" in file_system.roles), None
    )


def archiving_fails(interval: Interval) -> bool:
    """Return whether the last attempt to archive a segment failed: no segment from it on is recycled."""
    archiver = interval.now(sections.archiver)
    return archiver is not None and (archiver.last_failed_ms or 0) > (archiver.last_archived_ms or 0)


def _is_retained(interval: Interval) -> bool:
    """Return whether WAL is kept beyond max_wal_size: the archiver fails, or a slot without limit has no consumer."""
    slots = interval.now(sections.slots)
    return archiving_fails(interval) or any(
        slot.active_pid is None and slot.restart_lsn_bytes is not None and slot.safe_wal_bytes is None
        for slot in (() if slots is None else slots.slots)
    )


def _room_until_recycled(interval: Interval) -> float | None:
    """Return the bytes by which the WAL directory may grow before segments are recycled; None when they are not known."""
    if _is_retained(interval):
        return None
    files = interval.now(sections.wal_files)
    limits_mb = [number(interval, name) for name in ("max_wal_size", "wal_keep_size")]
    if files is None or None in limits_mb:
        return None
    return sum(limit_mb or 0.0 for limit_mb in limits_mb) * _MB - files.wal_bytes


def has_no_room(interval: Interval) -> bool:
    """Return whether the file system of the WAL directory is smaller than max_wal_size and wal_keep_size let WAL grow."""
    free, room = wal_disk_free_bytes(interval), _room_until_recycled(interval)
    return free is not None and room is not None and room > free


def _wal_disk_until_full(interval: Interval) -> float | None:
    free, growing = wal_disk_free_bytes(interval), _wal_directory_growth(interval)
    if free is None or growing is None or growing <= 0:
        return None
    room = _room_until_recycled(interval)
    stops_by_itself = room is not None and room > 0 and not has_no_room(interval)
    return None if stops_by_itself else free / growing


BACKEND_FSYNCS = Metric(
    "server.backend_fsyncs", "fsyncs by backends", "1/s",
    "Files that backends had to fsync themselves because the checkpointer's queue of sync requests was full; should be 0.",
    "Δ buffers_backend_fsync of pg_stat_bgwriter (to 16), fsyncs of pg_stat_io, object relation (from 17 on) / Δt",
    _backend_fsyncs, critical=1.0,
)  # fmt: skip
ARCHIVE_BACKLOG = Metric(
    "server.archive_backlog", "archive backlog", "segments",
    "Complete WAL segments after the last archived one or, if none was archived, from the failed one on. They "
    "stay on the WAL disk until they are archived.",
    "segment of pg_current_wal_insert_lsn() − segment of pg_stat_archiver.last_archived_wal − 1, or of last_failed_wal",
    _archive_backlog,
    critical=64.0,
)  # fmt: skip
SINCE_ARCHIVED = Metric(
    "server.since_archived", "last archived", "s", "Time since a WAL file was last archived.",
    "now − pg_stat_archiver.last_archived_time", _since_archived,
)  # fmt: skip
WAL_DIRECTORY = Metric(
    "server.wal_directory", "WAL directory", "bytes", "Size of the WAL directory, including recycled segments.",
    "sum(size) of pg_ls_waldir()", _wal_directory,
)  # fmt: skip
WAL_DIRECTORY_GROWTH = Metric(
    "server.wal_directory_growth", "growing", "bytes/s",
    "Growth of the WAL directory over two minutes. Above max_wal_size it grows only while a replication slot, a failing archiver or wal_keep_size retains WAL.",
    "Δ sum(size) of pg_ls_waldir() / Δt", _wal_directory_growth,
)  # fmt: skip
WAL_DISK_UNTIL_FULL = Metric(
    "server.wal_disk_until_full", "WAL disk full in", "s",
    "Time until the file system of the WAL directory is full at the growth of the last two minutes. Empty while the directory is smaller than max_wal_size plus wal_keep_size and the disk has room for both, because growth then ends there, unless a failing archiver or an unused slot retains WAL.",
    "statvfs(pg_wal).f_bavail / growth of pg_ls_waldir(); max_wal_size + wal_keep_size − sum(size) of pg_ls_waldir()", _wal_disk_until_full,
)  # fmt: skip

METRICS: Final = (
    BACKEND_FSYNCS, ARCHIVE_BACKLOG, SINCE_ARCHIVED, WAL_DIRECTORY, WAL_DIRECTORY_GROWTH, WAL_DISK_UNTIL_FULL,
)  # fmt: skip


def _flushes(interval: Interval) -> float | None:
    return pair_rate(interval.pair(sections.wal, PUBLISHED_S), lambda wal: wal.wal_syncs)


def _commits_per_flush(interval: Interval) -> float | None:
    flushes = _flushes(interval)
    commits = pair_rate(interval.pair(sections.database, PUBLISHED_S), committed)
    return None if not flushes or commits is None else commits / flushes


WAL_FLUSHES = Metric(
    "io.wal.flushes", "flushes", "1/s",
    "WAL flushes per second, beside the measured limit of the device if known.",
    "Δ wal_sync of pg_stat_wal, from 18 on Δ fsyncs of pg_stat_io (object wal), / Δt", _flushes,
)  # fmt: skip
COMMITS_PER_FLUSH = Metric(
    "io.wal.commits_per_flush", "commits per flush", "",
    "Commits per WAL flush, including commits of read-only transactions, which need no flush.",
    "Δ xact_commit of pg_stat_database / Δ flushes", _commits_per_flush,
)  # fmt: skip


# The WAL device as the sessions see it. One process at a time writes and flushes WAL (WALWriteLock), so the mean number of
# sessions that do so is the share of the time, and 1 is the maximum. It needs no figure of the device: behind an I/O limit
# of a control group a disk is idle while flushes wait.

_FLUSH: Final = frozenset({"walsync"})
_WRITING: Final = frozenset({"walsync", "walwrite", "walinitsync", "walinitwrite"})


def _mean(interval: Interval, events: frozenset[str]) -> float | None:
    sampled = sessions(interval, WAITS_WINDOW_S)
    return None if sampled is None else sum(one.mean for one in sampled if _is_of_client(one.kind, events))


def _is_of_client(kind: WaitCount, events: frozenset[str]) -> bool:
    return kind.wait_event_type == "IO" and kind.backend_type == CLIENT_BACKEND and kind.wait_event.lower() in events


def _busy(interval: Interval) -> float | None:
    writing = _mean(interval, _WRITING)
    return None if writing is None else min(100.0 * writing, 100.0)


def _flush_ms(interval: Interval) -> float | None:
    pair = outer_pair(interval.recent(sections.wal, WAITS_WINDOW_S, least=2))
    if pair is None:
        return None
    older, newer = pair
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
    "Share of the time in which a session writes or flushes WAL. Only one session can do so at a time, so 100 % limits commits. Mean of 10 s.",
    "mean client backends in IO:WalSync, WalWrite, WalInitSync and WalInitWrite, sampled", _busy, critical=90.0,
)  # fmt: skip
WAL_FLUSH_MS = Metric(
    "io.wal.flush_ms", "flush", "ms",
    "Mean time of a WAL flush over the last 10 s; without track_wal_io_timing estimated from samples, accurate to about 15 %.",
    "Δ wal_sync_time / Δ wal_sync of pg_stat_wal (from 18 on pg_stat_io, object wal), else mean client backends in IO:WalSync / flushes per second",
    _flush_ms,
)  # fmt: skip

WAL_METRICS: Final = (WAL_BUSY, WAL_FLUSH_MS)
