"""Whether the load of an experiment is steady by now. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pgtop_tune.metrics.steady_state import steady_state
from pgtop_tune.model.run_result import SteadyState

_NOISE: Final = 0.5
"""A drift as large as this may hide in it."""
_WINDOWS: Final = (120, 60, 40, 30, 20)
"""Newest seconds that are looked at, besides all of them: what was before is the warm-up."""


def newest_steady(seconds: Sequence[float]) -> SteadyState:
    """Whether all seconds, or the newest of them, show no drift beyond their noise; else why all of them do.

    The noise may be larger than that of a single run: pairs of blocks are compared, and a coin orders them.
    """
    whole = steady_state(seconds, _NOISE)
    newest = (steady_state(seconds[-window:], _NOISE) for window in _WINDOWS if window < len(seconds))
    return whole if whole.steady else next((found for found in newest if found.steady), whole)
