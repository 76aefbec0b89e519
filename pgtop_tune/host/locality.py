"""Whether the server we are connected to runs on this machine, where its processes can be looked at."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from pgtop_tune.host.block_devices import ROOT
from pgtop_tune.host.kernel_sections import parse_boot_time
from pgtop_tune.host.kernel_text import read_once
from pgtop_tune.host.process_files import Lineage, parse_lineage
from pgtop_tune.model.absence import Reason, Unavailable

_CLOCK_SLACK_S: Final = 10.0
"""/proc/stat tells the boot to the second, and the wall clock may have been corrected since."""
_NAMES: Final = ("postgres", "postmaster")
"""Distributors call it edb-postgres or .postgres-wrapped, too."""


def local_postmaster(backend_pid: int, backend_start_ms: int | None, root: Path = ROOT) -> int | Unavailable:
    """The postmaster's pid when the backend that serves us is a process of this machine.

    A loopback address proves nothing (SSH tunnel, container with a forwarded port), and another server may own a
    process of the same number. So the process must carry the name of a server, descend from one, and have started
    when the server says our backend did.

    Args:
        backend_pid: pg_backend_pid() of our connection.
        backend_start_ms: pg_stat_activity.backend_start of that backend, milliseconds since the epoch, read in the
            same statement (behind a pooler the next one may reach another backend). None where the server does not
            say: the session acts as a role that may not see the one that logged in (ALTER DATABASE … SET role).
        root: Where /proc is found.

    Returns:
        The pid, or Unavailable(NOT_LOCAL) with what did not fit.
    """
    try:
        backend = _lineage(root, backend_pid)
        parent = _lineage(root, backend.parent_pid)
        boot_s = parse_boot_time(read_once(root / "proc/stat"))
    except (OSError, ValueError):
        return not_here(f"no server process {backend_pid} here")
    if not (is_server_name(backend.name) and is_server_name(parent.name)):
        return not_here(f"process {backend_pid} here is not a PostgreSQL backend")
    started_s = boot_s + backend.start_ticks / os.sysconf("SC_CLK_TCK")
    return another_start(backend_pid, started_s, backend_start_ms) or backend.parent_pid


def another_start(backend_pid: int, started_s: float, backend_start_ms: int | None) -> Unavailable | None:
    """Why a process is not the backend of that start; None where it is.

    Args:
        backend_pid: See `local_postmaster`.
        started_s: When the process started, seconds since the epoch.
        backend_start_ms: See `local_postmaster`.
    """
    if backend_start_ms is None:
        return not_here("the server does not say when the session began")
    if abs(started_s - backend_start_ms / 1000) > _CLOCK_SLACK_S:
        return not_here(f"process {backend_pid} here is another server's")
    return None


def is_server_name(name: str) -> bool:
    """Whether a process of this name is one of a server."""
    return any(each in name for each in _NAMES)


def working_directory(pid: int, root: Path = ROOT) -> str | None:
    """Where a process works: for a postmaster its data directory, which the role may not be allowed to ask for.

    None when we may not look (another user's process). Source: /proc/PID/cwd.
    """
    try:
        return os.readlink(root / f"proc/{pid}/cwd")
    except OSError:
        return None


def _lineage(root: Path, pid: int) -> Lineage:
    return parse_lineage(read_once(root / f"proc/{pid}/stat"))


def not_here(what: str) -> Unavailable:
    """The server's process is none that this machine shows, and why."""
    return Unavailable(
        Reason.NOT_LOCAL,
        f"{what}: the server runs on another machine, in a container of its own, or /proc hides it (hidepid)",
    )
