"""The session that a screen or a headless printer shows: the newest frames, series for charts, events.

Owned by one thread; frames reach it as steps handed over by the engine.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, TypeVar, cast

from msgspec import Struct

from pgtop_tune.metrics import sections
from pgtop_tune.metrics.catalogue import STEADY_FRAMES, Interval
from pgtop_tune.metrics.load import running, stalled_s
from pgtop_tune.model.absence import Unavailable
from pgtop_tune.runtime.frame_window import FrameWindow
from pgtop_tune.runtime.history import Charted, History, LatencyHistory, LatencyPoint

if TYPE_CHECKING:
    from pgtop_tune.model.events import Event
    from pgtop_tune.model.frame import Frame
    from pgtop_tune.runtime.ports import Step


T = TypeVar("T")
KEEP_EVENTS: Final = 2_000


class Session:
    """The newest frames and the values derived from all of them.

    Args:
        charted: Metrics whose series are kept.
        live_session: The session that goes on while this one shows its past; None without one. After a
            restart the series and events that lead up to the new frames are taken from there.

    Attributes:
        history: Series of the charted metrics.
        latency: Percentiles per second of the load.
        events: Newest last, bounded.
        watch: Called with each interval on the way to the newest frame, of a step with many frames with the last
            `STEADY_FRAMES`; and whether it is the first after a restart.
        incomplete: True while the frames before the moment are still to come.
    """

    def __init__(self, charted: Sequence[Charted] = (), live_session: Session | None = None) -> None:
        self._charted: Final = tuple(charted)
        self._live_session: Final = live_session
        self._frames = FrameWindow()
        self.history: Final = History(charted)
        self.latency: Final = LatencyHistory()
        self.events: Final[deque[tuple[float, Event]]] = deque(maxlen=KEEP_EVENTS)
        self.watch: Callable[[Interval, bool], object] | None = None
        self.incomplete = False
        self._known_s: Final[deque[float]] = deque(maxlen=KEEP_EVENTS)
        self._interval: Interval | None = None
        self._sessions_seen: Frame | None = None
        self._known: dict[Callable[[Session], object], object] = {}

    def apply(self, step: Step) -> None:
        """Take a step; one with `restart` replaces everything known."""
        self._known.clear()
        self.incomplete = step.more
        if step.restart and self._live_session is not None and step.frames:
            self._recall(self._live_session, step.frames)
            return
        if step.restart:
            self._frames.clear()
            self.history.clear()
            self.latency.clear()
            self._forget_events(0)
            self._interval = self._sessions_seen = None
        if step.back_to_s is not None:
            self._set_back(step.back_to_s, step.frames)
            return
        watched_from = len(step.frames) - (0 if step.more else STEADY_FRAMES)
        for number, frame in enumerate(step.frames):
            self._append(frame)
            if self.watch is not None and self._interval is not None and number >= watched_from:
                self.watch(self._interval, step.restart and number in (0, watched_from))

    def _recall(self, live_session: Session, frames: Sequence[Frame]) -> None:
        """Take the live session's knowledge at the last of these frames."""
        until_s = frames[-1].elapsed_s
        self._frames.clear()
        self._frames.extend(frames)
        self.history.adopt(live_session.history, until_s)
        self.latency.adopt(live_session.latency, until_s)
        self._forget_events(0)
        self.events.extend(live_session.events)
        self._known_s.extend(live_session._known_s)
        self._forget_events(bisect_right(self._known_s, until_s))
        self._interval = Interval(self._frames)
        self._sessions_seen = _with_sessions(self._frames)

    def _set_back(self, until_s: float, frames: Sequence[Frame]) -> None:
        begin_s = frames[0].elapsed_s if frames else math.nextafter(until_s, math.inf)
        while self._frames and self._frames[-1].elapsed_s >= begin_s:
            self._frames.pop()
        self._frames.extend(frames)
        self.history.cut(until_s)
        self.latency.cut(until_s)
        self._forget_events(bisect_right(self._known_s, until_s))
        self._interval = Interval(self._frames) if self._frames else None
        self._sessions_seen = _with_sessions(self._frames)

    def _forget_events(self, beyond: int) -> None:
        while len(self.events) > beyond:
            self.events.pop()
            self._known_s.pop()

    def _append(self, frame: Frame) -> None:
        self._frames.append(frame)
        self._interval = Interval(self._frames, self._interval)
        if not isinstance(sections.activity(frame), Unavailable):
            self._sessions_seen = frame
        offset_s = frame.taken_at_ms / 1000.0 - frame.elapsed_s
        self.events.extend((event.at_ms / 1000.0 - offset_s, event) for event in frame.events)
        self._known_s.extend(frame.elapsed_s for _ in frame.events)
        self.history.append(self._interval)
        if not isinstance(frame.bench, Unavailable) and frame.bench.latencies:
            self.latency.add(frame.bench.latencies, offset_s, frame.elapsed_s, frame.bench.run.run)

    def once(self, compute: Callable[[Session], T]) -> T:
        """Return the result of a function of this session, computed once a step: the screen is drawn more often than
        that."""
        if compute not in self._known:
            self._known[compute] = compute(self)
        return cast(T, self._known[compute])

    def copy(self) -> Session:
        """Return a session with the same knowledge that goes its own way from here on, for a frozen screen.

        Where it is sent into the past, it takes from this one what it does not know.
        """
        twin = Session(self._charted, self)
        twin._frames = FrameWindow(self._frames)
        twin.history.adopt(self.history)
        twin.latency.adopt(self.latency)
        twin.events.extend(self.events)
        twin._known_s.extend(self._known_s)
        twin._interval = Interval(twin._frames) if twin._frames else None
        twin._sessions_seen = self._sessions_seen
        return twin

    @property
    def interval(self) -> Interval | None:
        """The interval of the newest frames, for metrics; None before the first frame."""
        return self._interval

    @property
    def sessions_seen(self) -> Frame | None:
        """The newest frame that has the server's sessions, however long the server has been away since."""
        return self._sessions_seen

    @property
    def frames(self) -> tuple[Frame, ...]:
        """The frames of `FrameWindow`, oldest first."""
        return tuple(self._frames)

    @property
    def now(self) -> Frame | None:
        """The newest frame."""
        return self._frames[-1] if self._frames else None


def _with_sessions(frames: Sequence[Frame]) -> Frame | None:
    return next((frame for frame in reversed(frames) if not isinstance(sections.activity(frame), Unavailable)), None)


# The second of the transaction log that a screen shows percentiles of.


class NewestLatency(Struct, frozen=True):
    """The newest complete second of the load under way.

    Attributes:
        second: None before the first is complete, and without a load of ours.
        age_s: Seconds since its end. pgbench buffers its log: some seconds are usual, more with few transactions.
        stalled_s: Seconds without an ended transaction in a stall, else None: then the second says nothing of now.
    """

    second: LatencyPoint | None
    age_s: float = 0.0
    stalled_s: float | None = None


def newest_latency(session: Session) -> NewestLatency:
    """Return the latency of the load under way. Computed once a step through `Session.once`."""
    frame, interval = session.now, session.interval
    run = None if interval is None else running(interval)
    if frame is None or interval is None or run is None:
        return NewestLatency(None)
    second = session.latency.newest()
    if second is None or (second.second + 1) * 1000 <= run.started_ms:
        # The newest second is of the run before.
        return NewestLatency(None, 0.0, stalled_s(interval))
    return NewestLatency(second, max(frame.elapsed_s - second.at_s, 0.0), stalled_s(interval))
