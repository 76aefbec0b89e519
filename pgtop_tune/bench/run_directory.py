"""A run's private directory: the transaction log and the password file, in memory where that can be had.

Nothing is left behind: we remove it, the guard removes it when we were killed, and what survived even that (both were
killed) is swept away before the next run.
"""

from __future__ import annotations

import fcntl
import os
import secrets
import shutil
import tempfile
import time
from pathlib import Path
from typing import Final

from pgtop_tune.base.errors import LoadProblem
from pgtop_tune.base.secret import Secret
from pgtop_tune.process.guard import MARKER

PREFIX: Final = "pgtop-tune-load-"
MEMORY: Final = Path("/dev/shm")
ROOM_BYTES: Final = 256 * 2**20
"""Free space asked of /dev/shm; a run holds some 100 kB, unless our reader is kept from reading."""
_STALE_AFTER_S: Final = 60.0


def base_directory(memory: Path = MEMORY) -> Path:
    """/dev/shm where it can be written and has room, else TMPDIR (or /tmp)."""
    try:
        room = os.statvfs(memory)
    except OSError:
        return Path(tempfile.gettempdir())
    if os.access(memory, os.W_OK | os.X_OK) and room.f_bavail * room.f_frsize >= ROOM_BYTES:
        return memory
    return Path(tempfile.gettempdir())


def unused_name(base: Path) -> Path:
    """A path for the next run's directory that nobody can foretell."""
    return base / f"{PREFIX}{secrets.token_hex(6)}"


def passfile_text(password: Secret) -> str:
    """A .pgpass with this password for every server."""
    escaped = password.reveal().replace("\\", "\\\\").replace(":", "\\:")
    return f"*:*:*:*:{escaped}\n"


class RunDirectory:
    """Made on construction with mode 0700; `remove()` ends it.

    Raises:
        LoadProblem: It cannot be made.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            path.mkdir(mode=0o700)
            self._marker = os.open(path / MARKER, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
        except OSError as problem:
            hint = "TMPDIR names another directory"
            raise LoadProblem(f"no directory for pgbench's log: {problem}", hint) from problem
        # Held until we end, however that is: a directory whose marker can be locked belongs to nobody any more.
        fcntl.flock(self._marker, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def write_passfile(self, password: Secret) -> Path:
        """A .pgpass of mode 0600 with this password for every server, for PGPASSFILE."""
        path = self.path / "passfile"
        descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
        with open(descriptor, "w", encoding="utf-8") as file:
            file.write(passfile_text(password))
        return path

    def remove(self) -> None:
        """Removes the directory; nothing happens when the guard was quicker."""
        if self._marker >= 0:
            shutil.rmtree(self.path, ignore_errors=True)
            os.close(self._marker)
            self._marker = -1


def sweep(base: Path) -> None:
    """Removes directories of runs whose program and guard are both gone. Never raises."""
    for path in base.glob(f"{PREFIX}*"):
        try:
            old = time.time() - path.stat().st_mtime > _STALE_AFTER_S
            if not old or path.is_symlink() or path.stat().st_uid != os.geteuid():
                continue
            descriptor = os.open(path / MARKER, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        except OSError:
            continue
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(path, ignore_errors=True)
        except OSError:
            pass
        finally:
            os.close(descriptor)
