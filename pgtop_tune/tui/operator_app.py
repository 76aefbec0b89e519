"""What the keys do: every action of the table that is not the session table's own."""

from __future__ import annotations

from collections.abc import Coroutine, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from pgtop_tune.changes.change_sets import ChangeSets
from pgtop_tune.changes.confirm.pending_sets import PendingSets
from pgtop_tune.changes.model.machine_change import HostChange
from pgtop_tune.changes.undo import Undo
from pgtop_tune.errors import PgtopError, UsageProblem
from pgtop_tune.metrics.load import under_way
from pgtop_tune.model.backend_action import BackendAct, BackendKey
from pgtop_tune.model.events import EventKind
from pgtop_tune.model.load import LoadSpec
from pgtop_tune.tui.actions import ACTIONS, available, key_name, keys_of
from pgtop_tune.tui.compare.marking import WindowMarking
from pgtop_tune.tui.compare.overlay_actions import OverlayActions
from pgtop_tune.tui.parameters.changes import Changes
from pgtop_tune.tui.scene.scene import MarksUnwanted, SceneScreen
from pgtop_tune.tui.terminal.liveness import ScreenDriver
from pgtop_tune.tui.time_travel.moving_app import MovingApp

if TYPE_CHECKING:
    from pgtop_tune.model.bench import BenchRun
    from pgtop_tune.runtime.ports import RecordingState
    from pgtop_tune.runtime.session import Session
    from pgtop_tune.secret import Secret
    from pgtop_tune.tui.controls import Controls, ScreenOptions
    from pgtop_tune.tui.dialogs.leave import Leaving
    from pgtop_tune.tui.palette import PaletteTheme
    from pgtop_tune.tui.parameters.scope import PanelScope
    from pgtop_tune.tui.scene.session_actions import SessionActions

INTERVALS_S = (0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0)
_NOTE_LIMIT = 200
_OWN = frozenset(row.action.partition("(")[0].removeprefix("app.") for row in ACTIONS if row.action.startswith("app."))


class OperatorApp(MovingApp):
    """An application whose actions reach the controls. Dialogs are imported when they open (see `tui.later`).

    Args:
        controls: What the operator can reach.
        options: How it looks and listens.

    Attributes:
        brush: Marks on the tape; None where nothing that has been can be read again.
        ghost: The hand on earlier runs under the charts; None where there are none.
        changes: Changes of parameters made from here; None where there is no door to them.
        recording: The last file that was recorded to.
    """

    def __init__(self, controls: Controls, options: ScreenOptions) -> None:
        super().__init__(controls, options)
        self._actions = available(controls.has())
        self._offered = frozenset(row.action.partition("(")[0].removeprefix("app.") for row in self._actions)
        self.changes: Changes | None = None
        if controls.parameters is not None:
            sets = ChangeSets(controls.parameters, controls.machine, controls.restart)
            pending = PendingSets(sets, controls.engine.note, adoptions=controls.adoptions)
            controls.engine.attach(pending)
            undo = Undo(controls.parameters, controls.machine, sets)
            self.changes = Changes(controls.parameters, self._hands, pending, undo, controls.machine)
        self.brush = None if controls.frames is None else WindowMarking(self, controls.frames, self._glyphs)
        self.ghost = (
            None if controls.ghosts is None else OverlayActions(self, controls.ghosts, self._glyphs, self._repaint)
        )
        self._themes: dict[str, PaletteTheme] = {}
        self._load_spec = options.start_load or LoadSpec()
        self.recording: str | None = None

    @cached_property
    def _panel(self) -> PanelScope:
        from pgtop_tune.tui.parameters.scope import PanelScope

        controls = self._controls
        return PanelScope(
            tuple(controls.knobs),
            controls.load is not None,
            self._options.allow_unsafe,
            self._hands,
            controls.restart,
        )

    @cached_property
    def _sessions(self) -> SessionActions | None:
        from pgtop_tune.tui.scene.session_actions import SessionActions

        backends = self._controls.backends
        return None if backends is None else SessionActions(self, backends, self._hands, self._glyphs)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Actions whose need is not met do not exist."""
        return action in self._offered if action in _OWN else super().check_action(action, parameters)

    def action_load(self) -> None:
        """Opens the load dialog."""
        from pgtop_tune.tui.load.dialog import LoadDialog

        load = self._controls.load
        if load is not None:
            spec = replace(self._load_spec, settings=tuple(self._panel.next_load.items()))
            dialog = LoadDialog(load, self._hands, self._live, spec, self._glyphs)
            self.push_screen(dialog, self._keep_load)

    def _keep_load(self, spec: LoadSpec | None) -> None:
        self._load_spec = spec or self._load_spec

    def action_parameters(self) -> None:
        """Opens the parameter dialog."""
        from pgtop_tune.tui.parameters.dialog import ParameterDialog

        if self.changes is not None:
            self.push_screen(ParameterDialog(self.changes, self._panel, self._live, self._glyphs))

    def action_check(self) -> None:
        """Opens the check, which looks at once."""
        from pgtop_tune.tui.check.dialog import CheckDialog

        checks = self._controls.checks
        if checks is not None:
            dialog = CheckDialog(checks, self._hands, self.changes, self._panel, self._live, self._glyphs)
            self.push_screen(dialog)

    def action_undo(self, everything: bool = False) -> None:
        """Undoes the last set of changes, or all of them, after a question."""
        from pgtop_tune.tui.parameters.undo_dialog import undo_asked

        if self.changes is not None:
            work = undo_asked(self, self.changes, self._glyphs, everything=everything)
            self.run_worker(self._told(work), group="undo", exclusive=True)

    def action_redo(self) -> None:
        """Makes again what was undone last."""
        from pgtop_tune.tui.parameters.undo_dialog import redo_said

        if self.changes is not None:
            self.run_worker(self._told(redo_said(self.changes)), group="undo", exclusive=True)

    def action_keep(self) -> None:
        """Keeps the change that is on trial."""
        from pgtop_tune.tui.parameters.undo_dialog import keep_said

        if self.changes is not None:
            self.run_worker(self._told(keep_said(self.changes)), group="undo", exclusive=True)

    def action_signal(self, name: str) -> None:
        """Cancels or terminates the chosen sessions, after a question."""
        screen = self.screen
        if isinstance(screen, SceneScreen):
            self._signal(name, screen.session, screen.chosen_backends(), screen.listed_backends())

    def action_signal_one(self, name: str, pid: int, started_ms: int | None) -> None:
        """Cancels or terminates one session, after a question."""
        self._signal(name, self._shown, ((pid, started_ms),), ())

    def _signal(self, name: str, session: Session, chosen: Sequence[BackendKey], listed: Sequence[BackendKey]) -> None:
        if self._past is not None and not self._past.held:
            # What a session does now may be something else by far: it is not ended for what it did then.
            (back,) = (key_name(keys_of(row, self._options.keymap)[0]) for row in self._actions if row.id == "live")
            self.tell(f"the screen shows the past; {back} returns to live, then {name}", "warning")
        elif self._sessions is not None:
            work = self._sessions.signal(BackendAct(name), session, chosen, listed)
            self.run_worker(self._told(work), group="sessions", exclusive=True)

    def action_explain(self) -> None:
        """Shows the plan of what the selected session runs."""
        screen = self.screen
        if isinstance(screen, SceneScreen):
            self._explain(screen.session, screen.chosen_backends())

    def action_explain_one(self, pid: int, started_ms: int | None) -> None:
        """Shows the plan of what that session runs."""
        self._explain(self._shown, ((pid, started_ms),))

    def _explain(self, session: Session, chosen: Sequence[BackendKey]) -> None:
        if self._sessions is not None:
            self.run_worker(self._told(self._sessions.explain(session, chosen)), group="sessions", exclusive=True)

    async def _told(self, work: Coroutine[Any, Any, tuple[str, bool]]) -> None:
        words, well = await work
        if words:
            self.tell(words, "information" if well else "error")
        self._repaint()

    def action_password(self) -> None:
        """Asks for the password the server wants."""
        from pgtop_tune.tui.dialogs.password import PasswordDialog

        self.push_screen(PasswordDialog(self._options.target or "the server", self._glyphs), self._take_password)

    def _take_password(self, password: Secret | None) -> None:
        if password is not None:
            self.run_worker(self._hand_over(password), group="password")

    async def _hand_over(self, password: Secret) -> None:
        take = self._controls.on_password
        if take is None:
            return

        async def hand_over() -> None:
            take(password)

        try:
            await self._hands.ask(hand_over())
        except PgtopError as problem:
            self.tell(str(problem), "error")

    def action_record(self) -> None:
        """Begins or ends a recording."""
        self.run_worker(self._record(), group="record", exclusive=True)

    async def _record(self) -> None:
        control = self._controls.recording
        if control is None:
            return
        recording = control.state().path is not None

        async def turn() -> RecordingState:
            return control.stop() if recording else control.start()

        try:
            state = await self._hands.ask(turn())
        except PgtopError as problem:
            self.tell(str(problem), "error")
            return
        self.tell(f"recorded in {self.recording}" if recording else f"recording to {state.path}")
        self._repaint()

    def action_mark(self, end: bool = False) -> None:
        """Begins or ends a window at the moment shown."""
        if self.brush is not None:
            self.brush.mark(self._shown.now, end=end)
            self._repaint()

    def on_marks_unwanted(self, message: MarksUnwanted) -> None:
        """Forgets the windows."""
        if self.brush is not None and self.brush.marks:
            self.brush.clear()
            self._repaint()

    def action_brush(self) -> None:
        """Shows what differs between the windows."""
        if self.brush is not None:
            self.brush.show()

    def action_ghost(self) -> None:
        """Chooses an earlier run to stand under the charts, or lets it go."""
        if self.ghost is not None:
            self.ghost.turn()
            self._repaint()

    def action_note(self) -> None:
        """Asks for a note and puts it on the tape."""
        from pgtop_tune.tui.dialogs.prompt import PromptDialog

        hint = "Goes on the tape at this time, and into the recording."
        self.push_screen(PromptDialog[str]("note", hint, str.strip, self._glyphs), self._note)

    def _note(self, text: str | None) -> None:
        if text:
            self._hands.note(EventKind.NOTE, text[:_NOTE_LIMIT])

    def action_interval(self, direction: int) -> None:
        """Looks more or less often."""
        control = self._controls.interval
        if control is None:
            return
        now = control.interval_s
        following = [each for each in INTERVALS_S if (each > now if direction > 0 else each < now)]
        if following:
            control.set_interval(following[0 if direction > 0 else -1])
        self.tell_instead(f"one frame every {control.interval_s:g} s")

    def action_theme(self) -> None:
        """The next theme."""
        names = list(self._themes)
        self.theme = names[(names.index(self.theme) + 1) % len(names)]
        self.tell_instead(f"theme {self.theme}: {self._themes[self.theme].description}")

    def action_redraw(self) -> None:
        """Paints every cell, whatever somebody else has written to the terminal."""
        driver = self._driver
        if isinstance(driver, ScreenDriver):
            driver.forget()
        self.screen.refresh(repaint=True, layout=True)

    def action_suspend_process(self) -> None:
        """Stops us as Ctrl-Z does elsewhere; not while a change is pending, which a stopped program cannot revert."""
        if self.changes is not None and self.changes.on_trial is not None:
            self.tell(
                "a change is pending, and a stopped program cannot revert it: Y confirms it, u undoes it", "warning"
            )
        else:
            super().action_suspend_process()

    def action_help(self) -> None:
        """Keys, and what the numbers mean."""
        from pgtop_tune.tui.dialogs.help import HelpDialog

        screen = self.screen
        if isinstance(screen, SceneScreen):
            self.push_screen(HelpDialog(screen.offered(), self._options.keymap, screen.explained, self._glyphs))

    async def action_quit(self) -> None:
        """Leaves; asks when a load runs, and when changes are in force or on trial."""
        from pgtop_tune.tui.dialogs.leave import leave_question

        run, going_on = self._own_load(), self._going_on()
        made, trial = ((), None) if self.changes is None else (self.changes.made, self.changes.on_trial)
        if self._options.throwaway:
            # The server is thrown away, the machine is not.
            made, trial = tuple(each for each in made if isinstance(each, HostChange)), None
        if run is None and not going_on and not made and trial is None:
            self.exit(0)
        else:
            self.push_screen(leave_question(run, made, self._glyphs, going_on, trial), self._leave_so)

    def _own_load(self) -> BenchRun | None:
        """The load under way, if it is ours to stop: a recorded one is not."""
        return under_way(self._live.now) if self._controls.load is not None else None

    def _going_on(self) -> str:
        """Steps, or a data set in the making; "" for none."""
        if self._controls.load is None:
            return ""
        state = self._controls.load.state()
        return {"steps": state.title, "making": f"making {state.title}"}.get(state.doing, "")

    def _leave_so(self, how: Leaving | None) -> None:
        if how is not None:
            self.run_worker(self._settle(how), group="leave", exclusive=True)

    async def _settle(self, how: Leaving) -> None:
        """Stops and undoes what was asked for; stays when that fails, so that nothing is left behind unseen."""
        from pgtop_tune.tui.dialogs.leave import Leaving

        self._on_the_way_out = True
        try:
            if self._controls.load is not None and (self._own_load() is not None or self._going_on()):
                await self._hands.ask(self._controls.load.stop())
            if how is Leaving.UNDOING and self.changes is not None:
                await self.changes.undo_made()
            if how is Leaving.KEEPING and self.changes is not None and not await self.changes.keep():
                raise UsageProblem("too late: the pending change has been reverted")
        except PgtopError as problem:
            self._on_the_way_out = False
            self.tell(f"{problem}\nnot left; q asks again", "error")
            return
        self.exit(0)
