"""Repeats: in which order cells are run, until when, what is refused beforehand, and what each cell's runs say."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from msgspec.structs import replace

from pgtop_tune.base.errors import UsageProblem
from pgtop_tune.bench.ports import LoadEndpoint
from pgtop_tune.bench.profiles import load_profiles, profile_directories
from pgtop_tune.cli.commands.bench.results import results_markdown, results_text
from pgtop_tune.compare.noise import LoadFingerprint, NoiseGroup, known_noise, remember
from pgtop_tune.compare.reports.report import run_sheets
from pgtop_tune.compare.sides.from_records import material_of_records
from pgtop_tune.compare.statistics.effect import RunSpread
from pgtop_tune.experiment.load_run import RunCell
from pgtop_tune.experiment.path import LoadTarget
from pgtop_tune.experiment.repeats import (
    AT_MOST,
    Repeats,
    Repetition,
    check_goal,
    check_length,
    parse_goal,
    repetition,
)
from pgtop_tune.experiment.series import Steps, cells, curves, series_json
from pgtop_tune.model.bench import LoadSpec
from pgtop_tune.model.run_result import Doubt, RunResult, RunVerdict, as_json
from tests.support.results import asked, failed, result
from tests.support.run_frames import FACTS, TPS

TARGET = LoadTarget("direct", LoadEndpoint(host="/s", port="5432", user="u", dbname="d"))


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))


def made(*profiles: str, seconds: int = 60) -> tuple[RunCell, ...]:
    loaded = load_profiles(profile_directories(None))
    spec = LoadSpec(duration_s=seconds)
    return cells([TARGET], [loaded.get(name) for name in profiles], spec, None, clients=16)


def run(
    level: float = 1000.0, *, number: int = 0, profile: str = "tpcb-like", seconds: int = 60, sd: float = 0.02
) -> RunResult:
    """A run whose seconds are noisy about a level."""
    chance = random.Random(f"{level} {number} {profile}")
    found = result(asked(profile), facts=replace(FACTS, processed=TPS * seconds), seconds=seconds)
    lines = tuple(replace(line, tps=level * (1.0 + chance.gauss(0.0, sd))) for line in found.progress)
    return replace(found, progress=lines, started_ms=found.started_ms + 100_000 * number)


def taken(wish: Repetition, levels: dict[int, list[float]], *profiles: str, **how: object) -> tuple[Repeats, list[int]]:
    """Repeats after runs at these levels, cell by cell, the last of them again and again; and their order."""
    plan = made(*profiles)
    repeats, order = Repeats(plan, wish), []
    for number, place in enumerate(repeats):
        order.append(place)
        level = levels[place][min(order.count(place), len(levels[place])) - 1]
        repeats.take(run(level, number=number, profile=profiles[place], **how))  # type: ignore[arg-type]
    return repeats, order


def test_cells_are_run_there_and_back() -> None:
    repeats, order = taken(Repetition(runs=3), {0: [1000.0], 1: [5000.0]}, "tpcb-like", "select-only")
    assert order == [0, 1, 1, 0, 0, 1] == repeats.order


def test_without_a_wish_each_cell_is_run_once_in_its_order() -> None:
    assert list(Repeats(made("tpcb-like", "select-only"), Repetition())) == [0, 1]


def test_repeats_end_when_the_interval_of_each_cell_is_as_narrow_as_wished() -> None:
    levels = {0: [1000.0, 1001.0, 999.0], 1: [5000.0, 5001.0, 4999.0]}
    repeats, order = taken(Repetition(runs=2, until=0.02), levels, "tpcb-like", "select-only")
    assert repeats.narrow
    assert repeats.outcome() == ()
    assert len(order) % 2 == 0
    assert 4 < len(order) / 2 < AT_MOST
    for cell, truth in zip(repeats.cells(), (1000.0, 5000.0), strict=True):
        assert cell.interval is not None
        assert cell.interval[0] < truth < cell.interval[1]
        assert cell.half is not None
        assert cell.half <= 0.02


def test_the_limit_ends_repeats_and_says_how_many_more_it_takes() -> None:
    levels = {0: [1000.0, 1100.0, 950.0, 1080.0]}
    repeats, order = taken(Repetition(runs=2, until=0.02, at_most=4), levels, "tpcb-like")
    assert len(order) == 4
    [line] = repeats.outcome()
    assert "after 4 runs; ±2 % needs about" in line
    assert "more runs" in line


def test_one_run_is_said_in_the_singular() -> None:
    repeats, _ = taken(Repetition(runs=1, until=0.001, at_most=1), {0: [1000.0]}, "tpcb-like")
    [line] = repeats.outcome()
    assert "after 1 run; ±0.1 % needs" in line


def test_all_cells_are_repeated_while_one_is_noisy() -> None:
    levels = {0: [1000.0], 1: [5000.0, 5500.0, 4800.0]}
    _, order = taken(Repetition(runs=2, until=0.02, at_most=7), levels, "tpcb-like", "select-only")
    assert order.count(0) == order.count(1) == 7


def test_runs_are_kept_as_history_and_spare_runs_the_next_time() -> None:
    levels = {0: [1000.0, 1004.0, 998.0, 1001.0, 997.0, 1003.0]}
    first, _ = taken(Repetition(runs=6), levels, "tpcb-like")
    assert first.keep() == ""
    [cell] = first.cells()
    assert cell.load is not None
    known = known_noise(cell.load)
    assert known is not None
    assert known.spread("tps").degrees == 5
    wish = Repetition(runs=2, until=0.02)
    again, order = taken(wish, levels, "tpcb-like")
    (noise,) = again.cells()
    assert noise.from_history == 5
    assert len(order) < 6


def test_a_short_run_is_measured_and_not_compared_and_not_kept() -> None:
    repeats, _ = taken(Repetition(runs=2), {0: [1000.0, 1010.0]}, "tpcb-like", seconds=25)
    [cell] = repeats.cells()
    assert cell.tps == pytest.approx(1005.0, rel=0.01)
    assert cell.interval is None
    assert "a run shorter than 30 s is not compared" in " ".join(cell.notes)
    repeats.keep()
    assert cell.load is not None
    assert known_noise(cell.load) is None


def test_a_goal_for_short_runs_is_refused() -> None:
    with pytest.raises(UsageProblem, match="--until needs 30 s"):
        check_length(made("tpcb-like", seconds=20), Repetition(runs=2, until=0.02))
    check_length(made("tpcb-like", seconds=20), Repetition(runs=2))


LOAD = LoadFingerprint(
    machine="db1, 4", generator="", server="18", load="tpcb-like", scale="50", clients=16, protocol="prepared"
)


def test_a_goal_that_the_known_noise_puts_out_of_reach_is_refused_with_the_time_it_takes() -> None:
    remember(LOAD, NoiseGroup(at_ms=1, began_ms=(0, 1), spreads={"tps": RunSpread(16 * 0.04**2, 16)}))
    plan = made("tpcb-like", "select-only")
    with pytest.raises(UsageProblem) as refused:
        check_goal(plan, [LOAD, None], Repetition(runs=2, until=0.02), warm_up_s=10)
    assert "tpcb-like ×16 at scale 50" in refused.value.message
    assert "it needs about 21 runs of each cell (49m00s of load for all cells)" in refused.value.message
    assert "the limit is 12" in refused.value.message
    with pytest.raises(UsageProblem, match=r"more than 100 runs of each cell, but the limit is 12"):
        check_goal(plan, [LOAD, None], Repetition(runs=2, until=0.002))
    check_goal(plan, [LOAD, None], Repetition(runs=2, until=0.02, at_most=30))
    check_goal(plan, [LOAD, None], Repetition(runs=2, until=0.05))
    check_goal(plan, [LOAD, None], Repetition(runs=20))
    check_goal(plan, [None, None], Repetition(runs=2, until=0.001))


def test_failed_and_invalid_runs_are_counted_and_do_not_count() -> None:
    repeats = Repeats(made("tpcb-like"), Repetition(runs=4))
    lost = Doubt(id="LOG-INCOMPLETE", verdict=RunVerdict.INVALID, reason="lost")
    results = [run(1000.0), failed(), replace(run(400.0), doubts=(lost,)), run(1010.0, number=3)]
    for _, each in zip(repeats, results, strict=False):
        repeats.take(each)
    [cell] = repeats.cells()
    assert (cell.runs_made, cell.runs) == (4, 2)
    assert cell.tps == pytest.approx(1005.0, rel=0.01)
    assert cell.notes[:2] == ("run 2 failed", "run 3 is not valid (LOG-INCOMPLETE)")


def test_a_cell_of_which_nothing_counts_has_a_row_all_the_same() -> None:
    repeats = Repeats(made("tpcb-like"), Repetition(runs=2))
    for _ in repeats:
        repeats.take(failed())
    [cell] = repeats.cells()
    assert (cell.runs, cell.tps, cell.interval) == (0, None, None)
    assert "0 of 2" in results_text([failed(), failed()], None, "#", repeats.cells())


def test_runs_around_a_restart_are_not_made_alike() -> None:
    repeats = Repeats(made("tpcb-like"), Repetition(runs=2))
    first = run(1000.0)
    for _, each in zip(repeats, [first, run(1010.0, number=1)], strict=False):
        repeats.take(replace(each, server={**first.server, "started_ms": 5 if each is first else 9}))
    [cell] = repeats.cells()
    assert "no interval: the server was restarted before run 2" in cell.notes
    assert cell.interval is None
    repeats.keep()
    assert cell.load is not None
    assert known_noise(cell.load) is None


def test_a_parameter_that_was_changed_in_between_is_named() -> None:
    repeats = Repeats(made("tpcb-like"), Repetition(runs=2))
    first = run(1000.0)
    for _, (each, value) in zip(repeats, [(first, "1GB"), (run(1010.0, number=1), "4GB")], strict=False):
        settings = {**first.server["settings"], "max_wal_size": value}
        repeats.take(replace(each, server={**first.server, "settings": settings}))
    [cell] = repeats.cells()
    assert any("max_wal_size was 1GB in run 1 and 4GB in run 2" in note for note in cell.notes)


def test_a_load_bound_by_its_generator_is_said_and_is_no_history() -> None:
    bound = Doubt(id="CLIENT-BOUND", verdict=RunVerdict.SUSPECT, reason="pgbench is busy")
    repeats = Repeats(made("tpcb-like"), Repetition(runs=2))
    for number, _ in enumerate(repeats):
        repeats.take(replace(run(1000.0, number=number), doubts=(bound,)))
    [cell] = repeats.cells()
    assert any("pgbench was the limit in 2 of 2 runs" in note for note in cell.notes)
    repeats.keep()
    assert cell.load is not None
    assert known_noise(cell.load) is None


@pytest.mark.parametrize("why", ["failed", "short", "bound"])
def test_a_wish_that_no_run_can_fulfil_ends_early(why: str) -> None:
    bound = Doubt(id="CLIENT-BOUND", verdict=RunVerdict.SUSPECT, reason="pgbench is busy")
    repeats = Repeats(made("tpcb-like"), Repetition(runs=2, until=0.001))
    for number, _ in enumerate(repeats):
        found = {
            "failed": failed(),
            "short": run(1000.0, number=number, seconds=25),
            "bound": replace(run(1000.0, number=number), doubts=(bound,)),
        }
        repeats.take(found[why])
        if why != "bound" and number == 0:
            assert repeats.outcome()[-1].endswith("no interval after 1 run, see the notes")
    assert repeats.order == [0, 0]
    assert repeats.outcome()[-1].endswith("the server" if why == "bound" else "after 2 runs, see the notes")


def test_runs_that_do_not_get_steady_are_said() -> None:
    repeats = Repeats(made("tpcb-like"), Repetition(runs=2))
    for number, _ in enumerate(repeats):
        found = run(1000.0, number=number)
        lines = tuple(replace(line, tps=line.tps * (1.0 + place / 20)) for place, line in enumerate(found.progress))
        repeats.take(replace(found, progress=lines))
    [cell] = repeats.cells()
    assert any(note.startswith("2 of 2 runs did not become steady") for note in cell.notes)


def test_one_row_for_each_cell_in_text_markdown_json_and_reports() -> None:
    repeats, _ = taken(Repetition(runs=2), {0: [1000.0, 1020.0], 1: [5000.0]}, "tpcb-like", "select-only")
    found = repeats.cells()
    results = [run(1000.0), run(5000.0, profile="select-only"), run(5000.0, number=2, profile="select-only"),
               run(1020.0, number=3)]  # fmt: skip
    said = results_text(results, None, "#", found).splitlines()
    (row,) = [line for line in said if line.startswith("tpcb-like ×16")]
    assert row.split()[2] == "2"
    assert "±" in row
    assert "| tpcb-like ×16 | 2 |" in results_markdown(results, None, found)
    whole = series_json(results, None, single=False, repeats=repeats.as_json())
    assert whole["order"] == [0, 1, 1, 0]
    assert [cell["runs"] for cell in whole["cells"]] == [2, 2]
    assert whole["cells"][0]["interval"][0] < 1010.0 < whole["cells"][0]["interval"][1]
    side = material_of_records([as_json(each) for each in results], "A")
    (sheet,) = [sheet for sheet in run_sheets([side]) if sheet.heading == "repeats"]
    assert sheet.table is not None
    assert [row[:2] for row in sheet.table.rows] == [("tpcb-like ×16", "2"), ("select-only ×16", "2")]


def test_a_step_is_one_point_of_the_curve_however_often_it_was_run() -> None:
    results = [result(asked(clients=number), tps=100.0 * number + each) for each in (0, 10) for number in (1, 2, 4)]
    [curve] = curves(results, Steps("clients", (1.0, 2.0, 4.0)))
    assert [point.tps for point in curve.points] == [105.0, 205.0, 405.0]


@pytest.mark.parametrize("words", ["±2 %", "2%", "2", "+-2%", "+/- 2 %", " ±2.0% "])
def test_a_goal_as_it_is_typed(words: str) -> None:
    assert parse_goal(words) == pytest.approx(0.02)


@pytest.mark.parametrize("words", ["", "±", "two", "0", "-2%", "99", "0.01%", "2 tps", "±2±2"])
def test_what_is_no_goal_is_refused(words: str) -> None:
    with pytest.raises(UsageProblem):
        parse_goal(words)


def test_words_that_contradict_each_other_are_refused() -> None:
    assert repetition(None, None, None) == Repetition()
    assert repetition(None, "2%", None) == Repetition(runs=2, until=0.02, at_most=AT_MOST)
    for words in ((None, None, 5), (0, None, None), (1000, None, None), (9, "2%", 8)):
        with pytest.raises(UsageProblem):
            repetition(*words)  # type: ignore[arg-type]
