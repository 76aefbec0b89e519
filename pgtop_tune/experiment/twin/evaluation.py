"""What the pairs of a twin say. Pure; judge, figures and correction are those of the switchback."""

from __future__ import annotations

from collections.abc import Sequence

from pgtop_tune.compare.sides.figures import Better
from pgtop_tune.compare.statistics.switchback import FEWEST_PAIRS, Paired, cross_check, decide
from pgtop_tune.experiment.switchback.blocks import Arm
from pgtop_tune.experiment.switchback.evaluation import (
    BESIDE,
    MAIN,
    Evaluation,
    FigureRow,
    decided,
    together,
    trade_of,
)
from pgtop_tune.experiment.twin.design import TwinPair, Unit, units


def evaluate(pairs: Sequence[TwinPair], objective: str, *, final: bool = False) -> Evaluation:
    """What these pairs say.

    Args:
        objective: The figure that decides.
        final: Nothing follows: the units are checked without the model as well.
    """
    counted = units(pairs)
    row = MAIN[objective]
    a, b = ([block for unit in counted for block in unit.blocks(arm)] for arm in Arm)
    ratios = _ratios(row, counted)
    paired = decide(ratios, higher_is_better=row.better is not Better.LOWER)
    main = decided(row, paired, a, b)
    others = together([(each, _ratios(each, counted), a, b) for each in BESIDE]) if final else ()
    return Evaluation(
        paired=paired,
        main=main,
        others=others,
        counted=tuple(number for unit in counted for number in (unit.plain.number, unit.crossed.number)),
        left_out=tuple((pair.number, pair.spoiled) for pair in pairs if pair.spoiled),
        trade=trade_of(main, others),
        check=cross_check(ratios) if final and len(ratios) >= FEWEST_PAIRS else None,
    )


def stage(pairs: Sequence[TwinPair], objective: str, *, crossed: bool) -> Paired:
    """What the pairs of one stage say, the copies' own difference included: enough to plan by, not to tell."""
    row = MAIN[objective]
    found = (pair.ratio(row.of) for pair in pairs if pair.crossed is crossed and not pair.spoiled)
    return decide([ratio for ratio in found if ratio is not None], higher_is_better=objective == "tps")


def _ratios(row: FigureRow, counted: Sequence[Unit]) -> list[float]:
    return [ratio for unit in counted if (ratio := unit.ratio(row.of)) is not None]
