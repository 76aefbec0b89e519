"""Load in the operator's hand, on a real server: runs leave records, steps a curve, data sets are asked about."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import psycopg
import pytest
from msgspec.structs import replace

from pgtop_tune.base.errors import LoadProblem, UsageProblem
from pgtop_tune.cli.options import LiveOptions
from pgtop_tune.cli.wiring import LiveParts
from pgtop_tune.experiment.load_service import LoadService, _changed
from pgtop_tune.experiment.preflight import shows_connections
from pgtop_tune.model.absence import Reason, Unavailable
from pgtop_tune.model.bench import ABORTED, OVERLOADED, LoadLevel, LoadSpec, RunState, ScriptChoice
from pgtop_tune.postgres.server.conninfo import resolve
from pgtop_tune.runtime.engine import Engine
from pgtop_tune.runtime.load_control import (
    EndConditions,
    LoadChange,
    LoadSeries,
    LoadState,
    MakingPlan,
    SearchWish,
)
from pgtop_tune.runtime.ports import Step
from pgtop_tune.runtime.run_frames import FrameKeeper

DEADLINE_S = 90.0
SHORT = LoadSpec("select-only", clients=2, duration_s=2)
TABLES = MakingPlan("pgbench", "1")


@contextlib.asynccontextmanager
async def desk_on(text: str) -> AsyncIterator[LoadService]:
    parts = LiveParts(resolve(text), LiveOptions(interval_s=0.2))
    keeper = FrameKeeper()
    service = parts.load_service(keeper)
    running = asyncio.create_task(Engine(parts.source, (keeper,)).run())
    try:
        assert await keeper.until(shows_connections, DEADLINE_S)
        yield service
    finally:
        await service.aclose()
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running


async def until(
    service: LoadService, condition: Callable[[LoadState], object], deadline_s: float = DEADLINE_S
) -> LoadState:
    async with asyncio.timeout(deadline_s):
        while not condition(service.state()):
            await asyncio.sleep(0.02)
    return service.state()


async def ended(service: LoadService) -> LoadSeries:
    state = await until(service, lambda state: not state.doing)
    assert state.series is not None
    assert state.series.over
    return state.series


@pytest.fixture
def queue(tmp_path: Path) -> LoadSpec:
    """A load whose transactions take 20 ms, one after the other."""
    script = tmp_path / "queue.sql"
    script.write_text("BEGIN;\nSELECT pg_advisory_xact_lock(41);\nSELECT pg_sleep(0.02);\nEND;\n", encoding="utf-8")
    return LoadSpec(clients=2, protocol="simple", scripts=(ScriptChoice(str(script)),))


@pytest.mark.long
async def test_a_run_of_the_screen_ends_when_its_rate_overloads_the_server(database: str, queue: LoadSpec) -> None:
    async with desk_on(database) as service:
        await service.start(replace(queue, rate_per_s=90.0))
        [result] = (await ended(service)).results
    assert (result.state, result.ended_for) == (RunState.STOPPED, OVERLOADED)
    assert result.partial


@pytest.mark.long
async def test_overload_is_only_told_where_that_was_asked_for(database: str, queue: LoadSpec) -> None:
    async with desk_on(database) as service:
        await service.start(replace(queue, rate_per_s=90.0), EndConditions(stops=False))
        state = await until(service, lambda state: state.overload)
        assert state.overload.startswith(f"{OVERLOADED}: since second ")
        assert state.doing == "run"
        await service.stop()
        [result] = (await ended(service)).results
        assert not result.ended_for
        assert OVERLOADED in {doubt.id for doubt in result.doubts}
        assert service.state().overload == ""


async def test_a_condition_ends_a_run_of_the_screen(database: str, queue: LoadSpec) -> None:
    async with desk_on(database) as service:
        with pytest.raises(UsageProblem, match="'p50' is not a condition"):
            await service.start(queue, EndConditions(("p50",)))
        await service.start(queue, EndConditions(("p50 > 1ms for 1s",)))
        [result] = (await ended(service)).results
    assert (result.state, result.ended_for) == (RunState.STOPPED, ABORTED)


@pytest.mark.long
async def test_a_search_of_the_screen_is_stopped_and_continued_and_keeps_its_load(
    database: str, queue: LoadSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    wish = SearchWish(objective="mean < 10s", first_rate=20.0, confirm_s=20)
    async with desk_on(database) as service:
        with pytest.raises(UsageProblem, match="has no phases"):
            await service.start_search(replace(queue, phases="hold 1m"), wish)
        with pytest.raises(UsageProblem, match="there is no search last"):
            await service.look_at_search(queue, replace(wish, resume="last"))
        assert (await service.look_at_search(queue, wish)).startswith("expected time: ")
        unseen = replace(service._keeper.frames[-1], postgres=Unavailable(Reason.NO_ANSWER))
        service._keeper.accept(Step((unseen,)))
        await service.start_search(queue, wish)
        with pytest.raises(LoadProblem, match="a search for the highest rate is running already"):
            await service.start(queue)
        with pytest.raises(LoadProblem, match="the search for the highest rate sets the clients and the rate itself"):
            await service.change(LoadChange.MORE_CLIENTS)
        # Up to a minute of quiet is waited for, and a probe takes up to 160 s.
        await until(
            service, lambda state: state.series and state.series.search and state.series.search.outcomes, 4 * DEADLINE_S
        )
        await service.stop()
        series = await ended(service)
        assert series.problem == "stopped by the operator"
        assert series.search is not None
        [outcome] = series.search.outcomes
        assert not {"RUN-PARTIAL"} & {doubt.id for result in series.results for doubt in result.doubts}
        assert outcome.startswith("probe: 20 per second, 2 clients, ")
        assert [result.spec.rate_per_s for result in series.results] == [20.0]

        with pytest.raises(UsageProblem, match="has another objective: mean < 10s"):
            await service.start_search(queue, replace(wish, objective="mean < 20s", resume="last"))
        assert not service.state().doing
        await service.start_search(queue, replace(wish, resume="last", budget_s=1.0))
        series = await ended(service)
        assert series.search is not None
        assert (series.problem, series.search.outcomes) == ("", (outcome,))
        assert series.search.result[:2] == (
            "mean < 10s: 20 per second hold it, and no higher rate was found to break it",
            "doubt: the budget is used up",
        )


@pytest.mark.long
async def test_tables_are_made_then_a_run_leaves_its_record_and_steps_their_curve(database: str) -> None:
    async with desk_on(database) as service:
        assert {each.name: each.found for each in await service.datasets()} == {"pgbench": "", "bus": ""}
        with pytest.raises(LoadProblem, match="there are no tables of the pgbench data set"):
            await service.start(SHORT)
        assert service.state() == LoadState()
        preview = await service.look(TABLES)
        assert (preview.title, preview.dropped) == ("scale 1", "")
        assert 15_000_000 < preview.needed_bytes < 60_000_000
        await service.make(TABLES, replace=False)
        with pytest.raises(LoadProblem, match="a data set is being created already"):
            await service.start(SHORT)
        state = await until(service, lambda state: not state.doing)
        assert state.made is not None, state.problem
        assert "primary keys" in dict(state.made.steps_s)
        assert {each.name: each.found for each in await service.datasets()} == {"pgbench": "scale 1", "bus": ""}

        await service.start(SHORT)
        series = await ended(service)
        (result,) = series.results
        assert (series.axis, result.state) == ("", RunState.FINISHED)
        assert result.tps
        assert "-c 2" in result.command

        await service.start_steps(SHORT, "clients=1,2,3", tidy=False)
        await until(service, lambda state: state.title == "step 2 of 3: 2 clients")
        series = await ended(service)
        assert (series.number, series.axis, [point.load for point in series.points]) == (2, "clients", [1, 2, 3])
        assert series.knee is not None
        assert "knee" in series.knee.reason


async def test_what_is_there_goes_only_when_it_was_agreed(database: str) -> None:
    async with desk_on(database) as service:
        await service.make(TABLES, replace=False)
        await until(service, lambda state: not state.doing)
        assert "scale 1" in (await service.look(TABLES)).dropped
        with pytest.raises(LoadProblem, match="scale 1"):
            await service.make(TABLES, replace=False)
        await service.make(TABLES, replace=True)
        state = await until(service, lambda state: not state.doing)
        assert state.made is not None
        assert not state.problem


async def test_more_clients_than_the_server_has_room_for_are_refused_with_the_numbers(database: str) -> None:
    async with desk_on(database) as service:
        await service.make(TABLES, replace=False)
        await until(service, lambda state: not state.doing)
        with pytest.raises(LoadProblem, match="5000 clients will not fit: max_connections is"):
            await service.start(LoadSpec("select-only", clients=5000, duration_s=2))
        with pytest.raises(UsageProblem, match="not a list of"):
            await service.start_steps(SHORT, "clients=two", tidy=False)
        with pytest.raises(LoadProblem, match="a step needs a time limit"):
            await service.start_steps(LoadSpec("select-only"), "clients=1,2", tidy=False)


async def test_stopped_steps_keep_what_was_measured_and_nothing_runs_on(database: str) -> None:
    async with desk_on(database) as service:
        await service.make(TABLES, replace=False)
        await until(service, lambda state: not state.doing)
        await service.start_steps(LoadSpec("select-only", clients=2, duration_s=600), "clients=1,2", tidy=True)
        with psycopg.connect(database, autocommit=True) as connection:
            # pgbench has one session before its run: it looks at the tables first.
            # And for so long that frames have its run.
            looking = (
                "SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'SELECT abalance%'"
                " AND backend_start < clock_timestamp() - interval '3 s'"
            )

            def at_work() -> bool:
                row = connection.execute(looking).fetchone()
                return row is not None and bool(row[0])

            await until(service, lambda state: at_work())
            await service.stop()
            series = await ended(service)
            assert [result.state for result in series.results] == [RunState.STOPPED]
            assert service.state().problem == "stopped by the operator"
            await until(service, lambda state: not at_work())


async def test_a_run_until_stopped_is_stopped_in_time_and_has_all_its_figures(database: str) -> None:
    async with desk_on(database) as service:
        await service.make(TABLES, replace=False)
        await until(service, lambda state: not state.doing)
        await service.start(LoadSpec("select-only", clients=2))
        with psycopg.connect(database, autocommit=True) as connection:
            done = (
                "SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'SELECT abalance%'"
                " AND backend_start < clock_timestamp() - interval '3 s'"
            )

            def at_work() -> bool:
                row = connection.execute(done).fetchone()
                return row is not None and bool(row[0])

            await until(service, lambda state: at_work())
        await service.stop()
        (result,) = (await ended(service)).results
        assert (result.state, result.valid, result.partial) == (RunState.STOPPED, True, False)
        assert not {"RUN-PARTIAL", "LOG-INCOMPLETE"} & {doubt.id for doubt in result.doubts}
        assert result.report is not None
        assert result.tps == result.report.tps
        assert result.latencies is not None
        assert result.latencies.logged == result.processed


async def test_a_making_that_is_stopped_says_so(database: str) -> None:
    async with desk_on(database) as service:
        await service.make(MakingPlan("bus", "20M"), replace=False)
        await until(service, lambda state: state.making is not None and state.making.total)
        await service.stop()
        state = service.state()
        assert (state.doing, state.problem, state.made) == ("", "stopped by the operator", None)
        (bus,) = [each for each in await service.datasets() if each.name == "bus"]
        assert "tickets created" in bus.problem


def test_a_key_changes_the_load_by_a_quarter_and_pauses_it() -> None:
    level, at_rate = LoadLevel(8), LoadLevel(8, 400.0)
    assert _changed(level, LoadChange.MORE_CLIENTS, level) == LoadLevel(10)
    assert _changed(LoadLevel(10), LoadChange.FEWER_CLIENTS, level) == level
    assert [_changed(LoadLevel(1), change, level).clients for change in list(LoadChange)[:2]] == [2, 1]
    assert _changed(at_rate, LoadChange.RATE_UP, at_rate) == LoadLevel(8, 500.0)
    assert _changed(LoadLevel(8, 500.0), LoadChange.RATE_DOWN, at_rate) == at_rate
    paused = _changed(at_rate, LoadChange.PAUSE, at_rate)
    assert (paused.clients, _changed(paused, LoadChange.PAUSE, at_rate)) == (0, at_rate)
    for refused, change in ((level, LoadChange.RATE_UP), (paused, LoadChange.MORE_CLIENTS)):
        with pytest.raises(LoadProblem, match=r"has no rate|is paused"):
            _changed(refused, change, at_rate)
