"""A file that somebody else writes: read as it grows, and what was read is given back to the disk."""

from __future__ import annotations

import ctypes
import errno
import os
from pathlib import Path
from typing import Any, Final

_PUNCH_HOLE: Final = 0x02
_KEEP_SIZE: Final = 0x01
_PAGE: Final = 4096
_PUNCH_FROM: Final = 2**18
_TRUNCATE_FROM: Final = 4 * 2**20
CHUNK_BYTES: Final = 2**16
"""Read at once; what is made of it stays in the CPU's cache."""


def _find_fallocate() -> Any:
    """fallocate(2) of the C library, None where there is none."""
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
    """Reads whole lines that were appended, each once.

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
        """The next whole lines, about CHUNK_BYTES at most; a last line without its end is left for the next read."""
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

    def close(self) -> None:
        """Lets go of the file."""
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
