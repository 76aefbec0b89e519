"""The application: frames in, panes out, and the operator's keys on their way to the controls."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar, Final

import rich
import textual
from rich.segment import Segments
from rich.text import Text
from textual import events
from textual.binding import Binding, BindingType
from textual.command import Provider
from textual.geometry import Size
from textual.message import Message
from textual.worker import WorkerFailed

from pgtop_tune.errors import PgtopError
from pgtop_tune.metrics.load import failure_of
from pgtop_tune.model.bench import RunState
from pgtop_tune.runtime.ports import RecordingState
from pgtop_tune.runtime.window import Marks
from pgtop_tune.safe_text import printable, printable_lines
from pgtop_tune.secret import Secret
from pgtop_tune.tui.actions import ACTIONS, Action, check_keymap
from pgtop_tune.tui.commands import ActionCommands
from pgtop_tune.tui.dashboard.screen import Dashboard
from pgtop_tune.tui.dialogs.dialog import Dialog
from pgtop_tune.tui.dialogs.too_small import TooSmall, is_too_small
from pgtop_tune.tui.frames import ScreenSink
from pgtop_tune.tui.operator_app import OperatorApp
from pgtop_tune.tui.pages.registry import DASHBOARD_ID, page_of
from pgtop_tune.tui.palette import DEFAULT, WITHOUT_COLOUR, choose, load_themes
from pgtop_tune.tui.parameters.changes import told
from pgtop_tune.tui.preload import import_the_rest
from pgtop_tune.tui.scene.scene import Scene, SceneScreen
from pgtop_tune.tui.terminal.liveness import ScreenDriver

if TYPE_CHECKING:
    from pgtop_tune.model.load import LoadSpec
    from pgtop_tune.runtime.ports import RecordingState
    from pgtop_tune.secret import Secret
    from pgtop_tune.tui.controls import Controls, ScreenOptions
    from pgtop_tune.tui.pages.screen import PageScreen
    from pgtop_tune.tui.widgets.glyphs import Glyphs

_QUIET_FRAMES = 3
"""Frames after a typed password before it is asked for again: the server needs a moment to say no."""
_NOT_AGAIN = -1
"""The operator closed the question; the key for it still works."""

_COUNT_S: Final = 1.0
"""What is on trial counts down also where frames come seldom."""
_EVERYWHERE: Final = frozenset({"redraw", "suspend"})
"""Actions whose keys also work in dialogs and while something is typed."""


class FramesWaiting(Message):
    """Something waits in the sink."""


class EngineEnded(Message):
    """No more frames will come."""


class _Told(Exception):
    """A PgtopError on its way to the normal screen: its sentence, printable, nothing else."""

    def __rich__(self) -> Text:
        return Text("\n".join(printable_lines(str(self))))


class PgtopApp(OperatorApp):
    """The screen of a session.

    Attaches itself to the engine as a sink and starts the engine once it is there; whoever runs the application stops
    the engine afterwards (`run.run_screen`).

    Args:
        controls: What the operator can reach.
        options: How it looks and listens.

    Raises:
        UsageProblem: An unknown theme, a keymap that cannot be used.
    """

    CSS = """
    Toast { max-width: 70; }
    CommandPalette SearchIcon { display: none; }
    CommandPalette CommandList > .option-list--option-highlighted {
        color: $block-cursor-foreground; background: $block-cursor-background; text-style: $block-cursor-text-style;
    }
    """
    ENABLE_COMMAND_PALETTE = True
    COMMANDS: ClassVar[set[type[Provider] | Callable[[], type[Provider]]]] = {ActionCommands}
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding(",".join(row.keys), row.action, row.description, id=row.id, show=False, priority=row.id in _EVERYWHERE)
        for row in ACTIONS
        if row.id == "palette" or row.id in _EVERYWHERE
    ]

    def __init__(self, controls: Controls, options: ScreenOptions) -> None:
        super().__init__(controls, options)
        check_keymap(options.keymap)
        self.animation_level = "none"
        self._sink = ScreenSink(lambda: self._post(FramesWaiting()), lambda: self._post(EngineEnded()))
        controls.engine.attach(self._sink, first=True)
        self._dashboard = Dashboard(*self._drawn_with())
        self._in_view: SceneScreen = self._dashboard
        self._failed_run = 0
        self._shown_series = 0
        self._on_the_way_out = False
        self._prepared = False
        self._ask_password_in = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._leave_status: int | None = None
        self._choose_theme()

    def _choose_theme(self) -> None:
        no_colour = bool(os.environ.get("NO_COLOR"))
        themes = load_themes(no_colour)
        self._themes, self._broken_themes = themes.by_name, themes.broken
        wanted = choose(themes, self._options.theme, WITHOUT_COLOUR if no_colour else DEFAULT)
        for theme in self._themes.values():
            self.register_theme(theme)
        self.theme = wanted

    def _drawn_with(self) -> tuple[Glyphs, tuple[Action, ...], Mapping[str, str], str, Scene]:
        return self._glyphs, self._actions, self._options.keymap, self._options.target, self._scene()

    @cached_property
    def _pages(self) -> PageScreen:
        """Made when a page is first opened: the first data should not wait for nine of them."""
        from pgtop_tune.tui.pages.screen import PageScreen

        screen = PageScreen(*self._drawn_with())
        self.install_screen(screen, "pages")
        return screen

    def _post(self, message: Message) -> None:
        """From the engine's thread."""
        self.post_message(message)

    def _poke_screen(self) -> None:
        self._post(FramesWaiting())

    async def on_mount(self) -> None:
        """Lets the engine go; what it has seen by then is in the first picture."""
        self._loop = asyncio.get_running_loop()
        if self._leave_status is not None:
            self.exit(self._leave_status)
            return
        self._controls.engine.start()
        self.set_keymap(dict(self._options.keymap))
        driver = self._driver
        if isinstance(driver, ScreenDriver):
            self._controls.tally.follow(lambda: driver.written_bytes)
        self.install_screen(self._dashboard, "dashboard")
        # Awaited: what is pushed on a screen that is still on its way comes to lie below it.
        await self.push_screen(self._dashboard)
        self.app_resume_signal.subscribe(self, lambda _: self.action_redraw())
        self._look_at_size(self.size)
        self.on_frames_waiting()
        for file, problems in self._broken_themes.items():
            self.tell(f"a theme was ignored: {file}: {problems}", "warning")
        self._begin()
        if self.changes is not None:
            self.set_interval(_COUNT_S, self._count_down)

    def _begin(self) -> None:
        if self._options.ghost is not None and self.ghost is not None:
            self.ghost.take(self._options.ghost)
        if self._options.start_load is not None:
            self.run_worker(self._start_load(self._options.start_load), group="start")

    async def _start_load(self, spec: LoadSpec) -> None:
        if self._controls.load is not None:
            try:
                await self._hands.ask(self._controls.load.start(spec))
            except PgtopError as problem:
                self.tell(str(problem), "error")

    def leave(self, status: int) -> None:
        """Closes the screen. From any thread, also from within a signal handler."""
        self._leave_status = status
        loop = self._loop
        if loop is not None and not loop.is_closed():
            loop.call_soon_threadsafe(self.exit, status)

    def discard_output(self) -> None:
        """Frees a loop that waits for a stalled terminal. From any thread."""
        if isinstance(self._driver, ScreenDriver):
            self._driver.discard_output()

    def on_resize(self, event: events.Resize) -> None:
        """Too small for a picture, or not any more."""
        self._look_at_size(event.size)

    def _look_at_size(self, size: Size) -> None:
        # A resize can come while the first screen is still on its way; pushed then, this one would lie below it.
        shown = any(isinstance(screen, SceneScreen) for screen in self.screen_stack)
        if shown and is_too_small(size) and not any(isinstance(screen, TooSmall) for screen in self.screen_stack):
            self.push_screen(TooSmall())

    def on_engine_ended(self) -> None:
        """Its source has ended, or it has failed."""
        self.run_worker(self._after_engine(), group="ended")

    async def _after_engine(self) -> None:
        engine = self._controls.engine
        await asyncio.to_thread(engine.stop)
        if engine.failure is None:
            self.tell("the source has ended: no more frames follow", "warning")
            return
        if isinstance(engine.failure, PgtopError):
            self.exit(1)
            return
        try:
            raise engine.failure
        except Exception as failure:
            self._handle_exception(failure)

    def _handle_exception(self, error: Exception) -> None:
        cause = error.error if isinstance(error, WorkerFailed) else error
        super()._handle_exception(_Told(str(cause)) if isinstance(cause, PgtopError) else error)

    def _fatal_error(self) -> None:
        """As Textual does, but without the locals of every frame, which may hold what nobody should see."""
        from rich.traceback import Traceback

        self.bell()
        trace = Traceback(show_locals=False, width=None, suppress=[rich, textual])
        parts = self.console.render(trace, self.console.options)
        safe = [part if part.control else part._replace(text=_shown(part.text)) for part in parts]
        self._exit_renderables.append(Segments(safe))
        self._close_messages_no_wait()

    def on_frames_waiting(self) -> None:
        """Takes what waits, and paints once."""
        steps = self._sink.take()
        for step in steps:
            self._live.apply(step)
        moved = self._past is not None and self._past.take()
        if self._past is not None and self._past.failure is not None:
            self.tell(f"the past cannot be read: {self._past.failure}", "error")
            self.action_live()
        elif self._past is not None and self._past.caught_up:
            self.action_live()
        if steps or moved:
            self._repaint()
        if steps:
            self._prepare()
            self._look_at_load()
            self._look_at_results()
            self._look_at_password()
        self._look_at_trial()

    def _look_at_trial(self) -> None:
        """A trial that has ended by itself says so, with the reason; while one is on, its seconds go on."""
        if self.changes is None:
            return
        ended = self.changes.taken_back()
        if ended is not None:
            self.tell(f"reverted, {ended.why}: {'; '.join(map(told, ended.changes))}", "warning")
            self._repaint()

    def _count_down(self) -> None:
        if self.changes is not None and self.changes.on_trial is not None:
            self._repaint()
        self._look_at_trial()

    def _prepare(self) -> None:
        """Once there is something to see: what keys may ask for, so that the first of them does not wait."""
        if not self._prepared:
            self._prepared = True
            self.call_after_refresh(import_the_rest)

    def _scene(self) -> Scene:
        controls, live, past, shown = self._controls, self._live, self._past, self._shown
        behind_s = None
        if past is not None and shown.now is not None and live.now is not None:
            behind_s = live.now.elapsed_s - shown.now.elapsed_s
        transport = None if controls.transport is None else controls.transport.state()
        then = past is not None and not past.held
        load = None if controls.load is None or then else controls.load.state()
        trial = None if self.changes is None else self.changes.on_trial
        marks = Marks() if self.brush is None else self.brush.marks
        ghost = None if self.ghost is None else self.ghost.watch(shown.now)
        return Scene(shown, self._recording_state(), behind_s, transport, load, trial, marks, ghost)

    def _recording_state(self) -> RecordingState | None:
        control = self._controls.recording
        state = None if control is None else control.state()
        if state is not None and state.path is not None:
            self.recording = state.path
        return state

    def _repaint(self) -> None:
        scene = self._scene()
        with self.batch_update():
            if not isinstance(self.screen, TooSmall):
                self._in_view.show(scene)
            for screen in self.screen_stack:
                if isinstance(screen, Dialog):
                    screen.frames_arrived(self._live if screen.LIVE else scene.session)

    def action_look_at(self, name: str, table: str = "") -> None:
        """Shows the dashboard or a page, the page with a certain table or with the one it was left with."""
        if not isinstance(self.screen, SceneScreen):
            return
        self._in_view = self._dashboard if name == DASHBOARD_ID else self._pages
        if name == DASHBOARD_ID:
            self._dashboard.show(self._scene())
        else:
            self._pages.turn_to(page_of(name), self._scene(), table)
        self.switch_screen(self._in_view)

    def _look_at_load(self) -> None:
        """A load that fails while its dialog is closed says so here, in pgbench's own words."""
        failed = failure_of(self._live.now)
        if self._controls.load is not None and failed is not None and failed.run > self._failed_run:
            self._failed_run = failed.run
            if not self._dialog_tells_of_load():
                self.tell(f"load {failed.run} failed: {failed.message or 'pgbench gave no reason'}", "error")

    def _dialog_tells_of_load(self) -> bool:
        return isinstance(self.screen, Dialog) and self.screen.SHOWS_LOAD

    def _look_at_results(self) -> None:
        """What came out is shown once, when nothing else is being typed; a run that failed was told already."""
        series = None if self._controls.load is None else self._controls.load.state().series
        if series is None or not series.over or series.number <= self._shown_series:
            return
        if self._on_the_way_out:
            return
        screen = self.screen
        if self._dialog_tells_of_load() or (isinstance(screen, SceneScreen) and not screen.typing):
            self._shown_series = series.number
            if series.results and (series.axis or series.results[0].state is not RunState.FAILED):
                from pgtop_tune.tui.load.results_dialog import ResultsDialog

                self.push_screen(ResultsDialog(series, self._glyphs))

    def _look_at_password(self) -> None:
        needed = self._controls.password_needed
        if needed is None or not needed():
            self._ask_password_in = 0
        elif self._ask_password_in > 0:
            self._ask_password_in -= 1
        elif self._ask_password_in == 0 and isinstance(self.screen, SceneScreen):
            self._ask_password_in = _NOT_AGAIN
            self.action_password()

    def _take_password(self, password: Secret | None) -> None:
        if password is not None:
            self._ask_password_in = _QUIET_FRAMES
        super()._take_password(password)


def _shown(text: str) -> str:
    return "\n".join(printable(line) for line in text.split("\n"))
