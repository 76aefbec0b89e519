"""Quantiles of the load's latency: rows of the catalogue, and the one place that reads them off a histogram."""

from __future__ import annotations

from typing import Final

from pgtop_tune.metrics import sections
from pgtop_tune.metrics.catalogue import Interval, Metric
from pgtop_tune.metrics.load import running
from pgtop_tune.metrics.percentiles import Histogram, Merged, enough, estimates, merge, needed, percentiles
from pgtop_tune.metrics.stall import stall
from pgtop_tune.model.bench import LatencySecond

_LATE_S: Final = 10.0
"""pgbench buffers its log: an older second says nothing of now."""


class Quantile(Metric, frozen=True, eq=False, kw_only=True):
    """Latency that so many per cent of the load's transactions did not exceed.

    Attributes:
        per_cent: How many.
    """

    per_cent: float

    def of(self, histogram: Histogram) -> float | None:
        """Of these transactions, ms; None where they are too few for it (`percentiles.needed`)."""
        return quantiles_ms(histogram, (self,))[0]

    def estimate(self, histogram: Histogram) -> float | None:
        """The same of however few; None without any."""
        found = estimates(histogram.buckets, (self.per_cent,), histogram.max_us)
        return found[0] / 1000.0 if found else None


def quantiles_ms(histogram: Histogram, quantiles: tuple[Quantile, ...]) -> tuple[float | None, ...]:
    """Quantiles in ms, in the order asked for; None where there are too few transactions for one."""
    found = percentiles(histogram.buckets, tuple(each.per_cent for each in quantiles), histogram.max_us)
    return tuple(None if us is None else us / 1000.0 for us in found or (None,) * len(quantiles))


def logged_seconds(interval: Interval, window_s: float) -> list[LatencySecond]:
    """Seconds of the transaction log of the load under way that came within the last seconds."""
    run = running(interval)
    if run is None:
        return []
    samples = interval.recent(sections.bench, window_s)
    return [each for sample in samples if sample.run.run == run.run for each in sample.latencies if each.logged]


def newest_seconds(interval: Interval) -> Merged | None:
    """The newest second of the log, with as many before it as a p99 needs, ten at most; None while the load stands
    still, and where the log is behind."""
    logged = logged_seconds(interval, _LATE_S)
    if not logged or stall(interval) is not None:
        return None
    numbers = {each.second for each in logged}
    seconds = {number: merge(each for each in logged if each.second == number) for number in numbers}
    return enough(seconds, max(seconds))[1]


def _row(per_cent: float) -> Quantile:
    def value(interval: Interval) -> float | None:
        newest = interval.once(newest_seconds)
        return None if newest is None else row.of(newest)

    row = Quantile(
        id=f"client.latency.p{per_cent:g}",
        title=f"p{per_cent:g}",
        unit="ms",
        definition=f"Latency that {per_cent:g} % of the transactions did not exceed. It takes {needed(per_cent)} of them to say it.",
        source="pgbench's transaction log (--log, --sampling-rate)",
        value=value,
        per_cent=per_cent,
    )
    return row


P50 = _row(50.0)
P95 = _row(95.0)
P99 = _row(99.0)
P99_9 = _row(99.9)
P99_99 = _row(99.99)

QUANTILES: Final = (P50, P95, P99, P99_9, P99_99)
PER_SECOND: Final = QUANTILES[:4]
"""Those that seconds are told with; a p99.99 takes more transactions than they have."""
