"""A search that runs: what disturbs it, what ends it, and what its journal brings back."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from pgtop_tune.base.errors import ConnectionProblem, JournalProblem, ServerProblem, UsageProblem
from pgtop_tune.compare.reports.written import report_html, report_markdown
from pgtop_tune.experiment.plan.results import FILE, ExperimentLog
from pgtop_tune.experiment.plan.run import Stopped
from pgtop_tune.experiment.switchback.arms import Arm
from pgtop_tune.experiment.switchback.state import SwitchbackState
from pgtop_tune.tuning.on_server.conditions import Change
from pgtop_tune.tuning.on_server.evaluation import ConditionsChanged, Disturbed, KnobsChanged
from pgtop_tune.tuning.on_server.journal import TuningRequest, kept_tuning, replayed, write_first, write_result
from pgtop_tune.tuning.on_server.knob_space import Guards
from pgtop_tune.tuning.on_server.report import (
    ShownTuning,
    evaluation_line,
    next_line,
    outcome_line,
    result_lines,
    status_lines,
    tuning_chapters,
)
from pgtop_tune.tuning.on_server.run import RunParts, TuningRun
from pgtop_tune.tuning.plan import Dimension, Space, TuningPlan
from pgtop_tune.tuning.protocol import SearchEnding, SearchResult, Tuning
from pgtop_tune.tuning.search import Evaluation, Outcome, SearchPhase

LEVELS = ("1MB", "2MB", "4MB", "8MB", "16MB")
PLAN = TuningPlan(
    space=Space(tuple(Dimension(name=name, levels=LEVELS, start=1) for name in ("work_mem", "temp_buffers"))),
    budget=1e6,
    seed=7,
)
REQUEST = TuningRequest(
    profile="tpcb-like", clients=8, threads=0, protocol="", rate_per_s=None, objective="tps", constraints=(),
    allow_restart=False, recovery_s=600.0,
)  # fmt: skip
GUARDS = Guards(major=18, parameters={}, ram_bytes=None, wal_room_bytes=None)


class Made:
    """A server on which work_mem brings 6 % a step, up to 8MB; every act is written down."""

    def __init__(self) -> None:
        self.measured: list[int] = []
        self.put_backs: list[str] = []
        self.before: Callable[[Evaluation, int], None] = lambda wanted, seed: None

    async def measure(self, wanted: Evaluation, seed: int) -> Outcome:
        self.before(wanted, seed)
        self.measured.append(wanted.number)
        await asyncio.sleep(0)
        draw = random.Random(seed)
        gain = {name: 0.06 * min(level, 3) for level, name in enumerate(LEVELS)}
        effect = gain[wanted.values.get("work_mem", "2MB")] - gain[wanted.against_values.get("work_mem", "2MB")]
        return Outcome(effect=effect + draw.gauss(0.0, 0.004), error=0.004)

    async def put_back(self, why: str) -> None:
        self.put_backs.append(why)


def begun(directory: Path, plan: TuningPlan = PLAN) -> None:
    with ExperimentLog(directory) as log:
        write_first(log, "42", REQUEST, plan, GUARDS, [("jit", "it has one value")])


def parts(told: list[str] | None = None, **other: Any) -> RunParts:
    async def there() -> None: ...

    async def room() -> int | None:
        return None

    async def runs(timeout_s: float) -> bool:
        return True

    asked: dict[str, Any] = {
        "answers": there, "load_runs": runs, "free_bytes": room, "stop_file": None,
        "tell": (told if told is not None else []).append, "changed": lambda: None,
    }  # fmt: skip
    return RunParts(**(asked | other))


def run(directory: Path, made: Made, found: RunParts | None = None) -> SearchResult:
    kept = kept_tuning(directory)
    with ExperimentLog(directory) as log:
        result = asyncio.run(TuningRun(replayed(kept), log, made, found or parts(), kept.plan.seed).run())  # type: ignore[arg-type]
        write_result(log, result)
        return result


def test_the_knob_that_brings_something_is_found_confirmed_and_the_other_one_stays(tmp_path: Path) -> None:
    begun(tmp_path)
    told: list[str] = []
    found = run(tmp_path, made := Made(), parts(told))
    assert found.ending is SearchEnding.BETTER
    assert set(found.values) == {"work_mem"}
    assert LEVELS.index(found.values["work_mem"]) >= 3
    assert found.confirmed is not None
    assert found.confirmed.low < 0.12 < found.confirmed.high + 0.01
    assert made.put_backs == ["the search has ended"]
    assert any("work_mem 2MB→" in line for line in told)


def test_stopped_anywhere_and_resumed_it_ends_the_same(tmp_path: Path) -> None:
    begun(whole := tmp_path / "whole")
    expected = run(whole, Made())
    for cut in (1, 4, 9, 17, 25):
        directory = tmp_path / f"cut{cut}"
        begun(directory)
        made = Made()

        def killed(wanted: Evaluation, seed: int, cut: int = cut) -> None:
            if wanted.number > cut:
                raise ServerProblem("killed")

        made.before = killed
        with pytest.raises(ServerProblem):
            run(directory, made)
        found = run(directory, again := Made())
        assert again.measured[0] == cut + 1
        assert (found.values, found.confirmed) == (expected.values, expected.confirmed)


def test_a_line_that_a_crash_cut_off_costs_one_evaluation(tmp_path: Path) -> None:
    begun(tmp_path)
    expected = run(tmp_path, Made())
    data = (tmp_path / FILE).read_bytes().splitlines(keepends=True)
    events = [place for place, line in enumerate(data) if json.loads(line)["kind"] == "event"]
    cut = events[10]
    (tmp_path / FILE).write_bytes(b"".join(data[:cut]) + data[cut][: len(data[cut]) // 2])
    found = run(tmp_path, made := Made())
    assert made.measured[0] == 11
    assert found.values == expected.values


def test_an_evaluation_without_an_outcome_is_made_again_and_after_three_attempts_the_candidate_is_refused(
    tmp_path: Path,
) -> None:
    begun(tmp_path)
    made, tries = Made(), []

    def disturbed(wanted: Evaluation, seed: int) -> None:
        if wanted.number == 5:
            tries.append(seed)
            raise Disturbed("2 pairs of blocks count")

    made.before = disturbed
    found = run(tmp_path, made)
    assert len(set(tries)) == len(tries) == 3
    assert "3 attempts" in found.tried[4].outcome.stopped
    assert found.ending is SearchEnding.BETTER


def test_a_load_that_cannot_be_measured_with_the_setting_of_before_ends_the_search(tmp_path: Path) -> None:
    begun(tmp_path)
    made = Made()

    def disturbed(wanted: Evaluation, seed: int) -> None:
        raise Disturbed("the load does not become steady")

    made.before = disturbed
    with pytest.raises(Stopped, match="does not become steady"):
        run(tmp_path, made)
    assert made.put_backs == ["the search stopped"]


def test_a_server_that_comes_back_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pgtop_tune.tuning.on_server.evaluation._AGAIN_S", 0.0)
    begun(tmp_path)
    made, asked = Made(), []

    def crashed(wanted: Evaluation, seed: int) -> None:
        if wanted.number == 6 and not asked:
            raise Disturbed("the server was restarted", has_ended=True)

    async def answers() -> None:
        asked.append(1)
        if len(asked) < 3:
            raise ConnectionProblem("starting up")

    made.before = crashed
    assert run(tmp_path, made, parts(answers=answers)).ending is SearchEnding.BETTER
    assert len(asked) == 3


def test_a_knob_that_someone_else_changes_is_let_go_of_also_after_resuming(tmp_path: Path) -> None:
    begun(tmp_path)
    made, changed = Made(), []

    def foreign(wanted: Evaluation, seed: int) -> None:
        if wanted.phase is SearchPhase.SEARCH and not changed:
            changed.append(wanted.number)
            raise KnobsChanged(["work_mem"])
        assert not changed or "work_mem" not in wanted.values

    made.before = foreign
    found = run(tmp_path, made)
    assert found.let_go == ("work_mem",)
    assert "work_mem" not in found.values
    kept = kept_tuning(tmp_path)
    again = replayed(kept).next()
    assert isinstance(again, SearchResult)
    assert again.let_go == ("work_mem",)


def changing(made: Made, numbers: Sequence[int], change: Change) -> None:
    """The conditions change under these evaluations, whenever they are made for the first time."""
    left = list(numbers)

    def change_now(wanted: Evaluation, seed: int) -> None:
        if wanted.number in left:
            left.remove(wanted.number)
            raise ConditionsChanged(change)

    made.before = change_now


def test_an_evaluation_under_another_load_is_discarded_and_made_again_and_the_result_says_so(tmp_path: Path) -> None:
    begun(tmp_path)
    changing(made := Made(), [4, 15], Change("the load has changed: 400 transactions per second, 200 before", 3))
    told: list[str] = []
    found = run(tmp_path, made, parts(told))
    assert found.ending is SearchEnding.BETTER
    assert made.measured == sorted(set(made.measured))
    line = "   4: discarded and repeated: the load has changed: 400 transactions per second, 200 before"
    assert line in told
    assert "  2 evaluations repeated because the conditions changed; last change: the load has" in "\n".join(
        result_lines(found, "tps")
    )
    assert replayed(kept_tuning(tmp_path)).next() == found


def test_a_load_that_goes_on_changing_ends_the_search_and_resumed_it_is_given_another_chance(tmp_path: Path) -> None:
    begun(tmp_path)
    changing(made := Made(), [4, 4, 7], Change("the load has changed: 9 client sessions, 3 before", 3))
    with pytest.raises(Stopped, match=r"3 times within 8 evaluations; last change: .* 9 client sessions, 3 before"):
        run(tmp_path, made)
    assert made.put_backs == ["the search stopped"]
    assert run(tmp_path, again := Made()).ending is SearchEnding.BETTER
    assert again.measured[0] == 7


def test_changes_that_are_far_apart_do_not_end_the_search(tmp_path: Path) -> None:
    begun(tmp_path)
    changing(made := Made(), [3, 9, 16], Change("the load has changed", 3))
    assert len(run(tmp_path, made).changes) == 3


@pytest.mark.parametrize("back", [True, False])
def test_a_load_that_has_stopped_is_waited_for(tmp_path: Path, back: bool) -> None:
    begun(tmp_path)
    change = Change("the load has stopped: 0 transactions per second, 200 before", 3, stopped=True)
    changing(made := Made(), [5], change)
    waited: list[float] = []

    async def runs(timeout_s: float) -> bool:
        waited.append(timeout_s)
        return back

    told: list[str] = []
    if back:
        assert run(tmp_path, made, parts(told, load_runs=runs)).ending is SearchEnding.BETTER
    else:
        with pytest.raises(Stopped, match="the load has stopped") as stopped:
            run(tmp_path, made, parts(told, load_runs=runs))
        assert "tune --resume" in stopped.value.hint
    assert waited == [600.0]
    assert "waiting for the load, 10m00s at most" in told


def test_the_stop_file_and_a_full_disk_end_it_between_evaluations_with_the_way_on(tmp_path: Path) -> None:
    begun(tmp_path / "search")
    stop = tmp_path / "stop"
    made = Made()

    def at_five(wanted: Evaluation, seed: int) -> None:
        if wanted.number == 5:
            stop.touch()

    made.before = at_five
    with pytest.raises(Stopped) as stopped:
        run(tmp_path / "search", made, parts(stop_file=stop))
    assert made.measured[-1] == 5
    assert "tune --resume" in stopped.value.hint

    async def nearly_full() -> int | None:
        return 1024

    with pytest.raises(Stopped, match="free on the data disk"):
        run(tmp_path / "search", Made(), parts(free_bytes=nearly_full))
    assert run(tmp_path / "search", Made()).ending is SearchEnding.BETTER


def test_a_result_is_shown_as_it_was_also_by_a_version_that_would_search_otherwise(tmp_path: Path) -> None:
    begun(tmp_path)
    found = run(tmp_path, Made())
    assert kept_tuning(tmp_path).result == found
    data = (tmp_path / FILE).read_text().splitlines()
    told = next(place for place, line in enumerate(data) if json.loads(line)["kind"] == "event")
    (tmp_path / FILE).write_text("\n".join([*data[:told], *data[told + 1 :]]) + "\n")
    kept = kept_tuning(tmp_path)
    with pytest.raises(JournalProblem):
        replayed(kept)
    assert kept.result == found


def test_a_journal_of_something_else_or_a_damaged_one_is_refused(tmp_path: Path) -> None:
    with ExperimentLog(tmp_path / "other") as log:
        log.write("plan", name="P1")
    with pytest.raises(UsageProblem, match="is not a search"):
        kept_tuning(tmp_path / "other")
    begun(tmp_path / "damaged")
    with ExperimentLog(tmp_path / "damaged") as log:
        log.write("event", event={"type": "told", "outcome": 5})
    with pytest.raises(UsageProblem, match="damaged"):
        kept_tuning(tmp_path / "damaged")


def test_the_lines_say_what_is_tried_against_what_and_what_came_of_it() -> None:
    tuning = Tuning(PLAN)
    wanted = tuning.next()
    assert isinstance(wanted, Evaluation)
    assert evaluation_line(wanted) == "1. noise, the start against itself"
    assert outcome_line(wanted, Outcome(effect=0.0953, error=0.01, took=125.0)) == "   1: +10.0 % ± 1.0 points, 2m05s"
    assert "refused: B ran at 38 % of A" in outcome_line(wanted, Outcome(effect=None, stopped="B ran at 38 % of A"))


def test_the_result_names_the_confirmed_gain_its_interval_and_every_knob(tmp_path: Path) -> None:
    begun(tmp_path)
    found = run(tmp_path, Made())
    lines = "\n".join(result_lines(found, "tps"))
    assert lines.startswith("better: work_mem 2MB→")
    assert "fresh evaluations" in lines
    assert "work_mem = " in lines
    assert "(was 2MB)" in lines
    assert "work_mem: earned" in lines
    kept = replace(found, ending=SearchEnding.START_KEPT, values={})
    assert "earned" not in "\n".join(result_lines(kept, "tps")), "the winner was not confirmed"
    status = "\n".join(status_lines(kept_tuning(tmp_path), None, found, runs=False))
    assert "better" in status


def test_the_report_has_the_path_the_knobs_and_the_script_also_of_a_search_that_was_refused(tmp_path: Path) -> None:
    begun(tmp_path / "whole")
    found = run(tmp_path / "whole", Made())
    page = report_html("x", tuning_chapters(kept_tuning(tmp_path / "whole"), found, ["ALTER SYSTEM …;"]))
    for part in (
        "<svg",
        "fresh evaluations",
        "work_mem 2MB→",
        "ALTER SYSTEM …;",
        "Every evaluation",
        "it has one value",
    ):
        assert part in page
    begun(tmp_path / "refused", replace(PLAN, budget=10.0))
    refused = run(tmp_path / "refused", Made())
    assert refused.ending is SearchEnding.REFUSED
    assert refused.needed is not None
    text = report_markdown("x", tuning_chapters(kept_tuning(tmp_path / "refused"), refused, []))
    assert "The budget is too small" in text
    assert "m at least" in text
    assert "deviates" not in text, "nothing was measured"
    assert "--apply" in next_line("x", found)
    assert "--apply" not in next_line("x", refused), "there is nothing to apply"


def test_a_screen_gets_the_arms_of_each_evaluation_and_none_while_nothing_is_switched(tmp_path: Path) -> None:
    begun(tmp_path)
    kept = kept_tuning(tmp_path)
    tuning = Tuning(kept.plan)
    shown = ShownTuning(kept, tuning)
    shown.take(SwitchbackState(arm=Arm.B))
    assert (shown.newest.phase, shown.newest.arm_words) == ("noise", "")
    while isinstance(wanted := tuning.next(), Evaluation) and wanted.phase is SearchPhase.NOISE:
        tuning.tell(Outcome(effect=0.0, error=0.004))
    shown.changed()
    shown.take(SwitchbackState(arm=Arm.B))
    first, since_ms = shown.newest.arm_words, shown.newest.arm_since_ms
    assert first.startswith("B: ")
    assert "work_mem=" in first
    assert since_ms > 0
    shown.take(SwitchbackState(arm=None))
    assert (shown.newest.arm_words, shown.newest.arm_since_ms) == (first, since_ms)
    shown.take(SwitchbackState(arm=Arm.A))
    assert shown.newest.arm_words.startswith("A: ")


def test_someone_who_goes_on_changing_a_knob_that_was_let_go_of_does_not_hold_up_the_search(tmp_path: Path) -> None:
    begun(tmp_path)
    made, changed = Made(), []

    def foreign(wanted: Evaluation, seed: int) -> None:
        if "work_mem" in wanted.values:
            changed.append(wanted.number)
            raise KnobsChanged(["work_mem"])

    made.before = foreign
    found = run(tmp_path, made)
    assert changed == [1]
    assert found.ending is SearchEnding.START_KEPT
