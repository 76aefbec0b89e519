"""Latency as the client measures it: percentiles of every second, and its slowest transaction."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from statistics import median
from typing import TYPE_CHECKING, Final

from pgtop_tune.base.safe_text import one_line
from pgtop_tune.base.units import ms, percent, with_ms
from pgtop_tune.metrics.catalogue import Interval
from pgtop_tune.metrics.load import (
    CLIENT_LATENCY,
    OLDEST,
    OPEN_WHILE_STALLED,
    P50,
    P95,
    P99,
    P99_9,
    SHORTEST_S,
    running,
)
from pgtop_tune.metrics.tail import FEWEST, TAIL_WINDOW_S, Tail, TailCause, by_wait, tail
from pgtop_tune.model.bench import estimate_mark
from pgtop_tune.model.waits import PREPARED_TRANSACTION
from pgtop_tune.runtime.history import LatencyPoint, SeriesPoint
from pgtop_tune.runtime.session import NewestLatency, Session, newest_latency
from pgtop_tune.tui.dashboard.throughput import overlay_latency
from pgtop_tune.tui.widgets.chart import (
    GUTTER,
    Area,
    ChartMark,
    Columns,
    CurveEnd,
    Level,
    Peak,
    TimeAxis,
    ends_with_room,
    filled_lines,
    nice_ceiling,
    worst_columns,
)
from pgtop_tune.tui.widgets.lines import PLAIN, Glyphs, Line, width
from pgtop_tune.tui.widgets.phrase import Phrase, head, labelled, lasting, padded, wait_style
from pgtop_tune.tui.widgets.time_axis import (
    SPANS_S,
    SPARK_ROWS,
    axis_line,
    chart_marks,
    spark_line,
    time_axis,
)

if TYPE_CHECKING:
    from pgtop_tune.compare.overlay.curves import OverlayWatch

# Why the tail is slow, in one sentence: the waits of the slowest transactions alone.

_CAUSES: Final = 3
_LEAST: Final = 3.0
"""Per cent that a cause needs to be named."""
_ROOT: Final = 40


def known_tail(interval: Interval | None) -> Tail | None:
    """Return the tail of the newest frames, with enough transactions for shares."""
    slow_tail = None if interval is None else interval.once(tail)
    return slow_tail if slow_tail is not None and slow_tail.transactions >= FEWEST else None


def behind(cause: TailCause) -> str:
    """Return the session at the root of a queue: "pid 4711's UPDATE", "several sessions' END"."""
    if cause.root_pid == PREPARED_TRANSACTION:
        return "a prepared transaction"
    root = one_line(cause.root, _ROOT)
    if cause.root_pid is None and root:
        return f"sessions {root}" if root.startswith("idle") else f"several sessions' {root}"
    joined = f", {root}" if root.startswith("idle") else f"'s {root}" if root else ""
    return "" if cause.root_pid is None else f"pid {cause.root_pid}{joined}"


def _share(cause: TailCause) -> Line:
    return (f"{percent(cause.share)} % ", "strong"), (cause.label, wait_style(cause.wait_event_type))


def _named(cause: TailCause) -> Line:
    root = behind(cause)
    return (*_share(cause), (f" behind {root}", PLAIN)) if root else _share(cause)


def _numbers(slow_tail: Tail) -> Line:
    """Return the evidence behind the shares."""
    still = f", {slow_tail.open:.0f} of them open" if slow_tail.open >= 1 else ""
    return ((f"{slow_tail.transactions:.0f} transactions{still} seen in {slow_tail.looks} samples, 60 s", "label"),)


def tail_phrases(session: Session, cells: int) -> list[Phrase]:
    """Return the cause of most of the tail, for the right end of a head; empty without a cause, or without room for its
    short form.
    """
    slow_tail = known_tail(session.interval)
    if slow_tail is None:
        return []
    cause = by_wait(slow_tail.causes)[0]
    threshold = ((f"tail of {TAIL_WINDOW_S:.0f} s ", "label"), (f">{with_ms(slow_tail.over_ms)} ", "strong"))
    short = (*threshold, *_share(cause))
    return [Phrase((*threshold, *_named(cause)), 0, short)] if width(short) <= cells else []


def tail_phrases_in_full(session: Session, burst_key: str = "") -> list[Phrase]:
    """Return a line of its own: where the tail begins, its causes, the evidence; or why there is none to tell."""
    interval = session.interval
    slow_tail = None if interval is None else interval.once(tail)
    if slow_tail is None:
        return []
    reach = f" ({burst_key} samples faster for 20 s)" if burst_key else ""
    remark = "" if slow_tail.p99_ms is None else f", p99 {with_ms(slow_tail.p99_ms)}"
    if slow_tail.below_p99:
        remark += f": samples every {slow_tail.every_ms:.0f} ms see no shorter ones{reach}"
    elif slow_tail.before_p99:
        remark += f": samples every {slow_tail.every_ms:.0f} ms see too few shorter ones{reach}"
    threshold: Line = (("tail ", "title"), (f"over {with_ms(slow_tail.over_ms)}", "strong"), (remark, "label"))
    if slow_tail.transactions < FEWEST:
        few = "no transaction" if slow_tail.transactions < 0.5 else f"only {slow_tail.transactions:.0f} transactions"
        return [Phrase(threshold, 0, threshold[:2]), Phrase(((f"{few} seen in 60 s", "dim"),), 1)]
    causes = [cause for cause in by_wait(slow_tail.causes)[:_CAUSES] if cause.share >= _LEAST]
    named = [Phrase(_named(cause), rank, _share(cause)) for rank, cause in enumerate(causes, 1)]
    return [Phrase(threshold, 0, threshold[:2]), *named, Phrase(_numbers(slow_tail), 2)]


_CELLS: Final = 5
_UNIT: Final = " ms"
_SLOWEST: Final = "max"
_AGED_S: Final = 10.0
"""Figures older than this say how old they are; a buffered log is some seconds late."""
_SPIKE: Final = 4.0
"""Times the top of the curves, and the usual slowest transaction of a second, from which on one is drawn as a spike."""
_FEWEST: Final = 3
_USUAL: Final = 20
"""Seconds that tell what is usual at least, and those that do when the chart has fewer."""
_NO_LOAD: Final = "only a load measures latency"
CLOCK_ROWS: Final = 6
"""Rows from which on the last row of the pane has times of day."""
_AREAS: Final = {P50: "series-3", P95: "series-4", P99: "series-5"}
"""With their styles, the foremost first, the densest first."""
_JOINED: Final = 1.5
"""Seconds further apart than so many usual distances have a gap between them."""
_MOST: Final = 0.9
"""Share of the seconds whose slowest transaction the scale holds,"""
_FAR: Final = 3.0
"""unless it is so many times above p99."""
_RANKS: Final = {P50: 1, P95: 2, P99: 0, P99_9: 4}
"""Which are left out first where room is short: the highest."""


def has_latency(session: Session) -> bool:
    """Return whether there is a load of ours, or was one in the time that is kept."""
    return session.latency.newest() is not None or (
        session.interval is not None and running(session.interval) is not None
    )


def latency_lines(
    session: Session,
    width: int,
    height: int,
    glyphs: Glyphs,
    baseline: OverlayWatch | None = None,
    load_key: str = "",
    span_s: float = SPANS_S[0],
) -> list[Line]:
    """Return a head with the percentiles of the last complete second over areas up to p50, p95 and p99; or a spark of
    p99.

    Over them stand the slowest transaction of each second, and the p99 of the baseline overlay; a column of several
    seconds shows the worst of them. A second whose slowest transaction is far above the rest is cut, with its value.
    While the load stands still, the head says since when, and how old its oldest transaction is. `load_key` starts a
    load; "" where none can be started. The last row of a tall chart has times of day.
    """
    axis = time_axis(session, width, height, span_s)
    seconds = session.latency.series(axis.since_s)
    loaded = session.interval is not None and running(session.interval) is not None
    how: Line = (*_of_others(session), (f"{_NO_LOAD} (press {load_key})" if load_key else _NO_LOAD, "dim"))
    newest = session.once(newest_latency)
    slow = _spikes(seconds, session.latency.series()[-_USUAL:])
    slow_seconds = [second.second for second in slow]
    spikes_s = {
        point.at_s
        for point in seconds
        if any(point.second - point.span_s < slow_second <= point.second for slow_second in slow_seconds)
    }
    if height <= SPARK_ROWS:
        if not seconds and not loaded:
            return [padded(((" lat   ", "title"), *how), width)]
        p99 = [SeriesPoint(second.at_s, second.at(P99)) for second in seconds]
        usual_ms = _top(p99, spikes_s)
        curve = [SeriesPoint(point.at_s, usual_ms or point.value) if point.at_s in spikes_s else point for point in p99]
        figures = [
            Phrase(_silent(newest, "none")),
            *_since_when(session, newest),
            *map(_phrase, _curve_ends(session, newest, {}, ms)),
        ]
        if slow:
            figures.append(Phrase(((_spike_label(slow, glyphs), "warning"),)))
        span = _span(newest)
        if not any(text.endswith("s") for phrase in figures for text, _ in phrase.line):
            span = f"ms {span}".rstrip()
        if span:
            figures.append(Phrase(((span, "label"),), 0 if _span(newest) else 1))
        return [spark_line("lat", _worst(axis, curve), "series-5", figures, axis, glyphs)]
    clock = [axis_line(session, axis, glyphs)] if height >= CLOCK_ROWS else []
    rows = height - 1 - len(clock)
    if not seconds and not loaded:
        blank = ((" " * width, PLAIN),)
        line = padded(((" " * GUTTER, PLAIN), *how), width)
        return [head((("latency ms", "title"),), width, glyphs), line, *[blank] * (rows - 1), *clock]
    # What comes and goes stands on the left: the figures keep their places.
    span = _span(newest)
    pooled = [Phrase(((span, "label"),))] if span else []
    curves = {
        quantile.title: _worst(axis, [SeriesPoint(second.at_s, second.at(quantile)) for second in seconds])
        for quantile in _AREAS
    }
    areas = [Area(curves[quantile.title], style, density) for density, (quantile, style) in enumerate(_AREAS.items())]
    # While nothing ends, the latency that grows is that of the transactions which do not.
    still = axis.means(session.history.series(OPEN_WHILE_STALLED, axis.since_s))
    areas.insert(0, Area(still, "critical"))
    slowest_ms = _worst(axis, [SeriesPoint(second.at_s, second.max_ms) for second in seconds])
    levels = [Level(slowest_ms, "dim", glyphs.separator, yields=True)]
    all_ends = _curve_ends(session, newest, curves | {_SLOWEST: slowest_ms}, with_ms)
    ends = ends_with_room([end for end in all_ends if end.values], rows)
    in_head = [end for end in all_ends if end not in ends]
    figures = [*_since_when(session, newest), *pooled, *map(_phrase, in_head)]
    if baseline is not None:
        earlier = axis.means(baseline.overlay.points("p99_ms", axis.since_s, axis.until_s))
        levels.append(Level(earlier, "dim", glyphs.rule))
        figures.append(overlay_latency(session, baseline, glyphs))
    slowest = max(slow, key=lambda second: second.max_ms, default=None)
    marks = [
        ChartMark(second.at_s, "warning", _spike_label([second], glyphs) if second is slowest else glyphs.up)
        for second in slow
    ]
    # A stall that is over is a spike among others, cut at the scale of the rest.
    growing = still if newest.stalled_s is not None else ()
    further_ms = [value for value in (*growing, *(levels[-1].values if baseline is not None else ())) if value]
    top_ms = _scale_top(seconds, spikes_s, further_ms)
    # In a stall the age of the figures needs the room.
    how_wide = _column_words(axis) if newest.stalled_s is None else ()
    title: Line = (("latency ms", "title"), *how_wide, *_silent(newest, "  no transaction has"))
    return [
        head(title, width, glyphs, figures),
        *filled_lines(
            areas, levels, axis=axis, height=rows, top=top_ms, unit_format=_scale, glyphs=glyphs,
            marks=[*chart_marks(session, axis), *marks], ends=ends,
            peak=None if slow else Peak([value if (value or 0.0) <= top_ms else None for value in slowest_ms], with_ms),
        ),
        *clock,
    ]  # fmt: skip


def _worst(axis: TimeAxis, points: Sequence[SeriesPoint]) -> list[float | None]:
    """Return a second without a figure is a gap; one that two columns share fills both."""
    return worst_columns(points, axis.since_s, axis.until_s, axis.columns, _JOINED)


def _column_words(axis: TimeAxis) -> Line:
    return ((f" worst of {axis.column_s:.0f} s", "label"),) if axis.column_s > 1.0 else ()


def _scale_top(seconds: Sequence[LatencyPoint], spikes_s: Container[float], further_ms: Sequence[float]) -> float:
    """Hold every p99 but those of spikes, and the slowest transaction of most seconds where that is not far above."""
    usual = [second for second in seconds if second.at_s not in spikes_s] or list(seconds)
    p99_ms = max((second.at(P99) or second.rough_p99_ms for second in usual), default=0.0)
    slowest = sorted(second.max_ms for second in usual)
    most_ms = slowest[int((len(slowest) - 1) * _MOST)] if slowest else 0.0
    return nice_ceiling(max(p99_ms, most_ms if most_ms <= _FAR * p99_ms else 0.0, *further_ms, 0.0))


def _of_others(session: Session) -> Line:
    """Return the age of the oldest transaction of another user's pgbench; it comes first, where no narrow screen cuts
    it.
    """
    oldest_s = None if session.interval is None else OLDEST(session.interval)
    if oldest_s is None or oldest_s < SHORTEST_S:
        return ()
    return (f"oldest open transaction of pgbench {lasting(oldest_s)}", "warning"), ("; ", "dim")


def _scale(value_ms: float) -> str:
    return ms(value_ms) if value_ms else "0"


def _spikes(seconds: Sequence[LatencyPoint], newest: Sequence[LatencyPoint]) -> list[LatencyPoint]:
    """Return seconds with a transaction far slower than the curves are without a few of their seconds, one in twenty or
    two.

    When there are more of them, that is what the load is like, and the curves show it.

    Args:
        seconds: Seconds of the chart.
        newest: What is usual where the chart has fewer.
    """
    usual = max(seconds, newest, key=len)
    if len(usual) < _FEWEST:
        return []
    few = max(len(usual) // 20, min(len(usual) // 3, 2), 1)
    top_ms = nice_ceiling(sorted(second.rough_p99_ms for second in usual)[-1 - few])
    line_ms = _SPIKE * max(top_ms, median(second.max_ms for second in usual))
    return [second for second in seconds if second.max_ms > line_ms]


def _top(points: Iterable[SeriesPoint], spikes_s: Container[float]) -> float | None:
    """Return the scale that holds everything but the spikes; None where there is nothing else."""
    values = [point.value for point in points if point.value is not None and point.at_s not in spikes_s]
    return nice_ceiling(max(values)) if values else None


def _spike_label(seconds: Sequence[LatencyPoint], glyphs: Glyphs) -> str:
    return glyphs.up + with_ms(max(second.max_ms for second in seconds))


def _silent(newest: NewestLatency, lead: str) -> Line:
    return () if newest.stalled_s is None else ((f"{lead} ended for {lasting(newest.stalled_s)}", "critical"),)


def _since_when(session: Session, newest: NewestLatency) -> list[Phrase]:
    """Return the age of figures that are old, and, while no transaction ends, the age of the oldest transaction."""
    ago = f"{lasting(newest.age_s)} ago"
    if newest.stalled_s is None:
        aged = newest.second is not None and newest.age_s >= _AGED_S
        return [Phrase(((f"figures of {ago}", "label"),), 0, ((ago, "label"),))] if aged else []
    oldest_s = None if session.interval is None else OLDEST(session.interval)
    phrases = []
    if oldest_s is not None:
        open_for = f"open {lasting(oldest_s)}"
        phrases.append(Phrase(((f"oldest {open_for}", "critical"),), 0, ((open_for, "critical"),)))
    if newest.second is not None:
        several = f"{newest.second.span_s} s, " if newest.second.span_s > 1 else ""
        phrases.append(Phrase(((f"figures of {several}{ago}", "critical"),), 1, ((f"of {ago}", "critical"),)))
    return phrases


def _span(newest: NewestLatency) -> str:
    """Return how many seconds the figures cover; "" for one, and in a stall, where their age says it."""
    second = newest.second
    return f"of {second.span_s} s" if second is not None and second.span_s > 1 and newest.stalled_s is None else ""


def _curve_ends(
    session: Session, newest: NewestLatency, curves: Mapping[str, Columns], form: Callable[[float | None], str]
) -> list[CurveEnd]:
    """Return the figures of the newest second of the log, or of those that a p99 needs; before it the mean alone, of
    pgbench's progress line; unknown after the load.

    Args:
        session: The session that is shown.
        newest: Its newest second.
        curves: Curves by the name of their figure; the mean and p99.9 have none.
        form: Makes the text of a latency.
    """
    second, stalled = newest.second, newest.stalled_s is not None
    if second is not None:
        mean_ms: float | None = second.span_mean_ms
    else:
        mean_ms = None if session.interval is None else CLIENT_LATENCY(session.interval)
    counted_below_ms = 0.0 if second is None else second.span_counted_below_ms
    # The mean has all of them in it.
    estimated = "~" if counted_below_ms and mean_ms is not None else ""
    ends = [CurveEnd("mean", estimated + form(mean_ms), PLAIN, (), 5)]
    for quantile, rank in _RANKS.items():
        value = None if second is None else second.at(quantile)
        style = "dim" if stalled else _AREAS.get(quantile, PLAIN)
        text = form(value) if value is None else estimate_mark(value, counted_below_ms) + form(value)
        rank += 2 if stalled else 0
        ends.append(CurveEnd(quantile.title, text, style, curves.get(quantile.title, ()), rank))
    slowest = form(None if second is None else second.span_max_ms)
    return [*ends, CurveEnd(_SLOWEST, slowest, "dim" if stalled else PLAIN, curves.get(_SLOWEST, ()), 3)]


def _phrase(end: CurveEnd) -> Phrase:
    """Return a figure on a line, in a slot that keeps its place."""
    cells = _CELLS + (len(_UNIT) if end.text.endswith("s") else 0)
    return Phrase(labelled(end.label, end.text.rjust(cells), end.style), end.rank)
