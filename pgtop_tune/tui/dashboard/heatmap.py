"""The latency heatmap: time to the right, latency upwards, each cell as dense as transactions ended there.

Percentiles hide two populations: a p50 between a cache hit and a disk read is a latency that no transaction has. Here
both are bands of their own. Latency and density are logarithmic, so that one transaction in a thousand is visible.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from math import ceil, floor, log1p, log10, sqrt
from typing import Final

from pgtop_tune.base.units import count, ms, percent, with_ms
from pgtop_tune.metrics.percentiles import Merged, bucket_edges
from pgtop_tune.runtime.session import Session
from pgtop_tune.tui.dialogs.dialog import Dialog
from pgtop_tune.tui.widgets.chart import GUTTER, TimeAxis
from pgtop_tune.tui.widgets.lines import PLAIN, SHADES, Glyphs, Line, of_map
from pgtop_tune.tui.widgets.phrase import Phrase, fitting, labelled, padded
from pgtop_tune.tui.widgets.time_axis import axis_line

# The latency heatmap over the screen, as large as the terminal; follows the frames shown.

_FRAME_ROWS: Final = 2


class HeatmapDialog(Dialog[None]):
    """Shows the heatmap for as long as it is open.

    Args:
        session: The session that is shown.
        glyphs: Characters of the drawing.
    """

    CELLS = 1_000
    KEYS = "Esc back"
    LIVE = False

    def __init__(self, session: Session, glyphs: Glyphs) -> None:
        super().__init__("latency heatmap: transactions by time and latency", glyphs)
        self._session = session

    def content(self, cells: int) -> Sequence[Line]:
        """Return the map as it is now."""
        return heatmap_lines(self._session, cells, self.app.size.height - _FRAME_ROWS, self.glyphs)

    def frames_arrived(self, session: Session) -> None:
        self._session = session
        self.repaint()


_STYLE: Final = "series-1"
"""Style of the map, in shades: many transactions of usual latency are no alarm."""
_SHARES: Final = 6
"""Cells right of the map: per cent of the transactions in the row."""
_LEAST_S: Final = 120.0
"""Time that a narrow map shows, too."""
_HALF_DECADE: Final = 2.0
_LEAST_SHARE: Final = 0.05
"""Per cent that are written as a number."""


def heatmap_lines(session: Session, width: int, height: int, glyphs: Glyphs) -> list[Line]:
    """Return a line of figures, the map, a time axis; `height` lines, or one that says why there is none."""
    columns, rows = width - GUTTER - _SHARES - 1, height - 2
    if columns < 1 or rows < 2:
        return []
    s_per_column = max(ceil(_LEAST_S / columns), 1)
    newest = session.latency.newest()
    since_s = 0.0 if newest is None else (floor(newest.at_s / s_per_column) + 1 - columns) * s_per_column
    seconds = session.latency.histograms(since_s)
    if newest is None or not any(histogram.logged for _, histogram in seconds):
        return [padded(((" no transaction of a load started here in the last minutes", "dim"),), width)]
    low, high = _bounds([histogram for _, histogram in seconds])
    cells: dict[tuple[int, int], float] = {}
    totals = [0.0] * rows
    for at_s, histogram in seconds:
        column = floor((at_s - since_s) / s_per_column)
        for bucket, number in histogram.buckets:
            row = _row_of(bucket, low, high, rows)
            totals[row] += number
            if 0 <= column < columns:
                cells[row, column] = cells.get((row, column), 0.0) + number
    most = max(cells.values(), default=1.0)
    lines: list[Line] = [_figures(seconds, most / s_per_column, width, glyphs)]
    labels = _labels(low, high, rows)
    for row in range(rows - 1, -1, -1):
        drawn = _drawn([cells.get((row, column), 0.0) for column in range(columns)], most, glyphs)
        share = 100.0 * totals[row] / sum(totals)
        share_text = f"{percent(share)} %" if share >= _LEAST_SHARE else ""
        gutter = f"{labels.get(row, ''):>{GUTTER - 2}} {glyphs.axis if row in labels else glyphs.upright}"
        lines.append(
            padded(((gutter, "dim"), *drawn, (f"{share_text:>{_SHARES}} ", "label" if share_text else PLAIN)), width)
        )
    axis = TimeAxis(since_s, since_s + columns * s_per_column, GUTTER + columns, width - GUTTER - columns)
    return [*lines, axis_line(session, axis, glyphs)]


def _bounds(histograms: list[Merged]) -> tuple[float, float]:
    """Return exponents of ten of the scale's ends in µs, on half decades: it seldom changes."""
    buckets = [bucket for histogram in histograms for bucket, number in histogram.buckets if number]
    lowest, highest = bucket_edges(min(buckets))[0], bucket_edges(max(buckets))[1]
    low = floor(_HALF_DECADE * log10(max(lowest, 1))) / _HALF_DECADE
    return low, max(ceil(_HALF_DECADE * log10(max(highest, 1))) / _HALF_DECADE, low + 0.5)


def _row_of(bucket: int, low: float, high: float, rows: int) -> int:
    """Return the row from the bottom that has the middle of a bucket."""
    begin, behind = bucket_edges(bucket)
    position = (log10(max(sqrt(max(begin, 1) * max(behind, 1)), 1.0)) - low) / (high - low)
    return min(max(floor(position * rows), 0), rows - 1)


def _labels(low: float, high: float, rows: int) -> dict[int, str]:
    """Return latencies beside the rows that hold them: 1, 2 and 5 of each decade where there is room, else 1 alone."""
    for steps in ((1.0, 2.0, 5.0), (1.0,)):
        labels: dict[int, str] = {}
        latencies_us = [step * 10.0**decade for decade in range(floor(low), ceil(high) + 1) for step in steps]
        places = [((log10(us) - low) / (high - low), us) for us in latencies_us]
        for position, us in places:
            if 0.0 <= position < 1.0:
                labels[floor(position * rows)] = ms(us / 1000.0)
        if sum(1 for position, _ in places if 0.0 <= position < 1.0) <= rows / 2:
            break
    return labels


def _drawn(values: list[float], most: float, glyphs: Glyphs) -> Line:
    """Return a cell per value; character and shade say the same, so that one of them is enough."""
    cells = []
    for value in values:
        level = min(log1p(value) / log1p(most), 1.0) if value else 0.0
        char = glyphs.density[min(int(level * len(glyphs.density)), len(glyphs.density) - 1)] if level else " "
        cells.append((char, of_map(_STYLE, round(level * SHADES)) if level else PLAIN))
    return tuple(("".join(text for text, _ in run), style) for style, run in groupby(cells, key=lambda cell: cell[1]))


def _figures(seconds: list[tuple[float, Merged]], most_per_s: float, width: int, glyphs: Glyphs) -> Line:
    logged = sum(histogram.logged for _, histogram in seconds)
    slowest, _, unit = with_ms(max(histogram.max_us for _, histogram in seconds) / 1000.0).partition(" ")
    phrases = [
        Phrase(labelled("transactions", count(float(logged)))),
        Phrase(labelled("max", slowest, unit=f" {unit}"), 1),
        Phrase(_scale(most_per_s, glyphs), 1),
        Phrase((("right: % of all", "label"),), 3),
    ]
    return padded(((" " * (GUTTER - 1), PLAIN), *fitting(phrases, width - GUTTER, ("  ", PLAIN))), width)


def _scale(most_per_s: float, glyphs: Glyphs) -> Line:
    """Return the legend of the shades, from a single transaction to the fullest cell."""
    last = len(glyphs.density) - 1
    steps = tuple((char, of_map(_STYLE, SHADES * index // last)) for index, char in enumerate(glyphs.density))
    return (("one ", "label"), *steps, (f" {count(most_per_s)}/s", PLAIN))
