"""Results of `bench run`: text, Markdown, and the files of a directory."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Mapping, Sequence
from itertools import compress, count, zip_longest
from pathlib import Path
from types import MappingProxyType
from typing import Final

from msgspec.structs import replace

from pgtop_tune.base import units
from pgtop_tune.base.errors import RecordingProblem, UsageProblem
from pgtop_tune.base.paths import private, replacing
from pgtop_tune.base.safe_text import one_line
from pgtop_tune.base.tables import aligned_text, as_markdown, escaped
from pgtop_tune.base.units import UNKNOWN
from pgtop_tune.compare.noise import CellOfRuns
from pgtop_tune.compare.reports.outages import outage_lines, outage_table
from pgtop_tune.compare.reports.result_tables import (
    generator_table,
    has_generators,
    level_table,
    load_name,
    percentile_words,
    seam_words,
    table_of,
)
from pgtop_tune.compare.reports.sheets import cell_notes, cell_table, configuration_table
from pgtop_tune.experiment.series import StepCurve, Steps, curves
from pgtop_tune.model.bench import ScriptReport
from pgtop_tune.model.run_result import Doubt, RunResult, RunVerdict, as_json

BAR: Final = 40
_KNEE: Final = "<- knee"


def chart_lines(curve: StepCurve, block: str = "#") -> list[str]:
    """Return a bar for each step, as long as its throughput, with p99 beside it; the knee is marked and explained.

    Args:
        block: Character of the bars.
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
    law = [] if curve.scalability is None else [curve.scalability.sentence]
    return [*lines, curve.knee.reason, *law]


_TOGETHER: Final = "*"
"""Mark of a statement whose server times cover all equal statements of the load."""
_FIGURE: Final = re.compile(r"\d+(?:\.\d+)?")
_OF_SCRIPT: Final = (50.0, 95.0, 99.0)


Loads = Mapping[str, Mapping[str, CellOfRuns]]
"""Cells by load and configuration."""


def results_text(
    results: Sequence[RunResult],
    steps: Steps | None,
    block: str,
    cells: Sequence[CellOfRuns] = (),
    loads: Loads = MappingProxyType({}),
) -> str:
    """Return one run in full; of several a table, a chart over the steps, and each doubt with the runs it concerns.

    Args:
        block: Character of the bars.
        cells: Cells of repeated runs.
        loads: The same cells by load and configuration, of runs with configurations.
    """
    if len(results) == 1 and steps is None:
        return "\n".join(_in_full(results[0]))
    lines = [aligned_text(table_of(results))]
    if cells:
        lines += ["", aligned_text(cell_table(cells)), *(f"note: {note}" for note in cell_notes(cells))]
    if loads:
        lines += ["", aligned_text(configuration_table(loads))]
    for curve in curves(results, steps):
        lines += ["", one_line(curve.name), *chart_lines(curve, block)]
    for number, result in enumerate(results, 1):
        lines += ["", f"run {number}", aligned_text(level_table(result)), seam_words(result)] if result.levels else []
        lines += ["", f"run {number}", *_outage(result)] if result.outage is not None else []
    return "\n".join([*lines, "", *_doubts_of_all(results)])


def results_markdown(
    results: Sequence[RunResult],
    steps: Steps | None,
    cells: Sequence[CellOfRuns] = (),
    loads: Loads = MappingProxyType({}),
) -> str:
    """Return tables, then remarks, knees and doubts as a list; takes the arguments of `results_text`."""
    tables = [table_of(results)]
    tables += [cell_table(cells)] if cells else []
    tables += [configuration_table(loads)] if loads else []
    tables += [level_table(result) for result in results if result.levels]
    tables += [generator_table(result) for result in results if has_generators(result)]
    through = [result.outage for result in results if result.outage is not None]
    tables += [outage_table(outage) for outage in through if outage.outages]
    remarks = [
        *(cell_notes(cells) if cells else ()),
        *(f"{one_line(curve.name)}: {curve.knee.reason}" for curve in curves(results, steps)),
        *(line for outage in through for line in outage_lines(outage)),
        *_doubts_of_all(results, (RunVerdict.INVALID, RunVerdict.SUSPECT)),
    ]
    parts = [*(f"{as_markdown(table)}\n" for table in tables), *(f"- {escaped(remark)}" for remark in remarks)]
    return "\n".join(parts).rstrip()


def _in_full(result: RunResult) -> list[str]:
    spec = result.spec
    length = f"{spec.transactions} transactions each" if spec.transactions else spec.phases or f"{spec.duration_s} s"
    clients = "" if spec.phases else f"{spec.clients} clients, "
    lines = [one_line(f"{load_name(result)}, {clients}{length}, {spec.protocol}, {result.endpoint}")]
    steady = result.steady
    if steady.tps is not None:
        error = "" if steady.error_tps is None else f" ± {steady.error_tps:.1f}"
        state = {True: "steady", False: "NOT STEADY", None: "all seconds"}[steady.steady]
        lines.append(f"{state}: {steady.tps:.1f}{error} tps ({steady.reason})")
    lines += [*_outage(result), _first_doubt(result), *filter(None, (percentile_words(result),))]
    lines += [aligned_text(table_of([result])), *_by_script(result)]
    if result.spread is not None:
        lines.append(f"seconds: {result.spread.words}")
    done, *failures = result.counted
    if failures := [failure for failure in failures if failure[0]]:
        lines.append("transactions: " + ", ".join(f"{number} {name}" for number, name in (done, *failures)))
    lines += filter(None, (_above_limit(result), _generator(result)))
    lines += [aligned_text(level_table(result)), seam_words(result)] if result.levels else []
    lines += [aligned_text(generator_table(result))] if has_generators(result) else []
    lines += _statements(result)
    measured = result.partial and result.progress
    lines.append("valid" if result.valid else "NOT VALID" + (", partial" if measured else ""))
    lines += [f"  {_doubt_words(doubt)}" for doubt in result.doubts]
    return [*lines, f"command: {one_line(result.command)}"] if result.command else lines


def _outage(result: RunResult) -> list[str]:
    """Return the outages of a run; nothing for one that replaces no clients."""
    outage = result.outage
    if outage is None:
        return []
    return [*([aligned_text(outage_table(outage))] if outage.outages else []), *outage_lines(outage)]


def _first_doubt(result: RunResult) -> str:
    """Return the worst doubt as one line; the others follow below the figures."""
    if not result.doubts:
        return "doubt: none"
    further = f" (and {len(result.doubts) - 1} more below)" if len(result.doubts) > 1 else ""
    worst = result.doubts[0]
    return one_line(f"doubt: {worst.verdict} {worst.id}: {worst.reason}", 300) + further


def _by_script(result: RunResult) -> list[str]:
    """Return throughput and percentiles of each of several scripts."""
    reports: dict[str, list[ScriptReport]] = {}
    for script, report in zip(result.scripts, () if result.report is None else result.report.scripts, strict=False):
        # pgbench names scripts with their directories; one that did nothing has no row, and maybe the name of another.
        if report.processed:
            reports.setdefault(script.name, []).append(report)
    lines = []
    for row in result.by_script:
        done = reports[row.part].pop(0).processed if reports.get(row.part) else None
        share = done / result.processed if done is not None and result.processed else None
        tps = "" if share is None or result.tps is None else f" {result.tps * share:.1f} tps,"
        quantiles = (f"p{quantile:g} {units.ms(row.latencies.at(quantile))}" for quantile in _OF_SCRIPT)
        lines.append(one_line(f"{row.part}:{tps} latency, ms: {'  '.join(quantiles)}"))
    return lines


def _above_limit(result: RunResult) -> str:
    """Return the share of transactions above --latency-limit; "" without one."""
    above = None if result.report is None else result.report.latency_limit_exceeded
    if above is None or not result.processed:
        return ""
    limit = units.with_ms(result.spec.latency_limit_ms)
    return (
        f"above {limit}: {above} of {result.processed} transactions ({units.share(100.0 * above / result.processed)})"
    )


def _generator(result: RunResult) -> str:
    load = result.generator
    if load is None or load.busiest_cpu is None:
        return ""
    queued = "unknown" if load.most_queued is None else f"{load.most_queued:.0f} % of the time"
    turn = "" if load.client_turn is None else f", sessions wait for pgbench in {load.client_turn:.0f} % of the samples"
    threads = f"{load.threads} thread{'s' if load.threads != 1 else ''}"
    return (
        f"pgbench: {load.cpu_cores or 0.0:.2f} CPUs in {threads}, the busiest {load.busiest_cpu:.0f} % of a core;"
        f" highest run-queue wait {queued}{turn}"
    )


def _statements(result: RunResult) -> list[str]:
    """Return the mean latency of each statement (-r), beside the server's execution times."""
    report, times = result.report, result.server_times
    if report is None:
        return []
    by_script = [("", report.statements), *((script.name, script.statements) for script in report.scripts)]
    lines = []
    for name, statements in by_script:
        if statements:
            lines += [
                one_line(f"statements of {name}" if name else "statements"),
                "    client mean   server mean    stddev, ms  (pgbench -r; pg_stat_statements)",
            ]
        for statement in statements:
            row = times.of(name, statement.text)
            server = f"{UNKNOWN:>14}{UNKNOWN:>14}" if row is None else f"{row.mean_ms:14.3f}{row.stddev_ms:14.3f}"
            mark = _TOGETHER if row is not None and row.shared else " "
            query = one_line(statement.text, 80)
            lines.append(f"  {statement.latency_ms:13.3f}{server}{mark} {query}{statement.trouble}")
    if any(row.shared and row.calls for row in times.rows):
        lines.append(f"{_TOGETHER} the server counts identical statements as one: its figures cover all of them")
    return [*lines, one_line(f"not timed on the server: {times.problem}", 200)] if lines and times.problem else lines


def _doubts_of_all(results: Sequence[RunResult], verdicts: Sequence[RunVerdict] = tuple(RunVerdict)) -> list[str]:
    """Return each doubt once, with the runs it concerns, and a range for figures that differ."""
    groups: dict[tuple[str, ...], list[tuple[int, Doubt]]] = {}
    for number, result in enumerate(results):
        for doubt in result.doubts:
            kind = (doubt.verdict, doubt.id, _FIGURE.sub("#", doubt.reason), _FIGURE.sub("#", doubt.advice))
            groups.setdefault(kind, []).append((number, doubt))
    return [
        f"{_runs([number for number, _ in alike], results)}: {_doubt_words(_as_one([doubt for _, doubt in alike]))}"
        for verdict in verdicts
        for (group_verdict, *_), alike in groups.items()
        if group_verdict == verdict
    ]


def _as_one(doubts: Sequence[Doubt]) -> Doubt:
    """Merge doubts that differ in figures only: the reason has their range, the advice the highest."""
    reason = _merged([doubt.reason for doubt in doubts], lambda low, high: f"{low}-{high}")
    return replace(doubts[0], reason=reason, advice=_merged([doubt.advice for doubt in doubts], lambda _, high: high))


def _merged(texts: Sequence[str], between: Callable[[str, str], str]) -> str:
    figures = []
    for column in zip(*map(_FIGURE.findall, texts), strict=True):
        low, high = min(column, key=float), max(column, key=float)
        figures.append(low if float(low) == float(high) else between(low, high))
    return "".join(part for pair in zip_longest(_FIGURE.split(texts[0]), figures, fillvalue="") for part in pair)


def _runs(numbers: Sequence[int], results: Sequence[RunResult]) -> str:
    """Return the shortest words that tell runs apart."""
    remaining = [number for number in range(len(results)) if number not in numbers]
    if not remaining:
        return "all"
    return f"all but {_cells(remaining, results)}" if len(remaining) < len(numbers) else _cells(numbers, results)


def _cells(numbers: Sequence[int], results: Sequence[RunResult]) -> str:
    """Return endpoint, configuration and load as far as they differ, with the steps unless all are among the runs."""
    loads = [(result.endpoint, result.configuration, load_name(result)) for result in results]
    differing = [len(set(column)) > 1 for column in zip(*loads, strict=True)]
    steps: dict[str, dict[int, str]] = {}
    for number, (load, result) in enumerate(zip(loads, results, strict=True)):
        steps.setdefault(" ".join(compress(load, differing)), {})[number] = _step(result)
    names = []
    for name, steps_of_load in steps.items():
        chosen = [step for number, step in steps_of_load.items() if number in numbers]
        if chosen:
            everything = name and len(chosen) == len(steps_of_load)
            names.append(name if everything else " ".join(dict.fromkeys(filter(None, (name, *chosen)))))
    return one_line("; ".join(names))


def _step(result: RunResult) -> str:
    rate = "" if result.spec.rate_per_s is None else f" at {units.number(result.spec.rate_per_s)}/s"
    return f"×{result.spec.clients}{rate}"


def _doubt_words(doubt: Doubt) -> str:
    advice = f" -> {doubt.advice}" if doubt.advice else ""
    return one_line(f"{doubt.verdict} {doubt.id}: {doubt.reason}{advice}", 500)


# A run's record and the output of pgbench, in files named after the run.

_UNSAFE: Final = re.compile(r"[^A-Za-z0-9._-]+")
_LONGEST: Final = 40


def check_directory(directory: Path) -> None:
    """Make the directory. Raises UsageProblem where it cannot be made or written to."""
    hint = "pass a writable directory with --out"
    try:
        private(directory)
    except OSError as problem:
        raise UsageProblem(f"{directory}: {problem.strerror}", hint) from None
    if not os.access(directory, os.W_OK | os.X_OK):
        raise UsageProblem(f"{directory} cannot be written to", hint)


def write_run(directory: Path, number: int, result: RunResult) -> Path:
    """Write NAME.json, NAME.stdout and NAME.stderr, and return the first; never replace an earlier file.

    Raises:
        RecordingProblem: A file cannot be written; each of the three is whole or absent.
    """
    name = base = base_name(number, result)
    serial = count(2)
    try:
        while (record := directory / f"{name}.json").exists():
            name = f"{base}-{next(serial)}"
        _write(record, json.dumps(as_json(result), indent=1) + "\n")
        _write(directory / f"{name}.stdout", result.stdout)
        _write(directory / f"{name}.stderr", result.stderr)
    except OSError as problem:
        raise RecordingProblem(f"{record}: {problem.strerror}", "pass a directory with free space with --out") from None
    return record


def _write(path: Path, text: str) -> None:
    with replacing(path) as file:
        file.write(text.encode("utf-8", "replace"))
        file.flush()
        # Some file systems notice only now that they are full.
        os.fsync(file.fileno())


def base_name(number: int, result: RunResult) -> str:
    """Return number, load, clients, threads, seconds (or -t) and endpoint, as in 01-select-only-c16-j4-T300-direct."""
    spec = result.spec
    threads = next(iter(re.findall(r" -j (\d+) ", result.command)), str(spec.threads))
    length = (
        "phases" if spec.phases else f"T{spec.duration_s}" if spec.transactions is None else f"t{spec.transactions}"
    )
    rate = [] if spec.rate_per_s is None else [f"R{units.number(spec.rate_per_s)}"]
    load = result.profile or "-".join(script.name for script in result.scripts) or "scripts"
    parts = [f"{number:02d}", load, f"c{result.clients_words}", f"j{threads}", length, *rate, result.endpoint]
    return "-".join(_UNSAFE.sub("-", part).strip("-.")[:_LONGEST] for part in parts)
