"""A program for pty tests: one canvas; every key shows a picture and then sets the terminal's title to that key.

The title travels the same way as the picture, so that whoever reads the terminal knows when all of it has arrived.
"""

from __future__ import annotations

import asyncio
import signal
from typing import Final

from textual import events
from textual.app import App, ComposeResult
from textual.widgets import Label

from pgtop_tune.tui.palette import shipped_themes
from pgtop_tune.tui.terminal.thrifty_driver import ThriftyDriver
from pgtop_tune.tui.widgets.canvas import LineCanvas
from pgtop_tune.tui.widgets.lines import Line

HOSTILE: Final = (
    "\x1b[31mred\x1b]52;c;aGk=\x07\x1b]0;owned\x07\x9b2J\x9d0;x\x9c\u202egnp[bold]\n\t\r\x08\x7f\x00\udc80 end"
)


def shown(what: str) -> str:
    """The mark that follows what a key, or a size like "30x5", has brought onto the terminal."""
    return f"\x1b]0;shown {what}\x07"


_STEADY: Final[tuple[Line, ...]] = tuple(
    ((f"row {y} ", "label"), ("steady ", ""), ("12.5", "strong")) for y in range(6)
)

PICTURES: Final[dict[str, tuple[Line, ...]]] = {
    "a": _STEADY,
    "b": (*_STEADY[:3], (("row 3 ", "label"), ("steady ", ""), ("12.7", "strong")), *_STEADY[4:]),
    "h": (((HOSTILE, "critical"),), ((HOSTILE, ""), (HOSTILE, "dim"))),
    "w": ((("漢字 and 👩‍💻 and e\u0301 end", "series-1"),),),
}


class Probe(App[None]):
    """Shows pictures on keys; "m" lays a label over the canvas or takes it away, "r" repaints all.

    SIGUSR1 ends it. After "s" a resize does not end the sleep of the main thread.
    """

    CSS = """
    LineCanvas { width: 100%; height: 100%; }
    Label { layer: above; offset: 4 2; display: none; }
    Screen { layers: below above; overflow: hidden; }
    """

    def compose(self) -> ComposeResult:
        yield LineCanvas()
        yield Label("OVER IT")

    def on_mount(self) -> None:
        for theme in shipped_themes().values():
            self.register_theme(theme)
        self.theme = "dark"
        asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, self.exit)

    def on_key(self, event: events.Key) -> None:
        if event.key == "m":
            label = self.query_one(Label)
            label.display = not label.display
        if event.key == "r":
            self.screen.refresh()
        if event.key == "s":
            # The kernel hands the signal to another thread, so that it does not end the sleep of this one.
            signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGWINCH})
        if event.key in PICTURES:
            self.query_one(LineCanvas).show(PICTURES[event.key])
        self._tell_when_painted(event.character if event.is_printable and event.character else event.key)

    def on_resize(self, event: events.Resize) -> None:
        self._tell_when_painted(f"{event.size.width}x{event.size.height}")

    def _tell_when_painted(self, what: str) -> None:
        # The first refresh may come before the canvas has told the screen that it wants one; the second cannot.
        canvas = self.query_one(LineCanvas)
        canvas.call_after_refresh(canvas.call_after_refresh, self._tell, what)

    def _tell(self, what: str) -> None:
        assert self._driver is not None
        self._driver.write(shown(what))


if __name__ == "__main__":
    Probe(driver_class=ThriftyDriver).run(mouse=False)
