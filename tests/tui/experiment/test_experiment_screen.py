"""Experiments on the screen: staged against in force, one line that stays in its place, stop, verdict, B kept."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from msgspec.structs import replace

from pgtop_tune.advice.knobs.catalogue import KNOBS
from pgtop_tune.compare.since_change import since_change
from pgtop_tune.model.events import Event, EventKind
from pgtop_tune.model.frame import Frame
from pgtop_tune.runtime.experiment_control import KILLED
from pgtop_tune.runtime.ports import Step
from pgtop_tune.tui.dashboard.screen import Dashboard
from pgtop_tune.tui.experiment.dialogs import detail_lines
from pgtop_tune.tui.parameters.rows import SettingRow, Staged
from pgtop_tune.tui.scene.banners import experiment_line
from pgtop_tune.tui.widgets.lines import ASCII, UNICODE, plain_text, width
from tests.support.experiments import BETTER, RUNNING, ScriptedExperiments
from tests.support.frames import EPOCH_MS, frame
from tests.support.pictures import assert_picture
from tests.support.screens import Rig, ScriptedParameters, ScriptedSource, ScriptedTransport, frames, running_screen

_GOLDENS = Path(__file__).parent.parent / "goldens"
_SIZES = ((80, 24), (120, 40), (200, 50))
_SWITCHES = {10: "A: work_mem=4MB", 25: "B: work_mem=64MB", 40: "A: work_mem=4MB", 50: "B: work_mem=64MB"}


def _frames(count: int, switches: dict[int, str]) -> list[Frame]:
    def events(second: int) -> Sequence[Event]:
        text = switches.get(second)
        return () if text is None else (Event(EPOCH_MS + second * 1000, EventKind.SWITCH, text),)

    return [frame(second, events=events(second)) for second in range(count)]


def _switching(switches: dict[int, str]) -> ScriptedSource:
    return ScriptedSource([Step(tuple(_frames(60, switches)), restart=True)])


def _stage(rig: Rig, control: ScriptedParameters, **values: str) -> None:
    """As if staged in the list of parameters, which is closed."""
    knobs = {knob.name: knob for knob in KNOBS}
    rig.app.parameters.panel.staged = tuple(
        SettingRow(control.rows[name], knobs[name], staged=Staged(value)) for name, value in values.items()
    )


@pytest.mark.parametrize(("columns", "lines"), _SIZES)
async def test_pictures(columns: int, lines: int) -> None:
    for name, state in (("running", RUNNING), ("verdict", BETTER)):
        switches = _SWITCHES if state.under_way else _SWITCHES | {57: "A/B better"}
        experiments = ScriptedExperiments(state)
        async with running_screen(
            _switching(switches),
            size=(columns, lines),
            parameters=ScriptedParameters(),
            experiments=experiments,
            knobs=KNOBS,
        ) as rig:
            await rig.sees("A/B")
            rows = rig.text().split("\n")
            assert_picture(_GOLDENS / f"experiment-{name}-{columns}x{lines}.txt", rows)


@pytest.mark.parametrize(("columns", "lines"), _SIZES)
async def test_the_dialog(columns: int, lines: int) -> None:
    control, experiments = ScriptedParameters(), ScriptedExperiments()
    async with running_screen(size=(columns, lines), parameters=control, experiments=experiments, knobs=KNOBS) as rig:
        _stage(rig, control, work_mem="64MB", shared_buffers="1GB")
        await rig.press("x")
        await rig.sees("pairs differ by 3.2 %")
        await rig.sees("last 20 predictions: 17 inside")
        assert_picture(_GOLDENS / f"experiment-dialog-{columns}x{lines}.txt", rig.text().split("\n"))


async def test_what_is_staged_is_compared_for_the_time_chosen_under_the_load_that_runs() -> None:
    control, experiments = ScriptedParameters(), ScriptedExperiments()
    async with running_screen(parameters=control, experiments=experiments, knobs=KNOBS) as rig:
        _stage(rig, control, work_mem="64MB", shared_buffers="1GB")
        await rig.press("x")
        await rig.sees("a difference of 3 % shows in about 6m04s")
        await rig.sees("shared_buffers                takes a restart of the server")
        await rig.press("minus", "enter")
        await rig.until(lambda: isinstance(rig.app.screen, Dashboard))
        (request,) = experiments.started
        assert request.values == (("work_mem", "64MB"),)
        assert request.run is not None
        assert request.for_s == 300.0
        await rig.sees("warming up")


async def test_without_staged_values_or_load_it_says_how_to_get_them() -> None:
    idle = ScriptedSource([Step(tuple(frames(5, load=False)), restart=True)])
    control, experiments = ScriptedParameters(), ScriptedExperiments()
    async with running_screen(idle, parameters=control, experiments=experiments, knobs=KNOBS) as rig:
        await rig.press("x")
        await rig.sees("Press p, stage a value")
        await rig.press("enter")
        await rig.sees("no staged value can be compared")
        assert experiments.started == []


async def test_what_it_lacked_is_no_longer_said_once_it_is_there() -> None:
    control, experiments = ScriptedParameters(), ScriptedExperiments()
    async with running_screen(parameters=control, experiments=experiments, knobs=KNOBS) as rig:
        await rig.press("x")
        await rig.press("enter")
        await rig.sees("no staged value can be compared")
        _stage(rig, control, work_mem="64MB")
        rig.source.feed(frames(6)[-1])
        await rig.until(lambda: "no staged value can be compared" not in rig.text())


async def test_staged_values_outlive_the_list_and_are_what_x_compares() -> None:
    control, experiments = ScriptedParameters(), ScriptedExperiments()
    async with running_screen(parameters=control, experiments=experiments, knobs=KNOBS) as rig:
        await rig.press("p")
        await rig.sees("▸ max_wal_size")
        await rig.press("plus")
        await rig.sees("1 staged")
        await rig.press("escape", "x")
        await rig.until(lambda: (("max_wal_size", "2GB"),) in experiments.asked)


async def test_a_running_one_is_stopped_after_a_question_and_undo_waits() -> None:
    experiments = ScriptedExperiments(RUNNING)
    async with running_screen(parameters=ScriptedParameters(), experiments=experiments, knobs=KNOBS) as rig:
        await rig.press("u")
        await rig.until(lambda: rig.app._notifications)
        assert "an experiment is running" in next(iter(rig.app._notifications)).message
        await rig.press("x")
        await rig.sees("-0.3 % … +8.2 %")
        await rig.press("s")
        await rig.sees("The original values are restored")
        await rig.press("escape")
        assert experiments.stops == 0
        await rig.press("s")
        await rig.sees("The original values are restored")
        await rig.press("y")
        await rig.until(lambda: experiments.stops == 1)


async def test_leaving_asks_and_stops_it() -> None:
    experiments = ScriptedExperiments(RUNNING)
    idle = ScriptedSource([Step(tuple(frames(5, load=False)), restart=True)])
    async with running_screen(idle, parameters=ScriptedParameters(), experiments=experiments, knobs=KNOBS) as rig:
        await rig.press("q")
        await rig.sees("An experiment is running (work_mem 4MB→64MB)")
        await rig.press("y")
        await rig.until(lambda: rig.app._exit)
        assert experiments.stops == 1


async def test_a_better_b_is_kept_as_a_confirmed_change_and_the_verdict_goes() -> None:
    control, experiments = ScriptedParameters(), ScriptedExperiments(BETTER)
    async with running_screen(parameters=control, experiments=experiments, knobs=KNOBS) as rig:
        await rig.sees("B is better")
        await rig.press("Y")
        await rig.until(lambda: control.journal)
        (change,) = control.journal
        assert (change.name, change.value, change.kept) == ("work_mem", "64MB", True)
        await rig.until(lambda: "B is better" not in rig.text())


async def test_a_verdict_that_was_read_is_put_aside_and_the_key_begins_the_next() -> None:
    experiments = ScriptedExperiments(replace(BETTER, ending="worse", better=False))
    async with running_screen(parameters=ScriptedParameters(), experiments=experiments, knobs=KNOBS) as rig:
        await rig.press("x")
        await rig.sees("Esc close")
        await rig.press("escape")
        await rig.until(lambda: "B is worse" not in rig.text())
        await rig.press("x")
        await rig.sees("Nothing is staged")


async def test_one_of_another_program_is_shown_stopped_and_put_aside_and_undo_waits() -> None:
    other = ScriptedExperiments(replace(RUNNING, where="detached"))
    async with running_screen(
        parameters=ScriptedParameters(), experiments=ScriptedExperiments(), other_experiments=other, knobs=KNOBS
    ) as rig:
        await rig.sees("A/B B  detached  pair  5")
        await rig.press("u")
        await rig.until(lambda: rig.app._notifications)
        await rig.press("x")
        await rig.sees("-0.3 % … +8.2 %")
        await rig.press("s")
        await rig.sees("The experiment (detached) ends without a verdict")
        await rig.press("y")
        await rig.until(lambda: other.stops == 1)
        await rig.sees("Esc close")
        await rig.press("escape")
        await rig.until(lambda: "interrupted" not in rig.text())
        await rig.press("x")
        await rig.sees("Nothing is staged")


async def test_leaving_does_not_stop_one_of_another_program() -> None:
    other = ScriptedExperiments(replace(RUNNING, where="detached"))
    idle = ScriptedSource([Step(tuple(frames(5, load=False)), restart=True)])
    async with running_screen(
        idle, parameters=ScriptedParameters(), experiments=ScriptedExperiments(), other_experiments=other, knobs=KNOBS
    ) as rig:
        await rig.sees("detached")
        await rig.press("q")
        await rig.until(lambda: rig.app._exit)
        assert other.stops == 0


async def test_a_replay_has_no_such_key() -> None:
    async with running_screen(transport=ScriptedTransport()) as rig:
        await rig.press("x")
        await rig.pilot.pause()
        assert isinstance(rig.app.screen, Dashboard)
        assert "experiment" not in {action.id for action in rig.app._actions}


async def test_the_title_does_not_judge_switches() -> None:
    values = {30: "work_mem 4MB→64MB"}

    def at(second: int, *, switched: bool) -> Frame:
        events = [Event(EPOCH_MS + second * 1000, EventKind.PARAMETER, values[second])] if second in values else []
        if switched and second == 45:
            events.append(Event(EPOCH_MS + second * 1000, EventKind.SWITCH, "A: work_mem=4MB"))
        return frame(second, events=events)

    for switched in (False, True):
        source = ScriptedSource([Step(tuple(at(each, switched=switched) for each in range(90)), restart=True)])
        async with running_screen(source) as rig:
            assert (since_change(rig.app.context.live) is None) is switched


def test_the_table_of_the_details_keeps_its_verdicts_beside_the_figures_at_80_columns() -> None:
    details = (
        "B (synchronous_commit=off) against A (synchronous_commit=on): better, tps +128.8 % (+66.0 % … +215.4 %)\n\n"
        "figure                A         B         B against A  95 %                 verdict\n"
        "tps                   359.8/s   820.3/s   +128.8 %     +66.0 % … +215.4 %   better\n"
        "WAL per transaction   1.18K     653       -7.8 %                            too few pairs\n"
        "budget CPU queue      5.5 ms    3.15 ms   -44.2 %      -66.9 % … -6.0 %     undecided\n"
        "tps decides; the other figures are secondary\n\n6 of 6 pairs count"
    )
    lines = [plain_text(line) for line in detail_lines(replace(RUNNING, details=details), 76, UNICODE)]
    assert "figure     A        B        B to A    95 %                verdict" in lines
    assert "tps        359.8/s  820.3/s  +128.8 %  +66.0 % … +215.4 %  better" in lines
    assert "WAL/tx     1.18K    653      -7.8 %                        too few pairs" in lines
    assert "CPU queue  5.5 ms   3.15 ms  -44.2 %   -66.9 % … -6.0 %    undecided" in lines
    assert "tps decides; the other figures are secondary" in lines


def test_of_a_killed_program_nobody_says_that_its_values_are_put_back() -> None:
    over = replace(BETTER, better=False, where="detached")
    assert "values restored" in plain_text(experiment_line(over, 120, UNICODE, "x", "Y"))
    killed = plain_text(experiment_line(replace(over, ending=KILLED), 120, UNICODE, "x", "Y"))
    assert killed.startswith(" A/B killed  detached")
    assert "put back" not in killed


def test_the_line_of_a_plan_and_of_an_older_program_fits_into_80_cells_with_its_estimate() -> None:
    plan = replace(RUNNING, kind="plan P1", where="detached", arm="", pair=3, of=120, figure="tps of large", values=())
    older = replace(RUNNING, kind="twin", where="process 4711", arm="", phase="copying", pair=0, effect=None)
    ab = replace(RUNNING, where="process 4194304")
    for state, words, estimate in (
        (plan, "plan P1  detached  cell   3/120", "+4.1 %"),
        (older, "twin  process 4711", "no pair yet"),
        (ab, "A/B B  pid 4194304  pair  5  02:12 of 10:00", "(  −0.3 …   +8.2)  x"),
        (
            replace(RUNNING, figure="same mix"),
            "A/B B  pair  5  02:12 of 10:00",
            "same mix   +4.1 % (  −0.3 …   +8.2)  x",
        ),
        (RUNNING, "A/B B  pair  5  measuring   02:12 07:48 left", "(  −0.3 …   +8.2)  x"),
    ):
        line = experiment_line(state, 80, UNICODE, "x", "Y")
        assert width(line) <= 80
        assert words in plain_text(line)
        assert estimate in plain_text(line)


def test_each_part_of_the_line_stays_in_its_place_while_it_runs() -> None:
    states = [
        replace(RUNNING, effect=None, low=None, high=None, pair=0, arm="", phase="checking the values"),
        replace(RUNNING, phase="settling", pair=12, elapsed_s=3_000.0),
        replace(RUNNING, effect=-0.5, low=-0.8, high=None),
        RUNNING,
    ]
    for glyphs in (UNICODE, ASCII):
        for cells in (80, 120, 200):
            lines = [plain_text(experiment_line(state, cells, glyphs, "x", "Y")) for state in states]
            assert len({line.index("left") for line in lines}) == 1
            assert len({line.index("tps") for line in lines}) == 1
            assert len({line.index(" x") for line in lines}) == 1
            assert all(width(experiment_line(state, cells, glyphs, "x", "Y")) <= cells for state in states)
