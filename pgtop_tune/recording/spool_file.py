"""A file without a name in $TMPDIR that a recording is put into, as far as it can be one and there is room."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import IO, Final

from pgtop_tune.base.errors import RecordingProblem
from pgtop_tune.recording.format import MAX_LINE_BYTES

_FREE_SHARE: Final = 0.1
"""Of the file system, which may be the one of a database server: left for others."""
_LOOK_EVERY: Final = 16 << 20
_SMALL_BYTES: Final = 64 << 20
_MOST_RATIO: Final = 100
"""Bytes that a byte is unpacked to: recordings have 5 to 30, made-up files up to a thousand."""


class SpoolFile:
    """Bytes are appended as they come.

    Args:
        packed: The file they are unpacked from; None where they are not.

    Attributes:
        file: What was written so far, without a name.
    """

    def __init__(self, packed: IO[bytes] | None = None) -> None:
        self.file: Final = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115
        self._packed = packed
        self._size = self._line = self._looked = 0

    def write(self, data: bytes) -> None:
        """Appends them.

        Raises:
            RecordingProblem: No recording goes on like this, or there is no room for it.
            OSError: They cannot be written.
        """
        # Packed bytes have line breaks, too.
        end = data.rfind(b"\n")
        self._line = self._line + len(data) if end < 0 else len(data) - end - 1
        self._size += len(data)
        if self._line > MAX_LINE_BYTES:
            raise RecordingProblem("it has a line too long for a recording", "it is damaged or forged")
        most = _SMALL_BYTES + _MOST_RATIO * (0 if self._packed is None else self._packed.tell())
        if self._packed is not None and self._size > most:
            raise RecordingProblem(
                f"it unpacks to more than {_MOST_RATIO} times its size, unlike any recording",
                "if it is a recording, unpack it yourself and open the result",
            )
        if self._size >= self._looked:
            self._looked = self._size + _LOOK_EVERY
            self._check_room()
        view = memoryview(data)
        while view:
            view = view[self.file.write(view) or 0 :]

    def _check_room(self) -> None:
        room = os.fstatvfs(self.file.fileno())
        if self._size > _LOOK_EVERY and room.f_bavail < _FREE_SHARE * room.f_blocks:
            raise RecordingProblem(
                f"less than a tenth of the file system of {Path(tempfile.gettempdir())} is free",
                "TMPDIR names another directory",
            )

    def close(self) -> None:
        """The bytes are gone."""
        self.file.close()
