"""Transactions of a run that failed: how far that speaks against its result.

Under repeatable read and serializable, and where rows are locked in different orders, a share of the transactions
fails by design: that is a property of the load, and named. pgbench leaves these transactions out of tps and latency,
so the more of them there are, the less its figures say of what was asked of the server.
"""

from __future__ import annotations

from typing import Final

from pgtop_tune.metrics.run_evidence import RunEvidence
from pgtop_tune.model.run_result import Doubt, RunVerdict

NOTED_UP_TO_PERCENT: Final = 1.0
COUNTS_UP_TO_PERCENT: Final = 10.0


def transactions_failed(evidence: RunEvidence) -> Doubt | None:
    """A note, a suspicion, or, above 10 per cent and for errors of any other kind, an invalid result."""
    facts = evidence.facts
    failed = facts.failed
    if failed is None:
        failed = sum(line.failed for line in evidence.progress)
    if not failed:
        return None
    whole = failed + evidence.transactions
    percent = 100.0 * failed / whole
    kinds = {"serialization": facts.serialization_failures, "deadlock": facts.deadlock_failures}
    known = {kind: count for kind, count in kinds.items() if count is not None}
    other = failed - sum(known.values()) if known else 0
    named = {**known, "other": other}
    words = ", ".join(f"{count} {kind}" for kind, count in named.items() if count > 0)
    return Doubt(
        id="FAILED-TRANSACTIONS",
        verdict=_verdict(percent, other),
        reason=f"{failed} of {whole:.0f} transactions failed ({percent:.2f} %{': ' + words if words else ''})"
        " and are not in tps and latency",
        advice="see stderr" if other > 0 else _advice(evidence.run.max_tries),
        numbers=(("failed", failed), ("share_percent", percent)),
    )


def _verdict(percent: float, other: int) -> RunVerdict:
    if other > 0 or percent > COUNTS_UP_TO_PERCENT:
        return RunVerdict.INVALID
    return RunVerdict.SUSPECT if percent > NOTED_UP_TO_PERCENT else RunVerdict.NOTE


def _advice(max_tries: int | None) -> str:
    if max_tries is None or max_tries == 1:
        return "retry them as an application would: --max-tries 10"
    if max_tries == 0:
        return "they were retried until the time was over: fewer clients on the same rows"
    return f"{max_tries} tries were not enough: more tries, or fewer clients on the same rows"
