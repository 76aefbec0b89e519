"""/proc/meminfo, swap traffic of /proc/vmstat, huge pages. Source: Documentation/filesystems/proc.rst, meminfo.

The cache of ZFS, which the kernel counts as used. Source: OpenZFS, arc_stats; size of /proc/spl/kstat/zfs/arcstats.

/sys/devices/system/node/nodeN/{meminfo,numastat}. Source: numastat.rst, sysfs-devices-node of the kernel.

Pools of huge pages. Source: Documentation/admin-guide/mm/hugetlbpage.rst, /sys/kernel/mm/hugepages.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Final

from pgtop_tune.host.kernel_text import KeptFile, unsigned
from pgtop_tune.model.host import HugePages, MemorySample
from pgtop_tune.model.machine import NumaNode

_POOLS: Final = "sys/kernel/mm/hugepages"
USUAL_PAGE_BYTES: Final = (2 << 20, 1 << 30)
"""Sizes to try where the directory cannot be listed: those of x86-64, and of arm64 with pages of 4 kB."""


def pool_paths(page_bytes: int) -> tuple[str, ...]:
    """The files of a pool: pages in all, free, reserved, surplus."""
    directory = f"{_POOLS}/hugepages-{page_bytes // 1024}kB"
    return tuple(f"{directory}/{name}_hugepages" for name in ("nr", "free", "resv", "surplus"))


def with_pools(
    default: tuple[HugePages, ...], sizes: Iterable[int], read: Callable[[str], bytes]
) -> tuple[HugePages, ...]:
    """The default pool and every other pool that holds a page, by size; a pool that cannot be read is left out.

    Args:
        default: What /proc/meminfo shows.
        sizes: Page sizes in bytes to look for.
        read: Content of a file by its path without the leading slash; raises OSError.
    """
    known = {pool.page_bytes for pool in default}
    others = (_pool(page_bytes, read) for page_bytes in sizes if page_bytes not in known)
    return tuple(sorted((*default, *filter(None, others)), key=lambda pool: pool.page_bytes))


def _pool(page_bytes: int, read: Callable[[str], bytes]) -> HugePages | None:
    total, *rest = pool_paths(page_bytes)
    try:
        pages = unsigned(read(total).strip())
        return HugePages(page_bytes, pages, *(unsigned(read(path).strip()) for path in rest)) if pages else None
    except (OSError, ValueError):
        return None


class HugePagePools:
    """The pools that /proc/meminfo does not show: those of other than the default page size.

    Args:
        root: Where /sys is found.
    """

    def __init__(self, root: Path) -> None:
        names = sorted(pool.name for pool in (root / _POOLS).glob("hugepages-*kB"))
        sizes = (name.removeprefix("hugepages-").removesuffix("kB") for name in names)
        self._sizes = tuple(int(size) * 1024 for size in sizes if size.isdigit())
        self._files = {path: KeptFile(root / path) for size in self._sizes for path in pool_paths(size)}

    def read(self, default: tuple[HugePages, ...]) -> tuple[HugePages, ...]:
        """The default pool and every other pool that holds a page, by size; a pool that cannot be read is left out."""
        return with_pools(default, self._sizes, lambda path: self._files[path].read())

    def close(self) -> None:
        """Closes the files."""
        for file in self._files.values():
            file.close()


_LINE: Final = re.compile(rb"^Node \d+ (\w+(?:\(\w+\))?): +(\d+)( kB)?$", re.MULTILINE)
_MOST: Final = 4096


def parse_id_list(ids: bytes) -> tuple[int, ...]:
    """Numbers of a list as sysfs writes it: "0-2,5" → 0, 1, 2, 5.

    Raises:
        ValueError: It is no such list, or one of more numbers than any machine has.
    """
    found: list[int] = []
    for part in ids.strip().split(b","):
        if not part:
            continue
        first, _, last = part.partition(b"-")
        low = unsigned(first)
        high = unsigned(last) if last else low
        if high - low >= _MOST or len(found) >= _MOST:
            raise ValueError(f"a list of too many numbers: {ids[:40]!r}")
        found.extend(range(low, high + 1))
    return tuple(found)


def parse_node(node: int, meminfo: bytes, numastat: bytes) -> NumaNode:
    """One node.

    Raises:
        ValueError: The content is not what the kernel writes.
    """
    amounts = {name: unsigned(word) * (1024 if kilo else 1) for name, word, kilo in _LINE.findall(meminfo)}
    pages = {words[0]: unsigned(words[1]) for line in numastat.split(b"\n") if len(words := line.split()) == 2}
    try:
        return NumaNode(
            node=node,
            total_bytes=amounts[b"MemTotal"],
            free_bytes=amounts[b"MemFree"],
            file_bytes=amounts.get(b"FilePages"),
            anon_bytes=amounts.get(b"AnonPages"),
            shmem_bytes=amounts.get(b"Shmem"),
            dirty_bytes=amounts.get(b"Dirty"),
            huge_pages=amounts.get(b"HugePages_Total", 0),
            huge_pages_free=amounts.get(b"HugePages_Free", 0),
            hit_pages=pages.get(b"numa_hit"),
            miss_pages=pages.get(b"numa_miss"),
            foreign_pages=pages.get(b"numa_foreign"),
        )
    except KeyError as missing:
        raise ValueError(f"node{node} has no {missing.args[0].decode('ascii', 'replace')}") from None


_ARC_SIZE: Final = re.compile(rb"^size +4 +(\d+)$", re.MULTILINE)
_SWAPPED: Final = re.compile(rb"^(pswpin|pswpout) +(\d+)$", re.MULTILINE)
_MODE: Final = re.compile(r"\[(always|defer\+madvise|defer|madvise|never)\]")


def parse_meminfo(
    at_s: float, meminfo: bytes, vmstat: bytes = b"", thp: bytes = b"", defrag: bytes = b"", arcstats: bytes = b""
) -> MemorySample:
    """Memory as the kernel counts it.

    Args:
        at_s: When the files were read.
        meminfo: Content of /proc/meminfo.
        vmstat: Content of /proc/vmstat; empty where it cannot be read.
        thp: Content of /sys/kernel/mm/transparent_hugepage/enabled; empty where it cannot be read.
        defrag: Content of …/transparent_hugepage/defrag; empty where it cannot be read.
        arcstats: Content of /proc/spl/kstat/zfs/arcstats; empty without ZFS.

    Returns:
        The sample, with the pool of the default huge page size only (meminfo has no other).

    Raises:
        ValueError: The content is not what the kernel writes: without MemTotal and MemFree there is no figure at all.
    """
    amounts = _amounts(meminfo)
    swapped = parse_vmstat(vmstat)
    cached = amounts.get(b"Cached")
    swap_total, swap_free = amounts.get(b"SwapTotal"), amounts.get(b"SwapFree")
    if swap_total is not None and swap_free is not None and swap_free > swap_total:
        # WSL 1 writes -n as 2^54 − n kB there.
        swap_free = None
    try:
        return MemorySample(
            at_s=at_s,
            total_bytes=amounts[b"MemTotal"],
            free_bytes=amounts[b"MemFree"],
            available_bytes=amounts.get(b"MemAvailable"),
            buffers_bytes=amounts.get(b"Buffers"),
            cached_bytes=None if cached is None else cached + amounts.get(b"SReclaimable", 0),
            shmem_bytes=amounts.get(b"Shmem"),
            dirty_bytes=amounts.get(b"Dirty"),
            writeback_bytes=amounts.get(b"Writeback"),
            page_tables_bytes=amounts.get(b"PageTables"),
            anon_huge_bytes=amounts.get(b"AnonHugePages"),
            shmem_huge_bytes=amounts.get(b"ShmemHugePages"),
            committed_bytes=amounts.get(b"Committed_AS"),
            commit_limit_bytes=amounts.get(b"CommitLimit"),
            swap_total_bytes=swap_total,
            swap_free_bytes=swap_free,
            swap_in_pages=swapped.get("pswpin"),
            swap_out_pages=swapped.get("pswpout"),
            thp_mode=parse_thp(thp),
            huge_pages=_default_pool(amounts),
            thp_defrag=parse_thp(defrag),
            file_huge_bytes=amounts.get(b"FileHugePages"),
            arc_bytes=_arc(arcstats, amounts[b"MemTotal"] - amounts[b"MemFree"]),
        )
    except KeyError as missing:
        raise ValueError(f"/proc/meminfo has no {missing.args[0].decode()}") from None


def _arc(arcstats: bytes, most: int) -> int | None:
    """Return the size of the cache of ZFS; None for one that does not fit into this memory: it is another machine's."""
    line = _ARC_SIZE.search(arcstats)
    size = None if line is None else unsigned(line[1])
    return size if size is not None and size <= most else None


def parse_vmstat(vmstat: bytes) -> dict[str, int]:
    """Pages swapped since boot: `pswpin` and `pswpout`, where present.

    Raises:
        ValueError: A number is out of range.
    """
    return {name.decode("ascii"): unsigned(pages) for name, pages in _SWAPPED.findall(vmstat)}


def parse_thp(enabled: bytes) -> str:
    """The mode in brackets: "always", "madvise", "never", "defer" or "defer+madvise"; "" when there is none."""
    found = _MODE.search(enabled.decode("ascii", "replace"))
    return found.group(1) if found else ""


def _amounts(meminfo: bytes) -> dict[bytes, int]:
    """Every line of meminfo; kilobytes become bytes, plain counts stay."""
    amounts: dict[bytes, int] = {}
    for line in meminfo.split(b"\n"):
        name, colon, rest = line.partition(b":")
        words = rest.split()
        if colon and words:
            amounts[name] = unsigned(words[0]) * (1024 if words[1:] == [b"kB"] else 1)
    return amounts


def _default_pool(amounts: Mapping[bytes, int]) -> tuple[HugePages, ...]:
    """Empty where the kernel was built without huge pages, or does not tell of them."""
    names = (b"Hugepagesize", b"HugePages_Total", b"HugePages_Free", b"HugePages_Rsvd", b"HugePages_Surp")
    counts = [amounts[name] for name in names if name in amounts]
    return (HugePages(*counts),) if len(counts) == len(names) else ()
