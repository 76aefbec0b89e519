"""What the pairs of a switchback say: which of them count, the effect on each figure, and whether it can be put down
to the parameters. Pure; the judge is `compare.statistics.switchback`.

One figure decides: TPS, or the mean latency of a load with a rate. The others are looked at once, at the end: Student's
interval of the pairs, and Holm's correction for all of them. A gain in one that is a loss in another is a trade.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from statistics import fmean, median, stdev
from typing import Final

from msgspec import Struct

from pgtop_tune.compare.sides.figures import BY_ID, LATENCY, TPS, Better
from pgtop_tune.compare.statistics.effect import Effect, certain_together, verdict
from pgtop_tune.compare.statistics.student import t_probability, t_quantile
from pgtop_tune.compare.statistics.switchback import (
    FEWEST_PAIRS,
    CrossCheck,
    Paired,
    builds_up,
    cross_check,
    decide,
)
from pgtop_tune.experiment.switchback.blocks import Arm, Block, Pair
from pgtop_tune.metrics.load import P50, P99, Quantile

FOREIGN_POINTS: Final = 5.0
"""Of all CPU time: others that take so much more beside one arm make no difference attributable."""
_CHECKPOINT: Final = 0.2
"""Of the time: arms with shares under a checkpoint that differ by more hold the edge of one."""
_FIRST: Final = 8
_LOOKS: Final = (4, 6, 8)
"""Pairs with the same lengths at which it is tested whether the effect still builds up."""
_LOW: Final = 0.5
_IN_A_ROW: Final = 2
_GRANTED: Final = 2.0
"""Times the CPU time that others took more of."""
_LEAST_WAIT: Final = 0.02
"""Share of a transaction's time below which a class of waits is no figure."""
_LEAST_SD: Final = 0.001
"""Of log ratios: figures that are read in steps can be alike by chance."""


class FigureEffect(Struct, frozen=True):
    """B against A in one figure.

    Attributes:
        a, b: Means over the blocks.
        relative: B / A − 1, from the mean of the log ratios.
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


class Evaluation(Struct, frozen=True):
    """After some pairs.

    Attributes:
        paired: What the judge says of the figure that decides.
        main: The same as a figure.
        others: Other figures, secondary; none before the end.
        counted: Numbers of the pairs that count.
        left_out: (number, why) of the others.
        checkpoints_kept: Half of the first eight pairs held the edge of a checkpoint: such pairs count.
        unattributable: Why a difference cannot be put down to the parameters; "" where it can.
        beside: What differed between the arms and does not explain the effect; "" for nothing.
        generator: Why the load generator is the limit; "" where it is not.
        slow: The effect builds up more slowly than it was let settle: its figure is too small.
        trade: A gain that is a loss in another figure, in words; "" where there is none.
        check: The same pairs without the model; None below four, and before the end.
    """

    paired: Paired
    main: FigureEffect
    others: tuple[FigureEffect, ...]
    counted: tuple[int, ...]
    left_out: tuple[tuple[int, str], ...]
    checkpoints_kept: bool = False
    unattributable: str = ""
    beside: str = ""
    generator: str = ""
    slow: bool = False
    trade: str = ""
    check: CrossCheck | None = None

    @property
    def over(self) -> bool:
        """Whether there is a verdict that may be told."""
        return self.paired.over and not self.unattributable


class FigureRow(Struct, frozen=True):
    """A figure of a block."""

    id: str
    title: str
    unit: str
    better: Better
    of: Callable[[Block], float | None]


def evaluate(pairs: Sequence[Pair], objective: str = TPS, *, final: bool = False) -> Evaluation:
    """What these pairs say.

    Args:
        pairs: In the order of time; at least one.
        objective: The figure that decides: TPS, or the mean latency of a load with a rate.
        final: Nothing follows: the pairs are checked without the model as well, which takes longer.
    """
    counted, left_out, kept = _counted(pairs)
    row = MAIN[objective]
    ratios = _ratios(row.of, counted)
    paired = decide(ratios, higher_is_better=row.better is not Better.LOWER)
    blocks = [pair.a for pair in counted], [pair.b for pair in counted]
    main = decided(row, paired, *blocks)
    rows = (*BESIDE, *_waits(counted)) if final else ()
    others = together([(each, _ratios(each.of, counted), *blocks) for each in rows])
    unattributable, beside = _attribution(counted, paired)
    return Evaluation(
        paired=paired,
        main=main,
        others=others,
        counted=tuple(pair.number for pair in counted),
        left_out=left_out,
        checkpoints_kept=kept,
        unattributable=unattributable,
        beside=beside,
        generator=_generator(counted),
        slow=still_builds_up(pairs),
        trade=trade_of(main, others),
        check=cross_check(ratios) if final and len(ratios) >= FEWEST_PAIRS else None,
    )


def _counted(pairs: Sequence[Pair]) -> tuple[tuple[Pair, ...], tuple[tuple[int, str], ...], bool]:
    """Those that count; number and reason of the others; whether pairs with the edge of a checkpoint count."""
    kept = sum(map(_at_an_edge, pairs[:_FIRST])) >= _FIRST // 2 and len(pairs) >= _FIRST
    counted, left_out = [], []
    for pair in pairs:
        why = pair.spoiled
        if not why and pair.superseded:
            why = "the effect had not settled"
        if not why and not kept and _at_an_edge(pair):
            why = "a checkpoint began or ended within"
        if why:
            left_out.append((pair.number, why))
        else:
            counted.append(pair)
    return tuple(counted), tuple(left_out), kept


def _at_an_edge(pair: Pair) -> bool:
    a, b = pair.a.checkpoint, pair.b.checkpoint
    return a is not None and b is not None and abs(a - b) > _CHECKPOINT


def _ratios(of: Callable[[Block], float | None], pairs: Sequence[Pair]) -> list[float]:
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
        figures: Of each ln(B/A) of the pairs, and the blocks of both arms.
    """
    effects = {row.id: effect for row, ratios, _, _ in figures if (effect := _student(ratios)) is not None}
    certain = certain_together({name: effect.chance or 0.0 for name, effect in effects.items()})
    found = []
    for row, _, a, b in figures:
        if (effect := effects.get(row.id)) is not None:
            said = verdict(effect, higher_is_better=row.better is Better.HIGHER, certain=row.id in certain)
            found.append(_figure(row, (a, b), effect.relative, (effect.low, effect.high), said.value))
    return tuple(found)


def _student(ratios: Sequence[float]) -> Effect | None:
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


def _waits(pairs: Sequence[Pair]) -> list[FigureRow]:
    """Classes of waits that are a noticeable part of a transaction's time."""
    blocks = [block for pair in pairs for block in pair.blocks]
    whole = sum(sum(block.waits.values()) for block in blocks)
    classes = dict.fromkeys(name for block in blocks for name in block.waits)
    return [
        _wait(name)
        for name in classes
        if name != "other" and sum(block.waits.get(name, 0.0) for block in blocks) >= _LEAST_WAIT * whole > 0.0
    ]


def _wait(name: str) -> FigureRow:
    return FigureRow(f"wait {name}", f"budget {name}", "ms", Better.LOWER, lambda block: block.waits.get(name))


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


def _attribution(pairs: Sequence[Pair], paired: Paired) -> tuple[str, str]:
    """Why a difference cannot be put down to the parameters, and, where it can all the same, a remark; each may be "".

    On a full machine other programs get more CPU time beside the arm that uses less of it. The difference is still
    attributable where it is beyond what that time could have given: in proportion to the load's own, and as much again
    for those who wait for a session that waits for a CPU.
    """
    for words, of in (("the hypervisor", _steal), ("others", _foreign)):
        differences = [b - a for pair in pairs if (a := of(pair.a)) is not None and (b := of(pair.b)) is not None]
        points = fmean(differences) if differences else 0.0
        if abs(points) <= FOREIGN_POINTS:
            continue
        arm = Arm.B if points > 0.0 else Arm.A
        cpus = max(pair.a.cpus for pair in pairs)
        took = f"{abs(points) / 100.0 * cpus:.1f} cores" if cpus else f"{abs(points):.0f} points of the CPU time"
        told = f"{words} took {took} more beside {arm}"
        explained = _explained([pair.a if arm is Arm.A else pair.b for pair in pairs], abs(points))
        if explained is None or not _beyond(paired, arm, explained):
            return f"{told}: not attributable", ""
        return "", f"{told}, which explains less than the effect"
    return "", ""


def _explained(hindered: Sequence[Block], points: float) -> float | None:
    """Logarithm of what the hindered arm could have gained with that CPU time; None where its own is not known."""
    own = [each for block in hindered if (each := block.own_cpu) is not None]
    return math.log1p(_GRANTED * points / fmean(own)) if own and fmean(own) > 0.0 else None


def _beyond(paired: Paired, hindered: Arm, explained: float) -> bool:
    """Whether the interval lies beyond what the hindered arm could have gained; or the hindered arm is ahead."""
    if paired.low is None or paired.high is None:
        return False
    low, high = math.log1p(paired.low), math.log1p(paired.high)
    return max(low - explained * (hindered is Arm.A), -high - explained * (hindered is Arm.B)) > 0.0


def _foreign(block: Block) -> float | None:
    return block.foreign


def _steal(block: Block) -> float | None:
    return block.steal


def _generator(pairs: Sequence[Pair]) -> str:
    """Why the load is no objective: its generator was the limit in half of the blocks."""
    blocks = [block for pair in pairs for block in pair.blocks]
    bound_blocks = [block for block in blocks if block.generator]
    return bound_blocks[-1].generator if bound_blocks and 2 * len(bound_blocks) >= len(blocks) else ""


def still_builds_up(pairs: Sequence[Pair]) -> bool:
    """Whether the effect grows within B's blocks of the pairs with the newest lengths; tested at few of them."""
    newest = [pair for pair in pairs if not pair.superseded and not pair.spoiled]
    halves = []
    for pair in newest[: max((look for look in _LOOKS if look <= len(newest)), default=0)]:
        values = (*pair.a.halves, *pair.b.halves)
        if min(values) > 0.0:
            halves.append(math.log(values[3] / values[2]) - math.log(values[1] / values[0]))
    return builds_up(halves)


def collapsed(blocks: Sequence[Block]) -> float | None:
    """Throughput of B as a share of A's median where its last two blocks were below half; else None.

    Args:
        blocks: In the order of time.
    """
    usual = [block.mean_tps for block in blocks if block.arm is Arm.A]
    last = [block.mean_tps for block in blocks if block.arm is Arm.B][-_IN_A_ROW:]
    if not usual or len(last) < _IN_A_ROW or not median(usual) > 0.0:
        return None
    return fmean(last) / median(usual) if max(last) < _LOW * median(usual) else None
