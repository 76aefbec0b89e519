"""Disks that carry a directory of the server (partitions, LVM, md and btrfs resolved down to whole disks), and their
queues.

Sources: Documentation/ABI/stable/sysfs-block (slaves, partition), Documentation/admin-guide/devices.rst,
/sys/dev/block, /sys/fs/btrfs, proc_pid_mountinfo(5).
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from pgtop_tune.base.errors import UsageProblem
from pgtop_tune.base.units import SIZES, quantity
from pgtop_tune.host.kernel_text import entries_of, file_text
from pgtop_tune.model.absence import Reason, Unavailable
from pgtop_tune.model.host import DiskCounters
from pgtop_tune.model.machine import NOWHERE_ELSE, Disk, ServerPlaces
from pgtop_tune.process.mount_namespace import NETWORK_KINDS, Mount, MountNamespace, mount_of, namespace_of
from pgtop_tune.process.path_looks import NO_ANSWER

P = TypeVar("P")

ROOT: Final = Path("/")

_OVERLAYS_DEEP: Final = 3
_NO_DISK: Final = {
    "tmpfs": "in memory, not on a disk",
    "ramfs": "in memory, not on a disk",
    "zfs": "ZFS does not report its disks; use zpool iostat to watch the pool",
    "overlay": "a container layer; put the directory on a volume to see its disk",
    "fuse.fuse-overlayfs": "a container layer; put the directory on a volume to see its disk",
}


class Roles(Struct, frozen=True):
    """Devices by what the server keeps on them.

    Attributes:
        devices: Roles per name in /proc/diskstats: the volume a directory lies on and every whole disk below it.
        unplaced: "wal: …why its device is not known…", one line per directory without a device.
    """

    devices: Mapping[str, tuple[str, ...]]
    unplaced: tuple[str, ...] = ()


def server_directories(data_directory: str, places: ServerPlaces = NOWHERE_ELSE) -> dict[str, str]:
    """Return the directories of a server by role.

    Args:
        data_directory: As SHOW data_directory has it.
        places: Directories outside the data directory. Several temporary tablespaces are "temp", "temp 2", …
    """
    directories = {"data": data_directory, "wal": os.path.join(data_directory, "pg_wal")}
    located = dict(places.tablespaces)
    temporary = [located[name] for name in places.temp_tablespaces if name in located]
    directories |= {
        f"temp {number}" if number > 1 else "temp": directory for number, directory in enumerate(temporary, 1)
    }
    directories |= {f"tablespace {name}": directory for name, directory in places.tablespaces}
    return directories | ({"log": places.log_directory} if places.log_directory else {})


def roles_of(directories: Mapping[str, str], sys_root: Path = ROOT, namespace: MountNamespace | None = None) -> Roles:
    """Find the devices of every directory.

    Looks at directories, and waits for one that does not answer: make the call off the event loop.

    Args:
        directories: Role → absolute path.
        sys_root: Where /proc and /sys are found; the directories themselves are taken as they are.
        namespace: The server's mounts; None for ours.
    """
    placed: list[tuple[str, str]] = []
    unplaced: list[str] = []
    for role, directory in directories.items():
        names = carriers(directory, sys_root, namespace)
        if isinstance(names, Unavailable):
            unplaced.append(f"{role}: {names}")
        else:
            placed += [(role, name) for name in names]
    return Roles(by_place(placed), tuple(unplaced))


def by_place(placed: Iterable[tuple[str, P | None]]) -> dict[P, tuple[str, ...]]:
    """Return the roles of each device or mount, in the order given; a role whose place is unknown is left out."""
    roles: dict[P, tuple[str, ...]] = {}
    for role, location in placed:
        if location is not None:
            roles[location] = (*roles.get(location, ()), role)
    return roles


def carriers(
    directory: str, sys_root: Path = ROOT, namespace: MountNamespace | None = None
) -> tuple[str, ...] | Unavailable:
    """Return the block devices under a directory: the volume or whole disk first, then the disks that a volume is made
    of."""
    return _carriers(directory, namespace or namespace_of(None, sys_root), sys_root, _OVERLAYS_DEEP)


def _carriers(
    directory: str, namespace: MountNamespace, sys_root: Path, overlays_left: int
) -> tuple[str, ...] | Unavailable:
    real = namespace.real_path(directory)
    if real is None or namespace.top is None:
        return not_readable(directory)
    mount = mount_of(real, namespace.mounts)
    if mount is not None and mount.kind in NETWORK_KINDS:
        return Unavailable(Reason.NOT_SUPPORTED, on_network(mount))
    try:
        device = namespace.stat(real).st_dev
    except PermissionError:
        return not_readable(directory)
    except TimeoutError:
        on = f" ({mount.kind} at {mount.point})" if mount is not None else ""
        return Unavailable(Reason.NO_ANSWER, f"{directory}{on} {NO_ANSWER}")
    except OSError as problem:
        return Unavailable(Reason.FAILED, f"{directory}: {problem.strerror or problem}")
    number = sys_root / f"sys/dev/block/{os.major(device)}:{os.minor(device)}"
    if number.exists():
        return _names_below(number.resolve())
    if mount is None:
        return Unavailable(Reason.FAILED, f"{directory}: neither {number} nor its mount was found")
    upper = next((option[9:] for option in mount.options if option.startswith("upperdir=")), "")
    if upper and overlays_left:
        below = _carriers(upper, namespace, sys_root, overlays_left - 1)
        if not isinstance(below, Unavailable):
            return below
    names = _names_of_sources(mount, sys_root)
    if names:
        return names
    reason = _NO_DISK.get(mount.kind, "it has no block device")
    return Unavailable(Reason.NOT_SUPPORTED, f"{directory} is on {mount.kind}: {reason}")


def not_readable(directory: str) -> Unavailable:
    """Return the absence of a directory that this process may not look at."""
    return Unavailable(Reason.NO_PERMISSION, f"{directory} is not readable; run as the server's user or root")


def on_network(mount: Mount) -> str:
    """Return the reason why a mount of another machine's disks has none here."""
    return f"on {mount.kind} ({mount.source}), whose disks belong to another machine"


def _names_below(device: Path) -> tuple[str, ...]:
    """Return the whole disk or volume of a directory of /sys/devices, then the disks that it is made of; no
    name twice."""
    if (device / "partition").exists():
        device = device.parent
    below = [name for slave in entries_of(device / "slaves") for name in _names_below(slave.resolve())]
    return tuple(dict.fromkeys((_kernel_name(device), *below)))


def _names_of_sources(mount: Mount, sys_root: Path) -> tuple[str, ...]:
    """Return the devices that a file system without a device number of its own (btrfs, bcachefs)
    names as its source."""
    nodes = [_node(source, sys_root) for source in mount.source.split(":") if source.startswith("/dev/")]
    blocks = sys_root / "sys/class/block"
    for members in entries_of(sys_root / "sys/fs/btrfs"):
        present = [entry.name for entry in entries_of(members / "devices")]
        if any(node in present for node in nodes):
            nodes.extend(present)
    names = [name for node in nodes if (blocks / node).exists() for name in _names_below((blocks / node).resolve())]
    return tuple(dict.fromkeys(names))


def _node(source: str, sys_root: Path) -> str:
    """Return the kernel's name of a device file: /dev/sda1 → sda1, /dev/mapper/vg-data → dm-0."""
    name = source.rpartition("/")[2]
    for volume in entries_of(sys_root / "sys/class/block"):
        if volume.name.startswith("dm-") and file_text(volume / "dm/name") == name:
            return volume.name
    return name


class BlockDevices(Struct, frozen=True):
    """Names of /proc/diskstats by kind.

    Attributes:
        whole_disks: Everything but partitions.
        stacked: Devices made of other devices: LVM, dm-crypt, md, bcache.
    """

    whole_disks: frozenset[str]
    stacked: frozenset[str]


def block_devices(sys_root: Path = ROOT) -> BlockDevices:
    """Return the devices of /sys/block; none where sysfs cannot be read."""
    present = entries_of(sys_root / "sys/block")
    return BlockDevices(
        whole_disks=frozenset(map(_kernel_name, present)),
        stacked=frozenset(_kernel_name(device) for device in present if entries_of(device / "slaves")),
    )


def _kernel_name(device: Path) -> str:
    return device.name.replace("!", "/")


def sysfs_name(name: str) -> str:
    """Return the name of a device in sysfs, which writes the slash of cciss/c0d0 as an exclamation mark."""
    return name.replace("/", "!")


# The queues of the disks under the server's directories: their settings, and what kind of disk it is.
#
# Source: Documentation/ABI/stable/sysfs-block (queue/scheduler, read_ahead_kb, nr_requests, rotational).
#
# Limits of a disk that the operator states: "vda=6000iops,90MB/s".

_REQUESTS: Final = {"iops": 1.0, "kiops": 1e3}
_BYTES: Final = {f"{unit}/s".lower(): size for unit, size in SIZES.items()}
_HINT: Final = "for example --disk-cap vda=6000iops,90MB/s"


class DiskCap(Struct, frozen=True):
    """Limits of a device, as the operator states them; None where nothing is stated.

    Attributes:
        device: Name in /proc/diskstats.
        iops: Requests per second, reads and writes together.
        bytes_per_s: Reads and writes together.
    """

    device: str
    iops: float | None
    bytes_per_s: float | None


def parse_disk_cap(text: str) -> DiskCap:
    """Return a device and its limits: "nvme1n1=16000iops", "vda=6000iops,90MB/s"; MB is 10^6 bytes, MiB 2^20.

    Raises:
        UsageProblem: The text is of another form.
    """
    device, equals, limits = text.strip().partition("=")
    name = device.strip().removeprefix("/dev/")
    if not equals or not re.fullmatch(r"[\w!/.-]{1,64}", name, re.ASCII):
        raise UsageProblem(f"{text!r} is not DEVICE=LIMIT", _HINT)
    values: dict[bool, float] = {}
    for limit in limits.split(","):
        typed = limit.strip().lower()
        is_iops = typed.endswith("iops")
        if not (value := quantity(typed, _REQUESTS if is_iops else _BYTES)):
            raise UsageProblem(f"{limit.strip()!r} is not a disk limit", _HINT)
        if is_iops in values:
            raise UsageProblem(f"{text!r} gives the same limit twice", _HINT)
        values[is_iops] = value
    return DiskCap(name, values.get(True), values.get(False))


def with_cap(disk: DiskCounters, caps: Mapping[str, DiskCap]) -> DiskCounters:
    """Return the device with the limits that the operator states for its name."""
    cap = caps.get(disk.name)
    return disk if cap is None else replace(disk, cap_iops=cap.iops, cap_bytes_per_s=cap.bytes_per_s)


QUEUE_SETTINGS: Final = ("scheduler", "read_ahead_kb", "nr_requests")


def disks(names: Iterable[str], root: Path) -> tuple[Disk, ...]:
    """Return the named devices that have a queue, in the order given.

    Args:
        names: Names in /proc/diskstats, as `carriers` returns them.
        root: Where /sys is found.
    """
    return tuple(_disk(name, root) for name in dict.fromkeys(names) if queue(name, root).is_dir())


def queue(name: str, root: Path) -> Path:
    """Return the directory of a device's queue."""
    return root / "sys/block" / sysfs_name(name) / "queue"


def _disk(name: str, root: Path) -> Disk:
    rotational = file_text(queue(name, root) / "rotational")
    return Disk(
        name=name,
        rotational={"0": False, "1": True}.get(rotational),
        nvme=name.startswith("nvme"),
        virtual=name.startswith(("vd", "xvd")),
        stacked=any(entries_of(queue(name, root).parent / "slaves")),
    )
