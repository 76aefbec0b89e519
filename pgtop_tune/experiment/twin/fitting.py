"""Whether two copies of a server fit beside it: what they take, and what this machine has left."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from msgspec import Struct

from pgtop_tune.cluster.stopped_directory import StoppedDirectory
from pgtop_tune.errors import ClusterProblem
from pgtop_tune.experiment.switchback.arms import Rival
from pgtop_tune.experiment.switchback.blocks import Arm
from pgtop_tune.experiment.twin.original import Original, data_bytes, memory_uses
from pgtop_tune.experiment.twin.room import DiskUse, check_disk, check_huge_pages, check_memory, free_and_spare
from pgtop_tune.host.cgroup_files import memory_left, parse_membership
from pgtop_tune.host.kernel_text import read_once
from pgtop_tune.host.memory_files import parse_meminfo, with_pools
from pgtop_tune.host.mounts import parse_mountinfo
from pgtop_tune.model.host import HugePages, MemorySample
from pgtop_tune.model.parameter_values import parse

_MB: Final = 2.0**20


class Fit(Struct, frozen=True):
    """Two copies that fit.

    Attributes:
        huge_pages: Whether both get huge pages.
        arithmetic: A line each for what they take.
    """

    huge_pages: bool
    arithmetic: tuple[str, ...]


def fit(
    original: Original, rivals: Sequence[Rival], clients: int, place: Path, stopped: StoppedDirectory | None
) -> Fit:
    """What the copies take of what is left; blocking.

    Args:
        clients: Of the load on each.
        place: Where they go.
        stopped: A directory that is copied in the server's stead.

    Raises:
        ClusterProblem: They do not fit, or there is no such directory.
    """
    if not place.is_dir():
        raise ClusterProblem(f"{place} is not a directory", "pass another --directory")
    memory = parse_meminfo(0.0, read_once("/proc/meminfo"))
    uses = memory_uses(original, rivals, clients, memory.total_bytes)
    sizes = {arm: max(use.shared_memory_bytes or 0.0, use.shared_buffers_bytes) for arm, use in uses.items()}
    pages = check_huge_pages(original.parameters["huge_pages"].setting, sizes, _pool(original, memory))
    # Where huge pages are judged, one of the copies may have none.
    asked = any(rival.name == "huge_pages" for rival in rivals)
    free_bytes, spare_bytes = free_and_spare(place)
    disk = DiskUse(
        directory=str(place),
        data_bytes=data_bytes(original) if stopped is None else stopped.data_bytes,
        wal_bytes={arm: _max_wal_bytes(original) for arm in Arm},
        free_bytes=free_bytes,
        spare_bytes=spare_bytes,
    )
    words = check_memory(uses, _available_bytes(memory), huge_pages=bool(pages) and not asked)
    return Fit(bool(pages) or asked, (words, *filter(None, (pages,)), check_disk(disk)))


def _pool(original: Original, memory: MemorySample) -> HugePages | None:
    """The pool of huge_page_size; of the kernel's default size where that is 0."""
    page_bytes = int(original.parameters["huge_page_size"].setting) * 1024
    pools = with_pools(memory.huge_pages, (page_bytes,) if page_bytes else (), lambda path: read_once(f"/{path}"))
    default = memory.huge_pages[0].page_bytes if memory.huge_pages else 0
    return next((pool for pool in pools if pool.page_bytes == (page_bytes or default)), None)


def _available_bytes(memory: MemorySample) -> float:
    """MemAvailable, or what the control groups of this process leave, where that is less."""
    available_bytes = memory.available_bytes or memory.free_bytes
    try:
        mounts = parse_mountinfo(read_once("/proc/self/mountinfo"))
        membership = parse_membership(read_once("/proc/self/cgroup"))
        left_bytes = memory_left(membership, mounts, lambda path: read_once(f"/{path}"))
    except (OSError, ValueError):
        left_bytes = None
    return available_bytes if left_bytes is None else min(available_bytes, left_bytes)


def _max_wal_bytes(original: Original) -> float:
    parameter = original.parameters["max_wal_size"]
    return parse(parameter.shown, parameter.unit, integer=False) * _MB
