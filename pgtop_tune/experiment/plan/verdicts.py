"""Every cell against the same cell of the baseline, by the judge of runs. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from pgtop_tune.compare.statistics.effect import (
    Effect,
    RunNoise,
    RunSpread,
    Verdict,
    certain_together,
    run_noise,
    runs_effect,
    runs_needed,
    spread_of,
    verdict,
    without_verdict,
)
from pgtop_tune.compare.statistics.switchback import in_blocks, server_effects
from pgtop_tune.experiment.attribution import attribution, known_mean
from pgtop_tune.experiment.plan.model import FIGURES, JUDGED_S, Cell
from pgtop_tune.experiment.plan.results import CellResult, ExperimentOutcome

# Latency beside TPS: each figure of a cell against the baseline's, corrected for being several, and trades. Pure.

TITLES: Final = {"latency_ms": "latency avg", "p50_ms": "latency p50", "p99_ms": "latency p99"}
"""Titles by field of a result."""
_KNOWN_AS: Final = {"tps": "tps", "latency_ms": "tps", "p50_ms": "p50", "p99_ms": "p99"}
"""Figure of the noise store; clients that wait for each other's end have the mean's noise in TPS."""


class LatencyChange(Struct, frozen=True):
    """The change of a figure of an arm against the baseline, less is better.

    Attributes:
        figure: A field of the results.
        value, baseline: Means of the repeats, ms.
        verdict: The verdict, in the words of TPS.
    """

    figure: str
    value: float
    baseline: float
    effect: Effect
    verdict: str

    @property
    def title(self) -> str:
        """Return the heading of tables."""
        return TITLES[self.figure]

    @property
    def words(self) -> str:
        """Return "latency p99 +39.9 %"."""
        return f"{self.title} {100.0 * self.effect.relative:+.1f} %"


def latency_changes(
    base: Sequence[CellResult], runs: Sequence[CellResult], alike: Sequence[Sequence[CellResult]]
) -> tuple[LatencyChange, ...]:
    """Return every figure that both sides have.

    Args:
        base, runs: Repeats of the baseline's cell and of the arm's.
        alike: Repeats of other cells: they show how runs differ.
    """
    effects: dict[str, tuple[Effect, bool]] = {}
    for figure in TITLES:
        compared = compare_runs(base, runs, alike, figure, foreseen=figure == "latency_ms")
        if compared is not None:
            effects[figure] = compared[0], bool(compared[1].measured)
    chances = {figure: 1.0 if effect.chance is None else effect.chance for figure, (effect, _) in effects.items()}
    certain = certain_together(chances)
    changes = []
    for figure, (effect, measured) in effects.items():
        figure_verdict = verdict(effect, higher_is_better=False, certain=figure in certain)
        changes.append(
            LatencyChange(
                figure=figure,
                value=fmean(filter(None, (getattr(run, figure) for run in runs))),
                baseline=fmean(filter(None, (getattr(run, figure) for run in base))),
                effect=effect,
                verdict=str(figure_verdict if measured else without_verdict(figure_verdict)),
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
    """Return one figure of both sides, each server a block; None where no server has it of both.

    Args:
        base, runs, alike: See `latency_changes`.
        within, foreseen: See `run_noise`.
    """
    blocks = in_blocks(_logs(base, figure), _logs(runs, figure))
    if blocks is None:
        return None
    groups = [
        [y for at, y in logs if at == server]
        for group in alike
        if (logs := _logs(group, figure))
        for server in dict.fromkeys(at for at, _ in logs)
    ]
    history = spread_of(groups) + known(base, _KNOWN_AS[figure])
    noise = run_noise((), (), within, history, foreseen=foreseen, spread=blocks.spread)
    counted = [0.0] * blocks.runs_a, [0.0] * blocks.runs_b
    return runs_effect(*counted, noise, change=blocks.change, root=blocks.root), noise


def trade_of(tps_verdict: str, change: float, latencies: Sequence[LatencyChange]) -> str:
    """Return "tps +8.0 %, latency p99 +39.9 %": a gain that is a loss in another figure; "" for none.

    Args:
        tps_verdict: The verdict on TPS.
        change: The change of TPS, as a share.
    """
    against = {Verdict.BETTER.value: Verdict.WORSE.value, Verdict.WORSE.value: Verdict.BETTER.value}.get(tps_verdict)
    paid = [latency.words for latency in latencies if latency.verdict == against]
    return ", ".join((f"tps {100.0 * change:+.1f} %", *paid)) if paid else ""


def known(runs: Sequence[CellResult], figure: str) -> RunSpread:
    """Return how earlier runs of this machine and load differed."""
    spreads: Mapping[str, RunSpread] = next((run.known for run in runs if run.known), {})
    return spreads.get(figure, RunSpread())


def _logs(runs: Sequence[CellResult], figure: str) -> list[tuple[str, float]]:
    return [(run.server, math.log(value)) for run in runs if (value := getattr(run, figure))]


# The arm that is best by the objective of a plan, among those that keep its constraints. Pure.


def best_arm(outcome: ExperimentOutcome, judged: Sequence[Judgement]) -> Iterator[str]:
    """Yield one line a load: the best arm, whether that is certain, and the arms that are past a constraint.

    Args:
        judged: All judgements of the outcome.
    """
    plan = outcome.plan
    if len(plan.arms) == 1 and not plan.constraints:
        return
    loads: dict[Load, dict[str, Mapping[str, float]]] = {}
    for (arm, load), runs in results_by_arm(outcome).items():
        means = {name: known_mean(getattr(run, name) for run in runs) for name, _ in FIGURES}
        loads.setdefault(load, {})[arm] = {name: mean for name, mean in means.items() if mean is not None}
    for load, arms in loads.items():
        broken = {arm: broken_words for arm, values in arms.items() if (broken_words := _broken(outcome, values))}
        kept = {arm: values for arm, values in arms.items() if arm not in broken}
        measured = {arm: values[plan.objective] for arm, values in kept.items() if plan.objective in values}
        past = ", ".join(f"{arm} ({broken_words})" for arm, broken_words in broken.items())
        out = f"; constraint violated: {past}" if past else ""
        if not kept:
            yield f"{load_words(load)}: no configuration meets the constraints{out}"
        elif not measured:
            yield f"{load_words(load)}: {plan.objective} was not measured{out}"
        else:
            best = (max if dict(FIGURES)[plan.objective] else min)(measured, key=lambda arm: measured[arm])
            doubt = "" if _is_certain(outcome, judged, load, best, set(measured)) else ", but not certainly"
            yield f"{load_words(load)}: {plan.objective} is best with {best} ({measured[best]:.6g}){doubt}{out}"


def _broken(outcome: ExperimentOutcome, values: Mapping[str, float]) -> str:
    """Return the first constraint that is not kept, or not known to be; "" where all are kept."""
    for constraint in outcome.plan.constraints:
        value = values.get(constraint.figure)
        if value is None:
            return f"{constraint.figure} not measured"
        if value > constraint.limit if constraint.most else value < constraint.limit:
            return f"{constraint.figure} {value:.6g}"
    return ""


def _is_certain(outcome: ExperimentOutcome, judged: Sequence[Judgement], load: Load, best: str, arms: set[str]) -> bool:
    """Return whether the judge is certain: of the best arm, or of each other arm where the baseline is best."""
    plan, base = outcome.plan, outcome.plan.baseline
    if best != base:
        of_best = next((judgement for judgement in judged if (judgement.arm, judgement.load) == (best, load)), None)
        return arms == {best} or (of_best is not None and of_best.of_figure(plan.objective) == Verdict.BETTER)
    other_judgements = [judgement for judgement in judged if judgement.load == load and judgement.arm in arms]
    return all(judgement.of_figure(plan.objective) == Verdict.WORSE for judgement in other_judgements)


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
        beside: The CPU time of others beside one side, where that explains less than the effect; "" for none.
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
    def subject(self) -> str:
        """Return the arm and its load, in words."""
        return f"{self.arm}: {load_words(self.load)}"

    @property
    def change(self) -> float:
        """Return tps against the baseline's, as a share."""
        return self.tps / self.baseline_tps - 1.0

    def of_figure(self, figure: str) -> str:
        """Return the verdict on a figure of the results; "" where it is not judged."""
        latency = next((latency.verdict for latency in self.latencies if latency.figure == figure), "")
        return self.verdict if figure == "tps" else latency

    @property
    def loud(self) -> bool:
        """Return whether the judgement belongs among the findings: it is decided, or large."""
        return self.verdict in (Verdict.BETTER, Verdict.WORSE, Verdict.DIFFER) or abs(self.change) >= LOUD


def load_of(cell: Cell) -> Load:
    """Return what the cell has in common with its baseline cell."""
    return cell.scale, cell.endpoint, cell.profile, cell.clients


def judgements(outcome: ExperimentOutcome) -> tuple[Judgement, ...]:
    """Return the judgements in the order of the arms, and of the baseline's loads."""
    groups, levelled = _by_arm(outcome, outcome.results), results_by_arm(outcome)
    base = outcome.plan.baseline
    return tuple(
        _judged(
            Judgement(
                arm=arm.name,
                load=load,
                tps=fmean(run.tps or 0.0 for run in levelled[arm.name, load]),
                baseline_tps=fmean(run.tps or 0.0 for run in levelled[base, load]),
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


def _judged(
    judgement: Judgement, base: list[CellResult], runs: list[CellResult], outcome: ExperimentOutcome
) -> Judgement:
    """Return a judgement that has the figures, with the verdict."""
    arm, load = judgement.arm, judgement.load
    if outcome.plan.time_s < JUDGED_S:
        return replace(judgement, why_not=f"not judged: a run of {outcome.plan.time_s} s is shorter than {JUDGED_S} s")
    if any(doubt.startswith(_CLIENT_BOUND) for run in (*base, *runs) for doubt in run.doubts):
        return replace(judgement, why_not="not judged: pgbench was the limit, not the server")
    alike = [
        results
        for key, results in _by_arm(outcome, outcome.results).items()
        if key not in ((arm, load), (outcome.plan.baseline, load))
    ]
    compared = compare_runs(base, runs, alike, "tps", within=fmean(run.within for run in (*base, *runs)))
    if compared is None:
        return replace(judgement, why_not=f"not judged: no server ran both {arm} and {outcome.plan.baseline}")
    effect, noise = compared
    tps_verdict = verdict(effect, higher_is_better=True)
    if not noise.measured:
        # How runs differ on this machine is not known: two runs that differ say nothing of the next two.
        tps_verdict = without_verdict(tps_verdict)
    needed = runs_needed(effect, noise) if tps_verdict is Verdict.UNDECIDED else None
    latencies = latency_changes(base, runs, alike)
    judgement = replace(judgement, effect=effect, verdict=str(tps_verdict), more_runs=needed, latencies=latencies)
    reason, beside = attribution(
        [run.cpu for run in base], [run.cpu for run in runs], effect.low, effect.high, (outcome.plan.baseline, arm)
    )
    if reason and tps_verdict in (Verdict.BETTER, Verdict.WORSE, Verdict.DIFFER):
        return replace(judgement, verdict=NOT_ATTRIBUTABLE, why_not=reason)
    return replace(judgement, trade=trade_of(str(tps_verdict), judgement.change, latencies), beside=beside)


def results_by_arm(outcome: ExperimentOutcome) -> dict[tuple[str, Load], list[CellResult]]:
    """Return results with figures by arm and load, repeats together; of several servers levelled to their mean."""
    return _by_arm(outcome, levelled_results(outcome))


def _by_arm(outcome: ExperimentOutcome, results: Mapping[int, CellResult]) -> dict[tuple[str, Load], list[CellResult]]:
    groups: dict[tuple[str, Load], list[CellResult]] = {}
    for cell in sorted(outcome.plan.cells, key=lambda cell_to_sort: cell_to_sort.number):
        result = results.get(cell.number)
        if result is not None and result.tps:
            groups.setdefault((cell.arm, load_of(cell)), []).append(result)
    return groups


def levelled_results(outcome: ExperimentOutcome) -> Mapping[int, CellResult]:
    """Return results as on a server of mean speed, so that no arm gains by the servers that ran it."""
    results = dict(outcome.results)
    if len({result.server for result in results.values()}) < 2:
        return results
    loads: dict[Load, list[Cell]] = {}
    for cell in outcome.plan.cells:
        if cell.number in results:
            loads.setdefault(load_of(cell), []).append(cell)
    for cells in loads.values():
        for figure in _LEVELLED:
            measured = [
                (cell, result, value)
                for cell in cells
                if (value := getattr(result := results[cell.number], figure)) is not None and value > 0.0
            ]
            effects = server_effects((cell.arm, result.server, math.log(value)) for cell, result, value in measured)
            for cell, result, value in measured:
                results[cell.number] = replace(result, **{figure: value / math.exp(effects[result.server])})
    return results


def load_words(load: Load) -> str:
    """Return the load in one line."""
    scale, endpoint, profile, clients = load
    return f"{profile}, {clients} clients, scale {scale}, {endpoint}"
