"""`experiment run` and `resume`: the session that makes the runs, its own database, and the clean-up."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Final

from msgspec import to_builtins
from msgspec.structs import replace

from pgtop_tune.base.errors import ConnectionProblem, NotLetIn, PgtopError, UsageProblem
from pgtop_tune.base.sql_quoting import quoted
from pgtop_tune.base.units import counted
from pgtop_tune.bench.datasets.pgbench_tables import Initialised, PgbenchShape, initialise
from pgtop_tune.bench.datasets.recognise import recognise_pgbench
from pgtop_tune.bench.locate import find_pgbench
from pgtop_tune.bench.profiles import load_profiles, profile_directories
from pgtop_tune.changes.change_sets import ChangeSets, WithRestart
from pgtop_tune.changes.confirm.orphans import leave_watchdogs
from pgtop_tune.changes.machine.control import HostControl
from pgtop_tune.changes.model.change import HostChange, ParameterChange
from pgtop_tune.changes.model.change_set import PendingParameter
from pgtop_tune.changes.model.pending_set import now_ms
from pgtop_tune.changes.restart.control import RestartService
from pgtop_tune.changes.restart.outages import ServerOutages
from pgtop_tune.changes.restart.pair_checks import standby_conninfo
from pgtop_tune.changes.restart.pooler_outages import PoolerOutages
from pgtop_tune.changes.restart.start_again import start_again
from pgtop_tune.changes.restart.switchover import PairOutages, switch_back
from pgtop_tune.changes.server.control import PostgresControl
from pgtop_tune.changes.server.one_change import Rules
from pgtop_tune.cli.commands.experiment import PlanRequest, PlanResumeRequest, PlanRunRequest
from pgtop_tune.cli.commands.experiment.plans import (
    SERVER,
    ServerRoom,
    bound_to_server,
    check_fits,
    checked_plan,
    failing_places,
    requested_plan,
    scripts_by_profile,
    servers_of,
)
from pgtop_tune.cli.commands.experiment.results import directory_of, outcome_in, say_results
from pgtop_tune.cli.commands.experiment.workers import (
    check_resumable,
    confirm_restarts,
    resume_on_workers,
    run_on_workers,
)
from pgtop_tune.cli.connections import let_in, pooler_addresses
from pgtop_tune.cli.detached import start_detached
from pgtop_tune.cli.exit_codes import ExitCode
from pgtop_tune.cli.headless import run_beside
from pgtop_tune.cli.options import LiveOptions, disk_caps
from pgtop_tune.cli.output import say, tell
from pgtop_tune.cli.parameter_changes import machine_of
from pgtop_tune.cli.signals import require_yes
from pgtop_tune.cli.snapshot import look
from pgtop_tune.cli.wiring import LiveSession, available_bytes, endpoint_of, following_endpoint, targets
from pgtop_tune.cluster.replicated import ThrowawayServers
from pgtop_tune.experiment.attribution import SurroundingsMeter
from pgtop_tune.experiment.load_run import LoadRun
from pgtop_tune.experiment.path import LoadTarget
from pgtop_tune.experiment.plan.bind import check_reviewed, plan_hash
from pgtop_tune.experiment.plan.model import (
    OWN_DATABASE,
    THROWAWAY_SERVERS,
    BoundPlan,
    Cell,
    ExperimentPlan,
    PlanArm,
    PlanOutage,
    estimate,
)
from pgtop_tune.experiment.plan.outages import OutageServers, PlannedOutages
from pgtop_tune.experiment.plan.report import left_of, shown_plan, switched
from pgtop_tune.experiment.plan.results import (
    ABANDONED,
    COMPLETE,
    ExperimentLog,
    ExperimentOutcome,
    is_running,
    new_directory,
    outcome_of,
    read_entries,
    reviewed_dir,
)
from pgtop_tune.experiment.plan.run import ExperimentParts, ExperimentRun, made_here, unfinished
from pgtop_tune.metrics import sections
from pgtop_tune.model.absence import Unavailable
from pgtop_tune.model.events import Event
from pgtop_tune.model.instance import ServerPair, ServerPlace
from pgtop_tune.postgres.server.conninfo import ConnInfo, Reached
from pgtop_tune.postgres.server.sql_session import open_sql_session
from pgtop_tune.runtime.experiment_control import ExperimentState
from pgtop_tune.runtime.run_frames import FrameKeeper
from pgtop_tune.runtime.running_experiments import Announcement, check_alone, server_of

_DATABASE: Final = "pgtop_tune_experiment_"
_RESTART_S: Final = 180.0
_ANSWER_S: Final = 10.0


def run_plan(request: PlanRunRequest) -> int:
    """Run a plan from its first cell, and return the exit status.

    Raises:
        PgtopError: The plan does not fit, is not the reviewed one, or cannot go on.
    """
    if request.dry_run:
        _check_one_server(request)
        checked_plan(request)
        return ExitCode.OK
    if request.detach:
        return start_detached(["experiment", "run"])
    if request.workers:
        return run_on_workers(request)
    unbound_plan = requested_plan(request)
    with servers_of(unbound_plan, request) as (at_servers, servers):
        return _run_on(unbound_plan, at_servers, servers)


def _run_on(unbound_plan: ExperimentPlan, request: PlanRunRequest, servers: ThrowawayServers | None) -> int:
    """Run a plan on the server of a request. Raises as `run_plan`."""
    plan, room = bound_to_server(unbound_plan, request, servers)
    check_fits(plan, room)
    if room.server is not None:
        # Before anything is made: a refusal leaves nothing behind.
        check_alone(room.server)
    if request.plan_hash:
        check_reviewed(plan, request.plan_hash, reviewed_dir())
    expected = estimate(plan, room.max_wal_bytes)
    confirm_restarts(expected, room.sessions, yes=request.yes)
    _confirm_outages(plan, room, yes=request.yes)
    directory = new_directory(plan.name)
    tell(f"experiment {directory.name}: {expected.words}")
    with ExperimentLog(directory) as log:
        log.write("plan", name=plan.name, hash=plan_hash(plan), began_ms=now_ms(), plan=to_builtins(plan))
        return _continued(request, outcome_in(directory), log, servers)


def _confirm_outages(plan: BoundPlan, room: ServerRoom, *, yes: bool) -> None:
    """Ask for outages of what is the operator's. Raises as `require_yes`."""
    lines = []
    for name, server_place in room.failing.items():
        outages = [
            f"{counted(sum(cell.outage == outage.name for cell in plan.cells), 'time')} {outage.row.description}"
            for outage in plan.outages
            if outage.row.of_pooler == bool(name)
        ]
        sessions = "" if name else f", which ends {counted(room.sessions, 'session')} of other clients"
        lines.append(f"{server_place.endpoint} ({server_place.managed}): {', '.join(outages)}{sessions}")
    if lines:
        roles = ", in its former role" if plan.with_standby else ""
        reason = f"outages of {'; '.join(lines)}; each is started again{roles}"
        require_yes(f"{reason}. Run the plan?", yes=yes, reason=reason, refused="not run: nothing was changed")


def _check_one_server(request: PlanRequest) -> None:
    """Raise UsageProblem for --dry-run on workers."""
    if request.workers:
        raise UsageProblem("--dry-run asks one server", "leave --workers out")


def resume_plan(request: PlanResumeRequest) -> int:
    """Continue an experiment, and return the exit status.

    Raises:
        PgtopError: The experiment runs already, is complete, or belongs to another server.
    """
    if request.dry_run:
        _check_one_server(request)
        _say_left(request, directory_of(request.experiment))
        return ExitCode.OK
    if request.detach:
        return start_detached(["experiment", "resume"])
    if request.workers:
        return resume_on_workers(request)
    directory = directory_of(request.experiment)
    with ExperimentLog(directory) as log:
        outcome = outcome_in(directory)
        if (server_place := outcome.down or outcome.switched) is not None:
            tell(f"an outage of {server_place.endpoint} was under way: starting what is down")
            if isinstance(server_place, ServerPair):
                switch_back(server_place)
            else:
                start_again(server_place)
            log.write("outage_ended")
        # Before throwaway servers are made: a refusal takes no time.
        _check_continues(outcome, request)
        with servers_of(outcome.plan, request) as (request, servers):
            return _resumed(log, request, servers)


def _resumed(log: ExperimentLog, request: PlanResumeRequest, servers: ThrowawayServers | None) -> int:
    """Continue an experiment on the server of a request. Raises as `resume_plan`."""
    deadline_s = time.monotonic() + _RESTART_S
    while True:
        outcome = outcome_in(log.directory)
        try:
            _check_server(outcome, request)
            log.write("resumed", at_ms=now_ms())
            return _continued(request, outcome, log, servers)
        except NotLetIn:
            raise
        except ConnectionProblem:
            # The revert watchdog of a killed process may be restarting the server.
            if not outcome.sets or time.monotonic() > deadline_s:
                raise
            time.sleep(1.0)


def _say_left(request: PlanResumeRequest, directory: Path) -> None:
    """Print the rest of an experiment that can be continued. Raises as `resume_plan`."""
    outcome = outcome_in(directory)
    if is_running(directory):
        raise UsageProblem(f"{outcome.id} runs already", f"`pgtop-tune experiment status {outcome.id}` shows it")
    _check_continues(outcome, request)
    _check_server(outcome, request)
    if request.abandon:
        database = f", and drop its database {outcome.database}" if outcome.database else ""
        say(f"would revert {counted(len(outcome.sets), 'change set')}{database}")
        return
    say(f"{outcome.id}: {estimate(outcome.plan, 0, left_of(outcome)).words}")
    for cell in outcome.plan.cells:
        if cell.number not in outcome.results:
            say(f"{cell.number:>4}  {cell.words}")


def _check_continues(outcome: ExperimentOutcome, request: PlanRequest) -> None:
    """Raise UsageProblem where an experiment has ended, or its scripts have changed."""
    check_resumable(outcome, request)
    if outcome.workers:
        raise UsageProblem(f"{outcome.id} runs on {', '.join(outcome.workers)}", "pass --workers ADDRESS")
    scripts = scripts_by_profile(
        [name for name, _ in outcome.plan.scripts], load_profiles(profile_directories(request.session.profiles))
    )
    if not request.abandon and scripts != outcome.plan.scripts:
        changed = [name for name, text in scripts if (name, text) not in outcome.plan.scripts]
        raise UsageProblem(
            f"the scripts of {', '.join(changed)} have changed", "restore the scripts, or start a new experiment"
        )


def _check_server(outcome: ExperimentOutcome, request: PlanRequest) -> None:
    """Raise UsageProblem where an experiment is of another server."""
    if outcome.plan.servers == THROWAWAY_SERVERS:
        return
    server = sections.server(look(request.connection).newest)
    identifier = "" if isinstance(server, Unavailable) else server.system_identifier
    if identifier and identifier not in outcome.plan.server:
        raise UsageProblem(f"{outcome.id} belongs to {outcome.plan.server}", "connect to that server")


def _continued(
    request: PlanRequest, outcome: ExperimentOutcome, log: ExperimentLog, servers: ThrowawayServers | None
) -> int:
    session = request.session
    live = LiveOptions(
        pgbench=session.pgbench,
        disk_caps=disk_caps(session.disk_cap),
        poolers=pooler_addresses(session.pooler),
        allow_unsafe=request.allow_unsafe,
        confirmed=frozenset(request.session.confirm or ()),
    )
    experiment = ExperimentSession(outcome, log, live, profile_directories(session.profiles), servers=servers)
    status = let_in(request.connection, lambda conninfo: asyncio.run(experiment.run(conninfo, abandon=request.abandon)))
    if status in (ExitCode.OK, ExitCode.LOAD):
        say_results(outcome_of(read_entries(log.directory), outcome.id), abandon=request.abandon)
    return status


class _Doors:
    """See `ExperimentDoors`."""

    def __init__(
        self, conninfo: ConnInfo, control: PostgresControl, service: RestartService, machine: HostControl
    ) -> None:
        self._conninfo = conninfo
        self._control = control
        self._service = service
        self._machine = machine

    def sets(self, arm: PlanArm) -> ChangeSets:
        door = WithRestart(self._control, self._service, tell, anyway=False) if arm.restart else self._control
        return ChangeSets(door, self._machine)

    async def listed(self, names: tuple[str, ...]) -> object:
        return await self._control.list(names)

    async def in_force(self) -> Sequence[ParameterChange | HostChange]:
        return (*await self._control.in_force(), *await self._machine.in_force())

    async def pending(self) -> tuple[PendingParameter, ...]:
        return await self._service.pending()

    async def failing_places(
        self, plan: BoundPlan, load_targets: Mapping[str, LoadTarget]
    ) -> Mapping[str, ServerPlace | ServerPair]:
        return await failing_places(
            plan, plan.allowed_outages, self._control, self._service, load_targets, self._conninfo
        )

    async def claim_experiment(self, names: Sequence[str]) -> None:
        await self._control.claim_experiment(names)


class ExperimentSession:
    """The parts of a run of an experiment, with a clean-up after it.

    Args:
        outcome: The journal's so far.
        log: The open journal.
        directories: Directories of profiles.
        keeps_data: The database of the experiment stays for its next cells.
        servers: The throwaway servers of the plan; None for the operator's server.
    """

    def __init__(
        self,
        outcome: ExperimentOutcome,
        log: ExperimentLog,
        live: LiveOptions,
        directories: Sequence[Path],
        *,
        keeps_data: bool = False,
        servers: ThrowawayServers | None = None,
    ) -> None:
        self._outcome = outcome
        self._plan = outcome.plan
        self._log = log
        self._live = live
        self._directories: Final = directories
        self._database = outcome.database
        self._keeps_data: Final = keeps_data
        self._servers: Final = servers
        self._announcement: Announcement | None = None
        self._has_ended = False

    async def run(self, conninfo: ConnInfo, *, abandon: bool) -> int:
        """Run the remaining cells, and return the exit status.

        Raises:
            PgtopError: The experiment cannot go on. Its results are kept, its changes reverted.
        """
        try:
            return await self._run(conninfo, abandon=abandon)
        finally:
            self._has_ended = True
            if self._announcement is not None:
                self._announcement.end()

    async def _run(self, conninfo: ConnInfo, *, abandon: bool) -> int:
        if not self._plan.with_standby:
            # Of several hosts, the one of this session is used from here on.
            conninfo = conninfo.only((await self._reached_by(conninfo)).endpoint)
        if self._plan.database != OWN_DATABASE and self._servers is None:
            self._check_database(conninfo.dbname)
        names = [name for arm in self._plan.arms for name, _ in arm.settings]
        with_restart = any(arm.restart for arm in self._plan.arms)
        rules = Rules(fenced=True, allow_unsafe=self._live.allow_unsafe, tell=tell)
        control = PostgresControl(conninfo, rules=rules)
        service = RestartService(control, None if self._servers is None else self._servers.restart)
        machine = await machine_of(conninfo, names, beside_server=True, with_restart=with_restart)
        doors = _Doors(conninfo, control, service, machine)
        async with aclosing(machine), aclosing(control), aclosing(service):
            try:
                await leave_watchdogs(control, machine, None, tell)
                database = conninfo if self._plan.database != OWN_DATABASE else await self._own_database(conninfo)
                signalled = await self._measured(database, doors, abandon=abandon)
            except PgtopError as problem:
                self._log.write("ended", why=unfinished(problem))
                raise
        if signalled:
            self._log.write("ended", why="stopped by a signal")
            tell(f"stopped; `{self._outcome.resuming}` continues")
            return ExitCode.SIGNALLED + signalled
        if not self._keeps_data:
            await self._clean_up(conninfo)
        self._log.write("ended", why=ABANDONED if abandon else COMPLETE)
        outcome = outcome_of(read_entries(self._log.directory), self._outcome.id)
        has_figures = outcome is None or any(not result.reason for result in outcome.results.values())
        return ExitCode.OK if abandon or has_figures else ExitCode.LOAD

    def _check_database(self, name: str) -> None:
        """Keep the name of the database that is loaded. Raises UsageProblem where it was another one so far."""
        begun_in = self._outcome.loaded
        if begun_in and begun_in != name:
            raise UsageProblem(f"{self._outcome.id} loads the database {begun_in}, not {name}", "name it with -d")
        if not begun_in:
            self._log.write("loaded", name=name)

    async def _planned_outages(
        self,
        doors: _Doors,
        load_targets: Mapping[str, LoadTarget],
        keeper: FrameKeeper,
        conninfo: ConnInfo,
        note: Callable[[Event], None],
    ) -> PlannedOutages:
        """Return the cause of the plan's outages. Raises as `failing_places`."""
        places = await doors.failing_places(self._plan, load_targets)

        def servers_of(cell: Cell, outage: PlanOutage) -> OutageServers:
            if self._servers is not None and not outage.row.of_pooler:
                return self._servers
            server_place = places[cell.endpoint if outage.row.of_pooler else SERVER]
            if isinstance(server_place, ServerPair):
                conninfo_of_standby = standby_conninfo(conninfo, server_place.primary.endpoint)
                assert conninfo_of_standby is not None
                return PairOutages(server_place, conninfo_of_standby)
            return PoolerOutages(server_place) if outage.row.of_pooler else ServerOutages(server_place)

        return PlannedOutages(servers_of, self._log, keeper, lambda: open_sql_session(conninfo), note, tell)

    async def _measured(self, conninfo: ConnInfo, doors: _Doors, *, abandon: bool) -> int | None:
        follows = bool(self._plan.outages)
        reached = None if follows else await self._reached_by(conninfo)
        session = LiveSession(conninfo, self._live, reached)
        session.load.directories = self._directories
        session.load.prepare = None
        session.watch_others()
        keeper, meter = FrameKeeper(), SurroundingsMeter()
        restarts = any(arm.restart for arm in self._plan.arms)
        session.engine.attach(keeper)
        session.engine.attach(meter)
        load_targets = await self._targets(conninfo)
        outages = (
            await self._planned_outages(doors, load_targets, keeper, conninfo, session.source.note)
            if follows and not abandon
            else None
        )
        parts = ExperimentParts(
            load=LoadRun(
                session.load,
                keeper,
                session.open_following_session if follows else session.open_sql_session,
                tell,
                restarts=restarts or follows,
                one_server=not follows,
            ),
            keeper=keeper,
            cpu=meter,
            doors=doors,
            targets=load_targets,
            profiles=load_profiles(self._directories).by_name,
            open_sql_session=lambda: open_sql_session(conninfo),
            make_data=lambda scale: self._initialise(conninfo, scale),
            free_bytes=lambda: _free_bytes(conninfo),
            unsafe=self._live.allow_unsafe,
            confirmed=self._live.confirmed,
            tell=tell,
            outages=outages,
        )
        run = ExperimentRun(self._outcome, self._log, parts)
        if abandon:
            return await run_beside(session.engine, run.settle)
        announcement = self._announcement = Announcement("experiment run", switched(self._outcome), self._state)
        session.engine.attach(announcement)

        async def measure() -> None:
            await keeper.until(lambda interval: server_of(interval.newest) is not None, _ANSWER_S)
            announcement.begin()
            await doors.claim_experiment([name for arm in self._plan.arms for name, _ in arm.parameters])
            await run.measure()

        return await run_beside(session.engine, measure)

    def _state(self) -> ExperimentState:
        outcome = outcome_of(read_entries(self._log.directory), self._outcome.id) or self._outcome
        return shown_plan(outcome, now_ms(), under_way=not self._has_ended)

    async def _targets(self, conninfo: ConnInfo) -> Mapping[str, LoadTarget]:
        by_name = {}
        async with aclosing(await open_sql_session(conninfo)) as sql_session:
            for endpoint in self._plan.endpoints:
                if endpoint.address:
                    addresses = [f"{endpoint.name}={endpoint.address}"]
                    [by_name[endpoint.name]] = await targets(addresses, sql_session, conninfo, from_here=True)
                elif self._plan.outages:
                    by_name[endpoint.name] = LoadTarget(endpoint.name, following_endpoint(conninfo))
                else:
                    pinned = conninfo.pinned(sql_session.reached)
                    by_name[endpoint.name] = LoadTarget(endpoint.name, endpoint_of(pinned))
        return by_name

    @staticmethod
    async def _reached_by(conninfo: ConnInfo) -> Reached:
        """Return the address that a session reaches now."""
        async with aclosing(await open_sql_session(conninfo)) as sql_session:
            return sql_session.reached

    async def _own_database(self, conninfo: ConnInfo) -> ConnInfo:
        """Return a connection to the experiment's own database, which is created where it is absent."""
        if not self._database:
            self._database = _DATABASE + self._outcome.id.replace("-", "_").lower()
            self._log.write("database", name=self._database)
        async with aclosing(await open_sql_session(conninfo)) as sql_session:
            if not await sql_session.rows("SELECT 1 FROM pg_database WHERE datname = %s", [self._database]):
                await sql_session.execute(f"CREATE DATABASE {quoted(self._database)}")
        return replace(conninfo, dbname=self._database)

    async def _clean_up(self, conninfo: ConnInfo) -> None:
        """Drop the database or the tables of the experiment."""
        outcome = outcome_of(read_entries(self._log.directory), self._outcome.id)
        has_tables = outcome is not None and outcome.tables
        if not (self._database or has_tables):
            return
        async with aclosing(await open_sql_session(conninfo)) as sql_session:
            if self._database:
                # A synchronous standby that is away would hold it up.
                await sql_session.execute("SET synchronous_commit = local")
                await sql_session.execute(f"DROP DATABASE IF EXISTS {quoted(self._database)} WITH (FORCE)")
                self._log.write("database", name="")
            if outcome is not None and has_tables:
                facts = await recognise_pgbench(sql_session)
                if facts is not None and made_here(facts, outcome.table_oids):
                    await sql_session.execute(f"DROP TABLE {', '.join(facts.tables.values())}")
                elif facts is not None:
                    tell(f"pgbench's tables stay, because this experiment did not create them: {facts.describe()}")
                self._log.write("tables", there=False)

    async def _initialise(self, conninfo: ConnInfo, scale: int) -> Initialised:
        shape = PgbenchShape(steps=self._plan.init_steps)
        async with aclosing(await open_sql_session(conninfo)) as sql_session:
            endpoint = endpoint_of(conninfo.pinned(sql_session.reached))
            pgbench = find_pgbench(self._live.pgbench, over_tls=endpoint.over_tls)
            return await initialise(endpoint, scale, pgbench, shape=shape, sql_session=sql_session)


async def _free_bytes(conninfo: ConnInfo) -> int | None:
    async with aclosing(await open_sql_session(conninfo)) as sql_session:
        return await available_bytes(sql_session)
