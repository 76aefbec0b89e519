"""Runs in words: their progress and their results."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from itertools import zip_longest
from types import MappingProxyType
from typing import Final

from msgspec.structs import replace

from pgtop_tune.base import units
from pgtop_tune.base.safe_text import one_line
from pgtop_tune.base.tables import as_markdown, as_text, escaped
from pgtop_tune.base.units import UNKNOWN
from pgtop_tune.compare.noise import CellOfRuns
from pgtop_tune.compare.reports.sheets import cell_notes, cell_table, configuration_table
from pgtop_tune.compare.reports.tables import load_name, percentile_words, table_of
from pgtop_tune.experiment.run_cell import RunCell
from pgtop_tune.experiment.series import StepCurve, Steps, curves
from pgtop_tune.model.bench import BenchProgress, BenchRun
from pgtop_tune.model.run_result import Doubt, RunResult, RunVerdict

# Throughput and latency over the steps of a load as lines of text.

BAR: Final = 40
_KNEE: Final = "<- knee"


def chart_lines(curve: StepCurve, block: str = "#") -> list[str]:
    """A bar per step, as long as its throughput, with p99 beside it; the knee is marked and named.

    Args:
        block: What bars are made of.
    """
    most = max((point.tps or 0.0 for point in curve.points), default=0.0)
    marked = False
    lines = [f"{curve.axis:>8}  {'tps':>9}  {'':<{BAR}}  {'p99, ms':>8}"]
    for point in curve.points:
        if point.tps is None:
            lines.append(f"{point.load:>8g}  {'failed':>9}")
            continue
        bar = block * max(round(BAR * point.tps / most), 1 if point.tps else 0) if most else ""
        mark = f"  {_KNEE}" if point.load == curve.knee.load and not marked else ""
        marked = marked or bool(mark)
        lines.append(f"{point.load:>8g}  {point.tps:>9.1f}  {bar:<{BAR}}  {units.ms(point.p99_ms):>8}{mark}")
    return [*lines, curve.knee.reason]


_TOGETHER: Final = "*"
_FIGURE: Final = re.compile(r"\d+(?:\.\d+)?")


def heading(number: int, whole: int, cell: RunCell, *, open_end: bool = False) -> str:
    """What is run next.

    Args:
        open_end: There are so many at most.
    """
    load = cell.profile_name or " ".join(script.name for script in cell.scripts)
    rate = "" if cell.spec.rate_per_s is None else f", {units.number(cell.spec.rate_per_s)} per second"
    of = f"at most {whole}" if open_end else str(whole)
    under = f", {cell.configuration}" if cell.configuration else ""
    return one_line(f"run {number + 1} of {of}: {load}, {cell.spec.clients} clients{rate}, {cell.target.name}{under}")


def progress_words(run: BenchRun, line: BenchProgress) -> str:
    """One second."""
    failed = f"  {line.failed} failed" if line.failed else ""
    lag = "" if line.lag_ms is None else f"  lag {units.with_ms(line.lag_ms)}"
    skipped = f"  {line.skipped} skipped" if line.skipped else ""
    of = f" of {run.duration_s}" if run.duration_s else ""
    latency = units.with_ms(line.latency_ms if line.tps else None)
    retries = f"  {line.retries} retries" if line.retries else ""
    return f"{line.elapsed_s:6.0f}{of} s  {line.tps:9.1f} tps  lat {latency:>8}{lag}{skipped}{failed}{retries}"


Loads = Mapping[str, Mapping[str, CellOfRuns]]
"""Cells by load, and by configuration."""


def text(
    results: Sequence[RunResult],
    steps: Steps | None,
    block: str,
    cells: Sequence[CellOfRuns] = (),
    loads: Loads = MappingProxyType({}),
) -> str:
    """One run in full; several as a table, with a chart over the steps, and each doubt with the runs it concerns.

    Args:
        block: What bars are made of.
        cells: Of repeats.
        loads: The same where there are configurations.
    """
    if len(results) == 1 and steps is None:
        return "\n".join(_in_full(results[0]))
    lines = [as_text(table_of(results))]
    if cells:
        lines += ["", as_text(cell_table(cells)), *(f"note: {note}" for note in cell_notes(cells))]
    if loads:
        lines += ["", as_text(configuration_table(loads))]
    for curve in curves(results, steps):
        lines += ["", one_line(curve.name), *chart_lines(curve, block)]
    return "\n".join([*lines, "", *_doubts_of_all(results)])


def markdown(
    results: Sequence[RunResult],
    steps: Steps | None,
    cells: Sequence[CellOfRuns] = (),
    loads: Loads = MappingProxyType({}),
) -> str:
    """The tables, the knees, and the doubts as a list."""
    lines = [as_markdown(table_of(results)), ""]
    if cells:
        lines += [as_markdown(cell_table(cells)), ""]
    if loads:
        lines += [as_markdown(configuration_table(loads)), ""]
    remarks = [
        *(cell_notes(cells) if cells else ()),
        *(f"{one_line(curve.name)}: {curve.knee.reason}" for curve in curves(results, steps)),
        *_doubts_of_all(results, (RunVerdict.INVALID, RunVerdict.SUSPECT)),
    ]
    return "\n".join((*lines, *(f"- {escaped(remark)}" for remark in remarks))).rstrip()


def _in_full(result: RunResult) -> list[str]:
    spec = result.spec
    length = f"{spec.transactions} transactions each" if spec.transactions else f"{spec.duration_s} s"
    lines = [one_line(f"{load_name(result)}, {spec.clients} clients, {length}, {spec.protocol}, {result.endpoint}")]
    lines += [as_text(table_of([result]))]
    steady = result.steady
    if steady.tps is not None:
        error = "" if steady.error_tps is None else f" ± {steady.error_tps:.1f}"
        state = {True: "steady", False: "NOT STEADY", None: "all seconds"}[steady.steady]
        lines.append(f"{state}: {steady.tps:.1f}{error} tps ({steady.reason})")
    if result.spread is not None:
        lines.append(f"seconds: {result.spread.words}")
    done, *failures = result.counted
    if any(number for number, _ in failures):
        counted = (done, *((number, name) for number, name in failures if number))
        lines.append("transactions: " + ", ".join(f"{number} {name}" for number, name in counted))
    lines += [words for words in (percentile_words(result), _generator(result)) if words]
    lines += _statements(result)
    measured = result.partial and result.progress
    lines.append("valid" if result.valid else "NOT VALID" + (", partial" if measured else ""))
    lines += [f"  {_doubt_words(doubt)}" for doubt in result.doubts]
    return [*lines, f"command: {one_line(result.command)}"] if result.command else lines


def _generator(result: RunResult) -> str:
    load = result.generator
    if load is None or load.busiest_cpu is None:
        return ""
    queued = "unknown" if load.most_queued is None else f"{load.most_queued:.0f} % of the time"
    turn = "" if load.client_turn is None else f", sessions wait for it in {load.client_turn:.0f} % of the samples"
    threads = f"{load.threads} thread{'s' if load.threads != 1 else ''}"
    return (
        f"pgbench: {load.cpu_cores or 0.0:.2f} CPUs in {threads}, the busiest {load.busiest_cpu:.0f} % of a core;"
        f" the longest wait for one {queued}{turn}"
    )


def _statements(result: RunResult) -> list[str]:
    """Mean latency of each statement, with -r; beside it what the server says of its execution."""
    report, times = result.report, result.server_times
    if report is None:
        return []
    named = [("", report.statements), *((script.name, script.statements) for script in report.scripts)]
    lines = []
    for name, statements in named:
        heading = f"statements of {name}" if name else "statements"
        if statements:
            lines += [
                one_line(heading),
                "    client mean   server mean    stddev, ms  (pgbench -r; pg_stat_statements)",
            ]
        for each in statements:
            there = times.of(name, each.text)
            server = f"{UNKNOWN:>14}{UNKNOWN:>14}" if there is None else f"{there.mean_ms:14.3f}{there.stddev_ms:14.3f}"
            mark = _TOGETHER if there is not None and there.shared else " "
            lines.append(f"  {each.latency_ms:13.3f}{server}{mark} {one_line(each.text, 80)}{each.trouble}")
    if any(row.shared and row.calls for row in times.rows):
        lines.append(f"{_TOGETHER} the server counts equal statements together: its figures cover all of them")
    return [*lines, one_line(f"not timed on the server: {times.problem}", 200)] if lines and times.problem else lines


def _doubts_of_all(results: Sequence[RunResult], verdicts: Sequence[RunVerdict] = tuple(RunVerdict)) -> list[str]:
    """Each doubt once, with the runs it concerns; figures in which these differ as a range."""
    groups: dict[tuple[str, ...], list[tuple[int, Doubt]]] = {}
    for number, result in enumerate(results):
        for doubt in result.doubts:
            alike = (doubt.verdict, doubt.id, _FIGURE.sub("#", doubt.reason), _FIGURE.sub("#", doubt.advice))
            groups.setdefault(alike, []).append((number, doubt))
    return [
        f"{_runs([number for number, _ in found], results)}: {_doubt_words(_as_one([doubt for _, doubt in found]))}"
        for verdict in verdicts
        for (of, *_), found in groups.items()
        if of == verdict
    ]


def _as_one(doubts: Sequence[Doubt]) -> Doubt:
    """Doubts that differ in their figures only: seen from the lowest to the highest, advised for the highest."""
    reason = _merged([doubt.reason for doubt in doubts], lambda low, high: f"{low}-{high}")
    return replace(doubts[0], reason=reason, advice=_merged([doubt.advice for doubt in doubts], lambda _, high: high))


def _merged(texts: Sequence[str], between: Callable[[str, str], str]) -> str:
    figures = []
    for column in zip(*map(_FIGURE.findall, texts), strict=True):
        low, high = min(column, key=float), max(column, key=float)
        figures.append(low if float(low) == float(high) else between(low, high))
    return "".join(part for pair in zip_longest(_FIGURE.split(texts[0]), figures, fillvalue="") for part in pair)


def _runs(numbers: Sequence[int], results: Sequence[RunResult]) -> str:
    """The cells of a table in as few words as tell them apart."""
    others = [number for number in range(len(results)) if number not in numbers]
    if not others:
        return "all"
    return f"all but {_cells(others, results)}" if len(others) < len(numbers) else _cells(numbers, results)


def _endpoint(result: RunResult) -> str:
    return result.endpoint


def _configuration(result: RunResult) -> str:
    return result.configuration


def _cells(numbers: Sequence[int], results: Sequence[RunResult]) -> str:
    """Endpoint and load as far as they differ, each with its steps unless all of them are meant."""
    names = [name for name in (_endpoint, _configuration, load_name) if len(set(map(name, results))) > 1]
    steps: dict[str, dict[int, str]] = {}
    for number, result in enumerate(results):
        steps.setdefault(" ".join(name(result) for name in names), {})[number] = _step(result)
    found = []
    for name, of in steps.items():
        meant = [step for number, step in of.items() if number in numbers]
        if meant:
            found.append(
                name if name and len(meant) == len(of) else " ".join(dict.fromkeys(filter(None, (name, *meant))))
            )
    return one_line("; ".join(found))


def _step(result: RunResult) -> str:
    rate = "" if result.spec.rate_per_s is None else f" at {units.number(result.spec.rate_per_s)}/s"
    return f"×{result.spec.clients}{rate}"


def _doubt_words(doubt: Doubt) -> str:
    advice = f" -> {doubt.advice}" if doubt.advice else ""
    return one_line(f"{doubt.verdict} {doubt.id}: {doubt.reason}{advice}", 500)
