"""The steps of a load: a row each, throughput and p99 over them, and the knee in words. Pure."""

from __future__ import annotations

from typing import Final

from pgtop_tune.runtime.history import SeriesPoint
from pgtop_tune.runtime.load_control import LoadSeries
from pgtop_tune.tui.load.result_drawing import figure, verdict_words
from pgtop_tune.tui.widgets.chart import GUTTER, ChartMark, ChartSeries, chart_lines
from pgtop_tune.tui.widgets.glyphs import Glyphs
from pgtop_tune.tui.widgets.lines import PLAIN, Line
from pgtop_tune.tui.widgets.table import Cell, Column, table_lines
from pgtop_tune.tui.widgets.wrapping import wrapped
from pgtop_tune.units import count, ms, number

_TITLES: Final = {"clients": "clients", "rate": "rate /s"}
_CHART_ROWS: Final = (7, 5)
"""Of throughput and of p99."""
_FEWEST_ROWS: Final = 3


def steps_lines(series: LoadSeries, cells: int, rows: int, glyphs: Glyphs) -> list[Line]:
    """Table, charts and knee.

    Args:
        series: Steps so far.
        cells: Width of every line.
        rows: Lines there is room for: the charts shrink first. A table of many steps may take more.
        glyphs: Characters.
    """
    lines = step_table(series, cells, glyphs)
    if not series.points:
        return lines
    knee = wrapped("" if series.knee is None else series.knee.reason, cells, "strong")
    spare = rows - len(lines) - len(knee) - 5
    tps, p99 = _chart_rows(spare)
    return [
        *lines,
        (),
        (("tps", "series-1"), (" over ", "dim"), (_TITLES[series.axis], "dim")),
        *_chart(series, [point.tps for point in series.points], "series-1", cells, tps, glyphs),
        (("p99, ms", "series-2"),),
        *_chart(series, [point.p99_ms for point in series.points], "series-2", cells, p99, glyphs),
        _scale(series, cells),
        *knee,
    ]


def step_table(series: LoadSeries, cells: int, glyphs: Glyphs) -> list[Line]:
    """A row for each step that has ended; a failed one has its reason."""
    columns = (
        Column(_TITLES[series.axis], 8, "right"),
        Column("tps", 10, "right"),
        Column("avg ms", 8, "right"),
        Column("p99 ms", 7, "right"),
        Column("failed", 7, "right"),
        Column(" verdict", 12, elastic=True),
    )
    knee = None if series.knee is None else series.knee.load
    rows: list[list[Cell]] = []
    for result, point in zip(series.results, series.points, strict=True):
        words, style = verdict_words(result)
        said = ", ".join(doubt.id for doubt in result.doubts if doubt.verdict != "note") or result.message
        mark = f"{glyphs.pointer_left} knee  " if point.load == knee else ""
        rows.append(
            [
                (number(point.load), PLAIN),
                (figure(result.tps), "strong"),
                (figure(result.latency_average_ms, 3), PLAIN),
                (ms(point.p99_ms), PLAIN),
                ("" if result.failed is None else str(result.failed), "critical" if result.failed else PLAIN),
                (f" {mark}{words}" + (f": {said}" if said else ""), style),
            ]
        )
    return table_lines(columns, rows, width=cells, height=len(rows) + 1, cursor=None, top=0, glyphs=glyphs)


def _chart_rows(spare: int) -> tuple[int, int]:
    """What is left is shared; below a few rows a chart says nothing, and the dialog scrolls."""
    if spare >= sum(_CHART_ROWS):
        return _CHART_ROWS
    return max(spare * 3 // 5, _FEWEST_ROWS), max(spare * 2 // 5, _FEWEST_ROWS)


def _chart(
    series: LoadSeries,
    values: list[float | None],
    style: str,
    cells: int,
    rows: int,
    glyphs: Glyphs,
) -> list[Line]:
    """Every step is as wide as the next: loads are mostly doubled."""
    points = [SeriesPoint(float(index), value) for index, value in enumerate(values)]
    knee = None if series.knee is None else series.knee.load
    marks = [ChartMark(float(index)) for index, point in enumerate(series.points) if point.load == knee]
    return chart_lines(
        [ChartSeries(points, style)], width=cells, height=rows, since_s=-0.5, until_s=len(points) - 0.5,
        unit_format=count, glyphs=glyphs, marks=marks,
    )  # fmt: skip


def _scale(series: LoadSeries, cells: int) -> Line:
    """The loads below the columns of their points, as many as find room."""
    columns, steps = cells - GUTTER, len(series.points)
    text = ""
    for index, point in enumerate(series.points):
        label = number(point.load)
        at = GUTTER + int((index + 0.5) / steps * columns) - len(label) // 2
        if at > len(text) and at + len(label) <= cells:
            text = text.ljust(at) + label
    return ((text, "dim"),)
