"""What a reader of a phase's figures must know: runs, steadiness, caches, checkpoints."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pgtop_tune.compare.sides.figures import Figure
from pgtop_tune.compare.sides.material import ComparedRun
from pgtop_tune.compare.statistics.effect import RunSpread
from pgtop_tune.compare.statistics.verdicts import checkpoints_alike, in_turn
from pgtop_tune.metrics.checkpoints import CHECKPOINT_WRITES

COLDER: Final = 5.0
"""Percentage points of buffer hits at the start that make one cache colder than the other."""


def phase_notes(a: Sequence[ComparedRun], b: Sequence[ComparedRun], period_s: int | None, no_verdict: str) -> list[str]:
    """The notes, in the order in which they are read.

    Args:
        period_s: Seconds of a checkpoint cycle that blocks are multiples of; None where they are not aligned.
        no_verdict: Why the runs allow no verdict; "" where they do.
    """
    notes = [f"no verdict: {no_verdict}" if no_verdict else f"A {len(a)} runs, B {len(b)} runs: each run is one value"]
    notes += [words for note in (_unsteady, _partial, _cold, _blocked, _unmerged) for words in note(a, b)]
    checkpoints = [[run.checkpoints_s for run in side] for side in (a, b)]
    if all(None not in side for side in checkpoints):
        counts = [sum(len(each or ()) for each in side) for side in checkpoints]
        notes.append(_checkpoint_words(counts, a, b, period_s))
    return notes


def _checkpoint_words(
    counts: Sequence[int], a: Sequence[ComparedRun], b: Sequence[ComparedRun], period_s: int | None
) -> str:
    if period_s is not None:
        return (
            f"checkpoints: A {counts[0]}, B {counts[1]}; whole cycles are compared, in blocks of {period_s} s or more"
        )
    if counts == [0, 0] and any(part for run in (*a, *b) for part, _ in run.gathered.sums(CHECKPOINT_WRITES.id)):
        return "checkpoints: none began on either side, but one that had begun before still wrote"
    if counts == [0, 0]:
        return "checkpoints: none on either side, so neither figure includes their cost"
    if checkpoints_alike(a, b):
        return f"checkpoints: A {counts[0]}, B {counts[1]}; too few for blocks of whole cycles"
    return (
        f"checkpoints: A {counts[0]}, B {counts[1]}: the figures do not include their cost equally; measure at least "
        "four cycles of each"
    )


def _unsteady(a: Sequence[ComparedRun], b: Sequence[ComparedRun]) -> list[str]:
    return [
        f"{side} is not steady: {run.steady_words}"
        for side, runs in (("A", a), ("B", b))
        for run in runs
        if run.steady is False
    ]


def _cold(a: Sequence[ComparedRun], b: Sequence[ComparedRun]) -> list[str]:
    """Caches that were not alike when the first runs began."""
    hits = a[0].first_hits, b[0].first_hits
    if hits[0] is None or hits[1] is None or abs(hits[0][1] - hits[1][1]) < COLDER:
        return []
    (first_s, first), (second_s, second) = hits[0], hits[1]
    return [
        "caches were not equally warm at the start: buffer hits"
        f" A {first:.0f} % in the first {first_s} s, B {second:.0f} % in the first {second_s} s"
    ]


def _partial(a: Sequence[ComparedRun], b: Sequence[ComparedRun]) -> list[str]:
    return [
        f"{side} was stopped early, after {run.seconds:.0f} s"
        for side, runs in (("A", a), ("B", b))
        for run in runs
        if run.summary.state == "stopped"
    ]


def between_runs(figure: Figure, spread: RunSpread, *, with_interval: bool) -> str:
    """How runs that were made alike differ among each other in a figure.

    Args:
        figure: The figure.
        spread: Of it, between runs.
        with_interval: Whether the figure's effect has an interval.
    """
    if not spread.degrees:
        return "the variation between runs is unknown" + (", and not in the intervals" if with_interval else "")
    size = 100.0 * (spread.squares / spread.degrees) ** 0.5
    known = f"runs with the same settings differ by {size:.1f} % in {figure.title}"
    return f"{known}: the intervals include that" if with_interval else f"{known}; {figure.title} has no interval"


def _blocked(a: Sequence[ComparedRun], b: Sequence[ComparedRun]) -> list[str]:
    """Several runs a side, not in turn."""
    if min(len(a), len(b)) < 2 or in_turn(a, b):
        return []
    return [
        "the sides were not measured in alternation (A B B A): a drift cannot be told from the effect of the change"
    ]


def _unmerged(a: Sequence[ComparedRun], b: Sequence[ComparedRun]) -> list[str]:
    """Percentiles of a record without histograms are of the whole run, and those of several make none of all."""
    without = [run.whole and not run.gathered.latencies() for run in (*a, *b)]
    if not any(without) or not (any(run.warm_up_s for run in (*a, *b)) or max(len(a), len(b)) > 1):
        return []
    return ["percentiles are left out: this record has them only for the whole run, without histograms"]
