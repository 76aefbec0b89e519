"""What came out of a load: one run, or the steps with a page for each."""

from __future__ import annotations

from typing import Final

from textual import events

from pgtop_tune.runtime.load_control import LoadSeries
from pgtop_tune.tui.dialogs.dialog import Dialog
from pgtop_tune.tui.load.result_drawing import result_lines
from pgtop_tune.tui.load.steps_drawing import steps_lines
from pgtop_tune.tui.terminal.clipboard import copy
from pgtop_tune.tui.widgets.glyphs import Glyphs
from pgtop_tune.tui.widgets.lines import Line, text_of

_KEYS: Final = "y copy  Esc back"
_AROUND: Final = 2
"""Rows of the frame."""
_TURN: Final = {"right": 1, "l": 1, "tab": 1, "left": -1, "h": -1, "shift+tab": -1}


class ResultsDialog(Dialog[None]):
    """Shows records until it is closed; of steps first the whole, then each run.

    Args:
        series: With at least one result.
        glyphs: What it is drawn with.
    """

    CELLS = 116

    def __init__(self, series: LoadSeries, glyphs: Glyphs) -> None:
        self._series = series
        self._page = 0
        self._pages = 1 if not series.axis else 1 + len(series.results)
        super().__init__(self._title(), glyphs, keys=self._keys())

    def _title(self) -> str:
        if not self._series.axis:
            return "result"
        if self._page == 0:
            return f"steps: {len(self._series.results)} of {self._series.asked}"
        return f"step {self._page} of {len(self._series.results)}"

    def _keys(self) -> str:
        return _KEYS if self._pages == 1 else f"left, right each step  {_KEYS}"

    def content(self, cells: int) -> list[Line]:
        """The page in view."""
        series = self._series
        if series.axis and self._page == 0:
            return steps_lines(series, cells, self.app.size.height - _AROUND, self.glyphs)
        return result_lines(series.results[max(self._page - 1, 0)], cells, self.glyphs)

    def on_key(self, event: events.Key) -> None:
        """Turning pages, scrolling, copying."""
        if event.key == "y":
            text = "\n".join(text_of(line).rstrip() for line in self.content(self.cells))
            self.app.notify(copy(self.app, text, "the result is in your clipboard"), markup=False)
        elif event.key == "enter":
            self.dismiss(None)
        elif event.key in _TURN and self._pages > 1:
            self._page = (self._page + _TURN[event.key]) % self._pages
            self.captions(self._title(), self._keys())
            self.show_from(0)
        elif not self.scroll_key(event.key):
            return
        event.stop()
