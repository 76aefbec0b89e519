"""The latency heatmap over the screen, as large as the terminal; follows the frames shown."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pgtop_tune.runtime.session import Session
from pgtop_tune.tui.dashboard.heatmap import heatmap_lines
from pgtop_tune.tui.dialogs.dialog import Dialog
from pgtop_tune.tui.widgets.glyphs import Glyphs
from pgtop_tune.tui.widgets.lines import Line

_FRAME_ROWS: Final = 2


class HeatmapDialog(Dialog[None]):
    """Shows the heatmap for as long as it is open.

    Args:
        session: What the screen shows.
        glyphs: What it is drawn with.
    """

    CELLS = 1_000
    LIVE = False

    def __init__(self, session: Session, glyphs: Glyphs) -> None:
        super().__init__("latency heatmap: how many transactions took how long", glyphs, keys="Esc back")
        self._session = session

    def content(self, cells: int) -> Sequence[Line]:
        """The map as it is now."""
        return heatmap_lines(self._session, cells, self.app.size.height - _FRAME_ROWS, self.glyphs)

    def frames_arrived(self, session: Session) -> None:
        """A newer look."""
        self._session = session
        self.repaint()
