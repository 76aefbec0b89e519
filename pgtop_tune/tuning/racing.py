"""A race: a candidate against the point in force, evaluated until it is clearly better or not worth more.

Dropped when the mean is not above 0, or from two on when mean + error is below 1 %; accepted from two on when the mean
is above 2.33 errors and at least 0.5 %. error = √(s²/n), with s² pooled over all races. Where it accepts, its own
figure is too high: only the confirmation's is reported.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from statistics import fmean, stdev
from typing import Final

from msgspec import Struct

from pgtop_tune.compare.statistics.effect import t_quantile
from pgtop_tune.tuning.plan import Point
from pgtop_tune.tuning.search import (
    Asking,
    Favoured,
    Finish,
    LetGo,
    Outcome,
    Raced,
    Search,
    SearchPhase,
    Spent,
    evaluations_needed,
)

# The screen: a Plackett-Burman design finds the knobs that matter, all of them in every evaluation.
#
# Each row gives every knob its upper or its lower level (two steps up or down, on a grid of doublings a factor of four)
# and runs against the start. effect = (mean of the rows with the upper level − mean of those with the lower) / 2.
#
# Source: Plackett and Burman, "The Design of Optimum Multifactorial Experiments", Biometrika 33, 1946.

_FIRST_ROWS: Final = {3: "++-", 7: "+++-+--", 11: "++-+++---+-"}
"""First rows by the number of knobs that a design has room for."""
MOST_KNOBS: Final = 11
STEPS: Final = 2
"""Up and down, in strides."""


def design(knobs: int) -> list[tuple[int, ...]]:
    """Return rows of +1 and -1 for so many knobs: shifts of the first row, and a last one of -1."""
    room = next(room for room in _FIRST_ROWS if room >= knobs)
    first = [1 if sign == "+" else -1 for sign in _FIRST_ROWS[room]]
    rows = [first[-shift:] + first[:-shift] if shift else first for shift in range(room)]
    return [tuple(row[:knobs]) for row in (*rows, [-1] * room)]


def screen_rows(search: Search, axes: Sequence[int]) -> list[tuple[int, ...]]:
    """Return the design for these knobs: 12 rows, or the fewest where each row takes blocks of their own."""
    thrifty = any(search.space.dimensions[axis].separate for axis in axes)
    return design(len(axes)) if thrifty else [row[: len(axes)] for row in design(MOST_KNOBS)]


def screen(search: Search, axes: Sequence[int]) -> Asking[tuple[Favoured, ...]]:
    """Screen knobs; return them with their effects, the largest first, without effects where rows cannot be tried.

    Args:
        axes: At most eleven, the most promising first.

    Raises:
        Spent: The budget is over.
    """
    unknown = tuple(Favoured(axis, None) for axis in axes)
    if len(axes) < 2:
        return unknown
    rows = screen_rows(search, axes)
    points = _points(search, axes, rows)
    if points is None:
        return unknown
    effects: list[tuple[tuple[int, ...], float]] = []
    for number, (row, point) in enumerate(zip(rows, points, strict=True), 1):
        effect = yield from _measured(search, point, f"screen, row {number} of {len(rows)}")
        if effect is not None:
            effects.append((row, effect))
    favoured = [
        Favoured(axis, _contrast(effects, column), len(effects))
        for column, axis in enumerate(axes)
        if search.free(axis)
    ]
    search.screened.update((knob.axis, knob.effect) for knob in favoured if knob.effect is not None)
    return tuple(sorted(favoured, key=lambda knob: -abs(knob.effect or 0.0)))


def _measured(search: Search, point: Point, reason: str) -> Asking[float | None]:
    """Measure a row, again without a knob that was released meanwhile; None where the row was stopped."""
    while True:
        released = [axis for axis in range(len(point)) if not search.free(axis)]
        candidate = search.space.at_start(point, released)
        if candidate == search.best:
            return None
        try:
            outcome = yield from search.measure(SearchPhase.SCREEN, candidate, search.best, reason)
        except LetGo:
            continue
        return None if outcome.stopped else outcome.effect


def _points(search: Search, axes: Sequence[int], rows: Sequence[tuple[int, ...]]) -> list[Point] | None:
    """Return the rows two steps from the best, one where guards forbid a row; None where they forbid that, too."""
    for steps in range(STEPS, 0, -1):
        points = []
        for row in rows:
            levels = list(search.best)
            for axis, sign in zip(axes, row, strict=True):
                levels[axis] = shifted(search, search.best, axis, sign * steps)
            points.append(tuple(levels))
        if all(search.allowed(point) for point in points):
            return points
    return None


def shifted(search: Search, point: Point, axis: int, steps: int) -> int:
    """Return the level so many steps away, within the grid; of words, the next one up and the same one down."""
    dimension = search.space.dimensions[axis]
    if dimension.ordered:
        return search.space.clipped(axis, point[axis] + steps * dimension.stride)
    return (point[axis] + 1) % len(dimension.levels) if steps > 0 else point[axis]


def _contrast(effects: Sequence[tuple[tuple[int, ...], float]], column: int) -> float | None:
    sides = [[effect for row, effect in effects if row[column] == sign] for sign in (1, -1)]
    return (fmean(sides[0]) - fmean(sides[1])) / 2.0 if all(sides) else None


# The confirmation: the winner against the start in fresh evaluations, and nothing else is the result.
#
# At least eight, their number fixed before the first from the noise and half of the search's own claim, so that neither
# the choice of the winner nor a look on the way is in the interval. Student's interval of these evaluations alone; it
# is a success where the lower end of the 95 % interval is above 0 (a one-sided test at 2.5 %), so that no setting is
# called better beside an interval that includes 0.

FEWEST: Final = 8
DECIDES: Final = 0.975
_LATE: Final = 0.75
"""The share of the eight that must still fit in the budget: evaluations that took longer than planned end no search."""
_BELIEVED: Final = 0.5
"""The share of the search's own claim, which is too high, that is believed."""


class Confirmed(Struct, frozen=True, kw_only=True):
    """The winner against the start.

    Attributes:
        effect, low, high: Log ratio with its 95 % interval.
        evaluations: Fresh ones.
        figures, start_figures: Means of both arms.
        reason: The reason why the winner was stopped or breaks a constraint; "".
    """

    effect: float
    low: float
    high: float
    evaluations: int
    figures: dict[str, float]
    start_figures: dict[str, float]
    reason: str = ""

    @property
    def better(self) -> bool:
        """Return whether the winner is truly better and holds all constraints."""
        return self.low > 0.0 and not self.reason


def planned(search: Search) -> int:
    """Return how many evaluations the confirmation will have: at least eight, as the budget allows."""
    claim = max(math.fsum(search.claimed.values()) * _BELIEVED, math.log1p(search.plan.worth))
    evaluations = evaluations_needed(search.spread.sd(), claim, DECIDES, FEWEST)
    return max(min(evaluations, int(search.left / search.cost(search.best, search.space.start) + 1e-9)), FEWEST)


def confirm(search: Search, fits: float = _LATE) -> Asking[Confirmed]:
    """Measure `search.best` against the start.

    Args:
        fits: Share of the eight that must fit in the budget.

    Raises:
        Spent: They do not.
        LetGo, Void: As `Search.measure`; the evaluations so far are void.
    """
    search.kept = 0.0
    if search.left < fits * FEWEST * search.cost(search.best, search.space.start):
        raise Spent
    count, search.kept = planned(search), -math.inf
    outcomes: list[Outcome] = []
    for number in range(1, count + 1):
        outcome = yield from search.measure(
            SearchPhase.CONFIRMATION, search.best, search.space.start, f"winner against start, {number} of {count}"
        )
        outcomes.append(outcome)
        if outcome.stopped or outcome.effect is None:
            return _confirmed(search, outcomes, outcome.stopped or "nothing was measured")
    return _confirmed(search, outcomes, "")


def _confirmed(search: Search, outcomes: list[Outcome], reason: str) -> Confirmed:
    effects = effects_of(outcomes)
    figures = mean_figures(outcome.figures for outcome in outcomes)
    mean, half = fmean(effects) if effects else 0.0, math.inf
    if len(effects) > 1:
        half = t_quantile(DECIDES, len(effects) - 1) * stdev(effects) / math.sqrt(len(effects))
    return Confirmed(
        effect=mean, low=mean - half, high=mean + half, evaluations=len(effects), figures=figures,
        start_figures=mean_figures(outcome.against_figures for outcome in outcomes),
        reason=reason or search.broken(figures),
    )  # fmt: skip


# Which of the changed knobs earned it: the best setting against itself without a knob, the others go back.
#
# Knobs are examined one after the other, the one with the least claim first, each against the setting that those before
# it have left; so of two that do the same only one goes. More than four are examined by halves: a half that earns
# nothing goes back at once.
#
# It comes before the confirmation, not after it: the confirmation measures the setting that is reported, and none of
# the evaluations that chose it is in its interval. The part of each knob is from the evaluations that decided about it,
# so the parts of those that stay lean upwards; the whole does not.

MOST_OF_ABLATION: Final = 4
_SINGLY: Final = 4


class Fate(StrEnum):
    """The fate of a knob that the search had changed."""

    EARNED = "earned"
    KEPT = "kept"
    WENT_BACK = "went back"


_FINISHES: Final = {Fate.EARNED: Finish.ACCEPTED, Fate.KEPT: Finish.UNCLEAR, Fate.WENT_BACK: Finish.DROPPED}


class Examined(Struct, frozen=True, kw_only=True):
    """A knob, or several together, after the ablation.

    Attributes:
        knobs: Names.
        fate: `KEPT` where the budget or the evaluations did not tell.
        effect, low, high: Log ratio of the setting with them to the one without, 95 %; None where not measured.
        why: One line.
    """

    knobs: tuple[str, ...]
    fate: Fate
    effect: float | None = None
    low: float | None = None
    high: float | None = None
    why: str = ""


def ablate(search: Search) -> Asking[tuple[Examined, ...]]:
    """Examine what `search.best` changes; afterwards it is the setting to confirm.

    Raises:
        LetGo: As `Search.measure`.
    """
    changed = sorted(
        search.space.differing(search.best, search.space.start),
        key=lambda axis: (
            not search.space.dimensions[axis].separate,
            search.claimed.get(axis, 0.0),
            abs(search.screened.get(axis, 0.0)),
        ),
    )
    middle = len(changed) // 2
    pending: list[tuple[int, ...]] = [(axis,) for axis in changed]
    if len(changed) > _SINGLY:
        pending = [tuple(changed[:middle]), tuple(changed[middle:])]
    results: list[Examined] = []
    while pending:
        axes = pending.pop(0)
        examined = yield from _examined(search, axes)
        if examined is None:
            half = len(axes) // 2
            pending[:0] = [axes[:half], axes[half:]]
        else:
            results.append(examined)
    return tuple(results)


def _examined(search: Search, axes: tuple[int, ...]) -> Asking[Examined | None]:
    """Examine knobs together; None where each half of them is to be examined."""
    names = tuple(search.space.dimensions[axis].name for axis in axes)
    without = search.space.at_start(search.best, axes)
    if without == search.space.start:
        reason = "the only change left: the confirmation tests it"
        return None if len(axes) > 1 else Examined(knobs=names, fate=Fate.EARNED, why=reason)
    if not search.allowed(without):
        return Examined(knobs=names, fate=Fate.KEPT, why="the other knobs cannot be set without it")
    try:
        examined = yield from _examine(search, names, without)
    except Spent:
        return Examined(knobs=names, fate=Fate.KEPT, why="not examined: the budget is spent")
    if examined.fate is Fate.WENT_BACK:
        search.best = without
    elif len(axes) > 1:
        return None
    return examined


def _examine(search: Search, names: tuple[str, ...], without: Point) -> Asking[Examined]:
    outcomes: list[Outcome] = []
    fate, reason = None, ""
    while fate is None:
        purpose = f"with and without {', '.join(names)}"
        outcomes.append((yield from search.measure(SearchPhase.ABLATION, search.best, without, purpose)))
        needed = search.broken(mean_figures(outcome.against_figures for outcome in outcomes))
        reason = unfit(search, outcomes) or needed
        if reason:
            fate = Fate.EARNED if reason is needed else Fate.WENT_BACK
        else:
            fate = _decide(search, effects_of(outcomes))
    raced = record(search, SearchPhase.ABLATION, search.best, without, outcomes, _FINISHES[fate])
    return Examined(knobs=names, fate=fate, effect=raced.effect, low=raced.low, high=raced.high, why=reason)


def _decide(search: Search, effects: list[float]) -> Fate | None:
    """Decide after each evaluation; None where another one is needed."""
    count, mean, error = _count_mean_error(search, effects)
    if count < 2:
        return None
    if mean <= 0.0 or mean + error < _HOPELESS:
        return Fate.WENT_BACK
    if mean > _SURE * error:
        return Fate.EARNED
    if count < MOST_OF_ABLATION:
        return None
    return Fate.KEPT if mean > error else Fate.WENT_BACK


MOST: Final = 6
_SURE: Final = 2.33
_LEAST: Final = 0.005
_HOPELESS: Final = 0.01


def race(
    search: Search, phase: SearchPhase, candidate: Point, against: Point, reason: str, most: int = MOST
) -> Asking[Raced]:
    """Evaluate until decided, or `most` times.

    Raises:
        Spent, LetGo: As `Search.measure`; the race is void.
    """
    outcomes: list[Outcome] = []
    finish = None
    while finish is None:
        outcomes.append((yield from search.measure(phase, candidate, against, reason)))
        finish = Finish.STOPPED if unfit(search, outcomes) else decide(search, effects_of(outcomes), most)
    return record(search, phase, candidate, against, outcomes, finish)


def unfit(search: Search, outcomes: Sequence[Outcome]) -> str:
    """Return why the candidate is out whatever its effect: aborted, not measured, a broken constraint; else ""."""
    last = outcomes[-1]
    nothing = "nothing was measured" if last.effect is None else ""
    return last.stopped or nothing or search.broken(mean_figures(outcome.figures for outcome in outcomes))


def record(
    search: Search, phase: SearchPhase, candidate: Point, against: Point, outcomes: Sequence[Outcome], finish: Finish
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
    """Decide after each evaluation; None where another one is needed."""
    count, mean, error = _count_mean_error(search, effects)
    if mean <= 0.0 or (count >= 2 and mean + error < _HOPELESS):
        return Finish.DROPPED
    if count >= 2 and mean > _SURE * error and mean >= _LEAST:
        return Finish.ACCEPTED
    return Finish.UNCLEAR if count >= most else None


def measured(search: Search, effects: list[float]) -> tuple[float | None, float | None, float | None, float | None]:
    """Return mean, its error, and the 95 % interval."""
    if not effects:
        return None, None, None, None
    count, mean, error = _count_mean_error(search, effects)
    half = t_quantile(0.975, search.spread.degrees + count - 1) * error
    return mean, error, mean - half, mean + half


def _count_mean_error(search: Search, effects: list[float]) -> tuple[int, float, float]:
    return len(effects), fmean(effects), search.spread.sd(effects) / math.sqrt(len(effects))


def effects_of(outcomes: Iterable[Outcome]) -> list[float]:
    """Return those that were measured to the end."""
    return [outcome.effect for outcome in outcomes if outcome.effect is not None and not outcome.stopped]


def mean_figures(figures: Iterable[Mapping[str, float]]) -> dict[str, float]:
    """Return the means of several evaluations: one unlucky evaluation breaks no limit."""
    values: dict[str, list[float]] = defaultdict(list)
    for figures_of_outcome in figures:
        for name, value in figures_of_outcome.items():
            values[name].append(value)
    return {name: fmean(numbers) for name, numbers in values.items()}
