"""How much of a run its transaction log holds, and how far off its percentiles may be for that."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise
from statistics import NormalDist
from typing import Final

from msgspec import Struct

from pgtop_tune import units
from pgtop_tune.metrics.load import P99
from pgtop_tune.metrics.percentiles import Buckets, bucket_edges, merge
from pgtop_tune.metrics.run_evidence import RunEvidence

# How far off a percentile may be when only a share of the transactions is in the log: by --sampling-rate, or lost.

CONFIDENCE: Final = 0.95
Range = tuple[float | None, float | None]
"""Lowest and highest value in µs; None where nothing says."""

_EXACT_TO: Final = 500.0
"""Rare events expected; up to here their distribution is summed term by term. Beyond it a normal one is off by 1."""


def percentile_range(buckets: Buckets, q: float, sampling_rate: float, confidence: float = CONFIDENCE) -> Range:
    """Between which values the q-th percentile of all transactions is, when only a share of them was logged.

    How many logged values are below the true percentile is binomial, whatever the latencies look like; so the two
    order statistics at its outer quantiles hold the percentile between them. Source: distribution-free confidence
    interval of a quantile, Conover, Practical Nonparametric Statistics, 3.2.

    Args:
        q: 0 to 100.
        sampling_rate: Share that was logged; from 1.0 on only the width of the buckets is left.

    Returns:
        Lowest and highest value in µs. None where too little was logged to say: p99.99 of 10,000 values has no upper
        end.
    """
    running = list(accumulate(count for _, count in buckets))
    if not running or not running[-1]:
        return None, None
    logged, share = running[-1], min(max(q, 0.0), 100.0) / 100.0
    if sampling_rate >= 1.0:
        rank = (logged - 1) * share
        low, high = math.floor(rank) + 1, math.ceil(rank) + 1
    else:
        tail = (1.0 - confidence) / 2.0
        low, high = binomial_quantile(logged, share, tail), binomial_quantile(logged, share, 1.0 - tail) + 1
    return _between(buckets, running, low, high)


def incomplete_range(buckets: Buckets, q: float, lost: int) -> Range:
    """Between which values the q-th percentile of all transactions is, when the log lacks some, whichever those are.

    The lost ones may all have been quicker than the percentile, or all slower.

    Args:
        q: 0 to 100.
        lost: How many the log lacks.
    """
    running = list(accumulate(count for _, count in buckets))
    if not running or not running[-1]:
        return None, None
    rank = (running[-1] + lost - 1) * min(max(q, 0.0), 100.0) / 100.0
    return _between(buckets, running, math.floor(rank) + 1 - lost, math.ceil(rank) + 1)


def _between(buckets: Buckets, running: Sequence[int], low: int, high: int) -> Range:
    """The lower edge of one order statistic, from 1, and the upper of another; None for one that there is not."""
    return (
        float(bucket_edges(buckets[bisect_right(running, low - 1)][0])[0]) if low > 0 else None,
        float(bucket_edges(buckets[bisect_right(running, high - 1)][0])[1] - 1) if high <= running[-1] else None,
    )


def binomial_quantile(tries: int, share: float, tail: float) -> int:
    """The smallest number of hits with at least `tail` of the distribution at or below it."""
    if share > 0.5:
        # Misses are the rare ones. The smallest k with P(hits <= k) >= tail, by P(misses >= tries - k).
        above = 1.0
        for misses, chance in enumerate(_chances(tries, 1.0 - share, _EXACT_TO)):
            above -= chance
            if above < tail:
                return tries - misses
        return _normal_quantile(tries, share, tail)
    below = 0.0
    for hits, chance in enumerate(_chances(tries, share, _EXACT_TO)):
        below += chance
        if below >= tail:
            return hits
    return _normal_quantile(tries, share, tail)


def _chances(tries: int, share: float, most: float) -> Iterator[float]:
    """P(0), P(1), … of a binomial distribution; nothing when more than `most` hits are expected."""
    if tries * share > most:
        return
    chance = math.exp(tries * math.log1p(-share))
    for hits in range(tries + 1):
        yield chance
        chance *= (tries - hits) / (hits + 1) * share / (1.0 - share)


def _normal_quantile(tries: int, share: float, tail: float) -> int:
    mean = tries * share
    spread = math.sqrt(mean * (1.0 - share))
    return min(max(math.ceil(mean + spread * NormalDist().inv_cdf(tail) - 0.5), 0), tries)


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
    low, high = (None if edge_us is None else units.with_ms(edge_us / 1000.0) for edge_us in found)
    if low is None and high is None:
        return "their p99 can be anything"
    if high is None:
        return f"their p99 is at least {low}"
    return f"their p99 is at most {high}" if low is None else f"their p99 is between {low} and {high}"
