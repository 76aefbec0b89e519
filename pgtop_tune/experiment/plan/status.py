"""What an experiment is, has done and has left, as lines of text. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from pgtop_tune.base.safe_text import one_line
from pgtop_tune.base.units import about, counted, duration, wall_moment
from pgtop_tune.experiment.plan.judging import NOT_ATTRIBUTABLE, best_arm, judgements
from pgtop_tune.experiment.plan.model import JUDGED_S, ONCE, Arm, BoundPlan, Stage, estimate, scale_words
from pgtop_tune.experiment.plan.results import ABANDONED, COMPLETE, CellResult, Outcome
from pgtop_tune.metrics.setting_risks import risk_of
from pgtop_tune.metrics.value_risks import RiskClass
from pgtop_tune.runtime.experiment_control import ExperimentState

# An experiment from a plan as screens show it. Pure.


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


_VALUE = 60


def plan_lines(plan: BoundPlan, now_ms: int, max_wal_bytes: int) -> Iterator[str]:
    """The plan before it runs: arms, cells in their order, cost and end."""
    yield f"{plan.name}: {plan.title}" if plan.title else plan.name
    yield f"on {plan.server}, order from seed {plan.seed}"
    for arm in plan.arms:
        yield f"  {arm.name}{' (baseline)' if arm.name == plan.baseline else ''}: {arm_words(arm)}"
        if arm.impossible:
            yield f"    impossible here: {one_line(arm.impossible, 200)}"
    for stage in plan.stages:
        yield _stage_words(stage, plan.arm(stage.arm))
        for cell in stage.cells:
            run = f"{cell.number:>4}  {cell.profile}, {cell.clients} clients, {cell.endpoint}"
            yield f"{run}{f': impossible: {one_line(cell.impossible, 160)}' if cell.impossible else ''}"
    if plan.repeats == 1 and len(plan.arms) > 1:
        yield f"note: {ONCE}"
    if plan.time_s < JUDGED_S:
        yield f"note: runs of {plan.time_s} s are shown and not judged: that takes {JUDGED_S} s"
    found = estimate(plan, max_wal_bytes)
    yield f"takes {found.words}"
    yield f"disk {about(found.disk_bytes)}; ends at {wall_moment(now_ms + round(found.seconds * 1000))} if begun now"


def _stage_words(stage: Stage, arm: Arm) -> str:
    words = [f"stage {stage.number}: {arm.name}", scale_words(stage.scale)]
    words += ["restart"] if arm.restart and not arm.impossible else []
    words += ["data set made"] if stage.make_data else []
    return ", ".join(words)


def arm_words(arm: Arm) -> str:
    """What an arm sets."""
    pairs = (*arm.settings, *arm.parameters)
    return ", ".join(f"{name}={_value_words(name, value)}" for name, value in pairs) or "as it is"


def _value_words(name: str, value: str) -> str:
    """Return a value on one line: whole where it runs code, else its beginning."""
    risk = risk_of(name, value)
    is_code = risk is not None and risk.kind is RiskClass.RUNS_CODE
    return one_line(value, len(value) if is_code else _VALUE)


def status_lines(outcome: Outcome, now_ms: int, *, runs: bool) -> Iterator[str]:
    """How far an experiment is.

    Args:
        outcome: Of its journal.
        now_ms: Milliseconds since the epoch.
        runs: Whether a process holds its journal.
    """
    plan, done = outcome.plan, outcome.results
    yield f"{outcome.id}: {plan.name}, begun {wall_moment(outcome.began_ms)}, hash {outcome.hash}"
    bad = sum(bool(each.reason) for each in done.values())
    yield f"{len(done)} of {counted(len(plan.cells), 'cell')} done, {bad} of them without figures"
    for cell in plan.cells:
        if cell.number in done:
            yield f"{cell.number:>4}  {cell.words}: {result_words(done[cell.number])}"
        elif cell.number == outcome.running:
            yield f"{cell.number:>4}  {cell.words}: {'runs' if runs else 'was lost'}"
    if outcome.ended in (COMPLETE, ABANDONED):
        yield outcome.ended
        return
    found = estimate(plan, 0, left_of(outcome))
    end = wall_moment(now_ms + round(found.seconds * 1000))
    if runs:
        yield f"runs; {duration(found.seconds)} left, until {end}"
    else:
        why = f"stopped: {outcome.ended}" if outcome.ended else "not running"
        yield f"{why}; {duration(found.seconds)} left: `{outcome.resuming}`"
    if outcome.database and not runs:
        yield f"its database {outcome.database} is kept for `resume`; `resume --abandon` drops it"


def left_of(outcome: Outcome) -> tuple[Stage, ...]:
    """The stages that are left, with the cells that have no result."""
    return tuple(_left(stage, outcome) for stage in outcome.plan.stages if _unfinished(stage, outcome))


def _unfinished(stage: Stage, outcome: Outcome) -> bool:
    return any(cell.number not in outcome.results for cell in stage.cells)


def _left(stage: Stage, outcome: Outcome) -> Stage:
    cells = tuple(cell for cell in stage.cells if cell.number not in outcome.results)
    return replace(stage, cells=cells, make_data=stage.make_data and stage.number not in outcome.made)


def result_words(result: CellResult) -> str:
    """In one line."""
    if result.reason:
        return f"failed: {one_line(result.reason, 160)}"
    words = [f"{result.tps:.2f} tps" if result.tps is not None else "no tps"]
    words += [f"latency {result.latency_ms:.3f} ms"] if result.latency_ms is not None else []
    words += [f"bound by {result.bound}"] if result.bound else []
    return ", ".join(words)
