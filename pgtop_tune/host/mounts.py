"""Space on the file systems that PostgreSQL uses, read in threads that a tick does not wait for.

Sources: statvfs(3), proc_pid_mountinfo(5).
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final, Generic, TypeVar

from pgtop_tune.host.block_devices import by_place
from pgtop_tune.metrics import sections
from pgtop_tune.model.absence import NOT_YET, Reason, Unavailable
from pgtop_tune.model.host import FileSystem, FileSystemSample
from pgtop_tune.process.mount_namespace import Mount, MountNamespace
from pgtop_tune.process.path_looks import NO_ANSWER

T = TypeVar("T")


class Background(Generic[T]):
    """The latest result of a look that is repeated now and then; reading it waits for the look only when told to.

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
        """Return the newest result, None before the first; starts the next look when it is due.

        Args:
            wait_s: Seconds to wait for a look that is under way.
        """
        busy = self._thread is not None and self._thread.is_alive()
        if not busy and (self._started_s is None or self._clock() - self._started_s >= self._every_s):
            self._started_s = self._clock()
            self._thread = threading.Thread(target=self._run, daemon=True, name="slow look")
            self._thread.start()
        if wait_s and self._thread is not None:
            self._thread.join(wait_s)
        return self._found

    def _run(self) -> None:
        self._found = self._look()


_FIRST_WAIT_S: Final = 0.5


class FileSystems:
    """Space on file systems, read every few seconds, each mount in a thread of its own.

    Args:
        clock: Seconds on the session's monotonic clock.
        statvfs: As `MountNamespace.statvfs`, of the mount point; None for that of the namespace.
    """

    def __init__(self, clock: Callable[[], float], statvfs: Callable[[str], os.statvfs_result] | None = None) -> None:
        self._clock = clock
        self._statvfs = statvfs
        self._watched: Sequence[tuple[Mount, Background[FileSystem | str]]] = ()
        self._latest: FileSystemSample | None = None
        self._due_s = 0.0

    def watch(self, directories: Mapping[str, str], namespace: MountNamespace) -> None:
        """Watch the file systems of directories. Waits a little for the first answers: call it off the event loop.

        A directory that this process may not look at is left out: a symbolic link may lead it elsewhere.

        Args:
            directories: Role → absolute path.
            namespace: The server's mounts.
        """
        statvfs = self._statvfs or namespace.statvfs
        roles_by_mount = by_place((role, namespace.mount(directory)) for role, directory in directories.items())
        watched = [
            (mount, Background(partial(_space, mount, roles, statvfs), sections.file_systems.every_s, self._clock))
            for mount, roles in roles_by_mount.items()
        ]
        for _, background in watched:
            background.latest(_FIRST_WAIT_S)
        self._watched, self._due_s = watched, 0.0

    def sample(self) -> FileSystemSample | Unavailable:
        """Return the latest answers; the same object until there are newer ones."""
        if not self._watched:
            return Unavailable(Reason.NO_PERMISSION, "the server's directories are unknown")
        now_s = self._clock()
        answers = [(mount, background.latest()) for mount, background in self._watched]
        if self._latest is None or now_s >= self._due_s:
            self._due_s = now_s + sections.file_systems.every_s
            self._latest = FileSystemSample(
                now_s,
                tuple(answer for _, answer in answers if isinstance(answer, FileSystem)),
                tuple(f"{mount.point}{answer}" for mount, answer in answers if isinstance(answer, str)),
            )
        return self._latest if self._latest.file_systems or self._latest.unanswered else NOT_YET


def _space(mount: Mount, roles: tuple[str, ...], statvfs: Callable[[str], os.statvfs_result]) -> FileSystem | str:
    """Return how full a mount is, or the reason why it has no row, to be written behind its mount point."""
    try:
        answer = statvfs(mount.point)
    except TimeoutError:
        return f" ({mount.kind}) {NO_ANSWER}"
    except OSError as problem:
        return f": {problem.strerror or problem}"
    return FileSystem(
        mount=mount.point,
        kind=mount.kind,
        source=mount.source,
        roles=roles,
        total_bytes=answer.f_blocks * answer.f_frsize,
        free_bytes=answer.f_bfree * answer.f_frsize,
        available_bytes=answer.f_bavail * answer.f_frsize,
        inodes=answer.f_files,
        inodes_free=answer.f_favail,
    )
