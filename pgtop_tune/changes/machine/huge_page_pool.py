"""The number of huge pages that the kernel granted of those requested. Source:
Documentation/admin-guide/mm/hugetlbpage.rst.

Asking for more than there is room for is no error: the kernel gives what it finds in one piece. Asking for fewer than
are in use lets go of the free ones; those in use go when the last process has let go of them, "surplus" until then.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from pgtop_tune.host.kernel_text import read_once
from pgtop_tune.host.memory_files import pool_paths
from pgtop_tune.host.system_settings import default_page_bytes
from pgtop_tune.model.host import HugePages

_SETTING: Final = re.compile(r"hugepages-(\d+)kB/nr_hugepages")


def pool_of(name: str, root: Path) -> HugePages | None:
    """The pool a setting is about, as it is now; None for other settings and where it cannot be read."""
    match = _SETTING.fullmatch(name)
    page_bytes = int(match[1]) * 1024 if match else default_page_bytes(root) if name == "vm.nr_hugepages" else None
    if not page_bytes:
        return None
    try:
        return HugePages(page_bytes, *(int(read_once(root / path)) for path in pool_paths(page_bytes)))
    except (OSError, ValueError):
        return None


def pages_in_words(wanted: str, shown: str, pool: HugePages) -> str:
    """Why a pool does not have the number of pages asked for; "" when it has."""
    pages = int(wanted)
    if pool.surplus:
        return f"{pool.surplus} more pages are in use; the kernel frees them when their last process ends"
    if not shown.isdecimal() or int(shown) == pages:
        return ""
    if int(shown) > pages:
        return f"{shown} of the pages are in use: the pool cannot shrink now"
    return (
        f"the kernel found room for {shown} of {pages} pages: memory is fragmented. Free some (echo 1 into "
        "/proc/sys/vm/compact_memory) and try again, or reserve them at boot"
    )
