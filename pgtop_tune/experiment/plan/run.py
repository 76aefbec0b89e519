"""Runs a plan: one arm after the other, pending confirmation, everything put back after each.

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
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Final, Protocol

from msgspec import Struct, to_builtins
from msgspec.structs import replace

from pgtop_tune.base import units
from pgtop_tune.base.errors import ConnectionProblem, LoadProblem, NotLetIn, PgtopError
from pgtop_tune.base.foreign_answers import decodes
from pgtop_tune.base.paths import replacing
from pgtop_tune.base.secret import without_secrets
from pgtop_tune.base.units import about, duration
from pgtop_tune.bench.datasets.pgbench_tables import Initialised
from pgtop_tune.bench.datasets.recognise import PgbenchFacts, recognise_pgbench
from pgtop_tune.bench.ports import SqlSession
from pgtop_tune.bench.profiles import Profile
from pgtop_tune.changes.change_sets import ChangeSets
from pgtop_tune.changes.model.change import HostChange, ParameterChange, Terms, WantedParameter, WantedSetting
from pgtop_tune.changes.model.change_set import ChangeSet, PendingParameter
from pgtop_tune.compare.noise import FIGURES, history, load_fingerprint, measured_run
from pgtop_tune.compare.statistics.effect import RunSpread
from pgtop_tune.experiment.answering import until_frames_show_it
from pgtop_tune.experiment.attribution import SurroundingsMeter
from pgtop_tune.experiment.load_run import LoadRun
from pgtop_tune.experiment.plan.model import CURRENT_DATABASE, Arm, BoundPlan, Cell, Stage
from pgtop_tune.experiment.plan.results import (
    RUNS,
    CellResult,
    ExperimentLog,
    MadeData,
    Outcome,
    failed,
    foreign_words,
    result_of,
)
from pgtop_tune.experiment.plan.status import arm_words
from pgtop_tune.experiment.run_cell import BeforeEachRun, LoadTarget, RunCell
from pgtop_tune.experiment.series import scripts_of
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

# What somebody else does to the server while an experiment runs: it is restarted, or a parameter is changed.

_NAMED: Final = 5
STARTED: Final = ""
"""No parameter has this name: under it stands when the server was started."""
_STATE: Final = """
SELECT '', extract(epoch FROM pg_postmaster_start_time())::text
UNION ALL
SELECT name, setting FROM pg_settings WHERE source NOT IN ('client', 'session', 'override') AND context <> 'internal'
"""


@decodes
async def server_state(sql_session: SqlSession) -> dict[str, str]:
    """Parameters of the server as new sessions have them, without passwords, and when it was started."""
    return {str(name): without_secrets(str(value)) for name, value in await sql_session.rows(_STATE)}


def parameters_of(state: Mapping[str, str]) -> dict[str, str]:
    """A state without the start of the server."""
    return {name: value for name, value in state.items() if name != STARTED}


def changes_between(before: Mapping[str, str], now: Mapping[str, str]) -> str:
    """What differs between two states, in words; "" for nothing. Pure."""
    restarted = before.get(STARTED) != now.get(STARTED)
    words = ["the server was restarted by somebody else"] if restarted else []
    for name in sorted({*before, *now} - {STARTED}):
        if before.get(name) != now.get(name):
            was, became = before.get(name, "default"), now.get(name, "default")
            words.append(f"{name} was changed by somebody else: {was} -> {became}")
    more = [f"{len(words) - _NAMED} more"] if len(words) > _NAMED else []
    return "; ".join([*words[:_NAMED], *more])


# What a run of an experiment is made of, and how it stops.

_LOOK_S: Final = 0.5


class Stopped(LoadProblem):
    """The experiment cannot go on; what was done is kept."""


class ExperimentDoors(Protocol):
    """What changes the server and its machine, and what says how they are."""

    def sets(self, arm: Arm) -> ChangeSets:
        """What makes and reverts the set of an arm, with a restart where it takes one."""
        ...

    async def listed(self, names: tuple[str, ...]) -> object:
        """Looks at the parameters that are about to be changed: the control refuses what has changed since."""
        ...

    async def in_force(self) -> Sequence[ParameterChange | HostChange]:
        """Changes that the journals of server and machine hold as made and not reverted."""
        ...

    async def pending(self) -> tuple[PendingParameter, ...]:
        """What waits for a restart."""
        ...


class ExperimentParts(Struct, frozen=True, kw_only=True):
    """What a run of an experiment is made of.

    Attributes:
        load: Makes runs.
        keeper: Its frames.
        cpu: CPU time while loads run.
        doors: To server and machine.
        targets: By name of the endpoint.
        profiles: By name.
        open_sql_session: On the database of the experiment.
        make_data: Makes pgbench's tables at a scale, with the steps of the plan.
        free_bytes: On the disk of the data; None where it is not known.
        unsafe: Whether values that are not safe may be set, but for those that run code.
        confirmed: Names of parameters whose values may run code.
        told: Takes what is going on, one line.
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
    told: Callable[[str], None]


async def until(condition: Callable[[], Awaitable[bool]], seconds: float) -> bool:
    """Whether a condition comes about in time; a server that is being restarted is waited for."""
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
    """Makes data sets.

    Args:
        outcome: Of the experiment so far.
        log: Its journal, open.
        parts: Of the session.
    """

    def __init__(self, outcome: Outcome, log: ExperimentLog, parts: ExperimentParts) -> None:
        self._plan: Final = outcome.plan
        self._log: Final = log
        self._parts: Final = parts
        self._told: Final = parts.told
        self._made = set(outcome.made)
        self._tables, self._oids = outcome.tables, outcome.table_oids
        self._scale_there: int | None = None

    async def is_wanted(self, stage: Stage) -> bool:
        """Whether the stage wants it anew, or another scale is there."""
        if not self._needs_pgbench():
            return False
        anew = stage.make_data and self._plan.data_per_configuration and stage.number not in self._made
        return anew or not await self._is_there(stage.scale)

    async def make(self, stage: Stage) -> None:
        """Makes it.

        Raises:
            LoadProblem: It cannot be made, or tables of the operator's are in the way.
        """
        if self._plan.database == CURRENT_DATABASE:
            await self._check_ours()
            self._note_tables(())
        self._told(f"making the data set, scale {stage.scale}")
        self._scale_there = None
        try:
            done = await self._parts.make_data(stage.scale)
        finally:
            if self._plan.database == CURRENT_DATABASE:
                await self._note_what_is_there()
        self._scale_there = stage.scale
        made = MadeData(
            stage=stage.number, arm=stage.arm, scale=stage.scale, steps_s=done.steps_s, total_s=done.total_s
        )
        self._log.write("made", data=to_builtins(made))
        self._made.add(stage.number)

    def _needs_pgbench(self) -> bool:
        profiles = {cell.profile for cell in self._plan.cells}
        return any(self._parts.profiles[name].summary().dataset == "pgbench" for name in profiles)

    async def _is_there(self, scale: int) -> bool:
        if self._scale_there == scale:
            return True
        found = await self._found()
        return found is not None and found.scale == scale and not found.incomplete and found.primary_keys

    async def _found(self) -> PgbenchFacts | None:
        sql_session = await self._parts.open_sql_session()
        try:
            return await recognise_pgbench(sql_session)
        finally:
            await sql_session.aclose()

    async def _note_what_is_there(self) -> None:
        """Whole or in part, it is ours; what comes later in its place is not."""
        with suppress(PgtopError):
            if (found := await self._found()) is not None:
                self._note_tables(tuple(found.tables))
            else:
                self._log.write("tables", there=False)
                self._tables = False

    def _note_tables(self, oids: tuple[int, ...]) -> None:
        """Before they are made without numbers, and with them afterwards."""
        self._log.write("tables", there=True, oids=oids)
        self._tables, self._oids = True, oids

    async def _check_ours(self) -> None:
        found = await self._found()
        if found is not None and not found.empty and not (self._tables and made_here(found, self._oids)):
            raise LoadProblem(
                f"the database holds pgbench's tables that this experiment did not make: {found.describe()}",
                'name another database, or set database = "own" in the plan',
            )


def made_here(found: PgbenchFacts, oids: Collection[int]) -> bool:
    """Whether these tables are those that an experiment made, or was making when it was killed.

    Args:
        oids: Of the tables that it made; empty where it was killed on the way: then only what is not whole is its own.
    """
    if oids:
        return set(found.tables) <= set(oids)
    return bool(found.incomplete)


# Puts the arm of a stage into force, pending confirmation, and reverts it; also what an earlier process has left.

_SLACK_S: Final = 3600.0
_WATCHDOG_S: Final = 180.0
"""How long what an earlier process has left is waited for, before it is put back from here."""


class NotMade(Exception):
    """An arm cannot be made here; nothing is changed.

    Attributes:
        reason: In the server's words.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class ArmsInForce:
    """The change sets of an experiment, in its journal before they are made.

    Args:
        plan: With the arms.
        log: The journal, open.
        parts: Of the session.
    """

    def __init__(self, plan: BoundPlan, log: ExperimentLog, parts: ExperimentParts) -> None:
        self._plan: Final = plan
        self._log: Final = log
        self._parts: Final = parts
        self._told: Final = parts.told

    async def settle(self, set_ids: Sequence[str]) -> None:
        """Waits for revert watchdogs that are at work, and reverts what they have left.

        Raises:
            PgtopError: A change cannot be reverted, or the server is gone.
        """
        for set_id in set_ids:
            self._told(f"set {set_id} was left: waiting until it is reverted")
            if not await until(partial(self._reverted, set_id), _WATCHDOG_S):
                arm = next((each for each in self._plan.arms if each.restart), self._plan.arms[0])
                (await self._parts.doors.sets(arm).revert(set_id, "resumed")).checked()
            self._log.write("set_ended", set_id=set_id)
        if set_ids:
            await until(self._nothing_waits, _WATCHDOG_S)

    async def _reverted(self, set_id: str) -> bool:
        return all(change.set_id != set_id for change in await self._parts.doors.in_force())

    async def _nothing_waits(self) -> bool:
        names = {name for arm in self._plan.arms if arm.restart for name, _ in arm.parameters}
        return not any(each.name in names for each in await self._parts.doors.pending())

    @asynccontextmanager
    async def of(self, stage: Stage) -> AsyncIterator[None]:
        """The arm of a stage in force, and reverted on the way out.

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

    async def _apply(self, sets: ChangeSets, arm: Arm, set_id: str, stage: Stage) -> None:
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
        wanted = ChangeSet(
            parameters=tuple(WantedParameter(name, value) for name, value in arm.parameters),
            settings=tuple(WantedSetting(name, value) for name, value in arm.settings),
        )
        applying = asyncio.ensure_future(sets.apply(wanted, terms))
        try:
            await asyncio.shield(applying)
        except asyncio.CancelledError:
            # A change half-made is worse than one made.
            await asyncio.wait((applying,))
            if applying.exception() is None:
                await asyncio.shield(self._revert(sets, arm, set_id))
            raise

    def _unlocked(self, arm: Arm) -> frozenset[str]:
        """Return the names that --allow-unsafe unlocks: those whose values run no code."""
        risks = {name: risk_of(name, value) for name, value in arm.parameters} if self._parts.unsafe else {}
        return frozenset(name for name, risk in risks.items() if risk is None or risk.kind is not RiskClass.RUNS_CODE)

    async def _revert(self, sets: ChangeSets, arm: Arm, set_id: str) -> None:
        self._told(f"reverting {arm.name}")
        (await sets.revert(set_id, "the stage has ended")).checked()
        self._log.write("set_ended", set_id=set_id)


# What the noise store knows of the machine and load of a cell: how earlier runs of it differed.


def earlier_noise(result: RunResult, *, several: bool) -> dict[str, RunSpread]:
    """By figure; without those that are not known.

    Args:
        several: Whether the load goes to one of several endpoints.
    """
    measured = measured_run(as_json(result))
    load = load_fingerprint(measured.side, measured.run)
    if load is None:
        return {}
    load = replace(load, endpoint=result.endpoint if several else "")
    return {name: spread for name in FIGURES if (spread := history(load, name)).degrees}


# Whether a disk of the server was the limit of a run. Pure.

BUSY: Final = 95.0
"""Per cent of the time; with a request waiting behind the one under way the device is the limit."""
_LOOK_BACK: Final = 150
_FEWEST: Final = 3


def bound_by(frames: Sequence[Frame]) -> str:
    """ "the data disk vda: 6000 IOPS in 80 % of the run"; "" where no disk stood at its limit in half of the looks.

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
            known = disk.cap_iops is not None or disk.cap_bytes_per_s is not None
            if cap is not None:
                words = [f"{cap.iops:.0f} IOPS"] if cap.iops is not None else []
                words += [f"{units.size(cap.bytes_per_s)}B/s"] if cap.bytes_per_s is not None else []
                reached[name] = " and ".join(words)
            elif known or (busy.get(disk.name) or 0.0) < BUSY:
                continue
            counts[name] = counts.get(name, 0) + 1
    most = max(counts, key=lambda name: counts[name], default="")
    if looks < _FEWEST or not most or 2 * counts[most] < looks:
        return ""
    return f"{most}: {reached.get(most, 'busy')} in {100 * counts[most] / looks:.0f} % of the run"


_ANSWER_S: Final = 120.0
SPARE_BYTES: Final = 256 * 2**20
"""With less free on the disk of the data the experiment stops."""
_NO_SPACE: Final = "No space left on device"


class ExperimentRun:
    """Runs what is left of an experiment, in the engine's loop.

    Args:
        outcome: Of its journal so far.
        log: Its journal, open.
        parts: Of the session.
    """

    def __init__(self, outcome: Outcome, log: ExperimentLog, parts: ExperimentParts) -> None:
        self._plan: Final[BoundPlan] = outcome.plan
        self._outcome: Final = outcome
        self._log: Final = log
        self._parts: Final = parts
        self._arms: Final = ArmsInForce(outcome.plan, log, parts)
        self._data: Final = StageData(outcome, log, parts)
        self._done = set(outcome.results)
        self._told: Final = parts.told
        self._began_s: Final = time.monotonic()

    async def measure(self) -> None:
        """Runs all that is left.

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
        """Raises Stopped where what follows would be compared with cells of another server."""
        if changed := changes_between(before, now):
            raise Stopped(changed, "change it back, then `resume`; or begin anew")

    async def settle(self) -> None:
        """Waits for revert watchdogs that are at work, and reverts what they have left. Raises as `measure`."""
        await self._arms.settle(self._outcome.sets)

    # A stage.

    async def _stage(self, stage: Stage) -> None:
        arm = self._plan.arm(stage.arm)
        left = [cell for cell in stage.cells if cell.number not in self._done]
        for cell in [each for each in left if each.impossible]:
            self._keep(failed(cell, cell.impossible))
        left = [cell for cell in left if not cell.impossible]
        if not left:
            return
        self._told(f"stage {stage.number} of {len(self._plan.stages)}: {arm.name}, scale {stage.scale}")
        try:
            async with self._arms.of(stage):
                await until_frames_show_it(self._parts.open_sql_session, self._parts.keeper)
                await self._cells(stage, left)
        except NotMade as problem:
            self._told(f"{arm.name} cannot be made: {problem.reason}")
            for cell in left:
                self._keep(failed(cell, problem.reason))

    # The cells of a stage.

    async def _cells(self, stage: Stage, left: Sequence[Cell]) -> None:
        try:
            if await self._data.is_wanted(stage):
                await self._check_limits()
                await self._data.make(stage)
        except LoadProblem as problem:
            if _NO_SPACE in str(problem):
                raise Stopped(f"the disk is full: {problem.message}", "free some space, then `resume`") from None
            self._told(f"no data set: {problem.message}")
            for cell in left:
                self._keep(failed(cell, f"no data set: {problem.message}"))
            return
        before = await self._state()
        for cell in left:
            await self._check_limits()
            now = await self._state()
            self._check_unchanged(before, now)
            result = await self._measure(cell)
            if changed := changes_between(now, await self._state_soon()):
                result = failed(cell, f"does not count: {changed}", result.record)
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
        )
        run = RunCell(
            target=self._parts.targets[cell.endpoint],
            profile=profile,
            spec=spec,
            scripts=scripts_of(spec, profile, allow_shell=False),
        )
        self._parts.cpu.begin()
        result = await self._parts.load.measure(run, BeforeEachRun(self._plan.housekeeping, self._plan.warm_up_s))
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
            self._told(f"the record of cell {cell.number} is not saved: {problem.strerror}")
            return ""
        return name

    def _keep(self, result: CellResult) -> None:
        self._log.write("cell", result=to_builtins(result))
        self._done.add(result.number)
        if result.reason:
            self._told(f"cell {result.number} failed: {result.reason}")
        elif result.tps is not None:
            bound = f", bound by {result.bound}" if result.bound else ""
            self._told(f"cell {result.number}: {result.tps:.2f} tps{bound}{foreign_words(result)}")

    async def _state(self) -> dict[str, str]:
        sql_session = await self._parts.open_sql_session()
        try:
            return await server_state(sql_session)
        finally:
            await sql_session.aclose()

    async def _state_soon(self) -> dict[str, str]:
        """The state of a server that may just be restarted."""
        found: dict[str, str] = {}

        async def answers() -> bool:
            nonlocal found
            found = await self._state()
            return True

        if not await until(answers, _ANSWER_S):
            raise ConnectionProblem("the server does not answer any more")
        return found

    async def _check_limits(self) -> None:
        """Raises Stopped where the time is over, or the disk of the data full."""
        check_time(self._outcome, self._began_s)
        check_room(await self._parts.free_bytes(), "resume")


def check_time(outcome: Outcome, began_s: float) -> None:
    """Raises Stopped where the time of the plan is over.

    Args:
        outcome: What earlier processes took counts; the time between them does not.
        began_s: When this one began, by `time.monotonic`.
    """
    limit_s, took_s = outcome.plan.limits.time_s, outcome.spent_s + time.monotonic() - began_s
    if limit_s is not None and took_s > limit_s:
        raise Stopped(
            f"it took {duration(took_s)}, and its limit is {duration(limit_s)}",
            "`experiment report` shows what was measured; a plan with a larger limit begins anew",
        )


def check_room(free_bytes: int | None, command: str) -> None:
    """Raises Stopped where the disk of the data is nearly full; `command` goes on once there is room."""
    if free_bytes is not None and free_bytes < SPARE_BYTES:
        raise Stopped(
            f"{about(free_bytes)} are left on the disk of the data, less than {about(SPARE_BYTES)}",
            f"free some space, then `{command}`",
        )


def unfinished(problem: BaseException) -> str:
    """Why an experiment or a search stopped, for its journal."""
    if isinstance(problem, PgtopError):
        return problem.message
    return "stopped by a signal" if isinstance(problem, asyncio.CancelledError) else type(problem).__name__
