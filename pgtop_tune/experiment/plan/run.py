"""The run of a plan: one arm after the other, pending confirmation, everything put back after each.

The journal has a line before each step, so that `resume` goes on at the cell that was lost. What an arm has set is
never confirmed: when the program is killed, the revert watchdog of its change set puts it back.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager, suppress
from functools import partial
from typing import Final, Protocol

from msgspec import Struct, to_builtins
from msgspec.structs import replace

from pgtop_tune.base import units
from pgtop_tune.base.errors import ConnectionProblem, LoadProblem, NotLetIn, PgtopError
from pgtop_tune.base.paths import replacing
from pgtop_tune.base.units import about, duration
from pgtop_tune.bench.datasets.pgbench_tables import Initialised
from pgtop_tune.bench.datasets.recognise import PgbenchFacts, recognise_pgbench
from pgtop_tune.bench.ports import SqlSession
from pgtop_tune.bench.profiles import Profile
from pgtop_tune.changes.change_sets import ChangeSets
from pgtop_tune.changes.model.change import HostChange, ParameterChange, Terms, WantedParameter, WantedSetting
from pgtop_tune.changes.model.change_set import ChangeSet, PendingParameter
from pgtop_tune.compare.noise import FIGURES, known_spread, load_fingerprint, measured_run
from pgtop_tune.compare.statistics.effect import RunSpread
from pgtop_tune.experiment.attribution import SurroundingsMeter
from pgtop_tune.experiment.load_run import ANSWER_S, BeforeEachRun, LoadRun, RunCell, until_frames_show_it
from pgtop_tune.experiment.path import LoadTarget
from pgtop_tune.experiment.plan.model import CURRENT_DATABASE, THROWAWAY_SERVERS, BoundPlan, Cell, PlanArm, Stage
from pgtop_tune.experiment.plan.outages import PlannedOutages
from pgtop_tune.experiment.plan.report import arm_words, result_words
from pgtop_tune.experiment.plan.results import (
    RUNS,
    CellResult,
    ExperimentLog,
    ExperimentOutcome,
    MadeData,
    failed,
    foreign_words,
    outage_result_of,
    result_of,
)
from pgtop_tune.experiment.series import scripts_of
from pgtop_tune.experiment.server_state import STARTED, changes_between, parameters_of, server_state
from pgtop_tune.metrics import sections
from pgtop_tune.metrics.catalogue import Interval
from pgtop_tune.metrics.ceilings import disks_at_cap
from pgtop_tune.metrics.host import DISK_BUSY
from pgtop_tune.metrics.setting_risks import risk_of
from pgtop_tune.metrics.value_risks import RiskClass
from pgtop_tune.model.bench import LoadSpec
from pgtop_tune.model.frame import Frame
from pgtop_tune.model.run_result import RunResult, as_json
from pgtop_tune.runtime.run_frames import FrameKeeper

# What a run of an experiment is made of, and how it stops.

_LOOK_S: Final = 0.5


class Stopped(LoadProblem):
    """The experiment cannot go on; what was done is kept."""


class ExperimentDoors(Protocol):
    """Doors to the server and its machine: they change settings and tell which are in force."""

    def sets(self, arm: PlanArm) -> ChangeSets:
        """Return the change sets that make and revert the arm, with a restart where it takes one."""
        ...

    async def listed(self, names: tuple[str, ...]) -> object:
        """Read the parameters that are to be changed: the control refuses a change of one that changed since."""
        ...

    async def in_force(self) -> Sequence[ParameterChange | HostChange]:
        """Return changes that the journals of server and machine hold as made and not reverted."""
        ...

    async def pending(self) -> tuple[PendingParameter, ...]:
        """Return the parameters that wait for a restart."""
        ...


class ExperimentParts(Struct, frozen=True, kw_only=True):
    """Parts of a run of an experiment.

    Attributes:
        load: Makes runs.
        keeper: Its frames.
        cpu: CPU time while loads run.
        doors: The doors to server and machine.
        targets: The targets by name of the endpoint.
        profiles: The profiles by name.
        open_sql_session: On the database of the experiment.
        make_data: Makes pgbench's tables at a scale, with the steps of the plan.
        free_bytes: On the disk of the data; None where it is not known.
        outages: Causes the outages of the plan; None for a plan without.
        unsafe: Whether values that are not safe may be set, but for those that run code.
        confirmed: Names of parameters whose values may run code.
        tell: Takes what is going on, one line.
    """

    load: LoadRun
    keeper: FrameKeeper
    cpu: SurroundingsMeter
    doors: ExperimentDoors
    targets: Mapping[str, LoadTarget]
    profiles: Mapping[str, Profile]
    open_sql_session: Callable[[], Awaitable[SqlSession]]
    make_data: Callable[[int], Awaitable[Initialised]]
    free_bytes: Callable[[], Awaitable[int | None]]
    unsafe: bool
    confirmed: frozenset[str]
    tell: Callable[[str], None]
    outages: PlannedOutages | None = None


async def until(condition: Callable[[], Awaitable[bool]], seconds: float) -> bool:
    """Wait for a condition, also through a restart of the server, and return whether it came about in time."""
    deadline_s = time.monotonic() + seconds
    while True:
        try:
            if await condition():
                return True
        except NotLetIn:
            raise
        except ConnectionProblem:
            # It is being restarted.
            pass
        if time.monotonic() > deadline_s:
            return False
        await asyncio.sleep(_LOOK_S)


# The data set of a stage: made where it is not there, or wanted anew, and never over tables of the operator's.


class StageData:
    """The maker of the data sets of stages.

    Args:
        outcome: The outcome so far.
        log: Its journal, open.
        parts: The parts of the session.
    """

    def __init__(self, outcome: ExperimentOutcome, log: ExperimentLog, parts: ExperimentParts) -> None:
        self._plan: Final = outcome.plan
        self._log: Final = log
        self._parts: Final = parts
        self._told: Final = parts.tell
        self._made = set(outcome.made)
        self._tables, self._oids = outcome.tables, outcome.table_oids
        self._scale_there: int | None = None

    async def is_wanted(self, stage: Stage) -> bool:
        """Return whether the stage takes a new data set, or another scale is there."""
        profiles = {cell.profile for cell in self._plan.cells}
        if all(self._parts.profiles[name].summary().dataset != "pgbench" for name in profiles):
            return False
        anew = stage.make_data and self._plan.data_per_configuration and stage.number not in self._made
        return anew or not await self._is_there(stage.scale)

    async def make(self, stage: Stage) -> None:
        """Make it.

        Raises:
            LoadProblem: It cannot be made, or tables of the operator's are in the way.
        """
        if self._plan.database == CURRENT_DATABASE:
            facts = await self._found()
            if facts is not None and not facts.empty and not (self._tables and made_here(facts, self._oids)):
                raise LoadProblem(
                    f"the database holds pgbench's tables that this experiment did not create: {facts.describe()}",
                    'name another database, or set database = "own" in the plan',
                )
            self._note_tables(())
        self._told(f"creating the data set, scale {stage.scale}")
        self._scale_there = None
        try:
            done = await self._parts.make_data(stage.scale)
        finally:
            if self._plan.database == CURRENT_DATABASE:
                await self._note_what_is_there()
        self._scale_there = stage.scale
        data = MadeData(
            stage=stage.number, arm=stage.arm, scale=stage.scale, steps_s=done.steps_s, total_s=done.total_s
        )
        self._log.write("made", data=to_builtins(data))
        self._made.add(stage.number)

    async def _is_there(self, scale: int) -> bool:
        if self._scale_there == scale:
            return True
        facts = await self._found()
        return facts is not None and facts.scale == scale and not facts.incomplete and facts.primary_keys

    async def _found(self) -> PgbenchFacts | None:
        async with aclosing(await self._parts.open_sql_session()) as sql_session:
            return await recognise_pgbench(sql_session)

    async def _note_what_is_there(self) -> None:
        """Note the tables that are there: whole or in part, they are ours, and any that come later are not."""
        with suppress(PgtopError):
            if (facts := await self._found()) is not None:
                self._note_tables(tuple(facts.tables))
            else:
                self._log.write("tables", there=False)
                self._tables = False

    def _note_tables(self, oids: tuple[int, ...]) -> None:
        """Note tables: without oids before they are made, and with them afterwards."""
        self._log.write("tables", there=True, oids=oids)
        self._tables, self._oids = True, oids


def made_here(facts: PgbenchFacts, oids: Collection[int]) -> bool:
    """Return whether these tables are those that an experiment made, or was making when it was killed.

    Args:
        oids: The oids of the tables that it made; empty after a kill on the way: then incomplete tables are its own.
    """
    if oids:
        return set(facts.tables) <= set(oids)
    return bool(facts.incomplete)


# Puts the arm of a stage into force, pending confirmation, and reverts it; also what an earlier process has left.

_SLACK_S: Final = 3600.0
_WATCHDOG_S: Final = 180.0
"""The longest wait for the revert watchdog of an earlier process, before its values are put back from here."""


class NotMade(Exception):
    """An arm cannot be made here; nothing is changed.

    Attributes:
        reason: The reason in the server's words.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class ArmsInForce:
    """The change sets of an experiment, in its journal before they are made.

    Args:
        plan: The plan with the arms.
        log: The journal, open.
        parts: The parts of the session.
    """

    def __init__(self, plan: BoundPlan, log: ExperimentLog, parts: ExperimentParts) -> None:
        self._plan: Final = plan
        self._log: Final = log
        self._parts: Final = parts
        self._told: Final = parts.tell

    async def settle(self, set_ids: Sequence[str]) -> None:
        """Wait for revert watchdogs that are at work, and revert what they have left.

        Raises:
            PgtopError: A change cannot be reverted, or the server is gone.
        """
        for set_id in set_ids:
            self._told(f"set {set_id} was left: waiting until it is reverted")
            if not await until(partial(self._reverted, set_id), _WATCHDOG_S):
                arm = next((arm for arm in self._plan.arms if arm.restart), self._plan.arms[0])
                (await self._parts.doors.sets(arm).revert(set_id, "resumed")).checked()
            self._log.write("set_ended", set_id=set_id)
        if set_ids:
            await until(self._nothing_waits, _WATCHDOG_S)

    async def _reverted(self, set_id: str) -> bool:
        return all(change.set_id != set_id for change in await self._parts.doors.in_force())

    async def _nothing_waits(self) -> bool:
        names = {name for arm in self._plan.arms if arm.restart for name, _ in arm.parameters}
        return not any(parameter.name in names for parameter in await self._parts.doors.pending())

    @asynccontextmanager
    async def of(self, stage: Stage) -> AsyncIterator[None]:
        """Put the arm of a stage into force, and revert it on the way out.

        Raises:
            NotMade: It cannot be made; nothing is changed.
            ConnectionProblem: The server is gone.
        """
        arm = self._plan.arm(stage.arm)
        if not arm.changes:
            yield
            return
        set_id = uuid.uuid4().hex[:12]
        sets = self._parts.doors.sets(arm)
        self._log.write("set_began", set_id=set_id, stage=stage.number)
        try:
            await self._apply(sets, arm, set_id, stage)
        except ConnectionProblem:
            raise
        except PgtopError as problem:
            self._log.write("set_ended", set_id=set_id)
            raise NotMade(problem.message) from None
        try:
            yield
        finally:
            await asyncio.shield(self._revert(sets, arm, set_id))

    async def _apply(self, sets: ChangeSets, arm: PlanArm, set_id: str, stage: Stage) -> None:
        names = tuple(name for name, _ in arm.parameters)
        if names:
            await self._parts.doors.listed(names)
        # What runs code is shown whole before it is put into force.
        self._told(f"setting {arm.name}: {arm_words(arm)}")
        each_s = self._plan.time_s + self._plan.warm_up_s + 120
        terms = Terms(
            keep_within_s=len(stage.cells) * each_s + stage.scale * 10 + _SLACK_S,
            reason=f"experiment {self._plan.name}: {arm.name}",
            confirmed=self._parts.confirmed | self._unlocked(arm),
            set_id=set_id,
            of_experiment=True,
        )
        change_set = ChangeSet(
            parameters=tuple(WantedParameter(name, value) for name, value in arm.parameters),
            settings=tuple(WantedSetting(name, value) for name, value in arm.settings),
        )
        applying = asyncio.ensure_future(sets.apply(change_set, terms))
        try:
            await asyncio.shield(applying)
        except asyncio.CancelledError:
            # A change half-made is worse than one made.
            await asyncio.wait((applying,))
            if applying.exception() is None:
                await asyncio.shield(self._revert(sets, arm, set_id))
            raise

    def _unlocked(self, arm: PlanArm) -> frozenset[str]:
        """Return the names that --allow-unsafe unlocks: those whose values run no code."""
        risks = {name: risk_of(name, value) for name, value in arm.parameters} if self._parts.unsafe else {}
        return frozenset(name for name, risk in risks.items() if risk is None or risk.kind is not RiskClass.RUNS_CODE)

    async def _revert(self, sets: ChangeSets, arm: PlanArm, set_id: str) -> None:
        self._told(f"reverting {arm.name}")
        (await sets.revert(set_id, "the stage has ended")).checked()
        self._log.write("set_ended", set_id=set_id)


# What the noise store knows of the machine and load of a cell: how earlier runs of it differed.


def earlier_noise(result: RunResult, *, several: bool) -> dict[str, RunSpread]:
    """Return the known noise of earlier runs, by figure.

    Args:
        several: Whether the load goes to one of several endpoints.
    """
    measured = measured_run(as_json(result))
    load = load_fingerprint(measured.side, measured.run)
    if load is None:
        return {}
    load = replace(load, endpoint=result.endpoint if several else "")
    return {name: spread for name in FIGURES if (spread := known_spread(load, name)).degrees}


# Whether a disk of the server was the limit of a run. Pure.

BUSY: Final = 95.0
"""Per cent of the time; with a request waiting behind the one under way the device is the limit."""
_LOOK_BACK: Final = 150
_FEWEST: Final = 3


def bound_by(frames: Sequence[Frame]) -> str:
    """Return "the data disk vda: 6000 IOPS in 80 % of the run"; "" if no disk stood at its limit in half of the looks.

    At its limit is a disk at its cap, given or learned (`metrics.ceilings`), or one without a known cap that was busy
    all the time.
    """
    counts: dict[str, int] = {}
    reached: dict[str, str] = {}
    looks = 0
    for end in range(2, len(frames) + 1):
        interval = Interval(frames[max(0, end - _LOOK_BACK) : end])
        disks = interval.now(sections.disks)
        if disks is None or interval.pair(sections.disks) is None:
            continue
        looks += 1
        busy, caps = DISK_BUSY(interval), disks_at_cap(interval)
        for disk in disks.disks:
            if not disk.roles:
                continue
            name = f"the {' and '.join(disk.roles)} disk {disk.name}"
            cap = caps.get(disk.name)
            has_cap = disk.cap_iops is not None or disk.cap_bytes_per_s is not None
            if cap is not None:
                limits = [f"{cap.iops:.0f} IOPS"] if cap.iops is not None else []
                limits += [units.byte_rate(cap.bytes_per_s)] if cap.bytes_per_s is not None else []
                reached[name] = " and ".join(limits)
            elif has_cap or (busy.get(disk.name) or 0.0) < BUSY:
                continue
            counts[name] = counts.get(name, 0) + 1
    most = max(counts, key=lambda name: counts[name], default="")
    if looks < _FEWEST or not most or 2 * counts[most] < looks:
        return ""
    return f"{most}: {reached.get(most, 'busy')} in {100 * counts[most] / looks:.0f} % of the run"


SPARE_BYTES: Final = 256 * 2**20
"""The least free space on the disk of the data: with less the experiment stops."""
_NO_SPACE: Final = "No space left on device"


class ExperimentRun:
    """The runner of the remaining cells of an experiment, in the engine's loop.

    Args:
        outcome: The outcome of its journal so far.
        log: Its journal, open.
        parts: The parts of the session.
    """

    def __init__(self, outcome: ExperimentOutcome, log: ExperimentLog, parts: ExperimentParts) -> None:
        self._plan: Final[BoundPlan] = outcome.plan
        self._outcome: Final = outcome
        self._log: Final = log
        self._parts: Final = parts
        self._arms: Final = ArmsInForce(outcome.plan, log, parts)
        self._data: Final = StageData(outcome, log, parts)
        self._done = set(outcome.results)
        self._told: Final = parts.tell
        self._began_s: Final = time.monotonic()

    async def measure(self) -> None:
        """Run all that is left.

        Raises:
            Stopped: It cannot go on: the disk is full, or another session has changed a parameter.
            PgtopError: A change cannot be reverted, or the server is gone.
            asyncio.CancelledError: It was stopped; the arm has been reverted, the cell under way is lost.
        """
        await self.settle()
        as_it_was = dict(self._outcome.server)
        for stage in self._plan.stages:
            if all(cell.number in self._done for cell in stage.cells):
                continue
            as_it_is = parameters_of(await self._state_soon())
            if not as_it_was:
                as_it_was = as_it_is
                self._log.write("server", parameters=as_it_was)
            self._check_unchanged(as_it_was, as_it_is)
            await self._stage(stage)

    @staticmethod
    def _check_unchanged(before: Mapping[str, str], now: Mapping[str, str]) -> None:
        """Raise Stopped where what follows would be compared with cells of another server."""
        if changed := changes_between(before, now):
            raise Stopped(changed, "restore the value, then `resume`; or start a new experiment")

    async def settle(self) -> None:
        """Wait for revert watchdogs that are at work, and revert what they have left. Raises as `measure`."""
        await self._arms.settle(self._outcome.sets)

    # A stage.

    async def _stage(self, stage: Stage) -> None:
        arm = self._plan.arm(stage.arm)
        cells = [cell for cell in stage.cells if cell.number not in self._done]
        for cell in [impossible_cell for impossible_cell in cells if impossible_cell.impossible]:
            self._keep(failed(cell, cell.impossible))
        cells = [cell for cell in cells if not cell.impossible]
        if not cells:
            return
        self._told(f"stage {stage.number} of {len(self._plan.stages)}: {arm.name}, scale {stage.scale}")
        try:
            async with self._arms.of(stage):
                await until_frames_show_it(self._parts.open_sql_session, self._parts.keeper)
                await self._cells(stage, cells)
        except NotMade as problem:
            self._told(f"{arm.name} cannot be put into force: {problem.reason}")
            for cell in cells:
                self._keep(failed(cell, problem.reason))

    # The cells of a stage.

    async def _cells(self, stage: Stage, cells: Sequence[Cell]) -> None:
        try:
            if await self._data.is_wanted(stage):
                await self._check_limits()
                await self._data.make(stage)
        except LoadProblem as problem:
            if _NO_SPACE in str(problem):
                raise Stopped(f"the disk is full: {problem.message}", "free some space, then `resume`") from None
            self._told(f"no data set: {problem.message}")
            for cell in cells:
                self._keep(failed(cell, f"no data set: {problem.message}"))
            return
        before = await self._state()
        for cell in cells:
            await self._check_limits()
            now = await self._state()
            self._check_unchanged(before, now)
            result = await self._measure(cell)
            afterwards = await self._state_soon()
            if cell.outage:
                # The plan has restarted the server itself.
                now, before = ({**state, STARTED: afterwards[STARTED]} for state in (now, before))
            if changed := changes_between(now, afterwards):
                result = failed(cell, f"discarded: {changed}", result.record)
                if now[STARTED] != (again := await self._state_soon())[STARTED]:
                    # Restarted with the same values: the next cell runs as it should.
                    before = {**before, STARTED: again[STARTED]}
            self._keep(result)
            if _NO_SPACE in result.reason:
                raise Stopped("the disk is full", "free some space, then `resume`")

    async def _measure(self, cell: Cell) -> CellResult:
        self._log.write("cell_began", number=cell.number)
        self._told(f"cell {cell.number} of {len(self._plan.cells)}: {cell.words}")
        profile = self._parts.profiles[cell.profile]
        spec = LoadSpec(
            profile=profile.name,
            clients=cell.clients,
            threads=self._plan.threads,
            duration_s=self._plan.time_s,
            protocol=self._plan.protocol or profile.protocol,
            through_outage=bool(cell.outage),
        )
        run = RunCell(
            target=self._parts.targets[cell.endpoint],
            profile=profile,
            spec=spec,
            scripts=scripts_of(spec, profile, allow_shell=False),
        )
        before = BeforeEachRun(self._plan.housekeeping, self._plan.warm_up_s)
        outage = self._plan.outage(cell)
        if outage is not None and self._parts.outages is not None:
            result, caused = await self._parts.outages.beside(
                cell, outage, int(self._plan.warm_up_s > 0), partial(self._parts.load.measure, run, before)
            )
            return outage_result_of(cell, result, caused, self._record(cell, result))
        self._parts.cpu.begin()
        result = await self._parts.load.measure(run, before)
        return result_of(
            cell,
            result,
            bound_by(self._parts.keeper.frames),
            self._record(cell, result),
            self._parts.cpu.seen,
            earlier_noise(result, several=len(self._plan.endpoints) > 1) if result.tps else {},
        )

    def _record(self, cell: Cell, result: RunResult) -> str:
        name = f"{cell.number:04d}.json"
        try:
            with replacing(self._log.directory / RUNS / name) as file:
                file.write(json.dumps(as_json(result)).encode())
                file.flush()
                os.fsync(file.fileno())
        except OSError as problem:
            self._told(f"the record of cell {cell.number} could not be saved: {problem.strerror}")
            return ""
        return name

    def _keep(self, result: CellResult) -> None:
        self._log.write("cell", result=to_builtins(result))
        self._done.add(result.number)
        if result.reason:
            self._told(f"cell {result.number} failed: {result.reason}")
        elif result.outage is not None:
            self._told(f"cell {result.number}: {result_words(result)}")
        elif result.tps is not None:
            bound = f", bound by {result.bound}" if result.bound else ""
            self._told(f"cell {result.number}: {result.tps:.2f} tps{bound}{foreign_words(result)}")

    async def _state(self) -> dict[str, str]:
        async with aclosing(await self._parts.open_sql_session()) as sql_session:
            state = await server_state(sql_session)
        # Only this plan changes a throwaway server; after a promotion, the other one answers.
        return {STARTED: ""} if self._plan.servers == THROWAWAY_SERVERS else state

    async def _state_soon(self) -> dict[str, str]:
        """Return the state of a server that may just be restarted."""
        state: dict[str, str] = {}

        async def answers() -> bool:
            nonlocal state
            state = await self._state()
            return True

        if not await until(answers, ANSWER_S):
            raise ConnectionProblem("the server no longer answers")
        return state

    async def _check_limits(self) -> None:
        """Raise Stopped where the time is over, or the disk of the data full."""
        check_time(self._outcome, self._began_s)
        check_room(await self._parts.free_bytes(), "resume")


def check_time(outcome: ExperimentOutcome, began_s: float) -> None:
    """Raise Stopped where the time of the plan is over.

    Args:
        outcome: The outcome so far: its time counts, the time between two processes does not.
        began_s: When this one began, by `time.monotonic`.
    """
    limit_s, took_s = outcome.plan.limits.time_s, outcome.spent_s + time.monotonic() - began_s
    if limit_s is not None and took_s > limit_s:
        raise Stopped(
            f"the time limit is reached: {duration(took_s)} of {duration(limit_s)}",
            "`experiment report` shows what was measured; a plan with a larger limit starts a new experiment",
        )


def check_room(free_bytes: int | None, command: str) -> None:
    """Raise Stopped where the disk of the data is nearly full; `command` goes on once there is room."""
    if free_bytes is not None and free_bytes < SPARE_BYTES:
        raise Stopped(
            f"only {about(free_bytes)} are free on the data disk, less than {about(SPARE_BYTES)}",
            f"free some space, then `{command}`",
        )


def unfinished(problem: BaseException) -> str:
    """Return why an experiment or a search stopped, for its journal."""
    if isinstance(problem, PgtopError):
        return problem.message
    return "stopped by a signal" if isinstance(problem, asyncio.CancelledError) else type(problem).__name__
