"""A rule: one row with its needs, its condition and its words; `Hit` is what its function gives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from msgspec import Struct

from pgtop_tune.base.safe_text import one_line
from pgtop_tune.base.sql_quoting import literal
from pgtop_tune.base.units import duration, with_ms
from pgtop_tune.diagnosis.facts import Facts, RootLook
from pgtop_tune.diagnosis.finding import SHORT_CELLS, Advice, FindingKind, ParameterAdvice, SessionAdvice
from pgtop_tune.metrics.catalogue import Section

LEAST: Final = 0.10
"""Share of L from which on a latency finding comes in."""


class Hit(Struct, frozen=True, kw_only=True):
    """The condition of a rule holds.

    Attributes:
        sentence: Without confidence, beginning in lower case unless a name begins it.
        short: As `Finding.short`; "" for the sentence.
        impact_ms: ms of each transaction; at most L.
        share: As `Finding.share`; of a latency finding left to the ranking.
        evidence, next_step, advice: As in `Finding`.
        looks: Number of looks that saw its waits; None where it is not from looks.
        agreed: Whether a counter or a number of the host says the same.
        left_s: Time until a limit is reached; None where no time is known.
        blocks: No transaction ends while it lasts (X = 0): it is an outage.
        note: Worth a line, and too small to be ranked by its impact.
    """

    sentence: str
    short: str = ""
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

    def kind_of(self, rule: FindingRule) -> FindingKind:
        """Return the kind of finding that the hit makes of its rule."""
        return FindingKind.OUTAGE if self.blocks else FindingKind.NOTE if self.note else rule.kind


class FindingRule(Struct, frozen=True, kw_only=True):
    """One row.

    Attributes:
        id: Stable name.
        page: Key of the page with the evidence.
        needs: Sections without which it says nothing.
        find: Condition, impact and words; None where the condition does not hold.
        kind: Kind of its findings.
        least: Share of L from which on a latency finding comes in.
        before: Symptoms that this cause stands before.
        sure_of_cpu: Whether it stays as sure on a full machine, because it is about the machine's CPUs.
    """

    id: str
    page: str
    needs: tuple[Section[Any], ...]
    find: Callable[[Facts], Hit | None]
    kind: FindingKind = FindingKind.LATENCY
    least: float = LEAST
    before: tuple[str, ...] = ()
    sure_of_cpu: bool = False


_NAME_CELLS: Final = 40


def plural(number: float, noun: str, verb: str = "") -> str:
    """Return "1 session", "12 sessions"; with a verb "1 session waits", "12 sessions wait"."""
    subject = f"{number:.0f} {noun}{'' if round(number) == 1 else 's'}"
    return f"{subject} {verb}{'s' if round(number) == 1 else ''}" if verb else subject


def evidence(*rows: tuple[str, str | None]) -> tuple[tuple[str, str], ...]:
    """Return evidence without values that are not known."""
    return tuple((label, value) for label, value in rows if value)


def short_name(text: str) -> str:
    """Return a foreign name on one line, cut."""
    return one_line(text, _NAME_CELLS)


def short_sentence(text: str) -> str:
    """Return at most `SHORT_CELLS` cells: cut at the last semicolon or comma that fits, else with an ellipsis."""
    if len(text) <= SHORT_CELLS:
        return text
    for mark in ("; ", ", "):
        end = text.rfind(mark, 0, SHORT_CELLS + 1)
        if end > SHORT_CELLS // 2:
            return text[:end]
    return text[: SHORT_CELLS - 1].rstrip() + "…"


def root_words(root: RootLook) -> str:
    """Return the root of the chain and its activity: "session 9846 (psql), idle in transaction 42 s"."""
    if root.pid is None:
        return "each other"
    if root.pid == 0:
        if not root.gid:
            return "a prepared transaction"
        where = f" in {short_name(root.database)}" if root.database else ""
        return f"prepared transaction '{short_name(root.gid)}'{where}" + (
            f", {duration(root.prepared_s)} old" if root.prepared_s else ""
        )
    backend = root.backend
    if backend is None:
        return f"process {root.pid}"
    if root.idle_s:
        doing = f"idle in transaction {duration(root.idle_s)}"
    elif root.wait:
        doing = f"in {backend.wait_event_type}:{backend.wait_event}"
    else:
        doing = "running"
    program = "" if root.of_load or not backend.application_name else f" ({short_name(backend.application_name)})"
    return f"session {root.pid}{program}, {doing}"


def root_next_step(root: RootLook) -> str:
    """Return the next step for the root of a chain."""
    if root.pid is None:
        return "wait: the server ends one of these sessions after deadlock_timeout"
    if root.pid == 0:
        if not root.gid:
            return "ROLLBACK PREPARED or COMMIT PREPARED the transaction (page 9)"
        where = f" (in {short_name(root.database)})" if root.database else ""
        return f"ROLLBACK PREPARED {short_name(literal(root.gid))}{where}, or COMMIT PREPARED"
    if root.idle_s:
        return (
            f"end session {root.pid} (K) or have its client commit; idle_in_transaction_session_timeout ends such"
            " sessions. If the queue remains, it was not the cause"
        )
    return f"cancel the statement of session {root.pid} (c), or wait until it ends"


def root_advice(root: RootLook) -> SessionAdvice | None:
    """Return advice about the session at the end of the chain."""
    if not root.pid:
        return None
    return SessionAdvice((root.pid, root.backend_start_ms), "it is the root of the chain of blockers")


def waiting(
    facts: Facts,
    waits: tuple[str, ...],
    says: str,
    next_step: str,
    *,
    short: str = "",
    label: str = "waits",
    more: tuple[tuple[str, str | None], ...] = (),
    advice: ParameterAdvice | None = None,
) -> Hit | None:
    """Return the hit that transactions spend time in some waits; None where they spend none.

    Args:
        waits: As for `Facts.b`.
        says: Beginning of the sentence, before the share of the time.
        short: A shorter beginning; "" for `says`.
        label: Label of the time in the evidence.
        more: Further evidence.
    """
    impact_ms = facts.b(*waits)
    if impact_ms <= 0.0:
        return None
    return Hit(
        sentence=f"{says}: {facts.share_text(impact_ms)}",
        short=f"{short or says}: {facts.percent(impact_ms)}",
        impact_ms=impact_ms,
        evidence=evidence((label, with_ms(impact_ms)), *more),
        next_step=next_step,
        advice=advice,
        looks=facts.n(*waits),
    )
