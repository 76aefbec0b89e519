"""A report: the results of one side, or of several against the first, with charts, events and environment."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Final

from msgspec import Struct

from pgtop_tune.compare import words
from pgtop_tune.compare.comparison import Comparison, Earlier, Phase, Spreads, compare
from pgtop_tune.compare.figure_rows import figure_of
from pgtop_tune.compare.reports.charts import Chart, ChartLine, Mark, line_chart, wait_bars
from pgtop_tune.compare.reports.run_tables import curve_groups, line_name, run_sheets, search_sheet
from pgtop_tune.compare.reports.sheets import (
    Sheet,
    event_sheet,
    figure_sheet,
    fingerprint_sheet,
    settling_sheet,
    statement_sheet,
    wait_sheet,
)
from pgtop_tune.compare.reports.tables import Table
from pgtop_tune.compare.sides.facts import GROUPS, PARAMETERS
from pgtop_tune.compare.sides.figures import BY_ID, FIGURES, Figure, wait_rows
from pgtop_tune.compare.sides.material import ComparedRun, Material
from pgtop_tune.metrics.run_validity import short_words
from pgtop_tune.model.events import EventKind
from pgtop_tune.model.run_result import RunVerdict
from pgtop_tune.safe_text import one_line

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
        folded: It is there to be looked up, not to be read.
    """

    heading: str
    parts: tuple[Sheet | Picture, ...]
    folded: bool = False


def report(
    sides: Sequence[Material],
    under_test: Collection[str] = (),
    earlier: Earlier | None = None,
    known: Spreads | None = None,
) -> tuple[Chapter, ...]:
    """The chapters.

    Args:
        sides: The first is what the others are compared with.
        under_test, earlier, known: As for `compare`.
    """
    comparisons = [compare(sides[0], other, under_test, earlier, known=known) for other in sides[1:]]
    found = [Chapter("Summary", tuple(_short(sides, comparisons)))]
    search = search_sheet(sides, under_test)
    runs = (*run_sheets(sides), *(() if search is None else (search,)))
    if runs or curve_groups(sides):
        found.append(Chapter("Runs", (*runs, *_curves(sides))))
    for comparison in comparisons:
        found += _compared(comparison)
    if not comparisons:
        found += [
            Chapter(one_line(key.title, 100), (_figures_of(side, runs), *_pictures([(side, runs)])))
            for side in sides
            for key, runs in side.phases.items()
        ]
    tapes = [event_sheet(one_line(side.name, 100), side) for side in sides]
    found.append(Chapter("Events", tuple(tape for tape in tapes if tape is not None)))
    found += [
        Chapter(f"Environment of {one_line(side.name, 100)}", tuple(_capsule(side)), folded=True) for side in sides
    ]
    return tuple(chapter for chapter in found if chapter.parts)


def _short(sides: Sequence[Material], comparisons: Sequence[Comparison]) -> Iterator[Sheet]:
    lines = [one_line(words.side(side)) for side in sides]
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
    tested = ", ".join(f"{each.name} {each.a} -> {each.b}" for each in comparison.fingerprints.under_test)
    yield f"{b} against {a}, under test: {tested or 'nothing, both are the same'}"
    for phase in comparison.phases:
        told = [row for row in phase.rows if row.figure.id in ("tps", "server_tps", "p99")]
        said = "; ".join(f"{row.figure.title} {words.effect(row)} ({row.verdict})" for row in told)
        yield f"{b}: {phase.key.title}: {said}"
        worse = [row.figure.title for row in phase.rows if row.verdict == "worse" and row not in told]
        if worse:
            yield f"{b}: {phase.key.title}: worse as well: {', '.join(worse)}"


def _failures(side: Material) -> Iterator[str]:
    for run in side.runs:
        if run.summary.state == "failed":
            yield f"{side.name}: {run.key.title} failed: {short_words(run.summary.message)}"
    yield from dict.fromkeys(f"{side.name}: {run.key.title}: {said}" for run in side.runs for said in run.bound_by)
    for run in side.runs:
        for found in run.findings:
            yield f"{side.name}: {run.key.title}: in {found.share:.0%} of the time: {found.sentence}".replace(
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


def _bars(phase: Phase) -> Picture:
    classes = [row for row in phase.waits if row.whole_class]
    svg = wait_bars(
        [
            ("A", [(row.label, row.a_ms) for row in classes if row.a_ms is not None]),
            ("B", [(row.label, row.b_ms) for row in classes if row.b_ms is not None]),
        ]
    )
    return Picture("milliseconds per transaction", svg)


def _figures_of(side: Material, runs: tuple[ComparedRun, ...]) -> Sheet:
    """Figures of a side by itself."""
    rows = tuple(
        (words.title(figure), words.value(figure, value), figure.source)
        for figure in FIGURES
        if (value := figure_of(figure, runs)) is not None
    )
    latency_ms = figure_of(BY_ID["latency"], runs)
    waits = [row for row in wait_rows(runs, runs, (latency_ms, latency_ms)) if not row.whole_class]
    rows += tuple((f"{one_line(row.label, 40)}, ms per transaction", words.wait_ms(row.a_ms), "waits") for row in waits)
    notes = tuple(one_line(f"not steady: {run.steady_words}", 300) for run in runs if run.steady is False)
    return Sheet(
        heading="figures",
        lines=(words.run_lengths(runs),),
        table=Table(("", "value", "source"), rows, frozenset({1})),
        notes=notes,
    )


def _pictures(sides: Sequence[tuple[Material, tuple[ComparedRun, ...]]]) -> Iterator[Picture]:
    """Figures over the time of the first run of each side."""
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
            Chart(heading=words.title(figure), lines=tuple(lines), words=_worded(figure), marks=tuple(marks))
        )
        if svg:
            legend = tuple(f"{line.name}: {side.name}" for line, (side, _) in zip(lines, sides, strict=True))
            yield Picture(words.title(figure), svg, legend if several else ())


def _worded(figure: Figure) -> Callable[[float | None], str]:
    return lambda value: words.value(figure, value)


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
    """Throughput over clients."""
    for load, rows in curve_groups(sides).items():
        lines: dict[str, list[tuple[float, float]]] = {}
        for side, key, tps in rows:
            lines.setdefault(line_name(side, key, len(sides)), []).append((float(key.clients), tps))
        drawn = tuple(ChartLine(name, sorted(points)) for name, points in lines.items())
        heading = one_line(f"tps over clients: {load}", 100)
        svg = line_chart(Chart(heading, drawn, _worded(BY_ID["tps"]), across="clients", dots=True))
        yield Picture(heading, svg, tuple(lines))


def _capsule(side: Material) -> Iterator[Sheet]:
    """The fingerprint group by group; of parameters those that somebody set."""
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
