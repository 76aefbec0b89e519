"""Latencies counted as the reader of pgbench's log counts them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from pgtop_tune.metrics.percentiles import count_into


def bucket_counts(latencies_us: Sequence[int]) -> Counter[int]:
    """Latencies by the index of their bucket."""
    counts: Counter[int] = Counter()
    if latencies_us:
        count_into(counts, latencies_us, max(latencies_us))
    return counts
