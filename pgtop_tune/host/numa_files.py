"""/sys/devices/system/node/nodeN/{meminfo,numastat}. Source: numastat.rst, sysfs-devices-node of the kernel."""

from __future__ import annotations

import re
from typing import Final

from pgtop_tune.host.counters import unsigned
from pgtop_tune.model.numa import NumaNode

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
            file_bytes=amounts[b"FilePages"],
            anon_bytes=amounts[b"AnonPages"],
            shmem_bytes=amounts[b"Shmem"],
            dirty_bytes=amounts[b"Dirty"],
            huge_pages=amounts.get(b"HugePages_Total", 0),
            huge_pages_free=amounts.get(b"HugePages_Free", 0),
            hit_pages=pages[b"numa_hit"],
            miss_pages=pages[b"numa_miss"],
            foreign_pages=pages[b"numa_foreign"],
        )
    except KeyError as missing:
        raise ValueError(f"node{node} has no {missing.args[0].decode('ascii', 'replace')}") from None
