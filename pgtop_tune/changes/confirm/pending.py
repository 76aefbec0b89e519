"""A change on trial: it is kept in time, or it is taken back; a trip wire takes it back at once.

A state machine without a clock and without hands: it is told the time and the frames, and says what is to be done.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from msgspec import Struct

if TYPE_CHECKING:
    from pgtop_tune.metrics.catalogue import Interval
    from pgtop_tune.metrics.trip_wires import TripWire

SUSTAINED_S: Final = 3.0
"""How long a line must stay crossed: one slow second is no verdict."""
SETTLE_S: Final = 2.0
"""After the change, before wires count: what is measured at first still belongs to the time before."""


class Fate(StrEnum):
    """What becomes of the change."""

    ON_TRIAL = "on trial"
    KEPT = "kept"
    TIME_OVER = "time over"
    TRIPPED = "tripped"


class Standing(Struct, frozen=True):
    """Where a trial stands.

    Attributes:
        remaining_s: Until it is taken back; 0 when its fate is settled.
        reason: What tripped it, or ""; for the screen and the journal.
    """

    fate: Fate
    remaining_s: float
    reason: str = ""

    @property
    def must_revert(self) -> bool:
        """Whether the change has to be taken back now."""
        return self.fate in (Fate.TIME_OVER, Fate.TRIPPED)


class Trial:
    """One change set on trial.

    Args:
        began_s: When it was applied, on the session's clock.
        keep_within_s: How long somebody has to keep it.
        wires: Lines that must not be crossed meanwhile.
    """

    def __init__(self, began_s: float, keep_within_s: float, wires: Sequence[TripWire] = ()) -> None:
        self._wires: Final = tuple(wires)
        self._began_s: Final = began_s
        self._until_s: Final = began_s + keep_within_s
        self._crossed_since_s: dict[str, float] = {}
        self._fate = Fate.ON_TRIAL
        self._reason = ""

    def keep(self) -> Standing:
        """Somebody wants the change to stay; too late when its fate is settled otherwise."""
        if self._fate is Fate.ON_TRIAL:
            self._fate = Fate.KEPT
        return self._standing(self._until_s)

    def passes(self, now_s: float) -> Standing:
        """Time has passed, with or without frames: a server that is away does not stop the clock."""
        if self._fate is Fate.ON_TRIAL and now_s >= self._until_s:
            self._fate = Fate.TIME_OVER
            self._reason = "nobody kept it in time"
        return self._standing(now_s)

    def saw(self, now_s: float, interval: Interval) -> Standing:
        """A frame has arrived."""
        if self._fate is Fate.ON_TRIAL and now_s >= self._began_s + SETTLE_S:
            for wire in self._wires:
                self._look(wire, now_s, interval)
        return self.passes(now_s)

    def _look(self, wire: TripWire, now_s: float, interval: Interval) -> None:
        if not wire.crossed(interval):
            self._crossed_since_s.pop(wire.text, None)
            return
        since_s = self._crossed_since_s.setdefault(wire.text, now_s)
        if now_s - since_s >= SUSTAINED_S:
            self._fate = Fate.TRIPPED
            self._reason = f"{wire.text} for {now_s - since_s:.0f} s"

    def _standing(self, now_s: float) -> Standing:
        remaining_s = max(self._until_s - now_s, 0.0) if self._fate is Fate.ON_TRIAL else 0.0
        return Standing(self._fate, remaining_s, self._reason)
