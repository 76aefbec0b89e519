"""B against A: fingerprint, then phase by phase each figure with its effect, interval and verdict, and the waits."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from itertools import pairwise
from statistics import fmean, median
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from pgtop_tune.analysis.figures import BY_ID, FIGURES, LATENCY, Better, Figure
from pgtop_tune.analysis.fingerprint import Fingerprints, fingerprints
from pgtop_tune.analysis.gathered import Sums, blocks, milliseconds, quotient
from pgtop_tune.analysis.material import LoadKey, Material, Run
from pgtop_tune.analysis.waits import WaitRow, wait_rows
from pgtop_tune.compare.blocks import FEWEST, block_length
from pgtop_tune.compare.effect import Effect, Verdict, effect_of_whole, share_effect, verdict
from pgtop_tune.metrics.percentiles import Merged, merge

NOT_COMPARABLE: Final = "not comparable"
TOO_SHORT: Final = "too little to say"
MORE: Final = "more"
LESS: Final = "less"
BETWEEN_RUNS: Final = "how runs differ among each other is not in the intervals: fewer than four runs on a side"
COLDER: Final = 5.0
"""Percentage points of buffer hits at the begin that make one cache colder than the other."""
BELOW: Final = 0.005
"""Per cent of failures on both sides that are no line of a table."""


class FigureRow(Struct, frozen=True):
    """One figure of a phase.

    Attributes:
        a, b: Over everything behind the warm-up.
        effect: None where there is nothing to be divided by.
        verdict: Better, worse, no difference distinguishable, undecided; more or less for what is no aim by itself.
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
    """

    key: LoadKey
    a: tuple[Run, ...]
    b: tuple[Run, ...]
    rows: tuple[FigureRow, ...]
    waits: tuple[WaitRow, ...]
    notes: tuple[str, ...]
    period_s: int | None

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


def compare(a: Material, b: Material, under_test: Collection[str] = ()) -> Comparison:
    """B against A.

    Args:
        under_test: Groups and names of facts that are meant to differ, `load` among them: then loads are paired in
            the order in which they were run.
    """
    found = fingerprints(a, b, under_test)
    left, right = a.phases, b.phases
    pairs = [(key, key) for key in left if key in right]
    reasons = list(found.reasons)
    if not pairs and {"load", "all"} & {name.lower() for name in under_test}:
        pairs = list(zip(left, right, strict=False))
    if not pairs:
        reasons.append(f"no load was run on both sides: A has {_titles(left)}, B has {_titles(right)}")
    phases = tuple(_phase(one, left[one], right[other], not reasons) for one, other in pairs)
    paired = {key for pair in pairs for key in pair}
    return Comparison(
        a, b, found, phases,
        tuple(key for key in left if key not in paired), tuple(key for key in right if key not in paired),
        tuple(reasons),
    )  # fmt: skip


def _titles(phases: Mapping[LoadKey, Sequence[Run]]) -> str:
    return "; ".join(key.title for key in phases) or "no run that ended well"


def _phase(key: LoadKey, a: tuple[Run, ...], b: tuple[Run, ...], comparable: bool) -> Phase:
    period_s = aligned_period(a, b)
    if period_s is not None:
        a, b = _whole_cycles(a), _whole_cycles(b)
    rows = tuple(row for figure in FIGURES if (row := _row(figure, a, b, period_s, comparable)) is not None)
    latency = (figure_of(BY_ID[LATENCY], a), figure_of(BY_ID[LATENCY], b))
    waits = wait_rows(a, b, latency, comparable)
    return Phase(key, a, b, rows, waits, tuple(_notes(a, b, period_s)), period_s)


def _row(
    figure: Figure, a: Sequence[Run], b: Sequence[Run], period_s: int | None, comparable: bool
) -> FigureRow | None:
    whole_a, whole_b = figure_of(figure, a), figure_of(figure, b)
    if whole_a is None or whole_b is None or (figure.unit == "%" and max(whole_a, whole_b) < BELOW):
        return None
    effect = _effect(figure, a, b, (whole_a, whole_b), period_s)
    return FigureRow(figure, whole_a, whole_b, effect, _verdict(figure, effect, comparable))


def _verdict(figure: Figure, effect: Effect | None, comparable: bool) -> str:
    if not comparable:
        return NOT_COMPARABLE
    if effect is None or effect.low is None:
        return TOO_SHORT
    if figure.better is Better.NEITHER:
        words = {Verdict.BETTER: MORE, Verdict.WORSE: LESS}
        found = verdict(effect, higher_is_better=True)
        return words.get(found, str(found))
    return str(verdict(effect, higher_is_better=figure.better is Better.HIGHER))


def _effect(
    figure: Figure, a: Sequence[Run], b: Sequence[Run], whole: tuple[float, float], period_s: int | None
) -> Effect | None:
    if min(len(a), len(b)) >= FEWEST:
        # Enough runs on both sides: each is a block, and what varies from run to run is in the interval.
        runs = [[value for run in side if (value := figure_of(figure, (run,))) is not None] for side in (a, b)]
        return _of_blocks(figure, whole, runs[0], runs[1], 1)
    step_s = max(run.gathered.step_s for run in (*a, *b))
    period = None if period_s is None else max(round(period_s / step_s), 1)
    values = [_values(figure, side) for side in (a, b)]
    if not all(values):
        return None
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


def figure_of(figure: Figure, runs: Sequence[Run]) -> float | None:
    """Over everything behind the warm-up of all runs."""
    told = [run.whole[figure.id] for run in runs if figure.id in run.whole]
    if told and len(told) == len(runs):
        return fmean(told)
    if figure.quantile is not None and (merged := _latencies(runs)):
        return milliseconds(merge(merged), figure.quantile)
    return quotient(_sums(figure, runs))


def _values(figure: Figure, runs: Sequence[Run]) -> list[float]:
    """Step by step."""
    if figure.quantile is not None and (merged := _latencies(runs)):
        return [value for each in merged if (value := milliseconds(each, figure.quantile)) is not None]
    return [part / whole for part, whole in _sums(figure, runs)]


def _blocks(figure: Figure, runs: Sequence[Run], length: int) -> list[float]:
    """Block by block; no block has seconds of two runs."""
    found: list[float | None] = []
    for run in runs:
        if figure.quantile is not None and (merged := _latencies((run,))):
            quantile = figure.quantile
            found += [milliseconds(merge(merged[part]), quantile) for part in blocks(len(merged), length)]
        else:
            sums = _sums(figure, (run,))
            found += [quotient(sums[part]) for part in blocks(len(sums), length)]
    return [value for value in found if value is not None]


def _sums(figure: Figure, runs: Sequence[Run]) -> list[Sums]:
    return [each for run in runs for each in run.gathered.sums(figure.id, run.warm_up_s)]


def _latencies(runs: Sequence[Run]) -> list[Merged]:
    return [each for run in runs for each in run.gathered.latencies(run.warm_up_s)]


def aligned_period(a: Sequence[Run], b: Sequence[Run]) -> int | None:
    """Seconds of a checkpoint cycle, where both sides have at least four of them; the longer one's."""
    cycles = [_cycles(side) for side in (a, b)]
    if any(len(each) < FEWEST for each in cycles):
        return None
    return round(max(median(each) for each in cycles))


def _whole_cycles(runs: Sequence[Run]) -> tuple[Run, ...]:
    """The runs with so much left out at the begin that whole cycles remain: else one may have a checkpoint more."""
    cycle_s = median(_cycles(runs))
    found = []
    for run in runs:
        rest_s = (run.seconds - run.warm_up_s) % cycle_s
        fits = run.seconds - run.warm_up_s >= cycle_s
        found.append(replace(run, warm_up_s=run.warm_up_s + rest_s) if fits else run)
    return tuple(found)


def _cycles(runs: Sequence[Run]) -> list[float]:
    found: list[float] = []
    for run in runs:
        moments = run.checkpoints_s or []
        found += [after - before for before, after in pairwise(moments) if after > before]
    return found


def _notes(a: Sequence[Run], b: Sequence[Run], period_s: int | None) -> list[str]:
    notes = [words for note in (_runs, _unsteady, _partial, _cold) for words in note(a, b)]
    checkpoints = [[run.checkpoints_s for run in side] for side in (a, b)]
    if all(None not in side for side in checkpoints):
        counts = [sum(len(each or ()) for each in side) for side in checkpoints]
        notes.append(_checkpoint_words(counts, a, b, period_s))
    return notes


def _checkpoint_words(counts: Sequence[int], a: Sequence[Run], b: Sequence[Run], period_s: int | None) -> str:
    if period_s is not None:
        return (
            f"checkpoints: A {counts[0]}, B {counts[1]}; whole cycles are compared, in blocks of {period_s} s or more"
        )
    if counts == [0, 0]:
        return "checkpoints: none on either side, so that their cost is in neither figure"
    per_s = [count / max(sum(run.seconds for run in side), 1.0) for count, side in zip(counts, (a, b), strict=True)]
    if min(per_s) > 0 and max(per_s) <= 1.25 * min(per_s):
        return f"checkpoints: A {counts[0]}, B {counts[1]}; too few for blocks of whole cycles"
    return (
        f"checkpoints: A {counts[0]}, B {counts[1]}: what they cost is not in both figures alike;"
        " measure at least four cycles of each"
    )


def _runs(a: Sequence[Run], b: Sequence[Run]) -> list[str]:
    counts = len(a), len(b)
    if min(counts) >= FEWEST:
        return [f"A {counts[0]} runs, B {counts[1]} runs: each run is one block"]
    return [BETWEEN_RUNS]


def _unsteady(a: Sequence[Run], b: Sequence[Run]) -> list[str]:
    return [
        f"{side} is not steady: {run.steady_words}"
        for side, runs in (("A", a), ("B", b))
        for run in runs
        if run.steady is False
    ]


def _cold(a: Sequence[Run], b: Sequence[Run]) -> list[str]:
    """Caches that were not alike when the first runs began."""
    hits = a[0].first_hits, b[0].first_hits
    if hits[0] is None or hits[1] is None or abs(hits[0][1] - hits[1][1]) < COLDER:
        return []
    (first_s, first), (second_s, second) = hits[0], hits[1]
    return [
        "caches were not equally warm when it began: buffer hits"
        f" A {first:.0f} % in the first {first_s} s, B {second:.0f} % in the first {second_s} s"
    ]


def _partial(a: Sequence[Run], b: Sequence[Run]) -> list[str]:
    return [
        f"{side} was stopped before its time, after {run.seconds:.0f} s"
        for side, runs in (("A", a), ("B", b))
        for run in runs
        if run.summary.state == "stopped"
    ]
