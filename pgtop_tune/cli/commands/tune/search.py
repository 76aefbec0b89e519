"""`tune`: a search on one server or on several, and the output of its result."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec import convert, to_builtins
from msgspec.structs import replace

from pgtop_tune.base.errors import PgtopError, UsageProblem
from pgtop_tune.base.units import duration
from pgtop_tune.changes.confirm.orphans import pending_looked_after
from pgtop_tune.cli.commands.experiment import check_for_workers
from pgtop_tune.cli.commands.experiment.workers import (
    UnitOptions,
    WorkerServer,
    answers_of_all,
    check_alike,
    finished,
    remaining_workers,
)
from pgtop_tune.cli.commands.tune import TuneRequest
from pgtop_tune.cli.commands.tune.results import apply_result, directory_named, list_tunings, show_tuning
from pgtop_tune.cli.commands.tune.session import (
    Beginning,
    SearchRequest,
    TuningSession,
    beginning,
    evaluator_of,
    machine_knobs,
    opened_session,
    server_space,
    until_nothing_pends,
)
from pgtop_tune.cli.connections import live_options
from pgtop_tune.cli.detached import start_detached
from pgtop_tune.cli.exit_codes import ExitCode
from pgtop_tune.cli.headless import run_beside
from pgtop_tune.cli.options import LiveOptions, for_seconds
from pgtop_tune.cli.output import say, tell
from pgtop_tune.cli.typed_load import TypedLoad, kept_scripts, tell_unused, typed_load
from pgtop_tune.cli.wiring import first_answer
from pgtop_tune.experiment.plan.results import COMPLETE, ExperimentLog, new_directory
from pgtop_tune.experiment.plan.run import unfinished
from pgtop_tune.experiment.switchback.state import SwitchbackState
from pgtop_tune.experiment.workers import DaskWorkers, UnitFailed
from pgtop_tune.host.source_names import HostSource
from pgtop_tune.model.run_result import plain
from pgtop_tune.runtime.experiment_control import ExperimentState
from pgtop_tune.runtime.running_experiments import Announcement, ServerKey, server_of
from pgtop_tune.tuning.on_server.conditions import Change
from pgtop_tune.tuning.on_server.evaluation import ConditionsChanged, KnobsChanged
from pgtop_tune.tuning.on_server.journal import (
    KeptTuning,
    TuningRequest,
    kept_tuning,
    replayed,
    write_first,
    write_result,
)
from pgtop_tune.tuning.on_server.report import SAME_MIX_WORDS, ShownTuning, next_line, result_lines
from pgtop_tune.tuning.on_server.run import RunParts, ServersParts, TuningOnServers, TuningRun
from pgtop_tune.tuning.protocol import SearchEnding, SearchResult
from pgtop_tune.tuning.search import Evaluation, Outcome

_SHORTEST_BLOCK_S: Final = 2.0
_UNIT_S: Final = 45.0
"""Assumed time of an evaluation beside its blocks: for a session, and for a steady load."""


class _WorkerBeginning(WorkerServer, frozen=True, kw_only=True):
    beginning: Beginning
    machine: str


async def tune_on_workers(
    request: TuneRequest, search: SearchRequest, unit_options: UnitOptions
) -> tuple[int, Path | None]:
    """Search on several servers alike, a worker beside each; return the exit status, and the journal's directory.

    Raises:
        PgtopError: There are no workers, servers differ, or the search cannot go on; nothing stays changed.
    """
    search.check()
    if request.allow_restart and not request.yes:
        raise UsageProblem(
            "restarts of several servers need a confirmation", "pass --yes, or leave --allow-restart out"
        )
    async with aclosing(await DaskWorkers.connected(request.workers)) as workers:
        beginnings = await _beginnings(workers, search, unit_options)
        servers, first = tuple(beginnings), next(iter(beginnings.values())).beginning
        parallel = max(1.0, len(servers) / 2.0)
        plan = replace(
            first.plan,
            cost=(first.plan.cost + _UNIT_S) / parallel,
            restart_cost=(first.plan.restart_cost + _UNIT_S) / parallel,
            machine_cost=(first.plan.machine_cost + _UNIT_S) / parallel,
        )
        directory = new_directory("tune")
        with ExperimentLog(directory) as log:
            write_first(log, "", first.request, plan, first.guards, first.left_out, workers=servers)
            _tell_left_out(first.left_out)
            kept = kept_tuning(directory)
            return await _searched(workers, kept, log, servers, unit_options, request.stop_file), directory


def _tell_left_out(left_out: Iterable[tuple[str, str]]) -> None:
    for name, reason in left_out:
        tell(f"{name} is not searched: {reason}")


async def resume_on_workers(
    request: TuneRequest, directory: Path, unit_options: UnitOptions
) -> tuple[int, Path | None]:
    """Continue a search. Raises as `tune_on_workers`."""
    with ExperimentLog(directory) as log:
        kept = _resumable(directory)
        if not kept.workers:
            raise UsageProblem(f"{kept.id} runs on one server", "leave --workers out")
        async with aclosing(await DaskWorkers.connected(request.workers)) as workers:
            servers = remaining_workers(kept.workers, await workers.servers())
            log.write("resumed")
            return await _searched(workers, kept, log, servers, unit_options, request.stop_file), directory


def _resumable(directory: Path) -> KeptTuning:
    """Return a search that is not complete. Raises UsageProblem for a complete one."""
    kept = kept_tuning(directory)
    if kept.ended == COMPLETE:
        raise UsageProblem(f"{kept.id} is complete", f"show it with `pgtop-tune tune --show {kept.id}`")
    return kept


async def _searched(
    workers: DaskWorkers,
    kept: KeptTuning,
    log: ExperimentLog,
    servers: Sequence[str],
    unit_options: UnitOptions,
    stop_file: Path | None,
) -> int:
    plan, request = to_builtins(kept.plan), to_builtins(kept.request)

    async def measure(server: str, evaluation: Evaluation) -> Outcome:
        unit = unit_options.request("evaluation", plan=plan, request=request, evaluation=to_builtins(evaluation))
        return _outcome(await workers.run(server, unit), server)

    parts = ServersParts(measure=measure, servers=workers.servers, stop_file=stop_file, tell=tell)
    run = TuningOnServers(replayed(kept), kept.plan, kept.guards.allowed, log, servers, parts)
    try:
        result: SearchResult = await run.run()
    except (PgtopError, asyncio.CancelledError) as problem:
        log.write("ended", why=unfinished(problem))
        tell(f"stopped; `pgtop-tune tune --resume {kept.id} --workers ADDRESS` continues")
        raise
    write_result(log, result)
    for line in result_lines(result, kept.request.objective or SAME_MIX_WORDS):
        say(line)
    tell(next_line(kept.id, result))
    return ExitCode.CANNOT_TELL if result.ending is SearchEnding.REFUSED else ExitCode.OK


def _outcome(data: bytes, server: str) -> Outcome:
    """Return a worker's outcome. Raises KnobsChanged and ConditionsChanged as the worker, UnitFailed if unreadable."""
    interruption: KnobsChanged | ConditionsChanged
    try:
        answer: Mapping[str, Any] = json.loads(data)["answer"]
        if "outcome" in answer:
            return convert(answer["outcome"], Outcome)
        if "conditions" in answer:
            interruption = ConditionsChanged(convert(answer["conditions"], Change))
        else:
            interruption = KnobsChanged(convert(answer["changed"], tuple[str, ...]))
    except (ValueError, KeyError, TypeError, msgspec.ValidationError) as problem:
        raise UnitFailed(
            f"{server}: the answer cannot be read: {problem}", "install the same pgtop-tune version on all machines"
        ) from None
    raise interruption


async def _beginnings(
    workers: DaskWorkers, search: SearchRequest, unit_options: UnitOptions
) -> Mapping[str, _WorkerBeginning]:
    """Return the beginning of a search by server.

    Raises:
        UsageProblem: Servers differ, or share a machine of which the search would change a setting.
    """
    tell("reading the servers under the load")
    unit = unit_options.request("search", search=to_builtins(search))
    beginnings = await answers_of_all(workers, unit, _WorkerBeginning)
    check_alike(beginnings, _conditions)
    machines = {worker.machine for worker in beginnings.values()}
    first = next(iter(beginnings.values()))
    settings = [knob.name for knob in first.beginning.plan.space.dimensions if knob.machine]
    if settings and len(machines) < len(beginnings):
        raise UsageProblem(
            f"{settings[0]} applies to a whole machine, and several of these servers share one machine",
            "search only parameters, or on one server",
        )
    return beginnings


def _conditions(worker: _WorkerBeginning) -> dict[str, Any]:
    """Return the conditions that must be equal on all servers."""
    beginning = worker.beginning
    parameters = {name: parameter.shown for name, parameter in beginning.guards.parameters.items()}
    left_out = [name for name, _ in beginning.left_out]
    return {"knobs": plain(beginning.plan.space), "parameters": parameters, "left out": left_out}


def run_tune(request: TuneRequest) -> int:
    """Search, continue a search, or show its result; apply the result on request; return the exit status.

    Raises:
        UsageProblem: Options contradict each other.
        PgtopError: The search could not begin, or cannot go on; nothing stays changed.
    """
    if request.status:
        list_tunings()
        return ExitCode.OK
    if request.show:
        directory = directory_named(request.show)
        if request.apply:
            return apply_result(request.connection, directory, yes=request.yes)
        show_tuning(directory, request.output, force=request.force)
        return ExitCode.OK
    if request.output is not None:
        raise UsageProblem("-o needs --show", "run `pgtop-tune tune --show last -o tune.html`")
    if request.detach:
        return start_detached(["tune"])
    session, against_load = request.session, request.against_load or request.watch
    live = live_options(session)
    if request.workers:
        is_elsewhere = session.load_from or session.host_source is not HostSource.AUTO
        if against_load or request.apply or is_elsewhere:
            raise UsageProblem(
                "with --workers, each worker loads its own server and reads its own host",
                "leave --against-load, --watch, --apply, --load-from and --host-source out",
            )
        check_for_workers(request.connection)
    if request.watch and (request.apply or request.allow_restart):
        raise UsageProblem("--watch only makes proposals, without restarts", "leave --apply and --allow-restart out")
    if request.resume:
        tell_unused(request.load, "a search keeps the load that it was begun with")
    elif against_load:
        tell_unused(request.load)
    with typed_load(request.load, session.pgbench) as load:
        if request.workers:
            if load.spec.scripts:
                raise UsageProblem("scripts are not brought to workers", "pass --profile, or leave --workers out")
            status, kept_in = finished(_on_workers(request, load))
        else:
            status, kept_in = asyncio.run(resume(request, live) if request.resume else tune(request, load, live))
    if request.apply and kept_in is not None and status == ExitCode.OK:
        return apply_result(request.connection, kept_in, yes=request.yes)
    return status


async def _on_workers(request: TuneRequest, load: TypedLoad) -> tuple[int, Path | None]:
    unit_options = UnitOptions(profiles=request.profiles, pgbench=request.session.pgbench, allow_unsafe=False)
    if request.resume:
        return await resume_on_workers(request, directory_named(request.resume), unit_options)
    return await tune_on_workers(request, _search_of(request, load), unit_options)


def _search_of(request: TuneRequest, load: TypedLoad) -> SearchRequest:
    """Return the search of the options. Raises UsageProblem for times that cannot be used."""
    budget_s = for_seconds(request.budget, "--budget")
    recovery_s = for_seconds(request.recovery_within, "--recovery-within")
    block_s = for_seconds(request.block, "--block")
    if budget_s is None or recovery_s is None or block_s is None or block_s < _SHORTEST_BLOCK_S:
        raise UsageProblem("--budget, --recovery-within or --block is not a usable duration", "pass 2h, 10m, 10s")
    against_load = request.against_load or request.watch
    tuning = TuningRequest(
        profile="" if against_load else load.profile("tune"),
        clients=load.clients or 0,
        threads=load.spec.threads,
        protocol=load.protocol or "",
        rate_per_s=load.spec.rate_per_s,
        further=replace(load.spec, scripts=kept_scripts(load.spec.scripts)),
        allow_shell=load.allow_shell,
        objective="" if against_load else request.objective,
        constraints=tuple(request.constraint or ()),
        allow_restart=request.allow_restart,
        recovery_s=recovery_s,
        block_s=block_s,
    )
    return SearchRequest(
        knobs=tuple(name.strip() for name in request.knobs.split(",") if name.strip()),
        groups=tuple(request.group or ()),
        budget_s=budget_s,
        request=tuning,
        engine=request.engine,
        worth=request.worth / 100.0,
        seed=request.seed,
    )


async def tune(request: TuneRequest, load: TypedLoad, live: LiveOptions) -> tuple[int, Path | None]:
    """Search; return the exit status, and the directory of the journal.

    Raises:
        PgtopError: The search could not begin, or cannot go on; nothing stays changed.
    """
    search = _search_of(request, load)
    search.check()
    session = await opened_session(request.connection, search.request, live, request.profiles)

    if request.dry_run:
        return await _show_knobs(session, search), None

    async def begin() -> tuple[Path, KeptTuning]:
        first = await beginning(session, search)
        directory = new_directory("tune")
        with ExperimentLog(directory) as log:
            write_first(log, first.server, first.request, first.plan, first.guards, first.left_out)
        return directory, kept_tuning(directory)

    return await _run(session, begin, request)


async def _show_knobs(session: TuningSession, search: SearchRequest) -> int:
    """Print the knobs of the server that a search would try, and return the exit status."""

    async def work() -> None:
        await first_answer(session.live, session.keeper)
        parameters, space = await server_space(session, search)
        space = space.beside(await machine_knobs(session, search, parameters))
        for dimension in space.dimensions:
            values = ", ".join(dimension.levels)
            say(f"{dimension.name} = {dimension.levels[dimension.start]} now, searched among {values}")
        _tell_left_out(space.left_out)
        tell(f"{len(space.dimensions)} knobs, at most {duration(search.budget_s)}; nothing was changed")

    try:
        signalled = await run_beside(session.live.engine, work, quietly=True)
    finally:
        await session.live.restart.aclose()
    return ExitCode.SIGNALLED + signalled if signalled else ExitCode.OK


async def resume(request: TuneRequest, live: LiveOptions) -> tuple[int, Path | None]:
    """Continue a search. Raises as `tune`."""
    directory = directory_named(request.resume)
    kept = _resumable(directory)
    if kept.workers:
        raise UsageProblem(f"{kept.id} runs on {', '.join(kept.workers)}", "pass --workers ADDRESS")
    session = await opened_session(request.connection, kept.request, live, request.profiles)

    async def begin() -> tuple[Path, KeptTuning]:
        identifier = session.system_identifier()
        if identifier and kept.server and identifier != kept.server:
            raise UsageProblem(f"{kept.id} belongs to another server, system {kept.server}", "connect to that server")
        return directory, kept

    return await _run(session, begin, request)


async def _run(
    session: TuningSession, begin: Callable[[], Awaitable[tuple[Path, KeptTuning]]], request: TuneRequest
) -> tuple[int, Path | None]:
    live = session.live
    done: list[tuple[Path, SearchResult]] = []
    begun: list[Path] = []

    async def work() -> None:
        await first_answer(live, session.keeper)
        try:
            while True:
                # Announced before the first look at the load: two tuners would measure each other.
                async with _announced(session) as announced:
                    await until_nothing_pends(live.parameters)
                    directory, kept = await begin()
                    _tell_left_out(kept.left_out)
                    with ExperimentLog(directory) as log:
                        begun.append(directory)
                        result = await _search(session, announced, log, kept, request)
                done.append((directory, result))
                for line in result_lines(result, session.objective_words):
                    say(line)
                tell(next_line(directory.name, result))
                if request.resume or not request.watch:
                    return
                tell("watching: the next search starts when the load changes; Ctrl-C stops watching")
                tell(f"the load has changed: {await session.until_load_changes()}")
        finally:
            await session.load.end()

    async with pending_looked_after(live.parameters, live.machine, session.journal_directory, tell):
        try:
            signalled = await run_beside(live.engine, work)
        finally:
            await live.restart.aclose()
            if len(begun) > len(done):
                tell(f"stopped; `pgtop-tune tune --resume {begun[-1].name}` continues")
    if len(begun) > len(done) or not done:
        status = ExitCode.SIGNALLED + signalled if signalled else ExitCode.CANNOT_TELL
        return status, begun[-1] if begun else None
    directory, result = done[-1]
    return ExitCode.CANNOT_TELL if result.ending is SearchEnding.REFUSED else ExitCode.OK, directory


class _AnnouncedSearch:
    """The search as other programs see it.

    Attributes:
        state: The newest.
        file: The announcement.
    """

    def __init__(self, server: ServerKey | None) -> None:
        self.state = ExperimentState(number=1, kind="tuning", under_way=True, phase="reading the load")
        self.file: Final = Announcement("tune", (), lambda: self.state, server)


@asynccontextmanager
async def _announced(session: TuningSession) -> AsyncIterator[_AnnouncedSearch]:
    """Announce a search. Raises UsageProblem where another experiment runs on the server."""
    announced = _AnnouncedSearch(server_of(session.keeper.frames[-1]))
    session.live.engine.attach(announced.file)
    announced.file.begin()
    try:
        await session.live.parameters.claim_experiment()
        yield announced
    finally:
        announced.file.end()
        with suppress(PgtopError):
            await session.live.parameters.release_experiment()


async def _search(
    session: TuningSession, announced: _AnnouncedSearch, log: ExperimentLog, kept: KeptTuning, request: TuneRequest
) -> SearchResult:
    if kept.events:
        log.write("resumed")
    tuning = replayed(kept)
    displayed = ShownTuning(kept, tuning)

    def announce() -> None:
        announced.state = displayed.newest
        announced.file.tick()

    def changed() -> None:
        displayed.changed()
        announce()

    def take(state: SwitchbackState) -> None:
        displayed.take(state)
        announce()

    announced.state = displayed.newest
    announced.file.switches([knob.name for knob in kept.plan.space.dimensions])
    parts = RunParts(
        answers=session.answers,
        load_runs=session.load_runs,
        free_bytes=session.free_bytes,
        stop_file=request.stop_file,
        tell=tell,
        changed=changed,
    )
    async with evaluator_of(
        session,
        kept.plan,
        kept.request.block_s,
        yes=request.yes,
        before_set=lambda set_id: log.write("set_began", set_id=set_id),
        take=take,
    ) as evaluator:
        try:
            result = await TuningRun(tuning, log, evaluator, parts, kept.plan.seed).run()
        except (PgtopError, asyncio.CancelledError) as problem:
            log.write("ended", why=unfinished(problem))
            raise
    write_result(log, result)
    return result
