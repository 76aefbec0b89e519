"""Puts a measurement together: the watched server, pgbench, the runs, and where the results go.

Where `bench run` sends its load: the endpoints as typed, resolved.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
from collections.abc import Sequence
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, Final

from msgspec import Struct
from msgspec.structs import replace

from pgtop_tune.base import units
from pgtop_tune.base.errors import ConnectionProblem, RecordingProblem, UsageProblem
from pgtop_tune.base.foreign_answers import decoding
from pgtop_tune.base.paths import private, replacing
from pgtop_tune.bench.housekeeping import parse_housekeeping
from pgtop_tune.bench.profiles import Profiles, load_profiles, profile_directories
from pgtop_tune.changes.confirm.orphans import pending_looked_after
from pgtop_tune.cli.assignments import PARAMETER_NAMES, check_known
from pgtop_tune.cli.commands.bench.shared import opened
from pgtop_tune.cli.connecting import ConnectionWords, with_inherited_password
from pgtop_tune.cli.exit_codes import ExitCode
from pgtop_tune.cli.headless import run_beside
from pgtop_tune.cli.live_options import LiveOptions
from pgtop_tune.cli.output import not_stdout, say, say_as_it_is, tell
from pgtop_tune.cli.run_words import heading, markdown, progress_words, text
from pgtop_tune.cli.wiring import LiveSession, endpoint_of
from pgtop_tune.compare.noise import LoadFingerprint, known_noise, known_words
from pgtop_tune.compare.sides.facts import FactsSeen
from pgtop_tune.compare.sides.material import Fact
from pgtop_tune.experiment.configurations import Configuration, ConfiguredRuns, check_configurations
from pgtop_tune.experiment.load_run import LoadRun
from pgtop_tune.experiment.repeats import Repeats, Repetition, check_goal, check_length, load_before
from pgtop_tune.experiment.run_cell import BeforeEachRun, LoadTarget, RunCell, parse_endpoint
from pgtop_tune.experiment.series import Series, Steps, cells, parse_steps, series_json
from pgtop_tune.experiment.switchback.separate_blocks import check_nothing_pending
from pgtop_tune.metrics import sections
from pgtop_tune.metrics.catalogue import Interval
from pgtop_tune.model.absence import Unavailable
from pgtop_tune.model.bench import BenchProgress, BenchRun, LoadSpec
from pgtop_tune.model.run_json import as_json
from pgtop_tune.model.run_result import RunResult
from pgtop_tune.postgres.server.conninfo import ConnInfo
from pgtop_tune.postgres.server.other_address import resolve_other
from pgtop_tune.postgres.server.straight_way import Way, way_of
from pgtop_tune.runtime.ports import Step
from pgtop_tune.runtime.run_frames import FrameKeeper

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pgtop_tune.postgres.server.sql_session import PsycopgSession

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


async def targets(
    endpoints: Sequence[str], sql_session: PsycopgSession, conninfo: ConnInfo, *, from_here: bool
) -> tuple[LoadTarget, ...]:
    """The endpoints; without any, the server that is watched.

    Args:
        endpoints: As typed: NAME=HOST:PORT/DATABASE, or NAME=postgresql://…
        sql_session: A session on the server that is watched.
        conninfo: What it was opened with; what an endpoint leaves out is taken from it, but for its secrets.
        from_here: pgbench runs on this machine. Elsewhere, this machine's own addresses mean another server.

    Raises:
        UsageProblem: Words that are no endpoint.
    """
    watched = conninfo.pinned(sql_session.reached)
    if not endpoints:
        return (LoadTarget(str(watched.endpoints[0]), endpoint_of(watched if from_here else _from_there(watched))),)
    found = []
    for typed in endpoints:
        words = parse_endpoint(typed)
        meant = with_inherited_password(await asyncio.to_thread(resolve_other, words.address, watched))
        asked = from_here or not _of_this_machine(meant)
        way = await way_of(meant, sql_session) if asked else Way(None, straight=False)
        meant = meant.only(meant.endpoints[0]) if way.reached is None else meant.pinned(way.reached)
        endpoint = endpoint_of(meant if from_here else _from_there(meant))
        found.append(
            LoadTarget(name=words.name, endpoint=endpoint, direct=way.straight, elsewhere=way.elsewhere and from_here)
        )
    return tuple(found)


def _from_there(conninfo: ConnInfo) -> ConnInfo:
    """As another machine reaches it: a name that means this machine's loopback here has another address there."""
    endpoint = conninfo.endpoints[0]
    if _is_loopback(endpoint.hostaddr) and not (endpoint.host == "localhost" or _is_loopback(endpoint.host)):
        return replace(conninfo, endpoints=(replace(endpoint, hostaddr=""),))
    return conninfo


def _of_this_machine(conninfo: ConnInfo) -> bool:
    endpoint = conninfo.endpoints[0]
    return endpoint.is_socket or endpoint.host == "localhost" or _is_loopback(endpoint.address)


def _is_loopback(address: str) -> bool:
    try:
        return ip_address(address).is_loopback
    except ValueError:
        return False


_FIRST_ANSWER_S = 30.0
_SURROUNDINGS_S = 10.0


class BenchRequest(Struct, frozen=True):
    """The command line of `bench run`.

    Attributes:
        spec: What all runs have in common.
        clients, protocol: None takes what suits the profile.
        steps, endpoints: As typed.
        format: Of the results on stdout; "" for none.
        again: Runs that were made before, to be made again in place of all that profiles, spec and steps say.
        repetition: How often each run is made.
        configurations: Values of parameters that each run is made under.
    """

    connection: ConnectionWords
    profiles: tuple[str, ...]
    profiles_directory: Path | None
    spec: LoadSpec
    clients: int | None
    protocol: str | None
    allow_shell: bool
    steps: str | None
    endpoints: tuple[str, ...]
    housekeeping: str
    warm_up_s: int
    format: str
    output: Path | None
    record: Path | None
    quiet: bool
    live: LiveOptions
    again: tuple[LoadSpec, ...] = ()
    repetition: Repetition = Repetition()
    configurations: tuple[Configuration, ...] = ()


async def measure(wanted: BenchRequest) -> int:
    """Measures, prints, and gives the exit status.

    Raises:
        PgtopError: Nothing could be measured.
    """
    steps = parse_steps(wanted.steps) if wanted.steps else None
    not_stdout(wanted.record)
    before = BeforeEachRun(parse_housekeeping(wanted.housekeeping), wanted.warm_up_s)
    directories = profile_directories(wanted.profiles_directory)
    loaded = load_profiles(directories)
    async with opened(wanted.connection) as (sql_session, conninfo):
        places = await targets(wanted.endpoints, sql_session, conninfo, from_here=wanted.live.load_from is None)
        reached = sql_session.reached
    plan, wish = _plan(wanted, loaded, places, steps), wanted.repetition
    check_length(plan, wish)
    repeats = Repeats(plan, wish)
    in_cells = wish.most > 1 or bool(wanted.configurations)
    if wanted.output is not None:
        check_directory(wanted.output)
    session = LiveSession(conninfo, wanted.live, reached)
    session.load.directories = directories
    # The cells of a plan come complete, and their scripts were looked through.
    session.load.prepare = None
    if wanted.record is not None:
        session.recorder.start(str(wanted.record))

    def progress(run: BenchRun, line: BenchProgress) -> None:
        if not wanted.quiet:
            tell(progress_words(run, line))

    def began(number: int, cell: RunCell) -> None:
        tell(heading(number, len(plan) * wish.most, cell, open_end=wish.until is not None))

    keeper, surroundings = FrameKeeper(progress), Surroundings()
    session.engine.attach(keeper)
    if wish.until is not None:
        session.engine.attach(surroundings)
    configured = ConfiguredRuns(wanted.configurations, session.parameters, before)
    run = LoadRun(session.load, keeper, session.open_sql_session, tell, configured)
    measured: list[RunResult] = []
    unwritten: list[RecordingProblem] = []

    def ended(result: RunResult) -> None:
        measured.append(result)
        if in_cells:
            repeats.take(result)
        if wanted.output is not None:
            try:
                write_run(wanted.output, len(measured), result)
            except RecordingProblem as problem:
                unwritten.append(problem)
                tell(f"not saved: {problem.message}")
        for doubt in result.doubts:
            if doubt.verdict == "invalid":
                tell(f"{doubt.id}: {doubt.reason}")

    series = Series(run, plan, before, began, ended, repeats)

    async def work() -> None:
        await first_answer(session, keeper)
        await _check(wanted.configurations, session, plan, configured)
        if wish.until is not None:
            machine = "" if wanted.live.load_from is None else str(wanted.live.load_from)
            loads = await _loads(surroundings, keeper, plan, machine)
            for load in dict.fromkeys(filter(None, loads)):
                if words := known_words(known_noise(load)):
                    tell(f"{load.title}: {words}")
            check_goal(plan, loads, wish, wanted.warm_up_s)
        try:
            await series.measure()
        finally:
            await asyncio.shield(configured.revert())

    async with pending_looked_after(session.parameters, session.machine, wanted.live.journal_directory, tell):
        try:
            signalled = await run_beside(session.engine, work)
        finally:
            # However it ended: minutes of measuring are in them.
            if series.results and wanted.format:
                _print(wanted.format, series.results, steps, repeats if in_cells else None, single=len(plan) == 1)
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
    wanted: BenchRequest, loaded: Profiles, places: Sequence[LoadTarget], steps: Steps | None
) -> tuple[RunCell, ...]:
    """Every run that is to be made."""
    if wanted.again:
        found = (
            cells(places, [loaded.get(spec.profile)], spec, None, clients=spec.clients, protocol=spec.protocol)
            for spec in wanted.again
        )
        return tuple(cell for each in found for cell in each)
    return cells(
        places,
        [loaded.get(name) for name in wanted.profiles],
        wanted.spec,
        steps,
        clients=wanted.clients,
        protocol=wanted.protocol,
        allow_shell=wanted.allow_shell,
        configurations=[each.name for each in wanted.configurations] or ("",),
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


async def first_answer(session: LiveSession, keeper: FrameKeeper) -> None:
    """Waits for the server, whose numbers the runs are judged by.

    Raises:
        ConnectionProblem: It does not answer.
    """

    def answers(interval: Interval) -> bool:
        return not isinstance(sections.server(interval.newest), Unavailable)

    if not await keeper.until(answers, _FIRST_ANSWER_S):
        server = session.source.server
        raise ConnectionProblem("the server does not answer", "" if server is None else server.why)


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
        return () if self._seen is None else self._seen.found(())


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
