"""Two searches that do not confirm, to compare with: P3's rule by hand, and the best of all trials (TPE)."""

from __future__ import annotations

import random
from typing import Final

import optuna
from msgspec import Struct

from pgtop_tune.tuning.plan import Point, point_with
from tests.support.tuning_surfaces import LEVELS, Surface

DRIFT: Final = 0.005
"""Log ratio by which the machine gets better or worse from one run to the next."""


class Ended(Struct, frozen=True):
    """Where a search ends.

    Attributes:
        claimed: Its own figure: log ratio to the start.
    """

    point: Point
    claimed: float
    evaluations: int


def by_hand(found: Surface, sd: float, budget: int, draw: random.Random) -> Ended:
    """Double a value, measure; if better keep going, if worse go back and halve it, then take the next parameter.

    Each run takes as long as a paired evaluation and has one setting all that time, so its own noise is half of the
    evaluation's; but it is compared with a run made earlier, and the machine drifts.
    """
    drift = DRIFT * draw.choice((-1, 1))
    runs = 0

    def measure(point: Point) -> float:
        nonlocal runs
        runs += 1
        return found.height(point) + drift * runs + draw.gauss(0.0, sd / 2.0)

    best = found.start
    first = last = measure(best)
    for place in range(len(best)):
        for step in (1, -1):
            turned = False
            while runs < budget and 0 <= best[place] + step < LEVELS:
                candidate = point_with(best, place, best[place] + step)
                value = measure(candidate)
                if value <= last:
                    break
                best, last, turned = candidate, value, True
            if turned:
                break
    return Ended(best, last - first, runs)


def best_of_trials(found: Surface, sd: float, budget: int, draw: random.Random) -> Ended:
    """The trial with the highest figure, each evaluated once against the start."""
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    study = optuna.create_study(
        direction="maximize", sampler=optuna.samplers.TPESampler(seed=draw.randrange(2**31), multivariate=True)
    )
    room: dict[str, optuna.distributions.BaseDistribution] = {
        str(place): optuna.distributions.IntDistribution(0, LEVELS - 1) for place in range(len(found.start))
    }
    study.enqueue_trial({str(place): level for place, level in enumerate(found.start)})
    for _ in range(budget):
        trial = study.ask(room)
        point = tuple(trial.params[str(place)] for place in range(len(found.start)))
        study.tell(trial, found.gain(point) + draw.gauss(0.0, sd))
    best = study.best_trial
    return Ended(tuple(best.params[str(place)] for place in range(len(found.start))), float(best.value or 0.0), budget)
