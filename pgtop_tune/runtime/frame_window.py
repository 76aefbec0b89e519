"""The newest frames of a session; the older ones of them have fewer readings of bulky sections.

Three hundred backends and their processes are a quarter of a megabyte in each frame, and what little of a frame stays
for long keeps the memory around it from being used again. No metric looks at these sections further back than some
seconds, but for the texts of statements; so an older frame repeats a reading of some frames before it, as it does for
any section that is read less often than frames are made. Which readings stay depends on their own moments alone:
wherever a window begins, live or after a jump, it has the same ones.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, TypeVar, overload

from msgspec.structs import replace

from pgtop_tune.metrics import sections
from pgtop_tune.metrics.catalogue import WHOLE_S, Reading, Section
from pgtop_tune.model.absence import Unavailable
from pgtop_tune.model.frame import Frame
from pgtop_tune.model.host import HostSample
from pgtop_tune.model.postgres import PostgresSample

KEEP_FRAMES: Final = 150
"""Whole frames kept: enough for the widest window a metric looks back."""
APART_S: Final = 14.0
"""Length of the spans of the older past: the first reading of each is kept. A section that is read less often
(relations) keeps each one, since a rate is between the newest two."""
_THINNED: Final = tuple(section for section in sections.DATED if not section.kept_whole)
_HOST: Final = tuple(section for section in _THINNED if section.holder is HostSample)
_SERVER: Final = tuple(section for section in _THINNED if section.holder is PostgresSample)
_Sample = TypeVar("_Sample", HostSample, PostgresSample)


class FrameWindow(Sequence[Frame]):
    """At most `KEEP_FRAMES` frames, oldest first. A section that a frame lacks stays absent.

    Args:
        frames: The window whose frames this one begins with.
    """

    def __init__(self, frames: FrameWindow | None = None) -> None:
        self._frames: deque[Frame] = deque(() if frames is None else frames._frames, KEEP_FRAMES)
        self._thinned: int = 0 if frames is None else frames._thinned

    def __len__(self) -> int:
        return len(self._frames)

    @overload
    def __getitem__(self, index: int) -> Frame: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Frame]: ...
    def __getitem__(self, index: int | slice) -> Frame | Sequence[Frame]:
        return list(self._frames)[index] if isinstance(index, slice) else self._frames[index]

    def __iter__(self) -> Iterator[Frame]:
        return iter(self._frames)

    def __reversed__(self) -> Iterator[Frame]:
        return reversed(self._frames)

    def append(self, frame: Frame) -> None:
        """Take the newest frame, drop the oldest beyond the limit."""
        frames = self._frames
        if len(frames) == KEEP_FRAMES:
            self._thinned = max(self._thinned - 1, 0)
        frames.append(frame)
        # The newest two stay whole, however far apart: the screen shows the interval between them as now.
        while self._thinned < len(frames) - 2 and frames[self._thinned].elapsed_s < frame.elapsed_s - WHOLE_S:
            if self._thinned:
                frames[self._thinned] = _repeating(frames[self._thinned - 1], frames[self._thinned])
            self._thinned += 1

    def extend(self, frames: Iterable[Frame]) -> None:
        """Take several frames, oldest first."""
        for frame in frames:
            self.append(frame)

    def pop(self) -> Frame:
        """Remove the newest frame, and return it.

        Raises:
            IndexError: There is none.
        """
        frame = self._frames.pop()
        self._thinned = min(self._thinned, len(self._frames))
        return frame

    def clear(self) -> None:
        """Forget all frames."""
        self._frames.clear()
        self._thinned = 0


def _repeating(before: Frame, frame: Frame) -> Frame:
    """Return the frame with the readings of the one before, where those are of the same seconds."""
    return replace(
        frame,
        host=_sample(before.host, frame.host, _HOST),
        postgres=_sample(before.postgres, frame.postgres, _SERVER),
    )


def _sample(
    before: _Sample | Unavailable, now: _Sample | Unavailable, thinned: Sequence[Section[Reading]]
) -> _Sample | Unavailable:
    if isinstance(before, Unavailable) or isinstance(now, Unavailable):
        return now
    repeated: dict[str, Reading] = {}
    for section in thinned:
        older, newer = section.of(before), section.of(now)
        if older is not newer and not isinstance(older, Unavailable) and not isinstance(newer, Unavailable):
            repeated[section.name] = older if older.at_s // APART_S == newer.at_s // APART_S else newer
    return replace(now, **repeated)
