"""A report: the results of one side, or of several against the first, with charts, events and environment."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Final

from msgspec import Struct

from pgtop_tune.base import units
from pgtop_tune.base.safe_text import one_line
from pgtop_tune.base.tables import Table
from pgtop_tune.compare.comparison import ComparedPhase, Comparison, Earlier, Spreads, compare
from pgtop_tune.compare.figure_rows import FigureRow, figure_of
from pgtop_tune.compare.noise import cells_of_side
from pgtop_tune.compare.reports.charts import Chart, ChartLine, Mark, line_chart, wait_bars
from pgtop_tune.compare.reports.outages import outage_lines, outage_table
from pgtop_tune.compare.reports.sheets import (
    RUN_FIGURES,
    Sheet,
    cell_notes,
    cell_table,
    effect_text,
    event_sheet,
    figure_sheet,
    figure_text,
    figure_title,
    fingerprint_sheet,
    interval_text,
    run_lengths,
    settling_sheet,
    side_line,
    signed,
    statement_sheet,
    step_sheet,
    wait_sheet,
    wait_text,
)
from pgtop_tune.compare.sides.figures import BY_ID, FIGURES, Figure, wait_rows
from pgtop_tune.compare.sides.fingerprint import GROUPS, PARAMETERS
from pgtop_tune.compare.sides.material import ComparedRun, FactKind, LoadKey, Material, Summary
from pgtop_tune.compare.statistics.effect import Verdict
from pgtop_tune.metrics.run_validity import short_words
from pgtop_tune.model.events import EventKind
from pgtop_tune.model.run_result import RunVerdict

# Tables of runs in the usual layouts: loads across, endpoints down, clients down, statements, a search.

_MANY: Final = 12
"""Columns of figures that fit beside each other."""
_MOST_STATEMENTS: Final = 60


def run_sheets(sides: Sequence[Material]) -> tuple[Sheet, ...]:
    """Return tables of everything that was run, those that have something to say."""
    loaded = [side for side in sides if any(run.key.name for run in side.runs)]
    if not loaded:
        return ()
    tables = (_datasets, _runs, _repeats, _outages, _steps, _statements)
    return tuple(sheet for table in tables if (sheet := table(loaded)) is not None)


def _datasets(sides: Sequence[Material]) -> Sheet | None:
    """Return seconds of each step in which a data set was made: steps down, sides across."""
    columns = [(side, dataset) for side in sides for dataset in side.datasets]
    heads = (one_line(f"{side.name}: {dataset.title}", 60) for side, dataset in columns)
    return step_sheet("data sets", heads, [dict(dataset.steps_s) for _, dataset in columns])


_SideRun = tuple[Material, ComparedRun]


def _runs(sides: Sequence[Material]) -> Sheet:
    """Return all runs: loads across where there are few of them and each was run once, else a row for each run."""
    cells = [(side, run) for side in sides for run in side.runs if run.key.name]
    keys = {(run.key.clients, run.key.endpoint, run.key.configuration, run.key.rate_per_s) for _, run in cells}
    if len(keys) > 1 or len(cells) > _MANY or any(run.summary.state == "failed" for _, run in cells):
        return Sheet("runs", (), _runs_down(cells))
    names = [f"{side.name}: {run.key.name}" if len(sides) > 1 else run.key.name for side, run in cells]
    heads = ("", *(one_line(name, 60) for name in names))
    rows = tuple(
        (figure.title, *(figure.text(run.summary) for _, run in cells))
        for figure in RUN_FIGURES
        if any(figure.of(run.summary) is not None for _, run in cells)
    )
    return Sheet("runs", (), Table(heads, rows, frozenset(range(1, len(heads)))))


def _runs_down(cells: Sequence[_SideRun]) -> Table:
    """Return a row for each run; a failed one has its reason in place of figures."""
    named = [name for name in _NAMES if name.title == "clients" or len({name.text(*cell) for cell in cells}) > 1]
    heads = (*(name.title for name in named), *(figure.title for figure in RUN_FIGURES))
    rows = tuple((*(one_line(name.text(*cell), 50) for name in named), *_figures(cell[1].summary)) for cell in cells)
    return Table(heads, rows, frozenset(range(len(named) - 1, len(heads))))


def _repeats(sides: Sequence[Material]) -> Sheet | None:
    """Return loads that a side ran several times: mean, deviation between runs, interval of the mean."""
    cells = [(side, cell) for side in sides for cell in cells_of_side(side, {})]
    if not cells:
        return None
    names = [f"{side.name}: {cell.title}" if len(sides) > 1 else cell.title for side, cell in cells]
    side_cells = [cell for _, cell in cells]
    return Sheet("repeats", (), cell_table(side_cells, names), notes=cell_notes(side_cells))


def _outages(sides: Sequence[Material]) -> Sheet | None:
    """Return the outages of runs that replaced lost clients, with what became of acknowledged commits."""
    cells = [(side, run, run.outage) for side in sides for run in side.runs if run.outage is not None]
    if not cells:
        return None
    named = [
        (one_line(f"{number} {side.name}: {run.key.title}", 60), outage)
        for number, (side, run, outage) in enumerate(cells, 1)
    ]
    heads = ("run", *outage_table(named[0][1]).heads)
    rows = tuple((name, *row) for name, outage in named for row in outage_table(outage).rows)
    table = Table(heads, rows, frozenset(range(1, len(heads)))) if rows else None
    notes = tuple(f"{name}: {line}" for name, outage in named for line in outage_lines(outage))
    return Sheet("outages", (), table, notes)


class _RunName(Struct, frozen=True):
    title: str
    text: Callable[[Material, ComparedRun], str]


_NAMES: Final = (
    _RunName("side", lambda side, run: side.name),
    _RunName("endpoint", lambda side, run: run.key.endpoint),
    _RunName("configuration", lambda side, run: run.key.configuration),
    _RunName("load", lambda side, run: run.key.name),
    _RunName("rate", lambda side, run: "" if run.key.rate_per_s is None else units.number(run.key.rate_per_s)),
    _RunName("clients", lambda side, run: str(run.key.clients)),
)


def _figures(summary: Summary) -> Iterator[str]:
    if summary.state == "failed":
        reason = one_line(short_words(summary.message), 100) or "no reason given"
        yield from (units.UNKNOWN for _ in RUN_FIGURES[:-1])
        yield f"failed: {reason}"
        return
    *figures, tps = (figure.text(summary) for figure in RUN_FIGURES)
    yield from (*figures, tps + (" (partial)" if summary.state == "stopped" else ""))


def curve_groups(sides: Sequence[Material]) -> dict[str, list[tuple[Material, LoadKey, float]]]:
    """Return the mean throughput over clients by load, of loads that were run with several numbers of clients."""
    groups: dict[str, list[tuple[Material, LoadKey, float]]] = {}
    for side in sides:
        for key, runs in side.phases.items():
            tps = [run.summary.tps for run in runs if run.summary.tps is not None]
            if key.name and tps:
                groups.setdefault(key.name, []).append((side, key, sum(tps) / len(tps)))
    return {name: rows for name, rows in groups.items() if len({key.clients for _, key, _ in rows}) > 1}


def line_name(side: Material, key: LoadKey, sides: int) -> str:
    """Return the name that tells one curve from another."""
    return " ".join(filter(None, (side.name if sides > 1 else "", key.endpoint, key.configuration))) or "tps"


def _steps(sides: Sequence[Material]) -> Sheet | None:
    """Return throughput as a matrix: clients down, sides across."""
    groups = curve_groups(sides)
    if not groups:
        return None
    rows: list[tuple[str, ...]] = []
    names = list(dict.fromkeys(line_name(side, key, len(sides)) for rows in groups.values() for side, key, _ in rows))
    for load, side_rows in groups.items():
        cells = {(key.clients, line_name(side, key, len(sides))): tps for side, key, tps in side_rows}
        for clients in sorted({clients for clients, _ in cells}):
            values = [cells.get((clients, name)) for name in names]
            rows.append((one_line(load, 40), str(clients), *(units.decimal(value, 2) for value in values)))
    heads = ("load", "clients", *(one_line(name, 40) for name in names))
    return Sheet("tps over clients", (), Table(heads, tuple(rows), frozenset(range(1, len(heads)))))


def _statements(sides: Sequence[Material]) -> Sheet | None:
    """Return the mean latency of each statement on every side, with -r."""
    latencies: list[dict[tuple[str, str, str], float]] = [
        {(run.key.title, script, text): ms for run in side.runs for script, text, ms in run.summary.statements}
        for side in sides
    ]
    keys = list(dict.fromkeys(key for side in latencies for key in side))[:_MOST_STATEMENTS]
    if not keys:
        return None
    rows = []
    for load, script, text in keys:
        values = [side.get((load, script, text)) for side in latencies]
        change: tuple[str, ...] = ()
        if len(values) == 2:
            a, b = values
            change = (f"{signed(100 * (b / a - 1))} %" if a and b is not None else units.UNKNOWN,)
        rows.append((one_line(load, 30), one_line(text, 80), *(units.decimal(value, 3) for value in values), *change))
    heads = ("load", "statement, ms", *(one_line(side.name, 40) for side in sides), *(("change",) if change else ()))
    return Sheet("statements", (), Table(heads, tuple(rows), frozenset(range(2, len(heads)))))


# A search for better values as a table: each step against the previous best it, kept or gone back from.

_FEWEST: Final = 3
_MOST_CHANGED: Final = 2
"""Settings that a step of a search changes; sides that differ in more are configurations."""
_AIMS: Final = ("tps", "server_tps")


def search_sheet(sides: Sequence[Material], under_test: Collection[str] = ()) -> Sheet | None:
    """Return one row for each side, in the order given; None where sides are no steps of a search.

    Args:
        under_test: As for `compare`.
    """
    if len(sides) < _FEWEST:
        return None
    best = sides[0]
    rows: list[tuple[str, ...]] = []
    for side in sides[1:]:
        comparison = compare(best, side, under_test)
        changed = [fact for fact in comparison.fingerprints.under_test if fact.kind is FactKind.SETTING]
        row = _aim(comparison)
        if row is None or not 1 <= len(changed) <= _MOST_CHANGED:
            return None
        if not rows:
            rows.append((one_line(best.name, 40), "start", figure_text(row.figure, row.a), "", "", "", ""))
        ahead = row.verdict == Verdict.DIFFER and row.effect is not None and row.effect.relative > 0
        kept = row.verdict == Verdict.BETTER or ahead
        rows.append(
            (
                one_line(side.name, 40),
                one_line("; ".join(f"{fact.name} {fact.a} -> {fact.b}" for fact in changed), 100),
                figure_text(row.figure, row.b),
                effect_text(row),
                interval_text(row),
                row.verdict,
                "keep for now: no verdict" if ahead else "keep" if kept else one_line(f"revert to {best.name}", 50),
            )
        )
        best = side if kept else best
    heads = ("step", "changed", "tps", "against the previous best", "98 % interval", "verdict", "")
    return Sheet(
        heading="search path",
        lines=(),
        table=Table(heads, tuple(rows), frozenset({2, 3, 4})),
        notes=_outcome_notes(sides[0], best, under_test),
    )


def _aim(comparison: Comparison) -> FigureRow | None:
    """Return throughput of the first load that both ran."""
    phase = next(iter(comparison.phases), None)
    return None if phase is None else next((row for name in _AIMS if (row := phase.row(name)) is not None), None)


def _outcome_notes(first: Material, best: Material, under_test: Collection[str]) -> tuple[str, ...]:
    if best is first:
        return (one_line(f"no step is proven better than {first.name}", 200),)
    row = _aim(compare(first, best, under_test))
    assert row is not None
    outcome = f"best: {best.name}; against {first.name} tps {effect_text(row)} ({interval_text(row)}), {row.verdict}"
    chosen = "the highest figure may be due to chance: measure both once more"
    return one_line(outcome, 300), chosen


DRAWN: Final = ("tps", "server_tps", "p99", "wal", "cpu", "disk_busy", "psi_io")
_MARKED: Final = frozenset({EventKind.PARAMETER, EventKind.CHECKPOINT, EventKind.AUTOVACUUM, EventKind.NOTE})
_CELL: Final = 200


class Picture(Struct, frozen=True):
    """A chart.

    Attributes:
        svg: An <svg> element.
        legend: Names of the lines, in their order; foreign text.
    """

    heading: str
    svg: str
    legend: tuple[str, ...] = ()


class Chapter(Struct, frozen=True):
    """A part of a report with a heading of its own.

    Attributes:
        folded: Whether it is for looking up, and is shown folded.
    """

    heading: str
    parts: tuple[Sheet | Picture, ...]
    folded: bool = False


def report_chapters(
    sides: Sequence[Material],
    under_test: Collection[str] = (),
    earlier: Earlier | None = None,
    spreads: Spreads | None = None,
) -> tuple[Chapter, ...]:
    """Return the chapters.

    Args:
        sides: The first is what the others are compared with.
        under_test, earlier, spreads: As for `compare`.
    """
    comparisons = [compare(sides[0], side, under_test, earlier, spreads=spreads) for side in sides[1:]]
    chapters = [Chapter("Summary", tuple(_short(sides, comparisons)))]
    search = search_sheet(sides, under_test)
    runs = (*run_sheets(sides), *(() if search is None else (search,)))
    if runs or curve_groups(sides):
        chapters.append(Chapter("Runs", (*runs, *_curves(sides))))
    for comparison in comparisons:
        chapters += _compared(comparison)
    if not comparisons:
        chapters += [
            Chapter(one_line(key.title, 100), (_figures_of(side, runs), *_pictures([(side, runs)])))
            for side in sides
            for key, runs in side.phases.items()
        ]
    tapes = [event_sheet(one_line(side.name, 100), side) for side in sides]
    chapters.append(Chapter("Events", tuple(tape for tape in tapes if tape is not None)))
    chapters += [
        Chapter(f"Environment of {one_line(side.name, 100)}", tuple(_capsule(side)), folded=True) for side in sides
    ]
    return tuple(chapter for chapter in chapters if chapter.parts)


def _short(sides: Sequence[Material], comparisons: Sequence[Comparison]) -> Iterator[Sheet]:
    lines = [one_line(side_line(side)) for side in sides]
    for comparison in comparisons:
        lines += [one_line(line, 400) for line in _outcome(comparison)]
    for side in sides:
        lines += [one_line(line, 400) for line in _failures(side)]
    yield Sheet("", tuple(lines))


def _outcome(comparison: Comparison) -> Iterator[str]:
    a, b = comparison.a.name, comparison.b.name
    if not comparison.comparable:
        yield f"{b} is not comparable with {a}: {'; '.join(comparison.reasons)}"
        return
    tested = ", ".join(f"{fact.name} {fact.a} -> {fact.b}" for fact in comparison.fingerprints.under_test)
    yield f"{b} against {a}, under test: {tested or 'nothing, both sides are the same'}"
    for phase in comparison.phases:
        main_rows = [row for row in phase.rows if row.figure.id in ("tps", "server_tps", "p99")]
        changes = "; ".join(f"{row.figure.title} {effect_text(row)} ({row.verdict})" for row in main_rows)
        yield f"{b}: {phase.key.title}: {changes}"
        worse = [row.figure.title for row in phase.rows if row.verdict == "worse" and row not in main_rows]
        if worse:
            yield f"{b}: {phase.key.title}: also worse: {', '.join(worse)}"


def _failures(side: Material) -> Iterator[str]:
    for run in side.runs:
        if run.summary.state == "failed":
            yield f"{side.name}: {run.key.title} failed: {short_words(run.summary.message)}"
    yield from dict.fromkeys(f"{side.name}: {run.key.title}: {limit}" for run in side.runs for limit in run.bound_by)
    for run in side.runs:
        for finding in run.findings:
            yield f"{side.name}: {run.key.title}: in {finding.share:.0%} of the time: {finding.sentence}".replace(
                "%", " %", 1
            )
    doubts = {doubt.id: doubt for run in side.runs for doubt in run.doubts if doubt.verdict is not RunVerdict.NOTE}
    for doubt in doubts.values():
        yield f"{side.name}: {doubt.verdict} {doubt.id}: {doubt.reason}{f' -> {doubt.advice}' if doubt.advice else ''}"


def _compared(comparison: Comparison) -> Iterator[Chapter]:
    name = one_line(f"{comparison.b.name} against {comparison.a.name}", 160)
    parts: list[Sheet | Picture] = [fingerprint_sheet(comparison)]
    yield Chapter(name, tuple(parts))
    for phase in comparison.phases:
        parts = [figure_sheet(phase)]
        if phase.waits:
            parts += [wait_sheet(phase), _bars(phase)]
        if phase.statements is not None:
            parts.append(statement_sheet(phase.statements))
        if phase.to_settle:
            parts.append(settling_sheet(phase))
        parts += _pictures([(comparison.a, phase.a), (comparison.b, phase.b)])
        yield Chapter(one_line(f"{phase.key.title}: {name}", 200), tuple(parts))


def _bars(phase: ComparedPhase) -> Picture:
    classes = [row for row in phase.waits if row.whole_class]
    svg = wait_bars(
        [
            ("A", [(row.label, row.a_ms) for row in classes if row.a_ms is not None]),
            ("B", [(row.label, row.b_ms) for row in classes if row.b_ms is not None]),
        ]
    )
    return Picture("milliseconds per transaction", svg)


def _figures_of(side: Material, runs: tuple[ComparedRun, ...]) -> Sheet:
    """Return figures of a side by itself."""
    rows = tuple(
        (figure_title(figure), figure_text(figure, value), figure.source)
        for figure in FIGURES
        if (value := figure_of(figure, runs)) is not None
    )
    latency_ms = figure_of(BY_ID["latency"], runs)
    waits = [row for row in wait_rows(runs, runs, (latency_ms, latency_ms)) if not row.whole_class]
    rows += tuple((f"{one_line(row.label, 40)}, ms per transaction", wait_text(row.a_ms), "waits") for row in waits)
    notes = tuple(one_line(f"not steady: {run.steady_words}", 300) for run in runs if run.steady is False)
    return Sheet(
        heading="figures",
        lines=(run_lengths(runs),),
        table=Table(("", "value", "source"), rows, frozenset({1})),
        notes=notes,
    )


def _pictures(sides: Sequence[tuple[Material, tuple[ComparedRun, ...]]]) -> Iterator[Picture]:
    """Yield figures over the time of the first run of each side."""
    several = len(sides) > 1
    for name in DRAWN:
        figure = BY_ID[name]
        lines, marks = [], []
        for number, (side, runs) in enumerate(sides):
            run = runs[0]
            letter = chr(ord("A") + number)
            lines.append(ChartLine(letter if several else figure.title, _series(figure, run)))
            marks += [Mark(at, number, f"{letter}: {text}" if several else text) for at, text in _events(side, run)]
        svg = line_chart(
            Chart(heading=figure_title(figure), lines=tuple(lines), format_value=_worded(figure), marks=tuple(marks))
        )
        if svg:
            legend = tuple(f"{line.name}: {side.name}" for line, (side, _) in zip(lines, sides, strict=True))
            yield Picture(figure_title(figure), svg, legend if several else ())


def _worded(figure: Figure) -> Callable[[float | None], str]:
    return lambda value: figure_text(figure, value)


def _series(figure: Figure, run: ComparedRun) -> list[tuple[float, float]]:
    if figure.quantile is not None:
        return run.gathered.latency_series(figure.quantile) or run.gathered.series(figure.id)
    return run.gathered.series(figure.id)


def _events(side: Material, run: ComparedRun) -> Iterator[tuple[float, str]]:
    for event in side.events:
        at = (event.at_ms - run.began_ms) / 1000.0
        if event.kind in _MARKED and 0.0 <= at <= run.seconds:
            yield at, one_line(event.text, 100)


def _curves(sides: Sequence[Material]) -> Iterator[Picture]:
    """Yield throughput over clients."""
    for load, rows in curve_groups(sides).items():
        lines: dict[str, list[tuple[float, float]]] = {}
        for side, key, tps in rows:
            lines.setdefault(line_name(side, key, len(sides)), []).append((float(key.clients), tps))
        drawn = tuple(ChartLine(name, sorted(points)) for name, points in lines.items())
        heading = one_line(f"tps over clients: {load}", 100)
        svg = line_chart(Chart(heading, drawn, _worded(BY_ID["tps"]), across="clients", dots=True))
        yield Picture(heading, svg, tuple(lines))


def _capsule(side: Material) -> Iterator[Sheet]:
    """Yield the fingerprint group by group; of parameters those that somebody set."""
    for group in GROUPS:
        facts = [fact for fact in side.facts if fact.group == group and not fact.shipped]
        if not facts:
            continue
        heads = ("", "value", "set by") if group == PARAMETERS else ("", "value")
        rows = tuple(
            (one_line(fact.name, 80), one_line(fact.value, _CELL), one_line(fact.source, 120))[: len(heads)]
            for fact in facts
        )
        yield Sheet(group, (), Table(heads, rows, frozenset()))
