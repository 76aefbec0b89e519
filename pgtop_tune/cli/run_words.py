"""Runs in words: what goes on while they run, and what came out."""

from __future__ import annotations

from collections.abc import Sequence

from pgtop_tune import units
from pgtop_tune.experiment.load_run import Cell
from pgtop_tune.experiment.series import curves
from pgtop_tune.experiment.step_chart import chart_lines
from pgtop_tune.experiment.steps import Steps
from pgtop_tune.experiment.tables import MISSING, as_markdown, as_text, load_name, percentile_words, table_of
from pgtop_tune.model.bench import BenchProgress, BenchRun
from pgtop_tune.model.run_result import Doubt, RunResult
from pgtop_tune.safe_text import one_line


def heading(number: int, whole: int, cell: Cell) -> str:
    """What is run next."""
    load = cell.profile_name or " ".join(script.name for script in cell.scripts)
    rate = "" if cell.spec.rate_per_s is None else f", {units.number(cell.spec.rate_per_s)} per second"
    return one_line(f"run {number + 1} of {whole}: {load}, {cell.spec.clients} clients{rate}, {cell.target.name}")


def progress_words(run: BenchRun, line: BenchProgress) -> str:
    """One second."""
    failed = f"  {line.failed} failed" if line.failed else ""
    lag = "" if line.lag_ms is None else f"  lag {units.with_ms(line.lag_ms)}"
    skipped = f"  {line.skipped} skipped" if line.skipped else ""
    of = f" of {run.duration_s}" if run.duration_s else ""
    latency = units.with_ms(line.latency_ms if line.tps else None)
    return f"{line.elapsed_s:6.0f}{of} s  {line.tps:9.1f} tps  lat {latency:>8}{lag}{skipped}{failed}"


def text(results: Sequence[RunResult], steps: Steps | None, block: str) -> str:
    """One run in full; several as a table, with a chart over the steps and the doubts of each."""
    if len(results) == 1 and steps is None:
        return "\n".join(_in_full(results[0]))
    lines = [as_text(table_of(results))]
    for curve in curves(results, steps):
        name = " ".join(filter(None, (curve.endpoint, curve.profile)))
        lines += ["", one_line(name), *chart_lines(curve, block)]
    return "\n".join([*lines, "", *_doubts_of_all(results)])


def markdown(results: Sequence[RunResult], steps: Steps | None) -> str:
    """The table, the knees, and the doubts as a list."""
    lines = [as_markdown(table_of(results)), ""]
    lines += [
        f"- {one_line(curve.endpoint)} {one_line(curve.profile)}: {curve.knee.reason}"
        for curve in curves(results, steps)
    ]
    for result in results:
        lines += [f"- {_name(result)}: {_doubt_words(doubt)}" for doubt in result.doubts if doubt.verdict != "note"]
    return "\n".join(lines).rstrip()


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
    queued = (load.busiest_demand or 0.0) - load.busiest_cpu
    turn = "" if load.client_turn is None else f", its turn in {load.client_turn:.0f} % of the looks"
    return (
        f"pgbench: {load.cpu_cores or 0.0:.2f} CPUs in {load.threads} threads, the busiest {load.busiest_cpu:.0f} %"
        f" of a core and {queued:.0f} % waiting for one{turn}"
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
            server = f"{MISSING:>14}{MISSING:>14}" if there is None else f"{there.mean_ms:14.3f}{there.stddev_ms:14.3f}"
            lines.append(f"  {each.latency_ms:13.3f}{server}  {one_line(each.text, 80)}")
    return [*lines, one_line(f"not timed on the server: {times.problem}", 200)] if lines and times.problem else lines


def _doubts_of_all(results: Sequence[RunResult]) -> list[str]:
    """What speaks against each result; what all have in common once."""
    common = set.intersection(*({doubt.id for doubt in result.doubts} for result in results)) if results else set()
    shared = [doubt for doubt in results[0].doubts if doubt.id in common and doubt.verdict == "note"]
    lines = [f"all: {_doubt_words(doubt)}" for doubt in shared]
    known = {doubt.id for doubt in shared}
    for result in results:
        lines += [f"{_name(result)}: {_doubt_words(doubt)}" for doubt in result.doubts if doubt.id not in known]
    return lines


def _name(result: RunResult) -> str:
    rate = "" if result.spec.rate_per_s is None else f" at {units.number(result.spec.rate_per_s)}/s"
    return one_line(f"{result.endpoint} {load_name(result)} ×{result.spec.clients}{rate}")


def _doubt_words(doubt: Doubt) -> str:
    advice = f" -> {doubt.advice}" if doubt.advice else ""
    return one_line(f"{doubt.verdict} {doubt.id}: {doubt.reason}{advice}", 500)
