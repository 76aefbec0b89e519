"""Bytes that are seldom looked at, put away in files without a name: gone with the process, whatever ends it."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import IO, Final

from msgspec import Struct

from pgtop_tune.errors import RecordingProblem
from pgtop_tune.paths import private

_PIECES_A_FILE: Final = 20
"""A file's room is given back when its last piece is forgotten; more would keep too much, fewer take descriptors."""


class PutAway(Struct, frozen=True):
    """A piece of a file; the file lives as long as one of its pieces."""

    file: IO[bytes]
    begin: int
    length: int

    def read(self) -> bytes:
        """The bytes.

        Raises:
            RecordingProblem: The disk does not give them back.
        """
        try:
            found = os.pread(self.file.fileno(), self.length, self.begin)
        except OSError as problem:
            raise RecordingProblem(f"the past cannot be read: {problem.strerror}") from None
        if len(found) < self.length:
            raise RecordingProblem("the past cannot be read: the file is shorter than it was")
        return found


class SpillFiles:
    """Files of a directory, readable by this user only; one after the other, some pieces in each.

    Args:
        directory: Where; asked for with the first piece. On a disk: what lies in /tmp may well be memory again.
    """

    def __init__(self, directory: Callable[[], Path]) -> None:
        self._directory = directory
        self._file: IO[bytes] | None = None
        self._pieces = 0
        self._end = 0

    def put(self, data: bytes) -> PutAway | None:
        """Puts some bytes away; None when that cannot be done now: no directory, a full disk."""
        try:
            if self._file is None or self._pieces >= _PIECES_A_FILE:
                self._file = tempfile.TemporaryFile(dir=private(self._directory()), buffering=0)  # noqa: SIM115
                self._pieces = self._end = 0
            written = 0
            while written < len(data):
                written += os.pwrite(self._file.fileno(), data[written:], self._end + written)
        except OSError:
            self._file = None
            return None
        piece = PutAway(self._file, self._end, len(data))
        self._end += len(data)
        self._pieces += 1
        return piece
