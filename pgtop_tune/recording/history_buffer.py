"""The history buffer: the last hour of a live session as changes between frames, packed in blocks, the oldest in a
spill file.

Three hundred sessions make 10 MB of it. Beside a server that is too much to hold for what is seldom looked at, so where
there are spill files, blocks go there once they are packed; blocks they refuse stay in memory. A thread puts them away:
the disk may be the one that the server is busy with, and frames are made in the caller's loop.
"""

from __future__ import annotations

import json
import marshal
import os
import tempfile
import threading
import zlib
from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final

from msgspec import Struct, field
from msgspec.structs import replace

from pgtop_tune.base.errors import RecordingProblem
from pgtop_tune.base.paths import private
from pgtop_tune.model.frame import Frame
from pgtop_tune.recording.frames import LandmarkKind, score_of_frame

if TYPE_CHECKING:
    from pgtop_tune.runtime.ports import Step


# Bytes that are seldom looked at, put away in files without a name: gone with the process, whatever ends it.

_PIECES_A_FILE: Final = 20
"""Pieces of a file. Its room is given back when its last piece is forgotten; more would keep too much, fewer take
descriptors."""


class PutAway(Struct, frozen=True):
    """A piece of a spill file; the file lives as long as one of its pieces."""

    file: IO[bytes]
    begin: int
    length: int

    def read(self) -> bytes:
        """Return the bytes of the piece.

        Raises:
            RecordingProblem: The disk does not give them back.
        """
        try:
            content = os.pread(self.file.fileno(), self.length, self.begin)
        except OSError as problem:
            raise RecordingProblem(f"the history buffer cannot be read: {problem.strerror}") from None
        if len(content) < self.length:
            raise RecordingProblem("the history buffer cannot be read: its file was truncated")
        return content


class SpillFiles:
    """Files of a directory, readable by this user only; one after the other, some pieces in each.

    Args:
        directory: Returns the directory; called for the first piece. It should be on a disk: /tmp may be in memory.
    """

    def __init__(self, directory: Callable[[], Path]) -> None:
        self._directory = directory
        self._file: IO[bytes] | None = None
        self._pieces = 0
        self._end = 0

    def put(self, data: bytes) -> PutAway | None:
        """Spill some bytes; None when that cannot be done now: no directory, a full disk."""
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


LONGEST_S: Final = 3600.0
MOST_BYTES: Final = 20 << 20
"""Most packed bytes, in memory or in spill files: an hour of 300 sessions that work now and then is less. Beyond
them the past is shorter."""
_BLOCK_FRAMES: Final = 30
"""Frames from one whole frame to the next: the cost of one step back."""
_LEVEL: Final = 1
"""Level of compression. More takes a fifth off the size, and adds a third to the time that a frame costs."""
_TOGETHER: Final = 10
"""Frames that become lines together, which takes less time than one by one: each alone finds the CPU's caches full of
the server's data. A session keeps as many frames whole."""


class _Block(Struct):
    """A whole frame and those after it.

    Attributes:
        first: Number of its first frame.
        moments: Elapsed seconds of each.
        scores: Score of each frame, by kind of landmark.
        lines: While frames are added: compressed lines of some frames together; raw, those of 1000 sessions are 2.5 MB.
        waiting: The newest frames, which are no lines yet.
        packed: Lines of a full block, or their piece of a spill file.
        packed_bytes: Length of the packed lines.
    """

    first: int
    moments: array[float] = field(default_factory=lambda: array("d"))
    scores: dict[LandmarkKind, array[float]] = field(
        default_factory=lambda: {score: array("d") for score in LandmarkKind}
    )
    lines: list[bytes] = []
    waiting: list[Frame] = []
    packed: bytes | PutAway = b""
    packed_bytes: int = 0

    def unpacked(self) -> list[bytes]:
        """Return a line of JSON for each frame. Raises as `PutAway.read` does."""
        packed_lines = self.lines
        if self.packed_bytes:
            packed_lines = marshal.loads(self.packed if isinstance(self.packed, bytes) else self.packed.read())
        return b"\n".join(map(zlib.decompress, packed_lines)).split(b"\n")


class HistoryBuffer:
    """A `FrameSink` and `Frames` of the last hour. Filled in the engine's thread, read in any.

    Frames are numbered from the first one it was given; `first` moves on as old ones go.

    Args:
        longest_s: Seconds that are kept.
        most_bytes: Bytes that are kept at most, packed.
        spill_files: Where packed blocks are put away; None keeps them in memory.
    """

    growing: Final = True

    def __init__(
        self, longest_s: float = LONGEST_S, most_bytes: int = MOST_BYTES, spill_files: SpillFiles | None = None
    ) -> None:
        self._longest_s = longest_s
        self._most_bytes = most_bytes
        self._spill = spill_files
        self._putting = False
        self._lock = threading.Lock()
        self._newest: Frame | None = None
        self._blocks: list[_Block] = []
        self._bytes = 0
        self._count = 0

    def accept(self, step: Step) -> None:
        for frame in step.frames:
            self._add(frame)

    def _add(self, frame: Frame) -> None:
        block = self._blocks[-1] if self._blocks else None
        packed = b""
        if block is not None and len(block.moments) >= _BLOCK_FRAMES:
            with self._lock:
                self._pack_waiting(block)
            packed = marshal.dumps(block.lines)
        with self._lock:
            if block is not None and packed:
                block.packed, block.packed_bytes, block.lines = packed, len(packed), []
                self._bytes += len(packed)
            if block is None or packed:
                block = _Block(self._count)
                self._blocks.append(block)
            block.moments.append(frame.elapsed_s)
            block.waiting.append(frame)
            for score, values in block.scores.items():
                values.append(score_of_frame(score, frame))
            self._count += 1
            if len(block.waiting) >= _TOGETHER:
                self._pack_waiting(block)
            self._forget(frame.elapsed_s)
        if packed:
            self._begin_to_put_away()

    def _pack_waiting(self, block: _Block) -> None:
        """Pack the waiting frames. Call it within the lock: frames are read in other threads."""
        from pgtop_tune.recording.codec import ENCODER, change_between

        if not block.waiting:
            return
        before = [self._newest if block.lines else None, *block.waiting[:-1]]
        lines = "\n".join(map(ENCODER.encode, map(change_between, before, block.waiting)))
        block.lines.append(zlib.compress(lines.encode("ascii"), _LEVEL))
        self._newest = block.waiting[-1]
        block.waiting.clear()

    def _forget(self, now_s: float) -> None:
        while len(self._blocks) > 1 and (
            self._bytes > self._most_bytes or self._blocks[0].moments[-1] < now_s - self._longest_s
        ):
            self._bytes -= self._blocks.pop(0).packed_bytes

    def _begin_to_put_away(self) -> None:
        # A disk that hangs keeps one thread, and the blocks wait in memory.
        if self._spill is None:
            return
        with self._lock:
            if self._putting:
                return
            self._putting = True
        threading.Thread(target=self._put_away, args=(self._spill,), name="put away", daemon=True).start()

    def _put_away(self, spill_files: SpillFiles) -> None:
        while (block := self._next_to_put_away()) is not None:
            assert isinstance(block.packed, bytes)
            piece = spill_files.put(block.packed)
            with self._lock:
                if piece is None:
                    self._putting = False
                    return
                block.packed = piece

    def _next_to_put_away(self) -> _Block | None:
        """Return the oldest packed block in memory. None ends the thread; the next packed block begins
        another."""
        with self._lock:
            for block in self._blocks:
                if isinstance(block.packed, bytes) and block.packed:
                    return block
            self._putting = False
            return None

    @property
    def packed_bytes(self) -> int:
        """Bytes that are kept, in memory or in spill files, without the newest block."""
        return self._bytes

    @property
    def first(self) -> int:
        with self._lock:
            return self._blocks[0].first if self._blocks else 0

    @property
    def frame_count(self) -> int:
        return self._count

    @property
    def length_s(self) -> float:
        return self.elapsed_s(self._count - 1) if self._count else 0.0

    def elapsed_s(self, index: int) -> float:
        with self._lock:
            block = self._blocks[self._place(index)]
            return block.moments[min(max(index - block.first, 0), len(block.moments) - 1)]

    def index_at(self, elapsed_s: float) -> int:
        with self._lock:
            if not self._blocks:
                return 0
            number = bisect_right(self._blocks, elapsed_s, key=lambda block: block.moments[0]) - 1
            block = self._blocks[max(number, 0)]
            return max(block.first + bisect_right(block.moments, elapsed_s) - 1, block.first)

    def frames(self, first: int = 0) -> Iterator[tuple[int, Frame]]:
        """Yield frames from a number on, without those that were forgotten before they were read."""
        from pgtop_tune.recording.codec import changed_frame

        index = self.block_begin(first)
        while (block := self._block_at(index)) is not None:
            before: Frame | None = None
            index = block.first
            for line in block.unpacked():
                before = changed_frame(before, json.loads(line))
                if index >= first:
                    yield index, before
                index += 1
            # More may have come into this block by now.
            first = index

    def scores(self, score: LandmarkKind, first: int = 0) -> Iterator[tuple[int, float]]:
        index = first
        while (block := self._block_at(index)) is not None:
            index = max(index, block.first)
            for value in block.scores[score][index - block.first :]:
                yield index, value
                index += 1

    def _block_at(self, index: int) -> _Block | None:
        """Return the block of a frame, as far as it has come."""
        with self._lock:
            if not self._blocks or index >= self._count:
                return None
            block = self._blocks[self._place(index)]
            self._pack_waiting(block)
            return replace(block, lines=list(block.lines))

    def block_begin(self, index: int) -> int:
        with self._lock:
            return self._blocks[self._place(index)].first if self._blocks else 0

    def _place(self, index: int) -> int:
        return max(bisect_right(self._blocks, index, key=lambda block: block.first) - 1, 0)

    def extend(self) -> bool:
        """Return False: frames come by themselves."""
        return False

    def close(self) -> None:
        """Do nothing: readers keep the frames that they hold."""
