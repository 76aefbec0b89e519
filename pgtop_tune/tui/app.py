"""The application: takes frames, draws panes, and passes keys to the features."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from enum import Enum
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, ClassVar, Final, cast

from textual import events
from textual.binding import Binding, BindingType
from textual.command import CommandPalette, DiscoveryHit, Hit, Hits, Provider
from textual.content import Content
from textual.geometry import Size
from textual.message import Message
from textual.screen import Screen

from pgtop_tune.base.errors import PgtopError, UsageProblem
from pgtop_tune.base.safe_text import one_line
from pgtop_tune.changes.model.change import HostChange
from pgtop_tune.metrics import sections
from pgtop_tune.tui.actions import (
    ACTIONS,
    DASHBOARD_ID,
    TOLD_S,
    Action,
    Need,
    all_pages,
    available,
    check_keymap,
    key_name,
    keys_among,
    keys_of,
    page_of,
)
from pgtop_tune.tui.app_context import AppContext
from pgtop_tune.tui.compare.actions import OverlayActions, WindowActions
from pgtop_tune.tui.dashboard.screen import Dashboard
from pgtop_tune.tui.dialogs.dialog import Dialog, TooSmall, is_too_small
from pgtop_tune.tui.experiment.actions import ExperimentActions
from pgtop_tune.tui.findings import Deeds, Findings
from pgtop_tune.tui.load.actions import LoadActions
from pgtop_tune.tui.palette import choose, load_themes, usual_theme
from pgtop_tune.tui.parameters.actions import ParameterActions
from pgtop_tune.tui.preload import read_ahead_for_keys
from pgtop_tune.tui.scene.banners import change_text
from pgtop_tune.tui.scene.header import ShownMessage
from pgtop_tune.tui.scene.scene import (
    KeyMoved,
    KeyUnknown,
    MarksUnwanted,
    MomentChosen,
    RowChosen,
    Scene,
    SceneScreen,
    WindowDragged,
)
from pgtop_tune.tui.session_actions import SessionActions
from pgtop_tune.tui.source_actions import SourceActions
from pgtop_tune.tui.terminal.textual_private import DiscreetApp, driver_of
from pgtop_tune.tui.terminal.thrifty_driver import ThriftyDriver
from pgtop_tune.tui.time_travel import ScreenSink, TimeTravel

if TYPE_CHECKING:
    from pgtop_tune.changes.confirm.pending_sets import Pending
    from pgtop_tune.changes.model.change_set import Change
    from pgtop_tune.model.bench import BenchRun
    from pgtop_tune.tui.controls import Controls, ScreenOptions
    from pgtop_tune.tui.dialogs.dialog import ConfirmDialog, Paragraph
    from pgtop_tune.tui.pages.screen import PageScreen
    from pgtop_tune.tui.widgets.lines import Glyphs

# Leaving: asks if something would be lost or left in force, and carries out the answer before the program ends.


class Leaving(Enum):
    """Answers to the question of leaving: the fate of changes that are in force or pending."""

    PLAINLY = "leave"
    UNDOING = "undo and leave"
    KEEPING = "confirm and leave"


class LeaveActions:
    """Leaves the screen.

    Args:
        context: The application.
        load: A load may be running, or its data set in the making.
        parameters: Changes may be in force or pending.
        experiment: An experiment may be running.
    """

    def __init__(
        self, context: AppContext, load: LoadActions, parameters: ParameterActions, experiment: ExperimentActions
    ) -> None:
        self._context = context
        self._load = load
        self._parameters = parameters
        self._experiment = experiment

    def leave(self) -> None:
        """Leave; ask when a load or an experiment runs, and when changes are in force or pending."""
        run, going_on = self._load.running, self._load.going_on
        changes = () if self._parameters.changes is None else self._parameters.changes.made
        pending = self._parameters.pending
        if self._context.options.throwaway:
            # The server is thrown away, the machine is not.
            changes, pending = tuple(change for change in changes if isinstance(change, HostChange)), None
        experiment = self._experiment.running
        if run is None and not going_on and not experiment and not changes and pending is None:
            self._context.app.exit(0)
        else:
            question = leave_question(run, changes, self._context.glyphs, going_on, pending, experiment)
            self._context.app.push_screen(question, self._leave_so)

    def _leave_so(self, how: Leaving | None) -> None:
        if how is not None:
            self._context.app.run_worker(self._settle(how), group="leave", exclusive=True)

    async def _settle(self, how: Leaving) -> None:
        """Stop experiment and load, and undo or confirm changes as answered; stay when that fails, to show it."""
        self._context.leaving = True
        changes = self._parameters.changes
        try:
            await self._experiment.stop()
            await self._load.stop()
            if how is Leaving.UNDOING and changes is not None:
                await changes.undo_made()
            if how is Leaving.KEEPING and changes is not None and not await changes.keep():
                raise UsageProblem("too late: the pending change has been reverted")
        except PgtopError as problem:
            self._context.leaving = False
            again = self._context.with_keys("the program did not end; {quit} asks again")
            self._context.tell(f"{problem}\n{again}", "error")
            return
        self._context.app.exit(0)


def leave_question(
    run: BenchRun | None,
    changes: Sequence[Change],
    glyphs: Glyphs,
    going_on: str = "",
    pending: Pending | None = None,
    experiment: str = "",
) -> ConfirmDialog[Leaving]:
    """Return the question what to do with a running load, a data set in the making, and changes in force.

    Args:
        run: The load under way.
        changes: Changes made in this session and not undone, oldest first; pending ones included.
        glyphs: Characters of the drawing.
        going_on: Steps of a load, or a data set in the making; "" for none.
        pending: Changes that are reverted unless they are confirmed.
        experiment: The running experiment in a few words; "" for none.
    """
    from pgtop_tune.tui.dialogs.dialog import AnswerKey, ConfirmDialog, Paragraph

    paragraphs: list[Paragraph] = []
    if experiment:
        paragraphs.append(Paragraph(f"An experiment is running ({experiment}); leaving stops it and restores A."))
    if going_on:
        paragraphs.append(Paragraph(f"{going_on}: still running; leaving stops it."))
    elif run is not None:
        paragraphs.append(
            Paragraph(f"A load is running ({one_line(run.load_name, 60)}, {run.clients} clients); leaving stops it.")
        )
    pending_ids = {change.id for change in pending.changes} if pending is not None else set()
    staying = [change for change in changes if change.id not in pending_ids and not _can_lose(change)]
    ending = [change for change in changes if change.id not in pending_ids and _can_lose(change)]
    paragraphs += _listed("Pending confirmation; leaving reverts it:", () if pending is None else pending.changes)
    paragraphs += _listed("This can lose data; leaving reverts it:", ending)
    paragraphs += _listed("These changes are in force; `pgtop-tune revert` undoes them later:", staying)
    stop = "stop it and leave" if going_on else "stop the load and leave" if run is not None else "leave"
    plainly = ("l", "ctrl+c") if changes or pending is not None else ("y", "enter", "q", "ctrl+c")
    choices = [AnswerKey(plainly, f"{stop}, the changes stay" if staying else stop, Leaving.PLAINLY)]
    if pending is not None:
        choices.insert(0, AnswerKey(("k",), f"confirm the pending changes, {stop}", Leaving.KEEPING))
    if staying:
        choices.insert(0, AnswerKey(("u",), f"undo the changes, {stop}", Leaving.UNDOING))
    return ConfirmDialog("leave?", paragraphs, choices, glyphs)


def _can_lose(change: Change) -> bool:
    return not isinstance(change, HostChange) and bool(change.loss)


def _listed(title: str, changes: Sequence[Change]) -> list[Paragraph]:
    from pgtop_tune.tui.dialogs.dialog import Paragraph

    return (
        [Paragraph(title), *(Paragraph(f"  {change_text(change)}", "strong") for change in changes)] if changes else []
    )


# The command palette: actions and tables that exist in this session, parameters, sessions and statements.

Offered = Iterator[tuple[str, Callable[[], object]]]
"""Pairs of a phrase and the function that it runs."""
_CALLED: Final = 90
"""Most characters of a query in a phrase."""
_MOST: Final = 300
"""Most sessions, and most statements, that are searched."""


class Palette(CommandPalette):
    """Textual's palette; Ctrl+C closes it like every dialog."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("ctrl+c", "escape", show=False, priority=True)]


class ActionCommands(Provider):
    """Finds actions, tables, parameters, sessions and statements by their phrases. A chosen action runs on the screen
    that the palette was opened from."""

    @property
    def _app(self) -> PgtopApp:
        return cast("PgtopApp", self.app)

    def _shown(self, action: Action, screen: SceneScreen) -> str:
        keys = keys_among(action, screen.offered(), self._app.context.options.keymap)
        return f"{action.description}  ({', '.join(map(key_name, keys))})" if keys else action.description

    def _doing(self, screen: SceneScreen) -> Offered:
        """Yield actions and tables."""
        for action in screen.possible():
            if action.action != "app.command_palette":
                yield self._shown(action, screen), partial(self.app.run_action, action.action, screen)
        page_keys = {key for key, _ in screen.page_names("").names}
        for page in all_pages():
            for table in page.tables if len(page.tables) > 1 and page.key in page_keys else ():
                phrase = f"table of {table.title}  ({page.key} {page.title})"
                yield phrase, partial(self.app.run_action, f"app.look_at('{page.id}', '{table.id}')", screen)

    def _named(self, screen: SceneScreen) -> Offered:
        """Yield parameters, sessions and statements, which are found by name once a letter is typed."""
        if any(Need.PARAMETERS in action.needs for action in screen.offered()):
            for knob in self._app.context.controls.knobs():
                yield f"parameter {knob.name}: {knob.why}", partial(self._app.show_parameter, knob.name)
        interval = screen.session.interval
        if interval is None:
            return
        if (activity := interval.now(sections.activity)) is not None:
            for backend in activity.backends[:_MOST]:
                role = one_line(f"{backend.usename or backend.backend_type}@{backend.datname or ''}".rstrip("@"), 60)
                phrase = f"session {backend.pid} {role} {backend.state or ''}: {one_line(backend.query or '', _CALLED)}"
                yield phrase, partial(self._app.show_row, "sessions", (backend.pid, backend.backend_start_ms))
        counters, texts = interval.now(sections.statement_counters), interval.now(sections.statement_texts)
        if counters is None or texts is None:
            return
        query_of = {text.queryid: text.query for text in texts.texts}
        for entry in counters.statements[:_MOST]:
            if query := query_of.get(entry.queryid):
                yield f"statement {one_line(query, _CALLED)}", partial(self._app.show_row, "statements", entry.id)

    async def discover(self) -> Hits:
        """Yield what can be done here, before a letter is typed."""
        if isinstance(self.screen, SceneScreen):
            for phrase, act in self._doing(self.screen):
                yield DiscoveryHit(phrase, act)

    async def search(self, query: str) -> Hits:
        """Yield what resembles the letters typed."""
        if not isinstance(self.screen, SceneScreen):
            return
        # Letters in their order match; a space would only match a space, not the "_" of "max wal".
        matcher = self.matcher("".join(query.split()))
        for offered in (self._doing(self.screen), self._named(self.screen)):
            for phrase, act in offered:
                score = matcher.match(phrase)
                if score > 0:
                    # Not the matcher's own highlight, which reads foreign text as markup.
                    yield Hit(score, Content(phrase), act, text=phrase)


_AFTER_MESSAGE_S: Final = 0.05
"""Seconds added to the time left of a message, because a timer may fire early."""
_EVERYWHERE: Final = frozenset({"redraw", "suspend"})
"""Actions whose keys also work in dialogs and while something is typed."""


def _own_names(actions: tuple[Action, ...]) -> frozenset[str]:
    """Return the names of the actions that are the application's, not a screen's."""
    return frozenset(row.action.partition("(")[0][4:] for row in actions if row.action.startswith("app."))


_OWN: Final = _own_names(ACTIONS)


class FramesWaiting(Message):
    """Frames wait in the sink."""


class EngineEnded(Message):
    """No more frames will come."""


class PgtopApp(DiscreetApp):
    """The screen of a session, made of features: an action of the table is a method of one of them.

    Attaches itself to the engine as a sink, and starts the engine when it is mounted; `run.run_screen` stops the
    engine afterwards.

    Args:
        controls: What the operator can reach.
        options: Theme, keymap and other options of the screen.

    Attributes:
        context: State that its features share.

    Raises:
        UsageProblem: An unknown theme, a keymap that cannot be used.
    """

    CSS = """
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
        super().__init__(driver_class=ThriftyDriver)
        check_keymap(options.keymap)
        self.animation_level = "none"
        self._controls = controls
        self._options = options
        self._actions = available(controls.has())
        self._offered = _own_names(self._actions)
        self._sink = ScreenSink(self._poke, lambda: self._post(EngineEnded()))
        controls.engine.attach(self._sink, first=True)
        self.context = AppContext(self, controls, options, self._repaint)
        self._add_features()
        self._dashboard = Dashboard(*self._drawn_with())
        self._in_view: SceneScreen = self._dashboard
        self._prepared = False
        self._screen_loop: asyncio.AbstractEventLoop | None = None
        self._leave_status: int | None = None
        self._shown_message: ShownMessage | None = None
        self._told_on: dict[str, Dialog[Any] | None] = {}
        self._choose_theme()

    def _add_features(self) -> None:
        context = self.context
        self.time_travel = TimeTravel(context, self._poke)
        self.parameters = ParameterActions(context)
        self.load = LoadActions(context, self.parameters)
        self.experiment = ExperimentActions(context, self.parameters, self.load)
        self.source = SourceActions(context)
        self.windows = WindowActions(context, self.time_travel)
        self.overlay = OverlayActions(context)
        sessions = SessionActions(context, self.time_travel, self._actions)
        deeds = Deeds(context, self.time_travel, self.parameters, self.experiment, sessions, self._actions)
        self.findings = Findings(context, self.time_travel, deeds)
        served = context.served
        actions: dict[str, Callable[..., None]] = {
            "load": served(self.load.open),
            "change_load": served(self.experiment.unless_running(self.load.change)),
            "parameters": served(self.parameters.open),
            "undo": served(self.experiment.unless_running(self.parameters.undo)),
            "redo": served(self.experiment.unless_running(self.parameters.redo)),
            "keep": served(self.experiment.keep),
            "experiment": served(self.experiment.open),
            "check": served(self.parameters.check),
            "signal": sessions.signal,
            "signal_one": sessions.signal_one,
            "explain": sessions.explain,
            "explain_one": sessions.explain_one,
            "live": self.time_travel.to_newest,
            "pause": self.time_travel.pause,
            "step": self.time_travel.step,
            "speed": self.time_travel.speed,
            "jump": self.time_travel.ask_moment,
            "seek": self.time_travel.seek,
            "mark": self.windows.mark,
            "mark_moving": self.windows.mark_moving,
            "compare_windows": self.windows.compare,
            "overlay": self.overlay.turn,
            "findings": self.findings.open,
            "deed": self._act,
            "command_palette": self._open_palette,
            "heatmap": self._open_heatmap,
            "wait_groups": self._open_wait_groups,
            "record": self.source.turn_recording,
            "note": self.source.ask_note,
            "interval": self.source.change_interval,
            "burst": self.source.burst,
            "password": self.source.ask_password,
            "quit": LeaveActions(context, self.load, self.parameters, self.experiment).leave,
        }
        for name, act in actions.items():
            # Textual looks for an action of this name on the application.
            setattr(self, f"action_{name}", act)

    def _choose_theme(self) -> None:
        themes = load_themes(bool(os.environ.get("NO_COLOR")))
        self._themes, self._broken_themes = themes.by_name, themes.broken
        theme_name = choose(themes, self._options.theme, usual_theme(self.console.color_system, os.environ))
        for theme in self._themes.values():
            self.register_theme(theme)
        self.theme = theme_name

    def _drawn_with(self) -> tuple[Glyphs, tuple[Action, ...], Mapping[str, str], str, Scene]:
        return self.context.glyphs, self._actions, self._options.keymap, self._options.target, self._scene()

    @cached_property
    def _pages(self) -> PageScreen:
        """The screen of the pages, made when a page is first opened: the first data do not wait for nine of them."""
        from pgtop_tune.tui.pages.screen import PageScreen

        screen = PageScreen(*self._drawn_with())
        self.install_screen(screen, "pages")
        return screen

    def _act(self) -> None:
        if self._in_view is not self._dashboard:
            self.context.tell_moved("deed")
        self.findings.act()

    def _open_palette(self) -> None:
        self.push_screen(Palette())

    def _open_heatmap(self) -> None:
        from pgtop_tune.tui.dashboard.heatmap import HeatmapDialog

        self.push_screen(HeatmapDialog(self.time_travel.shown, self.context.glyphs))

    def _open_wait_groups(self) -> None:
        from pgtop_tune.tui.pages.wait_groups import WaitGroupsDialog

        self.push_screen(WaitGroupsDialog(self.time_travel.shown, self.context.glyphs))

    def _post(self, message: Message) -> None:
        """Post a message from the engine's thread."""
        self.post_message(message)

    def _poke(self) -> None:
        self._post(FramesWaiting())

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Return False for an action whose need is not met."""
        return action in self._offered if action in _OWN else super().check_action(action, parameters)

    async def on_mount(self) -> None:
        """Start the engine and show the dashboard; its first picture has the frames that have come by then."""
        self._screen_loop = asyncio.get_running_loop()
        if self._leave_status is not None:
            self.exit(self._leave_status)
            return
        self._controls.engine.start()
        if keymap := self._options.keymap:
            # Of every action: Textual drops all that a key does when one of two actions on it gets another key.
            self.set_keymap({action.id: ",".join(keys_of(action, keymap)) for action in ACTIONS})
        driver = driver_of(self)
        if isinstance(driver, ThriftyDriver):
            self._controls.tally.follow(lambda: driver.written_bytes)
        self.install_screen(self._dashboard, "dashboard")
        # Awaited: a screen that is pushed while this one is not mounted yet would lie below it.
        await self.push_screen(self._dashboard)
        self.app_resume_signal.subscribe(self, lambda _: self.action_redraw())
        self._look_at_size(self.size)
        self.on_frames_waiting()
        for file, problems in self._broken_themes.items():
            self.context.tell(f"a theme was ignored: {file}: {problems}", "warning")
        self.overlay.begin()
        if "keep" in self._offered:
            self.parameters.begin()

    def leave(self, status: int) -> None:
        """Close the screen. From any thread, also from within a signal handler."""
        self._leave_status = status
        loop = self._screen_loop
        if loop is not None and not loop.is_closed():
            loop.call_soon_threadsafe(self.exit, status)

    def discard_output(self) -> None:
        """Free a loop that waits for a stalled terminal. From any thread."""
        driver = driver_of(self)
        if isinstance(driver, ThriftyDriver):
            driver.discard_output()

    def on_resize(self, event: events.Resize) -> None:
        """Show the message for a terminal that is too small, or take it away."""
        self._look_at_size(event.size)

    def _look_at_size(self, size: Size) -> None:
        # A resize can come before the first screen is mounted; a `TooSmall` pushed then would lie below it.
        has_picture = any(isinstance(screen, SceneScreen) for screen in self.screen_stack)
        if has_picture and is_too_small(size) and not any(isinstance(screen, TooSmall) for screen in self.screen_stack):
            self.push_screen(TooSmall())

    def on_engine_ended(self) -> None:
        """Stop the engine: its source has ended, or it has failed."""
        self.run_worker(self._after_engine(), group="ended")

    async def _after_engine(self) -> None:
        engine = self._controls.engine
        await asyncio.to_thread(engine.stop)
        if engine.failure is None:
            self.context.tell("the source has ended: no more data will arrive", "warning")
            return
        if isinstance(engine.failure, PgtopError):
            self.exit(1)
            return
        try:
            raise engine.failure
        except Exception as failure:
            self.crash(failure)

    def on_frames_waiting(self) -> None:
        """Take the waiting frames, and paint once."""
        steps = self._sink.take()
        for step in steps:
            self.context.live.apply(step)
        moved = self.time_travel.take()
        if steps or moved:
            self.windows.follow()
            self._repaint()
        if steps:
            self._prepare()
            self.load.look()
            self.source.look_at_password()
        self.parameters.look()

    def _prepare(self) -> None:
        """Begin the work that the first picture does not need, once that is painted."""
        if not self._prepared:
            self._prepared = True
            self.call_after_refresh(self._after_first_picture)

    def _after_first_picture(self) -> None:
        self.findings.begin()
        read_ahead_for_keys()
        self.load.begin()

    def _scene(self) -> Scene:
        transport, diagnosis = self._controls.transport, self.findings.shown
        deed = self.findings.first_deed(diagnosis)
        load = None if self.time_travel.in_past else self.context.services.load
        return Scene(
            session=self.time_travel.shown,
            diagnosis=diagnosis,
            deed="" if deed is None else deed.brief,
            recording=self.source.recording_state(),
            behind_s=self.time_travel.behind_s,
            in_past=self.time_travel.in_past,
            transport=None if transport is None else transport.state(),
            load=None if load is None else load.state(),
            pending=self.parameters.pending,
            experiment=None if self.time_travel.in_past else self.experiment.shown,
            marks=self.windows.marks,
            baseline=self.overlay.watch(self.time_travel.shown.now),
            message=None if self._dialogs else self._message_of(None),
        )

    @property
    def _open_screens(self) -> Sequence[Screen[Any]]:
        """The screens from below to the top; none before the first."""
        return self.screen_stack if self.is_running else ()

    @property
    def _dialogs(self) -> list[Dialog[Any]]:
        """The open dialogs from below to the top."""
        return [screen for screen in self._open_screens if isinstance(screen, Dialog)]

    def _message_of(self, dialog: Dialog[Any] | None) -> ShownMessage | None:
        """Return the newest message of a dialog, or of the screen: its own, and problems of dialogs that are closed."""
        dialogs = self._dialogs
        for message in reversed(self.messages_in_time()):
            told_on = self._told_on.get(message.identity)
            closed = told_on is not None and told_on not in dialogs
            if told_on is dialog or (closed and dialog is None and message.severity != "information"):
                return ShownMessage(message.message, message.severity)
        return None

    def messages_changed(self) -> None:
        """Show the newest message where it was told: in the screen's line, or on the edge of the dialog on top then."""
        messages, dialogs = self.messages_in_time(), self._dialogs
        on_top = dialogs[-1] if dialogs else None
        self._told_on = {message.identity: self._told_on.get(message.identity, on_top) for message in messages}
        if messages:
            self.set_timer(max(messages[-1].time_left, 0.0) + _AFTER_MESSAGE_S, self.messages_changed)
        for dialog in dialogs:
            dialog.show_message(self._message_of(dialog))
        message = self._message_of(None)
        if message != self._shown_message:
            self._shown_message = message
            self._repaint()

    def _repaint(self) -> None:
        if not self.is_running:
            # A timer or a worker may come while the screens are taken apart.
            return
        scene = self._scene()
        with self.batch_update():
            if not isinstance(self.screen, TooSmall):
                self._in_view.show(scene)
            for dialog in self._dialogs:
                dialog.frames_arrived(self.context.live if dialog.LIVE else scene.session)

    def on_marks_unwanted(self, message: MarksUnwanted) -> None:
        """Forget the windows."""
        self.windows.clear()

    def on_key_moved(self, message: KeyMoved) -> None:
        """Tell once what a key did before."""
        self.context.tell_moved(message.action_id)

    def on_key_unknown(self, message: KeyUnknown) -> None:
        """Tell what to press in place of a key without effect."""
        self.context.tell(message.hint, timeout_s=TOLD_S)

    def on_moment_chosen(self, message: MomentChosen) -> None:
        """Show the moment of a bar, or the frame whose values stand where a chart was clicked."""
        at_s = self.time_travel.shown.history.told_by(message.at_s) if message.charted else message.at_s
        self.time_travel.jump(max(at_s, 0.0))

    def on_row_chosen(self, message: RowChosen) -> None:
        """Turn to the page of a row and select it."""
        self.show_row(message.page, message.key)

    def on_window_dragged(self, message: WindowDragged) -> None:
        """Mark the window that was dragged through a chart."""
        self.windows.mark_between(message.since_s, message.until_s)

    def action_mouse(self) -> None:
        """Take the mouse, or leave it to the terminal for selecting text."""
        driver = driver_of(self)
        if isinstance(driver, ThriftyDriver):
            on = driver.turn_mouse()
            message = "mouse on: Shift selects text" if on else "mouse off: the terminal selects text"
            self.context.tell_instead(message)

    def show_row(self, page: str, key: Hashable) -> None:
        """Turn to a page and select a row of its first table."""
        self.action_look_at(page, page_of(page).tables[0].id)
        self._pages.select(key)

    def show_parameter(self, name: str) -> None:
        """Open the list of parameters at one of them."""
        self.context.served(self.parameters.open_at)(name)

    def action_look_at(self, name: str, table: str = "") -> None:
        """Show the dashboard or a page, the page with a certain table or with the one it was left with."""
        if not isinstance(self.screen, SceneScreen):
            return
        self._in_view = self._dashboard if name == DASHBOARD_ID else self._pages
        if name == DASHBOARD_ID:
            self._dashboard.show(self._scene())
        else:
            self._pages.turn_to(page_of(name), self._scene(), table)
        self.switch_screen(self._in_view)

    def action_theme(self) -> None:
        """Choose the next theme."""
        names = list(self._themes)
        self.theme = names[(names.index(self.theme) + 1) % len(names)]
        self.context.tell_instead(f"theme {self.theme}: {self._themes[self.theme].description}")

    def action_redraw(self) -> None:
        """Paint every cell anew, over anything that another program has written to the terminal."""
        driver = driver_of(self)
        if isinstance(driver, ThriftyDriver):
            driver.forget()
        self.screen.refresh(repaint=True, layout=True)

    def action_suspend_process(self) -> None:
        """Suspend this program; refuse while a change is pending, which a suspended program could not revert."""
        if self.experiment.running:
            message = (
                "an experiment is running: a suspended program could not restore its values. {experiment} stops it"
            )
            self.context.tell(self.context.with_keys(message), "warning")
        elif self.parameters.pending is not None:
            message = (
                "a change is pending: a suspended program could not revert it. {keep} confirms it, {undo} undoes it"
            )
            self.context.tell(self.context.with_keys(message), "warning")
        else:
            super().action_suspend_process()

    def action_help(self) -> None:
        """Show the keys, and what the numbers mean."""
        from pgtop_tune.tui.dialogs.help import HelpDialog

        screen = self.screen
        if isinstance(screen, SceneScreen):
            glyphs = self.context.glyphs
            self.push_screen(
                HelpDialog(screen.offered(), self._options.keymap, screen.explained, glyphs, screen.help_at)
            )
