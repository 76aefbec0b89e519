"""`bench run`: the watched server, pgbench, and the runs."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Final

from msgspec.structs import replace

from pgtop_tune.base import units
from pgtop_tune.base.errors import RecordingProblem, UsageProblem
from pgtop_tune.base.safe_text import one_line
from pgtop_tune.bench.argv import run_argv, shell_quoted
from pgtop_tune.bench.housekeeping import parse_housekeeping
from pgtop_tune.bench.locate import find_pgbench
from pgtop_tune.bench.phases import load_steps, steps_of
from pgtop_tune.bench.places import base_directory, unused_name
from pgtop_tune.bench.profiles import BUILTIN_SCRIPTS, Profiles, load_profiles, profile_directories
from pgtop_tune.changes.confirm.orphans import pending_looked_after
from pgtop_tune.cli.commands.bench import RunRequest
from pgtop_tune.cli.commands.bench.results import check_directory, results_markdown, results_text, write_run
from pgtop_tune.cli.connections import live_options, opened
from pgtop_tune.cli.exit_codes import ExitCode
from pgtop_tune.cli.headless import run_beside
from pgtop_tune.cli.options import LiveOptions, TableFormat
from pgtop_tune.cli.output import not_stdout, say, say_as_it_is, tell
from pgtop_tune.cli.parameter_changes import check_known
from pgtop_tune.cli.typed_load import TypedLoad, typed_load
from pgtop_tune.cli.wiring import LiveSession, first_answer, targets
from pgtop_tune.compare.noise import LoadFingerprint, known_noise, known_words
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
from pgtop_tune.experiment.series import Series, Steps, cells, knee_steps, parse_steps, series_json
from pgtop_tune.experiment.switchback.separate_blocks import check_nothing_pending
from pgtop_tune.metrics.catalogue import Interval
from pgtop_tune.model.bench import ABORTED, BenchProgress, BenchRun, LoadLevel, LoadSpec
from pgtop_tune.model.run_result import RunResult
from pgtop_tune.postgres.server.conninfo import ConnInfo, Reached
from pgtop_tune.runtime.ports import Step
from pgtop_tune.runtime.run_frames import FrameKeeper


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
        skipped=_sum_of_known(line.skipped for line in seconds),
        retries=_sum_of_known(line.retries for line in seconds),
    )


def _sum_of_known(counts: Iterable[int | None]) -> int | None:
    """Return the sum; seconds of a pause have no count, and without any there is none."""
    known_counts = [count for count in counts if count is not None]
    return sum(known_counts) if known_counts else None


def progress_words(run: BenchRun, line: BenchProgress) -> str:
    """Return the progress line for one second of a run."""
    failed = f"  {line.failed} failed" if line.failed else ""
    lag = "" if line.lag_ms is None else f"  lag {units.with_ms(line.lag_ms)}"
    skipped = f"  {line.skipped} skipped" if line.skipped else ""
    total = f" of {run.duration_s}" if run.duration_s else ""
    latency = units.with_ms(line.latency_ms if line.tps else None)
    retries = f"  {line.retries} retries" if line.retries else ""
    return f"{line.elapsed_s:6.0f}{total} s  {line.tps:9.1f} tps  lat {latency:>8}{lag}{skipped}{failed}{retries}"


_FACTS_S: Final = 10.0
"""Longest wait for the facts that loads are told apart by."""
_DEFAULT_S: Final = 60
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
            level = next((step.level for step in steps_of(cell.spec)), cell.spec.level)
            spec = replace(cell.spec, clients=level.clients or cell.spec.clients, rate_per_s=level.rate_per_s)
            say(f"  {shell_quoted(run_argv(spec, cell.profile, pgbench, cell.target.endpoint, log))}")
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
