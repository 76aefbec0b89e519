"""Whether a load has stalled: no transaction has ended for longer than the pace of the load explains.

    allowed = max(3 s, 5 × mean latency of the run so far, 10 ÷ rate)

In a closed loop a client ends a transaction every mean latency, so five of them without any end of all clients is no
chance. A rate makes gaps by chance: ten mean ones in a row come once in 22,000 transactions. Before the first
transaction ended nobody knows the pace: then it takes 30 s.
"""

from __future__ import annotations

from typing import Final

from pgtop_tune.metrics import sections
from pgtop_tune.metrics.catalogue import Interval, Metric
from pgtop_tune.model.bench import BenchRun, BenchSample, RunState, Silence
from pgtop_tune.model.waits import LOAD_APPLICATION

SHORTEST_S: Final = 3.0
UNKNOWN_PACE_S: Final = 30.0
_LATENCIES: Final = 5.0
_SCHEDULED: Final = 10.0


def allowed_s(silence: Silence, run: BenchRun) -> float:
    """Seconds without the end of a transaction that its pace explains."""
    if silence.usual_ms is None:
        return UNKNOWN_PACE_S
    scheduled_s = _SCHEDULED / run.rate_per_s if run.rate_per_s else 0.0
    return max(SHORTEST_S, _LATENCIES * silence.usual_ms / 1000.0, scheduled_s)


def stalls(sample: BenchSample, now_ms: int) -> list[Silence]:
    """The silences of a sample that are stalls, oldest first; one that lasts is judged by how long it has.

    Args:
        now_ms: When the frame was taken.
    """
    return [
        silence
        for silence in sample.silences
        if ((silence.until_ms or now_ms) - silence.since_ms) / 1000.0 > allowed_s(silence, sample.run)
    ]


def stall(interval: Interval) -> Silence | None:
    """The stall that lasts; None while transactions end, and without a load of ours."""
    bench = interval.now(sections.bench)
    if bench is None or bench.run.state is not RunState.RUNNING:
        return None
    found = stalls(bench, interval.newest.taken_at_ms)
    return found[-1] if found and found[-1].until_ms is None else None


def stalled_within(interval: Interval, window_s: float) -> bool:
    """Whether the load stood still at some time of the last seconds."""
    bench, now_ms = interval.now(sections.bench), interval.newest.taken_at_ms
    return bench is not None and any(
        stalls(sample, now_ms - round(1000 * (bench.at_s - sample.at_s)))
        for sample in interval.recent(sections.bench, window_s)
        if sample.run.run == bench.run.run
    )


def stalled_s(interval: Interval) -> float | None:
    """How long the stall has lasted; None without one."""
    found = interval.once(stall)
    return None if found is None else (interval.newest.taken_at_ms - found.since_ms) / 1000.0


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
    "old, and red.",
    "tps and failed of pgbench's progress lines", _silent_s,
)  # fmt: skip
OLDEST: Final = Metric(
    "client.oldest_transaction", "oldest open", "s",
    "Age of the oldest open transaction of pgbench sessions: a lower bound of its latency; with a rate, latency counts from the schedule and is higher.",
    "max(now - pg_stat_activity.xact_start) where application_name is pgbench", _oldest_s,
)  # fmt: skip


def _open_ms(interval: Interval) -> float | None:
    for_s = stalled_s(interval)
    if for_s is None:
        return None
    oldest_s = OLDEST(interval)
    return 1000.0 * (for_s if oldest_s is None else oldest_s)


OPEN_WHILE_STALLED: Final = Metric(
    "client.stalled_latency", "oldest open while stalled", "ms",
    "Age of the oldest open transaction of pgbench sessions while the load is stalled, a lower bound of its latency; "
    "unknown while transactions end, as percentiles say more then. While the server shows no sessions, how long no "
    "transaction has ended: those that are open have waited as long.",
    OLDEST.source, _open_ms,
)  # fmt: skip


# Seconds that count as lost to the client: those in which nothing ended, and those in which something took long.

COUNTED_S: Final = 60.0
SLOW_MS: Final = 1000.0


def _of_run(interval: Interval) -> list[BenchSample]:
    bench = interval.now(sections.bench)
    if bench is None or bench.run.state is not RunState.RUNNING:
        return []
    return [each for each in interval.recent(sections.bench, COUNTED_S) if each.run.run == bench.run.run]


def _silent_seconds(interval: Interval) -> float | None:
    samples = _of_run(interval)
    lasting = [each for sample in samples[:1] for each in sample.silences if each.until_ms is None]
    ended = [each for sample in samples for each in sample.silences if each.until_ms is not None]
    return sum(each.zero_s for each in (*ended, *lasting)) if samples else None


def _slow_seconds(interval: Interval) -> float | None:
    samples = _of_run(interval)
    slow = {each.second for sample in samples for each in sample.latencies if each.max_us >= 1000.0 * SLOW_MS}
    return float(len(slow)) if samples else None


SILENT_SECONDS: Final = Metric(
    "client.seconds_without", "seconds without a transaction", "s",
    "Seconds in which no transaction of the load ended: of gaps that ended in the last 60 s, and of one that lasts. "
    "Slow seconds are counted apart.",
    "tps and failed of pgbench's progress lines: those with neither", _silent_seconds,
)  # fmt: skip
SLOW_SECONDS: Final = Metric(
    "client.slow_seconds", "slow seconds", "s",
    "Seconds of the last 60 s in which a transaction of the load ended that had taken longer than 1 s.",
    "max of each second of pgbench's transaction log", _slow_seconds,
)  # fmt: skip

METRICS: Final = (SILENT, OLDEST, OPEN_WHILE_STALLED, SILENT_SECONDS, SLOW_SECONDS)
