"""The operator's marks on the tape, and the way to what differs between them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from textual.app import App

from pgtop_tune.runtime.window import Marks

if TYPE_CHECKING:
    from pgtop_tune.model.frame import Frame
    from pgtop_tune.runtime.ports import FramesFrom
    from pgtop_tune.tui.widgets.glyphs import Glyphs


class WindowMarking:
    """Sets marks and opens the table.

    Args:
        app: Where the table is shown.
        frames: What has been.
        glyphs: What the table is drawn with.

    Attributes:
        marks: What is marked.
    """

    def __init__(self, app: App[Any], frames: FramesFrom, glyphs: Glyphs) -> None:
        self._app = app
        self._frames = frames
        self._glyphs = glyphs
        self.marks = Marks()

    def mark(self, shown: Frame | None, *, end: bool) -> None:
        """Begins or ends a window at the moment shown; a second window that ends shows the table."""
        if shown is None:
            self._tell("there is no frame yet")
            return
        before = self.marks
        self.marks = before.end(shown.elapsed_s) if end else before.begin(shown.elapsed_s)
        if end and self.marks == before:
            self._tell("a window ends after its start: set the start first, at an earlier time")
        elif len(self.marks.windows) == 2 and before.begun_s is not None and end:
            self.show()

    def clear(self) -> None:
        """Forgets everything."""
        self.marks = Marks()

    def show(self) -> None:
        """Opens the table."""
        from pgtop_tune.tui.compare.windows_dialog import WindowsDialog

        pair = self.marks.pair
        if pair is None:
            self._tell("no window is marked: [ starts one and ] ends it, at the time shown")
        elif pair[0].overlaps(pair[1]):
            self._tell("the two windows overlap: mark separate ones")
        elif pair[0].seconds <= 0:
            self._tell("there is no time before this window: mark a second window")
        else:
            self._app.push_screen(WindowsDialog(self._frames, pair, self._glyphs))

    def _tell(self, words: str) -> None:
        self._app.notify(words, markup=False, severity="warning")
