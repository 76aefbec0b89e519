"""Facts about a running postmaster from the kernel: identity, parent process, and destination of its log.

Source: proc_pid_cmdline(5), proc_pid_cgroup(5), proc_pid_environ(5), proc_pid_fd(5), proc_pid_stat(5).
"""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path
from typing import Final

from msgspec import Struct

from pgtop_tune.process.mount_namespace import directory_at, stat_of

ROOT: Final = Path("/")
_MOST_BYTES: Final = 65_536
PID_FILE: Final = "postmaster.pid"
BELONGS: Final = re.compile(r"LD_LIBRARY_PATH|PATH|TZ|LANG|LC_[A-Z]+|PG_OOM_[A-Z_]+")
"""Of a server's environment: what it would be another server without. The rest may be secrets."""


class Postmaster(Struct, frozen=True):
    """A running postmaster.

    Attributes:
        pid: Its process id.
        uid: User it runs as.
        gid: Its group.
        program: Path of the postgres that runs; "" where we may not look.
        arguments: Its arguments, without the program and the directory.
        cgroup: Path of its control group, "/" at the root.
        parent_pid: Who started it; 1 when that one has ended, 0 when it is out of this container's sight.
        parent: The parent's name and arguments.
        environment: What of its environment belongs to it.
        stderr_file: What its standard error is, "" where it is no file or we may not look.
        begun_by_first: It is in the session of process 1, which has started it: pg_ctl and systemd begin a new one.
    """

    pid: int
    uid: int
    gid: int
    program: str
    arguments: tuple[str, ...]
    cgroup: str
    parent_pid: int
    parent: tuple[str, ...]
    environment: tuple[tuple[str, str], ...]
    stderr_file: str
    begun_by_first: bool = False


class Listening(Struct, frozen=True):
    """Where a running server takes connections, as its postmaster.pid says (src/include/utils/pidfile.h).

    Attributes:
        port: TCP port, and the number in the name of its sockets.
        socket_directory: The first of them, "" without.
        address: The first of listen_addresses, "*" for all, "" for none.
        ready: It lets sessions in.
        standby: It recovers for ever, and lets nobody in (hot_standby = off).
    """

    port: int
    socket_directory: str
    address: str
    ready: bool
    standby: bool = False


def listening(data_directory: Path) -> Listening | None:
    """Of the server that holds a data directory; None where none does, or it does not listen yet.

    Raises:
        PermissionError: We may not look.
        TimeoutError: Its file system does not answer.
    """
    if pid_of(data_directory) is None:
        return None
    try:
        lines = _pid_file(data_directory)
        port, sockets, address, _, status = (line.strip() for line in lines[3:8])
        return Listening(
            port=int(port),
            socket_directory=sockets,
            address=address,
            ready=status == "ready",
            standby=status == "standby",
        )
    except (PermissionError, TimeoutError):
        raise
    except (OSError, ValueError):
        return None


def look(pid: int, root: Path = ROOT) -> Postmaster:
    """The process as it is now.

    Raises:
        OSError: It has ended, or /proc hides it.
    """
    proc = root / f"proc/{pid}"
    owner = proc.stat()
    words = _words(proc / "cmdline")
    parent_pid, session = _parent(proc)
    return Postmaster(
        pid=pid,
        uid=owner.st_uid,
        gid=owner.st_gid,
        program=_link(proc / "exe") or (words[0] if words and words[0].startswith("/") else ""),
        arguments=_without_directory(words[1:]),
        cgroup=_cgroup(proc),
        parent_pid=parent_pid,
        parent=_words(root / f"proc/{parent_pid}/cmdline") if parent_pid else (),
        environment=_environment(proc),
        stderr_file=_regular(_link(proc / "fd/2")),
        begun_by_first=parent_pid == 1 and session == _session_of_first(root),
    )


def pid_of(data_directory: Path) -> int | None:
    """The process that holds a data directory, None where none does; also while it starts or ends.

    Raises:
        PermissionError: We may not look.
        TimeoutError: Its file system does not answer.
    """
    try:
        pid = abs(int(_pid_file(data_directory)[0]))
        os.kill(pid, 0)
    except PermissionError as error:
        if error.filename is not None:
            raise
        return pid
    except TimeoutError:
        raise
    except (OSError, ValueError):
        return None
    return pid


def _pid_file(data_directory: Path) -> list[str]:
    with directory_at(data_directory) as data:
        return data.read(PID_FILE, _MOST_BYTES).decode("utf-8", "surrogateescape").split("\n")


def _words(path: Path) -> tuple[str, ...]:
    try:
        content = path.read_bytes()
    except OSError:
        return ()
    return tuple(os.fsdecode(word) for word in content.rstrip(b"\0").split(b"\0") if word)


def _without_directory(arguments: tuple[str, ...]) -> tuple[str, ...]:
    """-D is given anew by whatever starts the server."""
    kept: list[str] = []
    rest = iter(arguments)
    for word in rest:
        if word == "-D":
            next(rest, None)
        elif not word.startswith("-D"):
            kept.append(word)
    return tuple(kept)


def _parent(proc: Path) -> tuple[int, int]:
    """Return the parent and the session."""
    line = (proc / "stat").read_bytes()
    _, parent_pid, _, session = line[line.rindex(b")") + 2 :].split()[:4]
    return int(parent_pid), int(session)


def _session_of_first(root: Path) -> int | None:
    try:
        return _parent(root / "proc/1")[1]
    except (OSError, ValueError):
        return None


def _cgroup(proc: Path) -> str:
    """Of version 2, or of systemd's own hierarchy where that is version 1."""
    try:
        lines = (proc / "cgroup").read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except OSError:
        return "/"
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers in ("", "name=systemd"):
            return path
    return "/"


def _environment(proc: Path) -> tuple[tuple[str, str], ...]:
    pairs = (word.partition("=") for word in _words(proc / "environ"))
    return tuple((name, value) for name, equals, value in pairs if equals and BELONGS.fullmatch(name))


def _link(path: Path) -> str:
    try:
        return os.readlink(path).removesuffix(" (deleted)")
    except OSError:
        return ""


def _regular(path: str) -> str:
    try:
        return path if path.startswith("/") and stat.S_ISREG(stat_of(path).st_mode) else ""
    except OSError:
        return ""
