"""Active sessions: the one definition, and the one calculation for every page, line, export and replay.

A session is **active** while the server works for it or while it waits for a resource: a lock, a disk, another process,
its client in the middle of a statement, a CPU. Parallel workers are sessions as well. Four other kinds of sessions
never count as active:

    client think time   idle in transaction for less than a second; for pgbench also idle between two transactions
    pacing              intended sleeps: delays of checkpoints, VACUUM, base backups and recovery, an idle replication
                        process; the archiver, which waits for a command or sleeps between two attempts
    background          server processes at work: checkpointer, WAL writer, autovacuum, replication, extensions
    io workers          busy with a read that a session already waits for (18 and newer, io_method=worker)

A sample shows a session that was woken and has no CPU yet as waiting for its client, and a preempted session as
running. For the sessions of pgbench the kernel has exact figures: their time on CPUs and in the run queue replaces the
samples without a wait, and the difference is subtracted from the client's think time.

    running  max(Δ(utime + stime) / Δt, samples without a wait − queued)
    queued   Δ run_delay / Δt, "CPU queue"; 0 without schedstat

So every session is counted once, and the parts add up to the total.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import StrEnum
from functools import lru_cache
from operator import attrgetter
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from pgtop_tune.metrics import sections
from pgtop_tune.metrics.catalogue import Interval
from pgtop_tune.metrics.load import CLIENT_LATENCY, running
from pgtop_tune.metrics.load_cpu import cpu_of_load
from pgtop_tune.model.absence import Reason, Unavailable, grant
from pgtop_tune.model.frame import Frame
from pgtop_tune.model.postgres import HIDDEN_QUERY
from pgtop_tune.model.waits import BETWEEN, CLIENT, CPU, QUEUE, TURN, WaitCount, WaitSample

CLIENT_BACKEND: Final = "client backend"
_SESSIONS: Final = frozenset({CLIENT_BACKEND, "parallel worker", ""})
"""Backend types that work for a client; "" stands for sessions that this role may not see."""
IO_WORKER: Final = "io worker"
WAITS_WINDOW_S: Final = 10.0
_ARCHIVER: Final = "archiver"
_SLEEPS: Final = frozenset(
    {
        ("Timeout", "checkpointwritedelay"),
        ("Timeout", "vacuumdelay"),
        ("Timeout", "basebackupthrottle"),
        ("Timeout", "recoveryapplydelay"),
        ("Timeout", "recoveryretrieveretryinterval"),
        ("Timeout", "walsummarizererror"),
        ("IPC", "recoverypause"),
        ("IPC", "walreceiverwaitstart"),
        ("Client", "walsenderwaitforwal"),
    }
)
"""Class and event; the event in lower case, because its spelling differs between majors."""
DECODING: Final = "REPACK decoding worker"
_DECODING_AT_REST: Final = (DECODING, "waitforwalflush")
"""Backend type and wait event of REPACK (CONCURRENTLY) once it has read all WAL."""
_FROM_THE_PRIMARY: Final = frozenset({"libpqwalreceiverconnect", "libpqwalreceiverreceive"})
"""Waits for another server's answer: idle, unless a client waits for the result (CREATE SUBSCRIPTION)."""


class SessionActivity(StrEnum):
    """Kind of a session: active, or one of the four that never count as active. Exports have these values."""

    ACTIVE = "active"
    TURN = "client turn"
    PACING = "pacing"
    IO_WORKER = "io worker"
    BACKGROUND = "background"


def activity_of(count: WaitCount) -> SessionActivity:
    """Return the kind of the sessions in one wait, as the module defines it."""
    if count.is_idle:
        return SessionActivity.TURN
    return _activity(count.wait_event_type, count.wait_event, count.backend_type)


@lru_cache(1024)
def _activity(wait_event_type: str, wait_event: str, backend_type: str) -> SessionActivity:
    if backend_type == IO_WORKER:
        return SessionActivity.IO_WORKER
    event = wait_event.lower()
    if (backend_type, event) == _DECODING_AT_REST:
        return SessionActivity.PACING
    remote = backend_type != CLIENT_BACKEND and wait_event_type == CLIENT and event in _FROM_THE_PRIMARY
    if remote or backend_type == _ARCHIVER or (wait_event_type, event) in _SLEEPS:
        return SessionActivity.PACING
    return SessionActivity.ACTIVE if backend_type in _SESSIONS else SessionActivity.BACKGROUND


def is_active(count: WaitCount) -> bool:
    """Return whether these sessions count as active."""
    return activity_of(count) is SessionActivity.ACTIVE


class Sessions(Struct, frozen=True):
    """Sessions of one kind.

    Attributes:
        kind: Wait, statement, database, user and backend type; its `observations` have no meaning here.
        mean: Mean number over the window.
    """

    kind: WaitCount
    mean: float


def sessions(interval: Interval, window_s: float) -> list[Sessions] | None:
    """Return the mean numbers of sessions in the window by kind, including those that are not active.

    Args:
        interval: Frames; it keeps the result for further calls with the same window.
        window_s: Length of the window; 0 for the newest frame.

    Returns:
        None without samples. While a load without a rate runs, its sessions between two transactions count as
        Client:think, because the latency that pgbench measures includes these pauses.
    """
    return interval.once(_Over(window_s))


_KIND: Final = attrgetter(
    "wait_event_type", "wait_event", "backend_type", "query_id", "datname", "usename", "of_load"
)  # fmt: skip
"""Fields that tell kinds of sessions apart."""


class _Over(Struct, frozen=True):
    window_s: float

    def __call__(self, interval: Interval) -> list[Sessions] | None:
        recent = interval.recent(sections.waits, self.window_s)
        samples = sum([reading.samples for reading in recent])
        if not samples:
            return None
        observed = interval.carried(self, _Seen).over(recent, _is_part_of_latency(interval))
        by_kind = [Sessions(kind, observations / samples) for kind, observations in observed]
        load_cpu = cpu_of_load(interval, self.window_s)
        return (
            by_kind
            if load_cpu is None
            else _with_cpu(by_kind, load_cpu.used * load_cpu.share, (load_cpu.queued or 0.0) * load_cpu.share)
        )


class _Seen:
    """Observations of each kind in a sliding window: new readings are added, old ones are subtracted."""

    def __init__(self) -> None:
        self._readings: Sequence[WaitSample] = ()
        self._joined = False
        self._sums: dict[tuple[object, ...], tuple[WaitCount, int]] = {}

    def over(self, readings: Sequence[WaitSample], joined: bool) -> Iterable[tuple[WaitCount, int]]:
        """Return each kind of sessions with its observations.

        Args:
            readings: Newest first.
            joined: Whether sessions between two transactions count as waiting for their client's think time.
        """
        previous = self._readings
        n_new = next(
            (index for index, reading in enumerate(readings) if previous and reading is previous[0]), len(readings)
        )
        n_kept = len(readings) - n_new
        if joined != self._joined or n_kept > len(previous) or (n_kept and readings[-1] is not previous[n_kept - 1]):
            self._sums, previous, n_new, n_kept = {}, (), len(readings), 0
        self._readings, self._joined = readings, joined
        for reading in previous[n_kept:]:
            self._add(reading, -1)
        for reading in readings[:n_new]:
            self._add(reading, 1)
        return self._sums.values()

    def _add(self, reading: WaitSample, sign: int) -> None:
        sums = self._sums
        for count in reading.counts:
            observations = count.observations
            if not observations:
                continue
            if self._joined and count.wait_event == BETWEEN and count.is_idle:
                count = replace(count, wait_event=TURN)
            key = _KIND(count)
            kind, before = sums.get(key, (count, 0))
            if before + sign * observations:
                sums[key] = kind, before + sign * observations
            else:
                del sums[key]


def _is_part_of_latency(interval: Interval) -> bool:
    run = running(interval)
    return not run.rate_per_s if run is not None else bool(CLIENT_LATENCY.mean(interval, WAITS_WINDOW_S))


def _with_cpu(sampled: list[Sessions], used: float, queued: float) -> list[Sessions]:
    """Replace the load's sampled CPU time by the measured CPU and run-queue time.

    The number of sessions stays the same, unless the kernel counted more. Without a sampled session of the load,
    nothing changes.
    """
    kept: list[Sessions] = []
    ready: list[Sessions] = []
    idle: list[Sessions] = []
    load_sessions = [entry for entry in sampled if entry.kind.of_load and entry.kind.backend_type == CLIENT_BACKEND]
    if not load_sessions:
        return sampled
    for entry in sampled:
        is_of_load = entry.kind.of_load and entry.kind.backend_type == CLIENT_BACKEND
        (
            idle
            if is_of_load and entry.kind.is_idle
            else ready
            if is_of_load and entry.kind.wait_event_type == CPU
            else kept
        ).append(entry)
    sampled_ready, available = sum(entry.mean for entry in ready), sum(entry.mean for entry in idle)
    on_cpu = max(used, sampled_ready - queued)
    share = min((on_cpu + queued - sampled_ready) / available, 1.0) if available else 0.0
    kept += [Sessions(entry.kind, entry.mean * (1.0 - share)) for entry in idle if share < 1.0]
    ready += [Sessions(entry.kind, entry.mean * share) for entry in idle if share > 0.0]
    ready = ready or [Sessions(replace(load_sessions[0].kind, query_id=None), 1.0)]
    total = sum(entry.mean for entry in ready)
    for wait, mean in ((CPU, on_cpu), (QUEUE, queued)):
        kinds: dict[WaitCount, float] = {}
        for entry in ready:
            kind = replace(entry.kind, wait_event_type=wait, wait_event="", observations=0)
            kinds[kind] = kinds.get(kind, 0.0) + entry.mean / total * mean
        kept += [Sessions(kind, part) for kind, part in kinds.items() if part > 0.0]
    return kept


# Sessions that this role may not see: an empty result does not mean that there are none.


def hidden_sessions(frame: Frame) -> Unavailable | None:
    """Return the GRANT that shows hidden sessions; None when all are visible, or that is not known.

    Source: pg_stat_activity.query, which holds a notice in place of the text.
    """
    activity, server = sections.activity(frame), sections.server(frame)
    if isinstance(server, Unavailable):
        return None
    if isinstance(activity, Unavailable):
        # Waits of other users' sessions are hidden as well, and their rows do not show it.
        return activity if activity.reason is Reason.NO_PERMISSION and not server.monitor_role else None
    if not any(backend.query == HIDDEN_QUERY for backend in activity.backends):
        return None
    permission = grant("pg_monitor", server.user)
    return Unavailable(Reason.NO_PERMISSION, f"other users' sessions are hidden: {permission}")
