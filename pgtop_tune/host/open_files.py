"""Processes that listen on a port of this machine, and how many files they may have open: each connection is one.

The ports this machine takes for connections it opens: each is one of a range, and rests after it was closed.
"""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Iterable, Iterator
from ipaddress import IPv4Address, IPv6Address, ip_address
from pathlib import Path
from typing import Final

from msgspec import Struct

from pgtop_tune.base.paths import account_name
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
_EVERY_ADDRESS: Final = "0" * 8
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
    if host.startswith("/"):
        inodes = _unix_inodes(root, f"{host}/.s.PGSQL.{port}")
    elif (addresses := _addresses(host)) and all(map(_is_own, addresses)):
        inodes = _tcp_inodes(root, addresses, port)
    else:
        return Unavailable(Reason.NOT_LOCAL, f"{host} is not this machine")
    if not inodes:
        return Unavailable(Reason.NOT_LOCAL, f"no process listens on port {port} here")
    processes = tuple(_looked_at(root, _holders(root, inodes)))
    if processes:
        return processes
    owners = ", ".join(sorted(map(account_name, set(inodes.values()))))
    return Unavailable(Reason.NO_PERMISSION, f"only root and {owners} can see the process that listens on port {port}")


def _name(home: Path) -> str:
    return read_once(home / "comm").decode(errors="replace").strip()


_Address = IPv4Address | IPv6Address


def _addresses(host: str) -> tuple[_Address, ...]:
    """Return the addresses of a name or an address; none where it has none."""
    try:
        rows = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM) if host else []
        return tuple(ip_address(str(address[0]).partition("%")[0]) for *_, address in rows)
    except (OSError, ValueError):
        return ()


def _is_own(address: _Address) -> bool:
    """Return whether this machine has the address: only then its connections to it come from the same address."""
    if address.is_loopback:
        return True
    try:
        with socket.socket(socket.AF_INET if address.version == 4 else socket.AF_INET6, socket.SOCK_DGRAM) as probe:
            # Nothing is sent.
            probe.connect((str(address), 1))
            return ip_address(str(probe.getsockname()[0])) == address
    except (OSError, ValueError):
        return False


def _tcp_inodes(root: Path, addresses: Iterable[_Address], port: int) -> dict[str, int]:
    """Return the sockets that listen at a port of these addresses, or of all, with the account of each."""
    accepting = {_EVERY_ADDRESS, _EVERY_ADDRESS * 4}
    for address in addresses:
        accepting.add(_as_in_proc(address))
        if address.version == 4:
            accepting.add(_as_in_proc(ip_address(f"::ffff:{address}")))
    return {
        fields[9]: int(fields[7])
        for name in ("tcp", "tcp6")
        for fields in _lines(root / "proc/net" / name)
        if len(fields) > 9
        and fields[3] == _LISTENING
        and fields[1] in {f"{address}:{port:04X}" for address in accepting}
    }


def _as_in_proc(address: _Address) -> str:
    """Return an address as /proc/net/tcp writes it: words of the machine's byte order."""
    packed = address.packed
    return "".join(f"{word:08X}" for word in struct.unpack(f"={len(packed) // 4}I", packed))


def _unix_inodes(root: Path, path: str) -> dict[str, int]:
    """Return the sockets of a path, with the account of each."""
    inodes = [fields[6] for fields in _lines(root / "proc/net/unix") if len(fields) > 7 and fields[7] == path]
    try:
        return dict.fromkeys(inodes, os.stat(path).st_uid) if inodes else {}
    except OSError:
        # Its name is gone: nobody can connect to it.
        return {}


def _lines(path: Path) -> Iterator[list[str]]:
    try:
        content = read_once(path).decode(errors="replace")
    except OSError:
        return
    for line in content.splitlines()[1:]:
        yield line.split()


def _holders(root: Path, inodes: Iterable[str]) -> Iterator[int]:
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
