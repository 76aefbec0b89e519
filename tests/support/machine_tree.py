"""A made-up machine: the kernel's files and /etc in a directory of the test's own."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

THP = "sys/kernel/mm/transparent_hugepage"
USUAL: Mapping[str, str] = {
    "proc/meminfo": "MemTotal:       65536000 kB\nHugepagesize:       2048 kB\n",
    "proc/cmdline": "BOOT_IMAGE=/vmlinuz root=/dev/vda1 ro quiet\n",
    "proc/sys/kernel/random/boot_id": "5f1c7c5e-0000-4000-8000-000000000001\n",
    "proc/sys/kernel/numa_balancing": "1\n",
    "proc/sys/kernel/sched_autogroup_enabled": "1\n",
    "proc/sys/vm/nr_hugepages": "0\n",
    "proc/sys/vm/swappiness": "60\n",
    "proc/sys/vm/dirty_background_bytes": "0\n",
    "proc/sys/vm/dirty_background_ratio": "10\n",
    "proc/sys/vm/dirty_bytes": "0\n",
    "proc/sys/vm/dirty_ratio": "20\n",
    "proc/sys/vm/dirty_expire_centisecs": "3000\n",
    "proc/sys/vm/dirty_writeback_centisecs": "500\n",
    "proc/sys/vm/overcommit_memory": "0\n",
    "proc/sys/vm/overcommit_ratio": "50\n",
    "proc/sys/vm/overcommit_kbytes": "0\n",
    "proc/sys/vm/min_free_kbytes": "67584\n",
    "proc/sys/vm/zone_reclaim_mode": "0\n",
    f"{THP}/enabled": "[always] madvise never\n",
    f"{THP}/defrag": "always defer defer+madvise [madvise] never\n",
    f"{THP}/khugepaged/defrag": "1\n",
    "sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages": "0\n",
    "sys/kernel/mm/hugepages/hugepages-1048576kB/nr_hugepages": "0\n",
    "sys/block/nvme0n1/queue/scheduler": "[none] mq-deadline\n",
    "sys/block/nvme0n1/queue/read_ahead_kb": "128\n",
    "sys/block/nvme0n1/queue/nr_requests": "1023\n",
    "sys/block/nvme0n1/queue/rotational": "0\n",
}


def write(root: Path, files: Mapping[str, str]) -> None:
    """Makes the files, and the directories they are in."""
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)


def snapshot(root: Path) -> dict[str, bytes]:
    """Every file there is and what it holds."""
    return {str(path.relative_to(root)): path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()}
