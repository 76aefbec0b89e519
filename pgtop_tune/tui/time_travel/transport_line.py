"""Where a replay stands, in one line: playing or not, position and length, speed, a bar."""

from __future__ import annotations

from typing import Final

from pgtop_tune.base.units import clock, wall_clock, wall_moment
from pgtop_tune.runtime.ports import TransportState
from pgtop_tune.tui.widgets.glyphs import Glyphs
from pgtop_tune.tui.widgets.lines import PLAIN, Line, fit, width

_ROOM_FOR_TIME: Final = 70
_ROOM_FOR_DATE: Final = 100


def transport_line(state: TransportState, cells: int, glyphs: Glyphs, shown_ms: int | None = None) -> Line:
    """One line of so many cells.

    Args:
        state: Of the replay.
        cells: Width.
        glyphs: For the bar.
        shown_ms: When the frame shown was taken, milliseconds since the epoch; None before the first.
    """
    doing, style = _doing(state)
    figures: Line = (
        (" replay ", "title"), (doing.ljust(8), style), (clock(state.position_s), "strong"),
        (f" / {clock(state.length_s)}  ", PLAIN),
        *_taken(shown_ms, cells), (f"{state.speed:g}{glyphs.times} ".ljust(7), PLAIN),
    )  # fmt: skip
    room = cells - width(figures) - 1
    if room < 4:
        return fit(figures, cells)
    share = state.position_s / state.length_s if state.length_s > 0 else 1.0
    done = min(max(round(share * (room - 1)), 0), room - 1)
    played, left = glyphs.rule * done, glyphs.rule * (room - 1 - done)
    return (*figures, (played, "series-1"), (glyphs.bullet, "strong"), (left, "dim"))


def _taken(shown_ms: int | None, cells: int) -> Line:
    """The moment by the calendar, in the time zone of whoever looks; with little room only the time of day."""
    if shown_ms is None or cells < _ROOM_FOR_TIME:
        return ()
    said = wall_moment(shown_ms) if cells >= _ROOM_FOR_DATE else wall_clock(shown_ms)
    return ((f"{said}  ", "label"),)


def _doing(state: TransportState) -> tuple[str, str]:
    if state.at_end and state.growing and not state.paused:
        return "follows", "good"
    if state.at_end:
        return "end", "warning"
    return ("paused", "warning") if state.paused else ("playing", "good")
