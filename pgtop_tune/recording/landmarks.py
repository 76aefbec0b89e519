"""Moments worth jumping to, found in the lines of frames without making frames of them."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Callable
from typing import Final

from pgtop_tune.errors import RecordingProblem
from pgtop_tune.metrics.percentiles import percentiles
from pgtop_tune.model.bench import LatencySecond
from pgtop_tune.recording.codec import codec_for
from pgtop_tune.recording.frames import Frames
from pgtop_tune.session.ports import Landmark

_EVENTS: Final = re.compile(rb'"events":\s*\[\s*\{')
_CHECKPOINT: Final = re.compile(rb'"kind":\s*"checkpoint"')
_LATENCIES: Final = re.compile(rb'"latencies":\s*(?=\[\s*\{)')
_SECOND: Final = codec_for(LatencySecond)
_DECODER: Final = json.JSONDecoder()
_WORST: Final = (99.0,)


def _has_event(line: bytes) -> bool:
    return _EVENTS.search(line) is not None


def _has_checkpoint(line: bytes) -> bool:
    events = _EVENTS.search(line)
    return events is not None and _CHECKPOINT.search(line, events.end()) is not None


_MATCHES: Final[dict[Landmark, tuple[int, Callable[[bytes], bool]]]] = {
    Landmark.NEXT_EVENT: (1, _has_event),
    Landmark.PREVIOUS_EVENT: (-1, _has_event),
    Landmark.NEXT_CHECKPOINT: (1, _has_checkpoint),
    Landmark.PREVIOUS_CHECKPOINT: (-1, _has_checkpoint),
}
"""Landmark → direction, and what is looked for."""


async def find(frames: Frames, landmark: Landmark, here: int) -> int | None:
    """Number of the frame that a landmark is at; None where there is none in that direction.

    Gives way to the rest of the loop after each block.

    Args:
        here: Number of the frame shown, which is not looked at itself.
    """
    if landmark is Landmark.WORST_P99:
        return await _worst(frames)
    direction, matches = _MATCHES[landmark]
    if direction > 0:
        async for index, line in _lines(frames, here + 1, frames.frame_count):
            if matches(line):
                return index
        return None
    end = here
    while end > frames.first:
        begin, found = frames.block_begin(end - 1), None
        async for index, line in _lines(frames, begin, end):
            if matches(line):
                found = index
        if found is not None:
            return found
        end = begin
    return None


async def _worst(frames: Frames) -> int | None:
    worst_us, found = -1.0, None
    async for index, line in _lines(frames, frames.first, frames.frame_count):
        for latency in _latencies(line):
            (p99_us,) = percentiles(latency.buckets, _WORST, latency.max_us) or (-1.0,)
            if p99_us > worst_us:
                worst_us, found = p99_us, index
    return found


def _latencies(line: bytes) -> list[LatencySecond]:
    place = _LATENCIES.search(line)
    if place is None:
        return []
    try:
        rows, _ = _DECODER.raw_decode(line[place.end() :].decode("ascii", "replace"))
        return [_SECOND.read(row) for row in rows]
    except (ValueError, RecursionError, RecordingProblem):
        # A damaged line is told of when its frame is read.
        return []


async def _lines(frames: Frames, first: int, end: int) -> AsyncIterator[tuple[int, bytes]]:
    begin = -1
    for index, line in frames.lines(first):
        if index >= end:
            return
        if (block := frames.block_begin(index)) != begin:
            begin = block
            await asyncio.sleep(0)
        yield index, line
