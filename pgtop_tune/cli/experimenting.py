"""Puts experiments together: the plan and the server it is bound to, the session that makes its runs, its database."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Final

from msgspec import to_builtins
from msgspec.structs import replace

from pgtop_tune.advice.fence import loss_of
from pgtop_tune.bench.datasets.pgbench_tables import Initialised, PgbenchShape, initialise, look_for_room
from pgtop_tune.bench.locate import find_pgbench
from pgtop_tune.bench.profiles import Profiles, load_profiles, profile_directories
from pgtop_tune.changes.change_sets import ChangeSets, WithRestart
from pgtop_tune.changes.confirm.orphans import leave_watchdogs
from pgtop_tune.changes.machine.control import HostControl
from pgtop_tune.changes.model.change import HostChange, ParameterChange, WantedParameter
from pgtop_tune.changes.model.restart import PendingParameter, RestartVerdict
from pgtop_tune.changes.restart.control import RestartService
from pgtop_tune.changes.restart.gather import note_place
from pgtop_tune.changes.server.control import PostgresControl
from pgtop_tune.changes.server.one_change import Rules
from pgtop_tune.cli.assignments import check_value
from pgtop_tune.cli.exit_codes import ExitCode
from pgtop_tune.cli.experiment_results import directory_of, outcome_in
from pgtop_tune.cli.free_bytes import free_bytes_for
from pgtop_tune.cli.headless import run_beside
from pgtop_tune.cli.live_options import LiveOptions, disk_caps, pooler_addresses
from pgtop_tune.cli.looking import Looked, let_in, look_closely
from pgtop_tune.cli.machine_half import machine_of
from pgtop_tune.cli.measuring import targets
from pgtop_tune.cli.output import say, tell
from pgtop_tune.cli.wiring import LiveSession, endpoint_of
from pgtop_tune.compare.reports.sheets import Sheet
from pgtop_tune.compare.reports.written import text
from pgtop_tune.errors import ConnectionProblem, PgtopError, UsageProblem
from pgtop_tune.experiment.endpoints import LoadTarget
from pgtop_tune.experiment.load_run import LoadRun
from pgtop_tune.experiment.path import unreachable
from pgtop_tune.experiment.plan.amounts import PlanFacts
from pgtop_tune.experiment.plan.bind import ServerView, bound
from pgtop_tune.experiment.plan.estimate import estimate, refusals
from pgtop_tune.experiment.plan.log import ExperimentLog, experiments_dir, reviewed_dir
from pgtop_tune.experiment.plan.model import OWN_DATABASE, Arm, BoundPlan, ExperimentPlan, PlanEndpoint
from pgtop_tune.experiment.plan.plan_file import plan_path, read_plan
from pgtop_tune.experiment.plan.report import chapters
from pgtop_tune.experiment.plan.results import Outcome, outcome_of
from pgtop_tune.experiment.plan.reviewed import check_reviewed, keep_reviewed, plan_hash
from pgtop_tune.experiment.plan.run import ExperimentParts, ExperimentRun, unfinished
from pgtop_tune.experiment.plan.status import plan_lines
from pgtop_tune.experiment.series import scripts_of
from pgtop_tune.metrics import sections
from pgtop_tune.model.absence import Unavailable
from pgtop_tune.model.bench import LoadSpec
from pgtop_tune.postgres.server.conninfo import ConnInfo
from pgtop_tune.postgres.server.sql_session import open_sql_session
from pgtop_tune.runtime.run_frames import FrameKeeper
from pgtop_tune.runtime.window import seconds
from pgtop_tune.sql_quoting import quoted

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pgtop_tune.cli.commands.experiment.plans import PlanOverrides, SessionOptions
    from pgtop_tune.cli.connecting import ConnectionWords

_DATABASE: Final = "pgtop_tune_experiment_"
_PGBENCH_TABLES: Final = "pgbench_accounts, pgbench_branches, pgbench_history, pgbench_tellers"
_MB: Final = 2**20


# The plan, and the server it is bound to.


def check_plan(
    words: ConnectionWords, plan: str, overrides: PlanOverrides, session: SessionOptions, *, allow_unsafe: bool
) -> None:
    """Prints it. Raises as `bound_plan`."""
    found, max_wal_bytes, free_bytes = bound_plan(words, plan, overrides, session, allow_unsafe=allow_unsafe)
    for line in plan_lines(found, _now_ms(), max_wal_bytes):
        say(line)
    _refuse(found, max_wal_bytes, free_bytes)


def review_plan(
    words: ConnectionWords, plan: str, overrides: PlanOverrides, session: SessionOptions, *, allow_unsafe: bool
) -> None:
    """The same with the hash, which is kept. Raises as `bound_plan`."""
    found, max_wal_bytes, free_bytes = bound_plan(words, plan, overrides, session, allow_unsafe=allow_unsafe)
    for line in plan_lines(found, _now_ms(), max_wal_bytes):
        say(line)
    _refuse(found, max_wal_bytes, free_bytes)
    say(f"hash {keep_reviewed(found, reviewed_dir())}")


def _refuse(plan: BoundPlan, max_wal_bytes: int, free_bytes: int | None) -> None:
    """Raises UsageProblem where it takes more than there is, or than its limits."""
    if why := refusals(estimate(plan, max_wal_bytes), plan.limits, free_bytes):
        raise UsageProblem(f"{plan.name} does not fit: {'; '.join(why)}", "a smaller --scale, or a shorter --time")


def overridden(plan: ExperimentPlan, given: PlanOverrides) -> ExperimentPlan:
    """The plan with what the command line says.

    Raises:
        UsageProblem: An endpoint that the plan does not have.
    """
    addresses = dict(word.partition("=")[::2] for word in given.endpoint or ())
    for name in addresses:
        if name not in {endpoint.name for endpoint in plan.endpoints}:
            names = ", ".join(endpoint.name for endpoint in plan.endpoints)
            raise UsageProblem(f"the plan has no endpoint {name}", f"it has {names}")
    length_s = seconds(given.time) if given.time else plan.time_s
    if length_s < 1:
        raise UsageProblem(f"a run of {given.time} is too short", "pass 10s or more")
    return replace(
        plan,
        scales=tuple(given.scale or plan.scales),
        clients=tuple(given.clients or plan.clients),
        time_s=length_s,
        repeats=given.repeats or plan.repeats,
        seed=plan.seed if given.seed is None else given.seed,
        endpoints=tuple(PlanEndpoint(each.name, addresses.get(each.name, each.address)) for each in plan.endpoints),
    )


def bound_plan(
    words: ConnectionWords, plan: str, overrides: PlanOverrides, session: SessionOptions, *, allow_unsafe: bool
) -> tuple[BoundPlan, int, int | None]:
    """The plan as it runs on the server that is meant.

    Returns:
        It, what WAL may take, and the bytes free on the disk of the data, None where they are not known.

    Raises:
        PgtopError: The plan is wrong, or the server does not answer.
    """
    read = overridden(read_plan(plan_path(plan)), overrides)
    loaded = load_profiles(profile_directories(session.profiles))
    scripts = _scripts(read, loaded)
    find_pgbench(session.pgbench)
    looked = look_closely(words, 0.0, None, None)
    view = _view(read, looked, scripts, unsafe=allow_unsafe)
    found = bound(read, view)
    for arm in found.arms:
        for name, value in arm.parameters:
            check_value(view.parameters[name], value)
    closed, refused, free_bytes = let_in(words, lambda conninfo: asyncio.run(_asked(conninfo, read, found)))
    if closed or refused:
        found = bound(read, replace(view, unreachable=closed, refused=refused))
    wal = view.parameters["max_wal_size"]
    return found, int(wal.setting) * _MB, free_bytes


def _scripts(plan: ExperimentPlan, loaded: Profiles) -> tuple[tuple[str, str], ...]:
    """What the scripts of each profile are.

    Raises:
        LoadProblem: A profile that there is not.
        UsageProblem: One whose data set the plan does not make.
    """
    found = []
    for name in plan.profiles:
        profile = loaded.get(name)
        scripts = scripts_of(LoadSpec(profile=name), profile, allow_shell=False)
        found.append((name, " ".join(f"{script.name}@{script.weight} {script.sha256}" for script in scripts)))
        if plan.database == OWN_DATABASE and profile.summary().dataset not in ("", "pgbench"):
            raise UsageProblem(
                f"the profile {name} runs on the {profile.dataset} data set, which a plan does not make",
                'create it with `bench init`, and set database = "current" in the plan',
            )
    return tuple(found)


def _view(plan: ExperimentPlan, looked: Looked, scripts: tuple[tuple[str, str], ...], *, unsafe: bool) -> ServerView:
    server = sections.server(looked.interval.newest)
    sample = looked.interval.now(sections.parameters)
    if isinstance(server, Unavailable) or sample is None:
        raise ConnectionProblem("the server does not answer")
    parameters = {each.name: each for each in sample.parameters}
    advised = {
        name: each.value
        for name, each in (*looked.proposal.parameters.items(), *looked.proposal.settings.items())
        if each.value is not None
    }
    reserved = 0 if server.superuser else looked.facts.reserved_connections
    machine = looked.machine
    return ServerView(
        server=f"PostgreSQL {server.version}, system {server.system_identifier or 'unknown'}",
        facts=PlanFacts(
            ram_bytes=looked.facts.ram_bytes,
            cores=looked.facts.cores,
            shared_buffers_bytes=looked.facts.running_buffers_bytes or looked.facts.shared_buffers_bytes,
            advised=advised,
        ),
        parameters=parameters,
        names=tuple(parameters),
        settings=machine if isinstance(machine, Unavailable) else {each.name: each for each in machine.settings},
        reserved=reserved,
        scripts=scripts,
        unsafe=unsafe,
    )


async def _asked(
    conninfo: ConnInfo, plan: ExperimentPlan, found: BoundPlan
) -> tuple[dict[str, str], dict[str, str], int | None]:
    """Endpoints that do not answer, arms with which the server would not start, bytes free."""
    sql_session = await open_sql_session(conninfo)
    try:
        room = await look_for_room(sql_session, 1, 0, await free_bytes_for(sql_session))
        closed = {}
        for endpoint in plan.endpoints:
            if endpoint.address:
                [target] = await targets([f"{endpoint.name}={endpoint.address}"], sql_session, conninfo, from_here=True)
                if why := await unreachable(target.endpoint):
                    closed[endpoint.name] = why
    finally:
        await sql_session.aclose()
    refused = {}
    control = PostgresControl(conninfo, rules=Rules(note_place=note_place))
    service = RestartService(control)
    try:
        for arm in found.arms:
            # What needs pages that its own settings reserve is looked at when these are there.
            if arm.restart and not arm.settings and not arm.impossible:
                plan_of = await service.plan(_wanted(arm))
                stopping = [check.words for check in plan_of.checks if check.verdict is RestartVerdict.IMPOSSIBLE]
                if stopping:
                    refused[arm.name] = stopping[0]
    finally:
        await service.aclose()
        await control.aclose()
    return closed, refused, room.available_bytes


def _wanted(arm: Arm) -> tuple[WantedParameter, ...]:
    return tuple(WantedParameter(name, value) for name, value in arm.parameters)


# Running it.


def run_plan(
    words: ConnectionWords,
    plan: str,
    overrides: PlanOverrides,
    session: SessionOptions,
    wanted_hash: str,
    *,
    allow_unsafe: bool,
) -> int:
    """Runs a plan from its begin.

    Returns:
        The exit status.

    Raises:
        PgtopError: It does not fit, is not what was reviewed, or cannot go on.
    """
    found, max_wal_bytes, free_bytes = bound_plan(words, plan, overrides, session, allow_unsafe=allow_unsafe)
    _refuse(found, max_wal_bytes, free_bytes)
    if wanted_hash:
        check_reviewed(found, wanted_hash, reviewed_dir())
    identity = f"{datetime.now():%Y%m%d-%H%M%S}-{''.join(filter(str.isalnum, found.name))[:20]}"
    tell(f"experiment {identity}: {estimate(found, max_wal_bytes).words}")
    with ExperimentLog(experiments_dir() / identity) as log:
        first = {
            "kind": "plan", "name": found.name, "hash": plan_hash(found), "began_ms": _now_ms(),
            "plan": to_builtins(found),
        }  # fmt: skip
        log.write(**first)
        outcome = outcome_of([first], identity)
        assert outcome is not None
        return _gone_on(words, session, outcome, log, allow_unsafe=allow_unsafe, abandon=False)


def resume_experiment(
    words: ConnectionWords, experiment: str, session: SessionOptions, *, allow_unsafe: bool, abandon: bool
) -> int:
    """Goes on with an experiment.

    Returns:
        The exit status.

    Raises:
        PgtopError: It runs already, is complete, or belongs to another server.
    """
    directory = directory_of(experiment)
    with ExperimentLog(directory) as log:
        outcome = outcome_in(directory)
        if outcome.complete and outcome.ended and not outcome.sets:
            raise UsageProblem(f"{outcome.id} is complete", f"`pgtop-tune experiment report {outcome.id}` shows it")
        looked = look_closely(words, 0.0, None, None)
        server = sections.server(looked.interval.newest)
        now = "" if isinstance(server, Unavailable) else server.system_identifier
        if now and now not in outcome.plan.server:
            raise UsageProblem(f"{outcome.id} belongs to {outcome.plan.server}", "connect to that server")
        log.write("resumed", at_ms=_now_ms())
        return _gone_on(words, session, outcome, log, allow_unsafe=allow_unsafe, abandon=abandon)


def _gone_on(
    words: ConnectionWords,
    session: SessionOptions,
    outcome: Outcome,
    log: ExperimentLog,
    *,
    allow_unsafe: bool,
    abandon: bool,
) -> int:
    live = LiveOptions(
        pgbench=session.pgbench,
        disk_caps=disk_caps(session.disk_cap),
        poolers=pooler_addresses(session.pooler),
        allow_unsafe=allow_unsafe,
    )
    loaded = load_profiles(profile_directories(session.profiles))
    making = ExperimentSession(outcome, log, live, loaded)
    return let_in(words, lambda conninfo: asyncio.run(making.run(conninfo, abandon=abandon)))


class _Doors:
    """See `ExperimentDoors`."""

    def __init__(self, control: PostgresControl, service: RestartService, machine: HostControl) -> None:
        self._control = control
        self._service = service
        self._machine = machine

    def sets(self, arm: Arm) -> ChangeSets:
        door = WithRestart(self._control, self._service, tell, anyway=False) if arm.restart else self._control
        return ChangeSets(door, self._machine)

    async def listed(self, names: tuple[str, ...]) -> object:
        return await self._control.list(names)

    async def in_force(self) -> Sequence[ParameterChange | HostChange]:
        return (*await self._control.in_force(), *await self._machine.in_force())

    async def pending(self) -> tuple[PendingParameter, ...]:
        return await self._service.pending()


class ExperimentSession:
    """Everything that a run of an experiment needs, made for it and put away after it.

    Args:
        outcome: Of the journal so far.
        log: The journal, open.
        live: Of the session that watches.
        loaded: Profiles.
    """

    def __init__(self, outcome: Outcome, log: ExperimentLog, live: LiveOptions, loaded: Profiles) -> None:
        self._outcome = outcome
        self._plan = outcome.plan
        self._log = log
        self._live = live
        self._loaded = loaded
        self._database = outcome.database

    async def run(self, conninfo: ConnInfo, *, abandon: bool) -> int:
        """Runs what is left; the exit status.

        Raises:
            PgtopError: It cannot go on. What was done is kept, what was changed is reverted.
        """
        names = [name for arm in self._plan.arms for name, _ in arm.settings]
        with_restart = any(arm.restart for arm in self._plan.arms)
        rules = Rules(loss_of, self._live.allow_unsafe, note_place)
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
            tell(f"stopped; `pgtop-tune experiment resume {self._outcome.id}` continues")
            return ExitCode.SIGNALLED + signalled
        await self._put_back(conninfo)
        self._log.write("ended", why="abandoned" if abandon else "complete")
        self._say(abandon=abandon)
        return ExitCode.OK

    async def _measured(self, conninfo: ConnInfo, doors: _Doors, *, abandon: bool) -> int | None:
        session = LiveSession(conninfo, self._live)
        session.load.prepare = None
        keeper = FrameKeeper()
        session.engine.attach(keeper)
        parts = ExperimentParts(
            load=LoadRun(session.load, keeper, session.open_sql_session, tell),
            keeper=keeper,
            doors=doors,
            targets=await self._targets(conninfo),
            profiles=self._loaded.known,
            open_sql_session=lambda: open_sql_session(conninfo),
            make_data=lambda scale: self._made(conninfo, scale),
            free_bytes=lambda: self._free_bytes(conninfo),
            unsafe=self._live.allow_unsafe,
            told=tell,
        )
        run = ExperimentRun(self._outcome, self._log, parts)
        return await run_beside(session.engine, run.settle if abandon else run.measure)

    async def _targets(self, conninfo: ConnInfo) -> Mapping[str, LoadTarget]:
        found = {}
        sql_session = await open_sql_session(conninfo)
        try:
            for endpoint in self._plan.endpoints:
                if not endpoint.address:
                    found[endpoint.name] = LoadTarget(endpoint.name, endpoint_of(conninfo))
                    continue
                words = [f"{endpoint.name}={endpoint.address}"]
                [found[endpoint.name]] = await targets(words, sql_session, conninfo, from_here=True)
        finally:
            await sql_session.aclose()
        return found

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
        tables = any(line["kind"] == "tables" and line["there"] for line in _lines(self._log))
        if not (self._database or tables):
            return
        sql_session = await open_sql_session(conninfo)
        try:
            if self._database:
                await sql_session.execute(f"DROP DATABASE IF EXISTS {quoted(self._database)} WITH (FORCE)")
                self._log.write("database", name="")
            if tables:
                path = await sql_session.search_path()
                for schema in path[:1]:
                    names = ", ".join(f"{quoted(schema)}.{name}" for name in _PGBENCH_TABLES.split(", "))
                    await sql_session.execute(f"DROP TABLE IF EXISTS {names}")
                self._log.write("tables", there=False)
        finally:
            await sql_session.aclose()

    async def _made(self, conninfo: ConnInfo, scale: int) -> Initialised:
        shape = PgbenchShape(steps=self._plan.init_steps)
        sql_session = await open_sql_session(conninfo)
        try:
            pgbench = find_pgbench(self._live.pgbench)
            return await initialise(endpoint_of(conninfo), scale, pgbench, shape=shape, sql_session=sql_session)
        finally:
            await sql_session.aclose()

    async def _free_bytes(self, conninfo: ConnInfo) -> int | None:
        sql_session = await open_sql_session(conninfo)
        try:
            room = await look_for_room(sql_session, 1, 0, await free_bytes_for(sql_session))
        finally:
            await sql_session.aclose()
        return room.available_bytes

    def _say(self, *, abandon: bool) -> None:
        outcome = outcome_of(_lines(self._log), self._outcome.id)
        if outcome is None or abandon:
            tell("everything is put back; the experiment has ended")
            return
        shown = [chapter for chapter in chapters(outcome) if not chapter.folded]
        say(text([part for chapter in shown for part in chapter.parts if isinstance(part, Sheet)]))
        tell(f"report: pgtop-tune experiment report {outcome.id} -o {outcome.plan.name}.html")


def _lines(log: ExperimentLog) -> Sequence[Mapping[str, object]]:
    from pgtop_tune.experiment.plan.log import read_entries

    return read_entries(log.directory)


def _now_ms() -> int:
    return int(time.time() * 1000)
