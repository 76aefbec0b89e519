"""Active sessions: the one definition, and the one calculation that every page, line, export and replay takes.

A session is **active** while the server works for it or while it waits for something that keeps it from working: a
lock, a disk, another process, its client in the middle of a statement, a CPU. Parallel workers are sessions as well.
Beside the active sessions, and never among them:

    the client's turn   idle in transaction for less than a second; of pgbench also idle between two transactions
    pacing              sleeps that are meant: delays of checkpoints, VACUUM, base backups and recovery, a process of
                        replication at rest; the archiver, which waits for a command or sleeps between two attempts
    background          processes of the server at work: checkpointer, WAL writer, autovacuum, replication, extensions
    io workers          busy with a read that the session which asked for it already waits for (18, io_method=worker)

A session that was woken and has no CPU yet looks as if it still waited for its client, and one that was put off its CPU
as if it ran. The kernel knows better for the sessions of pgbench: their time on CPUs, and in the run queue, take the
place of what the looks saw as CPU, and what is lacking is taken from the client's turn.

    running  max(Δ(utime + stime) / Δt, looks without a wait − queued)
    queued   Δ run_delay / Δt, "CPU queue"; without schedstat 0

So a session is counted once, and the parts add up to the whole.
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
"""Backend types that work for a client; "" is that of sessions which this role may not look into."""
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
"""Class and event, the event in lower case: majors do not spell them alike."""
DECODING: Final = "REPACK decoding worker"
_DECODING_AT_REST: Final = (DECODING, "waitforwalflush")
"""Of REPACK (CONCURRENTLY): it has read all WAL there is."""
_FROM_THE_PRIMARY: Final = frozenset({"libpqwalreceiverconnect", "libpqwalreceiverreceive"})
"""Waits for an answer of another server: at rest, unless a client waits for it (CREATE SUBSCRIPTION)."""


class SessionActivity(StrEnum):
    """Whether a session counts as active, and if not, what it is beside them. The words stand in exports."""

    ACTIVE = "active"
    TURN = "client turn"
    PACING = "pacing"
    IO_WORKER = "io worker"
    BACKGROUND = "background"


def activity_of(count: WaitCount) -> SessionActivity:
    """What the module says, for one kind of wait."""
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
    """Whether these sessions are active sessions."""
    return activity_of(count) is SessionActivity.ACTIVE


class Sessions(Struct, frozen=True):
    """Sessions of one kind.

    Attributes:
        kind: What they did, and who they are; its observations say nothing here.
        mean: Mean number over the window.
    """

    kind: WaitCount
    mean: float


def sessions(interval: Interval, window_s: float) -> list[Sessions] | None:
    """Sessions over the last seconds by what they did, those beside the active ones included.

    Args:
        interval: Where to look; asked twice for the same window, it is counted once.
        window_s: Length of the window; 0 is the newest frame's.

    Returns:
        None when nobody looked. While a load of ours without a rate runs, its sessions between two transactions are
        Client:think: pgbench measures a latency that these pauses are part of.
    """
    return interval.once(_Over(window_s))


_KIND: Final = attrgetter(
    "wait_event_type", "wait_event", "backend_type", "query_id", "datname", "usename", "of_load"
)  # fmt: skip
"""What tells kinds of sessions apart."""


class _Over(Struct, frozen=True):
    window_s: float

    def __call__(self, interval: Interval) -> list[Sessions] | None:
        recent = interval.recent(sections.waits, self.window_s)
        samples = sum([reading.samples for reading in recent])
        if not samples:
            return None
        observed = interval.carried(self, _Seen).over(recent, _is_part_of_latency(interval))
        by_kind = [Sessions(kind, observations / samples) for kind, observations in observed]
        use = cpu_of_load(interval, self.window_s)
        return by_kind if use is None else _with_cpu(by_kind, use.used * use.share, (use.queued or 0.0) * use.share)


class _Seen:
    """Observations of each kind in a window that slides: what comes is added, what goes is taken away."""

    def __init__(self) -> None:
        self._readings: Sequence[WaitSample] = ()
        self._joined = False
        self._sums: dict[tuple[object, ...], tuple[WaitCount, int]] = {}

    def over(self, readings: Sequence[WaitSample], joined: bool) -> Iterable[tuple[WaitCount, int]]:
        """Kinds with their observations.

        Args:
            readings: Newest first.
            joined: Sessions between two transactions count as those whose client's turn it is.
        """
        previous = self._readings
        new = next((index for index, reading in enumerate(readings) if previous and reading is previous[0]), len(readings))
        stay = len(readings) - new
        if joined != self._joined or stay > len(previous) or (stay and readings[-1] is not previous[stay - 1]):
            self._sums, previous, new, stay = {}, (), len(readings), 0
        self._readings, self._joined = readings, joined
        for reading in previous[stay:]:
            self._add(reading, -1)
        for reading in readings[:new]:
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
    """The load's sessions with measured CPU and queue; as many as before, unless the kernel counted more.

    As they are where no look saw one of them.
    """
    kept: list[Sessions] = []
    ready: list[Sessions] = []
    idle: list[Sessions] = []
    load = [one for one in sampled if one.kind.of_load and one.kind.backend_type == CLIENT_BACKEND]
    if not load:
        return sampled
    for one in sampled:
        is_of_load = one.kind.of_load and one.kind.backend_type == CLIENT_BACKEND
        (idle if is_of_load and one.kind.is_idle else ready if is_of_load and one.kind.wait_event_type == CPU else kept).append(one)
    sampled_ready, available = sum(one.mean for one in ready), sum(one.mean for one in idle)
    on_cpu = max(used, sampled_ready - queued)
    share = min((on_cpu + queued - sampled_ready) / available, 1.0) if available else 0.0
    kept += [Sessions(one.kind, one.mean * (1.0 - share)) for one in idle if share < 1.0]
    ready += [Sessions(one.kind, one.mean * share) for one in idle if share > 0.0]
    ready = ready or [Sessions(replace(load[0].kind, query_id=None), 1.0)]
    total = sum(one.mean for one in ready)
    for wait, mean in ((CPU, on_cpu), (QUEUE, queued)):
        kinds: dict[WaitCount, float] = {}
        for one in ready:
            kind = replace(one.kind, wait_event_type=wait, wait_event="", observations=0)
            kinds[kind] = kinds.get(kind, 0.0) + one.mean / total * mean
        kept += [Sessions(kind, part) for kind, part in kinds.items() if part > 0.0]
    return kept


# Sessions this role may not look into: where they may be all there is, no rows do not mean that there is nothing.


def hidden_sessions(frame: Frame) -> Unavailable | None:
    """Return the GRANT that opens them; None when every session is open to us, or that is not known.

    Source: pg_stat_activity.query, which says so in place of a text.
    """
    activity, server = sections.activity(frame), sections.server(frame)
    if isinstance(server, Unavailable):
        return None
    if isinstance(activity, Unavailable):
        # Waits of other users' sessions are hidden as well, and their rows do not show it.
        return activity if activity.reason is Reason.NO_PERMISSION and not server.monitor_role else None
    if not any(backend.query == HIDDEN_QUERY for backend in activity.backends):
        return None
    opens = grant("pg_monitor", server.user)
    return Unavailable(Reason.NO_PERMISSION, f"other users' sessions are hidden: {opens} shows them")
