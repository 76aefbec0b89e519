"""Latency histograms: buckets that grow by 2^(1/32), and their percentiles.

Bucket edges are whole microseconds: every value up to 54 µs has a bucket of its own, larger buckets span a factor of at
most 2^(1/32). An order statistic from a histogram is in the same bucket as the true one, so its error is less than
`WORST_RELATIVE_ERROR` (2.19 %), and 0 below 55 µs. Percentiles interpolate between neighbouring order statistics
(numpy's and scipy's default, "linear"), so the same bound holds for them.

A percentile of few transactions is a matter of chance: `percentiles` returns None for those that have fewer than ten
transactions beyond them (`needed`).

Histograms of several threads, seconds or scripts are added bucket by bucket, without loss. A sampled log
(--sampling-rate) has a further error: see `run_validity.percentile_range`.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from itertools import accumulate
from typing import Final, Protocol

from msgspec import Struct

from pgtop_tune.model.bench import LatencySecond, ScriptLatencies

PER_OCTAVE: Final = 32
WORST_RELATIVE_ERROR: Final = 2.0 ** (1 / PER_OCTAVE) - 1.0

_BEYOND: Final = 10
"""Least number of transactions beyond a percentile."""
_MOST_SECONDS: Final = 10
_OCTAVES: Final = 42
"""2^42 µs are 51 days; anything slower is in the last bucket."""
_EDGES: Final = tuple(
    sorted({0, *(math.ceil(2.0 ** (step / PER_OCTAVE)) for step in range(_OCTAVES * PER_OCTAVE + 1))})
)
_LAST: Final = len(_EDGES) - 2
_TABLE_US: Final = 1 << 16
"""Values below are looked up in a table (45 ns each); larger ones, which are rare, are searched for (160 ns)."""

Buckets = Sequence[tuple[int, int]]
"""(index, count) pairs, ascending by index, counts above 0."""


class Histogram(Protocol):
    """Input of `merge`: a `LatencySecond`, or the result of an earlier `merge`."""

    @property
    def logged(self) -> int: ...
    @property
    def sum_us(self) -> int: ...
    @property
    def max_us(self) -> int: ...
    @property
    def buckets(self) -> tuple[tuple[int, int], ...]: ...
    @property
    def counted(self) -> int: ...
    @property
    def counted_below_us(self) -> int: ...


class Merged(Struct, frozen=True):
    """Latencies of several seconds together; fields as in `LatencySecond`."""

    logged: int
    sum_us: int
    max_us: int
    buckets: tuple[tuple[int, int], ...]
    counted: int = 0
    counted_below_us: int = 0


def bucket_of(us: int) -> int:
    """Return the index of the bucket of a latency in whole microseconds; negative ones count as 0."""
    return min(max(bisect_right(_EDGES, us) - 1, 0), _LAST)


def bucket_edges(index: int) -> tuple[int, int]:
    """Return the first value of a bucket and the first value beyond it, in µs.

    Raises:
        IndexError: There is no such bucket.
    """
    if not 0 <= index <= _LAST:
        raise IndexError(f"no bucket {index}")
    return _EDGES[index], _EDGES[index + 1]


@cache
def _table() -> list[int]:
    """bucket_of() of every value below _TABLE_US."""
    table: list[int] = []
    for index, low in enumerate(_EDGES):
        if low >= _TABLE_US:
            break
        table.extend([index] * (_EDGES[index + 1] - low))
    return table[:_TABLE_US]


def count_into(counts: Counter[int], latencies_us: Sequence[int], highest_us: int) -> None:
    """Add latencies to counts by bucket. Built for tens of thousands of values per second.

    Args:
        latencies_us: Whole microseconds, none below 0, none above `highest_us`.
    """
    table = _table()
    if highest_us < _TABLE_US:
        counts.update(map(table.__getitem__, latencies_us))
    else:
        counts.update([table[us] if us < _TABLE_US else bucket_of(us) for us in latencies_us])


def ascending(counts: Mapping[int, int]) -> tuple[tuple[int, int], ...]:
    """Return counts by index as the pairs that a frame holds."""
    return tuple(sorted(counts.items()))


def merge(histograms: Iterable[Histogram]) -> Merged:
    """Add up histograms; without any, the result is empty, with a max_us of 0."""
    logged = sum_us = max_us = counted = below_us = 0
    counts: Counter[int] = Counter()
    for histogram in histograms:
        logged += histogram.logged
        sum_us += histogram.sum_us
        max_us = max(max_us, histogram.max_us)
        counted += histogram.counted
        below_us = max(below_us, histogram.counted_below_us)
        for index, count in histogram.buckets:
            counts[index] += count
    return Merged(
        logged=logged,
        sum_us=sum_us,
        max_us=max_us,
        buckets=ascending(counts),
        counted=counted,
        counted_below_us=below_us,
    )


def enough(seconds: Mapping[int, Histogram], newest: int) -> tuple[int, Merged]:
    """Merge a second with as many before it as a p99 needs, at most ten.

    Args:
        seconds: Histograms by second; seconds without a transaction may be missing.
        newest: The last second to merge.

    Returns:
        The number of seconds, and their latencies together.
    """
    most = min(_MOST_SECONDS, newest - min(seconds) + 1)
    for count in range(1, most + 1):
        together = [seconds[second] for second in range(newest - count + 1, newest + 1) if second in seconds]
        if count == most or sum(second.logged for second in together) >= needed(99.0):
            break
    return count, merge(together)


def merge_scripts(seconds: Iterable[LatencySecond]) -> dict[int, Merged]:
    """Return the latencies of each script over several seconds, by its number from 0; empty with a single script."""
    by_script: dict[int, list[ScriptLatencies]] = {}
    for second in seconds:
        for script in second.scripts:
            by_script.setdefault(script.script, []).append(script)
    return {script: merge(parts) for script, parts in sorted(by_script.items())}


def needed(q: float) -> int:
    """Return the transactions that the q-th percentile needs, 10 / (1 - q): p50 20, p99 1000, p99.99 100,000, p100 1."""
    return round(_BEYOND * 100.0 / (100.0 - q)) if q < 100.0 else 1


def percentiles(buckets: Buckets, quantiles: Sequence[float], max_us: int) -> tuple[float | None, ...]:
    """Return percentiles for display: as `estimates`, but None for those with too few transactions."""
    logged = sum(count for _, count in buckets)
    values = estimates(buckets, quantiles, max_us)
    return tuple(value if logged >= needed(q) else None for q, value in zip(quantiles, values, strict=False))


def estimates(buckets: Buckets, quantiles: Sequence[float], max_us: int) -> tuple[float, ...]:
    """Return percentiles of any number of transactions in µs, in the given order; () for an empty histogram.

    Latencies count as evenly spread within a bucket; the module's docstring has the error.

    Args:
        buckets: The histogram.
        quantiles: Per cents, each 0 to 100.
        max_us: The exact largest latency: the 100th percentile, and an upper bound of the others.
    """
    running = list(accumulate(count for _, count in buckets))
    if not running or not running[-1]:
        return ()
    return tuple(_percentile(buckets, running, q, max_us) for q in quantiles)


def _percentile(buckets: Buckets, running: Sequence[int], q: float, max_us: int) -> float:
    rank = (running[-1] - 1) * min(max(q, 0.0), 100.0) / 100.0
    below = math.floor(rank)
    low = _order_statistic(buckets, running, below, max_us)
    if below == rank:
        return low
    high = _order_statistic(buckets, running, below + 1, max_us)
    # Both terms are rounded; the clamp keeps the result between them and so monotone in q.
    return min(max(low + (high - low) * (rank - below), low), high)


def _order_statistic(buckets: Buckets, running: Sequence[int], rank: int, max_us: int) -> float:
    """Return the value with `rank` smaller ones before it; values count as evenly spread within a bucket."""
    if rank >= running[-1] - 1:
        return float(max_us)
    bucket_index = bisect_right(running, rank)
    index, count = buckets[bucket_index]
    low, behind = bucket_edges(index)
    position = rank - (running[bucket_index] - count)
    return min(low + (behind - 1 - low) * (position + 0.5) / count, float(max_us))
