"""Statements of two sides: time per call, and one figure over the same mix of statements on both.

The figure "statements, same mix" is Σ calls_A · mean / Σ calls_A · mean_A over a fixed set of statements: those with
enough calls on both sides, in every block or run. Its weights are calls of A, so that another mix in B is no effect.

Windows are judged by blocks of looks, runs with the difference between runs in the interval, as other figures are.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from statistics import fmean
from typing import Final

from msgspec import Struct

from pgtop_tune.compare.figure_rows import CERTAIN, too_short, worded
from pgtop_tune.compare.sides.figures import Better
from pgtop_tune.compare.sides.material import Counted, Look, Runs, mean_ms, summed
from pgtop_tune.compare.statistics.before_after import mean_variance
from pgtop_tune.compare.statistics.effect import (
    FEWEST,
    Effect,
    Verdict,
    block_length,
    certain_together,
    effect_of_whole,
    run_noise,
    runs_effect,
)
from pgtop_tune.model.statements import OWN_MARK

ENOUGH_CALLS: Final = 20
"""On each side, for a statement of the fixed set."""
SHOWN: Final = 30
SAME_MIX: Final = "same_mix"
SAME_MIX_TITLE: Final = "statements, same mix"
NEW: Final = "new"
GONE: Final = "gone"
_TOLD: Final = CERTAIN | {Verdict.DIFFER.value, NEW, GONE}


class StatementRow(Struct, frozen=True):
    """A statement.

    Attributes:
        text: Foreign; "" where it is not known.
        calls_a, calls_b: Calls behind the warm-up.
        a_ms, b_ms: Mean time of a call; None without calls.
        effect: Effect on the time per call; None for a statement of one side.
        weight_ms: Milliseconds that the change costs over A's calls, and for a new or gone one all of its time in as
            long as A.
        verdict: "new", "gone", or as of other figures.
    """

    id: str
    text: str
    calls_a: int
    calls_b: int
    a_ms: float | None
    b_ms: float | None
    effect: Effect | None
    weight_ms: float
    fixed: bool
    verdict: str = ""

    @property
    def below_noise(self) -> bool:
        """Return whether nothing certain can be said of the statement."""
        return self.verdict not in _TOLD


class StatementComparison(Struct, frozen=True):
    """Statements of two sides.

    Attributes:
        rows: Rows, the certain ones first; in each part the largest effect on the time of the server first.
        same_mix: Effect over the fixed set; None where it is empty.
        a_ms, b_ms: Mean time of a call of the same mix; None where there is none.
        verdict: Verdict on `same_mix`.
        fixed: Statements in the fixed set.
        covered_a, covered_b: Share of the execution time of all statements that the fixed set has; None when unknown.
    """

    rows: tuple[StatementRow, ...]
    same_mix: Effect | None
    a_ms: float | None
    b_ms: float | None
    verdict: str
    fixed: int
    covered_a: float | None
    covered_b: float | None


class SideSums(Struct, frozen=True):
    """The counters of one side.

    Attributes:
        whole: Of each statement.
        seconds: In which it was counted.
        all_ms: Execution time of all statements; None where it is not known.
    """

    whole: Look
    seconds: float
    all_ms: float | None

    def covered(self, fixed: Collection[str]) -> float | None:
        """Return the share of the execution time that these statements have; None when unknown."""
        if not self.all_ms:
            return None
        return min(sum(self.whole[id][1] for id in fixed if id in self.whole) / self.all_ms, 1.0)


class _SideLooks:
    """Looks of the runs of a side."""

    def __init__(self, runs: Runs) -> None:
        counted_runs = [run for run in runs if run.statements.behind(run.warm_up_s)]
        self.runs = [run.statements.behind(run.warm_up_s) for run in counted_runs]
        every = [run.statements.all_ms(run.warm_up_s) for run in counted_runs]
        self.sums = SideSums(
            whole=summed(self.looks),
            seconds=sum(run.statements.seconds(run.warm_up_s) for run in counted_runs),
            all_ms=None if None in every else sum(ms for ms in every if ms is not None),
        )
        self.texts = {id: run.statements.text(id) for run in counted_runs for id in run.statements.names}

    @property
    def looks(self) -> list[Look]:
        return [look for looks in self.runs for look in looks]


Measure = Callable[[Look], float | None]
"""A figure of some looks together; None where they do not tell it."""


def compare_statements(
    a: Runs,
    b: Runs,
    *,
    comparable: bool,
    decisive: bool,
    repeated: bool,
    windows: bool = False,
) -> StatementComparison | None:
    """Compare the statements of B with those of A; None where a side has no counters of them.

    Args:
        comparable, decisive: As of `worded`.
        repeated: Whether it is known how runs differ in other figures than throughput and mean latency.
        windows: Parts of runs, judged by blocks of looks.
    """
    sides = _SideLooks(a), _SideLooks(b)
    if not all(side.runs for side in sides):
        return None
    sums = sides[0].sums, sides[1].sums
    texts = sides[0].texts | {id: text for id, text in sides[1].texts.items() if text}
    ids = [id for id in dict.fromkeys((*sums[0].whole, *sums[1].whole)) if OWN_MARK not in texts.get(id, "")]
    often = [id for id in ids if all(side.whole.get(id, (0, 0.0))[0] >= ENOUGH_CALLS for side in sums)]
    if windows:
        length = _length(sides, often)
        units = [_blocks(side.looks, length) for side in sides]
        judge = judge_mix = partial(_of_blocks, sides=sides, units=units, length=length)
    else:
        units = [[summed(looks) for looks in side.runs] for side in sides]
        of_runs = partial(_of_runs, sides=sides, units=units, short=too_short(a) or too_short(b))
        judge, judge_mix = partial(of_runs, foreseen=False), partial(of_runs, foreseen=True)
    fixed = [id for id in often if all(id in unit for side in units for unit in side)]
    effects = {id: judge(per_call(id)) for id in fixed}
    sure = certain_together(
        {id: effect.chance for id, effect in effects.items() if effect and effect.chance is not None}
    )

    def said(id: str) -> str:
        return worded(
            effects.get(id),
            Better.LOWER,
            id in sure,
            comparable=comparable,
            decisive=decisive and (windows or repeated),
        )

    enough = fixed and (not windows or min(map(len, units)) >= FEWEST)
    weights = {id: sums[0].whole[id] for id in fixed}
    mix = judge_mix(same_mix(weights)) if enough else None
    verdict = worded(mix, Better.LOWER, None, comparable=comparable, decisive=decisive)
    rows = [statement_row(id, texts.get(id, ""), sums, effects, said) for id in ids]
    return comparison_of(rows, sums, weights, mix, verdict)


def comparison_of(
    rows: Iterable[StatementRow], sums: tuple[SideSums, SideSums], weights: Look, mix: Effect | None, verdict: str
) -> StatementComparison:
    """Return rows in their order, and what the fixed set is.

    Args:
        weights: As of `same_mix`.
        mix, verdict: Effect over the same mix, and its verdict.
    """
    mixed = same_mix(weights)
    return StatementComparison(
        rows=tuple(sorted(rows, key=lambda row: (row.below_noise, -abs(row.weight_ms)))),
        same_mix=mix,
        a_ms=mixed(sums[0].whole),
        b_ms=mixed(sums[1].whole),
        verdict=verdict,
        fixed=len(weights),
        covered_a=sums[0].covered(weights),
        covered_b=sums[1].covered(weights),
    )


def statement_row(
    id: str,
    text: str,
    sides: tuple[SideSums, SideSums],
    effects: Mapping[str, Effect | None],
    verdict_of: Callable[[str], str],
) -> StatementRow:
    """Return the row of a statement.

    Args:
        effects: Of those in the fixed set.
        verdict_of: The verdict of a statement that both sides have.
    """
    counted_a, counted_b = (side.whole.get(id) for side in sides)
    verdict = GONE if counted_b is None else NEW if counted_a is None else verdict_of(id)
    if counted_a is not None and counted_b is not None:
        weight = counted_a[0] * (mean_ms(counted_b) - mean_ms(counted_a))
    else:
        longer = sides[0].seconds / sides[1].seconds if sides[1].seconds else 1.0
        weight = (0.0 if counted_b is None else counted_b[1] * longer) - (0.0 if counted_a is None else counted_a[1])
    return StatementRow(
        id=id,
        text=text,
        calls_a=counted_a[0] if counted_a else 0,
        calls_b=counted_b[0] if counted_b else 0,
        a_ms=mean_ms(counted_a) if counted_a else None,
        b_ms=mean_ms(counted_b) if counted_b else None,
        effect=effects.get(id),
        weight_ms=weight,
        fixed=id in effects,
        verdict=verdict,
    )


def per_call(id: str) -> Measure:
    """Return milliseconds of a call of one statement."""
    return lambda look: mean_ms(look[id]) if id in look else None


def same_mix(weights: Look) -> Measure:
    """Return milliseconds of a call of a fixed mix.

    Args:
        weights: Its statements, with the calls that weigh them and what stands where one was not called.
    """
    calls = sum(count for count, _ in weights.values())

    def measure(look: Look) -> float | None:
        parts = (counted[0] * mean_ms(look.get(id, counted)) for id, counted in weights.items())
        return sum(parts) / calls if calls and look else None

    return measure


def _length(sides: Sequence[_SideLooks], often: Sequence[str]) -> int:
    """Return the looks of a block, by the series of the same mix."""
    series = []
    for side in sides:
        calls = {id: sides[0].sums.whole[id][0] for id in often}
        mixed = same_mix({id: (count, count * mean_ms(side.sums.whole[id])) for id, count in calls.items()})
        series.append([value for look in side.looks if (value := mixed(look)) is not None])
    return block_length(series)


def _blocks(looks: Sequence[Look], length: int) -> list[dict[str, Counted]]:
    """Return whole blocks of so many looks; the rest at the beginning is left out."""
    return [summed(looks[at : at + length]) for at in range(len(looks) % length, len(looks), length)]


def _values(measure: Measure, units: Sequence[Look]) -> list[float]:
    return [value for unit in units if (value := measure(unit)) is not None]


def _of_blocks(
    measure: Measure, sides: Sequence[_SideLooks], units: Sequence[Sequence[Look]], length: int
) -> Effect | None:
    overall = measure(sides[0].sums.whole), measure(sides[1].sums.whole)
    if overall[0] is None or overall[1] is None:
        return None
    return effect_of_whole((overall[0], overall[1]), _values(measure, units[0]), _values(measure, units[1]), length)


def _of_runs(
    measure: Measure, sides: Sequence[_SideLooks], units: Sequence[Sequence[Look]], *, short: bool, foreseen: bool
) -> Effect | None:
    """Return the effect over runs, each of which is one value; its own looks give its variance."""
    overall = measure(sides[0].sums.whole), measure(sides[1].sums.whole)
    values = [_values(measure, side) for side in units]
    if not overall[0] or not overall[1] or not all(values) or min(map(min, values)) <= 0.0:
        return None
    logs = [[math.log(value) for value in side] for side in values]
    within = []
    for looks in (looks for side in sides for looks in side.runs):
        steps = _values(measure, looks)
        within.append(mean_variance(steps) / fmean(steps) ** 2 if steps and fmean(steps) > 0.0 else 0.0)
    noise = run_noise(logs[0], logs[1], fmean(within), foreseen=foreseen)
    effect = runs_effect(logs[0], logs[1], noise, change=math.log(overall[1] / overall[0]))
    return effect.without_interval() if short else effect
