"""Many searches of made surfaces, and how often each kind of search ends where."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from statistics import fmean
from typing import Final

from msgspec import Struct

from pgtop_tune.tuning.plan import TuningPlan
from pgtop_tune.tuning.protocol import SearchEnding, SearchResult, Tuning
from pgtop_tune.tuning.search import SearchPhase
from tests.support.tuning_baselines import Ended, best_of_trials, by_hand
from tests.support.tuning_surfaces import Surface, answer, run, space_of, surface

BUDGET: Final = 60
WRONG: Final = -0.005
"""Log ratio to the start, below which an ending is truly worse."""


class SearchEnd(Struct, frozen=True, kw_only=True):
    """Of one search, in log ratios.

    Attributes:
        gain: True, of the setting it ends with.
        possible: The best there is.
        claimed: The figure that it reports; None where it reports none.
        covered: The reported interval holds the truth; None without one.
        confirmed_covered, confirmed_off: Of the confirmation, whatever its verdict.
        own: What the search itself had claimed before the confirmation, less the truth.
    """

    gain: float
    possible: float
    evaluations: int
    idle: int
    changed: bool
    claimed: float | None = None
    covered: bool | None = None
    confirmed_covered: bool | None = None
    confirmed_off: float | None = None
    own: float | None = None
    refused: bool = False


class Rates(Struct, frozen=True, kw_only=True):
    """Of many searches; shares and log ratios.

    Attributes:
        gained: True gain over the possible one, of all together that were not refused; the gain itself where nothing is
            possible.
        off: Mean of the reported figure less the truth.
    """

    searches: int
    gained: float
    wrong: float
    changed: float
    refused: float
    evaluations: float
    idle: float
    off: float | None
    own: float | None
    covered: float | None
    confirmed_covered: float | None
    confirmed_off: float | None


def ours(
    kind: str, seed: int, sd: float, engine: str = "climb", worth: float = 0.02, budget: int = BUDGET
) -> SearchEnd:
    """One search by the protocol."""
    found = surface(kind, seed)
    plan = TuningPlan(space=space_of(found), budget=budget, seed=seed, engine=engine, worth=worth)
    draw = random.Random(f"{kind} {seed} {sd} {engine}")
    result = run(Tuning(plan), answer(found, sd, draw))
    return _ended(found, result)


def _ended(found: Surface, result: SearchResult) -> SearchEnd:
    better = result.ending is SearchEnding.BETTER
    confirming = [step.evaluation for step in result.tried if step.evaluation.phase is SearchPhase.CONFIRMATION]
    winner = confirming[-1].candidate if confirming else found.start
    truth, confirmed = found.gain(winner), result.confirmed
    held = None if confirmed is None else confirmed.low <= truth <= confirmed.high
    return SearchEnd(
        gain=truth if better else 0.0,
        possible=found.possible,
        evaluations=len(result.tried),
        idle=found.idle(winner) if better else 0,
        changed=better,
        claimed=confirmed.effect if better and confirmed is not None else None,
        covered=held if better else None,
        confirmed_covered=held,
        confirmed_off=None if confirmed is None else confirmed.effect - truth,
        own=None if confirmed is None else result.claimed - truth,
        refused=result.ending is SearchEnding.REFUSED,
    )


def of_hand(kind: str, seed: int, sd: float) -> SearchEnd:
    """One search by P3's rule."""
    return _baseline(by_hand, kind, seed, sd)


def of_trials(kind: str, seed: int, sd: float) -> SearchEnd:
    """One search that ends with its best trial."""
    return _baseline(best_of_trials, kind, seed, sd)


def _baseline(
    search: Callable[[Surface, float, int, random.Random], Ended], kind: str, seed: int, sd: float
) -> SearchEnd:
    found = surface(kind, seed)
    end = search(found, sd, BUDGET, random.Random(f"{kind} {seed} {sd}"))
    return SearchEnd(
        gain=found.gain(end.point),
        possible=found.possible,
        evaluations=end.evaluations,
        idle=found.idle(end.point),
        changed=end.point != found.start,
        claimed=end.claimed,
    )


def rates(ends: Sequence[SearchEnd]) -> Rates:
    """Together."""
    searched = [end for end in ends if not end.refused] or ends
    possible, gain = fmean(end.possible for end in searched), fmean(end.gain for end in searched)

    def mean(values: Sequence[float | None]) -> float | None:
        known = [float(value) for value in values if value is not None]
        return fmean(known) if known else None

    return Rates(
        searches=len(ends),
        gained=gain / possible if possible > 0.0 else gain,
        wrong=fmean(end.gain < WRONG for end in ends),
        changed=fmean(end.changed for end in ends),
        refused=fmean(end.refused for end in ends),
        evaluations=fmean(end.evaluations for end in ends),
        idle=fmean(end.idle for end in ends),
        off=mean([None if end.claimed is None else end.claimed - end.gain for end in ends]),
        own=mean([end.own for end in ends]),
        covered=mean([end.covered for end in ends]),
        confirmed_covered=mean([end.confirmed_covered for end in ends]),
        confirmed_off=mean([end.confirmed_off for end in ends]),
    )
