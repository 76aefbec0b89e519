"""Mounts as the server's own process has them, and the space on the file systems that PostgreSQL uses.

Sources: proc_pid_mountinfo(5), proc_pid_root(5), path_resolution(7), statvfs(3).
"""

from __future__ import annotations

import errno
import os
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final, Generic, TypeVar

from msgspec import Struct

from pgtop_tune.host.kernel_text import bytes_of
from pgtop_tune.metrics import sections
from pgtop_tune.model.absence import NOT_YET, Reason, Unavailable
from pgtop_tune.model.host import FileSystem, FileSystemSample
from pgtop_tune.model.machine import NETWORK_KINDS
from pgtop_tune.process.path_looks import LOOKS, NO_ANSWER

_LINKS_MOST: Final = 40
"""As many as the kernel follows in one path."""
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
                    id=int(here[0]) if here[0].isdigit() else 0,
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


class MountNamespace(Struct, frozen=True):
    """The mounts that a process has.

    Attributes:
        mounts: In the order they were made.
        top: What goes before an absolute path of that process, so that we reach its file: "" where it has our mounts,
            else "/proc/PID/root"; None where its files are out of our reach.
    """

    mounts: tuple[Mount, ...]
    top: str | None = ""

    def real_path(self, path: str) -> str | None:
        """Return an absolute path with its links followed as the process would; None where we may not look for links.

        A network file system is not looked into, nor one that does not answer: a path is followed up to there.
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
        """Return the mount that holds a directory or file; None where that cannot be told."""
        real = self.real_path(path)
        return None if real is None else mount_of(real, self.mounts)

    def stat(self, real_path: str) -> os.stat_result:
        """Return what os.stat does for a path without links.

        Raises:
            TimeoutError: Its file system does not answer.
            OSError: As os.stat does.
        """
        return LOOKS.stat(f"{self.top or ''}{real_path}", _key(mount_of(real_path, self.mounts), real_path))

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


def _key(mount: Mount | None, path: str) -> str:
    """Return what is the same for the same file system, wherever it is mounted."""
    return path if mount is None else mount.device or mount.point


def namespace_of(pid: int | None, root: Path) -> MountNamespace:
    """Return the mounts of a process; ours where it has the same, or is not known.

    Args:
        pid: Of the postmaster.
        root: Where /proc is found.
    """
    own_mounts = parse_mountinfo(bytes_of(root / "proc/self/mountinfo"))
    server_mounts = parse_mountinfo(bytes_of(root / f"proc/{pid}/mountinfo")) if pid is not None else ()
    if not server_mounts or server_mounts == own_mounts:
        return MountNamespace(own_mounts)
    top = root / f"proc/{pid}/root"
    return MountNamespace(server_mounts, str(top) if os.access(top / ".", os.X_OK) else None)


def _unescape(word: bytes) -> str:
    """Blanks, tabs, line breaks and backslashes stand as three octal digits."""
    plain = _ESCAPED.sub(lambda found: bytes([int(found.group(1), 8) & 0xFF]), word)
    return plain.decode("utf-8", "surrogateescape")


# Space on the file systems PostgreSQL uses. Source: statvfs(3), proc_pid_mountinfo(5).
#
# Looks that take long: each in a daemon thread, one at a time.

T = TypeVar("T")


class Background(Generic[T]):
    """The latest result of a look that is repeated now and then; who asks never waits for it.

    Daemon threads, because a thread of an executor that hangs would keep the program from ending.

    Args:
        look: Makes a result; must not raise.
        every_s: From the start of one look to the start of the next; a look that is late is not joined by another.
        clock: Seconds on the session's monotonic clock.
    """

    def __init__(self, look: Callable[[], T], every_s: float, clock: Callable[[], float]) -> None:
        self._look = look
        self._every_s = every_s
        self._clock = clock
        self._started_s: float | None = None
        self._thread: threading.Thread | None = None
        self._found: T | None = None

    def latest(self, wait_s: float = 0.0) -> T | None:
        """The newest result, None before the first; starts the next look when it is due.

        Args:
            wait_s: How long a look that is under way may be waited for.
        """
        if not self._busy() and (self._started_s is None or self._clock() - self._started_s >= self._every_s):
            self._started_s = self._clock()
            self._thread = threading.Thread(target=self._run, daemon=True, name="slow look")
            self._thread.start()
        if wait_s and self._thread is not None:
            self._thread.join(wait_s)
        return self._found

    def _busy(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def _run(self) -> None:
        self._found = self._look()


_FIRST_WAIT_S: Final = 0.5


class MountPlace(Struct, frozen=True):
    """A mount that holds something of the server's."""

    mount: Mount
    roles: tuple[str, ...]


def places_of(directories: Mapping[str, str], namespace: MountNamespace) -> tuple[MountPlace, ...]:
    """The mounts of the server's directories, in the order of the roles. Call it off the event loop.

    A directory we may not look at is left out: whether a symbolic link leads it elsewhere cannot be known.

    Args:
        directories: Role → absolute path.
        namespace: Of the server.
    """
    roles: dict[Mount, tuple[str, ...]] = {}
    for role, directory in directories.items():
        mount = namespace.mount(directory)
        if mount is not None:
            roles[mount] = (*roles.get(mount, ()), role)
    return tuple(MountPlace(mount, names) for mount, names in roles.items())


class FileSystems:
    """Asks every few seconds how full they are, each mount in a thread of its own.

    Args:
        clock: Seconds on the session's monotonic clock.
        statvfs: As `MountNamespace.statvfs`, of the mount point; None for that of the namespace.
    """

    def __init__(self, clock: Callable[[], float], statvfs: Callable[[str], os.statvfs_result] | None = None) -> None:
        self._clock = clock
        self._statvfs = statvfs
        self._watched: tuple[tuple[MountPlace, Background[FileSystem | str]], ...] = ()
        self._latest: FileSystemSample | None = None
        self._due_s = 0.0

    def watch(self, directories: Mapping[str, str], namespace: MountNamespace) -> None:
        """Says of which directories; waits a little for the first answers, so call it off the event loop.

        Args:
            directories: Role → absolute path.
            namespace: Of the server.
        """
        statvfs = self._statvfs or namespace.statvfs
        self._watched = tuple(
            (place, Background(_asking(place, statvfs), sections.file_systems.every_s, self._clock))
            for place in places_of(directories, namespace)
        )
        for _, background in self._watched:
            background.latest(_FIRST_WAIT_S)
        self._due_s = 0.0

    def sample(self) -> FileSystemSample | Unavailable:
        """The latest answers; the same object until there are newer ones."""
        if not self._watched:
            return Unavailable(Reason.NO_PERMISSION, "where the server keeps its files is not known")
        now_s = self._clock()
        asked = [(place, background.latest()) for place, background in self._watched]
        if self._latest is None or now_s >= self._due_s:
            self._due_s = now_s + sections.file_systems.every_s
            self._latest = FileSystemSample(
                now_s,
                tuple(found for _, found in asked if isinstance(found, FileSystem)),
                tuple(f"{place.mount.point}{why}" for place, why in asked if isinstance(why, str)),
            )
        return self._latest if self._latest.file_systems or self._latest.unanswered else NOT_YET


def _asking(place: MountPlace, statvfs: Callable[[str], os.statvfs_result]) -> Callable[[], FileSystem | str]:
    """Return what asks how full a mount is; it gives text where the mount has no row."""
    mount = place.mount

    def ask() -> FileSystem | str:
        try:
            found = statvfs(mount.point)
        except TimeoutError:
            return f" ({mount.kind}) {NO_ANSWER}"
        except OSError as problem:
            return f": {problem.strerror or problem}"
        return FileSystem(
            mount=mount.point,
            kind=mount.kind,
            source=mount.source,
            roles=place.roles,
            total_bytes=found.f_blocks * found.f_frsize,
            free_bytes=found.f_bfree * found.f_frsize,
            available_bytes=found.f_bavail * found.f_frsize,
            inodes=found.f_files,
            inodes_free=found.f_favail,
        )

    return ask
