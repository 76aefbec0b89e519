"""The time axis that both charts and the tape share, so that marks stand under the curves they explain."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby, pairwise
from math import inf
from typing import Final

from msgspec import Struct

from pgtop_tune.compare.statistics.verdicts import CONDITIONS
from pgtop_tune.metrics import waits
from pgtop_tune.metrics.load import CLIENT_TPS
from pgtop_tune.metrics.server import TPS
from pgtop_tune.model.events import EventKind
from pgtop_tune.runtime.history import Charted, SeriesPoint
from pgtop_tune.runtime.session import Session
from pgtop_tune.tui.widgets.chart import GUTTER, ArmBand, ChartMark, bands_of_columns, column_of, spark, window
from pgtop_tune.tui.widgets.glyphs import Glyphs
from pgtop_tune.tui.widgets.lines import Line, Span
from pgtop_tune.tui.widgets.phrase import Phrase, fitting, padded

CHARTED: Final[tuple[Charted, ...]] = (CLIENT_TPS, TPS, *waits.METRICS, *(each.metric for each in CONDITIONS))
"""What a `Session` for this screen must keep series of."""

SPARK_ROWS: Final = 2
"""Up to so many rows a chart is a one-line spark with its figures beside it."""
ARMS: Final = ("A: ", "B: ")
"""How the text of a switch to an arm begins."""
_SPARK_S_PER_COLUMN: Final = 2.0
_MARKED: Final = {EventKind.PARAMETER, EventKind.LOAD, EventKind.RESTART, EventKind.ROLE}
"""Kinds of events that go through the charts as an upright; the others stand on the tape alone."""


class TimeAxis(Struct, frozen=True):
    """A window of the session's time in columns.

    Attributes:
        since_s: Its begin on the session's clock.
        until_s: Its end.
        width: Cells of gutter and columns together.
        figures: Cells right of the columns for the figures of a spark; 0 for a picture.
    """

    since_s: float
    until_s: float
    width: int
    figures: int

    @property
    def columns(self) -> int:
        """Cells that show time."""
        return self.width - GUTTER


def time_axis(session: Session, width: int, chart_rows: int) -> TimeAxis:
    """The window of both charts and the tape at this moment.

    Args:
        session: Its newest frame is now.
        width: Cells of the panes.
        chart_rows: Rows of a chart; decides between a picture and a spark.
    """
    figures = max(width // 2 - 1, min(width - GUTTER - 8, 38)) if chart_rows <= SPARK_ROWS else 0
    drawn = width - figures
    now_s = session.now.elapsed_s if session.now is not None else 0.0
    s_per_column = _SPARK_S_PER_COLUMN if figures else 1.0
    since_s, until_s = window(now_s, max(drawn - GUTTER, 1), s_per_column)
    return TimeAxis(since_s=since_s, until_s=until_s, width=drawn, figures=figures)


def chart_marks(session: Session, axis: TimeAxis) -> list[ChartMark]:
    """Changes that an operator looks for in a curve."""
    return [
        ChartMark(at_s)
        for at_s, event in session.events
        if event.kind in _MARKED and axis.since_s <= at_s < axis.until_s
    ]


def arm_bands(session: Session) -> list[ArmBand]:
    """When the arms of experiments were in force, as the tape tells."""
    switches = [(at_s, event.text) for at_s, event in session.events if event.kind is EventKind.SWITCH]
    return [
        ArmBand(since_s, until_s, text[0])
        for (since_s, text), (until_s, _) in pairwise([*switches, (inf, "")])
        if text.startswith(ARMS)
    ]


def spark_line(
    title: str,
    points: Iterable[SeriesPoint],
    style: str,
    figures: Sequence[Phrase],
    axis: TimeAxis,
    glyphs: Glyphs,
    bands: Sequence[ArmBand] = (),
) -> Line:
    """A chart in one line: its name in the gutter, the curve on the common axis, figures beside it.

    Within a band the curve has the style of its arm.
    """
    values: list[float | None] = [None] * axis.columns
    for point in points:
        column = column_of(point.at_s, axis.since_s, axis.until_s, axis.columns)
        if column is not None and point.value is not None:
            values[column] = max(point.value, values[column] or 0.0)
    gap: Span = ("  ", "dim")
    beside = padded(fitting(figures, axis.figures - 2, gap), axis.figures - 2)
    drawn = spark(values, axis.columns, glyphs)
    of_columns = bands_of_columns(bands, axis.since_s, axis.until_s, axis.columns)
    styles = [of_columns[column].style if column in of_columns else style for column in range(axis.columns)]
    runs = groupby(zip(drawn, styles, strict=True), lambda cell: cell[1])
    curve = [("".join(character for character, _ in cells), run_style) for run_style, cells in runs]
    return ((f" {title:<{GUTTER - 1}}", "title"), *curve, gap, *beside)
