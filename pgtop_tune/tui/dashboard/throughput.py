"""Transactions per second, as the client counts them and as the server does, and what the newest change did to them."""

from __future__ import annotations

from collections.abc import Collection
from itertools import groupby
from typing import Final

from msgspec import Struct

from pgtop_tune.base.safe_text import one_line
from pgtop_tune.base.units import clock, count
from pgtop_tune.compare.overlay.curves import Against, OverlayWatch
from pgtop_tune.compare.since_change import SinceChange, since_change
from pgtop_tune.compare.statistics.effect import Verdict
from pgtop_tune.metrics import sections
from pgtop_tune.metrics.budget import standstill
from pgtop_tune.metrics.client_bound import client_bound
from pgtop_tune.metrics.load import (
    CLIENT_FAILED,
    CLIENT_TPS,
    SHORTEST_S,
    UNDER_WAY,
    broken_off_s,
    run_of,
    running,
    stalled_s,
)
from pgtop_tune.metrics.server import QPS, ROLLBACKS, TPS, why_uncounted
from pgtop_tune.model.absence import Reason, Unavailable
from pgtop_tune.model.bench import BenchRun, RunState
from pgtop_tune.runtime.session import Session
from pgtop_tune.tui.widgets.chart import (
    Area,
    Columns,
    CurveEnd,
    Level,
    Peak,
    TimeAxis,
    filled_lines,
    highest_columns,
    nice_ceiling,
)
from pgtop_tune.tui.widgets.lines import PLAIN, Glyphs, Line
from pgtop_tune.tui.widgets.lines import width as cells_of
from pgtop_tune.tui.widgets.phrase import Phrase, absence, head, labelled, lasting, value_of
from pgtop_tune.tui.widgets.time_axis import (
    SPANS_S,
    SPARK_ROWS,
    arm_bands,
    chart_marks,
    spark_line,
    time_axis,
)

# What a change did, in words for the head of the throughput pane: the longest form that there is room for.

_NAME: Final = 40
_VALUE: Final = 24
_EARLY: Final = "too early to tell"
_YOUNG: Final = "the load was too young before the change"
_WITHDRAWN: Final = "no longer clear"
_LEFT_OPEN: Final = "undecided: an A/B experiment decides"
_NEXT: Final = ", next at {} s"
_VERDICTS: Final[dict[Verdict, tuple[str, str, str]]] = {
    Verdict.BETTER: ("better", "better", "good"),
    Verdict.WORSE: ("worse", "worse", "critical"),
    Verdict.NO_DIFFERENCE: ("no difference beyond 2 %", "same", PLAIN),
    Verdict.UNDECIDED: ("not yet clear", "undecided", "dim"),
    Verdict.DIFFER: ("differ", "differ", PLAIN),
}
"""Verdict in full, in short, and the style of the figure."""
_WORDS: Final = max(len(text) for text, _, _ in _VERDICTS.values()) + len(_NEXT.format(480))
_SHORT: Final = max(len(short) for _, short, _ in _VERDICTS.values())


def since_title(change: SinceChange, cells: int, glyphs: Glyphs) -> Line:
    """Return `since max_wal_size=16GB: +4.1 % (−0.3 … +8.2) after 60 s: not yet clear, next at 120 s`, or less of
    it.

    Which form is taken does not depend on the verdict: each is measured with its longest words.

    Args:
        change: The change.
        cells: Room there is.
        glyphs: Characters.
    """
    return next((line for line, longest in _forms(change, glyphs) if longest <= cells), ())


def since_short(change: SinceChange, glyphs: Glyphs) -> Line:
    """Return `▲ +4.1 % undecided` in a slot, with the mark that the change has on the tape."""
    mark = (f"{glyphs.up} ", "event-parameter")
    _, short, style = _VERDICTS[change.verdict]
    effect = change.effect
    if effect is None:
        return mark, (_EARLY.ljust(_SHORT + len(_figure(0.0, glyphs)) + 1), "dim")
    return mark, (_figure(effect.relative, glyphs), style), (f" {short:<{_SHORT}}", style)


def _forms(change: SinceChange, glyphs: Glyphs) -> list[tuple[Line, int]]:
    """Return the forms of the title, the longest first, each with the cells it takes at most."""
    (name, value), *more = change.changed
    name, value = one_line(name, _NAME), one_line(value, _VALUE)
    and_more = f" and {len(more)} more" if more else ""
    labels = f"since {name}={value}{and_more}: ", f"since {name}{and_more}: "
    effect = change.effect
    slot = since_short(change, glyphs)
    if effect is None:
        reason = _YOUNG if change.too_early else _EARLY
        early = [((label, "label"), (text, "dim")) for text in dict.fromkeys((reason, _EARLY)) for label in labels]
        return [(line, cells_of(line)) for line in (*early, slot)]
    _, short, style = _VERDICTS[change.verdict]
    figure, widest = _figure(effect.relative, glyphs), _between(0.0, 0.0, glyphs)
    between = "" if effect.low is None or effect.high is None else _between(effect.low, effect.high, glyphs)
    after = f" after {change.after_s:>3} s: "
    rows = (
        (labels[0], between, widest, after, _in_full(change, glyphs), _WORDS),
        (labels[0], between, widest, after, short, _SHORT),
        (labels[0], between, widest, " ", short, _SHORT),
        (labels[1], between, widest, " ", short, _SHORT),
        (labels[1], "", "", " ", short, _SHORT),
    )
    forms: list[tuple[Line, int]] = [
        (
            ((label, "label"), (figure + interval_text, style), (gap, "label"), (verdict, style)),
            cells_of(((label + figure + room + gap, PLAIN),)) + longest,
        )
        for label, interval_text, room, gap, verdict, longest in rows
    ]
    return [*forms, (slot, cells_of(slot))]


def _in_full(change: SinceChange, glyphs: Glyphs) -> str:
    """Return the verdict, what stands against one, and when it is looked at next."""
    text = _VERDICTS[change.verdict][0]
    if change.verdict is Verdict.UNDECIDED:
        moving = "" if change.moved is None else f"drifting {_percent(change.moved, glyphs).strip()} % in 10 min before"
        text = change.unlike or moving or (_WITHDRAWN if change.withdrawn else _LEFT_OPEN if change.final else text)
    return text if change.next_s is None else text + _NEXT.format(change.next_s)


def _between(low: float, high: float, glyphs: Glyphs) -> str:
    return f" ({_percent(low, glyphs)} {glyphs.ellipsis} {_percent(high, glyphs)})"


def _figure(share: float, glyphs: Glyphs) -> str:
    return f"{_percent(share, glyphs)} %"


def _percent(share: float, glyphs: Glyphs) -> str:
    return f"{100.0 * share:+5.1f}".replace("-", glyphs.minus)


_CELLS: Final = 5
"""Cells of a figure."""
_LEAST_MESSAGE: Final = 20
_BESIDE_FAILURE: Final = 36
"""Cells of the head that its name, its first words and one figure need beside pgbench's message."""
_LONGEST_S: Final = 3600.0
_ROOMY: Final = 98
"""Cells from which on the head also says which load runs."""
_BESIDE_SINCE: Final = 12
"""Cells of the head that its name and the strokes need beside what a change did."""
_UNLIKE: Final = 0.15
"""Share by which the throughputs of server and client differ before the server has a line: they count other seconds."""
_LASTING: Final = 3
"""Columns one after the other in which they differ."""
_FAILED: Final = 14
"""Cells of the head that failed transactions need, where there are any: they stay in sight."""


def throughput_lines(
    session: Session,
    width: int,
    height: int,
    glyphs: Glyphs,
    baseline: OverlayWatch | None = None,
    span_s: float = SPANS_S[0],
) -> list[Line]:
    """Return a head with figures over a chart; in one or two rows a spark with figures beside it.

    Filled is what the client counts, else what the server does; the server's line stands where both differ, and that
    of the baseline overlay everywhere.
    """
    axis = time_axis(session, width, height, span_s)
    begin_s = axis.since_s - axis.column_s
    server, client = axis.means_of(session, TPS), axis.means_of(session, CLIENT_TPS)
    loaded = session.history.is_known(CLIENT_TPS, begin_s, axis.until_s)
    if height <= SPARK_ROWS:
        values, style = (client, "series-1") if loaded else (server, "series-2")
        ends = [
            Phrase(labelled(end.label, end.text.rjust(_CELLS), end.style), end.rank)
            for end in _curve_ends(session, server, client)
        ]
        figures = [*ends, *_figures(session)]
        change = session.once(since_change)
        if change is not None:
            figures.insert(1, Phrase(since_short(change, glyphs), 1))
        if baseline is not None:
            figures.insert(1, Phrase(overlay_throughput(session, baseline, glyphs).short or (), 1))
        return [spark_line("TPS", values, style, figures, axis, glyphs, session.once(arm_bands))]
    areas, levels = _curves(server, client if loaded else None, _held_columns(session, axis))
    figures, used_cells = _figures(session), 0
    if baseline is not None:
        earlier = axis.means(baseline.overlay.points("tps", begin_s, axis.until_s))
        levels.append(Level(earlier, "dim", glyphs.rule))
        phrase = overlay_throughput(session, baseline, glyphs)
        figures.insert(0, phrase)
        used_cells = cells_of(phrase.short or ()) + 3
    drawn = [*(area.values for area in areas), *(level.values for level in levels)]
    highest = max((value for values in drawn for value in values if value is not None), default=0.0)
    figures.insert(0, Phrase(_span(axis), 9, ()))
    beside = _beside(session, width, glyphs, used_cells)
    return [
        head((("TPS", "title"), *beside), width, glyphs, figures),
        *filled_lines(
            areas, levels, axis=axis, height=height - 1, top=nice_ceiling(highest), unit_format=count, glyphs=glyphs,
            marks=chart_marks(session, axis), bands=session.once(arm_bands),
            ends=_curve_ends(session, server, client), peak=Peak(highest_columns(areas), count),
        ),
    ]  # fmt: skip


class _Held(Struct, frozen=True):
    """Sessions of others that get nothing done: for how long, and the words for the head."""

    for_s: float
    text: str


def _held(session: Session) -> _Held | None:
    """Return the standstill of a server without a load of ours: no commit while sessions wait for a lock, or nearly all
    sessions wait for one transaction. None without one.
    """
    activity = None if session.now is None else sections.activity(session.now)
    if activity is None or isinstance(activity, Unavailable) or session.now is None or session.interval is None:
        return None
    if running(session.interval) is not None or not any(backend.blocked_by for backend in activity.backends):
        return None
    since_s = None
    for point in reversed(session.history.series(TPS, session.now.elapsed_s - _LONGEST_S)):
        if point.value != 0.0:
            break
        since_s = point.at_s
    still = session.interval.once(standstill)
    for_s = 0.0 if since_s is None else session.now.elapsed_s - since_s
    # A commit of a background process in between ends no standstill.
    if for_s >= SHORTEST_S and (still is None or still.for_s <= for_s):
        return _Held(for_s, f"no commit for {lasting(for_s)}")
    if still is None:
        return None
    return _Held(still.for_s, f"{still.waiting} of {still.active} active sessions wait {lasting(still.for_s)}")


def _held_columns(session: Session, axis: TimeAxis) -> range:
    """Return those after the one in which it began."""
    halt = session.once(_held)
    if halt is None or session.now is None:
        return range(0)
    begun = axis.column_of(session.now.elapsed_s - halt.for_s)
    return range(0 if begun is None else begun + 1, axis.columns)


def _curves(server: Columns, client: Columns | None, alarms: Collection[int]) -> tuple[list[Area], list[Level]]:
    if client is None:
        return [Area(server, "series-2", alarms=alarms)], []
    silent = {column for column, value in enumerate(client) if value == 0.0}
    # Before and after the load the server's is all there is.
    alone = [value if client_tps is None else None for value, client_tps in zip(server, client, strict=True)]
    areas = [Area(client, "series-1", alarms=silent), Area(alone, "series-2", alarms=alarms)]
    unlike = [
        value if value is None or client_tps is None or abs(value - client_tps) > _UNLIKE * client_tps else None
        for value, client_tps in zip(server, client, strict=True)
    ]
    return areas, [Level(_lasting_runs(unlike), "series-2", apart=True)]


def _lasting_runs(values: Columns) -> Columns:
    """Return the columns without single known ones: the two curves count other seconds, and a speck is chance."""
    runs = ((has_value, list(run)) for has_value, run in groupby(values, lambda value: value is not None))
    return [value if not has_value or len(run) >= _LASTING else None for has_value, run in runs for value in run]


def _span(axis: TimeAxis) -> Line:
    """Return the length of the window, and the seconds of a column where these are several."""
    means = f", a column is {axis.column_s:.0f} s" if axis.column_s > 1.0 else ""
    return ((f"chart of {axis.words}{means}", "label"),)


def _curve_ends(session: Session, server: Columns, client: Columns) -> list[CurveEnd]:
    """Return the client's throughput while a load of ours runs, and the server's."""
    interval = session.interval
    ends: list[CurveEnd] = []
    if interval is not None and running(interval) is not None:
        style = "series-1" if stalled_s(interval) is None else "critical"
        ends.append(CurveEnd("client", count(CLIENT_TPS(interval)), style, client))
    style = "series-2" if session.once(_held) is None else "critical"
    ends.append(CurveEnd("server", count(value_of(TPS, session)), style, server, 1))
    return ends


def _figures(session: Session) -> list[Phrase]:
    """Return the figures that have no curve."""
    interval = session.interval
    run = None if interval is None else running(interval)
    phrases = [_queries(session)]
    if interval is not None:
        rollbacks = ROLLBACKS(interval)
        if reason := interval.once(why_uncounted):
            phrases.insert(0, Phrase(((reason, "label"),), 1, (("tps not counted", "label"),)))
        phrases.append(Phrase(labelled("rollbacks", count(rollbacks), PLAIN, "/s") if rollbacks else (), 4, ()))
    if interval is not None and run is not None:
        failed = CLIENT_FAILED(interval)
        figure = labelled("failed", count(failed), "critical" if failed else PLAIN)
        phrases.append(Phrase(figure, 0 if failed else 2))
    return phrases


def _queries(session: Session) -> Phrase:
    absent = None if session.now is None else sections.statements(session.now)
    if isinstance(absent, Unavailable) and absent.reason not in (Reason.NO_ANSWER, Reason.NOT_YET):
        return Phrase((("qps ", "label"), *absence(absent)), 3, labelled("qps", "-", "dim"))
    return Phrase(labelled("qps", count(value_of(QPS, session)).rjust(_CELLS)), 3)


def _beside(session: Session, width: int, glyphs: Glyphs, used_cells: int) -> Line:
    """Return a problem of the load, the effect of the newest change, or the name of the load: the first that there is.

    Args:
        used_cells: Cells that a baseline overlay needs.
    """
    wrong = _wrong(session, width)
    if wrong:
        return wrong
    change = session.once(since_change)
    if change is not None:
        failed = None if session.interval is None else CLIENT_FAILED(session.interval)
        effect = since_title(change, width - _BESIDE_SINCE - used_cells - (_FAILED if failed else 0), glyphs)
        run = run_of(session.now)
        ended = f"{run.state}, " if run is not None and run.state not in UNDER_WAY else ""
        return ((f"  {ended}", "dim"), *effect)
    return () if used_cells else _load(session, width)


def _wrong(session: Session, width: int) -> Line:
    halt = session.once(_held)
    if halt is not None:
        return ((f"  {halt.text}", "critical"),)
    bench = None if session.now is None else session.now.bench
    if bench is None or isinstance(bench, Unavailable):
        return ()
    if session.interval is not None and broken_off_s(session.interval) is not None:
        reason = bench.run.ended_for or "pgbench failed"
        message = one_line(bench.run.message, max(width - _BESIDE_FAILURE, _LEAST_MESSAGE))
        return ((f"  {reason}: {message}", "critical"),)
    since_s = None if session.interval is None else stalled_s(session.interval)
    if since_s is not None:
        return ((f"  STALLED for {lasting(since_s)}", "critical"),)
    bound = None if session.interval is None else client_bound(session.interval)
    if bound is not None and bound.bound:
        return (("  CLIENT-BOUND" + (f": {bound.advice}" if width >= _ROOMY else ""), "warning"),)
    return ()


def _load(session: Session, width: int) -> Line:
    bench = None if session.now is None else session.now.bench
    if width < _ROOMY or bench is None or isinstance(bench, Unavailable):
        return ()
    run = bench.run
    text = f"  {one_line(run.load_name, 30)}, " + ("paused" if run.paused else f"{run.clients} clients")
    if run.state is not RunState.RUNNING:
        return ((f"{text}, {run.state}", "dim"),)
    return ((text + _progress(session, run), "dim"),)


def _progress(session: Session, run: BenchRun) -> str:
    if session.now is None:
        return ""
    elapsed_s = max(session.now.taken_at_ms - run.started_ms, 0) / 1000.0
    return f", {clock(elapsed_s)}" + (f" of {clock(run.duration_s)}" if run.duration_s else "")


# The baseline overlay in the head of a chart: its name, and how the load differs from it.

_RUN_NAME: Final = 24
_LONGEST_VERDICT: Final = len(Verdict.UNDECIDED)


def overlay_throughput(session: Session, watch: OverlayWatch, glyphs: Glyphs) -> Phrase:
    """Return `baseline run-041 +4.1 % (−0.3 … +8.2) undecided`; in short `baseline +4.1 %`."""
    label: Line = ((f"baseline {one_line(watch.overlay.baseline.name, _RUN_NAME)} ", "label"),)
    if watch.overlay.now(session.now) is None:
        reason = f"{glyphs.ellipsis} " if watch.reading else watch.overlay.nothing
        figure: Line = ((reason, "dim"),)
        in_full = figure
    else:
        comparison, _ = watch.against(session)
        figure, in_full = _overlay_figure(comparison, glyphs), _overlay_figure(comparison, glyphs, long=True)
    return Phrase((*label, *in_full), 0, (("baseline ", "label"), *figure))


def overlay_latency(session: Session, watch: OverlayWatch, glyphs: Glyphs) -> Phrase:
    """Return `baseline p99 +4.1 %`, of the p99 of seconds."""
    _, comparison = watch.against(session)
    return Phrase((("baseline p99 ", "label"), *_overlay_figure(comparison, glyphs)), 1)


def _overlay_figure(comparison: Against | None, glyphs: Glyphs, *, long: bool = False) -> Line:
    if comparison is None:
        return (("-".rjust(7), "dim"),)
    effect, style = comparison.effect, "strong" if comparison.verdict is Verdict.DIFFER else "dim"
    figure = _figure(effect.relative, glyphs)
    if not long or effect.low is None or effect.high is None:
        return ((figure, style),)
    between = _between(effect.low, effect.high, glyphs)
    return ((figure, style), (between, style), (f" {comparison.verdict:<{_LONGEST_VERDICT}}", style))
