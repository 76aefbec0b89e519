"""Many runs of one baseline: each figure over time, and where its level changed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from msgspec import Struct

from pgtop_tune.compare.baselines.baselines import Kept
from pgtop_tune.compare.sides.figures import BY_ID, Better, Figure
from pgtop_tune.compare.statistics.change_points import ChangePoint, change_points

FOLLOWED: Final = ("tps", "p50", "p95", "p99", "latency", "cpu_per_tx", "wal_per_tx")
MOST_RUNS: Final = 100
"""The newest that are looked at: the search takes the third power of them."""


class LevelChange(Struct, frozen=True):
    """A figure of a load that has another level since a run.

    Attributes:
        since: The first run of the new level.
        verdict: better or worse.
    """

    load: str
    figure: Figure
    point: ChangePoint
    since: Kept
    verdict: str


def changes(kept: Sequence[Kept]) -> tuple[LevelChange, ...]:
    """Changes of level in the order of time, of every load and figure that is followed."""
    kept = kept[-MOST_RUNS:]
    found = []
    for load in dict.fromkeys(load for run in kept for load in run.loads):
        for name in FOLLOWED:
            runs = [run for run in kept if name in run.loads.get(load, {})]
            for point in change_points([run.loads[load][name] for run in runs], len(FOLLOWED)):
                figure = BY_ID[name]
                better = (point.relative > 0) == (figure.better is Better.HIGHER)
                found.append(
                    LevelChange(
                        load=load,
                        figure=figure,
                        point=point,
                        since=runs[point.at],
                        verdict="better" if better else "worse",
                    )
                )
    return tuple(sorted(found, key=lambda change: change.since.began_ms))
