"""Reader of a recording, frame by frame, from any moment, whatever state its end is in."""

from __future__ import annotations

import math
import time
from bisect import bisect_right
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from pgtop_tune.base.errors import RecordingProblem
from pgtop_tune.model.events import Event, EventKind
from pgtop_tune.model.frame import Frame
from pgtop_tune.recording.blocks import FrameBlock, moment_of_line, open_blocks
from pgtop_tune.recording.codec import changed_frame
from pgtop_tune.recording.format import (
    DELTA,
    KEY,
    KEY_EVERY,
    MAX_BLOCK_BYTES,
    MAX_LINE_BYTES,
    YEAR_9999_MS,
    Header,
    Seal,
    checksum,
    parse_line,
    read_header,
    seal_of,
)
from pgtop_tune.recording.frames import LandmarkKind, score_of_line
from pgtop_tune.runtime.window import Timeline

_MOST_PROBLEMS: Final = 100
_MORE: Final = "further problems are not listed"
_STILL_WRITTEN_S: Final = 10.0
"""Time since the last write for which a file may still grow, or three of its intervals."""
_DAMAGED: Final = -1
"""Value in place of a checksum, for a block with frames that cannot be read."""
_MOST_MOMENTS: Final = 10_000
"""Most frames of one block: a file that has more of them was not written by us."""


class RecordingReader:
    """An open recording. Its length costs neither time nor memory worth mentioning: see `blocks`.

    Args:
        path: Plain or packed, complete or torn.
        growing: Tells whether more may be written; None takes the time of the last write.
        name: Name in messages; "" for the path.

    Attributes:
        header: Its first line.
        problems: Unreadable parts, one sentence each; grows while frames are read.
        frame_count: Lines with frames.

    Raises:
        RecordingProblem: Not there, not readable, not a recording, from a newer major version.
    """

    def __init__(self, path: Path, growing: Callable[[], bool] | None = None, name: str = "") -> None:
        self.path: Final = path
        self.name: Final = name or str(path)
        self._growing: Final = growing or self._written_lately
        try:
            self._store = open_blocks(path)
        except OSError as problem:
            raise RecordingProblem(
                f"cannot read {self.name}: {problem.strerror}", "check its name and permissions"
            ) from None
        except RecordingProblem as problem:
            raise RecordingProblem(f"{self.name}: {problem.message}", problem.hint) from None
        self.header: Final[Header] = read_header(self._store.header)
        self.problems: Final[list[str]] = [self._store.problem] if self._store.problem else []
        self._moments: dict[int, list[float]] = {}
        self._read_to: tuple[int, int | None, float] = (-1, checksum(self._store.header), -math.inf)
        """The block that was read last, and checksum and moment of its last line."""
        self._ends: dict[int, int | None] = {}
        """Checksum of the last line of blocks that were read to their end; `_DAMAGED` where some could not be read."""
        self._look()

    def _look(self) -> None:
        """Take over the blocks of the file."""
        self._blocks = self._store.blocks
        self._firsts = [block.first for block in self._blocks]
        last = self._blocks[-1] if self._blocks else None
        self._count = 0 if last is None else last.first + sum(1 for _ in self._store.lines(last))
        self._length_s: float | None = None

    @property
    def first(self) -> int:
        return 0

    @property
    def frame_count(self) -> int:
        """Number of lines that hold frames."""
        return self._count

    @property
    def length_s(self) -> float:
        """Elapsed seconds of the last frame."""
        if self._length_s is None:
            self._length_s = self.elapsed_s(self._count - 1) if self._count else 0.0
        return self._length_s

    @property
    def growing(self) -> bool:
        return self._growing()

    def _written_lately(self) -> bool:
        try:
            return time.time() - self.path.stat().st_mtime < max(3.0 * self.header.interval_s, _STILL_WRITTEN_S)
        except OSError:
            return False

    def extend(self) -> bool:
        count, last = self._count, self._firsts[-1] if self._firsts else 0
        if self._blocks:
            if not self._store.grow():
                return False
        elif not self._begun():
            return False
        # A line that was half written when the file was opened is whole by now.
        self.problems[:] = [problem for problem in self.problems if problem != self._store.problem]
        self._moments.pop(last, None)
        self._ends.clear()
        self._look()
        return self._count > count

    def _begun(self) -> bool:
        """Open a file anew that had no frame yet; return whether it has now."""
        try:
            store = open_blocks(self.path)
        except (OSError, RecordingProblem):
            return False
        if not store.blocks:
            store.close()
            return False
        self._store.close()
        self._store = store
        return True

    def elapsed_s(self, index: int) -> float:
        block = self._blocks[self._block_of(index)]
        moments = self._moments_of(block)
        # A damaged block has fewer lines than frames.
        return moments[min(index - block.first, len(moments) - 1)] if moments else block.elapsed_s

    def index_at(self, elapsed_s: float) -> int:
        number = bisect_right(self._blocks, elapsed_s, key=lambda block: block.elapsed_s) - 1
        if number < 0:
            return 0
        block = self._blocks[number]
        return max(block.first + bisect_right(self._moments_of(block), elapsed_s) - 1, 0)

    def frames(self, first: int = 0) -> Iterator[tuple[int, Frame]]:
        """Yield frames from an index on, each with its index.

        Reading starts at the key frame before. A line that cannot be read costs the frames up to the next key frame;
        `problems` says so, and an event of that key frame.
        """
        begin = self._block_of(first)
        for number in range(begin, len(self._blocks)):
            for index, frame in self.frames_of(number):
                if index >= first:
                    yield index, frame

    @property
    def block_count(self) -> int:
        """Key frames that the recording can be entered at; what stands from one to the next is a block."""
        return len(self._blocks)

    def blocks_of(self, since_s: float, until_s: float) -> range:
        """Return the blocks that hold the frames from one moment to another."""
        first, last = self._block_of(self.index_at(since_s)), self._block_of(self.index_at(until_s))
        return range(first, min(last + 1, self.block_count))

    def key_line(self, number: int) -> bytes:
        """Return the first line of a block, as it is; b"" of a damaged one."""
        return seal_of(self._store.first_line(self._blocks[number]), None).line

    def lines_of(self, number: int) -> list[bytes]:
        """Return the lines of a block without checksums; fewer than `frames_in` where it is damaged or does not fit
        memory."""
        block = self._blocks[number]
        if self.frames_in(number) > KEY_EVERY or block.end - block.offset > MAX_BLOCK_BYTES:
            return []
        lines: list[bytes] = []
        before: int | None = None
        for line in self._store.lines(block):
            seal = seal_of(line, before)
            if not seal.is_sound:
                self._ends[number] = _DAMAGED
                return []
            before = seal.crc
            lines.append(seal.line)
        if len(lines) == self.frames_in(number):
            self._ends[number] = before
        return lines

    def frames_in(self, number: int) -> int:
        """Return the number of frames of a block."""
        following = self._firsts[number + 1] if number + 1 < len(self._blocks) else self._count
        return following - self._firsts[number]

    def frames_of(self, number: int) -> Iterator[tuple[int, Frame]]:
        """Yield the frames of a block, each with its index; see `frames`."""
        block = self._blocks[number]
        following = block.first + self.frames_in(number)
        before: Frame | None = None
        crc: int | None = None
        broken, index = False, block.first - 1
        after_hole = number > 0 and self.after_hole(number)
        for index, line in enumerate(self._store.lines(block), block.first):
            try:
                seal = seal_of(line, crc)
                crc = seal.crc
                if not seal.is_sound:
                    raise RecordingProblem("the line was changed, or the previous line is missing or duplicated")
                frame = frame_of(seal.line, before)
                self._check_order(number, index, frame, before, seal)
                before = frame
            except RecordingProblem as problem:
                before = None
                if not broken:
                    broken = True
                    self._skipped(index, problem.message)
            if before is not None and index == block.first and after_hole:
                yield index, replace(before, events=(_hole(before), *before.events))
            elif before is not None:
                yield index, before
            elif index - block.first > _MOST_MOMENTS:
                return
        if following == block.first + self.frames_in(number):
            # Else it has grown meanwhile, and its end is another line.
            self._ends[number] = crc if before is not None and index == following - 1 else _DAMAGED
        if before is not None:
            self._read_to = (number, crc, before.elapsed_s)
        if index < following - 1 and not broken:
            self._skipped(index + 1, "the compressed data are damaged")

    def after_hole(self, number: int) -> bool:
        """Return whether frames right before a block cannot be read, or are missing."""
        if number == 0:
            return False
        if number - 1 not in self._ends:
            self._ends[number - 1] = self._end_of(number - 1)
        end = self._ends[number - 1]
        after = seal_of(self._store.first_line(self._blocks[number]), None).after
        return end == _DAMAGED or (None not in (end, after) and end != after)

    def _end_of(self, number: int) -> int | None:
        crc, count = None, 0
        for line in islice(self._store.lines(self._blocks[number]), _MOST_MOMENTS):
            seal = seal_of(line, crc)
            if not seal.is_sound or (count and (crc is None) != (seal.crc is None)):
                return _DAMAGED
            crc, count = seal.crc, count + 1
        return crc if count == self.frames_in(number) else _DAMAGED

    def _check_order(self, number: int, index: int, frame: Frame, before: Frame | None, seal: Seal) -> None:
        """Check that a frame comes after the one before: by checksum, or by its clock, as earlier versions had none.

        Raises:
            RecordingProblem: A delta that does not go on in time.
        """
        if before is not None:
            if seal.crc is None and moment_of_line(seal.line, math.inf) <= before.elapsed_s:
                raise RecordingProblem("its time precedes the previous line: a line is duplicated or out of order")
            return
        read, crc, elapsed_s = self._read_to
        if read != number - 1:
            return
        if frame.elapsed_s <= elapsed_s if seal.after is None else crc is not None and crc != seal.after:
            self._tell(f"line {index + 2}: previous lines are incomplete or duplicated")

    def scores(self, kind: LandmarkKind, first: int = 0) -> Iterator[tuple[int, float]]:
        for block in self._blocks[self._block_of(first) :]:
            for index, line in enumerate(self._store.lines(block), block.first):
                if index >= first:
                    yield index, score_of_line(kind, line)

    def block_begin(self, index: int) -> int:
        return self._firsts[self._block_of(index)] if self._firsts else 0

    def _skipped(self, index: int, reason: str) -> None:
        self._tell(f"line {index + 2}: {reason}; skipped up to the next key frame")

    def _tell(self, problem: str) -> None:
        if len(self.problems) < _MOST_PROBLEMS:
            self.problems.append(problem)
        elif self.problems[-1] != _MORE:
            self.problems.append(_MORE)

    def _block_of(self, index: int) -> int:
        return max(bisect_right(self._firsts, index) - 1, 0)

    def _moments_of(self, block: FrameBlock) -> list[float]:
        """Return the moments of its frames; numbers are kept, lines are not."""
        moments = self._moments.get(block.first)
        if moments is None:
            moments, elapsed_s = [], block.elapsed_s
            for line in islice(self._store.lines(block), _MOST_MOMENTS):
                elapsed_s = moment_of_line(line, elapsed_s)
                moments.append(elapsed_s)
            self._moments[block.first] = moments
        return moments

    def close(self) -> None:
        self._store.close()


def frame_of(line: bytes, before: Frame | None) -> Frame:
    """Return the frame of a line.

    Args:
        before: Frame of the line before it; only a key frame needs none.

    Raises:
        RecordingProblem: It cannot be read.
    """
    if len(line) >= MAX_LINE_BYTES:
        raise RecordingProblem("line too long for a recording")
    parsed = parse_line(line)
    if type(parsed) is not dict:
        raise RecordingProblem("the line is not an object")
    if KEY in parsed:
        frame = changed_frame(None, parsed[KEY])
    elif DELTA not in parsed:
        raise RecordingProblem("the line has neither key nor delta")
    elif before is None:
        raise RecordingProblem("a delta without its previous frame")
    else:
        frame = changed_frame(before, parsed[DELTA])
    return with_possible_moments(frame)


def _hole(frame: Frame) -> Event:
    detail = "the recording is damaged before this point, so numbers are missing"
    return Event(at_ms=frame.taken_at_ms, kind=EventKind.RECORDING, text="frames are missing", detail=detail)


def without_frames(name: str) -> RecordingProblem:
    """Return the problem of a recording that is a header alone, or has nothing behind it that can be read."""
    return RecordingProblem(f"{name} holds no frames", "record for longer than a second")


def with_possible_moments(frame: Frame) -> Frame:
    """Return the frame, where its moments are possible.

    Raises:
        RecordingProblem: They are not.
    """
    if not (0 <= frame.taken_at_ms < YEAR_9999_MS and abs(frame.elapsed_s) < YEAR_9999_MS):
        raise RecordingProblem("impossible time")
    return frame


def timeline_of(reader: RecordingReader) -> Timeline:
    """Return the time of a recording, for moments as people type them. Raises RecordingProblem without frames."""
    first = next((frame for _, frame in reader.frames()), None)
    if first is None:
        raise without_frames(reader.name)
    return Timeline(reader.length_s, reader.length_s, first.taken_at_ms - first.elapsed_s * 1000.0)
