"""Reasons to end a run before its time: conditions of --abort-if that hold for a while, and overload.

Pure over frames: what ends a run live would be found in its recording, too.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from msgspec import Struct

from pgtop_tune.base.errors import UsageProblem
from pgtop_tune.base.units import number
from pgtop_tune.base.units import seconds as seconds_of
from pgtop_tune.metrics.catalogue import Interval
from pgtop_tune.metrics.checkpoints import checkpoint_ends_in_s
from pgtop_tune.metrics.overload import OverloadWatch
from pgtop_tune.metrics.trip_wires import TripWire, trip_wire
from pgtop_tune.model.absence import Unavailable
from pgtop_tune.model.bench import ABORTED, OVERLOADED, BenchRun
from pgtop_tune.model.frame import Frame

_CONDITION: Final = re.compile(r"(.+?)\s+for\s+(\S+)", re.IGNORECASE)
_EXCUSES_S: Final = 60.0
"""Remaining time of a checkpoint up to which a backlog may wait for its end."""


class AbortCondition(Struct, frozen=True):
    """A condition that ends a run.

    Attributes:
        wire: The number and its limit.
        for_s: Seconds for which it must be crossed without a pause.
    """

    wire: TripWire
    for_s: float

    @property
    def text(self) -> str:
        """Return the condition in words."""
        return f"{self.wire.text} for {number(self.for_s)} s"


def abort_condition(text: str) -> AbortCondition:
    """Parse 'p99 > 50ms for 10s'.

    Raises:
        UsageProblem: It is not of that form.
    """
    match = _CONDITION.fullmatch(text.strip())
    if match is None:
        raise UsageProblem(f"{text!r} is not a condition", "write for example 'p99 > 50ms for 10s'")
    return AbortCondition(trip_wire(match[1]), seconds_of(match[2]))


def abort_conditions(typed: Iterable[str]) -> tuple[AbortCondition, ...]:
    """Parse all conditions. Raises UsageProblem for one that is none."""
    return tuple(abort_condition(text) for text in typed)


class RunEndedFor(Struct, frozen=True):
    """A reason to end a run.

    Attributes:
        doubt: Id of the doubt that it raises: ABORTED or OVERLOADED; "" where the run has told enough.
        reason: One sentence, with numbers.
    """

    doubt: str
    reason: str


class RunGuard:
    """The reasons to end one run.

    Args:
        conditions: Of --abort-if.
        stops: Whether overload ends the run; else it is only told.
        tell: Takes an overload that does not end the run, one line.

    Attributes:
        ended_for: The reason, once there is one.
        overload: The overload in a sentence, once there is one; "" without.
    """

    def __init__(
        self,
        conditions: Sequence[AbortCondition] = (),
        *,
        stops: bool = True,
        tell: Callable[[str], None] = lambda line: None,
    ) -> None:
        self._tell = tell
        self.ended_for: RunEndedFor | None = None
        self.overload = ""
        self._conditions = tuple(conditions)
        self._crossed_since_s: dict[int, float] = {}
        self._stops = stops
        self._run = 0
        self._newest = -1
        self._watched: tuple[int, float | None] = (0, None)
        self._watch: OverloadWatch | None = None

    def ends(self, interval: Interval) -> bool:
        """Take the frames so far, the newest of which are new, and return whether the run is to be ended."""
        frames = interval.frames
        for index, frame in enumerate(frames):
            if frame.sequence > self._newest and self.ended_for is None:
                self._newest = frame.sequence
                self._take(interval if frame is frames[-1] else Interval(frames[: index + 1]), frame)
        return self.ended_for is not None

    def _take(self, interval: Interval, frame: Frame) -> None:
        bench = frame.bench
        if isinstance(bench, Unavailable):
            return
        if bench.run.run != self._run:
            self._run, self._crossed_since_s = bench.run.run, {}
        if (bench.run.run, bench.run.rate_per_s) != self._watched:
            # Another rate begins anew: phases and keys change it.
            self._watched = (bench.run.run, bench.run.rate_per_s)
            self._watch = None if bench.run.rate_per_s is None else OverloadWatch(bench.run.rate_per_s)
        self._look_at_conditions(interval, frame.elapsed_s, paused=bench.run.paused)
        if self._watch is not None and not self.overload:
            excused = bool(bench.progress) and is_excused(interval, bench.run)
            for line in bench.progress:
                overload = self._watch.take(line, excused=excused)
                if overload is not None and not self.overload:
                    self.overload = overload.sentence
                    if not self._stops:
                        self._tell(f"{OVERLOADED}: {self.overload}")
                    elif self.ended_for is None:
                        self.ended_for = RunEndedFor(OVERLOADED, self.overload)

    def _look_at_conditions(self, interval: Interval, now_s: float, *, paused: bool) -> None:
        for index, condition in enumerate(self._conditions):
            crossed = condition.wire.crossed(interval)
            if paused or crossed is False:
                self._crossed_since_s.pop(index, None)
            # Unknown is neither: the log of a slow load comes in parts, more seconds apart than a wire looks back.
            elif crossed and now_s - self._crossed_since_s.setdefault(index, now_s) >= condition.for_s:
                self.ended_for = RunEndedFor(ABORTED, condition.text)


def is_excused(interval: Interval, run: BenchRun) -> bool:
    """Return whether a checkpoint that will soon end, within the run, explains a backlog."""
    ends_in_s = checkpoint_ends_in_s(interval)
    if ends_in_s is None or ends_in_s > _EXCUSES_S:
        return False
    elapsed_s = (interval.newest.taken_at_ms - run.started_ms) / 1000.0
    return run.duration_s is None or elapsed_s + ends_in_s < run.duration_s
