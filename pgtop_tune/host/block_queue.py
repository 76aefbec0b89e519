"""The queues of the disks under the server's directories: their settings, and what kind of disk it is.

Source: Documentation/ABI/stable/sysfs-block (queue/scheduler, read_ahead_kb, nr_requests, rotational).

What the operator says a disk can do at most: "vda=6000iops,90MB/s".
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from pgtop_tune.errors import UsageProblem
from pgtop_tune.host.kernel_text import entries_of, text_of
from pgtop_tune.model.host import DiskCounters

_LIMIT: Final = re.compile(r"(\d+(?:\.\d+)?)\s*(k?iops|[kmg]i?b/s)", re.IGNORECASE)
_SCALE: Final = {"iops": 1.0, "kiops": 1e3, "kb/s": 1e3, "mb/s": 1e6, "gb/s": 1e9,
                 "kib/s": 2.0**10, "mib/s": 2.0**20, "gib/s": 2.0**30}  # fmt: skip
_HINT: Final = "for example --disk-cap vda=6000iops,90MB/s"


class DiskCap(Struct, frozen=True):
    """The most a device does; None where nothing is said.

    Attributes:
        device: Name in /proc/diskstats.
        iops: Requests per second, reads and writes together.
        bytes_per_s: Reads and writes together.
    """

    device: str
    iops: float | None
    bytes_per_s: float | None


def parse_disk_cap(text: str) -> DiskCap:
    """One device and its limits: "nvme1n1=16000iops", "vda=6000iops,90MB/s"; MB is 10^6 bytes, MiB 2^20.

    Raises:
        UsageProblem: The text is of another form.
    """
    device, equals, limits = text.strip().partition("=")
    name = device.strip().removeprefix("/dev/")
    if not equals or not re.fullmatch(r"[\w!/.-]{1,64}", name, re.ASCII):
        raise UsageProblem(f"{text!r} is not DEVICE=LIMIT", _HINT)
    found: dict[bool, float] = {}
    for limit in limits.split(","):
        match = _LIMIT.fullmatch(limit.strip())
        if match is None or not (value := float(match[1]) * _SCALE[match[2].lower()]):
            raise UsageProblem(f"{limit.strip()!r} is no limit of a disk", _HINT)
        is_iops = match[2].lower().endswith("iops")
        if is_iops in found:
            raise UsageProblem(f"{text!r} says the same limit twice", _HINT)
        found[is_iops] = value
    return DiskCap(name, found.get(True), found.get(False))


def with_cap(disk: DiskCounters, caps: Mapping[str, DiskCap]) -> DiskCounters:
    """The device with what was said of it, by name."""
    cap = caps.get(disk.name)
    return disk if cap is None else replace(disk, cap_iops=cap.iops, cap_bytes_per_s=cap.bytes_per_s)


QUEUE_SETTINGS: Final = ("scheduler", "read_ahead_kb", "nr_requests")


class Disk(Struct, frozen=True):
    """A device with a queue of its own.

    Attributes:
        name: As in /proc/diskstats.
        rotational: Whether the kernel takes it for a turning disk; None where it does not say. Virtual disks often
            say so wrongly.
        nvme: Whether it is an NVMe namespace.
        virtual: Whether a hypervisor's device is behind it: its host has a queue as well.
        stacked: Whether it is made of others (LVM, md): requests are ordered below.
    """

    name: str
    rotational: bool | None
    nvme: bool
    virtual: bool
    stacked: bool


def disks(names: Iterable[str], root: Path) -> tuple[Disk, ...]:
    """The named devices that have a queue, in the order given.

    Args:
        names: As in /proc/diskstats: of `block_devices.carriers`.
        root: Where /sys is found.
    """
    return tuple(_disk(name, root) for name in dict.fromkeys(names) if queue(name, root).is_dir())


def queue(name: str, root: Path) -> Path:
    """The directory of a device's queue; a slash in a name is an exclamation mark in sysfs."""
    return root / "sys/block" / name.replace("/", "!") / "queue"


def _disk(name: str, root: Path) -> Disk:
    rotational = text_of(queue(name, root) / "rotational")
    return Disk(
        name=name,
        rotational={"0": False, "1": True}.get(rotational),
        nvme=name.startswith("nvme"),
        virtual=name.startswith(("vd", "xvd")),
        stacked=any(entries_of(queue(name, root).parent / "slaves")),
    )
