"""/proc/self/mountinfo: what is mounted where. Source: proc_pid_mountinfo(5)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from msgspec import Struct

NETWORK_KINDS: Final = frozenset(
    {"nfs", "nfs4", "cifs", "smb3", "9p", "virtiofs", "ceph", "glusterfs", "lustre", "afs"}
    | {"fuse.sshfs", "fuse.glusterfs"}
)
"""File systems whose disks are another machine's, and which can hang when that is gone."""
_ESCAPED: Final = re.compile(rb"\\([0-7]{3})")


class Mount(Struct, frozen=True):
    """One mounted file system.

    Attributes:
        point: Mount point.
        kind: Type of file system: ext4, xfs, btrfs, overlay, nfs4, …
        source: What is mounted, as the file system tells it: "/dev/sda1", "tank/pgdata", "server:/export".
        options: Options of the file system ("upperdir=/…"), not those of the mount.
        device: Its device number, "254:0"; "0:…" for file systems without a device of their own.
        flags: Options of the mount: "rw", "noatime".
    """

    point: str
    kind: str
    source: str
    options: tuple[str, ...]
    device: str = ""
    flags: tuple[str, ...] = ()


def parse_mountinfo(mountinfo: bytes) -> tuple[Mount, ...]:
    """Every mount, in the order they were made; lines that are not of this form are passed over."""
    mounts = []
    for line in mountinfo.split(b"\n"):
        left, separator, right = line.partition(b" - ")
        here, there = left.split(), right.split(b" ")
        if separator and len(here) >= 6 and len(there) >= 3:
            mounts.append(
                Mount(
                    point=_unescape(here[4]),
                    kind=_unescape(there[0]),
                    source=_unescape(there[1]),
                    options=tuple(_unescape(option) for option in there[2].split(b",")),
                    device=_unescape(here[2]),
                    flags=tuple(_unescape(flag) for flag in here[5].split(b",")),
                )
            )
    return tuple(mounts)


def mount_of(path: str, mounts: Sequence[Mount]) -> Mount | None:
    """The mount that holds an absolute path, by its name alone: nothing is looked up on the disk."""
    best: Mount | None = None
    for mount in mounts:
        inside = path == mount.point or path.startswith(mount.point.rstrip("/") + "/")
        if inside and (best is None or len(mount.point) >= len(best.point)):
            best = mount
    return best


def _unescape(word: bytes) -> str:
    """Blanks, tabs, line breaks and backslashes stand as three octal digits."""
    plain = _ESCAPED.sub(lambda found: bytes([int(found.group(1), 8) & 0xFF]), word)
    return plain.decode("utf-8", "surrogateescape")
