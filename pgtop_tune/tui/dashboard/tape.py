"""The tape of events under both charts, in their columns."""

from __future__ import annotations

from collections.abc import Iterable

from pgtop_tune.runtime.session import Session
from pgtop_tune.tui.widgets import tape
from pgtop_tune.tui.widgets.glyphs import Glyphs
from pgtop_tune.tui.widgets.lines import Line
from pgtop_tune.tui.widgets.phrase import padded
from pgtop_tune.tui.widgets.time_axis import SPANS_S, axis_ticks, time_axis


def tape_lines(
    session: Session,
    width: int,
    height: int,
    glyphs: Glyphs,
    *,
    chart_rows: int,
    marks: Iterable[tuple[float, bool]] = (),
    span_s: float = SPANS_S[0],
    clock: bool = False,
) -> list[Line]:
    """One line of marks and words.

    Args:
        session: Its events.
        width: Cells.
        height: 1.
        glyphs: Characters.
        chart_rows: Rows of a chart above: the tape has the same time axis.
        marks: As `Marks.moments`.
        span_s: Of `SPANS_S`, as above.
        clock: Whether times of day stand where no event does.
    """
    axis = time_axis(session, width, chart_rows, span_s)
    ticks = axis_ticks(session, axis) if clock else {}
    shown = [(at_s, event) for at_s, event in session.events if axis.since_s <= at_s < axis.until_s]
    drawn = tape.tape_lines(shown, axis.width, axis.since_s, axis.until_s, glyphs, marks, ticks)
    return [padded(line, width) for line in drawn][:height]
