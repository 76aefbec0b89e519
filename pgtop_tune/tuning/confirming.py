"""The confirmation: the winner against the start in fresh evaluations, and nothing else is the result.

At least eight, their number fixed before the first from the noise and half of the search's own claim, so that neither
the choice of the winner nor a look on the way is in the interval. Student's interval of these evaluations alone; it is
a success where the lower end of the 95 % interval is above 0 (a one-sided test at 2.5 %), so that no setting is called
better beside an interval that includes 0.
"""

from __future__ import annotations

import math
from statistics import fmean, stdev
from typing import Final

from msgspec import Struct

from pgtop_tune.compare.statistics.student import t_quantile
from pgtop_tune.tuning.noise import evaluations_needed
from pgtop_tune.tuning.racing import effects_of, mean_figures
from pgtop_tune.tuning.search import Asking, Outcome, Phase, Search, Spent

FEWEST: Final = 8
DECIDES: Final = 0.975
_LATE: Final = 0.75
"""The share of the eight that must still fit in the budget: evaluations that took longer than planned end no search."""
_BELIEVED: Final = 0.5
"""Of the search's own claim, which is too high."""


class Confirmed(Struct, frozen=True, kw_only=True):
    """The winner against the start.

    Attributes:
        effect, low, high: Log ratio with its 95 % interval.
        evaluations: Fresh ones.
        figures, start_figures: Means of both arms.
        reason: Why the winner was stopped or breaks a constraint; "".
    """

    effect: float
    low: float
    high: float
    evaluations: int
    figures: dict[str, float]
    start_figures: dict[str, float]
    reason: str = ""

    @property
    def better(self) -> bool:
        """Whether the winner is truly better and holds all constraints."""
        return self.low > 0.0 and not self.reason


def planned(search: Search) -> int:
    """How many evaluations the confirmation will have: at least eight, as the budget allows."""
    claim = max(math.fsum(search.claimed.values()) * _BELIEVED, math.log1p(search.plan.worth))
    wanted = evaluations_needed(search.spread.sd(), claim, DECIDES, FEWEST)
    return max(min(wanted, int(search.left / search.cost(search.best, search.space.start) + 1e-9)), FEWEST)


def confirm(search: Search, fits: float = _LATE) -> Asking[Confirmed]:
    """Measures `search.best` against the start.

    Args:
        fits: Share of the eight that must fit in the budget.

    Raises:
        Spent: They do not.
        LetGo, Void: As `Search.measure`; the evaluations so far are void.
    """
    search.kept = 0.0
    if search.left < fits * FEWEST * search.cost(search.best, search.space.start):
        raise Spent
    count, search.kept = planned(search), -math.inf
    outcomes: list[Outcome] = []
    for number in range(1, count + 1):
        outcome = yield from search.measure(
            Phase.CONFIRMATION, search.best, search.space.start, f"winner against start, {number} of {count}"
        )
        outcomes.append(outcome)
        if outcome.stopped or outcome.effect is None:
            return _confirmed(search, outcomes, outcome.stopped or "nothing was measured")
    return _confirmed(search, outcomes, "")


def _confirmed(search: Search, outcomes: list[Outcome], reason: str) -> Confirmed:
    effects = effects_of(outcomes)
    figures = mean_figures(each.figures for each in outcomes)
    mean, half = fmean(effects) if effects else 0.0, math.inf
    if len(effects) > 1:
        half = t_quantile(DECIDES, len(effects) - 1) * stdev(effects) / math.sqrt(len(effects))
    return Confirmed(
        effect=mean, low=mean - half, high=mean + half, evaluations=len(effects), figures=figures,
        start_figures=mean_figures(each.against_figures for each in outcomes),
        reason=reason or search.broken(figures),
    )  # fmt: skip
