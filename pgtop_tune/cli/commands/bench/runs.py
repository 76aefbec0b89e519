"""`bench run`: the watched server, pgbench, the runs, and the output of their results."""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
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
from pgtop_tune.bench.argv import run_argv, shell_quoted
from pgtop_tune.bench.housekeeping import parse_housekeeping
from pgtop_tune.bench.locate import find_pgbench
from pgtop_tune.bench.phases import load_steps, steps_of
from pgtop_tune.bench.places import base_directory, unused_name
from pgtop_tune.bench.profiles import BUILTIN_SCRIPTS, Profiles, load_profiles, profile_directories
from pgtop_tune.changes.confirm.orphans import pending_looked_after
from pgtop_tune.cli.commands.bench import RunRequest
from pgtop_tune.cli.connections import live_options, opened
from pgtop_tune.cli.exit_codes import ExitCode
from pgtop_tune.cli.headless import run_beside
from pgtop_tune.cli.options import LiveOptions, TableFormat
from pgtop_tune.cli.output import not_stdout, say, say_as_it_is, tell
from pgtop_tune.cli.parameter_changes import check_known
from pgtop_tune.cli.typed_load import TypedLoad, typed_load
from pgtop_tune.cli.wiring import LiveSession, first_answer, targets
from pgtop_tune.compare.noise import CellOfRuns, LoadFingerprint, known_noise, known_words
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
from pgtop_tune.compare.sides.fingerprint import FactsSeen
from pgtop_tune.compare.sides.material import Fact
from pgtop_tune.experiment.configurations import (
    Configuration,
    ConfiguredRuns,
    check_configurations,
    parse_configurations,
)
from pgtop_tune.experiment.load_run import BeforeEachRun, LoadRun, RunCell
from pgtop_tune.experiment.path import LoadTarget
from pgtop_tune.experiment.repeats import Repeats, check_goal, check_length, load_before, repetition
from pgtop_tune.experiment.run_guard import RunGuard, abort_conditions
from pgtop_tune.experiment.series import Series, StepCurve, Steps, cells, curves, knee_steps, parse_steps, series_json
from pgtop_tune.experiment.switchback.separate_blocks import check_nothing_pending
from pgtop_tune.metrics.catalogue import Interval
from pgtop_tune.model.bench import ABORTED, BenchProgress, BenchRun, LoadLevel, LoadSpec, ScriptReport
from pgtop_tune.model.run_result import Doubt, RunResult, RunVerdict, as_json
from pgtop_tune.postgres.server.conninfo import ConnInfo, Reached
from pgtop_tune.runtime.ports import Step
from pgtop_tune.runtime.run_frames import FrameKeeper

# Progress and results of runs as text and Markdown.

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


def heading(number: int, total: int, cell: RunCell, *, open_end: bool = False) -> str:
    """Return the line before a run.

    Args:
        number: Number of the run, from 0.
        open_end: `total` is a maximum.
    """
    spec = cell.spec
    length = units.duration(sum(step.seconds for step in steps_of(spec)))
    clients = f"{spec.phases} ({length})" if spec.phases else f"{spec.clients} clients"
    rate = "" if cell.spec.rate_per_s is None else f", {units.number(cell.spec.rate_per_s)} per second"
    runs = f"at most {total}" if open_end else str(total)
    under = f", {cell.configuration}" if cell.configuration else ""
    return one_line(f"run {number + 1} of {runs}: {cell.load_name}, {clients}{rate}, {cell.target.name}{under}")


def as_one_line(seconds: Sequence[BenchProgress]) -> BenchProgress:
    """Return the progress of some seconds as one line: means for each second and transaction, sums of failures."""

    def per_transaction(value: Callable[[BenchProgress], float | None]) -> float | None:
        weighted = [(value_ms, line.tps) for line in seconds if (value_ms := value(line)) is not None]
        weight = sum(tps for _, tps in weighted)
        return sum(value_ms * tps for value_ms, tps in weighted) / weight if weight else None

    last = seconds[-1]
    return replace(
        last,
        tps=sum(line.tps for line in seconds) / len(seconds),
        latency_ms=per_transaction(lambda line: line.latency_ms) or last.latency_ms,
        lag_ms=per_transaction(lambda line: line.lag_ms) if last.lag_ms is not None else None,
        failed=sum(line.failed for line in seconds),
        skipped=sum(line.skipped for line in seconds) if last.skipped is not None else None,
        retries=sum(line.retries for line in seconds) if last.retries is not None else None,
    )


def progress_words(run: BenchRun, line: BenchProgress) -> str:
    """Return the progress line for one second of a run."""
    failed = f"  {line.failed} failed" if line.failed else ""
    lag = "" if line.lag_ms is None else f"  lag {units.with_ms(line.lag_ms)}"
    skipped = f"  {line.skipped} skipped" if line.skipped else ""
    total = f" of {run.duration_s}" if run.duration_s else ""
    latency = units.with_ms(line.latency_ms if line.tps else None)
    retries = f"  {line.retries} retries" if line.retries else ""
    return f"{line.elapsed_s:6.0f}{total} s  {line.tps:9.1f} tps  lat {latency:>8}{lag}{skipped}{failed}{retries}"


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
        # pgbench names scripts with their directories.
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
    parts = [f"{number:02d}", load, f"c{spec.clients}", f"j{threads}", length, *rate, result.endpoint]
    return "-".join(_UNSAFE.sub("-", part).strip("-.")[:_LONGEST] for part in parts)


_FACTS_S: Final = 10.0
"""Longest wait for the facts that loads are told apart by."""
_DEFAULT_S: Final = 60
_OF_SCRIPT: Final = (50.0, 95.0, 99.0)
_MOST_KNEE: Final = 8
"""Clients of the last step of --find-knee, times the cores of this machine."""
_LIST: Final = "list"
"""Word of -b for the names of pgbench's scripts, as pgbench has it."""


_WITHOUT_OUTAGE: Final[Mapping[str, Callable[[RunRequest], object]]] = MappingProxyType(
    {
        "-t": lambda request: request.load.transactions,
        "--phases": lambda request: request.load.phases,
        "--slo": lambda request: request.slo,
        "--find-knee": lambda request: request.find_knee,
        "--load-from": lambda request: request.session.load_from,
    }
)
"""Options that --through-outage does not take."""


def run_loads(request: RunRequest) -> int:
    """Run loads, print the results, and return the exit status.

    Raises:
        PgtopError: Nothing could be measured.
    """
    typed = request.load
    if typed.seconds is not None and typed.transactions is not None:
        raise UsageProblem("-T and -t contradict each other", "pass one of them")
    if typed.phases and (typed.seconds or typed.transactions or request.steps or request.find_knee):
        raise UsageProblem("--phases contradicts -T, -t, --steps and --find-knee", "phases say how long each load runs")
    if request.find_knee and typed.rate:
        raise UsageProblem("--find-knee contradicts -R", "clients run as fast as they can: leave it out")
    if typed.phases:
        # A wrong phase is refused before anything is asked.
        load_steps(typed.phases, LoadLevel(typed.clients or 1, typed.rate))
    for option, is_typed in _WITHOUT_OUTAGE.items():
        if typed.through_outage and is_typed(request):
            raise UsageProblem(
                f"--through-outage contradicts {option}", "it takes a load that stays, with a time: -c 8 -T 5m"
            )
    if typed.builtins == [_LIST]:
        for name in BUILTIN_SCRIPTS:
            say(name)
        return ExitCode.OK
    with typed_load(typed, request.session.pgbench) as load:
        return asyncio.run(measure(request, load))


async def measure(request: RunRequest, load: TypedLoad) -> int:
    """Run loads as `run_loads`; files of the scripts exist meanwhile."""
    typed = request.load
    spec = replace(
        load.spec,
        duration_s=typed.seconds or (None if typed.transactions or typed.phases else _DEFAULT_S),
        transactions=typed.transactions,
        phases=typed.phases,
        per_statement=typed.per_statement,
        through_outage=typed.through_outage,
    )
    if request.slo is not None:
        from pgtop_tune.cli.commands.bench.slo import search_rate

        return await search_rate(request, load)
    if request.budget or request.resume:
        raise UsageProblem("--budget and --resume belong to --slo", "pass --slo 'p99 < 20ms'")
    live = live_options(request.session, query_text=not request.no_query_text, interval_s=request.interval)
    wish = repetition(request.repeat, request.until, request.at_most)
    configurations = parse_configurations(request.configuration or ())
    steps = parse_steps(request.steps) if request.steps else None
    if request.find_knee:
        steps = knee_steps(steps, _MOST_KNEE * (os.cpu_count() or 1))
    conditions = abort_conditions(request.abort_if or ())
    not_stdout(request.record)
    before = BeforeEachRun(parse_housekeeping(request.housekeeping), request.warm_up)
    directories = profile_directories(request.profiles)
    loaded = load_profiles(directories)
    follows = typed.through_outage
    async with opened(request.connection, follows=follows) as (sql_session, conninfo):
        load_targets = await targets(
            request.endpoint or (), sql_session, conninfo, from_here=not live.load_from, follows=follows
        )
        reached = None if follows else sql_session.reached
    plan = _plan(request, load, loaded, load_targets, steps, spec, configurations)
    check_length(plan, wish)
    if request.dry_run:
        pgbench = find_pgbench(request.session.pgbench)
        for number, cell in enumerate(plan):
            say(heading(number, len(plan) * wish.most, cell, open_end=wish.until is not None))
            for step in steps_of(cell.spec):
                say(f"  {step.phase}: {units.duration(step.seconds)} {step.level.words}")
            log = unused_name(base_directory())
            say(f"  {shell_quoted(run_argv(cell.spec, cell.profile, pgbench, cell.target.endpoint, log))}")
        return ExitCode.OK
    repeats = Repeats(plan, wish)
    in_cells = wish.most > 1 or bool(configurations)
    if request.output is not None:
        check_directory(request.output)
    session = session_for_runs(request, conninfo, live, reached, directories)
    seconds: list[BenchProgress] = []

    def progress(run: BenchRun, line: BenchProgress) -> None:
        seconds.append(line)
        if len(seconds) >= request.progress:
            if not request.quiet:
                tell(progress_words(run, as_one_line(seconds)))
            seconds.clear()

    def began(number: int, cell: RunCell) -> None:
        seconds.clear()
        tell(heading(number, len(plan) * wish.most, cell, open_end=wish.until is not None))

    keeper, facts_sink = FrameKeeper(progress), FactsSink()
    session.engine.attach(keeper)
    if wish.until is not None:
        session.engine.attach(facts_sink)
    configured = ConfiguredRuns(configurations, session.parameters, before)

    def guard() -> RunGuard:
        return RunGuard(conditions, stops=not request.no_stop, tell=tell)

    run = LoadRun(
        session.load,
        keeper,
        session.open_following_session if follows else session.open_sql_session,
        tell,
        configured,
        one_server=not follows,
        restarts=follows,
        guard=guard,
    )
    measured: list[RunResult] = []
    unwritten: list[RecordingProblem] = []

    def ended(result: RunResult) -> None:
        measured.append(result)
        if in_cells:
            repeats.take(result)
        if request.output is not None:
            try:
                write_run(request.output, len(measured), result)
            except RecordingProblem as problem:
                unwritten.append(problem)
                tell(f"not saved: {problem.message}")
        for doubt in result.doubts:
            if doubt.verdict == "invalid":
                tell(f"{doubt.id}: {doubt.reason}")

    series = Series(run, plan, before, began, ended, repeats)

    async def work() -> None:
        await first_answer(session, keeper)
        await _check(configurations, session, plan, configured)
        if wish.until is not None:
            machine = ", ".join(map(str, live.load_from))
            loads = await _loads(facts_sink, keeper, plan, machine)
            for load in dict.fromkeys(filter(None, loads)):
                if noise := known_words(known_noise(load)):
                    tell(f"{load.title}: {noise}")
            check_goal(plan, loads, wish, request.warm_up)
        try:
            await series.measure()
        finally:
            await asyncio.shield(configured.revert())

    async with pending_looked_after(session.parameters, session.machine, live.journal_directory, tell):
        try:
            signalled = await run_beside(session.engine, work)
        finally:
            # Print after an error or a signal, too: the results took minutes to measure.
            if series.results and not request.again:
                _print(request.format, series.results, steps, repeats if in_cells else None, single=len(plan) == 1)
            if in_cells:
                for line in (*repeats.outcome(), *filter(None, (repeats.keep(),))):
                    tell(line)
    if unwritten:
        message = f"{len(unwritten)} of {len(measured)} records could not be saved: {unwritten[0].message}"
        raise RecordingProblem(message, unwritten[0].hint)
    if stopped := session.recorder.state().problem:
        raise RecordingProblem(stopped, session.recorder.what_there_is)
    if signalled:
        return ExitCode.SIGNALLED + signalled
    if any(result.ended_for == ABORTED for result in series.results):
        return ExitCode.ABORTED
    return ExitCode.OK if all(result.valid for result in series.results) else ExitCode.LOAD


def session_for_runs(
    request: RunRequest, conninfo: ConnInfo, live: LiveOptions, reached: Reached | None, directories: Sequence[Path]
) -> LiveSession:
    """Return the session that makes runs, and records where that was asked for."""
    session = LiveSession(conninfo, live, reached)
    session.load.directories = directories
    # The cells of runs are complete, and their scripts are checked.
    session.load.prepare = None
    if request.record is not None:
        session.recorder.start(str(request.record))
    return session


def _plan(
    request: RunRequest,
    load: TypedLoad,
    loaded: Profiles,
    load_targets: Sequence[LoadTarget],
    steps: Steps | None,
    spec: LoadSpec,
    configurations: Sequence[Configuration],
) -> tuple[RunCell, ...]:
    """Return the cells of all runs, in order."""
    if request.again:
        return tuple(
            cell
            for again in request.again
            for cell in cells(
                load_targets,
                [loaded.get(again.profile)],
                again,
                None,
                clients=again.clients,
                protocol=again.protocol,
                allow_shell=load.allow_shell,
            )
        )
    return cells(
        load_targets,
        [loaded.get(name) for name in load.profiles],
        spec,
        steps,
        clients=load.clients,
        protocol=load.protocol,
        allow_shell=load.allow_shell,
        configurations=[configuration.name for configuration in configurations] or ("",),
    )


async def _check(
    configurations: Sequence[Configuration], session: LiveSession, plan: Sequence[RunCell], configured: ConfiguredRuns
) -> None:
    """Refuse configurations that cannot be put into force, before the first run.

    Raises:
        UsageProblem: The server lacks a parameter, would not take a value, or has a pending change.
    """
    if not configurations:
        return
    names = tuple(dict.fromkeys(name for configuration in configurations for name in configuration.values))
    parameters = {parameter.name.lower(): parameter for parameter in await session.parameters.list(names)}
    await check_known(names, parameters.values(), session.open_sql_session)
    check_configurations(configurations, parameters, plan)
    await check_nothing_pending(session.parameters)
    await configured.check()


class FactsSink:
    """A sink of frames: collects facts of server, machine and data until the first run."""

    def __init__(self) -> None:
        self._seen: FactsSeen | None = FactsSeen()

    def accept(self, step: Step) -> None:
        """See `FrameSink.accept`."""
        if self._seen is not None:
            for frame in step.frames:
                self._seen.take(frame)

    def close(self) -> None:
        """See `FrameSink.close`."""
        self._seen = None

    def facts(self) -> tuple[Fact, ...]:
        """Return the facts in the frames so far."""
        return () if self._seen is None else self._seen.facts(())


async def _loads(
    facts_sink: FactsSink, keeper: FrameKeeper, plan: Sequence[RunCell], machine: str
) -> list[LoadFingerprint | None]:
    """Return the fingerprint of each cell's load, which its noise belongs to, as far as it is known before a run."""
    several = len({cell.target.name for cell in plan}) > 1

    def fingerprints() -> list[LoadFingerprint | None]:
        facts = facts_sink.facts()
        return [load_before(facts, cell, several=several, machine=machine) for cell in plan]

    def are_known(_: Interval) -> bool:
        return all(
            load is not None and (load.scale or not cell.profile.builtin)
            for load, cell in zip(fingerprints(), plan, strict=True)
        )

    await keeper.until(are_known, _FACTS_S)
    loads = fingerprints()
    facts_sink.close()
    return loads


def _print(
    format: TableFormat, results: Sequence[RunResult], steps: Steps | None, repeats: Repeats | None, *, single: bool
) -> None:
    if format is TableFormat.JSON:
        repeats_json = None if repeats is None else repeats.as_json()
        answer = series_json(results, steps, single=single and repeats is None, repeats=repeats_json)
        # ASCII is safe for a terminal, and the JSON can be longer than `say` allows.
        say_as_it_is(json.dumps(answer, ensure_ascii=True))
        return
    cells = () if repeats is None else repeats.cells()
    loads = {} if repeats is None else repeats.by_configuration()
    if format is TableFormat.MARKDOWN:
        say(results_markdown(results, steps, cells, loads))
    else:
        block = "█" if (sys.stdout.encoding or "").lower().startswith("utf") else "#"
        say(results_text(results, steps, block, cells, loads))
