"""The load dialog: what is typed is previewed, started, stopped, and pgbench's own words are shown."""

from __future__ import annotations

from msgspec.structs import replace

from pgtop_tune.base.errors import LoadProblem
from pgtop_tune.model.bench import BenchSample, LoadSpec, RunState
from pgtop_tune.model.frame import Frame
from pgtop_tune.runtime.load_control import DatasetFound
from pgtop_tune.runtime.ports import Step
from pgtop_tune.tui.dashboard.screen import Dashboard
from pgtop_tune.tui.load.dialog import LoadDialog
from tests.support.frames import bench_sample, frame
from tests.support.screens import ScriptedLoad, ScriptedSource, frames, running_screen


def _run(second: int, state: RunState, message: str = "", run: int = 1, status: int | None = None) -> Frame:
    sample = bench_sample(second, run)
    progress = sample.progress if state is RunState.RUNNING else ()
    changed = replace(sample.run, state=state, message=message, exit_status=status, run=run)
    return frame(second, bench=BenchSample(float(second), changed, progress))


def _idle() -> ScriptedSource:
    return ScriptedSource([Step(tuple(frames(5, load=False)), restart=True)])


async def test_the_command_line_follows_what_is_typed() -> None:
    load = ScriptedLoad()
    async with running_screen(_idle(), load=load) as rig:
        await rig.press("b")
        await rig.sees("pgbench -n -b tpcb-like -c 8 -M prepared -T 300")
        await rig.press("down", "plus", "down", "down")
        await rig.type("60")
        await rig.sees("-c 16 -M prepared -T 60")
        await rig.press("up", "up", "backspace")
        await rig.sees("clients: a number is missing")


async def test_one_key_starts_and_the_dialog_closes_when_the_load_reports() -> None:
    load = ScriptedLoad()
    async with running_screen(_idle(), load=load) as rig:
        await rig.press("b")
        await rig.sees("pgbench -n")
        await rig.press("down", "plus", "s")
        await rig.until(lambda: load.started == [LoadSpec(clients=16, duration_s=300)])
        rig.source.feed(_run(5, RunState.STARTING))
        await rig.sees("starting")
        rig.source.feed(_run(6, RunState.RUNNING))
        await rig.until(lambda: isinstance(rig.app.screen, Dashboard))
        await rig.press("b")
        await rig.sees("left")
        assert "s start" not in rig.text()


async def test_enter_edits_and_starts_nothing_and_an_empty_time_runs_until_stopped() -> None:
    load = ScriptedLoad()
    async with running_screen(_idle(), load=load) as rig:
        await rig.press("b")
        await rig.sees("-c 8 -M prepared -T 300")
        await rig.press("down", "enter", "2", "enter")
        await rig.sees("-c 2 -M prepared -T 300")
        await rig.press("enter", "7", "escape")
        await rig.sees("-c 2 -M prepared -T 300")
        await rig.press("down", "down", "backspace")
        await rig.sees("until stopped")
        assert load.started == []
        await rig.press("s")
        await rig.until(lambda: load.started == [LoadSpec(clients=2)])


async def test_the_next_dialog_begins_with_what_was_typed_before() -> None:
    async with running_screen(_idle(), load=ScriptedLoad()) as rig:
        await rig.press("b")
        await rig.sees("-c 8")
        await rig.press("down", "plus")
        await rig.sees("-c 16")
        await rig.press("escape", "b")
        await rig.sees("-c 16")


async def test_a_refusal_is_shown_and_the_form_stays() -> None:
    load = ScriptedLoad(LoadProblem("pgbench: error: no [such] \x1b[31mtable", "initialise first"))
    async with running_screen(_idle(), load=load) as rig:
        await rig.press("b")
        await rig.sees("pgbench -n")
        await rig.press("s")
        await rig.sees("no [such] ␛[31mtable")
        assert "initialise first" in rig.text()
        assert "clients" in rig.text()


async def test_pgbench_failing_after_its_start_keeps_the_dialog_open_with_its_words() -> None:
    load = ScriptedLoad()
    async with running_screen(_idle(), load=load) as rig:
        await rig.press("b")
        await rig.sees("pgbench -n")
        await rig.press("s")
        await rig.sees("waiting for the first second")
        rig.source.feed(_run(5, RunState.FAILED, 'relation "pgbench_branches" does not exist', status=1))
        await rig.sees('relation "pgbench_branches" does not exist')
        await rig.sees("exit status 1")
        assert isinstance(rig.app.screen, LoadDialog)
        assert "waiting" not in rig.text()


async def test_a_running_load_is_stopped_with_x() -> None:
    load = ScriptedLoad()
    async with running_screen(load=load) as rig:
        await rig.press("b")
        await rig.sees("x stop")
        assert "pgbench" in rig.text()
        await rig.press("x")
        await rig.until(lambda: load.stops == 1)


async def test_a_load_that_fails_behind_a_closed_dialog_says_so_once() -> None:
    async with running_screen(load=ScriptedLoad()) as rig:
        rig.source.feed(_run(5, RunState.FAILED, "server [closed] the connection", status=2))
        rig.source.feed(_run(6, RunState.FAILED, "server [closed] the connection", status=2))
        await rig.until(lambda: rig.app.context.live.now is not None and rig.app.context.live.now.sequence == 6)
        await rig.until(lambda: rig.app._notifications)
        told = [notice.message for notice in rig.app._notifications]
        assert told == ["load 1 failed: server [closed] the connection"]
        await rig.sees("load 1 failed: server [closed] the connection")


async def test_what_surprises_is_one_sentence_and_not_a_crash() -> None:
    class Surprising(ScriptedLoad):
        async def preview(self, spec: LoadSpec) -> str:
            raise ZeroDivisionError("oh")

    async with running_screen(_idle(), load=Surprising()) as rig:
        await rig.press("b")
        await rig.sees("ZeroDivisionError: oh")


async def test_what_the_fields_of_steps_say_is_whole_at_80_columns() -> None:
    async with running_screen(_idle(), load=ScriptedLoad(), size=(80, 24)) as rig:
        await rig.press("b")
        await rig.sees("pgbench -n")
        await rig.press("n")
        await rig.sees("separated by commas, in this order")
        await rig.sees("empty history, vacuum, checkpoint")
        await rig.press("down", "down", "right")
        await rig.sees("each starts where the last one ended")


async def test_making_a_data_set_is_offered_where_that_would_help() -> None:
    load = ScriptedLoad()
    load.found = (DatasetFound("pgbench", problem="permission denied for table pgbench_branches"),)
    async with running_screen(_idle(), load=load) as rig:
        await rig.press("b")
        await rig.sees("permission denied for table pgbench_branches")
        assert "i creates it" not in rig.text()
    load.found = (DatasetFound("pgbench", "scale 10", "pgbench_tellers is empty"),)
    async with running_screen(_idle(), load=load) as rig:
        await rig.press("b")
        await rig.sees("scale 10: pgbench_tellers is empty: i creates it")
