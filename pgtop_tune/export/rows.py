"""Rows besides the catalogue of metrics: states, and raw counters of views and of the kernel under their own names.

No counter is a sum over databases or statements: a dropped database or an evicted entry would make it fall, and
Prometheus takes a falling counter for a reset, and would show a burst that never was.
"""

from __future__ import annotations

import heapq
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, NamedTuple, TypeVar

from pgtop_tune import __version__
from pgtop_tune.diagnosis.diagnoser import Diagnoser
from pgtop_tune.diagnosis.finding import Diagnosis
from pgtop_tune.export.exported import (
    DefaultRows,
    Exported,
    ExportedPoint,
    MetricKind,
    Points,
    ReadPoints,
    one_point,
)
from pgtop_tune.metrics import sections
from pgtop_tune.metrics.active_sessions import activity_of, sessions
from pgtop_tune.metrics.catalogue import Interval, Reading
from pgtop_tune.metrics.load import QUANTILES
from pgtop_tune.metrics.replication import ReceiverLag, SenderLag, SlotState, receiver_lag, sender_lags, slot_states
from pgtop_tune.metrics.server import states
from pgtop_tune.metrics.vacuum import age, table_vacuums
from pgtop_tune.metrics.waits import NEWEST
from pgtop_tune.model.absence import Unavailable
from pgtop_tune.model.frame import Frame
from pgtop_tune.model.host import HostFacts, PressureSample
from pgtop_tune.model.postgres import ServerFacts
from pgtop_tune.model.replication import SubscriptionSample, SubscriptionWorker

S = TypeVar("S", bound=Reading)


class _Column(NamedTuple):
    """A counter of a view.

    Attributes:
        name: As PostgreSQL or the kernel calls it.
        unit: Of the field.
        help: Meaning.
        field: Field of the struct; "" is the column's name.
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
    labels: Mapping[str, str] = MappingProxyType({}),
    default_for: DefaultRows = DefaultRows.NOT_IN_TABLES,
) -> tuple[Exported, ...]:
    """Return the columns of a view as rows.

    Args:
        labels: Names of labels, and the fields of a row with their values.
    """

    def reader(field: str) -> ReadPoints:
        def points(interval: Interval) -> Points:
            sample = interval.now(section)
            for row in () if sample is None else rows(sample):
                yield tuple(_label(getattr(row, name)) for name in labels.values()), getattr(row, field)

        return points

    return tuple(
        Exported(
            id=f"{view}.{column.name}",
            kind=MetricKind.COUNTER,
            unit=column.unit,
            help=f"{column.help} Source: {view}.{column.name}",
            read=reader(column.field or column.name),
            labels=tuple(labels),
            default_for=default_for,
            section=section,
        )
        for column in columns
    )


def _label(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else "" if value is None else str(value)


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
    _Column("temp_files", "", "Temporary files created."),
    _Column("temp_bytes", "bytes", "Bytes written to temporary files."),
    _Column("deadlocks", "", "Deadlocks found."),
    _Column("checksum_failures", "", "Pages with a wrong checksum."),
    _Column("blk_read_time", "us", "Time of reads; 0 while track_io_timing is off.", "blk_read_us"),
    _Column("blk_write_time", "us", "Time of writes; 0 while track_io_timing is off.", "blk_write_us"),
    _Column("session_time", "us", "Time of sessions.", "session_us"),
    _Column("active_time", "us", "Time of sessions running a statement.", "active_us"),
    _Column("idle_in_transaction_time", "us", "Time of sessions idle in a transaction.", "idle_in_transaction_us"),
    _Column("sessions", "", "Sessions started."),
    _Column("sessions_abandoned", "", "Sessions whose client disconnected."),
    _Column("sessions_fatal", "", "Sessions ended by a fatal error."),
    _Column("sessions_killed", "", "Sessions ended by an operator."),
)
_WAL: Final = (
    _Column("wal_records", "", "WAL records."),
    _Column("wal_fpi", "", "Full-page images in WAL."),
    _Column("wal_fpi_bytes", "bytes", "Bytes of full-page images; from 19 on."),
    _Column("wal_bytes", "bytes", "WAL written."),
    _Column("wal_buffers_full", "", "Times WAL had to be written because wal_buffers was full."),
    _Column("wal_write", "", "Writes of WAL to disk; from 18 on from pg_stat_io.", "wal_writes"),
    _Column("wal_write_time", "us", "Time of WAL writes; 0 while track_wal_io_timing is off.", "wal_write_us"),
    _Column("wal_sync", "", "Flushes of WAL; from 18 on from pg_stat_io.", "wal_syncs"),
    _Column("wal_sync_time", "us", "Time of WAL flushes; 0 while track_wal_io_timing is off.", "wal_sync_us"),
    _Column(
        "insert_lsn", "bytes", "pg_current_wal_insert_lsn() from 0/0; on a standby the replayed position.", "lsn_bytes"
    ),
)
_CHECKPOINTER: Final = (
    _Column("num_timed", "", "Checkpoints started because checkpoint_timeout had elapsed.", "timed"),
    _Column("num_requested", "", "Checkpoints started by WAL volume or a command.", "requested"),
    _Column("num_done", "", "Checkpoints finished; from 18 on.", "done"),
    _Column("write_time", "ms", "Time spent writing.", "write_ms"),
    _Column("sync_time", "ms", "Time spent syncing.", "sync_ms"),
    _Column("buffers_written", "", "Buffers written by checkpoints.", "buffers_checkpoint"),
    _Column("slru_written", "", "Pages of SLRU caches written by checkpoints; from 18 on."),
)
_WRITER: Final = (
    _Column("buffers_clean", "", "Buffers written by the background writer."),
    _Column("maxwritten_clean", "", "Rounds that the background writer ended early because of bgwriter_lru_maxpages."),
    _Column("buffers_alloc", "", "Buffers allocated."),
    _Column("buffers_backend", "", "Buffers written by backends; from 17 on from pg_stat_io."),
    _Column("buffers_backend_fsync", "", "Files that backends had to sync themselves.", "backend_fsyncs"),
)
_IO: Final = (
    _Column("reads", "", "Reads."),
    _Column("read_bytes", "bytes", "Bytes read."),
    _Column("read_time", "us", "Time of reads; 0 while track_io_timing is off.", "read_us"),
    _Column("writes", "", "Writes."),
    _Column("write_bytes", "bytes", "Bytes written."),
    _Column("write_time", "us", "Time of writes.", "write_us"),
    _Column("writebacks", "", "Blocks that the kernel was asked to write back."),
    _Column("extends", "", "Extensions of a relation."),
    _Column("extend_bytes", "bytes", "Bytes of extensions."),
    _Column("extend_time", "us", "Time of extensions.", "extend_us"),
    _Column("hits", "", "Blocks found in shared buffers."),
    _Column("evictions", "", "Buffers evicted for another block."),
    _Column("reuses", "", "Buffers of a ring that were reused."),
    _Column("fsyncs", "", "Syncs."),
    _Column("fsync_time", "us", "Time of syncs.", "fsync_us"),
)
_LOCK: Final = (
    _Column("waits", "", "Waits longer than deadlock_timeout that ended with the lock acquired; from 19 on."),
    _Column("wait_time", "us", "Time of these waits.", "wait_us"),
    _Column("fastpath_exceeded", "", "Locks acquired while the session's fast-path slots were full."),
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
    _Column("calls", "", "Completed executions."),
    _Column("total_exec_time", "us", "Time of execution.", "exec_us"),
    _Column("plans", "", "Planning runs; 0 while track_planning is off."),
    _Column("total_plan_time", "us", "Time of planning.", "plan_us"),
    _Column("generic_plan_calls", "", "Executions of prepared statements with a generic plan; from 19 on."),
    _Column("custom_plan_calls", "", "Executions of prepared statements with a custom plan; from 19 on."),
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
    _Column("reads", "", "Completed reads."),
    _Column("read_bytes", "bytes", "Bytes read."),
    _Column("read_time", "ms", "Time of reads.", "read_ms"),
    _Column("writes", "", "Completed writes."),
    _Column("write_bytes", "bytes", "Bytes written."),
    _Column("write_time", "ms", "Time of writes.", "write_ms"),
    _Column("busy_time", "ms", "Time with a request in progress (io_ticks).", "busy_ms"),
    _Column("queue_time", "ms", "Time of all requests together (time_in_queue).", "weighted_ms"),
)
_NETWORK: Final = tuple(
    _Column(f"{direction}_{counted}", "bytes" if counted == "bytes" else "", f"{counted.capitalize()} {direction}.")
    for direction in ("received", "sent")
    for counted in ("bytes", "packets", "errors", "drops")
)
_CGROUP: Final = (
    _Column("oom_kills", "", "Processes killed for lack of memory."),
    _Column("memory_max_events", "", "Times that the memory limit was hit."),
    _Column("throttled_time", "us", "Time with throttled CPUs.", "cpu_throttled_us"),
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
    per_s = host.facts.ticks_per_s
    if per_s <= 0:
        return ()
    times = ((mode, getattr(cpu.total, f"{mode}_ticks")) for mode in _CPU_MODES)
    return [ExportedPoint((mode,), ticks / per_s) for mode, ticks in times if ticks is not None]


def _pressure_time(interval: Interval) -> Iterable[ExportedPoint]:
    sample: PressureSample | None = interval.now(sections.pressure)
    if sample is None:
        return ()
    return [
        ExportedPoint((resource, stalled), getattr(getattr(sample, resource), f"{stalled}_us"))
        for resource in ("cpu", "io", "memory")
        for stalled in ("some", "full")
    ]


def _each_subscription(sample: SubscriptionSample) -> Iterable[SubscriptionWorker]:
    """Return one worker of each subscription, or the row that stands for none."""
    return {worker.id.partition(":")[0]: worker for worker in sample.workers}.values()


def of_statements(most: int) -> tuple[Exported, ...]:
    """Return the counters of the `most` entries of pg_stat_statements with most execution time, without texts."""
    return _counters(
        "pg_stat_statements",
        sections.statement_counters,
        _STATEMENTS,
        lambda sample: heapq.nlargest(
            min(most, len(sample.statements)), sample.statements, lambda statement: statement.exec_us
        ),
        _same("queryid", "datname", "usename", "toplevel"),
        DefaultRows.WHEN_NAMED,
    )


def _same(*names: str) -> Mapping[str, str]:
    return {name: name for name in names}


COUNTERS: Final = (
    *_counters("pg_stat_database", sections.databases, _DATABASE, lambda sample: sample.databases, _same("datname")),
    *_counters("pg_stat_wal", sections.wal, _WAL),
    *_counters("pg_stat_checkpointer", sections.checkpoints, _CHECKPOINTER),
    *_counters("pg_stat_bgwriter", sections.checkpoints, _WRITER),
    *_counters("pg_stat_io", sections.io, _IO, lambda sample: sample.rows, _same("backend_type", "object", "context")),
    *_counters("pg_stat_slru", sections.slru, _SLRU, lambda sample: sample.slrus, _same("name")),
    *_counters("pg_stat_lock", sections.lock_counters, _LOCK, lambda sample: sample.types, _same("locktype")),
    *_counters("pg_stat_replication_slots", sections.slots, _SLOTS, lambda sample: sample.slots,
               _same("slot_name", "slot_type")),
    *_counters("pg_stat_subscription_stats", sections.subscriptions, _SUBSCRIPTIONS, _each_subscription,
               {"subname": "name"}),
    *_counters("pg_stat_archiver", sections.archiver, (
        _Column("archived", "", "WAL files archived.", "archived_count"),
        _Column("failed", "", "Failed archive attempts.", "failed_count"),
    )),
    *of_statements(sys.maxsize),
    Exported("kernel.cpu.time", MetricKind.COUNTER, "s", "Time of all CPUs by state. Source: /proc/stat cpu",
             _cpu_time, ("mode",), DefaultRows.NOT_IN_TABLES, sections.cpu),
    Exported("kernel.pressure.time", MetricKind.COUNTER, "us",
             "Time that some tasks, or all, waited for a resource. Source: /proc/pressure total",
             _pressure_time, ("resource", "stalled"), DefaultRows.NOT_IN_TABLES, sections.pressure),
    *_counters("kernel", sections.cpu, _KERNEL),
    *_counters("kernel.disk", sections.disks, _DISK, lambda sample: sample.disks, {"device": "name"}),
    *_counters("kernel.network", sections.network, _NETWORK, lambda sample: sample.interfaces, {"interface": "name"}),
    *_counters("kernel.cgroup", sections.cgroup, _CGROUP),
    *_counters("own", sections.footprint, _OWN),
)  # fmt: skip
"""In the order in which they are written."""


# States: identity of the server, absent sections, percentiles, waits, standbys.


def _up(interval: Interval) -> Iterable[ExportedPoint]:
    return (ExportedPoint((), float(not isinstance(interval.newest.postgres, Unavailable))),)


def _absent(interval: Interval) -> Iterable[ExportedPoint]:
    """Yield a point for each absent section; one for a whole server or machine that is absent."""
    frame = interval.newest
    for name, sample in (("postgres", frame.postgres), ("host", frame.host)):
        sections_of = {name: sample}
        if not isinstance(sample, Unavailable):
            sections_of = {f"{name}.{field}": getattr(sample, field) for field in sample.__struct_fields__}
        for section, value in sections_of.items():
            if isinstance(value, Unavailable):
                yield ExportedPoint((section, str(value.reason)), 1.0)


def _of_server(pick: Callable[[ServerFacts], float], *fields: str) -> ReadPoints:
    """Return a reader of a number of the server, with fields as labels."""

    def read(interval: Interval) -> Iterable[ExportedPoint]:
        server = sections.server(interval.newest)
        if not isinstance(server, Unavailable):
            yield ExportedPoint(tuple(getattr(server, field) for field in fields), pick(server))

    return read


def _of_host(pick: Callable[[HostFacts], float], *fields: str) -> ReadPoints:
    """Return a reader of a number of the machine, with fields as labels."""

    def read(interval: Interval) -> Iterable[ExportedPoint]:
        host = interval.newest.host
        if not isinstance(host, Unavailable) and not isinstance(host.facts, Unavailable):
            yield ExportedPoint(tuple(getattr(host.facts, field) for field in fields), pick(host.facts))

    return read


def _sessions(interval: Interval) -> Iterable[ExportedPoint]:
    activity = interval.now(sections.activity)
    counts = {} if activity is None else states(activity)
    return [ExportedPoint((state,), count) for state, count in sorted(counts.items())]


def _wait_events(interval: Interval) -> Iterable[ExportedPoint]:
    means: defaultdict[tuple[str, str, str], float] = defaultdict(float)
    # Unknown after a gap, as is their sum, `ACTIVE_SESSIONS`.
    for row in () if interval.after_gap else sessions(interval, NEWEST) or ():
        means[row.kind.wait_event_type, row.kind.wait_event, str(activity_of(row.kind))] += row.mean
    return [ExportedPoint(labels, mean) for labels, mean in sorted(means.items())]


def _latency(interval: Interval) -> Points:
    return (((f"{quantile.per_cent:g}",), quantile(interval)) for quantile in QUANTILES)


def _of_senders(pick: Callable[[SenderLag], float | None]) -> ReadPoints:
    def read(interval: Interval) -> Points:
        # Notes an absent section.
        interval.now(sections.replication)
        for lag in sender_lags(interval):
            sender = lag.sender
            yield (sender.application_name or "", sender.client or "", str(sender.pid)), pick(lag)

    return read


def _of_slots(pick: Callable[[SlotState], float | None]) -> ReadPoints:
    return lambda interval: (
        ((state.slot.slot_name, state.slot.slot_type), pick(state)) for state in slot_states(interval)
    )


def _skipped(interval: Interval) -> Iterable[ExportedPoint]:
    slots = (state.slot for state in slot_states(interval))
    return [
        ExportedPoint((slot.slot_name, slot.slot_type, slot.sync_skip_reason), 1.0)
        for slot in slots
        if slot.sync_skip_reason
    ]


def _scores(interval: Interval) -> Points:
    """Return the scores of tables of the connected database."""
    sample, server = interval.now(sections.relations), sections.server(interval.newest)
    if sample is None or isinstance(server, Unavailable):
        return ()
    return (((server.database, table.name, table.kind), table.autovacuum_score) for table in sample.tables)


def _highest_score(interval: Interval) -> float | None:
    """Return the highest score of the tables that autovacuum takes; scores of the others would hide it."""
    return max(
        (
            vacuum.table.autovacuum_score
            for vacuum in table_vacuums(interval)
            if vacuum.table.autovacuum_score is not None
            and (vacuum.enabled is not False or (vacuum.freeze_percent or 0.0) >= 100.0)
        ),
        default=None,
    )


def _of_receiver(pick: Callable[[ReceiverLag], float | None]) -> ReadPoints:
    return one_point(lambda interval: None if (lag := receiver_lag(interval)) is None else pick(lag))


def _xid_age(interval: Interval) -> float | None:
    limits = interval.now(sections.database_limits)
    if limits is None:
        return None
    ages = [age(limits.next_xid, database.frozen_xid) for database in limits.databases]
    return max((xid_age for xid_age in ages if xid_age is not None), default=None)


def _findings(interval: Interval) -> Iterable[ExportedPoint]:
    ranked = enumerate(interval.once(_diagnosed).findings, 1)
    return [ExportedPoint((finding.rule, str(finding.kind), str(rank)), 1.0) for rank, finding in ranked]


def _finding_shares(interval: Interval) -> Points:
    return (((finding.rule,), finding.share) for finding in interval.once(_diagnosed).findings)


def _diagnosed(interval: Interval) -> Diagnosis:
    """Diagnose these frames alone, without earlier findings."""
    return Diagnoser().look(interval)


def _gauge(
    identity: str,
    unit: str,
    help: str,
    read: ReadPoints,
    labels: tuple[str, ...] = (),
    default_for: DefaultRows = DefaultRows.EVERYWHERE,
) -> Exported:
    return Exported(
        id=identity, kind=MetricKind.GAUGE, unit=unit, help=help, read=read, labels=labels, default_for=default_for
    )


UP: Final = _gauge("up", "", "1 if the server answered in time, otherwise 0.", _up)
_SENDER: Final = ("application_name", "client", "pid")
_SLOT: Final = ("slot_name", "slot_type")

STATES: Final = (
    UP,
    _gauge("taken_at", "s", "Time of the sample on this machine's clock; seconds since the epoch.",
           one_point(lambda interval: interval.newest.taken_at_ms / 1000.0), default_for=DefaultRows.NOT_IN_TABLES),
    _gauge("unavailable", "", "1 for each unavailable section, with the kind of reason.", _absent,
           ("section", "reason"), DefaultRows.NOT_IN_TABLES),
    Exported("tool", MetricKind.INFO, "", "The sampling program.",
             lambda interval: (ExportedPoint((__version__,), 1.0),), ("version",), DefaultRows.NOT_IN_TABLES),
    Exported("server", MetricKind.INFO, "", "The server. Source: server_version, pg_control_system()",
             _of_server(lambda server: 1.0, "version", "endpoint", "database", "cluster_name", "system_identifier"),
             ("version", "endpoint", "datname", "cluster_name", "system_identifier"),
             DefaultRows.NOT_IN_TABLES),
    Exported("host", MetricKind.INFO, "", "The machine of the host metrics. Source: uname",
             _of_host(lambda host: 1.0, "hostname", "kernel", "source"), ("hostname", "kernel", "source"), DefaultRows.NOT_IN_TABLES),
    _gauge("finding", "", "1 for each finding; rank 1 is the most important, shown in the line under the header.",
           _findings, ("rule", "kind", "rank"), DefaultRows.NOT_IN_TABLES),
    _gauge("finding.share", "", "Share of transaction time or of a limit in a finding; 0 to 1.",
           _finding_shares, ("rule",), DefaultRows.NOT_IN_TABLES),
    _gauge("server.started_at", "s", "Start time of the server; seconds since the epoch. Source: pg_postmaster_start_time()",
           _of_server(lambda server: server.started_ms / 1000.0), default_for=DefaultRows.NOT_IN_TABLES),
    _gauge("server.in_recovery", "", "1 on a standby. Source: pg_is_in_recovery()",
           _of_server(lambda server: float(server.in_recovery))),
    _gauge("server.max_connections", "", "Connections the server accepts. Source: max_connections",
           _of_server(lambda server: server.max_connections), default_for=DefaultRows.NOT_IN_TABLES),
    _gauge("host.cpus", "", "Logical CPUs online.", _of_host(lambda host: host.cpu_count),
           default_for=DefaultRows.NOT_IN_TABLES),
    _gauge("server.sessions_by_state", "", "Client backends by state. Source: pg_stat_activity.state", _sessions, ("state",)),
    _gauge("waits.event", "sessions", "Mean sessions in each wait. Rows with counted=active add up to waits.active; "
           "other rows are separate: client turn, pacing, background, io worker. "
           "Source: pg_stat_activity sampled several times a second, or pg_wait_sampling", _wait_events,
           ("wait_event_type", "wait_event", "counted")),
    _gauge("client.latency.percentile", "ms", "Percentiles of the newest complete second of pgbench's log, or of as many seconds up to it as a p99 needs, ten at most.",
           _latency, ("percentile",)),
    _gauge("server.oldest_xid_age", "", "Transactions since the oldest datfrozenxid; at 2 billion the server refuses writes. Source: age(datfrozenxid) of pg_database", one_point(_xid_age)),
    _gauge("replication.behind", "bytes", "WAL that a standby has not replayed. Source: pg_stat_replication",
           _of_senders(lambda lag: lag.total_bytes), _SENDER),
    _gauge("replication.write_lag", "ms", "Source: pg_stat_replication.write_lag",
           _of_senders(lambda lag: lag.sender.write_lag_ms), _SENDER),
    _gauge("replication.flush_lag", "ms", "Source: pg_stat_replication.flush_lag",
           _of_senders(lambda lag: lag.sender.flush_lag_ms), _SENDER),
    _gauge("replication.replay_lag", "ms", "Source: pg_stat_replication.replay_lag",
           _of_senders(lambda lag: lag.sender.replay_lag_ms), _SENDER),
    _gauge("standby.unreplayed", "bytes", "WAL received here and not yet replayed. Source: pg_stat_wal_receiver, pg_last_wal_replay_lsn()",
           _of_receiver(lambda lag: lag.unreplayed_bytes)),
    _gauge("standby.delay", "s", "Time since the last replayed transaction ended on the primary; 0 when all WAL is replayed. "
           "Source: pg_last_xact_replay_timestamp()", _of_receiver(lambda lag: lag.delay_s)),
    _gauge("standby.not_caught_up", "s", "Time since replay last caught up; no value when all WAL is replayed, and "
           "before 19. Source: pg_stat_recovery.current_chunk_start_time", _of_receiver(lambda lag: lag.not_caught_up_s)),
    _gauge("slot.retained", "bytes", "WAL kept for a slot. Source: pg_replication_slots.restart_lsn",
           _of_slots(lambda state: state.retained_bytes), _SLOT),
    _gauge("slot.active", "", "1 while the slot is in use. Source: pg_replication_slots.active_pid",
           _of_slots(lambda state: float(state.slot.active_pid is not None)), _SLOT),
    _gauge("slot.safe", "bytes", "WAL that may be written before the slot is at risk. Source: pg_replication_slots.safe_wal_size",
           _of_slots(lambda state: state.slot.safe_wal_bytes), _SLOT),
    _gauge("slot.sync_skipped", "", "1 while the synchronization of the slot to this standby is skipped, with the reason; "
           "from 19 on. Source: pg_replication_slots.slotsync_skip_reason", _skipped, (*_SLOT, "reason")),
    _gauge("autovacuum.highest_score", "", "Highest score of the tables in this database; autovacuum processes tables with a score of "
           "at least 1, highest first; from 19 on. Source: pg_stat_autovacuum_scores.score", one_point(_highest_score)),
    _gauge("autovacuum.score", "", "Score of each table on page 8, including those with autovacuum_enabled=off; a TOAST table has the name of its table and kind=toast; from 19 on. "
           "Source: pg_stat_autovacuum_scores.score", _scores, ("datname", "relname", "kind"), DefaultRows.WHEN_NAMED),
)  # fmt: skip
