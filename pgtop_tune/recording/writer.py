"""Writes frames to a file: a line and a flush each, never an fsync on the machine under test."""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path
from typing import Final

from pgtop_tune.errors import RecordingProblem
from pgtop_tune.model.frame import Frame
from pgtop_tune.recording.codec import codec_for
from pgtop_tune.recording.format import DELTA, KEY, KEY_EVERY, Header, header_line
from pgtop_tune.recording.members import MemberWriter
from pgtop_tune.recording.values import SAME

_FRAME: Final = codec_for(Frame)


class RecordingWriter:
    """An open recording.

    Args:
        path: New file, made with mode 0600; compressed when the name ends in .gz.
        header: Its first line.

    Attributes:
        frames: Frames written.

    Raises:
        RecordingProblem: The file exists or cannot be made.
    """

    def __init__(self, path: Path, header: Header) -> None:
        self.path: Final = path
        self.frames = 0
        self._before: Frame | None = None
        self._member = MemberWriter() if path.suffix == ".gz" else None
        try:
            self._file: int | None = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        except FileExistsError:
            raise RecordingProblem(
                f"{path} exists already", "choose another name; recordings are not overwritten"
            ) from None
        except OSError as problem:
            raise RecordingProblem(f"cannot make {path}: {problem.strerror}", "choose another place") from None
        self._put(header_line(header))

    def write(self, frame: Frame) -> None:
        """Appends a frame.

        Raises:
            RecordingProblem: The disk is full, the directory is gone. The recording is closed and readable up to here.
        """
        before = self._before
        if before is None or self.frames % KEY_EVERY == 0:
            line = {KEY: _FRAME.full(frame)}
            self._next_member(frame)
        else:
            difference = _FRAME.delta(before, frame)
            line = {DELTA: {} if difference is SAME else difference}
        self._put(json.dumps(line, separators=(",", ":")))
        self._before = frame
        self.frames += 1

    def _put(self, line: str) -> None:
        if self._file is None:
            raise RecordingProblem(f"{self.path} is closed")
        data = line.encode("ascii") + b"\n"
        self._append(data if self._member is None else self._member.add(data))

    def _next_member(self, frame: Frame) -> None:
        if self._member is not None and self._file is not None:
            self._append(self._member.end())
            self._member = MemberWriter(self.frames, frame.elapsed_s)

    def _append(self, data: bytes) -> None:
        assert self._file is not None
        start = os.lseek(self._file, 0, os.SEEK_CUR)
        view = memoryview(data)
        try:
            while view:
                view = view[os.write(self._file, view) :]
        except OSError as problem:
            with contextlib.suppress(OSError):
                os.ftruncate(self._file, start)
            os.close(self._file)
            self._file = None
            raise RecordingProblem(
                f"recording stopped: cannot write {self.path}: {problem.strerror}",
                "what was written so far is readable",
            ) from None

    def close(self) -> None:
        """Ends the recording; a second call does nothing.

        Raises:
            RecordingProblem: The last bytes could not be written.
        """
        if self._file is None:
            return
        if self._member is not None:
            self._append(self._member.end())
        os.close(self._file)
        self._file = None
