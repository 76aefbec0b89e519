"""What the pairs of a switchback say: which of them count, the effect on each figure, and whether it can be put down
to the parameters. Pure; the judge is `compare.statistics.switchback`.

One figure decides: TPS, the mean latency of a load with a rate, or the same mix of statements under a foreign load.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Final

from msgspec import Struct

from pgtop_tune.base.units import counted, duration
from pgtop_tune.compare.sides.figures import TPS, Better
from pgtop_tune.compare.statement_rows import (
    SAME_MIX,
    SAME_MIX_TITLE,
    StatementComparison,
    comparison_of,
    per_call,
    statement_row,
)
from pgtop_tune.compare.statistics.effect import Effect, certain_together, verdict
from pgtop_tune.compare.statistics.switchback import (
    FEWEST_PAIRS,
    CrossCheck,
    Paired,
    builds_up,
    cross_check,
    decide,
)
from pgtop_tune.compare.statistics.verdicts import TOO_SHORT
from pgtop_tune.experiment.attribution import Surroundings, attribution, over_all
from pgtop_tune.experiment.switchback.blocks import Block, Pair
from pgtop_tune.experiment.switchback.figures import (
    BESIDE,
    MAIN,
    FigureEffect,
    FigureRow,
    decided,
    ratios_of,
    student,
    together,
    trade_of,
    waits_of,
)
from pgtop_tune.experiment.switchback.same_mix import FixedMix, fixed_mix, sums_of

_CHECKPOINT: Final = 0.2
"""Of the time: arms with shares under a checkpoint that differ by more hold the edge of one."""
_FIRST: Final = 8
_LOOKS: Final = (4, 6, 8)
"""Pairs with the same lengths at which it is tested whether the effect still builds up."""


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
        surroundings: What others took beside A and beside B.
        beside: What differed between the arms and does not explain the effect; "" for nothing.
        generator: Why the load generator is the limit; "" where it is not.
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
        """The effect on TPS: of the figure that decides, or beside it at the end."""
        return next((figure for figure in (self.main, *self.others) if figure.id == TPS), None)

    @property
    def over(self) -> bool:
        """Whether there is a verdict that may be told."""
        return self.paired.over and not self.unattributable


def evaluate(
    pairs: Sequence[Pair],
    objective: str = TPS,
    *,
    final: bool = False,
    text: Callable[[str], str] = lambda id: "",
) -> Evaluation:
    """What these pairs say.

    Args:
        pairs: In the order of time; at least one.
        objective: The figure that decides: TPS, the mean latency of a load with a rate, or the same mix of statements.
            Where the first four pairs give no such mix TPS decides.
        final: Nothing follows: the pairs are checked without the model as well, which takes longer.
        text: Of a statement by its id; "" where it is not known.
    """
    counted, left_out, kept = _counted_pairs(pairs)
    mix = fixed_mix(counted) if objective == SAME_MIX else None
    decides = mix is not None and not mix.problem
    if mix is not None and decides:
        row = FigureRow(SAME_MIX, SAME_MIX_TITLE, "ms", Better.LOWER, mix.of)
        left_out = (*left_out, *((pair.number, _NOT_READ) for pair in counted if _unread(pair)))
        counted = tuple(pair for pair in counted if not _unread(pair))
    else:
        row = MAIN[TPS if mix is not None else objective]
    ratios = ratios_of(row.of, counted)
    paired = decide(ratios, higher_is_better=row.better is not Better.LOWER)
    blocks = [pair.a for pair in counted], [pair.b for pair in counted]
    main = decided(row, paired, *blocks)
    beside_main = (MAIN[TPS], *BESIDE) if decides else BESIDE
    beside_rows = [(each, ratios_of(each.of, counted)) for each in beside_main] + waits_of(counted) if final else []
    others = together([(each, changes, *blocks) for each, changes in beside_rows])
    seen = [block.surroundings for block in blocks[0]], [block.surroundings for block in blocks[1]]
    unattributable, beside = attribution(
        *seen, paired.low, paired.high, higher_is_better=row.better is not Better.LOWER
    )
    return Evaluation(
        paired=paired,
        main=main,
        others=others,
        counted=tuple(pair.number for pair in counted),
        left_out=left_out,
        checkpoints_kept=kept,
        unattributable=unattributable,
        beside=beside,
        surroundings=(over_all(seen[0]), over_all(seen[1])),
        generator=generator([block for pair in counted for block in pair.blocks]),
        slow=still_builds_up(pairs),
        trade=trade_of(main, others),
        check=cross_check(ratios) if final and len(ratios) >= FEWEST_PAIRS else None,
        no_mix="" if mix is None else mix.problem,
        statements=_statements(counted, mix, main, text) if final and mix is not None and decides else None,
    )


def missing_words(evaluation: Evaluation | None, elapsed_s: float, pair_s: float) -> str:
    """What would decide an experiment that ends undecided, behind the reason for that; "" where nothing is known.

    Args:
        evaluation: None before the first pair.
        elapsed_s: So far.
        pair_s: Of one pair.
    """
    words = ""
    if (missing := FEWEST_PAIRS - (0 if evaluation is None else len(evaluation.counted))) > 0:
        words = f", and fewer than four pairs count: that takes --for {duration(elapsed_s + missing * pair_s)}"
    if evaluation is None:
        return words
    if (more := evaluation.paired.more_pairs) is not None:
        return f"{words}; about {counted(more, 'more pair')} ({duration(more * pair_s)}) would decide"
    return f"{words}; {evaluation.paired.out_of_reach}" if evaluation.paired.out_of_reach else words


_NOT_READ: Final = "a block holds no two readings of pg_stat_statements"


def _unread(pair: Pair) -> bool:
    return not all(block.statements for block in pair.blocks)


def _statements(
    pairs: Sequence[Pair], mix: FixedMix, main: FigureEffect, text: Callable[[str], str]
) -> StatementComparison:
    """Time per call of each statement, judged together."""
    sums = sums_of(pairs)
    ids = dict.fromkeys((*sums[0].whole, *sums[1].whole))
    effects = {id: student(ratios_of(_of_statement(id), pairs)) for id in mix.weights}
    certain = certain_together({id: each.chance or 0.0 for id, each in effects.items() if each is not None})

    def said(id: str) -> str:
        effect = effects.get(id)
        return TOO_SHORT if effect is None else verdict(effect, higher_is_better=False, certain=id in certain).value

    rows = [statement_row(id, text(id), sums, effects, said) for id in ids]
    count = len(pairs)
    effect = Effect(main.relative, main.low, main.high, count, count, 1, None)
    return comparison_of(rows, sums, mix.weights, effect, main.verdict)


def _of_statement(id: str) -> Callable[[Block], float | None]:
    measure = per_call(id)
    return lambda block: measure(block.statements)


def _counted_pairs(pairs: Sequence[Pair]) -> tuple[tuple[Pair, ...], tuple[tuple[int, str], ...], bool]:
    """Return the pairs that count, number and reason of the others, and whether a checkpoint's edge is no reason."""
    kept = sum(map(_at_an_edge, pairs[:_FIRST])) >= _FIRST // 2 and len(pairs) >= _FIRST
    counted, left_out = [], []
    for pair in pairs:
        why = pair.spoiled or ("the effect had not settled" if pair.superseded else "")
        if not why and not kept and _at_an_edge(pair):
            why = "a checkpoint began or ended within"
        if why:
            left_out.append((pair.number, why))
        else:
            counted.append(pair)
    return tuple(counted), tuple(left_out), kept


def _at_an_edge(pair: Pair) -> bool:
    """Return whether a checkpoint began or ended within one of the blocks, by chance."""
    a, b = pair.a.checkpoint, pair.b.checkpoint
    return not pair.a.whole_cycle and a is not None and b is not None and abs(a - b) > _CHECKPOINT


def generator(blocks: Sequence[Block]) -> str:
    """Why the load is no objective: its generator was the limit in half of the blocks."""
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
