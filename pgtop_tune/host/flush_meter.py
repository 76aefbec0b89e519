"""Speed of durable writes, of the clock and of memory.

The file has no name (O_TMPFILE): nobody sees it, and it is gone when we are, however that happens.
Source: open(2), fdatasync(2); PostgreSQL documentation, wal_sync_method and pg_test_fsync.

What reading the clock costs, by the server's own pg_test_timing; and how fast memory is copied.
Source: PostgreSQL documentation, pg_test_timing.

How often a directory's device makes a page of WAL durable, by the server's own pg_test_fsync.
It is handed a file without a name (O_TMPFILE): nobody sees it, and it is gone when we are, however that happens.
Source: PostgreSQL documentation, pg_test_fsync.
"""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import stat
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import median
from types import MappingProxyType
from typing import Final

from msgspec import Struct

from pgtop_tune.model.absence import Reason, Unavailable
from pgtop_tune.process.guarded_program import start_guarded, start_guarded_async

PROGRAM: Final = "pg_test_fsync"
_LINE: Final = re.compile(r"\s*(\w+)\s+([0-9.]+) ops/sec")
_GRACE_S: Final = 1.0


async def program_flushes(program: Path, directory: Path, limit_s: float) -> Mapping[str, float] | Unavailable:
    """Measure with pg_test_fsync the flushes a second by wal_sync_method, each after one write of 8 kB.

    Args:
        program: pg_test_fsync.
        directory: pg_wal.
        limit_s: Seconds after which it is ended, more than `LEAST_S`; methods that it has not come to are left out.

    Returns:
        What was measured; Unavailable where nothing was: we may not write there, or it says something else.
    """
    file = unnamed_file(directory)
    if isinstance(file, Unavailable):
        return file
    try:
        running = await start_guarded_async(
            [str(program), "-s", "1", "-f", f"/proc/self/fd/{file}"],
            signal="TERM",
            grace_s=_GRACE_S,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "LC_ALL": "C"},
            pass_fds=(file,),
        )
    except OSError as problem:
        return Unavailable(Reason.FAILED, f"{program}: {problem.strerror}")
    finally:
        os.close(file)
    rates: dict[str, float] = {}
    try:
        async with asyncio.timeout(limit_s):
            async for line in running.stdout:
                rates |= one_method(line.decode("utf-8", "replace"))
                if len(rates) == len(METHODS):
                    break
    except (TimeoutError, ValueError):
        pass
    finally:
        await running.stop()
    return rates or Unavailable(Reason.FAILED, f"{program} printed no known result within {limit_s:.0f} s")


def one_method(line: str) -> Mapping[str, float]:
    """Return method and number of a line "fdatasync  1940.123 ops/sec  515 usecs/op"; nothing for any other line."""
    match = _LINE.match(line)
    if match is None or match[1] not in METHODS or not float(match[2]):
        return {}
    return {match[1]: float(match[2])}


_PROGRAM: Final = "pg_test_timing"
_OVERHEAD: Final = re.compile(
    r"(?:^(?P<source>[A-Za-z ]*[Cc]lock source): .*\n)?.*including overhead:\s*(?P<ns>[0-9.]+)\s*ns", re.M
)
_OF_THE_PROCESSOR: Final = "Clock source"
_PATIENCE_S: Final = 10.0
_COPY_BYTES: Final = 64 * 1024 * 1024
_COPIES: Final = 5


def program_beside(postmaster_pid: int | None, name: str = _PROGRAM) -> Path | None:
    """Return a program of the server's own installation, else the one in the PATH; None where there is none.

    Source: /proc/PID/exe of the postmaster.
    """
    try:
        binary = Path(os.readlink(f"/proc/{postmaster_pid}/exe")).parent / name
        if _trusted(binary) and _trusted(binary.parent):
            return binary
    except OSError:
        pass
    path = shutil.which(name)
    return Path(path) if path else None


def _trusted(path: Path) -> bool:
    """Return whether only root or this user can have written the file: a stranger's server must not run code as this
    user."""
    status = path.stat()
    return status.st_uid in (0, os.geteuid()) and not status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


def timer_overhead_ns(program: Path, *, tsc: bool = False) -> float | Unavailable:
    """Return the nanoseconds that one reading of the clock takes, with the loop around it; needs a second for each
    clock source.

    Args:
        program: pg_test_timing.
        tsc: As of `parse_overhead`.
    """
    try:
        # From 19 on it prints a line for each measured duration: more than a pipe holds.
        with tempfile.TemporaryFile() as output:
            running = start_guarded(
                [str(program), "--duration=1"],
                stdout=output,
                stderr=subprocess.DEVNULL,
                env={**os.environ, "LC_ALL": "C"},
            )
            try:
                running.wait(_PATIENCE_S)
            finally:
                running.stop()
            output.seek(0)
            return parse_overhead(output.read().decode("utf-8", "replace"), tsc=tsc)
    except TimeoutError:
        return Unavailable(Reason.FAILED, f"{program} did not finish within {_PATIENCE_S:.0f} s")
    except OSError as problem:
        return Unavailable(Reason.FAILED, f"{program}: {problem.strerror}")


def parse_overhead(output: str, *, tsc: bool = False) -> float | Unavailable:
    """Return the nanoseconds of a line "Per loop time including overhead: 22.36 ns", "Average loop time …" from 18 on.

    From 19 on there may be three: of "System clock source", of "Clock source" (the processor's counter), and of "Fast
    clock source" (the counter read without waiting for earlier instructions, only for the nodes of EXPLAIN ANALYZE).

    Args:
        output: The program's output.
        tsc: True where the server reads the counter (timing_clock_source).
    """
    figures = [(match["source"], float(match["ns"])) for match in _OVERHEAD.finditer(output)]
    matching = [ns for source, ns in figures if (source == _OF_THE_PROCESSOR) == tsc]
    if matching:
        return matching[0]
    says = "lacks the processor's clock source" if figures else "was not recognized"
    return Unavailable(Reason.FAILED, f"the output of pg_test_timing {says}")


def copied_bytes_per_s() -> float:
    """Return how fast one core copies memory, the best of five times 64 MB."""
    source, target = memoryview(bytearray(_COPY_BYTES)), memoryview(bytearray(_COPY_BYTES))
    best = float("inf")
    for _ in range(_COPIES):
        began = time.perf_counter()
        target[:] = source
        best = min(best, time.perf_counter() - began)
    return _COPY_BYTES / best


PAGE_BYTES: Final = 8192
_FILE_BYTES: Final = 16 * 1024 * 1024
_ROOM_BYTES: Final = 16 * _FILE_BYTES
"""Free space on the file system below which nothing is written."""
_MOST: Final = 20_000
PASSES: Final = 5
"""Number of passes; the rate is their median, so that a disturbed one does not decide."""


class Flushes(Struct, frozen=True):
    """Measured flushes.

    Attributes:
        method: The wal_sync_method that was used.
        count: Writes with a sync behind each.
        median_ms, p99_ms: Durations of one write and its sync.
        rates: Flushes a second of each pass, one after the other.
    """

    method: str
    count: int
    median_ms: float
    p99_ms: float
    rates: tuple[float, ...]

    @property
    def per_s(self) -> float:
        """The median of the passes."""
        return median(self.rates)


class _Method(Struct, frozen=True):
    """Flags to open a file with, and the call after each write."""

    flags: int
    sync: Callable[[int], None] | None


METHODS: Final[Mapping[str, _Method]] = MappingProxyType(
    {
        # macOS has none.
        **({"fdatasync": _Method(0, os.fdatasync)} if hasattr(os, "fdatasync") else {}),
        "fsync": _Method(0, os.fsync),
        "open_datasync": _Method(os.O_DSYNC, None),
        "open_sync": _Method(os.O_SYNC, None),
    }
)
"""Values of wal_sync_method that this system has, of those that Linux has."""
LEAST_S: Final = float(len(METHODS))
"""Shortest run of pg_test_fsync: a second for each method."""


def measure_flushes(
    directory: Path, method: str, seconds: float, clock: Callable[[], float] = time.perf_counter
) -> Flushes | Unavailable:
    """Write and sync pages for a while; blocks, so call it off the event loop.

    Args:
        directory: pg_wal.
        method: wal_sync_method of the server.
        seconds: Duration; at most 20,000 writes into 16 MB.
        clock: Seconds, monotonic.

    Returns:
        What was seen; Unavailable where we may not write there, the file system has no unnamed files or no room.
    """
    how = METHODS.get(method)
    if how is None:
        return Unavailable(Reason.NOT_SUPPORTED, f"unknown wal_sync_method {method}")
    file = unnamed_file(directory, how.flags)
    if isinstance(file, Unavailable):
        return file
    try:
        return _measured(file, method, how, seconds, clock)
    except OSError as problem:
        return Unavailable(Reason.FAILED, f"{directory}: {problem.strerror}")
    finally:
        os.close(file)


def unnamed_file(directory: Path, flags: int = 0) -> int | Unavailable:
    """Open a file without a name in a directory; the caller closes it.

    Args:
        directory: Directory of the file.
        flags: Besides O_RDWR and O_TMPFILE.
    """
    if not hasattr(os, "O_TMPFILE"):
        return Unavailable(Reason.NOT_SUPPORTED, "this system has no unnamed files (O_TMPFILE)")
    try:
        space = os.statvfs(directory)
        if space.f_bavail * space.f_frsize < _ROOM_BYTES:
            return Unavailable(Reason.FAILED, f"{directory}: too little space for a 16 MB file")
        return os.open(directory, os.O_TMPFILE | os.O_RDWR | flags, 0o600)
    except PermissionError:
        return Unavailable(Reason.NO_PERMISSION, f"{directory} is not readable; run as root or as the server's user")
    except OSError as problem:
        return Unavailable(Reason.NOT_SUPPORTED, f"{directory}: {problem.strerror}")


def _measured(file: int, method: str, how: _Method, seconds: float, clock: Callable[[], float]) -> Flushes:
    page = os.urandom(PAGE_BYTES)
    os.pwrite(file, bytes(_FILE_BYTES), 0)
    os.fsync(file)
    durations: list[float] = []
    rates: list[float] = []
    for number in range(1, PASSES + 1):
        done = len(durations)
        began = before = clock()
        while len(durations) == done or (
            before - began < seconds / PASSES and len(durations) < _MOST * number // PASSES
        ):
            os.pwrite(file, page, len(durations) * PAGE_BYTES % _FILE_BYTES)
            if how.sync is not None:
                how.sync(file)
            now = clock()
            durations.append(now - before)
            before = now
        rates.append((len(durations) - done) / (before - began))
    ordered = sorted(durations)
    return Flushes(
        method=method,
        count=len(durations),
        median_ms=1000 * ordered[len(ordered) // 2],
        p99_ms=1000 * ordered[min(int(len(ordered) * 0.99), len(ordered) - 1)],
        rates=tuple(rates),
    )
