"""The past of a live session on the screen, while sampling, recording and load go on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

from pgtop_tune.tui.engine_client import EngineClient
from pgtop_tune.tui.frames import ScreenSink

if TYPE_CHECKING:
    from pgtop_tune.model.frame import Frame
    from pgtop_tune.runtime.engine import Engine
    from pgtop_tune.runtime.ports import Transport
    from pgtop_tune.runtime.session import Session


class PastSource(Struct, frozen=True):
    """Frames that were kept, as something to play.

    Attributes:
        engine: Not started; client over what comes after, or instead of, the frames that are shown.
        transport: Moves through them; paused at first.
    """

    engine: Engine
    transport: Transport


OpenPast = Callable[[Sequence["Frame"]], PastSource | None]
"""Given the frames that are shown, newest last; None as long as nothing is kept."""


class PastView:
    """Another moment than the newest that the screen shows.

    Args:
        live: The session that goes on.
        past: What was kept; None where nothing is, and the screen can only be held.
        poke: Called, in another thread, when there is something to `take`.

    Attributes:
        session: What is shown.
        held: The screen was frozen and not moved since.
    """

    def __init__(self, live: Session, past: OpenPast | None, poke: Callable[[], None]) -> None:
        self.session = live.copy()
        self.held = True
        self._kept = None if past is None or self.session.now is None else past(self.session.frames)
        self._sink = ScreenSink(poke, poke)

    def moving(self) -> Transport | None:
        """What moves from here on; None where nothing was kept."""
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
        """Applies what was handed over; whether there was something."""
        steps = self._sink.take()
        for step in steps:
            self.session.apply(step)
        return bool(steps)

    @property
    def failure(self) -> BaseException | None:
        """What it could not go on from; None when all is well."""
        return None if self._kept is None else self._kept.engine.failure

    @property
    def caught_up(self) -> bool:
        """Whether playing has come to the present."""
        if self.held or self._kept is None:
            return False
        state = self._kept.transport.state()
        return state.at_end and not state.paused

    def close(self) -> None:
        """Ends what was started; waits for it."""
        if self._kept is not None and not self.held:
            self._kept.engine.stop()
