"""Windows marked on the tape, and the way to what differs between them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pgtop_tune.runtime.window import Marks

if TYPE_CHECKING:
    from pgtop_tune.tui.app_context import Actions, AppContext
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

    def actions(self) -> Actions:
        """By name."""
        return {"mark": self.mark, "compare_windows": self.compare}

    def mark(self, end: bool = False) -> None:
        """Begins or ends a window at the moment shown; a second window that ends shows the table."""
        shown = self._time_travel.shown.now
        if shown is None:
            self._warn("there is no frame yet to mark")
            return
        before = self.marks
        self.marks = before.end(shown.elapsed_s) if end else before.begin(shown.elapsed_s)
        if end and self.marks == before:
            self._warn("a window ends after its begin: set the begin first, at another moment")
        elif len(self.marks.windows) == 2 and before.begun_s is not None and end:
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
            self._warn("nothing is marked: a window begins with [ and ends with ], at the moment shown")
        elif pair[0].overlaps(pair[1]):
            self._warn("the two windows overlap: what is in both cannot differ")
        elif pair[0].seconds <= 0:
            self._warn("there is no time before this window: mark a second one")
        else:
            self._context.app.push_screen(WindowsDialog(frames, pair, self._context.glyphs))

    def _warn(self, message: str) -> None:
        self._context.tell(message, "warning")
