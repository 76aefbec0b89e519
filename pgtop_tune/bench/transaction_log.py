"""pgbench's transaction log, read while it grows, as one histogram per second.

pgbench has one file per thread and hands a file to the kernel 4096 bytes at a time, some 110 lines. So the lines of a
second come in pieces, with few transactions many seconds late. A second is complete when every file has gone past it;
for a file that stays behind we wait as long as its own habit lets us expect (`_WAITS` times its longest recent
silence), not longer. Lines that come after that are reported as one more histogram of the same second, so that the sum
of all histograms is the whole log.

Each file is read while pgbench writes it, and the space of what was read is given back to the disk.
"""

from __future__ import annotations

import ctypes
import errno
import math
import os
import re
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from msgspec import Struct

from pgtop_tune.bench.log_seconds import PLAIN, GrowingSecond, LogLayout, SecondPart, parse_lines, second_of
from pgtop_tune.model.bench import LatencySecond

_PUNCH_HOLE: Final = 0x02
_KEEP_SIZE: Final = 0x01
_PAGE: Final = 4096
_PUNCH_FROM: Final = 2**18
_TRUNCATE_FROM: Final = 4 * 2**20
CHUNK_BYTES: Final = 2**16
"""Bytes read at once: so few that their parsed lines stay in the CPU's cache."""


def _find_fallocate() -> Any:
    """Return fallocate(2) of the C library; None where there is none."""
    try:
        library = ctypes.CDLL(None, use_errno=True)
    except OSError:
        return None
    function = getattr(library, "fallocate64", None) or getattr(library, "fallocate", None)
    if function is not None:
        function.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)
        function.restype = ctypes.c_int
    return function


class GrowingFile:
    """A file that another process appends to; `read` returns each whole line once.

    Attributes:
        punches: Whether read ranges are given back with fallocate(PUNCH_HOLE). Where the file system refuses, the
            file is cut off now and then instead, at the price of the lines that are written in that moment.

    Raises:
        OSError: It cannot be opened for reading and writing.
    """

    def __init__(self, path: Path, fallocate: Any = None) -> None:
        self._fd = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
        self._offset = 0
        self._given_back = 0
        self._mid_line = False
        self._fallocate = fallocate or _find_fallocate()
        self.punches = self._fallocate is not None

    def read(self) -> bytes:
        """Return the next whole lines, about CHUNK_BYTES at most; an incomplete last line is left for the next read."""
        size = os.fstat(self._fd).st_size
        if size <= self._offset:
            return b""
        chunk = os.pread(self._fd, min(size - self._offset, CHUNK_BYTES), self._offset)
        if len(chunk) == CHUNK_BYTES and b"\n" not in chunk:
            chunk = os.pread(self._fd, size - self._offset, self._offset)
        all_read = self._offset + len(chunk) == size
        lines = self._whole_lines(chunk)
        self._give_back(all_read=all_read)
        return lines

    @property
    def is_removed(self) -> bool:
        """Return whether the file was removed before anything was written."""
        state = os.fstat(self._fd)
        return not state.st_size and not state.st_nlink

    def close(self) -> None:
        """Let go of the file."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _whole_lines(self, chunk: bytes) -> bytes:
        end = chunk.rfind(b"\n") + 1
        self._offset += end
        first = chunk.find(b"\n") + 1 if self._mid_line and end else 0
        self._mid_line = self._mid_line and not end
        # Zeros are the hole that a truncation left.
        return chunk[first:end].lstrip(b"\0")

    def _give_back(self, *, all_read: bool) -> None:
        end = self._offset - self._offset % _PAGE
        if end <= self._given_back or (not all_read and end - self._given_back < _PUNCH_FROM):
            return
        if self.punches:
            mode = _PUNCH_HOLE | _KEEP_SIZE
            if self._fallocate(self._fd, mode, self._given_back, end - self._given_back) == 0:
                self._given_back = end
                return
            self.punches = ctypes.get_errno() == errno.EINTR
        if all_read and self._offset - self._given_back >= _TRUNCATE_FROM:
            # The writer goes on at its own offset, which leaves a hole before it.
            os.ftruncate(self._fd, 0)
            self._given_back = end
            self._mid_line = True


MOST_BYTES: Final = 2**22
"""Bytes read per call, some 100,000 lines: 25 to 45 ms of CPU. The rest waits in the files for the next call."""

_WAITS: Final = 3.0
_SHORTEST_WAIT_S: Final = 3.0
_LONGEST_WAIT_S: Final = 120.0
"""Twice what a thread with one transaction per second needs to fill its buffer."""
_SILENCE_DECAY: Final = 0.7

_COMMIT: Final = re.compile(rb"^\d+ \d+ \d+ \d+ (\d{10}) (\d{1,6})\b", re.MULTILINE)
"""A line of a successful transaction: the second and the microseconds of its end."""
_SAMPLED: Final = 1 / 8
"""Of the chunks after a second's first `READ_LINES`, the share that is decoded and stands for the rest."""
_GOLDEN: Final = (5.0**0.5 - 1.0) / 2.0
"""Steps of this size spread evenly and fall into no rhythm with the files, which are read by turns."""


def commit_time(lines: bytes) -> float | None:
    """Return the end of the first successful transaction among some lines, in seconds since the epoch."""
    line = _COMMIT.search(lines)
    return None if line is None else int(line[1]) + int(line[2]) / 1e6


class LogStatistics(Struct, frozen=True):
    """Counts of the lines that were read.

    Attributes:
        lines: Transactions with a latency that were read.
        failed: Failed transactions in the log.
        skipped: Transactions the log says were skipped.
        unreadable: Lines that are no transactions.
        punches: Whether the space of what was read is given back at once (else now and then, with small losses).
    """

    lines: int = 0
    failed: int = 0
    skipped: int = 0
    unreadable: int = 0
    punches: bool = True


class _File(Struct):
    """One thread's file, its first commit, and how long it is silent."""

    file: GrowingFile
    grew_at_s: float
    newest: int = -1
    silence_s: float | None = None
    first_commit_s: float | None = None

    def grew(self, now_s: float, newest: int) -> None:
        self.newest = max(self.newest, newest)
        if self.silence_s is not None and now_s <= self.grew_at_s:
            return
        self.silence_s = max(now_s - self.grew_at_s, _SILENCE_DECAY * (self.silence_s or 0.0))
        self.grew_at_s = now_s


class TransactionLog:
    """The log of one run.

    Args:
        directory: Where the files are.
        name: Begin of their names (--log-prefix); pgbench adds ".PID" and, from the second thread on, ".N".
        threads: How many files there will be.
        layout: What its lines have, and what is wanted of them.
        clock: Seconds that never go back.

    Attributes:
        behind: Whether the last read left lines for the next one.
    """

    def __init__(
        self,
        directory: Path,
        name: str,
        threads: int,
        *,
        layout: LogLayout = PLAIN,
        clock: Callable[[], float] = time.monotonic,
        most_bytes: int = MOST_BYTES,
    ) -> None:
        self._directory = directory
        self._prefix = f"{name}."
        self._threads = threads
        self._layout = layout
        self._clock = clock
        self._most_bytes = most_bytes
        self._started_s = clock()
        self._files: dict[str, _File] = {}
        self._open: dict[int, GrowingSecond] = {}
        self._turn = 0.0
        self._lines = self._failed = self._skipped = self._unreadable = 0
        self.behind = False

    def read(self, *, final: bool = False) -> tuple[LatencySecond, ...]:
        """Read what was appended, MOST_BYTES at most.

        Args:
            final: pgbench has ended: everything is read, and all seconds are complete.

        Returns:
            Seconds that became complete, ascending, and seconds reported before with the lines that came late; none
            while lines wait for the next call.
        """
        self._find_files()
        now_s = self._clock()
        self.behind = self._read_files(now_s, math.inf if final else self._most_bytes)
        return () if self.behind else self._complete_seconds(now_s, final)

    @property
    def first_commit_s(self) -> float | None:
        """Return the end of the first successful transaction that was read, seconds since the epoch; None without."""
        return min(
            (file.first_commit_s for file in self._files.values() if file.first_commit_s is not None), default=None
        )

    def statistics(self) -> LogStatistics:
        """Return the counts of the lines that were read so far."""
        return LogStatistics(
            lines=self._lines,
            failed=self._failed,
            skipped=self._skipped,
            unreadable=self._unreadable,
            punches=all(thread_file.file.punches for thread_file in self._files.values()),
        )

    def close(self) -> None:
        """Let go of the files; statistics stay."""
        for thread_file in self._files.values():
            thread_file.file.close()

    def _find_files(self) -> None:
        for name, thread_file in [*self._files.items()]:
            if thread_file.newest < 0 and thread_file.file.is_removed:
                # An attempt that did not connect.
                self._files.pop(name).file.close()
        if len(self._files) >= self._threads:
            return
        # The guard removes the directory when it has to stop; without a free descriptor, a file is tried again.
        with suppress(OSError):
            for path in self._directory.glob(f"{self._prefix}*"):
                if path.name not in self._files:
                    self._files[path.name] = _File(GrowingFile(path), self._started_s)

    def _read_files(self, now_s: float, most_bytes: float) -> bool:
        """Read all files by turns; return whether something is left."""
        unread = list(self._files.values())
        while unread and most_bytes > 0:
            for thread_file in tuple(unread):
                chunk = thread_file.file.read()
                if chunk:
                    most_bytes -= len(chunk)
                    self._take(thread_file, chunk, now_s)
                else:
                    unread.remove(thread_file)
        return bool(unread)

    def _take(self, thread_file: _File, chunk: bytes, now_s: float) -> None:
        if thread_file.first_commit_s is None:
            thread_file.first_commit_s = commit_time(chunk)
        second = second_of(chunk)
        growing = None if second is None else self._open.get(second)
        if second is None or growing is None or growing.tail is None:
            self._decode(thread_file, chunk, now_s)
            return
        self._turn = (self._turn + _GOLDEN) % 1.0
        if self._turn < _SAMPLED:
            self._decode(thread_file, chunk, now_s, GrowingSecond.add_sample)
            return
        counted = growing.tail.count(chunk, second)
        if counted is None:
            self._decode(thread_file, chunk, now_s)
            return
        self._lines += counted.lines
        self._failed += sum(part.failed for part in counted.parts)
        self._skipped += sum(part.skipped for part in counted.parts)
        growing.add_counted(counted)
        thread_file.grew(now_s, second)

    def _decode(
        self,
        thread_file: _File,
        chunk: bytes,
        now_s: float,
        add: Callable[[GrowingSecond, SecondPart], None] = GrowingSecond.add,
    ) -> None:
        parsed = parse_lines(chunk, self._layout)
        self._unreadable += parsed.unreadable
        for part in parsed.parts:
            self._lines += len(part.latencies)
            self._failed += part.failed
            self._skipped += part.skipped
            if part.second not in self._open:
                self._open[part.second] = GrowingSecond(arrived_s=now_s, layout=self._layout)
            add(self._open[part.second], part)
        if parsed.newest is not None:
            thread_file.grew(now_s, parsed.newest)

    def _complete_seconds(self, now_s: float, final: bool) -> tuple[LatencySecond, ...]:
        complete = [
            second for second in sorted(self._open) if final or self._is_complete(second, self._open[second], now_s)
        ]
        return tuple(self._open.pop(second).done(second) for second in complete)

    def _is_complete(self, second: int, data: GrowingSecond, now_s: float) -> bool:
        waited_s = now_s - data.arrived_s
        if len(self._files) < self._threads and waited_s <= _SHORTEST_WAIT_S:
            return False
        return all(
            thread_file.newest > second or waited_s > self._patience_s(thread_file)
            for thread_file in self._files.values()
        )

    def _patience_s(self, thread_file: _File) -> float:
        """Return how long a second with data waits for this file; a file without any line counts as the slowest."""
        silence_s = thread_file.silence_s
        if silence_s is None:
            silence_s = max(thread_file.silence_s or 0.0 for thread_file in self._files.values())
        return min(max(_WAITS * silence_s, _SHORTEST_WAIT_S), _LONGEST_WAIT_S)
