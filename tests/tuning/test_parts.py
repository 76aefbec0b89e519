"""Noise, races, ablation, confirmation and bounds, each alone."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator

import numpy as np
import pytest
from scipy import stats

from pgtop_tune.experiment.prediction import Prediction
from pgtop_tune.tuning.plan import Constraint, Dimension, Point, Space, TuningPlan
from pgtop_tune.tuning.protocol import rank, score
from pgtop_tune.tuning.racing import Fate, ablate, confirm, race
from pgtop_tune.tuning.search import Finish, Outcome, Raced, Search, SearchPhase, Spent, Spread, evaluations_needed
from tests.support.tuning_surfaces import driven

LEVELS = ("1", "2", "4", "8")
START: Point = (1, 1, 1)


def search_of(budget: float = 100.0, constraints: tuple[Constraint, ...] = (), **predictions: Prediction) -> Search:
    space = Space(tuple(Dimension(name=name, levels=LEVELS, start=1) for name in ("a", "b", "c")))
    plan = TuningPlan(space=space, budget=budget, constraints=constraints, predictions=predictions)
    return Search(plan, lambda values: True)


def in_turn(effects: Iterable[float | Outcome]) -> Callable[[Point, Point], Outcome]:
    each: Iterator[float | Outcome] = iter(effects)

    def told(candidate: Point, against: Point) -> Outcome:
        found = next(each)
        return found if isinstance(found, Outcome) else Outcome(effect=found)

    return told


def test_the_noise_is_pooled_over_races_with_the_prior_of_two_per_cent() -> None:
    spread, groups = Spread(), ([0.01, 0.03, 0.08], [-0.02, 0.01])
    assert spread.sd() == pytest.approx(0.02)
    for group in groups:
        spread.add(group)
    squares = sum(float(np.var(group)) * len(group) for group in groups)
    assert spread.sd() == pytest.approx(math.sqrt((4 * 0.02**2 + squares) / (4 + 3)))
    spread.add([0.05], true_mean=0.0)
    assert spread.sd() == pytest.approx(math.sqrt((4 * 0.02**2 + squares + 0.05**2) / (4 + 4)))
    spread.within(0.3)
    assert spread.sd() == 0.3


@pytest.mark.parametrize(("sd", "effect"), [(0.02, 0.02), (0.04, 0.02), (0.06, 0.03)])
def test_so_many_evaluations_find_the_effect_in_four_of_five_cases(sd: float, effect: float) -> None:
    count = evaluations_needed(sd, effect, 0.975, 8)
    for evaluations, right in ((count, True), (count - 1, False)):
        reached = stats.nct.sf(
            stats.t.ppf(0.975, evaluations - 1), evaluations - 1, effect / sd * math.sqrt(evaluations)
        )
        assert bool(reached >= 0.8) is right
    assert evaluations_needed(0.001, 0.02, 0.975, 8) == 8


@pytest.mark.parametrize(
    ("effects", "finish", "count"),
    [
        ([-0.001], Finish.DROPPED, 1),
        ([0.06, 0.05], Finish.ACCEPTED, 2),
        ([0.01, -0.02], Finish.DROPPED, 2),
        ([0.02] * 6, Finish.ACCEPTED, 4),
        ([0.013] * 6, Finish.ACCEPTED, 6),
        ([0.05, -0.01, 0.04, -0.01, 0.04, -0.02], Finish.UNCLEAR, 6),
    ],
)
def test_a_race_ends_as_soon_as_it_is_decided(effects: list[float], finish: Finish, count: int) -> None:
    search = search_of()
    raced = driven(race(search, SearchPhase.SEARCH, (2, 1, 1), START, ""), in_turn(effects))
    assert (raced.finish, len(raced.evaluations)) == (finish, count)
    assert raced.evaluations == tuple(range(1, count + 1))
    assert search.races == [raced]


@pytest.mark.parametrize(
    ("outcome", "reason"),
    [
        (Outcome(effect=0.3, stopped="latency doubled"), "latency doubled"),
        (Outcome(effect=None), "nothing was measured"),
        (Outcome(effect=0.3, figures={"p99_ms": 21.0}), "p99_ms 21 is above 20"),
    ],
)
def test_an_unfit_candidate_is_out_whatever_its_effect(outcome: Outcome, reason: str) -> None:
    search = search_of(constraints=(Constraint(figure="p99_ms", most=20.0),))
    raced = driven(race(search, SearchPhase.SEARCH, (2, 1, 1), START, ""), in_turn([outcome]))
    assert (raced.finish, raced.reason) == (Finish.STOPPED, reason)
    assert not raced.accepted


def test_one_unlucky_evaluation_does_not_break_a_limit_that_their_mean_holds() -> None:
    search = search_of(constraints=(Constraint(figure="p99_ms", most=20.0),))
    outcomes = [Outcome(effect=0.06, figures={"p99_ms": figure}) for figure in (18.0, 21.0)]
    assert driven(race(search, SearchPhase.SEARCH, (2, 1, 1), START, ""), in_turn(outcomes)).accepted


def by_knobs(parts: Callable[[Point], float]) -> Callable[[Point, Point], Outcome]:
    return lambda candidate, against: Outcome(
        effect=parts(candidate) - parts(against), figures={}, against_figures={"p99_ms": 30.0 - 5.0 * against[0]}
    )


def fates(search: Search, parts: Callable[[Point], float]) -> dict[str, Fate]:
    return {name: each.fate for each in driven(ablate(search), by_knobs(parts)) for name in each.knobs}


def test_the_knobs_that_earn_nothing_go_back() -> None:
    search = search_of()
    search.best = (2, 3, 0)
    assert fates(search, lambda point: 0.06 * point[1] + 0.05 * point[0]) == {
        "a": Fate.EARNED,
        "b": Fate.EARNED,
        "c": Fate.WENT_BACK,
    }
    assert search.best == (2, 3, 1)


def test_of_two_that_do_the_same_only_one_goes_back() -> None:
    search = search_of()
    search.best = (2, 2, 1)
    assert fates(search, lambda point: 0.08 * max(point[0], point[1])) == {"a": Fate.WENT_BACK, "b": Fate.EARNED}


def test_a_knob_without_which_a_constraint_breaks_stays() -> None:
    search = search_of(constraints=(Constraint(figure="p99_ms", most=20.0),))
    search.best = (2, 2, 1)
    found = driven(ablate(search), by_knobs(lambda point: 0.08 * point[1]))
    assert [(each.knobs, each.fate, each.why) for each in found] == [
        (("a",), Fate.EARNED, "p99_ms 25 is above 20"),
        (("b",), Fate.EARNED, ""),
    ]
    assert search.best == (2, 2, 1)


def test_many_changed_knobs_are_examined_by_halves() -> None:
    space = Space(tuple(Dimension(name=f"k{each}", levels=LEVELS, start=1) for each in range(8)))
    search = Search(TuningPlan(space=space, budget=100.0), lambda values: True)
    search.best = (2,) * 8
    search.screened = {7: 0.1, 6: 0.05}
    assert fates(search, lambda point: 0.1 * point[7] + 0.05 * point[6])["k7"] is Fate.EARNED
    assert search.best == (1,) * 6 + (2, 2)
    assert len(search.tried) < 2 * 8


def test_without_budget_the_knobs_stay_and_are_said_not_to_be_examined() -> None:
    search = search_of(budget=10.0)
    search.best, search.kept = (2, 2, 1), 8.0
    found = driven(ablate(search), by_knobs(lambda point: 0.03 * point[1]))
    assert [(each.knobs, each.fate) for each in found] == [(("a",), Fate.WENT_BACK), (("b",), Fate.EARNED)]
    search.best, search.kept = (2, 2, 1), 9.0
    spent = driven(ablate(search), by_knobs(lambda point: 0.03 * point[1]))
    assert [(each.fate, each.why) for each in spent] == [(Fate.KEPT, "not examined: the budget is spent")] * 2


def test_the_result_is_students_interval_of_the_fresh_evaluations_alone() -> None:
    search, draw = search_of(), np.random.default_rng(1)
    search.spread.add([0.5, -0.5, 0.3])
    search.claimed = {0: 5.0}
    search.best = (2, 1, 1)
    effects = draw.normal(0.05, 0.02, 8).tolist()
    found = driven(confirm(search), in_turn(effects))
    low, high = stats.t.interval(0.95, 7, np.mean(effects), stats.sem(effects))
    assert (found.low, found.effect, found.high) == pytest.approx((low, np.mean(effects), high))
    assert found.evaluations == 8
    assert found.better


def test_a_confirmation_has_more_than_eight_evaluations_where_the_claim_is_small_for_the_noise() -> None:
    search = search_of()
    search.spread.add([0.05, -0.05] * 10)
    search.claimed, search.best = {0: 0.10}, (2, 1, 1)
    assert driven(confirm(search), in_turn([0.05] * 100)).evaluations == evaluations_needed(
        search.spread.sd(), 0.05, 0.975, 8
    )


def test_a_winner_that_is_stopped_or_breaks_a_limit_is_not_better() -> None:
    search = search_of(constraints=(Constraint(figure="errors", most=0.0),))
    search.best = (2, 1, 1)
    stopped = driven(confirm(search), in_turn([0.1, Outcome(effect=None, stopped="crashed")]))
    assert (stopped.better, stopped.reason) == (False, "crashed")
    broken = driven(confirm(search), in_turn([Outcome(effect=0.1, figures={"errors": 1.0})] * 20))
    assert not broken.better
    assert broken.low > 0.0


def test_a_confirmation_that_does_not_fit_does_not_begin() -> None:
    search = search_of(budget=5.0)
    search.best = (2, 1, 1)
    with pytest.raises(Spent):
        driven(confirm(search), in_turn([]))


def bound(most: float | None) -> Prediction:
    return Prediction(most=most, removable_ms=1.0, of_ms=10.0)


def test_knobs_come_by_their_bound_and_those_below_what_is_worth_having_not_at_all() -> None:
    found = rank(search_of(a=bound(0.05), b=bound(0.5), c=bound(0.01)).plan)
    assert found.worth_trying == (1, 0)
    assert found.left_out == ((2, "at most +1.0 %"),)
    assert rank(search_of(b=bound(0.5)).plan).worth_trying == (1, 0, 2)


def test_every_race_of_one_knob_scores_its_prediction() -> None:
    plan = search_of(a=bound(0.05), b=bound(None)).plan

    def raced(candidate: Point, low: float) -> Raced:
        return Raced(
            phase=SearchPhase.SEARCH, candidate=candidate, against=START, finish=Finish.ACCEPTED, effect=low, error=0.0,
            low=low, high=low + 0.02, evaluations=(1,),
        )  # fmt: skip

    races = [raced((2, 1, 1), 0.01), raced((2, 1, 1), 0.2), raced((1, 1, 2), 0.2), raced((2, 2, 1), 0.2)]
    found = score(plan, races)
    assert (found.inside, found.scored) == (1, 2)
