"""The machine over time: CPU by kind, throughput and await of the data disk, memory, pressure, one below the other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from msgspec import Struct

from pgtop_tune.metrics import host_history as kept
from pgtop_tune.metrics import sections
from pgtop_tune.metrics.catalogue import Interval
from pgtop_tune.runtime.history import Charted
from pgtop_tune.runtime.session import Session
from pgtop_tune.safe_text import one_line
from pgtop_tune.tui.widgets.chart import nice_ceiling
from pgtop_tune.tui.widgets.filled import Area, Columns, Level, filled_lines
from pgtop_tune.tui.widgets.glyphs import Glyphs
from pgtop_tune.tui.widgets.lines import PLAIN, Line
from pgtop_tune.tui.widgets.phrase import Phrase, head, labelled
from pgtop_tune.tui.widgets.time_axis import SPARK_ROWS, TimeAxis, axis_line, chart_marks, time_axis
from pgtop_tune.units import ms, percent, size

_LEAST: Final = 4
"""Rows of a chart with its head."""
_NAME: Final = 20


class _Curve(Struct, frozen=True):
    label: str
    metric: Charted
    style: str


class _Chart(Struct, frozen=True):
    """A chart of the page.

    Attributes:
        title: Of it.
        curves: The first is filled, the others stand over it; of a stack each stands on those before.
        form: Of labels and figures.
        stacked: Whether they add up.
        of_disk: Whether the title names the disk.
        unit: Of the scale's round numbers.
        most: The value at the upper edge; None for what there was.
    """

    title: str
    curves: tuple[_Curve, ...]
    form: Callable[[float | None], str]
    stacked: bool = False
    of_disk: bool = False
    unit: float = 1.0
    most: Callable[[Interval], float | None] = lambda interval: None


def _whole_memory(interval: Interval) -> float | None:
    memory = interval.now(sections.memory)
    return None if memory is None else float(memory.total_bytes)


_MEBI: Final = 1024.0 * 1024.0
_CPU_STYLES: Final = ("cpu", "wait-io", "wait-lwlock", "critical")
_CHARTS: Final = (
    _Chart(
        title="CPU %", form=percent, stacked=True, most=lambda interval: 100.0,
        curves=tuple(_Curve(each.title, each, style) for each, style in zip(kept.CPU, _CPU_STYLES, strict=True)),
    ),
    _Chart(
        title="B/s of", form=size, of_disk=True, unit=_MEBI,
        curves=(_Curve("write", kept.DISK_WRITE, "series-1"), _Curve("read", kept.DISK_READ, "series-2")),
    ),
    _Chart(
        title="await ms of", form=ms, of_disk=True,
        curves=(_Curve("write", kept.WRITE_AWAIT, "series-1"), _Curve("read", kept.READ_AWAIT, "series-2")),
    ),
    _Chart(
        title="pressure %", form=percent,
        curves=tuple(
            _Curve(label, each, style)
            for label, each, style in zip(
                ("cpu", "io", "mem"), kept.PRESSURE, ("cpu", "wait-io", "wait-lock"), strict=True
            )
        ),
    ),
    _Chart(
        title="memory", form=size, stacked=True, most=_whole_memory,
        curves=tuple(
            _Curve(each.title, each, style) for each, style in zip(kept.MEMORY, ("series-5", "series-3"), strict=True)
        ),
    ),
)  # fmt: skip
"""The most important first: as many as there is room for."""


def history_axis(session: Session, width: int) -> TimeAxis:
    """The time axis that all histories share."""
    return time_axis(session, width, SPARK_ROWS + 1)


def history_lines(session: Session, width: int, height: int, glyphs: Glyphs) -> list[Line]:
    """Exactly so many lines: charts with a head each, times of day below the last."""
    interval = session.interval
    count = min((height - 1) // _LEAST, len(_CHARTS))
    if interval is None or count < 1:
        return [((" " * width, PLAIN),)] * height
    axis = history_axis(session, width)
    lines: list[Line] = []
    for index, chart in enumerate(_CHARTS[:count]):
        rows = (height - 1) * (index + 1) // count - (height - 1) * index // count
        lines += _drawn(chart, session, interval, axis, rows, glyphs)
    return [*lines, axis_line(session, axis, glyphs)]


def _drawn(
    chart: _Chart, session: Session, interval: Interval, axis: TimeAxis, rows: int, glyphs: Glyphs
) -> list[Line]:
    values = [axis.means_of(session, each.metric) for each in chart.curves]
    if chart.stacked:
        shown: list[Columns] = []
        for each in values:
            shown.append(_on_top(shown[-1], each) if shown else each)
        areas = [
            Area(each, curve.style, index % 4)
            for index, (each, curve) in enumerate(zip(shown, chart.curves, strict=True))
        ]
        levels: list[Level] = []
    else:
        areas = [Area(values[0], chart.curves[0].style)]
        # A line at zero would hide the foot of the area; its figure stands in the head.
        levels = [
            Level([value or None for value in each], curve.style)
            for each, curve in zip(values[1:], chart.curves[1:], strict=True)
        ]
        shown = list(values)
    highest = max((value for each in shown for value in each if value is not None), default=0.0)
    disk = kept.data_disk(interval) if chart.of_disk else None
    title = f"{chart.title} {one_line(disk, _NAME)}" if disk else chart.title.removesuffix(" of")
    figures = [
        Phrase(labelled(curve.label, chart.form(curve.metric(interval)).rjust(5), curve.style), index)
        for index, curve in enumerate(chart.curves)
    ]
    top = chart.most(interval) or nice_ceiling(highest / chart.unit) * chart.unit
    return [
        head(((title, "title"),), axis.width, glyphs, figures),
        *filled_lines(
            areas, levels, width=axis.width, height=rows - 1, since_s=axis.since_s, until_s=axis.until_s,
            top=top, unit_format=chart.form, glyphs=glyphs, marks=chart_marks(session, axis),
        ),
    ]  # fmt: skip


def _on_top(below: Columns, values: Sequence[float | None]) -> Columns:
    return [low if value is None else (low or 0.0) + value for low, value in zip(below, values, strict=True)]
