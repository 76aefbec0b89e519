"""The interface of the search, by ask and tell: it yields an evaluation that it wants, and is sent its outcome.

Every part of a search (screen, engine, ablation, confirmation) is such a generator, composed by `yield from`. Its state
is the list of what it was told, so replaying the list is resuming. While an evaluation is pending, a knob that another
session changes is thrown in as `LetGo`, and other conditions as `Void`.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from enum import StrEnum
from statistics import fmean
from typing import Final, TypeAlias, TypeVar

from msgspec import Struct

from pgtop_tune.compare.statistics.effect import ASSUMED_SD, PRIOR_DEGREES, t_quantile
from pgtop_tune.tuning.plan import Point, TuningPlan

# How evaluations differ that should not: the variance that all races share, and the budget that it takes.
#
#     s² = (4·0.02² + squares) / (4 + degrees),  at least the mean variance that evaluations have from their own pairs
#
# The prior is the one of `compare.statistics.effect`: 2 %, with the weight of four.

POWER: Final = 0.8
_FARTHEST: Final = 500


class Spread:
    """The spread of evaluations of one pair of points, pooled over all pairs of points."""

    def __init__(self) -> None:
        self._squares = PRIOR_DEGREES * ASSUMED_SD**2
        self._degrees = PRIOR_DEGREES
        self._within: list[float] = []

    def add(self, effects: Sequence[float], true_mean: float | None = None) -> None:
        """Add log ratios of one pair of points; `true_mean` is their true mean, 0 for a setting against itself."""
        if not effects:
            return
        mean = fmean(effects) if true_mean is None else true_mean
        self._squares += math.fsum((effect - mean) ** 2 for effect in effects)
        self._degrees += len(effects) - (true_mean is None)

    def within(self, error: float) -> None:
        """Add the standard error that an evaluation has from its own pairs of blocks."""
        self._within.append(error**2)

    @property
    def degrees(self) -> int:
        """Return the degrees of freedom, the prior's four included."""
        return self._degrees

    def sd(self, beside: Sequence[float] = ()) -> float:
        """Return the deviation of one evaluation's log ratio; `beside` are those of a race that still runs."""
        squares, degrees = self._squares, self._degrees
        if len(beside) > 1:
            mean = fmean(beside)
            squares += math.fsum((effect - mean) ** 2 for effect in beside)
            degrees += len(beside) - 1
        return math.sqrt(max(squares / degrees, fmean(self._within) if self._within else 0.0))


def evaluations_needed(sd: float, effect: float, confidence: float, least: int) -> int:
    """Return how many evaluations, from `least` to 500, let a one-sided t test find the effect in four of five cases.

    Args:
        sd: The deviation of one evaluation.
        effect: Log ratio, above 0.
        confidence: The confidence of the test, 0.975 for the lower end of a 95 % interval.
    """
    for count in range(least, _FARTHEST):
        if (t_quantile(confidence, count - 1) + t_quantile(POWER, count - 1)) * sd / math.sqrt(count) <= effect:
            return count
    return _FARTHEST


T = TypeVar("T")


class SearchPhase(StrEnum):
    """The phase of a search."""

    NOISE = "noise"
    SCREEN = "screen"
    SEARCH = "search"
    ABLATION = "ablation"
    CONFIRMATION = "confirmation"


_TOGETHER: Final = frozenset({SearchPhase.NOISE, SearchPhase.CONFIRMATION})


class Evaluation(Struct, frozen=True, kw_only=True):
    """Wanted: the candidate against what it would replace, by turns.

    Attributes:
        number: The number from 1.
        candidate, against: Points of the plan's space; the same in the noise phase.
        values, against_values: The values of the two arms, by knob, without knobs that were released.
        restart: Going from one arm to the other takes a restart.
        separate: Each block has a load of its own.
        cost: The cost by the plan.
        why: One line.
    """

    number: int
    phase: SearchPhase
    candidate: Point
    against: Point
    values: dict[str, str]
    against_values: dict[str, str]
    restart: bool
    cost: float
    why: str
    separate: bool = False


class Outcome(Struct, frozen=True, kw_only=True):
    """The outcome of one evaluation.

    Attributes:
        effect: ln(candidate / against) of the objective, above 0 where the candidate is better; None if it gave none.
        error: Standard error of the effect from its own pairs of blocks; None where that is not known.
        figures, against_figures: The figures that constraints ask for, of either arm.
        stopped: The reason why the candidate was aborted, or did not start; "" if it was measured to the end.
        took: Its cost, in the budget's unit; None where it is that of the plan.
    """

    effect: float | None
    error: float | None = None
    figures: dict[str, float] = {}
    against_figures: dict[str, float] = {}
    stopped: str = ""
    took: float | None = None


Asking: TypeAlias = Generator[Evaluation, Outcome, T]
"""Part of a search: yields evaluations, is sent outcomes, returns a T."""


class Tried(Struct, frozen=True):
    """A step of a search's path."""

    evaluation: Evaluation
    outcome: Outcome


class Finish(StrEnum):
    """The ending of a race."""

    ACCEPTED = "accepted"
    DROPPED = "dropped"
    UNCLEAR = "unclear"
    STOPPED = "stopped"


class Raced(Struct, frozen=True, kw_only=True):
    """A race.

    Attributes:
        effect: Mean log ratio; None where the candidate was stopped before any was measured.
        error: The error of the mean, from the pooled variance.
        low, high: 95 % interval of the log ratio.
        evaluations: Their numbers.
        reason: The reason why it was stopped; "".
    """

    phase: SearchPhase
    candidate: Point
    against: Point
    finish: Finish
    effect: float | None
    error: float | None
    low: float | None
    high: float | None
    evaluations: tuple[int, ...]
    reason: str = ""

    @property
    def accepted(self) -> bool:
        """Return whether the candidate takes the other's place."""
        return self.finish is Finish.ACCEPTED


class Move(Struct, frozen=True):
    """A move of one knob from a level to another."""

    axis: int
    level: int
    to_level: int


class LetGo(Exception):
    """A knob that the wanted evaluation turns was changed by another session."""


class Void(Exception):
    """The conditions are others: what the wanted evaluation would be put together with was measured before."""


class Spent(Exception):
    """The next evaluation does not fit in the budget, less what is kept for later phases."""


class Search:
    """The knowledge that all parts of a search share.

    Attributes:
        best: The point in force: what candidates have to beat.
        spread: The pooled spread of evaluations.
        tried: All evaluations, in order.
        races: All that were decided, in order.
        lost: (candidate, against) that were refused.
        beaten: Moves of one knob that lost clearly: not tried again, whatever the other knobs are.
        claimed: Log ratios by axis that the search has seen its steps bring: too high, and only good to order knobs.
        screened: The screen's effect by axis.
        let_go: Knobs that another session changed.
        changes: The changes of the conditions, in words.
        kept: The part of the budget that later phases keep.
        coin: The only source of chance.
    """

    def __init__(self, plan: TuningPlan, allowed: Callable[[Mapping[str, str]], bool]) -> None:
        self.plan = plan
        self.space = plan.space
        self.best: Point = plan.space.start
        self.spread = Spread()
        self.tried: list[Tried] = []
        self.races: list[Raced] = []
        self.lost: set[tuple[Point, Point]] = set()
        self.beaten: set[Move] = set()
        self.claimed: dict[int, float] = {}
        self.screened: dict[int, float] = {}
        self.let_go: list[str] = []
        self.changes: list[str] = []
        self.spent = 0.0
        self.kept = 0.0
        self.coin = random.Random(plan.seed)
        self._allowed = allowed
        self._pace = (0.0, 0.0)

    @property
    def left(self) -> float:
        """Return the rest of the budget, less what is kept."""
        return self.plan.budget - self.spent - self.kept

    def values(self, point: Point) -> dict[str, str]:
        """Return the values by knob, without those that were released."""
        return {name: value for name, value in self.space.values(point).items() if name not in self.let_go}

    def allowed(self, point: Point) -> bool:
        """Return whether guards let the point be tried; the start always may."""
        return point == self.space.start or self._allowed(self.space.values(point))

    def cost(self, candidate: Point, against: Point) -> float:
        """Return the cost of one evaluation by the plan, corrected by what those so far took."""
        return self.cost_of(self.space.differing(candidate, against))

    def cost_of(self, axes: Iterable[int]) -> float:
        """Return the same cost for points that differ in these knobs."""
        planned, took = self._pace
        return self.plan.cost_of(axes) * (took / planned if planned else 1.0)

    def broken(self, figures: Mapping[str, float]) -> str:
        """Return the first constraint that does not hold, in words; ""."""
        return next(
            (broken_words for constraint in self.plan.constraints if (broken_words := constraint.broken(figures))), ""
        )

    def measure(self, phase: SearchPhase, candidate: Point, against: Point, reason: str) -> Asking[Outcome]:
        """Ask for one evaluation.

        Raises:
            Spent: The budget does not allow it.
            LetGo: One of the points turns a knob that was changed by another session.
            Void: See there; in a phase that puts its evaluations together as one figure.
        """
        self._check_free(candidate, against)
        cost = self.cost(candidate, against)
        outcome = None
        while outcome is None:
            if cost > self.left + 1e-9:
                raise Spent
            evaluation = Evaluation(
                number=len(self.tried) + 1, phase=phase, candidate=candidate, against=against,
                values=self.values(candidate), against_values=self.values(against),
                restart=self.space.restarts(candidate, against), separate=self.space.separate(candidate, against),
                cost=cost, why=reason,
            )  # fmt: skip
            try:
                outcome = yield evaluation
            except LetGo:
                self._check_free(candidate, against)
            except Void:
                if phase in _TOGETHER:
                    raise
        took = cost if outcome.took is None else outcome.took
        self.spent += took
        if not outcome.stopped:
            planned = self.plan.cost_of(self.space.differing(candidate, against))
            self._pace = (self._pace[0] + planned, self._pace[1] + took)
        self.tried.append(Tried(evaluation, outcome))
        if outcome.error is not None:
            self.spread.within(outcome.error)
        return outcome

    def _check_free(self, *points: Point) -> None:
        released = [self.space.axis(name) for name in self.let_go]
        if any(self.space.at_start(point, released) != point for point in points):
            raise LetGo

    def move(self, candidate: Point, raced: Raced) -> None:
        """Make the candidate that has won the point that others have to beat."""
        axes = self.space.differing(candidate, self.best)
        for axis in axes:
            self.claimed[axis] = self.claimed.get(axis, 0.0) + (raced.effect or 0.0) / len(axes)
        self.best = candidate

    def release(self, name: str) -> None:
        """Release a knob: no point changes it any more.

        Raises:
            KeyError: There is no such knob.
        """
        axis = self.space.axis(name)
        if name in self.let_go:
            return
        self.let_go.append(name)
        self.best = self.space.at_start(self.best, (axis,))
        self.claimed.pop(axis, None)
        self.lost = {
            (self.space.at_start(candidate, (axis,)), self.space.at_start(against, (axis,)))
            for candidate, against in self.lost
            if candidate[axis] == against[axis]
        }

    def free(self, axis: int) -> bool:
        """Return whether the knob still belongs to the search."""
        return self.space.dimensions[axis].name not in self.let_go


class Favoured(Struct, frozen=True):
    """A knob that an engine may turn.

    Attributes:
        axis: The index of its dimension.
        effect: The effect of the screen's steps up, as a log ratio; None without a screen.
        rows: The rows of the screen that the effect is from.
    """

    axis: int
    effect: float | None
    rows: int = 0


Engine: TypeAlias = Callable[[Search, tuple[Favoured, ...]], Asking[None]]
"""Chooses candidates until it has no more, or the budget raises `Spent`; leaves its best in `search.best`. Knobs come
with the most promising first."""
