"""The results of a load: one run with all its figures, or the steps with a page for each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pgtop_tune.base.safe_text import one_line
from pgtop_tune.base.units import clock, count, counted, decimal, marked_ms, ms, number, with_ms
from pgtop_tune.metrics.load import QUANTILES
from pgtop_tune.model.run_result import Doubt, LatencySummary, RunResult, RunVerdict
from pgtop_tune.runtime.load_control import LoadSearch, LoadSeries, RateCurve
from pgtop_tune.tui.dialogs.dialog import Dialog
from pgtop_tune.tui.widgets.chart import GUTTER, Area, ChartMark, Level, TimeAxis, filled_lines, nice_ceiling
from pgtop_tune.tui.widgets.lines import PLAIN, Cell, Column, Glyphs, Line, labelled, plain_text, table_lines, wrapped

# The record of a run for reading: the final report, percentiles, statements, and how far it can be trusted. Pure.

LABEL: Final = 14
_NAME: Final = 40
_STATEMENT: Final = 200
_REASON: Final = 600
_STYLES: Final = {RunVerdict.INVALID: "critical", RunVerdict.SUSPECT: "warning", RunVerdict.NOTE: "dim"}


def result_lines(result: RunResult, cells: int, glyphs: Glyphs) -> list[Line]:
    """Return everything an operator asks of a run, from the most to the least important.

    Args:
        result: Result of one run.
        cells: Width of every line.
        glyphs: Characters.
    """
    return [
        (_headline(result),),
        _verdict(result, glyphs),
        *_message(result, cells),
        (),
        *_figures(result, cells),
        *_percentiles(result, cells, glyphs),
        *_statements(result, cells),
        (),
        *_doubts(result.doubts, cells, glyphs),
        *labelled("command", result.command, cells, label_cells=LABEL),
    ]


def load_words(result: RunResult) -> str:
    """Return the profile, or the scripts."""
    return one_line(result.profile or " ".join(script.name for script in result.scripts) or "scripts", _NAME)


def verdict_words(result: RunResult) -> tuple[str, str]:
    """Return whether it counts, in a word, and its style."""
    if not result.valid:
        return "not valid", "critical"
    if any(doubt.verdict is RunVerdict.SUSPECT for doubt in result.doubts):
        return "doubtful", "warning"
    return ("partial", "warning") if result.partial else ("valid", "good")


def _headline(result: RunResult) -> tuple[str, str]:
    spec = result.spec
    length = f"{spec.transactions} transactions each" if spec.transactions else spec.phases or f"{spec.duration_s} s"
    if not (spec.transactions or spec.phases or spec.duration_s):
        length = "until stopped"
    rate = "" if spec.rate_per_s is None else f", {number(spec.rate_per_s)} per second"
    where, clients = (
        one_line(result.endpoint, _NAME),
        f"{result.clients_words} client{'s' if result.clients_words != '1' else ''}",
    )
    return f"{load_words(result)}, {clients}{rate}, {length}, {spec.protocol}, {where}", "strong"


def _verdict(result: RunResult, glyphs: Glyphs) -> Line:
    text, style = verdict_words(result)
    mark = glyphs.bullet if style == "good" else glyphs.warning if style == "warning" else glyphs.cross
    ended = f"   {f'ended early: {result.ended_for}' if result.ended_for else result.state}"
    ended += f", exit status {result.exit_status}" if result.exit_status else ""
    partial = ", the results are partial" if result.partial else ""
    return ((f"{mark} {text}", style), (ended + partial, PLAIN))


def _message(result: RunResult, cells: int) -> list[Line]:
    return wrapped(result.message, cells, "critical") if result.message else []


def _figures(result: RunResult, cells: int) -> list[Line]:
    counted = [f"{number} {name}" for number, name in result.counted]
    stddev = "" if result.latency_stddev_ms is None else f", stddev {decimal(result.latency_stddev_ms, 3)} ms"
    rows = [
        ("tps", _tps(result)),
        ("latency", f"average {decimal(result.latency_average_ms, 3)} ms{stddev}"),
        ("transactions", ", ".join(counted)),
        ("connecting", "" if result.connection_ms is None else f"{decimal(result.connection_ms, 3)} ms"),
        ("seconds", _seconds(result)),
    ]
    return [line for label, text in rows if text for line in labelled(label, text, cells, label_cells=LABEL)]


def _tps(result: RunResult) -> str:
    steady = result.steady
    error = "" if steady.error_tps is None else f" ± {steady.error_tps:.1f}"
    settled = {True: "steady", False: "NOT STEADY", None: "seconds"}[steady.steady]
    settled_text = "" if steady.tps is None else f"   {settled} {steady.tps:.1f}{error}: {steady.reason}"
    return decimal(result.tps, 1) + settled_text


def _seconds(result: RunResult) -> str:
    return "" if result.spread is None else result.spread.words


def _percentiles(result: RunResult, cells: int, glyphs: Glyphs) -> list[Line]:
    """Return all of the run, and each script where there are several."""
    if result.latencies is None:
        return labelled("percentiles", "no transaction in the log", cells, "dim", LABEL)
    named = [("all", result.latencies), *((script.part, script.latencies) for script in result.by_script)]
    named += [
        (f"{count(level.tps)} tps, {level.name}", level.latencies)
        for level in result.levels
        if level.latencies is not None
    ]
    columns = (
        Column("latency, ms", 16, elastic=True),
        *(Column(quantile.title, 7, "right") for quantile in QUANTILES),
        Column("max", 7, "right"),
        Column("logged", 9, "right"),
    )
    rows = [_row(name, latencies, result) for name, latencies in named]
    return [(), *table_lines(columns, rows, width=cells, height=len(rows) + 1, glyphs=glyphs)]


def _row(name: str, latencies: LatencySummary, result: RunResult) -> list[tuple[str, str]]:
    percentiles = [
        marked_ms(result.mark(latencies, quantile.per_cent), latencies.at(quantile.per_cent)) for quantile in QUANTILES
    ]
    # Which script a counted transaction was of is an estimate; how many there were of all is none.
    logged = f"{'~' if latencies.counted_below_ms and latencies is not result.latencies else ''}{latencies.logged}"
    texts = [one_line(name, _NAME), *percentiles, marked_ms(result.log_mark, latencies.max_ms), logged]
    return [(text, PLAIN) for text in texts]


def _statements(result: RunResult, cells: int) -> list[Line]:
    """Return the mean latency of each statement, where that was requested, and the server's times of its execution."""
    report, times = result.report, result.server_times
    if report is None:
        return []
    lines: list[Line] = []
    for name, statements in [("", report.statements), *((script.name, script.statements) for script in report.scripts)]:
        if not statements:
            continue
        title = f"statements of {one_line(name, _NAME)}, mean ms" if name else "statements, mean ms"
        lines += [(), ((title, "title"), ("; server: mean ± standard deviation" if times.rows else "", "dim"))]
        for statement in statements:
            there = times.of(name, statement.text)
            of_all = " of all equal ones" if there is not None and there.shared else ""
            server = "" if there is None else f"[{decimal(there.mean_ms, 3)} ± {decimal(there.stddev_ms, 3)}{of_all}] "
            text = server + one_line(statement.text, _STATEMENT) + statement.trouble
            lines += labelled(f"{statement.latency_ms:10.3f}  ", text, cells, label_cells=LABEL)
    if lines and times.problem:
        lines += wrapped(f"not timed on the server: {one_line(times.problem, _REASON)}", cells, "dim")
    return lines


def _doubts(doubts: tuple[Doubt, ...], cells: int, glyphs: Glyphs) -> list[Line]:
    if not doubts:
        return [(("no reason to doubt this run", "good"),)]
    lines: list[Line] = []
    for doubt in doubts:
        style = _STYLES[RunVerdict(doubt.verdict)]
        lines += wrapped(f"{doubt.verdict}  {doubt.id}: {one_line(doubt.reason, _REASON)}", cells, style)
        if doubt.advice:
            lines += labelled(f"  {glyphs.arrow}", one_line(doubt.advice, _REASON), cells, label_cells=4)
    return lines


# The steps of a load: a row each, throughput and p99 over them, and the knee in words. Pure.

_TITLES: Final = {"clients": "clients", "rate": "rate /s"}
_CHART_ROWS: Final = (7, 5)
"""Rows of the charts of throughput and of p99."""
_FEWEST_ROWS: Final = 3


def steps_lines(series: LoadSeries, cells: int, rows: int, glyphs: Glyphs) -> list[Line]:
    """Return table, charts and knee.

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
        _below([number(point.load) for point in series.points], "", cells),
        *knee,
    ]


def step_table(series: LoadSeries, cells: int, glyphs: Glyphs) -> list[Line]:
    """Return a row for each step that has ended; a failed one has its reason."""
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
        text, style = verdict_words(result)
        doubts = ", ".join(doubt.id for doubt in result.doubts if doubt.verdict != "note") or result.message
        mark = f"{glyphs.pointer_left} knee  " if point.load == knee else ""
        rows.append(
            [
                (number(point.load), PLAIN),
                (decimal(result.tps, 1), "strong"),
                (decimal(result.latency_average_ms, 3), PLAIN),
                (ms(point.p99_ms), PLAIN),
                ("" if result.failed is None else str(result.failed), "critical" if result.failed else PLAIN),
                (f" {mark}{text}" + (f": {doubts}" if doubts else ""), style),
            ]
        )
    return table_lines(columns, rows, width=cells, height=len(rows) + 1, glyphs=glyphs)


def _chart_rows(spare: int) -> tuple[int, int]:
    """Share the spare rows; with fewer rows a chart would say nothing, and the dialog scrolls."""
    if spare >= sum(_CHART_ROWS):
        return _CHART_ROWS
    return max(spare * 3 // 5, _FEWEST_ROWS), max(spare * 2 // 5, _FEWEST_ROWS)


def _chart(
    series: LoadSeries, values: Sequence[float | None], style: str, cells: int, rows: int, glyphs: Glyphs
) -> list[Line]:
    """Return every step is as wide as the next: loads are mostly doubled."""
    columns, steps = max(cells - GUTTER, 0), len(values)
    knee = None if series.knee is None else series.knee.load
    highest = max((value or 0.0 for value in values), default=0.0)
    return filled_lines(
        [Area([values[column * steps // columns] for column in range(columns)], style)],
        axis=TimeAxis(-0.5, steps - 0.5, cells), height=rows, top=nice_ceiling(highest), unit_format=count,
        glyphs=glyphs, marks=[ChartMark(float(step)) for step, point in enumerate(series.points) if point.load == knee],
    )  # fmt: skip


# A search for the highest rate: its result or its progress, with a chart of latency over the rates. Pure.

_STANDINGS: Final = {"holds": "ok", "breaks": "over", "unclear": "?"}
_ABOVE: Final = 3.0
"""Height of the chart, in limits: latencies far above it would leave no room for those that count."""
_ROWS_PER_RUN: Final = 15
"""Rows of the screen for each of the newest runs that is shown."""
_RATE_CHART_ROWS: Final = 16
_AROUND_CHART: Final = 6
"""Lines of the chart's title and scale, and the blank ones around it."""


def search_lines(series: LoadSeries, search: LoadSearch, cells: int, rows: int, glyphs: Glyphs) -> list[Line]:
    """Return the result of a search, its chart, and what else is known.

    Args:
        series: Its runs.
        search: The search.
        cells: Width of every line.
        rows: Lines there is room for: the chart shrinks first.
        glyphs: Characters.
    """
    lines = wrapped(f"ended before its time: {series.problem}", cells, "critical") if series.problem else []
    first, *further = search.result or (search.so_far,)
    lines += wrapped(one_line(first, _REASON), cells, "strong")
    after = [
        line
        for text in further
        for line in wrapped(one_line(text, _REASON), cells, "warning" if text.startswith("doubt") else PLAIN)
    ]
    chart_rows = rows - len(lines) - len(after) - _AROUND_CHART
    return [*lines, *_rate_chart(search.curve, cells, chart_rows, glyphs), (), *after]


def search_progress(
    search: LoadSearch, run: Sequence[Line], now_ms: float, cells: int, rows: int, glyphs: Glyphs
) -> list[Line]:
    """Return a search under way: the run, the interval so far, the remaining time, the newest runs, the chart.

    Args:
        search: The search.
        run: Lines of the run under way.
        now_ms: The time, milliseconds since the epoch.
        cells, rows, glyphs: As in `search_lines`.
    """
    left_s = max(search.ends_ms - now_ms, 0.0) / 1000.0
    lines: list[Line] = [
        *wrapped(search.now, cells, "strong"),
        *wrapped(f"{search.so_far}; {counted(len(search.outcomes), 'run')}, about {clock(left_s)} left", cells),
        (), *run,
    ]  # fmt: skip
    if search.outcomes:
        lines.append(())
    for text in search.outcomes[-max(rows // _ROWS_PER_RUN, 1) :]:
        lines += wrapped(one_line(text, _REASON), cells, "dim")
    return [*lines, *_rate_chart(search.curve, cells, rows - len(lines) - _AROUND_CHART, glyphs)]


def _rate_chart(curve: RateCurve | None, cells: int, rows: int, glyphs: Glyphs) -> list[Line]:
    """Return latency over rates, each as wide as the next, with its limit as a line and the ends of the interval
    marked; nothing without a latency.
    """
    points = () if curve is None else curve.points
    latencies_ms = [point.latency_ms for point in points if point.latency_ms]
    if curve is None or not latencies_ms:
        return []
    columns, steps = max(cells - GUTTER, 0), len(points)
    of_columns = [points[column * steps // columns] for column in range(columns)]
    highest = max([*latencies_ms, curve.limit_ms or 0.0])
    top = nice_ceiling(min(highest, _ABOVE * curve.limit_ms) if curve.limit_ms else highest)
    broken = [column for column, point in enumerate(of_columns) if point.standing == "breaks"]
    limit = "" if curve.limit_ms is None else f", {glyphs.level} limit {with_ms(curve.limit_ms)}"
    height = min(max(rows, _FEWEST_ROWS), _RATE_CHART_ROWS)
    chart = filled_lines(
        [Area([point.latency_ms for point in of_columns], "series-2", alarms=broken)],
        [] if curve.limit_ms is None else [Level([curve.limit_ms] * columns, "strong")],
        axis=TimeAxis(-0.5, steps - 0.5, cells), height=height, top=top, unit_format=count,
        glyphs=glyphs,
        marks=[ChartMark(float(at)) for at, point in enumerate(points) if point.rate in (curve.low, curve.high)],
    )  # fmt: skip
    standings = [
        f"{'[' * (point.rate == curve.low)}{_STANDINGS[point.standing]}{']' * (point.rate == curve.high)}"
        for point in points
    ]
    return [
        (),
        ((f"{one_line(curve.figure, _NAME)}, ms", "series-2"), (f" over rate /s{limit}", "dim")),
        *chart,
        _below([count(point.rate) for point in points], "rate", cells),
        _below([ms(point.latency_ms) for point in points], "ms", cells),
        _below(standings, "", cells),
    ]


def _below(labels: Sequence[str], title: str, cells: int) -> Line:
    """Return labels below the columns of their points, as many as find room."""
    columns, steps = cells - GUTTER, len(labels)
    text = title[:GUTTER]
    for index, label in enumerate(labels):
        at = GUTTER + int((index + 0.5) / steps * columns) - len(label) // 2
        if at > len(text) and at + len(label) <= cells:
            text = text.ljust(at) + label
    return ((text, "dim"),)


_TURN: Final = {"right": 1, "l": 1, "tab": 1, "left": -1, "h": -1, "shift+tab": -1}


class ResultsDialog(Dialog[None]):
    """Shows records until it is closed; of steps first the whole, then each run.

    Args:
        series: With at least one result.
        glyphs: Characters of the drawing.
    """

    CELLS = 116
    KEYS = "y copy  Esc back"

    def __init__(self, series: LoadSeries, glyphs: Glyphs) -> None:
        self._series = series
        self._page = 0
        self._pages = 1 if not (series.axis or series.search) else 1 + len(series.results)
        super().__init__(self._title(), glyphs, keys=self._keys())

    def _title(self) -> str:
        runs, search = len(self._series.results), self._series.search
        if search:
            every = counted(len(search.outcomes), "run")
            return f"run {self._page} of {runs}" if self._page else f"highest rate: {every}"
        if not self._series.axis:
            return "result"
        if self._page == 0:
            return f"steps: {runs} of {self._series.asked}"
        return f"step {self._page} of {runs}"

    def _keys(self) -> str:
        return self.KEYS if self._pages == 1 else f"left, right each run  {self.KEYS}"

    def content(self, cells: int) -> list[Line]:
        """Return the page in view."""
        series = self._series
        if series.search and self._page == 0:
            return search_lines(series, series.search, cells, self.rows, self.glyphs)
        if series.axis and self._page == 0:
            return steps_lines(series, cells, self.rows, self.glyphs)
        return result_lines(series.results[max(self._page - 1, 0)], cells, self.glyphs)

    async def pressed(self, key: str, character: str | None) -> bool:
        """Turn pages, scroll, copy or close."""
        if key == "y":
            text = "\n".join(plain_text(line).rstrip() for line in self.content(self.cells))
            self.copy(text, "the result is in your clipboard")
        elif key == "enter":
            self.dismiss(None)
        elif key in _TURN and self._pages > 1:
            self._page = (self._page + _TURN[key]) % self._pages
            self.captions(self._title(), self._keys())
            self.show_from(0)
        else:
            return self.scroll_key(key)
        return True
