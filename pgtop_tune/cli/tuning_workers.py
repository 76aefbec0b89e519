"""`tune --workers`: a search on several servers alike, one worker beside each."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec import Struct, convert, to_builtins
from msgspec.structs import replace

from pgtop_tune.base.errors import PgtopError, UsageProblem
from pgtop_tune.cli.alike_servers import answers_of_all, check_alike
from pgtop_tune.cli.exit_codes import ExitCode
from pgtop_tune.cli.experiment_workers import Asked
from pgtop_tune.cli.output import say, tell
from pgtop_tune.cli.tuning_beginning import Beginning, SearchRequest
from pgtop_tune.experiment.plan.results import ExperimentLog, new_directory
from pgtop_tune.experiment.plan.run import unfinished
from pgtop_tune.experiment.workers.dask_workers import DaskWorkers
from pgtop_tune.experiment.workers.run import UnitFailed, Workers
from pgtop_tune.model.run_json import plain
from pgtop_tune.runtime.running_experiments import ServerKey
from pgtop_tune.tuning.on_server.conditions import Change
from pgtop_tune.tuning.on_server.evaluating import ConditionsChanged, KnobsChanged
from pgtop_tune.tuning.on_server.journal import COMPLETE, KeptTuning, kept_tuning, replayed, write_first, write_result
from pgtop_tune.tuning.on_server.report import SAME_MIX_WORDS, next_line, result_lines
from pgtop_tune.tuning.on_server.run import ServersParts, TuningOnServers
from pgtop_tune.tuning.protocol import Ending, Result
from pgtop_tune.tuning.search import Evaluation, Outcome

_UNIT_S: Final = 45.0
"""What an evaluation takes beside its blocks, as assumed: a session, a load that gets steady."""


class _Begun(Struct, frozen=True, kw_only=True):
    version: str
    beginning: Beginning
    server: ServerKey | None
    machine: str


async def tune_on_workers(
    address: str, search: SearchRequest, asked: Asked, *, stop_file: Path | None, yes: bool
) -> tuple[int, Path | None]:
    """Makes a search; the exit status, and the directory of its journal.

    Raises:
        PgtopError: No workers, servers that differ, or it cannot go on; nothing stays changed.
    """
    search.check()
    if search.request.allow_restart and not yes:
        raise UsageProblem(
            "restarts of several servers need a confirmation", "pass --yes, or leave --allow-restart out"
        )
    workers = await DaskWorkers.connected(address)
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
            return await _searched(workers, kept_tuning(directory), log, servers, asked, stop_file), directory
    finally:
        await workers.aclose()


async def resume_on_workers(
    address: str, directory: Path, asked: Asked, *, stop_file: Path | None
) -> tuple[int, Path | None]:
    """Goes on with a search. Raises as `tune_on_workers`."""
    with ExperimentLog(directory) as log:
        kept = kept_tuning(directory)
        if kept.ended == COMPLETE:
            raise UsageProblem(f"{kept.id} is complete", f"`pgtop-tune tune --show {kept.id}` shows it")
        if not kept.workers:
            raise UsageProblem(f"{kept.id} runs on one server", "leave --workers out")
        workers = await DaskWorkers.connected(address)
        try:
            there = await workers.servers()
            servers = tuple(name for name in kept.workers if name in there)
            if not servers:
                raise UsageProblem(f"none of its workers is there: {', '.join(kept.workers)}", "start them again")
            log.write("resumed")
            return await _searched(workers, kept, log, servers, asked, stop_file), directory
        finally:
            await workers.aclose()


async def _searched(
    workers: Workers,
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

    parts = ServersParts(measure=measure, servers=workers.servers, stop_file=stop_file, told=tell)
    run = TuningOnServers(replayed(kept), kept.plan, kept.guards.allowed, log, servers, parts)
    try:
        result: Result = await run.run()
    except (PgtopError, asyncio.CancelledError) as problem:
        log.write("ended", why=unfinished(problem))
        tell(f"stopped; `pgtop-tune tune --resume {kept.id} --workers ADDRESS` continues")
        raise
    write_result(log, result)
    for line in result_lines(result, kept.request.objective or SAME_MIX_WORDS):
        say(line)
    tell(next_line(kept.id, result))
    return ExitCode.CANNOT_TELL if result.ending is Ending.REFUSED else ExitCode.OK


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


async def _begun(workers: Workers, search: SearchRequest, asked: Asked) -> Mapping[str, _Begun]:
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
