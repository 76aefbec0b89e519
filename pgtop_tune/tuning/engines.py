"""The engines of a search by name: a coordinate climb, and a Bayesian search."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from pgtop_tune.base.errors import UsageProblem
from pgtop_tune.tuning.plan import Point, point_with
from pgtop_tune.tuning.racing import race, record, shifted
from pgtop_tune.tuning.search import Asking, Engine, Favoured, Finish, Move, Outcome, Search, SearchPhase, Spent

if TYPE_CHECKING:
    from optuna import Study
    from optuna.distributions import BaseDistribution

# Coordinate climb on grids, raced. First all knobs that the screen favours clearly, together; then knob by knob.
#
# A knob's steps are +2, +1 towards the side that the screen favours, then −2 (and −1 where there was no screen); each
# is repeated while it wins. Knobs that were moved are refined by a golden section on their levels, between those beside
# the best that lost. Passes repeat until none moves a knob: over the clear ones, then over all. Words of an enum are
# tried in their order.

_STEPS: Final = (2, 1)
_CLEAR: Final = 2.0
"""Standard errors of the screen's effect, beyond which it is clear."""
_SECTION: Final = 0.382
"""1 − 1/φ."""


def climb(search: Search, order: tuple[Favoured, ...]) -> Asking[None]:
    """Move `search.best` wherever a race is won."""
    clear = [
        knob
        for knob in order
        if knob.effect is None or abs(knob.effect) > _CLEAR * search.spread.sd() / math.sqrt(max(knob.rows, 1))
    ]
    yield from _jump(search, [knob for knob in clear if knob.effect is not None and search.free(knob.axis)])
    for knobs in (clear, order):
        yield from _passes(search, knobs)


def _jump(search: Search, knobs: Sequence[Favoured]) -> Asking[None]:
    """Race all knobs that the screen favours clearly, moved together, against the best."""
    if len(knobs) < 2:
        return
    for steps in _STEPS:
        candidate = search.best
        for knob in knobs:
            side = 1 if (knob.effect or 0.0) > 0.0 else -1
            candidate = point_with(candidate, knob.axis, shifted(search, search.best, knob.axis, side * steps))
        if candidate == search.best or (candidate, search.best) in search.lost or not search.allowed(candidate):
            continue
        reason = f"{len(knobs)} knobs together, {steps} steps"
        raced = yield from race(search, SearchPhase.SEARCH, candidate, search.best, reason)
        if raced.accepted:
            search.move(candidate, raced)
            return
        search.lost.add((candidate, search.best))


def _passes(search: Search, order: Sequence[Favoured]) -> Asking[None]:
    improved = True
    while improved:
        before = search.best
        for knob in order:
            if search.free(knob.axis):
                yield from _along(search, knob)
        for knob in order:
            if search.free(knob.axis) and search.best[knob.axis] != search.space.start[knob.axis]:
                yield from _refine(search, knob.axis)
        improved = search.best != before


def _along(search: Search, knob: Favoured) -> Asking[None]:
    dimension = search.space.dimensions[knob.axis]
    if not dimension.ordered:
        for level in range(len(dimension.levels)):
            yield from _try(search, knob.axis, level)
        return
    side = -1 if (knob.effect or 0.0) < 0.0 else 1
    if search.space.clipped(knob.axis, search.best[knob.axis] + side) == search.best[knob.axis]:
        side = -side
    for direction in (side, -side) if search.best[knob.axis] == search.space.start[knob.axis] else (side,):
        came_from = search.best
        for steps in _STEPS if direction == side or knob.effect is None else _STEPS[:1]:
            while (yield from _try(search, knob.axis, search.best[knob.axis] + direction * steps * dimension.stride)):
                pass
        if search.best != came_from:
            return


def _try(search: Search, axis: int, level: int) -> Asking[bool]:
    """Race a level against the one in force, and return whether it took its place."""
    against = search.best
    candidate = point_with(against, axis, search.space.clipped(axis, level))
    if candidate == against or (candidate, against) in search.lost or not search.allowed(candidate):
        return False
    move, back = Move(axis, against[axis], candidate[axis]), Move(axis, candidate[axis], against[axis])
    if move in search.beaten:
        return False
    dimension = search.space.dimensions[axis]
    reason = f"{dimension.name} {dimension.levels[against[axis]]} → {dimension.levels[candidate[axis]]}"
    raced = yield from race(search, SearchPhase.SEARCH, candidate, against, reason)
    if raced.accepted:
        search.move(candidate, raced)
        search.beaten.add(back)
    else:
        search.lost.add((candidate, against))
        if raced.high is None or raced.high < 0.0:
            search.beaten.add(move)
    return raced.accepted


def _refine(search: Search, axis: int) -> Asking[None]:
    """Refine by golden section: cut the larger side of the bracket until both neighbours of the level have lost."""
    if not search.space.dimensions[axis].ordered:
        return
    low, high = _bracket(search, axis)
    while True:
        now = search.best[axis]
        below, above = now - low, high - now
        if max(below, above) <= 1:
            return
        cut = max(round(_SECTION * max(below, above)), 1)
        level = now - cut if below >= above else now + cut
        if (yield from _try(search, axis, level)):
            low, high = (low, now) if level < now else (now, high)
        elif level < now:
            low = level
        else:
            high = level


def _bracket(search: Search, axis: int) -> tuple[int, int]:
    """Return the nearest levels on both sides that lost a race; beyond the ends of the grid where none did."""
    now, last = search.best[axis], len(search.space.dimensions[axis].levels)
    beaten = [
        (raced.against if raced.accepted else raced.candidate)[axis]
        for raced in search.races
        if search.space.differing(raced.candidate, raced.against) == (axis,)
    ]
    low = max((level for level in beaten if level < now), default=-1)
    return low, min((level for level in beaten if level > now), default=last)


# Bayesian search with Optuna, by ask and tell; optional packages, imported when it runs.
#
# The sampler is TPE (tree-structured Parzen estimator) over all knobs together, fed with the screen's rows. Each
# candidate is evaluated once, against the point in force when the engine began; then the best four twice more, and
# these two fresh ones decide. This search moves nearly all knobs, so the ablation after it has more to take back than
# after the climb.

_AGAIN: Final = 2
_BEST: Final = 4
_ABLATION: Final = 4
"""Evaluations that the engine leaves for the ablation beyond those that the protocol keeps."""
_STARTUP: Final = 10
_STOPPED: Final = -0.7
"""The sampler's value of a stopped trial: as bad as half of the throughput."""
_MOST_REFUSED: Final = 100
"""Candidates in a row that guards forbid, after which there is nothing more to try."""


def bayes() -> Engine:
    """Return the Bayesian engine.

    Raises:
        UsageProblem: Optuna is not installed.
    """
    try:
        import optuna
    except ImportError as missing:
        raise UsageProblem(
            "the engine bayes needs Optuna, which is not installed", "pip install optuna in this environment"
        ) from missing
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    return _search


def _search(search: Search, order: tuple[Favoured, ...]) -> Asking[None]:
    import optuna

    base = search.best
    free = [knob.axis for knob in order if search.free(knob.axis)]
    distributions = _distributions(search, free)
    sampler = optuna.samplers.TPESampler(seed=search.plan.seed, multivariate=True, n_startup_trials=_STARTUP)
    study = optuna.create_study(direction="maximize", sampler=sampler)
    tried = _screened(search, base, free, study, distributions)
    reserve = (_AGAIN * _BEST + _ABLATION) * search.cost_of(free)
    refused = 0
    while search.left >= reserve + search.cost_of(free) and refused < _MOST_REFUSED:
        trial = study.ask(distributions)
        candidate = _point(search, base, trial.params)
        if candidate == base or not search.allowed(candidate):
            study.tell(trial, state=optuna.trial.TrialState.FAIL)
            refused += 1
            continue
        refused = 0
        outcome = yield from search.measure(SearchPhase.SEARCH, candidate, base, f"trial {trial.number + 1}")
        effect = _value(search, outcome)
        study.tell(trial, effect)
        tried[candidate] = effect
    yield from _finals(search, base, tried)


def _finals(search: Search, base: Point, tried: Mapping[Point, float]) -> Asking[None]:
    """Measure the best candidates once more; move to the best of these fresh evaluations, if its effect is above 0."""
    best, best_effect = None, 0.0
    promising = [point for point in sorted(tried, key=lambda point: -tried[point]) if tried[point] > 0.0]
    with suppress(Spent):
        for candidate in promising[:_BEST]:
            outcomes: list[Outcome] = []
            for number in range(_AGAIN):
                outcomes.append(
                    (yield from search.measure(SearchPhase.SEARCH, candidate, base, f"again, {number + 1}"))
                )
            raced = record(search, SearchPhase.SEARCH, candidate, base, outcomes, Finish.UNCLEAR)
            if raced.finish is not Finish.STOPPED and raced.effect is not None and raced.effect > best_effect:
                best, best_effect = raced, raced.effect
    if best is not None:
        search.move(best.candidate, best)


def _distributions(search: Search, free: list[int]) -> dict[str, BaseDistribution]:
    from optuna.distributions import CategoricalDistribution, IntDistribution

    distributions: dict[str, BaseDistribution] = {}
    for axis in free:
        dimension = search.space.dimensions[axis]
        last = len(dimension.levels) - 1
        distributions[dimension.name] = (
            IntDistribution(0, last) if dimension.ordered else CategoricalDistribution(range(last + 1))
        )
    return distributions


def _screened(
    search: Search, base: Point, free: list[int], study: Study, distributions: dict[str, BaseDistribution]
) -> dict[Point, float]:
    """Tell the study the screen's rows as trials; return their values."""
    from optuna.trial import create_trial

    values: dict[Point, float] = {}
    for step in search.tried:
        point = step.evaluation.candidate
        inside = set(search.space.differing(point, base)) <= set(free)
        if step.evaluation.phase is not SearchPhase.SCREEN or step.evaluation.against != base or not inside:
            continue
        values[point] = _value(search, step.outcome)
        params: dict[str, Any] = {search.space.dimensions[axis].name: point[axis] for axis in free}
        study.add_trial(create_trial(params=params, distributions=distributions, value=values[point]))
    return values


def _point(search: Search, base: Point, params: Mapping[str, Any]) -> Point:
    return tuple(
        int(params.get(dimension.name, level)) for dimension, level in zip(search.space.dimensions, base, strict=True)
    )


def _value(search: Search, outcome: Outcome) -> float:
    if outcome.stopped or outcome.effect is None or search.broken(outcome.figures):
        return _STOPPED
    return outcome.effect


BY_NAME: Final[Mapping[str, Callable[[], Engine]]] = MappingProxyType({"climb": lambda: climb, "bayes": bayes})


def engine(name: str) -> Engine:
    """Return the engine, ready to be run.

    Raises:
        UsageProblem: There is none of this name, or its optional packages are missing.
    """
    if name not in BY_NAME:
        raise UsageProblem(f"there is no engine {name}", f"one of: {', '.join(BY_NAME)}")
    return BY_NAME[name]()
