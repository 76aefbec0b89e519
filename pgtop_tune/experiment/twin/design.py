"""The design of a twin: who runs on which half of the CPUs, which copy has which settings, and what is compared. Pure.

Both arms run at once, so that noise which reaches both cancels: d = ln(TPS of B / TPS of A) of the same seconds. What
belongs to a place and not to the settings is exchanged, and cancels in the mean:

- the halves of the CPUs, every second: a neighbour that takes one CPU for longer hits both arms alike. A pair has a
  block that begins on either half; a coin decides with which;
- the copies, between two stages: both servers restart with the other's settings.

A unit is a pair of one stage and a pair of the other. The judge sees units only (`compare.statistics.switchback`).
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Sequence
from statistics import fmean
from typing import Final

from msgspec import Struct

from pgtop_tune.compare.statistics.switchback import FEWEST_PAIRS
from pgtop_tune.errors import UsageProblem
from pgtop_tune.experiment.switchback.blocks import Arm, Block
from pgtop_tune.units import duration

MEASURED_S: Final = 10.0
EXCHANGE_S: Final = 1.0
"""Caches of CPUs fill in milliseconds."""
BETWEEN_S: Final = 0.5
WARM_UP_S: Final = 20.0
"""After a start, at least: caches are cold."""
RESTART_S: Final = 10.0
"""What exchanging the settings takes beside the warm-up, roughly."""


class TwinLengths(Struct, frozen=True):
    """Seconds.

    Attributes:
        measured_s: Of a block.
        exchange_s: Between two exchanges of the halves, about.
        warm_up_s: Left out after a start, at least: until both loads are steady.
    """

    measured_s: float = MEASURED_S
    exchange_s: float = EXCHANGE_S
    warm_up_s: float = WARM_UP_S

    @property
    def parts(self) -> int:
        """Of a block, between exchanges: an even number, so that either arm has either half for as long."""
        return 2 * max(round(self.measured_s / self.exchange_s / 2.0), 1)

    @property
    def pair_s(self) -> float:
        """Of a pair, with what is between its blocks."""
        return 2.0 * (self.measured_s + BETWEEN_S)

    @property
    def stage_s(self) -> float:
        """What a stage takes before its first pair."""
        return self.warm_up_s + RESTART_S

    @property
    def least_s(self) -> float:
        """The shortest experiment that can end with a verdict: two stages of the fewest pairs."""
        return 2.0 * (self.stage_s + FEWEST_PAIRS * self.pair_s)


class Moment(Struct, frozen=True):
    """Both arms in the same seconds.

    Attributes:
        swapped: A begins on the second half of the CPUs.
    """

    a: Block
    b: Block
    swapped: bool

    def ratio(self, of: Callable[[Block], float | None]) -> float | None:
        """ln(B/A) of a figure; None where one has none."""
        a, b = of(self.a), of(self.b)
        return math.log(b / a) if a and b and a > 0.0 and b > 0.0 else None


class TwinPair(Struct, frozen=True):
    """Two blocks, begun on either half of the CPUs.

    Attributes:
        number: From 1.
        crossed: A is the second copy.
    """

    number: int
    crossed: bool
    moments: tuple[Moment, Moment]

    def ratio(self, of: Callable[[Block], float | None]) -> float | None:
        """Mean of both moments: what belongs to a half of the CPUs cancels."""
        return mean_of([moment.ratio(of) for moment in self.moments])

    @property
    def blocks(self) -> tuple[Block, ...]:
        """In the order of time."""
        return tuple(block for moment in self.moments for block in (moment.a, moment.b))

    @property
    def spoiled(self) -> str:
        """Why it does not count; "" where it does."""
        for block in self.blocks:
            if block.spoiled:
                return block.spoiled
            if block.mean_tps <= 0.0:
                return f"no transaction ended in {block.arm}"
        return ""


class Unit(Struct, frozen=True):
    """A pair of either stage: what belongs to a copy cancels as well."""

    plain: TwinPair
    crossed: TwinPair

    def ratio(self, of: Callable[[Block], float | None]) -> float | None:
        """ln(B/A) of a figure."""
        return mean_of([self.plain.ratio(of), self.crossed.ratio(of)])

    def blocks(self, arm: Arm) -> tuple[Block, ...]:
        """The four of an arm."""
        moments = (*self.plain.moments, *self.crossed.moments)
        return tuple(moment.a if arm is Arm.A else moment.b for moment in moments)


def mean_of(values: Sequence[float | None]) -> float | None:
    """None where one is missing."""
    known = [value for value in values if value is not None]
    return fmean(known) if known and len(known) == len(values) else None


def units(counted: Sequence[TwinPair]) -> tuple[Unit, ...]:
    """Pairs that count, joined in the order of time: the first of either stage, the second, and so on."""
    plain = [pair for pair in counted if not pair.crossed]
    crossed = [pair for pair in counted if pair.crossed]
    return tuple(Unit(*both) for both in zip(plain, crossed, strict=False))


def check_time(for_s: float, lengths: TwinLengths) -> None:
    """Raises a UsageProblem where the time does not suffice for a verdict."""
    if for_s < lengths.least_s:
        raise UsageProblem(
            f"{duration(for_s)} is too short for a verdict",
            f"two stages of four pairs of blocks take {duration(lengths.least_s)} at least: pass --for 10m",
        )


def begins_swapped(seed: int) -> Iterator[bool]:
    """Whether A begins a pair on the second half: a coin decides."""
    coin = random.Random(seed)
    while True:
        yield coin.random() < 0.5


def stage_pairs(remaining_s: float, lengths: TwinLengths, *, fresh: bool) -> int:
    """Pairs of the next stage, so that as many fit into the one after it.

    Args:
        remaining_s: For both.
        fresh: The servers were just made, and warm up first.
    """
    for_pairs = remaining_s - lengths.stage_s - (lengths.warm_up_s if fresh else 0.0)
    return max(int(for_pairs / 2.0 / lengths.pair_s), 0)


def cpu_halves(allowed: Sequence[int], cores: Callable[[int], tuple[int, ...]]) -> tuple[tuple[int, ...], ...]:
    """Two halves of the CPUs, each of as many whole cores; () where there are less than two cores.

    With an odd number the last core is left to others.

    Args:
        allowed: That we may use.
        cores: Hardware threads of the core that a CPU is of.
    """
    may = set(allowed)
    whole = list(dict.fromkeys(tuple(cpu for cpu in sorted(cores(cpu)) if cpu in may) for cpu in sorted(may)))
    half = len(whole) // 2
    if not half:
        return ()
    return tuple(tuple(cpu for core in part for cpu in core) for part in (whole[:half], whole[half : 2 * half]))
