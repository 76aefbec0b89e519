"""An experiment from a plan as screens show it. Pure."""

from __future__ import annotations

from pgtop_tune.experiment.plan.best import best_arm
from pgtop_tune.experiment.plan.estimate import estimate
from pgtop_tune.experiment.plan.judging import NOT_ATTRIBUTABLE, judgements
from pgtop_tune.experiment.plan.results import COMPLETE, Outcome
from pgtop_tune.experiment.plan.status import left_of, status_lines
from pgtop_tune.runtime.experiment_control import ExperimentState


def shown_plan(outcome: Outcome, now_ms: int, *, under_way: bool) -> ExperimentState:
    """Where it stands: cells, time, and the best arm so far against the baseline.

    Args:
        outcome: Of its journal.
        now_ms: Milliseconds since the epoch.
        under_way: Whether it goes on.
    """
    plan = outcome.plan
    everything = judgements(outcome)
    judged = [each for each in everything if each.effect is not None and each.verdict != NOT_ATTRIBUTABLE]
    best = max(judged, key=lambda each: each.change) if judged else None
    effect = None if best is None else best.effect
    running = next((cell.arm for cell in plan.cells if cell.number == outcome.running), "")
    lines = [*best_arm(outcome, everything), "", *status_lines(outcome, now_ms, runs=under_way)]
    return ExperimentState(
        number=1,
        kind=f"plan {plan.name}",
        under_way=under_way,
        phase="measuring" if running else "preparing",
        pair=len(outcome.results),
        of=len(plan.cells),
        elapsed_s=max(now_ms - outcome.began_ms, 0) / 1000.0,
        remaining_s=estimate(plan, 0, left_of(outcome)).seconds,
        figure="tps" if best is None else f"tps of {best.arm}",
        effect=None if effect is None else effect.relative,
        low=None if effect is None else effect.low,
        high=None if effect is None else effect.high,
        counted=len(judged),
        ending="" if under_way else COMPLETE if outcome.complete else outcome.ended or "interrupted",
        details="\n".join(lines).strip("\n"),
    )


def switched(outcome: Outcome) -> tuple[str, ...]:
    """Names of the server's parameters that its arms set."""
    return tuple(dict.fromkeys(name for arm in outcome.plan.arms for name, _ in arm.parameters))
