"""Windows of a session's time, and the marks an operator sets to make them. Pure."""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace


class Window(Struct, frozen=True):
    """A part of a session's time.

    Attributes:
        since_s: Its begin on the session's clock.
        until_s: Its end.
    """

    since_s: float
    until_s: float

    @property
    def seconds(self) -> float:
        """Its length."""
        return self.until_s - self.since_s

    def overlaps(self, other: Window) -> bool:
        """Whether they have a moment in common; one may end where the other begins."""
        return self.since_s < other.until_s and other.since_s < self.until_s


class Marks(Struct, frozen=True):
    """What the operator has marked so far.

    Attributes:
        windows: Complete ones, at most two, in the order in which they were marked.
        begun_s: Where the next one begins; None when no begin is set.
    """

    windows: tuple[Window, ...] = ()
    begun_s: float | None = None

    def begin(self, at_s: float) -> Marks:
        """A begin; set again before its end, it moves. After two windows everything starts over."""
        return Marks(() if len(self.windows) == 2 else self.windows, at_s)

    def end(self, at_s: float) -> Marks:
        """The end of what was begun, either way round in time; without a begin the end of the newest window moves.

        The same marks come back where there is nothing to end, or no time between begin and end.
        """
        if self.begun_s is None:
            if not self.windows or at_s <= self.windows[-1].since_s:
                return self
            *others, last = self.windows
            return replace(self, windows=(*others, replace(last, until_s=at_s)))
        if at_s == self.begun_s:
            return self
        return Marks((*self.windows, Window(min(self.begun_s, at_s), max(self.begun_s, at_s))))

    @property
    def pair(self) -> tuple[Window, Window] | None:
        """A and B: the two windows; of one alone, as long a time before it and it. None without one."""
        if not self.windows:
            return None
        if len(self.windows) == 2:
            return self.windows[0], self.windows[1]
        (only,) = self.windows
        return Window(max(only.since_s - only.seconds, 0.0), only.since_s), only

    @property
    def moments(self) -> tuple[tuple[float, bool], ...]:
        """(moment, whether it is an end) of every mark."""
        found = [each for window in self.windows for each in ((window.since_s, False), (window.until_s, True))]
        return tuple(found) if self.begun_s is None else (*found, (self.begun_s, False))

    def __bool__(self) -> bool:
        return bool(self.windows) or self.begun_s is not None
