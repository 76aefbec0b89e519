"""Which disks carry a directory of the server's: partitions, LVM, md and btrfs resolved down to whole disks.

Sources: Documentation/ABI/stable/sysfs-block (slaves, partition), Documentation/admin-guide/devices.rst,
/sys/dev/block, /sys/fs/btrfs, proc_pid_mountinfo(5).
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from msgspec import Struct

from pgtop_tune.host.kernel_text import entries_of, text_of
from pgtop_tune.host.mounts import NETWORK_KINDS, Mount, mount_of, parse_mountinfo
from pgtop_tune.host.proc_files import read_once
from pgtop_tune.model.absence import Reason, Unavailable
from pgtop_tune.model.machine import NOWHERE_ELSE, ServerPlaces

ROOT: Final = Path("/")

_OVERLAYS_DEEP: Final = 3
_NO_DISK: Final = {
    "tmpfs": "in memory, without a disk to watch",
    "ramfs": "in memory, without a disk to watch",
    "zfs": "ZFS does not say which disks; watch the pool with zpool iostat",
    "overlay": "a container's own layer; put the directory on a volume to see its disk",
    "fuse.fuse-overlayfs": "a container's own layer; put the directory on a volume to see its disk",
}


class Roles(Struct, frozen=True):
    """What the server keeps where.

    Attributes:
        devices: Roles per name in /proc/diskstats: the volume a directory lies on and every whole disk below it.
        unplaced: "wal: …why its device is not known…", one line per directory without a device.
    """

    devices: Mapping[str, tuple[str, ...]]
    unplaced: tuple[str, ...] = ()


def server_directories(data_directory: str, places: ServerPlaces = NOWHERE_ELSE) -> dict[str, str]:
    """Role → directory of a server.

    Args:
        data_directory: As SHOW data_directory has it.
        places: What it keeps elsewhere. Several temporary tablespaces are "temp", "temp 2", …
    """
    directories = {"data": data_directory, "wal": os.path.join(data_directory, "pg_wal")}
    located = dict(places.tablespaces)
    temporary = [located[name] for name in places.temp_tablespaces if name in located]
    directories |= {f"temp {number}" if number > 1 else "temp": place for number, place in enumerate(temporary, 1)}
    directories |= {f"tablespace {name}": place for name, place in places.tablespaces}
    return directories | ({"log": places.log_directory} if places.log_directory else {})


def roles_of(directories: Mapping[str, str], sys_root: Path = ROOT) -> Roles:
    """Finds the devices of every directory.

    Looks into directories: a dead network mount can hold the call up where a symbolic link leads there; make it off
    the event loop.

    Args:
        directories: Role → absolute path.
        sys_root: Where /proc and /sys are found; the directories themselves are taken as they are.
    """
    devices: dict[str, tuple[str, ...]] = {}
    unplaced: list[str] = []
    for role, directory in directories.items():
        found = carriers(directory, sys_root)
        if isinstance(found, Unavailable):
            unplaced.append(f"{role}: {found}")
            continue
        for name in found:
            devices[name] = (*devices.get(name, ()), role)
    return Roles(devices, tuple(unplaced))


def carriers(directory: str, sys_root: Path = ROOT) -> tuple[str, ...] | Unavailable:
    """The block devices under a directory: the volume or whole disk first, then the disks a volume is made of."""
    try:
        mounts = parse_mountinfo(read_once(sys_root / "proc/self/mountinfo"))
    except OSError:
        mounts = ()
    return _carriers(directory, mounts, sys_root, _OVERLAYS_DEEP)


def _carriers(
    directory: str, mounts: Sequence[Mount], sys_root: Path, overlays_left: int
) -> tuple[str, ...] | Unavailable:
    far = _on_network(mount_of(directory, mounts))
    if far is not None:
        return far
    real = os.path.realpath(directory)
    mount = mount_of(real, mounts)
    far = _on_network(mount)
    if far is not None:
        return far
    try:
        device = os.stat(real).st_dev
    except PermissionError:
        return Unavailable(Reason.NO_PERMISSION, f"{directory} is closed to us; run as the server's user or root")
    except OSError as problem:
        return Unavailable(Reason.FAILED, f"{directory}: {problem.strerror or problem}")
    number = sys_root / f"sys/dev/block/{os.major(device)}:{os.minor(device)}"
    if number.exists():
        return _names_below(number.resolve())
    if mount is None:
        return Unavailable(Reason.FAILED, f"{directory}: no {number} and no mount that holds it")
    upper = next((option[9:] for option in mount.options if option.startswith("upperdir=")), "")
    if upper and overlays_left and os.path.isdir(upper):
        return _carriers(upper, mounts, sys_root, overlays_left - 1)
    names = _names_of_sources(mount, sys_root)
    if names:
        return names
    why = _NO_DISK.get(mount.kind, "there is no block device under it")
    return Unavailable(Reason.NOT_SUPPORTED, f"{directory} is on {mount.kind}: {why}")


def _on_network(mount: Mount | None) -> Unavailable | None:
    if mount is None or mount.kind not in NETWORK_KINDS:
        return None
    return Unavailable(Reason.NOT_SUPPORTED, f"on {mount.kind} ({mount.source}): its disks are another machine's")


def _names_below(device: Path) -> tuple[str, ...]:
    """The whole disk or volume of a directory of /sys/devices, then what that is made of; no name twice."""
    if (device / "partition").exists():
        device = device.parent
    below = [name for slave in entries_of(device / "slaves") for name in _names_below(slave.resolve())]
    return tuple(dict.fromkeys((_kernel_name(device), *below)))


def _names_of_sources(mount: Mount, sys_root: Path) -> tuple[str, ...]:
    """For a file system without a device number of its own (btrfs, bcachefs): the devices it names as its source."""
    nodes = [_node(source, sys_root) for source in mount.source.split(":") if source.startswith("/dev/")]
    blocks = sys_root / "sys/class/block"
    for members in entries_of(sys_root / "sys/fs/btrfs"):
        present = [entry.name for entry in entries_of(members / "devices")]
        if any(node in present for node in nodes):
            nodes.extend(present)
    names = [name for node in nodes if (blocks / node).exists() for name in _names_below((blocks / node).resolve())]
    return tuple(dict.fromkeys(names))


def _node(source: str, sys_root: Path) -> str:
    """Kernel name of a device file: /dev/sda1 → sda1, /dev/mapper/vg-data → dm-0."""
    name = source.rpartition("/")[2]
    for volume in entries_of(sys_root / "sys/class/block"):
        if volume.name.startswith("dm-") and text_of(volume / "dm/name") == name:
            return volume.name
    return name


class BlockDevices(Struct, frozen=True):
    """Names of /proc/diskstats by kind.

    Attributes:
        whole: Everything but partitions.
        stacked: Those made of other devices: LVM, dm-crypt, md, bcache.
    """

    whole: frozenset[str]
    stacked: frozenset[str]


def block_devices(sys_root: Path = ROOT) -> BlockDevices:
    """What /sys/block has now; empty where sysfs cannot be read."""
    present = entries_of(sys_root / "sys/block")
    return BlockDevices(
        whole=frozenset(map(_kernel_name, present)),
        stacked=frozenset(_kernel_name(device) for device in present if entries_of(device / "slaves")),
    )


def _kernel_name(device: Path) -> str:
    """sysfs writes the slash of names like cciss/c0d0 as an exclamation mark."""
    return device.name.replace("!", "/")
