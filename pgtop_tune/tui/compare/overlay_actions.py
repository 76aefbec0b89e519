"""An earlier run under the charts: chosen, read beside the screen, and let go."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from pgtop_tune.compare.overlay.curves import Overlay
from pgtop_tune.compare.overlay.difference import OverlayWatch
from pgtop_tune.errors import PgtopError

if TYPE_CHECKING:
    from pathlib import Path

    from pgtop_tune.compare.overlay.curves import OverlayShelf
    from pgtop_tune.model.frame import Frame
    from pgtop_tune.tui.app_context import Actions, AppContext


class OverlayActions:
    """Switches a baseline overlay on and off.

    Args:
        context: The application.
    """

    def __init__(self, context: AppContext) -> None:
        self._context = context
        self._shelf = context.controls.overlays
        self._path: Path | None = None
        self._watch: OverlayWatch | None = None

    def actions(self) -> Actions:
        """By name."""
        return {"overlay": self.turn}

    def watch(self, shown: Frame | None) -> OverlayWatch | None:
        """The overlay that is on, with its place under that frame; None without."""
        if self._watch is not None:
            self._watch.overlay.follow(shown)
        return self._watch

    def begin(self) -> None:
        """Reads the run that was asked for with the screen, if there is one."""
        self._take(self._context.options.overlay)

    def turn(self) -> None:
        """Off, or on after a question which."""
        if self._path is not None:
            self._path = self._watch = None
            self._context.repaint()
        elif self._shelf is not None:
            from pgtop_tune.tui.compare.overlay_dialog import OverlayDialog

            self._context.app.push_screen(OverlayDialog(self._shelf, self._context.glyphs), self._take)

    def _take(self, path: Path | None) -> None:
        if path is not None and self._shelf is not None:
            self._path, self._watch = path, None
            self._context.app.run_worker(self._read(self._shelf, path), group="overlay", exclusive=True)

    async def _read(self, shelf: OverlayShelf, path: Path) -> None:
        reading = shelf.read(path)
        overlay: Overlay | None = None
        try:
            while (curves := await asyncio.to_thread(next, reading, None)) is not None:
                if self._path is not path:
                    return
                if overlay is None:
                    overlay = Overlay(curves)
                    self._watch = OverlayWatch(overlay, reading=True)
                overlay.ghost = curves
                self._context.repaint()
            if overlay is not None and self._watch is not None:
                self._watch = OverlayWatch(overlay, reading=False)
                self._context.repaint()
        except PgtopError as problem:
            if self._path is path:
                self._path = self._watch = None
            self._context.tell(f"no ghost: {problem}", "error")
        finally:
            await asyncio.to_thread(reading.close)
