"""How to reach a section of a frame: `interval.pair(sections.wal)`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from pgtop_tune.model.absence import Unavailable
from pgtop_tune.model.bench import BenchSample
from pgtop_tune.model.events import LogTail
from pgtop_tune.model.frame import Footprint, Frame
from pgtop_tune.model.horizon import HorizonSample
from pgtop_tune.model.host import (
    CpuSample,
    DiskSample,
    FileSystemSample,
    HostSample,
    MemorySample,
    NetworkSample,
    PressureSample,
    ProcessSample,
)
from pgtop_tune.model.io import ArchiverStatus, DatabaseSample, IoSample, SlruSample, WalFiles
from pgtop_tune.model.machine import CgroupSample, FrequencySample, NumaSample
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
from pgtop_tune.model.progress import ProgressSample
from pgtop_tune.model.relations import DatabaseLimits, RelationSample, TempFileSample
from pgtop_tune.model.replication import ReplicationSample, SlotSample, SubscriptionSample
from pgtop_tune.model.setup import MachineSetup
from pgtop_tune.model.statements import StatementSample, StatementTexts
from pgtop_tune.model.waits import LockSample, WaitSample

T = TypeVar("T")


def _of_host(pick: Callable[[HostSample], T | Unavailable]) -> Callable[[Frame], T | Unavailable]:
    def reach(frame: Frame) -> T | Unavailable:
        host = frame.host
        return host if isinstance(host, Unavailable) else pick(host)

    return reach


def _of_postgres(pick: Callable[[PostgresSample], T | Unavailable]) -> Callable[[Frame], T | Unavailable]:
    def reach(frame: Frame) -> T | Unavailable:
        postgres = frame.postgres
        return postgres if isinstance(postgres, Unavailable) else pick(postgres)

    return reach


def _cpu(host: HostSample) -> CpuSample | Unavailable:
    return host.cpu


def _memory(host: HostSample) -> MemorySample | Unavailable:
    return host.memory


def _pressure(host: HostSample) -> PressureSample | Unavailable:
    return host.pressure


def _disks(host: HostSample) -> DiskSample | Unavailable:
    return host.disks


def _processes(host: HostSample) -> ProcessSample | Unavailable:
    return host.processes


def _network(host: HostSample) -> NetworkSample | Unavailable:
    return host.network


def _file_systems(host: HostSample) -> FileSystemSample | Unavailable:
    return host.file_systems


def _numa(host: HostSample) -> NumaSample | Unavailable:
    return host.numa


def _setup(host: HostSample) -> MachineSetup | Unavailable:
    return host.setup


def _frequency(host: HostSample) -> FrequencySample | Unavailable:
    return host.frequency


def _cgroup(host: HostSample) -> CgroupSample | Unavailable:
    return host.cgroup


def _server(postgres: PostgresSample) -> ServerFacts | Unavailable:
    return postgres.server


def _activity(postgres: PostgresSample) -> Activity | Unavailable:
    return postgres.activity


def _waits(postgres: PostgresSample) -> WaitSample | Unavailable:
    return postgres.waits


def _locks(postgres: PostgresSample) -> LockSample | Unavailable:
    return postgres.locks


def _database(postgres: PostgresSample) -> DatabaseCounters | Unavailable:
    return postgres.database


def _wal(postgres: PostgresSample) -> WalCounters | Unavailable:
    return postgres.wal


def _checkpoints(postgres: PostgresSample) -> CheckpointCounters | Unavailable:
    return postgres.checkpoints


def _checkpoint_cycle(postgres: PostgresSample) -> CheckpointCycle | Unavailable:
    return postgres.checkpoint_cycle


def _statements(postgres: PostgresSample) -> StatementTotals | Unavailable:
    return postgres.statements


def _parameters(postgres: PostgresSample) -> ParameterSample | Unavailable:
    return postgres.parameters


def _statement_counters(postgres: PostgresSample) -> StatementSample | Unavailable:
    return postgres.statement_counters


def _statement_texts(postgres: PostgresSample) -> StatementTexts | Unavailable:
    return postgres.statement_texts


def _databases(postgres: PostgresSample) -> DatabaseSample | Unavailable:
    return postgres.databases


def _io(postgres: PostgresSample) -> IoSample | Unavailable:
    return postgres.io


def _slru(postgres: PostgresSample) -> SlruSample | Unavailable:
    return postgres.slru


def _archiver(postgres: PostgresSample) -> ArchiverStatus | Unavailable:
    return postgres.archiver


def _wal_files(postgres: PostgresSample) -> WalFiles | Unavailable:
    return postgres.wal_files


def _progress(postgres: PostgresSample) -> ProgressSample | Unavailable:
    return postgres.progress


def _replication(postgres: PostgresSample) -> ReplicationSample | Unavailable:
    return postgres.replication


def _slots(postgres: PostgresSample) -> SlotSample | Unavailable:
    return postgres.slots


def _subscriptions(postgres: PostgresSample) -> SubscriptionSample | Unavailable:
    return postgres.subscriptions


def _horizon(postgres: PostgresSample) -> HorizonSample | Unavailable:
    return postgres.horizon


def _relations(postgres: PostgresSample) -> RelationSample | Unavailable:
    return postgres.relations


def _database_limits(postgres: PostgresSample) -> DatabaseLimits | Unavailable:
    return postgres.database_limits


def _temp_files(postgres: PostgresSample) -> TempFileSample | Unavailable:
    return postgres.temp_files


def _server_log(postgres: PostgresSample) -> LogTail | Unavailable:
    return postgres.server_log


cpu = _of_host(_cpu)
memory = _of_host(_memory)
pressure = _of_host(_pressure)
disks = _of_host(_disks)
processes = _of_host(_processes)
network = _of_host(_network)
file_systems = _of_host(_file_systems)
numa = _of_host(_numa)
frequency = _of_host(_frequency)
setup = _of_host(_setup)
cgroup = _of_host(_cgroup)
server = _of_postgres(_server)
activity = _of_postgres(_activity)
waits = _of_postgres(_waits)
locks = _of_postgres(_locks)
database = _of_postgres(_database)
wal = _of_postgres(_wal)
checkpoints = _of_postgres(_checkpoints)
checkpoint_cycle = _of_postgres(_checkpoint_cycle)
statements = _of_postgres(_statements)
parameters = _of_postgres(_parameters)
statement_counters = _of_postgres(_statement_counters)
statement_texts = _of_postgres(_statement_texts)
databases = _of_postgres(_databases)
io = _of_postgres(_io)
slru = _of_postgres(_slru)
archiver = _of_postgres(_archiver)
wal_files = _of_postgres(_wal_files)
progress = _of_postgres(_progress)
replication = _of_postgres(_replication)
slots = _of_postgres(_slots)
subscriptions = _of_postgres(_subscriptions)
horizon = _of_postgres(_horizon)
relations = _of_postgres(_relations)
database_limits = _of_postgres(_database_limits)
temp_files = _of_postgres(_temp_files)
server_log = _of_postgres(_server_log)


def bench(frame: Frame) -> BenchSample | Unavailable:
    """The load of the frame."""
    return frame.bench


def pooler(frame: Frame) -> PoolerSample | Unavailable:
    """The poolers of the frame."""
    return frame.pooler


def footprint(frame: Frame) -> Footprint | Unavailable:
    """Our own cost."""
    return frame.footprint
