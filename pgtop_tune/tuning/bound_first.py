"""Bound first: knobs in the order of what they can bring at most, none where that is less than is worth having."""

from __future__ import annotations

import math
from collections.abc import Iterable

from msgspec import Struct

from pgtop_tune.experiment.prediction import Prediction, Score, inside_bounds
from pgtop_tune.tuning.plan import TuningPlan
from pgtop_tune.tuning.search import Raced


class Ranked(Struct, frozen=True):
    """Knobs of a plan.

    Attributes:
        worth_trying: Places, the highest bound first; those without one stand behind those whose bound is worth having.
        left_out: Places of those whose bound is below, and why.
    """

    worth_trying: tuple[int, ...]
    left_out: tuple[tuple[int, str], ...]


def rank(plan: TuningPlan) -> Ranked:
    """All knobs of the plan."""
    tried, left_out = [], []
    for place, dimension in enumerate(plan.space.dimensions):
        most = _most(plan.predictions.get(dimension.name))
        if most is not None and most < plan.worth:
            left_out.append((place, f"at most {100.0 * most:+.1f} %"))
        else:
            tried.append((-math.inf if most is None else most, place))
    tried.sort(key=lambda each: -each[0])
    return Ranked(tuple(place for _, place in tried), tuple(left_out))


def _most(prediction: Prediction | None) -> float | None:
    return None if prediction is None else prediction.most


class _Shares(Struct, frozen=True):
    low: float | None
    high: float | None


def score(plan: TuningPlan, races: Iterable[Raced]) -> Score:
    """How many races of a single knob ended within their prediction; those that had none do not count."""
    told = []
    for raced in races:
        places = plan.space.differing(raced.candidate, raced.against)
        prediction = plan.predictions.get(plan.space.dimensions[places[0]].name) if len(places) == 1 else None
        if prediction is None or raced.low is None or raced.high is None:
            continue
        inside = inside_bounds(prediction, _Shares(math.expm1(raced.low), math.expm1(raced.high)))
        if inside is not None:
            told.append(inside)
    return Score(inside=sum(told), scored=len(told))
