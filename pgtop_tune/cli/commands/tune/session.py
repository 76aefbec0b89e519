"""The session of a search: the watched server, the load, the plan before the first evaluation, and the evaluator."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from functools import partial
from pathlib import Path
from statistics import median
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from pgtop_tune.advice.facts import AdviceFacts
from pgtop_tune.advice.gather import Beside, facts_of
from pgtop_tune.base.errors import ConnectionProblem, HostProblem, LoadProblem, PgtopError, ServerProblem, UsageProblem
from pgtop_tune.base.units import counted
from pgtop_tune.bench.profiles import load_profiles, profile_directories
from pgtop_tune.changes.change_sets import ChangeSets, WithRestart
from pgtop_tune.changes.ports import ChangeControl, MachineControl
from pgtop_tune.cli.connections import ConnectionWords, opened
from pgtop_tune.cli.options import LiveOptions
from pgtop_tune.cli.output import tell
from pgtop_tune.cli.parameter_changes import check_nothing_waits, confirm, machine_of, restart
from pgtop_tune.cli.wiring import LiveSession, available_bytes, targets
from pgtop_tune.compare.statistics.switchback import FEWEST_PAIRS
from pgtop_tune.experiment.configurations import StandingValues
from pgtop_tune.experiment.load_run import LoadRun, RunCell, until_frames_show_it
from pgtop_tune.experiment.prediction import Prediction, predict
from pgtop_tune.experiment.series import cells
from pgtop_tune.experiment.switchback.arms import (
    BY_CHECKPOINTS,
    CYCLES_PER_PAIR,
    SETTLE_S,
    Arm,
    Arms,
    Lengths,
    Rival,
    RivalSettings,
    by_name,
)
from pgtop_tune.experiment.switchback.block_frames import OwnCycles, cycle_s, own_pair_s
from pgtop_tune.experiment.switchback.separate_blocks import (
    ArmLoads,
    CheckedArms,
    ForeignLoad,
    OwnLoad,
    SeparateBlocks,
    SeparatePlan,
    check_nothing_pending,
)
from pgtop_tune.experiment.switchback.switchback import Switchback
from pgtop_tune.metrics import sections
from pgtop_tune.metrics.catalogue import Interval
from pgtop_tune.metrics.server import client_backends
from pgtop_tune.model.postgres import Parameter
from pgtop_tune.postgres.server.conninfo import ConnInfo
from pgtop_tune.runtime.run_frames import FrameKeeper
from pgtop_tune.runtime.running_experiments import server_of
from pgtop_tune.tuning.engines import engine
from pgtop_tune.tuning.on_server.conditions import LOOKS, WINDOW_S, LoadShape, change_of, idle, load_shape
from pgtop_tune.tuning.on_server.evaluation import (
    CurrentBlocks,
    EvaluatingParts,
    Evaluator,
    HeldLoad,
    SeparateWanted,
    TakeState,
)
from pgtop_tune.tuning.on_server.journal import TuningRequest
from pgtop_tune.tuning.on_server.knob_space import (
    GUARDED,
    PARAMETERS,
    Guards,
    is_machine_group,
    is_machine_knob,
    knob_space,
    machine_space,
    wanted_knobs,
)
from pgtop_tune.tuning.on_server.objective import Objective, constraint, objective
from pgtop_tune.tuning.on_server.report import SAME_MIX_WORDS
from pgtop_tune.tuning.plan import Dimension, KnobSpace, Space, TuningPlan

# Evaluations in blocks that are runs of their own.

_RESTARTED_S: Final = 15.0
_PREPARED_S: Final = 5.0
_BLOCKS: Final = 8


def separate_lengths(block_s: float, *, restart: bool) -> Lengths:
    """Return the lengths of a block with a load of its own: three times that of a block in one run, after a warm-up.

    The warm-up is as long as a block in one run, twice as long after a restart.
    """
    return Lengths(settle_s=(2.0 if restart else 1.0) * block_s, measured_s=3.0 * block_s)


def separate_cost_s(block_s: float, *, restart: bool) -> float:
    """Return the assumed time of an evaluation."""
    lengths = separate_lengths(block_s, restart=restart)
    return _BLOCKS * (_around_s(restart=restart) + lengths.settle_s + lengths.measured_s)


def _around_s(*, restart: bool) -> float:
    return _RESTARTED_S if restart else _PREPARED_S


class SeparateEvaluations:
    """Implements `tuning.on_server.evaluation.OwnBlocks`.

    Args:
        machine: Settings of the operating system; None where none is among the knobs.
        settings: Their names.
        before_set: Takes the id of a change set before it is made.
        block_s: Length of a block in one run.
        own_cycles: Makes checkpoints for knobs that work through them; None waits for the server's own.

    Raises:
        UsageProblem: The load of another program would not survive a restart, and has no blocks.
    """

    def __init__(
        self,
        session: TuningSession,
        machine: MachineControl | None,
        settings: frozenset[str],
        before_set: Callable[[str], None],
        block_s: float,
        own_cycles: OwnCycles | None,
    ) -> None:
        if session.cell is None:
            raise UsageProblem(
                "a load that another program drives does not survive a restart", "leave --allow-restart out"
            )
        live = session.live
        self._session: Final = session
        self._service: Final = live.restart
        self._block_s: Final = block_s
        self._own_cycles: Final = own_cycles
        self._machine: Final = machine
        self._setter: Final = WithRestart(live.parameters, live.restart, tell, anyway=False)
        self._loads: Final = ArmLoads(session.run, live.load, dict.fromkeys(Arm, session.cell))
        self.standing: Final = StandingValues(self._setter, before_set, "tune:", machine, settings)

    async def agree(self, start: Mapping[str, str], *, yes: bool) -> None:
        """Ask for the restarts; restart at once where a killed search left one of its values in force.

        Args:
            start: Values of the knobs before the search.

        Raises:
            UsageProblem: Other parameters wait for a restart, or there is no terminal to ask on.
            ServerProblem: The server cannot be restarted from here, or the operator does not say yes.
        """
        plan = await self._service.plan()
        in_force = [pending.name for pending in plan.pending if start.get(pending.name) == pending.after]
        check_nothing_waits(plan, in_force)
        if not plan.by_us:
            raise ServerProblem(f"pgtop-tune cannot restart the server: {plan.why_not}", "leave --allow-restart out")
        tell(f"the server is restarted many times; each restart ends {counted(plan.sessions, 'session')} now")
        confirm(plan, yes=yes, anyway=False)
        if in_force:
            tell(f"{', '.join(in_force)}: a value of this search is in force until the restart that follows now")
            await restart(self._service)

    async def answers(self) -> None:
        """See `OwnBlocks.answers`."""
        await self._session.answers()

    def experiment(self, evaluation: SeparateWanted) -> Switchback:
        """See `OwnBlocks.experiment`."""
        plan, restarts = evaluation.plan, evaluation.restart
        separate_plan = SeparatePlan(
            rivals=plan.rivals,
            load=plan.load,
            loaded=True,
            for_s=plan.for_s,
            seed=plan.seed,
            lengths=separate_lengths(self._block_s, restart=restarts),
            objective=plan.objective,
            a_in_force=False,
            most_pairs=plan.most_pairs,
            around_s=_around_s(restart=restarts),
        )
        control, machine, settings = self._session.live.parameters, self._machine, evaluation.settings
        setter = self._setter if restarts else control
        arms = (CheckedArms if restarts else Arms)(
            ChangeSets(setter, machine),
            control,
            evaluation.parameters,
            frozenset(),
            None if machine is None or not settings else RivalSettings(machine, settings),
            setter,
        )
        return SeparateBlocks(
            separate_plan,
            evaluation.frames,
            arms,
            self._loads,
            self.answers,
            partial(restart, self._service) if restarts else None,
            evaluation.take_state,
            self._own_cycles if plan.by_checkpoints else None,
        )


# Evaluations.

_LONGEST_S: Final = 1800.0
"""Longest evaluation."""
_WATCHDOG_S: Final = 180.0
_SWITCHES_S: Final = 15.0
"""Time of an evaluation beside its blocks: checks of both arms, changes."""


def lengths(block_s: float) -> Lengths:
    """Return the lengths of a block in one run; up to half of its measured time, at most 5 s, is left out before it."""
    return Lengths(settle_s=min(SETTLE_S, block_s / 2.0), measured_s=block_s)


def cost_s(block_s: float, knobs: Collection[str], *, loaded: bool) -> float:
    """Return the assumed time of the longest evaluation without a restart."""
    by_checkpoints = loaded and not BY_CHECKPOINTS.isdisjoint(knobs)
    pair_s = own_pair_s(cycle_of(block_s)) if by_checkpoints else lengths(block_s).pair_s
    return _SWITCHES_S + FEWEST_PAIRS * pair_s


def cycle_of(block_s: float) -> float:
    """Return the length of a block between two CHECKPOINTs: as long as one with a load of its own."""
    return separate_lengths(block_s, restart=False).measured_s


async def until_nothing_pends(control: ChangeControl | MachineControl) -> None:
    """Wait for the revert watchdogs of a killed search. Raises UsageProblem where a change stays pending."""
    deadline_s = time.monotonic() + _WATCHDOG_S
    while True:
        try:
            await check_nothing_pending(control)
            return
        except UsageProblem:
            if time.monotonic() > deadline_s:
                raise
        await asyncio.sleep(1.0)


@asynccontextmanager
async def evaluator_of(
    session: TuningSession,
    plan: TuningPlan,
    block_s: float,
    *,
    yes: bool,
    before_set: Callable[[str], None],
    take: TakeState,
) -> AsyncIterator[Evaluator]:
    """Yield the evaluator of a search; close its control of the machine at the end.

    Args:
        block_s: Length of a block in one run.
        yes: Ask for no restarts.
        before_set: Takes the id of a change set before it is made.
        take: Takes each state of an evaluation.

    Raises:
        UsageProblem: A change is pending confirmation, or there is no terminal to ask on.
        ServerProblem: The server cannot be restarted from here, or the operator does not say yes.
        HostProblem: Settings of the machine cannot be changed from here.
    """
    async with _machine(session, plan) as machine:
        own_blocks, own_cycles = None, await _own_cycles(session, plan, block_s)
        if any(knob.separate for knob in plan.space.dimensions):
            settings = frozenset(knob.name for knob in plan.space.dimensions if knob.machine)
            own_blocks = SeparateEvaluations(session, machine, settings, before_set, block_s, own_cycles)
        if own_blocks is not None and any(knob.restart for knob in plan.space.dimensions):
            await own_blocks.agree(plan.space.values(plan.space.start), yes=yes)
        parts = EvaluatingParts(
            control=session.live.parameters,
            load=session.load,
            blocks=session.blocks,
            own_blocks=own_blocks,
            machine=machine,
            take_state=take,
            before_set=before_set,
            own_cycles=own_cycles,
        )
        yield Evaluator(parts, plan.space, session.objective, session.load_words, lengths(block_s), _LONGEST_S)


async def _own_cycles(session: TuningSession, plan: TuningPlan, block_s: float) -> OwnCycles | None:
    """Return cycles between our own CHECKPOINTs.

    None where no knob works through checkpoints, another program drives the load, or the role may not CHECKPOINT.
    """
    if session.cell is None or BY_CHECKPOINTS.isdisjoint(knob.name for knob in plan.space.dimensions):
        return None
    try:
        await session.checkpoint()
    except ServerProblem as refused:
        tell(f"CHECKPOINT was refused, so blocks wait for the server's own checkpoints: {refused.message}")
        return None
    return OwnCycles(cycle_of(block_s), session.checkpoint)


@asynccontextmanager
async def _machine(session: TuningSession, plan: TuningPlan) -> AsyncIterator[MachineControl | None]:
    """Yield the control of the machine's settings that the search changes; None where it changes none.

    Raises:
        UsageProblem: A change of a setting is pending confirmation.
        HostProblem: A setting cannot be changed from here.
    """
    settings = {knob.name for knob in plan.space.dimensions if knob.machine}
    if not settings:
        yield None
        return
    with_restart = any(knob.restart for knob in plan.space.dimensions)
    machine = await machine_of(session.conninfo, sorted(settings), beside_server=True, with_restart=with_restart)
    async with aclosing(machine):
        await until_nothing_pends(machine)
        for name, setting in sorted(by_name(await machine.settings()).items()):
            if name in settings and not setting.writable:
                raise HostProblem(f"this process cannot write {name}", "run this command as root")
        yield machine


# A search before its first evaluation.

_LONGEST_CYCLE_S: Final = 60.0
"""Longest checkpoint cycle at which knobs that work through checkpoints are searched without being named."""


class SearchRequest(Struct, frozen=True, kw_only=True):
    """A search.

    Attributes:
        knobs, groups: Words of the command line.
        budget_s: Time of all evaluations.
        request: The part that resuming needs.
        engine: Name of the search engine.
        worth: The smallest effect worth having, as a share.
        seed: None draws one.
    """

    knobs: tuple[str, ...]
    groups: tuple[str, ...]
    budget_s: float
    request: TuningRequest
    engine: str
    worth: float
    seed: int | None

    def check(self) -> None:
        """Raise UsageProblem for a wrong knob, group, constraint or engine; ask no server."""
        wanted_knobs(self.knobs, self.groups)
        for text in self.request.constraints:
            constraint(text)
        engine(self.engine)


class Beginning(Struct, frozen=True, kw_only=True):
    """The first line of a journal.

    Attributes:
        server: System identifier; "" where unknown.
        request: With the values of the profile.
        left_out: Knobs that cannot be searched on this server, with reasons.
    """

    server: str
    request: TuningRequest
    plan: TuningPlan
    guards: Guards
    left_out: tuple[tuple[str, str], ...]


def objective_of(request: TuningRequest) -> Objective | None:
    """Return the objective; None where another program drives the load, whose mix of statements decides."""
    return objective(request.objective, request.rate_per_s) if request.profile else None


async def server_space(session: TuningSession, search: SearchRequest) -> tuple[Mapping[str, Parameter], KnobSpace]:
    """Return the parameters of the server, and the knobs among them that may be searched, before any value is tried."""
    knobs = wanted_knobs(search.knobs, search.groups)
    parameters = await session.parameters((*GUARDED, *PARAMETERS, *(knob.name for knob in knobs)))
    return parameters, knob_space(
        knobs, parameters, allow_restart=search.request.allow_restart, by_name=bool(search.knobs)
    )


async def machine_knobs(
    session: TuningSession, search: SearchRequest, parameters: Mapping[str, Parameter]
) -> KnobSpace:
    """Return the settings of the machine that may be searched; none where none is asked for."""
    if not _of_machine(search):
        return KnobSpace((), ())
    return machine_space(
        search.knobs,
        search.groups,
        await session.live.machine.settings(),
        parameters,
        None if session.facts is None else session.facts.ram_bytes,
        own_load=session.cell is not None,
        allow_restart=search.request.allow_restart,
    )


def _of_machine(search: SearchRequest) -> bool:
    return any(map(is_machine_knob, search.knobs)) or any(map(is_machine_group, search.groups))


async def beginning(session: TuningSession, search: SearchRequest) -> Beginning:
    """Return the plan, after a look at the server under the load, which goes on.

    Raises:
        UsageProblem: No knob can be searched.
        PgtopError: The load does not run, or the server is gone.
    """
    request = search.request
    parameters, space = await server_space(session, search)
    space = await session.without_refused(space)
    if _of_machine(search) or space.dimensions:
        interval = await session.loaded_interval()
        if session.cell is None:
            space = _without_long_cycles(space, interval, search.knobs)
    space = space.beside(await machine_knobs(session, search, parameters))
    if not space.dimensions:
        raise UsageProblem(
            "no knob is left to search", "; ".join(f"{name}: {reason}" for name, reason in space.left_out[:5])
        )
    plan = TuningPlan(
        space=Space(space.dimensions),
        budget=search.budget_s,
        cost=cost_s(request.block_s, [knob.name for knob in space.dimensions], loaded=session.cell is not None),
        restart_cost=separate_cost_s(request.block_s, restart=True),
        machine_cost=separate_cost_s(request.block_s, restart=False),
        seed=random.SystemRandom().getrandbits(31) if search.seed is None else search.seed,
        engine=search.engine,
        worth=search.worth,
        constraints=tuple(map(constraint, request.constraints)),
        predictions=_predictions(space.dimensions, interval, session.objective),
    )
    return Beginning(
        server=session.system_identifier(),
        request=session.completed(request),
        plan=plan,
        guards=session.guards(parameters, [knob.name for knob in space.dimensions], request.recovery_s),
        left_out=space.left_out,
    )


def _without_long_cycles(space: KnobSpace, interval: Interval, named: Sequence[str]) -> KnobSpace:
    """Leave out knobs that work through checkpoints far apart: one evaluation would take hours."""
    cycle = cycle_s(interval, {})
    if cycle is None or cycle <= _LONGEST_CYCLE_S:
        return space
    minutes = FEWEST_PAIRS * CYCLES_PER_PAIR * cycle / 60.0
    reason = (
        f"checkpoints are {cycle:.0f} s apart: an evaluation takes {minutes:.0f} min; name it in --knobs to search it"
    )
    slow = {knob.name: reason for knob in space.dimensions if knob.name in BY_CHECKPOINTS and knob.name not in named}
    return _without(space, slow)


def _without(space: KnobSpace, left_out: Mapping[str, str]) -> KnobSpace:
    """Return a space without knobs, whose reasons are noted."""
    dimensions = tuple(knob for knob in space.dimensions if knob.name not in left_out)
    return KnobSpace(dimensions, (*space.left_out, *left_out.items()))


def _predictions(
    dimensions: Sequence[Dimension], interval: Interval, objective: Objective | None
) -> dict[str, Prediction]:
    """Return the upper bound of each knob's effect from the waits of the load; WAL and CPU time have no bound."""
    if objective is not None and not objective.bounded:
        return {}
    predictions = ((knob.name, predict(interval, [knob.name], [("", "")], (), "")) for knob in dimensions)
    return {name: prediction for name, prediction in predictions if prediction is not None}


_SHOWN_LOAD_S: Final = 25.0
"""Seconds of the load before the first evaluation, which show its waits and its WAL."""
_FIRST_S: Final = 90.0
_RUNS_S: Final = 5
"""Seconds in a row with transactions after which the load of another program runs again."""
_CHECKED_S: Final = 60.0


class TuningSession:
    """The parts of a search that outlive an evaluation.

    Args:
        live: The session that watches and changes the server.
        options: Options of `live`.
        cell: The load; None where another program drives it.
        objective: None decides by the same mix of statements.

    Attributes:
        load: Held between evaluations.
        blocks: Frames as blocks.
        facts: Facts of server and machine under the load; None before the load.
    """

    def __init__(
        self,
        conninfo: ConnInfo,
        live: LiveSession,
        options: LiveOptions,
        cell: RunCell | None,
        objective: Objective | None,
    ) -> None:
        self.conninfo = conninfo
        self.live = live
        self.journal_directory = options.journal_directory
        self.cell = cell
        self.objective = objective
        self.keeper = FrameKeeper()
        self.blocks = CurrentBlocks(loaded=cell is not None)
        self.run = LoadRun(live.load, self.keeper, live.open_sql_session, _tell_rarely, restarts=True)
        live.load.prepare = None
        live.engine.attach(self.keeper)
        live.engine.attach(self.blocks)
        load = ForeignLoad() if cell is None else OwnLoad(self.run, live.load, cell)
        self.load = HeldLoad(load)
        self.facts: AdviceFacts | None = None

    @property
    def objective_words(self) -> str:
        """Return the objective for messages."""
        return SAME_MIX_WORDS if self.objective is None else self.objective.typed

    @property
    def load_words(self) -> str:
        """Return the load for records."""
        if self.cell is None:
            return "of the server as it is"
        return f"{self.cell.load_name} -c {self.cell.spec.clients} -M {self.cell.spec.protocol}"

    def completed(self, request: TuningRequest) -> TuningRequest:
        """Return the request with the values of the profile."""
        if self.cell is None:
            return request
        spec = self.cell.spec
        return replace(request, clients=spec.clients, protocol=spec.protocol, rate_per_s=spec.rate_per_s)

    async def parameters(self, names: Iterable[str]) -> Mapping[str, Parameter]:
        """Return the parameters that the server has, by name."""
        listed = await self.live.parameters.list(tuple(dict.fromkeys(names)))
        return {parameter.name: parameter for parameter in listed}

    def system_identifier(self) -> str:
        """Return the system identifier of the server; "" where the role may not see it."""
        key = server_of(self.keeper.frames[-1])
        return "" if key is None else key.system_identifier

    async def without_refused(self, space: KnobSpace) -> KnobSpace:
        """Leave out knobs that this role may not set, or that do not reach sessions of the load.

        Each knob is set for a moment to a value beside the one in force; those that need separate blocks are not.

        Raises:
            ConnectionProblem: The server is gone.
        """
        control, refused = self.live.parameters, dict[str, str]()
        for knob in space.dimensions:
            if knob.separate:
                continue
            beside = knob.levels[knob.start + 1 if knob.start + 1 < len(knob.levels) else knob.start - 1]
            rival = Rival(knob.name, knob.levels[knob.start], beside)
            try:
                await Arms(ChangeSets(control, None), control, (rival,), frozenset()).check(_CHECKED_S)
            except ConnectionProblem:
                raise
            except PgtopError as problem:
                refused[knob.name] = problem.message
        return _without(space, refused)

    async def loaded_interval(self) -> Interval:
        """Start the load, which goes on, and return frames of it.

        Raises:
            LoadProblem: The load does not run.
        """
        await self.load.start()
        frames = self.blocks.frames
        frames.begin()
        ran = await frames.until(lambda: len(frames.tps) >= _SHOWN_LOAD_S and self._facts() is not None, _FIRST_S)
        if ran and self.cell is None and idle(median(frames.tps), self._clients()):
            raise LoadProblem("no client is connected, so there is no load to search under", "start the load first")
        if not ran:
            reason = "the server does not report its parameters in time" if any(frames.tps) else "no transaction ended"
            raise LoadProblem(frames.trouble or reason, "run `pgtop-tune bench run` to see the reason")
        frames.end()
        self.keeper.rest()
        interval = frames.interval
        assert interval is not None
        self.facts = self.facts or self._facts()
        return interval

    def _facts(self) -> AdviceFacts | None:
        """Return the facts in the newest frames; None where some are missing, as on a busy machine."""
        interval = self.blocks.frames.interval
        return None if interval is None else facts_of(interval, Beside())

    async def until_load_changes(self) -> str:
        """Wait until the load of another program changes, and return how."""
        before: LoadShape | None = None
        looks: list[LoadShape] = []
        frames = self.blocks.renewed()
        while True:
            await frames.until(lambda: False, WINDOW_S)
            shape = None if frames.interval is None else load_shape(frames.interval)
            if shape is None:
                continue
            if before is None:
                before = shape
                continue
            looks = [*looks[1 - LOOKS :], shape]
            if change := change_of(before, looks):
                return change

    async def load_runs(self, timeout_s: float) -> bool:
        """See `RunParts.load_runs`."""
        frames = self.blocks.renewed()
        frames.begin()
        return await frames.until(
            lambda: len(frames.tps) >= _RUNS_S and not idle(median(frames.tps[-_RUNS_S:]), self._clients()), timeout_s
        )

    def _clients(self) -> float | None:
        """Return the number of connected clients without ours; None where unknown."""
        interval = self.blocks.frames.interval
        activity = None if interval is None else interval.now(sections.activity)
        return None if activity is None else float(len(client_backends(activity)))

    async def answers(self) -> None:
        """See `RunParts.answers`."""
        await until_frames_show_it(self.live.open_sql_session, self.keeper)

    async def free_bytes(self) -> int | None:
        """See `RunParts.free_bytes`."""
        async with aclosing(await self.live.open_sql_session()) as sql_session:
            return await available_bytes(sql_session)

    async def checkpoint(self) -> None:
        """Make a checkpoint.

        Raises:
            ServerProblem: The role may not.
            ConnectionProblem: The server is gone.
        """
        async with aclosing(await self.live.open_sql_session()) as sql_session:
            await sql_session.execute("CHECKPOINT")

    def guards(self, parameters: Mapping[str, Parameter], names: Sequence[str], recovery_s: float) -> Guards:
        """Return the limits of this server and its machine.

        Raises:
            ConnectionProblem: The frames lack the facts.
        """
        facts = self.facts
        if facts is None:
            raise ConnectionProblem("the server did not report its parameters")
        return Guards(
            major=facts.major,
            parameters={name: parameters[name] for name in (*GUARDED, *names) if name in parameters},
            ram_bytes=facts.ram_bytes,
            wal_room_bytes=facts.wal_disk_bytes,
            recovery_s=recovery_s,
        )


def _tell_rarely(message: str) -> None:
    """Tell all but the steps before each block, which would hide the lines of the search."""
    if not message.startswith("housekeeping: "):
        tell(message)


async def opened_session(
    connection: ConnectionWords, request: TuningRequest, live: LiveOptions, profiles_directory: Path | None
) -> TuningSession:
    """Return a session on the server of the options; its load is not started.

    Raises:
        PgtopError: There is no such server, or no such profile.
    """
    directories = profile_directories(profiles_directory)
    async with opened(connection) as (sql_session, conninfo):
        load_targets = await targets((), sql_session, conninfo, from_here=not live.load_from)
        reached = sql_session.reached
    session = LiveSession(conninfo, live, reached)
    session.watch_others()
    session.load.directories = directories
    decides = objective_of(request)
    if decides is None:
        return TuningSession(conninfo, session, live, None, None)
    profile = load_profiles(directories).get(request.profile)
    spec = replace(request.further, threads=request.threads, rate_per_s=decides.rate)
    clients, protocol = request.clients or None, request.protocol or None
    shell = request.allow_shell
    [cell, *_] = cells(load_targets, [profile], spec, None, clients=clients, protocol=protocol, allow_shell=shell)
    return TuningSession(conninfo, session, live, cell, decides)
