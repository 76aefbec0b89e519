"""Which of the changed knobs earned it: the best setting against itself without a knob, the others go back.

Knobs are examined one after the other, the one with the least claim first, each against the setting that those before
it have left; so of two that do the same only one goes. More than four are examined by halves: a half that earns nothing
goes back at once.

It comes before the confirmation, not after it: the confirmation measures the setting that is reported, and none of the
evaluations that chose it is in its interval. The part of each knob is from the evaluations that decided about it, so
the parts of those that stay lean upwards; the whole does not.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from enum import StrEnum
from statistics import fmean
from types import MappingProxyType
from typing import Final

from msgspec import Struct

from pgtop_tune.tuning.racing import effects_of, mean_figures, record, unfit
from pgtop_tune.tuning.search import Asking, Finish, Outcome, Phase, Search, Spent
from pgtop_tune.tuning.space import Point

MOST: Final = 4
_SINGLY: Final = 4
_SURE: Final = 2.33
_HOPELESS: Final = 0.01


class Fate(StrEnum):
    """Of a knob that the search had changed."""

    EARNED = "earned"
    KEPT = "kept"
    WENT_BACK = "went back"


_FINISHES: Final[Mapping[Fate, Finish]] = MappingProxyType(
    {Fate.EARNED: Finish.ACCEPTED, Fate.KEPT: Finish.UNCLEAR, Fate.WENT_BACK: Finish.DROPPED}
)


class Examined(Struct, frozen=True, kw_only=True):
    """One knob, or several together, after the ablation.

    Attributes:
        knobs: Names.
        fate: `KEPT` where the budget or the evaluations did not tell.
        effect, low, high: Log ratio of the setting with them to the one without, 95 %; None where not measured.
        why: One line.
    """

    knobs: tuple[str, ...]
    fate: Fate
    effect: float | None = None
    low: float | None = None
    high: float | None = None
    why: str = ""


def ablate(search: Search) -> Asking[tuple[Examined, ...]]:
    """Examines what `search.best` changes; afterwards it is the setting to confirm.

    Raises:
        LetGo: As `Search.measure`.
    """
    changed = sorted(
        search.space.differing(search.best, search.space.start),
        key=lambda place: (
            not search.space.dimensions[place].separate,
            search.claimed.get(place, 0.0),
            abs(search.screened.get(place, 0.0)),
        ),
    )
    middle = len(changed) // 2
    pending: list[tuple[int, ...]] = [(place,) for place in changed]
    if len(changed) > _SINGLY:
        pending = [tuple(changed[:middle]), tuple(changed[middle:])]
    found: list[Examined] = []
    while pending:
        places = pending.pop(0)
        names = tuple(search.space.dimensions[place].name for place in places)
        without = search.space.at_start(search.best, places)
        half = len(places) // 2
        if without == search.space.start and half:
            pending[:0] = [places[:half], places[half:]]
            continue
        if without == search.space.start:
            found.append(Examined(knobs=names, fate=Fate.EARNED, why="all that is left: the confirmation is its test"))
            continue
        if not search.allowed(without):
            found.append(Examined(knobs=names, fate=Fate.KEPT, why="the others may not be set without it"))
            continue
        try:
            examined = yield from _examine(search, names, without)
        except Spent:
            found.append(Examined(knobs=names, fate=Fate.KEPT, why="not examined: the budget is spent"))
            continue
        if examined.fate is not Fate.WENT_BACK and half:
            pending[:0] = [places[:half], places[half:]]
            continue
        if examined.fate is Fate.WENT_BACK:
            search.best = without
        found.append(examined)
    return tuple(found)


def _examine(search: Search, names: tuple[str, ...], without: Point) -> Asking[Examined]:
    outcomes: list[Outcome] = []
    fate, reason = None, ""
    while fate is None:
        why = f"with and without {', '.join(names)}"
        outcomes.append((yield from search.measure(Phase.ABLATION, search.best, without, why)))
        needed = search.broken(mean_figures(each.against_figures for each in outcomes))
        reason = unfit(search, outcomes) or needed
        if reason:
            fate = Fate.EARNED if reason is needed else Fate.WENT_BACK
        else:
            fate = _decide(search, effects_of(outcomes))
    raced = record(search, Phase.ABLATION, search.best, without, outcomes, _FINISHES[fate])
    return Examined(knobs=names, fate=fate, effect=raced.effect, low=raced.low, high=raced.high, why=reason)


def _decide(search: Search, effects: list[float]) -> Fate | None:
    """After each evaluation; None where another one is needed."""
    count, mean = len(effects), fmean(effects)
    error = search.spread.sd(effects) / math.sqrt(count)
    if count < 2:
        return None
    if mean <= 0.0 or mean + error < _HOPELESS:
        return Fate.WENT_BACK
    if mean > _SURE * error:
        return Fate.EARNED
    if count < MOST:
        return None
    return Fate.KEPT if mean > error else Fate.WENT_BACK
