"""The fingerprint: the facts that a result depends on, from frames or from a run's record, and their comparison.

A contract (--as) names the facts that may vary; every other fact must be equal.
"""

from __future__ import annotations

import difflib
import shlex
from collections.abc import Collection, Iterable, Iterator, Sequence
from fnmatch import fnmatchcase
from typing import Final, TypeVar

from msgspec import Struct

from pgtop_tune.base import units
from pgtop_tune.base.errors import UsageProblem
from pgtop_tune.base.secret import without_secrets
from pgtop_tune.compare.sides.contract_names import Contract
from pgtop_tune.compare.sides.figures import disks_by_role
from pgtop_tune.compare.sides.material import (
    Fact,
    FactKind,
    Material,
    Runs,
    condition_fact,
    identity_fact,
    setting_fact,
)
from pgtop_tune.metrics import sections
from pgtop_tune.metrics.catalogue import Interval
from pgtop_tune.model.absence import Unavailable
from pgtop_tune.model.bench import BenchRun
from pgtop_tune.model.frame import Footprint, Frame
from pgtop_tune.model.host import DiskSample, FileSystemSample, HostFacts, MemorySample
from pgtop_tune.model.machine import CgroupSample, FrequencySample, NumaSample
from pgtop_tune.model.postgres import ParameterSample, ServerFacts
from pgtop_tune.model.relations import FIRST_USER_OID, RelationSample, TableCounters
from pgtop_tune.model.setup import MachineSetup

T = TypeVar("T")
MACHINE: Final = "machine"
SYSTEM: Final = "system"
SERVER: Final = "server"
PARAMETERS: Final = "parameters"
DATA: Final = "data"
LOAD: Final = "load"
TOOL: Final = "tool"
GROUPS: Final = (MACHINE, SYSTEM, SERVER, PARAMETERS, DATA, LOAD, TOOL)
"""Groups of facts, in the order of a table."""

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
_LARGEST: Final = 12
"""Tables whose sizes are told."""
_ROWS_A_SCALE: Final = 100_000
_SAME_SCALE: Final = 0.05
_SHIPPED: Final = frozenset({"default", "override", "client", "session"})
"""pg_settings.source of what nobody has set for the server."""
_NOBODYS: Final = frozenset({"in_hot_standby", "shared_memory_size", "shared_memory_size_in_huge_pages"})
"""Parameters the server works out of others."""


class FactsSeen:
    """The surroundings of a run as frames tell them; the newest reading of each counts."""

    def __init__(self) -> None:
        self._newest: dict[type, object] = {}
        self._disk_roles: dict[str, str] = {}
        self._relations: RelationSample | None = None
        self._footprints: list[Footprint] = []
        self._runs: dict[int, BenchRun] = {}

    def take(self, frame: Frame) -> None:
        """Take the next frame."""
        host, relations = frame.host, sections.relations(frame)
        readings: list[object] = [sections.server(frame), sections.parameters(frame)]
        if not isinstance(host, Unavailable):
            readings += [host.facts, host.setup, host.cgroup, host.memory, host.numa, host.frequency, host.file_systems]
            disks = self._reading(DiskSample)
            if isinstance(host.disks, DiskSample) and (disks is None or disks.disks != host.disks.disks):
                readings.append(host.disks)
                self._disk_roles = disks_by_role(Interval((frame,)))
        self._newest |= {type(reading): reading for reading in readings if not isinstance(reading, Unavailable)}
        if self._relations is None and not isinstance(relations, Unavailable):
            self._relations = relations
        if not isinstance(frame.footprint, Unavailable):
            self._footprints[min(len(self._footprints), 1) :] = [frame.footprint]
        if not isinstance(frame.bench, Unavailable):
            self._runs[frame.bench.run.run] = frame.bench.run

    def _reading(self, kind: type[T]) -> T | None:
        reading = self._newest.get(kind)
        return reading if isinstance(reading, kind) else None

    def facts(self, runs: Runs) -> tuple[Fact, ...]:
        """Return the fingerprint.

        Args:
            runs: Runs of the side, for what their load had in common.
        """
        rows: list[Fact] = []
        if machine := self._reading(HostFacts):
            rows += machine_facts(machine)
        if setup := self._reading(MachineSetup):
            rows += setup_facts(setup)
        if cgroup := self._reading(CgroupSample):
            rows += cgroup_facts(cgroup)
        rows += self._system(with_setup=setup is not None)
        if server := self._reading(ServerFacts):
            rows += _server(server)
        if sample := self._reading(ParameterSample):
            for parameter in sample.parameters:
                source = parameter.sourcefile or parameter.source
                rows += parameter_fact(parameter.name, parameter.shown, source, parameter.source in _SHIPPED)
        if self._relations is not None:
            rows += data_facts(self._relations, server)
        rows += _warmth(runs)
        rows += load_facts(self._runs.values())
        rows += self._own_cost()
        return facts_in_order(rows)

    def _own_cost(self) -> Iterator[Fact]:
        """Return the cost of watching between the first and the last footprint."""
        if len(self._footprints) == 2 and self._footprints[1].at_s > self._footprints[0].at_s:
            first, last = self._footprints
            share = 100.0 * (last.cpu_s - first.cpu_s) / (last.at_s - first.at_s)
            yield identity_fact(TOOL, "own CPU", f"{share:.1f} % of a core")
            yield identity_fact(TOOL, "own memory", units.compact_size(last.rss_bytes))

    def _system(self, *, with_setup: bool) -> Iterator[Fact]:
        if memory := self._reading(MemorySample):
            if not with_setup:
                yield setting_fact(SYSTEM, "transparent_hugepage/enabled", memory.thp_mode or units.UNKNOWN)
            for pool in memory.huge_pages:
                yield setting_fact(SYSTEM, f"huge pages of {units.compact_size(pool.page_bytes)}", str(pool.total))
        if numa := self._reading(NumaSample):
            yield condition_fact(MACHINE, "NUMA nodes", str(len(numa.nodes)))
        frequency = self._reading(FrequencySample)
        if frequency is not None and frequency.policies:
            governors = sorted({policy.governor for policy in frequency.policies})
            yield setting_fact(SYSTEM, "governor", ", ".join(governors))
        if sample := self._reading(FileSystemSample):
            for file_system in sample.file_systems:
                for role in file_system.roles:
                    if not with_setup:
                        yield condition_fact(MACHINE, f"file system of {role}", file_system.kind)
                    yield identity_fact(MACHINE, f"room for {role}", units.compact_size(file_system.total_bytes))
        if disks := self._reading(DiskSample):
            by_name = {disk.name: disk for disk in disks.disks}
            for role, name in self._disk_roles.items():
                disk = by_name[name]
                caps = [f"{units.number(disk.cap_iops)} IOPS"] if disk.cap_iops else []
                caps += [f"{units.compact_size(disk.cap_bytes_per_s)}B/s"] if disk.cap_bytes_per_s else []
                yield identity_fact(MACHINE, f"disk of {role}", name)
                yield condition_fact(MACHINE, f"caps of the disk of {role}", ", ".join(caps) or "none known")


def machine_facts(facts: HostFacts) -> Iterator[Fact]:
    """Yield the machine of the server."""
    yield identity_fact(MACHINE, "host name", facts.hostname)
    yield identity_fact(MACHINE, "boot", facts.boot_id)
    yield condition_fact(MACHINE, "kernel", facts.kernel)
    yield condition_fact(MACHINE, "CPUs", str(facts.cpu_count))
    yield condition_fact(MACHINE, "memory", units.compact_size(facts.memory_bytes))


def _server(facts: ServerFacts) -> Iterator[Fact]:
    yield condition_fact(SERVER, "PostgreSQL", facts.version)
    if facts.build:
        yield identity_fact(SERVER, "build", facts.build)
        yield setting_fact(SERVER, "extensions", ", ".join(facts.extensions) or "none")
    yield identity_fact(SERVER, "endpoint", facts.endpoint)
    yield identity_fact(SERVER, "database", facts.database)
    yield identity_fact(SERVER, "user", facts.user)
    yield identity_fact(SERVER, "system identifier", facts.system_identifier or units.UNKNOWN)
    yield identity_fact(SERVER, "started", str(facts.started_ms))
    yield condition_fact(SERVER, "standby", "yes" if facts.in_recovery else "no")
    yield condition_fact(SERVER, "through a pooler", "yes" if facts.pooled else "no")
    yield condition_fact(SERVER, "block size", units.compact_size(facts.block_bytes))
    yield condition_fact(SERVER, "WAL segment size", units.compact_size(facts.wal_segment_bytes))


def parameter_fact(name: str, value: str, source: str = "", shipped: bool = False) -> Iterator[Fact]:
    """Yield a parameter as SHOW prints it; nothing of those that the server works out of others."""
    if name in _NOBODYS:
        return
    kind = FactKind.SETTING
    if name in OF_THE_PLACE or name.startswith("server_version"):
        kind = FactKind.IDENTITY
    elif name in OF_THE_BUILD:
        kind = FactKind.CONDITION
    # Recordings of older versions have secrets as the server shows them.
    yield Fact(group=PARAMETERS, name=name, value=without_secrets(value), kind=kind, source=source, shipped=shipped)


def setup_facts(setup: MachineSetup) -> Iterator[Fact]:
    """Return the set-up of the machine: CPU, mounts, disks, kernel settings."""
    yield condition_fact(MACHINE, "CPU model", setup.cpu_model or units.UNKNOWN)
    yield condition_fact(MACHINE, "sockets", str(setup.sockets or units.UNKNOWN))
    yield condition_fact(MACHINE, "virtualisation", setup.virtualisation or "none known")
    for mount in setup.mounts:
        yield condition_fact(MACHINE, f"file system of {mount.role}", mount.kind)
        yield setting_fact(SYSTEM, f"mount options of {mount.role}", ",".join(mount.options))
    for disk in setup.disks:
        roles = ", ".join(disk.roles)
        kind = {True: "turning", False: "not rotating", None: "unknown"}[disk.rotational]
        yield condition_fact(
            MACHINE, f"disk below {roles}", f"{disk.model} {units.compact_size(disk.size_bytes)}".strip()
        )
        yield condition_fact(MACHINE, f"disk below {roles} is", kind)
        for name, value in (
            ("scheduler", disk.scheduler),
            ("write_cache", disk.write_cache),
            ("read_ahead_kb", disk.read_ahead_kb),
            ("nr_requests", disk.nr_requests),
        ):
            yield setting_fact(SYSTEM, f"{name} of the disk below {roles}", str(value or units.UNKNOWN))
    yield setting_fact(SYSTEM, "clock source", setup.clock_source or units.UNKNOWN)
    yield from (setting_fact(SYSTEM, setting.name, setting.value) for setting in setup.settings)


def cgroup_facts(group: CgroupSample) -> Iterator[Fact]:
    """Yield limits on the server."""
    cores = group.cpu_quota_cores
    yield condition_fact(MACHINE, "CPU limit", "none" if cores is None else f"{cores:g} CPUs")
    if group.cpus_allowed is not None:
        allowed = f"{group.cpus_allowed} CPUs"
        yield condition_fact(MACHINE, "CPUs allowed", allowed)
    limit = group.memory_max_bytes
    yield condition_fact(MACHINE, "memory limit", "none" if limit is None else units.compact_size(limit))


def data_facts(relations: RelationSample, server: ServerFacts | None) -> Iterator[Fact]:
    """Yield sizes of tables as the first look found them, from pg_class.relpages; the scale from pgbench's own."""
    block_bytes = 8192 if server is None else server.block_bytes
    tables = [
        table for table in relations.tables if table.kind != "toast" and table.pages > 0 and table.oid >= FIRST_USER_OID
    ]
    for table in sorted(tables, key=lambda largest: -largest.pages)[:_LARGEST]:
        size = units.compact_size(table.pages * block_bytes)
        yield identity_fact(DATA, f"table {table.name}", f"{size}, {units.count(max(table.tuples, 0))} rows")
    scale = _scale(_rows_of(tables, "pgbench_accounts") / _ROWS_A_SCALE, _rows_of(tables, "pgbench_branches"))
    if scale:
        yield condition_fact(DATA, "pgbench scale", units.number(scale))


def _rows_of(tables: Sequence[TableCounters], name: str) -> float:
    return max((table.tuples for table in tables if table.name.rpartition(".")[2] == name), default=0.0)


def _scale(estimated: float, branches: float) -> float:
    """Return the number of branches where the accounts confirm it; else the estimate to two digits."""
    agree = abs(branches - estimated) <= _SAME_SCALE * estimated
    return float(round(branches)) if agree else float(f"{estimated:.2g}")


def _warmth(runs: Runs) -> Iterator[Fact]:
    """Return the buffer hits when the first run began: how warm the cache was."""
    hits = runs[0].first_hits if runs else None
    if hits is not None:
        yield identity_fact(DATA, "buffer hits at the start", f"{hits[1]:.1f} % in {hits[0]} s")


def load_facts(runs: Iterable[BenchRun]) -> Iterator[Fact]:
    """Return scripts, seeds, pgbench's versions, machines and threads of all runs of a side."""
    runs = tuple(runs)
    for name, digest in sorted({pair for run in runs for pair in zip(run.scripts, run.script_hashes, strict=False)}):
        yield condition_fact(LOAD, f"script {name}", digest[:16])
    if runs:
        seeds = sorted({run.seed for run in runs if run.seed is not None})
        yield identity_fact(LOAD, "seed", ", ".join(map(str, seeds)) or "a new one each time")
    versions = sorted({run.pgbench_version for run in runs})
    machines = sorted({run.machine or "beside pgtop-tune" for run in runs})
    threads = sorted({run.threads for run in runs})
    if versions:
        yield condition_fact(LOAD, "pgbench", ", ".join(versions))
        yield condition_fact(LOAD, "pgbench runs", ", ".join(machines))
        yield condition_fact(LOAD, "threads", ", ".join(map(str, threads)))


def facts_in_order(facts: Iterable[Fact]) -> tuple[Fact, ...]:
    """Return facts by group, each group in its own order."""
    places = {group: index for index, group in enumerate(GROUPS)}
    return tuple(sorted(facts, key=lambda fact: places[fact.group]))


# Contracts of a comparison: the facts that may vary; every other fact must be equal.


class Varied(Struct, frozen=True):
    """A fact that differs.

    Attributes:
        shipped: Nobody set it on either side.
    """

    group: str
    name: str
    kind: FactKind
    shipped: bool


class MayVary(Struct, frozen=True):
    """Facts that a contract lets vary.

    Attributes:
        names: Patterns of names.
        but: Patterns of names that must be equal all the same.
        kinds: Their kinds.
        shipped_only: Only where nobody set the fact on either side.
    """

    group: str
    names: tuple[str, ...] = ("*",)
    but: tuple[str, ...] = ()
    kinds: frozenset[FactKind] = frozenset({FactKind.SETTING, FactKind.CONDITION})
    shipped_only: bool = False

    def covers(self, fact: Varied) -> bool:
        return (
            fact.group == self.group
            and fact.kind in self.kinds
            and (fact.shipped or not self.shipped_only)
            and any(fnmatchcase(fact.name, pattern) for pattern in self.names)
            and not any(fnmatchcase(fact.name, pattern) for pattern in self.but)
        )


class ContractTerms(Struct, frozen=True):
    """A contract in full.

    Attributes:
        description: The facts that may vary.
    """

    description: str
    rows: tuple[MayVary, ...]


_SETTINGS: Final = frozenset({FactKind.SETTING})
_OF_DISKS: Final = ("mount options of *", "* of the disk below *")
CONTRACTS: Final = {
    Contract.CONFIG: ContractTerms(
        "parameters and kernel settings, except settings of disks",
        (MayVary(PARAMETERS, kinds=_SETTINGS), MayVary(SYSTEM, but=_OF_DISKS)),
    ),
    Contract.STORAGE: ContractTerms(
        "disks, file systems, mount options",
        (MayVary(MACHINE, ("file system of *", "disk below *", "caps of the disk of *")), MayVary(SYSTEM, _OF_DISKS)),
    ),
    Contract.MACHINE: ContractTerms("the machine and its operating system", (MayVary(MACHINE), MayVary(SYSTEM))),
    Contract.MAJOR: ContractTerms(
        "the version of PostgreSQL, extensions, defaults of parameters",
        (
            MayVary(SERVER, ("PostgreSQL", "extensions")),
            MayVary(PARAMETERS, kinds=_SETTINGS, shipped_only=True),
        ),
    ),
    Contract.REPEAT: ContractTerms("nothing", ()),
}
"""The narrowest of two that let the same fact vary comes first."""


def may_vary(contract: Contract, fact: Varied) -> bool:
    """Return whether a fact may differ; names and times always may."""
    return fact.kind is FactKind.IDENTITY or any(row.covers(fact) for row in CONTRACTS[contract].rows)


def fitting(differences: Sequence[Varied]) -> Contract | None:
    """Return the contract that lets all of these vary; None where no single one does."""
    return next((contract for contract in CONTRACTS if all(may_vary(contract, fact) for fact in differences)), None)


AS_SHIPPED: Final = "as shipped"
"""Value of a parameter that a record of a run leaves out, because it was not set."""


class FactDifference(Struct, frozen=True):
    """A fact that is not the same on both sides.

    Attributes:
        under_test: Whether the comparison is about this fact.
        breaks: The contract wants it equal.
    """

    group: str
    name: str
    a: str
    b: str
    kind: FactKind
    under_test: bool
    breaks: bool = False

    @property
    def forbids(self) -> bool:
        """Return whether this difference forbids a comparison."""
        return self.breaks or (self.kind is FactKind.CONDITION and not self.under_test)


class Fingerprints(Struct, frozen=True):
    """Both sides.

    Attributes:
        same: How many facts are the same.
        differences: In the order of the fingerprint; identities come last.
        not_known: Conditions that only one side tells, by name; with a contract settings, too.
        contract: The facts that may vary; None without one.
        fits: The contract that lets every difference vary; None where no single one does.
        groups_unknown: Groups of which neither side tells a fact.
    """

    same: int
    differences: tuple[FactDifference, ...]
    not_known: tuple[str, ...]
    contract: Contract | None = None
    fits: Contract | None = None
    groups_unknown: tuple[str, ...] = ()

    @property
    def under_test(self) -> tuple[FactDifference, ...]:
        """Return the differences that are the subject of the comparison."""
        return tuple(difference for difference in self.differences if difference.under_test)

    @property
    def reasons(self) -> tuple[str, ...]:
        """Return why results are not comparable; empty when they are."""
        return tuple(self._reason(difference) for difference in self.differences if difference.forbids)

    def _reason(self, difference: FactDifference) -> str:
        if self.contract is None:
            return f"{difference.name} differs: {difference.a} and {difference.b}"
        way_out = f"--as {self.fits}" if self.fits else f"--under-test {shlex.quote(difference.name)}"
        return f"--as {self.contract}: {difference.name} differs: A {difference.a}, B {difference.b}; use {way_out}"

    @property
    def identities(self) -> tuple[FactDifference, ...]:
        """Return the differences of names and moments, which mean nothing."""
        return tuple(difference for difference in self.differences if difference.kind is FactKind.IDENTITY)


def fingerprints(
    a: Material, b: Material, under_test: Collection[str] = (), contract: Contract | None = None
) -> Fingerprints:
    """Compare the facts of both sides.

    Args:
        under_test: Groups and names of facts that are meant to differ; settings are so by themselves.
        contract: Lets only its facts vary, and those of `under_test`; settings no longer vary by themselves.
    """
    test_names = {name.lower() for name in under_test}
    facts_a = {(fact.group, fact.name): fact for fact in a.facts}
    facts_b = {(fact.group, fact.name): fact for fact in b.facts}
    differences, varied, not_known, same = [], [], [], 0
    for key in dict.fromkeys((*facts_a, *facts_b)):
        fact_a, fact_b = facts_a.get(key), facts_b.get(key)
        either = fact_a or fact_b
        assert either is not None
        if fact_a is None or fact_b is None:
            if either.group != PARAMETERS:
                matters = either.kind is FactKind.CONDITION or (contract and either.kind is FactKind.SETTING)
                not_known += [either.name] if matters else []
                continue
            if (a if fact_a is None else b).all_parameters or either.shipped:
                continue
        values = [AS_SHIPPED if fact is None else fact.value for fact in (fact_a, fact_b)]
        if values[0] == values[1]:
            same += 1
            continue
        meant = bool({"all", either.group, either.name.lower()} & test_names)
        if contract is None:
            meant = meant or either.kind is FactKind.SETTING
        else:
            shipped = all(fact is None or fact.shipped for fact in (fact_a, fact_b))
            fact = Varied(group=either.group, name=either.name, kind=either.kind, shipped=shipped)
            varied += [] if meant else [fact]
            meant = meant or may_vary(contract, fact)
        differences.append(
            FactDifference(
                group=either.group,
                name=either.name,
                a=values[0],
                b=values[1],
                kind=either.kind,
                under_test=meant and either.kind is not FactKind.IDENTITY,
                breaks=contract is not None and not meant,
            )
        )
    ordered = sorted(differences, key=lambda difference: difference.kind is FactKind.IDENTITY)
    known_groups = {fact.group for fact in (*a.facts, *b.facts)}
    return Fingerprints(
        same=same,
        differences=tuple(ordered),
        not_known=tuple(not_known),
        contract=contract,
        fits=fitting(varied) if contract else None,
        groups_unknown=tuple(group for group in GROUPS if group not in known_groups and group != TOOL),
    )


def check_names(under_test: Sequence[str], materials: Sequence[Material]) -> None:
    """Check that names of --under-test are groups or facts of a side.

    Raises:
        UsageProblem: There is one.
    """
    names = {"all", *GROUPS, *(fact.name.lower() for material in materials for fact in material.facts)}
    for name in under_test:
        if name.lower() not in names:
            near = difflib.get_close_matches(name.lower(), sorted(names), n=1)
            hint = f"did you mean {near[0]!r}? " if near else ""
            raise UsageProblem(
                f"nothing is called {name!r} in these fingerprints", f"{hint}groups: all, {', '.join(GROUPS)}"
            )
