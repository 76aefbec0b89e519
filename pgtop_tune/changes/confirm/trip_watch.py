"""Trip wires over arriving frames: which line has been crossed for long enough to revert a set at once. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from pgtop_tune.metrics.catalogue import Interval

if TYPE_CHECKING:
    from pgtop_tune.metrics.trip_wires import TripWire
    from pgtop_tune.model.frame import Frame
    from pgtop_tune.runtime.ports import Step

SUSTAINED_S: Final = 3.0
"""How long a line must stay crossed: one slow second is no verdict."""
SETTLE_S: Final = 2.0
"""After the change, before wires count: what is measured at first still belongs to the time before."""
_FRAMES: Final = 120
"""What trip wires look back over is seconds."""


class TripWatch:
    """Watches the trip wires of one set.

    Args:
        began_s: When the set was made, on the session's clock.
        wires: Lines that must not be crossed.
    """

    def __init__(self, began_s: float, wires: Sequence[TripWire]) -> None:
        self._began_s: Final = began_s
        self._wires: Final = tuple(wires)
        self._frames: deque[Frame] = deque(maxlen=_FRAMES)
        self._crossed_since_s: dict[str, float] = {}

    def accept(self, step: Step) -> str:
        """The reason to revert the set, "p99>50ms for 3 s"; "" for none."""
        if step.restart:
            self._frames.clear()
        for frame in step.frames if self._wires else ():
            self._frames.append(frame)
            reason = self._saw(frame.elapsed_s, Interval(tuple(self._frames)))
            if reason:
                return reason
        return ""

    def _saw(self, now_s: float, interval: Interval) -> str:
        if now_s < self._began_s + SETTLE_S:
            return ""
        for wire in self._wires:
            if not wire.crossed(interval):
                self._crossed_since_s.pop(wire.text, None)
                continue
            crossed_s = now_s - self._crossed_since_s.setdefault(wire.text, now_s)
            if crossed_s >= SUSTAINED_S:
                return f"{wire.text} for {crossed_s:.0f} s"
        return ""
