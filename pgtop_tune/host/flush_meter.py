"""How fast a directory's device makes a page of WAL durable: write 8 kB, sync, again; as pg_test_fsync does.

The file has no name (O_TMPFILE): nobody sees it, and it is gone when we are, however that happens.
Source: open(2), fdatasync(2); PostgreSQL documentation, wal_sync_method and pg_test_fsync.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import median
from types import MappingProxyType
from typing import Final

from msgspec import Struct

from pgtop_tune.model.absence import Reason, Unavailable

PAGE_BYTES: Final = 8192
_FILE_BYTES: Final = 16 * 1024 * 1024
_ROOM_BYTES: Final = 16 * _FILE_BYTES
"""Left on the file system before we write at all."""
_MOST: Final = 20_000
PASSES: Final = 5
"""What disturbs one of them does not decide: the rate is their median."""


class Flushes(Struct, frozen=True):
    """What was seen.

    Attributes:
        method: The wal_sync_method that was used.
        count: Writes with a sync behind each.
        median_ms, p99_ms: Of one write and its sync.
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
    """Flags to open with, and what is called after each write."""

    flags: int
    sync: Callable[[int], None] | None


METHODS: Final[Mapping[str, _Method]] = MappingProxyType(
    {
        "fdatasync": _Method(0, os.fdatasync),
        "fsync": _Method(0, os.fsync),
        "open_datasync": _Method(os.O_DSYNC, None),
        "open_sync": _Method(os.O_SYNC, None),
    }
)
"""Values of wal_sync_method that Linux has."""


def measure_flushes(
    directory: Path, method: str, seconds: float, clock: Callable[[], float] = time.perf_counter
) -> Flushes | Unavailable:
    """Writes and syncs pages for a while; blocks, so call it off the event loop.

    Args:
        directory: pg_wal.
        method: wal_sync_method of the server.
        seconds: How long; at most 20,000 writes into 16 MB.
        clock: Seconds, monotonic.

    Returns:
        What was seen; Unavailable where we may not write there, the file system has no unnamed files or no room.
    """
    how = METHODS.get(method)
    if how is None:
        return Unavailable(Reason.NOT_SUPPORTED, f"wal_sync_method {method} is not known here")
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
    """An open file there that has no name; the caller closes it.

    Args:
        directory: Where.
        flags: Besides O_RDWR and O_TMPFILE.
    """
    try:
        space = os.statvfs(directory)
        if space.f_bavail * space.f_frsize < _ROOM_BYTES:
            return Unavailable(Reason.FAILED, f"{directory}: too little room for a file of 16 MB")
        return os.open(directory, os.O_TMPFILE | os.O_RDWR | flags, 0o600)
    except PermissionError:
        return Unavailable(Reason.NO_PERMISSION, f"{directory} is closed to us; run as root or as the server's user")
    except OSError as problem:
        return Unavailable(Reason.NOT_SUPPORTED, f"{directory}: {problem.strerror}")


def _measured(file: int, method: str, how: _Method, seconds: float, clock: Callable[[], float]) -> Flushes:
    page = os.urandom(PAGE_BYTES)
    os.pwrite(file, bytes(_FILE_BYTES), 0)
    os.fsync(file)
    taken: list[float] = []
    rates: list[float] = []
    for number in range(1, PASSES + 1):
        done = len(taken)
        began = before = clock()
        while len(taken) == done or (before - began < seconds / PASSES and len(taken) < _MOST * number // PASSES):
            os.pwrite(file, page, len(taken) * PAGE_BYTES % _FILE_BYTES)
            if how.sync is not None:
                how.sync(file)
            now = clock()
            taken.append(now - before)
            before = now
        rates.append((len(taken) - done) / (before - began))
    ordered = sorted(taken)
    return Flushes(
        method,
        len(taken),
        1000 * ordered[len(ordered) // 2],
        1000 * ordered[min(int(len(ordered) * 0.99), len(ordered) - 1)],
        tuple(rates),
    )
