"""Numbered frames with random access, the part that a file and the history buffer share; and the search for landmarks
in them.

Moments worth jumping to: how much of a landmark each frame is, told from a frame or from its line in a recording.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Iterable, Iterator
from enum import Enum, auto
from functools import cache
from typing import TYPE_CHECKING, Final, Protocol

from pgtop_tune.base.errors import RecordingProblem
from pgtop_tune.model.absence import Unavailable
from pgtop_tune.model.bench import LatencySecond
from pgtop_tune.model.events import EventKind
from pgtop_tune.model.frame import Frame
from pgtop_tune.runtime.ports import Landmark


class LandmarkKind(Enum):
    """Kinds of frames to search for."""

    EVENT = auto()
    CHECKPOINT = auto()
    SLOWEST = auto()


class Frames(Protocol):
    """Frames from `first` up to and without `frame_count`."""

    @property
    def first(self) -> int:
        """Number of the oldest frame."""
        ...

    @property
    def frame_count(self) -> int:
        """Number after the newest frame."""
        ...

    @property
    def length_s(self) -> float:
        """Elapsed seconds of the newest frame; 0 without one."""
        ...

    @property
    def growing(self) -> bool:
        """True while more frames may come."""
        ...

    def elapsed_s(self, index: int) -> float:
        """Return the moment of a frame."""
        ...

    def index_at(self, elapsed_s: float) -> int:
        """Return the last frame at or before a moment; the first when there is none."""
        ...

    def frames(self, first: int = 0) -> Iterator[tuple[int, Frame]]:
        """Yield frames from a number on, each with its number."""
        ...

    def scores(self, kind: LandmarkKind, first: int = 0) -> Iterator[tuple[int, float]]:
        """Yield how much of a landmark each frame is, without decoding it."""
        ...

    def block_begin(self, index: int) -> int:
        """Return the number of the key frame at or before a frame."""
        ...

    def extend(self) -> bool:
        """Look for newly written frames; return whether there are any."""
        ...

    def close(self) -> None:
        """Release the frames: no reader will look again."""
        ...


if TYPE_CHECKING:
    from pgtop_tune.recording.values import Codec

_EVENTS: Final = re.compile(rb'"events":\s*\[\s*\{')
_CHECKPOINT: Final = re.compile(rb'"kind":\s*"checkpoint"')
_LATENCIES: Final = re.compile(rb'"latencies":\s*(?=\[\s*\{)')
_DECODER: Final = json.JSONDecoder()


def score_of_frame(kind: LandmarkKind, frame: Frame) -> float:
    """Return how much of a landmark a frame is: 1 with such an event, the slowest transaction in µs; 0 without."""
    if kind is LandmarkKind.EVENT:
        return float(bool(frame.events))
    if kind is LandmarkKind.CHECKPOINT:
        return float(any(event.kind is EventKind.CHECKPOINT for event in frame.events))
    return 0.0 if isinstance(frame.bench, Unavailable) else _slowest_us(frame.bench.latencies)


def score_of_line(kind: LandmarkKind, line: bytes) -> float:
    """Return the score of a line, of which nothing else is parsed. A line that cannot be read is reported when its
    frame is."""
    if kind is LandmarkKind.SLOWEST:
        return _slowest_us(_latencies(line))
    events = _EVENTS.search(line)
    if events is None or kind is LandmarkKind.EVENT:
        return float(events is not None)
    return float(_CHECKPOINT.search(line, events.end()) is not None)


def _slowest_us(seconds: Iterable[LatencySecond]) -> float:
    return float(max((second.max_us for second in seconds), default=0))


def _latencies(line: bytes) -> list[LatencySecond]:
    match = _LATENCIES.search(line)
    if match is None:
        return []
    try:
        rows, _ = _DECODER.raw_decode(line[match.end() :].decode("ascii", "replace"))
        return [_second().read(row) for row in rows]
    except (ValueError, RecursionError, RecordingProblem):
        return []


@cache
def _second() -> Codec:
    from pgtop_tune.recording.codec import codec_for

    return codec_for(LatencySecond)


async def find_landmark(frames: Frames, landmark: Landmark, here: int) -> int | None:
    """Return the number of the frame that a landmark is at; None where there is none in that direction.

    Gives way to the rest of the loop after each block.

    Args:
        here: Number of the frame shown, which is not looked at itself.
    """
    kind, direction = _WANTED[landmark]
    if direction == 0:
        return await _largest(frames, kind)
    return await (_next(frames, kind, here) if direction > 0 else _previous(frames, kind, here))


_WANTED: Final = {
    Landmark.NEXT_EVENT: (LandmarkKind.EVENT, 1),
    Landmark.PREVIOUS_EVENT: (LandmarkKind.EVENT, -1),
    Landmark.NEXT_CHECKPOINT: (LandmarkKind.CHECKPOINT, 1),
    Landmark.PREVIOUS_CHECKPOINT: (LandmarkKind.CHECKPOINT, -1),
    Landmark.WORST_SECOND: (LandmarkKind.SLOWEST, 0),
}
"""Kind of frame by landmark, and whether it is searched for after the moment, before it, or everywhere."""


async def _next(frames: Frames, kind: LandmarkKind, here: int) -> int | None:
    async for index, value in _scores(frames, kind, here + 1, frames.frame_count):
        if value > 0:
            return index
    return None


async def _previous(frames: Frames, kind: LandmarkKind, here: int) -> int | None:
    end = here
    while end > frames.first:
        begin, last = frames.block_begin(end - 1), None
        async for index, value in _scores(frames, kind, begin, end):
            if value > 0:
                last = index
        if last is not None:
            return last
        end = begin
    return None


async def _largest(frames: Frames, kind: LandmarkKind) -> int | None:
    largest, at = 0.0, None
    async for index, value in _scores(frames, kind, frames.first, frames.frame_count):
        if value > largest:
            largest, at = value, index
    return at


async def _scores(frames: Frames, kind: LandmarkKind, first: int, end: int) -> AsyncIterator[tuple[int, float]]:
    begin = -1
    for index, value in frames.scores(kind, first):
        if index >= end:
            return
        if (block := frames.block_begin(index)) != begin:
            begin = block
            await asyncio.sleep(0)
        yield index, value
