"""Notes on the figures of a phase, and the commands that lead to a verdict."""

from __future__ import annotations

import math
import shlex
from collections.abc import Sequence
from typing import Final

from pgtop_tune import units
from pgtop_tune.compare.sides.facts import SERVER
from pgtop_tune.compare.sides.figures import sides_without_queue
from pgtop_tune.compare.sides.fingerprint import Fingerprints
from pgtop_tune.compare.sides.material import ComparedRun, FactKind, Material
from pgtop_tune.compare.statistics.effect import Effect
from pgtop_tune.compare.statistics.runs import ASSUMED_SD, RunNoise
from pgtop_tune.compare.statistics.verdicts import checkpoints_alike, in_turn
from pgtop_tune.metrics.checkpoints import CHECKPOINT_WRITES
from pgtop_tune.safe_text import one_line

_MORE: Final = 1.05
"""Times the assumption from which on a run's own seconds are worth a word."""

COLDER: Final = 5.0
"""Percentage points of buffer hits at the start that make one cache colder than the other."""


def phase_notes(a: Sequence[ComparedRun], b: Sequence[ComparedRun], period_s: int | None, no_verdict: str) -> list[str]:
    """The notes, in the order in which they are read.

    Args:
        period_s: Seconds of a checkpoint cycle that blocks are multiples of; None where they are not aligned.
        no_verdict: Why the runs allow no verdict; "" where they do.
    """
    told = (_unsteady, _partial, _cold, _blocked, _unmerged, _without_queue)
    notes = [f"no verdict: {no_verdict}"] if no_verdict else []
    notes += [words for note in told for words in note(a, b)]
    checkpoints = [[run.checkpoints_s for run in side] for side in (a, b)]
    if all(None not in side for side in checkpoints):
        counts = [sum(len(each or ()) for each in side) for side in checkpoints]
        notes.append(_checkpoint_words(counts, a, b, period_s))
    return notes


def _checkpoint_words(
    counts: Sequence[int], a: Sequence[ComparedRun], b: Sequence[ComparedRun], period_s: int | None
) -> str:
    if period_s is not None:
        return f"checkpoints: A {counts[0]}, B {counts[1]}; whole cycles of {period_s} s are compared"
    if counts == [0, 0] and any(part for run in (*a, *b) for part, _ in run.gathered.sums(CHECKPOINT_WRITES.id)):
        return "checkpoints: none began on either side, but an earlier one was still writing"
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


def between_runs(title: str, noise: RunNoise, effect: Effect) -> str:
    """How runs with the same settings differ in a figure, and what that means for its interval."""
    runs = " and ".join(
        f"{count} run{'s' if count != 1 else ''} of {side}"
        for side, count in (("A", effect.blocks_a), ("B", effect.blocks_b))
    )
    half = (effect.high or 0.0) - effect.relative
    if not noise.measured:
        known = f"runs with the same settings are assumed to differ by {100 * ASSUMED_SD:.0f} %, as none were repeated"
        if noise.sd >= _MORE * ASSUMED_SD:
            known += f"; with what the seconds of one run leave open that is {100 * noise.sd:.1f} %"
    else:
        past = " and earlier ones" if noise.from_history else ""
        known = f"runs with the same settings differ by {100 * noise.sd:.1f} %, as those here{past} do"
    return f"{title}: {runs}, ±{100 * half:.1f} %; {known}"


def _blocked(a: Sequence[ComparedRun], b: Sequence[ComparedRun]) -> list[str]:
    """One side was measured before the other."""
    if in_turn(a, b):
        return []
    return ["A and B were not measured in alternation (A B B A): order and change cannot be told apart"]


def _without_queue(a: Sequence[ComparedRun], b: Sequence[ComparedRun]) -> list[str]:
    return [
        f"{side} does not tell the CPU queue: its CPU and Client include that time"
        for side in sides_without_queue(a, b)
    ]


def _unmerged(a: Sequence[ComparedRun], b: Sequence[ComparedRun]) -> list[str]:
    """Percentiles of a record without histograms are of the whole run, and those of several make none of all."""
    without = [run.whole and not run.gathered.latencies() for run in (*a, *b)]
    if not any(without) or not (any(run.warm_up_s for run in (*a, *b)) or max(len(a), len(b)) > 1):
        return []
    return ["percentiles are left out: this record has them only for the whole run, without histograms"]


# The commands that lead to a verdict: more runs of each side in turn, and their comparison.

ORDER: Final = "A B B A"
"""What drifts while it is measured weighs on both sides alike."""
SHORTEST_S: Final = 60
STEADIER_S: Final = 120
"""Length of a run in place of shorter ones that were not steady."""
FEWEST_RUNS: Final = 2
_MOST_RUNS: Final = 20
"""On each side, that anybody would make."""
_DIRECTORY: Final = "settle"
_LONGEST: Final = 120


def to_settle(
    a: Material,
    b: Material,
    runs: tuple[Sequence[ComparedRun], Sequence[ComparedRun]],
    prints: Fingerprints,
    needed: int | None,
) -> tuple[str, ...]:
    """What to type, line by line, after a sentence that says so.

    Args:
        runs: Of the load in question, on both sides.
        prints: What is under test.
        needed: Runs on each side until a verdict is likely; None where no number of them is.
    """
    if needed is None or needed > _MOST_RUNS:
        return (
            f"more than {_MOST_RUNS} runs on each side would be needed: the difference is too small for this noise",
        )
    count = math.ceil(max(needed, FEWEST_RUNS) / 2) * 2
    order = " ".join([ORDER] * (count // 2))
    specs = [next((run.spec for run in side if run.spec is not None), None) for side in runs]
    words = [_bench_run(side, made) for side, made in zip((a, b), runs, strict=True)]
    compared = f"pgtop-tune compare {_DIRECTORY}/A {_DIRECTORY}/B"
    if None in specs:
        return (
            f"a verdict takes about {count} runs of the load on each side, in the order {order}:"
            f" pgtop-tune bench run --out {_DIRECTORY}/A, or B; then {compared}",
        )
    tested = [each for each in prints.under_test if each.kind is FactKind.SETTING]
    if not tested and words[0] == words[1]:
        return (
            f"a verdict takes about {count} runs on each side:",
            f"for side in {order}; do {words[0]} --out {_DIRECTORY}/$side; done; {compared}",
        )
    changed = ", ".join(f"{each.name} {each.a} / {each.b}" for each in tested[:2])
    others = f" and {len(tested) - 2} more" if len(tested) > 2 else ""
    settings = f", with the settings of its side ({one_line(changed, _LONGEST)}{others})" if tested else ""
    return (
        f"a verdict takes about {count} runs on each side, in the order {order}, each{settings}:",
        f"{words[0]} --out {_DIRECTORY}/A",
        f"{words[1]} --out {_DIRECTORY}/B",
        compared,
    )


def _bench_run(side: Material, runs: Sequence[ComparedRun]) -> str:
    """The load of a side as a command."""
    spec = next((run.spec for run in runs if run.spec is not None), None)
    if spec is None:
        return ""
    words = ["pgtop-tune", "bench", "run", "--profile", spec.profile, "-c", str(spec.clients)]
    words += ["-j", str(spec.threads)] if spec.threads else []
    words += ["-T", str(_seconds(runs))] if spec.transactions is None else ["-t", str(spec.transactions)]
    words += ["-R", units.number(spec.rate_per_s)] if spec.rate_per_s is not None else []
    words += ["-L", units.number(spec.latency_limit_ms)] if spec.latency_limit_ms is not None else []
    words += ["--max-tries", str(spec.max_tries)] if spec.max_tries is not None else []
    words += ["--continue-on-error"] if spec.continue_on_error else []
    words += ["-M", spec.protocol] + (["-C"] if spec.connect_per_transaction else [])
    # Cut and cleaned before it is quoted: a quote that is cut off would free what stands behind it.
    return " ".join(shlex.quote(one_line(word, _LONGEST)) for word in (*words, *_connection(side)))


def _seconds(runs: Sequence[ComparedRun]) -> int:
    longest = math.ceil(max(run.seconds for run in runs) / 10.0) * 10
    return max(longest, SHORTEST_S if all(run.steady for run in runs) else STEADIER_S)


def _connection(side: Material) -> list[str]:
    facts = {fact.name: fact.value for fact in side.facts if fact.group == SERVER}
    host, _, port = facts.get("endpoint", "").rpartition(":")
    told = (("-h", host.strip("[]")), ("-p", port), ("-U", facts.get("user", "")), ("-d", facts.get("database", "")))
    return [word for option, value in told if value for word in (option, value)]
