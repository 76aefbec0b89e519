"""Whether two copies fit beside the server: memory, huge pages and disk, with the arithmetic. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from pgtop_tune.errors import ClusterProblem
from pgtop_tune.experiment.switchback.blocks import Arm
from pgtop_tune.metrics.memory_rule import MemoryUse, terms
from pgtop_tune.model.host import HugePages
from pgtop_tune.units import about


class DiskUse(Struct, frozen=True):
    """Of the copies.

    Attributes:
        directory: Where they go.
        data_bytes: Of the original, tablespaces included, WAL not.
        wal_bytes: max_wal_size of either arm.
        free_bytes: For the account of the server.
    """

    directory: str
    data_bytes: float
    wal_bytes: Mapping[Arm, float]
    free_bytes: float


def check_memory(uses: Mapping[Arm, MemoryUse], available_bytes: float) -> str:
    """The arithmetic, where both copies fit.

    Args:
        uses: Of each copy, with the sessions of its load alone.
        available_bytes: Now, with the original running (MemAvailable, or what is left of a control group's limit).

    Raises:
        ClusterProblem: They do not.
    """
    parts, needed = [], 0.0
    for arm, use in uses.items():
        rows = [term for term in terms(use) if term.what != "system"]
        size = sum(term.size_bytes for term in rows)
        needed += size
        parts.append(f"{arm}: {' + '.join(term.says for term in rows if term.size_bytes)} = {about(size)}")
    words = f"{'; '.join(parts)}; together {about(needed)} of {about(available_bytes)} available"
    if needed > available_bytes:
        raise ClusterProblem(f"memory is short for two copies: {words}", "lower shared_buffers of A and B, or -c")
    return f"memory: {words}"


def check_huge_pages(setting: str, sizes: Mapping[Arm, float], pool: HugePages | None) -> bool:
    """Whether the copies get huge pages.

    Args:
        setting: huge_pages of the original.
        sizes: Shared memory of each copy.

    Raises:
        ClusterProblem: The original insists on them, and there are too few for both.
    """
    if setting == "off":
        return False
    free = 0 if pool is None else max(pool.free - pool.reserved, 0)
    page = 2**21 if pool is None else pool.page_bytes
    needed = sum(-(-int(size) // page) for size in sizes.values())
    if needed <= free:
        return True
    if setting == "on":
        raise ClusterProblem(
            f"huge pages are short for two copies: {needed} of {about(page)} needed, {free} free",
            "raise vm.nr_hugepages, or pass huge_pages=off",
        )
    return False


def check_disk(use: DiskUse) -> str:
    """The arithmetic, where both copies fit.

    Raises:
        ClusterProblem: They do not.
    """
    wal = sum(use.wal_bytes.values())
    needed = 2.0 * use.data_bytes + wal
    words = (
        f"2 × {about(use.data_bytes)} of data + {about(wal)} of WAL = {about(needed)} of {about(use.free_bytes)} free"
        f" in {use.directory}"
    )
    if needed > use.free_bytes:
        raise ClusterProblem(f"the disk is short for two copies: {words}", "pass another --directory")
    return f"disk: {words}"
