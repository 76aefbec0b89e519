"""The search for the highest rate on simulated truth, and its way through runs that disagree.

`tests/benchmarks/highest_rate_by_simulation.py` prints how often it is right.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from pgtop_tune.experiment.slo.objective import Judged, Standing
from pgtop_tune.experiment.slo.search import (
    CONFIRMATIONS,
    RateEnding,
    RateSearch,
    SearchEnd,
    SearchPlan,
    SearchStep,
    StepKind,
    StepOutcome,
    ended_by,
)
from tests.support.rate_server import TRUE, knowing_probes, search, watched

Answer = Callable[[SearchStep, int], StepOutcome]


def searched(answer: Answer, plan: SearchPlan | None = None) -> tuple[RateSearch, SearchEnd]:
    found = RateSearch(plan or SearchPlan(start=100.0, shares=()), [])
    while isinstance(step := found.next(), SearchStep):
        found.tell(answer(step, len(found.outcomes)))
        assert len(found.outcomes) < 100
    return found, step


def limit_at(truth: float) -> Answer:
    return lambda step, _: StepOutcome(step=step, standing=Standing.HOLDS if step.rate < truth else Standing.BREAKS)


@pytest.mark.parametrize("truth", [3.0, 99.0, 101.0, 731.0, 40_000.0])
def test_without_noise_it_makes_no_more_probes_than_a_bisection_and_confirms_both_ends(truth: float) -> None:
    found, end = searched(limit_at(truth))
    kinds = [outcome.step.kind for outcome in found.outcomes]
    assert end.ending is RateEnding.CONFIRMED
    assert end.low is not None
    assert end.high is not None
    assert end.low < truth <= end.high <= 1.1 * end.low
    assert kinds.count(StepKind.PROBE) <= knowing_probes(100.0, truth)
    assert kinds[-2 * CONFIRMATIONS :] == [StepKind.LOWER] * CONFIRMATIONS + [StepKind.UPPER] * CONFIRMATIONS


def test_unclear_rates_stay_inside_and_both_sides_of_them_are_narrowed() -> None:
    def answer(step: SearchStep, _: int) -> StepOutcome:
        probe = step.kind is StepKind.PROBE
        standing = Standing.HOLDS if step.rate < 700 else Standing.BREAKS
        return StepOutcome(step=step, standing=Standing.UNCLEAR if probe and 650 < step.rate < 760 else standing)

    found, end = searched(answer)
    assert end.ending is RateEnding.CONFIRMED
    assert end.low is not None
    assert end.high is not None
    assert end.low <= 650.0
    assert end.high >= 760.0
    assert found.unclear()


def test_an_end_that_a_fresh_run_contradicts_moves_outwards() -> None:
    def answer(step: SearchStep, _: int) -> StepOutcome:
        truth = 731.0 if step.kind is StepKind.PROBE else 640.0
        return StepOutcome(step=step, standing=Standing.HOLDS if step.rate < truth else Standing.BREAKS)

    _, end = searched(answer)
    assert end.ending is RateEnding.CONFIRMED
    assert end.low is not None
    assert end.high is not None
    assert end.low < 640.0 <= end.high < 731.0


def test_an_objective_that_never_holds_and_one_that_never_breaks_have_no_interval() -> None:
    assert searched(limit_at(0.0))[1].ending is RateEnding.NEVER_HOLDS

    def answer(step: SearchStep, _: int) -> StepOutcome:
        generator = "a thread never slept" if step.rate > 5000.0 else ""
        standing = Standing.BREAKS if generator else Standing.HOLDS
        return StepOutcome(step=step, standing=standing, generator=generator)

    _, end = searched(answer)
    assert end.ending is RateEnding.NEVER_BREAKS
    assert end.low == 3200.0
    assert "a thread never slept" in end.reason


def too_few(step: SearchStep) -> StepOutcome:
    few = Judged(value=0.0, error=0.02, degrees=5, allowed=0.01)
    return StepOutcome(step=step, standing=Standing.UNCLEAR, judged=(few,), seconds=160)


def test_a_first_rate_with_too_few_transactions_is_doubled() -> None:
    def answer(step: SearchStep, number: int) -> StepOutcome:
        return too_few(step) if step.rate < 10.0 else limit_at(100.0)(step, number)

    found, end = searched(answer, SearchPlan(start=2.0))
    assert [outcome.step.rate for outcome in found.outcomes[:4]] == [2.0, 4.0, 8.0, 16.0]
    assert end.ending is RateEnding.CONFIRMED
    assert end.low is not None
    assert end.high is not None
    assert end.low <= 100.0 < end.high


def test_rates_with_too_few_transactions_below_those_that_break_end_with_that_reason() -> None:
    def answer(step: SearchStep, number: int) -> StepOutcome:
        return too_few(step) if step.rate < 10.0 else limit_at(0.0)(step, number)

    found, end = searched(answer, SearchPlan(start=2.0))
    assert len(found.outcomes) == 4
    assert end.ending is RateEnding.UNCONFIRMED
    assert "too few to tell" in end.reason


def test_an_objective_that_no_rate_can_hold_costs_a_few_probes() -> None:
    def answer(step: SearchStep, _: int) -> StepOutcome:
        late = Judged(value=1.0, error=0.01, degrees=5, allowed=0.01)
        return StepOutcome(step=step, standing=Standing.BREAKS, judged=(late,))

    found, end = searched(answer, SearchPlan(start=8000.0))
    assert [round(outcome.step.rate) for outcome in found.outcomes] == [8000, 4000, 1000, 62, 34]
    assert end.ending is RateEnding.UNCONFIRMED
    assert "34.2 per second" in end.reason


def test_a_run_ends_once_it_is_certain_but_one_at_the_lower_end_holds_for_its_whole_length() -> None:
    within, beyond, near = (Judged(value=late, error=0.001, degrees=10, allowed=0.01) for late in (0.001, 0.1, 0.009))

    def endings(kind: StepKind) -> list[Standing | None]:
        return [ended_by(kind, [judged]) for judged in (within, beyond, near)]

    assert endings(StepKind.PROBE) == endings(StepKind.UPPER) == [Standing.HOLDS, Standing.BREAKS, None]
    assert endings(StepKind.LOWER) == [None, Standing.BREAKS, None]
    assert endings(StepKind.CURVE) == [None, None, None]


def test_clients_are_doubled_until_they_do_not_help() -> None:
    def answer(step: SearchStep, _: int) -> StepOutcome:
        # Each client does 100 per second, the server 900.
        tps = min(step.rate, 100.0 * step.clients, 900.0)
        breaks = tps < step.rate
        standing = Standing.BREAKS if breaks else Standing.HOLDS
        return StepOutcome(step=step, standing=standing, tps=tps, all_at_work=breaks)

    found, end = searched(answer, SearchPlan(start=100.0, clients=2, most_clients=64, shares=(0.5,)))
    assert end.ending is RateEnding.CONFIRMED
    assert end.low is not None
    assert end.high is not None
    assert end.low <= 900.0 < end.high
    assert found.clients == 16
    assert found.outcomes[-1].step.kind is StepKind.CURVE
    poor, end = searched(answer, SearchPlan(start=100.0, clients=2, most_clients=4, shares=()))
    assert end.low is not None
    assert end.low <= 400.0
    assert poor.clients == 4


def test_the_true_rate_of_a_noisy_server_is_in_the_interval() -> None:
    held = 0
    for kind in ("W", "A6", "D", "P"):
        for seed in range(4):
            _, end, _ = search(kind, seed)
            held += bool(end.low and end.high and end.low <= TRUE[kind] <= end.high)
    assert held >= 14


def test_overload_is_found_soon_and_four_fifths_of_the_capacity_are_none() -> None:
    for kind in ("A6", "S", "P"):
        assert not any(watched(kind, 0.8, seed) for seed in range(5))
        found = [watched(kind, 1.5, seed) for seed in range(5)]
        assert all(each is not None and each.found_s <= 60.0 for each in found)
