"""The load service of a screen: runs with their records, steps, data sets; one at a time (`LoadControl`)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Final

from msgspec.structs import replace

from pgtop_tune.base import units
from pgtop_tune.base.errors import LoadProblem, PgtopError
from pgtop_tune.bench.housekeeping import USUAL
from pgtop_tune.bench.ports import LoadEndpoint
from pgtop_tune.bench.profiles import load_profiles
from pgtop_tune.bench.runner import PgbenchRunner
from pgtop_tune.experiment.data_set_service import DataSetService
from pgtop_tune.experiment.load_run import LoadRun, OpenSqlSession, UnderWay
from pgtop_tune.experiment.run_cell import BeforeEachRun, LoadTarget, RunCell
from pgtop_tune.experiment.series import Series, Steps, cells, curves, parse_steps
from pgtop_tune.model.bench import LoadSpec, ProfileSummary
from pgtop_tune.model.run_result import RunResult
from pgtop_tune.runtime.load_control import (
    DatasetFound,
    LoadSeries,
    LoadState,
    MakingPlan,
    MakingPreview,
    MakingProgress,
)
from pgtop_tune.runtime.run_frames import FrameKeeper

_RECORD_S: Final = 3.0
"""The record of a stopped run takes a frame; nobody waits longer for it."""
_BUSY: Final = {
    "run": "a load is running",
    "steps": "steps of a load are running",
    "making": "a data set is being created",
}


class LoadService:
    """Implements `LoadControl`.

    Args:
        runner: pgbench, used by nobody else.
        keeper: A sink of the engine.
        open_sql_session: SQL on the server that is watched.
        datasets: What loads run on.
        endpoint: Where a load goes, as it is when asked.
    """

    def __init__(
        self,
        runner: PgbenchRunner,
        keeper: FrameKeeper,
        open_sql_session: OpenSqlSession,
        datasets: DataSetService,
        endpoint: Callable[[], LoadEndpoint],
    ) -> None:
        self._runner = runner
        self._keeper = keeper
        self._datasets = datasets
        self._endpoint = endpoint
        self._run = LoadRun(runner, keeper, open_sql_session, self._told, one_server=False)
        self._state = LoadState()
        self._task: asyncio.Task[None] | None = None

    def state(self) -> LoadState:
        """See `LoadControl.state`."""
        return self._state

    async def profiles(self) -> tuple[ProfileSummary, ...]:
        """See `LoadControl.profiles`."""
        return await self._runner.profiles()

    async def datasets(self) -> tuple[DatasetFound, ...]:
        """See `LoadControl.datasets`."""
        return await self._datasets.found()

    async def preview(self, spec: LoadSpec) -> str:
        """See `LoadControl.preview`."""
        if not self._state.doing:
            self._runner.endpoint = self._endpoint()
        return await self._runner.preview(spec)

    async def start(self, spec: LoadSpec) -> None:
        """See `LoadControl.start`."""
        (cell,) = await self._cells(spec, None)
        self._begin("run", "")
        try:
            run = await self._run.start(cell)
        except BaseException:
            self._end()
            raise
        self._set(series=self._series("", 1))
        self._go(self._watch(run))

    async def start_steps(self, spec: LoadSpec, steps: str, *, tidy: bool) -> None:
        """See `LoadControl.start_steps`."""
        parsed = parse_steps(steps)
        if spec.duration_s is None and spec.transactions is None:
            raise LoadProblem("a step needs an end", "enter a time in seconds")
        await self.preview(spec)
        plan = await self._cells(spec, parsed)
        self._begin("steps", f"{len(plan)} steps")
        self._set(series=self._series(parsed.axis, len(plan)))
        self._go(self._measure(plan, parsed, BeforeEachRun(USUAL if tidy else ())))

    async def stop(self) -> None:
        """See `LoadControl.stop`."""
        task = self._task
        if task is None:
            await self._runner.stop()
        elif self._state.doing == "run":
            await self._runner.stop()
            await asyncio.wait([task], timeout=_RECORD_S)
        else:
            task.cancel()
            await asyncio.wait([task])

    async def look(self, plan: MakingPlan) -> MakingPreview:
        """See `LoadControl.look`."""
        return await self._datasets.look(plan)

    async def make(self, plan: MakingPlan, *, replace: bool) -> None:
        """See `LoadControl.make`."""
        preview = await self._datasets.look(plan)
        if preview.dropped and not replace:
            raise LoadProblem(f"{preview.database} holds {preview.dropped}", "confirm that it will be dropped")
        self._begin("making", preview.title)
        self._set(made=None)
        self._go(self._make(plan, replace))

    async def aclose(self) -> None:
        """Ends everything; nothing waits for frames any more."""
        self._keeper.close()
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _cells(self, spec: LoadSpec, steps: Steps | None) -> tuple[RunCell, ...]:
        profiles = await asyncio.to_thread(load_profiles, self._runner.directories)
        endpoint = self._endpoint()
        target = LoadTarget(str(endpoint), endpoint)
        profile = profiles.get(spec.profile)
        return await asyncio.to_thread(
            lambda: cells([target], [profile], spec, steps, clients=spec.clients, protocol=spec.protocol)
        )

    def _begin(self, doing: str, title: str) -> None:
        if self._state.doing:
            raise LoadProblem(f"{_BUSY[self._state.doing]} already", "stop it first")
        self._set(doing=doing, title=title, detail="", problem="", making=None)

    def _end(self, problem: str = "") -> None:
        self._set(doing="", title="", detail="", problem=problem, making=None)
        self._keeper.rest()

    def _go(self, work: Coroutine[Any, Any, None]) -> None:
        self._task = asyncio.create_task(self._guarded(work))

    async def _guarded(self, work: Coroutine[Any, Any, None]) -> None:
        """What goes wrong is told, and does not stay under way."""
        problem = ""
        try:
            await work
        except asyncio.CancelledError:
            problem = "stopped by the operator"
        except PgtopError as told:
            problem = str(told)
        except Exception as surprise:
            problem = f"{type(surprise).__name__}: {surprise}: this should not happen, please report it"
        finally:
            self._task = None
            series = self._state.series
            if series is not None and self._state.doing in ("run", "steps"):
                self._set(series=replace(series, over=True))
            self._end(problem)

    async def _watch(self, run: UnderWay) -> None:
        self._keep(await self._run.finish(run))

    async def _measure(self, plan: tuple[RunCell, ...], steps: Steps, before: BeforeEachRun) -> None:
        def began(number: int, cell: RunCell) -> None:
            clients, rate = cell.spec.clients, cell.spec.rate_per_s
            load = f"{clients} client{'s' if clients != 1 else ''}"
            if steps.axis == "rate" and rate is not None:
                load = f"{units.number(rate)} per second"
            self._set(title=f"step {number + 1} of {len(plan)}: {load}", detail="")

        series = Series(self._run, plan, before, began, self._keep)
        await series.measure()

    async def _make(self, plan: MakingPlan, agreed: bool) -> None:
        def told(progress: MakingProgress) -> None:
            self._set(making=progress)

        self._set(made=await self._datasets.make(plan, replace=agreed, tell=told))

    def _series(self, axis: str, asked: int) -> LoadSeries:
        before = self._state.series
        return LoadSeries(1 if before is None else before.number + 1, axis, asked)

    def _keep(self, result: RunResult) -> None:
        series = self._state.series
        assert series is not None
        results = (*series.results, result)
        found = curves(results, Steps(series.axis, ()) if series.axis else None)
        points, knee = (found[0].points, found[0].knee) if found else ((), None)
        self._set(series=replace(series, results=results, points=points, knee=knee))

    def _told(self, words: str) -> None:
        self._set(detail=words)

    def _set(self, **changed: Any) -> None:
        self._state = replace(self._state, **changed)
