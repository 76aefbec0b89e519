"""A twin as screens show it."""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from pgtop_tune.compare.sides.figures import BY_ID
from pgtop_tune.compare.statistics.switchback import Paired
from pgtop_tune.experiment.switchback.state import Ending
from pgtop_tune.experiment.switchback.words import effect_words
from pgtop_tune.experiment.twin.state import TwinPlan, TwinState
from pgtop_tune.experiment.twin.words import text
from pgtop_tune.runtime.experiment_control import ArmValues, ExperimentState

_FIRST_STAGE: Final = "stage 1"
"""Named where the figure stands: the copies' own difference is in it."""


class TwinShown:
    """Takes states of one twin.

    Attributes:
        newest: As shown. Thread-safe.
    """

    def __init__(self, plan: TwinPlan) -> None:
        self._plan = plan
        self._pairs = -1
        self.newest = ExperimentState(
            number=1,
            kind="twin",
            under_way=True,
            values=tuple(ArmValues(each.name, each.a, each.b) for each in plan.rivals),
            remaining_s=plan.for_s,
            figure=BY_ID[plan.objective].title,
        )

    def take(self, state: TwinState) -> None:
        """The next state of the screen; its figures are made anew after another pair and at the end."""
        over = state.ending is not Ending.UNDER_WAY
        self.newest = replace(
            self.newest,
            phase=str(state.phase),
            pair=state.pair,
            elapsed_s=state.elapsed_s,
            remaining_s=state.remaining_s,
        )
        if len(state.pairs) == self._pairs and not over:
            return
        self._pairs = len(state.pairs)
        details, ending = text(self._plan, state), str(state.ending) if over else ""
        paired, figure = self._so_far(state)
        if paired is None or not paired.pairs:
            self.newest = replace(self.newest, details=details, ending=ending)
            return
        if figure == _FIRST_STAGE:
            details += f"\n\n{effect_words(paired)} before the copies exchange settings"
        self.newest = replace(
            self.newest,
            details=details,
            ending=ending,
            figure=figure,
            effect=paired.relative,
            low=paired.low,
            high=paired.high,
            counted=paired.pairs,
        )

    def _so_far(self, state: TwinState) -> tuple[Paired | None, str]:
        """What both stages say, or the first one alone, and its name."""
        evaluation = state.evaluation
        if evaluation is not None and evaluation.paired.pairs:
            return evaluation.paired, BY_ID[self._plan.objective].title
        return state.stage, _FIRST_STAGE
