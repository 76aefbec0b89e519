"""What screens are shown of experiments by turns and of plans."""

from __future__ import annotations

from msgspec.structs import replace

from pgtop_tune.experiment.plan.report import shown_plan, switched
from pgtop_tune.experiment.switchback.arms import Arm, Rival
from pgtop_tune.experiment.switchback.state import Ending, SwitchbackPhase, SwitchbackPlan, SwitchbackState
from pgtop_tune.experiment.switchback.words import ShownStates
from tests.support.plans import bound_text, outcome

_RIVALS = (Rival("work_mem", "4MB", "64MB"),)
_PLAN = SwitchbackPlan(rivals=_RIVALS, load="tpcb-like -c 8", loaded=True, for_s=600.0, seed=1)


def test_an_arm_begins_when_it_is_switched_to_and_not_with_each_of_its_blocks() -> None:
    shown = ShownStates(_PLAN)
    assert (shown.newest.arm_since_ms, shown.newest.arm_words, shown.newest.remaining_s) == (0, "", 600.0)
    states = [
        SwitchbackState(SwitchbackPhase.SETTLING, 1, Arm.B), SwitchbackState(SwitchbackPhase.MEASURING, 1, Arm.B),
        SwitchbackState(SwitchbackPhase.MEASURING, 2, None), SwitchbackState(SwitchbackPhase.MEASURING, 2, Arm.B),
    ]  # fmt: skip
    since = []
    for state in states:
        shown.take(state)
        since.append(shown.newest.arm_since_ms)
    assert len(set(since)) == 1
    assert since[0] > 0
    assert shown.newest.arm_words == "B: work_mem=64MB"


def test_the_end_of_load_or_server_has_its_reason_and_what_was_not_put_back_is_a_problem() -> None:
    shown = ShownStates(_PLAN)
    over = SwitchbackState(
        SwitchbackPhase.OVER, ending=Ending.ENDED, reason="the server was restarted", notes=("not restored: no answer",)
    )
    shown.take(over)
    assert (shown.newest.ending, shown.newest.problem) == ("the server was restarted", "not restored: no answer")
    shown = ShownStates(_PLAN)
    shown.take(replace(over, ending=Ending.NOT_STEADY, reason="the load does not become steady: drift", notes=()))
    assert shown.newest.ending == "not steady"


def test_a_plan_shows_its_cells_and_the_best_arm_so_far() -> None:
    plan = bound_text(
        'time = "60s"\nrepeats = 2\n[[configuration]]\nname = "default"\n'
        '[[configuration]]\nname = "large"\n[configuration.parameters]\nwork_mem = "64MB"\n'
    )
    tps = {cell.number: 1000.0 + 100.0 * (cell.arm == "large") + cell.number for cell in plan.cells}
    begun = outcome(plan, {}, running=plan.cells[0].number, began_ms=10_000)
    found = shown_plan(begun, 40_000, under_way=True)
    assert (found.kind, found.phase, found.pair, found.of, found.elapsed_s) == ("plan t", "measuring", 0, 4, 30.0)
    assert found.remaining_s > 4 * 60.0
    assert found.effect is None
    done = shown_plan(outcome(plan, tps), 40_000, under_way=False)
    assert (done.pair, done.figure, done.ending) == (4, "tps of large", "complete")
    assert done.effect is not None
    assert 0.05 < done.effect < 0.15
    assert "tps is best with large" in done.details
    assert switched(begun) == ("work_mem",)
