"""A switchback as screens show it: states of the engine made into `ExperimentState`."""

from __future__ import annotations

import time
from typing import Final

from msgspec.structs import replace

from pgtop_tune.compare.sides.figures import BY_ID
from pgtop_tune.compare.statement_rows import SAME_MIX
from pgtop_tune.experiment.switchback.state import Ending, SwitchbackPlan, SwitchbackState
from pgtop_tune.experiment.switchback.words import text
from pgtop_tune.runtime.experiment_control import ArmValues, ExperimentState

_SHORT: Final = {SAME_MIX: "same mix"}
"""Titles of figures where there is little room."""
_PREDICTED: Final = "prediction: "


class ShownStates:
    """Takes states of one experiment, and makes figures and texts anew only after another pair and at the end.

    Args:
        plan: What is asked for.
        number: Of the experiment.

    Attributes:
        newest: As shown. Thread-safe.
    """

    def __init__(self, plan: SwitchbackPlan, number: int = 1) -> None:
        self._plan: Final = plan
        self._pairs = -1
        self._arm = ""
        self.newest = ExperimentState(
            number=number,
            under_way=True,
            values=tuple(ArmValues(each.name, each.a, each.b) for each in plan.rivals),
            phase="checking the values",
            remaining_s=plan.for_s,
            figure=_SHORT.get(plan.objective) or BY_ID[plan.objective].title,
        )

    def take(self, state: SwitchbackState) -> bool:
        """Makes the next state of the screen; whether its figures are new."""
        over = is_over(state)
        arm = "" if state.arm is None else str(state.arm)
        if arm and arm != self._arm:
            self._arm = arm
            self.newest = replace(self.newest, arm_since_ms=time.time_ns() // 1_000_000)
        self.newest = replace(
            self.newest,
            phase=str(state.phase),
            arm=arm,
            pair=state.pair,
            elapsed_s=state.elapsed_s,
            remaining_s=state.remaining_s,
        )
        if len(state.pairs) == self._pairs and not over:
            return False
        self._pairs = len(state.pairs)
        self.newest = self._judged(state, self.newest, over=over)
        return True

    def _judged(self, state: SwitchbackState, found: ExperimentState, *, over: bool) -> ExperimentState:
        result = text(self._plan, state)
        # The result names the prediction once there is something to hold it against.
        notes = [note for note in state.notes if note not in result and note.removeprefix(_PREDICTED) not in result]
        found = replace(
            found,
            details="\n".join((result, *(["", *notes] if notes else []))),
            ending=_ending(state) if over else "",
            problem=state.left_in_force,
        )
        evaluation = state.evaluation
        if evaluation is None or not evaluation.paired.pairs:
            return found
        paired = evaluation.paired
        return replace(
            found,
            figure=_SHORT.get(evaluation.main.id) or evaluation.main.title,
            effect=paired.relative,
            low=paired.low,
            high=paired.high,
            counted=paired.pairs,
            better=state.ending is Ending.BETTER and not evaluation.trade,
        )


def _ending(state: SwitchbackState) -> str:
    """What of load and server has ended is the news."""
    return state.reason if state.ending is Ending.ENDED and state.reason else str(state.ending)


def is_over(state: SwitchbackState) -> bool:
    """Whether it has an ending, or a reason for one."""
    return bool(state.reason) or state.ending is not Ending.UNDER_WAY
