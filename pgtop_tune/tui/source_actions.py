"""The keys for what the frames come from and go to: interval, recording, notes, and the server's password."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pgtop_tune.model.events import EventKind
from pgtop_tune.tui.scene.scene import SceneScreen

if TYPE_CHECKING:
    from pgtop_tune.base.secret import Secret
    from pgtop_tune.runtime.ports import RecordingState
    from pgtop_tune.tui.app_context import AppContext

_INTERVALS_S: Final = (0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0)
_NOTE_LIMIT: Final = 200
_QUIET_FRAMES: Final = 3
"""Frames after a typed password before it is asked for again: the server needs a moment to say no."""
_NOT_AGAIN: Final = -1
"""The operator closed the question; the key for it still works."""


class SourceActions:
    """Actions on the source of a running session.

    Args:
        context: The application.

    Attributes:
        recording: The last file that was recorded to.
    """

    def __init__(self, context: AppContext) -> None:
        self._context = context
        self._ask_password_in = 0
        self.recording: str | None = None

    def recording_state(self) -> RecordingState | None:
        """Return whether frames are being written; None where they cannot be."""
        control = self._context.controls.recording
        state = None if control is None else control.state()
        if state is not None and state.path is not None:
            self.recording = state.path
        return state

    def turn_recording(self) -> None:
        """Begin or end a recording."""
        self._context.app.run_worker(self._turn_recording(), group="record", exclusive=True)

    async def _turn_recording(self) -> None:
        control = self._context.controls.recording
        if control is None:
            return
        recording = control.state().path is not None

        async def turn() -> RecordingState:
            return control.stop() if recording else control.start()

        state = await self._context.asked(turn())
        if state is not None:
            self._context.tell(f"recorded in {self.recording}" if recording else f"recording to {state.path}")
            self._context.repaint()

    def ask_note(self) -> None:
        """Ask for a note and put it on the tape."""
        from pgtop_tune.tui.dialogs.entry import PromptDialog

        hint = "The note appears on the tape at this time, and in the recording."
        self._context.app.push_screen(PromptDialog[str]("note", hint, str.strip, self._context.glyphs), self._note)

    def _note(self, text: str | None) -> None:
        if text:
            self._context.client.note(EventKind.NOTE, text[:_NOTE_LIMIT])

    def change_interval(self, direction: int) -> None:
        """Look more or less often."""
        control = self._context.controls.interval
        if control is None:
            return
        now_s = control.interval_s
        following = [seconds for seconds in _INTERVALS_S if (seconds > now_s if direction > 0 else seconds < now_s)]
        if following:
            control.set_interval(following[0 if direction > 0 else -1])
        self._context.tell_instead(f"one sample every {control.interval_s:g} s")

    def burst(self) -> None:
        """Look at waits more often for a while."""
        self._context.app.run_worker(self._burst(), group="burst", exclusive=True)

    async def _burst(self) -> None:
        control = self._context.controls.interval
        seconds = None if control is None else await self._context.asked(control.burst())
        if seconds:
            self._context.tell(f"50 samples a second for {seconds:.0f} s; see own cost in the header")

    def look_at_password(self) -> None:
        """Ask for the password by itself when the server waits for one. After each frame."""
        needed = self._context.controls.password_needed
        if needed is None or not needed():
            self._ask_password_in = 0
        elif self._ask_password_in > 0:
            self._ask_password_in -= 1
        elif self._ask_password_in == 0 and isinstance(self._context.app.screen, SceneScreen):
            self._ask_password_in = _NOT_AGAIN
            self.ask_password()

    def ask_password(self) -> None:
        """Ask for the password the server wants."""
        from pgtop_tune.tui.dialogs.entry import PasswordDialog

        target = self._context.options.target or "the server"
        self._context.app.push_screen(PasswordDialog(target, self._context.glyphs), self._take_password)

    def _take_password(self, password: Secret | None) -> None:
        take = self._context.controls.on_password
        if password is None or take is None:
            return
        self._ask_password_in = _QUIET_FRAMES

        async def authenticate() -> None:
            take(password)

        self._context.app.run_worker(self._context.asked(authenticate()), group="password")
