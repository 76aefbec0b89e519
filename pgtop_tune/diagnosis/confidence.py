"""How sure a sentence may be: one step less for each thing that makes its numbers say less."""

from __future__ import annotations

from typing import Final

from pgtop_tune.diagnosis.facts import Facts
from pgtop_tune.diagnosis.finding import Confidence, FindingKind
from pgtop_tune.diagnosis.rule import Hit, Rule
from pgtop_tune.metrics import sections

FEW_LOOKS: Final = 30
_SCALED: Final = 0.8
_STEPS: Final = (Confidence.IS, Confidence.MOST_LIKELY, Confidence.PERHAPS, Confidence.UNCLEAR)


def confidence_of(rule: Rule, hit: Hit, facts: Facts) -> Confidence:
    """Of one finding. What is counted and not sampled, as limits and outages are, is as it is."""
    if hit.kind_of(rule) is not FindingKind.LATENCY:
        return Confidence.IS
    doubts = (
        hit.looks is not None and hit.looks < FEW_LOOKS,
        not hit.agreed,
        facts.budget is not None and facts.budget.scale < _SCALED,
        # One doubt: programs that take CPUs fill the machine as well.
        not rule.sure_of_cpu and (facts.is_full or facts.is_disturbed),
        hit.looks is not None and facts.hidden is not None,
        hit.looks is not None and facts.interval.now(sections.processes) is None,
    )
    return _STEPS[min(sum(doubts), len(_STEPS) - 1)]


def worded(confidence: Confidence, sentence: str) -> str:
    """The sentence with the word."""
    if confidence is Confidence.IS:
        return sentence
    if confidence is Confidence.UNCLEAR:
        return f"not clear what binds; largest part: {sentence}"
    return f"{confidence} {sentence}"
