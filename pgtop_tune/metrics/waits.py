"""What backends wait for: mean sessions per wait, and who they are (average active sessions, sampled)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable
from typing import Final

from msgspec import Struct, field

from pgtop_tune.metrics import sections
from pgtop_tune.metrics.catalogue import Interval, Metric
from pgtop_tune.model.waits import CLIENT, CPU, WaitCount, WaitSample

CLIENT_BACKEND: Final = "client backend"
WAITS_WINDOW_S: Final = 10.0
LONG_WINDOW_S: Final = 60.0


class WaitShare(Struct, frozen=True):
    """One wait over a window.

    Attributes:
        wait_event_type: Class, "CPU" where nothing was waited for.
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


def label_of(wait_event_type: str, wait_event: str) -> str:
    """Class and event as one word: "IO:WALSync", "CPU"."""
    return f"{wait_event_type}:{wait_event}" if wait_event else wait_event_type


def wait_profile(
    interval: Interval,
    window_s: float = WAITS_WINDOW_S,
    backend_type: str | None = None,
    *,
    wanted: Callable[[WaitCount], bool] = lambda count: not count.is_idle,
) -> list[WaitShare]:
    """Mean sessions per wait over the last seconds, largest first.

    Args:
        interval: Where to look.
        window_s: Length of the window.
        backend_type: Only backends of this type; None for all.
        wanted: Which sessions; without, those that are active (not the client's turn).

    Returns:
        One entry per wait seen; empty when nothing was sampled. Observations / samples of `WaitSample`.
    """
    recent = interval.recent(sections.waits, window_s)
    samples = sum(reading.samples for reading in recent)
    if not samples:
        return []
    seen: Counter[tuple[str, str]] = Counter()
    for reading in recent:
        for count in reading.counts:
            if count.observations and (backend_type is None or count.backend_type == backend_type) and wanted(count):
                seen[count.wait_event_type, count.wait_event] += count.observations
    shares = [WaitShare(kind, event, total / samples) for (kind, event), total in seen.items()]
    return sorted(shares, key=lambda wait: (-wait.sessions, wait.label))


class WaitGroup(Struct):
    """Sessions that have something in common (a statement, a database, a wait), over two windows.

    Attributes:
        key: What they have in common.
        sessions: Mean sessions over the last 10 s.
        sessions_long: Over the last 60 s, or since the beginning when that is less.
        waits: What they waited for over the long window: (class, event) → mean sessions.
        turn: Whether these are sessions whose client had the word, not active ones.
    """

    key: Hashable
    sessions: float = 0.0
    sessions_long: float = 0.0
    waits: Counter[tuple[str, str]] = field(default_factory=Counter)
    turn: bool = False

    @property
    def largest(self) -> tuple[str, str] | None:
        """The wait with most sessions."""
        return min(self.waits, key=lambda wait: (-self.waits[wait], wait), default=None)


def by_event(count: WaitCount) -> Hashable:
    """Class and event."""
    return count.wait_event_type, count.wait_event


def by_query(count: WaitCount) -> Hashable:
    """The statement; None for pauses and where it is not known."""
    return count.query_id


def by_database(count: WaitCount) -> Hashable:
    """Name of the database; None for processes without one."""
    return count.datname


def by_user(count: WaitCount) -> Hashable:
    """Name of the role; None for processes without one."""
    return count.usename


def by_type(count: WaitCount) -> Hashable:
    """Kind of process."""
    return count.backend_type


def wait_groups(
    interval: Interval,
    by: Callable[[WaitCount], Hashable],
    wanted: Callable[[WaitCount], bool] = lambda count: True,
) -> list[WaitGroup]:
    """Sessions per group, largest first: the drill-down by event, statement, database, user and backend type.

    Args:
        interval: Where to look.
        by: What a group has in common.
        wanted: Only these waits; for drilling down into one group by another property.
    """
    recent = interval.recent(sections.waits, LONG_WINDOW_S)
    samples_long = sum(reading.samples for reading in recent)
    if not samples_long:
        return []
    newest_s = recent[0].at_s
    samples = sum(reading.samples for reading in recent if reading.at_s > newest_s - WAITS_WINDOW_S)
    groups: dict[Hashable, WaitGroup] = {}
    for reading in recent:
        fresh = reading.at_s > newest_s - WAITS_WINDOW_S
        for count in reading.counts:
            if not count.observations or not wanted(count):
                continue
            key = by(count)
            group = groups.get(key)
            if group is None:
                group = groups[key] = WaitGroup(key, turn=True)
            group.turn = group.turn and count.is_idle
            group.sessions_long += count.observations / samples_long
            group.waits[count.wait_event_type, count.wait_event] += count.observations
            if fresh and samples:
                group.sessions += count.observations / samples
    for group in groups.values():
        group.waits = Counter({wait: seen / samples_long for wait, seen in group.waits.items()})
    return sorted(groups.values(), key=lambda group: (-group.sessions, -group.sessions_long, str(group.key)))


def _seen(sample: WaitSample, wanted: Callable[[WaitCount], bool]) -> float | None:
    return (
        sum(count.observations for count in sample.counts if wanted(count)) / sample.samples if sample.samples else None
    )


def _active_sessions(interval: Interval) -> float | None:
    sample = interval.now(sections.waits)
    return None if sample is None else _seen(sample, lambda count: not count.is_idle)


class _OfClass:
    """Mean sessions in some wait classes over the newest sample."""

    def __init__(self, classes: tuple[str, ...], *, others: bool = False) -> None:
        self._classes = classes
        self._others = others

    def __call__(self, interval: Interval) -> float | None:
        sample = interval.now(sections.waits)
        if sample is None:
            return None
        return _seen(sample, lambda count: (count.wait_event_type in self._classes) is not self._others)


def _class(title: str, classes: tuple[str, ...], definition: str, *, others: bool = False) -> Metric:
    return Metric(
        f"waits.{title.lower()}", title, "sessions", definition,
        "pg_stat_activity.wait_event_type sampled several times a second: observations / samples; or pg_wait_sampling_profile",
        _OfClass(classes, others=others),
    )  # fmt: skip


ACTIVE_SESSIONS: Final = Metric(
    "waits.active", "active sessions", "sessions",
    "Mean number of backends at work, running or waiting, auxiliary processes included; more than there are CPUs of which most are on CPU is a machine that is too small.",
    "pg_stat_activity sampled several times a second: observations / samples", _active_sessions,
)  # fmt: skip
_NAMED: Final = ("CPU", "IO", "Lock", "LWLock", "Client", "IPC", "Timeout")
CLASSES: Final = (
    _class("CPU", (CPU,), "Backends that are active and wait for nothing: on a CPU or ready for one."),
    _class("IO", ("IO",), "Backends that read, write or flush files."),
    _class("Lock", ("Lock",), "Backends in a queue for a heavyweight lock: rows, transactions, relations."),
    _class("LWLock", ("LWLock",), "Backends that wait for a lock on a structure in shared memory."),
    _class("Client", (CLIENT,), "The client's turn: active sessions that read from or write to their client, and sessions that have been idle within a transaction (of pgbench also between two) for less than a second."),
    _class("IPC", ("IPC",), "Backends that wait for another backend."),
    _class("Timeout", ("Timeout",), "Backends that sleep: pg_sleep, vacuum_cost_delay, commit_delay."),
    _class("other", _NAMED, "Backends in any other wait class: BufferPin, Extension, InjectionPoint.", others=True),
)  # fmt: skip
"""Rows of the heat map."""

METRICS: Final = (ACTIVE_SESSIONS, *CLASSES)
