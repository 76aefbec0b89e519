"""One figure of two sides: its value behind the warm-ups, its effect, and the verdict that the sides allow.

Runs are judged with the difference between runs in the interval (`statistics.effect`), from one run a side on; they
must have lasted long enough, and be steady or have been measured in alternation (A B B A), because a drift then weighs
on both sides alike. Windows are judged by blocks of seconds. Within one run, before and after a moment, a verdict needs
as many checkpoints on both sides and the same `before_after.CONDITIONS`.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from itertools import pairwise
from statistics import fmean, median
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from pgtop_tune.compare.sides.figures import FORESEEN, Better, Figure
from pgtop_tune.compare.sides.material import ComparedRun, Runs, Sums, blocks, quotient
from pgtop_tune.compare.statistics.before_after import CONDITIONS, mean_variance, unlike
from pgtop_tune.compare.statistics.effect import (
    FEWEST,
    Effect,
    RunNoise,
    RunSpread,
    Verdict,
    block_length,
    effect_of_whole,
    on_scale,
    run_noise,
    runs_effect,
    share_effect,
    spread_of,
    verdict,
    without_verdict,
)
from pgtop_tune.metrics.percentiles import Merged, merge

BELOW: Final = 0.005
"""Per cent of failures on both sides that are no line of a table."""


class FigureRow(Struct, frozen=True):
    """One figure of a phase.

    Attributes:
        a, b: Over everything behind the warm-up.
        effect: None where there is nothing to be divided by.
        noise: How runs differ in it; None for windows, which are judged by blocks of seconds.
        verdict: Better, worse, no difference distinguishable, undecided; more or less for what is no aim by itself;
            differ, where the runs do and allow no verdict.
    """

    figure: Figure
    a: float | None
    b: float | None
    effect: Effect | None
    verdict: str
    noise: RunNoise | None = None

    @property
    def change(self) -> tuple[float, float | None, float | None] | None:
        """Return the change and its interval, as shares (of A, or 0.01 for a percentage point); None without."""
        effect, scale = self.effect, 1.0 if self.figure.points is None else self.figure.points / 100.0
        return None if effect is None else effect.scaled(scale)


class RunHistory(Struct, frozen=True):
    """Figures of earlier runs of a load.

    Attributes:
        groups: Groups that were made alike, and of each run its figures by id.
        spreads: By figure.
    """

    groups: Sequence[Sequence[Mapping[str, float]]]
    spreads: Mapping[str, RunSpread]


def row_of(
    figure: Figure,
    a: Runs,
    b: Runs,
    period_s: int | None,
    earlier: RunHistory | None,
) -> FigureRow | None:
    """Return the row of a figure; None where a side does not have it.

    Args:
        earlier: None for windows.
    """
    values = figure_of(figure, a), figure_of(figure, b)
    if values[0] is None or values[1] is None or (figure.unit == "%" and max(values[0], values[1]) < BELOW):
        return None
    overall = values[0], values[1]
    if earlier is None:
        effect, noise = _effect_of_windows(figure, a, b, overall, period_s), None
    else:
        effect, noise = _effect_of_runs(figure, a, b, overall, earlier)
    return FigureRow(figure=figure, a=overall[0], b=overall[1], effect=effect, verdict="", noise=noise)


def _effect_of_runs(
    figure: Figure,
    a: Runs,
    b: Runs,
    overall: tuple[float, float],
    earlier: RunHistory,
) -> tuple[Effect | None, RunNoise | None]:
    """Return the effect over runs, each of which is one value; its own seconds give its variance."""
    ratio, scale = figure.points is None, figure.points
    values = _of_runs(figure, a), _of_runs(figure, b)
    if not all(values) or (ratio and min(*overall, *values[0], *values[1]) <= 0):
        return None, None
    scaled = on_scale(values[0], scale), on_scale(values[1], scale)
    within = fmean(_within(figure, run) for run in (*a, *b))
    noise = run_noise(*scaled, within, _history(figure, earlier), foreseen=figure.id in FORESEEN)
    change = math.log(overall[1] / overall[0]) if scale is None else (overall[1] - overall[0]) / scale
    effect = runs_effect(*scaled, noise, ratio=ratio, change=change)
    if too_short(a) or too_short(b):
        return effect.without_interval(), None
    return effect, noise


def _within(figure: Figure, run: ComparedRun) -> float:
    """Return the variance of one run's value from its own seconds, on the scale of `on_scale`; 0 where it has none."""
    steps = _values(figure, (run,))
    of = figure.points or (fmean(steps) if steps else 0.0)
    return mean_variance(steps) / of**2 if of > 0 else 0.0


def _history(figure: Figure, earlier: RunHistory) -> RunSpread:
    """Return the spread of earlier runs that were made alike."""
    groups = [[run[figure.id] for run in group if figure.id in run] for group in earlier.groups]
    spread = spread_of(
        [on_scale([value for value in group if value > 0 or figure.points], figure.points) for group in groups]
    )
    return spread + earlier.spreads.get(figure.id, RunSpread())


def _of_runs(figure: Figure, runs: Runs) -> list[float]:
    """Return one value of each run."""
    return [value for run in runs if (value := figure_of(figure, (run,))) is not None]


def _effect_of_windows(
    figure: Figure, a: Runs, b: Runs, overall: tuple[float, float], period_s: int | None
) -> Effect | None:
    step_s = max(run.gathered.step_s for run in (*a, *b))
    period = None if period_s is None else max(round(period_s / step_s), 1)
    values = [_values(figure, side) for side in (a, b)]
    if not all(values):
        return None if figure.quantile is None else effect_of_whole(overall, (), (), step_s)
    length = block_length(values, period)
    effect = _of_blocks(figure, overall, _blocks(figure, a, length), _blocks(figure, b, length), length)
    return None if effect is None else replace(effect, block_s=effect.block_s * step_s)


def _of_blocks(
    figure: Figure, overall: tuple[float, float], a: Sequence[float], b: Sequence[float], length: int
) -> Effect | None:
    if figure.points is not None:
        effect = share_effect(a, b, figure.points)
        return (
            None
            if effect is None
            else replace(effect.moved_to((overall[1] - overall[0]) / figure.points), block_s=length)
        )
    return effect_of_whole(overall, a, b, length)


def figure_of(figure: Figure, runs: Runs) -> float | None:
    """Return the figure over all runs behind their warm-ups; None for a percentile that these lack."""
    if figure.quantile is not None:
        if merged := _latencies(runs):
            return figure.quantile.of(merge(merged))
        alone = runs[0] if len(runs) == 1 else None
        return None if alone is None or alone.warm_up_s else alone.whole_run.get(figure.id)
    return quotient(_sums(figure, runs))


def _values(figure: Figure, runs: Runs) -> list[float]:
    """Return the figure step by step."""
    if figure.quantile is not None:
        return [value for histogram in _latencies(runs) if (value := figure.quantile.of(histogram)) is not None]
    return [part / divisor for part, divisor in _sums(figure, runs)]


def _blocks(figure: Figure, runs: Runs, length: int) -> list[float]:
    """Return the figure block by block; no block has seconds of two runs."""
    block_values: list[float | None] = []
    for run in runs:
        if figure.quantile is not None:
            merged, quantile = _latencies((run,)), figure.quantile
            block_values += [quantile.of(merge(merged[part])) for part in blocks(len(merged), length)]
        else:
            sums = _sums(figure, (run,))
            block_values += [quotient(sums[part]) for part in blocks(len(sums), length)]
    return [value for value in block_values if value is not None]


def _sums(figure: Figure, runs: Runs) -> list[Sums]:
    return [sums for run in runs for sums in run.gathered.sums(figure.id, run.warm_up_s)]


def _latencies(runs: Runs) -> list[Merged]:
    """Return histograms of all runs; empty where one of them has none."""
    by_run = [run.gathered.latencies(run.warm_up_s) for run in runs]
    return [histogram for histograms in by_run for histogram in histograms] if all(by_run) else []


def aligned_period(a: Runs, b: Runs) -> int | None:
    """Return seconds of a checkpoint cycle, where both sides have at least four of them; the longer one's."""
    cycles = [_cycles(side) for side in (a, b)]
    if any(len(lengths) < FEWEST for lengths in cycles):
        return None
    return round(max(median(lengths) for lengths in cycles))


def whole_cycles(runs: Runs) -> tuple[ComparedRun, ...]:
    """Return the runs without the first seconds that fill no whole cycle: else one may have a checkpoint more."""
    cycle_s = median(_cycles(runs))
    aligned_runs = []
    for run in runs:
        rest_s = (run.seconds - run.warm_up_s) % cycle_s
        fits = run.seconds - run.warm_up_s >= cycle_s
        aligned_runs.append(replace(run, warm_up_s=run.warm_up_s + rest_s) if fits else run)
    return tuple(aligned_runs)


def _cycles(runs: Runs) -> list[float]:
    lengths: list[float] = []
    for run in runs:
        moments = run.checkpoints_s or []
        lengths += [after - before for before, after in pairwise(moments) if after > before]
    return lengths


SHORTEST_S: Final = 30
"""Shortest run behind its warm-up that is compared."""
NOT_COMPARABLE: Final = "not comparable"
TOO_SHORT: Final = "too little to say"
MORE: Final = "more"
LESS: Final = "less"
CERTAIN: Final = frozenset({Verdict.BETTER.value, Verdict.WORSE.value, MORE, LESS})
"""Verdicts that say that something differs."""
CHECKPOINTS_ALIKE: Final = 1.25
"""Checkpoints per second on one side over those on the other, up to which their cost is in both alike."""
_EXPLAINING: Final = {Verdict.BETTER: MORE, Verdict.WORSE: LESS}


def why_no_verdict(
    a: Runs,
    b: Runs,
    *,
    one_run: bool = False,
    windows: bool = False,
    changed: Collection[str] = (),
) -> str:
    """Return the reason why these sides allow no verdict, as a sentence; "" when they do.

    Args:
        one_run: Both are parts of the same run.
        windows: They are parts of runs.
        changed: Names of the parameters that differ.
    """
    if one_run:
        return _unlike(a, b, changed)
    if windows:
        return "windows of two runs do not show how much runs with the same settings differ"
    if unfit_run := unfit(a, b):
        return unfit_run
    for side, runs in (("A", a), ("B", b)):
        shortest_s = min(run.seconds - run.warm_up_s for run in runs)
        if too_short(runs):
            return f"a run of {side} has {shortest_s:.0f} s after the warm-up: a comparison needs {SHORTEST_S} s"
    if in_turn(a, b):
        return ""
    for side, runs in (("A", a), ("B", b)):
        unsteady = sum(run.steady is False for run in runs)
        if unsteady:
            counted = f"{unsteady} of the {len(runs)} runs" if len(runs) > 1 else "the run"
            verb = "is" if unsteady == 1 else "are"
            return f"{counted} of {side} {verb} not steady: a verdict needs steady runs, or runs in alternation"
    return ""


def labelled_runs(a: Runs, b: Runs) -> list[tuple[str, ComparedRun]]:
    """Return the runs of both sides, each with the name of its side."""
    return [(side, run) for side, runs in (("A", a), ("B", b)) for run in runs]


def unfit(a: Runs, b: Runs) -> str:
    """Return which run must not be compared, and why: not valid, or partial; "" where all may."""
    reasons = ((side, run.why_no_reference) for side, run in labelled_runs(a, b))
    return next((f"a run of {side} {reason}" for side, reason in reasons if reason), "")


def too_short(runs: Runs) -> bool:
    """Return whether a run is too short to be compared."""
    return any(run.seconds - run.warm_up_s < SHORTEST_S for run in runs)


def in_turn(a: Runs, b: Runs) -> bool:
    """Return whether runs of both sides alternated, so that a drift weighs on both alike: A B B A, A B A B."""
    if min(len(a), len(b)) < 2:
        return False
    order = sorted([(run.began_ms, 0) for run in a] + [(run.began_ms, 1) for run in b])
    places = [[position for position, (_, side) in enumerate(order) if side == number] for number in (0, 1)]
    return all(places) and abs(fmean(places[0]) - fmean(places[1])) <= 1.0


def _unlike(a: Runs, b: Runs, changed: Collection[str]) -> str:
    """Return another difference between two parts of one run, as a sentence; "" without one."""
    if checkpoints_alike(a, b) is False:
        return "checkpoints took different shares of A and B"
    values = [
        [[(part / weight, weight) for run in side for part, weight in run.gathered.sums(condition.metric.id) if weight]
         for side in (a, b)]
        for condition in CONDITIONS
    ]  # fmt: skip
    difference = unlike(values, changed)
    return "" if difference is None else difference.sentence


def checkpoints_alike(a: Runs, b: Runs) -> bool | None:
    """Return whether both sides have as many checkpoints for their length; None where that is not known."""
    checkpoints = [[run.checkpoints_s for run in side] for side in (a, b)]
    if any(None in side for side in checkpoints):
        return None
    counts = [sum(len(moments or ()) for moments in side) for side in checkpoints]
    per_s = [count / max(sum(run.seconds for run in side), 1.0) for count, side in zip(counts, (a, b), strict=True)]
    return counts == [0, 0] or (min(per_s) > 0 and max(per_s) <= CHECKPOINTS_ALIKE * min(per_s))


def worded(effect: Effect | None, better: Better, certain: bool | None, *, comparable: bool, decisive: bool) -> str:
    """Return a verdict as a table has it.

    Args:
        better: Which way is an improvement; of what is no aim it is said that it is more or less.
        certain: As of `effect.verdict`.
        comparable: Whether the fingerprints allow a comparison.
        decisive: Whether the runs allow a verdict, see `why_no_verdict`; of others it is only said that they differ.
    """
    if not comparable:
        return NOT_COMPARABLE
    if effect is None or effect.low is None:
        return TOO_SHORT
    judged = verdict(effect, higher_is_better=better is not Better.LOWER, certain=certain)
    if not decisive:
        return str(without_verdict(judged))
    return _EXPLAINING.get(judged, str(judged)) if better is Better.NEITHER else str(judged)
