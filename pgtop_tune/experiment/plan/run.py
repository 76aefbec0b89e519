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
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Final, Protocol

from msgspec import Struct, to_builtins

from pgtop_tune.bench.datasets.pgbench_tables import Initialised
from pgtop_tune.bench.datasets.recognise import recognise_pgbench
from pgtop_tune.bench.ports import SqlSession
from pgtop_tune.bench.profiles import Profile
from pgtop_tune.changes.change_sets import ChangeSets
from pgtop_tune.changes.model.change import HostChange, ParameterChange, Terms, WantedParameter, WantedSetting
from pgtop_tune.changes.model.change_set import ChangeSet
from pgtop_tune.changes.model.restart import PendingParameter
from pgtop_tune.errors import ConnectionProblem, LoadProblem, NotLetIn, PgtopError, ServerProblem
from pgtop_tune.experiment.endpoints import LoadTarget
from pgtop_tune.experiment.load_run import BeforeEachRun, LoadRun, RunCell
from pgtop_tune.experiment.plan.disk_bound import bound_by
from pgtop_tune.experiment.plan.log import RUNS, ExperimentLog
from pgtop_tune.experiment.plan.meanwhile import STARTED, changes_between, server_state
from pgtop_tune.experiment.plan.model import CURRENT_DATABASE, Arm, BoundPlan, Cell, Stage
from pgtop_tune.experiment.plan.results import CellResult, MadeData, Outcome, failed, result_of
from pgtop_tune.experiment.series import scripts_of
from pgtop_tune.metrics import sections
from pgtop_tune.metrics.catalogue import Interval
from pgtop_tune.model.absence import Unavailable
from pgtop_tune.model.bench import LoadSpec
from pgtop_tune.model.run_json import as_json
from pgtop_tune.model.run_result import RunResult
from pgtop_tune.paths import replacing
from pgtop_tune.runtime.run_frames import FrameKeeper
from pgtop_tune.units import about, duration

_SLACK_S: Final = 3600.0
_ANSWER_S: Final = 120.0
_WATCHDOG_S: Final = 180.0
"""How long what an earlier process has left is waited for, before it is put back from here."""
_LOOK_S: Final = 0.5
SPARE_BYTES: Final = 256 * 2**20
"""With less free on the disk of the data the experiment stops."""
_NO_SPACE: Final = "No space left on device"


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
        doors: To server and machine.
        targets: By name of the endpoint.
        profiles: By name.
        open_sql_session: On the database of the experiment.
        make_data: Makes pgbench's tables at a scale, with the steps of the plan.
        free_bytes: On the disk of the data; None where it is not known.
        unsafe: Whether values that can lose data may be set.
        told: Takes what is going on, one line.
    """

    load: LoadRun
    keeper: FrameKeeper
    doors: ExperimentDoors
    targets: Mapping[str, LoadTarget]
    profiles: Mapping[str, Profile]
    open_sql_session: Callable[[], Awaitable[SqlSession]]
    make_data: Callable[[int], Awaitable[Initialised]]
    free_bytes: Callable[[], Awaitable[int | None]]
    unsafe: bool
    told: Callable[[str], None]


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
        self._done = set(outcome.results)
        self._made = set(outcome.made)
        self._tables = outcome.tables
        self._scale_there: int | None = None
        self._told: Final = parts.told
        self._began_s: Final = time.monotonic()

    async def measure(self) -> None:
        """Runs all that is left.

        Raises:
            Stopped: It cannot go on: the disk is full.
            PgtopError: A change cannot be reverted, or the server is gone.
            asyncio.CancelledError: It was stopped; the arm has been reverted, the cell under way is lost.
        """
        await self.settle()
        for stage in self._plan.stages:
            if any(cell.number not in self._done for cell in stage.cells):
                await self._stage(stage)

    # What an earlier process has left.

    async def settle(self) -> None:
        """Waits for revert watchdogs that are at work, and reverts what they have left. Raises as `measure`."""
        set_ids = self._outcome.sets
        for set_id in set_ids:
            self._told(f"set {set_id} was left: waiting until it is reverted")
            if not await self._until(partial(self._reverted, set_id), _WATCHDOG_S):
                arm = next((each for each in self._plan.arms if each.restart), self._plan.arms[0])
                (await self._parts.doors.sets(arm).revert(set_id, "resumed")).checked()
            self._log.write("set_ended", set_id=set_id)
        if set_ids:
            await self._until(self._nothing_waits, _WATCHDOG_S)

    async def _reverted(self, set_id: str) -> bool:
        return all(change.set_id != set_id for change in await self._parts.doors.in_force())

    async def _nothing_waits(self) -> bool:
        names = {name for arm in self._plan.arms if arm.restart for name, _ in arm.parameters}
        return not any(each.name in names for each in await self._parts.doors.pending())

    @staticmethod
    async def _until(condition: Callable[[], Awaitable[bool]], seconds: float) -> bool:
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
        set_id = uuid.uuid4().hex[:12]
        sets = self._parts.doors.sets(arm)
        if arm.changes:
            self._log.write("set_began", set_id=set_id, stage=stage.number)
            try:
                await self._apply(sets, arm, set_id, stage)
            except ConnectionProblem:
                raise
            except PgtopError as problem:
                self._told(f"{arm.name} cannot be made: {problem.message}")
                self._log.write("set_ended", set_id=set_id)
                for cell in left:
                    self._keep(failed(cell, problem.message))
                return
        try:
            await self._wait_for_answer()
            await self._cells(stage, left)
        finally:
            if arm.changes:
                await asyncio.shield(self._revert(sets, arm, set_id))

    async def _apply(self, sets: ChangeSets, arm: Arm, set_id: str, stage: Stage) -> None:
        names = tuple(name for name, _ in arm.parameters)
        if names:
            await self._parts.doors.listed(names)
        each_s = self._plan.time_s + self._plan.warm_up_s + 120
        terms = Terms(
            keep_within_s=len(stage.cells) * each_s + stage.scale * 10 + _SLACK_S,
            reason=f"experiment {self._plan.name}: {arm.name}",
            confirmed=frozenset(names) if self._parts.unsafe else frozenset(),
            set_id=set_id,
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

    async def _revert(self, sets: ChangeSets, arm: Arm, set_id: str) -> None:
        self._told(f"reverting {arm.name}")
        (await sets.revert(set_id, "the stage has ended")).checked()
        self._log.write("set_ended", set_id=set_id)

    async def _wait_for_answer(self) -> None:
        """Frames after a restart begin with the new server."""
        started = (await self._state())[STARTED]

        def shows(interval: Interval) -> bool:
            facts = sections.server(interval.newest)
            return not isinstance(facts, Unavailable) and abs(facts.started_ms / 1000 - float(started)) < 1.0

        if not await self._parts.keeper.until(shows, _ANSWER_S):
            raise ConnectionProblem("the server does not answer")

    # The cells of a stage.

    async def _cells(self, stage: Stage, left: Sequence[Cell]) -> None:
        try:
            await self._data(stage)
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
            if changed := changes_between(before, now):
                self._keep(failed(cell, f"not run: {changed}"))
                continue
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
        result = await self._parts.load.measure(run, BeforeEachRun(self._plan.housekeeping, self._plan.warm_up_s))
        return result_of(cell, result, bound_by(self._parts.keeper.frames), self._record(cell, result))

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
            self._told(f"cell {result.number}: {result.tps:.2f} tps{bound}")

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

        if not await self._until(answers, _ANSWER_S):
            raise ConnectionProblem("the server does not answer any more")
        return found

    async def _check_limits(self) -> None:
        """Raises Stopped where the time is over, or the disk of the data full."""
        limit_s, took_s = self._plan.limits.time_s, time.monotonic() - self._began_s
        if limit_s is not None and took_s > limit_s:
            raise Stopped(f"it took {duration(took_s)}, and its limit is {duration(limit_s)}", "`resume` continues")
        free_bytes = await self._parts.free_bytes()
        if free_bytes is not None and free_bytes < SPARE_BYTES:
            raise Stopped(
                f"{about(free_bytes)} are left on the disk of the data, less than {about(SPARE_BYTES)}",
                "free some space, then `resume`",
            )

    async def _data(self, stage: Stage) -> None:
        """Makes the data set where the stage wants it anew, or another scale is there.

        Raises:
            LoadProblem: It cannot be made, or tables of the operator's are in the way.
        """
        if not self._needs_pgbench():
            return
        anew = stage.make_data and self._plan.data_per_configuration and stage.number not in self._made
        if not anew and await self._is_there(stage.scale):
            return
        await self._check_limits()
        if self._plan.database == CURRENT_DATABASE:
            await self._check_ours()
            self._log.write("tables", there=True)
            self._tables = True
        self._told(f"making the data set, scale {stage.scale}")
        self._scale_there = None
        done = await self._parts.make_data(stage.scale)
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
        sql_session = await self._parts.open_sql_session()
        try:
            found = await recognise_pgbench(sql_session)
        finally:
            await sql_session.aclose()
        return found is not None and found.scale == scale and not found.incomplete and found.primary_keys

    async def _check_ours(self) -> None:
        if self._tables:
            return
        sql_session = await self._parts.open_sql_session()
        try:
            found = await recognise_pgbench(sql_session)
        finally:
            await sql_session.aclose()
        if found is not None and not found.empty:
            raise LoadProblem(
                f"the database holds pgbench's tables of somebody else: {found.describe()}",
                'name another database, or set database = "own" in the plan',
            )


def unfinished(problem: BaseException) -> str:
    """Why an experiment stopped, for its journal."""
    if isinstance(problem, ServerProblem | LoadProblem | ConnectionProblem | PgtopError):
        return problem.message
    return "stopped by a signal" if isinstance(problem, asyncio.CancelledError) else type(problem).__name__
