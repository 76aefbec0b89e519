"""Waits of backends from samples: mean sessions per wait, by statement, database, user and backend type."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Sequence
from itertools import pairwise
from math import ceil
from typing import Final

from msgspec import Struct

from pgtop_tune.metrics import sections
from pgtop_tune.metrics.active_sessions import (
    IO_WORKER,
    WAITS_WINDOW_S,
    SessionActivity,
    activity_of,
    is_active,
    sessions,
)
from pgtop_tune.metrics.catalogue import WHOLE_S, Interval, Metric
from pgtop_tune.metrics.growth import Grown, grown_rows
from pgtop_tune.metrics.host_values import untold
from pgtop_tune.model.absence import Unavailable
from pgtop_tune.model.frame import Frame
from pgtop_tune.model.postgres import Backend
from pgtop_tune.model.waits import BETWEEN, CLIENT, CPU, QUEUE, TURN, LockCounters, WaitCount

# Waits for heavyweight locks by type of lock: counts of pg_stat_lock beside samples.


class LockType(Struct, frozen=True):
    """Waits for one type of heavyweight lock.

    Attributes:
        grown: The row of pg_stat_lock with its growth.
        sampled: Mean sampled sessions that waited for such a lock over the last 10 s; None without samples.
    """

    grown: Grown[LockCounters]
    sampled: float | None


def lock_types(interval: Interval) -> list[LockType]:
    """Return the growth of pg_stat_lock by type of lock, beside the sampled waits; empty without the section."""
    profile = {(wait.wait_event_type, wait.wait_event): wait.sessions for wait in wait_profile(interval)}
    rows = grown_rows(
        interval,
        sections.lock_counters,
        lambda sample: sample.types,
        lambda row: row.locktype,
        lambda row: row.stats_reset_ms,
        ("waits", "wait_us", "fastpath_exceeded"),
    )
    return [LockType(row, profile.get(("Lock", row.row.locktype), 0.0) if profile else None) for row in rows]


LONG_WINDOW_S: Final = 60.0
NEWEST: Final = 0.0
"""A window that holds the newest frame alone."""


class WaitShare(Struct, frozen=True):
    """One wait over a window.

    Attributes:
        wait_event_type: Class, "CPU" for sessions without a wait.
        wait_event: Event, "" for CPU.
        sessions: Mean number of backends in this wait (average active sessions).
    """

    wait_event_type: str
    wait_event: str
    sessions: float

    @property
    def label(self) -> str:
        """ "IO:WALSync", "CPU"."""
        return label_of(self.wait_event_type, self.wait_event)


_SHOWN: Final = {TURN: "think", BETWEEN: "idle"}
"""Displayed names of waits that are no events of PostgreSQL, by their names in recordings."""


def label_of(wait_event_type: str, wait_event: str) -> str:
    """Return class and event as one word: "IO:WALSync", "CPU", "Client:think"."""
    return f"{wait_event_type}:{_SHOWN.get(wait_event, wait_event)}" if wait_event else wait_event_type


def wait_profile(
    interval: Interval,
    window_s: float = WAITS_WINDOW_S,
    backend_type: str | None = None,
    *,
    included: Callable[[WaitCount], bool] = is_active,
) -> list[WaitShare]:
    """Return the mean sessions per wait over the last seconds, largest first; empty without samples.

    Args:
        interval: Frames.
        window_s: Length of the window; 0 for the newest frame.
        backend_type: Only backends of this type; None for all.
        included: Returns whether sessions of a kind count; by default those of active sessions.
    """
    means: defaultdict[tuple[str, str], float] = defaultdict(float)
    for one in sessions(interval, window_s) or ():
        kind = one.kind
        if (backend_type is None or kind.backend_type == backend_type) and included(kind):
            means[kind.wait_event_type, kind.wait_event] += one.mean
    shares = [WaitShare(*wait, mean) for wait, mean in means.items()]
    return sorted(shares, key=lambda wait: (-wait.sessions, wait.label))


def is_any_active(interval: Interval, window_s: float) -> bool:
    """Return whether an active session was sampled within the last seconds, so that `wait_profile` has an entry."""
    return any(is_active(one.kind) for one in sessions(interval, window_s) or ())


class WaitGroup(Struct):
    """Sessions with a common property (a statement, a database, a wait), over two windows.

    Attributes:
        key: The common value.
        sessions: Mean sessions over the last 10 s.
        sessions_long: Mean sessions over the last 60 s, or since the beginning when that is less.
        ms: Milliseconds of each transaction, over the window of the latency budget.
        waits: Their waits over the long window: (class, event) → mean sessions.
        beside: Whether these are sessions beside the active ones.
        peak: Most sessions in this wait in one sample of the last 60 s; None where that is not known, and for groups of
            several waits.
    """

    key: Hashable
    sessions: float = 0.0
    sessions_long: float = 0.0
    ms: float = 0.0
    waits: dict[tuple[str, str], float] = {}
    beside: bool = True
    peak: int | None = None

    @property
    def burst(self) -> float | None:
        """Ratio of the peak to the mean of 60 s."""
        return self.peak / self.sessions_long if self.peak is not None and self.sessions_long else None

    @property
    def largest(self) -> tuple[str, str] | None:
        """Return the wait with the most sessions."""
        return min(self.waits, key=lambda wait: (-self.waits[wait], wait), default=None)


def by_event(count: WaitCount) -> Hashable:
    """Return class and event; for sessions beside the active ones their role, and event or backend type."""
    activity = activity_of(count)
    if activity is SessionActivity.PACING:
        return str(activity), count.wait_event or count.backend_type
    if activity is SessionActivity.BACKGROUND:
        return str(activity), f"{count.backend_type} {label_of(count.wait_event_type, count.wait_event)}"
    if activity is SessionActivity.IO_WORKER:
        return str(activity), label_of(count.wait_event_type, count.wait_event)
    return count.wait_event_type, count.wait_event


def by_query(count: WaitCount) -> Hashable:
    """Return the id of the statement; None for pauses, and where it is not known."""
    return count.query_id


def by_database(count: WaitCount) -> Hashable:
    """Return the name of the database; None for processes without one."""
    return count.datname


def by_user(count: WaitCount) -> Hashable:
    """Return the name of the role; None for processes without one."""
    return count.usename


def by_type(count: WaitCount) -> Hashable:
    """Return the backend type."""
    return count.backend_type


def wait_groups(
    interval: Interval,
    by: Callable[[WaitCount], Hashable],
    included: Callable[[WaitCount], bool] = lambda count: True,
    ms_of: Callable[[WaitCount], float] = lambda count: 0.0,
    ms_window_s: float = WAITS_WINDOW_S,
) -> list[WaitGroup]:
    """Return the sessions per group, largest first: the drill-down by event, statement, database, user and backend type.

    Args:
        interval: Frames.
        by: Returns the common value of a group, such as `by_event`.
        included: Returns whether a wait counts; for the drill-down into one group by another property.
        ms_of: Returns the milliseconds of each transaction that a session stands for, see `LatencyBudget.ms_of`.
        ms_window_s: Window of that budget.
    """
    groups: dict[Hashable, WaitGroup] = {}
    for one in sessions(interval, LONG_WINDOW_S) or ():
        if included(one.kind):
            group = _group(groups, by(one.kind), one.kind)
            group.sessions_long += one.mean
            wait = one.kind.wait_event_type, one.kind.wait_event
            group.waits[wait] = group.waits.get(wait, 0.0) + one.mean
    for one in sessions(interval, WAITS_WINDOW_S) or ():
        if included(one.kind):
            group = _group(groups, by(one.kind), one.kind)
            group.sessions += one.mean
    for one in sessions(interval, ms_window_s) or ():
        if included(one.kind) and (ms := one.mean * ms_of(one.kind)):
            _group(groups, by(one.kind), one.kind).ms += ms
    for key, most in _peaks(interval).items() if by is by_event else ():
        if key in groups:
            groups[key].peak = most
    return sorted(groups.values(), key=lambda group: (-group.sessions, -group.sessions_long, str(group.key)))


def _peaks(interval: Interval) -> dict[tuple[str, str], int]:
    """Return class and event → most sessions in one sample; at least the mean of a frame."""
    peaks: dict[tuple[str, str], int] = {}
    for sample in interval.recent(sections.waits, LONG_WINDOW_S):
        if not sample.peaks:
            continue
        sums: dict[tuple[str, str], int] = {}
        for count in sample.counts:
            wait = count.wait_event_type, count.wait_event
            sums[wait] = sums.get(wait, 0) + count.observations
        most = {wait: ceil(observations / sample.samples) for wait, observations in sums.items() if observations}
        most |= {(peak.wait_event_type, peak.wait_event): peak.most for peak in sample.peaks}
        for wait, sessions_at_once in most.items():
            peaks[wait] = max(sessions_at_once, peaks.get(wait, 0))
    return peaks


def _group(groups: dict[Hashable, WaitGroup], key: Hashable, kind: WaitCount) -> WaitGroup:
    group = groups.get(key)
    if group is None:
        group = groups[key] = WaitGroup(key)
    group.beside = group.beside and not is_active(kind)
    return group


class _Sums(Struct, frozen=True):
    """Mean sessions over a window.

    Attributes:
        active: All active sessions.
        by_class: Active sessions by wait class.
        beside: Sessions beside the active ones, by role.
    """

    active: float
    by_class: dict[str, float]
    beside: dict[SessionActivity, float]


class _SumsOver(Struct, frozen=True):
    """Sum that all metrics of this module share; None without samples."""

    window_s: float

    def __call__(self, interval: Interval) -> _Sums | None:
        sampled = sessions(interval, self.window_s)
        if sampled is None:
            return None
        active = 0.0
        by_class: defaultdict[str, float] = defaultdict(float)
        beside: defaultdict[SessionActivity, float] = defaultdict(float)
        for one in sampled:
            which = activity_of(one.kind)
            if which is SessionActivity.ACTIVE:
                active += one.mean
                by_class[one.kind.wait_event_type] += one.mean
            else:
                beside[which] += one.mean
        return _Sums(active, dict(by_class), dict(beside))


class _Mean(Struct, frozen=True):
    """Mean sessions of some kinds over the newest frame, or over a window."""

    pick: Callable[[_Sums], float]

    def __call__(self, interval: Interval) -> float | None:
        looked = interval.now(sections.waits) is not None and not interval.after_gap
        return self.over(interval, NEWEST) if looked else None

    def over(self, interval: Interval, window_s: float) -> float | None:
        sums = interval.once(_SumsOver(window_s))
        return None if sums is None else self.pick(sums)


class _Queue(_Mean, frozen=True):
    """Mean of the run-queue wait. None where the source of host numbers lacks it: 0 would mean that no session waited."""

    def over(self, interval: Interval, window_s: float) -> float | None:
        hidden = untold(interval.newest, "waits.cpu_queue") is not None
        return None if hidden else super().over(interval, window_s)


class _OfBuffers(_Mean, frozen=True):
    """Mean of the class Buffer. None before 19, which has no such class: 0 would mean that no session waited."""

    def over(self, interval: Interval, window_s: float) -> float | None:
        mean, server = super().over(interval, window_s), sections.server(interval.newest)
        has_class = not isinstance(server, Unavailable) and server.version_num >= _BUFFER_FROM
        return mean if mean or has_class else None


def mean_over(metric: Metric, interval: Interval, window_s: float) -> float | None:
    """Return a metric of this module over the last seconds instead of the newest frame; None without samples."""
    value = metric.value
    assert isinstance(value, _Mean)
    return value.over(interval, window_s)


def watched_s(interval: Interval, window_s: float) -> float:
    """Return the part of the last seconds with samples, at least one second: less after a start, an outage or a gap."""
    # A sample that took seconds is followed by a pause, see `sampling.wait_looks`.
    recent = [reading for reading in interval.recent(sections.waits, window_s) if reading.samples]
    if not recent:
        return 1.0
    # Each reading covers the time since the one before.
    between_s = (recent[0].at_s - recent[-1].at_s) / max(len(recent) - 1, 1)
    return min(max(between_s * len(recent), 1.0), window_s)


def io_worker_processes(interval: Interval) -> int:
    """Count the io workers of the server: 0 before 18, and where io_method is not worker."""
    activity = interval.now(sections.activity)
    return 0 if activity is None else sum(1 for backend in activity.backends if backend.backend_type == IO_WORKER)


def _stands(which: SessionActivity) -> _Mean:
    return _Mean(lambda sums: sums.beside.get(which, 0.0))


_BUFFER: Final = "Buffer"
_BUFFER_FROM: Final = 190_000
_MEANS: Final[dict[tuple[str, ...], type[_Mean]]] = {(QUEUE,): _Queue, (_BUFFER,): _OfBuffers}
_SAMPLED: Final = "pg_stat_activity.wait_event_type sampled several times a second: observations / samples; or pg_wait_sampling_profile"


def _class(
    title: str, classes: tuple[str, ...], definition: str, *, is_rest: bool = False, source: str = _SAMPLED
) -> Metric:
    identity = f"waits.{title.lower().replace(' ', '_')}"

    def pick(sums: _Sums) -> float:
        if is_rest:
            return sum(mean for name, mean in sums.by_class.items() if name not in classes)
        return sums.by_class.get(classes[0], 0.0)

    value = _MEANS.get(classes, _Mean)(pick)
    return Metric(id=identity, title=title, unit="sessions", definition=definition, source=source, value=value)


ACTIVE_SESSIONS: Final = Metric(
    "waits.active", "active sessions", "sessions",
    "Mean number of sessions that the server works for or that wait for a resource: a lock, a disk, another process, a CPU, or the client in the middle of a statement. The wait "
    "classes add up to it. It excludes client think/network time, background processes, pacing, and io workers (a session already waits for their reads). If there are more active sessions than CPUs, and most of them are on CPU, the machine is too small.",
    "pg_stat_activity sampled several times a second: observations / samples", _Mean(lambda sums: sums.active),
)  # fmt: skip
_MEASURED: Final = (
    "/proc/PID/stat and schedstat of backends with application_name pgbench, where the machine is visible; "
    "otherwise, and for other sessions, pg_stat_activity.wait_event_type sampled: observations / samples"
)
_NAMED: Final = (CPU, QUEUE, "IO", "Lock", "LWLock", _BUFFER, CLIENT, "IPC", "Timeout")
ON_CPU: Final = _class(
    CPU,
    (CPU,),
    "Active sessions without a wait event: on a CPU. For pgbench sessions this is their CPU time; other sessions may also be waiting for a CPU.",
    source=_MEASURED,
)
CLASSES: Final = (
    ON_CPU,
    _class(QUEUE, (QUEUE,), "Run-queue wait: pgbench sessions that are ready to run but not on a CPU; the server reports them as waiting for their client, or as running.", source=_MEASURED),
    _class("IO", ("IO",), "Active sessions that read, write or flush files."),
    _class("Lock", ("Lock",), "Active sessions in a queue for a heavyweight lock: rows, transactions, relations."),
    _class("LWLock", ("LWLock",), "Active sessions that wait for a lightweight lock on a structure in shared memory."),
    _class(_BUFFER, (_BUFFER,), "Active sessions that wait for a page in shared buffers: for its lock, or for its last pin (PostgreSQL 19 and newer). Up to 18 these waits are LWLock:BufferContent, and BufferPin in other."),
    _class(CLIENT, (CLIENT,), "Active sessions that read from or write to their client in the middle of a statement."),
    _class("IPC", ("IPC",), "Active sessions that wait for another process of the server."),
    _class("Timeout", ("Timeout",), "Active sessions that sleep: pg_sleep, commit_delay; without pacing."),
    _class("other", _NAMED, "Active sessions in any other wait class: Extension, InjectionPoint, up to PostgreSQL 18 BufferPin.", is_rest=True),
)  # fmt: skip
"""Wait classes, the parts of the active sessions."""


def wait_classes(frame: Frame) -> tuple[Metric, ...]:
    """Return the wait classes that this server has; before 19 those without Buffer."""
    server = sections.server(frame)
    without = not isinstance(server, Unavailable) and server.version_num < _BUFFER_FROM
    return tuple(metric for metric in CLASSES if not (without and isinstance(metric.value, _OfBuffers)))


CLIENT_THINKS: Final = Metric(
    "waits.turn", "client think/network", "sessions",
    "Sessions that wait for their client's think time or the network: idle in a transaction for less than a second; for pgbench also between two transactions. Not counted as active.",
    "pg_stat_activity.state and state_change sampled; minus the run-queue wait of pgbench sessions",
    _stands(SessionActivity.TURN),
)  # fmt: skip
PACING: Final = Metric(
    "waits.pacing", "pacing", "sessions",
    "Processes in an intended sleep: delays of checkpoints, VACUUM, base backups and recovery, idle replication, and the archiver while its command runs or until its next attempt. Not counted as active.",
    _SAMPLED, _stands(SessionActivity.PACING),
)  # fmt: skip
BACKGROUND: Final = Metric(
    "waits.background", "background", "sessions",
    "Mean number of background processes at work or in a wait: checkpointer, WAL writer, autovacuum, replication, processes of extensions. Not counted as active, and not part of a transaction's latency.",
    _SAMPLED, _stands(SessionActivity.BACKGROUND),
)  # fmt: skip
IO_WORKERS: Final = Metric(
    "waits.io_workers", "io workers busy", "sessions",
    "Mean number of busy io workers (18 and newer, io_method=worker). Not counted as active, because the session that needs the data waits for the same read.",
    "pg_stat_activity where backend_type = 'io worker', sampled: observations / samples", _stands(SessionActivity.IO_WORKER),
)  # fmt: skip
METRICS: Final = (ACTIVE_SESSIONS, *CLASSES, CLIENT_THINKS, PACING, BACKGROUND, IO_WORKERS)


# Active sessions grouped by any two of their properties, and again within one group: a path down into the waits.
#
# Six of the eight properties are known for every sample of waits, ten a second over 60 s. Application and client are not:
# groups by these come from the readings of all sessions, one a frame, over the time that a session keeps them, mostly of
# the last seconds. `Grouped.looks` is the number of samples.

_WORKING: Final = frozenset({"active", "fastpath function call", None})
_AT_REST: Final = ("Activity", "Extension")


class Seen(Struct, frozen=True):
    """Sessions with the same properties.

    Attributes:
        kind: Class, event, statement, database, user and backend type.
        application: pg_stat_activity.application_name; None where the sample lacks it.
        client: Address or "local"; None where the sample lacks it.
        mean: Mean number of sessions.
    """

    kind: WaitCount
    application: str | None
    client: str | None
    mean: float


class WaitProperty(Struct, frozen=True):
    """A property by which sessions are grouped.

    Attributes:
        title: Its name on the screen.
        of: Returns its value; None for sessions without one.
        by_session: Whether only readings of all sessions have it.
    """

    title: str
    of: Callable[[Seen], Hashable]
    by_session: bool = False


PROPERTIES: Final = (
    WaitProperty("class", lambda row: row.kind.wait_event_type),
    WaitProperty("event", lambda row: label_of(row.kind.wait_event_type, row.kind.wait_event)),
    WaitProperty("statement", lambda row: row.kind.query_id),
    WaitProperty("database", lambda row: row.kind.datname),
    WaitProperty("user", lambda row: row.kind.usename),
    WaitProperty("application", lambda row: row.application, by_session=True),
    WaitProperty("client", lambda row: row.client, by_session=True),
    WaitProperty("backend type", lambda row: row.kind.backend_type),
)

Step = tuple[WaitProperty, Hashable]
"""A property and the value that a group has of it."""


class PairGroup(Struct, frozen=True):
    """Sessions with two common values.

    Attributes:
        values: Values of the first and the second property.
        sessions: Mean number of sessions.
        share: Per cent of the sessions within the path.
    """

    values: tuple[Hashable, Hashable]
    sessions: float
    share: float


class Grouped(Struct, frozen=True):
    """Groups within a path, largest first.

    Attributes:
        looks: Number of samples.
    """

    groups: tuple[PairGroup, ...]
    looks: int


def grouped(interval: Interval, first: WaitProperty, second: WaitProperty, path: Sequence[Step] = ()) -> Grouped:
    """Group active sessions by two properties; only sessions with every value of the path count."""
    by_session = any(wait_property.by_session for wait_property in (first, second, *(step for step, _ in path)))
    rows, looks = _of_all_sessions(interval) if by_session else _of_looks(interval)
    sums: dict[tuple[Hashable, Hashable], float] = {}
    for one in rows:
        if all(wait_property.of(one) == value for wait_property, value in path):
            key = first.of(one), second.of(one)
            sums[key] = sums.get(key, 0.0) + one.mean
    total = sum(sums.values())
    groups = [PairGroup(key, mean, 100.0 * mean / total) for key, mean in sums.items() if mean > 0.0]
    return Grouped(tuple(sorted(groups, key=lambda group: (-group.sessions, str(group.values)))), looks)


def _of_looks(interval: Interval) -> tuple[list[Seen], int]:
    looks = sum(sample.samples for sample in interval.recent(sections.waits, LONG_WINDOW_S))
    sampled = sessions(interval, LONG_WINDOW_S) or ()
    return [Seen(one.kind, None, None, one.mean) for one in sampled if is_active(one.kind)], looks


def _of_all_sessions(interval: Interval) -> tuple[list[Seen], int]:
    readings = interval.recent(sections.activity, LONG_WINDOW_S)
    rows = []
    for reading, share in zip(readings, _shares([reading.at_s for reading in readings]), strict=True):
        for backend in reading.backends:
            kind = _kind(backend)
            if kind is not None and is_active(kind):
                rows.append(Seen(kind, backend.application_name or None, backend.client, share))
    return rows, len(readings)


def _shares(moments_s: Sequence[float]) -> list[float]:
    """Return the share of time that each reading covers, newest first: the time since the one before it.

    A session keeps few of the older readings.
    """
    lasted_s = [min(after - before, 2 * WHOLE_S) for after, before in pairwise(moments_s)]
    lasted_s.append(min(lasted_s, default=1.0))
    whole_s = sum(lasted_s)
    return [lasted / whole_s for lasted in lasted_s]


def _kind(backend: Backend) -> WaitCount | None:
    """Return the wait of a session in the form of a sample; None for an idle session."""
    if backend.state not in _WORKING or backend.wait_event_type in _AT_REST[: 1 if backend.state else 2]:
        return None
    return WaitCount(
        wait_event_type=backend.wait_event_type or CPU,
        wait_event=backend.wait_event or "",
        backend_type=backend.backend_type,
        observations=1,
        query_id=backend.query_id,
        datname=backend.datname,
        usename=backend.usename,
    )
