"""Plans on several servers: a check that these are alike, and a run that gives their workers cells."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import aclosing
from itertools import combinations
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec
from msgspec import Struct, convert, to_builtins
from msgspec.structs import replace

from pgtop_tune import __version__
from pgtop_tune.base.errors import PgtopError, UsageProblem
from pgtop_tune.base.paths import replacing
from pgtop_tune.base.units import counted, duration
from pgtop_tune.changes.model.pending_set import now_ms
from pgtop_tune.cli.commands.experiment import PlanRequest, PlanResumeRequest, PlanRunRequest, check_for_workers
from pgtop_tune.cli.commands.experiment.plans import overridden
from pgtop_tune.cli.commands.experiment.results import directory_of, outcome_in, say_results
from pgtop_tune.cli.exit_codes import ExitCode, Terminated
from pgtop_tune.cli.output import tell
from pgtop_tune.cli.signals import require_yes, run_until_signalled
from pgtop_tune.experiment.plan.bind import differences, plan_hash
from pgtop_tune.experiment.plan.model import THROWAWAY_SERVERS, BoundPlan, Cell, Estimate, ExperimentPlan, estimate
from pgtop_tune.experiment.plan.plan_file import plan_path, read_plan
from pgtop_tune.experiment.plan.results import (
    ABANDONED,
    COMPLETE,
    RUNS,
    CellResult,
    ExperimentLog,
    ExperimentOutcome,
    new_directory,
    outcome_of,
    read_entries,
)
from pgtop_tune.experiment.plan.run import unfinished
from pgtop_tune.experiment.workers import CellOnServer, DaskWorkers, RunOnServers, UnitFailed
from pgtop_tune.model.run_result import plain
from pgtop_tune.runtime.running_experiments import ServerKey

_NAMED: Final = 4


class WorkerServer(Struct, frozen=True, kw_only=True):
    """A worker's description of its server.

    Attributes:
        version: Version of pgtop-tune there.
        server: None where the role may not see the key.
    """

    version: str
    server: ServerKey | None


D = TypeVar("D", bound=WorkerServer)


async def answers_of_all(workers: DaskWorkers, request: bytes, kind: type[D]) -> dict[str, D]:
    """Return the answers of all workers to one unit, by the name of the server.

    Raises:
        UsageProblem: There are no workers, or an answer cannot be read.
        PgtopError: As `DaskWorkers.run`.
    """
    servers = await workers.servers()
    if not servers:
        raise UsageProblem(
            "the scheduler has no workers", "run `dask worker ADDRESS --nthreads 1 --name SERVER` on each server"
        )
    answers = await asyncio.gather(*(workers.run(server, request) for server in servers))
    try:
        return {name: convert(json.loads(data)["answer"], kind) for name, data in zip(servers, answers, strict=True)}
    except (ValueError, KeyError, msgspec.ValidationError) as problem:
        raise UsageProblem(
            f"a worker's answer cannot be read: {problem}", "install the same pgtop-tune version on all machines"
        ) from None


def check_alike(servers: Mapping[str, D], conditions: Callable[[D], dict[str, Any]]) -> None:
    """Make sure that an experiment is the same one on each server.

    Args:
        conditions: Returns the conditions that must be equal.

    Raises:
        UsageProblem: A worker has another version, two workers have one server, or servers differ.
    """
    for name, server in servers.items():
        if server.version != __version__:
            raise UsageProblem(
                f"{name} has pgtop-tune {server.version}, this machine has {__version__}", "install the same version"
            )
    for (name, a), (later_name, b) in combinations(servers.items(), 2):
        if a.server is not None and b.server is not None and b.server.is_same(a.server):
            raise UsageProblem(
                f"{name} and {later_name} are workers of the same server", "start one worker for each server"
            )
    (first_name, first), *later_servers = servers.items()
    for name, server in later_servers:
        different = list(differences(conditions(first), conditions(server)))
        if different:
            more = f", and {len(different) - _NAMED} more" if len(different) > _NAMED else ""
            listed = "; ".join(different[:_NAMED])
            raise UsageProblem(f"{first_name} and {name} differ: {listed}{more}", "make the servers identical")


_OWN: Final = frozenset(
    {
        "cluster_name", "config_file", "data_directory", "external_pid_file", "hba_file", "hosts_file", "ident_file",
        "listen_addresses", "log_directory", "log_filename", "port", "ssl_cert_file", "ssl_key_file",
        "unix_socket_directories", "primary_slot_name", "application_name",
    }
)  # fmt: skip
"""Parameters of a server's place, which do not affect its performance."""


class WorkerPlan(WorkerServer, frozen=True, kw_only=True):
    """A plan that a worker has bound to its server."""

    plan: BoundPlan
    sessions: int
    max_wal_bytes: int
    parameters: dict[str, str]


class UnitOptions(Struct, frozen=True, kw_only=True):
    """Options that all units of a request have in common."""

    profiles: Path | None
    pgbench: Path | None
    allow_unsafe: bool
    confirm: tuple[str, ...] = ()

    def request(self, kind: str, **arguments: object) -> bytes:
        """Return the request of a unit as JSON."""
        paths = {"profiles": self.profiles, "pgbench": self.pgbench}
        common = {name: None if path is None else str(path) for name, path in paths.items()}
        return json.dumps(
            {"kind": kind, "allow_unsafe": self.allow_unsafe, "confirm": self.confirm, **common, **arguments}
        ).encode()


def _unit_options(request: PlanRequest) -> UnitOptions:
    """Return the options for units. Raises UsageProblem for options of one server."""
    session = request.session
    check_for_workers(request.connection)
    if session.disk_cap or session.pooler:
        raise UsageProblem("--disk-cap and --pooler apply to one server", "leave them out with --workers")
    return UnitOptions(
        profiles=session.profiles,
        pgbench=session.pgbench,
        allow_unsafe=request.allow_unsafe,
        confirm=tuple(session.confirm or ()),
    )


def run_on_workers(request: PlanRunRequest) -> int:
    """Run a plan from its first cell on all workers, and return the exit status.

    Raises:
        PgtopError: There are no workers, servers differ, or the plan does not fit; nothing is changed.
    """
    unit_options = _unit_options(request)
    if request.plan_hash:
        raise UsageProblem("--plan-hash applies to one server", "leave it out with --workers")
    plan = overridden(read_plan(plan_path(request.plan)), request.overrides)
    if plan.outages or plan.servers == THROWAWAY_SERVERS:
        raise UsageProblem("outages and throwaway servers are of one machine", "leave --workers out")
    if any(endpoint.address for endpoint in plan.endpoints):
        raise UsageProblem("an endpoint with an address would be the same for all servers", "leave --workers out")
    return finished(_begun(request.workers, plan, unit_options, yes=request.yes))[0]


def resume_on_workers(request: PlanResumeRequest) -> int:
    """Continue an experiment, and return the exit status. Raises as `run_on_workers`."""
    return finished(_resumed(request, directory_of(request.experiment), _unit_options(request)))[0]


def confirm_restarts(expected: Estimate, sessions: int, *, yes: bool) -> None:
    """Ask for the restarts of a plan, which end sessions of others. Raises as `require_yes`."""
    restarts, ends = counted(expected.restarts, "restart"), counted(sessions, "session")
    message = f"{restarts} of the server: ends {ends} of other clients"
    yes = yes or not expected.restarts or not sessions
    require_yes(f"{message}; run the plan?", yes=yes, reason=message, refused="not run: nothing was changed")


def check_resumable(outcome: ExperimentOutcome, request: PlanRequest) -> None:
    """Raise UsageProblem for an experiment that has ended, or that needs options of its first run."""
    if outcome.ended in (COMPLETE, ABANDONED):
        hint = f"`pgtop-tune experiment report {outcome.id}` shows it"
        raise UsageProblem(f"{outcome.id} is {outcome.ended}", hint)
    if outcome.plan.unsafe and not request.allow_unsafe and not request.abandon:
        raise UsageProblem(f"{outcome.id} was started with --allow-unsafe", f"run `{outcome.resuming}`")
    if not set(outcome.plan.confirmed) <= set(request.session.confirm or ()) and not request.abandon:
        raise UsageProblem(
            f"{outcome.id} sets parameters that run code, and needs --confirm", f"run `{outcome.resuming}`"
        )
    if not set(outcome.plan.allowed_outages) <= set(request.allow_outage or ()) and not request.abandon:
        servers = ", ".join(outcome.plan.allowed_outages)
        raise UsageProblem(
            f"{outcome.id} causes outages of {servers}, and needs --allow-outage", f"run `{outcome.resuming}`"
        )


def remaining_workers(names: Sequence[str], connected: Sequence[str]) -> tuple[str, ...]:
    """Return the workers of an experiment that are connected. Raises UsageProblem where none is."""
    servers = tuple(name for name in names if name in connected)
    if not servers:
        raise UsageProblem(f"no worker of this run is connected: {', '.join(names)}", "start the workers again")
    return servers


def finished(work: Coroutine[Any, Any, tuple[int, Path | None]]) -> tuple[int, Path | None]:
    """Run work until a signal, and return the exit status, and the directory if there is one."""
    try:
        return run_until_signalled(work)
    except Terminated as terminated:
        return ExitCode.SIGNALLED + terminated.number, None


async def _begun(address: str, unbound: ExperimentPlan, unit_options: UnitOptions, *, yes: bool) -> tuple[int, Path]:
    async with aclosing(await DaskWorkers.connected(address)) as workers:
        bound = await answers_of_all(workers, unit_options.request("bind", plan=to_builtins(unbound)), WorkerPlan)
        check_alike(bound, plan_conditions)
        first = next(iter(bound.values()))
        version = first.plan.server.partition(",")[0]
        servers = counted(len(bound), "server")
        plan = replace(first.plan, server=f"{version} on {servers}: {', '.join(bound)}")
        expected = estimate(plan, first.max_wal_bytes)
        confirm_restarts(expected, max(worker.sessions for worker in bound.values()), yes=yes)
        directory = new_directory(plan.name)
        tell(
            f"experiment {directory.name}: on {servers}, {expected.words} in total; "
            f"at least {duration(expected.seconds / len(bound))}"
        )
        with ExperimentLog(directory) as log:
            log.write(
                "plan", name=plan.name, hash=plan_hash(plan), began_ms=now_ms(), plan=plain(plan), workers=list(bound)
            )
            return await _continued(workers, log, unit_options, tuple(bound), abandon=False), directory


async def _resumed(request: PlanResumeRequest, directory: Path, unit_options: UnitOptions) -> tuple[int, Path]:
    with ExperimentLog(directory) as log:
        outcome = outcome_in(directory)
        check_resumable(outcome, request)
        if not outcome.workers:
            raise UsageProblem(f"{outcome.id} runs on one server", "leave --workers out")
        async with aclosing(await DaskWorkers.connected(request.workers)) as workers:
            connected = await workers.servers()
            if strangers := ", ".join(name for name in connected if name not in outcome.workers):
                tell(f"not used: {strangers} did not take part in this experiment before")
            servers = remaining_workers(outcome.workers, connected)
            log.write("resumed")
            return await _continued(workers, log, unit_options, servers, abandon=request.abandon), directory


async def _continued(
    workers: DaskWorkers, log: ExperimentLog, unit_options: UnitOptions, servers: Sequence[str], *, abandon: bool
) -> int:
    outcome = outcome_in(log.directory)
    plan = to_builtins(outcome.plan)

    async def run(server: str, cell: Cell) -> CellResult:
        request = unit_options.request("cell", plan=plan, number=cell.number, id=outcome.id)
        return _result(await workers.run(server, request), server, cell, log.directory)

    try:
        if not abandon:
            units = CellOnServer(run=run, servers=workers.servers, tell=tell)
            await RunOnServers(outcome, log, servers, units).measure()
    except (PgtopError, asyncio.CancelledError) as problem:
        log.write("ended", why=unfinished(problem))
        tell(f"stopped; `{outcome.resuming}` continues")
        raise
    tidy = unit_options.request("tidy", plan=plan, id=outcome.id)
    ends = await asyncio.gather(*(workers.run(server, tidy) for server in servers), return_exceptions=True)
    for server, end in zip(servers, ends, strict=True):
        if isinstance(end, PgtopError):
            tell(f"the experiment's database remains on {server}: {end.message}")
        elif isinstance(end, BaseException):
            raise end
    log.write("ended", why=ABANDONED if abandon else COMPLETE)
    say_results(outcome_of(read_entries(log.directory), outcome.id), abandon=abandon)
    return ExitCode.OK


def _result(data: bytes, server: str, cell: Cell, directory: Path) -> CellResult:
    """Return a worker's result of a cell. Raises UnitFailed where it cannot be read."""
    try:
        answer = json.loads(data)["answer"]
        result = replace(convert(answer["result"], CellResult), server=server, record="")
        record = str(answer["record"])
    except (ValueError, KeyError, TypeError, msgspec.ValidationError) as problem:
        raise UnitFailed(
            f"{server}: the answer cannot be read: {problem}", "install the same pgtop-tune version on all machines"
        ) from None
    if result.number != cell.number:
        raise UnitFailed(f"{server} answered for cell {result.number} instead of {cell.number}")
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


def plan_conditions(worker: WorkerPlan) -> dict[str, Any]:
    """Return the conditions that make a plan one experiment on all servers."""
    plan = plain(replace(worker.plan, server=worker.plan.server.partition(",")[0]))
    parameters = {name: value for name, value in worker.parameters.items() if name not in _OWN}
    return {"version": worker.version, "plan": plan, "parameters": parameters}
