"""A finding: one thing that binds, with the numbers that prove it and the next step."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from msgspec import Struct

from pgtop_tune.model.backend_action import BackendKey

SHORT_CELLS: Final = 66
"""The longest `Finding.short`."""
BRIEF_CELLS: Final = 50
"""The longest last form of a sentence, for a screen of 60 columns."""


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


class DeedKind(StrEnum):
    """Kinds of deeds."""

    END_SESSION = "end session"
    CANCEL = "cancel"
    """Cancel the statement of a session; the session stays."""
    COPY_SQL = "copy SQL"
    """SQL to copy, or to run after a question."""
    STAGE_PARAMETER = "stage parameter"
    EXPLAIN = "explain statement"
    OPEN_PAGE = "open page"


class Deed(Struct, frozen=True, kw_only=True):
    """A deed that a finding offers.

    Attributes:
        kind: Kind of deed.
        target: Pid of the session, SQL, name of the parameter, text of the statement, or key of the page. Foreign text.
        effect: Effect of it, without a full stop: "frees 4 sessions". Foreign text.
        backend: pid and backend_start_ms of the session; None for other kinds.
        database: Database in which the SQL is to run; "" for any.
        direction: Direction of a parameter: "raise", "lower" or "set"; its value is the proposal's (`advice`).
        value: Value of a parameter, where the finding knows it; None otherwise.
        query_id: Query id of the statement to explain; None where it is not known.
    """

    kind: DeedKind
    target: str
    effect: str
    backend: BackendKey | None = None
    database: str = ""
    direction: str = ""
    value: str | None = None
    query_id: int | None = None


class Finding(Struct, frozen=True, kw_only=True):
    """One thing that binds.

    Attributes:
        rule: Stable name: "wal.flush".
        kind: Kind of finding.
        sentence: All of it, confidence and numbers included, without the key of its page. Plain text; names in it are
            foreign text.
        short: The same in `SHORT_CELLS` cells at most.
        forms: The same in all lengths: `sentence` first, `short`, and last one of `BRIEF_CELLS` at most. Each names the
            culprit.
        culprit: Its name as the forms have it: a session, a statement, a slot, a table; "" where there is none.
        statement: Beginning of the statement that it is about, on one line; "" without one.
        impact_ms: Milliseconds of each transaction that it takes at most; None where it is not about time.
        share: The same as a share of a transaction's or the server's time; of a limit what is used of it; 0 to 1, None
            where there is no such number.
        confidence: Certainty of the sentence.
        page: Key of the page that shows the evidence.
        since_ms: When it began, milliseconds since the epoch.
        evidence: Labels and values.
        next_step: Advice, and an observation that would refute it.
        deeds: Deeds for it, the most useful first.
    """

    rule: str
    kind: FindingKind
    sentence: str
    short: str
    forms: tuple[str, ...]
    culprit: str = ""
    statement: str = ""
    impact_ms: float | None
    share: float | None
    confidence: Confidence
    page: str
    since_ms: int
    evidence: tuple[tuple[str, str], ...] = ()
    next_step: str = ""
    deeds: tuple[Deed, ...] = ()


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
