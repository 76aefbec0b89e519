"""Readings of the server: unprocessed rows of its views.

Field names equal the column aliases of `postgres/sql/*.sql`. Times are milliseconds since the Unix epoch on the
*server's* clock (`…_ms`), because asyncpg, JSON and deltas work well with integers; `now_ms` of the same section turns
them into ages. Counters count since their `…reset_ms`, or since the server started.
"""

from __future__ import annotations

from typing import Annotated, Final

from msgspec import Struct

from pgtop_tune.model.absence import NOT_RECORDED, Unavailable
from pgtop_tune.model.events import LogTail
from pgtop_tune.model.io import ArchiverStatus, DatabaseSample, IoSample, SlruSample, WalFiles
from pgtop_tune.model.recorded_as import WIDE, KeyedBy, Near
from pgtop_tune.model.relations import DatabaseLimits, ProgressSample, RelationSample, TempFileSample
from pgtop_tune.model.replication import HorizonSample, ReplicationSample, SlotSample, SubscriptionSample
from pgtop_tune.model.statements import StatementSample, StatementTexts
from pgtop_tune.model.waits import LockCounterSample, LockSample, TailSample, WaitSample


class ServerFacts(Struct, frozen=True, gc=False):
    """Facts of the server, read when we connect and every few seconds, because a standby can be promoted.

    A changed `started_ms` means a restart.
    """

    version_num: int
    """`server_version_num`: 180006."""
    version: str
    """`server_version` with the packager's addition: "18.6", "15.18 (Debian 15.18-0+deb12u1)"."""
    started_ms: int
    """pg_postmaster_start_time()."""
    in_recovery: bool
    database: str
    user: str
    endpoint: str
    """Host or socket directory, and port, of our connection: "/run/postgresql:5432"."""
    local: bool
    """Whether the server's processes were found on this machine."""
    postmaster_pid: int | None
    cluster_name: str
    data_directory: str
    """Empty if the role may not see the parameter (pg_read_all_settings)."""
    system_identifier: str
    """pg_control_system(), as text; empty if not permitted. The change journal identifies the server by it."""
    max_connections: int
    block_bytes: int
    wal_segment_bytes: int
    hot_standby: bool
    superuser: bool
    monitor_role: bool
    """Member of pg_monitor (or superuser): sees other users' queries and all settings."""
    build: str = ""
    """version(), with compiler and platform; "" in recordings of older versions."""
    extensions: tuple[str, ...] = ()
    """Extensions of this database: "pg_stat_statements 1.11"."""
    may_use_reserved: bool = False
    """Whether the role may use reserved_connections, as a member of pg_use_reserved_connections (16)."""
    pooled: bool = False
    """Whether a pooler is in between: pg_backend_pid() differs from the process that answered the start-up packet."""


NEWEST_MAJOR: Final = 19
"""The newest major whose views this program knows; a newer server gets the same queries."""


def newer_than_known(version_num: int) -> str:
    """Return a warning where the server's major is newer than NEWEST_MAJOR; "" otherwise."""
    major = version_num // 10_000
    if major <= NEWEST_MAJOR:
        return ""
    return f"{major} is newer than pgtop-tune supports: shown as {NEWEST_MAJOR}"


HIDDEN_QUERY: Final = "<insufficient privilege>"
"""Text in place of a statement that the role may not see."""


class Backend(Struct, frozen=True, gc=False):
    """One row of pg_stat_activity, including auxiliary processes, without our own sessions."""

    pid: int
    backend_type: str
    backend_start_ms: int | None
    leader_pid: int | None
    datname: str | None
    usename: str | None
    application_name: str | None
    client: str | None
    """Client address without mask, "local" for a Unix socket, None for auxiliary processes."""
    state: str | None
    wait_event_type: str | None
    wait_event: str | None
    xact_start_ms: Annotated[int | None, Near("query_start_ms")]
    """Rounded to 10 ms, as `query_start_ms` and `state_change_ms`."""
    query_start_ms: int | None
    state_change_ms: Annotated[int | None, Near("query_start_ms")]
    backend_xmin_age: int | None
    """age(backend_xmin) in transactions."""
    query_id: Annotated[int | None, WIDE]
    query: str | None
    """The first 500 characters; "<insufficient privilege>" when not permitted."""
    blocked_by: tuple[int, ...] = ()
    """pg_blocking_pids(pid), read only for backends that wait for a heavyweight lock."""


class Activity(Struct, frozen=True, gc=False):
    """pg_stat_activity at one time."""

    at_s: float
    now_ms: int
    """clock_timestamp() of the server."""
    backends: Annotated[tuple[Backend, ...], KeyedBy("pid")]
    own_backends: int = 0
    """Number of our sessions, and of watching sessions of other instances of this program, which are left out."""
    configured_ms: int | None = None
    """pg_conf_load_time() of our session: time of the last reload of the configuration files."""


class DatabaseCounters(Struct, frozen=True, gc=False):
    """pg_stat_database, summed over all databases."""

    at_s: float
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
    stats_reset_ms: int | None
    own_transactions: int = 0
    """Transactions that our own sessions have finished, which are subtracted from TPS."""
    databases: int = 0
    """Number of databases in the sums; the counts of a dropped database disappear from the sums."""
    sessions: int | None = None
    """Sessions that began; in older recordings None."""
    parallel_workers: int | None = None
    """Parallel workers that were launched; from 18 on."""


class WalCounters(Struct, frozen=True, gc=False):
    """pg_stat_wal (14+) and the insert position."""

    at_s: float
    lsn_bytes: int | None
    """pg_current_wal_insert_lsn() (replay position on a standby) as bytes since 0/0."""
    wal_records: int
    wal_fpi: int
    wal_bytes: int
    wal_buffers_full: int
    stats_reset_ms: int | None
    wal_writes: int | None = None
    """Writes of WAL to disk: pg_stat_wal.wal_write to 17, pg_stat_io (object wal, context normal) from 18 on."""
    wal_write_us: int | None = None
    """Time of these writes; 0 while track_wal_io_timing is off, as `wal_sync_us`."""
    wal_syncs: int | None = None
    """Number of WAL flushes; not counted where wal_sync_method opens files with O_SYNC."""
    wal_sync_us: int | None = None
    wal_fpi_bytes: int | None = None
    """Bytes of full-page images in WAL, after compression; from 19 on."""


class CheckpointCounters(Struct, frozen=True, gc=False):
    """pg_stat_bgwriter (to 16), pg_stat_checkpointer and pg_stat_bgwriter (17+), and the last redo point."""

    at_s: float
    timed: int
    requested: int
    write_ms: float
    sync_ms: float
    buffers_checkpoint: int
    buffers_clean: int
    """Written by the background writer."""
    maxwritten_clean: int
    buffers_backend: int | None
    """Written by backends themselves: buffers_backend to 16, pg_stat_io from 17 on."""
    buffers_alloc: int
    redo_lsn_bytes: int | None
    """redo_lsn of pg_control_checkpoint()."""
    checkpoint_time_ms: int | None
    stats_reset_ms: int | None
    done: int | None = None
    """Finished checkpoints (restartpoints on a standby), without skipped ones; from 18 on."""
    slru_written: int | None = None
    """Pages of SLRU caches written by checkpoints; from 18 on."""
    backend_fsyncs: int | None = None
    """Files that backends synced themselves because the checkpointer's queue was full."""


class CheckpointCycle(Struct, frozen=True, gc=False):
    """pg_stat_wal.wal_fpi at the start of observed checkpoints.

    Attributes:
        at_s: Time of the reading.
        full_pages_at_begin: Value at the last reading before the last checkpoint began; None before the first
            checkpoint.
        full_pages_at_previous: The same value for the checkpoint before.
    """

    at_s: float
    full_pages_at_begin: int | None
    full_pages_at_previous: int | None


class StatementTotals(Struct, frozen=True, gc=False):
    """pg_stat_statements(showtext := false), summed, including statements of other users where permitted."""

    at_s: float
    calls: int
    total_exec_ms: float
    entries: int
    dealloc: int
    stats_reset_ms: int | None
    own_calls: int = 0
    """Calls of our own sessions, which are subtracted from QPS."""


class Parameter(Struct, frozen=True, gc=False):
    """One row of pg_settings.

    Attributes:
        setting: pg_settings.setting: the value in the server's unit.
        category: Category in the manual; empty in a ParameterSample, as `short_desc`.
        shown: The value in the format of SHOW: "1GB", "5min".
        unit: pg_settings.unit: "8kB", "ms", … or "".
        vartype: bool, integer, real, enum or string.
        context: internal, postmaster, sighup, superuser-backend, backend, superuser or user.
        source: Source of the value: default, configuration file, command line, …
        sourcefile: File and line where the role may see it, else "".
        in_auto_conf: Whether postgresql.auto.conf sets it; None where the role may not read it.
        stored: The value in postgresql.auto.conf, as written; None if not read. Frames do not contain this value.
        pending: The value in the files that waits for a restart; None without one, or where the role may not read them.
    """

    name: str
    setting: str
    shown: str
    unit: str
    category: str
    short_desc: str
    context: str
    vartype: str
    source: str
    min_val: str
    max_val: str
    enumvals: tuple[str, ...]
    boot_val: str
    reset_val: str
    sourcefile: str
    pending_restart: bool
    in_auto_conf: bool | None = None
    stored: str | None = None
    pending: str | None = None


class ParameterSample(Struct, frozen=True, gc=False):
    """pg_settings, on a slow cadence and after every change."""

    at_s: float
    parameters: Annotated[tuple[Parameter, ...], KeyedBy("name")]


class PostgresSample(Struct, frozen=True, gc=False):
    """Reading of the server. A section that could not be read has the reason."""

    server: ServerFacts | Unavailable = NOT_RECORDED
    activity: Activity | Unavailable = NOT_RECORDED
    waits: WaitSample | Unavailable = NOT_RECORDED
    locks: LockSample | Unavailable = NOT_RECORDED
    database: DatabaseCounters | Unavailable = NOT_RECORDED
    wal: WalCounters | Unavailable = NOT_RECORDED
    checkpoints: CheckpointCounters | Unavailable = NOT_RECORDED
    statements: StatementTotals | Unavailable = NOT_RECORDED
    parameters: ParameterSample | Unavailable = NOT_RECORDED
    statement_counters: StatementSample | Unavailable = NOT_RECORDED
    statement_texts: StatementTexts | Unavailable = NOT_RECORDED
    databases: DatabaseSample | Unavailable = NOT_RECORDED
    io: IoSample | Unavailable = NOT_RECORDED
    slru: SlruSample | Unavailable = NOT_RECORDED
    archiver: ArchiverStatus | Unavailable = NOT_RECORDED
    wal_files: WalFiles | Unavailable = NOT_RECORDED
    progress: ProgressSample | Unavailable = NOT_RECORDED
    replication: ReplicationSample | Unavailable = NOT_RECORDED
    slots: SlotSample | Unavailable = NOT_RECORDED
    subscriptions: SubscriptionSample | Unavailable = NOT_RECORDED
    horizon: HorizonSample | Unavailable = NOT_RECORDED
    relations: RelationSample | Unavailable = NOT_RECORDED
    database_limits: DatabaseLimits | Unavailable = NOT_RECORDED
    temp_files: TempFileSample | Unavailable = NOT_RECORDED
    server_log: LogTail | Unavailable = NOT_RECORDED
    checkpoint_cycle: CheckpointCycle | Unavailable = NOT_RECORDED
    lock_counters: LockCounterSample | Unavailable = NOT_RECORDED
    tail: TailSample | Unavailable = NOT_RECORDED
