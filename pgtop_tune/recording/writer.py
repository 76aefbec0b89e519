"""Writer of frames to a file that it holds a lock on: a line and a flush each, never an fsync on the machine under
test."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
from pathlib import Path
from typing import Final

from pgtop_tune.base.errors import RecordingProblem
from pgtop_tune.base.paths import directory_of, new_descriptor, remove
from pgtop_tune.model.frame import Frame
from pgtop_tune.recording.codec import ENCODER, change_between
from pgtop_tune.recording.compression import Member, mark, packing_for
from pgtop_tune.recording.format import DELTA, KEY, KEY_EVERY, Header, checksum, header_line, sealed
from pgtop_tune.recording.outlet import is_stream, open_stream, write_stream

# The writer of a recording holds a lock on it, so that two processes never write one.
#
# flock(2): the lock belongs to the open file, and is gone with the process that holds it, however that ends.


def lock(file: int) -> bool:
    """Lock an open file; False when another process has."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        # A file system without locks: nobody else can have one either.
        return True
    return True


def is_locked(path: Path) -> bool:
    """Return whether a process writes this recording now."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return False
    try:
        return not lock(file)
    finally:
        os.close(file)


class NameLock:
    """Lock of a name: one process at a time records into the files of a set.

    Args:
        path: A file that is made, and removed when the lock is let go.

    Raises:
        RecordingProblem: Another process holds it, or the file cannot be made.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = self._taken()

    def _taken(self) -> int:
        while True:
            try:
                with directory_of(self._path) as (directory, name):
                    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
                    file = os.open(name, flags, 0o600, dir_fd=directory)
            except OSError as problem:
                raise RecordingProblem(
                    f"{problem.strerror}: cannot create {self._path}", "choose another directory"
                ) from None
            if not lock(file):
                os.close(file)
                raise RecordingProblem(
                    f"another process is recording into these files ({self._path} is locked)", "choose another name"
                )
            with contextlib.suppress(OSError):
                # The process that held it before may have removed it between our two calls.
                if os.stat(self._path).st_ino == os.fstat(file).st_ino:
                    return file
            os.close(file)

    def forget(self) -> None:
        """Close the lock of a name whose file was removed: a file that stands there now is another process's."""
        os.close(self._file)

    def close(self) -> None:
        """Release the name."""
        with contextlib.suppress(OSError):
            if os.stat(self._path).st_ino == os.fstat(self._file).st_ino:
                remove(self._path)
        os.close(self._file)


class RecordingWriter:
    """An open recording, locked against other writers.

    After a write that failed it can be tried again: what did not get into the file whole is taken back first, and a
    key frame follows. What did not get into a stream whole stays in it, as a line that readers skip.

    Args:
        path: New file, made with mode 0600; packed as its name ends, see `compression`. Or a stream (see `outlet`),
            whose lines are plain.
        header: Its first line.

    Attributes:
        is_stream: True when it is no file of ours.
        frames: Frames written.
        size_bytes: Size of the file, as far as its lines are whole.

    Raises:
        RecordingProblem: The file exists or cannot be made.
        BrokenPipeError: Nobody reads the stream any more; also by every write.
    """

    def __init__(self, path: Path, header: Header) -> None:
        self.path: Final = path
        self.frames = 0
        self.size_bytes = 0
        self._before: Frame | None = None
        self._sum = 0
        self._owed: bytes | None = None
        self._torn = False
        self.is_stream: Final = is_stream(path)
        self._packing = None if self.is_stream else packing_for(path)
        self._member: Member | None = None if self._packing is None else self._packing.member(b"")
        try:
            self._file: int | None = open_stream(path) if self.is_stream else new_descriptor(path)
        except FileExistsError:
            raise _taken(path) from None
        except OSError as problem:
            raise RecordingProblem(f"{problem.strerror}: cannot create {path}", "choose another directory") from None
        if not self.is_stream:
            lock(self._file)
        try:
            line = header_line(header)
            self._put(line)
            self._sum = checksum(line.encode("ascii"))
        except RecordingProblem as problem:
            # A file without its first line is no recording.
            if not self.is_stream:
                remove(path)
            self._let_go()
            raise RecordingProblem(
                problem.message, "nothing was recorded: choose a directory with free space"
            ) from None

    @property
    def newest_is_key(self) -> bool:
        """True when the last frame that was written is a key frame."""
        return self.frames % KEY_EVERY == 1

    @property
    def is_gone(self) -> bool:
        """True when the file was removed, alone or with its directory: what is written goes nowhere."""
        try:
            return self._file is None or (not self.is_stream and os.fstat(self._file).st_nlink == 0)
        except OSError:
            return True

    def write(self, frame: Frame) -> None:
        """Append a frame.

        Raises:
            RecordingProblem: The disk is full, the file is gone. What was written before is readable.
        """
        if self.is_gone:
            raise RecordingProblem(f"{self.path} was removed", "its content is lost")
        if self._owed is not None:
            self._settle(self._owed)
        before = self._before
        if before is None or self.frames % KEY_EVERY == 0:
            line = {KEY: change_between(None, frame)}
            self._next_member(frame)
        else:
            line = {DELTA: change_between(before, frame)}
        sealed_line, sum_of_line = sealed(ENCODER.encode(line), self._sum)
        self._put(sealed_line)
        self._sum = sum_of_line
        self._before = frame
        self.frames += 1

    def _put(self, line: str) -> None:
        data = line.encode("ascii") + b"\n"
        if self._member is None:
            self._append(data, b"")
        else:
            packed = self._member.add(data)
            self._append(packed, self._member.cut())

    def _next_member(self, frame: Frame) -> None:
        if self._packing is not None:
            self._end_member()
            self._member = self._packing.member(mark(self.frames, frame.elapsed_s))

    def _end_member(self) -> None:
        member, self._member = self._member, None
        if member is not None:
            last = member.end()
            self._append(last, last)

    def _settle(self, owed: bytes) -> None:
        """Put the file in order after a write that failed; a key frame has to come next."""
        self._append(owed, owed)
        self._owed = self._member = self._before = None

    def _append(self, data: bytes, owed: bytes) -> None:
        """Append all of it or nothing, and remembers what must stand there before anything else where it failed."""
        if self._file is None:
            raise RecordingProblem(f"{self.path} is closed")
        try:
            if self.is_stream:
                self._pour(self._file, data)
            else:
                self._append_whole(self._file, data)
        except BrokenPipeError:
            self._let_go()
            raise
        except OSError as problem:
            self._owed = owed
            raise RecordingProblem(
                f"{problem.strerror}: cannot write {self.path}", "the part written so far is readable"
            ) from None
        self.size_bytes += len(data)

    def _append_whole(self, file: int, data: bytes) -> None:
        try:
            if self._owed is not None:
                os.ftruncate(file, self.size_bytes)
                os.lseek(file, self.size_bytes, os.SEEK_SET)
            view = memoryview(data)
            while view:
                view = view[os.write(file, view) :]
        except OSError:
            with contextlib.suppress(OSError):
                os.ftruncate(file, self.size_bytes)
            raise

    def _pour(self, stream: int, data: bytes) -> None:
        lines = b"\n" + data if self._torn and data else data
        written = write_stream(stream, lines)
        if written < len(lines):
            self._torn = self._torn or written > 0
            raise OSError(errno.EAGAIN, "the reader of the pipe is too slow")
        self._torn = self._torn and not data

    def close(self) -> None:
        """End the recording; a second call does nothing.

        Raises:
            RecordingProblem: The last bytes could not be written.
        """
        if self._file is None:
            return
        try:
            if self._owed is not None:
                self._settle(self._owed)
            self._end_member()
        finally:
            self._let_go()

    def _let_go(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            with contextlib.suppress(OSError):
                os.close(file)


def _taken(path: Path) -> RecordingProblem:
    if is_locked(path):
        return RecordingProblem(f"another process is recording into {path}", "choose another name")
    return RecordingProblem(f"{path} exists already", "choose another name; recordings are not overwritten")
