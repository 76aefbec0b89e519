"""Data sets, steps and results from the load dialog: what is asked for, what is shown, what is never done unasked."""

from __future__ import annotations

import asyncio
import threading

from msgspec.structs import replace

from pgtop_tune.base.errors import LoadProblem
from pgtop_tune.model.bench import BenchSample, LoadSpec, RunState
from pgtop_tune.runtime.load_control import (
    DataSetMade,
    EndConditions,
    LoadSeries,
    LoadState,
    MakingPlan,
    MakingProgress,
    SearchWish,
)
from pgtop_tune.runtime.ports import Step
from pgtop_tune.tui.dashboard.screen import Dashboard
from pgtop_tune.tui.load.data_set_dialog import InitDialog
from pgtop_tune.tui.load.dialog import LoadDialog
from pgtop_tune.tui.load.results_dialog import ResultsDialog
from tests.support.frames import bench_sample, frame
from tests.support.results import asked, failed, result
from tests.support.screens import DEADLINE_S, Rig, ScriptedLoad, ScriptedSource, frames, running_screen
from tests.tui.dashboard.test_load_pictures import of_clients, of_search


def _idle() -> ScriptedSource:
    return ScriptedSource([Step(tuple(frames(5, load=False)), restart=True)])


async def _form(rig: Rig) -> None:
    await rig.press("b")
    await rig.sees("pgbench -n")


async def test_each_profile_says_whether_its_data_set_is_there() -> None:
    async with running_screen(_idle(), load=ScriptedLoad()) as rig:
        await _form(rig)
        await rig.sees("scale 100 (found)")
        await rig.press("left")
        await rig.sees("needs the bus data set: i creates it")


async def test_limit_tries_errors_and_statements_are_typed_and_started() -> None:
    load = ScriptedLoad()
    async with running_screen(_idle(), load=load) as rig:
        await _form(rig)
        await rig.press(*["down"] * 5)
        await rig.type("2.5")
        await rig.press("down", "down")
        await rig.type("3")
        await rig.press("down", "right")
        await rig.sees("counts as failed (pgbench 19)")
        await rig.press("down", "right", "s")
        wanted = LoadSpec(duration_s=300, latency_limit_ms=2.5, max_tries=3, continue_on_error=True, per_statement=True)
        await rig.until(lambda: load.started == [wanted])


async def test_the_keys_that_change_a_load_are_in_the_footer_while_one_runs() -> None:
    async with running_screen(ScriptedSource([Step(tuple(frames(5)), restart=True)]), load=ScriptedLoad()) as rig:
        await rig.sees("Ll clients")
        rig.source.feed(*frames(6, load=False)[5:])
        await rig.until(lambda: "Ll clients" not in rig.text())


class SlowPreview(ScriptedLoad):
    """Gives the command line of changed words only when it is let."""

    def __init__(self) -> None:
        super().__init__(refuses=LoadProblem("no tables at all"))
        self.let = threading.Event()

    async def preview(self, spec: LoadSpec) -> str:
        command = await super().preview(spec)
        if spec.clients != LoadSpec().clients:
            await asyncio.to_thread(self.let.wait, DEADLINE_S)
        return command


async def test_a_command_line_that_comes_late_leaves_the_reason_why_nothing_started() -> None:
    load = SlowPreview()
    async with running_screen(_idle(), load=load) as rig:
        await _form(rig)
        await rig.press("down", "plus", "s")
        await rig.sees("no tables at all")
        load.let.set()
        await rig.sees(f"-c {2 * LoadSpec().clients}")
        await rig.sees("no tables at all")


async def test_a_data_set_of_the_size_typed_is_made_and_the_dashboard_goes_on() -> None:
    load = ScriptedLoad()
    async with running_screen(_idle(), load=load) as rig:
        await _form(rig)
        await rig.press("i")
        await rig.sees("the tables need about")
        await rig.type("25")
        await rig.press("enter", "s")
        await rig.until(lambda: load.made == [(MakingPlan("pgbench", "25"), False)])
        progress = MakingProgress("client-side generate", 500_000, 2_500_000, remaining_s=20.0)
        load.standing = LoadState(doing="making", title="scale 25", making=progress)
        rig.source.feed(frame(6, load=False))
        await rig.sees("500k of 2.50M rows, 20 s left")
        await rig.press("escape", "escape")
        await rig.sees("making scale 25: 20%")
        await rig.press("q")
        await rig.sees("making scale 25: still running")
        await rig.press("y")
        await rig.until(lambda: load.stops == 1)


async def test_what_is_there_is_dropped_only_after_a_typed_yes() -> None:
    load = ScriptedLoad()
    load.means = replace(load.means, dropped="scale 1, 100k accounts")
    async with running_screen(_idle(), load=load) as rig:
        await _form(rig)
        await rig.press("i")
        await rig.sees("the database bench holds scale 1, 100k accounts, which will be dropped.")
        await rig.press("s")
        await rig.sees("existing tables are dropped only when you type yes")
        await rig.type("ye")
        await rig.press("enter")
        await rig.sees("existing tables are dropped only when you type yes")
        assert load.made == []
        await rig.type("yes")
        await rig.press("enter")
        await rig.until(lambda: load.made == [(MakingPlan("pgbench", "10"), True)])


async def test_a_making_is_stopped_with_x_and_its_end_is_told() -> None:
    load = ScriptedLoad()
    async with running_screen(_idle(), load=load) as rig:
        await _form(rig)
        await rig.press("i")
        await rig.sees("the tables need about")
        await rig.press("s")
        await rig.until(lambda: load.made)
        load.standing = LoadState(doing="making", title="scale 10", making=MakingProgress("vacuum"))
        rig.source.feed(frame(6, load=False))
        await rig.sees("x stop")
        await rig.press("x")
        await rig.until(lambda: load.stops == 1)
        load.standing = LoadState(made=DataSetMade("scale 10", (("vacuum", 0.5),), 3.6))
        rig.source.feed(frame(7, load=False))
        await rig.sees("created: scale 10")
        assert isinstance(rig.app.screen, InitDialog)


async def test_steps_begin_with_the_list_and_the_spec_of_the_form() -> None:
    load = ScriptedLoad()
    async with running_screen(_idle(), load=load) as rig:
        await _form(rig)
        await rig.press("n")
        await rig.sees("1,2,4,8,16,32,64")
        await rig.type("1,2")
        await rig.press("down")
        await rig.type("30")
        await rig.sees("2 runs, 00:01:00")
        await rig.press("down", "right", "s")
        await rig.until(lambda: load.steps == [(LoadSpec(duration_s=30), "clients=1,2", False)])
        await rig.until(lambda: isinstance(rig.app.screen, Dashboard))


async def test_steps_that_are_refused_stay_for_correction() -> None:
    load = ScriptedLoad(LoadProblem("5000 clients will not fit: max_connections is 100", "fewer clients"))
    async with running_screen(_idle(), load=load) as rig:
        await _form(rig)
        await rig.press("n")
        await rig.sees("1,2,4")
        await rig.press("s")
        await rig.sees("5000 clients will not fit: max_connections is 100")


async def test_while_steps_run_the_dashboard_names_the_step_and_the_dialog_those_done() -> None:
    load = ScriptedLoad()
    async with running_screen(_idle(), load=load) as rig:
        series = replace(of_clients(), over=False)
        load.standing = LoadState("steps", "step 8 of 9: 128 clients", "housekeeping: vacuum", series=series)
        rig.source.feed(frame(6, load=False))
        await rig.sees("step 8 of 9: 128 clients")
        await rig.press("b")
        await rig.sees("housekeeping: vacuum")
        assert "2180.0" in rig.text()
        await rig.press("x")
        await rig.until(lambda: load.stops == 1)


async def test_what_came_out_is_shown_once_and_again_on_request() -> None:
    load = ScriptedLoad()
    async with running_screen(_idle(), load=load) as rig:
        load.standing = LoadState(series=of_clients())
        rig.source.feed(frame(6, load=False))
        await rig.sees("knee at 16 clients")
        await rig.press("right")
        await rig.sees("step 1 of 7")
        await rig.press("left", "left")
        await rig.sees("step 7 of 7")
        await rig.press("escape")
        rig.source.feed(frame(7, load=False))
        await rig.until(lambda: rig.app.context.live.now is not None and rig.app.context.live.now.sequence == 7)
        assert isinstance(rig.app.screen, Dashboard)
        await _form(rig)
        await rig.press("r")
        await rig.sees("knee at 16 clients")


async def test_words_are_checked_under_their_field_while_they_are_typed() -> None:
    load = ScriptedLoad()
    async with running_screen(_idle(), load=load, size=(80, 24)) as rig:
        await _form(rig)
        await rig.press(*["down"] * 10, "enter")
        await rig.type("hold 30s at 16, boost nosy")
        await rig.sees("phases, character 17: 'boost nosy' is no phase")
        await rig.press("enter", "s")
        assert not load.started
        await rig.press("enter")
        await rig.type("hold 30s at 16")
        await rig.sees("30 s, 1 steps, at most ×16")
        await rig.press("enter", "down", "enter")
        await rig.type("p99 > 50ms for 10s, sooner")
        await rig.sees("'sooner' is not a condition")
        await rig.press(*["backspace"] * len(", sooner"), "enter", "down", "right", "s")
        await rig.until(lambda: load.started == [LoadSpec(phases="hold 30s at 16")])
        assert load.ends == EndConditions(("p99 > 50ms for 10s",), stops=False)


async def test_the_field_in_focus_is_in_view_on_a_small_screen() -> None:
    async with running_screen(_idle(), load=ScriptedLoad(), size=(60, 15)) as rig:
        await rig.press("b")
        await rig.sees("▸ profile")
        await rig.press(*["down"] * 12)
        await rig.sees("▸ overload")
        await rig.press("down")
        await rig.sees("▸ profile")


async def test_a_search_begins_with_its_objective_and_tells_its_time_before() -> None:
    load = ScriptedLoad()
    async with running_screen(_idle(), load=load, size=(80, 24)) as rig:
        await _form(rig)
        await rig.press("o")
        await rig.sees("expected time: 12m")
        await rig.press("enter")
        await rig.type("p99 < soon")
        await rig.sees("'p99 < soon' is not an objective")
        await rig.press("enter", "s")
        assert not load.searches
        await rig.press("enter")
        await rig.type("mean < 5ms")
        await rig.press("enter", "down")
        await rig.type("250")
        await rig.press("down", "down")
        await rig.type("20")
        await rig.press("enter", "s")
        wish = SearchWish(objective="mean < 5ms", first_rate=250.0, budget_s=1200.0)
        await rig.until(lambda: load.searches == [(LoadSpec(duration_s=300), wish)])
        await rig.until(lambda: isinstance(rig.app.screen, Dashboard))
        await _form(rig)
        await rig.press("o")
        await rig.sees("mean < 5ms")


async def test_a_search_that_the_load_cannot_have_stays_for_correction() -> None:
    load = ScriptedLoad(LoadProblem("queue.sql has \\sleep, which pgbench counts as latency"))
    async with running_screen(_idle(), load=load) as rig:
        await _form(rig)
        await rig.press("o")
        await rig.sees("which pgbench counts as latency")


async def test_while_a_search_runs_it_is_shown_and_stopped_and_its_result_comes_up_once() -> None:
    load = ScriptedLoad()
    async with running_screen(_idle(), load=load) as rig:
        series = of_search()
        assert series.search is not None
        under_way = replace(series, over=False, search=replace(series.search, now="probing: 480 per second, 8 clients"))
        load.standing = LoadState("search", "search: probing: 480 per second, 8 clients", series=under_way)
        rig.source.feed(frame(6, load=False))
        await rig.sees("primary · up 3d04h · search")
        await rig.press("b")
        await rig.sees("p99 < 20ms: 440 per second hold it, 480 break it; 6 runs")
        await rig.press("x")
        await rig.until(lambda: load.stops == 1)
        await rig.press("escape")
        load.standing = LoadState(series=series)
        rig.source.feed(frame(7, load=False))
        await rig.sees("highest rate 459 per second")
        await rig.press("escape", "b")
        await rig.sees("r result")


async def test_overload_that_does_not_end_the_load_is_told_once() -> None:
    load = ScriptedLoad()
    async with running_screen(load=load) as rig:
        load.standing = LoadState("run", overload="OVERLOADED: since second 5", series=LoadSeries(1, "", 1))
        for second in (6, 7):
            rig.source.feed(frame(second))
        await rig.until(lambda: rig.app.context.live.now is not None and rig.app.context.live.now.sequence == 7)
        assert [notice.message for notice in rig.app._notifications] == ["OVERLOADED: since second 5"]
        await rig.press("b")
        await rig.sees("OVERLOADED: since second 5")


async def test_a_run_that_was_ended_early_says_why_first() -> None:
    async with running_screen(load=ScriptedLoad()) as rig:
        sample = bench_sample(6, 1)
        ended = replace(
            sample.run, state=RunState.STOPPED, ended_for="OVERLOADED", message="since second 5 the backlog"
        )
        rig.source.feed(frame(6, bench=BenchSample(6.0, ended, ())))
        await rig.press("b")
        await rig.sees("ended early: OVERLOADED: since second 5 the backlog")


async def test_a_result_waits_until_what_is_being_typed_is_done() -> None:
    load = ScriptedLoad()
    async with running_screen(_idle(), load=load) as rig:
        await rig.press("m")
        await rig.sees("Enter ok")
        load.standing = LoadState(series=LoadSeries(1, "", 1, (result(),), over=True))
        rig.source.feed(frame(6, load=False))
        await rig.until(lambda: rig.app.context.live.now is not None and rig.app.context.live.now.sequence == 6)
        assert not isinstance(rig.app.screen, ResultsDialog)
        await rig.press("escape")
        rig.source.feed(frame(7, load=False))
        await rig.sees("p99.99")


async def test_a_run_that_failed_was_told_already() -> None:
    load = ScriptedLoad()
    async with running_screen(_idle(), load=load) as rig:
        load.standing = LoadState(series=LoadSeries(1, "", 1, (failed(asked()),), over=True))
        rig.source.feed(frame(6, load=False))
        await rig.until(lambda: rig.app.context.live.now is not None and rig.app.context.live.now.sequence == 6)
        assert isinstance(rig.app.screen, Dashboard)
        await _form(rig)
        assert isinstance(rig.app.screen, LoadDialog)
        await rig.press("r")
        await rig.sees("not valid")
