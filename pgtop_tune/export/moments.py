"""Which moments of a session are exported."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, Protocol

from msgspec import Struct

from pgtop_tune.export.exported import WatchedInterval
from pgtop_tune.model.frame import Frame
from pgtop_tune.runtime.frame_window import FrameWindow

PAST_S: Final = 150.0
"""What a number may look back: frames from so long before the first moment must come, too."""


class TimeSpan(Struct, frozen=True):
    """A part of a session, seconds on its clock, both ends included.

    Attributes:
        every_s: At most one moment in so many seconds; 0 is every frame.
    """

    from_s: float = 0.0
    until_s: float = math.inf
    every_s: float = 0.0


class Recorded(Protocol):
    """Numbered frames."""

    @property
    def frame_count(self) -> int: ...
    def index_at(self, elapsed_s: float) -> int: ...


def moments(frames: Iterable[Frame], span: TimeSpan) -> Iterator[WatchedInterval]:
    """An interval for each frame of a span; read it before asking for the next, which changes it."""
    kept = FrameWindow()
    for frame in frames:
        if frame.elapsed_s > span.until_s:
            return
        kept.append(frame)
        if frame.elapsed_s >= span.from_s:
            yield WatchedInterval(kept)


def spaced(recorded: Recorded, until: Callable[[int], Sequence[Frame]], span: TimeSpan) -> Iterator[WatchedInterval]:
    """An interval for the first frame in every `every_s` of a span.

    A moment keeps what it says when others are left out: its rates are of the last two readings.

    Args:
        recorded: Where moments are.
        until: A frame with those before it, by its number; in place of a damaged one stands another.
        span: With an `every_s` above 0.
    """
    due_s, index = span.from_s, recorded.index_at(span.from_s)
    while index < recorded.frame_count:
        frames = until(index)
        try:
            at_s = frames[-1].elapsed_s
        except IndexError:
            return
        if at_s > span.until_s:
            return
        if at_s < due_s:
            index += 1
            continue
        yield WatchedInterval(frames)
        due_s += span.every_s * (math.floor((at_s - due_s) / span.every_s) + 1)
        index = max(recorded.index_at(due_s), index + 1)
