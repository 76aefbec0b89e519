"""What the pairs of a twin say. Pure; judge, figures, attribution and correction are those of the switchback."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import pairwise
from statistics import fmean
from typing import Final

from msgspec.structs import replace

from pgtop_tune.compare.sides.figures import Better
from pgtop_tune.compare.statistics.effect import SAME
from pgtop_tune.compare.statistics.switchback import (
    FEWEST_PAIRS,
    Paired,
    PairedVerdict,
    builds_up,
    cross_check,
    decide,
)
from pgtop_tune.experiment.attribution import attribution, over_all
from pgtop_tune.experiment.switchback.blocks import Arm, Block
from pgtop_tune.experiment.switchback.evaluation import Evaluation, at_an_edge, counted_pairs, generator
from pgtop_tune.experiment.switchback.figures import BESIDE, MAIN, decided, together, trade_of
from pgtop_tune.experiment.switchback.guard import Collapse, collapsed
from pgtop_tune.experiment.twin.design import TwinPair, Unit, units

_STARTS_SD: Final = 0.02
"""Of log throughput from one start of a server to the next: the judge's prior for runs."""
_NORMAL: Final = 1.96


def evaluate(pairs: Sequence[TwinPair], objective: str, *, final: bool = False) -> Evaluation:
    """What these pairs say.

    Args:
        objective: The figure that decides.
        final: Nothing follows: the units are checked without the model as well.
    """
    counted, left_out, kept = _counted(pairs)
    joined = units(counted)
    row = MAIN[objective]
    a, b = ([block for unit in joined for block in unit.blocks(arm)] for arm in Arm)
    ratios = _ratios(row.of, joined)
    higher = row.better is not Better.LOWER
    paired = with_starts(decide(ratios, higher_is_better=higher), _starts(counted), higher_is_better=higher)
    main = decided(row, paired, a, b)
    others = together([(each, _ratios(each.of, joined), a, b) for each in BESIDE]) if final else ()
    moments = [moment for unit in joined for pair in (unit.plain, unit.crossed) for moment in pair.moments]
    seen = [moment.a.surroundings for moment in moments], [moment.b.surroundings for moment in moments]
    unattributable, beside = attribution(*seen, paired.low, paired.high, higher_is_better=higher)
    return Evaluation(
        paired=paired,
        main=main,
        others=others,
        counted=tuple(number for unit in joined for number in (unit.plain.number, unit.crossed.number)),
        left_out=left_out,
        checkpoints_kept=kept,
        unattributable=unattributable,
        beside=beside,
        surroundings=(over_all(seen[0]), over_all(seen[1])),
        generator=generator([block for pair in counted for block in pair.blocks]),
        slow=final and _builds_up(row.of, counted),
        trade=trade_of(main, others),
        check=cross_check(ratios) if final and len(ratios) >= FEWEST_PAIRS else None,
    )


def with_starts(paired: Paired, starts: int, *, higher_is_better: bool) -> Paired:
    """The same with what differs from one start of the copies to the next, which all pairs of a stage share.

    Args:
        starts: Of both copies, with pairs that count.
    """
    if paired.low is None or paired.high is None:
        return paired
    mean = math.log1p(paired.relative)
    shared = _NORMAL * _STARTS_SD * math.sqrt(2.0 / starts)
    low, high = (
        mean + side * math.hypot(math.log1p(end) - mean, shared) for side, end in ((-1, paired.low), (1, paired.high))
    )
    verdict = PairedVerdict.UNDECIDED
    if low > 0.0 or high < 0.0:
        verdict = PairedVerdict.BETTER if (low > 0.0) == higher_is_better else PairedVerdict.WORSE
    elif max(-low, high) < math.log1p(SAME):
        verdict = PairedVerdict.EQUIVALENT
    more = None if paired.over and verdict is PairedVerdict.UNDECIDED else paired.more_pairs
    return replace(paired, verdict=verdict, low=math.expm1(low), high=math.expm1(high), more_pairs=more)


def _starts(counted: Sequence[TwinPair]) -> int:
    return 1 + sum(pair.crossed is not later.crossed for pair, later in pairwise(counted))


def of_stage(pairs: Sequence[TwinPair], objective: str, *, crossed: bool) -> Paired:
    """What the pairs of one stage say, the copies' own difference included: enough to plan by, not to tell."""
    row = MAIN[objective]
    found = (pair.ratio(row.of) for pair in stage_pairs_of(pairs, crossed=crossed))
    return decide([ratio for ratio in found if ratio is not None], higher_is_better=row.better is not Better.LOWER)


def stage_pairs_of(pairs: Sequence[TwinPair], *, crossed: bool) -> tuple[TwinPair, ...]:
    """Those of a stage that count."""
    return tuple(pair for pair in _counted(pairs)[0] if pair.crossed is crossed)


def collapsed_in(pairs: Sequence[TwinPair], *, crossed: bool) -> Collapse | None:
    """A stage in which B's last two blocks were below half of A's; else None."""
    return collapsed([block for pair in pairs if pair.crossed is crossed for block in pair.blocks])


def _counted(pairs: Sequence[TwinPair]) -> tuple[tuple[TwinPair, ...], tuple[tuple[int, str], ...], bool]:
    return counted_pairs(pairs, lambda pair: pair.spoiled, lambda pair: any(map(at_an_edge, pair.moments)))


def _builds_up(of: Callable[[Block], float | None], counted: Sequence[TwinPair]) -> bool:
    """Whether the effect still grows within the stages: their later pairs against their earlier ones."""
    growth: list[list[float]] = []
    for crossed in (False, True):
        ratios = [ratio for pair in counted if pair.crossed is crossed and (ratio := pair.ratio(of)) is not None]
        half = len(ratios) // 2
        growth.append([late - early for early, late in zip(ratios[:half], ratios[len(ratios) - half :], strict=True)])
    # A copy that gets quicker than the other is not B: what B gains shows in either stage.
    return builds_up(growth[0] + growth[1]) and all(growth) and fmean(growth[0]) * fmean(growth[1]) > 0.0


def _ratios(of: Callable[[Block], float | None], joined: Sequence[Unit]) -> list[float]:
    return [ratio for unit in joined if (ratio := unit.ratio(of)) is not None]
