"""Evaluation of the pairs of a switchback: which of them count, the effect on each figure, and whether it is due to the
parameters. Pure; the judge is `compare.statistics.switchback`.

One figure decides: TPS, the mean latency of a load with a rate, or the same mix of statements under a foreign load.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from statistics import fmean, median, stdev
from typing import Final

from msgspec import Struct

from pgtop_tune.base.units import counted, duration
from pgtop_tune.compare.figure_rows import TOO_SHORT, worded
from pgtop_tune.compare.sides.figures import BY_ID, LATENCY, TPS, Better
from pgtop_tune.compare.sides.material import Look, mean_ms, summed
from pgtop_tune.compare.statement_rows import (
    ENOUGH_CALLS,
    SAME_MIX,
    SAME_MIX_TITLE,
    SideSums,
    StatementComparison,
    comparison_of,
    per_call,
    same_mix,
    statement_row,
)
from pgtop_tune.compare.statistics.effect import Effect, certain_together, t_probability, t_quantile, verdict
from pgtop_tune.compare.statistics.switchback import (
    FEWEST_PAIRS,
    CrossCheck,
    Paired,
    builds_up,
    cross_check,
    decide,
)
from pgtop_tune.experiment.attribution import Surroundings, attribution, known_mean, over_all
from pgtop_tune.experiment.switchback.arms import BY_CHECKPOINTS, QUICK, Arm, ArmBlock, BlockPair
from pgtop_tune.metrics import sections
from pgtop_tune.metrics.catalogue import Interval
from pgtop_tune.metrics.load import P50, P99
from pgtop_tune.model.absence import Unavailable

# Figures of blocks, and the effect on each: the one that decides, and others, judged together at the end. Pure.
#
# One figure decides. The others are looked at once, at the end: Student's interval of the pairs, and Holm's correction
# for all of them. A gain in one that is a loss in another is a trade.

_LEAST_WAIT: Final = 0.02
"""Share of a transaction's time below which a class of waits is no figure."""
_LEAST_CHANGE: Final = -0.99
"""The change of a class of waits that is all of A's latency and gone in B."""
_WAIT: Final = "wait "
_LEAST_SD: Final = 0.001
"""The least deviation of log ratios: figures that are read in steps can be alike by chance."""


class FigureEffect(Struct, frozen=True):
    """B against A in one figure.

    Attributes:
        a, b: Means over the blocks.
        relative: B / A − 1, from the mean of the log ratios; of a class of waits (B − A) / latency of A.
        low, high: Its 95 % interval: of the figure that decides at all looks together, of the others at the end alone.
        verdict: The verdict, in a word or two.
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
        """Return whether the change is a share of A's latency."""
        return self.id.startswith(_WAIT)


class PairFigure(Struct, frozen=True):
    """A figure of a block."""

    id: str
    title: str
    unit: str
    better: Better
    of: Callable[[ArmBlock], float | None]


def ratios_of(of: Callable[[ArmBlock], float | None], pairs: Sequence[BlockPair]) -> list[float]:
    """Return ln(B/A) of the pairs that have both."""
    values = ((of(pair.a), of(pair.b)) for pair in pairs)
    return [math.log(b / a) for a, b in values if a and b and a > 0.0 and b > 0.0]


def _figure_effect(
    row: PairFigure, pairs: Sequence[BlockPair], relative: float, low: float | None, high: float | None, verdict: str
) -> FigureEffect:
    """Return what the pairs say of a figure, with its means over the blocks of either arm."""
    return FigureEffect(
        id=row.id,
        title=row.title,
        unit=row.unit,
        better=row.better,
        a=known_mean(row.of(pair.a) for pair in pairs) or 0.0,
        b=known_mean(row.of(pair.b) for pair in pairs) or 0.0,
        relative=relative,
        low=low,
        high=high,
        verdict=verdict,
    )


def _together(
    figures: Sequence[tuple[PairFigure, Sequence[float]]], pairs: Sequence[BlockPair]
) -> tuple[FigureEffect, ...]:
    """Return other figures, looked at once and judged together.

    Args:
        figures: Each with ln(B/A) of the pairs, or its change as `waits_of` has it.
    """
    effects = [(row, effect) for row, ratios in figures if (effect := student(ratios)) is not None]
    certain = certain_together({row.id: effect.chance or 0.0 for row, effect in effects})
    return tuple(
        _figure_effect(
            row,
            pairs,
            effect.relative,
            effect.low,
            effect.high,
            worded(effect, row.better, row.id in certain, comparable=True, decisive=True),
        )
        for row, effect in effects
    )


def student(ratios: Sequence[float]) -> Effect | None:
    """Return the effect of the pairs as one sample; None below four."""
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


def _of(name: str, of: Callable[[ArmBlock], float | None] | None = None) -> PairFigure:
    """Return a figure of `compare.sides.figures`; by default from its sums in a block."""
    figure = BY_ID[name]
    return PairFigure(name, figure.title, figure.unit, figure.better, of or (lambda block: block.figure(name)))


def waits_of(pairs: Sequence[BlockPair]) -> list[tuple[PairFigure, list[float]]]:
    """Return classes of waits that are a noticeable part of a transaction's time, with their change in each pair.

    The change is ln(1 + (B − A) / latency of A): a class may be gone under one arm, and has no ratio then. It is no aim
    by itself: where one wait goes, clients meet at the next.
    """
    known_pairs = [pair for pair in pairs if pair.a.waits and pair.b.waits]
    blocks = [block for pair in known_pairs for block in pair.blocks]
    total_ms = sum(sum(block.waits.values()) for block in blocks)
    classes = dict.fromkeys(name for block in blocks for name in block.waits)
    return [
        (_wait(name), [_share_of_latency(name, pair) for pair in known_pairs])
        for name in classes
        if name != "other" and sum(block.waits.get(name, 0.0) for block in blocks) >= _LEAST_WAIT * total_ms > 0.0
    ]


def _wait(name: str) -> PairFigure:
    return PairFigure(
        id=f"{_WAIT}{name}",
        title=f"budget {name}",
        unit="ms",
        better=Better.NEITHER,
        of=lambda block: block.waits.get(name, 0.0) if block.waits else None,
    )


def _share_of_latency(name: str, pair: BlockPair) -> float:
    change_ms = pair.b.waits.get(name, 0.0) - pair.a.waits.get(name, 0.0)
    return math.log1p(max(change_ms / math.fsum(pair.a.waits.values()), _LEAST_CHANGE))


MAIN: Final = {
    TPS: _of(TPS, lambda block: block.mean_tps),
    LATENCY: _of(LATENCY),
}
"""Figures that can decide."""
BESIDE: Final = (
    _of("p50", lambda block: block.quantile(P50)),
    _of("p99", lambda block: block.quantile(P99)),
    _of("wal_per_tx"),
    _of("cpu_per_tx", lambda block: block.own_cpu_ms),
)
"""Figures that are judged besides."""


def trade_of(main: FigureEffect, other_effects: Sequence[FigureEffect]) -> str:
    """Return the main figure and the figures that went the other way; "" without any."""
    against = {"better": "worse", "worse": "better"}.get(main.verdict)
    paid = [effect for effect in other_effects if effect.verdict == against and effect.better is not Better.NEITHER]
    if not paid:
        return ""
    return ", ".join(f"{effect.title} {effect.relative:+.1%}".replace("%", " %") for effect in (main, *paid))


# The figure that decides under the load of another program: the time per call of a fixed set of statements with fixed
# weights, so that a mix that drifts is no effect. Pure.
#
# Set and weights are those of the first four pairs that count, the calls of both arms together: what comes later does
# not change them. A statement that a block did not see called stands there with its mean of those pairs.

LEAST_COVERED: Final = 0.5
"""The least share of all statements' execution time: a set with less says too little."""
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
        problem: The reason why it decides nothing; "" where it decides.
    """

    weights: Look
    problem: str = ""

    def of(self, block: ArmBlock) -> float | None:
        """Return milliseconds of a call of the mix; None where the block has no counters of statements."""
        return same_mix(self.weights)(block.statements)


def why_no_mix(names: Collection[str], interval: Interval | None) -> str:
    """Return why the same mix cannot decide, in a sentence; "" where it may.

    Args:
        names: Names of the parameters under test.
        interval: The newest frames.
    """
    if late := sorted(AT_COMMIT.intersection(names)):
        return f"{', '.join(late)}: part of the effect is at commit, and pg_stat_statements does not count commit time"
    if interval is None:
        return "pg_stat_statements was not read"
    for section in (sections.statements, sections.statement_counters):
        reading = section(interval.newest)
        if isinstance(reading, Unavailable):
            return f"pg_stat_statements cannot be read: {reading.detail or reading.reason}"
    return ""


def fixed_mix(pairs: Sequence[BlockPair]) -> FixedMix:
    """Return the set that these pairs give; of more than four the first four."""
    first = pairs[:FEWEST_PAIRS]
    if not all(block.statements for pair in first for block in pair.blocks):
        return FixedMix(
            {}, "a block lacks two readings of pg_stat_statements: they are too far apart, or its counters were reset"
        )
    sums = sums_of(first)
    both_arms = summed(side.whole for side in sums)
    weights = {
        id: counted
        for id, counted in both_arms.items()
        if all(side.whole.get(id, (0, 0.0))[0] >= ENOUGH_CALLS for side in sums)
        # A call that lasts longer than the shortest time to settle began under the other arm.
        and mean_ms(counted) < 1000.0 * QUICK.settle_s
    }
    if not any(ms for _, ms in weights.values()):
        return FixedMix({}, f"no statement has {ENOUGH_CALLS} calls under both arms")
    shares = [share for side in sums if (share := side.covered(weights)) is not None]
    if shares and min(shares) < LEAST_COVERED:
        return FixedMix(
            weights,
            f"statements with enough calls under both arms make up only {100.0 * min(shares):.0f} % of the "
            f"execution time",
        )
    return FixedMix(weights)


def slower_calls(blocks: Sequence[ArmBlock], times: float, last: int) -> bool:
    """Return whether B's last blocks took so many times A's median for the mix of A; also where nothing tells.

    Args:
        blocks: Blocks in the order of time.
        last: The number of B's blocks.
    """
    of_a, of_b = ([block.statements for block in blocks if block.arm is arm] for arm in Arm)
    mixed = same_mix(summed(of_a))
    a, b = ([value for look in side if (value := mixed(look)) is not None] for side in (of_a, of_b[-last:]))
    return not a or len(b) < last or min(b) >= times * median(a)


def sums_of(pairs: Sequence[BlockPair]) -> tuple[SideSums, SideSums]:
    """Return the counts of both arms."""
    return _sums([pair.a for pair in pairs]), _sums([pair.b for pair in pairs])


def _sums(blocks: Sequence[ArmBlock]) -> SideSums:
    every = [block.statements_ms for block in blocks]
    return SideSums(
        whole=summed(block.statements for block in blocks),
        seconds=sum(block.seconds for block in blocks),
        all_ms=None if None in every else sum(ms for ms in every if ms is not None),
    )


_CHECKPOINT: Final = 0.2
"""Shares of the time under a checkpoint: arms that differ by more hold the edge of one."""
_FIRST: Final = 8
_LOOKS: Final = (4, 6, 8)
"""Pairs with the same lengths at which it is tested whether the effect still builds up."""


class PairsEvaluation(Struct, frozen=True):
    """The evaluation after some pairs.

    Attributes:
        paired: The judge's answer on the figure that decides.
        main: The same as a figure.
        others: Other figures, secondary; none before the end.
        counted: Numbers of the pairs that count.
        left_out: (number, why) of the others.
        checkpoints_kept: Half of the first eight pairs held the edge of a checkpoint: such pairs count.
        unattributable: The reason why a difference is not due to the parameters; "" where it is.
        surroundings: The use of others beside A and beside B.
        beside: A difference between the arms that does not explain the effect; "" for none.
        generator: The reason why the load generator is the limit; "" where it is not.
        slow: The effect builds up more slowly than it was let settle: its figure is too small.
        trade: A gain that is a loss in another figure, in words; "" where there is none.
        check: The same pairs without the model; None below four, and before the end.
        no_mix: Why the same mix of statements does not decide, although it should; "" where it does or need not.
        statements: Time per call of each; None before the end, and where the same mix does not decide.
    """

    paired: Paired
    main: FigureEffect
    others: tuple[FigureEffect, ...]
    counted: tuple[int, ...]
    left_out: tuple[tuple[int, str], ...]
    checkpoints_kept: bool = False
    unattributable: str = ""
    beside: str = ""
    surroundings: tuple[Surroundings, Surroundings] = (Surroundings(), Surroundings())
    generator: str = ""
    slow: bool = False
    trade: str = ""
    check: CrossCheck | None = None
    no_mix: str = ""
    statements: StatementComparison | None = None

    @property
    def throughput(self) -> FigureEffect | None:
        """Return the effect on TPS: of the figure that decides, or beside it at the end."""
        return next((figure for figure in (self.main, *self.others) if figure.id == TPS), None)

    @property
    def over(self) -> bool:
        """Return whether there is a verdict that may be told."""
        return self.paired.over and not self.unattributable


def evaluate(
    pairs: Sequence[BlockPair],
    objective: str = TPS,
    *,
    final: bool = False,
    text: Callable[[str], str] = lambda id: "",
) -> PairsEvaluation:
    """Evaluate the pairs.

    Args:
        pairs: At least one pair, in the order of time.
        objective: The figure that decides: TPS, the mean latency of a load with a rate, or the same mix of statements.
            Where the first four pairs give no such mix TPS decides.
        final: Nothing follows: the pairs are checked without the model as well, which takes longer.
        text: The text of a statement by its id; "" where it is not known.
    """
    counted, left_out, kept = _counted_pairs(pairs)
    mix = fixed_mix(counted) if objective == SAME_MIX else None
    decides = mix is not None and not mix.problem
    if mix is not None and decides:
        row = PairFigure(SAME_MIX, SAME_MIX_TITLE, "ms", Better.LOWER, mix.of)
        left_out = (*left_out, *((pair.number, _NOT_READ) for pair in counted if _unread(pair)))
        counted = tuple(pair for pair in counted if not _unread(pair))
    else:
        row = MAIN[TPS if mix is not None else objective]
    ratios = ratios_of(row.of, counted)
    paired = decide(ratios, higher_is_better=row.better is not Better.LOWER)
    main = _figure_effect(row, counted, paired.relative, paired.low, paired.high, paired.verdict.value)
    beside_main = (MAIN[TPS], *BESIDE) if decides else BESIDE
    beside_rows = (
        [(figure, ratios_of(figure.of, counted)) for figure in beside_main] + waits_of(counted) if final else []
    )
    other_effects = _together(beside_rows, counted)
    surroundings = [pair.a.surroundings for pair in counted], [pair.b.surroundings for pair in counted]
    unattributable, beside = attribution(
        *surroundings, paired.low, paired.high, higher_is_better=row.better is not Better.LOWER
    )
    return PairsEvaluation(
        paired=paired,
        main=main,
        others=other_effects,
        counted=tuple(pair.number for pair in counted),
        left_out=left_out,
        checkpoints_kept=kept,
        unattributable=unattributable,
        beside=beside,
        surroundings=(over_all(surroundings[0]), over_all(surroundings[1])),
        generator=generator([block for pair in counted for block in pair.blocks]),
        slow=still_builds_up(pairs),
        trade=trade_of(main, other_effects),
        check=cross_check(ratios) if final and len(ratios) >= FEWEST_PAIRS else None,
        no_mix="" if mix is None else mix.problem,
        statements=_statements(counted, mix, main, text) if final and mix is not None and decides else None,
    )


def missing_words(evaluation: PairsEvaluation | None, elapsed_s: float, pair_s: float) -> str:
    """Return what would decide an experiment that ends undecided, to follow the reason; "" where nothing is known.

    Args:
        evaluation: None before the first pair.
        elapsed_s: The time so far.
        pair_s: The length of one pair.
    """
    too_few = ""
    if (missing := FEWEST_PAIRS - (0 if evaluation is None else len(evaluation.counted))) > 0:
        too_few = f", and fewer than four pairs count: four pairs need --for {duration(elapsed_s + missing * pair_s)}"
    if evaluation is None:
        return too_few
    if (more := evaluation.paired.more_pairs) is not None:
        return f"{too_few}; about {counted(more, 'more pair')} ({duration(more * pair_s)}) would decide"
    return f"{too_few}; {evaluation.paired.out_of_reach}" if evaluation.paired.out_of_reach else too_few


_NOT_READ: Final = "a block lacks two readings of pg_stat_statements"


def _unread(pair: BlockPair) -> bool:
    return not all(block.statements for block in pair.blocks)


def _statements(
    pairs: Sequence[BlockPair], mix: FixedMix, main: FigureEffect, text: Callable[[str], str]
) -> StatementComparison:
    """Return time per call of each statement, judged together."""
    sums = sums_of(pairs)
    ids = dict.fromkeys((*sums[0].whole, *sums[1].whole))
    effects = {id: student(_statement_ratios(id, pairs)) for id in mix.weights}
    certain = certain_together({id: effect.chance or 0.0 for id, effect in effects.items() if effect is not None})

    def said(id: str) -> str:
        effect = effects.get(id)
        return TOO_SHORT if effect is None else verdict(effect, higher_is_better=False, certain=id in certain).value

    rows = [statement_row(id, text(id), sums, effects, said) for id in ids]
    count = len(pairs)
    effect = Effect(main.relative, main.low, main.high, count, count, 1, None)
    return comparison_of(rows, sums, mix.weights, effect, main.verdict)


def _statement_ratios(id: str, pairs: Sequence[BlockPair]) -> list[float]:
    measure = per_call(id)
    return ratios_of(lambda block: measure(block.statements), pairs)


def _counted_pairs(pairs: Sequence[BlockPair]) -> tuple[tuple[BlockPair, ...], tuple[tuple[int, str], ...], bool]:
    """Return the pairs that count, number and reason of the others, and whether a checkpoint's edge is no reason."""
    kept = sum(map(_at_an_edge, pairs[:_FIRST])) >= _FIRST // 2 and len(pairs) >= _FIRST
    counted, left_out = [], []
    for pair in pairs:
        reason = pair.spoiled or ("the effect had not settled" if pair.superseded else "")
        if not reason and not kept and _at_an_edge(pair):
            reason = "a checkpoint began or ended in the pair"
        if reason:
            left_out.append((pair.number, reason))
        else:
            counted.append(pair)
    return tuple(counted), tuple(left_out), kept


def _at_an_edge(pair: BlockPair) -> bool:
    """Return whether a checkpoint began or ended within one of the blocks, by chance."""
    a, b = pair.a.checkpoint, pair.b.checkpoint
    return not pair.a.whole_cycle and a is not None and b is not None and abs(a - b) > _CHECKPOINT


def generator(blocks: Sequence[ArmBlock]) -> str:
    """Return why the load is no objective: its generator was the limit in half of the blocks; "" where it is one."""
    bound_blocks = [block for block in blocks if block.generator]
    return bound_blocks[-1].generator if bound_blocks and 2 * len(bound_blocks) >= len(blocks) else ""


def still_builds_up(pairs: Sequence[BlockPair]) -> bool:
    """Return whether the effect grows within B's blocks of the pairs with the newest lengths; tested at few of them."""
    newest = [pair for pair in pairs if not pair.superseded and not pair.spoiled]
    halves = []
    for pair in newest[: max((look for look in _LOOKS if look <= len(newest)), default=0)]:
        values = (*pair.a.halves, *pair.b.halves)
        if min(values) > 0.0:
            halves.append(math.log(values[3] / values[2]) - math.log(values[1] / values[0]))
    return builds_up(halves)
