"""Engines by name; another one is one file and one row."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from pgtop_tune.base.errors import UsageProblem
from pgtop_tune.tuning.plan import Point, moved
from pgtop_tune.tuning.racing import race, record, shifted
from pgtop_tune.tuning.search import Asking, Engine, Favoured, Finish, Move, Outcome, Phase, Search, Spent

if TYPE_CHECKING:
    from optuna import Study
    from optuna.distributions import BaseDistribution

# Coordinate climb on grids, raced. First all knobs that the screen favours clearly, together; then knob by knob.
#
# A knob's steps are +2, +1 towards the side that the screen favours, then −2 (and −1 where there was no screen); each
# is
# repeated while it wins. Knobs that were moved are refined by a golden section on their levels, between those beside
# the
# best that lost. Passes repeat until none moves a knob: over the clear ones, then over all. Words of an enum are
# tried in
# their order.

_STEPS: Final = (2, 1)
_CLEAR: Final = 2.0
"""Errors of the screen's effect."""
_SECTION: Final = 0.382
"""1 − 1/φ."""


def climb(search: Search, order: tuple[Favoured, ...]) -> Asking[None]:
    """Moves `search.best` wherever a race is won."""
    clear = [
        knob
        for knob in order
        if knob.effect is None or abs(knob.effect) > _CLEAR * search.spread.sd() / math.sqrt(max(knob.rows, 1))
    ]
    yield from _jump(search, [knob for knob in clear if knob.effect is not None and search.free(knob.place)])
    for knobs in (clear, order):
        yield from _passes(search, knobs)


def _jump(search: Search, knobs: Sequence[Favoured]) -> Asking[None]:
    """All knobs that the screen favours clearly, together."""
    if len(knobs) < 2:
        return
    for steps in _STEPS:
        candidate = search.best
        for knob in knobs:
            side = 1 if (knob.effect or 0.0) > 0.0 else -1
            candidate = moved(candidate, knob.place, shifted(search, search.best, knob.place, side * steps))
        if candidate == search.best or (candidate, search.best) in search.lost or not search.allowed(candidate):
            continue
        why = f"{len(knobs)} knobs together, {steps} steps"
        raced = yield from race(search, Phase.SEARCH, candidate, search.best, why)
        if raced.accepted:
            search.move(candidate, raced)
            return
        search.lost.add((candidate, search.best))


def _passes(search: Search, order: Sequence[Favoured]) -> Asking[None]:
    again = True
    while again:
        before = search.best
        for knob in order:
            if search.free(knob.place):
                yield from _along(search, knob)
        for knob in order:
            if search.free(knob.place) and search.best[knob.place] != search.space.start[knob.place]:
                yield from _refine(search, knob.place)
        again = search.best != before


def _along(search: Search, knob: Favoured) -> Asking[None]:
    dimension = search.space.dimensions[knob.place]
    if not dimension.ordered:
        for level in range(len(dimension.levels)):
            yield from _try(search, knob.place, level)
        return
    side = -1 if (knob.effect or 0.0) < 0.0 else 1
    if search.space.clipped(knob.place, search.best[knob.place] + side) == search.best[knob.place]:
        side = -side
    for direction in (side, -side) if search.best[knob.place] == search.space.start[knob.place] else (side,):
        came_from = search.best
        for steps in _STEPS if direction == side or knob.effect is None else _STEPS[:1]:
            while (yield from _try(search, knob.place, search.best[knob.place] + direction * steps * dimension.stride)):
                pass
        if search.best != came_from:
            return


def _try(search: Search, place: int, level: int) -> Asking[bool]:
    """Whether the level took the place of the one in force."""
    against = search.best
    candidate = moved(against, place, search.space.clipped(place, level))
    if candidate == against or (candidate, against) in search.lost or not search.allowed(candidate):
        return False
    move, back = Move(place, against[place], candidate[place]), Move(place, candidate[place], against[place])
    if move in search.beaten:
        return False
    dimension = search.space.dimensions[place]
    why = f"{dimension.name} {dimension.levels[against[place]]} → {dimension.levels[candidate[place]]}"
    raced = yield from race(search, Phase.SEARCH, candidate, against, why)
    if raced.accepted:
        search.move(candidate, raced)
        search.beaten.add(back)
    else:
        search.lost.add((candidate, against))
        if raced.high is None or raced.high < 0.0:
            search.beaten.add(move)
    return raced.accepted


def _refine(search: Search, place: int) -> Asking[None]:
    """Golden section: the larger side of the bracket is cut until both neighbours of the level in force have lost."""
    if not search.space.dimensions[place].ordered:
        return
    low, high = _bracket(search, place)
    while True:
        now = search.best[place]
        below, above = now - low, high - now
        if max(below, above) <= 1:
            return
        cut = max(round(_SECTION * max(below, above)), 1)
        level = now - cut if below >= above else now + cut
        if (yield from _try(search, place, level)):
            low, high = (low, now) if level < now else (now, high)
        elif level < now:
            low = level
        else:
            high = level


def _bracket(search: Search, place: int) -> tuple[int, int]:
    """The nearest levels on both sides that lost a race; beyond the ends of the grid where none did."""
    now, last = search.best[place], len(search.space.dimensions[place].levels)
    beaten = [
        (raced.against if raced.accepted else raced.candidate)[place]
        for raced in search.races
        if search.space.differing(raced.candidate, raced.against) == (place,)
    ]
    low = max((level for level in beaten if level < now), default=-1)
    return low, min((level for level in beaten if level > now), default=last)


# Bayesian search with Optuna, by ask and tell; optional packages, imported when it runs.
#
# The sampler is TPE (tree-structured Parzen estimator) over all knobs together, fed with the screen's rows. Each
# candidate is evaluated once, against the point in force when the engine began; then the best four twice more, and
# these
# fresh two decide. It turns nearly all knobs, so the ablation after it has more to take back than after the climb.

_AGAIN: Final = 2
_BEST: Final = 4
_ABLATION: Final = 4
"""Evaluations that it leaves for the ablation beyond those that the protocol keeps."""
_STARTUP: Final = 10
_STOPPED: Final = -0.7
"""For the sampler: as bad as half of the throughput."""
_MOST_REFUSED: Final = 100
"""Candidates in a row that guards forbid, after which there is nothing more to try."""


def bayes() -> Engine:
    """The engine.

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
    free = [knob.place for knob in order if search.free(knob.place)]
    room = _distributions(search, free)
    sampler = optuna.samplers.TPESampler(seed=search.plan.seed, multivariate=True, n_startup_trials=_STARTUP)
    study = optuna.create_study(direction="maximize", sampler=sampler)
    tried = _screened(search, base, free, study, room)
    again = (_AGAIN * _BEST + _ABLATION) * search.cost_of(free)
    refused = 0
    while search.left >= again + search.cost_of(free) and refused < _MOST_REFUSED:
        trial = study.ask(room)
        candidate = _point(search, base, trial.params)
        if candidate == base or not search.allowed(candidate):
            study.tell(trial, state=optuna.trial.TrialState.FAIL)
            refused += 1
            continue
        refused = 0
        outcome = yield from search.measure(Phase.SEARCH, candidate, base, f"trial {trial.number + 1}")
        effect = _value(search, outcome)
        study.tell(trial, effect)
        tried[candidate] = effect
    yield from _finals(search, base, tried)


def _finals(search: Search, base: Point, tried: Mapping[Point, float]) -> Asking[None]:
    """The best candidates once more; the one that is best in its fresh evaluations, if it is above 0."""
    best, best_effect = None, 0.0
    promising = [point for point in sorted(tried, key=lambda point: -tried[point]) if tried[point] > 0.0]
    with suppress(Spent):
        for candidate in promising[:_BEST]:
            outcomes: list[Outcome] = []
            for number in range(_AGAIN):
                outcomes.append((yield from search.measure(Phase.SEARCH, candidate, base, f"again, {number + 1}")))
            raced = record(search, Phase.SEARCH, candidate, base, outcomes, Finish.UNCLEAR)
            if raced.finish is not Finish.STOPPED and raced.effect is not None and raced.effect > best_effect:
                best, best_effect = raced, raced.effect
    if best is not None:
        search.move(best.candidate, best)


def _distributions(search: Search, free: list[int]) -> dict[str, BaseDistribution]:
    from optuna.distributions import CategoricalDistribution, IntDistribution

    room: dict[str, BaseDistribution] = {}
    for place in free:
        dimension = search.space.dimensions[place]
        last = len(dimension.levels) - 1
        room[dimension.name] = (
            IntDistribution(0, last) if dimension.ordered else CategoricalDistribution(range(last + 1))
        )
    return room


def _screened(
    search: Search, base: Point, free: list[int], study: Study, room: dict[str, BaseDistribution]
) -> dict[Point, float]:
    """The screen's rows, told to the study as trials."""
    from optuna.trial import create_trial

    found: dict[Point, float] = {}
    for step in search.tried:
        point = step.evaluation.candidate
        inside = set(search.space.differing(point, base)) <= set(free)
        if step.evaluation.phase is not Phase.SCREEN or step.evaluation.against != base or not inside:
            continue
        found[point] = _value(search, step.outcome)
        params: dict[str, Any] = {search.space.dimensions[place].name: point[place] for place in free}
        study.add_trial(create_trial(params=params, distributions=room, value=found[point]))
    return found


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
    """Ready to be run.

    Raises:
        UsageProblem: There is none of this name, or its optional packages are missing.
    """
    if name not in BY_NAME:
        raise UsageProblem(f"there is no engine {name}", f"one of: {', '.join(BY_NAME)}")
    return BY_NAME[name]()
