"""The second of the transaction log that percentiles on a screen are of."""

from __future__ import annotations

from msgspec import Struct

from pgtop_tune.metrics.load import running
from pgtop_tune.metrics.stall import stalled_s
from pgtop_tune.runtime.history import LatencyPoint
from pgtop_tune.runtime.session import Session


class NewestLatency(Struct, frozen=True):
    """The newest complete second of the load under way.

    Attributes:
        second: None before the first is complete, and without a load of ours.
        age_s: How long ago it ended. pgbench buffers its log: some seconds are usual, more with few transactions.
        stalled_s: How long no transaction has ended where that is a stall, else None: the second tells nothing of now.
    """

    second: LatencyPoint | None
    age_s: float = 0.0
    stalled_s: float | None = None


def newest_latency(session: Session) -> NewestLatency:
    """What is known of the latency of the load under way. Computed once a step through `Session.once`."""
    frame, interval = session.now, session.interval
    run = None if interval is None else running(interval)
    if frame is None or interval is None or run is None:
        return NewestLatency(None)
    second = session.latency.newest()
    if second is None or (second.second + 1) * 1000 <= run.started_ms:
        # What there is, is of the run before.
        return NewestLatency(None, 0.0, stalled_s(interval))
    return NewestLatency(second, max(frame.elapsed_s - second.at_s, 0.0), stalled_s(interval))
