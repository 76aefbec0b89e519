"""The noise floor of the load that runs, as `experiment noise` has measured it, and what a time shows beside it."""

from __future__ import annotations

import math
from typing import Final

from msgspec import Struct

from pgtop_tune.base.units import duration
from pgtop_tune.compare.noise.fingerprint import fingerprint_of
from pgtop_tune.compare.noise.store import NoiseFloor, known_noise
from pgtop_tune.compare.sides.facts import FactsSeen
from pgtop_tune.compare.sides.from_recording import key_of
from pgtop_tune.compare.statistics.switchback import FEWEST_PAIRS, MOST_PAIRS, bound
from pgtop_tune.experiment.noise_floor import pairs_needed
from pgtop_tune.model.bench import BenchRun
from pgtop_tune.model.frame import Frame

_TWICE: Final = 1.0
"""A difference, as a share: a time that does not even show such a one is no time for an experiment."""


def known_floor(frame: Frame, run: BenchRun) -> NoiseFloor | None:
    """Of this machine and load; None where it was never measured. Blocking.

    Args:
        frame: The newest, for machine, server and data.
    """
    seen = FactsSeen()
    seen.take(frame)
    known = known_noise(fingerprint_of(seen.found(()), key_of(run), tuple(filter(None, run.script_hashes))))
    return None if known is None else known.floor


class SeenInTime(Struct, frozen=True):
    """What pairs of blocks show in a time.

    Attributes:
        words: In a sentence.
        needed_s: What an experiment needs where the time shows not even twice as much; None where it does, and where
            the most pairs do not suffice.
        hopeless: Whether the time shows not even twice as much.
    """

    words: str
    needed_s: float | None = None
    hopeless: bool = False


def seen_in(floor: NoiseFloor, for_s: float, pair_s: float, quick_s: float) -> SeenInTime:
    """The smallest difference that the always-valid interval of so many pairs excludes. Pure.

    Args:
        for_s: For pairs.
        pair_s: Of one.
        quick_s: Of one with a large effect that is there at once.
    """
    differ = f"pairs of blocks of this load differ by {100.0 * floor.pair_sd:.1f} %"
    if _smallest(floor, for_s, quick_s) < _TWICE:
        shown = f"{duration(for_s)} shows differences from {100.0 * _smallest(floor, for_s, pair_s):.1f} % on"
        return SeenInTime(f"noise known: {differ}; {shown}")
    needed = pairs_needed(floor.pair_sd, _TWICE)
    return SeenInTime(
        words=f"{differ}, and {duration(for_s)} would not even show twice the throughput",
        needed_s=None if needed is None else needed * quick_s,
        hopeless=True,
    )


def _smallest(floor: NoiseFloor, for_s: float, pair_s: float) -> float:
    pairs = min(max(int(for_s / pair_s), FEWEST_PAIRS), MOST_PAIRS)
    return math.expm1(bound(pairs, 0.05) * floor.pair_sd / math.sqrt(pairs))
