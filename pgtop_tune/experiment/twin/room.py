"""Whether two copies fit beside the server: memory, huge pages and disk, with the arithmetic."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from msgspec import Struct

from pgtop_tune.errors import ClusterProblem
from pgtop_tune.experiment.switchback.blocks import Arm
from pgtop_tune.metrics.memory_rule import SHARED, MemoryUse, terms
from pgtop_tune.model.host import HugePages
from pgtop_tune.units import about

_SPARE: Final = 0.05
_SPARE_BYTES: Final = 2.0**30
"""The lesser of both stays free on the disk of the copies: the server may need it."""


def free_and_spare(directory: Path) -> tuple[float, float]:
    """Bytes that are free there for the account of the server, and those that the copies leave free."""
    found = os.statvfs(directory)
    spare_bytes = min(_SPARE * found.f_blocks * found.f_frsize, _SPARE_BYTES)
    return float(found.f_bavail * found.f_frsize), spare_bytes


class DiskUse(Struct, frozen=True):
    """Of the copies.

    Attributes:
        directory: Where they go.
        data_bytes: Of the original, tablespaces included; WAL only where a directory is copied as it is.
        wal_bytes: max_wal_size of either arm.
        free_bytes, spare_bytes: As `free_and_spare` has them.
    """

    directory: str
    data_bytes: float
    wal_bytes: Mapping[Arm, float]
    free_bytes: float
    spare_bytes: float = 0.0


def check_memory(uses: Mapping[Arm, MemoryUse], available_bytes: float, *, huge_pages: bool = False) -> str:
    """The arithmetic, where both copies fit.

    Args:
        uses: Of each copy, with the sessions of its load alone.
        available_bytes: Now, with the original running (MemAvailable, or what is left of a control group's limit).
        huge_pages: Shared memory is in huge pages, which are set aside already.

    Raises:
        ClusterProblem: They do not.
    """
    parts, needed = [], 0.0
    for arm, use in uses.items():
        rows = [term for term in terms(use) if term.what != "system" and not (huge_pages and term.what == SHARED)]
        size = sum(term.size_bytes for term in rows)
        needed += size
        parts.append(f"{arm}: {' + '.join(term.says for term in rows if term.size_bytes)} = {about(size)}")
    words = f"{'; '.join(parts)}; together {about(needed)} of {about(available_bytes)} available"
    if needed > available_bytes:
        raise ClusterProblem(f"memory is short for two copies: {words}", "lower shared_buffers of A and B, or -c")
    return f"memory: {words}"


def check_huge_pages(setting: str, sizes: Mapping[Arm, float], pool: HugePages | None) -> str:
    """The arithmetic, where the copies get huge pages; "" where they get none.

    Args:
        setting: huge_pages of the original.
        sizes: Shared memory of each copy.

    Raises:
        ClusterProblem: The original insists on them, and there are too few for both.
    """
    if setting == "off":
        return ""
    free = 0 if pool is None else max(pool.free - pool.reserved, 0)
    page = 2**21 if pool is None else pool.page_bytes
    pages = {arm: -(-int(size) // page) for arm, size in sizes.items()}
    needed = sum(pages.values())
    parts = " + ".join(f"{arm} {count}" for arm, count in pages.items())
    words = f"{parts} = {needed} of {about(page)} needed, {free} free"
    if needed <= free:
        return f"huge pages: {words}"
    if setting == "on":
        raise ClusterProblem(
            f"huge pages are short for two copies: {words}", "raise vm.nr_hugepages, or pass huge_pages=off"
        )
    return ""


def cpu_words(halves: Sequence[Sequence[int]], allowed: int) -> str:
    """Which CPUs each copy and its load get."""
    if not halves:
        return f"CPUs: {allowed}, too few for halves: both copies share them"
    each = len(halves[0])
    idle = allowed - 2 * each
    return f"CPUs: {each} of {allowed} for each copy and its load" + (f", {idle} left to others" if idle else "")


def check_disk(use: DiskUse) -> str:
    """The arithmetic, where both copies fit.

    Raises:
        ClusterProblem: They do not.
    """
    wal = sum(use.wal_bytes.values())
    needed = 2.0 * use.data_bytes + wal + use.spare_bytes
    spare = f" + {about(use.spare_bytes)} to spare" if use.spare_bytes else ""
    words = (
        f"2 × {about(use.data_bytes)} of data + {about(wal)} of WAL{spare} = {about(needed)} of"
        f" {about(use.free_bytes)} free in {use.directory}"
    )
    if needed > use.free_bytes:
        raise ClusterProblem(f"the disk is short for two copies: {words}", "pass another --directory")
    return f"disk: {words}"
