"""Fields of psutil by field of a frame, and the figures that psutil does not have. Tables, no psutil.

Sources: psutil's documentation, and its code for each system where the documentation does not say what is counted.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

from msgspec import Struct

from pgtop_tune.host.block_devices import BlockDevices
from pgtop_tune.model.absence import Reason, Unavailable
from pgtop_tune.model.host import UntoldFigure

SOURCE: Final = "psutil"
LINUX: Final = "linux"
_MACOS: Final = "darwin"
_FREEBSD: Final = "freebsd"


class PsutilField(Struct, frozen=True):
    """A field of a frame.

    Attributes:
        field: Field of the struct.
        key: Field of psutil's tuple.
        metrics: Ids of the figures that are unknown without it.
    """

    field: str
    key: str
    metrics: tuple[str, ...] = ()


CPU_TIMES: Final = (
    PsutilField("user_ticks", "user"),
    PsutilField("nice_ticks", "nice"),
    PsutilField("system_ticks", "system"),
    PsutilField("idle_ticks", "idle"),
    PsutilField("iowait_ticks", "iowait", ("host.cpu.iowait",)),
    PsutilField("irq_ticks", "irq", ("host.cpu.irq", "host.cpu.hardirq")),
    PsutilField("softirq_ticks", "softirq", ("host.cpu.softirq",)),
    PsutilField("steal_ticks", "steal", ("host.cpu.steal",)),
    PsutilField("guest_ticks", "guest", ("host.cpu.guest",)),
    PsutilField("guest_nice_ticks", "guest_nice"),
)
CPU_STATS: Final = (
    PsutilField("context_switches", "ctx_switches", ("host.context_switches",)),
    PsutilField("interrupts", "interrupts", ("host.interrupts",)),
)
MEMORY: Final = (
    PsutilField("total_bytes", "total"),
    PsutilField("free_bytes", "free"),
    PsutilField("available_bytes", "available", ("host.memory.available",)),
    PsutilField("buffers_bytes", "buffers", ("host.memory.cache",)),
    PsutilField("cached_bytes", "cached", ("host.memory.cache",)),
    PsutilField("shmem_bytes", "shared", ("host.memory.shared", "host.memory.cache")),
)
SWAP: Final = (
    PsutilField("swap_in_pages", "sin", ("host.swap.in",)),
    PsutilField("swap_out_pages", "sout", ("host.swap.out",)),
)
DISK: Final = (
    PsutilField("reads", "read_count"),
    PsutilField("read_bytes", "read_bytes"),
    PsutilField("read_ms", "read_time", ("host.disk.read_await",)),
    PsutilField("writes", "write_count"),
    PsutilField("write_bytes", "write_bytes"),
    PsutilField("write_ms", "write_time", ("host.disk.write_await",)),
    PsutilField("busy_ms", "busy_time", ("host.disk.busy",)),
)
INTERFACE: Final = (
    PsutilField("received_bytes", "bytes_recv"),
    PsutilField("received_packets", "packets_recv"),
    PsutilField("received_errors", "errin"),
    PsutilField("received_drops", "dropin"),
    PsutilField("sent_bytes", "bytes_sent"),
    PsutilField("sent_packets", "packets_sent"),
    PsutilField("sent_errors", "errout"),
    PsutilField("sent_drops", "dropout"),
)
PROCESS_IO: Final = (
    PsutilField("read_bytes", "read_bytes", ("host.process.read_bytes",)),
    PsutilField("write_bytes", "write_chars", ("host.process.write_bytes",)),
)

MISLEADING: Final[Mapping[tuple[str, str], str]] = {
    (_MACOS, "sin"): "macOS includes pages read from any file, not only from swap",
    (_MACOS, "sout"): "macOS includes pages written to any file, not only to swap",
    (_FREEBSD, "sin"): "psutil adds pages swapped in and out on FreeBSD",
    (_FREEBSD, "sout"): "psutil counts file pages on FreeBSD",
    (_FREEBSD, "cached"): "FreeBSD does not count cached pages since version 12",
}
"""Fields that psutil has on a system, with numbers that mean something else: they are not taken."""

_NO_COUNT: Final = "psutil does not report this figure: only Linux's /proc has it"
NEVER: Final = tuple(
    UntoldFigure(metric, reason)
    for reason, metrics in {
        "psutil does not report the number of runnable tasks": ("host.run_queue",),
        "psutil does not report the number of tasks that wait for a disk": ("host.blocked",),
        "psutil does not report requests in progress": ("host.disk.queue",),
        "other programs are searched for in Linux's /proc only": ("host.process.other",),
        "psutil does not report the run-queue wait (schedstat)": (
            "host.process.run_delay", "waits.cpu_queue",
        ),
        "psutil does not report huge pages": (
            "host.huge_pages.total", "host.huge_pages.free", "host.huge_pages.used", "host.huge_pages.reserved",
            "host.huge.surplus", "host.memory.anon_huge", "host.memory.shmem_huge", "host.memory.file_huge",
        ),
        _NO_COUNT: (
            "host.memory.dirty", "host.memory.writeback", "host.memory.page_tables", "host.memory.committed",
            "host.memory.commit_limit",
        ),
    }.items()
    for metric in metrics
)  # fmt: skip


def _absent(figures: str) -> Unavailable:
    return Unavailable(Reason.NOT_SUPPORTED, f"psutil does not report {figures}")


NO_PRESSURE: Final = _absent("pressure: only the Linux kernel counts it, in /proc/pressure")
NO_NUMA: Final = _absent("memory per NUMA node")
NO_FREQUENCY: Final = _absent("CPU governor and maximum frequency on every system")
NO_CGROUP: Final = _absent("control group limits")
NO_CGROUPS_HERE: Final = Unavailable(Reason.NOT_SUPPORTED, "only Linux has control groups")
LIMITS_OF_LINUX: Final = tuple(
    UntoldFigure(metric, str(NO_CGROUP)) for metric in ("host.cgroup.memory_max", "host.cgroup.cpus")
)
"""Without them the machine's memory and processors may be more than the server has."""
NO_SETUP: Final = _absent("hardware models, active mount options and operating system settings")
NO_DETAILS: Final = _absent("operating system settings")

STATES: Final[Mapping[str, str]] = {
    "running": "R", "sleeping": "S", "disk-sleep": "D", "stopped": "T", "tracing-stop": "t", "zombie": "Z",
    "dead": "X", "idle": "I", "waiting": "S", "locked": "S", "parked": "P", "wake-kill": "S", "waking": "R",
}  # fmt: skip
"""Process.status() → the letter of proc_pid_stat(5); FreeBSD's "waiting" and "locked" are sleeps."""


def system(platform: str) -> str:
    """Return sys.platform without a version: "freebsd14" is "freebsd"."""
    return platform.rstrip("0123456789.")


def fields_of(rows: Sequence[PsutilField], answer: Any, platform: str) -> dict[str, Any]:
    """Return our fields from psutil's tuple; None for a field that this system lacks, or that means something else on
    it.

    Args:
        rows: One of the tables above.
        answer: The tuple that psutil returned.
        platform: See `system`.
    """
    values: dict[str, Any] = answer._asdict()
    return {
        row.field: None if (platform, row.key) in MISLEADING else _counted(values.get(row.key)) for row in rows
    }  # fmt: skip


def _counted(value: Any) -> Any:
    """Return the value, or None for the -1 of FreeBSD's io_counters(): not counted."""
    return None if value is None or value < 0 else value


def untold(rows: Sequence[PsutilField], answer: Any, platform: str, call: str) -> list[UntoldFigure]:
    """Return the figures that are unknown because psutil does not have their fields here.

    Args:
        rows: One of the tables above.
        answer: The tuple that psutil returned; None where it has no such call.
        platform: See `system`.
        call: The call, for the reason: "cpu_times".
    """
    values = {} if answer is None else answer._asdict()
    figures: dict[str, UntoldFigure] = {}
    for row in rows:
        reason = MISLEADING.get((platform, row.key), "")
        if not reason and _counted(values.get(row.key)) is None:
            reason = f"psutil has no {row.key} in {call}() on this system"
        figures |= {metric: UntoldFigure(metric, reason) for metric in row.metrics if reason and metric not in figures}
    return list(figures.values())


_STACKED: Final = re.compile(r"(dm-|md|bcache)\d")


def whole_disks(names: Collection[str]) -> BlockDevices:
    """Return disks and partitions, told apart by their names: a partition is named after its disk, with "p" after a
    digit."""
    partitions = {name for name in names if _disk_of(name) in names}
    return BlockDevices(
        whole_disks=frozenset(names) - partitions, stacked=frozenset(name for name in names if _STACKED.match(name))
    )


_PARTITION: Final = re.compile(r"(.*\D)\d+|(.*\d)p\d+")


def _disk_of(name: str) -> str:
    """Return the disk of a partition: sda1 → sda, nvme0n1p2 → nvme0n1; "" for a name of another form."""
    match = _PARTITION.fullmatch(name)
    if match is None:
        return ""
    disk = match[2] or match[1]
    # nvme0n1p2 fits both: the "p" is not part of the name of a disk that ends in a digit.
    return disk.removesuffix("p") if re.search(r"\dp$", disk) else disk


_SLICE: Final = re.compile(r"(disk\d+|[a-z]+\d+)(?:s\d+|p\d+)[a-z0-9]*")
"""Slice of a disk of macOS (disk0s2) or FreeBSD (ada0p2, da0s1a), of which psutil counts the whole disk."""


def disk_under(node: str, names: Collection[str]) -> str:
    """Return the disk that psutil counts for a device of a mount: "/dev/vda1" → "vda"; "" where there is none."""
    name = node.removeprefix("/dev/")
    candidates = (_disk_of(name), name, match[1] if (match := _SLICE.fullmatch(name)) else "")
    return next((name for name in candidates if name and name in names), "")
