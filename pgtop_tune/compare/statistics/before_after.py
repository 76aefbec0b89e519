"""Throughput after a moment against before it, in one run: weighted least squares with a drift allowance.

    u_t = ln m + y_t/m − 1 = a + after·x + slope·t/600 s + columns·z_t + noise      m: mean of that side

`x` is the log ratio of the means; seconds without a transaction do no harm. The slope has a normal prior of 4 % in ten
minutes, a column (a checkpoint that writes, CPU time of other programs) one of 20 % per unit. A side weighs by its
long-run variance: residuals are whitened by a first-order autoregression that is shrunk towards 0.6, and the rest is
measured by cosine transforms of the longest periods.

Looked at while it runs, it is looked at few times (`LOOKS`), and a claim takes more at the early ones (`SPENT`). A
claim stays until a later look speaks clearly against it. Simulated: tests/compare/statistics/test_judge_by_simulation.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
from functools import lru_cache
from itertools import pairwise
from operator import mul
from statistics import fmean
from typing import Final

from msgspec import Struct

from pgtop_tune.compare.statistics.effect import LEAST, SAME, Effect, Verdict, t_probability, t_quantile
from pgtop_tune.metrics.catalogue import Metric
from pgtop_tune.metrics.checkpoints import CHECKPOINT_WRITES
from pgtop_tune.metrics.host import CPU_FOREIGN
from pgtop_tune.metrics.server import FULL_PAGES

# What must be alike in two parts of one run, so that a difference may be put down to what was changed between them.


class AlikeCondition(Struct, frozen=True):
    """A number whose means may not be far apart.

    Attributes:
        limit: Percentage points from which on they are.
        summary: The difference in two words.
        of: What the percentages are of, between "A" and "B" of a sentence.
        by_time: Not the number counts, but the share of the time in which it is above 0.
        made_by: Parameters that change it by themselves: it is part of what they do.
        column: The regression of before and after has a column for it, which takes its part out of the difference.
    """

    metric: Metric
    limit: float
    summary: str
    of: str
    by_time: bool = False
    made_by: frozenset[str] = frozenset()
    column: bool = False

    def mean(self, values: Iterable[tuple[float, float]]) -> float | None:
        """Return the percentage of (value, weight) pairs; None without weight."""
        part = total_weight = 0.0
        for value, weight in values:
            part += (100.0 * (value > 0) if self.by_time else value) * weight
            total_weight += weight
        return part / total_weight if total_weight else None


CONDITIONS: Final = (
    AlikeCondition(
        FULL_PAGES, 20.0, "full pages differ", "full pages were {} of the WAL",
        made_by=frozenset({"full_page_writes", "wal_compression"}),
    ),
    AlikeCondition(CPU_FOREIGN, 5.0, "foreign CPU differs", "other programs used {} of the CPU time"),
    AlikeCondition(
        CHECKPOINT_WRITES, 20.0, "checkpoints differ", "checkpoints were writing {} of the time",
        by_time=True, column=True,
    ),
)  # fmt: skip
"""A page is written whole to the WAL when it is first changed after a checkpoint, also long after a forced one has
written its last."""


class Unlike(Struct, frozen=True):
    """A condition that was not the same in two parts.

    Attributes:
        a, b: Its percentages.
    """

    condition: AlikeCondition
    a: float
    b: float

    @property
    def sentence(self) -> str:
        """Return the difference as a sentence with both percentages."""
        a, b = (f"{value:.0f} %" for value in (self.a, self.b))
        return f"{self.condition.of.format(a)} in A and {b} in B"


def unlike(values: Sequence[Sequence[Iterable[tuple[float, float]]]], changed: Collection[str]) -> Unlike | None:
    """Return the first condition that differs; an unknown one counts as the same.

    Args:
        values: (value, weight) pairs of each of `CONDITIONS`, in A and in B.
        changed: Names of the parameters that were changed between them.
    """
    for condition, (of_a, of_b) in zip(CONDITIONS, values, strict=True):
        a, b = condition.mean(of_a), condition.mean(of_b)
        if a is not None and b is not None and abs(b - a) > condition.limit and condition.made_by.isdisjoint(changed):
            return Unlike(condition, a, b)
    return None


LOOKS: Final = (15, 30, 60, 120, 240, 480)
"""Seconds after the change has settled at which it is told anew; the last one stands."""
SPENT: Final = (0.002, 0.005, 0.01, 0.01, 0.01, 0.01)
"""At each look how seldom so large a difference must come by chance for a claim, two-sided."""
UNCLEAR: Final = 0.2
"""From which on a claim is taken back."""
FEWEST_BEFORE: Final = 30
FEWEST_AFTER: Final = 10
"""Seconds below which nothing is said."""
_DRIFT: Final = 0.04
"""Prior of the slope, log ratio in 600 s."""
_COLUMN: Final = 0.20
_FREE: Final = 2
"""Columns of the regression without a prior: level and effect."""
_TURNS: Final = 3
_FEWEST_DEGREES: Final = 5
_PHI: Final = 0.6
_PHI_WEIGHT_S: Final = 40.0
_PHI_MOST: Final = 0.97
_SECONDS_A_COSINE: Final = 15
_MOST_COSINES: Final = 8
_POOLED: Final = 4.0
"""Weight of both sides' variance in that of each."""
_LEAST_VARIANCE: Final = 1e-7
_SLOPE_ALONE: Final = 2.5
"""Errors from which on the slope before the change is worth a word."""
CLAIMS: Final = (Verdict.BETTER, Verdict.WORSE)
"""Verdicts that say that something differs."""


class Second(Struct, frozen=True):
    """One second of one side.

    Attributes:
        at_s: From the change; below 0 before it.
        value: Transactions per second, or another positive number.
        columns: Other influences on it: the same columns in each second, scaled so that 1 costs some 20 %.
    """

    at_s: float
    value: float
    columns: tuple[float, ...] = ()


class Difference(Struct, frozen=True):
    """A log ratio.

    Attributes:
        change: ln(after/before), other things equal.
        error: Its standard error.
        degrees: Degrees of freedom of Student's t.
    """

    change: float
    error: float
    degrees: int

    @property
    def chance(self) -> float:
        """Return how often so large a difference comes by chance, two-sided."""
        return 2.0 * t_probability(-abs(self.change) / self.error, self.degrees)

    def effect(self, confidence: float, seconds: tuple[int, int]) -> Effect:
        """Return the difference as a ratio with an interval of this confidence."""
        half = t_quantile((1.0 + confidence) / 2.0, self.degrees) * self.error
        return Effect(
            relative=math.expm1(self.change),
            low=math.expm1(self.change - half),
            high=math.expm1(self.change + half),
            blocks_a=seconds[0],
            blocks_b=seconds[1],
            block_s=1,
            smallest_seen=math.expm1(half + t_quantile(0.8, self.degrees) * self.error),
            chance=self.chance,
            confidence=confidence,
        )


class ChangeLook(Struct, frozen=True):
    """One look.

    Attributes:
        seconds: Of both sides.
        claims: Whether the sides are alike enough for a claim; one that was made before is held without.
    """

    difference: Difference
    seconds: tuple[int, int]
    claims: bool = True


class Claim(Struct, frozen=True):
    """The claim after the newest look.

    Attributes:
        verdict: Better or worse (higher is better), no difference beyond 2 %, or undecided.
        effect: Effect at the newest look, with the interval of that look's limit: it holds for all looks together.
        look: Its number from 0.
        withdrawn: A claim was made earlier and is not held.
    """

    verdict: Verdict
    effect: Effect
    look: int
    withdrawn: bool = False


def difference(before: Sequence[Second], after: Sequence[Second]) -> Difference:
    """Return the log ratio of both sides' means.

    Raises:
        ValueError: A side is empty or its mean is not above 0.
    """
    rows: list[tuple[float, ...]] = []
    readings: list[float] = []
    for side, seconds in ((0.0, before), (1.0, after)):
        mean = fmean(second.value for second in seconds) if seconds else 0.0
        if mean <= 0.0:
            raise ValueError("nothing to be divided by")
        for second in seconds:
            rows.append((1.0, side, second.at_s / 600.0, *second.columns))
            readings.append(math.log(mean) + second.value / mean - 1.0)
    split, degrees = len(before), _FEWEST_DEGREES
    variances = tuple(4.0 * _variance(part) + _LEAST_VARIANCE for part in (readings[:split], readings[split:]))
    for _ in range(_TURNS - 1):
        coefficients, _ = _fit(rows, readings, split, variances)
        residuals = [y - sum(map(mul, row, coefficients)) for row, y in zip(rows, readings, strict=True)]
        variances, degrees = long_run_variances(residuals, split)
    coefficients, error = _fit(rows, readings, split, variances)
    return Difference(change=coefficients[1], error=error, degrees=degrees)


def _fit(
    rows: Sequence[Sequence[float]], readings: Sequence[float], split: int, variances: Sequence[float]
) -> tuple[list[float], float]:
    """Return coefficients, and the standard error of the second."""
    width = len(rows[0])
    normal = [[0.0] * width for _ in range(width)]
    moments = [0.0] * width
    for part, variance in ((slice(split), variances[0]), (slice(split, None), variances[1])):
        columns = [*zip(*rows[part], strict=True)]
        for i, column in enumerate(columns):
            moments[i] += sum(map(mul, column, readings[part])) / variance
            for j in range(i, width):
                normal[i][j] += sum(map(mul, column, columns[j])) / variance
    for i in range(width):
        normal[i][i] += 0.0 if i < _FREE else 1.0 / (_DRIFT if i == _FREE else _COLUMN) ** 2
        for j in range(i):
            normal[i][j] = normal[j][i]
    coefficients = solve(normal, moments)
    inverse = solve(normal, [float(column == 1) for column in range(width)])
    return coefficients, math.sqrt(max(inverse[1], 0.0))


def solve(matrix: Sequence[Sequence[float]], right_side: Sequence[float]) -> list[float]:
    """Solve linear equations by Gaussian elimination with pivots; the matrix is symmetric and positive."""
    size = len(right_side)
    rows = [[*row, value] for row, value in zip(matrix, right_side, strict=True)]
    for i in range(size):
        pivot = max(range(i, size), key=lambda row: abs(rows[row][i]))
        rows[i], rows[pivot] = rows[pivot], rows[i]
        for j in range(i + 1, size):
            factor = rows[j][i] / rows[i][i]
            rows[j] = [below - factor * above for below, above in zip(rows[j], rows[i], strict=True)]
    solution = [0.0] * size
    for i in reversed(range(size)):
        solution[i] = (rows[i][size] - sum(map(mul, rows[i][i + 1 : size], solution[i + 1 :]))) / rows[i][i]
    return solution


def mean_variance(values: Sequence[float]) -> float:
    """Return the variance of the mean of a correlated series; 0 with too few values to tell.

    Args:
        values: Evenly spaced.
    """
    if len(values) < FEWEST_AFTER:
        return 0.0
    (first, second), _ = long_run_variances(_centred(values), len(values) // 2)
    return (first + second) / 2.0 / len(values)


def long_run_variances(residuals: Sequence[float], split: int) -> tuple[tuple[float, float], int]:
    """Return both sides' variance of a second times the seconds that count as one, and the degrees of freedom.

    Args:
        residuals: Of both sides, in the order of time.
        split: So many are of the first side.
    """
    sides = [_centred(part) for part in (residuals[:split], residuals[split:])]
    count, squares = len(residuals), math.fsum(value * value for side in sides for value in side)
    if squares <= 0.0:
        return (_LEAST_VARIANCE, _LEAST_VARIANCE), _FEWEST_DEGREES
    phi = math.fsum(a * b for side in sides for a, b in pairwise(side)) / squares
    phi += 2.0 * (1.0 + 3.0 * phi) / count
    phi = min(max((count * phi + _PHI_WEIGHT_S * _PHI) / (count + _PHI_WEIGHT_S), 0.0), _PHI_MOST)
    power, cosines = [], []
    for side in sides:
        length = len(side)
        highest = min(_MOST_COSINES, max(1, length // _SECONDS_A_COSINE))
        white = [side[0] * math.sqrt(1.0 - phi * phi), *(b - phi * a for a, b in pairwise(side))]
        power.append(sum(2.0 / length * sum(map(mul, white, _cosine(k, length))) ** 2 for k in range(1, highest + 1)))
        cosines.append(highest)
    pooled = sum(power) / sum(cosines)
    shrunk = [
        max((side_power + _POOLED * pooled) / (k + _POOLED) / (1.0 - phi) ** 2, _LEAST_VARIANCE)
        for side_power, k in zip(power, cosines, strict=True)
    ]
    return (shrunk[0], shrunk[1]), sum(cosines)


@lru_cache(maxsize=128)
def _cosine(k: int, length: int) -> tuple[float, ...]:
    return tuple(math.cos(math.pi * k * (i + 0.5) / length) for i in range(length))


def _centred(values: Sequence[float]) -> list[float]:
    mean = fmean(values)
    return [value - mean for value in values]


def _variance(values: Sequence[float]) -> float:
    return math.fsum(value * value for value in _centred(values)) / len(values)


def claim_after(looks: Iterable[ChangeLook]) -> Claim | None:
    """Return the claim after some looks, in their order; None while there was none."""
    claim: Claim | None = None
    for number, (look, limit) in enumerate(zip(looks, SPENT, strict=False)):
        claim = _next(claim, look, number, limit)
    return claim


def _next(before: Claim | None, look: ChangeLook, number: int, limit: float) -> Claim:
    newest, claimed = look.difference, before is not None and before.verdict in CLAIMS
    if before is not None and claimed and not look.claims:
        return before
    effect, change = newest.effect(1.0 - limit, look.seconds), newest.change
    if before is not None and claimed:
        holds = newest.chance <= UNCLEAR and before.effect.relative * change > 0.0
        return Claim(before.verdict if holds else Verdict.UNDECIDED, effect, number, withdrawn=not holds)
    if look.claims and newest.chance < limit and abs(effect.relative) >= LEAST:
        return Claim(Verdict.BETTER if change > 0.0 else Verdict.WORSE, effect, number)
    alike = look.claims and effect.within(SAME)
    withdrawn = before is not None and before.withdrawn
    return Claim(Verdict.NO_DIFFERENCE if alike else Verdict.UNDECIDED, effect, number, withdrawn)


def moving(before: Sequence[Second]) -> float | None:
    """Return the slope before the change, log ratio in ten minutes, where it is clear; None where it is not."""
    if len(before) < FEWEST_BEFORE:
        return None
    mean, middle = fmean(second.value for second in before), fmean(second.at_s for second in before)
    if mean <= 0.0:
        return None
    times = [(second.at_s - middle) / 600.0 for second in before]
    spread = math.fsum(time * time for time in times)
    slope = math.fsum(time * second.value / mean for time, second in zip(times, before, strict=True)) / spread
    residuals = [second.value / mean - 1.0 - slope * time for time, second in zip(times, before, strict=True)]
    half = len(residuals) // 2
    (first, second), _ = long_run_variances(residuals, half)
    return slope if abs(slope) > _SLOPE_ALONE * math.sqrt((first + second) / 2.0 / spread) else None
