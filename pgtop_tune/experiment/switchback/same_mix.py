"""The figure that decides under the load of another program: the time per call of a fixed set of statements with fixed
weights, so that a mix that drifts is no effect. Pure.

Set and weights are those of the first four pairs that count, the calls of both arms together: what comes later does not
change them. A statement that a block did not see called stands there with its mean of those pairs.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from statistics import median
from typing import Final

from msgspec import Struct

from pgtop_tune.compare.sides.statements import Look, mean_ms, summed
from pgtop_tune.compare.statement_rows import ENOUGH_CALLS, SideSums, same_mix
from pgtop_tune.compare.statistics.switchback import FEWEST_PAIRS
from pgtop_tune.experiment.switchback.blocks import BY_CHECKPOINTS, QUICK, Arm, Block, Pair
from pgtop_tune.metrics import sections
from pgtop_tune.metrics.catalogue import Interval
from pgtop_tune.model.absence import Unavailable

LEAST_COVERED: Final = 0.5
"""Of the execution time of all statements: a set with less says too little."""
AT_COMMIT: Final = BY_CHECKPOINTS | {
    "commit_delay",
    "commit_siblings",
    "fsync",
    "synchronous_commit",
    "synchronous_standby_names",
    "wal_sync_method",
    "wal_writer_delay",
    "wal_writer_flush_after",
}
"""Parameters of which a part or all works when a transaction ends: pg_stat_statements counts no time of that."""


class FixedMix(Struct, frozen=True):
    """The fixed set.

    Attributes:
        weights: Calls that weigh each statement, and their time.
        problem: Why it decides nothing; "" where it does.
    """

    weights: Look
    problem: str = ""

    def of(self, block: Block) -> float | None:
        """Milliseconds of a call of the mix; None where the block has no counters of statements."""
        return same_mix(self.weights)(block.statements)


def why_no_mix(names: Collection[str], interval: Interval | None) -> str:
    """Why the same mix cannot decide, in a sentence; "" where it may.

    Args:
        names: Of the parameters under test.
        interval: The newest frames.
    """
    if late := sorted(AT_COMMIT.intersection(names)):
        return f"{', '.join(late)}: part of the effect is at commit, whose time pg_stat_statements does not count"
    if interval is None:
        return "pg_stat_statements was not read"
    for section in (sections.statements, sections.statement_counters):
        reading = section(interval.newest)
        if isinstance(reading, Unavailable):
            return f"pg_stat_statements cannot be read: {reading.detail or reading.reason}"
    return ""


def fixed_mix(pairs: Sequence[Pair]) -> FixedMix:
    """The set that these pairs give; of more than four the first four."""
    first = pairs[:FEWEST_PAIRS]
    if not all(block.statements for pair in first for block in pair.blocks):
        return FixedMix(
            {}, "a block holds no two readings of pg_stat_statements: they are too far apart, or it was reset"
        )
    sums = sums_of(first)
    both = summed(side.whole for side in sums)
    weights = {
        id: counted
        for id, counted in both.items()
        if all(side.whole.get(id, (0, 0.0))[0] >= ENOUGH_CALLS for side in sums)
        # A call that lasts longer than the shortest time to settle began under the other arm.
        and mean_ms(counted) < 1000.0 * QUICK.settle_s
    }
    if not any(ms for _, ms in weights.values()):
        return FixedMix({}, f"no statement has {ENOUGH_CALLS} calls under either arm")
    shares = [share for side in sums if (share := side.covered(weights)) is not None]
    if shares and min(shares) < LEAST_COVERED:
        return FixedMix(
            weights,
            f"statements with enough calls under both arms are only {100.0 * min(shares):.0f} % of the execution time",
        )
    return FixedMix(weights)


def slower_calls(blocks: Sequence[Block], times: float, last: int) -> bool:
    """Whether the last blocks of B took so many times A's median for the mix of A; also where nothing tells.

    Args:
        blocks: In the order of time.
        last: How many of B's.
    """
    of_a, of_b = ([block.statements for block in blocks if block.arm is arm] for arm in Arm)
    mixed = same_mix(summed(of_a))
    a, b = ([value for each in side if (value := mixed(each)) is not None] for side in (of_a, of_b[-last:]))
    return not a or len(b) < last or min(b) >= times * median(a)


def sums_of(pairs: Sequence[Pair]) -> tuple[SideSums, SideSums]:
    """What both arms counted."""
    a, b = ([pair.a for pair in pairs], [pair.b for pair in pairs])
    return _sums(a), _sums(b)


def _sums(blocks: Sequence[Block]) -> SideSums:
    every = [block.statements_ms for block in blocks]
    return SideSums(
        whole=summed(block.statements for block in blocks),
        seconds=sum(block.seconds for block in blocks),
        all_ms=None if None in every else sum(ms for ms in every if ms is not None),
    )
