"""B against A: fingerprint, then phase by phase each figure with its effect, interval and verdict, and the waits."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from itertools import pairwise
from statistics import median
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from pgtop_tune.compare.comparison_notes import between_runs, phase_notes, to_settle
from pgtop_tune.compare.sides.figures import BY_ID, FIGURES, LATENCY, TPS, Better, Figure, WaitRow, wait_rows
from pgtop_tune.compare.sides.fingerprint import Fingerprints, fingerprints
from pgtop_tune.compare.sides.gathered import Sums, blocks, quotient
from pgtop_tune.compare.sides.material import ComparedRun, LoadKey, Material
from pgtop_tune.compare.statistics.effect import (
    FEWEST,
    WRONG,
    Effect,
    RunSpread,
    block_length,
    certain_together,
    effect_of_runs,
    effect_of_whole,
    on_scale,
    share_effect,
    spread_of,
    widened,
)
from pgtop_tune.compare.statistics.verdicts import why_no_verdict, worded
from pgtop_tune.metrics.percentiles import Merged, merge

BELOW: Final = 0.005
"""Per cent of failures on both sides that are no line of a table."""
Earlier = Mapping[str, Sequence[Sequence[Mapping[str, float]]]]
"""Runs that were made earlier with the same set-up: by title of the load, groups that were made alike, and of each run
its figures by id."""


class FigureRow(Struct, frozen=True):
    """One figure of a phase.

    Attributes:
        a, b: Over everything behind the warm-up.
        effect: None where there is nothing to be divided by.
        verdict: Better, worse, no difference distinguishable, undecided; more or less for what is no aim by itself;
            differ, where the runs do and allow no verdict.
    """

    figure: Figure
    a: float | None
    b: float | None
    effect: Effect | None
    verdict: str

    @property
    def change(self) -> tuple[float, float | None, float | None] | None:
        """The change and its 95 % interval, as shares (of A, or 0.01 for a percentage point); None without."""
        effect, scale = self.effect, 1.0 if self.figure.points is None else self.figure.points / 100.0
        if effect is None:
            return None
        if effect.low is None or effect.high is None:
            return effect.relative * scale, None, None
        return effect.relative * scale, effect.low * scale, effect.high * scale


class Phase(Struct, frozen=True):
    """The same load on both sides.

    Attributes:
        notes: What a reader of the figures must know.
        period_s: Seconds of a checkpoint cycle that blocks are whole multiples of; None where they are not aligned.
        no_verdict: Why the runs allow none; "" where they do.
        to_settle: What to type for a verdict; empty where there is one.
    """

    key: LoadKey
    a: tuple[ComparedRun, ...]
    b: tuple[ComparedRun, ...]
    rows: tuple[FigureRow, ...]
    waits: tuple[WaitRow, ...]
    notes: tuple[str, ...]
    period_s: int | None
    no_verdict: str = ""
    to_settle: tuple[str, ...] = ()

    def row(self, figure: str) -> FigureRow | None:
        """One of its rows."""
        return next((row for row in self.rows if row.figure.id == figure), None)


class Comparison(Struct, frozen=True):
    """Two sides.

    Attributes:
        only_a, only_b: Loads that the other side did not run.
        reasons: Why results are not comparable; empty when they are.
    """

    a: Material
    b: Material
    fingerprints: Fingerprints
    phases: tuple[Phase, ...]
    only_a: tuple[LoadKey, ...]
    only_b: tuple[LoadKey, ...]
    reasons: tuple[str, ...]

    @property
    def comparable(self) -> bool:
        """Whether verdicts are given."""
        return not self.reasons


def compare(
    a: Material,
    b: Material,
    under_test: Collection[str] = (),
    earlier: Earlier | None = None,
    *,
    one_run: bool = False,
) -> Comparison:
    """B against A.

    Args:
        under_test: Groups and names of facts that are meant to differ, `load` among them: then loads are paired in
            the order in which they were run.
        earlier: What is known of how runs differ among each other: it widens the intervals of fewer than four.
        one_run: Both are parts of the same run.
    """
    found = fingerprints(a, b, under_test)
    left, right = a.phases, b.phases
    pairs = [(key, key) for key in left if key in right]
    reasons = list(found.reasons)
    if not pairs and {"load", "all"} & {name.lower() for name in under_test}:
        pairs = list(zip(left, right, strict=False))
    if not pairs:
        reasons.append(f"no load was run on both sides: A has {_titles(left)}, B has {_titles(right)}")
    phases = []
    for one, other in pairs:
        sides = left[one], right[other]
        known = [group for key in {one, other} for group in (earlier or {}).get(key.title, ())]
        changed = {each.name for each in found.differences} if one_run else ()
        phase = _phase(one, *sides, known, changed, comparable=not reasons, one_run=one_run)
        if phase.no_verdict and not one_run and not reasons:
            phase = replace(phase, to_settle=to_settle(a, b, sides, found))
        phases.append(phase)
    paired = {key for pair in pairs for key in pair}
    return Comparison(
        a=a, b=b, fingerprints=found, phases=tuple(phases),
        only_a=tuple(key for key in left if key not in paired), only_b=tuple(key for key in right if key not in paired),
        reasons=tuple(reasons),
    )  # fmt: skip


def _titles(phases: Mapping[LoadKey, Sequence[ComparedRun]]) -> str:
    return "; ".join(key.title for key in phases) or "no successful run"


def _phase(
    key: LoadKey,
    a: tuple[ComparedRun, ...],
    b: tuple[ComparedRun, ...],
    earlier: Sequence[Sequence[Mapping[str, float]]],
    changed: Collection[str],
    *,
    comparable: bool,
    one_run: bool,
) -> Phase:
    no_verdict = why_no_verdict(a, b, one_run=one_run, changed=changed)
    period_s = aligned_period(a, b)
    if period_s is not None:
        a, b = _whole_cycles(a), _whole_cycles(b)
    rows = [row for figure in FIGURES if (row := _row(figure, a, b, period_s, earlier)) is not None]
    latency = (figure_of(BY_ID[LATENCY], a), figure_of(BY_ID[LATENCY], b))
    waits = wait_rows(a, b, latency)
    primary = _primary(key, rows)
    others = {row.figure.id: row.effect for row in rows if row.figure is not primary}
    others |= {row.label: row.effect for row in waits if row.whole_class and not row.verdict}
    certain = certain_together(
        {name: effect.chance for name, effect in others.items() if effect is not None and effect.chance is not None}
    )

    def said(name: str, effect: Effect | None, better: Better) -> str:
        sure = name in certain if name in others else None
        return worded(effect, better, sure, comparable=comparable, decisive=not no_verdict)

    notes = phase_notes(a, b, period_s, no_verdict)
    if primary is not None and no_verdict and not one_run:
        effect = next(row.effect for row in rows if row.figure is primary)
        with_interval = effect is not None and effect.low is not None
        notes.append(between_runs(primary, _spread(primary, a, b, earlier), with_interval=with_interval))
    if primary is not None and len(others) > 1:
        notes.append(
            f"{primary.title} is judged alone, the {len(others)} others together:"
            f" called different by chance in {100 * WRONG:.0f} % of comparisons each"
        )
    return Phase(
        key=key,
        a=a,
        b=b,
        rows=tuple(replace(row, verdict=said(row.figure.id, row.effect, row.figure.better)) for row in rows),
        waits=tuple(
            replace(row, verdict=said(row.label, row.effect, Better.NEITHER))
            if row.whole_class and not row.verdict
            else row
            for row in waits
        ),
        notes=tuple(notes),
        period_s=period_s,
        no_verdict=no_verdict,
    )


def _primary(key: LoadKey, rows: Sequence[FigureRow]) -> Figure | None:
    """What the load is for: throughput, and where a rate is given how long a transaction takes at it."""
    wanted = (LATENCY, TPS) if key.rate_per_s is not None else (TPS, "server_tps")
    there = {row.figure.id: row.figure for row in rows}
    return next((there[name] for name in (*wanted, *there) if name in there), None)


def _row(
    figure: Figure,
    a: Sequence[ComparedRun],
    b: Sequence[ComparedRun],
    period_s: int | None,
    earlier: Sequence[Sequence[Mapping[str, float]]],
) -> FigureRow | None:
    whole_a, whole_b = figure_of(figure, a), figure_of(figure, b)
    if whole_a is None or whole_b is None or (figure.unit == "%" and max(whole_a, whole_b) < BELOW):
        return None
    effect = _effect(figure, a, b, (whole_a, whole_b), period_s)
    if effect is not None and min(len(a), len(b)) < FEWEST:
        spread = _spread(figure, a, b, earlier)
        effect = widened(effect, spread, (len(a), len(b)), ratio=figure.points is None)
    return FigureRow(figure=figure, a=whole_a, b=whole_b, effect=effect, verdict="")


def _spread(
    figure: Figure, a: Sequence[ComparedRun], b: Sequence[ComparedRun], earlier: Sequence[Sequence[Mapping[str, float]]]
) -> RunSpread:
    """How runs differ that were made alike: those of each side, and those of earlier."""
    groups = [_of_runs(figure, side) for side in (a, b)]
    groups += [[run[figure.id] for run in group if figure.id in run] for group in earlier]
    return spread_of(
        [on_scale([value for value in group if value > 0 or figure.points], figure.points) for group in groups]
    )


def _of_runs(figure: Figure, runs: Sequence[ComparedRun]) -> list[float]:
    """One value of each run."""
    return [value for run in runs if (value := figure_of(figure, (run,))) is not None]


def _effect(
    figure: Figure, a: Sequence[ComparedRun], b: Sequence[ComparedRun], whole: tuple[float, float], period_s: int | None
) -> Effect | None:
    if min(len(a), len(b)) >= FEWEST:
        return effect_of_runs(whole, _of_runs(figure, a), _of_runs(figure, b), figure.points)
    step_s = max(run.gathered.step_s for run in (*a, *b))
    period = None if period_s is None else max(round(period_s / step_s), 1)
    values = [_values(figure, side) for side in (a, b)]
    if not all(values):
        return None if figure.quantile is None else effect_of_whole(whole, (), (), step_s)
    length = block_length(values, period)
    effect = _of_blocks(figure, whole, _blocks(figure, a, length), _blocks(figure, b, length), length)
    return None if effect is None else _in_seconds(effect, step_s)


def _of_blocks(
    figure: Figure, whole: tuple[float, float], a: Sequence[float], b: Sequence[float], length: int
) -> Effect | None:
    if figure.points is not None:
        found = share_effect(a, b, figure.points)
        return None if found is None else _told_from_whole(found, (whole[1] - whole[0]) / figure.points, length)
    return effect_of_whole(whole, a, b, length)


def _told_from_whole(effect: Effect, relative: float, length: int) -> Effect:
    """The blocks leave out the rest at the beginning, the table does not: the interval moves with the difference."""
    off = relative - effect.relative
    if effect.low is None or effect.high is None:
        return replace(effect, relative=relative, block_s=length)
    return replace(effect, relative=relative, low=effect.low + off, high=effect.high + off, block_s=length)


def _in_seconds(effect: Effect, step_s: int) -> Effect:
    return replace(effect, block_s=effect.block_s * step_s)


def figure_of(figure: Figure, runs: Sequence[ComparedRun]) -> float | None:
    """Over everything behind the warm-up of all runs; None for a percentile that is not known of just that."""
    if figure.quantile is not None:
        if merged := _latencies(runs):
            return figure.quantile.of(merge(merged))
        alone = runs[0] if len(runs) == 1 else None
        return None if alone is None or alone.warm_up_s else alone.whole.get(figure.id)
    return quotient(_sums(figure, runs))


def _values(figure: Figure, runs: Sequence[ComparedRun]) -> list[float]:
    """Step by step."""
    if figure.quantile is not None:
        return [value for each in _latencies(runs) if (value := figure.quantile.of(each)) is not None]
    return [part / whole for part, whole in _sums(figure, runs)]


def _blocks(figure: Figure, runs: Sequence[ComparedRun], length: int) -> list[float]:
    """Block by block; no block has seconds of two runs."""
    found: list[float | None] = []
    for run in runs:
        if figure.quantile is not None:
            merged, quantile = _latencies((run,)), figure.quantile
            found += [quantile.of(merge(merged[part])) for part in blocks(len(merged), length)]
        else:
            sums = _sums(figure, (run,))
            found += [quotient(sums[part]) for part in blocks(len(sums), length)]
    return [value for value in found if value is not None]


def _sums(figure: Figure, runs: Sequence[ComparedRun]) -> list[Sums]:
    return [each for run in runs for each in run.gathered.sums(figure.id, run.warm_up_s)]


def _latencies(runs: Sequence[ComparedRun]) -> list[Merged]:
    """Histograms of all runs; empty where one of them has none."""
    found = [run.gathered.latencies(run.warm_up_s) for run in runs]
    return [each for histograms in found for each in histograms] if all(found) else []


def aligned_period(a: Sequence[ComparedRun], b: Sequence[ComparedRun]) -> int | None:
    """Seconds of a checkpoint cycle, where both sides have at least four of them; the longer one's."""
    cycles = [_cycles(side) for side in (a, b)]
    if any(len(each) < FEWEST for each in cycles):
        return None
    return round(max(median(each) for each in cycles))


def _whole_cycles(runs: Sequence[ComparedRun]) -> tuple[ComparedRun, ...]:
    """The runs with so much left out at the begin that whole cycles remain: else one may have a checkpoint more."""
    cycle_s = median(_cycles(runs))
    found = []
    for run in runs:
        rest_s = (run.seconds - run.warm_up_s) % cycle_s
        fits = run.seconds - run.warm_up_s >= cycle_s
        found.append(replace(run, warm_up_s=run.warm_up_s + rest_s) if fits else run)
    return tuple(found)


def _cycles(runs: Sequence[ComparedRun]) -> list[float]:
    found: list[float] = []
    for run in runs:
        moments = run.checkpoints_s or []
        found += [after - before for before, after in pairwise(moments) if after > before]
    return found
