"""Puts a measurement together: the watched server, pgbench, the runs, and where the results go.

Where `bench run` sends its load: the endpoints as typed, resolved.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import zip_longest
from pathlib import Path
from tempfile import TemporaryDirectory
from types import MappingProxyType
from typing import Final

from msgspec.structs import replace

from pgtop_tune.base import units
from pgtop_tune.base.errors import RecordingProblem, UsageProblem
from pgtop_tune.base.foreign_answers import decoding
from pgtop_tune.base.paths import private, replacing
from pgtop_tune.base.safe_text import one_line
from pgtop_tune.base.tables import as_markdown, as_text, escaped
from pgtop_tune.base.units import UNKNOWN
from pgtop_tune.bench.housekeeping import parse_housekeeping
from pgtop_tune.bench.profiles import LONGEST_BYTES, Profiles, load_profiles, parse_choice, profile_directories
from pgtop_tune.changes.confirm.orphans import pending_looked_after
from pgtop_tune.cli.assignments import PARAMETER_NAMES, check_known
from pgtop_tune.cli.commands.bench.request import RunRequest
from pgtop_tune.cli.connecting import opened
from pgtop_tune.cli.exit_codes import ExitCode
from pgtop_tune.cli.headless import run_beside
from pgtop_tune.cli.load_targets import first_answer, targets
from pgtop_tune.cli.output import not_stdout, say, say_as_it_is, tell
from pgtop_tune.cli.wiring import LiveSession
from pgtop_tune.compare.noise import CellOfRuns, LoadFingerprint, known_noise, known_words
from pgtop_tune.compare.reports.sheets import (
    cell_notes,
    cell_table,
    configuration_table,
    load_name,
    percentile_words,
    table_of,
)
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
from pgtop_tune.experiment.series import Series, StepCurve, Steps, cells, curves, parse_steps, series_json
from pgtop_tune.experiment.switchback.separate_blocks import check_nothing_pending
from pgtop_tune.metrics.catalogue import Interval
from pgtop_tune.model.bench import BenchProgress, BenchRun, LoadSpec, ScriptChoice
from pgtop_tune.model.run_result import Doubt, RunResult, RunVerdict, as_json
from pgtop_tune.runtime.ports import Step
from pgtop_tune.runtime.run_frames import FrameKeeper

# Runs in words: their progress and their results.

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


# A directory with a run's record, and what pgbench printed, in files named after the run.

_UNSAFE: Final = re.compile(r"[^A-Za-z0-9._-]+")
_LONGEST: Final = 40


def check_directory(directory: Path) -> None:
    """Makes the directory.

    Raises:
        UsageProblem: It cannot be made or written to.
    """
    try:
        private(directory)
    except OSError as problem:
        raise UsageProblem(f"{directory}: {problem.strerror}", "--out names a directory for records") from None
    if not os.access(directory, os.W_OK | os.X_OK):
        raise UsageProblem(f"{directory} cannot be written to", "--out names a directory for records")


def write_run(directory: Path, number: int, result: RunResult) -> Path:
    """Writes NAME.json, NAME.stdout and NAME.stderr; an earlier file of that name is never replaced.

    Returns:
        The record's path.

    Raises:
        RecordingProblem: It cannot be written; each of the three files is whole or not there.
    """
    name = base_name(number, result)
    serial = 1
    record = directory / f"{name}.json"
    try:
        while record.exists():
            serial += 1
            name = f"{base_name(number, result)}-{serial}"
            record = directory / f"{name}.json"
        _write(record, json.dumps(as_json(result), indent=1) + "\n")
        _write(directory / f"{name}.stdout", result.stdout)
        _write(directory / f"{name}.stderr", result.stderr)
    except OSError as problem:
        raise RecordingProblem(f"{record}: {problem.strerror}", "--out names a directory with room") from None
    return record


def _write(path: Path, text: str) -> None:
    with replacing(path) as file:
        file.write(text.encode("utf-8", "replace"))
        file.flush()
        # Some file systems find out only now that they are full.
        os.fsync(file.fileno())


def base_name(number: int, result: RunResult) -> str:
    """01-select-only-c16-j4-T300-direct: number, load, clients, threads, seconds (or -t), endpoint."""
    spec = result.spec
    threads = next(iter(re.findall(r" -j (\d+) ", result.command)), str(spec.threads))
    length = f"T{spec.duration_s}" if spec.transactions is None else f"t{spec.transactions}"
    rate = [] if spec.rate_per_s is None else [f"R{units.number(spec.rate_per_s)}"]
    load = result.profile or "-".join(script.name for script in result.scripts) or "scripts"
    words = [f"{number:02d}", load, f"c{spec.clients}", f"j{threads}", length, *rate, result.endpoint]
    return "-".join(_UNSAFE.sub("-", word).strip("-.")[:_LONGEST] for word in words)


_SURROUNDINGS_S = 10.0
_STDIN: Final = frozenset({"-", "/dev/stdin", "/dev/fd/0"})
_DEFAULT_S: Final = 60


@contextmanager
def typed_scripts(words: Sequence[str]) -> Iterator[tuple[ScriptChoice, ...]]:
    """The scripts of -f. Standard input is a file for as long as the block runs: it is looked at, hashed and run.

    Raises:
        LoadProblem: No file, or no weight.
        UsageProblem: Standard input is a terminal.
    """
    choices = tuple(parse_choice(each) for each in words)
    if not any(each.file in _STDIN for each in choices):
        yield choices
        return
    if sys.stdin.isatty():
        raise UsageProblem("standard input is a terminal", "pipe a script into it, or name a file: -f load.sql")
    with TemporaryDirectory(prefix="pgtop-tune-") as directory:
        file = Path(directory) / "stdin.sql"
        file.write_bytes(sys.stdin.buffer.read(LONGEST_BYTES + 1))
        yield tuple(replace(each, file=str(file)) if each.file in _STDIN else each for each in choices)


def _variable(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise UsageProblem(f"{text!r} is not a variable", "write -D NAME=VALUE")
    return name, value


def _spec(request: RunRequest, scripts: Sequence[ScriptChoice]) -> LoadSpec:
    """Return what all runs have in common."""
    return LoadSpec(
        threads=request.threads,
        duration_s=request.seconds or (_DEFAULT_S if request.transactions is None else None),
        rate_per_s=request.rate,
        transactions=request.transactions,
        latency_limit_ms=request.latency_limit,
        max_tries=request.max_tries,
        continue_on_error=request.continue_on_error,
        connect_per_transaction=request.connect,
        seed=request.seed,
        per_statement=request.per_statement,
        scripts=tuple(scripts),
        variables=tuple(_variable(text) for text in request.variables or ()),
    )


async def measure(request: RunRequest, scripts: Sequence[ScriptChoice] = ()) -> int:
    """Measures, prints, and gives the exit status.

    Args:
        scripts: In place of a profile's.

    Raises:
        PgtopError: Nothing could be measured.
    """
    spec, live = (
        _spec(request, scripts),
        request.session.live(query_text=not request.no_query_text, interval_s=request.interval),
    )
    wish = repetition(request.repeat, request.until, request.at_most)
    configurations = parse_configurations(request.configuration or ())
    steps = parse_steps(request.steps) if request.steps else None
    not_stdout(request.record)
    before = BeforeEachRun(parse_housekeeping(request.housekeeping), request.warm_up)
    directories = profile_directories(request.profiles)
    loaded = load_profiles(directories)
    async with opened(request.connection) as (sql_session, conninfo):
        places = await targets(request.endpoint or (), sql_session, conninfo, from_here=live.load_from is None)
        reached = sql_session.reached
    plan = _plan(request, loaded, places, steps, spec, configurations)
    check_length(plan, wish)
    repeats = Repeats(plan, wish)
    in_cells = wish.most > 1 or bool(configurations)
    if request.output is not None:
        check_directory(request.output)
    session = LiveSession(conninfo, live, reached)
    session.load.directories = directories
    # The cells of a plan come complete, and their scripts were looked through.
    session.load.prepare = None
    if request.record is not None:
        session.recorder.start(str(request.record))

    def progress(run: BenchRun, line: BenchProgress) -> None:
        if not request.quiet:
            tell(progress_words(run, line))

    def began(number: int, cell: RunCell) -> None:
        tell(heading(number, len(plan) * wish.most, cell, open_end=wish.until is not None))

    keeper, surroundings = FrameKeeper(progress), Surroundings()
    session.engine.attach(keeper)
    if wish.until is not None:
        session.engine.attach(surroundings)
    configured = ConfiguredRuns(configurations, session.parameters, before)
    run = LoadRun(session.load, keeper, session.open_sql_session, tell, configured)
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
            machine = "" if live.load_from is None else str(live.load_from)
            loads = await _loads(surroundings, keeper, plan, machine)
            for load in dict.fromkeys(filter(None, loads)):
                if words := known_words(known_noise(load)):
                    tell(f"{load.title}: {words}")
            check_goal(plan, loads, wish, request.warm_up)
        try:
            await series.measure()
        finally:
            await asyncio.shield(configured.revert())

    async with pending_looked_after(session.parameters, session.machine, live.journal_directory, tell):
        try:
            signalled = await run_beside(session.engine, work)
        finally:
            # However it ended: minutes of measuring are in them.
            if series.results and not request.again:
                _print(request.format, series.results, steps, repeats if in_cells else None, single=len(plan) == 1)
            if in_cells:
                for line in (*repeats.outcome(), *filter(None, (repeats.keep(),))):
                    tell(line)
    if unwritten:
        words = f"{len(unwritten)} of {len(measured)} records could not be saved: {unwritten[0].message}"
        raise RecordingProblem(words, unwritten[0].hint)
    if stopped := session.recorder.state().problem:
        raise RecordingProblem(stopped, session.recorder.what_there_is)
    if signalled:
        return ExitCode.SIGNALLED + signalled
    return ExitCode.OK if all(result.valid for result in series.results) else ExitCode.LOAD


def _plan(
    request: RunRequest,
    loaded: Profiles,
    places: Sequence[LoadTarget],
    steps: Steps | None,
    spec: LoadSpec,
    configurations: Sequence[Configuration],
) -> tuple[RunCell, ...]:
    """Every run that is to be made."""
    if request.again:
        found = (
            cells(places, [loaded.get(spec.profile)], spec, None, clients=spec.clients, protocol=spec.protocol)
            for spec in request.again
        )
        return tuple(cell for each in found for cell in each)
    return cells(
        places,
        [loaded.get(name) for name in request.profile or ("tpcb-like",)],
        spec,
        steps,
        clients=request.clients,
        protocol=request.protocol,
        allow_shell=request.allow_shell,
        configurations=[each.name for each in configurations] or ("",),
    )


async def _check(
    configurations: Sequence[Configuration], session: LiveSession, plan: Sequence[RunCell], configured: ConfiguredRuns
) -> None:
    """Refuses configurations that cannot be put into force, before anything is run.

    Raises:
        UsageProblem: A parameter that the server has not, a value that it would not take, or a change that is pending.
    """
    if not configurations:
        return
    names = tuple(dict.fromkeys(name for each in configurations for name in each.values))
    found = {each.name.lower(): each for each in await session.parameters.list(names)}
    sql_session = await session.open_sql_session()
    try:
        with decoding():
            parameter_names = [str(row[0]) for row in await sql_session.rows(PARAMETER_NAMES)]
        check_known(names, found.values(), parameter_names)
    finally:
        await sql_session.aclose()
    check_configurations(configurations, found, plan)
    await check_nothing_pending(session.parameters)
    await configured.check()


class Surroundings:
    """Implements `FrameSink`: what frames tell of server, machine and data, until it is asked for."""

    def __init__(self) -> None:
        self._seen: FactsSeen | None = FactsSeen()

    def accept(self, step: Step) -> None:
        """See `FrameSink.accept`."""
        if self._seen is not None:
            for frame in step.frames:
                self._seen.take(frame)

    def close(self) -> None:
        """See `FrameSink.close`. Nothing more is needed."""
        self._seen = None

    def facts(self) -> tuple[Fact, ...]:
        """As far as frames have told them."""
        return () if self._seen is None else self._seen.facts(())


async def _loads(
    surroundings: Surroundings, keeper: FrameKeeper, plan: Sequence[RunCell], machine: str
) -> list[LoadFingerprint | None]:
    """What the noise of each cell belongs to, as far as it can be told before the first run."""
    several = len({cell.target.name for cell in plan}) > 1

    def found() -> list[LoadFingerprint | None]:
        facts = surroundings.facts()
        return [load_before(facts, cell, several=several, machine=machine) for cell in plan]

    def told(_: Interval) -> bool:
        return all(
            load is not None and (load.scale or not cell.profile.builtin)
            for load, cell in zip(found(), plan, strict=True)
        )

    await keeper.until(told, _SURROUNDINGS_S)
    loads = found()
    surroundings.close()
    return loads


def _print(
    format: str, results: Sequence[RunResult], steps: Steps | None, repeats: Repeats | None, *, single: bool
) -> None:
    cells = () if repeats is None else repeats.cells()
    loads = {} if repeats is None else repeats.by_configuration()
    if format == "json":
        # Not through `say`: a JSON text is printable by itself, and may be longer than what is read by people.
        more = None if repeats is None else repeats.as_json()
        said = series_json(results, steps, single=single and repeats is None, repeats=more)
        say_as_it_is(json.dumps(said, ensure_ascii=True))
    elif format == "markdown":
        say(markdown(results, steps, cells, loads))
    else:
        say(text(results, steps, "█" if (sys.stdout.encoding or "").lower().startswith("utf") else "#", cells, loads))
