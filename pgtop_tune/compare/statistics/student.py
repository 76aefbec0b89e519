"""Quantiles of Student's t distribution, for intervals; accurate to eight digits (checked against scipy in the tests).

Formula: the distribution function by the regularised incomplete beta function, as a continued fraction evaluated by
Lentz's method (Abramowitz and Stegun 26.5.8, 26.7.1), inverted by bisection.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Final

_TINY: Final = 1e-300
_PRECISE: Final = 1e-14
_MOST_TERMS: Final = 10_000


def _fraction(a: float, b: float, x: float) -> float:
    c, d = 1.0, 1.0 - (a + b) * x / (a + 1.0)
    d = 1.0 / (d if abs(d) > _TINY else _TINY)
    result = d
    for m in range(1, _MOST_TERMS):
        for numerator in (
            m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)),
        ):
            d = 1.0 + numerator * d
            d = 1.0 / (d if abs(d) > _TINY else _TINY)
            c = 1.0 + numerator / c
            c = c if abs(c) > _TINY else _TINY
            result *= c * d
        if abs(c * d - 1.0) < _PRECISE:
            break
    return result


def _incomplete_beta(a: float, b: float, x: float) -> float:
    """I_x(a, b)."""
    if x <= 0.0 or x >= 1.0:
        return 0.0 if x <= 0.0 else 1.0
    front = math.exp(math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x))
    if x < (a + 1.0) / (a + b + 2.0):
        return front * _fraction(a, b, x) / a
    return 1.0 - front * _fraction(b, a, 1.0 - x) / b


def t_probability(t: float, degrees: float) -> float:
    """P(T ≤ t) with so many degrees of freedom.

    Raises:
        ValueError: There are no degrees of freedom.
    """
    if degrees <= 0:
        raise ValueError("no degrees of freedom")
    square = t * t
    if square < degrees:
        # Near 0 the other half of the integral: 1 − degrees / (degrees + t²) would lose all digits of t.
        tail = 0.5 - 0.5 * _incomplete_beta(0.5, degrees / 2.0, square / (degrees + square))
    else:
        tail = 0.5 * _incomplete_beta(degrees / 2.0, 0.5, degrees / (degrees + square))
    return 1.0 - tail if t > 0 else tail


@lru_cache(maxsize=512)
def t_quantile(probability: float, degrees: float) -> float:
    """The t with P(T ≤ t) = probability.

    Raises:
        ValueError: The probability is not between 0 and 1, or there are no degrees of freedom.
    """
    if not 0.0 < probability < 1.0:
        raise ValueError("a probability between 0 and 1 is needed")
    if probability < 0.5:
        return -t_quantile(1.0 - probability, degrees)
    low, high = 0.0, 1.0
    while t_probability(high, degrees) < probability:
        low, high = high, high * 2.0
    while high - low > _PRECISE * max(1.0, high):
        middle = (low + high) / 2.0
        if middle in (low, high):
            break
        low, high = (middle, high) if t_probability(middle, degrees) < probability else (low, middle)
    return (low + high) / 2.0
