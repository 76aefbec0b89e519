"""How large an effect is against the noise it was seen in: what makes numbers of different kinds comparable."""

from __future__ import annotations

import math
from typing import Final

from pgtop_tune.compare.statistics.effect import Effect
from pgtop_tune.compare.statistics.student import t_quantile

_SHOWN: Final = 0.975
_ROUNDING: Final = 1e-9
"""Below this an effect is an error of arithmetic."""
_LARGEST: Final = 1e6
"""What changed and did not vary at all is no more than this."""


def standardised(effect: Effect, *, ratio: bool) -> float | None:
    """The effect in standard deviations of the blocks of one window, with its sign; None without an interval.

    Read back from the interval: its half width is t · s · √(1/kA + 1/kB).

    Args:
        ratio: The effect is one of ratios, whose interval is even in logarithms.
    """
    if effect.low is None or effect.high is None:
        return None
    size, half = effect.relative, (effect.high - effect.low) / 2.0
    if ratio:
        size, half = math.log1p(size), (math.log1p(effect.high) - math.log1p(effect.low)) / 2.0
    blocks = min(effect.blocks_a, effect.blocks_b)
    spread = half / t_quantile(_SHOWN, blocks - 1) / math.sqrt(1.0 / effect.blocks_a + 1.0 / effect.blocks_b)
    if abs(size) < _ROUNDING:
        return 0.0
    if spread <= abs(size) / _LARGEST:
        return math.copysign(_LARGEST, size)
    return size / spread
