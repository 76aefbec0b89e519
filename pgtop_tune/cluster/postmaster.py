"""A running postmaster: identity, parent process and destination of its log from the kernel; how it is managed.

Source: proc_pid_cmdline(5), proc_pid_cgroup(5), proc_pid_environ(5), proc_pid_fd(5), proc_pid_stat(5).
"""

from __future__ import annotations

import os
import pwd
import re
import shlex
import shutil
import stat
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Final

from msgspec import Struct

from pgtop_tune.base.paths import NotOurs, content_of
from pgtop_tune.process.mount_namespace import directory_at, stat_of

ROOT: Final = Path("/")
_MOST_BYTES: Final = 65_536
PID_FILE: Final = "postmaster.pid"
BELONGS: Final = re.compile(r"LD_LIBRARY_PATH|PATH|TZ|LANG|LC_[A-Z]+|PG_OOM_[A-Z_]+")
"""Variables of its environment without which a server would run differently. The others may be secrets."""


class Postmaster(Struct, frozen=True):
    """A running postmaster.

    Attributes:
        pid: Its process id.
        uid: User it runs as.
        gid: Its group.
        program: Path of the postgres that runs; "" where we may not look.
        arguments: Its arguments, without the program and the directory.
        cgroup: Path of its control group, "/" at the root.
        parent_pid: Process that started it; 1 when that has ended, 0 when it is not in this container.
        parent: The parent's name and arguments.
        environment: Variables of its environment that match `BELONGS`.
        stderr_file: Path of its standard error, "" where that is no file or we may not look.
        begun_by_first: Whether process 1 started it: they share a session, where pg_ctl and systemd begin a new one.
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
    """The address of a running server, as its postmaster.pid says (src/include/utils/pidfile.h).

    Attributes:
        port: TCP port, and the number in the name of its sockets.
        socket_directory: The first directory with a socket, "" without.
        address: The first of listen_addresses, "*" for all, "" for none.
        ready: Whether it accepts sessions.
        standby: Whether it is a standby that accepts no sessions (hot_standby = off).
    """

    port: int
    socket_directory: str
    address: str
    ready: bool
    standby: bool = False


def listening(data_directory: Path) -> Listening | None:
    """Return the address of the server that holds a data directory; None where none does, or it does not listen yet.

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


def postmaster_of(pid: int, root: Path = ROOT) -> Postmaster:
    """Return the postmaster with a process id, as it is now.

    Raises:
        OSError: It has ended, or /proc hides it.
    """
    proc = root / f"proc/{pid}"
    owner = proc.stat()
    command_line = _words(proc / "cmdline")
    parent_pid, session = _parent(proc)
    return Postmaster(
        pid=pid,
        uid=owner.st_uid,
        gid=owner.st_gid,
        program=_link(proc / "exe") or (command_line[0] if command_line and command_line[0].startswith("/") else ""),
        arguments=_without_directory(command_line[1:]),
        cgroup=_cgroup(proc),
        parent_pid=parent_pid,
        parent=_words(root / f"proc/{parent_pid}/cmdline") if parent_pid else (),
        environment=_environment(proc),
        stderr_file=_regular(_link(proc / "fd/2")),
        begun_by_first=parent_pid == 1 and session == _session_of_first(root),
    )


def pid_of(data_directory: Path) -> int | None:
    """Return the process that holds a data directory, None where none does; also while it starts or ends.

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
    """Return the arguments without -D, which the program that starts the server gives anew."""
    kept: list[str] = []
    remaining = iter(arguments)
    for word in remaining:
        if word == "-D":
            next(remaining, None)
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
    """Return the control group of version 2, or of systemd's own hierarchy with version 1."""
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


# How a running server is managed and restarted: rules in order, the first match counts.
#
# Source: systemd.unit(5), systemctl(1); pg_ctlcluster(1); pg_ctl of the PostgreSQL documentation.

PATIENCE_S: Final = 300
"""Time that pg_ctl and pg_ctlcluster may take to stop a server, and again to start it."""

PATRONI: Final = "Patroni"
"""Description of the manager of a server that Patroni has started."""

_UNIT: Final = re.compile(r"[^/]+\.service")
_OF_USER: Final = re.compile(r"/user@(\d+)\.service/")
_DATA_DIRECTORY: Final = re.compile(r"^\s*data_directory\s*=?\s*'([^'\n]*)'", re.MULTILINE | re.IGNORECASE)
_DEBIAN: Final = re.compile(r"/etc/postgresql/([^/]+)/([^/]+)/postgresql\.conf")
_LOG: Final = "pgtop-tune-start.log"
_LOOK_TIMEOUT_S: Final = 10.0


class Managed(Struct, frozen=True):
    """The manager of a server, and the commands that restart it.

    Attributes:
        description: The manager in words.
        command: Command that restarts the server, as the operator types it; "" where it cannot be known.
        restart: The same as an argument list; empty where we may not run it.
        start: Argument list that starts the server when it is down; empty where we may not run it.
        why_not: Reason why we may not run these commands, "" where we may.
        as_owner: Whether the argument lists are to be run as the server's user.
        unit: The systemd unit, "" without.
        log_file: File of the server's first messages; "" where the manager chooses it.
    """

    description: str
    command: str = ""
    restart: tuple[str, ...] = ()
    start: tuple[str, ...] = ()
    why_not: str = ""
    as_owner: bool = False
    unit: str = ""
    log_file: str = ""


class Here(Struct, frozen=True):
    """This account and this machine.

    Attributes:
        euid: Our user.
        main_pid: Returns the main process of a systemd unit, 0 where unknown; takes the name of the unit, and whether
            it is one of the user's own.
        has: Returns whether a program is in PATH.
    """

    euid: int
    main_pid: Callable[[str, bool], int]
    has: Callable[[str], bool]


def this_machine() -> Here:
    """Return this account and this machine."""
    return Here(os.geteuid(), _main_pid, lambda name: shutil.which(name) is not None)


def managed(server: Postmaster, data_directory: str, config_file: str, me: Here) -> Managed:
    """Return the manager of a server.

    Args:
        server: The server's postmaster.
        data_directory: Its PGDATA.
        config_file: Its postgresql.conf.
        me: This account and this machine.
    """
    for rule in _RULES:
        restarter = rule(server, data_directory, config_file, me)
        if restarter is not None:
            return restarter
    name = Path(server.parent[0]).name if server.parent else "process"
    return Managed(
        f"{name} (pid {server.parent_pid}) runs it",
        why_not=f"{name} (pid {server.parent_pid}) runs it, and would treat a restart as the end of the server",
    )


def _of_a_guard(server: Postmaster, data_directory: str, config_file: str, me: Here) -> Managed | None:
    if not any(Path(word).name == "guard.py" for word in server.parent):
        return None
    return Managed(
        "a throwaway server of another pgtop-tune",
        why_not="only the pgtop-tune that created this throwaway server can restart it",
    )


def _of_patroni(server: Postmaster, data_directory: str, config_file: str, me: Here) -> Managed | None:
    if not any("patroni" in Path(word).name for word in server.parent):
        return None
    return Managed(
        PATRONI,
        "patronictl restart CLUSTER MEMBER",
        why_not="Patroni manages it: run patronictl restart with the names of cluster and member",
    )


def of_systemd(server: Postmaster, data_directory: str, config_file: str, me: Here) -> Managed | None:
    """Return the manager of a program that is the main process of a systemd unit; None for others."""
    unit = server.cgroup.rpartition("/")[2]
    if not _UNIT.fullmatch(unit):
        return None
    of_user = _OF_USER.search(server.cgroup)
    if me.main_pid(unit, of_user is not None) != server.pid:
        return None
    program = ("systemctl", *(("--user",) if of_user else ()))
    restart, start = (*program, "restart", unit), (*program, "start", unit)
    allowed = int(of_user[1]) == me.euid if of_user else me.euid == 0
    if allowed:
        return Managed(
            description=f"systemd unit {unit}", command=shlex.join(restart), restart=restart, start=start, unit=unit
        )
    return Managed(
        f"systemd unit {unit}",
        shlex.join(restart if of_user else ("sudo", *restart)),
        why_not="only the user of this systemd instance can restart it"
        if of_user
        else "only root can restart systemd units",
        unit=unit,
    )


def _of_debian(server: Postmaster, data_directory: str, config_file: str, me: Here) -> Managed | None:
    match = _DEBIAN.fullmatch(config_file)
    if match is None or not me.has("pg_ctlcluster") or not _names(config_file, data_directory):
        return None
    cluster = ("pg_ctlcluster", *match.groups())
    restart, start = (*cluster, "restart", "-m", "fast"), (*cluster, "start")
    description = f"cluster {match[1]}/{match[2]} of this distribution"
    if me.euid in (0, server.uid):
        return Managed(description=description, command=shlex.join(restart), restart=restart, start=start)
    return Managed(description, shlex.join(("sudo", *restart)), why_not=_not_us(server))


def _names(config_file: str, data_directory: str) -> bool:
    """Return whether a configuration is of a data directory: another server may use it for its own."""
    try:
        content = content_of(Path(config_file), _MOST_BYTES)
    except (NotOurs, OSError):
        return False
    named = _DATA_DIRECTORY.findall(content.decode("utf-8", "surrogateescape"))
    return bool(named) and os.path.realpath(named[-1]) == os.path.realpath(data_directory)


def _of_container(server: Postmaster, data_directory: str, config_file: str, me: Here) -> Managed | None:
    """Return the manager of a server in a container.

    A container ends with its process 1; the parent of a process that was put into it from outside is not seen in it.
    """
    if server.pid == 1:
        return Managed(
            "process 1 of its container",
            why_not="it is process 1 of its container, which ends with the server: restart the container",
        )
    if server.parent_pid == 0:
        return Managed(
            "a program outside its container runs it",
            why_not="a program outside its container started it and may end with it: restart the server there",
        )
    if not server.begun_by_first:
        return None
    name = Path(server.parent[0]).name if server.parent else "process 1"
    return Managed(
        f"{name} (process 1 of its container) runs it",
        why_not=f"{name}, process 1 of its container, started it and may end with it: restart the container",
    )


def _of_pg_ctl(server: Postmaster, data_directory: str, config_file: str, me: Here) -> Managed | None:
    if server.parent_pid != 1 and not (server.parent and Path(server.parent[0]).name == "systemd"):
        return None
    program = Path(server.program).with_name("pg_ctl")
    log = server.stderr_file or str(Path(data_directory) / _LOG)
    common = ("-D", data_directory, "-w", "-t", str(PATIENCE_S), "-l", log)
    options = ("-o", shlex.join(server.arguments)) if server.arguments else ()
    short = shlex.join((str(program), "restart", "-D", data_directory))
    if me.euid not in (0, server.uid):
        return Managed("pg_ctl", f"sudo -u {_name(server.uid)} {short}", why_not=_not_us(server))
    if not program.is_file():
        return Managed("pg_ctl", short, why_not=f"{program} is missing")
    return Managed(
        description="pg_ctl",
        command=f"sudo -u {_name(server.uid)} {short}" if me.euid != server.uid else short,
        restart=(str(program), "restart", "-m", "fast", *common),
        start=(str(program), "start", *common, *options),
        as_owner=True,
        log_file=log,
    )


_RULES: Final = (_of_a_guard, _of_patroni, of_systemd, _of_debian, _of_container, _of_pg_ctl)


def _not_us(server: Postmaster) -> str:
    return f"only root or {_name(server.uid)}, who owns the server, can restart it"


def _name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def _main_pid(unit: str, of_user: bool) -> int:
    command = ["systemctl", *(["--user"] if of_user else []), "show", "--property=MainPID", "--value", "--", unit]
    try:
        answer = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=_LOOK_TIMEOUT_S,
            check=False,
        )
        return int(answer.stdout)
    except (OSError, ValueError, subprocess.SubprocessError):
        return 0
