"""The universal scalability law, fitted to throughput over clients, with intervals.

    X(N) = λN / (1 + σ(N − 1) + κN(N − 1))        σ: contention, κ: coherency

N/X is linear in 1, N − 1 and N(N − 1), and is fitted by least squares of its relative residuals; coefficients below 0
are left out, but intervals are as wide as with all of them. Throughput is highest at N = √((1 − σ)/κ). Source: Gunther,
"Guerrilla Capacity Planning", 2007. The law is a model: where its residuals are large it says nothing, and the measured
knee stands alone.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import compress
from operator import mul
from typing import Final

from msgspec import Struct

from pgtop_tune.base.units import number, share
from pgtop_tune.compare.statistics.before_after import solve
from pgtop_tune.compare.statistics.effect import t_quantile

FEWEST: Final = 5
"""Steps with different clients below which nothing is fitted."""
OFF: Final = 0.05
"""Typical relative residual above which the law does not describe the server."""
_LEAST: Final = 0.002
_SHOWN: Final = 0.975
_FREE: Final = ((True, True, True), (True, True, False), (True, False, True), (True, False, False))


class Coefficient(Struct, frozen=True):
    """A coefficient with its 95 % interval."""

    value: float
    low: float
    high: float


class Scalability(Struct, frozen=True):
    """The fit.

    Attributes:
        contention, coherency: σ and κ.
        single_tps: Throughput of one client by the fit, λ.
        peak_clients: Clients at the peak; None where coherency is not above 0 for certain, or the peak was not
            approached by the steps.
        refused: Why the law says nothing; "" where it does.
    """

    contention: Coefficient | None = None
    coherency: Coefficient | None = None
    single_tps: float | None = None
    peak_clients: Coefficient | None = None
    refused: str = ""

    @property
    def sentence(self) -> str:
        """Return the fit in words."""
        if self.refused or self.contention is None or self.coherency is None:
            return f"scalability law: not fitted: {self.refused}"
        contention, coherency = (
            f"{share(100.0 * coefficient.value)} ({share(100.0 * coefficient.low)} … {share(100.0 * coefficient.high)})"
            for coefficient in (self.contention, self.coherency)
        )
        peak = "no peak within reach of these steps"
        if self.peak_clients is not None:
            peak = (
                f"peak at {number(round(self.peak_clients.value))} clients"
                f" ({number(round(self.peak_clients.low))} … {number(round(self.peak_clients.high))})"
            )
        return f"scalability law: contention {contention}, coherency {coherency}; {peak}"


def scalability(points: Sequence[tuple[float, float]]) -> Scalability:
    """Fit the law.

    Args:
        points: Clients and throughput above 0 of each run.
    """
    loads = {clients for clients, _ in points}
    if len(loads) < FEWEST:
        return Scalability(refused=f"needs {FEWEST} successful steps with different clients, got {len(loads)}")
    rows = [
        tuple(value * tps / clients for value in (1.0, clients - 1.0, clients * (clients - 1.0)))
        for clients, tps in points
    ]
    fits = [fit for free in _FREE if (fit := _fitted(rows, free)) is not None]
    squares, coefficients = min(fits, key=lambda fit: fit[0])
    covariance = _covariance(rows)
    degrees = len(points) - len(coefficients)
    error = max(math.sqrt(squares / degrees), _LEAST)
    if error > OFF:
        worst = max(points, key=lambda point: abs(_residual(rows[points.index(point)], coefficients)))
        off = abs(_residual(rows[points.index(worst)], coefficients))
        typical, largest = share(100.0 * error), share(100.0 * off)
        return Scalability(refused=f"the steps are off by {typical}, that of {number(worst[0])} clients by {largest}")
    t = t_quantile(_SHOWN, degrees)
    first = coefficients[0]
    ratios = []
    for position in (1, 2):
        ratio = coefficients[position] / first
        spread = covariance[position][position] - 2.0 * ratio * covariance[0][position] + ratio**2 * covariance[0][0]
        half = t * error * math.sqrt(max(spread, 0.0)) / first
        ratios.append(Coefficient(ratio, max(ratio - half, 0.0), ratio + half))
    contention, coherency = ratios
    return Scalability(
        contention=contention,
        coherency=coherency,
        single_tps=1.0 / first,
        peak_clients=_peak(contention, coherency, max(loads)),
    )


def _peak(contention: Coefficient, coherency: Coefficient, most: float) -> Coefficient | None:
    if coherency.low <= 0.0 or contention.value >= 1.0:
        return None
    ends = [math.sqrt((1.0 - contention.value) / kappa) for kappa in (coherency.value, coherency.high, coherency.low)]
    return Coefficient(*ends) if ends[0] <= 2.0 * most else None


def _residual(row: Sequence[float], coefficients: Sequence[float]) -> float:
    return 1.0 - math.fsum(x * c for x, c in zip(row, coefficients, strict=True))


def _fitted(rows: Sequence[Sequence[float]], free: Sequence[bool]) -> tuple[float, list[float]] | None:
    """Return squares and coefficients with some of them left out; None with one below 0."""
    normal, scale = _normal([[*compress(row, free)] for row in rows])
    moments = [math.fsum(row[i] for row in rows) / scale[j] for j, i in enumerate(compress(range(3), free))]
    solution = [value / size for value, size in zip(solve(normal, moments), scale, strict=True)]
    if solution[0] <= 0.0 or min(solution) < 0.0:
        return None
    values = iter(solution)
    coefficients = [next(values) if is_free else 0.0 for is_free in free]
    return math.fsum(_residual(row, coefficients) ** 2 for row in rows), coefficients


def _covariance(rows: Sequence[Sequence[float]]) -> list[list[float]]:
    """Return the covariance of all coefficients, per unit of the residuals' variance."""
    normal, scale = _normal(rows)
    inverse = [solve(normal, [float(i == j) for i in range(3)]) for j in range(3)]
    return [[inverse[i][j] / scale[i] / scale[j] for j in range(3)] for i in range(3)]


def _normal(rows: Sequence[Sequence[float]]) -> tuple[list[list[float]], list[float]]:
    """Return the matrix of the normal equations with a diagonal of 1, and its scale: columns differ by magnitudes."""
    columns = [*zip(*rows, strict=True)]
    scale = [math.sqrt(math.fsum(value**2 for value in column)) for column in columns]
    return [
        [math.fsum(map(mul, row, column)) / i / j for column, j in zip(columns, scale, strict=True)]
        for row, i in zip(columns, scale, strict=True)
    ], scale
