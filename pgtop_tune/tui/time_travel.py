"""Moving through time: the keys of a replay and of the past of a live session, which continues meanwhile."""

from __future__ import annotations

import asyncio
import math
import threading
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from pgtop_tune.base.errors import PgtopError, UsageProblem
from pgtop_tune.runtime.engine import EngineClient
from pgtop_tune.runtime.ports import Landmark
from pgtop_tune.runtime.window import HINT, Timeline, parse_moment
from pgtop_tune.tui.app_context import AppContext

if TYPE_CHECKING:
    from pgtop_tune.model.events import Event
    from pgtop_tune.runtime.ports import Step, Transport
    from pgtop_tune.runtime.session import Session
    from pgtop_tune.tui.controls import OpenPast

# From the engine's thread to the screen: steps wait in a bounded queue until the screen has time for them.
#
# A terminal may stall for minutes and block Textual's loop. The engine must not notice and memory must not grow, so
# the
# oldest frames are dropped; their events are kept, and the charts show the gap.

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
        """Queue a step. Never blocks for longer than the screen takes to empty the queue."""
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
        self._ended()

    def take(self) -> list[Step]:
        """Return everything that waits, oldest first; for the screen's thread."""
        with self._lock:
            steps = list(self._waiting)
            self._waiting.clear()
            orphans = tuple(self._orphans)
            self._orphans.clear()
            self._poked = False
        if orphans and steps and steps[0].frames:
            first, *frames = steps[0].frames
            steps[0] = replace(steps[0], frames=(replace(first, events=orphans + first.events), *frames))
        return steps


def _set_back(lost: Step, following: Step) -> Step:
    """Return the step after a forgotten step back, which still has to begin there."""
    if following.restart or following.back_to_s is not None or not following.frames:
        return following
    return replace(following, frames=lost.frames + following.frames, back_to_s=following.frames[-1].elapsed_s)


# The past of a live session on the screen, while sampling, recording and load go on.


class PastView:
    """Another moment than the newest that the screen shows.

    Args:
        live: The session that goes on.
        past: The frames that were kept; None where none are, and the screen can only be held.
        poke: Called, in another thread, when there is something to `take`.

    Attributes:
        session: The session that is shown.
        held: The screen was frozen and not moved since.
    """

    def __init__(self, live: Session, past: OpenPast | None, poke: Callable[[], None]) -> None:
        self.session = live.copy()
        self.held = True
        self._kept = None if past is None or self.session.now is None else past(self.session.frames)
        self._sink = ScreenSink(poke, poke)

    def moving(self) -> Transport | None:
        """Return the transport that moves from here on; None where nothing was kept."""
        if self._kept is None:
            return None
        if self.held:
            self.held = False
            self._kept.engine.attach(self._sink)
            self._kept.engine.start()
        return self._kept.transport

    @property
    def client(self) -> EngineClient | None:
        """The way to what `moving` gave."""
        return None if self._kept is None or self.held else EngineClient(self._kept.engine)

    def take(self) -> bool:
        """Apply what was handed over; whether there was something."""
        steps = self._sink.take()
        for step in steps:
            self.session.apply(step)
        return bool(steps)

    @property
    def failure(self) -> BaseException | None:
        """The error that stopped it; None when all is well."""
        return None if self._kept is None else self._kept.engine.failure

    @property
    def caught_up(self) -> bool:
        """Return whether playing has come to the present."""
        if self.held or self._kept is None:
            return False
        state = self._kept.transport.state()
        return state.at_end and not state.paused

    def close(self) -> None:
        """End what was started; wait for it."""
        if self._kept is not None and not self.held:
            self._kept.engine.stop()


class TimeTravel:
    """The moment of the session that is shown: the newest, or another.

    Args:
        context: The application.
        poke: Called, in another thread, when frames of the past wait for `take`.

    Attributes:
        past: What is shown instead of the newest frame of a live session; None for that.
        moves: How often the operator has gone elsewhere.
    """

    def __init__(self, context: AppContext, poke: Callable[[], None]) -> None:
        self._context = context
        self._transport = context.controls.transport
        self._poke = poke
        self.past: PastView | None = None
        self.moves = 0

    @property
    def shown(self) -> Session:
        """The session on the screen."""
        return self._context.live if self.past is None else self.past.session

    @property
    def behind_s(self) -> float | None:
        """Seconds by which the moment shown is behind the newest frame of a live session; None at the newest."""
        frame, newest = self.shown.now, self._context.live.now
        return None if self.past is None or frame is None or newest is None else newest.elapsed_s - frame.elapsed_s

    @property
    def in_past(self) -> bool:
        """Return whether another moment of a live session is shown; one that is only held counts as the present."""
        return self.past is not None and not self.past.held

    def take(self) -> bool:
        """Take frames of the past that wait; whether there were some. At its end, or when it fails, go to live."""
        past = self.past
        if past is None:
            return False
        moved = past.take()
        if past.failure is not None:
            self._context.tell(f"the history buffer cannot be read: {past.failure}", "error")
        if past.failure is not None or past.caught_up:
            self.to_newest()
        return moved

    def close(self) -> None:
        """Let go of the past, if it is being looked at."""
        past, self.past = self.past, None
        if past is not None:
            past.close()

    def _hold(self) -> PastView:
        """Stay at the moment shown."""
        if self.past is None:
            self.past = PastView(self._context.live, self._context.controls.past, self._poke)
        return self.past

    def _moving(self) -> Transport | None:
        """Return the transport to another moment: that of a replay, or of the past, which begins with this."""
        self.moves += 1
        if self._transport is not None:
            return self._transport
        opens = self._context.controls.past is not None and self._context.live.now is not None
        return self._hold().moving() if opens else None

    @property
    def _at_newest(self) -> bool:
        """Return whether the newest frame of a live session is shown, and nothing can come after it."""
        return self._transport is None and self.past is None

    def to_newest(self) -> None:
        """Show the newest frame, and go on from there."""
        self.moves += 1
        if self._transport is not None:
            self._transport.pause(False)
            self._transport.jump(math.inf)
        elif self.past is not None:
            self._context.app.run_worker(asyncio.to_thread(self.past.close), group="past")
            self.past = None
        self._context.repaint()

    def pause(self) -> None:
        """Freeze the screen, or let it go on; in a replay or in the past pauses or play."""
        if self._at_newest:
            self._hold()
        elif self.past is not None and self.past.held:
            self.past = None
        elif (transport := self._moving()) is not None:
            transport.pause(not transport.state().paused)
        self._context.repaint()

    def step(self, frames: int) -> None:
        """Go one frame forward or back."""
        if frames < 0 or not self._at_newest:
            transport = self._moving()
            if transport is not None:
                transport.step(frames)

    def speed(self, direction: int) -> None:
        """Play at twice or half the speed."""
        transport = None if self._at_newest else self._moving()
        if transport is not None:
            transport.set_speed(transport.state().speed * (2.0 if direction > 0 else 0.5))
            self._context.repaint()

    def ask_moment(self) -> None:
        """Ask for a moment and show it."""
        from pgtop_tune.tui.dialogs.entry import PromptDialog

        dialog = PromptDialog[float]("jump to", HINT, self._moment, self._context.glyphs)
        self._context.app.push_screen(dialog, self.jump)

    def _moment(self, typed: str) -> float:
        frame, newest = self.shown.now, self._context.live.now
        if frame is None or newest is None:
            raise UsageProblem("no data yet")
        started_ms = frame.taken_at_ms - frame.elapsed_s * 1000.0
        length_s = newest.elapsed_s if self._transport is None else self._transport.state().length_s
        return parse_moment(typed, Timeline(frame.elapsed_s, length_s, started_ms))

    def jump(self, elapsed_s: float | None) -> None:
        """Show a moment on the session's clock; None is no answer to a question for one."""
        newest = self._context.live.now
        if elapsed_s is None or newest is None:
            return
        if self._transport is None and elapsed_s >= newest.elapsed_s:
            self.to_newest()
        elif (transport := self._moving()) is not None:
            if self._transport is None:
                transport.pause(True)
            transport.jump(elapsed_s)

    def seek(self, name: str) -> None:
        """Jump to an event, a checkpoint, or the worst second."""
        self._context.app.run_worker(self._seek(Landmark[name]), group="seek", exclusive=True)

    async def _seek(self, landmark: Landmark) -> None:
        if self._at_newest and landmark in (Landmark.NEXT_EVENT, Landmark.NEXT_CHECKPOINT):
            self._context.tell(f"no {landmark}: the newest moment is shown", "warning")
            return
        began = self._at_newest
        transport = self._moving()
        client = self._context.client if self.past is None else self.past.client
        if transport is None or client is None:
            return
        try:
            elapsed_s = await client.ask(transport.find(landmark))
        except PgtopError as problem:
            self._context.tell(str(problem), "error")
            return
        if elapsed_s is not None:
            transport.pause(True)
            transport.jump(elapsed_s)
            return
        self._context.tell(f"no {landmark}", "warning")
        if began:
            self.to_newest()
