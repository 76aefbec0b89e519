"""The time axis that both charts and the tape share, so that marks stand under the curves they explain."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby, pairwise
from math import inf
from typing import Final

from rich.cells import cell_len, set_cell_size

from pgtop_tune.base.safe_text import one_line
from pgtop_tune.base.units import wall_clock
from pgtop_tune.compare.statistics.before_after import CONDITIONS
from pgtop_tune.metrics import host_details, waits
from pgtop_tune.metrics.load import CLIENT_TPS, OPEN_WHILE_STALLED
from pgtop_tune.metrics.server import TPS
from pgtop_tune.model.events import Event, EventKind
from pgtop_tune.runtime.history import Charted
from pgtop_tune.runtime.session import Session
from pgtop_tune.tui.widgets.chart import (
    GUTTER,
    LEGEND,
    ArmBand,
    ChartMark,
    TimeAxis,
    bands_of_columns,
    spark,
    window,
)
from pgtop_tune.tui.widgets.lines import PLAIN, Glyphs, Line, Span
from pgtop_tune.tui.widgets.phrase import Phrase, fitting, padded

# The tape: one line of event marks under the charts, each in the chart's column of its moment.

_SHORTEST: Final = 6
"""Cells below which a cut text says nothing: the mark stands alone."""
_LONGEST: Final = 60
_MARKS: Final[dict[EventKind, tuple[str, str]]] = {
    EventKind.DEADLOCK: ("cross", "critical"),
    EventKind.RESTART: ("square", "critical"),
    EventKind.ROLE: ("square", "critical"),
    EventKind.CONNECTION: ("cross", "warning"),
    EventKind.GAP: ("cross", "warning"),
    EventKind.PARAMETER: ("up", "event-parameter"),
    EventKind.SWITCH: ("switch", "event-switch"),
    EventKind.NOTE: ("note", "event-other"),
    EventKind.LOAD: ("up", "event-load"),
    EventKind.WARNING: ("warning", "warning"),
    EventKind.RESET: ("ring", "warning"),
    EventKind.PRESSURE: ("warning", "warning"),
    EventKind.CHECKPOINT: ("diamond", "event-checkpoint"),
    EventKind.RECORDING: ("bullet", "event-other"),
    EventKind.AUTOVACUUM: ("down", "event-other"),
}
"""Field of `Glyphs` and style per kind; the first kinds win a column, and room for their words, from later ones."""
_RANK: Final = {kind: rank for rank, kind in enumerate(_MARKS)}


_NO_TICKS: Final[Mapping[int, str]] = {}


def event_style(kind: EventKind) -> str:
    """Return the style an event is drawn in, on the tape and in a chart."""
    return _MARKS[kind][1]


def event_glyph(kind: EventKind, glyphs: Glyphs) -> str:
    """Return the mark an event is drawn with."""
    return str(getattr(glyphs, _MARKS[kind][0]))


def tape_line(
    events: Iterable[tuple[float, Event]],
    axis: TimeAxis,
    glyphs: Glyphs,
    marks: Iterable[tuple[float, bool]] = (),
    ticks: Mapping[int, str] = _NO_TICKS,
) -> Line:
    """Return a line as wide as the axis: a mark per column with events, and as many of their words as fit.

    Args:
        events: (moment on the session's clock, event), as in `Session.events`; in any order. Words may be foreign.
        axis: That of the charts above.
        glyphs: For the marks of events.
        marks: (moment, whether it is an end) of marked windows; a mark wins its column.
        ticks: Times of day by column, where no event stands.
    """
    columns = axis.columns
    if columns < 1:
        return ((" " * max(axis.width, 0), PLAIN),)
    marked: dict[int, Event] = {}
    for at_s, event in events:
        column = axis.column_of(at_s)
        if column is not None and (column not in marked or _RANK[event.kind] <= _RANK[marked[column].kind]):
            marked[column] = event
    brackets = {
        column: ("]" if end else "[", "key") for at_s, end in marks if (column := axis.column_of(at_s)) is not None
    }
    occupied = bytearray(columns)
    for column in brackets:
        occupied[column] = 1
    for column in marked:
        occupied[column] = 1
    placed: dict[int, Span] = {
        column: (_mark(event, glyphs), event_style(event.kind)) for column, event in marked.items()
    }
    for column in sorted(marked, key=lambda column: (_RANK[marked[column].kind], -column)):
        event = marked[column]
        # Arms follow each other every few cells: their letters say it.
        text = "" if _is_arm(event) else one_line(event.text, _LONGEST)
        start, text = _room(text, column, occupied, glyphs)
        if text:
            cells = cell_len(text)
            occupied[start : start + cells] = b"\1" * cells
            placed[start] = (text, event_style(event.kind))
    placed |= brackets
    for column, text in ticks.items():
        label = glyphs.tick + text
        if not any(occupied[column : column + len(label) + 1]):
            placed[column] = (label, "dim")
    spans: list[Span] = [(f"{'tape':>{GUTTER - 2}}  ", "dim")]
    at = 0
    for start in sorted(placed):
        if start > at:
            spans.append((" " * (start - at), PLAIN))
        spans.append(placed[start])
        at = start + cell_len(placed[start][0])
    if at < columns:
        spans.append((" " * (columns - at), PLAIN))
    return tuple(spans)


def _is_arm(event: Event) -> bool:
    return event.kind is EventKind.SWITCH and event.text[1:2] == ":"


def _mark(event: Event, glyphs: Glyphs) -> str:
    return event.text[0] if _is_arm(event) else event_glyph(event.kind, glyphs)


def _room(text: str, column: int, occupied: bytearray, glyphs: Glyphs) -> tuple[int, str]:
    """Return where the words stand and how much of them: right of the mark whole, left of it whole, right of it cut,
    nowhere.
    """
    columns = len(occupied)
    needed = cell_len(text)
    right = column + 1
    end = occupied.find(1, right)
    free = (columns if end < 0 else end - 1) - right
    if needed <= free:
        return right, text
    begin = occupied.rfind(1, 0, column) + 1
    if needed <= column - begin - (1 if begin else 0):
        return column - needed, text
    if free >= _SHORTEST:
        return right, set_cell_size(text, free - 1) + glyphs.ellipsis
    return 0, ""


CHARTED: Final[tuple[Charted, ...]] = (
    *(CLIENT_TPS, TPS, OPEN_WHILE_STALLED),
    *waits.METRICS,
    *host_details.CHARTED,
    *(condition.metric for condition in CONDITIONS),
)
"""What a `Session` for this screen must keep series of."""

SPARK_ROWS: Final = 2
"""Up to so many rows a chart is a one-line spark with its figures beside it."""
ARMS: Final = ("A: ", "B: ")
"""How the text of a switch to an arm begins."""
_MARKED: Final = {EventKind.PARAMETER, EventKind.LOAD, EventKind.RESTART, EventKind.ROLE}
"""Kinds of events that go through the charts as an upright; the others stand on the tape alone."""
SPANS_S: Final = (180.0, 600.0, 3600.0, inf, 60.0)
"""What the charts show at least, the usual first; inf is everything. A column of 2 s moves half as many cells."""
_COLUMN_S: Final = (1, 2, 3, 4, 5, 6, 8, 10, 12, 15, 20, 30, 40, 60, 80, 100, 120, 150, 180, 240, 300, 400, 600)
_NEARLY: Final = 0.8
"""A window that lacks no more than the rest of it does for one of that length."""
_TICK_S: Final = (10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400)
_TICK_CELLS: Final = 12
"""Cells between two times of day at least."""


def time_axis(
    session: Session, width: int, chart_rows: int, span_s: float = SPANS_S[0], legend: int = LEGEND
) -> TimeAxis:
    """Return the window of both charts and the tape at this moment.

    Args:
        session: Its newest frame is now.
        width: Cells of the panes.
        chart_rows: Rows of a chart; decides between a picture and a spark.
        span_s: Of `SPANS_S`: so much is shown at least, in whole seconds per column.
        legend: Cells for the legend of a chart.
    """
    beside = max(width // 2 - 1, min(width - GUTTER - 8, 38)) if chart_rows <= SPARK_ROWS else legend
    drawn = width - beside
    columns = max(drawn - GUTTER, 1)
    now_s = session.now.elapsed_s if session.now is not None else 0.0
    wanted_s = max(now_s + 1.0, SPANS_S[0]) if span_s == inf else span_s
    column_s = next((seconds for seconds in _COLUMN_S if columns * seconds >= _NEARLY * wanted_s), _COLUMN_S[-1])
    since_s, until_s = window(now_s, columns, float(column_s))
    return TimeAxis(since_s=since_s, until_s=until_s, width=drawn, beside=beside)


def axis_ticks(session: Session, axis: TimeAxis) -> dict[int, str]:
    """Return times of day by column, on round minutes or parts of one."""
    if session.now is None:
        return {}
    offset_s = round(session.now.taken_at_ms / 1000.0 - session.now.elapsed_s)
    apart_s = next((seconds for seconds in _TICK_S if seconds >= _TICK_CELLS * axis.column_s), _TICK_S[-1])
    first = -int(-(axis.since_s + offset_s) // apart_s) * apart_s
    ticks = {}
    for at_s in range(first, int(axis.until_s + offset_s) + 1, apart_s):
        column = axis.column_of(at_s - offset_s)
        text = wall_clock(at_s * 1000)[: 5 if apart_s % 60 == 0 else 8]
        if column is not None and column + len(text) < axis.columns:
            ticks[column] = text
    return ticks


def axis_line(session: Session, axis: TimeAxis, glyphs: Glyphs) -> Line:
    """Return a line of times of day under a chart."""
    cells = [glyphs.rule] * axis.columns
    for column, text in axis_ticks(session, axis).items():
        cells[column : column + len(text) + 1] = [glyphs.tick, *text]
    return ((" " * (GUTTER - 1) + glyphs.rule + "".join(cells) + " " * axis.beside, "dim"),)


def chart_marks(session: Session, axis: TimeAxis) -> list[ChartMark]:
    """Change that an operator looks for in a curve."""
    return [ChartMark(at_s) for at_s, event in session.events if event.kind in _MARKED and at_s >= axis.since_s]


def arm_bands(session: Session) -> list[ArmBand]:
    """Return the times in which the arms of experiments were in force, from the events."""
    switches = [(at_s, event.text) for at_s, event in session.events if event.kind is EventKind.SWITCH]
    return [
        ArmBand(since_s, until_s, text[0])
        for (since_s, text), (until_s, _) in pairwise([*switches, (inf, "")])
        if text.startswith(ARMS)
    ]


def spark_line(
    title: str,
    values: Sequence[float | None],
    style: str,
    figures: Sequence[Phrase],
    axis: TimeAxis,
    glyphs: Glyphs,
    bands: Sequence[ArmBand] = (),
) -> Line:
    """Return a chart in one line: its name in the gutter, a value per column of the common axis, figures beside it.

    Within a band the curve has the style of its arm.
    """
    gap: Span = ("  ", "dim")
    beside = padded(fitting(figures, axis.beside - 2, gap), axis.beside - 2)
    drawn = spark(values, axis.columns, glyphs)
    of_columns = bands_of_columns(bands, axis.since_s, axis.until_s, axis.columns)
    styles = [of_columns[column].style if column in of_columns else style for column in range(axis.columns)]
    runs = groupby(zip(drawn, styles, strict=True), lambda cell: cell[1])
    curve = [("".join(character for character, _ in cells), run_style) for run_style, cells in runs]
    return ((f" {title:<{GUTTER - 1}}", "title"), *curve, gap, *beside)
