"""Processes of this machine: /proc/PID. Source: proc_pid_stat(5), proc_pid_io(5), Documentation/filesystems/proc.rst.

Programs called pgbench that run on this machine, of any user.

Whether the server we are connected to runs on this machine, where its processes can be looked at.

What this process itself costs.
"""

from __future__ import annotations

import contextlib
import os
import re
import resource
import sys
import time
from collections.abc import Collection
from pathlib import Path
from typing import Final

from msgspec import Struct

from pgtop_tune.host.block_devices import ROOT
from pgtop_tune.host.kernel_sections import parse_boot_time
from pgtop_tune.host.kernel_text import KeptFile, link_of, read_once, unsigned
from pgtop_tune.model.absence import Reason, Unavailable
from pgtop_tune.model.host import ProcessCounters, ThreadCounters

PGBENCH: Final = "pgbench"
MOST_PGBENCH: Final = 8


def pgbench_processes(besides: Collection[int] = (), proc: str = "/proc") -> tuple[int, ...]:
    """Return the pids of programs called pgbench, ascending; the first eight. None where there is no /proc.

    Args:
        besides: Processes that are known to be others: the server's are most of a machine's.
        proc: The /proc directory.

    Source: /proc/PID/comm.
    """
    try:
        pids = sorted({int(name) for name in os.listdir(proc) if name.isdigit()}.difference(besides))
    except OSError:
        return ()
    pgbench_pids: list[int] = []
    for pid in pids:
        # It may have ended since.
        with contextlib.suppress(OSError):
            if read_once(f"{proc}/{pid}/comm") == f"{PGBENCH}\n".encode():
                pgbench_pids.append(pid)
    return tuple(pgbench_pids[:MOST_PGBENCH])


# Positions after the closing parenthesis of field 2: field N of the manual page stands at N - 3.
_STATE, _PARENT, _FLAGS, _USER, _SYSTEM, _THREADS, _START, _RSS, _DELAY = 0, 1, 6, 11, 12, 17, 19, 21, 39
_ONE: Final = b"1"
_REAPED: Final = slice(13, 15)
_NO_CHILD: Final = [b"0", b"0"]
_COUNTERS: Final = 1 << 64
"""Values of a counter: a recording takes no larger ones."""
_KERNEL_THREAD: Final = 0x0020_0000
"""PF_KTHREAD of include/linux/sched.h."""
RSS_STEP: Final = 128 * 1024
"""Step of resident sets. A working backend touches pages all the time; finer values would only make recordings
larger."""
_IO: Final = re.compile(rb"^wchar: (\d+)\n(?:.*\n)*?read_bytes: (\d+)$", re.MULTILINE)


def parse_pid_stat(
    stat: bytes, page_bytes: int, io: tuple[int, int] | None = None, schedstat: tuple[int, int] | None = None
) -> ProcessCounters:
    """Return the counters of one process.

    Args:
        stat: Content of /proc/PID/stat. The name in it may hold blanks, parentheses and line breaks.
        page_bytes: Size of a page, for the resident set.
        io: Result of `parse_pid_io`; None when /proc/PID/io was not read.
        schedstat: Result of `parse_schedstat`; None when /proc/PID/schedstat was not read.

    Raises:
        ValueError: The content is not what the kernel writes.
    """
    fields = _words(stat)
    read_bytes, write_bytes = io or (None, None)
    run_ms, run_delay_ms = schedstat or (None, None)
    # In the order of the fields, for hundreds of processes: keywords would take ten times as long.
    return ProcessCounters(
        unsigned(stat[: stat.index(b" ")]),
        unsigned(fields[_START]),
        fields[_STATE].decode("ascii", "replace"),
        unsigned(fields[_USER]),
        unsigned(fields[_SYSTEM]),
        unsigned(fields[_RSS]) * page_bytes // RSS_STEP * RSS_STEP,
        unsigned(fields[_DELAY]),
        read_bytes,
        write_bytes,
        run_delay_ms,
        0 if fields[_REAPED] == _NO_CHILD else sum(map(unsigned, fields[_REAPED])) % _COUNTERS,
        run_ms if fields[_THREADS] == _ONE else None,
    )


def parse_pid_io(io: bytes) -> tuple[int, int]:
    """Return `read_bytes` (fetched from storage) and `wchar` (handed to write calls).

    Not `write_bytes`: it counts page cache made dirty by the folio, and with the large folios of newer kernels (ext4
    since 6.16) each 8 kB write of a WAL page counts a megabyte or two. A backend that wrote 13 MB/s showed 1.5 GB/s.

    Raises:
        ValueError: The content is not what the kernel writes.
    """
    counters = _IO.search(io)
    if counters is None:
        raise ValueError("/proc/PID/io has no wchar and read_bytes")
    return unsigned(counters.group(2)), unsigned(counters.group(1))


def parse_schedstat(schedstat: bytes) -> tuple[int, int]:
    """Return the milliseconds on a CPU, and those waited for one while ready to run, of the main thread.

    Source: Documentation/scheduler/sched-stats.rst, fields 1 and 2, ns.

    Raises:
        ValueError: The content is not what the kernel writes.
    """
    fields = schedstat.split()
    if len(fields) < 2:
        raise ValueError("schedstat: too few fields")
    return unsigned(fields[0]) // 1_000_000, unsigned(fields[1]) // 1_000_000


def parse_thread(pid: int, stat: bytes, schedstat: bytes) -> ThreadCounters:
    """Return the counters of one thread.

    Args:
        pid: Pid of its process.
        stat: Content of /proc/PID/task/TID/stat.
        schedstat: Content of …/schedstat; empty where the kernel has none.

    Raises:
        ValueError: The content is not what the kernel writes.
    """
    fields = _words(stat)
    return ThreadCounters(
        tid=unsigned(stat[: stat.index(b" ")]),
        pid=pid,
        start_ticks=unsigned(fields[_START]),
        user_ticks=unsigned(fields[_USER]),
        system_ticks=unsigned(fields[_SYSTEM]),
        run_delay_ms=parse_schedstat(schedstat)[1] if schedstat else None,
    )


class Lineage(Struct, frozen=True):
    """Identity of a process: its name (at most 15 bytes, foreign text), parent and start; whether it is a kernel
    thread."""

    name: str
    parent_pid: int
    start_ticks: int
    kernel_thread: bool = False


def parse_lineage(stat: bytes) -> Lineage:
    """Return name, parent, start and kind of the process of a /proc/PID/stat.

    Raises:
        ValueError: The content is not what the kernel writes.
    """
    fields = _words(stat)
    name = stat[stat.index(b"(") + 1 : stat.rindex(b")")]
    return Lineage(
        name=name.decode("utf-8", "replace"),
        parent_pid=unsigned(fields[_PARENT]),
        start_ticks=unsigned(fields[_START]),
        kernel_thread=bool(unsigned(fields[_FLAGS]) & _KERNEL_THREAD),
    )


def cpu_ticks(stat: bytes) -> int:
    """Return the CPU time of the process of a /proc/PID/stat, user and system.

    Raises:
        ValueError: The content is not what the kernel writes.
    """
    fields = _words(stat)
    return unsigned(fields[_USER]) + unsigned(fields[_SYSTEM])


def _words(stat: bytes) -> list[bytes]:
    """Return fields 3 to 42. The last parenthesis ends the name: nothing behind it holds one."""
    fields = stat[stat.rindex(b")") + 2 :].split(None, _DELAY + 1)
    if len(fields) <= _DELAY:
        raise ValueError("/proc/PID/stat: too few fields")
    return fields


_CLOCK_SLACK_S: Final = 10.0
"""/proc/stat tells the boot to the second, and the wall clock may have been corrected since."""
_NAMES: Final = ("postgres", "postmaster")
"""Distributors call it edb-postgres or .postgres-wrapped, too."""


def local_postmaster(backend_pid: int, backend_start_ms: int | None, root: Path = ROOT) -> int | Unavailable:
    """Return the postmaster's pid when the backend of our session is a process of this machine.

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
    """Return the reason why a process is not the backend of that start; None where it is.

    Args:
        backend_pid: See `local_postmaster`.
        started_s: Start of the process, seconds since the epoch.
        backend_start_ms: See `local_postmaster`.
    """
    if backend_start_ms is None:
        return not_here("the server does not report the start of the session")
    if abs(started_s - backend_start_ms / 1000) > _CLOCK_SLACK_S:
        return not_here(f"process {backend_pid} here belongs to another server")
    return None


def is_server_name(name: str) -> bool:
    """Return whether a process of this name belongs to a server."""
    return any(server_name in name for server_name in _NAMES)


def working_directory(pid: int, root: Path = ROOT) -> str | None:
    """Return the working directory of a process: of a postmaster its data directory, which the role may not be allowed
    to ask for.

    None when we may not look (another user's process). Source: /proc/PID/cwd.
    """
    return link_of(root / f"proc/{pid}/cwd") or None


def _lineage(root: Path, pid: int) -> Lineage:
    return parse_lineage(read_once(root / f"proc/{pid}/stat"))


def not_here(observation: str) -> Unavailable:
    """Return the absence of the server's process on this machine, with the observation that shows it."""
    return Unavailable(
        Reason.NOT_LOCAL,
        f"{observation}: the server runs on another machine or in another container, or /proc hides it (hidepid)",
    )


class OwnCost(Struct, frozen=True):
    """Costs of this program since it started.

    Attributes:
        cpu_s: CPU seconds of all its threads, user and system.
        rss_bytes: Resident set now; where there is no /proc, the largest it ever was.
    """

    cpu_s: float
    rss_bytes: int


_MAXRSS_UNIT_BYTES: Final = 1 if sys.platform == "darwin" else 1024


class OwnCostMeter:
    """Meter of our own cost; cheap enough for every frame.

    Source: clock_gettime(CLOCK_PROCESS_CPUTIME_ID) and field 2 of /proc/self/statm, in pages.
    """

    def __init__(self) -> None:
        self._page_bytes = os.sysconf("SC_PAGESIZE")
        # The number, not "self": a descriptor of /proc/self would go on naming the parent after a fork.
        self._statm = KeptFile(f"/proc/{os.getpid()}/statm")

    def read(self) -> OwnCost:
        return OwnCost(time.process_time(), self._rss_bytes())

    def close(self) -> None:
        self._statm.close()

    def _rss_bytes(self) -> int:
        try:
            return unsigned(self._statm.read().split(None, 2)[1]) * self._page_bytes
        except (OSError, ValueError, IndexError):
            return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * _MAXRSS_UNIT_BYTES
