"""Space on the file systems that PostgreSQL uses, asked by looks that nobody waits for.

Sources: statvfs(3), proc_pid_mountinfo(5).
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping
from typing import Final, Generic, TypeVar

from msgspec import Struct

from pgtop_tune.metrics import sections
from pgtop_tune.model.absence import NOT_YET, Reason, Unavailable
from pgtop_tune.model.host import FileSystem, FileSystemSample
from pgtop_tune.process.mount_namespace import Mount, MountNamespace
from pgtop_tune.process.path_looks import NO_ANSWER

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
        watched = tuple(
            (place, Background(_asking(place, statvfs), sections.file_systems.every_s, self._clock))
            for place in places_of(directories, namespace)
        )
        for _, background in watched:
            background.latest(_FIRST_WAIT_S)
        self._watched, self._due_s = watched, 0.0

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
