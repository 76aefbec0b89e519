"""Where the time of a transaction goes, side by side: milliseconds of each wait, and of each class of waits."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from math import ceil
from statistics import fmean
from typing import Final

from msgspec import Struct

from pgtop_tune.compare.sides.material import BUDGET_S, Budget, ComparedRun
from pgtop_tune.compare.statistics.blocks import FEWEST, TIMES, autocorrelation_time
from pgtop_tune.compare.statistics.effect import Effect, effect_of_runs, share_effect

LEAST_SHARE: Final = 0.005
"""Waits with less than this share of the quicker side's time on both sides are left out."""


class WaitRow(Struct, frozen=True):
    """Milliseconds per transaction.

    Attributes:
        label: "IO:WALSync"; of a class its name.
        whole_class: Whether this is the sum of a class.
        effect: Of it as a share of A's latency; with interval for classes.
        verdict: "" for a single wait, and until it is judged beside the other figures.
    """

    label: str
    wait_event_type: str
    whole_class: bool
    a_ms: float
    b_ms: float
    effect: Effect | None
    verdict: str = ""


def wait_rows(
    a: Sequence[ComparedRun], b: Sequence[ComparedRun], latency_ms: tuple[float | None, float | None]
) -> tuple[WaitRow, ...]:
    """Classes, largest change first, each followed by its waits; empty where a side has no samples.

    Args:
        latency_ms: Of A and B; without a load of ours the sum of all waits stands for it.
    """
    sides = (_budgets(a), _budgets(b))
    if not all(sides):
        return ()
    means = [_ms(side) for side in sides]
    whole = latency_ms[0] or sum(means[0].values())
    if whole <= 0:
        return ()
    # What is nothing in a transaction of 20 s may be all of one of 2 ms.
    least = LEAST_SHARE * min(sum(mean.values()) for mean in means)
    classes = {label: kind for side in sides for budget in side for label, kind in budget.classes.items()}
    rows: list[WaitRow] = []
    for kind in dict.fromkeys(classes.values()):
        labels = [label for label, of in classes.items() if of == kind]
        effect = _effect((a, b), sides, labels, whole)
        sums = [sum(mean[label] for label in labels) for mean in means]
        if max(sums) < least:
            continue
        rows.append(
            WaitRow(label=kind, wait_event_type=kind, whole_class=True, a_ms=sums[0], b_ms=sums[1], effect=effect)
        )
        rows += [
            WaitRow(
                label=label,
                wait_event_type=kind,
                whole_class=False,
                a_ms=means[0][label],
                b_ms=means[1][label],
                effect=None,
            )
            for label in labels
            if label != kind and max(mean[label] for mean in means) >= least
        ]
    heads = {row.wait_event_type: abs(row.b_ms - row.a_ms) for row in rows if row.whole_class}
    return tuple(
        sorted(
            rows,
            key=lambda row: (
                -heads[row.wait_event_type], row.wait_event_type, not row.whole_class, -max(row.a_ms, row.b_ms),
            ),
        )
    )  # fmt: skip


def _effect(
    runs: tuple[Sequence[ComparedRun], Sequence[ComparedRun]],
    budgets: tuple[Sequence[Budget], Sequence[Budget]],
    labels: Sequence[str],
    whole: float,
) -> Effect | None:
    """Of four runs a side each is one value, so that what varies from run to run is in the interval."""
    if min(map(len, runs)) < FEWEST:
        return share_effect(_class_blocks(budgets[0], labels), _class_blocks(budgets[1], labels), whole)
    values = [
        [sum(_ms(found)[label] for label in labels) for run in side if (found := _budgets((run,)))] for side in runs
    ]
    sums = [sum(_ms(side)[label] for label in labels) for side in budgets]
    return effect_of_runs((sums[0], sums[1]), values[0], values[1], whole)


def _budgets(runs: Sequence[ComparedRun]) -> list[Budget]:
    """Those behind the warm-ups."""
    return [
        budget
        for run in runs
        for budget in run.budgets
        if budget.transactions > 0 and (not run.warm_up_s or budget.at_s - BUDGET_S >= run.warm_up_s)
    ]


def _ms(budgets: Sequence[Budget]) -> defaultdict[str, float]:
    """Per transaction, by label."""
    transactions = sum(budget.transactions for budget in budgets)
    total: defaultdict[str, float] = defaultdict(float)
    for budget in budgets:
        for label, ms in budget.ms.items():
            total[label] += ms / transactions
    return total


def _class_blocks(budgets: Sequence[Budget], labels: Sequence[str]) -> list[float]:
    """ms per transaction in blocks of ten seconds or, where neighbours resemble each other, of more."""
    values = [sum(budget.ms.get(label, 0.0) for label in labels) / budget.transactions for budget in budgets]
    time = autocorrelation_time(values)
    length = ceil(TIMES * time) if time > 1.5 else 1
    return [fmean(values[at : at + length]) for at in range(len(values) % length, len(values), length)]
