"""What stands there when the terminal has no room for a picture."""

from __future__ import annotations

from typing import ClassVar, Final

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.geometry import Size
from textual.screen import Screen

from pgtop_tune.tui.widgets.canvas import LineCanvas
from pgtop_tune.tui.widgets.wrapping import wrapped

LEAST_WIDTH: Final = 60
LEAST_HEIGHT: Final = 15


def is_too_small(size: Size) -> bool:
    """Whether the dashboard would be a broken picture."""
    return size.width < LEAST_WIDTH or size.height < LEAST_HEIGHT


class TooSmall(Screen[None]):
    """One sentence; goes away by itself once there is room again."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("q,ctrl+c", "app.quit", show=False)]
    DEFAULT_CSS = """
    TooSmall { overflow: hidden; }
    TooSmall > LineCanvas { width: 100%; height: 100%; }
    """

    def compose(self) -> ComposeResult:
        """A canvas as large as there is."""
        yield LineCanvas()

    def on_mount(self) -> None:
        """First sentence."""
        self.call_after_refresh(self._look)

    def on_resize(self, event: events.Resize) -> None:
        """Another size, perhaps a sufficient one."""
        self.call_after_refresh(self._look)

    def on_screen_resume(self) -> None:
        """A dialog above it has closed; meanwhile there may be room."""
        self.call_after_refresh(self._look)

    def _look(self) -> None:
        size = self.app.size
        if not is_too_small(size):
            if self.is_current and self.app.screen is self:
                self.dismiss(None)
            return
        words = (
            f"The terminal has {size.width} columns and {size.height} rows; the screen needs "
            f"{LEAST_WIDTH} and {LEAST_HEIGHT}. Sampling and recording continue. q leaves."
        )
        self.query_one(LineCanvas).show(wrapped(words, max(size.width, 2)))
