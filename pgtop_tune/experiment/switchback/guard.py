"""When an experiment stops at once: two blocks of B in a row that do harm. No statistics: a guard. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import fmean, median
from typing import Final

from pgtop_tune.compare.sides.figures import FAILED, LATENCY, TPS
from pgtop_tune.compare.statement_rows import SAME_MIX
from pgtop_tune.experiment.switchback.blocks import Arm, Block
from pgtop_tune.experiment.switchback.same_mix import slower_calls

_LOW: Final = 0.5
_LONG: Final = 2.0
_FAILED_POINTS: Final = 5.0
"""Per cent of transactions that fail under B and not under A."""
_IN_A_ROW: Final = 2


def why_stopped(blocks: Sequence[Block], objective: str = TPS) -> str:
    """What B does to the load, in words; "" where the experiment may go on.

    Args:
        blocks: In the order of time.
        objective: The figure that decides; a load that is judged by latency has a rate, and keeps its throughput.
    """
    share = collapsed(blocks, objective)
    if share is not None:
        return f"B ran at {share:.0%} of A".replace("%", " %")
    if objective == LATENCY and (found := _last_and_usual(blocks, lambda block: block.figure(LATENCY))) is not None:
        last, usual = found
        if min(last) >= _LONG * max(usual) > 0.0:
            return f"latency under B is {fmean(last) / median(usual):.1f} times that under A"
    if (found := _last_and_usual(blocks, lambda block: block.figure(FAILED) or 0.0)) is not None:
        last, usual = found
        if min(last) >= max(usual) + _FAILED_POINTS:
            return f"{fmean(last):.0f} % of the transactions under B fail"
    return ""


def collapsed(blocks: Sequence[Block], objective: str = TPS) -> float | None:
    """Throughput of B as a share of A's where its last two blocks were below half of A's around them; else None.

    Args:
        blocks: In the order of time.
        objective: Of the same mix of statements calls must take twice as long, too: a foreign load may go away.
    """
    found = _last_and_usual(blocks, lambda block: block.mean_tps)
    if found is None:
        return None
    last, usual = found
    if max(last) >= _LOW * min(usual):
        return None
    if objective == SAME_MIX and not slower_calls(blocks, 1.0 / _LOW, _IN_A_ROW):
        return None
    return fmean(last) / median(usual)


def _last_and_usual(
    blocks: Sequence[Block], of: Callable[[Block], float | None]
) -> tuple[list[float], list[float]] | None:
    """A figure of B's last two blocks, and of A's around them; None where there are too few.

    One of these blocks of A comes after the first of B's two: a load that slumps by itself slumps there, too.
    """
    places = [place for place, block in enumerate(blocks) if block.arm is Arm.B][-_IN_A_ROW:]
    if len(places) < _IN_A_ROW:
        return None
    before = [block for block in blocks[: places[0]] if block.arm is Arm.A][-1:]
    after = [block for block in blocks[places[0] :] if block.arm is Arm.A]
    last = [value for place in places if (value := of(blocks[place])) is not None]
    usual = [value for block in (*before, *after) if (value := of(block)) is not None]
    return (last, usual) if after and usual and len(last) == _IN_A_ROW else None
