"""The latency budget: where the milliseconds of a transaction go.

With a load of ours the whole is the client's own mean latency L (pgbench), at X transactions per second:

    wait W       mean sessions of the load seen in W, ÷ X (Little's law)
    CPU          Δ(utime + stime) of the load's backends ÷ Δt ÷ X where the host is known; else mean sessions on CPU ÷ X
    CPU queue    Δ time they were ready to run and did not (schedstat) ÷ Δt ÷ X, where the kernel counts it
    Client:turn  mean sessions whose client has the word, ÷ X, at most what the parts above leave of L
    other        what is left of L

A backend that was woken and has no CPU yet still looks as if it waited for its client, so its time in the queue is
taken out of the client's turn. Should waits, CPU and queue together exceed L (they overlap: reading a file costs CPU
as well), all of them are scaled down by the same factor, and turn and other are 0. Without a load the parts are the
sampled ones of all client backends, ÷ the server's TPS, and the whole is their sum. A load that has begun less than a
reading ago has no budget, nor has one that stood still in these seconds: what ended then had waited before them.
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from pgtop_tune.metrics import sections
from pgtop_tune.metrics.catalogue import Interval
from pgtop_tune.metrics.load import CLIENT_LATENCY, CLIENT_TPS, running, work_window_s
from pgtop_tune.metrics.server import TPS
from pgtop_tune.metrics.stall import stalled_within
from pgtop_tune.metrics.waits import CLIENT_BACKEND, WaitShare, wait_profile
from pgtop_tune.model.absence import Unavailable
from pgtop_tune.model.host import ProcessCounters, ProcessSample
from pgtop_tune.model.waits import BETWEEN, CLIENT, CPU, LOAD_APPLICATION, TURN, WaitCount

BUDGET_WINDOW_S: Final = 10.0
OTHER: Final = "other"
QUEUE: Final = "CPU queue"
CLIENTS_TURN: Final = f"{CLIENT}:{TURN}"
_COVERED: Final = 0.8
"""Share of the load's backends whose processes must be known for their CPU time to count."""


class BudgetPart(Struct, frozen=True):
    """Milliseconds of each transaction spent in one wait."""

    label: str
    wait_event_type: str
    ms: float


class LatencyBudget(Struct, frozen=True):
    """Where the time of a transaction goes.

    Attributes:
        total_ms: The client's mean latency; the sum of the parts when no client of ours measures.
        tps: Transactions per second the parts were divided by.
        parts: Largest first; with a measured latency they add up to it, the last being "other".
        measured: Whether `total_ms` is the client's own.
        scale: What waits, CPU and queue were multiplied with to fit; 1 when they did.
    """

    total_ms: float
    tps: float
    parts: tuple[BudgetPart, ...]
    measured: bool
    scale: float = 1.0


class CpuUse(Struct, frozen=True):
    """Of the load's backends, in CPUs.

    Attributes:
        used: Mean CPUs they ran on.
        queued: Mean backends that were ready to run and did not; None where the kernel does not say.
    """

    used: float
    queued: float | None


def latency_budget(interval: Interval, window_s: float = BUDGET_WINDOW_S) -> LatencyBudget | None:
    """The budget as the module says; None without throughput or samples, and for a load that begins or stood still."""
    if running(interval) is not None:
        worked_s = work_window_s(interval, window_s)
        return None if worked_s is None or stalled_within(interval, worked_s) else _of_client(interval, worked_s)
    server_tps = TPS(interval)
    profile = wait_profile(interval, window_s, CLIENT_BACKEND, wanted=_in_transaction)
    if not server_tps or not profile:
        return None
    parts = tuple(_part(wait, server_tps) for wait in profile)
    return LatencyBudget(sum(part.ms for part in parts), server_tps, parts, measured=False)


def _of_client(interval: Interval, window_s: float) -> LatencyBudget | None:
    latency_ms, tps = CLIENT_LATENCY.mean(interval, window_s), CLIENT_TPS.mean(interval, window_s)
    profile = wait_profile(interval, window_s, CLIENT_BACKEND, wanted=_of_load)
    if not profile:
        profile = wait_profile(interval, window_s, CLIENT_BACKEND, wanted=_in_transaction)
    return _measured(interval, profile, latency_ms, tps, window_s) if latency_ms and tps and profile else None


def _measured(
    interval: Interval, profile: list[WaitShare], latency_ms: float, tps: float, window_s: float
) -> LatencyBudget:
    run = running(interval)
    idle = (TURN,) if run is not None and run.rate_per_s else (TURN, BETWEEN)
    turn_ms = 1000.0 / tps * sum(w.sessions for w in profile if w.wait_event_type == CLIENT and w.wait_event in idle)
    on_cpu = sum(wait.sessions for wait in profile if wait.wait_event_type == CPU)
    parts = [_part(wait, tps) for wait in profile if not _has_no_wait(wait)]
    measured = cpu_of_load(interval, window_s)
    if measured is None:
        parts.append(BudgetPart(CPU, CPU, 1000.0 * on_cpu / tps))
    elif measured.queued is None:
        parts.append(BudgetPart(CPU, CPU, 1000.0 * max(measured.used, on_cpu) / tps))
    else:
        parts.append(BudgetPart(CPU, CPU, 1000.0 * measured.used / tps))
        parts.append(BudgetPart(QUEUE, QUEUE, 1000.0 * measured.queued / tps))
    explained_ms = sum(part.ms for part in parts)
    scale = min(1.0, latency_ms / explained_ms) if explained_ms else 1.0
    parts = [BudgetPart(part.label, part.wait_event_type, part.ms * scale) for part in parts]
    room_ms = max(latency_ms - explained_ms, 0.0)
    parts.append(BudgetPart(CLIENTS_TURN, CLIENT, min(turn_ms, room_ms)))
    parts = sorted((part for part in parts if part.ms > 0.0), key=lambda part: (-part.ms, part.label))
    parts.append(BudgetPart(OTHER, OTHER, max(room_ms - turn_ms, 0.0)))
    return LatencyBudget(latency_ms, tps, tuple(parts), measured=True, scale=scale)


def _part(wait: WaitShare, tps: float) -> BudgetPart:
    return BudgetPart(wait.label, wait.wait_event_type, 1000.0 * wait.sessions / tps)


def _has_no_wait(wait: WaitShare) -> bool:
    return wait.wait_event_type == CPU or (wait.wait_event_type == CLIENT and wait.wait_event in (TURN, BETWEEN))


def _of_load(count: WaitCount) -> bool:
    return count.of_load


def _in_transaction(count: WaitCount) -> bool:
    return not (count.is_idle and count.wait_event == BETWEEN)


def cpu_of_load(interval: Interval, window_s: float = BUDGET_WINDOW_S) -> CpuUse | None:
    """CPU time and time in the run queue of pgbench's backends over the last seconds.

    None where processes are not known: another machine, or sessions too short-lived (pgbench -C).
    Source: /proc/PID/stat utime and stime, /proc/PID/schedstat field 2 of backends with application_name pgbench.
    """
    host, activity = interval.newest.host, interval.now(sections.activity)
    if isinstance(host, Unavailable) or isinstance(host.facts, Unavailable) or activity is None:
        return None
    pids = {b.pid for b in activity.backends if b.application_name == LOAD_APPLICATION and b.leader_pid is None}
    recent = interval.recent(sections.processes, window_s, least=2)
    if not pids or len(recent) < 2:
        return None
    newest = _rows(recent[0], pids)
    for oldest in reversed(recent[1:]):
        before = _rows(oldest, pids)
        pairs = [
            (before[pid], row)
            for pid, row in newest.items()
            if pid in before and before[pid].start_ticks == row.start_ticks
        ]
        if len(pairs) >= _COVERED * len(pids):
            return _use(pairs, recent[0].at_s - oldest.at_s, host.facts.ticks_per_s, len(pids) / len(pairs))
    return None


def _rows(sample: ProcessSample, pids: set[int]) -> dict[int, ProcessCounters]:
    return {row.pid: row for row in sample.processes if row.pid in pids}


def _use(
    pairs: list[tuple[ProcessCounters, ProcessCounters]], seconds: float, ticks_per_s: int, all_to_known: float
) -> CpuUse | None:
    if seconds <= 0 or ticks_per_s <= 0:
        return None
    ticks = sum(new.user_ticks + new.system_ticks - old.user_ticks - old.system_ticks for old, new in pairs)
    delays = [
        new.run_delay_ms - old.run_delay_ms
        for old, new in pairs
        if new.run_delay_ms is not None and old.run_delay_ms is not None
    ]
    known = len(delays) >= _COVERED * len(pairs)
    queued = sum(delays) / 1000.0 / seconds * all_to_known * len(pairs) / len(delays) if known else None
    return CpuUse(ticks / ticks_per_s / seconds * all_to_known, queued)
