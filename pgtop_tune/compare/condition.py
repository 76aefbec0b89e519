"""Conditions on a comparison: `tps < -5%`. A figure, a sign, a share; nothing is evaluated but that."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Sequence
from enum import StrEnum
from operator import ge, gt, le, lt
from typing import Final

from msgspec import Struct

from pgtop_tune.base.errors import UsageProblem
from pgtop_tune.compare.comparison import Comparison
from pgtop_tune.compare.figure_rows import FigureRow
from pgtop_tune.compare.sides.figures import BY_ID
from pgtop_tune.compare.statistics.verdicts import unfit

_FORM: Final = re.compile(
    r"\s*(?P<figure>[a-z][a-z0-9_]{0,30})\s*(?P<sign><=|>=|<|>)\s*(?P<share>[+-]?\d{1,6}(?:\.\d{1,6})?)\s*%\s*",
    re.ASCII,
)
_SIGNS: Final[dict[str, Callable[[float, float], bool]]] = {"<": lt, "<=": le, ">": gt, ">=": ge}
_HINT: Final = "write it as 'tps < -5%': a figure, < or >, a change in per cent"


class ConditionOutcome(StrEnum):
    """What came of a condition."""

    HOLDS = "holds"
    """The change is beyond the limit, and the interval, with what runs differ by, leaves 0 out."""
    DOES_NOT = "does not hold"
    CANNOT_TELL = "cannot be decided"
    """Not comparable, not measured, too short for an interval, or the runs differ by more and allow no verdict."""


class Condition(Struct, frozen=True):
    """One condition.

    Attributes:
        figure: As in `figures.FIGURES`.
        sign: <, <=, > or >=.
        share: −0.05 for −5 %; of a figure that is a percentage, for 5 percentage points less.
    """

    figure: str
    sign: str
    share: float

    @property
    def words(self) -> str:
        """As it is written."""
        return f"{self.figure} {self.sign} {100 * self.share:g}%"


class Judged(Struct, frozen=True):
    """A condition, and what came of it.

    Attributes:
        because: One sentence.
    """

    condition: Condition
    outcome: ConditionOutcome
    because: str


def parse_condition(text: str) -> Condition:
    """A condition as typed.

    Raises:
        UsageProblem: It is none, or about a figure there is not.
    """
    found = _FORM.fullmatch(text)
    if found is None:
        raise UsageProblem(f"{text!r} is not a condition", _HINT)
    if found["figure"] not in BY_ID:
        near = difflib.get_close_matches(found["figure"], BY_ID, n=1)
        hint = f"did you mean {near[0]}? " if near else ""
        raise UsageProblem(f"no figure is called {found['figure']!r}", f"{hint}figures: {', '.join(BY_ID)}")
    return Condition(found["figure"], found["sign"], float(found["share"]) / 100.0)


def judge(condition: Condition, comparisons: Sequence[Comparison]) -> Judged:
    """Holds when it does for any phase of any comparison; cannot be told when it cannot for one and holds for none."""
    untold = ""
    for comparison in comparisons:
        if not comparison.comparable:
            untold = untold or f"{comparison.b.name} is not comparable: {comparison.reasons[0]}"
            continue
        for phase in comparison.phases:
            row = phase.row(condition.figure)
            where = f"{phase.key.title} of {comparison.b.name}"
            if not phase.parts and (unfit_run := unfit(phase.a, phase.b)):
                untold = untold or f"{condition.figure} of {where} does not count: {unfit_run}"
            elif row is None or row.effect is None or row.effect.low is None:
                untold = untold or f"{condition.figure} of {where} was not measured for long enough"
            elif _holds(condition, row) and phase.no_verdict:
                untold = untold or (
                    f"{condition.figure} changed by {_change(row)} in {where}, which is no verdict: {phase.no_verdict}"
                )
            elif _holds(condition, row):
                return Judged(
                    condition, ConditionOutcome.HOLDS, f"{condition.figure} changed by {_change(row)} in {where}"
                )
    if untold:
        return Judged(condition, ConditionOutcome.CANNOT_TELL, untold)
    return Judged(condition, ConditionOutcome.DOES_NOT, "")


def _holds(condition: Condition, row: FigureRow) -> bool:
    change, low, high = row.change or (0.0, None, None)
    if low is None or high is None:
        return False
    # A change that may be noise fails no build: the interval of one that counts has 0 outside.
    return _SIGNS[condition.sign](change, condition.share) and not low <= 0.0 <= high


def _change(row: FigureRow) -> str:
    change, low, high = row.change or (0.0, None, None)
    sure = 0.95 if row.effect is None else row.effect.confidence
    return f"{100 * change:+.1f} % ({100 * sure:.0f} %: {100 * (low or 0.0):+.1f} to {100 * (high or 0.0):+.1f})"
