"""The order of findings, worst first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from msgspec import Struct

from pgtop_tune.diagnosis.finding import Confidence, Finding, FindingKind
from pgtop_tune.diagnosis.rule import Rule

SOON_S: Final = 600.0
LATER_S: Final = 3600.0
LAST_TO_BIND: Final = 3
"""The last place of what binds; what stands behind is worth a line at the foot."""
_NEARLY: Final = 0.9
_EQUAL: Final = 0.9
_SURE: Final = tuple(Confidence)


class Ranked(Struct, frozen=True):
    """A finding with what its place depends on.

    Attributes:
        left_s: As `Hit.left_s`.
        strength: Its part of L, 0 to 1; 1 where nothing ends.
    """

    finding: Finding
    left_s: float | None
    strength: float

    @property
    def place(self) -> int:
        """Outages, limits within ten minutes, latency, limits within the hour, the others."""
        kind = self.finding.kind
        if kind is FindingKind.OUTAGE:
            return 0
        if kind is FindingKind.LATENCY:
            return 2
        if kind is FindingKind.NOTE:
            return 5
        near = (self.finding.share or 0.0) >= _NEARLY if self.left_s is None else self.left_s < SOON_S
        return 1 if near else 3 if self.left_s is not None and self.left_s < LATER_S else 4


def ranked(found: Sequence[Ranked], rules: Mapping[str, Rule]) -> list[Ranked]:
    """In order: by place, then by impact; causes before their symptoms, limits within the hour after the first."""
    order = sorted(found, key=lambda each: (each.place, -each.strength, each.finding.rule))
    for index in range(len(order) - 1):
        one, other = order[index], order[index + 1]
        level = one.place == other.place == 2 and other.strength >= _EQUAL * one.strength
        if level and _SURE.index(other.finding.confidence) < _SURE.index(one.finding.confidence):
            order[index], order[index + 1] = other, one
    for cause in list(order):
        symptoms = set(rules[cause.finding.rule].before) if cause.finding.rule in rules else set()
        at = order.index(cause)
        first = next((n for n in range(at) if order[n].finding.rule in symptoms and order[n].place == cause.place), at)
        order.insert(first, order.pop(at))
    latency = sum(each.place < 2 for each in order) + 1
    hour = [each for each in order if each.place == 3]
    if hour and any(each.place == 2 for each in order):
        rest = [each for each in order if each.place != 3]
        order = [*rest[:latency], *hour, *rest[latency:]]
    return order
