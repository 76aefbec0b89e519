"""What differs between two windows of the session: read beside the screen, then a table that scrolls."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from textual import events

from pgtop_tune.errors import PgtopError, UsageProblem
from pgtop_tune.tui.compare.marks_line import span_words
from pgtop_tune.tui.dialogs.dialog import Dialog
from pgtop_tune.tui.terminal.clipboard import copy
from pgtop_tune.tui.widgets.glyphs import Glyphs
from pgtop_tune.tui.widgets.lines import Line
from pgtop_tune.tui.widgets.wrapping import wrapped
from pgtop_tune.units import duration

if TYPE_CHECKING:
    from pgtop_tune.compare.windows.differing import Brushed
    from pgtop_tune.model.frame import Frame
    from pgtop_tune.runtime.ports import FramesFrom
    from pgtop_tune.runtime.window import Window

_KEYS: Final = "y copy  Esc back"
_LOOK_S: Final = 0.5
_BREATH: Final = 20
"""Frames after which the screen gets the processor."""
_BREATH_S: Final = 0.002
_MISSING_S: Final = 5.0
"""Frames may be some seconds apart; what is missing beyond that is said."""


class WindowsDialog(Dialog[None]):
    """Reads both windows when it opens, and shows what differs until Escape.

    Args:
        frames: Gives the frames of the session from a moment on; used in a thread.
        pair: A and B.
        glyphs: What it is drawn with.
    """

    CELLS = 132
    LIVE = False

    def __init__(self, frames: FramesFrom, pair: tuple[Window, Window], glyphs: Glyphs) -> None:
        super().__init__("what differs", glyphs, keys=_KEYS)
        self._frames = frames
        self._pair = pair
        self._found: Brushed | None = None
        self._problem = ""
        self._read = 0
        self._notes: list[str] = []
        self._given_up = threading.Event()

    def on_mount(self) -> None:
        """Begins to read."""
        super().on_mount()
        self.run_worker(self._compare(), group="compare")
        self.set_interval(_LOOK_S, self._show_progress)

    def on_unmount(self) -> None:
        """Nobody waits for it any more."""
        self._given_up.set()

    async def _compare(self) -> None:
        try:
            self._found = await asyncio.to_thread(self._compute)
        except PgtopError as problem:
            self._problem = str(problem)
        self.repaint()

    def _show_progress(self) -> None:
        if self._found is None and not self._problem:
            self.repaint()

    def _compute(self) -> Brushed | None:
        from pgtop_tune.compare.windows.differing import brushed
        from pgtop_tune.compare.windows.window import LEAST_FRAMES, read_window

        sides = []
        for name, window in zip("AB", self._pair, strict=True):
            side = read_window(self._counted(window), window, name, self._given_up.is_set)
            if self._given_up.is_set():
                return None
            if side is None:
                raise UsageProblem(
                    f"there are fewer than {LEAST_FRAMES} frames of {name}, {span_words(window, self.glyphs)}",
                    "mark another window",
                )
            missing_s = side.since_s - window.since_s
            if missing_s > _MISSING_S:
                self._notes.append(f"the first {duration(missing_s)} of {name} are no longer in the history buffer")
            sides.append(side)
        return brushed(sides[0], sides[1])

    def _counted(self, window: Window) -> Iterator[Frame]:
        for frame in self._frames(window.since_s):
            if window.since_s <= frame.elapsed_s <= window.until_s:
                self._read += 1
                if self._read % _BREATH == 0:
                    time.sleep(_BREATH_S)
            yield frame

    def content(self, cells: int) -> list[Line]:
        """The windows, then the table."""
        lines: list[Line] = [
            ((f"{name}  ", "label"), (span_words(window, self.glyphs), "strong"))
            for name, window in zip("AB", self._pair, strict=True)
        ]
        lines.append(())
        if self._problem:
            return [*lines, *wrapped(self._problem, cells, "warning")]
        if self._found is None:
            return [*lines, ((f"reading, {self._read} frames so far {self.glyphs.ellipsis}", "dim"),)]
        from pgtop_tune.tui.compare.windows_drawing import differing_lines

        missing = [line for note in self._notes for line in wrapped(note, cells, "warning")]
        return [*lines[:-1], *missing, *differing_lines(self._found, cells, self.glyphs)]

    def on_key(self, event: events.Key) -> None:
        """Scrolling and copying."""
        if event.key == "y":
            self._copy()
        elif event.key == "enter":
            self.dismiss(None)
        elif not self.scroll_key(event.key):
            return
        event.stop()

    def _copy(self) -> None:
        if self._found is None:
            return
        from pgtop_tune.compare.reports.written import text
        from pgtop_tune.compare.windows.differing_words import window_sheets

        said = copy(self.app, text(window_sheets(self._found)), "the table is in your terminal's clipboard")
        self.app.notify(said, markup=False)
