"""Processes that listen on a port of this machine, and how many files they may have open: each connection is one.

The ports this machine takes for connections it opens: each is one of a range, and rests after it was closed.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from ipaddress import ip_address
from pathlib import Path
from typing import Final

from msgspec import Struct

from pgtop_tune.host.block_devices import ROOT
from pgtop_tune.host.kernel_text import read_once
from pgtop_tune.model.absence import Reason, Unavailable

_RANGE: Final = "proc/sys/net/ipv4/ip_local_port_range"
_REUSE: Final = "proc/sys/net/ipv4/tcp_tw_reuse"
_TIME_WAIT_S: Final = 60.0
"""TCP_TIMEWAIT_LEN of include/net/tcp.h; the side that closes first waits."""
_REUSED_AFTER_S: Final = 1.0
"""tcp_twsk_unique() of net/ipv4/tcp_ipv4.c."""


class EphemeralPorts(Struct, frozen=True):
    """Ports towards one address and port of a server.

    Attributes:
        count: net.ipv4.ip_local_port_range.
        reuse: net.ipv4.tcp_tw_reuse: 0 never, 1 always, 2 on the loopback interface.
    """

    count: int
    reuse: int

    def rests_s(self, *, loopback: bool) -> float:
        """Return how long a port is not taken again for the same address after its connection was closed here."""
        return _REUSED_AFTER_S if self.reuse == 1 or (self.reuse == 2 and loopback) else _TIME_WAIT_S


def ephemeral_ports(root: Path = ROOT) -> EphemeralPorts | Unavailable:
    """Return the range and the rule that hold now, for both versions of IP."""
    try:
        low, high = map(int, read_once(root / _RANGE).split())
        return EphemeralPorts(high - low + 1, int(read_once(root / _REUSE)))
    except (OSError, ValueError) as problem:
        return Unavailable(Reason.FAILED, str(problem))


def listen_backlog(root: Path = ROOT) -> int | None:
    """Return the most connections that may wait to be accepted at a socket; None where it is not known."""
    try:
        return int(read_once(root / "proc/sys/net/core/somaxconn"))
    except (OSError, ValueError):
        return None


_LISTENING: Final = "0A"
"""TCP_LISTEN of include/net/tcp_states.h, as /proc/net/tcp writes it."""
_LIMIT: Final = "Max open files"


class OpenFiles(Struct, frozen=True):
    """A process and its files.

    Attributes:
        name: Name of the program, at most 15 characters.
        soft, hard: Limits on open files; None is no limit.
        now: Number of open files.
    """

    pid: int
    name: str
    soft: int | None
    hard: int | None
    now: int


def parse_limit(content: str) -> tuple[int | None, int | None]:
    """Return soft and hard limit on open files of /proc/PID/limits; None is unlimited.

    Raises:
        ValueError: There is no such line, or no numbers in it.
    """
    for line in content.splitlines():
        if line.startswith(_LIMIT):
            soft, hard = (None if word == "unlimited" else int(word) for word in line[len(_LIMIT) :].split()[:2])
            return soft, hard
    raise ValueError("no limit on open files")


def listeners(host: str, port: int, root: Path = ROOT) -> tuple[OpenFiles, ...] | Unavailable:
    """Return the processes that accept connections there, usually one.

    Args:
        host: A socket directory, a name or an address.
        port: TCP port, or the number in the name of the socket.
        root: Where /proc is found.

    Returns:
        What was found; Unavailable(NOT_LOCAL) where the host is not surely this machine or nobody here listens,
        Unavailable(NO_PERMISSION) where the process is not ours to look at.

    Source: /proc/net/tcp, tcp6, unix; /proc/PID/fd, limits, comm.
    """
    if not _is_here(host):
        return Unavailable(Reason.NOT_LOCAL, f"{host} is not this machine")
    inodes = set(_unix_inodes(root, f"{host}/.s.PGSQL.{port}") if host.startswith("/") else _tcp_inodes(root, port))
    if not inodes:
        return Unavailable(Reason.NOT_LOCAL, f"no process listens on port {port} here")
    processes = tuple(_looked_at(root, _holders(root, inodes)))
    return processes or Unavailable(
        Reason.NO_PERMISSION, f"only root and its owner can see the process that listens on port {port}"
    )


def called(names: Collection[str], root: Path = ROOT) -> tuple[OpenFiles, ...]:
    """Return the processes of these programs; which sockets and how many files they have is for their owner to see."""
    processes = []
    for directory in os.scandir(root / "proc"):
        # It may have ended since.
        with suppress(OSError):
            if directory.name.isdigit() and (name := _name(Path(directory.path))) in names:
                processes.append(OpenFiles(pid=int(directory.name), name=name, soft=None, hard=None, now=0))
    return tuple(processes)


def _name(home: Path) -> str:
    return read_once(home / "comm").decode(errors="replace").strip()


def _is_here(host: str) -> bool:
    if host.startswith("/") or host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def _tcp_inodes(root: Path, port: int) -> Iterator[str]:
    for name in ("tcp", "tcp6"):
        for fields in _lines(root / "proc/net" / name):
            if len(fields) > 9 and fields[3] == _LISTENING and fields[1].endswith(f":{port:04X}"):
                yield fields[9]


def _unix_inodes(root: Path, path: str) -> Iterator[str]:
    for fields in _lines(root / "proc/net/unix"):
        if len(fields) > 7 and fields[7] == path:
            yield fields[6]


def _lines(path: Path) -> Iterator[list[str]]:
    try:
        content = read_once(path).decode(errors="replace")
    except OSError:
        return
    for line in content.splitlines()[1:]:
        yield line.split()


def _holders(root: Path, inodes: set[str]) -> Iterator[int]:
    """Yield the processes with one of these sockets among their files, as far as this user may look."""
    sockets = {f"socket:[{inode}]" for inode in inodes}
    for directory in os.scandir(root / "proc"):
        if not directory.name.isdigit():
            continue
        try:
            files = os.listdir(f"{directory.path}/fd")
            if any(os.readlink(f"{directory.path}/fd/{name}") in sockets for name in files):
                yield int(directory.name)
        except OSError:
            continue


def _looked_at(root: Path, pids: Iterable[int]) -> Iterator[OpenFiles]:
    for pid in pids:
        home = root / f"proc/{pid}"
        try:
            soft, hard = parse_limit(read_once(home / "limits").decode(errors="replace"))
            yield OpenFiles(pid=pid, name=_name(home), soft=soft, hard=hard, now=len(os.listdir(home / "fd")))
        except (OSError, ValueError):
            continue
