"""The queues of the disks under the server's directories: their settings, and what kind of disk it is.

Source: Documentation/ABI/stable/sysfs-block (queue/scheduler, read_ahead_kb, nr_requests, rotational).
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Final

from msgspec import Struct

from pgtop_tune.host.kernel_text import entries_of, text_of

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
