"""An experiment in words: the plan before it runs, its status for lines and screens, and the report. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from statistics import fmean
from typing import Any, Final, TypeVar

from msgspec.structs import replace

from pgtop_tune.base import units
from pgtop_tune.base.safe_text import one_line
from pgtop_tune.base.tables import Table
from pgtop_tune.base.units import about, counted, duration, wall_moment
from pgtop_tune.compare.reports.charts import Chart, ChartLine, line_chart
from pgtop_tune.compare.reports.report import Chapter, Picture
from pgtop_tune.compare.reports.sheets import RUN_FIGURES, RunFigure, Sheet, share_interval, signed, step_sheet
from pgtop_tune.compare.statistics.effect import Verdict
from pgtop_tune.experiment.attribution import known_mean
from pgtop_tune.experiment.plan.model import JUDGED_S, ONCE, BoundPlan, Cell, PlanArm, Stage, estimate, scale_words
from pgtop_tune.experiment.plan.outage_report import outage_sheet, outage_words
from pgtop_tune.experiment.plan.results import ABANDONED, COMPLETE, CellResult, ExperimentOutcome, foreign_words
from pgtop_tune.experiment.plan.verdicts import (
    NOT_ATTRIBUTABLE,
    Judgement,
    LatencyChange,
    best_arm,
    judgements,
    levelled_results,
    load_words,
)
from pgtop_tune.metrics.setting_risks import risk_of
from pgtop_tune.metrics.value_risks import RiskClass
from pgtop_tune.runtime.experiment_control import ExperimentState

# An experiment from a plan as screens show it. Pure.


def shown_plan(outcome: ExperimentOutcome, now_ms: int, *, under_way: bool) -> ExperimentState:
    """Return the state for screens: cells, time, and the best arm so far against the baseline.

    Args:
        outcome: The outcome of its journal.
        now_ms: Milliseconds since the epoch.
        under_way: Whether it goes on.
    """
    plan = outcome.plan
    everything = judgements(outcome)
    judged = [
        judgement for judgement in everything if judgement.effect is not None and judgement.verdict != NOT_ATTRIBUTABLE
    ]
    best = max(judged, key=lambda judgement: judgement.change) if judged else None
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


def switched(outcome: ExperimentOutcome) -> tuple[str, ...]:
    """Return names of the server's parameters that its arms set."""
    return tuple(dict.fromkeys(name for arm in outcome.plan.arms for name, _ in arm.parameters))


_VALUE = 60


def plan_lines(plan: BoundPlan, now_ms: int, max_wal_bytes: int) -> Iterator[str]:
    """Yield the plan before it runs: arms, cells in their order, cost and end."""
    yield f"{plan.name}: {plan.title}" if plan.title else plan.name
    yield f"on {plan.server}; order from seed {plan.seed}"
    for arm in plan.arms:
        yield f"  {arm.name}{' (baseline)' if arm.name == plan.baseline else ''}: {arm_words(arm)}"
        if arm.impossible:
            yield f"    impossible here: {one_line(arm.impossible, 200)}"
    for outage in plan.outages:
        yield f"  outage {outage.name}: after {duration(outage.after_s)}, {outage.row.description}"
    for stage in plan.stages:
        yield _stage_words(stage, plan.arm(stage.arm))
        for cell in stage.cells:
            run = f"{cell.number:>4}  {cell.profile}, {cell.clients} clients, {cell.endpoint}"
            run += f", outage {cell.outage}" if cell.outage else ""
            yield f"{run}{f': impossible: {one_line(cell.impossible, 160)}' if cell.impossible else ''}"
    if plan.repeats == 1 and len(plan.arms) > 1:
        yield f"note: {ONCE}"
    if plan.time_s < JUDGED_S and not plan.outages:
        yield f"note: runs of {plan.time_s} s are shown but not judged: a verdict needs runs of {JUDGED_S} s"
    cost = estimate(plan, max_wal_bytes)
    yield f"takes {cost.words}"
    yield f"disk {about(cost.disk_bytes)}; ends at {wall_moment(now_ms + round(cost.seconds * 1000))} if started now"


def _stage_words(stage: Stage, arm: PlanArm) -> str:
    parts = [f"stage {stage.number}: {arm.name}", scale_words(stage.scale)]
    parts += ["restart"] if arm.restart and not arm.impossible else []
    parts += ["new data set"] if stage.make_data else []
    return ", ".join(parts)


def arm_words(arm: PlanArm) -> str:
    """Return the values that an arm sets."""
    pairs = (*arm.settings, *arm.parameters)
    return ", ".join(f"{name}={_value_words(name, value)}" for name, value in pairs) or "as it is"


def _value_words(name: str, value: str) -> str:
    """Return a value on one line: whole where it runs code, else its beginning."""
    risk = risk_of(name, value)
    is_code = risk is not None and risk.kind is RiskClass.RUNS_CODE
    return one_line(value, len(value) if is_code else _VALUE)


def status_lines(outcome: ExperimentOutcome, now_ms: int, *, runs: bool) -> Iterator[str]:
    """Yield how far an experiment is.

    Args:
        outcome: The outcome of its journal.
        now_ms: Milliseconds since the epoch.
        runs: Whether a process holds its journal.
    """
    plan, done = outcome.plan, outcome.results
    yield f"{outcome.id}: {plan.name}, started {wall_moment(outcome.began_ms)}, hash {outcome.hash}"
    bad = sum(bool(result.reason) for result in done.values())
    yield f"{len(done)} of {counted(len(plan.cells), 'cell')} done, {bad} without figures"
    for cell in plan.cells:
        if cell.number in done:
            yield f"{cell.number:>4}  {cell.words}: {result_words(done[cell.number])}"
        elif cell.number == outcome.running:
            yield f"{cell.number:>4}  {cell.words}: {'running' if runs else 'lost'}"
    if outcome.ended in (COMPLETE, ABANDONED):
        yield outcome.ended
        return
    cost = estimate(plan, 0, left_of(outcome))
    end = wall_moment(now_ms + round(cost.seconds * 1000))
    if runs:
        yield f"running; {duration(cost.seconds)} left, until {end}"
    else:
        state = f"stopped: {outcome.ended}" if outcome.ended else "not running"
        yield f"{state}; {duration(cost.seconds)} left: `{outcome.resuming}`"
    if outcome.database and not runs:
        yield f"its database {outcome.database} is kept for `resume`; `resume --abandon` drops it"


def status_json(outcome: ExperimentOutcome, now_ms: int, *, runs: bool) -> dict[str, Any]:
    """Return how far an experiment is; takes the arguments of `status_lines`."""
    plan, ended = outcome.plan, outcome.ended in (COMPLETE, ABANDONED)
    left_s = 0.0 if ended else estimate(plan, 0, left_of(outcome)).seconds
    return {
        "id": outcome.id,
        "plan": plan.name,
        "hash": outcome.hash,
        "state": outcome.ended if ended else "running" if runs else "stopped",
        "stopped_because": None if ended else outcome.ended or None,
        "began_ms": outcome.began_ms,
        "cells_done": len(outcome.results),
        "cells_total": len(plan.cells),
        "cells_without_figures": sum(bool(result.reason) for result in outcome.results.values()),
        "left_s": round(left_s, 1),
        "until_ms": now_ms + round(left_s * 1000) if runs and not ended else None,
        "resume": None if ended or runs else outcome.resuming,
        "database": outcome.database or None,
    }


def status_cells_json(outcome: ExperimentOutcome) -> list[dict[str, Any]]:
    """Return the cells that are done or have begun, in the order of the plan."""
    done = outcome.results
    return [
        {
            "number": cell.number,
            "load": cell.words,
            "done": cell.number in done,
            "tps": result.tps if (result := done.get(cell.number)) else None,
            "latency_ms": result.latency_ms if result else None,
            "failed_because": result.reason or None if result else None,
        }
        for cell in outcome.plan.cells
        if cell.number in done or cell.number == outcome.running
    ]


def left_of(outcome: ExperimentOutcome) -> tuple[Stage, ...]:
    """Return the stages that are left, with the cells that have no result."""
    return tuple(
        replace(stage, cells=cells, make_data=stage.make_data and stage.number not in outcome.made)
        for stage in outcome.plan.stages
        if (cells := tuple(cell for cell in stage.cells if cell.number not in outcome.results))
    )


def result_words(result: CellResult) -> str:
    """Return the result in one line."""
    if result.reason:
        return f"failed: {one_line(result.reason, 160)}"
    if result.outage is not None and result.caused is not None:
        return outage_words(result.outage, result.caused)
    parts = [f"{result.tps:.2f} tps" if result.tps is not None else "no tps"]
    parts += [f"latency {result.latency_ms:.3f} ms"] if result.latency_ms is not None else []
    parts += [f"bound by {result.bound}"] if result.bound else []
    return ", ".join(parts)


_NAME: Final = 60
_REASON: Final = 200
_MANY: Final = 16
"""Columns that fit beside each other."""
_MARK: Final = " *"
_LATENCY: Final = ("configuration", "load", "figure", "baseline ms", "ms", "change", "98 % interval", "verdict")
RESULTS: Final = ("Summary", "Results", "Against the baseline")
"""Headings of the report of an ended experiment."""


_FIGURES: Final = tuple(figure for figure in RUN_FIGURES if figure.name not in ("stddev_ms", "p95_ms", "p99_ms"))
Found = Sequence[tuple[Cell, CellResult]]
T = TypeVar("T")


def chapters(outcome: ExperimentOutcome) -> tuple[Chapter, ...]:
    """Return the report, for Markdown and HTML; also of an experiment that has not ended."""
    cells = list(_with_results(outcome))
    levelled = levelled_results(outcome)
    ordered = [(cell, levelled[cell.number]) for cell, _ in cells]
    ordered = sorted(ordered, key=lambda pair: _place(pair[0], outcome))
    judged = judgements(outcome)
    results = [sheet for sheet in (_steps(outcome), _layout(ordered)) if sheet is not None]
    all_chapters = (
        Chapter(RESULTS[0], (Sheet("", tuple(_summary(outcome, judged))),)),
        Chapter(RESULTS[1], (*results, *_pictures(ordered))),
        Chapter(RESULTS[2], tuple(_against(outcome, judged))),
        Chapter("Configurations", (_configurations(outcome),)),
        Chapter("Cells in their order", (_all(cells),), folded=True),
    )
    return tuple(chapter for chapter in all_chapters if chapter.parts)


def _summary(outcome: ExperimentOutcome, judged: Sequence[Judgement]) -> Iterator[str]:
    plan = outcome.plan
    yield one_line(
        f"{plan.server}; started {wall_moment(outcome.began_ms)}; plan hash {outcome.hash}, seed {plan.seed}", 300
    )
    ended = outcome.ended or "not ended"
    bad = sum(bool(result.reason) for result in outcome.results.values())
    without = f", {bad} without figures" if bad else ""
    yield f"{len(outcome.results)} of {len(plan.cells)} cells{without}: {one_line(ended, _REASON)}"
    if len(servers := {result.server for result in outcome.results.values()} - {""}) > 1:
        yield (
            f"figures are normalized to the mean of {len(servers)} servers; verdicts compare runs on the same server;"
            ' "Cells in their order" of the report lists the measured figures'
        )
    if plan.time_s < JUDGED_S and not plan.outages:
        yield f"runs of {plan.time_s} s are shown but not judged: a verdict needs runs of {JUDGED_S} s"
    for judgement in sorted(
        (judgement for judgement in judged if judgement.loud), key=lambda judgement: -abs(judgement.change)
    ):
        yield one_line(_loud(judgement), 300)
    for judgement in judged:
        yield from (one_line(line, 300) for line in _loud_latencies(judgement))
    if noisy := sum(bool(foreign_words(result)) for result in outcome.results.values()):
        yield f"other programs used more than 5 % of the CPUs during {counted(noisy, 'cell')}"
    for cell, result in _with_results(outcome):
        if result.bound:
            yield one_line(f"{cell.words}: bound by {result.bound}", 300)
    doubted = sum(bool(result.doubts) for result in outcome.results.values())
    if doubted:
        yield f'{counted(doubted, "cell")} with doubts: see "Cells in their order" of the report'
    yield from (one_line(line, 300) for line in best_arm(outcome, judged))


def _loud(judgement: Judgement) -> str:
    """Return "select-only … got slower by 30 %": told as loudly as a gain."""
    direction = "faster" if judgement.change > 0 else "slower"
    certain = judgement.why_not or judgement.verdict
    trade = f"; trade: {judgement.trade}" if judgement.trade else ""
    share = f"{abs(100 * judgement.change):.0f} %"
    return f"{judgement.subject} got {direction} by {share} ({certain}){trade}"


def _loud_latencies(judgement: Judgement) -> Iterator[str]:
    """Yield "latency p99 of tuned: select-only … got longer by 40 % (worse)": what no trade tells already."""
    if judgement.trade:
        return
    for latency in judgement.latencies:
        # The mean of a closed loop says the same as TPS.
        if latency.figure != "latency_ms" and latency.verdict in (Verdict.BETTER, Verdict.WORSE):
            direction = "longer" if latency.effect.relative > 0.0 else "shorter"
            share = f"{abs(100.0 * latency.effect.relative):.0f} %"
            of_load = f"{latency.title} of {load_words(judgement.load)}"
            yield f"{judgement.arm}: {of_load} got {direction} by {share} ({latency.verdict})"


def _with_results(outcome: ExperimentOutcome) -> Iterator[tuple[Cell, CellResult]]:
    for cell in outcome.plan.cells:
        if cell.number in outcome.results:
            yield cell, outcome.results[cell.number]


def _steps(outcome: ExperimentOutcome) -> Sheet | None:
    """Return the seconds of each init step: steps down, configurations across; means of several data sets."""
    columns: dict[tuple[str, int], list[dict[str, float]]] = {}
    for data in outcome.made.values():
        columns.setdefault((data.arm, data.scale), []).append({**dict(data.steps_s), "total": data.total_s})
    several = len({scale for _, scale in columns}) > 1
    arms = [arm.name for arm in outcome.plan.arms]
    keys = sorted(columns, key=lambda key: (arms.index(key[0]), key[1]))
    heads = (one_line(f"{arm}, scale {scale}" if several else arm, _NAME) for arm, scale in keys)
    return step_sheet("init steps", heads, [_means(columns[key]) for key in keys])


def _layout(cells: Found) -> Sheet | None:
    if not cells:
        return None
    if any(cell.outage for cell, _ in cells):
        return outage_sheet(cells)
    if len({cell.endpoint for cell, _ in cells}) > 1:
        return _endpoints(cells)
    if len({cell.clients for cell, _ in cells}) > 1 or len({cell.scale for cell, _ in cells}) > 1:
        return _matrix(cells)
    if len({(cell.arm, cell.profile) for cell, _ in cells}) > _MANY:
        return _matrix(cells)
    return _across(cells)


def _across(cells: Found) -> Sheet:
    """Return configurations with their profiles across, figures down."""
    groups = {
        (arm, profile): [result for cell, result in cells if (cell.arm, cell.profile) == (arm, profile)]
        for arm in _different(cell.arm for cell, _ in cells)
        for profile in _different(cell.profile for cell, _ in cells)
    }
    heads = ("", *(one_line(f"{arm}: {profile}", _NAME) for arm, profile in groups))
    rows = tuple((figure.title, *(_figure(figure, results) for results in groups.values())) for figure in _FIGURES)
    notes = [f"{arm}: {profile}: {reason}" for (arm, profile), results in groups.items() for reason in _whys(results)]
    return Sheet("runs", (), Table(heads, rows, frozenset(range(1, len(heads)))), _notes(notes))


def _endpoints(cells: Found) -> Sheet:
    """Return endpoints and clients down, figures across; a failed cell has its reason."""
    names = [
        name for name, text in _NAMES.items() if name in ("endpoint", "clients") or len({text(c) for c, _ in cells}) > 1
    ]
    groups: dict[tuple[str, ...], list[CellResult]] = {}
    for cell, result in cells:
        groups.setdefault(tuple(_NAMES[name](cell) for name in names), []).append(result)
    rows = []
    notes = []
    for key, results in groups.items():
        reason = next((result.reason for result in results if result.reason), "")
        good = [result for result in results if not result.reason]
        figures = [_figure(figure, results) for figure in _FIGURES]
        if not good:
            figures[-1] = f"failed: {one_line(reason, 100)}"
        notes += [f"{', '.join(key)}: {reason}" for reason in (_whys(results) if good else _bounds(results))]
        rows.append((*(one_line(word, _NAME) for word in key), *figures))
    heads = (*names, *(figure.title for figure in _FIGURES))
    right = frozenset(range(len(names) - 1, len(heads)))
    return Sheet("endpoints", (), Table(heads, tuple(rows), right), _notes(notes))


def _matrix(cells: Found) -> Sheet:
    """Return tps: scale, profile and clients down, configurations across."""
    arms = _different(cell.arm for cell, _ in cells)
    groups: dict[tuple[int, str, int], dict[str, list[CellResult]]] = {}
    for cell, result in cells:
        groups.setdefault((cell.scale, cell.profile, cell.clients), {}).setdefault(cell.arm, []).append(result)
    tps = _FIGURES[-1]
    rows = tuple(
        (*map(str, key), *(_figure(tps, results.get(arm, [])) for arm in arms)) for key, results in groups.items()
    )
    notes = [
        f"{arm}, scale {key[0]}, {key[1]}, {key[2]} clients: {reason}"
        for key, results in groups.items()
        for arm in arms
        for reason in _whys(results.get(arm, []))
    ]
    heads = ("scale", "profile", "clients", *(one_line(arm, _NAME) for arm in arms))
    return Sheet("tps", (), Table(heads, rows, frozenset({0, *range(2, len(heads))})), _notes(notes))


def _pictures(cells: Found) -> Iterator[Picture]:
    """Yield tps over clients: a chart for each scale and profile, a line for each configuration and endpoint."""
    loads = _different((cell.scale, cell.profile) for cell, _ in cells)
    endpoints = len({cell.endpoint for cell, _ in cells}) > 1
    for scale, profile in loads:
        lines: dict[str, dict[float, list[float]]] = {}
        for cell, result in cells:
            if (cell.scale, cell.profile) == (scale, profile) and result.tps:
                name = f"{cell.arm}, {cell.endpoint}" if endpoints else cell.arm
                lines.setdefault(name, {}).setdefault(float(cell.clients), []).append(result.tps)
        if max((len(points) for points in lines.values()), default=0) < 2:
            continue
        heading = one_line(f"tps over clients: {profile}, scale {scale}", 100)
        drawn = tuple(
            ChartLine(name, [(clients, fmean(points[clients])) for clients in sorted(points)])
            for name, points in lines.items()
        )
        chart = Chart(heading, drawn, lambda value: units.decimal(value, 1), across="clients", dots=True)
        yield Picture(heading, line_chart(chart), tuple(lines))


def _against(outcome: ExperimentOutcome, judged: Sequence[Judgement]) -> Iterator[Sheet]:
    if not judged:
        return
    rows = tuple(
        (
            one_line(judgement.arm, _NAME),
            one_line(load_words(judgement.load), 90),
            units.decimal(judgement.baseline_tps, 2),
            units.decimal(judgement.tps, 2),
            f"{signed(100 * judgement.change)} %",
            _interval(judgement),
            judgement.verdict or "not judged",
        )
        for judgement in judged
    )
    heads = ("configuration", "load", "baseline tps", "tps", "change", "98 % interval", "verdict")
    notes = list(dict.fromkeys(judgement.why_not for judgement in judged if judgement.why_not))
    if any(judgement.verdict for judgement in judged):
        notes += ["the interval includes run-to-run variation; without repeats or history, 2 % is assumed"]
    more = [judgement.more_runs for judgement in judged if judgement.more_runs]
    notes += [f"{max(more)} more runs of each cell would settle the undecided comparisons"] if more else []
    notes += [ONCE] if outcome.plan.repeats == 1 else []
    base = f"baseline: {outcome.plan.baseline}"
    notes += [
        one_line(f"trade: {judgement.subject}: {judgement.trade}", 300) for judgement in judged if judgement.trade
    ]
    notes += [one_line(f"{judgement.subject}: {judgement.beside}", 300) for judgement in judged if judgement.beside]
    yield Sheet("throughput", (one_line(base, 200),), Table(heads, rows, frozenset({2, 3, 4, 5})), tuple(notes))
    if latencies := tuple(_latency_rows(judged)):
        note = "throughput decides; latency figures are corrected for multiple comparisons"
        yield Sheet("latency", (one_line(base, 200),), Table(_LATENCY, latencies, frozenset({3, 4, 5, 6})), (note,))


def _latency_rows(judged: Sequence[Judgement]) -> Iterator[tuple[str, ...]]:
    for judgement in judged:
        for latency in judgement.latencies:
            yield (
                one_line(judgement.arm, _NAME),
                one_line(load_words(judgement.load), 90),
                latency.title,
                units.decimal(latency.baseline, 3),
                units.decimal(latency.value, 3),
                f"{signed(100 * latency.effect.relative)} %",
                _interval(latency),
                latency.verdict,
            )


def _interval(judgement: Judgement | LatencyChange) -> str:
    if judgement.effect is None or judgement.effect.low is None or judgement.effect.high is None:
        return units.UNKNOWN
    return share_interval(judgement.effect.low, judgement.effect.high)


def _configurations(outcome: ExperimentOutcome) -> Sheet:
    rows = tuple(
        (one_line(arm.name, _NAME), one_line(arm_words(arm), 1000), one_line(arm.impossible, _REASON))
        for arm in outcome.plan.arms
    )
    return Sheet("", (), Table(("configuration", "sets", "impossible here"), rows, frozenset()))


def _all(cells: Found) -> Sheet:
    rows = tuple(
        (
            str(cell.number),
            one_line(f"{cell.words}, on {result.server}" if result.server else cell.words, 160),
            one_line(result_words(result), 220),
            "; ".join(result.doubts),
        )
        for cell, result in cells
    )
    return Sheet("", (), Table(("", "cell", "result", "doubts"), rows, frozenset({0})))


_NAMES: Final[Mapping[str, Callable[[Cell], str]]] = {
    "scale": lambda cell: str(cell.scale),
    "configuration": lambda cell: cell.arm,
    "profile": lambda cell: cell.profile,
    "endpoint": lambda cell: cell.endpoint,
    "clients": lambda cell: str(cell.clients),
}
"""Columns that name a cell: heading, and its text."""


def _place(cell: Cell, outcome: ExperimentOutcome) -> tuple[int, ...]:
    """Return the key that sorts cells as the plan has arms, profiles and endpoints."""
    plan = outcome.plan
    return (
        [arm.name for arm in plan.arms].index(cell.arm),
        [name for name, _ in plan.scripts].index(cell.profile),
        [endpoint.name for endpoint in plan.endpoints].index(cell.endpoint),
        cell.scale,
        cell.clients,
    )


def _different(values: Iterable[T]) -> list[T]:
    return list(dict.fromkeys(values))


def _whys(results: Sequence[CellResult]) -> list[str]:
    """Return reasons of failed cells, and disks that were the limit."""
    return [*dict.fromkeys(result.reason for result in results if result.reason), *_bounds(results)]


def _bounds(results: Sequence[CellResult]) -> list[str]:
    return list(dict.fromkeys(f"bound by {result.bound}" for result in results if result.bound))


def _notes(reasons: Sequence[str]) -> tuple[str, ...]:
    marked = ("* bound by the data disk",) if any("bound by" in reason for reason in reasons) else ()
    return (*marked, *(one_line(reason, _REASON) for reason in reasons))


def _figure(figure: RunFigure, results: Sequence[CellResult]) -> str:
    """Return mean of the repeats that have it; a mark where a disk was the limit of one."""
    text = units.decimal(known_mean(map(figure.of, results)), figure.digits)
    return text + (_MARK if figure.title == "tps" and any(result.bound for result in results) else "")


def _means(step_times: Sequence[Mapping[str, float]]) -> dict[str, float]:
    names = dict.fromkeys(name for seconds in step_times for name in seconds)
    return {name: fmean(seconds[name] for seconds in step_times if name in seconds) for name in names}
