"""Whether the work of others stands still: nearly every active session waits for the locks of one transaction.

Without a load of ours the end of its transactions is not seen. The server's counters do not stop either: monitoring,
another pgtop-tune and pg_isready commit now and then. So it takes all of these, as long as `SHORTEST_S`:

    active sessions that wait for a lock      nine of ten, at least two
    chains of blockers that end at one root   nine of ten; its transaction, and the longest wait, are that old
    transactions of the server per second     fewer than four for each session that waits: it would make more
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from pgtop_tune.metrics import sections
from pgtop_tune.metrics.active_sessions import CLIENT_BACKEND
from pgtop_tune.metrics.blocking import blocking, longest_blocked_s
from pgtop_tune.metrics.catalogue import Interval
from pgtop_tune.metrics.connections import WORKING
from pgtop_tune.metrics.load import running
from pgtop_tune.metrics.server import TPS
from pgtop_tune.metrics.stall import SHORTEST_S
from pgtop_tune.model.postgres import Activity, Backend

_LOCK: Final = "Lock"
_MOST: Final = 0.9
_FEWEST: Final = 2
_EACH_PER_S: Final = 4.0


class Standstill(Struct, frozen=True):
    """Of one look.

    Attributes:
        root: Pid that holds up the others; 0 is a prepared transaction.
        waiting: Active sessions that wait for a lock.
        active: Active sessions, without the root.
        for_s: How long the one waits that began its statement first.
    """

    root: int
    waiting: int
    active: int
    for_s: float


def standstill(interval: Interval) -> Standstill | None:
    """As the module says; None while work goes on, without sessions to look at, and during a load of ours."""
    if running(interval) is not None:
        return None
    activity = interval.now(sections.activity)
    found = None if activity is None else interval.kept(_of, activity)
    if found is None:
        return None
    tps = TPS(interval.over(SHORTEST_S))
    return found if tps is not None and tps < _EACH_PER_S * found.waiting else None


def _of(activity: Activity) -> Standstill | None:
    ends, for_s = blocking(activity), longest_blocked_s(activity)
    if ends.root is None or for_s < SHORTEST_S or ends.root_blocks < _MOST * ends.blocked:
        return None
    root = next((backend for backend in activity.backends if backend.pid == ends.root), None)
    if root is not None and not _is_old(root, activity.now_ms):
        return None
    active = [
        backend
        for backend in activity.backends
        if backend.backend_type == CLIENT_BACKEND and backend.state in WORKING and backend is not root
    ]
    waiting = sum(backend.wait_event_type == _LOCK for backend in active)
    if waiting < max(_FEWEST, _MOST * len(active)):
        return None
    return Standstill(root=ends.root, waiting=waiting, active=len(active), for_s=for_s)


def _is_old(root: Backend, now_ms: int) -> bool:
    """Of a hot row the root is another transaction at each look. A lock of the session needs no transaction."""
    since_ms = root.state_change_ms if root.xact_start_ms is None else root.xact_start_ms
    return since_ms is None or now_ms - since_ms >= 1000.0 * SHORTEST_S
