"""Plans and their servers: options that replace keys of a plan, its check against a server, and its printing."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from contextlib import aclosing, contextmanager
from pathlib import Path
from typing import Final, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from pgtop_tune.base.errors import ConnectionProblem, LoadProblem, ServerProblem, UsageProblem
from pgtop_tune.base.foreign_answers import decodes
from pgtop_tune.base.units import seconds
from pgtop_tune.bench.locate import find_pgbench
from pgtop_tune.bench.profiles import Profiles, load_profiles, profile_directories
from pgtop_tune.changes.model.change import WantedParameter
from pgtop_tune.changes.model.change_set import RestartVerdict
from pgtop_tune.changes.model.pending_set import now_ms
from pgtop_tune.changes.restart.control import RestartService
from pgtop_tune.changes.restart.outages import checked_place
from pgtop_tune.changes.restart.pair_checks import checked_pair
from pgtop_tune.changes.restart.pooler_outages import pooler_place
from pgtop_tune.changes.server.control import PostgresControl
from pgtop_tune.cli.commands.experiment import PlanCheckRequest, PlanOverrides, PlanRequest, PlanRunRequest
from pgtop_tune.cli.connections import ConnectionOptions, let_in
from pgtop_tune.cli.output import say, tell
from pgtop_tune.cli.parameter_changes import check_nothing_waits
from pgtop_tune.cli.snapshot import AdviceBasis, advice_basis
from pgtop_tune.cli.wiring import available_bytes, endpoint_of, targets
from pgtop_tune.cluster.binaries import find_binaries
from pgtop_tune.cluster.replicated import ThrowawayServers
from pgtop_tune.experiment.path import LoadTarget, unreachable
from pgtop_tune.experiment.plan.bind import ServerView, bound, keep_reviewed
from pgtop_tune.experiment.plan.model import (
    OWN_DATABASE,
    THROWAWAY_SERVERS,
    BoundPlan,
    ExperimentPlan,
    PlanChoices,
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
from pgtop_tune.model.instance import ServerPair, ServerPlace
from pgtop_tune.postgres.server.conninfo import ConnInfo
from pgtop_tune.postgres.server.sql_session import open_sql_session
from pgtop_tune.runtime.running_experiments import ServerKey, server_of

SERVER: Final = ""
"""Key of the server among places of what fails."""
R = TypeVar("R", bound=PlanRequest)
_MB: Final = 2**20
_MAY_CREATE: Final = "SELECT rolcreatedb OR rolsuper, pg_is_in_recovery() FROM pg_roles WHERE rolname = current_user"


class ServerRoom(Struct, frozen=True, kw_only=True):
    """Room for a plan on the server, and its refusals, as far as frames do not hold them.

    Attributes:
        closed: Reasons why endpoints do not answer, by endpoint.
        refused: Reasons why the server would not start with an arm or cannot be restarted, by arm.
        free_bytes: Free space on the disk of the data; None where unknown.
        sessions: Number of sessions of other programs, which a restart ends.
        max_wal_bytes: max_wal_size.
        server: Identity of the server; None where its frames do not tell it.
        failing: Places of what is the operator's and is to fail: `SERVER`, and poolers by the names of their endpoints.
    """

    closed: Mapping[str, str]
    refused: Mapping[str, str]
    free_bytes: int | None
    sessions: int
    max_wal_bytes: int = 0
    server: ServerKey | None = None
    failing: Mapping[str, ServerPlace | ServerPair] = {}


def check_plan(request: PlanCheckRequest) -> None:
    """Print the plan as it runs on the server. Raises as `bound_to_server`."""
    checked_plan(request)


def review_plan(request: PlanCheckRequest) -> None:
    """Print the plan and its hash, and keep the plan as reviewed. Raises as `bound_to_server`."""
    say(f"hash {keep_reviewed(checked_plan(request), reviewed_dir())}")


@contextmanager
def servers_of(plan: PlanChoices, request: R) -> Iterator[tuple[R, ThrowawayServers | None]]:
    """Yield the request, led to the throwaway servers of a plan where it starts any; they are removed after the block.

    Raises:
        UsageProblem: The options name a server for such a plan.
        ClusterProblem: The servers cannot be made.
    """
    connection = request.connection
    if plan.servers != THROWAWAY_SERVERS:
        yield request, None
        return
    if connection.host or connection.port or connection.user or connection.database:
        raise UsageProblem(f"{plan.name} starts servers of its own", "leave -d, -h, -p and -U out")
    with ThrowawayServers.create(find_binaries(), with_standby=plan.with_standby, on_step=tell) as servers:
        yield replace(request, connection=ConnectionOptions(database=servers.conninfo)), servers


def checked_plan(request: PlanCheckRequest | PlanRunRequest) -> BoundPlan:
    """Print the plan as it runs on the server, and return it. Raises as `bound_to_server`."""
    unbound_plan = requested_plan(request)
    with servers_of(unbound_plan, request) as (at_servers, servers):
        plan, room = bound_to_server(unbound_plan, at_servers, servers)
    for line in plan_lines(plan, now_ms(), room.max_wal_bytes):
        say(line)
    check_fits(plan, room)
    return plan


def check_fits(plan: BoundPlan, room: ServerRoom) -> None:
    """Raise UsageProblem for a plan that exceeds the room of the server, or its own limits."""
    if reasons := refusals(estimate(plan, room.max_wal_bytes), plan.limits, room.free_bytes):
        raise UsageProblem(
            f"{plan.name} does not fit: {'; '.join(reasons)}", "pass a smaller --scale, or a shorter --time"
        )


def overridden(plan: ExperimentPlan, overrides: PlanOverrides) -> ExperimentPlan:
    """Return the plan with the options in place of its keys.

    Raises:
        UsageProblem: The plan has no such endpoint, or the time is too short.
    """
    addresses = dict(word.partition("=")[::2] for word in overrides.endpoint or ())
    for name in addresses:
        if name not in {endpoint.name for endpoint in plan.endpoints}:
            names = ", ".join(endpoint.name for endpoint in plan.endpoints)
            raise UsageProblem(f"the plan has no endpoint {name}", f"the plan has {names}")
    length_s = seconds(overrides.time) if overrides.time else plan.time_s
    if length_s < 1:
        raise UsageProblem(f"a run of {overrides.time} is too short", "pass 10s or more")
    return replace(
        plan,
        scales=tuple(overrides.scale or plan.scales),
        clients=tuple(overrides.clients or plan.clients),
        time_s=length_s,
        warm_up_s=min(plan.warm_up_s, length_s) if overrides.time else plan.warm_up_s,
        repeats=overrides.repeats or plan.repeats,
        seed=plan.seed if overrides.seed is None else overrides.seed,
        endpoints=tuple(
            PlanEndpoint(endpoint.name, addresses.get(endpoint.name, endpoint.address)) for endpoint in plan.endpoints
        ),
    )


def requested_plan(request: PlanCheckRequest | PlanRunRequest) -> ExperimentPlan:
    """Return the plan of a request with its options. Raises UsageProblem where it is wrong."""
    return overridden(read_plan(plan_path(request.plan)), request.overrides)


def bound_to_server(
    unbound_plan: ExperimentPlan, request: PlanRequest, servers: ThrowawayServers | None = None
) -> tuple[BoundPlan, ServerRoom]:
    """Return a plan as it runs on a server, and the room there.

    Args:
        unbound_plan: The plan.
        request: The options, with the server.
        servers: The throwaway servers that these options lead to; None for the operator's own.

    Raises:
        PgtopError: The plan is wrong, or the server does not answer.
    """
    session = request.session
    loaded = load_profiles(profile_directories(session.profiles))
    scripts = _scripts(unbound_plan, loaded)
    find_pgbench(session.pgbench)
    basis = advice_basis(request.connection)
    view = replace(
        _view(basis, scripts, unsafe=request.allow_unsafe, confirmed=frozenset(session.confirm or ())),
        allowed_outages=tuple(request.allow_outage or ()),
    )
    if servers is not None:
        view = replace(view, server=f"throwaway {view.server.partition(',')[0]}")
    plan = bound(unbound_plan, view)
    room = let_in(
        request.connection,
        lambda conninfo: asyncio.run(_room(conninfo, unbound_plan, plan, session.pgbench, servers)),
    )
    if room.closed or room.refused:
        plan = bound(unbound_plan, replace(view, unreachable=room.closed, refused=room.refused))
    max_wal_bytes = int(view.parameters["max_wal_size"].setting) * _MB
    return plan, replace(room, max_wal_bytes=max_wal_bytes, server=server_of(basis.interval.newest))


def _scripts(plan: ExperimentPlan, loaded: Profiles) -> tuple[tuple[str, str], ...]:
    """Return the scripts of a plan. Raises as `scripts_by_profile`, and UsageProblem for a data set of another kind."""
    for name in plan.profiles:
        try:
            dataset = loaded.get(name).summary().dataset
        except LoadProblem as problem:
            raise UsageProblem(f"{place_of(plan, 'profiles')}: {problem.message}", problem.hint) from None
        if plan.database == OWN_DATABASE and dataset not in ("", "pgbench"):
            raise UsageProblem(
                f"the profile {name} runs on the {dataset} data set, which a plan does not create",
                'create it with `bench init`, and set database = "current" in the plan',
            )
    return scripts_by_profile(plan.profiles, loaded)


def scripts_by_profile(profiles: Sequence[str], loaded: Profiles) -> tuple[tuple[str, str], ...]:
    """Return each profile with names, weights and hashes of its scripts.

    Raises:
        LoadProblem: There is no such profile.
    """
    scripts = []
    for name in profiles:
        chosen = scripts_of(LoadSpec(profile=name), loaded.get(name), allow_shell=False)
        scripts.append((name, " ".join(f"{script.name}@{script.weight} {script.sha256}" for script in chosen)))
    return tuple(scripts)


def _view(
    basis: AdviceBasis,
    scripts: tuple[tuple[str, str], ...],
    *,
    unsafe: bool,
    confirmed: frozenset[str],
) -> ServerView:
    server = sections.server(basis.interval.newest)
    sample = basis.interval.now(sections.parameters)
    if isinstance(server, Unavailable) or sample is None:
        raise ConnectionProblem("the server does not answer")
    parameters = {parameter.name: parameter for parameter in sample.parameters}
    advised = {
        name: advice.value
        for name, advice in (*basis.proposal.parameters.items(), *basis.proposal.settings.items())
        if advice.value is not None
    }
    reserved = 0 if server.superuser else basis.facts.reserved_connections
    machine = basis.machine
    return ServerView(
        server=f"PostgreSQL {server.version}, system {server.system_identifier or 'unknown'}",
        facts=PlanFacts(
            ram_bytes=basis.facts.ram_bytes,
            cores=basis.facts.cores,
            shared_buffers_bytes=basis.facts.running_buffers_bytes or basis.facts.shared_buffers_bytes,
            advised=advised,
        ),
        parameters=parameters,
        names=tuple(parameters),
        settings=machine
        if isinstance(machine, Unavailable)
        else {setting.name: setting for setting in machine.settings},
        reserved=reserved,
        scripts=scripts,
        unsafe=unsafe,
        confirmed=confirmed,
    )


@decodes
async def _room(
    conninfo: ConnInfo,
    plan: ExperimentPlan,
    bound_arms: BoundPlan,
    pgbench: Path | None,
    servers: ThrowawayServers | None,
) -> ServerRoom:
    """Ask the server for its room, endpoints that do not answer, and arms with which it would not start.

    Raises:
        UsageProblem: A change of another user waits for a restart, this role cannot create a database, or a pooler
            answers in place of the server.
    """
    async with aclosing(await open_sql_session(conninfo)) as sql_session:
        whole_conninfo, conninfo = conninfo, conninfo.only(sql_session.reached.endpoint)
        find_pgbench(pgbench, over_tls=endpoint_of(conninfo.pinned(sql_session.reached)).over_tls)
        [(may_create, is_standby)] = await sql_session.rows(_MAY_CREATE)
        if plan.database == OWN_DATABASE and is_standby:
            raise UsageProblem(
                "the server is a standby: the experiment cannot create its database there",
                'connect to its primary, or set database = "current" in a plan of loads that only read',
            )
        if plan.database == OWN_DATABASE and not may_create:
            raise UsageProblem(
                "this role may not create the experiment's database",
                'pass another role with -U, run ALTER ROLE … CREATEDB, or set database = "current" in the plan',
            )
        free_bytes = await available_bytes(sql_session)
        closed: dict[str, str] = {}
        load_targets: dict[str, LoadTarget] = {}
        for endpoint in plan.endpoints:
            if endpoint.address:
                [target] = await targets([f"{endpoint.name}={endpoint.address}"], sql_session, conninfo, from_here=True)
                load_targets[endpoint.name] = target
                if reason := await unreachable(target.endpoint):
                    closed[endpoint.name] = reason
    refused: dict[str, str] = {}
    sessions = 0
    control = PostgresControl(conninfo)
    service = RestartService(control, None if servers is None else servers.restart)
    failing: Mapping[str, ServerPlace | ServerPair] = {}
    async with aclosing(control), aclosing(service):
        if plan.database == OWN_DATABASE and not await control.ask(lambda session: session.direct):
            raise UsageProblem(
                "this connection goes through a pooler, which does not know the database that the experiment creates",
                'connect to the server directly, or set database = "current" in the plan',
            )
        if plan.outages:
            failing = await failing_places(
                plan, bound_arms.allowed_outages, control, service, load_targets, whole_conninfo
            )
            sessions = (await service.plan()).sessions if SERVER in failing else 0
        if any(arm.parameters for arm in bound_arms.arms):
            try:
                await control.ask(lambda session: session.check_permitted())
            except ServerProblem as problem:
                refused = {arm.name: problem.message for arm in bound_arms.arms if arm.parameters}
        for arm in bound_arms.arms:
            if arm.impossible or arm.name in refused:
                continue
            parameters = [WantedParameter(name, value) for name, value in arm.parameters]
            if not arm.restart:
                try:
                    await control.check_starts(parameters)
                except ServerProblem as problem:
                    refused[arm.name] = problem.message
                continue
            restart = await service.plan(parameters)
            check_nothing_waits(restart)
            sessions = max(sessions, restart.sessions)
            if not restart.by_us:
                refused[arm.name] = f"pgtop-tune cannot restart the server: {restart.why_not}"
                continue
            stopping = [check.words for check in restart.checks if check.verdict is RestartVerdict.IMPOSSIBLE]
            # An arm's own settings may reserve the huge pages that it starts with: the start is checked with them.
            if stopping and not arm.settings:
                refused[arm.name] = stopping[0]
    return ServerRoom(closed=closed, refused=refused, free_bytes=free_bytes, sessions=sessions, failing=failing)


async def failing_places(
    plan: PlanChoices,
    allowed: Sequence[str],
    control: PostgresControl,
    service: RestartService,
    load_targets: Mapping[str, LoadTarget],
    conninfo: ConnInfo,
) -> dict[str, ServerPlace | ServerPair]:
    """Return the places of what is the operator's and fails in a plan: `SERVER`, and poolers by their endpoints.

    Args:
        plan: The plan.
        allowed: HOST:PORT of what the operator allows to fail.
        control: The parameters of the server.
        service: Its restarts.
        load_targets: The endpoints.
        conninfo: The connection, with both servers where one is promoted.

    Raises:
        UsageProblem: An outage is not allowed, or is not ours to end.
        ServerProblem: The server would not start again.
    """
    places: dict[str, ServerPlace | ServerPair] = {}
    if plan.with_standby and plan.servers != THROWAWAY_SERVERS:
        places[SERVER] = await checked_pair(control, service, allowed, conninfo)
    elif plan.server_fails and plan.servers != THROWAWAY_SERVERS:
        places[SERVER] = await checked_place(control, service, allowed)
    for name in plan.failing_poolers:
        endpoint = load_targets[name].endpoint
        places[name] = await asyncio.to_thread(pooler_place, endpoint.host, endpoint.port, allowed)
    return places
