"""What an experiment takes: time and disk, with the arithmetic. Pure.

Known figures: pgbench makes a unit of scale in about a second (1037 s for scale 1000 on a disk of 90 MB/s), the bytes
are those of `bench init`, a restart takes some 10 s, what surrounds a run (vacuum, checkpoint, quiet) some 12 s.
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from pgtop_tune.base.units import about, counted, duration
from pgtop_tune.experiment.plan.amounts import scale_bytes
from pgtop_tune.experiment.plan.model import BoundPlan, Limits, Stage

MAKE_S_PER_SCALE: Final = 1.0
RESTART_S: Final = 10.0
AROUND_RUN_S: Final = 12.0
AROUND_BARE_RUN_S: Final = 3.0
RELOAD_S: Final = 1.0
_SPARE: Final = 1.1
JUDGED_S: Final = 30
"""A shorter run is shown and not judged."""
ONCE: Final = "each cell runs once: a drift of the machine looks like an effect; --repeats 4 tells them apart"


class Estimate(Struct, frozen=True, kw_only=True):
    """What it takes.

    Attributes:
        runs: Cells that can run.
        restarts: Of the server.
        run_s, make_s, restart_s: Seconds by kind; run_s includes warm-up and what surrounds a run.
        disk_bytes: At the most.
    """

    runs: int
    restarts: int
    run_s: float
    make_s: float
    restart_s: float
    disk_bytes: int

    @property
    def seconds(self) -> float:
        """All together."""
        return self.run_s + self.make_s + self.restart_s

    @property
    def words(self) -> str:
        """With the arithmetic."""
        return (
            f"{duration(self.seconds)}: {counted(self.runs, 'run')} {duration(self.run_s)}, "
            f"data sets {duration(self.make_s)}, "
            f"{counted(self.restarts, 'restart')} and reloads {duration(self.restart_s)}"
        )


def estimate(plan: BoundPlan, max_wal_bytes: int, stages: tuple[Stage, ...] | None = None) -> Estimate:
    """Of a plan.

    Args:
        plan: The plan.
        max_wal_bytes: What WAL may take beside the data.
        stages: What is left of it; None is all.
    """
    left = plan.stages if stages is None else stages
    arms = {arm.name: arm for arm in plan.arms}
    possible = [stage for stage in left if not arms[stage.arm].impossible]
    runs = sum(not cell.impossible for stage in possible for cell in stage.cells)
    around_s = AROUND_RUN_S if plan.housekeeping else AROUND_BARE_RUN_S
    restarts = 2 * sum(arms[stage.arm].restart for stage in possible)
    reloads = 2 * sum(arms[stage.arm].changes and not arms[stage.arm].restart for stage in possible)
    largest = max((stage.scale for stage in left), default=0)
    made_bytes = scale_bytes(largest)
    return Estimate(
        runs=runs,
        restarts=restarts,
        run_s=runs * (plan.time_s + plan.warm_up_s + around_s),
        make_s=sum(stage.scale * MAKE_S_PER_SCALE for stage in possible if stage.make_data),
        restart_s=restarts * RESTART_S + reloads * RELOAD_S,
        disk_bytes=round((made_bytes + min(made_bytes, max_wal_bytes)) * _SPARE),
    )


def refusals(found: Estimate, limits: Limits, free_bytes: int | None) -> tuple[str, ...]:
    """Why a plan does not fit, with the arithmetic.

    Args:
        found: What it takes.
        limits: Of the plan.
        free_bytes: Of the disk of the data; None where it is not known.
    """
    words = []
    if limits.time_s is not None and found.seconds > limits.time_s:
        words.append(f"it takes {found.words}; the limit is {duration(limits.time_s)}")
    if limits.disk_bytes is not None and found.disk_bytes > limits.disk_bytes:
        words.append(f"it takes {about(found.disk_bytes)} of disk; the limit is {about(limits.disk_bytes)}")
    if free_bytes is not None and found.disk_bytes > free_bytes:
        words.append(f"it takes {about(found.disk_bytes)} of disk, and {about(free_bytes)} are free")
    return tuple(words)
