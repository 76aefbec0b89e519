"""The process that listens at a Unix socket: the server itself, or a proxy with a socket of its own in front of it.

Source: SO_PEERCRED of unix(7), the process that called listen(2); proc_pid_stat(5), proc_pid_status(5) (NSpid),
proc_tid_children(5).
"""

from __future__ import annotations

import os
import socket
import struct
from pathlib import Path
from typing import Final

_CREDENTIALS: Final = struct.Struct("3i")
"""struct ucred: process, user, group."""


def is_of_server(descriptor: int, backend_pid: int) -> bool:
    """Return whether the process that a Unix socket leads to has started a backend; False where that cannot be seen.

    Args:
        descriptor: Of the connected socket.
        backend_pid: pg_backend_pid() of the session, in the server's namespace of process numbers.
    """
    if not hasattr(socket, "SO_PEERCRED"):
        return False
    with socket.socket(fileno=os.dup(descriptor)) as connected:
        credentials = connected.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    listener, _, _ = _CREDENTIALS.unpack(credentials)
    if listener <= 0:
        # It is in another namespace, and not visible from ours.
        return False
    try:
        if _parent_of(backend_pid) == listener:
            return True
        children = Path(f"/proc/{listener}/task/{listener}/children").read_text(encoding="ascii").split()
        return any(_number_inside(child) == backend_pid for child in children)
    except OSError:
        return False


def _parent_of(pid: int) -> int | None:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    return int(stat.rpartition(")")[2].split()[1])


def _number_inside(pid: str) -> int | None:
    """Return the number of a process in its own namespace."""
    try:
        status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    numbers = next((line.split() for line in status.splitlines() if line.startswith("NSpid:")), [""])
    return int(numbers[-1]) if numbers[-1].isdecimal() else None
