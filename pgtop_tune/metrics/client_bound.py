"""Limits of the load generator: CPU time and waits of pgbench's threads, and the server's waits for its clients.

A thread of pgbench sleeps while all of its clients wait for the server. A thread that never sleeps is the limit. Its
time is spent running and waiting for a CPU:

    demand of a thread = Δ(utime + stime) / Δt + Δ run_delay / Δt          /proc/PID/task/TID/{stat,schedstat}

At a demand of 90 % the load is CLIENT-BOUND, unless that thread waited for a CPU for longer than it ran: then the
machine is full, and the thread would sleep on a quieter one. Where threads are not visible, the sessions decide: when
80 % of their samples wait for pgbench (class Client, including idle between two transactions, unless a rate schedules
these pauses), the server had nothing to do. With all CPUs of the machine busy they do not decide, because a session that
was woken and has no CPU yet looks idle as well.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from msgspec.structs import replace

from pgtop_tune.metrics import sections
from pgtop_tune.metrics.active_sessions import sessions
from pgtop_tune.metrics.catalogue import Interval, share
from pgtop_tune.metrics.host_values import busy_ticks, ticks_share
from pgtop_tune.metrics.load import running, schedule_lag_ms, work_window_s
from pgtop_tune.model.absence import Unavailable
from pgtop_tune.model.bench import BenchRun
from pgtop_tune.model.host import HostFacts, ProcessSample, ThreadCounters
from pgtop_tune.model.run_result import GeneratorLoad
from pgtop_tune.model.waits import BETWEEN, CLIENT

WINDOW_S: Final = 10.0
DEMAND: Final = 90.0
TURN_SHARE: Final = 80.0
_SHORTEST_S: Final = 0.9
"""Shortest time between two looks at threads: clock ticks are coarse."""
ThreadUse = tuple[float, float | None]
"""CPU time and run-queue wait of a thread of pgbench in per cent of one core; None for a wait that is not known."""
_MACHINE_FULL: Final = 90.0


def client_bound(interval: Interval) -> GeneratorLoad | None:
    """Return the generator load of the last ten seconds, without the start of the load; None without a load of ours."""
    run, worked_s = running(interval), work_window_s(interval, WINDOW_S)
    return None if run is None or worked_s is None else generator_load(interval, run, worked_s)


def generator_load(interval: Interval, run: BenchRun, window_s: float = WINDOW_S) -> GeneratorLoad:
    """Return how busy pgbench was over the last seconds of a run.

    Args:
        interval: Frames; the newest may be later than the end of the run.
        run: The run.
        window_s: Length of the window. Figures without readings are None.
    """
    threads = _threads(interval, run, window_s)
    cpu_shares = [cpu for cpu, _ in threads]
    demands = [(cpu, delay or 0.0) for cpu, delay in threads]
    delays = [delay for _, delay in threads if delay is not None]
    looks = interval.recent(sections.cpu, window_s, least=2)
    facts = _host_facts(interval)
    load = GeneratorLoad(
        threads=len(threads),
        cpus=facts.cpu_count if facts else None,
        cpu_cores=sum(cpu_shares) / 100.0 if threads else None,
        busiest_cpu=max(cpu_shares, default=None),
        busiest_demand=max(map(sum, demands), default=None) if delays else None,
        client_turn=_client_turn(interval, run, window_s),
        lag_ms=schedule_lag_ms(interval, run, window_s),
        machine_busy=ticks_share(looks[-1].total, looks[0].total, busy_ticks) if len(looks) > 1 else None,
        beside=bool(threads) and facts is not None and not facts.is_of_server,
        bound=False,
        most_queued=max(delays, default=None),
    )
    reason = _reason(load, run, threads)
    return replace(load, bound=True, reason=reason, advice=_advice(load, run)) if reason else load


def full_machine(load: GeneratorLoad) -> bool:
    """Return whether hardly any CPU of the server's machine was idle."""
    return load.machine_busy is not None and load.machine_busy >= _MACHINE_FULL


def never_sleeps(cpu: float, queued: float) -> bool:
    """Return whether a thread never sleeps, and runs for most of the time."""
    return cpu + queued >= DEMAND and cpu >= queued


def never_slept(threads: Iterable[ThreadUse]) -> str:
    """Return the reason why pgbench is the limit: a thread that never slept; "" where all threads slept."""
    demands = [(cpu, queued or 0.0) for cpu, queued in threads]
    bound = max((demand for demand in demands if never_sleeps(*demand)), key=sum, default=None)
    if bound is None:
        return ""
    cpu, waiting = bound
    queued = f" and waited for a CPU {waiting:.0f} %" if waiting >= 1.0 else ""
    return (
        f"a pgbench thread used a CPU {cpu:.0f} %{queued} of the time and never slept:"
        " the client is the limit, not the server"
    )


def _reason(load: GeneratorLoad, run: BenchRun, threads: Sequence[ThreadUse]) -> str:
    if load.threads:
        return never_slept(threads)
    full = full_machine(load)
    if load.client_turn is not None and load.client_turn >= TURN_SHARE and run.rate_per_s is None and not full:
        return (
            f"in {load.client_turn:.0f} % of the samples the server waited for pgbench:"
            " the client or the network is the limit"
        )
    return ""


def _advice(load: GeneratorLoad, run: BenchRun) -> str:
    if load.threads and load.beside and full_machine(load):
        return f"all {load.cpus} CPUs are busy, pgbench uses {load.cpu_cores or 0.0:.1f} of them: run pgbench on another host, and nothing else beside the server"
    if load.threads and load.threads < min(run.clients, load.cpus or run.clients):
        return f"more threads (-j {min(run.clients, load.cpus or run.clients)}), or run pgbench on another host"
    return "run pgbench on another host, or on several hosts"


def _threads(interval: Interval, run: BenchRun, window_s: float) -> list[ThreadUse]:
    """Return the use of each thread of pgbench, over the time for which there are readings of it."""
    if run.machine:
        # With pgbench on another machine, ssh has the pid.
        return []
    pids = run.pids
    uses = thread_uses(interval, lambda sample: (row for row in sample.threads if row.pid in pids), window_s)
    return [use for _, use in uses]


def thread_uses(
    interval: Interval, rows_of: Callable[[ProcessSample], Iterable[ThreadCounters]], window_s: float
) -> list[tuple[int, ThreadUse]]:
    """Return the use of each thread that the newest reading has, with the pid, over the time of its readings."""
    facts = _host_facts(interval)
    looks = [
        (sample.at_s, {row.tid: row for row in rows_of(sample)})
        for sample in interval.recent(sections.processes, window_s, least=2)
    ]
    looks = [(at_s, rows) for at_s, rows in looks if rows]
    if facts is None or len(looks) < 2:
        return []
    newest_s, newest = looks[0]
    uses: list[tuple[int, ThreadUse]] = []
    for tid, thread in newest.items():
        oldest = next(((at_s, rows[tid]) for at_s, rows in reversed(looks) if _is_same(rows.get(tid), thread)), None)
        if oldest is not None and newest_s - oldest[0] >= _SHORTEST_S:
            use = thread_use(oldest[1], thread, newest_s - oldest[0], facts.ticks_per_s)
            uses.append((thread.pid, use))
    return uses


def _is_same(older: ThreadCounters | None, newer: ThreadCounters) -> bool:
    return older is not None and older.start_ticks == newer.start_ticks


def thread_use(older: ThreadCounters, newer: ThreadCounters, seconds: float, ticks_per_s: int) -> ThreadUse:
    """Return the use of a thread between two readings."""
    ticks = newer.user_ticks + newer.system_ticks - older.user_ticks - older.system_ticks
    cpu = 100.0 * max(ticks, 0) / ticks_per_s / seconds
    if newer.run_delay_ms is None or older.run_delay_ms is None:
        return cpu, None
    return cpu, max(newer.run_delay_ms - older.run_delay_ms, 0) / 10.0 / seconds


def _client_turn(interval: Interval, run: BenchRun, window_s: float) -> float | None:
    """Return the share of the samples of the load's sessions in which they waited for their client."""
    rows = [
        one
        for one in sessions(interval, window_s) or ()
        if one.kind.of_load and not (run.rate_per_s is not None and one.kind.wait_event == BETWEEN)
    ]
    turn = sum(one.mean for one in rows if one.kind.wait_event_type == CLIENT)
    return share(turn, sum(one.mean for one in rows))


def _host_facts(interval: Interval) -> HostFacts | None:
    facts = sections.machine(interval.newest)
    return None if isinstance(facts, Unavailable) else facts
