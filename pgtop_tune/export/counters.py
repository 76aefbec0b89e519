"""Raw counters of the server's views and of the kernel, under the names they have there.

Sums over databases or statements are not among them: when a database is dropped or an entry thrown out, such a sum
falls, and whoever takes a falling counter for a reset would see a burst that never was.
"""

from __future__ import annotations

import heapq
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, NamedTuple, TypeVar

from pgtop_tune.export.exported import Exported, ExportedPoint, MetricKind, ReadPoints, WantedRows, each_point
from pgtop_tune.metrics import sections
from pgtop_tune.metrics.catalogue import Interval, Reading
from pgtop_tune.model.absence import Unavailable
from pgtop_tune.model.frame import Frame
from pgtop_tune.model.host import PressureSample
from pgtop_tune.model.replication import SubscriptionSample, SubscriptionWorker
from pgtop_tune.model.statements import StatementCounters

S = TypeVar("S", bound=Reading)


class _Column(NamedTuple):
    """A counter of a view.

    Attributes:
        name: The column, as PostgreSQL or the kernel calls it.
        unit: Of the field.
        help: What it counts.
        field: Of the struct; "" is the column's name.
    """

    name: str
    unit: str
    help: str
    field: str = ""


def _counters(
    view: str,
    section: Callable[[Frame], S | Unavailable],
    columns: Sequence[_Column],
    rows: Callable[[S], Iterable[Any]] = lambda sample: (sample,),
    labels: tuple[str, ...] = (),
    key: Callable[[Any], tuple[str | None, ...]] = lambda row: (),
    wanted: WantedRows = WantedRows.NOT_IN_TABLES,
) -> tuple[Exported, ...]:
    """Columns of a view; a row that does not have one of them has no point there."""

    def reader(field: str) -> ReadPoints:
        def values(interval: Interval) -> Iterable[tuple[tuple[str, ...], float | None]]:
            sample = interval.now(section)
            for row in () if sample is None else rows(sample):
                yield tuple(word or "" for word in key(row)), getattr(row, field)

        return each_point(values)

    return tuple(
        Exported(
            id=f"{view}.{each.name}",
            kind=MetricKind.COUNTER,
            unit=each.unit,
            help=f"{each.help} Source: {view}.{each.name}",
            read=reader(each.field or each.name),
            labels=labels,
            wanted=wanted,
            section=section,
        )
        for each in columns
    )


_DATABASE: Final = (
    _Column("xact_commit", "", "Transactions committed, including those of pgtop-tune."),
    _Column("xact_rollback", "", "Transactions rolled back."),
    _Column("blks_read", "", "Blocks not found in shared buffers."),
    _Column("blks_hit", "", "Blocks found in shared buffers."),
    _Column("tup_returned", "", "Rows read by sequential scans, and index entries."),
    _Column("tup_fetched", "", "Rows fetched by index scans."),
    _Column("tup_inserted", "", "Rows inserted."),
    _Column("tup_updated", "", "Rows updated."),
    _Column("tup_deleted", "", "Rows deleted."),
    _Column("conflicts", "", "Queries cancelled by conflicts with recovery, on a standby."),
    _Column("temp_files", "", "Temporary files made."),
    _Column("temp_bytes", "bytes", "Written to temporary files."),
    _Column("deadlocks", "", "Deadlocks found."),
    _Column("checksum_failures", "", "Pages whose checksum was wrong."),
    _Column("blk_read_time", "us", "Time of reads; 0 while track_io_timing is off.", "blk_read_us"),
    _Column("blk_write_time", "us", "Time of writes; 0 while track_io_timing is off.", "blk_write_us"),
    _Column("session_time", "us", "Time of sessions.", "session_us"),
    _Column("active_time", "us", "Time of sessions running a statement.", "active_us"),
    _Column("idle_in_transaction_time", "us", "Time of sessions idle in a transaction.", "idle_in_transaction_us"),
    _Column("sessions", "", "Sessions begun."),
    _Column("sessions_abandoned", "", "Sessions whose client disconnected."),
    _Column("sessions_fatal", "", "Sessions ended by a fatal error."),
    _Column("sessions_killed", "", "Sessions ended by an operator."),
)
_WAL: Final = (
    _Column("wal_records", "", "WAL records."),
    _Column("wal_fpi", "", "Full-page images in WAL."),
    _Column("wal_fpi_bytes", "bytes", "Bytes of them; from 19 on."),
    _Column("wal_bytes", "bytes", "WAL written."),
    _Column("wal_buffers_full", "", "Times WAL had to be written because wal_buffers was full."),
    _Column("wal_write", "", "Writes of WAL to disk; from 18 on of pg_stat_io.", "wal_writes"),
    _Column("wal_write_time", "us", "Time of them; 0 while track_wal_io_timing is off.", "wal_write_us"),
    _Column("wal_sync", "", "Flushes of WAL; from 18 on of pg_stat_io.", "wal_syncs"),
    _Column("wal_sync_time", "us", "Time of them; 0 while track_wal_io_timing is off.", "wal_sync_us"),
    _Column("insert_lsn", "bytes", "pg_current_wal_insert_lsn() from 0/0; on a standby as replayed.", "lsn_bytes"),
)
_CHECKPOINTER: Final = (
    _Column("num_timed", "", "Checkpoints begun because checkpoint_timeout had elapsed.", "timed"),
    _Column("num_requested", "", "Checkpoints begun because of WAL or a command.", "requested"),
    _Column("num_done", "", "Checkpoints finished; from 18 on.", "done"),
    _Column("write_time", "ms", "Time spent writing.", "write_ms"),
    _Column("sync_time", "ms", "Time spent syncing.", "sync_ms"),
    _Column("buffers_written", "", "Buffers written by checkpoints.", "buffers_checkpoint"),
    _Column("slru_written", "", "Pages of SLRU caches written by checkpoints; from 18 on."),
)
_WRITER: Final = (
    _Column("buffers_clean", "", "Buffers written by the background writer."),
    _Column("maxwritten_clean", "", "Rounds it ended early because of bgwriter_lru_maxpages."),
    _Column("buffers_alloc", "", "Buffers allocated."),
    _Column("buffers_backend", "", "Buffers written by backends; from 17 on of pg_stat_io."),
    _Column("buffers_backend_fsync", "", "Files backends had to sync themselves.", "backend_fsyncs"),
)
_IO: Final = (
    _Column("reads", "", "Reads."),
    _Column("read_bytes", "bytes", "Read."),
    _Column("read_time", "us", "Time of reads; 0 while track_io_timing is off.", "read_us"),
    _Column("writes", "", "Writes."),
    _Column("write_bytes", "bytes", "Written."),
    _Column("write_time", "us", "Time of writes.", "write_us"),
    _Column("writebacks", "", "Blocks the kernel was asked to write."),
    _Column("extends", "", "Extensions of a relation."),
    _Column("extend_bytes", "bytes", "Extended."),
    _Column("extend_time", "us", "Time of extensions.", "extend_us"),
    _Column("hits", "", "Blocks found in shared buffers."),
    _Column("evictions", "", "Buffers evicted for another block."),
    _Column("reuses", "", "Buffers of a ring used again."),
    _Column("fsyncs", "", "Syncs."),
    _Column("fsync_time", "us", "Time of syncs.", "fsync_us"),
)
_LOCK: Final = (
    _Column("waits", "", "Waits that lasted longer than deadlock_timeout and ended with the lock; from 19 on."),
    _Column("wait_time", "us", "Time of them.", "wait_us"),
    _Column("fastpath_exceeded", "", "Locks that found the fast-path slots of their session full."),
)
_SLOTS: Final = (
    _Column("mem_exceeded_count", "", "Times logical_decoding_work_mem was exceeded; from 19 on.", "mem_exceeded"),
    _Column("slotsync_skip_count", "", "Synchronizations of the slot to this standby that were skipped; from 19 on.",
            "sync_skips"),
)  # fmt: skip
_SUBSCRIPTIONS: Final = (
    _Column("apply_error_count", "", "Errors while applying changes; from 15 on.", "apply_errors"),
    _Column("sync_table_error_count", "", "Errors of the first copy of tables; until 18 sync_error_count.",
            "sync_errors"),
    _Column("sync_seq_error_count", "", "Errors while synchronising sequences; from 19 on.", "sequence_errors"),
)  # fmt: skip
_SLRU: Final = (
    _Column("blks_zeroed", "", "Pages zeroed."),
    _Column("blks_hit", "", "Pages found in the cache."),
    _Column("blks_read", "", "Pages read from disk."),
    _Column("blks_written", "", "Pages written."),
    _Column("flushes", "", "Flushes of dirty pages."),
    _Column("truncates", "", "Truncations."),
)
_STATEMENTS: Final = (
    _Column("calls", "", "Executions that ended."),
    _Column("total_exec_time", "us", "Time of execution.", "exec_us"),
    _Column("plans", "", "Times planned; 0 while track_planning is off."),
    _Column("total_plan_time", "us", "Time of planning.", "plan_us"),
    _Column("generic_plan_calls", "", "Executions of prepared statements with a generic plan; from 19 on."),
    _Column("custom_plan_calls", "", "Executions of prepared statements with a plan for their parameters; from 19 on."),
    _Column("rows", "", "Rows returned or affected."),
    _Column("shared_blks_hit", "", "Blocks found in shared buffers."),
    _Column("shared_blks_read", "", "Blocks not found in shared buffers."),
    _Column("shared_blks_dirtied", "", "Blocks dirtied."),
    _Column("shared_blks_written", "", "Blocks written."),
    _Column("temp_blks_read", "", "Blocks of temporary files read."),
    _Column("temp_blks_written", "", "Blocks of temporary files written."),
    _Column("wal_records", "", "WAL records."),
    _Column("wal_bytes", "bytes", "WAL written."),
)
_DISK: Final = (
    _Column("reads", "", "Reads that ended."),
    _Column("read_bytes", "bytes", "Read."),
    _Column("read_time", "ms", "Time of reads.", "read_ms"),
    _Column("writes", "", "Writes that ended."),
    _Column("write_bytes", "bytes", "Written."),
    _Column("write_time", "ms", "Time of writes.", "write_ms"),
    _Column("busy_time", "ms", "Time with a request in progress (io_ticks).", "busy_ms"),
    _Column("queue_time", "ms", "Time of all requests together (time_in_queue).", "weighted_ms"),
)
_NETWORK: Final = tuple(
    _Column(f"{way}_{what}", "bytes" if what == "bytes" else "", f"{what.capitalize()} {way}.")
    for way in ("received", "sent")
    for what in ("bytes", "packets", "errors", "drops")
)
_CGROUP: Final = (
    _Column("oom_kills", "", "Processes killed for lack of memory."),
    _Column("memory_max_events", "", "Times the memory limit was hit."),
    _Column("throttled_time", "us", "Time its CPUs were throttled.", "cpu_throttled_us"),
)
_KERNEL: Final = (
    _Column("context_switches", "", "Context switches."),
    _Column("interrupts", "", "Hardware interrupts."),
)
_OWN: Final = (
    _Column("cpu_time", "s", "CPU time of this program.", "cpu_s"),
    _Column("statements", "", "Statements this program sent to the server."),
)

_CPU_MODES: Final = ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal")


def _cpu_time(interval: Interval) -> Iterable[ExportedPoint]:
    cpu, host = interval.now(sections.cpu), interval.newest.host
    if cpu is None or isinstance(host, Unavailable) or isinstance(host.facts, Unavailable):
        return ()
    ticks = host.facts.ticks_per_s
    if ticks <= 0:
        return ()
    counted = ((mode, getattr(cpu.total, f"{mode}_ticks")) for mode in _CPU_MODES)
    return [ExportedPoint((mode,), value / ticks) for mode, value in counted if value is not None]


def _pressure_time(interval: Interval) -> Iterable[ExportedPoint]:
    sample: PressureSample | None = interval.now(sections.pressure)
    if sample is None:
        return ()
    found = []
    for resource in ("cpu", "io", "memory"):
        line = getattr(sample, resource)
        found += [ExportedPoint((resource, "some"), line.some_us)]
        found += [] if line.full_us is None else [ExportedPoint((resource, "full"), line.full_us)]
    return found


def _each_subscription(sample: SubscriptionSample) -> Iterable[SubscriptionWorker]:
    """One of its workers, or the row that stands for none."""
    return {worker.id.partition(":")[0]: worker for worker in sample.workers}.values()


def _statement_key(row: StatementCounters) -> tuple[str | None, ...]:
    return str(row.queryid), row.datname, row.usename, "true" if row.toplevel else "false"


def of_statements(most: int) -> tuple[Exported, ...]:
    """Counters of entries of pg_stat_statements, without their texts.

    Args:
        most: So many entries, those with most time of execution.
    """
    return _counters(
        "pg_stat_statements",
        sections.statement_counters,
        _STATEMENTS,
        lambda sample: heapq.nlargest(min(most, len(sample.statements)), sample.statements, _exec_us),
        ("queryid", "datname", "usename", "toplevel"),
        _statement_key,
        WantedRows.WHEN_NAMED,
    )


def _exec_us(row: StatementCounters) -> int:
    return row.exec_us


COUNTERS: Final = (
    *_counters("pg_stat_database", sections.databases, _DATABASE, lambda sample: sample.databases, ("datname",),
               lambda row: (row.datname,)),
    *_counters("pg_stat_wal", sections.wal, _WAL),
    *_counters("pg_stat_checkpointer", sections.checkpoints, _CHECKPOINTER),
    *_counters("pg_stat_bgwriter", sections.checkpoints, _WRITER),
    *_counters("pg_stat_io", sections.io, _IO, lambda sample: sample.rows, ("backend_type", "object", "context"),
               lambda row: (row.backend_type, row.object, row.context)),
    *_counters("pg_stat_slru", sections.slru, _SLRU, lambda sample: sample.slrus, ("name",), lambda row: (row.name,)),
    *_counters("pg_stat_lock", sections.lock_counters, _LOCK, lambda sample: sample.types, ("locktype",),
               lambda row: (row.locktype,)),
    *_counters("pg_stat_replication_slots", sections.slots, _SLOTS, lambda sample: sample.slots,
               ("slot_name", "slot_type"), lambda row: (row.slot_name, row.slot_type)),
    *_counters("pg_stat_subscription_stats", sections.subscriptions, _SUBSCRIPTIONS, _each_subscription, ("subname",),
               lambda row: (row.name,)),
    *_counters("pg_stat_archiver", sections.archiver, (
        _Column("archived", "", "WAL files archived.", "archived_count"),
        _Column("failed", "", "Attempts that failed.", "failed_count"),
    )),
    *of_statements(sys.maxsize),
    Exported("kernel.cpu.time", MetricKind.COUNTER, "s", "Time of all CPUs by state. Source: /proc/stat cpu",
             _cpu_time, ("mode",), WantedRows.NOT_IN_TABLES, sections.cpu),
    Exported("kernel.pressure.time", MetricKind.COUNTER, "us",
             "Time some tasks, or all, waited for a resource. Source: /proc/pressure total",
             _pressure_time, ("resource", "stalled"), WantedRows.NOT_IN_TABLES, sections.pressure),
    *_counters("kernel", sections.cpu, _KERNEL),
    *_counters("kernel.disk", sections.disks, _DISK, lambda sample: sample.disks, ("device",), lambda row: (row.name,)),
    *_counters("kernel.network", sections.network, _NETWORK, lambda sample: sample.interfaces, ("interface",),
               lambda row: (row.name,)),
    *_counters("kernel.cgroup", sections.cgroup, _CGROUP),
    *_counters("own", sections.footprint, _OWN),
)  # fmt: skip
"""In the order in which they are written."""
