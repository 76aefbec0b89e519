"""The sections of a frame, one row each: field, struct, source, cadence, and when a session reads and keeps them.

    wal: Final = _section(PostgresSample.wal, WalCounters, "pg_stat_wal", first_look=True, kept_whole=True)

`interval.pair(sections.wal)` is a pair of WalCounters to mypy. The reader, the sampler, the frames that a session keeps
and the reference follow from the row: a new section is a row here, a struct, and the file of its query.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from operator import attrgetter
from types import MemberDescriptorType
from typing import Final, TypeVar, cast

from msgspec import Struct

from pgtop_tune.metrics.catalogue import Reading, Section
from pgtop_tune.model.absence import Unavailable
from pgtop_tune.model.bench import BenchSample
from pgtop_tune.model.events import LogTail
from pgtop_tune.model.frame import Footprint, Frame
from pgtop_tune.model.host import (
    CpuSample,
    DiskSample,
    FileSystemSample,
    HostFacts,
    HostSample,
    MemorySample,
    NetworkSample,
    PressureSample,
    ProcessSample,
)
from pgtop_tune.model.io import ArchiverStatus, DatabaseSample, IoSample, SlruCounters, SlruSample, WalFiles
from pgtop_tune.model.machine import CgroupSample, FrequencySample, NumaSample, StorageIo
from pgtop_tune.model.pooler import PoolerSample
from pgtop_tune.model.postgres import (
    Activity,
    CheckpointCounters,
    CheckpointCycle,
    DatabaseCounters,
    ParameterSample,
    PostgresSample,
    ServerFacts,
    StatementTotals,
    WalCounters,
)
from pgtop_tune.model.relations import (
    DatabaseLimits,
    ProgressRow,
    ProgressSample,
    RelationSample,
    TempFiles,
    TempFileSample,
)
from pgtop_tune.model.replication import HorizonSample, ReplicationSample, SlotSample, SubscriptionSample
from pgtop_tune.model.setup import MachineSetup, Measured
from pgtop_tune.model.statements import StatementSample, StatementTexts
from pgtop_tune.model.waits import LockCounters, LockCounterSample, LockSample, TailSample, WaitSample

T = TypeVar("T")
R = TypeVar("R", bound=Reading)


def _reach(holder: type, of: Callable[[object], T | Unavailable]) -> Callable[[Frame], T | Unavailable]:
    # Metrics call this some thousand times a second: it makes no further calls.
    def on_server(frame: Frame) -> T | Unavailable:
        part = frame.postgres
        return part if part.__class__ is Unavailable else of(part)

    def on_host(frame: Frame) -> T | Unavailable:
        part = frame.host
        return part if part.__class__ is Unavailable else of(part)

    return of if holder is Frame else on_host if holder is HostSample else on_server


_rows: Final[list[Section[Reading]]] = []


def _place(field: T | Unavailable) -> tuple[str, type, Callable[[object], T | Unavailable]]:
    """Return name, class and getter of a field. A type checker sees a value where the class has the descriptor."""
    member = cast(MemberDescriptorType, field)
    return member.__name__, member.__objclass__, attrgetter(member.__name__)


def _section(
    field: R | Unavailable,
    struct: type[R],
    source: str,
    queries: tuple[str, ...] = (),
    *,
    row: type[Struct] | None = None,
    every_s: float = 0.0,
    first_look: bool = False,
    of_sessions: bool = False,
    kept_whole: bool = False,
    of_rows: Callable[[R], int] | None = None,
    made_from: Section[Reading] | None = None,
) -> Section[R]:
    """Make a row. A section of the server has one query of its own name, unless `queries` names others."""
    name, holder, of = _place(field)
    section = Section(
        name=name,
        holder=holder,
        of=of,
        reach=_reach(holder, of),
        struct=struct,
        row=row,
        source=source,
        queries=queries or ((name,) if holder is PostgresSample else ()),
        every_s=every_s,
        first_look=first_look,
        of_sessions=of_sessions,
        kept_whole=kept_whole,
        of_rows=of_rows,
        made_from=made_from,
    )
    _rows.append(section)
    return section


def _undated(
    field: T | Unavailable, struct: type[T], source: str, queries: tuple[str, ...] = (), every_s: float = 0.0
) -> Section[T]:
    """Make a row of a section without a time of its own: it has no rates."""
    name, holder, of = _place(field)
    return Section(
        name=name,
        holder=holder,
        of=of,
        reach=_reach(holder, of),
        struct=struct,
        source=source,
        queries=queries,
        every_s=every_s,
    )


server: Final = _undated(PostgresSample.server, ServerFacts, "pg_settings, pg_control_system()", ("facts",), 4.9)
activity: Final = _section(
    PostgresSample.activity, Activity, "pg_stat_activity", ("activity", "blocking"), first_look=True, of_sessions=True
)
locks: Final = _section(PostgresSample.locks, LockSample, "pg_locks", first_look=True, of_sessions=True)
database: Final = _section(
    PostgresSample.database, DatabaseCounters, "pg_stat_database, summed", first_look=True, kept_whole=True
)
wal: Final = _section(PostgresSample.wal, WalCounters, "pg_stat_wal", first_look=True, kept_whole=True)
checkpoints: Final = _section(
    PostgresSample.checkpoints, CheckpointCounters, "pg_stat_checkpointer, pg_stat_bgwriter",
    first_look=True, kept_whole=True,
)  # fmt: skip
statements: Final = _section(
    PostgresSample.statements, StatementTotals, "pg_stat_statements, summed", first_look=True, kept_whole=True,
    of_rows=lambda reading: reading.entries,
)  # fmt: skip
parameters: Final = _section(
    PostgresSample.parameters, ParameterSample, "pg_settings", ("parameters", "auto_conf", "limits_of_session"),
    every_s=60.0, first_look=True, kept_whole=True,
)  # fmt: skip
statement_counters: Final = _section(
    PostgresSample.statement_counters, StatementSample, "pg_stat_statements", ("statements", "names"),
    every_s=1.9, made_from=statements,
)  # fmt: skip
statement_texts: Final = _section(PostgresSample.statement_texts, StatementTexts, "pg_stat_statements", every_s=1.9)
databases: Final = _section(PostgresSample.databases, DatabaseSample, "pg_stat_database", every_s=1.9)
io: Final = _section(PostgresSample.io, IoSample, "pg_stat_io", every_s=1.9)
slru: Final = _section(PostgresSample.slru, SlruSample, "pg_stat_slru", row=SlruCounters, every_s=4.9)
archiver: Final = _section(PostgresSample.archiver, ArchiverStatus, "pg_stat_archiver", every_s=4.9, kept_whole=True)
wal_files: Final = _section(PostgresSample.wal_files, WalFiles, "pg_ls_waldir()", every_s=14.9, kept_whole=True)
progress: Final = _section(
    PostgresSample.progress, ProgressSample, "pg_stat_progress_*", row=ProgressRow, every_s=0.9, kept_whole=True
)
replication: Final = _section(
    PostgresSample.replication, ReplicationSample, "pg_stat_replication, pg_stat_wal_receiver", every_s=0.9
)
slots: Final = _section(PostgresSample.slots, SlotSample, "pg_replication_slots", every_s=4.9, kept_whole=True)
subscriptions: Final = _section(
    PostgresSample.subscriptions, SubscriptionSample, "pg_stat_subscription", every_s=4.9, kept_whole=True
)
horizon: Final = _section(
    PostgresSample.horizon, HorizonSample, "pg_stat_activity, pg_prepared_xacts", ("horizon", "prepared"), every_s=4.9
)
server_log: Final = _section(PostgresSample.server_log, LogTail, "pg_current_logfile()", every_s=4.9)
relations: Final = _section(
    PostgresSample.relations, RelationSample, "pg_stat_all_tables, pg_stat_all_indexes, pg_class",
    ("relation_activity", "relation_tables", "relation_indexes", "relation_clock"), every_s=14.9,
)  # fmt: skip
database_limits: Final = _section(
    PostgresSample.database_limits, DatabaseLimits, "pg_database, pg_roles", ("database_limits", "role_limits"),
    every_s=29.9,
)  # fmt: skip
temp_files: Final = _section(PostgresSample.temp_files, TempFileSample, "pg_ls_tmpdir()", row=TempFiles, every_s=14.9)
lock_counters: Final = _section(
    PostgresSample.lock_counters, LockCounterSample, "pg_stat_lock", row=LockCounters, every_s=1.9
)

READ: Final = tuple(_rows)
"""Sections that the sampler reads one by one, in this order: sessions before their locks."""

waits: Final = _section(
    PostgresSample.waits, WaitSample, "pg_stat_activity, or pg_wait_sampling_profile", ("waits", "wait_profile", "names"),
    every_s=0.1, kept_whole=True,
)  # fmt: skip
"""Sampled more often than frames are made; a reading adds up the samples of its frame."""
tail: Final = _section(
    PostgresSample.tail, TailSample, "pg_stat_activity.xact_start, pg_blocking_pids()", ("waits", "tail_blockers"),
    every_s=0.1, kept_whole=True,
)  # fmt: skip
"""Made from the same samples as `waits`."""
checkpoint_cycle: Final = _section(
    PostgresSample.checkpoint_cycle, CheckpointCycle, "pg_stat_wal.wal_fpi at the start of checkpoints",
    ("checkpoints", "wal"), kept_whole=True,
)  # fmt: skip

machine: Final = _undated(HostSample.facts, HostFacts, "/proc/sys/kernel, /proc/meminfo", every_s=inf)
cpu: Final = _section(HostSample.cpu, CpuSample, "/proc/stat, /proc/loadavg")
memory: Final = _section(HostSample.memory, MemorySample, "/proc/meminfo, /proc/vmstat", kept_whole=True)
pressure: Final = _section(HostSample.pressure, PressureSample, "/proc/pressure", kept_whole=True)
disks: Final = _section(HostSample.disks, DiskSample, "/proc/diskstats", kept_whole=True)
processes: Final = _section(HostSample.processes, ProcessSample, "/proc/PID/stat, io and schedstat")
network: Final = _section(HostSample.network, NetworkSample, "/proc/net/dev")
file_systems: Final = _section(HostSample.file_systems, FileSystemSample, "statvfs(3)", every_s=5.0, kept_whole=True)
numa: Final = _section(HostSample.numa, NumaSample, "/sys/devices/system/node", every_s=5.0)
frequency: Final = _section(HostSample.frequency, FrequencySample, "/sys/devices/system/cpu/cpufreq", every_s=5.0)
cgroup: Final = _section(HostSample.cgroup, CgroupSample, "/sys/fs/cgroup", kept_whole=True)
setup: Final = _section(
    HostSample.setup,
    MachineSetup,
    "/proc/cpuinfo, /sys/class/dmi/id, /sys/block, /proc/sys",
    every_s=60.0,
    kept_whole=True,
)
storage_io: Final = _section(HostSample.storage_io, StorageIo, "/proc/PID/io, while an experiment runs", every_s=0.9)

bench: Final = _section(Frame.bench, BenchSample, "progress lines and transaction log of pgbench", kept_whole=True)
pooler: Final = _section(Frame.pooler, PoolerSample, "SHOW commands of the named poolers", every_s=1.0, kept_whole=True)
footprint: Final = _section(
    Frame.footprint, Footprint, "getrusage(2), counters of pgtop-tune's own sessions", kept_whole=True
)
ceilings: Final = _undated(Frame.ceilings, Measured, "check --measure", every_s=5.0)

DATED: Final = tuple(_rows)
"""Sections with a time of their own."""
ALL: Final = (server, *DATED, machine, ceilings)
