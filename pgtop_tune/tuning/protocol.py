"""The whole search as one resumable machine: it says which evaluation comes next, and is told its outcome.

Noise (a setting against itself), then for the knobs that take a restart and for the others: a screen and an engine;
then the ablation, the confirmation and the result. Its state is the plan and what it was told: `replay` resumes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from enum import StrEnum
from typing import Final, TypeAlias

from msgspec import Struct

from pgtop_tune.base.errors import JournalProblem
from pgtop_tune.experiment.prediction import PredictionScore, inside_bounds
from pgtop_tune.tuning.engines import engine
from pgtop_tune.tuning.plan import Point, TuningPlan
from pgtop_tune.tuning.racing import (
    DECIDES,
    FEWEST,
    MOST_KNOBS,
    Confirmed,
    Examined,
    ablate,
    confirm,
    effects_of,
    mean_figures,
    screen,
    screen_rows,
)
from pgtop_tune.tuning.search import (
    Asking,
    Engine,
    Evaluation,
    Favoured,
    LetGo,
    Outcome,
    Raced,
    Search,
    SearchPhase,
    Spent,
    Tried,
    Void,
    evaluations_needed,
)

# How a search ends.


class SearchEnding(StrEnum):
    """The ending of a search."""

    BETTER = "better"
    START_KEPT = "start kept"
    NOTHING_TO_GAIN = "nothing to gain"
    REFUSED = "refused"


class SearchResult(Struct, frozen=True, kw_only=True):
    """The result after the last evaluation, or instead of the first.

    Attributes:
        why: One or two sentences.
        values: The values of the knobs to change; empty unless `BETTER`.
        start: The values of these knobs before.
        confirmed: The only figure of the result; None where nothing was measured so far. Present, too, where the
            winner was not truly better.
        claimed: Log ratio that the search had seen its steps bring; too high, and no result.
        examined: Knobs that the search had changed: which earned it, which went back.
        left_out: Knobs that were not searched, with reasons.
        let_go: Knobs that another session changed meanwhile.
        changes: Changes of the conditions meanwhile, in words; the confirmation was made after the last one.
        tried, races: The evaluations and races of the search.
        predictions: The score of the predictions.
        spent: The spent part of the budget.
        evaluation_sd: The deviation of one evaluation's log ratio.
        needed: The budget that it takes, where it was refused for being too small.
    """

    ending: SearchEnding
    why: str
    values: dict[str, str]
    start: dict[str, str]
    confirmed: Confirmed | None
    claimed: float
    examined: tuple[Examined, ...]
    left_out: tuple[tuple[str, str], ...]
    let_go: tuple[str, ...]
    tried: tuple[Tried, ...]
    races: tuple[Raced, ...]
    predictions: PredictionScore
    spent: float
    evaluation_sd: float
    needed: float | None = None
    changes: tuple[str, ...] = ()


# Bounds come first: knobs are taken in the order of what they can bring at most, those below the smallest effect worth
# having not at all.


class RankedKnobs(Struct, frozen=True):
    """The knobs of a plan in their order.

    Attributes:
        worth_trying: Indexes of knobs, the highest bound first; knobs without a bound come last.
        left_out: (index, reason) of the knobs whose bound is below the smallest effect worth having.
    """

    worth_trying: tuple[int, ...]
    left_out: tuple[tuple[int, str], ...]


def rank(plan: TuningPlan) -> RankedKnobs:
    """Rank the knobs of the plan by what they can bring at most."""
    tried, left_out = [], []
    for axis, dimension in enumerate(plan.space.dimensions):
        prediction = plan.predictions.get(dimension.name)
        most = None if prediction is None else prediction.most
        if most is not None and most < plan.worth:
            left_out.append((axis, f"at most {100.0 * most:+.1f} %"))
        else:
            tried.append((-math.inf if most is None else most, axis))
    tried.sort(key=lambda rated: -rated[0])
    return RankedKnobs(tuple(axis for _, axis in tried), tuple(left_out))


def score(plan: TuningPlan, races: Iterable[Raced]) -> PredictionScore:
    """Score the races of a single knob against their predictions; races without one do not count."""
    verdicts = []
    for raced in races:
        axes = plan.space.differing(raced.candidate, raced.against)
        prediction = plan.predictions.get(plan.space.dimensions[axes[0]].name) if len(axes) == 1 else None
        if prediction is None or raced.low is None or raced.high is None:
            continue
        inside = inside_bounds(prediction, math.expm1(raced.low), math.expm1(raced.high))
        if inside is not None:
            verdicts.append(inside)
    return PredictionScore(inside=sum(verdicts), scored=len(verdicts))


_NOISE: Final = 3
_FEWEST_STEPS: Final = 12
"""Evaluations without which a climb finds nothing: three knobs, two races each, two evaluations a race."""
_STEPS_A_KNOB: Final = 4
_ABLATION: Final = 4
"""Evaluations that the search leaves for the ablation, beyond those for the confirmation."""


class Released(Struct, frozen=True, tag="released"):
    """A knob was changed by another session, and is no longer part of the search."""

    knob: str


class NewConditions(Struct, frozen=True, tag="new_conditions"):
    """The load of another program, or the machine, changed under an evaluation, which has to be made again.

    Attributes:
        words: The change, in words.
        took: The cost of the evaluation, in the budget's unit.
    """

    words: str
    took: float


class ToldOutcome(Struct, frozen=True, tag="told"):
    """The outcome of one evaluation, with the points that it had."""

    candidate: Point
    against: Point
    outcome: Outcome


Event: TypeAlias = ToldOutcome | Released | NewConditions
"""An event that a search is told of; the list of its events is its journal."""


class SearchProgress(Struct, frozen=True, kw_only=True):
    """The progress of a search.

    Attributes:
        values: The values of the best so far, by knob that differs from the start.
        evaluations: The evaluations that were told.
        spent, budget: Budget and its spent part, in the plan's unit.
        evaluation_sd: The deviation of one evaluation's log ratio, as known so far.
    """

    values: dict[str, str]
    evaluations: int
    spent: float
    budget: float
    evaluation_sd: float


class Tuning:
    """A search.

    Attributes:
        events: All that it was told, for `replay`.
    """

    def __init__(self, plan: TuningPlan, allowed: Callable[[Mapping[str, str]], bool] = lambda values: True) -> None:
        """Begin the search.

        Args:
            allowed: Whether guards (the memory rule, recovery time, free disk) let these values be tried together.

        Raises:
            UsageProblem: There is no engine of the plan's name, or its optional packages are missing.
        """
        self.events: list[Event] = []
        self._search = Search(plan, allowed)
        self._steps = _search(self._search)
        self._now = self._advanced(lambda: next(self._steps))

    @classmethod
    def replay(
        cls,
        plan: TuningPlan,
        events: Iterable[Event],
        allowed: Callable[[Mapping[str, str]], bool] = lambda values: True,
    ) -> Tuning:
        """Return a search that was told all this, as it stood then.

        Raises:
            JournalProblem: This program would have asked for other evaluations.
        """
        tuning = cls(plan, allowed)
        for event in events:
            if isinstance(event, Released):
                tuning.release(event.knob)
            elif isinstance(event, NewConditions):
                tuning.conditions_changed(event.words, event.took)
            else:
                tuning._tell_again(event)
        return tuning

    def _tell_again(self, event: ToldOutcome) -> None:
        now = self._now
        if isinstance(now, SearchResult) or (now.candidate, now.against) != (event.candidate, event.against):
            raise JournalProblem(
                f"evaluation {len(self._search.tried) + 1} of this search is not the one that this version would make",
                "resume with the version and packages that started it, or start a new search",
            )
        self.tell(event.outcome)

    def next(self) -> Evaluation | SearchResult:
        """Return the evaluation that is wanted, the same until its outcome is told; or the result."""
        return self._now

    @property
    def tried(self) -> Sequence[Tried]:
        """Return evaluations with their outcomes, oldest first."""
        return self._search.tried

    def progress(self) -> SearchProgress:
        """Return the progress so far."""
        search, space = self._search, self._search.space
        values = space.values(search.best)
        return SearchProgress(
            values={name: values[name] for name in space.differing_names(search.best, space.start)},
            evaluations=len(search.tried), spent=search.spent, budget=search.plan.budget,
            evaluation_sd=search.spread.sd(),
        )  # fmt: skip

    def tell(self, outcome: Outcome) -> None:
        """Tell the outcome of the evaluation that `next` gave.

        Raises:
            ValueError: The search is over.
        """
        if isinstance(self._now, SearchResult):
            raise ValueError("the search is over")
        self.events.append(ToldOutcome(self._now.candidate, self._now.against, outcome))
        self._now = self._advanced(lambda: self._steps.send(outcome))

    def release(self, knob: str) -> None:
        """Release a knob that another session has changed. The pending evaluation is void.

        Raises:
            KeyError: There is no such knob.
        """
        if isinstance(self._now, SearchResult) or knob in self._search.let_go:
            return
        self._search.release(knob)
        self.events.append(Released(knob))
        self._now = self._advanced(lambda: self._steps.throw(LetGo()))

    def conditions_changed(self, description: str, took: float) -> None:
        """Discard the pending evaluation, which is made again; the noise or the confirmation under way begins anew."""
        if isinstance(self._now, SearchResult):
            return
        self._search.spent += took
        self._search.changes.append(description)
        self.events.append(NewConditions(description, took))
        self._now = self._advanced(lambda: self._steps.throw(Void()))

    @staticmethod
    def _advanced(step: Callable[[], Evaluation]) -> Evaluation | SearchResult:
        try:
            return step()
        except StopIteration as over:
            result: SearchResult = over.value
            return result


def _search(search: Search) -> Asking[SearchResult]:
    ranked = rank(search.plan)
    chosen = ranked.worth_trying[:MOST_KNOBS]
    if not chosen:
        return _result(
            search, ranked, SearchEnding.NOTHING_TO_GAIN, f"No knob can gain {100.0 * search.plan.worth:g} %."
        )
    run = engine(search.plan.engine)
    refusal = _too_small(search, chosen) or (yield from _noise(search, chosen))
    if refusal is not None:
        return _result(search, ranked, SearchEnding.REFUSED, refusal.reason, needed=refusal.needed)
    batches = _batches(search, chosen)
    for number, axes in enumerate(batches, 1):
        search.kept = _kept(search, axes) + math.fsum(_shortest(search, later) for later in batches[number:])
        with suppress(Spent):
            order = yield from screen(search, axes)
            yield from _to_the_end(search, run, order)
    return (yield from _judged(search, ranked))


def _to_the_end(search: Search, run: Engine, order: tuple[Favoured, ...]) -> Asking[None]:
    """Run the engine to its end; whenever a knob is let go of, begin it again from the best so far."""
    for _ in range(len(search.space.dimensions) + 1):
        try:
            yield from run(search, order)
            return
        except LetGo:
            continue


def _judged(search: Search, ranked: RankedKnobs) -> Asking[SearchResult]:
    """Run ablation and confirmation, both anew whenever a knob is let go of; return the result of the search."""
    while search.best != search.space.start:
        try:
            search.kept = FEWEST * search.cost(search.best, search.space.start)
            examined = yield from ablate(search)
            confirmed = yield from _confirmed(search)
        except LetGo:
            continue
        except Spent:
            return _result(
                search, ranked, SearchEnding.START_KEPT, "The budget was spent before the winner was confirmed."
            )
        if confirmed.better:
            return _result(
                search, ranked, SearchEnding.BETTER, f"{_changes(search)}. {_words(confirmed)}", confirmed, examined
            )
        reason = (
            f"The winner is refused: {confirmed.reason}." if confirmed.reason else f"{_NOT_BETTER} {_words(confirmed)}"
        )
        return _result(search, ranked, SearchEnding.START_KEPT, reason, confirmed, examined)
    return _result(search, ranked, SearchEnding.START_KEPT, _NOT_BETTER)


def _confirmed(search: Search) -> Asking[Confirmed]:
    """Confirm the winner; begin anew when the conditions change, while any budget is left. Raises as `confirm`."""
    try:
        return (yield from confirm(search))
    except Void:
        pass
    while True:
        with suppress(Void):
            return (yield from confirm(search, 0.0))


# The budget, and the noise that decides whether it is enough.


class _SearchRefusal(Struct, frozen=True):
    reason: str
    needed: float | None = None


def _noise(search: Search, axes: Sequence[int]) -> Asking[_SearchRefusal | None]:
    """Measure the start against itself; return a reason to refuse the search, None where there is none."""
    start, outcomes = search.space.start, list[Outcome]()
    while len(outcomes) < _NOISE:
        try:
            outcome = yield from search.measure(SearchPhase.NOISE, start, start, "the start against itself")
        except LetGo:
            continue
        except Void:
            outcomes.clear()
            continue
        except Spent:
            return _SearchRefusal(f"The budget was spent while the conditions changed: {search.changes[-1]}.")
        if outcome.stopped or outcome.effect is None:
            return _SearchRefusal(f"The start itself cannot be measured: {outcome.stopped or 'no effect'}.")
        outcomes.append(outcome)
    figures = mean_figures(
        figures_of_arm for outcome in outcomes for figures_of_arm in (outcome.figures, outcome.against_figures)
    )
    for constraint in search.plan.constraints:
        if constraint.figure not in figures:
            return _SearchRefusal(
                f"This load does not measure {constraint.figure}, so the constraint cannot be checked."
            )
    if broken := search.broken(figures):
        return _SearchRefusal(f"The start already breaks a constraint: {broken}.")
    search.spread.add(effects_of(outcomes), true_mean=0.0)
    return _too_small(search, axes, search.spread.sd())


def _too_small(search: Search, axes: Sequence[int], sd: float = 0.0) -> _SearchRefusal | None:
    """Refuse a budget in which the smallest effect worth having could not be confirmed after the shortest search."""
    needed = needed_budget(search, axes, sd)
    if needed <= search.plan.budget:
        return None
    return _SearchRefusal(
        f"The budget is too small to confirm {100.0 * search.plan.worth:g} %"
        f"{f' while evaluations differ by {100.0 * sd:.1f} %' if sd else ''}.",
        needed,
    )


def needed_budget(search: Search, axes: Sequence[int], sd: float) -> float:
    """Return the budget for noise, screens, the shortest search, and confirming the smallest effect worth having."""
    total = _NOISE * search.plan.cost + math.fsum(_shortest(search, batch) for batch in _batches(search, axes))
    confirmations = evaluations_needed(sd, math.log1p(search.plan.worth), DECIDES, FEWEST)
    return total + confirmations * search.cost_of(axes)


def _shortest(search: Search, batch: Sequence[int]) -> float:
    """Return the cost of the screen and the shortest search of these knobs."""
    screened = len(screen_rows(search, batch)) if len(batch) > 1 else 0
    return search.cost_of(batch) * (screened + min(_FEWEST_STEPS, _STEPS_A_KNOB * len(batch)))


def _kept(search: Search, axes: Sequence[int]) -> float:
    """Return the budget for ablation and confirmation, kept while these knobs are searched."""
    changed = search.space.differing(search.best, search.space.start)
    return (FEWEST + _ABLATION) * search.cost_of((*axes, *changed))


def _batches(search: Search, axes: Sequence[int]) -> list[tuple[int, ...]]:
    """Return knobs that need blocks of their own, then the others: each batch is screened and searched by itself."""
    sides = [
        tuple(axis for axis in axes if search.space.dimensions[axis].separate is separate) for separate in (True, False)
    ]
    return [side for side in sides if side]


_NOT_BETTER: Final = "No setting was truly better; the start is kept."


def _changes(search: Search) -> str:
    space = search.space
    before, after = space.values(space.start), space.values(search.best)
    names = space.differing_names(search.best, space.start)
    return ", ".join(f"{name} {before[name]}→{after[name]}" for name in names)


def _words(confirmed: Confirmed) -> str:
    effect, low, high = (
        100.0 * math.expm1(log_ratio) for log_ratio in (confirmed.effect, confirmed.low, confirmed.high)
    )
    return f"Confirmed in {confirmed.evaluations} fresh evaluations: {effect:+.1f} % ({low:+.1f}…{high:+.1f})."


def _result(
    search: Search,
    ranked: RankedKnobs,
    ending: SearchEnding,
    sentences: str,
    confirmed: Confirmed | None = None,
    examined: tuple[Examined, ...] = (),
    needed: float | None = None,
) -> SearchResult:
    space = search.space
    kept = space.differing_names(search.best, space.start) if ending is SearchEnding.BETTER else []
    beyond = [
        (space.dimensions[axis].name, f"beyond the {MOST_KNOBS} of the screen")
        for axis in ranked.worth_trying[MOST_KNOBS:]
    ]
    return SearchResult(
        ending=ending, why=sentences,
        values={name: space.values(search.best)[name] for name in kept},
        start={name: space.values(space.start)[name] for name in kept},
        confirmed=confirmed, claimed=math.fsum(search.claimed.values()), examined=examined,
        left_out=(*((space.dimensions[axis].name, reason) for axis, reason in ranked.left_out), *beyond),
        let_go=tuple(search.let_go), changes=tuple(search.changes), tried=tuple(search.tried),
        races=tuple(search.races), predictions=score(search.plan, search.races), spent=search.spent,
        evaluation_sd=search.spread.sd(), needed=needed,
    )  # fmt: skip
