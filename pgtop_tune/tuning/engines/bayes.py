"""Bayesian search with Optuna, by ask and tell; optional packages, imported when it runs.

The sampler is TPE (tree-structured Parzen estimator) over all knobs together, fed with the screen's rows. Each
candidate is evaluated once, against the point in force when the engine began; then the best four twice more, and these
fresh two decide. It turns nearly all knobs, so the ablation after it has more to take back than after the climb.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from pgtop_tune.base.errors import UsageProblem
from pgtop_tune.tuning.racing import record
from pgtop_tune.tuning.search import Asking, Engine, Favoured, Finish, Outcome, Phase, Search, Spent
from pgtop_tune.tuning.space import Point

if TYPE_CHECKING:
    from optuna import Study
    from optuna.distributions import BaseDistribution

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
