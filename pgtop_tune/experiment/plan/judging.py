"""Every cell against the same cell of the baseline, by the judge of runs. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping
from statistics import fmean
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from pgtop_tune.compare.statistics.blocked import server_effects
from pgtop_tune.compare.statistics.effect import Effect, Verdict, verdict, without_verdict
from pgtop_tune.compare.statistics.runs import runs_needed
from pgtop_tune.experiment.attribution import attribution
from pgtop_tune.experiment.plan.estimate import JUDGED_S
from pgtop_tune.experiment.plan.latencies import LatencyChange, compare_runs, latency_changes, trade_of
from pgtop_tune.experiment.plan.model import Cell
from pgtop_tune.experiment.plan.results import CellResult, Outcome

Load = tuple[int, str, str, int]
"""Scale, endpoint, profile, clients: what two cells that are compared have in common."""
_CLIENT_BOUND: Final = "CLIENT-BOUND"
NOT_ATTRIBUTABLE: Final = "not attributable"
"""Verdict of a difference that others' CPU time may have made."""
_LEVELLED: Final = ("tps", "latency_ms", "p50_ms", "p99_ms", "connect_ms")
LOUD: Final = 0.10
"""A difference that is told also where the runs are too few to be certain of it."""


class Judgement(Struct, frozen=True, kw_only=True):
    """An arm under one load against the baseline.

    Attributes:
        tps, baseline_tps: Means of the repeats.
        effect: None where nothing may be judged.
        verdict: "" where nothing is judged; `why_not` says why.
        more_runs: Runs on each side that would decide it; None where it is decided, or beyond 200.
        latencies: Judged beside.
        trade: A gain that is a loss in another figure, in words; "" for none.
        beside: What others took of the CPUs beside one side, where that explains less than the effect; "" for nothing.
    """

    arm: str
    load: Load
    tps: float
    baseline_tps: float
    effect: Effect | None = None
    verdict: str = ""
    why_not: str = ""
    more_runs: int | None = None
    latencies: tuple[LatencyChange, ...] = ()
    trade: str = ""
    beside: str = ""

    @property
    def change(self) -> float:
        """tps against the baseline's, as a share."""
        return self.tps / self.baseline_tps - 1.0

    def of_figure(self, figure: str) -> str:
        """The verdict on a figure of the results; "" where it is not judged."""
        latency = next((each.verdict for each in self.latencies if each.figure == figure), "")
        return self.verdict if figure == "tps" else latency

    @property
    def loud(self) -> bool:
        """Whether it belongs among the findings: decided, or large."""
        return self.verdict in (Verdict.BETTER, Verdict.WORSE, Verdict.DIFFER) or abs(self.change) >= LOUD


def load_of(cell: Cell) -> Load:
    """What it has in common with the baseline's."""
    return cell.scale, cell.endpoint, cell.profile, cell.clients


def judgements(outcome: Outcome) -> tuple[Judgement, ...]:
    """In the order of the arms, and of the baseline's loads."""
    groups, levelled = _by_arm(outcome, outcome.results), results_by_arm(outcome)
    base = outcome.plan.baseline
    return tuple(
        _judged(
            Judgement(
                arm=arm.name,
                load=load,
                tps=fmean(_tps(levelled[arm.name, load])),
                baseline_tps=fmean(_tps(levelled[base, load])),
            ),
            groups[base, load],
            groups[arm.name, load],
            outcome,
        )
        for arm in outcome.plan.arms
        if arm.name != base
        for name, load in groups
        if name == base and (arm.name, load) in groups
    )


def _judged(found: Judgement, base: list[CellResult], runs: list[CellResult], outcome: Outcome) -> Judgement:
    """A judgement that has the figures, with the verdict."""
    arm, load = found.arm, found.load
    if outcome.plan.time_s < JUDGED_S:
        return replace(found, why_not=f"not judged: a run of {outcome.plan.time_s} s is shorter than {JUDGED_S} s")
    if any(doubt.startswith(_CLIENT_BOUND) for run in (*base, *runs) for doubt in run.doubts):
        return replace(found, why_not="not judged: pgbench was the limit, not the server")
    alike = [
        each
        for key, each in _by_arm(outcome, outcome.results).items()
        if key not in ((arm, load), (outcome.plan.baseline, load))
    ]
    compared = compare_runs(base, runs, alike, "tps", within=fmean(run.within for run in (*base, *runs)))
    if compared is None:
        return replace(found, why_not=f"not judged: no server ran both {arm} and {outcome.plan.baseline}")
    effect, noise = compared
    said = verdict(effect, higher_is_better=True)
    if not noise.measured:
        # How runs differ on this machine is not known: two runs that differ say nothing of the next two.
        said = without_verdict(said)
    needed = runs_needed(effect, noise) if said is Verdict.UNDECIDED else None
    latencies = latency_changes(base, runs, alike)
    found = replace(found, effect=effect, verdict=str(said), more_runs=needed, latencies=latencies)
    why, beside = attribution(
        [run.cpu for run in base], [run.cpu for run in runs], effect.low, effect.high, (outcome.plan.baseline, arm)
    )
    if why and said in (Verdict.BETTER, Verdict.WORSE, Verdict.DIFFER):
        return replace(found, verdict=NOT_ATTRIBUTABLE, why_not=why)
    return replace(found, trade=trade_of(str(said), found.change, latencies), beside=beside)


def results_by_arm(outcome: Outcome) -> dict[tuple[str, Load], list[CellResult]]:
    """Results with figures by arm and load, repeats together; of several servers levelled to their mean."""
    return _by_arm(outcome, levelled_results(outcome))


def _by_arm(outcome: Outcome, results: Mapping[int, CellResult]) -> dict[tuple[str, Load], list[CellResult]]:
    found: dict[tuple[str, Load], list[CellResult]] = {}
    for cell in sorted(outcome.plan.cells, key=lambda each: each.number):
        result = results.get(cell.number)
        if result is not None and result.tps:
            found.setdefault((cell.arm, load_of(cell)), []).append(result)
    return found


def levelled_results(outcome: Outcome) -> Mapping[int, CellResult]:
    """Results as on a server of mean speed, so that no arm gains by the servers that ran it."""
    results = dict(outcome.results)
    if len({each.server for each in results.values()}) < 2:
        return results
    loads: dict[Load, list[Cell]] = {}
    for cell in outcome.plan.cells:
        if cell.number in results:
            loads.setdefault(load_of(cell), []).append(cell)
    for cells in loads.values():
        for figure in _LEVELLED:
            known = [
                (cell, result, value)
                for cell in cells
                if (value := getattr(result := results[cell.number], figure)) is not None and value > 0.0
            ]
            effects = server_effects((cell.arm, result.server, math.log(value)) for cell, result, value in known)
            for cell, result, value in known:
                results[cell.number] = replace(result, **{figure: value / math.exp(effects[result.server])})
    return results


def _tps(runs: list[CellResult]) -> list[float]:
    return [run.tps for run in runs if run.tps]


def load_words(load: Load) -> str:
    """In one line."""
    scale, endpoint, profile, clients = load
    return f"{profile}, {clients} clients, scale {scale}, {endpoint}"
