"""Whether a difference can be put down to the parameters: what other programs and the hypervisor took beside the arms.
Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean
from typing import Protocol

from pgtop_tune.compare.statistics.switchback import Paired
from pgtop_tune.experiment.attribution import CpuBeside
from pgtop_tune.experiment.attribution import attribution as told_of
from pgtop_tune.experiment.switchback.blocks import Block


class Both(Protocol):
    """A block of either arm."""

    @property
    def a(self) -> Block:
        """Of A."""
        ...

    @property
    def b(self) -> Block:
        """Of B."""
        ...


def attribution(pairs: Sequence[Both], paired: Paired, *, higher_is_better: bool) -> tuple[str, str]:
    """Of pairs of blocks; see `experiment.attribution`."""
    beside = []
    for words, of in (("the hypervisor", _steal), ("others", _foreign)):
        differences = [b - a for pair in pairs if (a := of(pair.a)) is not None and (b := of(pair.b)) is not None]
        points = fmean(differences) if differences else 0.0
        own = [each for pair in pairs if (each := (pair.b if points > 0.0 else pair.a).own_cpu) is not None]
        beside.append(CpuBeside(words, points, max((pair.a.cpus for pair in pairs), default=0), own))
    return told_of(beside, paired.low, paired.high, higher_is_better=higher_is_better)


def of_collapse(a: Sequence[Block], b: Sequence[Block], share: float) -> str:
    """Why a throughput of B that is such a share of A's cannot be put down to the parameters; "" where it can."""
    beside = []
    for words, of in (("the hypervisor", _steal), ("others", _foreign)):
        of_a, of_b = ([value for block in side if (value := of(block)) is not None] for side in (a, b))
        points = fmean(of_b) - fmean(of_a) if of_a and of_b else 0.0
        own = [value for block in (b if points > 0.0 else a) if (value := block.own_cpu) is not None]
        beside.append(CpuBeside(words, points, max((block.cpus for block in (*a, *b)), default=0), own))
    return told_of(beside, share - 1.0, share - 1.0)[0]


def _foreign(block: Block) -> float | None:
    return block.foreign


def _steal(block: Block) -> float | None:
    return block.steal
