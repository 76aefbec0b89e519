"""Metrics of the load: throughput and latency from pgbench itself, percentiles from its log, and stalls.

A load has stalled when no transaction has ended for longer than its pace explains:

    allowed = max(3 s, 5 × mean latency of the run so far, 10 ÷ rate)

In a closed loop a client ends a transaction every mean latency, so five mean latencies in which no client ends one are
no chance. With a rate there are gaps by chance: one of ten mean gaps comes once in 22,000 transactions. Before the
first transaction has ended the pace is not known, and 30 s are allowed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from msgspec import Struct

from pgtop_tune.metrics import sections
from pgtop_tune.metrics.catalogue import Interval, Metric
from pgtop_tune.metrics.percentiles import Histogram, Merged, enough, estimates, merge, needed, percentiles
from pgtop_tune.model.absence import Unavailable
from pgtop_tune.model.bench import BenchProgress, BenchRun, BenchSample, LatencySecond, RunState, Silence
from pgtop_tune.model.frame import Frame
from pgtop_tune.model.waits import LOAD_APPLICATION

SHORTEST_S: Final = 3.0
UNKNOWN_PACE_S: Final = 30.0
_LATENCIES: Final = 5.0
_SCHEDULED: Final = 10.0


def allowed_s(silence: Silence, run: BenchRun) -> float:
    """Return the seconds without the end of a transaction that the pace of the load explains."""
    if silence.usual_ms is None:
        return UNKNOWN_PACE_S
    scheduled_s = _SCHEDULED / run.rate_per_s if run.rate_per_s else 0.0
    return max(SHORTEST_S, _LATENCIES * silence.usual_ms / 1000.0, scheduled_s)


def stalls(sample: BenchSample, now_ms: int) -> list[Silence]:
    """Return the silences of a sample that are stalls, oldest first.

    Args:
        sample: Reading of the load.
        now_ms: Time of the frame, up to which a lasting silence counts.
    """
    return [
        silence
        for silence in sample.silences
        if ((silence.until_ms or now_ms) - silence.since_ms) / 1000.0 > allowed_s(silence, sample.run)
    ]


def stall(interval: Interval) -> Silence | None:
    """Return the present stall; None while transactions end, and without a load of ours."""
    bench = interval.now(sections.bench)
    if bench is None or bench.run.state is not RunState.RUNNING:
        return None
    silences = stalls(bench, interval.newest.taken_at_ms)
    return silences[-1] if silences and silences[-1].until_ms is None else None


def stalled_within(interval: Interval, window_s: float) -> bool:
    """Return whether the load stood still at some time of the last seconds."""
    bench, now_ms = interval.now(sections.bench), interval.newest.taken_at_ms
    return bench is not None and any(
        stalls(sample, now_ms - round(1000 * (bench.at_s - sample.at_s)))
        for sample in interval.recent(sections.bench, window_s)
        if sample.run.run == bench.run.run
    )


def stalled_s(interval: Interval) -> float | None:
    """Return the length of the present stall in seconds; None without one."""
    silence = interval.once(stall)
    return None if silence is None else (interval.newest.taken_at_ms - silence.since_ms) / 1000.0


def _silent_s(interval: Interval) -> float | None:
    bench = interval.now(sections.bench)
    if bench is None or bench.run.state is not RunState.RUNNING:
        return None
    lasting = next((silence for silence in bench.silences if silence.until_ms is None), None)
    return 0.0 if lasting is None else max(interval.newest.taken_at_ms - lasting.since_ms, 0) / 1000.0


def _oldest_s(interval: Interval) -> float | None:
    activity = interval.now(sections.activity)
    if activity is None:
        return None
    ages_ms = [
        activity.now_ms - backend.xact_start_ms
        for backend in activity.backends
        if backend.application_name == LOAD_APPLICATION and backend.xact_start_ms is not None
    ]
    return max(max(ages_ms), 0) / 1000.0 if ages_ms else None


SILENT: Final = Metric(
    "client.silent", "no transaction has ended for", "s",
    "Time since the last transaction of the load ended or failed; 0 in normal operation. The load is stalled once this "
    "exceeds 3 s, five mean latencies of the run and the time for ten transactions at its rate: percentiles are then "
    "outdated and shown in red.",
    "tps and failed of pgbench's progress lines", _silent_s,
)  # fmt: skip
OLDEST: Final = Metric(
    "client.oldest_transaction", "oldest open", "s",
    "Age of the oldest open transaction of pgbench sessions: a lower bound of its latency. With --rate, latency counts from the scheduled start and is higher.",
    "max(now - pg_stat_activity.xact_start) where application_name is pgbench", _oldest_s,
)  # fmt: skip


def _open_ms(interval: Interval) -> float | None:
    stalled_for_s = stalled_s(interval)
    if stalled_for_s is None:
        return None
    oldest_s = OLDEST(interval)
    return 1000.0 * (stalled_for_s if oldest_s is None else oldest_s)


OPEN_WHILE_STALLED: Final = Metric(
    "client.stalled_latency", "oldest open while stalled", "ms",
    "Age of the oldest open transaction of pgbench sessions while the load is stalled, a lower bound of its latency; "
    "unknown while transactions end, because percentiles are then more exact. While the server shows no sessions, the time since a "
    "transaction last ended: open transactions have waited at least that long.",
    OLDEST.source, _open_ms,
)  # fmt: skip


# Seconds lost to the client: without a transaction, or with a slow one.

COUNTED_S: Final = 60.0
SLOW_MS: Final = 1000.0


def _of_run(interval: Interval) -> list[BenchSample]:
    bench = interval.now(sections.bench)
    if bench is None or bench.run.state is not RunState.RUNNING:
        return []
    return [sample for sample in interval.recent(sections.bench, COUNTED_S) if sample.run.run == bench.run.run]


def _silent_seconds(interval: Interval) -> float | None:
    samples = _of_run(interval)
    lasting = [silence for sample in samples[:1] for silence in sample.silences if silence.until_ms is None]
    ended = [silence for sample in samples for silence in sample.silences if silence.until_ms is not None]
    return sum(silence.zero_s for silence in (*ended, *lasting)) if samples else None


def _slow_seconds(interval: Interval) -> float | None:
    samples = _of_run(interval)
    slow = {second.second for sample in samples for second in sample.latencies if second.max_us >= 1000.0 * SLOW_MS}
    return float(len(slow)) if samples else None


SILENT_SECONDS: Final = Metric(
    "client.seconds_without", "seconds without a transaction", "s",
    "Seconds in which no transaction of the load ended, in gaps that ended within the last 60 s and in the current gap. "
    "Slow seconds are counted separately.",
    "tps and failed of pgbench's progress lines: lines with neither", _silent_seconds,
)  # fmt: skip
SLOW_SECONDS: Final = Metric(
    "client.slow_seconds", "slow seconds", "s",
    "Seconds of the last 60 s in which a load transaction longer than 1 s ended.",
    "max of each second of pgbench's transaction log", _slow_seconds,
)  # fmt: skip

STALL_METRICS: Final = (SILENT, OLDEST, OPEN_WHILE_STALLED, SILENT_SECONDS, SLOW_SECONDS)


_FRESH_S: Final = 2.5
"""Greatest age of a current progress line: pgbench prints one each second, unless it hangs or has ended."""
_LATEST_S: Final = 60.0
"""Window in which the newest progress line is searched for: a pgbench without a CPU prints nothing for a while."""
_NEWS_S: Final = 60.0
"""Time for which a failure of the load is news."""
UNDER_WAY: Final = (RunState.STARTING, RunState.RUNNING)
"""States of a run that has not ended."""


def run_of(frame: Frame | None) -> BenchRun | None:
    """Return the run of pgbench in a frame, including one that has ended."""
    return None if frame is None or isinstance(frame.bench, Unavailable) else frame.bench.run


def under_way(frame: Frame | None) -> BenchRun | None:
    """Return the run of pgbench in a frame, if it is starting or running."""
    run = run_of(frame)
    return run if run is not None and run.state in UNDER_WAY else None


def failure_of(frame: Frame | None) -> BenchRun | None:
    """Return the run of pgbench in a frame, if it has failed."""
    run = run_of(frame)
    return run if run is not None and run.state is RunState.FAILED else None


def broken_off_s(interval: Interval) -> float | None:
    """Return the seconds since a load of ours failed or was ended early; None without one, and after a minute."""
    now_s = since_s = interval.newest.elapsed_s
    for frame in reversed(interval.frames):
        if not _broken_off(frame) or now_s - since_s > _NEWS_S:
            break
        since_s = frame.elapsed_s
    return None if not _broken_off(interval.newest) or now_s - since_s > _NEWS_S else now_s - since_s


def _broken_off(frame: Frame) -> bool:
    run = run_of(frame)
    return run is not None and (run.state is RunState.FAILED or bool(run.ended_for))


class ProgressMetric(Struct, frozen=True):
    """One number of pgbench's progress lines, with a mean over a window.

    Attributes:
        pick: Returns the number of a line.
        by_transactions: Whether a mean weighs lines by their transactions (latencies) and not by their time (rates).
    """

    id: str
    title: str
    unit: str
    definition: str
    source: str
    pick: Callable[[BenchProgress], float]
    by_transactions: bool = False

    def __call__(self, interval: Interval) -> float | None:
        """Return the number of the newest line; None when the running load has no line younger than 2.5 s."""
        return self.mean(interval, _FRESH_S, newest_only=True)

    def mean(self, interval: Interval, window_s: float, *, newest_only: bool = False) -> float | None:
        """Return the mean over the lines of the current run within the last seconds; None when there are none."""
        lines = progress_lines(interval, window_s)
        if newest_only:
            lines = lines[-1:]
        weights = [line.tps if self.by_transactions else 1.0 for line in lines]
        total = sum(weights)
        if not total:
            return None
        return sum(self.pick(line) * weight for line, weight in zip(lines, weights, strict=True)) / total


def progress_lines(interval: Interval, window_s: float) -> list[BenchProgress]:
    """Return the progress lines of the running load within the last seconds, oldest first; empty when no load runs."""
    recent = interval.recent(sections.bench, window_s)
    if not recent or recent[0].run.state is not RunState.RUNNING:
        return []
    run = recent[0].run.run
    return [line for sample in reversed(recent) if sample.run.run == run for line in sample.progress]


def schedule_lag_ms(interval: Interval, run: BenchRun, window_s: float) -> float | None:
    """Return how late transactions began, mean of the last seconds (pgbench's progress lines); None without a rate."""
    weighed = [
        (line.lag_ms, line.tps)
        for sample in interval.recent(sections.bench, window_s)
        if sample.run.run == run.run
        for line in sample.progress
        if line.lag_ms is not None
    ]
    weight = sum(tps for _, tps in weighed)
    return sum(lag_ms * tps for lag_ms, tps in weighed) / weight if weight else None


def running(interval: Interval) -> BenchRun | None:
    """Return the run of pgbench in the newest frame, if it is starting or running."""
    return under_way(interval.newest)


def work_window_s(interval: Interval, window_s: float) -> float | None:
    """Return how much of the window pgbench has measured, in seconds, so that readings within it show only the load.

    pgbench connects its clients before it begins to measure: sessions that wait then are not slow. The reading in
    which the measurement began is left out, too. None without a load, and before its first full reading.
    """
    run, pair = running(interval), interval.pair(sections.bench)
    if run is None or pair is None:
        return None
    for sample in interval.recent(sections.bench, _LATEST_S):
        if sample.run.run == run.run and sample.progress:
            worked_s = interval.newest.elapsed_s - (sample.at_s - sample.progress[-1].elapsed_s)
            measured_s = min(window_s, worked_s - (pair[1].at_s - pair[0].at_s))
            return measured_s if measured_s > 0 else None
    return None


CLIENT_TPS = ProgressMetric(
    "client.tps", "client", "1/s",
    "Transactions that pgbench finished successfully per second, over the last progress interval.",
    "tps of pgbench's progress line", lambda line: line.tps,
)  # fmt: skip
CLIENT_LATENCY = ProgressMetric(
    "client.latency", "mean", "ms",
    "Mean latency of transactions that finished in the last progress interval; with --rate including the schedule lag.",
    "lat of pgbench's progress line", lambda line: line.latency_ms, by_transactions=True,
)  # fmt: skip
CLIENT_FAILED = ProgressMetric(
    "client.failed", "failed", "", "Transactions that failed in the last progress interval (pgbench 15 and later).",
    "failed of pgbench's progress line", lambda line: float(line.failed),
)  # fmt: skip

METRICS: Final = (CLIENT_TPS, CLIENT_LATENCY, CLIENT_FAILED)


# Quantiles of the load's latency: rows of the catalogue, read from histograms.

_LATE_S: Final = 10.0
"""Greatest age of a current second of the log, which pgbench buffers."""


class Quantile(Metric, frozen=True, eq=False, kw_only=True):
    """Latency that a share of the load's transactions did not exceed.

    Attributes:
        per_cent: The share.
    """

    per_cent: float

    def of(self, histogram: Histogram) -> float | None:
        """Return the quantile of these transactions in ms; None where they are too few (`percentiles.needed`)."""
        return quantiles_ms(histogram, (self,))[0]

    def estimate(self, histogram: Histogram) -> float | None:
        """Return the quantile of any number of transactions in ms; None without transactions."""
        values_us = estimates(histogram.buckets, (self.per_cent,), histogram.max_us)
        return values_us[0] / 1000.0 if values_us else None


def quantiles_ms(histogram: Histogram, quantiles: tuple[Quantile, ...]) -> tuple[float | None, ...]:
    """Return quantiles in ms, in the given order; None for those with too few transactions."""
    values_us = percentiles(histogram.buckets, tuple(quantile.per_cent for quantile in quantiles), histogram.max_us)
    return tuple(None if us is None else us / 1000.0 for us in values_us or (None,) * len(quantiles))


def logged_seconds(interval: Interval, window_s: float) -> list[LatencySecond]:
    """Return the seconds of the running load's transaction log that were read within the last seconds."""
    run = running(interval)
    if run is None:
        return []
    samples = interval.recent(sections.bench, window_s)
    return [second for sample in samples if sample.run.run == run.run for second in sample.latencies if second.logged]


def newest_seconds(interval: Interval) -> Merged | None:
    """Return the newest second of the log, with as many before it as a p99 needs, at most ten.

    None while the load stands still, and where the log is behind.
    """
    logged = logged_seconds(interval, _LATE_S)
    if not logged or stall(interval) is not None:
        return None
    numbers = {second.second for second in logged}
    seconds = {number: merge(second for second in logged if second.second == number) for number in numbers}
    return enough(seconds, max(seconds))[1]


def _row(per_cent: float) -> Quantile:
    def value(interval: Interval) -> float | None:
        newest = interval.once(newest_seconds)
        return None if newest is None else row.of(newest)

    row = Quantile(
        id=f"client.latency.p{per_cent:g}",
        title=f"p{per_cent:g}",
        unit="ms",
        definition=f"Latency that {per_cent:g} % of the transactions did not exceed. It requires at least {needed(per_cent)} transactions.",
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
"""Quantiles of a second; a p99.99 takes more transactions than a second has."""
