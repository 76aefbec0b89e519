"""A recording that comes through a pipe, spooled into a file without a name: it can be entered anywhere and grows."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Final

from pgtop_tune.base.errors import RecordingProblem
from pgtop_tune.recording.blocks import SpoolFile
from pgtop_tune.recording.compression import packing_of
from pgtop_tune.recording.format import read_header
from pgtop_tune.recording.reader import RecordingReader

_CHUNK: Final = 1 << 20
_BEGIN_BYTES: Final = 1 << 20
"""Bytes within which a recording shows that it is one."""
_LOOK_S: Final = 0.2


class Spool:
    """A copy of a pipe on the disk, made in a thread until the pipe ends.

    Args:
        pipe: File descriptor to read from; the spool's own from now on.

    Attributes:
        problem: Why not everything was kept; "" otherwise.
    """

    def __init__(self, pipe: int) -> None:
        self._pipe: Final = pipe
        self._spooled: Final = SpoolFile()
        self._ended = threading.Event()
        self.problem = ""
        threading.Thread(target=self._copy, name="spool", daemon=True).start()

    def _copy(self) -> None:
        try:
            while chunk := os.read(self._pipe, _CHUNK):
                self._spooled.write(chunk)
        except (OSError, RecordingProblem) as problem:
            reason = problem.message if isinstance(problem, RecordingProblem) else problem.strerror
            self.problem = f"standard input is shown only in part: {reason}"
        finally:
            os.close(self._pipe)
            self._ended.set()

    @property
    def growing(self) -> bool:
        """True while more bytes may come."""
        return not self._ended.is_set()

    def wait(self) -> None:
        """Wait a moment, or until nothing more will come."""
        self._ended.wait(_LOOK_S)

    @property
    def path(self) -> Path:
        """Path that opens it as often as needed, within this process."""
        return Path(f"/dev/fd/{self._spooled.file.fileno()}")

    def reader(self) -> RecordingReader:
        """Wait for the first frame, and return the open recording.

        Raises:
            RecordingProblem: The bytes are no recording.
        """
        while True:
            ended = not self.growing
            try:
                opened = RecordingReader(self.path, lambda: self.growing, "standard input")
                if opened.frame_count or ended:
                    return opened
                opened.close()
            except RecordingProblem:
                if ended or self._begins_wrong():
                    raise
            self.wait()

    def _begins_wrong(self) -> bool:
        """Return whether more bytes would not make it a recording."""
        with self.path.open("rb") as file:
            begin = file.read(_BEGIN_BYTES)
        if len(begin) == _BEGIN_BYTES or packing_of(begin) is not None or b"\n" not in begin:
            return len(begin) == _BEGIN_BYTES
        try:
            read_header(begin.partition(b"\n")[0])
        except RecordingProblem:
            return True
        return False
