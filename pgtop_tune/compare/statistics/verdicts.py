"""Verdicts: whether two sides allow one, and the verdict in words.

Runs are judged with the difference between runs in the interval (`effect`), from one run a side on; they must
have lasted long enough, and be steady or have been measured in turn (A B B A): what drifts weighs on both sides alike
then. Within one run, before and after a moment, verdicts take as many checkpoints and the same of
`before_after.CONDITIONS`.
"""

from __future__ import annotations

from collections.abc import Collection
from statistics import fmean
from typing import Final

from pgtop_tune.compare.sides.figures import Better
from pgtop_tune.compare.sides.material import Runs
from pgtop_tune.compare.statistics.before_after import CONDITIONS, unlike
from pgtop_tune.compare.statistics.effect import Effect, Verdict, verdict, without_verdict

SHORTEST_S: Final = 30
"""Of a run behind its warm-up, below which it is not compared."""
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
    """Why these sides allow no verdict, as a sentence; "" when they do.

    Args:
        one_run: Both are parts of the same run.
        windows: They are parts of runs.
        changed: Names of the parameters that differ.
    """
    if one_run:
        return _unlike(a, b, changed)
    if windows:
        return "parts of two runs do not show how much runs with the same settings differ"
    if unfit_run := unfit(a, b):
        return unfit_run
    for side, runs in (("A", a), ("B", b)):
        shortest_s = min(run.seconds - run.warm_up_s for run in runs)
        if too_short(runs):
            return f"a run of {side} has {shortest_s:.0f} s after the warm-up: at least {SHORTEST_S} s are compared"
    if in_turn(a, b):
        return ""
    for side, runs in (("A", a), ("B", b)):
        unsteady = sum(run.steady is False for run in runs)
        if unsteady:
            counted = f"{unsteady} of the {len(runs)} runs" if len(runs) > 1 else "the run"
            verb = "is" if unsteady == 1 else "are"
            return f"{counted} of {side} {verb} not steady: a verdict needs steady runs, or runs in alternation"
    return ""


def unfit(a: Runs, b: Runs) -> str:
    """Return which run must not be compared, and why: not valid, or partial; "" where all may."""
    reasons = ((side, run.why_no_reference) for side, runs in (("A", a), ("B", b)) for run in runs)
    return next((f"a run of {side} {reason}" for side, reason in reasons if reason), "")


def too_short(runs: Runs) -> bool:
    """Whether one of them is too short to be compared."""
    return any(run.seconds - run.warm_up_s < SHORTEST_S for run in runs)


def in_turn(a: Runs, b: Runs) -> bool:
    """Whether runs of both sides followed each other so that a drift weighs on both alike: A B B A, A B A B."""
    if min(len(a), len(b)) < 2:
        return False
    order = sorted([(run.began_ms, 0) for run in a] + [(run.began_ms, 1) for run in b])
    places = [[place for place, (_, side) in enumerate(order) if side == wanted] for wanted in (0, 1)]
    return all(places) and abs(fmean(places[0]) - fmean(places[1])) <= 1.0


def _unlike(a: Runs, b: Runs, changed: Collection[str]) -> str:
    """What else differs between two parts of one run."""
    if checkpoints_alike(a, b) is False:
        return "checkpoints took different shares of A and B"
    values = [
        [[(part / weight, weight) for run in side for part, weight in run.gathered.sums(each.metric.id) if weight]
         for side in (a, b)]
        for each in CONDITIONS
    ]  # fmt: skip
    found = unlike(values, changed)
    return "" if found is None else found.sentence


def checkpoints_alike(a: Runs, b: Runs) -> bool | None:
    """Whether both sides have as many checkpoints for their length; None where that is not known."""
    checkpoints = [[run.checkpoints_s for run in side] for side in (a, b)]
    if any(None in side for side in checkpoints):
        return None
    counts = [sum(len(each or ()) for each in side) for side in checkpoints]
    per_s = [count / max(sum(run.seconds for run in side), 1.0) for count, side in zip(counts, (a, b), strict=True)]
    return counts == [0, 0] or (min(per_s) > 0 and max(per_s) <= CHECKPOINTS_ALIKE * min(per_s))


def worded(effect: Effect | None, better: Better, certain: bool | None, *, comparable: bool, decisive: bool) -> str:
    """A verdict as a table has it.

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
    found = verdict(effect, higher_is_better=better is not Better.LOWER, certain=certain)
    if not decisive:
        return str(without_verdict(found))
    return _EXPLAINING.get(found, str(found)) if better is Better.NEITHER else str(found)
