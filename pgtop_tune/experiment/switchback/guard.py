"""When an experiment stops at once: two blocks of B in a row that do harm. No statistics: a guard. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import fmean, median
from typing import Final

from msgspec import Struct

from pgtop_tune.compare.sides.figures import FAILED, LATENCY, TPS
from pgtop_tune.compare.statement_rows import SAME_MIX
from pgtop_tune.experiment.attribution import Surroundings, attribution
from pgtop_tune.experiment.switchback.blocks import Arm, Block
from pgtop_tune.experiment.switchback.same_mix import slower_calls

_LOW: Final = 0.5
_LONG: Final = 2.0
_FAILED_POINTS: Final = 5.0
"""Per cent of transactions that fail under B and not under A."""
_IN_A_ROW: Final = 2
_USUAL: Final = 10
"""Blocks of A before them: the worst of these shows what happens under A, too."""


class Harm(Struct, frozen=True):
    """What B does to the load.

    Attributes:
        words: The reason of the ending.
        unattributable: Why that cannot be put down to the parameters; "" where it can.
    """

    words: str
    unattributable: str = ""


class Collapse(Struct, frozen=True):
    """Two blocks of B in a row below half of each of A.

    Attributes:
        share: Throughput of B, of A's.
        unattributable: Why that cannot be put down to the parameters; "" where it can.
    """

    share: float
    unattributable: str

    @property
    def words(self) -> str:
        """The reason of the ending."""
        return _stopped(f"B ran at {100.0 * self.share:.0f} % of A", self.unattributable)


def harm(blocks: Sequence[Block], objective: str = TPS) -> Harm | None:
    """The harm for which the experiment stops; None where it may go on.

    Args:
        blocks: In the order of time.
        objective: The figure that decides; a load that is judged by latency has a rate, and keeps its throughput.
    """
    if (collapse := collapsed(blocks, objective)) is not None:
        return Harm(collapse.words, collapse.unattributable)
    if objective == LATENCY and (found := _last_and_usual(blocks, lambda block: block.figure(LATENCY))) is not None:
        last, usual = found
        if min(last.values) >= _LONG * max(usual.values) > 0.0:
            times = fmean(last.values) / median(usual.values)
            because = _because(usual.blocks, last.blocks, 1.0 / times)
            return Harm(_stopped(f"latency under B is {times:.1f} times that under A", because), because)
    if (found := _last_and_usual(blocks, lambda block: block.figure(FAILED) or 0.0)) is not None:
        last, usual = found
        if min(last.values) >= max(usual.values) + _FAILED_POINTS:
            return Harm(_stopped(f"{fmean(last.values):.0f} % of the transactions under B fail"))
    return None


def _stopped(words: str, unattributable: str = "") -> str:
    return f"stopped: {words}{f'; {unattributable}' if unattributable else ''}"


def collapsed(blocks: Sequence[Block], objective: str = TPS) -> Collapse | None:
    """Where B's last two blocks were below half of each of A's before and among them; else None.

    Args:
        blocks: In the order of time.
        objective: Of the same mix of statements calls must take twice as long, too: a foreign load may go away.
    """
    found = _last_and_usual(blocks, lambda block: block.mean_tps)
    if found is None:
        return None
    last, usual = found
    if max(last.values) >= _LOW * min(usual.values):
        return None
    if objective == SAME_MIX and not slower_calls(blocks, 1.0 / _LOW, _IN_A_ROW):
        return None
    share = fmean(last.values) / median(usual.values)
    return Collapse(share, _because(usual.blocks, last.blocks, share))


def _because(usual: Sequence[Block], last: Sequence[Block], share: float) -> str:
    """Why a figure of B that is such a share of A's cannot be put down to the parameters; "" where it can."""
    return attribution(_seen(usual), _seen(last), share - 1.0, share - 1.0)[0]


def _seen(blocks: Sequence[Block]) -> list[Surroundings]:
    return [block.surroundings for block in blocks]


class _Of(Struct, frozen=True):
    """Blocks that have a figure, and its values."""

    blocks: list[Block]
    values: list[float]


def _last_and_usual(blocks: Sequence[Block], of: Callable[[Block], float | None]) -> tuple[_Of, _Of] | None:
    """A figure of B's last two blocks, and of A's before and among them; None where there are too few.

    One of these blocks of A comes after the first of B's two: a load that slumps by itself slumps there, too. One that
    goes up and down by itself did so within the blocks of A before. Blocks that do not count are left out.
    """
    counted = [block for block in blocks if not block.spoiled]
    places = [place for place, block in enumerate(counted) if block.arm is Arm.B][-_IN_A_ROW:]
    if len(places) < _IN_A_ROW:
        return None
    before = [block for block in counted[: places[0]] if block.arm is Arm.A][-_USUAL:]
    after = [block for block in counted[places[0] :] if block.arm is Arm.A]
    last, usual = _with(of, [counted[place] for place in places]), _with(of, [*before, *after])
    return (last, usual) if after and usual.values and len(last.values) == _IN_A_ROW else None


def _with(of: Callable[[Block], float | None], blocks: Sequence[Block]) -> _Of:
    known = [(block, value) for block in blocks if (value := of(block)) is not None]
    return _Of([block for block, _ in known], [value for _, value in known])
