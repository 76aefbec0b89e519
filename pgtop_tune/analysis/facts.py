"""The fingerprint: what a result depends on, line by line, out of frames or out of a run's record."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from pgtop_tune import units
from pgtop_tune.analysis.figures import disks_by_role
from pgtop_tune.analysis.material import Fact, Kind, Run
from pgtop_tune.metrics import sections
from pgtop_tune.metrics.catalogue import Interval
from pgtop_tune.model.absence import Unavailable
from pgtop_tune.model.bench import BenchRun
from pgtop_tune.model.filesystems import FileSystemSample
from pgtop_tune.model.frame import Frame
from pgtop_tune.model.host import DiskSample, HostFacts, MemorySample
from pgtop_tune.model.numa import FrequencySample, NumaSample
from pgtop_tune.model.postgres import ParameterSample, ServerFacts

MACHINE: Final = "machine"
SYSTEM: Final = "system"
SERVER: Final = "server"
PARAMETERS: Final = "parameters"
DATA: Final = "data"
LOAD: Final = "load"
GROUPS: Final = (MACHINE, SYSTEM, SERVER, PARAMETERS, DATA, LOAD)
"""In the order of a table."""

OF_THE_PLACE: Final = frozenset(
    {"cluster_name", "config_file", "data_directory", "external_pid_file", "hba_file", "ident_file"}
    | {"listen_addresses", "port", "unix_socket_directories", "log_directory", "stats_temp_directory"}
)
"""Parameters that name a directory, a file or an address: they differ between any two servers."""
OF_THE_BUILD: Final = frozenset(
    {"data_checksums", "block_size", "wal_block_size", "segment_size"}
    | {"wal_segment_size", "debug_assertions", "integer_datetimes", "ssl_library", "lc_collate", "lc_ctype"}
    | {"server_encoding", "max_function_args", "max_identifier_length", "max_index_keys"}
)
"""Parameters fixed when the server or its cluster was made."""
_SHIPPED: Final = frozenset({"default", "override", "client", "session"})
"""pg_settings.source of what nobody has set for the server."""
_NOBODYS: Final = frozenset({"in_hot_standby", "shared_memory_size", "shared_memory_size_in_huge_pages"})
"""Parameters the server works out of others."""


class FactsSeen:
    """What frames said of the surroundings; of each thing what was said last."""

    def __init__(self) -> None:
        self._machine: HostFacts | None = None
        self._memory: MemorySample | None = None
        self._numa: NumaSample | None = None
        self._frequency: FrequencySample | None = None
        self._file_systems: FileSystemSample | None = None
        self._disks: tuple[DiskSample, dict[str, str]] | None = None
        self._server: ServerFacts | None = None
        self._parameters: ParameterSample | None = None
        self._runs: dict[int, BenchRun] = {}

    def take(self, frame: Frame) -> None:
        """One more frame."""
        host = frame.host
        if not isinstance(host, Unavailable):
            self._machine = host.facts if isinstance(host.facts, HostFacts) else self._machine
            self._memory = host.memory if isinstance(host.memory, MemorySample) else self._memory
            self._numa = host.numa if isinstance(host.numa, NumaSample) else self._numa
            self._frequency = host.frequency if isinstance(host.frequency, FrequencySample) else self._frequency
            if isinstance(host.file_systems, FileSystemSample):
                self._file_systems = host.file_systems
            if isinstance(host.disks, DiskSample) and (self._disks is None or self._disks[0].disks != host.disks.disks):
                self._disks = host.disks, disks_by_role(Interval((frame,)))
        server, parameters = sections.server(frame), sections.parameters(frame)
        self._server = self._server if isinstance(server, Unavailable) else server
        self._parameters = self._parameters if isinstance(parameters, Unavailable) else parameters
        if not isinstance(frame.bench, Unavailable):
            self._runs[frame.bench.run.run] = frame.bench.run

    def found(self, runs: Sequence[Run]) -> tuple[Fact, ...]:
        """The fingerprint.

        Args:
            runs: For what the load had in common.
        """
        rows: list[Fact] = []
        if self._machine is not None:
            rows += machine_facts(self._machine)
        rows += self._system()
        if self._server is not None:
            rows += _server(self._server)
        if self._parameters is not None:
            for each in self._parameters.parameters:
                rows += parameter_fact(each.name, each.shown, each.sourcefile or each.source, each.source in _SHIPPED)
        rows += load_facts(self._runs.values())
        return in_order(rows)

    def _system(self) -> Iterator[Fact]:
        if self._memory is not None:
            yield Fact(SYSTEM, "transparent huge pages", self._memory.thp_mode or units.UNKNOWN, Kind.SETTING)
            for pool in self._memory.huge_pages:
                yield Fact(SYSTEM, f"huge pages of {units.size(pool.page_bytes)}", str(pool.total), Kind.SETTING)
        if self._numa is not None:
            yield Fact(MACHINE, "NUMA nodes", str(len(self._numa.nodes)), Kind.CONDITION)
        if self._frequency is not None and self._frequency.policies:
            governors = sorted({policy.governor for policy in self._frequency.policies})
            yield Fact(SYSTEM, "governor", ", ".join(governors), Kind.SETTING)
        if self._file_systems is not None:
            for each in self._file_systems.file_systems:
                for role in each.roles:
                    yield Fact(MACHINE, f"file system of {role}", each.kind, Kind.CONDITION)
                    yield Fact(MACHINE, f"room for {role}", units.size(each.total_bytes), Kind.IDENTITY)
        if self._disks is not None:
            sample, roles = self._disks
            by_name = {disk.name: disk for disk in sample.disks}
            for role, name in roles.items():
                disk = by_name[name]
                caps = [
                    *([f"{disk.cap_iops:g} IOPS"] if disk.cap_iops else []),
                    *([f"{units.size(disk.cap_bytes_per_s)}B/s"] if disk.cap_bytes_per_s else []),
                ]
                yield Fact(MACHINE, f"disk of {role}", name, Kind.IDENTITY)
                yield Fact(MACHINE, f"caps of the disk of {role}", ", ".join(caps) or "none known", Kind.CONDITION)


def machine_facts(facts: HostFacts) -> Iterator[Fact]:
    """The machine of the server."""
    yield Fact(MACHINE, "host name", facts.hostname, Kind.IDENTITY)
    yield Fact(MACHINE, "boot", facts.boot_id, Kind.IDENTITY)
    yield Fact(MACHINE, "kernel", facts.kernel, Kind.CONDITION)
    yield Fact(MACHINE, "CPUs", str(facts.cpu_count), Kind.CONDITION)
    yield Fact(MACHINE, "memory", units.size(facts.memory_bytes), Kind.CONDITION)


def _server(facts: ServerFacts) -> Iterator[Fact]:
    yield Fact(SERVER, "PostgreSQL", facts.version, Kind.CONDITION)
    yield Fact(SERVER, "endpoint", facts.endpoint, Kind.IDENTITY)
    yield Fact(SERVER, "database", facts.database, Kind.IDENTITY)
    yield Fact(SERVER, "system identifier", facts.system_identifier or units.UNKNOWN, Kind.IDENTITY)
    yield Fact(SERVER, "started", str(facts.started_ms), Kind.IDENTITY)
    yield Fact(SERVER, "standby", "yes" if facts.in_recovery else "no", Kind.CONDITION)
    yield Fact(SERVER, "through a pooler", "yes" if facts.pooled else "no", Kind.CONDITION)
    yield Fact(SERVER, "block size", units.size(facts.block_bytes), Kind.CONDITION)
    yield Fact(SERVER, "WAL segment size", units.size(facts.wal_segment_bytes), Kind.CONDITION)


def parameter_fact(name: str, shown: str, source: str = "", shipped: bool = False) -> Iterator[Fact]:
    """A parameter as SHOW prints it; nothing of those that the server works out of others."""
    if name in _NOBODYS:
        return
    kind = Kind.SETTING
    if name in OF_THE_PLACE or name.startswith("server_version"):
        kind = Kind.IDENTITY
    elif name in OF_THE_BUILD:
        kind = Kind.CONDITION
    yield Fact(PARAMETERS, name, shown, kind, source, shipped)


def load_facts(runs: Iterable[BenchRun]) -> Iterator[Fact]:
    """What all runs of a side have in common."""
    versions = sorted({run.pgbench_version for run in runs})
    machines = sorted({run.machine or "beside pgtop-tune" for run in runs})
    threads = sorted({run.threads for run in runs})
    if versions:
        yield Fact(LOAD, "pgbench", ", ".join(versions), Kind.CONDITION)
        yield Fact(LOAD, "pgbench runs", ", ".join(machines), Kind.CONDITION)
        yield Fact(LOAD, "threads", ", ".join(map(str, threads)), Kind.CONDITION)


def in_order(facts: Iterable[Fact]) -> tuple[Fact, ...]:
    """Group by group, each as it came."""
    places = {group: place for place, group in enumerate(GROUPS)}
    return tuple(sorted(facts, key=lambda fact: places[fact.group]))
