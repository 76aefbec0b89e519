"""Moving through time: the keys of a replay, and of the past of a live session."""

from __future__ import annotations

import asyncio
import math
from typing import TYPE_CHECKING, Literal

from textual.app import App

from pgtop_tune.errors import PgtopError, UsageProblem
from pgtop_tune.runtime.ports import Landmark
from pgtop_tune.runtime.session import Session
from pgtop_tune.runtime.time_words import HINT, Timeline, moment
from pgtop_tune.safe_text import printable_lines
from pgtop_tune.tui.engine_client import EngineClient
from pgtop_tune.tui.terminal.liveness import ScreenDriver
from pgtop_tune.tui.time_travel.past_view import LookingBack
from pgtop_tune.tui.widgets.glyphs import ASCII, UNICODE
from pgtop_tune.tui.widgets.time_axis import CHARTED

if TYPE_CHECKING:
    from pgtop_tune.runtime.ports import Transport
    from pgtop_tune.tui.controls import Controls, ScreenOptions

Severity = Literal["information", "warning", "error"]


class MovingApp(App[int]):
    """An application that shows one moment of a session: the newest, or another.

    Args:
        controls: What the operator can reach.
        options: How it looks and listens.
    """

    def __init__(self, controls: Controls, options: ScreenOptions) -> None:
        super().__init__(driver_class=ScreenDriver)
        self._controls = controls
        self._options = options
        self._glyphs = ASCII if options.ascii else UNICODE
        self._hands = EngineClient(controls.engine)
        self._live = Session(CHARTED)
        self._past: LookingBack | None = None

    def _repaint(self) -> None:
        raise NotImplementedError

    def tell(self, words: str, severity: Severity = "information") -> None:
        """A passing message; may hold foreign text."""
        self.notify("\n".join(printable_lines(words)), severity=severity, markup=False, timeout=8)

    def tell_instead(self, words: str) -> None:
        """As `tell`, in place of what was told before: for keys that are pressed several times in a row."""
        self.clear_notifications()
        self.tell(words)

    @property
    def _shown(self) -> Session:
        """What stands on the screen."""
        return self._live if self._past is None else self._past.session

    def _poke_screen(self) -> None:
        raise NotImplementedError

    def _look_back(self) -> LookingBack:
        """Stays at the moment shown."""
        if self._past is None:
            self._past = LookingBack(self._live, self._controls.past, self._poke_screen)
        return self._past

    def _moving(self) -> Transport | None:
        """What moves to another moment: that of a replay, or of the past, which begins with this."""
        if self._controls.transport is not None:
            return self._controls.transport
        return None if self._controls.past is None or self._live.now is None else self._look_back().moving()

    def stop_looking_back(self) -> None:
        """Lets go of the past, if it is being looked at."""
        past, self._past = self._past, None
        if past is not None:
            past.close()

    def action_live(self) -> None:
        """Shows the newest frame, and goes on from there."""
        transport = self._controls.transport
        if transport is not None:
            transport.pause(False)
            transport.jump(math.inf)
        elif self._past is not None:
            self.run_worker(asyncio.to_thread(self._past.close), group="past")
            self._past = None
        self._repaint()

    def action_pause(self) -> None:
        """Freezes the screen, or lets it go on; in a replay or in the past pauses or plays."""
        if self._at_newest:
            self._look_back()
        elif self._past is not None and self._past.held:
            self._past = None
        elif (transport := self._moving()) is not None:
            transport.pause(not transport.state().paused)
        self._repaint()

    @property
    def _at_newest(self) -> bool:
        """Whether the newest frame of a live session is shown, and nothing can come after it."""
        return self._controls.transport is None and self._past is None

    def action_step(self, frames: int) -> None:
        """One frame forward or back."""
        if frames < 0 or not self._at_newest:
            transport = self._moving()
            if transport is not None:
                transport.step(frames)

    def action_speed(self, direction: int) -> None:
        """Plays at twice or half the speed."""
        transport = None if self._at_newest else self._moving()
        if transport is not None:
            transport.set_speed(transport.state().speed * (2.0 if direction > 0 else 0.5))
            self._repaint()

    def action_jump(self) -> None:
        """Asks for a moment and shows it."""
        from pgtop_tune.tui.dialogs.prompt import PromptDialog

        self.push_screen(PromptDialog[float]("jump to", HINT, self._moment, self._glyphs), self._jump)

    def _moment(self, words: str) -> float:
        now, transport = self._shown.now, self._controls.transport
        newest = self._live.now
        if now is None or newest is None:
            raise UsageProblem("there is no frame yet")
        started_ms = now.taken_at_ms - now.elapsed_s * 1000.0
        length_s = newest.elapsed_s if transport is None else transport.state().length_s
        return moment(words, Timeline(now.elapsed_s, length_s, started_ms))

    def _jump(self, elapsed_s: float | None) -> None:
        newest = self._live.now
        if elapsed_s is None or newest is None:
            return
        if self._controls.transport is None and elapsed_s >= newest.elapsed_s:
            self.action_live()
        elif (transport := self._moving()) is not None:
            if self._controls.transport is None:
                transport.pause(True)
            transport.jump(elapsed_s)

    def action_seek(self, name: str) -> None:
        """Jumps to an event, a checkpoint, or the worst second."""
        self.run_worker(self._seek(Landmark[name]), group="seek", exclusive=True)

    async def _seek(self, landmark: Landmark) -> None:
        if self._at_newest and landmark in (Landmark.NEXT_EVENT, Landmark.NEXT_CHECKPOINT):
            self.tell(f"no {landmark}: it is the newest", "warning")
            return
        began = self._at_newest
        transport = self._moving()
        hands = self._hands if self._past is None else self._past.hands
        if transport is None or hands is None:
            return
        try:
            found = await hands.ask(transport.find(landmark))
        except PgtopError as problem:
            self.tell(str(problem), "error")
            return
        if found is not None:
            transport.pause(True)
            transport.jump(found)
            return
        self.tell(f"no {landmark}", "warning")
        if began:
            self.action_live()
