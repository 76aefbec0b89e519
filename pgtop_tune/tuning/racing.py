"""A race: a candidate against the point in force, evaluated until it is clearly better or not worth more.

Dropped when the mean is not above 0, or from two on when mean + error is below 1 %; accepted from two on when the mean
is above 2.33 errors and at least 0.5 %. error = √(s²/n), with s² pooled over all races. Where it accepts, its own
figure is too high: only the confirmation's is reported.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean
from typing import Final

from pgtop_tune.compare.statistics.student import t_quantile
from pgtop_tune.tuning.search import Asking, Finish, Outcome, Phase, Raced, Search
from pgtop_tune.tuning.space import Point

MOST: Final = 6
_SURE: Final = 2.33
_LEAST: Final = 0.005
_HOPELESS: Final = 0.01


def race(search: Search, phase: Phase, candidate: Point, against: Point, why: str, most: int = MOST) -> Asking[Raced]:
    """Evaluate until decided, or `most` times.

    Raises:
        Spent, LetGo: As `Search.measure`; the race is void.
    """
    outcomes: list[Outcome] = []
    finish = None
    while finish is None:
        outcomes.append((yield from search.measure(phase, candidate, against, why)))
        finish = Finish.STOPPED if unfit(search, outcomes) else decide(search, effects_of(outcomes), most)
    return record(search, phase, candidate, against, outcomes, finish)


def unfit(search: Search, outcomes: Sequence[Outcome]) -> str:
    """Why the candidate is out whatever its effect: aborted, not measured, or a constraint that it breaks; ""."""
    last = outcomes[-1]
    nothing = "nothing was measured" if last.effect is None else ""
    return last.stopped or nothing or search.broken(mean_figures(each.figures for each in outcomes))


def record(
    search: Search, phase: Phase, candidate: Point, against: Point, outcomes: Sequence[Outcome], finish: Finish
) -> Raced:
    """Keep a race that is over, the newest evaluations its own; one whose candidate is unfit ends as stopped."""
    effects = effects_of(outcomes)
    mean, error, low, high = measured(search, effects)
    search.spread.add(effects)
    reason = unfit(search, outcomes)
    last = len(search.tried)
    raced = Raced(
        phase=phase, candidate=candidate, against=against, finish=Finish.STOPPED if reason else finish, effect=mean,
        error=error, low=low, high=high, evaluations=tuple(range(last - len(outcomes) + 1, last + 1)), reason=reason,
    )  # fmt: skip
    search.races.append(raced)
    return raced


def decide(search: Search, effects: list[float], most: int) -> Finish | None:
    """After each evaluation; None where another one is needed."""
    count, mean = len(effects), fmean(effects)
    error = search.spread.sd(effects) / math.sqrt(count)
    if mean <= 0.0 or (count >= 2 and mean + error < _HOPELESS):
        return Finish.DROPPED
    if count >= 2 and mean > _SURE * error and mean >= _LEAST:
        return Finish.ACCEPTED
    return Finish.UNCLEAR if count >= most else None


def measured(search: Search, effects: list[float]) -> tuple[float | None, float | None, float | None, float | None]:
    """Mean, its error, and the 95 % interval."""
    if not effects:
        return None, None, None, None
    mean, error = fmean(effects), search.spread.sd(effects) / math.sqrt(len(effects))
    half = t_quantile(0.975, search.spread.degrees + len(effects) - 1) * error
    return mean, error, mean - half, mean + half


def effects_of(outcomes: Iterable[Outcome]) -> list[float]:
    """Those that were measured to the end."""
    return [each.effect for each in outcomes if each.effect is not None and not each.stopped]


def mean_figures(figures: Iterable[Mapping[str, float]]) -> dict[str, float]:
    """Of several evaluations: a limit is judged by the mean, which one unlucky evaluation does not break."""
    values: dict[str, list[float]] = defaultdict(list)
    for each in figures:
        for name, value in each.items():
            values[name].append(value)
    return {name: fmean(each) for name, each in values.items()}
