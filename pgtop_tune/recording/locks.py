"""Who writes a recording holds a lock on it, so that two processes never write one.

flock(2): the lock belongs to the open file, and is gone with the process that holds it, however that ends.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from pathlib import Path

from pgtop_tune.errors import RecordingProblem


def lock(file: int) -> bool:
    """Locks an open file; False when somebody else has."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        # A file system without locks: nobody else can have one either.
        return True
    return True


def is_locked(path: Path) -> bool:
    """Whether a process writes this recording now."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return False
    try:
        return not lock(file)
    finally:
        os.close(file)


class NameLock:
    """Holds a name: one process at a time records into the files of a set.

    Args:
        path: A file that is made, and removed when the lock is let go.

    Raises:
        RecordingProblem: Another process holds it, or the file cannot be made.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = self._taken()

    def _taken(self) -> int:
        while True:
            try:
                file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
            except OSError as problem:
                raise RecordingProblem(
                    f"{problem.strerror}: cannot make {self._path}", "choose another place"
                ) from None
            if not lock(file):
                os.close(file)
                raise RecordingProblem(
                    f"another process records into these files ({self._path} is locked)", "choose another name"
                )
            with contextlib.suppress(OSError):
                # Whoever held it before may have removed it between our two calls.
                if os.stat(self._path).st_ino == os.fstat(file).st_ino:
                    return file
            os.close(file)

    def forget(self) -> None:
        """Lets go of a name whose file was removed: one that stands there now is somebody else's."""
        os.close(self._file)

    def close(self) -> None:
        """Lets go of the name."""
        with contextlib.suppress(OSError):
            if os.stat(self._path).st_ino == os.fstat(self._file).st_ino:
                self._path.unlink()
        os.close(self._file)
