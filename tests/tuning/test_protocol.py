"""The whole search: its order, its budget, resuming, refusing, and knobs that somebody else changes."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from itertools import groupby
from statistics import fmean

import msgspec
import pytest
from msgspec.structs import replace

from pgtop_tune.base.errors import JournalProblem, UsageProblem
from pgtop_tune.experiment.prediction import Prediction
from pgtop_tune.tuning import engines
from pgtop_tune.tuning.plan import Constraint, Dimension, Space, TuningPlan, point_with
from pgtop_tune.tuning.protocol import Event, Released, SearchEnding, SearchResult, ToldOutcome, Tuning
from pgtop_tune.tuning.racing import Fate, race
from pgtop_tune.tuning.search import Asking, Evaluation, Favoured, Outcome, Search, SearchPhase
from tests.support.tuning_surfaces import KINDS, Hill, Surface, answer, run, space_of, surface

FIGURES = {"p99_ms": 10.0}


def plan_of(found: Surface, **fields: object) -> TuningPlan:
    return msgspec.structs.replace(TuningPlan(space=space_of(found), budget=60.0, seed=3), **fields)


def noisy(found: Surface, sd: float = 0.01, seed: int = 1) -> Callable[[Evaluation], Outcome]:
    """The same outcome for the same evaluation, however often and in whichever process it is asked."""
    return lambda wanted: answer(found, sd, random.Random(f"{seed} {wanted.number}"))(wanted)


def phases(result: SearchResult) -> list[SearchPhase]:
    return [phase for phase, _ in groupby(step.evaluation.phase for step in result.tried)]


def test_two_knobs_of_eight_are_found_and_what_is_reported_was_confirmed_as_a_whole() -> None:
    found = surface("two of eight", 5)
    result = run(Tuning(plan_of(found)), noisy(found))
    assert result.ending is SearchEnding.BETTER
    assert phases(result) == [
        SearchPhase.NOISE,
        SearchPhase.SCREEN,
        SearchPhase.SEARCH,
        SearchPhase.ABLATION,
        SearchPhase.CONFIRMATION,
    ]
    assert set(result.values) == {f"knob_{hill.place}" for hill in found.hills}
    assert {name for each in result.examined if each.fate is Fate.EARNED for name in each.knobs} == set(result.values)
    fresh = [step for step in result.tried if step.evaluation.phase is SearchPhase.CONFIRMATION]
    assert {step.evaluation.candidate for step in fresh} == {fresh[0].evaluation.candidate}
    assert result.confirmed is not None
    assert result.confirmed.evaluations == len(fresh) >= 8
    assert {name: fresh[0].evaluation.values[name] for name in result.values} == result.values
    assert result.confirmed.low <= found.gain(fresh[0].evaluation.candidate) <= result.confirmed.high
    assert "% (" in result.why


def test_from_the_best_start_nothing_is_changed_and_that_is_said() -> None:
    found = surface("start best", 2)
    result = run(Tuning(plan_of(found)), noisy(found))
    assert (result.ending, result.values) == (SearchEnding.START_KEPT, {})
    assert "No setting was truly better" in result.why


@pytest.mark.parametrize(
    ("kind", "engine"), [*((kind, "climb") for kind in KINDS), ("hard", "bayes"), ("nothing", "bayes")]
)
def test_the_budget_is_kept(kind: str, engine: str) -> None:
    found = surface(kind, 1)
    result = run(Tuning(plan_of(found, engine=engine)), noisy(found, 0.02))
    assert result.spent == len(result.tried) <= 60


@pytest.mark.parametrize("engine", ["climb", "bayes"])
def test_a_search_that_is_cut_anywhere_and_replayed_goes_on_as_if_nothing_had_been(engine: str) -> None:
    found = surface("hard", 4)
    plan, told = plan_of(found, engine=engine), noisy(found, 0.02)
    whole = Tuning(plan)
    result = run(whole, told)
    lines = [msgspec.json.encode(event) for event in whole.events]
    stored = msgspec.json.decode(msgspec.json.encode(plan), type=TuningPlan)
    for cut in range(0, len(lines) + 1, 1 if engine == "climb" else 25):
        events = [msgspec.json.decode(line, type=Event) for line in lines[:cut]]
        again = Tuning.replay(stored, events)
        assert run(again, told) == result
        assert again.events == whole.events


def test_a_journal_of_another_search_is_refused() -> None:
    found = surface("hard", 4)
    whole = Tuning(plan_of(found))
    run(whole, noisy(found))
    events = list(whole.events)
    other = events[8]
    assert isinstance(other, ToldOutcome)
    events[8] = replace(other, candidate=found.start)
    with pytest.raises(JournalProblem, match="evaluation 9"):
        Tuning.replay(plan_of(found), events)


def test_a_knob_that_somebody_else_changes_is_let_go_of_at_any_moment() -> None:
    found, told = surface("two of eight", 5), noisy(surface("two of eight", 5))
    name = f"knob_{found.hills[0].place}"
    whole = run(Tuning(plan_of(found)), told)
    for moment in range(len(whole.tried)):
        tuning = Tuning(plan_of(found))
        for _ in range(moment):
            wanted = tuning.next()
            assert isinstance(wanted, Evaluation)
            tuning.tell(told(wanted))
        tuning.release(name)
        number = len(tuning.events)
        result = run(tuning, told)
        after = result.tried[number - 1 :]
        assert all(name not in step.evaluation.values for step in after)
        assert all(name not in step.evaluation.against_values for step in after)
        assert name not in result.values
        assert result.let_go == (name,)
        assert result.spent <= 60 + 2  # a confirmation that begins anew may need a quarter more than is left
        if result.confirmed is not None:
            fresh = [step for step in after if step.evaluation.phase is SearchPhase.CONFIRMATION]
            assert result.confirmed.evaluations == len(fresh)
        assert run(Tuning.replay(plan_of(found), tuning.events), told) == result


def test_without_any_knob_left_the_start_is_kept() -> None:
    found = surface("two of eight", 5)
    for engine in ("climb", "bayes"):
        tuning = Tuning(plan_of(found, engine=engine))
        for _ in range(20):
            wanted = tuning.next()
            assert isinstance(wanted, Evaluation)
            tuning.tell(noisy(found)(wanted))
        for place in range(8):
            tuning.release(f"knob_{place}")
        result = tuning.next()
        assert isinstance(result, SearchResult)
        assert result.ending is SearchEnding.START_KEPT
        assert len(result.let_go) == 8


def prediction(most: float) -> Prediction:
    return Prediction(most=most, removable_ms=1.0, of_ms=10.0)


def test_knobs_with_nothing_to_gain_end_the_search_before_it_begins() -> None:
    found = surface("two of eight", 5)
    result = Tuning(plan_of(found, predictions={f"knob_{place}": prediction(0.01) for place in range(8)})).next()
    assert isinstance(result, SearchResult)
    assert result.ending is SearchEnding.NOTHING_TO_GAIN
    assert len(result.left_out) == 8


def test_a_knob_below_its_bound_is_not_tried() -> None:
    found = surface("two of eight", 5)
    result = run(Tuning(plan_of(found, predictions={"knob_0": prediction(0.01)})), noisy(found))
    assert dict(result.left_out) == {"knob_0": "at most +1.0 %"}
    assert all(step.evaluation.candidate[0] == found.start[0] for step in result.tried)


def test_a_budget_too_small_for_the_noise_is_refused_with_what_is_needed() -> None:
    found = surface("two of eight", 5)
    at_once = Tuning(plan_of(found, budget=20.0)).next()
    assert isinstance(at_once, SearchResult)
    assert (at_once.ending, at_once.tried) == (SearchEnding.REFUSED, ())
    noise = run(Tuning(plan_of(found)), noisy(found, 0.15))
    assert (noise.ending, len(noise.tried)) == (SearchEnding.REFUSED, 3)
    assert noise.needed is not None
    assert noise.needed > 60
    # What is asked for is enough.
    assert run(Tuning(plan_of(found, budget=noise.needed)), noisy(found, 0.15)).ending is not SearchEnding.REFUSED


@pytest.mark.parametrize(
    ("outcome", "words"),
    [
        (
            Outcome(effect=0.0, figures={"p99_ms": 30.0}, against_figures={"p99_ms": 31.0}),
            "already breaks a constraint",
        ),
        (Outcome(effect=0.0), "does not measure p99_ms"),
        (Outcome(effect=None, stopped="no load"), "cannot be measured: no load"),
    ],
)
def test_a_start_that_breaks_a_constraint_or_cannot_be_measured_is_refused(outcome: Outcome, words: str) -> None:
    plan = plan_of(surface("hard", 1), constraints=(Constraint(figure="p99_ms", most=20.0),))
    result = run(Tuning(plan), lambda wanted: outcome)
    assert result.ending is SearchEnding.REFUSED
    assert words in result.why


def test_a_better_setting_that_breaks_a_constraint_is_not_the_result() -> None:
    found = surface("two of eight", 5)
    first = found.hills[0].place
    plain = noisy(found)

    def told(wanted: Evaluation) -> Outcome:
        limits = [30.0 if point[first] != found.start[first] else 10.0 for point in (wanted.candidate, wanted.against)]
        return replace(plain(wanted), figures={"p99_ms": limits[0]}, against_figures={"p99_ms": limits[1]})

    result = run(Tuning(plan_of(found, constraints=(Constraint(figure="p99_ms", most=20.0),))), told)
    assert list(result.values) == [f"knob_{found.hills[1].place}"]


@pytest.mark.parametrize("engine", ["climb", "bayes"])
def test_what_guards_forbid_is_never_wanted(engine: str) -> None:
    found = surface("two of eight", 5)

    def allowed(values: object) -> bool:
        assert isinstance(values, dict)
        return sum(int(value.removesuffix("MB")) for value in values.values()) <= 8 * 8 + 30

    result = run(Tuning(plan_of(found, engine=engine), allowed), noisy(found))
    assert all(allowed(step.evaluation.values) for step in result.tried)


def test_restarts_are_bought_together_and_their_cost_is_in_the_budget() -> None:
    found = surface("two of eight", 5)
    restarting = {found.hills[0].place, (found.hills[0].place + 1) % 8}
    space = Space(
        tuple(replace(each, restart=place in restarting) for place, each in enumerate(space_of(found).dimensions))
    )
    plan = plan_of(found, space=space, restart_cost=4.0, budget=250.0)
    result = run(Tuning(plan), noisy(found))
    assert result.spent == sum(4.0 if step.evaluation.restart else 1.0 for step in result.tried) <= 250.0
    searching = [
        step.evaluation for step in result.tried if step.evaluation.phase in (SearchPhase.SCREEN, SearchPhase.SEARCH)
    ]
    assert [restart for restart, _ in groupby(each.restart for each in searching)] == [True, False]
    assert set(result.values) == {f"knob_{hill.place}" for hill in found.hills}


def test_evaluations_that_take_longer_than_planned_still_leave_a_confirmation() -> None:
    found = surface("two of eight", 5)
    plain = noisy(found)
    result = run(Tuning(plan_of(found, budget=120.0)), lambda wanted: replace(plain(wanted), took=2.0))
    assert result.ending is SearchEnding.BETTER
    assert result.spent == 2.0 * len(result.tried) <= 120.0


def test_words_of_an_enum_are_tried_and_the_best_is_found() -> None:
    words = Dimension(name="wal_compression", levels=("off", "pglz", "lz4", "zstd"), start=0, ordered=False)
    number = Dimension(name="max_wal_size", levels=("1GB", "2GB", "4GB"), start=0)
    effects = (0.0, 0.03, 0.12, 0.05)

    def told(wanted: Evaluation) -> Outcome:
        draw = random.Random(wanted.number)
        return Outcome(effect=effects[wanted.candidate[0]] - effects[wanted.against[0]] + draw.gauss(0.0, 0.01))

    for engine in ("climb", "bayes"):
        plan = TuningPlan(space=Space((words, number)), budget=60.0, engine=engine)
        assert run(Tuning(plan), told).values == {"wal_compression": "lz4"}


def test_a_single_knob_is_searched_to_both_sides_in_single_steps() -> None:
    space = Space((Dimension(name="work_mem", levels=tuple("1248"), start=2),))
    for best in (1, 3):

        def told(wanted: Evaluation, best: int = best) -> Outcome:
            noise = random.Random(wanted.number).gauss(0.0, 0.01)
            return Outcome(effect=0.1 * (abs(wanted.against[0] - best) - abs(wanted.candidate[0] - best)) + noise)

        result = run(Tuning(TuningPlan(space=space, budget=40.0)), told)
        assert result.values == {"work_mem": space.dimensions[0].levels[best]}
        assert SearchPhase.SCREEN not in phases(result)


def test_a_knob_at_the_end_of_its_grid_is_tried_in_single_steps_away_from_it() -> None:
    found = Surface((0,) * 8, (Hill(0, 1, 0.12),))
    for seed in range(5):  # the screen sees no difference between the ends, so its noise chooses the side
        assert run(Tuning(plan_of(found, budget=90.0)), noisy(found, seed=seed)).values == {"knob_0": "2MB"}


def test_no_race_goes_back_over_a_step_that_was_won() -> None:
    for seed in range(8):
        found = surface("hard", seed)
        result = run(Tuning(plan_of(found, budget=200.0)), noisy(found))
        space, won = space_of(found), set()
        for raced in result.races:
            places = space.differing(raced.candidate, raced.against)
            if raced.phase is not SearchPhase.SEARCH or len(places) > 1:
                continue
            step = (places[0], raced.against[places[0]], raced.candidate[places[0]])
            assert step not in won
            if raced.accepted:
                won.add((step[0], step[2], step[1]))


def test_the_bayesian_engine_learns_from_its_trials() -> None:
    found = Surface((0,) * 8, (Hill(0, 6, 0.05), Hill(1, 6, 0.05)))
    result = run(Tuning(plan_of(found, engine="bayes")), noisy(found))
    trials = [found.gain(step.evaluation.candidate) for step in result.tried if step.evaluation.why.startswith("trial")]
    assert fmean(trials[:5]) < 0.6 * found.possible
    assert fmean(trials[-5:]) > 0.8 * found.possible


def stubborn(search: Search, order: tuple[Favoured, ...]) -> Asking[None]:
    """An engine that does not look which knobs were let go of."""
    for knob in order:
        raced = yield from race(
            search, SearchPhase.SEARCH, point_with(search.best, knob.axis, 0), search.best, "to the lowest"
        )
        if raced.accepted:
            search.move(raced.candidate, raced)


def test_another_engine_is_one_function_and_cannot_turn_a_knob_that_was_let_go_of(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(engines, "BY_NAME", {"stubborn": lambda: stubborn})
    found = Surface((3,) * 8, (Hill(0, 0, 0.05), Hill(1, 0, 0.05)))
    tuning = Tuning(plan_of(found, engine="stubborn"))
    for _ in range(15):
        wanted = tuning.next()
        assert isinstance(wanted, Evaluation)
        tuning.tell(noisy(found)(wanted))
    tuning.release("knob_1")
    assert run(tuning, noisy(found)).values in ({}, {"knob_0": "1MB"})
    assert run(Tuning(plan_of(found, engine="stubborn")), noisy(found)).values == {"knob_0": "1MB", "knob_1": "1MB"}


def test_without_optuna_the_message_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(UsageProblem) as told:
        Tuning(plan_of(surface("hard", 1), engine="bayes"))
    assert "pip install optuna" in told.value.hint
    with pytest.raises(UsageProblem, match="no engine"):
        Tuning(plan_of(surface("hard", 1), engine="magic"))


def test_an_event_survives_its_file() -> None:
    events: list[Event] = [
        ToldOutcome((1, 2), (1, 1), Outcome(effect=0.1, error=0.01, figures={"p99_ms": 3.0}, took=9.0)),
        ToldOutcome((1, 2), (1, 1), Outcome(effect=None, stopped="TPS halved")),
        Released("work_mem"),
    ]
    assert msgspec.json.decode(msgspec.json.encode(events), type=list[Event]) == events


def test_a_noise_and_a_confirmation_are_made_under_one_load_and_what_was_measured_before_it_changed_is_void() -> None:
    found, told = surface("two of eight", 5), noisy(surface("two of eight", 5))
    tuning, asked = Tuning(plan_of(found)), list[SearchPhase]()
    moments = {(SearchPhase.NOISE, 2): "a", (SearchPhase.SCREEN, 6): "b", (SearchPhase.CONFIRMATION, 5): "c"}
    while isinstance(wanted := tuning.next(), Evaluation):
        asked.append(wanted.phase)
        if words := moments.pop((wanted.phase, asked.count(wanted.phase)), ""):
            tuning.conditions_changed(words, 2.0)
            now = tuning.next()
            assert isinstance(now, Evaluation)
            assert (now.phase, now.candidate, now.number) == (wanted.phase, wanted.candidate, wanted.number)
        else:
            tuning.tell(told(wanted))
    assert wanted.changes == ("a", "b", "c")
    assert wanted.ending is SearchEnding.BETTER
    assert wanted.spent == len(wanted.tried) + 6.0
    assert asked.count(SearchPhase.NOISE) == 2 + 3
    assert wanted.confirmed is not None
    assert wanted.confirmed.evaluations == asked.count(SearchPhase.CONFIRMATION) - 5
    events = [msgspec.json.decode(msgspec.json.encode(event), type=Event) for event in tuning.events]
    assert Tuning.replay(plan_of(found), events).next() == wanted


def test_conditions_that_change_all_the_time_end_with_the_budget() -> None:
    found = surface("two of eight", 5)
    tuning = Tuning(plan_of(found))
    for _ in range(200):
        if isinstance(tuning.next(), SearchResult):
            break
        tuning.conditions_changed("another load", 1.0)
    result = tuning.next()
    assert isinstance(result, SearchResult)
    assert (result.ending, result.values) == (SearchEnding.REFUSED, {})
    assert "another load" in result.why
