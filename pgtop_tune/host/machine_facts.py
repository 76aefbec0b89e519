"""What advice on the operating system stands on and no frame has. Sources: /proc/meminfo, /sys/devices/system/node."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from msgspec import Struct

from pgtop_tune.host.memory_files import parse_meminfo
from pgtop_tune.host.proc_files import read_once
from pgtop_tune.host.system_settings import default_page_bytes

_NODES: Final = "sys/devices/system/node"
_NODE: Final = re.compile(r"node\d+")


class MachineFacts(Struct, frozen=True):
    """A machine; None where it is not known.

    Attributes:
        ram_bytes: MemTotal.
        swap_bytes: SwapTotal.
        huge_page_bytes: The default size of huge pages.
        numa_nodes: How many there are; 1 in a kernel without NUMA.
    """

    ram_bytes: int | None
    swap_bytes: int | None
    huge_page_bytes: int | None
    numa_nodes: int


def machine_facts(root: Path) -> MachineFacts:
    """What this machine has.

    Args:
        root: Where /proc and /sys are found.
    """
    try:
        memory = parse_meminfo(0.0, read_once(root / "proc/meminfo"))
    except (OSError, ValueError):
        memory = None
    return MachineFacts(
        ram_bytes=None if memory is None else memory.total_bytes,
        swap_bytes=None if memory is None else memory.swap_total_bytes,
        huge_page_bytes=default_page_bytes(root),
        numa_nodes=max(sum(1 for path in (root / _NODES).glob("node*") if _NODE.fullmatch(path.name)), 1),
    )
