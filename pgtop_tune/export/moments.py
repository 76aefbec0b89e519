"""Which moments of a session are exported."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Final

from msgspec import Struct

from pgtop_tune.export.exported import Watched
from pgtop_tune.model.frame import Frame
from pgtop_tune.session.frame_window import FrameWindow

PAST_S: Final = 150.0
"""What a number may look back: frames from so long before the first moment must come, too."""


class Span(Struct, frozen=True):
    """A part of a session, seconds on its clock, both ends included.

    Attributes:
        every_s: At most one moment in so many seconds; 0 is every frame.
    """

    from_s: float = 0.0
    until_s: float = math.inf
    every_s: float = 0.0


def moments(frames: Iterable[Frame], span: Span) -> Iterator[Watched]:
    """An interval for each moment; read it before asking for the next, which changes it.

    A moment keeps what it says when others are left out: its rates are of the last two readings.
    """
    kept = FrameWindow()
    due_s = span.from_s
    for frame in frames:
        if frame.elapsed_s > span.until_s:
            return
        kept.append(frame)
        if frame.elapsed_s < due_s:
            continue
        if span.every_s > 0:
            due_s += span.every_s * (math.floor((frame.elapsed_s - due_s) / span.every_s) + 1)
        yield Watched(kept)
