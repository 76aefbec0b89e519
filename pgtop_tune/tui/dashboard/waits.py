"""The parts of a transaction's time; without transactions, the waits of the active sessions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from pgtop_tune.base.safe_text import one_line
from pgtop_tune.base.units import count, mean, ms, with_ms
from pgtop_tune.metrics import sections
from pgtop_tune.metrics.active_sessions import WAITS_WINDOW_S, hidden_sessions, sessions
from pgtop_tune.metrics.budget import OTHER, latency_budget
from pgtop_tune.metrics.catalogue import Interval, Metric
from pgtop_tune.metrics.load_cpu import cpu_of_load
from pgtop_tune.metrics.waits import (
    ACTIVE_SESSIONS,
    BACKGROUND,
    CLASSES,
    CLIENT_THINKS,
    IO_WORKERS,
    LONG_WINDOW_S,
    PACING,
    io_worker_processes,
    is_any_active,
    mean_over,
    wait_classes,
    wait_profile,
    watched_s,
)
from pgtop_tune.model.absence import NOT_YET, Unavailable
from pgtop_tune.model.waits import ACTIVITY_SOURCE, WaitSample
from pgtop_tune.runtime.session import Session
from pgtop_tune.tui.dashboard.latency import tail_phrases
from pgtop_tune.tui.widgets.chart import (
    GUTTER,
    Area,
    Columns,
    Level,
    Peak,
    TimeAxis,
    filled_lines,
    filling,
    nice_ceiling,
)
from pgtop_tune.tui.widgets.lines import PLAIN, Glyphs, Line, Span, bar, ellipsized
from pgtop_tune.tui.widgets.lines import width as cells_of
from pgtop_tune.tui.widgets.phrase import Phrase, absent, head, labelled, padded, wait_style
from pgtop_tune.tui.widgets.time_axis import SPANS_S, SPARK_ROWS, axis_line, chart_marks, time_axis

# What panes about waits stand on, or why they would show nothing.


def wait_source(session: Session) -> WaitSample | Unavailable:
    """Return the newest samples of waits; without any, where this role may not see every session, the GRANT."""
    frame, interval = session.now, session.interval
    if frame is None or interval is None:
        return NOT_YET
    sample = sections.waits(frame)
    if isinstance(sample, Unavailable) or is_any_active(interval, LONG_WINDOW_S):
        return sample
    return hidden_sessions(frame) or sample


# Active sessions by wait class over time: areas on top of each other, a line at the number of CPUs, and figures.

_LEGEND: Final = 21
"""Cells of a class with its figure, right of the chart."""
_ROW_NAME: Final = 11
_CLOCK_ROWS: Final = 5
"""Rows from which on the last row has times of day."""
_RARE: Final = 0.05
"""Share of the columns that may stand above the scale: one burst does not flatten the rest."""
_MOST: Final = 4 + len(CLASSES)
_BESIDE: Final = ((CLIENT_THINKS, "think"), (BACKGROUND, "background"), (PACING, "pacing"), (IO_WORKERS, "io workers"))
"""Sessions that do not count as active, with names that fit."""


def waits_rows(width: int, height: int) -> int:
    """Return lines of the chart on the page of waits of that size."""
    return max(height // 3 - 1, 3)


def waits_needs(session: Session, width: int) -> int:
    """Return lines with a figure for each class that the server has."""
    return _MOST


def waits_axis(session: Session, width: int, span_s: float = SPANS_S[0]) -> TimeAxis:
    """Return the time axis of a chart of waits; its legend is part of the width."""
    return time_axis(session, max(width, _LEGEND + GUTTER + 1), SPARK_ROWS + 1, span_s, _LEGEND)


def stacked_waits(session: Session, width: int, height: int, glyphs: Glyphs, span_s: float = SPANS_S[0]) -> list[Line]:
    """Return a head with figures, the classes stacked with CPU at the bottom, times of day; beside them the classes by
    name.

    Class figures are means of the last 10 s, or of as long as there are looks; the head says so. The client's turn is
    grey and no part of the stack.
    """
    if height < 1:
        return []
    interval, sample = session.interval, wait_source(session)
    if interval is None or isinstance(sample, Unavailable):
        reason = sample if isinstance(sample, Unavailable) else NOT_YET
        lines = absent("waits", reason, width, height, glyphs)
        return [*lines, *[((" " * width, PLAIN),)] * (height - len(lines))]
    cpus = cpus_of(session)
    of_s = watched_s(interval, WAITS_WINDOW_S)
    named: Line = (("active sessions", "title"), (f" mean of {of_s:.0f} s", "label"))
    title = head(named, width, glyphs, _figures(interval, sample, cpus))
    axis = waits_axis(session, width, span_s)
    clock = height >= _CLOCK_ROWS
    rows = height - 1 - clock
    classes = wait_classes(interval.newest)
    stacked, totals = _stacked([axis.means_of(session, metric) for metric in classes])
    areas = [
        Area(values, wait_style(metric.title), _density(metric))
        for metric, values, part in zip(classes, stacked, totals, strict=True)
        if part or values is stacked[0]
    ]
    totals_per_column = sorted(value for value in stacked[-1] if value is not None)
    usual = totals_per_column[int((len(totals_per_column) - 1) * (1.0 - _RARE))] if totals_per_column else 0.0
    top = nice_ceiling(max(usual, 1.2 * cpus if cpus and usual > cpus / 4 else 0.0, 1.0))
    levels = [Level([float(cpus)] * axis.columns, "strong", glyphs.rule)] if cpus else []
    drawn = filled_lines(
        areas, levels, axis=replace(axis, beside=0), height=rows, top=top, unit_format=count, glyphs=glyphs,
        marks=chart_marks(session, axis), peak=Peak(stacked[-1], mean),
    )  # fmt: skip
    legend = _legend(classes, totals, interval, rows + clock, glyphs)
    body = [*drawn, *([axis_line(session, replace(axis, beside=0), glyphs)] if clock else [])]
    return [title, *((*line, *padded(beside, width - axis.width)) for line, beside in zip(body, legend, strict=True))]


def cpus_of(session: Session) -> int | None:
    """Return the CPUs that the server may use; None where they are not known."""
    host = None if session.now is None else session.now.host
    if host is None or isinstance(host, Unavailable) or isinstance(host.facts, Unavailable):
        return None
    cpu_count = host.facts.cpu_count
    return cpu_count if isinstance(host.cgroup, Unavailable) else host.cgroup.cpus_of(cpu_count)


def _stacked(series: Sequence[list[float | None]]) -> tuple[list[Columns], list[float]]:
    """Return each class on top of those before it, and the total of each; a gap where none is known."""
    stacked: list[Columns] = []
    below: list[float | None] = [None] * len(series[0])
    for values in series:
        if stacked and not any(values):
            stacked.append(below)
            continue
        below = [low if value is None else (low or 0.0) + value for low, value in zip(below, values, strict=True)]
        stacked.append(below)
    return stacked, [sum(value for value in values if value is not None) for values in series]


def _density(metric: Metric) -> int:
    """Return neighbours are told apart without colours; waits of clients are the faintest."""
    return (
        3 if metric.title == "Client" else next(i for i, known_class in enumerate(CLASSES) if known_class is metric) % 3
    )


def _legend(
    classes: Sequence[Metric], totals: Sequence[float], interval: Interval, rows: int, glyphs: Glyphs
) -> list[Line]:
    """Return a line per class of the chart, in the order of the stack from above; where rows are few, those with most
    sessions.
    """
    beside = [
        (metric, name)
        for metric, name in _BESIDE
        if mean_over(metric, interval, LONG_WINDOW_S) or metric is CLIENT_THINKS
    ]
    # A colour of the chart without its name is a riddle: what is no active session gives way.
    charted = sorted((index for index, total in enumerate(totals) if total), key=lambda index: -totals[index])[:rows]
    lines: list[Line] = []
    for index in sorted(charted or [0], reverse=True):
        metric = classes[index]
        value = mean_over(metric, interval, WAITS_WINDOW_S)
        style = wait_style(metric.title)
        lines.append(
            (
                (" ", PLAIN),
                filling(_density(metric), style, glyphs),
                (f" {metric.title:<{_ROW_NAME}}", style),
                (mean(value).rjust(_LEGEND - _ROW_NAME - 4), PLAIN if value else "dim"),
            )
        )
    for metric, name in beside[: max(rows - len(lines), 0)]:
        value = mean_over(metric, interval, WAITS_WINDOW_S)
        lines.append(((f"   {name:<{_ROW_NAME}}", "dim"), (mean(value).rjust(_LEGEND - _ROW_NAME - 4), "dim")))
    return [*lines, *[()] * (rows - len(lines))][:rows]


def _figures(interval: Interval, sample: WaitSample, cpus: int | None) -> list[Phrase]:
    short = mean_over(ACTIVE_SESSIONS, interval, WAITS_WINDOW_S)
    style = "warning" if cpus and short and short > cpus else "strong"
    long_s = watched_s(interval, LONG_WINDOW_S)
    rate = (
        f", {sample.samples:>2} {'sample ' if sample.samples == 1 else 'samples'}"
        if sample.source == ACTIVITY_SOURCE
        else ", exact"
    )
    workers = io_worker_processes(interval)
    busy = mean_over(IO_WORKERS, interval, WAITS_WINDOW_S)
    return [
        Phrase(labelled("active", mean(short), style)),
        Phrase(labelled(f"{long_s:.0f} s", mean(mean_over(ACTIVE_SESSIONS, interval, LONG_WINDOW_S))), 3),
        Phrase(labelled("CPUs", str(cpus) if cpus else "-"), 1),
        *([Phrase(labelled(IO_WORKERS.title, f"{mean(busy)} of {workers}"), 5)] if workers else []),
        Phrase(((f"{sample.source}{rate}", "label"),), 6),
    ]


_LABEL: Final = 22
_VALUE: Final = 5
_SLOT: Final = 38
"""Cells a wait with a bar takes at least."""
_FEW: Final = 4
"""With fewer slots than this on the pane, words without bars say more."""
_NAME: Final = 60
_TITLES: Final = {
    True: ("where each transaction's ", " goes"),
    False: ("waits explain ", " of each transaction"),
}
"""Around the whole, by whether a client of ours measured it."""


_LEAST: Final = 0.005
"""Mean sessions that a wait without a transaction to divide must have to be named: less reads as nothing."""
_STROKES: Final = 8
"""Cells of a head that are neither title nor facts."""


class _Part(Struct, frozen=True):
    label: str
    wait_event_type: str
    value: float


def budget_lines(session: Session, width: int, height: int, glyphs: Glyphs) -> list[Line]:
    """Return a head with the whole, then bars per wait, largest first, "other" last; what has no room is one sum."""
    interval, waits = session.interval, wait_source(session)
    if interval is None or isinstance(waits, Unavailable):
        reason = waits if isinstance(waits, Unavailable) else NOT_YET
        return _filled(absent("waits", reason, width, height, glyphs), width, height)
    title, parts, unit = _content(interval)
    lines: list[Line] = [head(title, width, glyphs, tail_phrases(session, width - cells_of(title) - _STROKES))]
    across = max((width - 1) // _SLOT, 1)
    rows = height - 1
    if rows > 0 and across * rows >= _FEW:
        lines += _bars(_gathered(parts, across * rows), unit, width, across, rows, glyphs)
    elif rows > 0:
        lines += [_words(parts, unit, width)]
    return _filled(lines, width, height)


def _filled(lines: list[Line], width: int, height: int) -> list[Line]:
    return [*lines, *[((" " * width, PLAIN),)] * (height - len(lines))][:height]


def _content(interval: Interval) -> tuple[Line, list[_Part], str]:
    budget = latency_budget(interval)
    if budget is None:
        return _profile(interval)
    parts = [_Part(part.label, part.wait_event_type, part.ms) for part in budget.parts]
    before, after = _TITLES[budget.measured]
    title: Line = (
        (before, "title"),
        (with_ms(budget.total_ms), "strong"),
        (after, "title"),
        (f", mean of {budget.window_s:.0f} s", "label"),
    )
    use = cpu_of_load(interval, budget.window_s) if budget.measured else None
    if use is not None and use.queued is None:
        title += ((" · CPU queue unknown", "dim"),)
    return title, parts, "ms"


def _profile(interval: Interval) -> tuple[Line, list[_Part], str]:
    profile = wait_profile(interval)
    parts = [_Part(wait.label, wait.wait_event_type, wait.sessions) for wait in profile if wait.sessions >= _LEAST]
    sampled = sessions(interval, WAITS_WINDOW_S) is not None
    total = sum(part.value for part in parts) if sampled else None
    title: Line = (("waits of ", "title"), (mean(total), "strong"), (" active sessions, mean of 10 s", "title"))
    return title, parts, ""


def _gathered(parts: Sequence[_Part], slots: int) -> list[_Part]:
    """Return at most so many parts: the smaller ones become one sum, "other" keeps its place at the end."""
    if len(parts) <= slots:
        return list(parts)
    tail = [part for part in parts if part.label == OTHER][:slots]
    named = [part for part in parts if part.label != OTHER]
    room = max(slots - len(tail) - 1, 0)
    remaining = named[room:]
    summed = _Part(f"{len(remaining)} more", OTHER, sum(part.value for part in remaining))
    return [*named[:room], summed, *tail][:slots]


def _bars(parts: Sequence[_Part], unit: str, width: int, across: int, rows: int, glyphs: Glyphs) -> list[Line]:
    slot = (width - 1) // across
    cells = slot - _LABEL - _VALUE - 4
    most = max((part.value for part in parts), default=0.0)
    lines: list[Line] = []
    for row in range(rows):
        spans: list[Span] = [(" ", PLAIN)]
        for part in parts[row * across : (row + 1) * across]:
            style = wait_style(part.wait_event_type)
            share = part.value / most if most > 0 else 0.0
            spans += [
                (ellipsized(part.label, _LABEL, glyphs.ellipsis) + " ", "label"),
                (_value(part, unit).rjust(_VALUE) + " ", PLAIN),
                (bar(share, cells, glyphs) + "  ", style),
            ]
        lines.append(padded(tuple(spans), width))
    return lines


def _words(parts: Sequence[_Part], unit: str, width: int) -> Line:
    line: Line = ()
    for slots in range(len(parts), 0, -1):
        spans: list[Span] = []
        for part in _gathered(parts, slots):
            spans += [
                (f"{'  ' if spans else ' '}{one_line(part.label, _NAME)} ", wait_style(part.wait_event_type)),
                (_value(part, unit), PLAIN),
            ]
        line = tuple(spans)
        if cells_of(line) <= width:
            break
    return padded(line, width)


def _value(part: _Part, unit: str) -> str:
    return ms(part.value) if unit == "ms" else mean(part.value)
