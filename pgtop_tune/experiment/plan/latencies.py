"""Latency beside TPS: each figure of a cell against the baseline's, corrected for being several, and trades. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Final

from msgspec import Struct

from pgtop_tune.compare.statistics.blocked import in_blocks
from pgtop_tune.compare.statistics.effect import (
    Effect,
    RunSpread,
    Verdict,
    certain_together,
    spread_of,
    verdict,
    without_verdict,
)
from pgtop_tune.compare.statistics.runs import RunNoise, run_noise, runs_effect
from pgtop_tune.experiment.plan.results import CellResult

TITLES: Final = {"latency_ms": "latency avg", "p50_ms": "latency p50", "p99_ms": "latency p99"}
"""By field of a result."""
_KNOWN_AS: Final = {"tps": "tps", "latency_ms": "tps", "p50_ms": "p50", "p99_ms": "p99"}
"""Figure of the noise store; clients that wait for each other's end have the mean's noise in TPS."""


class LatencyChange(Struct, frozen=True):
    """One figure of an arm against the baseline, less is better.

    Attributes:
        figure: A field of the results.
        value, baseline: Means of the repeats, ms.
        verdict: As of TPS.
    """

    figure: str
    value: float
    baseline: float
    effect: Effect
    verdict: str

    @property
    def title(self) -> str:
        """As tables have it."""
        return TITLES[self.figure]

    @property
    def words(self) -> str:
        """ "latency p99 +39.9 %"."""
        return f"{self.title} {100.0 * self.effect.relative:+.1f} %"


def latency_changes(
    base: Sequence[CellResult], runs: Sequence[CellResult], alike: Sequence[Sequence[CellResult]]
) -> tuple[LatencyChange, ...]:
    """Every figure that both sides have.

    Args:
        base, runs: Repeats of the baseline's cell and of the arm's.
        alike: Repeats of other cells: they show how runs differ.
    """
    found: dict[str, tuple[Effect, bool]] = {}
    for figure in TITLES:
        compared = compare_runs(base, runs, alike, figure, foreseen=figure == "latency_ms")
        if compared is not None:
            found[figure] = compared[0], bool(compared[1].measured)
    chances = {figure: 1.0 if effect.chance is None else effect.chance for figure, (effect, _) in found.items()}
    certain = certain_together(chances)
    changes = []
    for figure, (effect, measured) in found.items():
        said = verdict(effect, higher_is_better=False, certain=figure in certain)
        changes.append(
            LatencyChange(
                figure=figure,
                value=_mean(runs, figure),
                baseline=_mean(base, figure),
                effect=effect,
                verdict=str(said if measured else without_verdict(said)),
            )
        )
    return tuple(changes)


def compare_runs(
    base: Sequence[CellResult],
    runs: Sequence[CellResult],
    alike: Sequence[Sequence[CellResult]],
    figure: str,
    *,
    within: float = 0.0,
    foreseen: bool = True,
) -> tuple[Effect, RunNoise] | None:
    """One figure of both sides, each server a block; None where no server has it of both.

    Args:
        base, runs, alike: See `latency_changes`.
        within, foreseen: See `run_noise`.
    """
    found = in_blocks(_logs(base, figure), _logs(runs, figure))
    if found is None:
        return None
    groups = [
        [y for at, y in logs if at == server]
        for group in alike
        if (logs := _logs(group, figure))
        for server in dict.fromkeys(at for at, _ in logs)
    ]
    history = spread_of(groups) + known(base, _KNOWN_AS[figure])
    noise = run_noise((), (), within, history, foreseen=foreseen, spread=found.spread)
    counted = [0.0] * found.runs_a, [0.0] * found.runs_b
    return runs_effect(*counted, noise, change=found.change, root=found.root), noise


def trade_of(said: str, change: float, latencies: Sequence[LatencyChange]) -> str:
    """ "tps +8.0 %, latency p99 +39.9 %": a gain that is a loss in another figure; "" for none.

    Args:
        said: The verdict on TPS.
        change: Of TPS, as a share.
    """
    against = {Verdict.BETTER.value: Verdict.WORSE.value, Verdict.WORSE.value: Verdict.BETTER.value}.get(said)
    paid = [each.words for each in latencies if each.verdict == against]
    return ", ".join((f"tps {100.0 * change:+.1f} %", *paid)) if paid else ""


def known(runs: Sequence[CellResult], figure: str) -> RunSpread:
    """How earlier runs of this machine and load differed."""
    spreads: Mapping[str, RunSpread] = next((run.known for run in runs if run.known), {})
    return spreads.get(figure, RunSpread())


def _logs(runs: Sequence[CellResult], figure: str) -> list[tuple[str, float]]:
    return [(run.server, math.log(value)) for run in runs if (value := getattr(run, figure))]


def _mean(runs: Sequence[CellResult], figure: str) -> float:
    return fmean(value for run in runs if (value := getattr(run, figure)))
