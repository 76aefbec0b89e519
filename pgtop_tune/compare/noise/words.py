"""What is known of the noise of a load, in one line for plans and experiments."""

from __future__ import annotations

import math

from pgtop_tune.base import units
from pgtop_tune.compare.noise.store import KnownNoise


def known_words(known: KnownNoise | None) -> str:
    """ "noise known since 2026-11-23 19:39: runs differ by 3.1 %, pairs of 10 s blocks by 2.4 %"; "" without any."""
    if known is None:
        return ""
    spread, floor = known.spread("tps"), known.floor
    parts = []
    if spread.degrees:
        parts.append(f"runs differ by {100 * math.sqrt(spread.squares / spread.degrees):.1f} %")
    if floor is not None:
        parts.append(f"pairs of 10 s blocks by {100 * floor.pair_sd:.1f} %")
    if not parts:
        return ""
    return f"noise known since {units.wall_moment(known.at_ms)}: {', '.join(parts)}"
