"""A screen of panes for the mouse: a click does what stands in its cell, a drag through a chart marks a window."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from textual import events
from textual.errors import NoWidget
from textual.screen import Screen

from pgtop_tune.tui.scene.mouse import LEAST_DRAG, WHEEL_ROWS, MomentChosen, WindowDragged, key_at
from pgtop_tune.tui.widgets.lines import Line


class MouseScreen(Screen[None]):
    """Knows the lines of its panes as they are drawn, and turns places on them into what they mean."""

    def __init__(self) -> None:
        super().__init__()
        self._drawn: Mapping[str, Sequence[Line]] = {}
        self._pressed: tuple[str, int, int] | None = None

    @property
    def typing(self) -> bool:
        """Whether keys go into a line of text; then the mouse does nothing."""
        raise NotImplementedError

    async def press_shown(self, key: str) -> bool:
        """Does what a key does that stands on the screen; whether it is a key of this screen."""
        raise NotImplementedError

    def moment_at(self, pane: str, x: int, y: int) -> float | None:
        """The moment that a cell of a pane shows, on the session's clock; None where the pane shows no time."""
        return None

    def clicked_in(self, pane: str, x: int, y: int) -> None:
        """A click that hit no key and no chart."""

    def action_move(self, by: int) -> None:
        """Moves the selection; each screen has its own."""
        raise NotImplementedError

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        """The wheel moves the selection."""
        self.action_move(WHEEL_ROWS)

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        """The wheel moves the selection."""
        self.action_move(-WHEEL_ROWS)

    def on_mouse_down(self, event: events.MouseDown) -> None:
        """Where a click or a drag begins."""
        self._pressed = self._hit(event)

    async def on_mouse_up(self, event: events.MouseUp) -> None:
        """A drag through charts marks a window; a button let go where it was pressed is a click."""
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
        if at_s is not None:
            self.post_message(MomentChosen(at_s))
        else:
            self.clicked_in(pane, x, y)

    def _hit(self, event: events.MouseEvent) -> tuple[str, int, int]:
        """The pane under the pointer, and the cell in it."""
        at = event.screen_offset
        try:
            widget, region = self.get_widget_at(*at)
        except NoWidget:
            return "", 0, 0
        return widget.id or "", at.x - region.x, at.y - region.y
