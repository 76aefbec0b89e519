"""The latency budget: the parts of a transaction's latency.

With a load of ours the total is the client's own mean latency L (pgbench), at X transactions per second:

    wait W       mean sessions of the load in W, ÷ X (Little's law)
    CPU          mean sessions of the load on a CPU, ÷ X
    CPU queue    mean sessions of the load that were ready to run and had no CPU, ÷ X
    schedule lag mean time that a transaction of a load with a rate began late, which pgbench counts as a part of L
    Client:think mean sessions that wait for their client, ÷ X, at most what the parts above leave of L
    other        what is left of L

The sessions are those of `active_sessions`, as on every page. If waits, CPU and queue together exceed L without the lag
(they overlap: reading a file costs CPU as well), all are scaled down by one factor, and think time and other are 0.
Without a load the parts are those of all client backends, ÷ the server's TPS, and the total is their sum. There is no
budget while nearly all of them wait for one transaction (`standstill`): transactions that end then have not waited.
Server processes and intended sleeps are no part, because no transaction waits for them. A load has no budget before its
first full reading, and none for seconds in which it stood still: transactions that ended then had waited before.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from msgspec import Struct

from pgtop_tune.metrics import sections
from pgtop_tune.metrics.active_sessions import CLIENT_BACKEND, WAITS_WINDOW_S, SessionActivity, activity_of
from pgtop_tune.metrics.blockers import blocking, longest_blocked_s
from pgtop_tune.metrics.catalogue import Interval
from pgtop_tune.metrics.connections import WORKING
from pgtop_tune.metrics.load import (
    CLIENT_LATENCY,
    CLIENT_TPS,
    SHORTEST_S,
    running,
    schedule_lag_ms,
    stalled_within,
    work_window_s,
)
from pgtop_tune.metrics.server import TPS, why_uncounted
from pgtop_tune.metrics.waits import WaitShare, label_of, wait_profile
from pgtop_tune.model.bench import BenchRun
from pgtop_tune.model.postgres import Activity, Backend
from pgtop_tune.model.waits import BETWEEN, CLIENT, TURN, WaitCount

# Standstill: nearly every active session waits for the locks of one transaction.
#
# Without a load of ours the end of its transactions is not visible. The server's counters do not stop either: monitoring,
# another pgtop-tune and pg_isready commit now and then. So a standstill takes all of these, for at least `SHORTEST_S`:
#
#     active sessions that wait for a lock      nine of ten, at least two
#     chains of blockers that end at one root   nine of ten; its transaction, and the longest wait, are that old
#     transactions of the server per second     fewer than four for each session that waits: it would make more

_LOCK: Final = "Lock"
_MOST: Final = 0.9
_FEWEST: Final = 2
_EACH_PER_S: Final = 4.0


class Standstill(Struct, frozen=True):
    """Standstill in one sample of the sessions.

    Attributes:
        root: Pid that blocks the others; 0 for a prepared transaction.
        waiting: Active sessions that wait for a lock.
        active: Active sessions, without the root.
        for_s: Longest wait in seconds.
    """

    root: int
    waiting: int
    active: int
    for_s: float


def standstill(interval: Interval) -> Standstill | None:
    """Return the standstill of the newest frame; None while work goes on, without sessions, and during a load of ours."""
    if running(interval) is not None:
        return None
    activity = interval.now(sections.activity)
    candidate = None if activity is None else interval.kept(_of, activity)
    if candidate is None:
        return None
    tps = TPS(interval.over(SHORTEST_S))
    return candidate if tps is not None and tps < _EACH_PER_S * candidate.waiting else None


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
    """Return whether the root has blocked for long enough. On a hot row, each sample has another root.

    A session-level lock needs no transaction.
    """
    since_ms = root.state_change_ms if root.xact_start_ms is None else root.xact_start_ms
    return since_ms is None or now_ms - since_ms >= 1000.0 * SHORTEST_S


BUDGET_WINDOW_S: Final = WAITS_WINDOW_S
OTHER: Final = "other"
SCHEDULE_LAG: Final = "schedule lag"
CLIENT_THINKS: Final = label_of(CLIENT, TURN)


class BudgetPart(Struct, frozen=True):
    """Milliseconds that each transaction spends in one wait."""

    label: str
    wait_event_type: str
    ms: float


class LatencyBudget(Struct, frozen=True):
    """Parts of a transaction's time.

    Attributes:
        total_ms: The client's mean latency; the sum of the parts when no client of ours measures.
        begun_ms: The same without the lag, which the other parts cause.
        tps: Transactions per second the parts were divided by; 0 where they are not known (`session_time`).
        parts: Largest first; with a measured latency they add up to it, the last being "other".
        measured: Whether `total_ms` is the client's own.
        window_s: Length of the window; less in the first seconds of a load.
        counts: Returns whether sessions of a kind are part of the budget.
        scale: Factor that was applied to waits, CPU and queue to fit the latency; 1 when they fitted.
        turn_scale: Factor that was applied to the client's think time.
    """

    total_ms: float
    begun_ms: float
    tps: float
    parts: tuple[BudgetPart, ...]
    measured: bool
    window_s: float
    counts: Callable[[WaitCount], bool]
    scale: float = 1.0
    turn_scale: float = 1.0

    def ms_of(self, kind: WaitCount) -> float:
        """Return the milliseconds of each transaction per mean session of this kind; 0 for a kind that is no part."""
        if not self.counts(kind):
            return 0.0
        return 1000.0 / self.tps * (self.turn_scale if kind.is_idle else self.scale)


def latency_budget(interval: Interval, window_s: float = BUDGET_WINDOW_S) -> LatencyBudget | None:
    """Return the latency budget; None without throughput or samples, and for a load that begins or stood still."""
    if (run := running(interval)) is not None:
        worked_s = work_window_s(interval, window_s)
        return None if worked_s is None or stalled_within(interval, worked_s) else _of_client(interval, run, worked_s)
    if interval.once(standstill) is not None:
        return None
    server_tps = TPS(interval.over(window_s))
    profile = wait_profile(interval, window_s, included=_in_transaction)
    if not server_tps or not profile:
        return None
    return _of_sessions(profile, server_tps, window_s)


def session_time(interval: Interval) -> LatencyBudget | None:
    """Return the parts of the sessions' time, ms per second; None where the server counts its transactions."""
    if running(interval) is not None or not interval.once(why_uncounted):
        return None
    profile = wait_profile(interval, BUDGET_WINDOW_S, included=_in_transaction)
    return _of_sessions(profile, 0.0, BUDGET_WINDOW_S) if profile else None


def _of_sessions(profile: list[WaitShare], tps: float, window_s: float) -> LatencyBudget:
    parts = tuple(_part(wait, tps or 1.0) for wait in profile)
    total_ms = sum(part.ms for part in parts)
    return LatencyBudget(
        total_ms=total_ms, begun_ms=total_ms, tps=tps, parts=parts, measured=False, window_s=window_s,
        counts=_in_transaction,
    )  # fmt: skip


def _of_client(interval: Interval, run: BenchRun, window_s: float) -> LatencyBudget | None:
    latency_ms, tps = CLIENT_LATENCY.mean(interval, window_s), CLIENT_TPS.mean(interval, window_s)
    if not latency_ms or not tps:
        return None
    lag_ms = schedule_lag_ms(interval, run, window_s) or 0.0
    for counts in (_of_load, _in_transaction):
        if profile := wait_profile(interval, window_s, included=counts):
            return _measured(profile, latency_ms, lag_ms, tps, window_s, counts)
    return None


def _measured(
    profile: list[WaitShare],
    latency_ms: float,
    lag_ms: float,
    tps: float,
    window_s: float,
    counts: Callable[[WaitCount], bool],
) -> LatencyBudget:
    begun_ms = latency_ms - lag_ms
    turn_ms = sum(_part(wait, tps).ms for wait in profile if wait.label == CLIENT_THINKS)
    parts = [_part(wait, tps) for wait in profile if wait.label != CLIENT_THINKS]
    explained_ms = sum(part.ms for part in parts)
    scale = min(1.0, begun_ms / explained_ms) if explained_ms else 1.0
    parts = [BudgetPart(part.label, part.wait_event_type, part.ms * scale) for part in parts]
    room_ms = max(begun_ms - explained_ms, 0.0)
    turn_scale = min(1.0, room_ms / turn_ms) if turn_ms else 1.0
    parts += [BudgetPart(CLIENT_THINKS, CLIENT, turn_ms * turn_scale), BudgetPart(SCHEDULE_LAG, OTHER, lag_ms)]
    parts = sorted((part for part in parts if part.ms > 0.0), key=lambda part: (-part.ms, part.label))
    parts.append(BudgetPart(OTHER, OTHER, max(room_ms - turn_ms, 0.0)))
    return LatencyBudget(
        total_ms=latency_ms, begun_ms=begun_ms, tps=tps, parts=tuple(parts), measured=True, window_s=window_s,
        counts=counts, scale=scale, turn_scale=turn_scale,
    )  # fmt: skip


def _part(wait: WaitShare, tps: float) -> BudgetPart:
    return BudgetPart(wait.label, wait.wait_event_type, 1000.0 * wait.sessions / tps)


def _of_load(count: WaitCount) -> bool:
    return count.of_load and _in_transaction(count)


def _in_transaction(count: WaitCount) -> bool:
    if count.backend_type != CLIENT_BACKEND or count.wait_event == BETWEEN:
        return False
    return activity_of(count) in (SessionActivity.ACTIVE, SessionActivity.TURN)
