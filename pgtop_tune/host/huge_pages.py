"""Pools of huge pages. Source: Documentation/admin-guide/mm/hugetlbpage.rst, /sys/kernel/mm/hugepages."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

from pgtop_tune.host.counters import unsigned
from pgtop_tune.host.proc_files import KeptFile
from pgtop_tune.model.host import HugePages

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
