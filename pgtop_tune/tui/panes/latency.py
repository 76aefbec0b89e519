"""Latency as the client measures it: percentiles of every second."""

from __future__ import annotations

from typing import Final

from pgtop_tune.compare.ghost import GhostWatch
from pgtop_tune.metrics.load import CLIENT_LATENCY, running
from pgtop_tune.session.history import LatencyPoint, Point
from pgtop_tune.session.session import Session
from pgtop_tune.tui.glyphs import Glyphs
from pgtop_tune.tui.lines import PLAIN, Line
from pgtop_tune.tui.panes.ghost_words import latency_phrase
from pgtop_tune.tui.panes.phrase import Phrase, head, labelled, padded
from pgtop_tune.tui.panes.time_axis import SPARK_ROWS, chart_marks, spark_line, time_axis
from pgtop_tune.tui.widgets.chart import GUTTER, ChartSeries, chart_lines
from pgtop_tune.units import ms

_CELLS: Final = 5
_NO_LOAD: Final = "latency is measured by a load"
_CURVES: Final = ((2, "series-5"), (1, "series-4"), (0, "series-3"))
"""Index into the quantiles and style, drawn in this order: p99, p95, p50 on top."""
_QUANTILES: Final = (("p50", 0, 1), ("p95", 1, 2), ("p99", 2, 0), ("p99.9", 3, 4))
"""Name, index into the quantiles, rank when room is short."""
_STYLES: Final = {"p50": "series-3", "p95": "series-4", "p99": "series-5"}


def latency_lines(
    session: Session, width: int, height: int, glyphs: Glyphs, ghost: GhostWatch | None = None, load_key: str = ""
) -> list[Line]:
    """A head with the percentiles of the last complete second over a chart of p50, p95 and p99; or a spark of p99.

    Under the curves stands the p99 of the ghost. `load_key` starts a load; "" where none can be started.
    """
    axis = time_axis(session, width, height)
    seconds = session.latency.series(axis.since_s)
    loaded = session.interval is not None and running(session.interval) is not None
    how = f"{_NO_LOAD} (press {load_key})" if load_key else _NO_LOAD
    if height <= SPARK_ROWS:
        if not seconds and not loaded:
            return [padded(((" lat   ", "title"), (how, "dim")), width)]
        p99 = [Point(second.at_s, second.quantiles_ms[2]) for second in seconds]
        figures = [*_figures(session, loaded=loaded), Phrase((("ms", "label"),), 1)]
        return [spark_line("lat", p99, "series-5", figures, axis, glyphs)]
    if not seconds and not loaded:
        blank = ((" " * width, PLAIN),)
        words = padded((((" " * GUTTER) + how, "dim"),), width)
        return [head((("latency ms", "title"),), width, glyphs), words, *[blank] * (height - 2)]
    curves = [
        ChartSeries([Point(second.at_s, second.quantiles_ms[index]) for second in seconds], style)
        for index, style in _CURVES
    ]
    figures = _figures(session, loaded=loaded)
    if ghost is not None:
        curves.insert(0, ChartSeries(ghost.overlay.points("p99_ms", axis.since_s, axis.until_s), "dim", dim=True))
        figures.append(latency_phrase(session, ghost, glyphs))
    return [
        head((("latency ms", "title"),), width, glyphs, figures),
        *chart_lines(
            curves, width=width, height=height - 1, since_s=axis.since_s, until_s=axis.until_s,
            unit_format=_scale, glyphs=glyphs, marks=chart_marks(session, axis),
        ),
    ]  # fmt: skip


def _scale(value_ms: float) -> str:
    return ms(value_ms) if value_ms else "0"


def _figures(session: Session, *, loaded: bool) -> list[Phrase]:
    """Of the last complete second while a load runs; unknown after it."""
    newest: LatencyPoint | None = session.latency.newest() if loaded else None
    mean = CLIENT_LATENCY(session.interval) if session.interval is not None and loaded else None
    found = [Phrase(labelled("mean", ms(mean).rjust(_CELLS)), 5)]
    for name, index, rank in _QUANTILES:
        value = None if newest is None else newest.quantiles_ms[index]
        found.append(Phrase(labelled(name, ms(value).rjust(_CELLS), _STYLES.get(name, PLAIN)), rank))
    found.append(Phrase(labelled("max", ms(None if newest is None else newest.max_ms).rjust(_CELLS)), 3))
    return found
