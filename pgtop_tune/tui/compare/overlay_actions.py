"""The operator's hand on ghosts: chooses an earlier run, has it read beside the screen, lets it go."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from textual.app import App

from pgtop_tune.compare.overlay.curves import Overlay
from pgtop_tune.compare.overlay.difference import OverlayWatch
from pgtop_tune.errors import PgtopError
from pgtop_tune.safe_text import printable_lines

if TYPE_CHECKING:
    from pgtop_tune.compare.overlay.curves import OverlayShelf
    from pgtop_tune.model.frame import Frame
    from pgtop_tune.tui.widgets.glyphs import Glyphs


class OverlayActions:
    """Switches a ghost on and off.

    Args:
        app: Where the list is shown.
        shelf: What there is.
        glyphs: What the list is drawn with.
        changed: Called when another picture is to be drawn: a replay may stand still.
    """

    def __init__(self, app: App[Any], shelf: OverlayShelf, glyphs: Glyphs, changed: Callable[[], None]) -> None:
        self._app = app
        self._shelf = shelf
        self._glyphs = glyphs
        self._changed = changed
        self._wanted: Path | None = None
        self._watch: OverlayWatch | None = None

    def watch(self, shown: Frame | None) -> OverlayWatch | None:
        """The ghost that is on, with its place under that frame; None without."""
        if self._watch is not None:
            self._watch.overlay.follow(shown)
        return self._watch

    def turn(self) -> None:
        """Off, or on after a question which."""
        if self._wanted is not None:
            self._wanted = self._watch = None
            return
        from pgtop_tune.tui.compare.overlay_dialog import OverlayDialog

        self._app.push_screen(OverlayDialog(self._shelf, self._glyphs), self.take)

    def take(self, path: Path | None) -> None:
        """Begins to read a file as the ghost; None is none."""
        if path is not None:
            self._wanted, self._watch = path, None
            self._app.run_worker(self._read(path), group="ghost", exclusive=True)

    async def _read(self, path: Path) -> None:
        reading = self._shelf.read(path)
        overlay: Overlay | None = None
        try:
            while (ghost := await asyncio.to_thread(next, reading, None)) is not None:
                if self._wanted is not path:
                    return
                if overlay is None:
                    overlay = Overlay(ghost)
                    self._watch = OverlayWatch(overlay, reading=True)
                overlay.ghost = ghost
                self._changed()
            if overlay is not None and self._watch is not None:
                self._watch = OverlayWatch(overlay, reading=False)
                self._changed()
        except PgtopError as problem:
            if self._wanted is path:
                self._wanted = self._watch = None
            self._app.notify("\n".join(printable_lines(f"no overlay: {problem}")), markup=False, severity="error")
        finally:
            await asyncio.to_thread(reading.close)
