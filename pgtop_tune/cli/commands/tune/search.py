"""`tune` put together: the watched server, the load, the search, and where its result goes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec import convert, to_builtins
from msgspec.structs import replace

from pgtop_tune.base.errors import PgtopError, UsageProblem
from pgtop_tune.changes.confirm.orphans import pending_looked_after
from pgtop_tune.cli.commands.experiment.request import check_for_workers
from pgtop_tune.cli.commands.experiment.workers import Asked, Described, answers_of_all, check_alike, to_the_end
from pgtop_tune.cli.commands.tune.request import TuneRequest
from pgtop_tune.cli.commands.tune.results import apply_result, directory_named
from pgtop_tune.cli.commands.tune.session import (
    Beginning,
    SearchRequest,
    TuningSession,
    beginning,
    evaluator_of,
    objective_of,
    opened_session,
    until_nothing_pends,
)
from pgtop_tune.cli.exit_codes import ExitCode
from pgtop_tune.cli.headless import run_beside
from pgtop_tune.cli.live_options import LiveOptions
from pgtop_tune.cli.load_targets import first_answer
from pgtop_tune.cli.options import for_seconds
from pgtop_tune.cli.output import say, tell
from pgtop_tune.experiment.plan.results import COMPLETE, ExperimentLog, new_directory
from pgtop_tune.experiment.plan.run import unfinished
from pgtop_tune.experiment.switchback.state import SwitchbackState
from pgtop_tune.experiment.workers import DaskWorkers, UnitFailed
from pgtop_tune.host.source_names import HostSource
from pgtop_tune.model.run_result import plain
from pgtop_tune.runtime.experiment_control import ExperimentState
from pgtop_tune.runtime.running_experiments import Announcement, ServerKey, server_of
from pgtop_tune.tuning.on_server.conditions import Change
from pgtop_tune.tuning.on_server.evaluating import ConditionsChanged, KnobsChanged
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

# `tune --workers`: a search on several servers alike, one worker beside each.

_SHORTEST_BLOCK_S: Final = 2.0
_UNIT_S: Final = 45.0
"""What an evaluation takes beside its blocks, as assumed: a session, a load that gets steady."""


class _Begun(Described, frozen=True, kw_only=True):
    beginning: Beginning
    machine: str


async def tune_on_workers(request: TuneRequest, search: SearchRequest, asked: Asked) -> tuple[int, Path | None]:
    """Makes a search; the exit status, and the directory of its journal.

    Raises:
        PgtopError: No workers, servers that differ, or it cannot go on; nothing stays changed.
    """
    search.check()
    if request.allow_restart and not request.yes:
        raise UsageProblem(
            "restarts of several servers need a confirmation", "pass --yes, or leave --allow-restart out"
        )
    workers = await DaskWorkers.connected(request.workers)
    try:
        found = await _begun(workers, search, asked)
        servers, first = tuple(found), next(iter(found.values())).beginning
        several = max(1.0, len(servers) / 2.0)
        plan = replace(
            first.plan,
            cost=(first.plan.cost + _UNIT_S) / several,
            restart_cost=(first.plan.restart_cost + _UNIT_S) / several,
            machine_cost=(first.plan.machine_cost + _UNIT_S) / several,
        )
        directory = new_directory("tune")
        with ExperimentLog(directory) as log:
            write_first(log, "", first.request, plan, first.guards, first.left_out, workers=servers)
            for name, why in first.left_out:
                tell(f"{name}: not searched: {why}")
            return await _searched(workers, kept_tuning(directory), log, servers, asked, request.stop_file), directory
    finally:
        await workers.aclose()


async def resume_on_workers(request: TuneRequest, directory: Path, asked: Asked) -> tuple[int, Path | None]:
    """Goes on with a search. Raises as `tune_on_workers`."""
    with ExperimentLog(directory) as log:
        kept = kept_tuning(directory)
        if kept.ended == COMPLETE:
            raise UsageProblem(f"{kept.id} is complete", f"`pgtop-tune tune --show {kept.id}` shows it")
        if not kept.workers:
            raise UsageProblem(f"{kept.id} runs on one server", "leave --workers out")
        workers = await DaskWorkers.connected(request.workers)
        try:
            there = await workers.servers()
            servers = tuple(name for name in kept.workers if name in there)
            if not servers:
                raise UsageProblem(f"none of its workers is there: {', '.join(kept.workers)}", "start them again")
            log.write("resumed")
            return await _searched(workers, kept, log, servers, asked, request.stop_file), directory
        finally:
            await workers.aclose()


async def _searched(
    workers: DaskWorkers,
    kept: KeptTuning,
    log: ExperimentLog,
    servers: Sequence[str],
    asked: Asked,
    stop_file: Path | None,
) -> int:
    plan, request = to_builtins(kept.plan), to_builtins(kept.request)

    async def measure(server: str, wanted: Evaluation) -> Outcome:
        unit = asked.request("evaluation", plan=plan, request=request, evaluation=to_builtins(wanted))
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
    """Raises KnobsChanged or ConditionsChanged where the worker says so, UnitFailed where it cannot be read."""
    found: KnobsChanged | ConditionsChanged
    try:
        answer: Mapping[str, Any] = json.loads(data)["answer"]
        if "outcome" in answer:
            return convert(answer["outcome"], Outcome)
        if "conditions" in answer:
            found = ConditionsChanged(convert(answer["conditions"], Change))
        else:
            found = KnobsChanged(convert(answer["changed"], tuple[str, ...]))
    except (ValueError, KeyError, TypeError, msgspec.ValidationError) as problem:
        raise UnitFailed(f"{server}: the answer cannot be read: {problem}", "run the same version everywhere") from None
    raise found


async def _begun(workers: DaskWorkers, search: SearchRequest, asked: Asked) -> Mapping[str, _Begun]:
    tell("looking at the servers under the load")
    found = await answers_of_all(workers, asked.request("search", search=to_builtins(search)), _Begun)
    check_alike(found, _decides)
    _check_machines(found)
    return found


def _check_machines(found: Mapping[str, _Begun]) -> None:
    """Raises UsageProblem for a setting of the machine where servers share one."""
    machines = [each.machine for each in found.values()]
    first = next(iter(found.values()))
    settings = [each.name for each in first.beginning.plan.space.dimensions if each.machine]
    if settings and len(set(machines)) < len(machines):
        raise UsageProblem(
            f"{settings[0]} is one value for a machine, and several of these servers share one",
            "search parameters alone, or one server",
        )


def _decides(found: _Begun) -> dict[str, Any]:
    plan, guards = found.beginning.plan, found.beginning.guards
    space = plain(plan.space)
    parameters = {name: each.shown for name, each in guards.parameters.items()}
    return {"knobs": space, "parameters": parameters, "left out": [name for name, _ in found.beginning.left_out]}


def searched(request: TuneRequest) -> int:
    """Make a search or go on with one, apply its result where that is asked for, and return the exit status.

    Raises:
        UsageProblem: Options that contradict each other.
        PgtopError: It could not begin, or cannot go on; nothing stays changed.
    """
    session, against_load = request.session, request.against_load or request.watch
    live = session.live()
    if request.workers:
        is_elsewhere = session.load_from or session.host_source is not HostSource.AUTO
        if against_load or request.apply or is_elsewhere:
            raise UsageProblem(
                "with --workers each worker drives the load of its own server, and reads its own host",
                "leave --against-load, --watch, --apply, --load-from and --host-source out",
            )
        check_for_workers(request.connection)
    if request.watch and (request.apply or request.allow_restart):
        raise UsageProblem("--watch makes proposals, without restarts", "leave --apply and --allow-restart out")
    asked = Asked(profiles=request.profiles, pgbench=session.pgbench, allow_unsafe=False)
    code, directory = (
        to_the_end(_on_workers(request, asked)) if request.workers else asyncio.run(_on_one_server(request, live))
    )
    if request.apply and directory is not None and code == 0:
        return apply_result(request.connection, directory, yes=request.yes)
    return code


async def _on_workers(request: TuneRequest, asked: Asked) -> tuple[int, Path | None]:
    if request.resume:
        return await resume_on_workers(request, directory_named(request.resume), asked)
    return await tune_on_workers(request, _search_of(request), asked)


async def _on_one_server(request: TuneRequest, live: LiveOptions) -> tuple[int, Path | None]:
    if request.resume:
        return await resume(request, live, directory_named(request.resume))
    return await tune(request, live, _search_of(request))


def _search_of(wanted: TuneRequest) -> SearchRequest:
    """Raises UsageProblem for times that cannot be used."""
    budget_s = for_seconds(wanted.budget, "--budget")
    recovery_s = for_seconds(wanted.recovery_within, "--recovery-within")
    block_s = for_seconds(wanted.block, "--block")
    if budget_s is None or recovery_s is None or block_s is None or block_s < _SHORTEST_BLOCK_S:
        raise UsageProblem("--budget, --recovery-within or --block is no usable time", "pass 2h, 10m, 10s")
    against_load, load = wanted.against_load or wanted.watch, wanted.load
    request = TuningRequest(
        profile="" if against_load else wanted.profile,
        clients=load.clients or 0,
        threads=load.threads,
        protocol=load.protocol or "",
        rate_per_s=load.rate,
        objective="" if against_load else wanted.objective,
        constraints=tuple(wanted.constraint or ()),
        allow_restart=wanted.allow_restart,
        recovery_s=recovery_s,
        block_s=block_s,
    )
    return SearchRequest(
        knobs=tuple(name.strip() for name in wanted.knobs.split(",") if name.strip()),
        groups=tuple(wanted.group or ()),
        budget_s=budget_s,
        request=request,
        engine=wanted.engine,
        worth=wanted.worth / 100.0,
        seed=wanted.seed,
    )


async def tune(wanted: TuneRequest, live: LiveOptions, search: SearchRequest) -> tuple[int, Path | None]:
    """Makes a search; the exit status, and the directory of its journal.

    Raises:
        PgtopError: It could not begin, or cannot go on; nothing stays changed.
    """
    search.check()
    request = search.request
    decides = objective_of(request)
    session = await opened_session(wanted.connection, request, live, wanted.profiles, decides)

    async def made() -> tuple[Path, KeptTuning]:
        begun = await beginning(session, search)
        directory = new_directory("tune")
        with ExperimentLog(directory) as log:
            write_first(log, begun.server, begun.request, begun.plan, begun.guards, begun.left_out)
        return directory, kept_tuning(directory)

    return await _run(session, made, wanted)


async def resume(request: TuneRequest, live: LiveOptions, directory: Path) -> tuple[int, Path | None]:
    """Goes on with a search. Raises as `tune`."""
    kept = kept_tuning(directory)
    if kept.ended == COMPLETE:
        raise UsageProblem(f"{kept.id} is complete", f"`pgtop-tune tune --show {kept.id}` shows it")
    if kept.workers:
        raise UsageProblem(f"{kept.id} runs on {', '.join(kept.workers)}", "pass --workers ADDRESS")
    session = await opened_session(request.connection, kept.request, live, request.profiles, objective_of(kept.request))

    async def made() -> tuple[Path, KeptTuning]:
        now = session.system_identifier()
        if now and kept.server and now != kept.server:
            raise UsageProblem(f"{kept.id} belongs to another server, system {kept.server}", "connect to that server")
        return directory, kept

    return await _run(session, made, request)


async def _run(
    session: TuningSession,
    begin: Callable[[], Awaitable[tuple[Path, KeptTuning]]],
    request: TuneRequest,
) -> tuple[int, Path | None]:
    live = session.live
    done: list[tuple[Path, SearchResult]] = []
    begun: list[Path] = []

    async def work() -> None:
        await first_answer(live, session.keeper)
        try:
            while True:
                # From the first look at the load on: two tuners would measure each other.
                async with _announced(session) as announced:
                    await until_nothing_pends(live.parameters)
                    directory, kept = await begin()
                    for name, why in kept.left_out:
                        tell(f"{name}: not searched: {why}")
                    with ExperimentLog(directory) as log:
                        begun.append(directory)
                        result = await _search(session, announced, log, kept, request)
                done.append((directory, result))
                _say(session, directory, result)
                if request.resume or not request.watch:
                    return
                tell("watching: the next search begins when the load has changed; Ctrl-C ends it")
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
        code = ExitCode.SIGNALLED + signalled if signalled else ExitCode.CANNOT_TELL
        return code, begun[-1] if begun else None
    directory, result = done[-1]
    return ExitCode.CANNOT_TELL if result.ending is SearchEnding.REFUSED else ExitCode.OK, directory


def _say(session: TuningSession, directory: Path, result: SearchResult) -> None:
    for line in result_lines(result, SAME_MIX_WORDS if session.objective is None else session.objective.typed):
        say(line)
    tell(next_line(directory.name, result))


class _Announced:
    """The search as others see it.

    Attributes:
        state: The newest.
        file: Of the announcement.
    """

    def __init__(self, server: ServerKey | None) -> None:
        self.state = ExperimentState(number=1, kind="tuning", under_way=True, phase="looking at the load")
        self.file: Final = Announcement("tune", (), lambda: self.state, server)


@asynccontextmanager
async def _announced(session: TuningSession) -> AsyncIterator[_Announced]:
    """Raises a UsageProblem where another experiment runs on the server."""
    announced = _Announced(server_of(session.keeper.frames[-1]))
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
    session: TuningSession,
    announced: _Announced,
    log: ExperimentLog,
    kept: KeptTuning,
    request: TuneRequest,
) -> SearchResult:
    if kept.events:
        log.write("resumed")
    tuning = replayed(kept)
    shown = ShownTuning(kept, tuning)

    def changed() -> None:
        shown.changed()
        announced.state = shown.newest
        announced.file.tick()

    def seen(state: SwitchbackState) -> None:
        shown.take(state)
        announced.state = shown.newest
        announced.file.tick()

    announced.state = shown.newest
    announced.file.switches([each.name for each in kept.plan.space.dimensions])
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
        take_state=seen,
    ) as evaluator:
        try:
            result = await TuningRun(tuning, log, evaluator, parts, kept.plan.seed).run()
        except (PgtopError, asyncio.CancelledError) as problem:
            log.write("ended", why=unfinished(problem))
            raise
    write_result(log, result)
    return result
