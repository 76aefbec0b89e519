"""Which disks carry the server's directories, found out over SQL: no directory can be listed and no link followed, so
names are tried one by one. Sources as in `block_devices`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final

from msgspec import Struct

from pgtop_tune.host.block_devices import BlockDevices, Roles
from pgtop_tune.process.mount_namespace import NETWORK_KINDS, Mount, mount_of

ReadMany = Callable[[Sequence[str]], Awaitable[Mapping[str, bytes]]]
"""Contents by path (without the leading slash) of those files that are there."""

_DEVICES_MOST: Final = 512
_LAYERS_MOST: Final = 4
_LINKED: Final = "wal: over SQL it cannot be seen whether pg_wal is a symbolic link to another disk"


class DiskLayout(Struct, frozen=True):
    """What `choose_disks` needs to know."""

    devices: BlockDevices
    roles: Roles


async def layout_of(
    read: ReadMany, diskstats: bytes, mounts: Sequence[Mount], directories: Mapping[str, str]
) -> DiskLayout:
    """Whole disks and the roles of the server's directories, which are taken by their names.

    Args:
        read: See `ReadMany`.
        diskstats: Content of the server's /proc/diskstats.
        mounts: Of its /proc/self/mountinfo.
        directories: Role → absolute path.
    """
    words = [line.split(None, 3)[:3] for line in diskstats.split(b"\n") if len(line.split(None, 3)) > 3]
    numbers = {f"{major.decode()}:{minor.decode()}": name.decode("utf-8", "replace") for major, minor, name in words}
    names = tuple(numbers.values())[:_DEVICES_MOST]
    present = await read([_dev(name) for name in names])
    whole = frozenset(name for name in names if _dev(name) in present)
    tree = _Tree(read, names, whole)
    roles: dict[str, tuple[str, ...]] = {}
    unplaced: list[str] = []
    for role, directory in directories.items():
        mount = mount_of(directory, mounts)
        if role == "wal" and (mount is None or not mount.point.endswith("/pg_wal")):
            unplaced.append(_LINKED)
            continue
        start = None if mount is None else numbers.get(mount.device) or _by_source(mount, names)
        if start is None:
            unplaced.append(f"{role}: {_why(directory, mount)}")
            continue
        for name in await tree.below(start):
            roles[name] = (*roles.get(name, ()), role)
    devices = BlockDevices(whole, frozenset(tree.stacked) | {name for name in whole if name.startswith(("dm-", "md"))})
    return DiskLayout(devices, Roles(roles, tuple(unplaced)))


class _Tree:
    """Down from a partition or volume to whole disks."""

    def __init__(self, read: ReadMany, names: Sequence[str], whole: frozenset[str]) -> None:
        self._read = read
        self._names = names
        self._whole = whole
        self.stacked: set[str] = set()

    async def below(self, name: str, layers_left: int = _LAYERS_MOST) -> tuple[str, ...]:
        """The whole disk or volume itself, then what that is made of; no name twice."""
        disk = self._disk_of(name)
        paths = {f"sys/block/{_escaped(disk)}/slaves/{_escaped(other)}/dev": other for other in self._names}
        slaves = [paths[path] for path in await self._read(list(paths))] if layers_left else []
        found = [disk]
        for slave in slaves:
            self.stacked.add(disk)
            found.extend(await self.below(slave, layers_left - 1))
        return tuple(dict.fromkeys(found))

    def _disk_of(self, name: str) -> str:
        if name in self._whole:
            return name
        # sda1 → sda, nvme0n1p2 → nvme0n1: the longest whole disk that its name begins with.
        return max((disk for disk in self._whole if name.startswith(disk)), key=len, default=name)


def _dev(name: str) -> str:
    return f"sys/block/{_escaped(name)}/dev"


def _escaped(name: str) -> str:
    """sysfs writes the slash of names like cciss/c0d0 as an exclamation mark."""
    return name.replace("/", "!")


def _by_source(mount: Mount, names: Sequence[str]) -> str | None:
    """For a file system without a device number of its own (btrfs): the one it was mounted from."""
    name = mount.source.removeprefix("/dev/")
    return name if mount.source.startswith("/dev/") and name in names else None


def _why(directory: str, mount: Mount | None) -> str:
    if mount is None:
        return f"{directory} is on no mount that the server's /proc shows"
    if mount.kind in NETWORK_KINDS:
        return f"on {mount.kind} ({mount.source}): its disks belong to another machine"
    return f"{directory} is on {mount.kind} ({mount.source}): its device is not in /proc/diskstats"
