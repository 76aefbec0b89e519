"""/proc/meminfo, swap traffic of /proc/vmstat, huge pages. Source: Documentation/filesystems/proc.rst, meminfo."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from pgtop_tune.host.counters import unsigned
from pgtop_tune.model.host import HugePages, MemorySample

_SWAPPED: Final = re.compile(rb"^(pswpin|pswpout) +(\d+)$", re.MULTILINE)
_MODE: Final = re.compile(r"\[(always|defer\+madvise|defer|madvise|never)\]")


def parse_meminfo(
    at_s: float, meminfo: bytes, vmstat: bytes = b"", thp: bytes = b"", defrag: bytes = b""
) -> MemorySample:
    """Memory as the kernel counts it.

    Args:
        at_s: When the files were read.
        meminfo: Content of /proc/meminfo.
        vmstat: Content of /proc/vmstat; empty where it cannot be read.
        thp: Content of /sys/kernel/mm/transparent_hugepage/enabled; empty where it cannot be read.
        defrag: Content of …/transparent_hugepage/defrag; empty where it cannot be read.

    Returns:
        The sample, with the pool of the default huge page size only (meminfo has no other).

    Raises:
        ValueError: The content is not what the kernel writes.
    """
    amounts = _amounts(meminfo)
    swapped = parse_vmstat(vmstat)
    try:
        return MemorySample(
            at_s=at_s,
            total_bytes=amounts[b"MemTotal"],
            free_bytes=amounts[b"MemFree"],
            available_bytes=amounts.get(b"MemAvailable"),
            buffers_bytes=amounts[b"Buffers"],
            cached_bytes=amounts[b"Cached"] + amounts.get(b"SReclaimable", 0),
            shmem_bytes=amounts[b"Shmem"],
            dirty_bytes=amounts[b"Dirty"],
            writeback_bytes=amounts[b"Writeback"],
            page_tables_bytes=amounts[b"PageTables"],
            anon_huge_bytes=amounts.get(b"AnonHugePages"),
            shmem_huge_bytes=amounts.get(b"ShmemHugePages"),
            committed_bytes=amounts[b"Committed_AS"],
            commit_limit_bytes=amounts[b"CommitLimit"],
            swap_total_bytes=amounts[b"SwapTotal"],
            swap_free_bytes=amounts[b"SwapFree"],
            swap_in_pages=swapped.get("pswpin"),
            swap_out_pages=swapped.get("pswpout"),
            thp_mode=parse_thp(thp),
            huge_pages=_default_pool(amounts),
            thp_defrag=parse_thp(defrag),
            file_huge_bytes=amounts.get(b"FileHugePages"),
        )
    except KeyError as missing:
        raise ValueError(f"/proc/meminfo has no {missing.args[0].decode()}") from None


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
    """Empty where the kernel was built without huge pages."""
    if b"Hugepagesize" not in amounts:
        return ()
    return (
        HugePages(
            page_bytes=amounts[b"Hugepagesize"],
            total=amounts[b"HugePages_Total"],
            free=amounts[b"HugePages_Free"],
            reserved=amounts[b"HugePages_Rsvd"],
            surplus=amounts[b"HugePages_Surp"],
        ),
    )
