"""Facts that advice is derived from, read off frames of a session or a recording, and the server's workload. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from pgtop_tune.advice.facts import CLOCK, DERIVED, STARTED_WITH, Advice, AdviceFacts, Machine
from pgtop_tune.advice.rules.system import kind_of
from pgtop_tune.base import units
from pgtop_tune.base.errors import UsageProblem
from pgtop_tune.base.units import MB
from pgtop_tune.metrics import sections
from pgtop_tune.metrics.catalogue import Interval, outer_pair, pair_rate
from pgtop_tune.metrics.memory_rule import USUAL_PAGE_BYTES
from pgtop_tune.metrics.server import TPS, client_backends, ended_transactions
from pgtop_tune.model.absence import Unavailable
from pgtop_tune.model.host import DiskCounters, HostFacts
from pgtop_tune.model.machine import Disk, DiskKind, Workload
from pgtop_tune.model.parameter_values import parse, show
from pgtop_tune.model.postgres import DatabaseCounters, ParameterSample, ServerFacts

# The workload of a server, by its own counters since their last reset. Pure.
#
# Source: pg_stat_database, all databases added up. The kinds are those of the calculators; the borders between them
# are our own rule.

LEAST_TRANSACTIONS: Final = 10_000
"""Fewer say nothing: monitoring alone makes some."""
_MANY_ROWS: Final = 10_000
"""Rows read in a transaction, on average: reports, not orders."""
_FEW_WRITES: Final = 0.05


class SeenWorkload(Struct, frozen=True):
    """Workload by the counters.

    Attributes:
        workload: The nearest kind.
        because: The numbers it stands on, one clause.
    """

    workload: Workload
    because: str


def workload_seen(counters: DatabaseCounters) -> SeenWorkload | None:
    """Return the kind of load since the reset; None where there was next to none.

    Rows read are `tup_returned`: those of sequential scans count, which are most of what a report reads. The share of
    writes is rows written of rows written and rows fetched by an index or written.
    """
    transactions = ended_transactions(counters) - counters.own_transactions
    if transactions < LEAST_TRANSACTIONS:
        return None
    written = counters.tup_inserted + counters.tup_updated + counters.tup_deleted
    share = written / max(written + counters.tup_fetched, 1)
    rows = counters.tup_returned / transactions
    reports, writes = rows >= _MANY_ROWS, share >= _FEW_WRITES
    kinds = {
        (True, True): Workload.MIXED,
        (True, False): Workload.OLAP,
        (False, True): Workload.OLTP,
        (False, False): Workload.WEB,
    }
    because = f"{units.number(rows, 3)} rows read in a transaction, {share:.0%} of the rows it touches written"
    return SeenWorkload(kinds[reports, writes], because)


_NVME: Final = "nvme"
_RESERVED: Final = ("superuser_reserved_connections", "reserved_connections")
_RECENT_S: Final = 10.0
_LEAST_COUNTED_S: Final = 600.0
"""Younger counters tell of how the server was set up, not of its load."""


class Beside(Struct, frozen=True):
    """Facts that frames do not have.

    Attributes:
        workload: The operator's word on the workload; None goes by the server's counters.
        disk: The operator's word on the disk; None goes by `machine`, or by the names of disks in the frames.
        data_bytes: Size of all databases.
        machine: The machine; None where its settings cannot be changed, as those of another machine.
        unsuitable: See `AdviceFacts`.
    """

    workload: Workload | None = None
    disk: DiskKind | None = None
    data_bytes: int | None = None
    machine: Machine | None = None
    unsuitable: Mapping[str, Advice] = {}


class _AsSet:
    """Parameters in numbers of our choice; a value that waits for a restart counts as set."""

    def __init__(self, sample: ParameterSample) -> None:
        self._of = {parameter.name: parameter for parameter in sample.parameters}

    def number(self, name: str, unit: str = "", *, running: bool = False) -> float | None:
        """Return a number; None where the server does not show it, or it is no number."""
        parameter = self._of.get(name)
        if parameter is None:
            return None
        text = parameter.shown
        try:
            if parameter.pending is not None and not running:
                integer = parameter.vartype == "integer"
                text = show(parse(parameter.pending, parameter.unit, integer=integer), parameter.unit, integer=integer)
            return parse(text, unit, integer=False)
        except UsageProblem:
            return None

    def whole(self, name: str, unit: str = "", *, running: bool = False) -> int | None:
        """Return `number` as an integer."""
        number = self.number(name, unit, running=running)
        return None if number is None else int(number)

    def is_chosen(self, name: str) -> bool:
        """Return whether its value is set, and not derived by the server."""
        parameter = self._of.get(name)
        return parameter is not None and (parameter.pending is not None or parameter.source not in DERIVED)

    def text(self, name: str, *, running: bool = False) -> str:
        """Return the value as pg_settings has it; "" where the server does not show it."""
        parameter = self._of.get(name)
        if parameter is None:
            return ""
        return parameter.setting if running or parameter.pending is None else parameter.pending


def facts_of(interval: Interval, beside: Beside) -> AdviceFacts | None:
    """Return the facts of a server and its machine.

    Args:
        interval: Its newest frame and some before; the rate of WAL is between the last two.
        beside: Facts that frames do not have.

    Returns:
        None when the server was not seen; what else is not there is None among the facts.
    """
    server, sample = sections.server(interval.newest), interval.now(sections.parameters)
    if isinstance(server, Unavailable) or sample is None:
        return None
    parameters, activity = _AsSet(sample), interval.now(sections.activity)
    rate, source = _wal_rate(interval, server)
    machine = _with_memory(beside.machine, interval)
    temp_buffers = parameters.whole("temp_buffers", "B")
    return AdviceFacts(
        major=server.version_num // 10_000,
        ram_bytes=_memory_bytes(interval),
        cores=_cores(interval),
        disk=beside.disk or _disk(interval, () if machine is None else machine.disks),
        workload=beside.workload or _workload(interval),
        data_bytes=beside.data_bytes,
        in_recovery=server.in_recovery,
        sessions=0 if activity is None else len(client_backends(activity)),
        max_connections=parameters.whole("max_connections"),
        reserved_connections=sum(parameters.whole(name) or 0 for name in _RESERVED),
        max_worker_processes=parameters.whole("max_worker_processes"),
        autovacuum_max_workers=parameters.whole("autovacuum_max_workers"),
        autovacuum_worker_slots=parameters.whole("autovacuum_worker_slots"),
        shared_buffers_bytes=parameters.whole("shared_buffers", "B"),
        running_buffers_bytes=parameters.whole("shared_buffers", "B", running=True),
        shared_memory_bytes=_positive(parameters.whole("shared_memory_size", "B")),
        huge_pages=parameters.text("huge_pages"),
        huge_page_bytes=parameters.whole("huge_page_size", "B") or 0,
        in_huge_pages=_in_huge_pages(parameters),
        work_mem_bytes=parameters.whole("work_mem", "B"),
        temp_buffers_bytes=8 * MB if temp_buffers is None else temp_buffers,
        autovacuum_work_mem_bytes=parameters.whole("autovacuum_work_mem", "B"),
        hash_mem_multiplier=parameters.number("hash_mem_multiplier"),
        checkpoint_timeout_s=parameters.number("checkpoint_timeout", "s"),
        checkpoint_completion_target=parameters.number("checkpoint_completion_target"),
        max_wal_size_bytes=parameters.whole("max_wal_size", "B"),
        wal_keep_bytes=max(parameters.whole("wal_keep_size", "B") or 0, 0),
        slot_keep_bytes=parameters.whole("max_slot_wal_keep_size", "B") or -1,
        slot_bytes=_slot_bytes(interval),
        wal_buffers_bytes=max(parameters.whole("wal_buffers", "B") or 0, 0)
        if parameters.is_chosen("wal_buffers")
        else 0,
        running_wal_buffers_bytes=parameters.whole("wal_buffers", "B", running=True) or 16 * MB,
        wal_buffers_full_per_s=_wal_buffers_full_per_s(interval, server),
        clock_ns=_clock_ns(interval),
        wal_segment_bytes=server.wal_segment_bytes,
        block_bytes=server.block_bytes,
        page_bytes=_page_bytes(interval),
        wal_bytes_per_s=rate,
        wal_rate_source=source,
        wal_disk_bytes=_wal_disk_bytes(interval),
        started_with=frozenset(row.name for row in sample.parameters if row.source == STARTED_WITH),
        machine=machine,
        pending={row.name: row.pending for row in sample.parameters if row.pending is not None},
        unsuitable=beside.unsuitable,
    )


def _page_bytes(interval: Interval) -> int:
    """Return the kernel's page size; the usual one where the machine was not seen."""
    host = sections.machine(interval.newest)
    return USUAL_PAGE_BYTES if isinstance(host, Unavailable) else host.page_size_bytes


def _with_memory(machine: Machine | None, interval: Interval) -> Machine | None:
    """Return the machine with its memory in the newest frame."""
    memory = interval.now(sections.memory)
    if machine is None or memory is None:
        return machine
    return replace(
        machine,
        ram_bytes=memory.total_bytes,
        swap_bytes=memory.swap_total_bytes,
        committed_bytes=memory.committed_bytes,
        commit_limit_bytes=memory.commit_limit_bytes,
        pools=memory.huge_pages,
    )


def _in_huge_pages(parameters: _AsSet) -> bool | None:
    """Return huge_pages_status (17+), else the value of huge_pages where it leaves no doubt."""
    values = (parameters.text("huge_pages_status", running=True), parameters.text("huge_pages", running=True))
    return next((word == "on" for word in values if word in ("on", "off")), None)


def disks_of_data(interval: Interval) -> tuple[DiskCounters, ...]:
    """Return whole disks under the data directory; those below a volume, not the volume."""
    disks = interval.now(sections.disks)
    return () if disks is None else tuple(disk for disk in disks.disks if "data" in disk.roles and not disk.stacked)


def _machine(interval: Interval) -> HostFacts | None:
    host = interval.newest.host
    return None if isinstance(host, Unavailable) or isinstance(host.facts, Unavailable) else host.facts


def _memory_bytes(interval: Interval) -> int | None:
    host, group = _machine(interval), interval.now(sections.cgroup)
    limits = (None if host is None else host.memory_bytes, None if group is None else group.memory_max_bytes)
    return min((limit for limit in limits if limit), default=None)


def _cores(interval: Interval) -> int | None:
    host, group = _machine(interval), interval.now(sections.cgroup)
    if host is None:
        return None
    return host.cpu_count if group is None else group.cpus_of(host.cpu_count)


def _workload(interval: Interval) -> Workload:
    counters = interval.now(sections.database)
    workload = None if counters is None else workload_seen(counters)
    return Workload.OLTP if workload is None else workload.workload


def _disk(interval: Interval, described: Sequence[Disk]) -> DiskKind | None:
    """Return the slowest kind under the data directory, None where one of them does not tell its kind."""
    names = [disk.name for disk in disks_of_data(interval)]
    by_name = (DiskKind.NVME if name.startswith(_NVME) else None for name in names)
    kinds = {kind_of(disk) for disk in described if disk.name in names or not names} or set(by_name)
    if not kinds or None in kinds:
        return None
    return next(kind for kind in (DiskKind.HDD, DiskKind.SSD, DiskKind.NVME) if kind in kinds)


def _wal_rate(interval: Interval, server: ServerFacts) -> tuple[float | None, str]:
    """Return the WAL of a second and its source: the larger of the means since the reset and of the last ten seconds.

    The latter only on a busy server: the WAL of an idle server says nothing about its load. A standby counts
    none that it replays.
    """
    activity, wal = interval.now(sections.activity), interval.now(sections.wal)
    rates: list[tuple[float, str]] = []
    if activity is not None and wal is not None:
        seconds = (activity.now_ms - _counted_since_ms(interval, server)) / 1000
        if seconds >= _LEAST_COUNTED_S:
            rates.append((wal.wal_bytes / seconds, "pg_stat_wal.wal_bytes since its reset"))
    if _is_busy(interval):
        pair = outer_pair(interval.recent(sections.wal, _RECENT_S, least=2))
        rate = pair_rate(pair, lambda wal: wal.lsn_bytes)
        if pair is not None and rate is not None:
            rates.append((rate, f"pg_current_wal_insert_lsn(), mean of {pair[1].at_s - pair[0].at_s:.1f} s"))
    return max(rates, default=(None, ""))


def _is_busy(interval: Interval) -> bool:
    """Return whether transactions end, or a client's statement ran at one of the last samples: at a single one, all
    sessions of a load may be idle in their transactions."""
    return (TPS(interval) or 0.0) >= 1.0 or any(
        backend.state == "active"
        for activity in interval.recent(sections.activity, _RECENT_S, least=2)
        for backend in client_backends(activity)
    )


def _counted_since_ms(interval: Interval, server: ServerFacts) -> int:
    """Return when pg_stat_wal began to count: its reset, else the first reset of any, else the start of the server."""
    wal, checkpoints, io = (
        interval.now(sections.wal),
        interval.now(sections.checkpoints),
        interval.now(sections.io),
    )
    if wal is not None and wal.stats_reset_ms is not None:
        return wal.stats_reset_ms
    resets_ms = (sample.stats_reset_ms for sample in (checkpoints, io) if sample is not None)
    return min([server.started_ms, *(reset_ms for reset_ms in resets_ms if reset_ms is not None)])


def _slot_bytes(interval: Interval) -> int:
    """Return the WAL that the slot furthest behind keeps; temporary ones go with their session."""
    sample = interval.now(sections.slots)
    if sample is None or sample.lsn_bytes is None:
        return 0
    begins = [slot.restart_lsn_bytes for slot in sample.slots if not slot.temporary]
    return max((sample.lsn_bytes - begin for begin in begins if begin is not None), default=0)


def _wal_buffers_full_per_s(interval: Interval, server: ServerFacts) -> float | None:
    """Return the rate since the counters began; None where they are too young."""
    activity, wal = interval.now(sections.activity), interval.now(sections.wal)
    if activity is None or wal is None:
        return None
    seconds = (activity.now_ms - _counted_since_ms(interval, server)) / 1000
    return wal.wal_buffers_full / seconds if seconds >= _LEAST_COUNTED_S else None


def _clock_ns(interval: Interval) -> float | None:
    measured = sections.ceilings(interval.newest)
    return None if isinstance(measured, Unavailable) else measured.value(CLOCK)


def _wal_disk_bytes(interval: Interval) -> int | None:
    sample = interval.now(sections.file_systems)
    if sample is None:
        return None
    for role in ("wal", "data"):
        file_system = next((candidate for candidate in sample.file_systems if role in candidate.roles), None)
        if file_system is not None:
            return file_system.total_bytes
    return None


def _positive(number: int | None) -> int | None:
    return number if number is not None and number > 0 else None
