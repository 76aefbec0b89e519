"""Plans on several servers: the workers, whether their servers are alike, and the run that gives them cells."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Coroutine, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import Struct, convert, to_builtins
from msgspec.structs import replace

from pgtop_tune.base.errors import PgtopError, UsageProblem
from pgtop_tune.base.paths import replacing
from pgtop_tune.base.units import counted, duration
from pgtop_tune.cli.alike_servers import answers_of_all, check_alike
from pgtop_tune.cli.exit_codes import ExitCode, Terminated
from pgtop_tune.cli.experiment_plans import overridden
from pgtop_tune.cli.experiment_results import directory_of, outcome_in, say_results
from pgtop_tune.cli.experimenting import confirm_restarts
from pgtop_tune.cli.output import tell
from pgtop_tune.cli.signals import run_until_signalled
from pgtop_tune.experiment.plan.bind import plan_hash
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
from pgtop_tune.experiment.workers.dask_workers import DaskWorkers
from pgtop_tune.experiment.workers.run import CellOnServer, RunOnServers, UnitFailed, Workers
from pgtop_tune.model.run_json import plain
from pgtop_tune.runtime.running_experiments import ServerKey

if TYPE_CHECKING:
    from pgtop_tune.cli.commands.experiment.plans import PlanOverrides, SessionOptions

_OWN: Final = frozenset(
    {
        "cluster_name", "config_file", "data_directory", "external_pid_file", "hba_file", "hosts_file", "ident_file",
        "listen_addresses", "log_directory", "log_filename", "port", "ssl_cert_file", "ssl_key_file",
        "unix_socket_directories", "primary_slot_name", "application_name",
    }
)  # fmt: skip
"""Parameters that say where a server is, not how it runs."""


class Bound(Struct, frozen=True, kw_only=True):
    """A plan as a server's worker has bound it, and what that server is."""

    version: str
    plan: BoundPlan
    sessions: int
    max_wal_bytes: int
    server: ServerKey | None
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


def asked_of(session: SessionOptions, *, allow_unsafe: bool) -> Asked:
    """Of options; raises UsageProblem for those that only mean something beside one server."""
    if session.disk_cap or session.pooler:
        raise UsageProblem("--disk-cap and --pooler are of one server", "leave them out with --workers")
    return Asked(
        profiles=session.profiles,
        pgbench=session.pgbench,
        allow_unsafe=allow_unsafe,
        confirm=tuple(session.confirm or ()),
    )


def run_on_workers(
    address: str, plan: str, overrides: PlanOverrides, session: SessionOptions, *, allow_unsafe: bool, yes: bool
) -> int:
    """Runs a plan from its begin on all workers; the exit status.

    Raises:
        PgtopError: No workers, servers that differ, a plan that does not fit; nothing is changed.
    """
    read = overridden(read_plan(plan_path(plan)), overrides)
    if any(endpoint.address for endpoint in read.endpoints):
        raise UsageProblem("an endpoint with an address is one place for all servers", "leave --workers out")
    asked = asked_of(session, allow_unsafe=allow_unsafe)
    return to_the_end(_begun(address, read, asked, yes=yes))[0]


def resume_on_workers(
    address: str, experiment: str, session: SessionOptions, *, allow_unsafe: bool, abandon: bool
) -> int:
    """Goes on with an experiment; the exit status. Raises as `run_on_workers`."""
    directory = directory_of(experiment)
    asked = asked_of(session, allow_unsafe=allow_unsafe)
    return to_the_end(_resumed(address, directory, asked, abandon=abandon))[0]


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


async def _gone_on(workers: Workers, log: ExperimentLog, asked: Asked, servers: Sequence[str], *, abandon: bool) -> int:
    outcome = outcome_in(log.directory)
    plan = to_builtins(outcome.plan)

    async def made(server: str, cell: Cell) -> CellResult:
        request = asked.request("cell", plan=plan, number=cell.number, id=outcome.id)
        return _result(await workers.run(server, request), server, cell, log.directory)

    try:
        if not abandon:
            await RunOnServers(
                outcome, log, servers, CellOnServer(run=made, servers=workers.servers, told=tell)
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


# Whether the servers are alike: else a plan is not one experiment.


async def _bound(workers: Workers, read: ExperimentPlan, asked: Asked) -> Mapping[str, Bound]:
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
