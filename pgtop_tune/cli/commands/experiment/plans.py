"""A plan and the server it is bound to: what is asked of the server, what the command line replaces, what is shown."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from pgtop_tune.base.errors import ConnectionProblem, LoadProblem, ServerProblem, UsageProblem
from pgtop_tune.base.foreign_answers import decodes
from pgtop_tune.bench.datasets.pgbench_tables import look_for_room
from pgtop_tune.bench.locate import find_pgbench
from pgtop_tune.bench.profiles import Profiles, load_profiles, profile_directories
from pgtop_tune.changes.model.change import WantedParameter
from pgtop_tune.changes.model.change_set import RestartVerdict
from pgtop_tune.changes.restart.control import RestartService
from pgtop_tune.changes.server.control import PostgresControl
from pgtop_tune.cli.commands.experiment.request import PlanOverrides, PlanRequest
from pgtop_tune.cli.connecting import let_in
from pgtop_tune.cli.load_targets import targets
from pgtop_tune.cli.looking import Looked, look_closely
from pgtop_tune.cli.output import say
from pgtop_tune.cli.wiring import endpoint_of, free_bytes_for
from pgtop_tune.experiment.path import unreachable
from pgtop_tune.experiment.plan.bind import ServerView, bound, keep_reviewed
from pgtop_tune.experiment.plan.model import (
    OWN_DATABASE,
    BoundPlan,
    ExperimentPlan,
    PlanEndpoint,
    PlanFacts,
    estimate,
    refusals,
)
from pgtop_tune.experiment.plan.plan_file import place_of, plan_path, read_plan
from pgtop_tune.experiment.plan.report import plan_lines
from pgtop_tune.experiment.plan.results import reviewed_dir
from pgtop_tune.experiment.series import scripts_of
from pgtop_tune.metrics import sections
from pgtop_tune.model.absence import Unavailable
from pgtop_tune.model.bench import LoadSpec
from pgtop_tune.postgres.server.conninfo import ConnInfo
from pgtop_tune.postgres.server.sql_session import open_sql_session
from pgtop_tune.runtime.running_experiments import ServerKey, server_of
from pgtop_tune.runtime.window import seconds

_MB: Final = 2**20
_MAY_CREATE: Final = "SELECT rolcreatedb OR rolsuper, pg_is_in_recovery() FROM pg_roles WHERE rolname = current_user"


class ServerRoom(Struct, frozen=True, kw_only=True):
    """What was asked of the server besides its frames.

    Attributes:
        closed: Endpoint to the reason why it does not answer.
        refused: Arm to the reason why the server would not start with it, or cannot be restarted.
        free_bytes: On the disk of the data; None where they are not known.
        sessions: Of others, which a restart ends.
        max_wal_bytes: What WAL may take.
        server: The server; None where its frames do not say.
    """

    closed: Mapping[str, str]
    refused: Mapping[str, str]
    free_bytes: int | None
    sessions: int
    max_wal_bytes: int = 0
    server: ServerKey | None = None


def check_plan(plan: str, request: PlanRequest) -> BoundPlan:
    """Print and return the plan as it runs on the server. Raises as `bound_plan`."""
    found, room = bound_plan(plan, request)
    for line in plan_lines(found, round(time.time() * 1000), room.max_wal_bytes):
        say(line)
    check_fits(found, room)
    return found


def review_plan(plan: str, request: PlanRequest) -> None:
    """The same with the hash, which is kept. Raises as `bound_plan`."""
    found = check_plan(plan, request)
    say(f"hash {keep_reviewed(found, reviewed_dir())}")


def check_fits(plan: BoundPlan, room: ServerRoom) -> None:
    """Raises UsageProblem where it takes more than there is, or than its limits."""
    if why := refusals(estimate(plan, room.max_wal_bytes), plan.limits, room.free_bytes):
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
        warm_up_s=min(plan.warm_up_s, length_s) if given.time else plan.warm_up_s,
        repeats=given.repeats or plan.repeats,
        seed=plan.seed if given.seed is None else given.seed,
        endpoints=tuple(PlanEndpoint(each.name, addresses.get(each.name, each.address)) for each in plan.endpoints),
    )


def bound_plan(plan: str, request: PlanRequest) -> tuple[BoundPlan, ServerRoom]:
    """The plan as it runs on the server that is meant, and the room there.

    Raises:
        PgtopError: The plan is wrong, or the server does not answer.
    """
    return bound_to_server(overridden(read_plan(plan_path(plan)), request.overrides), request)


def bound_to_server(read: ExperimentPlan, request: PlanRequest) -> tuple[BoundPlan, ServerRoom]:
    """The same of a plan that was read. Raises as `bound_plan`."""
    session = request.session
    loaded = load_profiles(profile_directories(session.profiles))
    scripts = _scripts(read, loaded)
    find_pgbench(session.pgbench)
    looked = look_closely(request.connection, 0.0, None, None)
    view = _view(read, looked, scripts, unsafe=request.allow_unsafe, confirmed=frozenset(session.confirm or ()))
    found = bound(read, view)
    room = let_in(request.connection, lambda conninfo: asyncio.run(_asked(conninfo, read, found, session.pgbench)))
    if room.closed or room.refused:
        found = bound(read, replace(view, unreachable=room.closed, refused=room.refused))
    max_wal_bytes = int(view.parameters["max_wal_size"].setting) * _MB
    return found, replace(room, max_wal_bytes=max_wal_bytes, server=server_of(looked.interval.newest))


def _scripts(plan: ExperimentPlan, loaded: Profiles) -> tuple[tuple[str, str], ...]:
    """Raises as `scripts_by_profile`, and UsageProblem for a profile whose data set the plan does not make."""
    for name in plan.profiles:
        try:
            dataset = loaded.get(name).summary().dataset
        except LoadProblem as problem:
            raise UsageProblem(f"{place_of(plan, 'profiles')}: {problem.message}", problem.hint) from None
        if plan.database == OWN_DATABASE and dataset not in ("", "pgbench"):
            raise UsageProblem(
                f"the profile {name} runs on the {dataset} data set, which a plan does not make",
                'create it with `bench init`, and set database = "current" in the plan',
            )
    return scripts_by_profile(plan.profiles, loaded)


def scripts_by_profile(profiles: Sequence[str], loaded: Profiles) -> tuple[tuple[str, str], ...]:
    """What the scripts of each profile are: names, weights, hashes.

    Raises:
        LoadProblem: A profile that there is not.
    """
    found = []
    for name in profiles:
        scripts = scripts_of(LoadSpec(profile=name), loaded.get(name), allow_shell=False)
        found.append((name, " ".join(f"{script.name}@{script.weight} {script.sha256}" for script in scripts)))
    return tuple(found)


def _view(
    plan: ExperimentPlan,
    looked: Looked,
    scripts: tuple[tuple[str, str], ...],
    *,
    unsafe: bool,
    confirmed: frozenset[str],
) -> ServerView:
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
        confirmed=confirmed,
    )


@decodes
async def _asked(conninfo: ConnInfo, plan: ExperimentPlan, found: BoundPlan, pgbench: Path | None) -> ServerRoom:
    """Endpoints that do not answer, arms with which the server would not start, bytes free, sessions of others.

    Raises:
        UsageProblem: Another user's change waits for a restart, or this role cannot create a database there, or a
            pooler stands before the server.
    """
    sql_session = await open_sql_session(conninfo)
    conninfo = conninfo.only(sql_session.reached.endpoint)
    try:
        find_pgbench(pgbench, over_tls=endpoint_of(conninfo.pinned(sql_session.reached)).over_tls)
        [(may_create, is_standby)] = await sql_session.rows(_MAY_CREATE)
        if plan.database == OWN_DATABASE and is_standby:
            raise UsageProblem(
                "the server is a standby: the experiment cannot make a database there",
                'connect to its primary, or set database = "current" in a plan of loads that only read',
            )
        if plan.database == OWN_DATABASE and not may_create:
            raise UsageProblem(
                "this role may not create the database of the experiment",
                'pass another -U, ALTER ROLE … CREATEDB, or set database = "current" in the plan',
            )
        room = await look_for_room(sql_session, 1, 0, await free_bytes_for(sql_session))
        closed = {}
        for endpoint in plan.endpoints:
            if endpoint.address:
                [target] = await targets([f"{endpoint.name}={endpoint.address}"], sql_session, conninfo, from_here=True)
                if why := await unreachable(target.endpoint):
                    closed[endpoint.name] = why
    finally:
        await sql_session.aclose()
    refused: dict[str, str] = {}
    sessions = 0
    control = PostgresControl(conninfo)
    service = RestartService(control)
    try:
        if plan.database == OWN_DATABASE and not await control.ask(lambda session: session.direct):
            raise UsageProblem(
                "a pooler answers here, and the experiment makes a database that it does not know",
                'connect to the server itself, or set database = "current" in the plan',
            )
        if any(arm.parameters for arm in found.arms):
            try:
                await control.ask(lambda session: session.check_permitted())
            except ServerProblem as problem:
                refused = {arm.name: problem.message for arm in found.arms if arm.parameters}
        for arm in found.arms:
            if arm.impossible or arm.name in refused:
                continue
            wanted = [WantedParameter(name, value) for name, value in arm.parameters]
            if not arm.restart:
                try:
                    await control.check_starts(wanted)
                except ServerProblem as problem:
                    refused[arm.name] = problem.message
                continue
            restart = await service.plan(wanted)
            if restart.pending:
                waiting = ", ".join(each.name for each in restart.pending)
                raise UsageProblem(
                    f"{waiting} waits for a restart already, which would apply it", "`pgtop-tune set --restart` first"
                )
            sessions = max(sessions, restart.sessions)
            if not restart.by_us:
                refused[arm.name] = f"pgtop-tune cannot restart the server: {restart.why_not}"
                continue
            stopping = [check.words for check in restart.checks if check.verdict is RestartVerdict.IMPOSSIBLE]
            # What needs pages that its own settings reserve is looked at when these are there.
            if stopping and not arm.settings:
                refused[arm.name] = stopping[0]
    finally:
        await service.aclose()
        await control.aclose()
    return ServerRoom(closed=closed, refused=refused, free_bytes=room.available_bytes, sessions=sessions)
