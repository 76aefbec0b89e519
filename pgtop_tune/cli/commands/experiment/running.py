"""Runs experiments: the session that makes the runs, the database of its own, and what is put back."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from msgspec import to_builtins
from msgspec.structs import replace

from pgtop_tune.base.errors import ConnectionProblem, NotLetIn, PgtopError, ServerProblem, UsageProblem
from pgtop_tune.base.sql_quoting import quoted
from pgtop_tune.base.units import counted
from pgtop_tune.bench.datasets.pgbench_tables import Initialised, PgbenchShape, initialise, look_for_room
from pgtop_tune.bench.datasets.recognise import recognise_pgbench
from pgtop_tune.bench.locate import find_pgbench
from pgtop_tune.bench.profiles import load_profiles, profile_directories
from pgtop_tune.changes.change_sets import ChangeSets, WithRestart
from pgtop_tune.changes.confirm.orphans import leave_watchdogs
from pgtop_tune.changes.machine.control import HostControl
from pgtop_tune.changes.model.change import HostChange, ParameterChange
from pgtop_tune.changes.model.change_set import PendingParameter
from pgtop_tune.changes.restart.control import RestartService
from pgtop_tune.changes.server.control import PostgresControl
from pgtop_tune.changes.server.one_change import Rules
from pgtop_tune.cli.changing import machine_of
from pgtop_tune.cli.commands.experiment.plans import bound_plan, check_fits, scripts_by_profile
from pgtop_tune.cli.commands.experiment.request import PlanRequest
from pgtop_tune.cli.commands.experiment.results import directory_of, outcome_in, say_results
from pgtop_tune.cli.connecting import can_ask, let_in
from pgtop_tune.cli.exit_codes import ExitCode
from pgtop_tune.cli.headless import run_beside
from pgtop_tune.cli.live_options import LiveOptions, disk_caps, pooler_addresses
from pgtop_tune.cli.load_targets import targets
from pgtop_tune.cli.looking import look_closely
from pgtop_tune.cli.output import tell
from pgtop_tune.cli.signals import answer_to
from pgtop_tune.cli.wiring import LiveSession, endpoint_of, free_bytes_for
from pgtop_tune.experiment.attribution import SurroundingsMeter
from pgtop_tune.experiment.load_run import LoadRun
from pgtop_tune.experiment.path import LoadTarget
from pgtop_tune.experiment.plan.bind import check_reviewed, plan_hash
from pgtop_tune.experiment.plan.model import OWN_DATABASE, Estimate, PlanArm, estimate
from pgtop_tune.experiment.plan.report import shown_plan, switched
from pgtop_tune.experiment.plan.results import (
    ABANDONED,
    COMPLETE,
    ExperimentLog,
    ExperimentOutcome,
    new_directory,
    outcome_of,
    read_entries,
    reviewed_dir,
)
from pgtop_tune.experiment.plan.run import ExperimentParts, ExperimentRun, made_here, unfinished
from pgtop_tune.metrics import sections
from pgtop_tune.model.absence import Unavailable
from pgtop_tune.postgres.server.conninfo import ConnInfo, Reached
from pgtop_tune.postgres.server.sql_session import open_sql_session
from pgtop_tune.runtime.experiment_control import ExperimentState
from pgtop_tune.runtime.run_frames import FrameKeeper
from pgtop_tune.runtime.running_experiments import Announcement, check_alone, server_of

# Plans on several servers: the workers, whether their servers are alike, and the run that gives them cells.


# Whether the servers are alike: else a plan is not one experiment.


_DATABASE: Final = "pgtop_tune_experiment_"
_RESTART_S: Final = 180.0
_ANSWER_S: Final = 10.0


def run_plan(plan: str, request: PlanRequest) -> int:
    """Runs a plan from its begin.

    Returns:
        The exit status.

    Raises:
        PgtopError: It does not fit, is not what was reviewed, or cannot go on.
    """
    found, room = bound_plan(plan, request)
    check_fits(found, room)
    if room.server is not None:
        # Before anything is made: what is refused leaves nothing.
        check_alone(room.server)
    if request.plan_hash:
        check_reviewed(found, request.plan_hash, reviewed_dir())
    taken = estimate(found, room.max_wal_bytes)
    confirm_restarts(taken, room.sessions, yes=request.yes)
    directory = new_directory(found.name)
    identity = directory.name
    tell(f"experiment {identity}: {taken.words}")
    with ExperimentLog(directory) as log:
        first = {
            "kind": "plan", "name": found.name, "hash": plan_hash(found), "began_ms": _now_ms(),
            "plan": to_builtins(found),
        }  # fmt: skip
        log.write(**first)
        outcome = outcome_of([first], identity)
        assert outcome is not None
        return _gone_on(request, outcome, log)


def confirm_restarts(taken: Estimate, sessions: int, *, yes: bool) -> None:
    """A restart ends the sessions of others: somebody has to want it.

    Raises:
        UsageProblem: There is nobody to ask.
        ServerProblem: Nobody says yes.
    """
    if not taken.restarts or not sessions or yes:
        return
    words = f"{counted(taken.restarts, 'restart')} of the server: ends {counted(sessions, 'session')} of others"
    if not can_ask():
        raise UsageProblem(words, "pass --yes without a terminal")
    if answer_to(f"{words}; run the plan? [y/N] ").lower() not in ("y", "yes"):
        raise ServerProblem("not run: nothing was changed")


def resume_experiment(experiment: str, request: PlanRequest) -> int:
    """Goes on with an experiment.

    Returns:
        The exit status.

    Raises:
        PgtopError: It runs already, is complete, or belongs to another server.
    """
    directory = directory_of(experiment)
    with ExperimentLog(directory) as log:
        deadline_s = time.monotonic() + _RESTART_S
        while True:
            outcome = outcome_in(directory)
            try:
                return _resumed(outcome, log, request)
            except NotLetIn:
                raise
            except ConnectionProblem:
                # The revert watchdog of the process that was killed may just restart the server.
                if not outcome.sets or time.monotonic() > deadline_s:
                    raise
                time.sleep(1.0)


def _resumed(outcome: ExperimentOutcome, log: ExperimentLog, request: PlanRequest) -> int:
    if outcome.ended in (COMPLETE, ABANDONED):
        hint = f"`pgtop-tune experiment report {outcome.id}` shows it"
        raise UsageProblem(f"{outcome.id} is {outcome.ended}", hint)
    if outcome.workers:
        raise UsageProblem(f"{outcome.id} runs on {', '.join(outcome.workers)}", "pass --workers ADDRESS")
    looked = look_closely(request.connection, 0.0, None, None)
    server = sections.server(looked.interval.newest)
    now = "" if isinstance(server, Unavailable) else server.system_identifier
    if now and now not in outcome.plan.server:
        raise UsageProblem(f"{outcome.id} belongs to {outcome.plan.server}", "connect to that server")
    scripts = scripts_by_profile(
        [name for name, _ in outcome.plan.scripts], load_profiles(profile_directories(request.session.profiles))
    )
    if not request.abandon and scripts != outcome.plan.scripts:
        changed = [name for name, text in scripts if (name, text) not in outcome.plan.scripts]
        raise UsageProblem(f"the scripts of {', '.join(changed)} have changed", "restore them, or begin anew")
    if outcome.plan.unsafe and not request.allow_unsafe and not request.abandon:
        raise UsageProblem(f"{outcome.id} was begun with --allow-unsafe", f"`{outcome.resuming}`")
    if not set(outcome.plan.confirmed) <= set(request.session.confirm or ()) and not request.abandon:
        raise UsageProblem(f"{outcome.id} runs code that was confirmed", f"`{outcome.resuming}`")
    log.write("resumed", at_ms=_now_ms())
    return _gone_on(request, outcome, log)


def _gone_on(request: PlanRequest, outcome: ExperimentOutcome, log: ExperimentLog) -> int:
    session = request.session
    live = LiveOptions(
        pgbench=session.pgbench,
        disk_caps=disk_caps(session.disk_cap),
        poolers=pooler_addresses(session.pooler),
        allow_unsafe=request.allow_unsafe,
        confirmed=frozenset(request.session.confirm or ()),
    )
    making = ExperimentSession(outcome, log, live, profile_directories(session.profiles))
    code = let_in(request.connection, lambda conninfo: asyncio.run(making.run(conninfo, abandon=request.abandon)))
    if code == ExitCode.OK:
        say_results(outcome_of(read_entries(log.directory), outcome.id), abandon=request.abandon)
    return code


class _Doors:
    """See `ExperimentDoors`."""

    def __init__(self, control: PostgresControl, service: RestartService, machine: HostControl) -> None:
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

    async def claim_experiment(self, names: Sequence[str]) -> None:
        await self._control.claim_experiment(names)


class ExperimentSession:
    """Everything that a run of an experiment needs, made for it and put away after it.

    Args:
        outcome: Of the journal so far.
        log: The journal, open.
        live: Of the session that watches.
        directories: Of profiles.
        keeps_data: The database that is made for it stays, for the next cells of the same experiment.
    """

    def __init__(
        self,
        outcome: ExperimentOutcome,
        log: ExperimentLog,
        live: LiveOptions,
        directories: Sequence[Path],
        *,
        keeps_data: bool = False,
    ) -> None:
        self._outcome = outcome
        self._plan = outcome.plan
        self._log = log
        self._live = live
        self._directories: Final = directories
        self._database = outcome.database
        self._keeps_data: Final = keeps_data
        self._announcement: Announcement | None = None
        self._over = False

    async def run(self, conninfo: ConnInfo, *, abandon: bool) -> int:
        """Runs what is left; the exit status.

        Raises:
            PgtopError: It cannot go on. What was done is kept, what was changed is reverted.
        """
        try:
            return await self._run(conninfo, abandon=abandon)
        finally:
            self._over = True
            if self._announcement is not None:
                self._announcement.end()

    async def _run(self, conninfo: ConnInfo, *, abandon: bool) -> int:
        # Of several hosts, all that follows goes to the one that lets us in.
        conninfo = conninfo.only((await self._reached_by(conninfo)).endpoint)
        names = [name for arm in self._plan.arms for name, _ in arm.settings]
        with_restart = any(arm.restart for arm in self._plan.arms)
        rules = Rules(fenced=True, allow_unsafe=self._live.allow_unsafe, tell=tell)
        control = PostgresControl(conninfo, rules=rules)
        service = RestartService(control)
        machine = await machine_of(conninfo, names, beside_server=True, with_restart=with_restart)
        doors = _Doors(control, service, machine)
        try:
            await leave_watchdogs(control, machine, None, tell)
            there = conninfo if self._plan.database != OWN_DATABASE else await self._own_database(conninfo)
            signalled = await self._measured(there, doors, abandon=abandon)
        except PgtopError as problem:
            self._log.write("ended", why=unfinished(problem))
            raise
        finally:
            await service.aclose()
            await control.aclose()
            await machine.aclose()
        if signalled:
            self._log.write("ended", why="stopped by a signal")
            tell(f"stopped; `{self._outcome.resuming}` continues")
            return ExitCode.SIGNALLED + signalled
        if not self._keeps_data:
            await self._put_back(conninfo)
        self._log.write("ended", why=ABANDONED if abandon else COMPLETE)
        return ExitCode.OK

    async def _measured(self, conninfo: ConnInfo, doors: _Doors, *, abandon: bool) -> int | None:
        reached = await self._reached_by(conninfo)
        session = LiveSession(conninfo, self._live, reached)
        session.load.directories = self._directories
        session.load.prepare = None
        session.watch_others()
        keeper, meter = FrameKeeper(), SurroundingsMeter()
        restarts = any(arm.restart for arm in self._plan.arms)
        session.engine.attach(keeper)
        session.engine.attach(meter)
        parts = ExperimentParts(
            load=LoadRun(session.load, keeper, session.open_sql_session, tell, restarts=restarts),
            keeper=keeper,
            cpu=meter,
            doors=doors,
            targets=await self._targets(conninfo),
            profiles=load_profiles(self._directories).by_name,
            open_sql_session=lambda: open_sql_session(conninfo),
            make_data=lambda scale: self._made(conninfo, scale),
            free_bytes=lambda: self._free_bytes(conninfo),
            unsafe=self._live.allow_unsafe,
            confirmed=self._live.confirmed,
            tell=tell,
        )
        run = ExperimentRun(self._outcome, self._log, parts)
        if abandon:
            return await run_beside(session.engine, run.settle)
        announcement = self._announcement = Announcement("experiment run", switched(self._outcome), self._shown)
        session.engine.attach(announcement)

        async def measure() -> None:
            await keeper.until(lambda interval: server_of(interval.newest) is not None, _ANSWER_S)
            announcement.begin()
            await doors.claim_experiment([name for arm in self._plan.arms for name, _ in arm.parameters])
            await run.measure()

        return await run_beside(session.engine, measure)

    def _shown(self) -> ExperimentState:
        outcome = outcome_of(read_entries(self._log.directory), self._outcome.id) or self._outcome
        return shown_plan(outcome, _now_ms(), under_way=not self._over)

    async def _targets(self, conninfo: ConnInfo) -> Mapping[str, LoadTarget]:
        found = {}
        sql_session = await open_sql_session(conninfo)
        try:
            for endpoint in self._plan.endpoints:
                if not endpoint.address:
                    pinned = conninfo.pinned(sql_session.reached)
                    found[endpoint.name] = LoadTarget(endpoint.name, endpoint_of(pinned))
                    continue
                words = [f"{endpoint.name}={endpoint.address}"]
                [found[endpoint.name]] = await targets(words, sql_session, conninfo, from_here=True)
        finally:
            await sql_session.aclose()
        return found

    @staticmethod
    async def _reached_by(conninfo: ConnInfo) -> Reached:
        """Return the address that a session reaches now."""
        sql_session = await open_sql_session(conninfo)
        try:
            return sql_session.reached
        finally:
            await sql_session.aclose()

    async def _own_database(self, conninfo: ConnInfo) -> ConnInfo:
        """A database of the experiment's own, made where it is not there."""
        if not self._database:
            self._database = _DATABASE + self._outcome.id.replace("-", "_").lower()
            self._log.write("database", name=self._database)
        sql_session = await open_sql_session(conninfo)
        try:
            if not await sql_session.rows("SELECT 1 FROM pg_database WHERE datname = %s", [self._database]):
                await sql_session.execute(f"CREATE DATABASE {quoted(self._database)}")
        finally:
            await sql_session.aclose()
        return replace(conninfo, dbname=self._database)

    async def _put_back(self, conninfo: ConnInfo) -> None:
        """Drops what was made for the experiment."""
        now = outcome_of(read_entries(self._log.directory), self._outcome.id)
        if not (self._database or (now is not None and now.tables)):
            return
        sql_session = await open_sql_session(conninfo)
        try:
            if self._database:
                await sql_session.execute(f"DROP DATABASE IF EXISTS {quoted(self._database)} WITH (FORCE)")
                self._log.write("database", name="")
            if now is not None and now.tables:
                found = await recognise_pgbench(sql_session)
                if found is not None and made_here(found, now.table_oids):
                    await sql_session.execute(f"DROP TABLE {', '.join(found.tables.values())}")
                elif found is not None:
                    tell(f"pgbench's tables stay, this experiment did not make them: {found.describe()}")
                self._log.write("tables", there=False)
        finally:
            await sql_session.aclose()

    async def _made(self, conninfo: ConnInfo, scale: int) -> Initialised:
        shape = PgbenchShape(steps=self._plan.init_steps)
        sql_session = await open_sql_session(conninfo)
        try:
            endpoint = endpoint_of(conninfo.pinned(sql_session.reached))
            pgbench = find_pgbench(self._live.pgbench, over_tls=endpoint.over_tls)
            return await initialise(endpoint, scale, pgbench, shape=shape, sql_session=sql_session)
        finally:
            await sql_session.aclose()

    async def _free_bytes(self, conninfo: ConnInfo) -> int | None:
        sql_session = await open_sql_session(conninfo)
        try:
            room = await look_for_room(sql_session, 1, 0, await free_bytes_for(sql_session))
        finally:
            await sql_session.aclose()
        return room.available_bytes


def _now_ms() -> int:
    return int(time.time() * 1000)
