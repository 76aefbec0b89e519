"""The load service of a screen: runs with their records, steps, data sets; one at a time (`LoadControl`)."""

from __future__ import annotations

import asyncio
import math
import os
import time
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any, Final, Protocol

from msgspec import Struct
from msgspec.structs import replace

from pgtop_tune.base import units
from pgtop_tune.base.errors import ConnectionProblem, LoadProblem, PgtopError, ServerProblem
from pgtop_tune.base.units import count, size
from pgtop_tune.bench.datasets.bus import BusPlan, parse_size
from pgtop_tune.bench.datasets.bus_make import make_bus
from pgtop_tune.bench.datasets.pgbench_tables import (
    Initialised,
    InitialiseProgress,
    PaceMeter,
    PgbenchShape,
    Tell,
    check_scale,
    estimated_bytes,
    initialise,
    look_for_room,
)
from pgtop_tune.bench.datasets.recognise import recognise_bus, recognise_pgbench
from pgtop_tune.bench.housekeeping import USUAL
from pgtop_tune.bench.locate import find_pgbench
from pgtop_tune.bench.ports import LoadEndpoint, SqlSession
from pgtop_tune.bench.profiles import Profile, load_profiles
from pgtop_tune.bench.runner import PgbenchRunner
from pgtop_tune.experiment.load_run import BeforeEachRun, LoadRun, RunCell
from pgtop_tune.experiment.path import LoadTarget
from pgtop_tune.experiment.preflight import connection_room, shows_connections
from pgtop_tune.experiment.run_guard import RunGuard, abort_conditions
from pgtop_tune.experiment.series import Series, Steps, cells, curves, parse_steps
from pgtop_tune.experiment.server_times import OpenSqlSession
from pgtop_tune.experiment.slo.search_run import SearchRun, search_cell
from pgtop_tune.model.bench import LoadLevel, LoadSpec, ProfileSummary
from pgtop_tune.model.run_result import RunResult
from pgtop_tune.runtime.load_control import (
    NO_CONDITIONS,
    DatasetFound,
    DataSetMade,
    EndConditions,
    LoadChange,
    LoadSearch,
    LoadSeries,
    LoadState,
    MakingPlan,
    MakingPreview,
    MakingProgress,
    SearchWish,
)
from pgtop_tune.runtime.run_frames import FrameKeeper

FreeBytes = Callable[[SqlSession], Awaitable[Callable[[str], int | str]]]
"""A function that opens another: directory of the server's machine → free bytes, or why they are not known."""

_MOST_JOBS: Final = 4
_UNLIKELY: Final = "choose a smaller one, or free some space"


class SeenDataSet(Struct, frozen=True):
    """Findings of a look at one data set.

    Attributes:
        title: The name of the data set that would be made.
        estimated_bytes: Its size; 0 where nothing is to be made.
        freed_bytes: The size of the tables that are there.
        dropped, note: The same as in `MakingPreview`.
    """

    title: str
    estimated_bytes: int
    freed_bytes: int = 0
    dropped: str = ""
    note: str = ""
    nothing_to_do: bool = False


class _Dataset(Protocol):
    async def found(self, sql_session: SqlSession) -> DatasetFound: ...

    async def look(self, sql_session: SqlSession, size: str) -> SeenDataSet: ...

    async def make(self, size: str, look: SeenDataSet, tell: Tell) -> Initialised: ...


class _Pgbench:
    """pgbench's own tables, made by pgbench -i as it is without options."""

    _SHAPE: Final = PgbenchShape()

    def __init__(self, service: DataSetService) -> None:
        self._service = service

    async def found(self, sql_session: SqlSession) -> DatasetFound:
        if (facts := await recognise_pgbench(sql_session)) is None:
            return DatasetFound("pgbench")
        return DatasetFound("pgbench", f"scale {facts.scale}", facts.incomplete)

    async def look(self, sql_session: SqlSession, size: str) -> SeenDataSet:
        scale, facts = _scale(size), await recognise_pgbench(sql_session)
        return SeenDataSet(
            title=f"scale {scale}",
            estimated_bytes=estimated_bytes(scale, self._SHAPE),
            freed_bytes=0 if facts is None else facts.size_bytes,
            dropped="" if facts is None or facts.empty else facts.describe(),
        )

    async def make(self, size: str, look: SeenDataSet, tell: Tell) -> Initialised:
        service = self._service
        endpoint = service.endpoint()
        pgbench = await asyncio.to_thread(find_pgbench, service.pgbench, over_tls=endpoint.over_tls)
        sql_session = await service.open_sql_session()
        try:
            return await initialise(endpoint, _scale(size), pgbench, tell, self._SHAPE, sql_session)
        finally:
            await asyncio.shield(sql_session.aclose())


class _Bus:
    """The bus company's tables; what an earlier making left is gone on with."""

    def __init__(self, service: DataSetService) -> None:
        self._service = service

    async def found(self, sql_session: SqlSession) -> DatasetFound:
        if (facts := await recognise_bus(sql_session)) is None:
            return DatasetFound("bus")
        return DatasetFound("bus", f"{count(facts.tickets)} tickets", facts.incomplete)

    async def look(self, sql_session: SqlSession, size: str) -> SeenDataSet:
        plan, facts = BusPlan(tickets=parse_size(size)), await recognise_bus(sql_session)
        title = f"{count(plan.tickets)} tickets"
        if facts is None:
            return SeenDataSet(title, plan.estimated_bytes)
        if facts.fulfils(plan):
            return SeenDataSet(title, 0, note="it exists already: nothing to do", nothing_to_do=True)
        if facts.is_of(plan):
            note = f"resumes the existing data set: {facts.describe()}"
            return SeenDataSet(title, plan.estimated_bytes, facts.size_bytes, note=note)
        return SeenDataSet(
            title=title,
            estimated_bytes=plan.estimated_bytes,
            freed_bytes=facts.size_bytes,
            dropped="" if facts.empty else facts.describe(),
        )

    async def make(self, size: str, look: SeenDataSet, tell: Tell) -> Initialised:
        jobs = min(_MOST_JOBS, os.cpu_count() or 1)
        plan = BusPlan(tickets=parse_size(size))
        return await make_bus(self._service.open_sql_session, plan, anew=bool(look.dropped), jobs=jobs, tell=tell)


class DataSetService:
    """Data sets on the server that is watched.

    Args:
        endpoint: The server in pgbench's words, as it is when asked.
        open_sql_session: Opens a session on it.
        free_bytes: The free space on the disk of its data.
        pgbench: The one to use; None finds the newest.
    """

    def __init__(
        self,
        endpoint: Callable[[], LoadEndpoint],
        open_sql_session: OpenSqlSession,
        free_bytes: FreeBytes,
        pgbench: Path | None,
    ) -> None:
        self.endpoint = endpoint
        self.open_sql_session = open_sql_session
        self.pgbench = pgbench
        self._free_bytes = free_bytes
        self._known: dict[str, _Dataset] = {"pgbench": _Pgbench(self), "bus": _Bus(self)}

    async def found(self) -> tuple[DatasetFound, ...]:
        """Return every data set, there or not.

        Raises:
            ConnectionProblem: The server is not there.
        """
        datasets = []
        sql_session = await self.open_sql_session()
        try:
            for name, dataset in self._known.items():
                try:
                    datasets.append(await dataset.found(sql_session))
                except (LoadProblem, ServerProblem) as problem:
                    datasets.append(DatasetFound(name, problem=problem.message))
        finally:
            await asyncio.shield(sql_session.aclose())
        return tuple(datasets)

    async def look(self, plan: MakingPlan) -> MakingPreview:
        """See `LoadControl.look`."""
        return (await self._look(plan))[0]

    async def make(self, plan: MakingPlan, *, replace: bool, tell: Callable[[MakingProgress], None]) -> DataSetMade:
        """Make a data set; when the task is cancelled, nothing of it runs any more when this returns.

        Raises:
            LoadProblem: Something would be lost and `replace` is not set; the disk is too small; the maker's words.
            ConnectionProblem: The server is not there.
        """
        preview, look = await self._look(plan)
        if look.dropped and not replace:
            raise LoadProblem(
                f"{preview.database} holds {look.dropped}", "confirm that it will be dropped, or use another database"
            )
        if look.nothing_to_do:
            return DataSetMade(look.title, (), 0.0)
        meter = PaceMeter()

        def told(progress: InitialiseProgress) -> None:
            pace = meter.after(progress, time.monotonic())
            tell(
                MakingProgress(
                    step=progress.step,
                    done=progress.done,
                    total=progress.total,
                    unit=progress.unit,
                    estimated=progress.estimated,
                    per_s=pace.per_s,
                    remaining_s=pace.remaining_s,
                )
            )  # fmt: skip

        done = await self._known[plan.dataset].make(plan.size, look, told)
        return DataSetMade(look.title, done.steps_s, done.total_s)

    async def _look(self, plan: MakingPlan) -> tuple[MakingPreview, SeenDataSet]:
        """Raise a LoadProblem when the disk is too small."""
        sql_session = await self.open_sql_session()
        try:
            look = await self._known[plan.dataset].look(sql_session, plan.size)
            free = await self._free_bytes(sql_session)
            room = await look_for_room(sql_session, look.estimated_bytes, look.freed_bytes, free)
        except ServerProblem as refusal:
            raise LoadProblem(refusal.message, refusal.hint) from None
        finally:
            await asyncio.shield(sql_session.aclose())
        needed, there = room.needed_bytes, room.available_bytes
        if there is not None and there < needed:
            raise LoadProblem(f"about {size(needed)} of disk will be needed, and {size(there)} is free", _UNLIKELY)
        return MakingPreview(
            title=look.title,
            needed_bytes=needed,
            available_bytes=there,
            why=room.reason,
            dropped=look.dropped,
            note=look.note,
            database=self.endpoint().dbname,
        ), look


def _scale(text: str) -> int:
    try:
        scale = int(text)
    except ValueError:
        raise LoadProblem(f"{text!r} is not a scale", "write a whole number: 100,000 accounts and 16 MB each") from None
    check_scale(scale)
    return scale


_QUARTER: Final = 1.25


def _changed(level: LoadLevel, change: LoadChange, unpaused: LoadLevel) -> LoadLevel:
    """Return the load after a change.

    Args:
        unpaused: The load before the pause.

    Raises:
        LoadProblem: The load has no rate, or is paused.
    """
    if change is LoadChange.PAUSE:
        return replace(level, clients=0 if level.clients else unpaused.clients)
    if not level.clients:
        raise LoadProblem("the load is paused", "go on with it first")
    more, fewer = math.ceil(level.clients * _QUARTER), max(1, math.floor(level.clients / _QUARTER))
    rate = level.rate_per_s
    if change in (LoadChange.MORE_CLIENTS, LoadChange.FEWER_CLIENTS):
        return replace(level, clients=more if change is LoadChange.MORE_CLIENTS else fewer)
    if rate is None:
        raise LoadProblem("the load has no rate: its clients go as fast as they can", "start it with a rate")
    return replace(level, rate_per_s=rate * _QUARTER if change is LoadChange.RATE_UP else rate / _QUARTER)


_RECORD_S: Final = 3.0
"""The longest wait for the record of a stopped run, which takes a frame."""
_SEARCH: Final = "search"
_ANSWER_S: Final = 20.0
_BUSY: Final = {
    "run": "a load is running",
    "steps": "steps of a load are running",
    _SEARCH: "a search for the highest rate is running",
    "making": "a data set is being created",
}
_SETS_LOAD: Final = {
    "steps": "steps set the clients and the rate themselves",
    _SEARCH: "the search for the highest rate sets the clients and the rate itself",
}


class LoadService:
    """The `LoadControl` of a screen.

    Args:
        runner: pgbench, for this service alone.
        keeper: A sink of the engine.
        open_sql_session: SQL on the server that is watched.
        datasets: The data sets that loads run on.
        endpoint: The address of a load, as it is when asked.
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
        self._open_sql_session = open_sql_session
        self._datasets = datasets
        self._endpoint = endpoint
        self._guard: Callable[[], RunGuard] = RunGuard
        self._run = LoadRun(runner, keeper, open_sql_session, self._tell, guard=lambda: self._guard())
        self._state = LoadState()
        self._unpaused = LoadLevel(1)
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

    async def start(self, spec: LoadSpec, ends: EndConditions = NO_CONDITIONS) -> None:
        """See `LoadControl.start`."""
        guard = self._guard_of(ends)
        (cell,) = await self._cells(spec, None)
        self._begin("run", "", guard, one_server=False)
        try:
            run = await self._run.start(cell)
        except BaseException:
            self._end()
            raise
        self._set(series=self._series("", 1))

        async def finish() -> None:
            self._keep(await self._run.finish(run))

        self._go(finish())

    async def start_steps(self, spec: LoadSpec, steps: str, *, tidy: bool, ends: EndConditions = NO_CONDITIONS) -> None:
        """See `LoadControl.start_steps`."""
        parsed, guard = parse_steps(steps), self._guard_of(ends)
        if spec.duration_s is None and spec.transactions is None:
            raise LoadProblem("a step needs a time limit", "enter a time in seconds")
        await self.preview(spec)
        plan = await self._cells(spec, parsed)
        self._begin("steps", f"{len(plan)} steps", guard)
        self._set(series=self._series(parsed.axis, len(plan)))
        self._go(self._measure(plan, parsed, BeforeEachRun(USUAL if tidy else ())))

    async def look_at_search(self, spec: LoadSpec, wish: SearchWish) -> str:
        """See `LoadControl.look_at_search`."""
        return (await self._search(spec, wish)).time_words

    async def start_search(self, spec: LoadSpec, wish: SearchWish) -> None:
        """See `LoadControl.start_search`."""
        search = await self._search(spec, wish)
        self._begin(_SEARCH, _SEARCH)
        self._set(series=self._series("", 0))
        self._go(search.make())

    async def _search(self, spec: LoadSpec, wish: SearchWish) -> SearchRun:
        profile, target = await self._profile_and_target(spec)
        cell = await asyncio.to_thread(
            lambda: search_cell(target, profile, spec, wish, clients=spec.clients, protocol=spec.protocol)
        )
        # A busy machine misses a look now and then, and the search is of the server that it has seen.
        if not await self._keeper.until(shows_connections, _ANSWER_S):
            raise ConnectionProblem("the server does not answer", "wait until it does, and start again")
        search = SearchRun(
            self._run, self._keeper, self._open_sql_session, cell, wish, BeforeEachRun(USUAL),
            tell=self._tell, take_record=self._keep, take_state=self._take_search,
        )  # fmt: skip
        if wish.resume:
            await asyncio.to_thread(search.resume)
        return search

    def _take_search(self, search: LoadSearch) -> None:
        assert self._state.series is not None
        self._set(series=replace(self._state.series, search=search), title=f"{_SEARCH}: {search.now}", detail="")

    async def change(self, change: LoadChange) -> LoadLevel:
        """See `LoadControl.change`."""
        if reason := _SETS_LOAD.get(self._state.doing):
            raise LoadProblem(reason, "stop it first: b, then x")
        level = self._runner.level
        if level is None or self._state.doing not in ("run", ""):
            raise LoadProblem("no load runs that can be changed", "start one with a time, or until stopped")
        if level.clients:
            self._unpaused = level
        next_level = _changed(level, change, self._unpaused)
        interval = self._keeper.interval
        if next_level.clients > level.clients and interval is not None:
            obstacle = connection_room(interval, next_level.clients - level.clients)
            if obstacle:
                raise LoadProblem(f"{next_level.clients} clients do not fit: {obstacle}", "raise max_connections")
        await self._runner.change(next_level)
        return next_level

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

        async def make() -> None:
            data_set = await self._datasets.make(
                plan, replace=replace, tell=lambda progress: self._set(making=progress)
            )
            self._set(made=data_set)

        self._go(make())

    async def aclose(self) -> None:
        """End everything; nothing waits for frames any more."""
        self._keeper.close()
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _profile_and_target(self, spec: LoadSpec) -> tuple[Profile, LoadTarget]:
        profiles = await asyncio.to_thread(load_profiles, self._runner.directories)
        endpoint = self._endpoint()
        return profiles.get(spec.profile), LoadTarget(str(endpoint), endpoint)

    async def _cells(self, spec: LoadSpec, steps: Steps | None) -> tuple[RunCell, ...]:
        profile, target = await self._profile_and_target(spec)
        return await asyncio.to_thread(
            lambda: cells([target], [profile], spec, steps, clients=spec.clients, protocol=spec.protocol)
        )

    def _guard_of(self, ends: EndConditions) -> Callable[[], RunGuard]:
        """Return what makes the guard of each run. Raises UsageProblem for a condition that is none."""
        conditions = abort_conditions(ends.abort_if)
        return lambda: RunGuard(conditions, stops=ends.stops, tell=lambda overload: self._set(overload=overload))

    def _tell(self, detail: str) -> None:
        self._set(detail=detail)

    def _begin(
        self, doing: str, title: str, guard: Callable[[], RunGuard] = RunGuard, *, one_server: bool = True
    ) -> None:
        """Begin something; runs that are compared with each other are made on one server."""
        if self._state.doing:
            raise LoadProblem(f"{_BUSY[self._state.doing]} already", "stop it first")
        self._guard = guard
        self._run.compare(one_server)
        self._set(doing=doing, title=title, detail="", overload="", problem="", making=None)

    def _end(self, problem: str = "") -> None:
        self._set(doing="", title="", detail="", overload="", problem=problem, making=None)
        self._keeper.rest()

    def _go(self, work: Coroutine[Any, Any, None]) -> None:
        self._task = asyncio.create_task(self._guarded(work))

    async def _guarded(self, work: Coroutine[Any, Any, None]) -> None:
        """Run the work; a failure is shown, and the work does not stay under way."""
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
            if series is not None and self._state.doing != "making":
                self._set(series=replace(series, over=True, problem=problem))
            self._end(problem)

    async def _measure(self, plan: tuple[RunCell, ...], steps: Steps, before: BeforeEachRun) -> None:
        def began(number: int, cell: RunCell) -> None:
            clients, rate = cell.spec.clients, cell.spec.rate_per_s
            load = f"{clients} client{'s' if clients != 1 else ''}"
            if steps.axis == "rate" and rate is not None:
                load = f"{units.number(rate)} per second"
            self._set(title=f"step {number + 1} of {len(plan)}: {load}", detail="")

        series = Series(self._run, plan, before, began, self._keep)
        await series.measure()

    def _series(self, axis: str, runs: int) -> LoadSeries:
        before = self._state.series
        return LoadSeries(1 if before is None else before.number + 1, axis, runs)

    def _keep(self, result: RunResult) -> None:
        series = self._state.series
        assert series is not None
        results = (*series.results, result)
        step_curves = curves(results, Steps(series.axis, ()) if series.axis else None)
        points, knee = (step_curves[0].points, step_curves[0].knee) if step_curves else ((), None)
        self._set(series=replace(series, results=results, points=points, knee=knee))

    def _set(self, **changed: Any) -> None:
        self._state = replace(self._state, **changed)
