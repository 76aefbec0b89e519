"""A rule: one row with its needs, its condition and its words; `Hit` is what its function gives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from msgspec import Struct

from pgtop_tune.diagnosis.facts import Facts
from pgtop_tune.diagnosis.finding import Advice, FindingKind
from pgtop_tune.metrics.catalogue import Section

LEAST: Final = 0.10
"""Share of L from which on a latency finding comes in."""


class Hit(Struct, frozen=True, kw_only=True):
    """The condition of a rule holds.

    Attributes:
        sentence: Without confidence, beginning in lower case unless a name begins it.
        short: As `Finding.short`.
        impact_ms: ms of each transaction; at most L.
        share: As `Finding.share`; of a latency finding left to the ranking.
        evidence, next_step, advice: As in `Finding`.
        looks: In how many looks its waits were seen; None where it is not from looks.
        agreed: Whether a counter or a number of the host says the same.
        left_s: Of a limit: time until it is reached; None where no time is known.
        blocks: Nothing ends while it lasts (X = 0): it is an outage.
        note: Worth a line, and too small to be ranked by its impact.
    """

    sentence: str
    short: str
    impact_ms: float | None = None
    share: float | None = None
    evidence: tuple[tuple[str, str], ...] = ()
    next_step: str = ""
    advice: Advice | None = None
    looks: float | None = None
    agreed: bool = True
    left_s: float | None = None
    blocks: bool = False
    note: bool = False

    def kind_of(self, rule: Rule) -> FindingKind:
        """What kind of finding it makes of its rule."""
        return FindingKind.OUTAGE if self.blocks else FindingKind.NOTE if self.note else rule.kind


class Rule(Struct, frozen=True, kw_only=True):
    """One row.

    Attributes:
        id: Stable name.
        kind: Of its findings.
        page: Key of the page with the evidence.
        needs: Sections without which it says nothing.
        find: Condition, impact and words; None where the condition does not hold.
        least: Share of L from which on it comes in; of a latency finding.
        before: Symptoms that this cause stands before.
        sure_of_cpu: Whether a full machine makes it no less sure, because it is about the machine's CPUs.
    """

    id: str
    kind: FindingKind
    page: str
    needs: tuple[Section[Any], ...]
    find: Callable[[Facts], Hit | None]
    least: float = LEAST
    before: tuple[str, ...] = ()
    sure_of_cpu: bool = False
