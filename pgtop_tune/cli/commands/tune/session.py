"""The watched server and the load of a search: what `tune` makes before its first evaluation."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from statistics import median
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from pgtop_tune.advice.facts import AdviceFacts
from pgtop_tune.advice.gather import Beside, facts_of
from pgtop_tune.base.errors import ConnectionProblem, HostProblem, LoadProblem, PgtopError, ServerProblem, UsageProblem
from pgtop_tune.base.units import counted
from pgtop_tune.bench.datasets.pgbench_tables import look_for_room
from pgtop_tune.bench.profiles import load_profiles, profile_directories
from pgtop_tune.changes.change_sets import ChangeSets, WithRestart, check_up
from pgtop_tune.changes.model.change import Terms
from pgtop_tune.changes.ports import ChangeControl, MachineControl
from pgtop_tune.cli.changing import confirm, machine_of
from pgtop_tune.cli.connecting import ConnectionWords, opened
from pgtop_tune.cli.live_options import LiveOptions
from pgtop_tune.cli.load_targets import targets
from pgtop_tune.cli.output import tell
from pgtop_tune.cli.wiring import LiveSession, free_bytes_for
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
from pgtop_tune.model.bench import LoadSpec
from pgtop_tune.model.postgres import Parameter
from pgtop_tune.postgres.server.conninfo import ConnInfo
from pgtop_tune.runtime.run_frames import FrameKeeper
from pgtop_tune.runtime.running_experiments import server_of
from pgtop_tune.tuning.engines import engine
from pgtop_tune.tuning.on_server.conditions import LOOKS, WINDOW_S, LoadShape, change_of, idle, load_shape
from pgtop_tune.tuning.on_server.evaluating import (
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
from pgtop_tune.tuning.plan import Dimension, KnobSpace, Space, TuningPlan

# What a search measures in blocks of their own: consent to restarts, what stands in force behind one, the blocks.

_RESTARTED_S: Final = 15.0
_PREPARED_S: Final = 5.0
_BLOCKS: Final = 8


def separate_lengths(block_s: float, *, restart: bool) -> Lengths:
    """Of a block with a load of its own: 30 s that count where a block of one run counts 10 s, behind 10 s to warm up,
    or 20 s after a restart."""
    return Lengths(settle_s=(2.0 if restart else 1.0) * block_s, measured_s=3.0 * block_s)


def separate_cost_s(block_s: float, *, restart: bool) -> float:
    """What an evaluation takes, as assumed before the first."""
    lengths = separate_lengths(block_s, restart=restart)
    return _BLOCKS * (_around_s(restart=restart) + lengths.settle_s + lengths.measured_s)


def _around_s(*, restart: bool) -> float:
    return _RESTARTED_S if restart else _PREPARED_S


class OwnBlocks:
    """Fits `tuning.evaluating_parts.OwnBlocks`.

    Args:
        session: The watched server.
        machine: Settings of the operating system; None where none is among the knobs.
        settings: Their names.
        run, cell: The load.
        keeper: Frames.
        before_set: Told the id of a change set before it is made.
        block_s: Of a block in one run.
        own_cycles: Of knobs that work through checkpoints; None for those of the server.

    Raises:
        UsageProblem: Another program drives the load: the load would not survive a restart, and has no blocks.
    """

    def __init__(
        self,
        session: LiveSession,
        machine: MachineControl | None,
        settings: frozenset[str],
        run: LoadRun,
        keeper: FrameKeeper,
        cell: RunCell | None,
        before_set: Callable[[str], None],
        block_s: float,
        own_cycles: OwnCycles | None,
    ) -> None:
        self._block_s: Final = block_s
        self._own_cycles: Final = own_cycles
        if cell is None:
            raise UsageProblem(
                "a load that another program drives does not survive a restart", "leave --allow-restart out"
            )
        self._session: Final = session
        self._machine: Final = machine
        self._keeper: Final = keeper
        self._door: Final = WithRestart(session.parameters, session.restart, tell, anyway=False)
        self._loads: Final = ArmLoads(run, session.load, dict.fromkeys(Arm, cell))
        self.standing: Final = StandingValues(self._door, before_set, "tune:", machine, settings)

    async def agree(self, start: Mapping[str, str], *, yes: bool) -> None:
        """Confirms the restarts with the operator; makes one at once where a kill left a value of the search in force.

        Args:
            start: Values of the knobs before the search.

        Raises:
            UsageProblem: Something waits for a restart already, or nobody can be asked.
            ServerProblem: The server cannot be restarted from here, or nobody says yes.
        """
        plan = await self._session.restart.plan()
        left = [each.name for each in plan.pending if start.get(each.name) == each.after]
        if others := ", ".join(each.name for each in plan.pending if each.name not in left):
            raise UsageProblem(
                f"{others} waits for a restart already, which would apply it", "`pgtop-tune set --restart` first"
            )
        if not plan.by_us:
            raise ServerProblem(f"pgtop-tune cannot restart the server: {plan.why_not}", "leave --allow-restart out")
        tell(f"the server is restarted many times; a restart ends {counted(plan.sessions, 'session')} now")
        confirm(plan, yes=yes, anyway=False)
        if left:
            tell(f"{', '.join(left)}: a value of the search is in force until a restart, which is made now")
            await self._restart()

    async def answers(self) -> None:
        """See `tuning.evaluating_parts.OwnBlocks.answers`."""
        await until_frames_show_it(self._session.open_sql_session, self._keeper)

    def experiment(self, wanted: SeparateWanted) -> Switchback:
        """See `tuning.evaluating_parts.OwnBlocks.experiment`."""
        plan, restart = wanted.plan, wanted.restart
        meant = SeparatePlan(
            rivals=plan.rivals,
            load=plan.load,
            loaded=True,
            for_s=plan.for_s,
            seed=plan.seed,
            lengths=separate_lengths(self._block_s, restart=restart),
            objective=plan.objective,
            a_in_force=False,
            most_pairs=plan.most_pairs,
            around_s=_around_s(restart=restart),
        )
        control = self._session.parameters
        door = self._door if restart else control
        machine, settings = self._machine, wanted.settings
        of_machine = None if machine is None or not settings else RivalSettings(machine, settings)
        kind = CheckedArms if restart else Arms
        arms = kind(ChangeSets(door, machine), control, wanted.parameters, frozenset(), of_machine, door)
        restarts = self._restart if restart else None
        own_cycles = self._own_cycles if plan.by_checkpoints else None
        return SeparateBlocks(
            meant, wanted.frames, arms, self._loads, self.answers, restarts, wanted.take_state, own_cycles
        )

    async def _restart(self) -> None:
        outcome = await self._session.restart.apply((), Terms(), tell)
        check_up(outcome)
        tell(outcome.words)


# What measures the evaluations of a search: blocks, the load, and the doors to the server and its machine.

_LONGEST_S: Final = 1800.0
"""Of one evaluation."""
_WATCHDOG_S: Final = 180.0
_SWITCHES_S: Final = 15.0
"""Of an evaluation, beside its blocks: checks of both arms, changes."""


def lengths(block_s: float) -> Lengths:
    """Of a block that measures so long; half of that is left out before it, five seconds at most."""
    return Lengths(settle_s=min(SETTLE_S, block_s / 2.0), measured_s=block_s)


def cost_s(block_s: float, knobs: Collection[str], *, loaded: bool) -> float:
    """What an evaluation without a restart takes, as assumed before the first: the longest of those that can come."""
    by_checkpoints = loaded and not BY_CHECKPOINTS.isdisjoint(knobs)
    pair_s = own_pair_s(cycle_of(block_s)) if by_checkpoints else lengths(block_s).pair_s
    return _SWITCHES_S + FEWEST_PAIRS * pair_s


def cycle_of(block_s: float) -> float:
    """Of a block that lies between two CHECKPOINTs, as long as one with a load of its own."""
    return separate_lengths(block_s, restart=False).measured_s


async def until_nothing_pends(control: ChangeControl | MachineControl) -> None:
    """Waits for revert watchdogs of a search that was killed. Raises a UsageProblem where a change goes on pending."""
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
    take_state: TakeState,
) -> AsyncIterator[Evaluator]:
    """What measures; its door to the machine is closed on the way out.

    Args:
        session: With the load.
        plan: Of the search.
        block_s: Of a block in one run.
        yes: Nobody is asked before restarts.
        before_set: Told the id of a change set before it is made.
        take_state: Takes each state of an evaluation.

    Raises:
        UsageProblem: A change is pending confirmation, or nobody can be asked.
        ServerProblem: The server cannot be restarted from here, or nobody says yes.
        HostProblem: Settings of the machine cannot be changed from here.
    """
    async with _machine(session, plan) as machine:
        own_blocks, own_cycles = None, await _own_cycles(session, plan, block_s)
        if any(each.separate for each in plan.space.dimensions):
            settings = frozenset(each.name for each in plan.space.dimensions if each.machine)
            own_blocks = OwnBlocks(
                session.live,
                machine,
                settings,
                session.run,
                session.keeper,
                session.cell,
                before_set,
                block_s,
                own_cycles,
            )
        if own_blocks is not None and any(each.restart for each in plan.space.dimensions):
            await own_blocks.agree(plan.space.values(plan.space.start), yes=yes)
        parts = EvaluatingParts(
            control=session.live.parameters,
            load=session.load,
            blocks=session.blocks,
            own_blocks=own_blocks,
            machine=machine,
            take_state=take_state,
            before_set=before_set,
            own_cycles=own_cycles,
        )
        yield Evaluator(parts, plan.space, session.objective, session.load_words, lengths(block_s), _LONGEST_S)


async def _own_cycles(session: TuningSession, plan: TuningPlan, block_s: float) -> OwnCycles | None:
    """None where no knob works through checkpoints, another program drives the load, or the role may not CHECKPOINT."""
    if session.cell is None or BY_CHECKPOINTS.isdisjoint(each.name for each in plan.space.dimensions):
        return None
    try:
        await session.checkpoint()
    except ServerProblem as refused:
        tell(f"blocks wait for checkpoints of the server: {refused.message}")
        return None
    return OwnCycles(cycle_of(block_s), session.checkpoint)


@asynccontextmanager
async def _machine(session: TuningSession, plan: TuningPlan) -> AsyncIterator[MachineControl | None]:
    """The door to the settings of the machine that the search turns; None where it turns none.

    Raises:
        UsageProblem: A change of one is pending confirmation.
        HostProblem: They cannot be changed from here.
    """
    settings = {each.name for each in plan.space.dimensions if each.machine}
    if not settings:
        yield None
        return
    with_restart = any(each.restart for each in plan.space.dimensions)
    machine = await machine_of(session.conninfo, sorted(settings), beside_server=True, with_restart=with_restart)
    try:
        await until_nothing_pends(machine)
        closed = [name for name, each in by_name(await machine.settings()).items() if not each.writable]
        if closed := sorted(settings.intersection(closed)):
            raise HostProblem(f"{closed[0]} cannot be written by this process", "run this as root")
        yield machine
    finally:
        await machine.aclose()


# A search before its first evaluation: what was asked for, as a plan for the server and its load.

_LONGEST_CYCLE_S: Final = 60.0
"""Above, knobs that work through checkpoints are searched only where they are named."""


class SearchRequest(Struct, frozen=True, kw_only=True):
    """What is to be searched.

    Attributes:
        knobs, groups: As typed.
        budget_s: Of all evaluations.
        request: What resuming needs of the rest.
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
        """Raises UsageProblem for a knob, a group, a constraint or an engine that is none; asks no server."""
        wanted_knobs(self.knobs, self.groups)
        for words in self.request.constraints:
            constraint(words)
        engine(self.engine)


class Beginning(Struct, frozen=True, kw_only=True):
    """The first line of a journal.

    Attributes:
        server: System identifier; "" where it was not to be seen.
        request: With what the profile has filled in.
        left_out: Knobs that cannot be searched on this server, with reasons.
    """

    server: str
    request: TuningRequest
    plan: TuningPlan
    guards: Guards
    left_out: tuple[tuple[str, str], ...]


def objective_of(request: TuningRequest) -> Objective | None:
    """None where another program drives the load: the mix of statements decides."""
    return objective(request.objective, request.rate_per_s) if request.profile else None


async def beginning(session: TuningSession, wanted: SearchRequest) -> Beginning:
    """The plan, after a look at the server under the load, which goes on.

    Raises:
        UsageProblem: No knob can be searched.
        PgtopError: The load does not run, or the server is gone.
    """
    request, knobs = wanted.request, wanted_knobs(wanted.knobs, wanted.groups)
    of_machine = any(map(is_machine_knob, wanted.knobs)) or any(map(is_machine_group, wanted.groups))
    found = await session.parameters((*GUARDED, *PARAMETERS, *(knob.name for knob in knobs)))
    space = knob_space(knobs, found, allow_restart=request.allow_restart, by_name=bool(wanted.knobs))
    space = await session.without_refused(space)
    if of_machine or space.dimensions:
        interval = await session.loaded_interval()
        if session.cell is None:
            space = _without_long_cycles(space, interval, wanted.knobs)
    if of_machine:
        space = space.beside(
            machine_space(
                wanted.knobs,
                wanted.groups,
                await session.live.machine.settings(),
                found,
                None if session.facts is None else session.facts.ram_bytes,
                own_load=session.cell is not None,
                allow_restart=request.allow_restart,
            )
        )
    if not space.dimensions:
        raise UsageProblem(
            "there is no knob to search", "; ".join(f"{name}: {why}" for name, why in space.left_out[:5])
        )
    plan = TuningPlan(
        space=Space(space.dimensions),
        budget=wanted.budget_s,
        cost=cost_s(request.block_s, [each.name for each in space.dimensions], loaded=session.cell is not None),
        restart_cost=separate_cost_s(request.block_s, restart=True),
        machine_cost=separate_cost_s(request.block_s, restart=False),
        seed=random.SystemRandom().getrandbits(31) if wanted.seed is None else wanted.seed,
        engine=wanted.engine,
        worth=wanted.worth,
        constraints=tuple(constraint(words) for words in request.constraints),
        predictions=_predictions(space.dimensions, interval, session.objective),
    )
    return Beginning(
        server=session.system_identifier(),
        request=session.asked(request),
        plan=plan,
        guards=session.guards(found, [each.name for each in space.dimensions], request.recovery_s),
        left_out=space.left_out,
    )


def _without_long_cycles(space: KnobSpace, interval: Interval, named: Sequence[str]) -> KnobSpace:
    """Without the knobs of which one evaluation would take hours: those that work through checkpoints far apart."""
    cycle = cycle_s(interval, {})
    if cycle is None or cycle <= _LONGEST_CYCLE_S:
        return space
    minutes = FEWEST_PAIRS * CYCLES_PER_PAIR * cycle / 60.0
    why = f"checkpoints are {cycle:.0f} s apart, so an evaluation takes {minutes:.0f} minutes; --knobs searches it"
    long = [each for each in space.dimensions if each.name in BY_CHECKPOINTS and each.name not in named]
    kept = tuple(each for each in space.dimensions if each not in long)
    return KnobSpace(kept, (*space.left_out, *((each.name, why) for each in long)))


def _predictions(
    dimensions: Sequence[Dimension], interval: Interval, decides: Objective | None
) -> dict[str, Prediction]:
    """What each knob alone can bring at most, as far as the waits of this load tell; WAL or CPU time have no bound."""
    if decides is not None and not decides.bounded:
        return {}
    told = {each.name: predict(interval, [each.name], [("", "")], (), "") for each in dimensions}
    return {name: found for name, found in told.items() if found is not None}


_SHOWN_LOAD_S: Final = 25.0
"""Of the load before the first evaluation: what its waits and its WAL are."""
_FIRST_S: Final = 90.0
_RUNS_S: Final = 5
"""Seconds in a row with transactions, after which a load of another program is taken to run again."""
_CHECKED_S: Final = 60.0


class TuningSession:
    """The parts of a search that outlive an evaluation.

    Args:
        conninfo: The server.
        live: Watches and changes it.
        options: It was made with.
        cell: The load; None where another program drives it.
        objective: What decides; None where the same mix of statements does.

    Attributes:
        load: Held between evaluations.
        blocks: Frames as blocks.
        facts: Of server and machine under the load before the first evaluation; None before.
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
    def load_words(self) -> str:
        """For records."""
        if self.cell is None:
            return "of the server as it is"
        return f"{self.cell.profile_name or 'scripts'} -c {self.cell.spec.clients} -M {self.cell.spec.protocol}"

    def asked(self, request: TuningRequest) -> TuningRequest:
        """The request with what the profile has filled in."""
        if self.cell is None:
            return request
        spec = self.cell.spec
        return replace(request, clients=spec.clients, protocol=spec.protocol, rate_per_s=spec.rate_per_s)

    async def parameters(self, names: Iterable[str]) -> Mapping[str, Parameter]:
        """Those that the server has, by name."""
        return {each.name: each for each in await self.live.parameters.list(tuple(dict.fromkeys(names)))}

    def system_identifier(self) -> str:
        """Of the server; "" where the role may not see it."""
        key = server_of(self.keeper.frames[-1])
        return "" if key is None else key.system_identifier

    async def without_refused(self, space: KnobSpace) -> KnobSpace:
        """Without the knobs that the server does not let us set, or that do not reach sessions of the load.

        Each is set for a moment to the value beside the one in force; those that need blocks of their own are not.

        Raises:
            ConnectionProblem: The server is gone.
        """
        control, refused = self.live.parameters, dict[str, str]()
        for each in space.dimensions:
            if each.separate:
                continue
            beside = each.levels[each.start + 1 if each.start + 1 < len(each.levels) else each.start - 1]
            rival = Rival(each.name, each.levels[each.start], beside)
            try:
                await Arms(ChangeSets(control, None), control, (rival,), frozenset()).check(_CHECKED_S)
            except ConnectionProblem:
                raise
            except PgtopError as problem:
                refused[each.name] = problem.message
        kept = tuple(each for each in space.dimensions if each.name not in refused)
        return KnobSpace(kept, (*space.left_out, *refused.items()))

    async def loaded_interval(self) -> Interval:
        """Frames of the load: it is started here, and goes on.

        Raises:
            LoadProblem: It does not run.
        """
        await self.load.start()
        frames = self.blocks.frames
        frames.begin()
        ran = await frames.until(lambda: len(frames.tps) >= _SHOWN_LOAD_S and self._facts() is not None, _FIRST_S)
        if ran and self.cell is None and idle(median(frames.tps), self._clients()):
            raise LoadProblem("no client is connected: there is no load to search under", "start it first")
        if not ran:
            why = "the server does not report its parameters in time" if any(frames.tps) else "no transaction ended"
            raise LoadProblem(frames.trouble or why, "`pgtop-tune bench run` shows why")
        frames.end()
        self.keeper.rest()
        interval = frames.interval
        assert interval is not None
        self.facts = self.facts or self._facts()
        return interval

    def _facts(self) -> AdviceFacts | None:
        """Of the newest frames; None where they do not tell, as on a busy machine."""
        interval = self.blocks.frames.interval
        return None if interval is None else facts_of(interval, Beside())

    async def until_load_changes(self) -> str:
        """Waits until the load of another program has become another one; how, in words."""
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
        """Connected now, without ours; None where nobody looked."""
        interval = self.blocks.frames.interval
        activity = None if interval is None else interval.now(sections.activity)
        return None if activity is None else float(len(client_backends(activity)))

    async def answers(self) -> None:
        """See `RunParts.answers`."""
        await until_frames_show_it(self.live.open_sql_session, self.keeper)

    async def free_bytes(self) -> int | None:
        """See `RunParts.free_bytes`."""
        sql_session = await self.live.open_sql_session()
        try:
            room = await look_for_room(sql_session, 1, 0, await free_bytes_for(sql_session))
        finally:
            await sql_session.aclose()
        return room.available_bytes

    async def checkpoint(self) -> None:
        """Makes one.

        Raises:
            ServerProblem: The role may not.
            ConnectionProblem: The server is gone.
        """
        sql_session = await self.live.open_sql_session()
        try:
            await sql_session.execute("CHECKPOINT")
        finally:
            await sql_session.aclose()

    def guards(self, found: Mapping[str, Parameter], names: Sequence[str], recovery_s: float) -> Guards:
        """Limits of this server and its machine.

        Raises:
            ConnectionProblem: Its frames do not tell what it is.
        """
        facts = self.facts
        if facts is None:
            raise ConnectionProblem("the server did not report its parameters")
        return Guards(
            major=facts.major,
            parameters={name: found[name] for name in (*GUARDED, *names) if name in found},
            ram_bytes=facts.ram_bytes,
            wal_room_bytes=facts.wal_disk_bytes,
            recovery_s=recovery_s,
        )


def _tell_rarely(words: str) -> None:
    """Without the steps before each block, which would hide the lines of the search."""
    if not words.startswith("housekeeping: "):
        tell(words)


async def opened_session(
    connection: ConnectionWords,
    request: TuningRequest,
    live: LiveOptions,
    profiles_directory: Path | None,
    decides: Objective | None,
) -> TuningSession:
    """The server that the words mean, and the load of the request, not started.

    Args:
        decides: None where another program drives the load.

    Raises:
        PgtopError: No such server, or no such profile.
    """
    directories = profile_directories(profiles_directory)
    async with opened(connection) as (sql_session, conninfo):
        places = await targets((), sql_session, conninfo, from_here=live.load_from is None)
        reached = sql_session.reached
    session = LiveSession(conninfo, live, reached)
    session.watch_others()
    session.load.directories = directories
    if decides is None:
        return TuningSession(conninfo, session, live, None, None)
    profile = load_profiles(directories).get(request.profile)
    spec = LoadSpec(threads=request.threads, rate_per_s=decides.rate)
    clients, protocol = request.clients or None, request.protocol or None
    [cell, *_] = cells(places, [profile], spec, None, clients=clients, protocol=protocol)
    return TuningSession(conninfo, session, live, cell, decides)
