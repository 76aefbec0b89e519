"""Wait classes over time: a heat map on the dashboard's time axis, and how many sessions are active."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby, pairwise
from statistics import median
from typing import Final

from pgtop_tune.metrics import sections
from pgtop_tune.metrics.active_sessions import WAITS_WINDOW_S, hidden_sessions
from pgtop_tune.metrics.catalogue import Interval, Metric
from pgtop_tune.metrics.waits import (
    ACTIVE_SESSIONS,
    CLASSES,
    CLIENT_THINKS,
    IO_WORKERS,
    LONG_WINDOW_S,
    ON_CPU,
    PACING,
    io_worker_processes,
    mean_over,
    wait_classes,
    wait_profile,
)
from pgtop_tune.model.absence import NOT_YET, Unavailable
from pgtop_tune.model.waits import ACTIVITY_SOURCE, WaitSample
from pgtop_tune.runtime.history import SeriesPoint
from pgtop_tune.runtime.session import Session
from pgtop_tune.tui.widgets.chart import GUTTER, column_of
from pgtop_tune.tui.widgets.glyphs import Glyphs
from pgtop_tune.tui.widgets.lines import PLAIN, Line
from pgtop_tune.tui.widgets.phrase import Phrase, absent, head, labelled, padded
from pgtop_tune.tui.widgets.time_axis import TimeAxis, time_axis
from pgtop_tune.tui.widgets.wait_style import wait_style
from pgtop_tune.units import count, mean

# What panes about waits stand on, or why they would show nothing.


def wait_source(session: Session) -> WaitSample | Unavailable:
    """The newest looks at waits; where nobody was seen waiting and this role may not see everybody, the GRANT."""
    frame, interval = session.now, session.interval
    if frame is None or interval is None:
        return NOT_YET
    sample = sections.waits(frame)
    if isinstance(sample, Unavailable) or wait_profile(interval, LONG_WINDOW_S):
        return sample
    return hidden_sessions(frame) or sample


# One row of a heat map: a cell per column of time, its height and its colour by how much there was.

_HEAT: Final = ("heat-0", "heat-1", "heat-2", "heat-3", "heat-4")
_PAUSE: Final = 4.0
_NOTHING: Final = 0.02
"""Share of the full scale below which a cell is drawn as nothing."""


def columns_of(points: Sequence[SeriesPoint], since_s: float, until_s: float, columns: int) -> list[float | None]:
    """Mean per column of time; None where nothing is known.

    A point speaks for the time since the one before it, unless that is longer ago than `_PAUSE` usual distances.
    """
    found: list[list[float]] = [[] for _ in range(columns)]
    usual_s = median([after.at_s - before.at_s for before, after in pairwise(points)] or [0.0])
    before: int | None = None
    before_s = 0.0
    for point in points:
        column = column_of(point.at_s, since_s, until_s, columns)
        if column is not None and point.value is not None:
            joined = before is not None and point.at_s - before_s <= _PAUSE * usual_s
            first = column if before is None or not joined else min(before + 1, column)
            for each in range(first, column + 1):
                found[each].append(point.value)
        before, before_s = (column, point.at_s) if point.value is not None else (None, 0.0)
    return [sum(values) / len(values) if values else None for values in found]


def heat_row(values: Sequence[float | None], full: float, glyphs: Glyphs) -> Line:
    """A cell per value: blank where unknown, a dim speck for nothing, a block that grows with its share of `full`.

    Block and colour say the same, so that one of them is enough.
    """
    drawn = (_cell(value, full, glyphs) for value in values)
    return tuple(("".join(text for text, _ in run), style) for style, run in groupby(drawn, key=lambda cell: cell[1]))


def _cell(value: float | None, full: float, glyphs: Glyphs) -> tuple[str, str]:
    if value is None:
        return " ", PLAIN
    share = min(value / full, 1.0) if full > 0 else 0.0
    if share < _NOTHING:
        return glyphs.speck, "dim"
    highest = len(glyphs.rising) - 1
    return glyphs.rising[max(1, round(share * highest))], _HEAT[min(int(share * 5), 4)]


_FIGURE: Final = 6
"""Cells right of the map for the mean of the last 10 s."""
_LABEL: Final = 9
"""Cells of a row's name, "CPU queue" the longest."""
_MARGINS: Final = 3
"""Cells before and behind the names of the rows, and behind the figures."""
_PICTURE: Final = 5
"""Rows of a chart that has the axis of a picture, one second a column."""
_TITLES: Final = {ACTIVE_SESSIONS.id: "active", CLIENT_THINKS.id: "think"}
"""What has no room for its title."""
_ROWS: Final = 3 + len(CLASSES)


def heat_rows(width: int, height: int) -> int:
    """Lines of the map on a screen of that size."""
    return min(_ROWS, max(height // 3 - 1, 3))


def heat_needs(session: Session, width: int) -> int:
    """Lines with all classes that the server has."""
    classes = CLASSES if session.now is None else wait_classes(session.now)
    return _ROWS - len(CLASSES) + len(classes)


def heat_lines(session: Session, width: int, height: int, glyphs: Glyphs) -> list[Line]:
    """A head with figures, the active sessions, their wait classes; with little room those with most sessions.

    Last comes the client's turn, which is none of them, where all classes have room.
    """
    if height < 1:
        return []
    interval, sample = session.interval, wait_source(session)
    if interval is None or isinstance(sample, Unavailable):
        reason = sample if isinstance(sample, Unavailable) else NOT_YET
        return absent("waits", reason, width, height, glyphs)
    cpus = _cpus(session)
    axis = time_axis(session, max(width - _FIGURE - _MARGINS - (_LABEL - GUTTER), GUTTER + 1), _PICTURE)
    rows = [(metric, _columns(session, metric, axis)) for metric in (ACTIVE_SESSIONS, *wait_classes(interval.newest))]
    full = float(cpus) if cpus else max((value for _, row in rows[1:] for value in row if value), default=1.0)
    lines = [head((("active sessions", "title"),), width, glyphs, _figures(interval, sample, cpus, full))]
    shown = [*_chosen(rows, height - 1), (CLIENT_THINKS, _columns(session, CLIENT_THINKS, axis))]
    lines += [_row(metric, values, interval, full, width, glyphs) for metric, values in shown]
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


def _row(
    metric: Metric, values: list[float | None], interval: Interval, full: float, width: int, glyphs: Glyphs
) -> Line:
    present = mean_over(metric, interval, WAITS_WINDOW_S)
    title = _TITLES.get(metric.id, metric.title)
    style = "title" if metric is ACTIVE_SESSIONS else "dim" if metric is CLIENT_THINKS else wait_style(metric.title)
    figure = (mean(present).rjust(_FIGURE), PLAIN if present else "dim")
    label = (f" {title:<{_LABEL}} ", style)
    return padded((label, *heat_row(values, full, glyphs), figure, (" ", PLAIN)), width)


def _figures(interval: Interval, sample: WaitSample, cpus: int | None, full: float) -> list[Phrase]:
    short = mean_over(ACTIVE_SESSIONS, interval, WAITS_WINDOW_S)
    style = "warning" if cpus and short and short > cpus else "strong"
    rate = (
        f", {sample.samples:>2} {'sample ' if sample.samples == 1 else 'samples'}"
        if sample.source == ACTIVITY_SOURCE
        else ", exact"
    )
    return [
        Phrase(labelled("active 10 s", mean(short), style)),
        Phrase(labelled("60 s", mean(mean_over(ACTIVE_SESSIONS, interval, LONG_WINDOW_S))), 2),
        Phrase(labelled("on CPU", mean(mean_over(ON_CPU, interval, WAITS_WINDOW_S)), "cpu"), 3),
        Phrase(labelled("CPUs", str(cpus) if cpus else "-"), 1),
        *_beside(interval),
        Phrase(labelled("full block", f"{count(full)} sessions"), 7),
        Phrase(((f"{sample.source}{rate}", "label"),), 6),
    ]


def _beside(interval: Interval) -> list[Phrase]:
    """What is no active session: sleeps that are meant, and io workers where there are any."""
    pacing, busy = (mean_over(metric, interval, WAITS_WINDOW_S) for metric in (PACING, IO_WORKERS))
    workers = io_worker_processes(interval)
    found = [Phrase(labelled("pacing", mean(pacing)), 5)] if pacing else []
    return [*found, Phrase(labelled(IO_WORKERS.title, f"{mean(busy)} of {workers}"), 4)] if workers else found
