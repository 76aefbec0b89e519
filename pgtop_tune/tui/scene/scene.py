"""The base of the dashboard and the pages: canvases from top to bottom, the footer, and the filter field."""

from __future__ import annotations

import time
from collections.abc import Hashable, Mapping, Sequence, Set
from typing import TYPE_CHECKING, Any, ClassVar, Final

from msgspec import Struct
from msgspec.structs import replace
from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.errors import NoWidget
from textual.message import Message
from textual.screen import Screen

from pgtop_tune.metrics.load import under_way
from pgtop_tune.model.absence import Unavailable
from pgtop_tune.runtime.session import Session
from pgtop_tune.runtime.window import Marks
from pgtop_tune.tui.actions import (
    ACTIONS,
    NAMES,
    POOLERS_KEY,
    Action,
    FooterKeys,
    FooterPart,
    Need,
    footer_keys,
    for_unknown_key,
    key_name,
    keys_among,
    keys_of,
)
from pgtop_tune.tui.dialogs.dialog import RowKey, copy
from pgtop_tune.tui.scene.banners import (
    began_ms,
    danger_line,
    experiment_line,
    finding_line,
    marks_line,
    moment_of_bar,
    pending_line,
    switched_danger,
    transport_line,
)
from pgtop_tune.tui.scene.header import PageNames, ShownMessage, message_lines
from pgtop_tune.tui.terminal.textual_private import driver_of, one_update, regions_in_view
from pgtop_tune.tui.terminal.thrifty_driver import ThriftyDriver
from pgtop_tune.tui.widgets.canvas import LineCanvas
from pgtop_tune.tui.widgets.lines import Glyphs, Line, fit, plain_text, text_width
from pgtop_tune.tui.widgets.text_field import TextField

if TYPE_CHECKING:
    from pgtop_tune.changes.confirm.pending_sets import Pending
    from pgtop_tune.compare.overlay.curves import OverlayWatch
    from pgtop_tune.diagnosis.finding import Diagnosis
    from pgtop_tune.model.backend_action import BackendKey, StatementToPlan
    from pgtop_tune.runtime.experiment_control import ExperimentState
    from pgtop_tune.runtime.load_control import LoadState
    from pgtop_tune.runtime.ports import RecordingState, TransportState

# What a place on the screen means to the mouse, read off the lines as they are drawn. Pure.

WHEEL_ROWS: Final = 3
"""Rows of a table that a step of the wheel moves."""
LEAST_DRAG: Final = 2
"""Columns from which on a drag marks a window; less is a click."""


class MomentChosen(Message):
    """A click in a chart, or on the bar of a replay.

    Attributes:
        at_s: On the session's clock.
        charted: Whether it is a column of a chart, whose values a later frame told.
    """

    def __init__(self, at_s: float, *, charted: bool = True) -> None:
        super().__init__()
        self.at_s, self.charted = at_s, charted


class RowChosen(Message):
    """A click on a row of a page that stands on another screen.

    Attributes:
        page: Its page.
        key: The row's key there.
    """

    def __init__(self, page: str, key: Hashable) -> None:
        super().__init__()
        self.page, self.key = page, key


class WindowDragged(Message):
    """A drag through a chart.

    Attributes:
        since_s, until_s: On the session's clock, the earlier one first.
    """

    def __init__(self, since_s: float, until_s: float) -> None:
        super().__init__()
        self.since_s, self.until_s = min(since_s, until_s), max(since_s, until_s)


def key_at(line: Line, x: int) -> str:
    """Return the key, as people write it, that stands in a cell with the words behind it; "" for none.

    Args:
        line: Spans of the style "key" are keys; blanks of two cells or more end their words.
        x: Cell, from 0.
    """
    key, at = "", 0
    for text, style in line:
        if style == "key":
            key = text.strip().strip("[]()")
        elif not text.strip():
            key = ""
        at += text_width(text)
        if x < at:
            return key
    return ""


def word_at(line: Line, x: int) -> str:
    """Return the word that stands in a cell; "" where that is blank."""
    text = plain_text(line)
    if not 0 <= x < len(text) or text[x] == " ":
        return ""
    return text[text.rfind(" ", 0, x) + 1 :].partition(" ")[0]


def span_at(line: Line, x: int) -> str:
    """Return the span that a cell belongs to, without blanks around it."""
    at = 0
    for text, _ in line:
        at += text_width(text)
        if x < at:
            return text.strip()
    return ""


# Pictures of a screen of canvases straight to the terminal, past Textual's compositor.


def shown_straight(
    screen: Screen[Any], canvases: Mapping[str, LineCanvas], drawn: Mapping[str, Sequence[Line]]
) -> bool:
    """Show the lines of canvases as wide as the screen; through Textual the screen's thread takes a fifth longer.

    Returns:
        False where nothing was done: while Textual is about to paint this screen, something else than the canvases is
        on it, or the terminal may show anything.
    """
    driver = driver_of(screen.app)
    if not isinstance(driver, ThriftyDriver) or not driver.is_known:
        return False
    regions = regions_in_view(screen)
    if not regions or not regions.keys() <= set(canvases.values()):
        return False
    changed = []
    for name, lines in drawn.items():
        canvas = canvases[name]
        rows, region = canvas.take(lines), regions.get(canvas)
        if rows and region is not None:
            changed += [(region.y + y, row) for y, row in zip(rows, canvas.rows(rows), strict=True)]
    with one_update(screen.app):
        driver.paint(changed, screen.app.console)
    return True


# A banner over the screen while a value is in force that can lose data: read off the frames, so a replay has it.


FINDING: Final = "finding"
"""The line under the header of every screen."""
TRANSPORT: Final = "transport"
PENDING: Final = "pending"
MARKS: Final = "marks"
EXPERIMENT: Final = "experiment"
MESSAGE: Final = "message"
_MESSAGE_FROM: Final = 30
"""Rows of a screen from which on a line is kept for messages; on a lower one they cover the last row of the table."""
ABOVE: Final = ("danger",)
BELOW: Final = (MARKS, TRANSPORT, EXPERIMENT, PENDING, MESSAGE)
"""Lines at the top and above the footer; all but the last are there only when there is something to say."""
_OF_ROW: Final = frozenset({"copy", "unselect"})
_SIGNALS: Final = frozenset({"cancel", "terminate"})
_OF_MARKS: Final = frozenset({"mark-end", "brush"})
_WHILE_MOVING: Final = frozenset(
    {"live", "step-forward", "mark-later", "next-event", "next-checkpoint", "slower", "faster"}
)
"""Actions that do something only while another moment than the newest is shown."""
_WITH_ONE: Final = {
    "cancel": "app.signal_one('cancel', {}, {})",
    "terminate": "app.signal_one('terminate', {}, {})",
    "explain": "app.explain_one({}, {})",
}
"""Action of the table → the same, for the session with this pid and start."""


class Scene(Struct, frozen=True):
    """Everything that a screen draws.

    Attributes:
        session: Frames up to the moment shown.
        diagnosis: The diagnosis of that moment; None before that is known.
        deed: The first deed of it that can be done now, in a word or two; "" without one.
        recording: Whether frames are being written; None where they cannot be.
        behind_s: How far a frozen screen is behind the newest frame; None when it is not frozen.
        in_past: Whether another moment of a live session is shown, which is more than a frozen screen.
        transport: Where a replay stands; None when live.
        load: State of the load that frames do not show; None where there is no door to it.
        pending: The change set that awaits confirmation.
        experiment: The one under way, or the newest whose end nobody has looked at; None without any.
        marks: Windows that are marked.
        baseline: An earlier run under the charts.
        message: To the operator; it stands above the footer for a while.
    """

    session: Session
    diagnosis: Diagnosis | None = None
    deed: str = ""
    recording: RecordingState | None = None
    behind_s: float | None = None
    in_past: bool = False
    transport: TransportState | None = None
    load: LoadState | None = None
    pending: Pending | None = None
    experiment: ExperimentState | None = None
    marks: Marks = Marks()
    baseline: OverlayWatch | None = None
    message: ShownMessage | None = None


class KeyMoved(Message):
    """A key did what it did not do in earlier versions.

    Attributes:
        action_id: The action it has now.
    """

    def __init__(self, action_id: str) -> None:
        super().__init__()
        self.action_id = action_id


class KeyUnknown(Message):
    """A key did nothing.

    Attributes:
        hint: What to press instead.
    """

    def __init__(self, hint: str) -> None:
        super().__init__()
        self.hint = hint


class MarksUnwanted(Message):
    """Let go of what is marked; the marks are the application's."""


class SceneScreen(Screen[None]):
    """Shows a scene with a canvas per name of `STACK`; subclasses say what stands on each.

    With the mouse, a click does what stands in its cell, and a drag through a chart marks a window.

    Args:
        glyphs: Characters of the drawing.
        actions: Actions that exist in this session.
        keymap: The operator's own keys.
        target: The server that was asked for, shown until one has answered.
        first: What is drawn before anything has arrived.
    """

    STACK: ClassVar[tuple[str, ...]] = ()
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding(",".join(row.keys), row.action, row.description, id=row.id, show=False)
        for row in sorted(ACTIONS, key=lambda row: not row.before)
        if row.action != "app.command_palette"
    ]
    AUTO_FOCUS = ""
    ALLOW_SELECT = False
    DEFAULT_CSS = """
    SceneScreen { layout: vertical; overflow: hidden; }
    SceneScreen > LineCanvas { width: 100%; height: 1; }
    """

    def __init__(
        self, glyphs: Glyphs, actions: Sequence[Action], keymap: Mapping[str, str], target: str, first: Scene
    ) -> None:
        super().__init__()
        self._glyphs = glyphs
        self._actions = tuple(actions)
        self._keymap = keymap
        self._target = target
        self._scene = first
        self._filtering: TextField | None = None
        self._arranged: Set[str] = frozenset()
        self._canvases = {name: LineCanvas(glyphs, id=name) for name in self.STACK}
        self._shown_keys = {action.id: key_name(keys_of(action, keymap)[0]) for action in actions}
        self._painting = False
        self._stands = False
        self._last_pane = ("", 0)
        self._drawn: Mapping[str, Sequence[Line]] = {}
        self._pressed: tuple[str, int, int] | None = None
        self._footer: tuple[object, FooterKeys] = (None, FooterKeys())

    def compose(self) -> ComposeResult:
        """Yield a canvas per name, from top to bottom."""
        yield from self._canvases.values()

    def on_mount(self) -> None:
        self._arrange()

    def on_resize(self, event: events.Resize) -> None:
        """Give the canvases the heights for another size."""
        self._arrange()
        self.paint_soon()

    def on_screen_suspend(self) -> None:
        """Leave drawing to Textual while another screen or a dialog is on top."""
        self._stands = False

    def on_screen_resume(self) -> None:
        """Draw anew: the terminal may have another size by now."""
        self._arrange()
        self.paint_soon()

    def show(self, scene: Scene) -> None:
        """Draw another scene; only what differs reaches the terminal."""
        self._scene = scene
        if not self.is_mounted:
            return
        extra = self._extra
        if extra.keys() != self._arranged:
            self._arrange()
            self.paint_soon()
        self._paint(extra)

    def paint_soon(self) -> None:
        """Paint once the layout stands, however often this is called until then."""
        self._stands = False
        if not self._painting:
            self._painting = True
            self.call_after_refresh(self._paint_now)

    def _paint_now(self) -> None:
        self._painting = False
        self.paint()
        # Textual has laid it out and painted it: from now on only what differs is to be shown.
        self._stands = self.app.screen is self

    def paint(self) -> None:
        """Draw every canvas anew, in one batch."""
        if self.is_mounted:
            self._paint(self._extra)

    def _paint(self, extra: Mapping[str, Line]) -> None:
        width = self.app.size.width
        drawn = dict(self.drawn(width))
        drawn |= {name: [line] for name, line in extra.items()}
        if self._filtering is not None:
            drawn["footer"] = [_filter_line(self._filtering, width)]
        message = self._scene.message
        self._put_message(drawn, [] if message is None else message_lines(message, width, self._glyphs))
        self._drawn = drawn
        if not (self._stands and shown_straight(self, self._canvases, drawn)):
            with self.app.batch_update():
                for name, lines in drawn.items():
                    self._canvases[name].show(lines)

    def _put_message(self, drawn: dict[str, Sequence[Line]], message: list[Line]) -> None:
        """Put a message on its line; lines that have no room there cover the lowest ones of the last pane. Nothing
        moves when a message comes or goes.
        """
        if self.message_rows:
            drawn[MESSAGE] = message[-1:]
            message = message[:-1]
        name, rows = self._last_pane
        if rows and message:
            kept = max(rows - len(message), 0)
            above = [*drawn.get(name, ())][:kept]
            drawn[name] = [*above, *((),) * (kept - len(above)), *message]

    @property
    def message_rows(self) -> int:
        """Rows of the line for messages: 0 on a low screen."""
        return int(self.app.size.height >= _MESSAGE_FROM)

    @property
    def covered_rows(self) -> int:
        """Rows of the last pane that a message covers now."""
        message = self._scene.message
        lines = () if message is None else message_lines(message, self.app.size.width, self._glyphs)
        return max(len(lines) - self.message_rows, 0)

    @property
    def rows_for_panes(self) -> int:
        """Rows of the screen without the lines that come and go, and without that for messages."""
        return max(self.app.size.height - len(self._arranged) - self.message_rows, 1)

    def _arrange(self) -> None:
        self._arranged = self._extra.keys()
        heights = self.heights(self.app.size.width, self.rows_for_panes) | dict.fromkeys(self._arranged, 1)
        heights[MESSAGE] = self.message_rows
        for name in self.STACK:
            canvas, rows = self._canvases[name], heights.get(name, 0)
            canvas.display = rows > 0
            canvas.styles.height = rows
            if rows and name not in (*BELOW, "footer"):
                self._last_pane = (name, rows)

    @property
    def _extra(self) -> dict[str, Line]:
        """The lines of `ABOVE` and `BELOW` that are there now, without that of messages."""
        scene, glyphs, width = self._scene, self._glyphs, self.app.size.width
        key = self._key_of
        list_key = key("findings" if self.has_selection else "details")
        lines = {FINDING: finding_line(scene.diagnosis, width, glyphs, list_key, (key("deed"), scene.deed))}
        danger = danger_line(scene.session, width, glyphs)
        if scene.experiment is not None:
            danger = danger or switched_danger(scene.experiment, width, glyphs)
            lines[EXPERIMENT] = experiment_line(scene.experiment, width, glyphs, key("experiment"), key("keep"))
        if danger is not None:
            lines["danger"] = danger
        if scene.transport is not None:
            now = scene.session.now
            lines[TRANSPORT] = transport_line(scene.transport, width, glyphs, None if now is None else now.taken_at_ms)
        if scene.pending is not None:
            now_ms = time.time_ns() // 1_000_000
            lines[PENDING] = pending_line(scene.pending, now_ms, width, glyphs, key("keep"), key("undo"))
        if scene.marks:
            began, keys = began_ms(scene.session), (key("mark-begin"), key("mark-end"), key("brush"))
            lines[MARKS] = marks_line(scene.marks, width, glyphs, began, *keys)
        return lines

    def _key_of(self, action: str) -> str:
        """Return the key of an action, as people write it; "" where there is none."""
        return self._shown_keys.get(action, "")

    def heights(self, width: int, height: int) -> dict[str, int]:
        """Return rows of each canvas on a screen of that size."""
        raise NotImplementedError

    def drawn(self, width: int) -> Mapping[str, Sequence[Line]]:
        """Return lines of each canvas."""
        raise NotImplementedError

    def offered(self) -> tuple[Action, ...]:
        """Return the actions that do something here."""
        return tuple(action for action in self._actions if self._offers(action))

    def possible(self) -> tuple[Action, ...]:
        """Return the actions that would do something now: with the row that is selected, at the moment shown."""
        return tuple(action for action in self.offered() if self._is_possible(action))

    def _is_possible(self, action: Action) -> bool:
        of_row = action.part is FooterPart.ROW or action.id in _OF_ROW
        if of_row and not (self.has_selection or self.filtered_by):
            return False
        if self._scene.in_past and Need.BACKENDS in action.needs and action.id in _SIGNALS:
            return False
        if action.id in _OF_MARKS:
            return bool(self._scene.marks)
        return self.moving or action.id not in _WHILE_MOVING

    def _offers(self, action: Action) -> bool:
        name = action.action.partition("(")[0]
        implemented = callable(getattr(self, f"action_{name}", None)) and bool(self.check_action(name, ()))
        return name.startswith("app.") or implemented

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Return False for going through matches without a filter."""
        return bool(self.filtered_by) if action == "match" else super().check_action(action, parameters)

    def explained(self, cells: int) -> list[Line]:
        """Return the meaning of every number in view, for the help."""
        raise NotImplementedError

    @property
    def help_at(self) -> str:
        """Title of the number or table that the help opens at; "" for the keys."""
        return ""

    def keys_for(self, backend: BackendKey | None) -> tuple[RowKey, ...]:
        """Return the keys for a session, for the dialog of its details."""
        if backend is None:
            return ()
        row_keys = []
        for action in self._actions:
            if action.id in _WITH_ONE:
                keys = keys_of(action, self._keymap)
                call = _WITH_ONE[action.id].format(*backend)
                row_keys.append(RowKey(keys=keys, label=key_name(keys[0]), word=action.short, action=call))
        return tuple(row_keys)

    def page_names(self, here: str) -> PageNames:
        """Return the pages for the footer; that of poolers where there are some, or it is in view."""
        now = self._scene.session.now
        empty = POOLERS_KEY if now is None or isinstance(now.pooler, Unavailable) else ""
        names = tuple((key, name) for key, name in NAMES if key == here or key != empty)
        return PageNames(names, here)

    def footer_keys(self, *, arrows: bool = False) -> FooterKeys:
        """Return the keys of the footer.

        Args:
            arrows: Whether the arrow keys go through time here.
        """
        moving, past = self.moving, self._scene.in_past
        loading = not moving and under_way(self._scene.session.now) is not None
        at = self.table_in_view, bool(self.filtered_by), moving, past, loading
        if self._footer[0] != at:
            self._footer = (
                at,
                footer_keys(self.offered(), self._keymap, moving=moving, past=past, arrows=arrows, loading=loading),
            )
        return replace(self._footer[1], selected=self.has_selection)

    @property
    def table_in_view(self) -> str:
        """Name of the table in view: the actions offered are the same as long as it is."""
        raise NotImplementedError

    @property
    def has_selection(self) -> bool:
        """Return whether a row is selected, or rows are tagged."""
        raise NotImplementedError

    @property
    def selected(self) -> Hashable:
        """Return the key of the selected row; None without one."""
        raise NotImplementedError

    @property
    def moving(self) -> bool:
        """Return whether the moment shown is another one than the newest of a live session."""
        return self._scene.transport is not None or self._scene.behind_s is not None

    async def press_shown(self, key: str) -> bool:
        """Do what a key does that stands on the screen; return whether it is a key of this screen."""
        offered = self.offered()
        keys = {key_name(name): row for row in offered for name in keys_among(row, offered, self._keymap)[:1]}
        action = keys.get(key)
        if action is not None:
            await self.run_action(action.action)
        return action is not None

    @property
    def typing(self) -> bool:
        """Return whether keys go into a line of text; then the mouse does nothing."""
        return self._filtering is not None

    @property
    def session(self) -> Session:
        """The session shown."""
        return self._scene.session

    def chosen_backends(self) -> tuple[BackendKey, ...]:
        """Return the sessions of the tagged rows; without any, that of the selected one."""
        raise NotImplementedError

    def chosen_statement(self) -> StatementToPlan | str | None:
        """Return the statement of the selected row, or why there is none to plan; None where rows are of sessions."""
        return None

    def listed_backends(self) -> tuple[BackendKey, ...]:
        """Return the sessions of all rows that the filter shows; none without a filter."""
        raise NotImplementedError

    @property
    def filtered_by(self) -> str:
        """The filter in force; "" for none."""
        raise NotImplementedError

    def filter_by(self, text: str) -> None:
        """Set another filter; called with each letter."""
        raise NotImplementedError

    @property
    def visible_rows(self) -> int:
        """Rows of the table that are in view."""
        raise NotImplementedError

    def action_move(self, by: int) -> None:
        """Select the row so many further down."""
        raise NotImplementedError

    def action_edge(self, by: int) -> None:
        """Select the first or the last row."""
        raise NotImplementedError

    def action_match(self, by: int) -> None:
        """Select the next or the previous row that the filter shows, after the last one the first."""
        self.post_message(KeyMoved("next-match" if by > 0 else "previous-match"))
        before = self.selected
        self.action_move(by)
        if self.selected == before:
            self.action_edge(-by)

    async def open_bottleneck(self) -> None:
        """Open the bottleneck: Enter without a selected row."""
        self.post_message(KeyMoved("details"))
        await self.app.run_action("app.findings")

    def action_page(self, by: int) -> None:
        """Select a page further down or up."""
        self.action_move(by * max(self.visible_rows - 1, 1))

    def copy_or_warn(self, text: str, copied: str, otherwise: str) -> None:
        """Copy a text into the clipboard of the terminal and say so; without one, say what to do."""
        message = copy(self.app, text, copied) if text else otherwise
        self.app.notify(message, markup=False, severity="information" if text else "warning")

    def action_filter(self) -> None:
        """Begin typing a filter in the last line."""
        self._filtering = TextField(self.filtered_by)
        self.paint()

    def on_key(self, event: events.Key) -> None:
        """Give every key to the filter while one is typed, letter by letter; tell of one without effect."""
        field = self._filtering
        if field is None:
            offered = self.offered()
            keys = {key for action in offered for key in keys_among(action, offered, self._keymap)}
            if keys.isdisjoint((event.key, event.character)):
                self.post_message(KeyUnknown(for_unknown_key(event.key, event.character, self._keymap)))
            return
        event.stop()
        if event.key in ("escape", "ctrl+c"):
            field.replace("")
        if event.key in ("enter", "escape", "ctrl+c"):
            self._filtering = None
        else:
            field.press(event.key, event.character)
        self.filter_by(field.text.strip())

    def on_paste(self, event: events.Paste) -> None:
        """Paste text from the terminal's clipboard into the filter."""
        if self._filtering is not None:
            event.stop()
            self._filtering.insert(event.text)
            self.filter_by(self._filtering.text.strip())

    def moment_at(self, pane: str, x: int, y: int) -> float | None:
        """Return the moment that a cell of a pane shows, on the session's clock; None where the pane shows no time."""
        return None

    def clicked_in(self, pane: str, x: int, y: int) -> None:
        """React to a click that hit no key and no chart."""

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        """Move the selection down."""
        self.action_move(WHEEL_ROWS)

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        """Move the selection up."""
        self.action_move(-WHEEL_ROWS)

    def on_mouse_down(self, event: events.MouseDown) -> None:
        """Remember where a click or a drag begins."""
        self._pressed = self._hit(event)

    async def on_mouse_up(self, event: events.MouseUp) -> None:
        """Mark a window after a drag through charts; do what a click means where the button is released in the same
        place.
        """
        pane, x, y = self._hit(event)
        pressed, self._pressed = self._pressed, None
        if pressed is None or event.button > 1 or self.typing:
            return
        begun_s, at_s = self.moment_at(*pressed), self.moment_at(pane, x, y)
        if begun_s is not None and at_s is not None and abs(x - pressed[1]) >= LEAST_DRAG:
            self.post_message(WindowDragged(begun_s, at_s))
            return
        if (pane, y) != (pressed[0], pressed[2]) or abs(x - pressed[1]) >= LEAST_DRAG:
            return
        lines = self._drawn.get(pane, ())
        key = key_at(lines[y], x) if y < len(lines) else ""
        if key and await self.press_shown(key):
            return
        position_s = self._position_at(x) if pane == TRANSPORT else None
        if position_s is not None:
            self.post_message(MomentChosen(position_s, charted=False))
        elif at_s is not None:
            self.post_message(MomentChosen(at_s))
        else:
            self.clicked_in(pane, x, y)

    def _position_at(self, x: int) -> float | None:
        """Return the position that a cell of the bar of a replay stands for; None beside it."""
        state, now = self._scene.transport, self._scene.session.now
        shown_ms = None if now is None else now.taken_at_ms
        return None if state is None else moment_of_bar(state, self.app.size.width, self._glyphs, shown_ms, x)

    def _hit(self, event: events.MouseEvent) -> tuple[str, int, int]:
        """Return the pane under the pointer, and the cell in it."""
        at = event.screen_offset
        try:
            widget, region = self.get_widget_at(*at)
        except NoWidget:
            return "", 0, 0
        return widget.id or "", at.x - region.x, at.y - region.y


def _filter_line(field: TextField, width: int) -> Line:
    hint: Line = (("   Enter", "key"), (" keep  ", "dim"), ("Esc", "key"), (" all rows", "dim"))
    return fit(((" /", "key"), *field.line(max(width - 32, 8)), *hint), width)
