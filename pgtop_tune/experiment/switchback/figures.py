"""Figures of blocks, and the effect on each: the one that decides, and others, judged together at the end. Pure.

One figure decides. The others are looked at once, at the end: Student's interval of the pairs, and Holm's correction
for all of them. A gain in one that is a loss in another is a trade.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from statistics import fmean, stdev
from typing import Final

from msgspec import Struct

from pgtop_tune.compare.sides.figures import BY_ID, LATENCY, TPS, Better
from pgtop_tune.compare.statistics.effect import Effect, certain_together
from pgtop_tune.compare.statistics.student import t_probability, t_quantile
from pgtop_tune.compare.statistics.switchback import FEWEST_PAIRS, Paired
from pgtop_tune.compare.statistics.verdicts import worded
from pgtop_tune.experiment.switchback.blocks import Block, Pair
from pgtop_tune.metrics.load import P50, P99, Quantile

_LEAST_WAIT: Final = 0.02
"""Share of a transaction's time below which a class of waits is no figure."""
_LEAST_CHANGE: Final = -0.99
"""Of a class of waits that is all of A's latency and gone in B."""
_WAIT: Final = "wait "
_LEAST_SD: Final = 0.001
"""Of log ratios: figures that are read in steps can be alike by chance."""


class FigureEffect(Struct, frozen=True):
    """B against A in one figure.

    Attributes:
        a, b: Means over the blocks.
        relative: B / A − 1, from the mean of the log ratios; of a class of waits (B − A) / latency of A.
        low, high: Its 95 % interval: of the figure that decides at all looks together, of the others at the end alone.
        verdict: In a word or two.
    """

    id: str
    title: str
    unit: str
    better: Better
    a: float
    b: float
    relative: float
    low: float | None
    high: float | None
    verdict: str

    @property
    def of_latency(self) -> bool:
        """Whether the change is a share of A's latency."""
        return self.id.startswith(_WAIT)


class FigureRow(Struct, frozen=True):
    """A figure of a block."""

    id: str
    title: str
    unit: str
    better: Better
    of: Callable[[Block], float | None]


def ratios_of(of: Callable[[Block], float | None], pairs: Sequence[Pair]) -> list[float]:
    """ln(B/A) of the pairs that have both."""
    values = ((of(pair.a), of(pair.b)) for pair in pairs)
    return [math.log(b / a) for a, b in values if a and b and a > 0.0 and b > 0.0]


def decided(row: FigureRow, paired: Paired, a: Sequence[Block], b: Sequence[Block]) -> FigureEffect:
    """The figure that decides, with what its pairs say and its means over the blocks of either arm."""
    return _figure(row, (a, b), paired.relative, (paired.low, paired.high), paired.verdict.value)


def _figure(
    row: FigureRow,
    blocks: tuple[Sequence[Block], Sequence[Block]],
    relative: float,
    interval: tuple[float | None, float | None],
    said: str,
) -> FigureEffect:
    return FigureEffect(
        id=row.id,
        title=row.title,
        unit=row.unit,
        better=row.better,
        a=_mean(row.of, blocks[0]),
        b=_mean(row.of, blocks[1]),
        relative=relative,
        low=interval[0],
        high=interval[1],
        verdict=said,
    )


def _mean(of: Callable[[Block], float | None], blocks: Sequence[Block]) -> float:
    values = [value for block in blocks if (value := of(block)) is not None]
    return fmean(values) if values else 0.0


def together(
    figures: Sequence[tuple[FigureRow, Sequence[float], Sequence[Block], Sequence[Block]]],
) -> tuple[FigureEffect, ...]:
    """Other figures, looked at once and judged together.

    Args:
        figures: Of each ln(B/A) of the pairs, or its change as `waits_of` has it, and the blocks of both arms.
    """
    effects = {row.id: effect for row, ratios, _, _ in figures if (effect := student(ratios)) is not None}
    certain = certain_together({name: effect.chance or 0.0 for name, effect in effects.items()})
    found = []
    for row, _, a, b in figures:
        if (effect := effects.get(row.id)) is not None:
            said = worded(effect, row.better, row.id in certain, comparable=True, decisive=True)
            found.append(_figure(row, (a, b), effect.relative, (effect.low, effect.high), said))
    return tuple(found)


def student(ratios: Sequence[float]) -> Effect | None:
    """Of the pairs as one sample; None below four."""
    count = len(ratios)
    if count < FEWEST_PAIRS:
        return None
    mean = fmean(ratios)
    error = max(stdev(ratios), _LEAST_SD) / math.sqrt(count)
    half = t_quantile(0.975, count - 1) * error
    return Effect(
        relative=math.expm1(mean),
        low=math.expm1(mean - half),
        high=math.expm1(mean + half),
        blocks_a=count,
        blocks_b=count,
        block_s=1,
        smallest_seen=None,
        chance=2.0 * t_probability(-abs(mean) / error, count - 1),
    )


def _quantile(name: str, quantile: Quantile) -> FigureRow:
    return FigureRow(name, BY_ID[name].title, BY_ID[name].unit, Better.LOWER, lambda block: block.quantile(quantile))


def _sum(name: str) -> FigureRow:
    return FigureRow(name, BY_ID[name].title, BY_ID[name].unit, BY_ID[name].better, lambda block: block.figure(name))


_CPU: Final = FigureRow(
    "cpu_per_tx", BY_ID["cpu_per_tx"].title, BY_ID["cpu_per_tx"].unit, Better.LOWER, lambda block: block.own_cpu_ms
)


def waits_of(pairs: Sequence[Pair]) -> list[tuple[FigureRow, list[float]]]:
    """Classes of waits that are a noticeable part of a transaction's time, with their change in each pair.

    The change is ln(1 + (B − A) / latency of A): a class may be gone under one arm, and has no ratio then. It is no aim
    by itself: where one wait goes, clients meet at the next.
    """
    told = [pair for pair in pairs if pair.a.waits and pair.b.waits]
    blocks = [block for pair in told for block in pair.blocks]
    whole = sum(sum(block.waits.values()) for block in blocks)
    classes = dict.fromkeys(name for block in blocks for name in block.waits)
    return [
        (_wait(name), [_share_of_latency(name, pair) for pair in told])
        for name in classes
        if name != "other" and sum(block.waits.get(name, 0.0) for block in blocks) >= _LEAST_WAIT * whole > 0.0
    ]


def _wait(name: str) -> FigureRow:
    def of(block: Block) -> float | None:
        return block.waits.get(name, 0.0) if block.waits else None

    return FigureRow(f"{_WAIT}{name}", f"budget {name}", "ms", Better.NEITHER, of)


def _share_of_latency(name: str, pair: Pair) -> float:
    change_ms = pair.b.waits.get(name, 0.0) - pair.a.waits.get(name, 0.0)
    return math.log1p(max(change_ms / math.fsum(pair.a.waits.values()), _LEAST_CHANGE))


MAIN: Final = {
    TPS: FigureRow(TPS, BY_ID[TPS].title, BY_ID[TPS].unit, Better.HIGHER, lambda block: block.mean_tps),
    LATENCY: _sum(LATENCY),
}
"""Figures that can decide."""
BESIDE: Final = (_quantile("p50", P50), _quantile("p99", P99), _sum("wal_per_tx"), _CPU)
"""Figures that are judged besides."""


def trade_of(main: FigureEffect, others: Sequence[FigureEffect]) -> str:
    """The main figure and what went the other way; "" where nothing did."""
    against = {"better": "worse", "worse": "better"}.get(main.verdict)
    paid = [effect for effect in others if effect.verdict == against and effect.better is not Better.NEITHER]
    if not paid:
        return ""
    return ", ".join(f"{effect.title} {effect.relative:+.1%}".replace("%", " %") for effect in (main, *paid))
