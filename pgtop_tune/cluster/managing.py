"""Finds out how a running server is managed and restarted: rules in order, the first match counts.

Source: systemd.unit(5), systemctl(1); pg_ctlcluster(1); pg_ctl of the PostgreSQL documentation.
"""

from __future__ import annotations

import os
import pwd
import re
import shlex
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Final

from msgspec import Struct

from pgtop_tune.cluster.postmaster import Postmaster

PATIENCE_S: Final = 300
"""What pg_ctl and pg_ctlcluster may take to stop a server, and again to start it."""

PATRONI: Final = "Patroni"
"""What manages a server that Patroni has started."""

_UNIT: Final = re.compile(r"[^/]+\.service")
_OF_USER: Final = re.compile(r"/user@(\d+)\.service/")
_DEBIAN: Final = re.compile(r"/etc/postgresql/([^/]+)/([^/]+)/postgresql\.conf")
_LOG: Final = "pgtop-tune-start.log"
_LOOK_TIMEOUT_S: Final = 10.0


class Managed(Struct, frozen=True):
    """What restarts a server.

    Attributes:
        words: How it is managed.
        command: As one types it; "" where it cannot be known.
        restart: As an argument list; empty where it is not ours to run.
        start: What starts it when it is down; empty likewise.
        why_not: Why it is not ours to run, "" where it is.
        as_owner: The lists are to be run as the server's user.
        unit: The systemd unit, "" without.
        log_file: Where the server's first words go; "" where that is said elsewhere.
    """

    words: str
    command: str = ""
    restart: tuple[str, ...] = ()
    start: tuple[str, ...] = ()
    why_not: str = ""
    as_owner: bool = False
    unit: str = ""
    log_file: str = ""


class Here(Struct, frozen=True):
    """Who we are and what this machine has.

    Attributes:
        euid: Our user.
        main_pid: Main process of a systemd unit, 0 where unknown; told whether it is one of the user's own units.
        has: Whether a program is there.
    """

    euid: int
    main_pid: Callable[[str, bool], int]
    has: Callable[[str], bool]


def here() -> Here:
    """This process on this machine."""
    return Here(os.geteuid(), _main_pid, lambda name: shutil.which(name) is not None)


def managed(server: Postmaster, data_directory: str, config_file: str, me: Here) -> Managed:
    """How a server is managed.

    Args:
        server: As the kernel tells.
        data_directory: Its PGDATA.
        config_file: Its postgresql.conf.
        me: Who asks.
    """
    for rule in _RULES:
        found = rule(server, data_directory, config_file, me)
        if found is not None:
            return found
    name = Path(server.parent[0]).name if server.parent else "process"
    return Managed(
        f"{name} (pid {server.parent_pid}) runs it",
        why_not=f"it runs under {name} (pid {server.parent_pid}), which would treat a restart as the end of the server",
    )


def _of_a_guard(server: Postmaster, data_directory: str, config_file: str, me: Here) -> Managed | None:
    if not any(Path(word).name == "guard.py" for word in server.parent):
        return None
    return Managed(
        "a throwaway server of another pgtop-tune",
        why_not="it is a throwaway server: only the pgtop-tune that made it can restart it",
    )


def _of_patroni(server: Postmaster, data_directory: str, config_file: str, me: Here) -> Managed | None:
    if not any("patroni" in Path(word).name for word in server.parent):
        return None
    return Managed(
        PATRONI,
        "patronictl restart CLUSTER MEMBER",
        why_not="Patroni manages it: run patronictl with the names of cluster and member",
    )


def _of_systemd(server: Postmaster, data_directory: str, config_file: str, me: Here) -> Managed | None:
    unit = server.cgroup.rpartition("/")[2]
    if not _UNIT.fullmatch(unit):
        return None
    of_user = _OF_USER.search(server.cgroup)
    if me.main_pid(unit, of_user is not None) != server.pid:
        return None
    words = ("systemctl", *(("--user",) if of_user else ()))
    restart, start = (*words, "restart", unit), (*words, "start", unit)
    allowed = int(of_user[1]) == me.euid if of_user else me.euid == 0
    if allowed:
        return Managed(
            words=f"systemd unit {unit}", command=shlex.join(restart), restart=restart, start=start, unit=unit
        )
    return Managed(
        f"systemd unit {unit}",
        shlex.join(restart if of_user else ("sudo", *restart)),
        why_not="the user of that systemd has to restart it" if of_user else "only root restarts units of systemd",
        unit=unit,
    )


def _of_debian(server: Postmaster, data_directory: str, config_file: str, me: Here) -> Managed | None:
    found = _DEBIAN.fullmatch(config_file)
    if found is None or not me.has("pg_ctlcluster"):
        return None
    cluster = ("pg_ctlcluster", *found.groups())
    restart, start = (*cluster, "restart", "-m", "fast"), (*cluster, "start")
    words = f"cluster {found[1]}/{found[2]} of this distribution"
    if me.euid in (0, server.uid):
        return Managed(words=words, command=shlex.join(restart), restart=restart, start=start)
    return Managed(words, shlex.join(("sudo", *restart)), why_not=_not_us(server))


def _of_container(server: Postmaster, data_directory: str, config_file: str, me: Here) -> Managed | None:
    """A container ends with its process 1, and what came into it from outside has a parent that is not seen in it."""
    if server.pid == 1:
        return Managed(
            "process 1 of its container",
            why_not="it is process 1 of its container, which ends with it: restart the container",
        )
    if server.parent_pid == 0:
        return Managed(
            "a program outside its container runs it",
            why_not="a program outside its container started it and may end with it: restart it there",
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
        return Managed("pg_ctl", short, why_not=f"there is no {program}")
    return Managed(
        words="pg_ctl",
        command=f"sudo -u {_name(server.uid)} {short}" if me.euid != server.uid else short,
        restart=(str(program), "restart", "-m", "fast", *common),
        start=(str(program), "start", *common, *options),
        as_owner=True,
        log_file=log,
    )


_RULES: Final = (_of_a_guard, _of_patroni, _of_systemd, _of_debian, _of_container, _of_pg_ctl)


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
