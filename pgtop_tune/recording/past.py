"""Frames of a recording with those before them, of which only those are read that are asked for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, overload

from pgtop_tune.model.frame import Frame
from pgtop_tune.recording.frames import Frames


class PastReader:
    """Gives a frame with its past, again and again, forwards.

    A block is read from its key frame up to the last frame asked for, once: most numbers of a moment cost half a block.

    Args:
        frames: An open recording.
        longest: Frames that a past has at most.
    """

    def __init__(self, frames: Frames, longest: int) -> None:
        self._frames: Final = frames
        self._longest: Final = longest
        self._blocks: Final[dict[int, tuple[Iterator[tuple[int, Frame]], dict[int, Frame]]]] = {}

    def until(self, newest: int) -> Sequence[Frame]:
        """Frames up to one, oldest first; valid until the next call.

        In place of frames that cannot be read stands the one before them.
        """
        first = max(newest + 1 - self._longest, 0)
        needed = self._frames.block_begin(first)
        for begin in [begin for begin in self._blocks if begin < needed]:
            del self._blocks[begin]
        return _Past(self, first, newest + 1 - first)

    def frame(self, index: int) -> Frame:
        """The frame of an index, or the last one before it that can be read, or the first one after it.

        Raises:
            IndexError: None can be read.
        """
        wanted = index
        while wanted >= 0:
            begin, known = self._read_up_to(wanted)
            for each in range(wanted, begin - 1, -1):
                if each in known:
                    return known[each]
            wanted = begin - 1
        for _, frame in self._frames.frames(index):
            return self._read_up_to(index)[1].setdefault(index, frame)
        raise IndexError(index)

    def _read_up_to(self, index: int) -> tuple[int, dict[int, Frame]]:
        """Where the block of an index begins, and the frames of it that were read."""
        begin = self._frames.block_begin(index)
        if begin not in self._blocks:
            self._blocks[begin] = self._frames.frames(begin), {}
        ahead, known = self._blocks[begin]
        while max(known, default=-1) < index and (following := next(ahead, None)) is not None:
            known[following[0]] = following[1]
        return begin, known


class _Past(Sequence[Frame]):
    def __init__(self, reader: PastReader, first: int, count: int) -> None:
        self._reader = reader
        self._first = first
        self._count = count

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, index: int) -> Frame: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Frame]: ...
    def __getitem__(self, index: int | slice) -> Frame | Sequence[Frame]:
        if isinstance(index, slice):
            return [self[each] for each in range(self._count)[index]]
        return self._reader.frame(self._first + range(self._count)[index])
