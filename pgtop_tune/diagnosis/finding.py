"""A finding: one thing that binds, with the numbers that prove it and the next step."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from msgspec import Struct

from pgtop_tune.model.backend_action import BackendKey

SHORT_CELLS: Final = 66
"""The longest `Finding.short`."""


class FindingKind(StrEnum):
    """Kinds of findings, in the order in which they stand."""

    OUTAGE = "outage"
    """No transaction ends."""
    LIMIT = "limit"
    """A limit that ends the work when it is reached."""
    LATENCY = "latency"
    """A part of each transaction's time."""
    NOTE = "note"
    """Information: never first while there is a finding of another kind."""


class Confidence(StrEnum):
    """Certainty of a sentence; its words stand in the sentence, but for the first."""

    IS = "is"
    MOST_LIKELY = "most likely"
    PERHAPS = "perhaps"
    UNCLEAR = "not clear"
    """Said only where nothing else is: "no clear bottleneck; largest part: …"."""


class ParameterAdvice(Struct, frozen=True):
    """A parameter to try; its value is the proposal's to say (`advice`).

    Attributes:
        name: Name of the parameter.
        direction: "raise", "lower" or "set".
        reason: Why, without a full stop.
    """

    name: str
    direction: str
    reason: str


class SessionAdvice(Struct, frozen=True):
    """A session to look at, and perhaps to end.

    Attributes:
        backend: pid and backend_start_ms.
        reason: Why, without a full stop.
    """

    backend: BackendKey
    reason: str


Advice = ParameterAdvice | SessionAdvice


class Finding(Struct, frozen=True, kw_only=True):
    """One thing that binds.

    Attributes:
        rule: Stable name: "wal.flush".
        kind: Kind of finding.
        sentence: All of it, confidence and numbers included, without the key of its page. Plain text; names in it are
            foreign text.
        short: The same in `SHORT_CELLS` cells at most.
        impact_ms: Milliseconds of each transaction that it takes at most; None where it is not about time.
        share: The same as a share of a transaction's or the server's time; of a limit what is used of it; 0 to 1, None
            where there is no such number.
        confidence: Certainty of the sentence.
        page: Key of the page that shows the evidence.
        since_ms: When it began, milliseconds since the epoch.
        evidence: Labels and values.
        next_step: Advice, and an observation that would refute it.
        advice: A parameter or a session that the next step is about; None without.
    """

    rule: str
    kind: FindingKind
    sentence: str
    short: str
    impact_ms: float | None
    share: float | None
    confidence: Confidence
    page: str
    since_ms: int
    evidence: tuple[tuple[str, str], ...] = ()
    next_step: str = ""
    advice: Advice | None = None


class NotLookedAt(Struct, frozen=True):
    """Rules that could not be looked at.

    Attributes:
        rules: Their names.
        reason: The absence of what they need, in its own words.
    """

    rules: tuple[str, ...]
    reason: str


class Diagnosis(Struct, frozen=True):
    """Diagnosis of one moment.

    Attributes:
        findings: At least one, the first first. Where nothing binds it is the rule "none".
        settling: Reason why the sentences are older: "the load began 4 s ago"; None otherwise.
        not_looked_at: Rules whose silence says nothing.
    """

    findings: tuple[Finding, ...]
    settling: str | None = None
    not_looked_at: tuple[NotLookedAt, ...] = ()

    @property
    def first(self) -> Finding:
        """Return the first finding."""
        return self.findings[0]
