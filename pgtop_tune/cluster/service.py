"""Programs that restart or start a server, run as its user, and the server's log meanwhile. Blocking."""

from __future__ import annotations

import os
import pwd
import resource
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Final

from msgspec import Struct

from pgtop_tune.base.safe_text import printable_lines
from pgtop_tune.model.instance import ServerPlace
from pgtop_tune.process.mount_namespace import directory_at

_TIMEOUT_S: Final = 660.0
"""Stopping and starting may take `postmaster.PATIENCE_S` each."""
_LIMITS: Final = (resource.RLIMIT_NOFILE, resource.RLIMIT_MEMLOCK)
_POLL_S: Final = 0.2
_ENDING_S: Final = 2.0
TOO_LONG: Final = 124
"""Status of a program that was ended because it took too long."""
NOT_RUN: Final = 127
"""Status of a program that could not be started."""
LEFT: Final = -1000
"""Status of a program that goes on without us."""
_WORDS_BYTES: Final = 8192
_OURS: Final = ("PATH", "LANG", "LC_ALL", "XDG_RUNTIME_DIR", "DBUS_SESSION_BUS_ADDRESS")
_LOADING: Final = ("LD_", "PATH")
_SAFE_PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class Ran(Struct, frozen=True):
    """The outcome of a program.

    Attributes:
        status: Its exit status; 127 when it could not be started, LEFT while it runs on.
        output_lines: Its last lines, made safe to show.
    """

    status: int
    output_lines: tuple[str, ...]


def run_program(
    argv: Sequence[str],
    server_place: ServerPlace,
    *,
    as_owner: bool,
    in_english: bool = False,
    leave: threading.Event | None = None,
    timeout_s: float = _TIMEOUT_S,
    limits_of: int | None = None,
) -> Ran:
    """Run a program to its end; the server that it leaves behind lives on.

    It has a session of its own: a signal to us, also from the terminal, does not reach the server.

    Args:
        argv: The program and its arguments.
        server_place: The server it is about.
        as_owner: Run as the server's user, not as ours.
        in_english: Whether it prints English, because this program reads its output.
        leave: When it is set, the program goes on without us.
        timeout_s: After so long it is ended.
        limits_of: A process whose limits of open files and locked memory it gets, as far as ours can be raised.
    """
    become = as_owner and server_place.uid is not None and server_place.uid != os.geteuid()
    # As root a program of the system is run: it gets no settings of the server's user for loading libraries.
    gets_all = become or server_place.uid == os.geteuid()
    belonging = {name: value for name, value in server_place.environment if gets_all or not name.startswith(_LOADING)}
    own_variables = {name: os.environ[name] for name in _OURS if name in os.environ}
    english = {"LC_ALL": "C"} if in_english else {}
    with tempfile.TemporaryFile() as output:
        # A file, not a pipe: the server it starts may keep it open.
        try:
            process = subprocess.Popen(
                list(argv),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={"PATH": _SAFE_PATH, **own_variables, **belonging, **english},
                cwd=server_place.working_directory,
                user=server_place.uid if become else None,
                group=server_place.gid if become else None,
                extra_groups=groups_of(server_place) if become else None,
                start_new_session=True,
            )
        except (OSError, subprocess.SubprocessError) as error:
            return Ran(NOT_RUN, (f"{argv[0]} cannot be run: {getattr(error, 'strerror', None) or error}",))
        if limits_of is not None:
            for limit in _LIMITS:
                with suppress(OSError, ValueError):
                    resource.prlimit(process.pid, limit, resource.prlimit(limits_of, limit))
        status = _status(process, leave, timeout_s)
        if status is None:
            return Ran(LEFT, (f"{argv[0]} is still running",))
        if status == TOO_LONG:
            return Ran(status, (f"{argv[0]} takes longer than {timeout_s:.0f} s",))
        output.seek(max(output.seek(0, os.SEEK_END) - _WORDS_BYTES, 0))
        text = output.read().decode("utf-8", "replace")
    return Ran(status, tuple(line for line in printable_lines(text) if line.strip()))


def _status(process: subprocess.Popen[bytes], leave: threading.Event | None, timeout_s: float) -> int | None:
    """Return the exit status; None where we do not wait any more."""
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            return process.wait(_POLL_S)
        except subprocess.TimeoutExpired:
            if leave is not None and leave.is_set():
                return None
        if time.monotonic() >= deadline:
            process.kill()
            with suppress(subprocess.TimeoutExpired):
                # The kernel keeps one that waits for a file system from ending.
                process.wait(_ENDING_S)
            return TOO_LONG


def groups_of(server_place: ServerPlace) -> list[int]:
    """Return the groups of the server's user: keys and certificates are often read through them."""
    if server_place.uid is None or server_place.gid is None:
        return []
    try:
        return os.getgrouplist(pwd.getpwuid(server_place.uid).pw_name, server_place.gid)
    except KeyError:
        return []


# The log of a server during its start: new lines of its log files, and its unit's lines of systemd's journal.

_MOST_BYTES: Final = 65_536
_NEWEST: Final = 3
_JOURNAL_TIMEOUT_S: Final = 10.0


class LogPiece(Struct, frozen=True):
    """New lines of one file.

    Attributes:
        file: Its name, which tells the format.
        content: From the beginning of a line on.
    """

    file: str
    content: bytes


class StartLog:
    """The new lines of a server's logs since this object was made.

    Args:
        server_place: The server.
        now_s: Seconds since the epoch.
    """

    def __init__(self, server_place: ServerPlace, now_s: float) -> None:
        self._place: Final = server_place
        self._since_s: Final = now_s
        self._sizes: Final = {where: _size(*where) for where in self._files()}

    def pieces(self) -> tuple[LogPiece, ...]:
        """Return the log pieces written since; none of a file that cannot be read."""
        log_pieces = [LogPiece(where[1], self._tail(*where)) for where in self._files()]
        if self._place.unit:
            log_pieces.append(LogPiece(self._place.unit, _journal(self._place.unit, self._since_s)))
        return tuple(piece for piece in log_pieces if piece.content)

    def _files(self) -> Iterator[tuple[str, str]]:
        """Yield directory and name: of the file that it writes to, then of the newest in the directory of its logs."""
        if self._place.log_file:
            directory, _, name = self._place.log_file.rpartition("/")
            yield directory or "/", name
        if self._place.log_directory:
            with suppress(OSError), directory_at(self._place.log_directory) as logs:
                names = [name for name, _ in sorted(logs.files(), key=lambda file: file[1].st_mtime)]
                yield from ((self._place.log_directory, name) for name in names[-_NEWEST:])

    def _tail(self, directory: str, name: str) -> bytes:
        offset = self._sizes.get((directory, name), 0)
        owners = () if self._place.uid is None else (self._place.uid,)
        try:
            with directory_at(directory) as logs, logs.open_file(name, owners=owners) as file:
                size = os.fstat(file.fileno()).st_size
                # Truncated by a rotation: all of it is new.
                begin = max(offset if offset <= size else 0, size - _MOST_BYTES)
                file.seek(begin)
                content = file.read(_MOST_BYTES)
        except OSError:
            return b""
        return content if begin in (0, offset) else content.partition(b"\n")[2]


def _size(directory: str, name: str) -> int:
    with suppress(OSError), directory_at(directory) as logs:
        return next((status.st_size for file_name, status in logs.files() if file_name == name), 0)
    return 0


def _journal(unit: str, since_s: float) -> bytes:
    command = ["journalctl", "--no-pager", "--output=cat", f"--since=@{since_s:.0f}", "--lines=100", f"--unit={unit}"]
    try:
        return subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=_JOURNAL_TIMEOUT_S,
            check=False,
        ).stdout[-_MOST_BYTES:]
    except (OSError, subprocess.SubprocessError):
        return b""
