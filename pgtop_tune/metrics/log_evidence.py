"""How much of a run its transaction log holds, and how far off its percentiles may be for that."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Final

from msgspec import Struct

from pgtop_tune import units
from pgtop_tune.metrics.latency import P99
from pgtop_tune.metrics.percentile_range import Range, incomplete_range, percentile_range
from pgtop_tune.metrics.percentiles import merge
from pgtop_tune.metrics.run_evidence import RunEvidence

_LINES_APART_S: Final = 2.5
_DEVIATIONS: Final = 5.0
_OF_PROGRESS: Final = 0.01
"""Progress lines give transactions per second with a digit, and say nothing of a run's last second."""


class LoggedPart(Struct, frozen=True):
    """A part of the transactions.

    Attributes:
        logged: Transactions that the percentiles are of.
        of: Transactions of the run.
        lost: Transactions that pgbench should have logged, and that are not in its log.
        words: Where p99 is, for all of them.
    """

    logged: int
    of: int
    lost: int
    words: str


def logged_part(evidence: RunEvidence) -> LoggedPart | None:
    """How much the percentiles are of; None where they are of everything, or nothing says how much there was."""
    known = evidence.facts.processed is not None
    merged, whole = merge(evidence.latencies), round(evidence.transactions)
    if not known and not (evidence.run.complete and merged.logged and _seen_whole(evidence)):
        return None
    rate = min(evidence.run.sampling_rate, 1.0)
    slack = _DEVIATIONS * math.sqrt(whole * rate * (1.0 - rate)) if known else _OF_PROGRESS * whole
    # The frames of a long run are not all kept; what was read of its log was counted apart.
    in_log = merged.logged if evidence.facts.logged is None else evidence.facts.logged
    lost = round(whole * rate) - in_log
    if lost > slack:
        return LoggedPart(
            logged=merged.logged, of=whole, lost=lost, words=_p99(incomplete_range(merged.buckets, P99.per_cent, lost))
        )
    if rate < 1.0 and merged.logged:
        return LoggedPart(
            logged=merged.logged, of=whole, lost=0, words=_p99(percentile_range(merged.buckets, P99.per_cent, rate))
        )
    if whole * rate - merged.logged > slack:
        return LoggedPart(logged=merged.logged, of=whole, lost=0, words="older ones were dropped")
    return None


def _seen_whole(evidence: RunEvidence) -> bool:
    """Whether no progress line is missing: a recording may have begun later than the run, or have gaps."""
    elapsed_s = [0.0, *(line.elapsed_s for line in evidence.progress)]
    return all(now - before <= _LINES_APART_S for before, now in pairwise(elapsed_s))


def _p99(found: Range) -> str:
    low, high = (None if edge_us is None else f"{units.ms(edge_us / 1000.0)} ms" for edge_us in found)
    if low is None and high is None:
        return "their p99 can be anything"
    if high is None:
        return f"their p99 is at least {low}"
    return f"their p99 is at most {high}" if low is None else f"their p99 is between {low} and {high}"
