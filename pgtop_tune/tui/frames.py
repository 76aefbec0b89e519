"""From the engine's thread to the screen: steps wait in a bounded queue until the screen has time for them.

A terminal may stall for minutes and block Textual's loop. The engine must not notice and memory must not grow, so the
oldest frames are dropped; their events are kept, and the charts show the gap.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

if TYPE_CHECKING:
    from pgtop_tune.model.events import Event
    from pgtop_tune.runtime.ports import Step

KEEP_STEPS: Final = 150
"""Steps that wait at most; as many frames as a session keeps whole."""
KEEP_EVENTS: Final = 500


class ScreenSink:
    """Implements `FrameSink`.

    Args:
        poke: Called, in the engine's thread, when something waits that did not before; must not block.
        ended: Called, in the engine's thread, when no more steps will come.
    """

    def __init__(self, poke: Callable[[], None], ended: Callable[[], None]) -> None:
        self._poke = poke
        self._ended = ended
        self._lock = threading.Lock()
        self._waiting: deque[Step] = deque()
        self._orphans: deque[Event] = deque(maxlen=KEEP_EVENTS)
        self._poked = False
        self.dropped_frames = 0

    def accept(self, step: Step) -> None:
        """See `FrameSink.accept`. Never blocks for longer than the screen takes to empty the queue."""
        with self._lock:
            if step.restart:
                self._waiting.clear()
                self._orphans.clear()
            self._waiting.append(step)
            if len(self._waiting) > KEEP_STEPS:
                self._drop_oldest()
            poke, self._poked = not self._poked, True
        if poke:
            self._poke()

    def _drop_oldest(self) -> None:
        lost = self._waiting.popleft()
        self.dropped_frames += len(lost.frames)
        for frame in lost.frames:
            self._orphans.extend(frame.events)
        if lost.restart:
            # What follows a forgotten restart still has to begin anew, or two sessions would be mixed.
            self._waiting[0] = replace(self._waiting[0], restart=True)
        elif lost.back_to_s is not None:
            self._waiting[0] = _set_back(lost, self._waiting[0])

    def close(self) -> None:
        """See `FrameSink.close`."""
        self._ended()

    def take(self) -> list[Step]:
        """Everything that waits, oldest first; for the screen's thread."""
        with self._lock:
            steps = list(self._waiting)
            self._waiting.clear()
            orphans = tuple(self._orphans)
            self._orphans.clear()
            self._poked = False
        if orphans and steps and steps[0].frames:
            first, *others = steps[0].frames
            steps[0] = replace(steps[0], frames=(replace(first, events=orphans + first.events), *others))
        return steps


def _set_back(lost: Step, following: Step) -> Step:
    """What follows a forgotten step back still has to begin there."""
    if following.restart or following.back_to_s is not None or not following.frames:
        return following
    return replace(following, frames=lost.frames + following.frames, back_to_s=following.frames[-1].elapsed_s)
