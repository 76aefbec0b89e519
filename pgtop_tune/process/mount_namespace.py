"""Mounts of a process, and access to paths below them that cannot hang this program.

Sources: proc_pid_mountinfo(5), proc_pid_root(5), path_resolution(7).
"""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Final

from msgspec import Struct

from pgtop_tune.base.foreign_directory import ForeignDirectory
from pgtop_tune.process.path_looks import LOOKS

NETWORK_KINDS: Final = frozenset(
    {"nfs", "nfs4", "cifs", "smb3", "9p", "virtiofs", "ceph", "glusterfs", "lustre", "afs"}
    | {"fuse.sshfs", "fuse.glusterfs"}
)
"""File systems on the disks of another machine, which can hang when that machine is gone."""
_READ_FILE: Final = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_NOCTTY | os.O_CLOEXEC
_LINKS_MOST: Final = 40
"""Number of links that the kernel follows in one path."""
_ESCAPED: Final = re.compile(rb"\\([0-7]{3})")


class Mount(Struct, frozen=True):
    """One mounted file system.

    Attributes:
        point: Mount point.
        kind: Type of file system: ext4, xfs, btrfs, overlay, nfs4, …
        source: Device or export, as the file system reports it: "/dev/sda1", "tank/pgdata", "server:/export".
        options: Options of the file system ("upperdir=/…"), not those of the mount.
        device: Its device number, "254:0"; "0:…" for file systems without a device of their own.
        flags: Options of the mount: "rw", "noatime".
        id: Its number in the namespace; 0 where it is not known.
    """

    point: str
    kind: str
    source: str
    options: tuple[str, ...]
    device: str = ""
    flags: tuple[str, ...] = ()
    id: int = 0


def parse_mountinfo(mountinfo: bytes) -> tuple[Mount, ...]:
    """Return the mounts in the order in which they were made; malformed lines are skipped."""
    mounts = []
    for line in mountinfo.split(b"\n"):
        mount_fields, separator, right = line.partition(b" - ")
        left_fields, right_fields = mount_fields.split(), right.split(b" ")
        if separator and len(left_fields) >= 6 and len(right_fields) >= 3:
            mounts.append(
                Mount(
                    point=_unescape(left_fields[4]),
                    kind=_unescape(right_fields[0]),
                    source=_unescape(right_fields[1]),
                    options=tuple(_unescape(option) for option in right_fields[2].split(b",")),
                    device=_unescape(left_fields[2]),
                    flags=tuple(_unescape(flag) for flag in left_fields[5].split(b",")),
                    id=int(left_fields[0]) if left_fields[0].isdigit() else 0,
                )
            )
    return tuple(mounts)


def mount_of(path: str, mounts: Sequence[Mount]) -> Mount | None:
    """Return the mount that holds an absolute path, by its name alone: nothing is looked up on the disk."""
    best: Mount | None = None
    for mount in mounts:
        inside = path == mount.point or path.startswith(mount.point.rstrip("/") + "/")
        if inside and (best is None or len(mount.point) >= len(best.point)):
            best = mount
    return best


class MountNamespace(Struct, frozen=True):
    """The mounts that a process has.

    Attributes:
        mounts: The mounts, in the order in which they were made.
        top: Prefix under which we reach the file of an absolute path of that process: "" where it has our mounts,
            else "/proc/PID/root"; None where its files are out of our reach.
    """

    mounts: tuple[Mount, ...]
    top: str | None = ""

    def real_path(self, path: str) -> str | None:
        """Return an absolute path with its links followed as the process would; None where we may not read links.

        Links on a network file system, or on one that does not answer, are not followed.
        """
        if self.top is None:
            return None
        parts = path.split("/")[::-1]
        done, links = "", 0
        while parts:
            part = parts.pop()
            if part in ("", "."):
                continue
            if part == "..":
                done = done.rpartition("/")[0]
                continue
            here = f"{done}/{part}"
            mount = mount_of(here, self.mounts)
            if mount is not None and mount.kind in NETWORK_KINDS:
                return "/".join((here, *reversed(parts)))
            try:
                target = LOOKS.readlink(self.top + here, _key(mount, here))
            except PermissionError:
                return None
            except TimeoutError:
                return "/".join((here, *reversed(parts)))
            except OSError:  # No link, or nothing of that name.
                done = here
                continue
            links += 1
            if links > _LINKS_MOST:
                return None
            parts += target.split("/")[::-1]
            if target.startswith("/"):
                done = ""
        return done or "/"

    def mount(self, path: str) -> Mount | None:
        """Return the mount that holds a directory or file; None where its links cannot be followed."""
        real = self.real_path(path)
        return None if real is None else mount_of(real, self.mounts)

    def stat(self, real_path: str) -> os.stat_result:
        """Return what os.stat does for a path without links.

        Raises:
            TimeoutError: Its file system does not answer.
            OSError: As os.stat does.
        """
        return LOOKS.stat(f"{self.top or ''}{real_path}", _key(mount_of(real_path, self.mounts), real_path))

    def open_file(self, real_path: str) -> IO[bytes]:
        """Open a regular file for reading by a path without links; a link that has replaced the file is refused.

        Raises:
            TimeoutError: Its file system does not answer.
            OSError: As os.open does, or it is a link or no regular file.
        """
        self.stat(real_path)
        descriptor = os.open(f"{self.top or ''}{real_path}", _READ_FILE)
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            raise OSError(errno.EINVAL, "it is not a regular file", real_path)
        return open(descriptor, "rb")

    def statvfs(self, real_path: str) -> os.statvfs_result:
        """Return what os.statvfs does for a path without links; see `stat`."""
        return LOOKS.statvfs(f"{self.top or ''}{real_path}", _key(mount_of(real_path, self.mounts), real_path))


def stat_of(path: str) -> os.stat_result:
    """Return what os.stat does for an absolute path of ours, wherever its links lead.

    Raises:
        TimeoutError: A file system on the way does not answer.
        OSError: As os.stat does.
    """
    namespace = namespace_of(None, Path("/"))
    real = namespace.real_path(path)
    if real is None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)
    return namespace.stat(real)


def directory_at(path: str | Path) -> ForeignDirectory:
    """Open a directory of a server; see `ForeignDirectory.find`.

    Raises:
        TimeoutError: A file system on the way does not answer.
        OSError: As `ForeignDirectory.find` does.
    """
    check_answers(path)
    return ForeignDirectory.find(path)


def check_answers(path: str | Path) -> None:
    """Raise a TimeoutError where a file system on the way to a path of ours does not answer."""
    namespace = namespace_of(None, Path("/"))
    real = namespace.real_path(os.path.abspath(path))
    if real is not None:
        try:
            # A network file system may answer stat(2) from its cache, but asks its server for statvfs(3).
            namespace.statvfs(real)
        except TimeoutError:
            raise
        except OSError:
            # The caller that opens it gets the reason.
            pass


def _key(mount: Mount | None, path: str) -> str:
    """Return a key that is the same for the same file system, wherever it is mounted."""
    return path if mount is None else mount.device or mount.point


def namespace_of(pid: int | None, root: Path) -> MountNamespace:
    """Return the mounts of the postmaster; ours where they are the same or cannot be read.

    Args:
        pid: Pid of the postmaster; None where it is not known.
        root: Directory that has `proc`.
    """
    own_mounts = _mounts_of("self", root)
    server_mounts = _mounts_of(str(pid), root) if pid is not None else ()
    if not server_mounts or server_mounts == own_mounts:
        return MountNamespace(own_mounts)
    top = root / f"proc/{pid}/root"
    return MountNamespace(server_mounts, str(top) if os.access(top / ".", os.X_OK) else None)


def _mounts_of(process: str, root: Path) -> tuple[Mount, ...]:
    try:
        return parse_mountinfo((root / f"proc/{process}/mountinfo").read_bytes())
    except OSError:
        return ()


def _unescape(word: bytes) -> str:
    """Return a field without its escapes: blanks, tabs, line breaks and backslashes stand as three octal digits."""
    plain = _ESCAPED.sub(lambda escape: bytes([int(escape.group(1), 8) & 0xFF]), word)
    return plain.decode("utf-8", "surrogateescape")
