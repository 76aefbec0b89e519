"""The arm that is best by the objective of a plan, among those that keep its constraints. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean

from pgtop_tune.compare.statistics.effect import Verdict
from pgtop_tune.experiment.plan.judging import Judgement, Load, load_words, results_by_arm
from pgtop_tune.experiment.plan.model import FIGURES
from pgtop_tune.experiment.plan.results import CellResult, Outcome


def best_arm(outcome: Outcome, judged: Sequence[Judgement]) -> Iterator[str]:
    """One line a load: the best arm, whether that is certain, and the arms that are past a constraint.

    Args:
        judged: All judgements of the outcome.
    """
    plan = outcome.plan
    if len(plan.arms) == 1 and not plan.constraints:
        return
    loads: dict[Load, dict[str, Mapping[str, float]]] = {}
    for (arm, load), runs in results_by_arm(outcome).items():
        loads.setdefault(load, {})[arm] = _values(runs)
    for load, arms in loads.items():
        broken = {arm: words for arm, values in arms.items() if (words := _broken(outcome, values))}
        kept = {arm: values for arm, values in arms.items() if arm not in broken}
        measured = {arm: values[plan.objective] for arm, values in kept.items() if plan.objective in values}
        past = ", ".join(f"{arm} ({words})" for arm, words in broken.items())
        out = f"; past a constraint: {past}" if past else ""
        if not kept:
            yield f"{load_words(load)}: no configuration keeps the constraints{out}"
        elif not measured:
            yield f"{load_words(load)}: {plan.objective} was not measured{out}"
        else:
            best = (max if dict(FIGURES)[plan.objective] else min)(measured, key=lambda arm: measured[arm])
            doubt = "" if _is_certain(outcome, judged, load, best, set(measured)) else ", which is not certain"
            yield f"{load_words(load)}: {plan.objective} is best with {best} ({measured[best]:.6g}){doubt}{out}"


def _values(runs: Sequence[CellResult]) -> Mapping[str, float]:
    """Means of the repeats, by figure; a figure that no run has is left out."""
    return {
        name: fmean(known)
        for name, _ in FIGURES
        if (known := [float(value) for run in runs if (value := getattr(run, name)) is not None])
    }


def _broken(outcome: Outcome, values: Mapping[str, float]) -> str:
    """The first constraint that is not kept, or of which nobody knows; "" where all are kept."""
    for each in outcome.plan.constraints:
        value = values.get(each.figure)
        if value is None:
            return f"{each.figure} not measured"
        if value > each.limit if each.most else value < each.limit:
            return f"{each.figure} {value:.6g}"
    return ""


def _is_certain(outcome: Outcome, judged: Sequence[Judgement], load: Load, best: str, arms: set[str]) -> bool:
    """Whether the judge says so: of the best arm against the baseline, or of each other arm where that is the best."""
    plan, base = outcome.plan, outcome.plan.baseline
    if best != base:
        of_best = next((each for each in judged if (each.arm, each.load) == (best, load)), None)
        return arms == {best} or (of_best is not None and of_best.of_figure(plan.objective) == Verdict.BETTER)
    others = [each for each in judged if each.load == load and each.arm in arms]
    return all(each.of_figure(plan.objective) == Verdict.WORSE for each in others)
