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

METRICS: Final = (SILENT, OLDEST)
