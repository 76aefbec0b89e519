"""What advice is derived from, read off frames of a session or a recording. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from msgspec import Struct

from pgtop_tune.advice.facts import DiskKind, Facts, Workload
from pgtop_tune.advice.rules.system import kind_of
from pgtop_tune.errors import UsageProblem
from pgtop_tune.host.block_queue import Disk
from pgtop_tune.metrics import sections
from pgtop_tune.metrics.catalogue import Interval
from pgtop_tune.metrics.server import WAL_BYTES, client_backends
from pgtop_tune.model.absence import Unavailable
from pgtop_tune.model.host import DiskCounters, HostFacts
from pgtop_tune.model.parameter_values import parse
from pgtop_tune.model.postgres import Parameter

_NVME: Final = "nvme"


class Beside(Struct, frozen=True):
    """What frames do not have.

    Attributes:
        workload: What the server is for.
        disk: What the operator says of the disk; None goes by `disks`.
        disks: The disks of the data directory as the kernel describes them; empty goes by their names in the frames.
        data_bytes: Size of all databases.
    """

    workload: Workload = Workload.OLTP
    disk: DiskKind | None = None
    disks: tuple[Disk, ...] = ()
    data_bytes: int | None = None


def facts_of(interval: Interval, beside: Beside) -> Facts | None:
    """Facts of a server and its machine.

    Args:
        interval: Its newest frame and some before; the rate of WAL is between the last two.
        beside: What they do not have.

    Returns:
        None when the server was not seen; what else is not there is None among the facts.
    """
    server, sample = sections.server(interval.newest), interval.now(sections.parameters)
    if isinstance(server, Unavailable) or sample is None:
        return None
    of = {parameter.name: parameter for parameter in sample.parameters}
    return Facts(
        major=server.version_num // 10_000,
        ram_bytes=_memory_bytes(interval),
        cores=_cores(interval),
        disk=beside.disk or _disk(interval, beside.disks),
        workload=beside.workload,
        data_bytes=beside.data_bytes,
        max_connections=_whole(of.get("max_connections")),
        max_worker_processes=_whole(of.get("max_worker_processes")),
        autovacuum_max_workers=_whole(of.get("autovacuum_max_workers")),
        shared_buffers_bytes=_whole(of.get("shared_buffers"), "B"),
        hash_mem_multiplier=_number(of.get("hash_mem_multiplier")),
        checkpoint_timeout_s=_number(of.get("checkpoint_timeout"), "s"),
        checkpoint_completion_target=_number(of.get("checkpoint_completion_target")),
        wal_bytes_per_s=_wal_bytes_per_s(interval),
        wal_disk_bytes=_wal_disk_bytes(interval),
        huge_pages_needed=_positive(_whole(of.get("shared_memory_size_in_huge_pages"))),
    )


def disks_of_data(interval: Interval) -> tuple[DiskCounters, ...]:
    """Whole disks under the data directory; those below a volume, not the volume."""
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
    quota = None if group is None else group.cpu_quota_cores
    return host.cpu_count if quota is None else max(min(host.cpu_count, round(quota)), 1)


def _disk(interval: Interval, described: Sequence[Disk]) -> DiskKind | None:
    """The slowest kind under the data directory, None where one of them does not say what it is."""
    by_name = (DiskKind.NVME if disk.name.startswith(_NVME) else None for disk in disks_of_data(interval))
    kinds = {kind_of(disk) for disk in described} or set(by_name)
    if not kinds or None in kinds:
        return None
    return next(kind for kind in (DiskKind.HDD, DiskKind.SSD, DiskKind.NVME) if kind in kinds)


def _wal_bytes_per_s(interval: Interval) -> float | None:
    """Only where somebody works: the WAL of an idle server says nothing about its load."""
    activity = interval.now(sections.activity)
    if activity is None or not any(backend.state == "active" for backend in client_backends(activity)):
        return None
    return WAL_BYTES(interval)


def _wal_disk_bytes(interval: Interval) -> int | None:
    sample = interval.now(sections.file_systems)
    if sample is None:
        return None
    for role in ("wal", "data"):
        found = next((each for each in sample.file_systems if role in each.roles), None)
        if found is not None:
            return found.total_bytes
    return None


def _number(parameter: Parameter | None, unit: str = "") -> float | None:
    """A parameter's value in a unit of our choice."""
    if parameter is None:
        return None
    try:
        return parse(parameter.shown, unit, integer=False)
    except UsageProblem:
        return None


def _whole(parameter: Parameter | None, unit: str = "") -> int | None:
    number = _number(parameter, unit)
    return None if number is None else int(number)


def _positive(number: int | None) -> int | None:
    return number if number is not None and number > 0 else None
