"""Windows marked on the tape and what differs between them; an earlier run under the charts."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from pgtop_tune.base.errors import PgtopError
from pgtop_tune.runtime.window import Marks
from pgtop_tune.tui.compare.marks_line import began_ms

if TYPE_CHECKING:
    from pathlib import Path

    from pgtop_tune.compare.overlay.curves import Overlay, OverlaySource, OverlayWatch
    from pgtop_tune.model.frame import Frame
    from pgtop_tune.tui.app_context import AppContext
    from pgtop_tune.tui.compare.overlay_dialog import OverlayChoice
    from pgtop_tune.tui.time_travel.actions import TimeTravel


class WindowActions:
    """Sets marks and opens the table.

    Args:
        context: The application.
        time_travel: The moment shown, which is marked.

    Attributes:
        marks: What is marked.
    """

    def __init__(self, context: AppContext, time_travel: TimeTravel) -> None:
        self._context = context
        self._time_travel = time_travel
        self.marks = Marks()

    def mark(self, end: bool = False) -> None:
        """Begins or ends a window at the moment shown; a second window that ends shows the table."""
        shown = self._time_travel.shown.now
        if shown is None:
            self._warn("there is no frame yet")
            return
        before = self.marks
        self.marks = before.end(shown.elapsed_s) if end else before.begin(shown.elapsed_s)
        if end and self.marks == before:
            self._warn("a window ends after its start: set the start first, at an earlier time")
        elif len(self.marks.windows) == 2 and before.begun_s is not None and end:
            self.compare()
        self._context.repaint()

    def mark_between(self, since_s: float, until_s: float) -> None:
        """Marks a window; the second one shows the table."""
        if self._context.controls.frames is None:
            return
        self.marks = self.marks.begin(since_s).end(until_s)
        if len(self.marks.windows) == 2:
            self.compare()
        self._context.repaint()

    def clear(self) -> None:
        """Forgets everything."""
        if self.marks:
            self.marks = Marks()
            self._context.repaint()

    def compare(self) -> None:
        """Opens the table."""
        from pgtop_tune.tui.compare.windows_dialog import WindowsDialog

        frames, pair = self._context.controls.frames, self.marks.pair
        if frames is None or pair is None:
            self._warn("no window is marked: [ starts one and ] ends it, at the time shown")
        elif pair[0].overlaps(pair[1]):
            self._warn("the two windows overlap: mark separate ones")
        elif pair[0].seconds <= 0:
            self._warn("there is no time before this window: mark a second window")
        else:
            began = began_ms(self._time_travel.shown)
            self._context.app.push_screen(WindowsDialog(frames, pair, self._context.glyphs, began))

    def _warn(self, message: str) -> None:
        self._context.tell(message, "warning")


class OverlayActions:
    """Switches a baseline overlay on and off.

    Args:
        context: The application.
    """

    def __init__(self, context: AppContext) -> None:
        self._context = context
        self._overlay_source = context.controls.overlays
        self._chosen: OverlayChoice | None = None
        self._watch: OverlayWatch | None = None

    def watch(self, shown: Frame | None) -> OverlayWatch | None:
        """The overlay that is on, with its place under that frame; None without."""
        if self._watch is not None:
            self._watch.overlay.follow(shown)
        return self._watch

    def begin(self) -> None:
        """Reads the run that was asked for with the screen, if there is one."""
        if self._context.options.overlay is not None:
            from pgtop_tune.tui.compare.overlay_dialog import OverlayChoice

            self._take(OverlayChoice(self._context.options.overlay))

    def turn(self) -> None:
        """Off, or on after a question which."""
        if self._chosen is not None:
            self._chosen = self._watch = None
            self._context.repaint()
        elif self._overlay_source is not None:
            from pgtop_tune.tui.compare.overlay_dialog import OverlayDialog

            self._context.app.push_screen(OverlayDialog(self._overlay_source, self._context.glyphs), self._take)

    def _take(self, chosen: OverlayChoice | None) -> None:
        if chosen is None or self._overlay_source is None:
            return
        self._chosen, self._watch = chosen, None
        if chosen.path is None:
            from pgtop_tune.compare.overlay.curves import AgoOverlay, OverlayWatch

            self._watch = OverlayWatch(AgoOverlay(self._context.live, chosen.ago_s), reading=False)
            self._context.repaint()
        else:
            reading = self._read(self._overlay_source, chosen, chosen.path)
            self._context.app.run_worker(reading, group="overlay", exclusive=True)

    async def _read(self, overlay_source: OverlaySource, chosen: OverlayChoice, path: Path) -> None:
        from pgtop_tune.compare.overlay.curves import ClockOverlay, Overlay, OverlayWatch

        kind = ClockOverlay if chosen.by_clock else Overlay
        reading = overlay_source.read(path)
        overlay: Overlay | None = None
        try:
            while (curves := await asyncio.to_thread(next, reading, None)) is not None:
                if self._chosen is not chosen:
                    return
                if overlay is None:
                    overlay = kind(curves)
                    self._watch = OverlayWatch(overlay, reading=True)
                overlay.baseline = curves
                self._context.repaint()
            if overlay is not None and self._watch is not None:
                self._watch = OverlayWatch(overlay, reading=False)
                self._context.repaint()
        except PgtopError as problem:
            if self._chosen is chosen:
                self._chosen = self._watch = None
            self._context.tell(f"no overlay: {problem}", "error")
        finally:
            await asyncio.to_thread(reading.close)
