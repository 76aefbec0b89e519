"""Plans on several servers: whether these are alike, and the run that gives their workers cells."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec
from msgspec import Struct, convert, to_builtins
from msgspec.structs import replace

from pgtop_tune import __version__
from pgtop_tune.base.errors import PgtopError, UsageProblem
from pgtop_tune.base.paths import replacing
from pgtop_tune.base.units import counted, duration
from pgtop_tune.cli.commands.experiment.plans import overridden
from pgtop_tune.cli.commands.experiment.request import PlanRequest, check_for_workers
from pgtop_tune.cli.commands.experiment.results import directory_of, outcome_in, say_results
from pgtop_tune.cli.commands.experiment.running import confirm_restarts
from pgtop_tune.cli.exit_codes import ExitCode, Terminated
from pgtop_tune.cli.output import tell
from pgtop_tune.cli.signals import run_until_signalled
from pgtop_tune.experiment.plan.bind import differences, plan_hash
from pgtop_tune.experiment.plan.model import BoundPlan, Cell, ExperimentPlan, estimate
from pgtop_tune.experiment.plan.plan_file import plan_path, read_plan
from pgtop_tune.experiment.plan.results import (
    ABANDONED,
    COMPLETE,
    RUNS,
    CellResult,
    ExperimentLog,
    new_directory,
    outcome_of,
    read_entries,
)
from pgtop_tune.experiment.plan.run import unfinished
from pgtop_tune.experiment.workers import CellOnServer, DaskWorkers, RunOnServers, UnitFailed
from pgtop_tune.model.run_result import plain
from pgtop_tune.runtime.running_experiments import ServerKey

_NAMED: Final = 4


class Described(Struct, frozen=True, kw_only=True):
    """What a worker says of its server.

    Attributes:
        version: Of the program there.
        server: None where the role may not see what it is.
    """

    version: str
    server: ServerKey | None


D = TypeVar("D", bound=Described)


async def answers_of_all(workers: DaskWorkers, request: bytes, kind: type[D]) -> dict[str, D]:
    """What all workers answer to one unit, by the name of the server.

    Raises:
        UsageProblem: There are no workers, or an answer cannot be read.
        PgtopError: As `DaskWorkers.run`.
    """
    servers = await workers.servers()
    if not servers:
        raise UsageProblem("the scheduler has no workers", "`dask worker ADDRESS --nthreads 1 --name SERVER` on each")
    answers = await asyncio.gather(*(workers.run(each, request) for each in servers))
    try:
        return {name: convert(json.loads(data)["answer"], kind) for name, data in zip(servers, answers, strict=True)}
    except (ValueError, KeyError, msgspec.ValidationError) as problem:
        raise UsageProblem(f"a worker's answer cannot be read: {problem}", "run the same version everywhere") from None


def check_alike(found: Mapping[str, D], decides: Callable[[D], dict[str, Any]]) -> None:
    """Makes sure that an experiment is the same one on each of the servers.

    Args:
        decides: What has to be alike.

    Raises:
        UsageProblem: Another version, two workers of one server, or servers that differ, and in what.
    """
    for name, each in found.items():
        if each.version != __version__:
            raise UsageProblem(
                f"{name} has pgtop-tune {each.version}, and this is {__version__}", "install one version"
            )
    _check_servers_differ({name: each.server for name, each in found.items()})
    (first_name, first), *others = found.items()
    for name, each in others:
        different = list(differences(decides(first), decides(each)))
        if different:
            more = f", and {len(different) - _NAMED} more" if len(different) > _NAMED else ""
            words = "; ".join(different[:_NAMED])
            raise UsageProblem(f"{first_name} and {name} are not alike: {words}{more}", "make the servers alike")


def _check_servers_differ(found: Mapping[str, ServerKey | None]) -> None:
    names = list(found)
    for place, name in enumerate(names):
        for earlier in names[:place]:
            one, other = found[name], found[earlier]
            if one is not None and other is not None and one.is_same(other):
                raise UsageProblem(
                    f"{earlier} and {name} are workers of one server", "start one worker for each server"
                )


_OWN: Final = frozenset(
    {
        "cluster_name", "config_file", "data_directory", "external_pid_file", "hba_file", "hosts_file", "ident_file",
        "listen_addresses", "log_directory", "log_filename", "port", "ssl_cert_file", "ssl_key_file",
        "unix_socket_directories", "primary_slot_name", "application_name",
    }
)  # fmt: skip
"""Parameters that say where a server is, not how it runs."""


class Bound(Described, frozen=True, kw_only=True):
    """A plan as a server's worker has bound it, and what that server is."""

    plan: BoundPlan
    sessions: int
    max_wal_bytes: int
    parameters: dict[str, str]


class Asked(Struct, frozen=True, kw_only=True):
    """What each unit is told besides its own words."""

    profiles: Path | None
    pgbench: Path | None
    allow_unsafe: bool
    confirm: tuple[str, ...] = ()

    def request(self, kind: str, **words: object) -> bytes:
        """Of a unit."""
        paths = {"profiles": self.profiles, "pgbench": self.pgbench}
        found = {name: None if path is None else str(path) for name, path in paths.items()}
        return json.dumps(
            {"kind": kind, "allow_unsafe": self.allow_unsafe, "confirm": self.confirm, **found, **words}
        ).encode()


def asked_of(request: PlanRequest) -> Asked:
    """Of options; raises UsageProblem for those that only mean something beside one server."""
    session = request.session
    if session.disk_cap or session.pooler:
        raise UsageProblem("--disk-cap and --pooler are of one server", "leave them out with --workers")
    return Asked(
        profiles=session.profiles,
        pgbench=session.pgbench,
        allow_unsafe=request.allow_unsafe,
        confirm=tuple(session.confirm or ()),
    )


def run_on_workers(plan: str, request: PlanRequest) -> int:
    """Runs a plan from its begin on all workers; the exit status.

    Raises:
        PgtopError: No workers, servers that differ, a plan that does not fit; nothing is changed.
    """
    check_for_workers(request.connection)
    if request.plan_hash:
        raise UsageProblem("--plan-hash is of one server", "leave it out with --workers")
    read = overridden(read_plan(plan_path(plan)), request.overrides)
    if any(endpoint.address for endpoint in read.endpoints):
        raise UsageProblem("an endpoint with an address is one place for all servers", "leave --workers out")
    return to_the_end(_begun(request.workers, read, asked_of(request), yes=request.yes))[0]


def resume_on_workers(experiment: str, request: PlanRequest) -> int:
    """Goes on with an experiment; the exit status. Raises as `run_on_workers`."""
    check_for_workers(request.connection)
    directory = directory_of(experiment)
    return to_the_end(_resumed(request.workers, directory, asked_of(request), abandon=request.abandon))[0]


def to_the_end(work: Coroutine[Any, Any, tuple[int, Path | None]]) -> tuple[int, Path | None]:
    """Runs it until a signal; the exit status, and the directory where there is one."""
    try:
        return run_until_signalled(work)
    except Terminated as terminated:
        return ExitCode.SIGNALLED + terminated.number, None


async def _begun(address: str, read: ExperimentPlan, asked: Asked, *, yes: bool) -> tuple[int, Path]:
    workers = await DaskWorkers.connected(address)
    try:
        found = await _bound(workers, read, asked)
        first = next(iter(found.values()))
        plan = replace(first.plan, server=_words(found))
        taken = estimate(plan, first.max_wal_bytes)
        confirm_restarts(taken, max(each.sessions for each in found.values()), yes=yes)
        directory = new_directory(plan.name)
        tell(
            f"experiment {directory.name}: on {counted(len(found), 'server')}, together {taken.words}; "
            f"at best {duration(taken.seconds / len(found))}"
        )
        with ExperimentLog(directory) as log:
            log.write(
                "plan", name=plan.name, hash=plan_hash(plan), began_ms=time.time_ns() // 1_000_000, plan=plain(plan),
                workers=list(found),
            )  # fmt: skip
            return await _gone_on(workers, log, asked, tuple(found), abandon=False), directory
    finally:
        await workers.aclose()


async def _resumed(address: str, directory: Path, asked: Asked, *, abandon: bool) -> tuple[int, Path]:
    with ExperimentLog(directory) as log:
        outcome = outcome_in(directory)
        if outcome.ended in (COMPLETE, ABANDONED):
            hint = f"`pgtop-tune experiment report {outcome.id}` shows it"
            raise UsageProblem(f"{outcome.id} is {outcome.ended}", hint)
        if not outcome.workers:
            raise UsageProblem(f"{outcome.id} runs on one server", "leave --workers out")
        if outcome.plan.unsafe and not asked.allow_unsafe and not abandon:
            raise UsageProblem(f"{outcome.id} was begun with --allow-unsafe", f"`{outcome.resuming}`")
        if not set(outcome.plan.confirmed) <= set(asked.confirm) and not abandon:
            raise UsageProblem(f"{outcome.id} runs code that was confirmed", f"`{outcome.resuming}`")
        workers = await DaskWorkers.connected(address)
        try:
            there = await workers.servers()
            if strangers := [name for name in there if name not in outcome.workers]:
                tell(f"{', '.join(strangers)} did not take part in it, and does not now")
            servers = tuple(name for name in outcome.workers if name in there)
            if not servers:
                raise UsageProblem(f"none of its workers is there: {', '.join(outcome.workers)}", "start them again")
            log.write("resumed")
            return await _gone_on(workers, log, asked, servers, abandon=abandon), directory
        finally:
            await workers.aclose()


async def _gone_on(
    workers: DaskWorkers, log: ExperimentLog, asked: Asked, servers: Sequence[str], *, abandon: bool
) -> int:
    outcome = outcome_in(log.directory)
    plan = to_builtins(outcome.plan)

    async def made(server: str, cell: Cell) -> CellResult:
        request = asked.request("cell", plan=plan, number=cell.number, id=outcome.id)
        return _result(await workers.run(server, request), server, cell, log.directory)

    try:
        if not abandon:
            await RunOnServers(
                outcome, log, servers, CellOnServer(run=made, servers=workers.servers, tell=tell)
            ).measure()
    except (PgtopError, asyncio.CancelledError) as problem:
        log.write("ended", why=unfinished(problem))
        tell(f"stopped; `{outcome.resuming}` continues")
        raise
    ends = (workers.run(server, asked.request("tidy", plan=plan, id=outcome.id)) for server in servers)
    for server, end in zip(servers, await asyncio.gather(*ends, return_exceptions=True), strict=True):
        if isinstance(end, PgtopError):
            tell(f"the database of the experiment is left on {server}: {end.message}")
        elif isinstance(end, BaseException):
            raise end
    log.write("ended", why=ABANDONED if abandon else COMPLETE)
    say_results(outcome_of(read_entries(log.directory), outcome.id), abandon=abandon)
    return ExitCode.OK


def _result(data: bytes, server: str, cell: Cell, directory: Path) -> CellResult:
    """What a worker says of a cell. Raises UnitFailed where it says something else."""
    try:
        answer = json.loads(data)["answer"]
        result = replace(convert(answer["result"], CellResult), server=server, record="")
        record = str(answer["record"])
    except (ValueError, KeyError, TypeError, msgspec.ValidationError) as problem:
        raise UnitFailed(f"{server}: the answer cannot be read: {problem}", "run the same version everywhere") from None
    if result.number != cell.number:
        raise UnitFailed(f"{server} has answered about cell {result.number}, not {cell.number}")
    if not record:
        return result
    name = f"{cell.number:04d}.json"
    try:
        with replacing(directory / RUNS / name) as file:
            file.write(record.encode())
            file.flush()
            os.fsync(file.fileno())
    except OSError as problem:
        tell(f"the record of cell {cell.number} is not saved: {problem.strerror}")
        return result
    return replace(result, record=name)


async def _bound(workers: DaskWorkers, read: ExperimentPlan, asked: Asked) -> Mapping[str, Bound]:
    bound = await answers_of_all(workers, asked.request("bind", plan=to_builtins(read)), Bound)
    check_alike(bound, decides)
    return bound


def decides(found: Bound) -> dict[str, Any]:
    """What has to be alike, for a plan to be one experiment on all servers."""
    plan = plain(replace(found.plan, server=found.plan.server.partition(",")[0]))
    parameters = {name: value for name, value in found.parameters.items() if name not in _OWN}
    return {"version": found.version, "plan": plan, "parameters": parameters}


def _words(found: Mapping[str, Bound]) -> str:
    version = next(iter(found.values())).plan.server.partition(",")[0]
    return f"{version} on {counted(len(found), 'server')}: {', '.join(found)}"
