"""Wait classes over time: a heat map on the dashboard's time axis, and how many sessions are at work."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pgtop_tune.metrics.catalogue import Interval, Metric
from pgtop_tune.metrics.waits import ACTIVE_SESSIONS, CLASSES, LONG_WINDOW_S, WAITS_WINDOW_S, wait_profile
from pgtop_tune.model.absence import NOT_YET, Unavailable
from pgtop_tune.model.waits import ACTIVITY_SOURCE, CPU, WaitSample
from pgtop_tune.session.session import Session
from pgtop_tune.tui.glyphs import Glyphs
from pgtop_tune.tui.lines import PLAIN, Line
from pgtop_tune.tui.panes.phrase import Phrase, absent, head, labelled, padded
from pgtop_tune.tui.panes.time_axis import TimeAxis, time_axis
from pgtop_tune.tui.panes.wait_source import wait_source
from pgtop_tune.tui.panes.wait_style import wait_style
from pgtop_tune.tui.widgets.chart import GUTTER
from pgtop_tune.tui.widgets.heat_map import columns_of, heat_row
from pgtop_tune.units import count, mean

_FIGURE: Final = 6
"""Cells right of the map for the mean of the last 10 s."""
_MARGINS: Final = 3
"""Cells before and behind the names of the rows, and behind the figures."""
_PICTURE: Final = 5
"""Rows of a chart that has the axis of a picture, one second a column."""
_ROWS: Final = 2 + len(CLASSES)


def heat_rows(width: int, height: int) -> int:
    """Lines of the map on a screen of that size."""
    return min(_ROWS, max(height // 3 - 1, 3))


def heat_lines(session: Session, width: int, height: int, glyphs: Glyphs) -> list[Line]:
    """A head with figures, all sessions at work, then the wait classes; with little room those with most sessions."""
    if height < 1:
        return []
    interval, sample = session.interval, wait_source(session)
    if interval is None or isinstance(sample, Unavailable):
        reason = sample if isinstance(sample, Unavailable) else NOT_YET
        return absent("waits", reason, width, height, glyphs)
    cpus = _cpus(session)
    axis = time_axis(session, max(width - _FIGURE - _MARGINS, GUTTER + 1), _PICTURE)
    rows = [(metric, _columns(session, metric, axis)) for metric in (ACTIVE_SESSIONS, *CLASSES)]
    full = float(cpus) if cpus else max((value for _, row in rows[1:] for value in row if value), default=1.0)
    lines = [head((("sessions at work", "title"),), width, glyphs, _figures(interval, sample, cpus, full))]
    for metric, values in _chosen(rows, height - 1):
        lines.append(_row(metric, values, session, full, width, glyphs))
    return lines[:height]


def _columns(session: Session, metric: Metric, axis: TimeAxis) -> list[float | None]:
    return columns_of(session.history.series(metric, axis.since_s), axis.since_s, axis.until_s, axis.columns)


def _cpus(session: Session) -> int | None:
    host = None if session.now is None else session.now.host
    if host is None or isinstance(host, Unavailable) or isinstance(host.facts, Unavailable):
        return None
    return host.facts.cpu_count


def _chosen(rows: Sequence[tuple[Metric, list[float | None]]], room: int) -> list[tuple[Metric, list[float | None]]]:
    """All, or the sum and the classes with most sessions, in their order."""
    if len(rows) <= room:
        return list(rows)
    classes = sorted(rows[1:], key=lambda row: -sum(value for value in row[1] if value))[: max(room - 1, 0)]
    kept = {metric.id for metric, _ in classes}
    return [rows[0], *(row for row in rows[1:] if row[0].id in kept)]


def _row(metric: Metric, values: list[float | None], session: Session, full: float, width: int, glyphs: Glyphs) -> Line:
    now_s = 0.0 if session.now is None else session.now.elapsed_s
    points = session.history.series(metric, now_s - WAITS_WINDOW_S)
    known = [point.value for point in points if point.value is not None]
    present = sum(known) / len(known) if known else None
    whole = metric is ACTIVE_SESSIONS
    title = "active" if whole else metric.title
    style = "title" if whole else wait_style(metric.title)
    figure = (mean(present).rjust(_FIGURE), PLAIN if present else "dim")
    label = (f" {title[:GUTTER]:<{GUTTER}} ", style)
    return padded((label, *heat_row(values, full, glyphs), figure, (" ", PLAIN)), width)


def _figures(interval: Interval, sample: WaitSample, cpus: int | None, full: float) -> list[Phrase]:
    profiles = [wait_profile(interval, window_s) for window_s in (WAITS_WINDOW_S, LONG_WINDOW_S)]
    short, long = (sum(wait.sessions for wait in profile) for profile in profiles)
    on_cpu = sum(wait.sessions for wait in profiles[0] if wait.wait_event_type == CPU)
    style = "warning" if cpus and short > cpus else "strong"
    rate = (
        f", {sample.samples:>2} {'look ' if sample.samples == 1 else 'looks'}"
        if sample.source == ACTIVITY_SOURCE
        else ", exact"
    )
    return [
        Phrase(labelled("active 10 s", mean(short), style)),
        Phrase(labelled("60 s", mean(long)), 2),
        Phrase(labelled("on CPU", mean(on_cpu), "cpu"), 3),
        Phrase(labelled("CPUs", str(cpus) if cpus else "-"), 1),
        Phrase(labelled("full block", f"{count(full)} sessions"), 5),
        Phrase(((f"{sample.source}{rate}", "label"),), 4),
    ]
