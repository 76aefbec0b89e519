"""All panes of the dashboard at once: the one call the screen makes per tick."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Final

from msgspec import Struct
from msgspec.structs import replace

from pgtop_tune.runtime.load_control import LoadState
from pgtop_tune.runtime.ports import RecordingState
from pgtop_tune.runtime.session import Session
from pgtop_tune.runtime.window import Marks
from pgtop_tune.tui.dashboard.host import host_lines
from pgtop_tune.tui.dashboard.latency import CLOCK_ROWS, latency_lines
from pgtop_tune.tui.dashboard.session_rows import SessionRow, SessionsView, background_line, folded, session_rows
from pgtop_tune.tui.dashboard.sessions import sessions_lines
from pgtop_tune.tui.dashboard.throughput import throughput_lines
from pgtop_tune.tui.dashboard.waits import budget_lines, stacked_waits
from pgtop_tune.tui.dashboard.wal import wal_lines
from pgtop_tune.tui.scene.header import NO_PAGES, PageNames, footer_lines, header_lines
from pgtop_tune.tui.widgets import time_axis as tape
from pgtop_tune.tui.widgets.lines import PLAIN, Glyphs, Line
from pgtop_tune.tui.widgets.phrase import padded
from pgtop_tune.tui.widgets.time_axis import SPANS_S, SPARK_ROWS, axis_ticks, time_axis

if TYPE_CHECKING:
    from pgtop_tune.compare.overlay.curves import OverlayWatch

# The tape of events under both charts, in their columns.


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


_LOAD: Final = "load"
"""The word in the footer beside the key that starts one."""


class Look(Struct, frozen=True):
    """What the screen knows beyond the frames.

    Attributes:
        view: Order, filter and selection of the sessions.
        rows: The sessions that are listed, when the caller has them already, and
        background: the processes that share one line (`folded`),
        background_key: which this key lists; "" where there is none.
        span_s: What the charts show at least, of `SPANS_S`.
        keys: (key, word) rows of the footer.
        recording: Whether frames are being written; None where they cannot be.
        offset_s: How far the moment shown lies before the newest one; None at the newest.
        target: Who was asked for, shown while no server has answered yet.
        pages: Named in the footer.
        load: What of it goes on that frames do not show.
        marks: Windows that are marked.
        baseline: An earlier run under the charts.
        waits: The chart of waits that stands beside throughput and latency, when it has been drawn.
    """

    view: SessionsView = SessionsView()
    rows: Sequence[SessionRow] | None = None
    background: Sequence[SessionRow] = ()
    background_key: str = ""
    span_s: float = SPANS_S[0]
    keys: tuple[tuple[str, str], ...] = ()
    recording: RecordingState | None = None
    offset_s: float | None = None
    target: str = ""
    pages: PageNames = NO_PAGES
    load: LoadState | None = None
    marks: Marks = Marks()
    baseline: OverlayWatch | None = None
    waits: Sequence[Line] = ()


APART: Final = "  "
_BESIDE_FROM: Final = 160
"""Cells of a screen from which on the chart of waits stands beside the others,"""
_WAITS_SHARE: Final = 0.36
"""with this part of them."""


def chart_widths(width: int, rows: int) -> tuple[int, int]:
    """Cells of throughput and latency, and of the chart of waits beside them: 0 where there is no room.

    Args:
        width: Cells of the screen.
        rows: Rows of a pane.
    """
    if width < _BESIDE_FROM or rows <= SPARK_ROWS:
        return width, 0
    right = int(width * _WAITS_SHARE)
    return width - right - len(APART), right


Layout = Sequence[tuple[str, int]]
_Draw = Callable[[Session, int, int, Glyphs, Look, Layout], list[Line]]


def _tape(session: Session, width: int, height: int, glyphs: Glyphs, look: Look, layout: Layout) -> list[Line]:
    rows = dict(layout).get("throughput", 1)
    width_of_charts, _ = chart_widths(width, rows)
    drawn = tape_lines(
        session, width_of_charts, height, glyphs, chart_rows=rows, marks=look.marks.moments, span_s=look.span_s,
        clock=dict(layout).get("latency", 0) < CLOCK_ROWS,
    )  # fmt: skip
    return [padded(line, width) for line in drawn]


def _header(session: Session, width: int, height: int, glyphs: Glyphs, look: Look, layout: Layout) -> list[Line]:
    return header_lines(
        session, width, height, glyphs, recording=look.recording, offset_s=look.offset_s, target=look.target,
        load=look.load,
    )  # fmt: skip


def _sessions(session: Session, width: int, height: int, glyphs: Glyphs, look: Look, layout: Layout) -> list[Line]:
    rows, background = look.rows, look.background
    if rows is None:
        rows, background = folded(session_rows(session, look.view), look.view)
    line = background_line(background, width, glyphs, look.background_key) if background else ()
    return sessions_lines(session, width, height, glyphs, view=look.view, rows=rows, background=line)


def _plain(draw: Callable[[Session, int, int, Glyphs], list[Line]]) -> _Draw:
    def drawn(session: Session, width: int, height: int, glyphs: Glyphs, look: Look, layout: Layout) -> list[Line]:
        return draw(session, width, height, glyphs)

    return drawn


def _throughput(session: Session, width: int, height: int, glyphs: Glyphs, look: Look, layout: Layout) -> list[Line]:
    left, right = chart_widths(width, height)
    drawn = throughput_lines(session, left, height, glyphs, look.baseline, look.span_s)
    return _beside(drawn, look.waits[:height] if right else ())


def _latency(session: Session, width: int, height: int, glyphs: Glyphs, look: Look, layout: Layout) -> list[Line]:
    load_key = next((key for key, word in look.keys if word == _LOAD), "")
    left, right = chart_widths(width, height)
    drawn = latency_lines(session, left, height, glyphs, look.baseline, load_key, look.span_s)
    return _beside(drawn, look.waits[-height:] if right else ())


def _waits(session: Session, width: int, glyphs: Glyphs, look: Look, layout: Layout) -> list[Line]:
    """Sessions by wait class, as high as both charts together."""
    rows = dict(layout)
    throughput, latency = rows.get("throughput", 0), rows.get("latency", 0)
    _, right = chart_widths(width, throughput)
    height = throughput + (latency if latency > SPARK_ROWS else 0)
    return stacked_waits(session, right, height, glyphs, look.span_s) if right else []


def _beside(lines: list[Line], others: Sequence[Line]) -> list[Line]:
    if not others:
        return lines
    return [(*line, (APART, PLAIN), *other) for line, other in zip(lines, others, strict=True)]


_PANES: Final[dict[str, _Draw]] = {
    "header": _header,
    "host": _plain(host_lines),
    "throughput": _throughput,
    "latency": _latency,
    "tape": _tape,
    "budget": _plain(budget_lines),
    "wal": _plain(wal_lines),
    "sessions": _sessions,
    "footer": lambda session, width, height, glyphs, look, layout: [
        *footer_lines(look.keys, width, height, look.pages)
    ],
}


_PLAIN_LOOK: Final = Look()


def dashboard_lines(
    session: Session,
    layout: Layout,
    width: int,
    glyphs: Glyphs,
    look: Look = _PLAIN_LOOK,
) -> dict[str, list[Line]]:
    """Lines of every pane of a layout; each pane gets exactly its rows, each line exactly so many cells.

    Args:
        session: What is known.
        layout: As `dashboard_layout` gives it.
        width: Cells of the screen.
        glyphs: Characters.
        look: What the screen knows beyond the frames.
    """
    look = replace(look, waits=_waits(session, width, glyphs, look, layout))
    return {pane: _PANES[pane](session, width, rows, glyphs, look, layout) for pane, rows in layout}
