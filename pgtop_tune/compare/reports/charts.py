"""Charts as plain SVG: lines over time and bars of waits, with the figures of a moment as the tooltip of a column."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from html import escape
from statistics import fmean
from typing import Final

from msgspec import Struct

from pgtop_tune.base import units
from pgtop_tune.base.safe_text import printable

WIDTH: Final = 860
HEIGHT: Final = 200
_LEFT: Final = 62
_RIGHT: Final = 12
_TOP: Final = 10
_BOTTOM: Final = 24
COLUMNS: Final = 240
"""Moments drawn; of a longer series several seconds share one."""
_DASHES: Final = ("", "6 3", "2 3", "8 3 2 3")
_MOST_MARKS: Final = 60
_BAR_PX: Final = 22


class ChartLine(Struct, frozen=True):
    """One series.

    Attributes:
        name: In the legend. Foreign text.
        points: (seconds or clients, value), ascending.
    """

    name: str
    points: Sequence[tuple[float, float]]


class Mark(Struct, frozen=True):
    """Something that happened, as a tick at the foot of a chart.

    Attributes:
        side: Number of the series it belongs to.
        text: Foreign text.
    """

    at: float
    side: int
    text: str


class Chart(Struct, frozen=True):
    """A chart of lines.

    Attributes:
        heading: Name of the drawn figure, with its unit.
        format_value: Writes a value as text.
        across: Quantity of the horizontal axis; "time" is shown as hours, minutes and seconds.
        dots: Whether single points matter (steps of a load) and are drawn.
    """

    heading: str
    lines: tuple[ChartLine, ...]
    format_value: Callable[[float | None], str]
    marks: tuple[Mark, ...] = ()
    across: str = "time"
    dots: bool = False


def markup(foreign_text: str) -> str:
    """Return foreign text for HTML and SVG: no markup, no control characters."""
    return escape(printable(foreign_text))


def line_chart(chart: Chart) -> str:
    """Return the chart as an <svg> element; "" without points."""
    drawn = [_thinned(line.points) for line in chart.lines]
    all_points = [point for points in drawn for point in points]
    if not all_points:
        return ""
    last = max(at for at, _, _, _ in all_points) or 1.0
    first = min(at for at, _, _, _ in all_points) if chart.dots else 0.0
    top = _nice(max(high for _, _, _, high in all_points))
    scale = _Scale(first, max(last, first + 1e-9), top)
    parts = [
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{markup(chart.heading)}">',
        *_axes(scale, chart),
    ]
    for side, points in enumerate(drawn):
        parts += _line(points, side, scale, dots=chart.dots)
    parts += (_mark(mark, scale) for mark in chart.marks[:_MOST_MARKS])
    parts += _columns(chart, drawn, scale)
    return "".join([*parts, "</svg>"])


class _Scale(Struct, frozen=True):
    first: float
    last: float
    top: float

    def x(self, at: float) -> float:
        share = (at - self.first) / (self.last - self.first)
        return _LEFT + min(max(share, 0.0), 1.0) * (WIDTH - _LEFT - _RIGHT)

    def y(self, value: float) -> float:
        return _TOP + (1.0 - value / self.top) * (HEIGHT - _TOP - _BOTTOM)


_Point = tuple[float, float, float, float]
"""Moment, mean, lowest and highest of what shares a column."""


def _thinned(points: Sequence[tuple[float, float]]) -> list[_Point]:
    finite = [point for point in points if math.isfinite(point[0]) and math.isfinite(point[1])]
    size = math.ceil(len(finite) / COLUMNS) if finite else 1
    thinned_points = []
    for at in range(0, len(finite), size):
        part = finite[at : at + size]
        values = [value for _, value in part]
        thinned_points.append((part[0][0], fmean(values), min(values), max(values)))
    return thinned_points


def _nice(value: float) -> float:
    """Return the next of 1, 2, 5 · 10ⁿ."""
    if value <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(value))
    return next(step * power for step in (1, 1.5, 2, 3, 4, 5, 6, 8, 10) if step * power >= value * 0.999)


def _axes(scale: _Scale, chart: Chart) -> list[str]:
    parts = []
    for part in range(5):
        value = scale.top * part / 4
        y = scale.y(value)
        parts.append(f'<line class="grid" x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(
            f'<text class="axis" x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">'
            f"{markup(chart.format_value(value))}</text>"
        )
    for part in range(5):
        at = scale.first + (scale.last - scale.first) * part / 4
        label = units.clock(at) if chart.across == "time" else units.number(at)
        anchor = {0: "start", 4: "end"}.get(part, "middle")
        parts.append(f'<text class="axis" x="{scale.x(at):.1f}" y="{HEIGHT - 6}" text-anchor="{anchor}">{label}</text>')
    return parts


def _line(points: Sequence[_Point], side: int, scale: _Scale, *, dots: bool) -> list[str]:
    if not points:
        return []
    parts = []
    if any(high > low for _, _, low, high in points):
        upper = [f"{scale.x(at):.1f},{scale.y(high):.1f}" for at, _, _, high in points]
        lower = [f"{scale.x(at):.1f},{scale.y(low):.1f}" for at, _, low, _ in reversed(points)]
        parts.append(f'<polygon class="band s{side % 4}" points="{" ".join([*upper, *lower])}"/>')
    path = " ".join(f"{scale.x(at):.1f},{scale.y(mean):.1f}" for at, mean, _, _ in points)
    dash = _DASHES[side % len(_DASHES)]
    parts.append(f'<polyline class="line s{side % 4}" stroke-dasharray="{dash}" points="{path}"/>')
    if dots:
        parts += [
            f'<circle class="dot s{side % 4}" cx="{scale.x(at):.1f}" cy="{scale.y(mean):.1f}" r="3"/>'
            for at, mean, _, _ in points
        ]
    return parts


def _mark(mark: Mark, scale: _Scale) -> str:
    x, foot = scale.x(mark.at), HEIGHT - _BOTTOM
    return (
        f'<g class="mark s{mark.side % 4}"><line x1="{x:.1f}" x2="{x:.1f}" y1="{foot - 9}" y2="{foot}"/>'
        f"<title>{markup(mark.text)}</title></g>"
    )


def _columns(chart: Chart, drawn: Sequence[Sequence[_Point]], scale: _Scale) -> list[str]:
    """Return invisible columns with the figures of their moment."""
    moments = sorted({at for points in drawn for at, _, _, _ in points})
    by_moment = [{at: mean for at, mean, _, _ in points} for points in drawn]
    parts = []
    for index, at in enumerate(moments):
        begin_x = scale.x(at if index == 0 else (moments[index - 1] + at) / 2)
        end_x = scale.x(at if index == len(moments) - 1 else (at + moments[index + 1]) / 2)
        moment = units.clock(at) if chart.across == "time" else f"{units.number(at)} {chart.across}"
        lines = [
            f"{line.name}: {chart.format_value(values[at])}"
            for line, values in zip(chart.lines, by_moment, strict=True)
            if at in values
        ]
        parts.append(
            f'<rect class="hover" x="{begin_x:.1f}" y="{_TOP}" width="{max(end_x - begin_x, 1.0):.1f}"'
            f' height="{HEIGHT - _TOP - _BOTTOM}"><title>{chr(10).join(map(markup, [moment, *lines]))}</title></rect>'
        )
    return parts


def wait_bars(sides: Sequence[tuple[str, Sequence[tuple[str, float]]]]) -> str:
    """Return milliseconds of a transaction as one bar for each side, class by class in the same colours.

    Args:
        sides: Name, and (class, ms) in the order in which they are drawn; foreign text.
    """
    longest = max((sum(ms for _, ms in parts) for _, parts in sides), default=0.0)
    if longest <= 0:
        return ""
    order = list(dict.fromkeys(label for _, parts in sides for label, _ in parts))
    height = len(sides) * (_BAR_PX + 8) + 26
    elements = [f'<svg viewBox="0 0 {WIDTH} {height}" role="img" aria-label="milliseconds per transaction">']
    for row, (name, parts) in enumerate(sides):
        x, y = float(_LEFT), row * (_BAR_PX + 8) + 4
        elements.append(
            f'<text class="axis" x="{_LEFT - 6}" y="{y + 15}" text-anchor="end">{markup(_short(name))}</text>'
        )
        for label, ms in parts:
            width = (WIDTH - _LEFT - _RIGHT) * ms / longest
            elements.append(
                f'<rect class="w{order.index(label) % 8}" x="{x:.1f}" y="{y}" width="{width:.1f}" height="{_BAR_PX}">'
                f"<title>{markup(f'{label}: {ms:.3f} ms')}</title></rect>"
            )
            x += width
    x = float(_LEFT)
    for index, label in enumerate(order[:8]):
        elements.append(f'<rect class="w{index}" x="{x:.0f}" y="{height - 18}" width="10" height="10"/>')
        elements.append(f'<text class="axis" x="{x + 14:.0f}" y="{height - 9}">{markup(_short(label))}</text>')
        x += 24 + 7.0 * len(_short(label))
    return "".join([*elements, "</svg>"])


def _short(text: str) -> str:
    return text if len(text) <= 14 else text[:13] + "…"
