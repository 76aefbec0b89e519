"""Active sessions grouped by any two of their properties, and again within one group: a path down into the waits.

Eight properties. Six are known for every look at waits, ten a second over 60 s. Application and client are not: where
one of them is asked for, groups are those of the looks at all sessions, one in a frame, over the time that a session
keeps them, of which the last seconds have most. `Grouped` says how many looks there were.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from itertools import pairwise
from typing import Final

from msgspec import Struct

from pgtop_tune.metrics import sections
from pgtop_tune.metrics.active_sessions import is_active, sessions
from pgtop_tune.metrics.catalogue import WHOLE_S, Interval
from pgtop_tune.metrics.waits import LONG_WINDOW_S, label_of
from pgtop_tune.model.postgres import Backend
from pgtop_tune.model.waits import CPU, WaitCount

_WORKING: Final = frozenset({"active", "fastpath function call", None})
_AT_REST: Final = ("Activity", "Extension")


class Seen(Struct, frozen=True):
    """Sessions with the same properties.

    Attributes:
        kind: Class, event, statement, database, user and backend type.
        application: pg_stat_activity.application_name; None where the look does not say.
        client: Address or "local"; None where the look does not say.
        mean: Mean number of sessions.
    """

    kind: WaitCount
    application: str | None
    client: str | None
    mean: float


class WaitProperty(Struct, frozen=True):
    """A property that sessions are told apart by.

    Attributes:
        title: Its name on the screen.
        of: Its value; None for sessions without one.
        by_session: Only looks at all sessions know it.
    """

    title: str
    of: Callable[[Seen], Hashable]
    by_session: bool = False


PROPERTIES: Final = (
    WaitProperty("class", lambda seen: seen.kind.wait_event_type),
    WaitProperty("event", lambda seen: label_of(seen.kind.wait_event_type, seen.kind.wait_event)),
    WaitProperty("statement", lambda seen: seen.kind.query_id),
    WaitProperty("database", lambda seen: seen.kind.datname),
    WaitProperty("user", lambda seen: seen.kind.usename),
    WaitProperty("application", lambda seen: seen.application, by_session=True),
    WaitProperty("client", lambda seen: seen.client, by_session=True),
    WaitProperty("backend type", lambda seen: seen.kind.backend_type),
)

Step = tuple[WaitProperty, Hashable]
"""A property and the value that a group has of it."""


class PairGroup(Struct, frozen=True):
    """Sessions that have two values in common.

    Attributes:
        values: Of the first and the second property.
        sessions: Mean number.
        share: Per cent of the sessions within the path.
    """

    values: tuple[Hashable, Hashable]
    sessions: float
    share: float


class Grouped(Struct, frozen=True):
    """Groups within a path, largest first.

    Attributes:
        looks: Looks that they are from.
    """

    groups: tuple[PairGroup, ...]
    looks: int


def grouped(interval: Interval, first: WaitProperty, second: WaitProperty, path: Sequence[Step] = ()) -> Grouped:
    """Active sessions by two properties, those alone that have every value of the path."""
    by_session = any(each.by_session for each in (first, second, *(step for step, _ in path)))
    seen, looks = _of_all_sessions(interval) if by_session else _of_looks(interval)
    sums: dict[tuple[Hashable, Hashable], float] = {}
    for one in seen:
        if all(each.of(one) == value for each, value in path):
            key = first.of(one), second.of(one)
            sums[key] = sums.get(key, 0.0) + one.mean
    whole = sum(sums.values())
    groups = [PairGroup(key, mean, 100.0 * mean / whole) for key, mean in sums.items() if mean > 0.0]
    return Grouped(tuple(sorted(groups, key=lambda group: (-group.sessions, str(group.values)))), looks)


def _of_looks(interval: Interval) -> tuple[list[Seen], int]:
    looks = sum(sample.samples for sample in interval.recent(sections.waits, LONG_WINDOW_S))
    found = sessions(interval, LONG_WINDOW_S) or ()
    return [Seen(one.kind, None, None, one.mean) for one in found if is_active(one.kind)], looks


def _of_all_sessions(interval: Interval) -> tuple[list[Seen], int]:
    readings = interval.recent(sections.activity, LONG_WINDOW_S)
    found = []
    for reading, share in zip(readings, _shares([reading.at_s for reading in readings]), strict=True):
        for backend in reading.backends:
            kind = _kind(backend)
            if kind is not None and is_active(kind):
                found.append(Seen(kind, backend.application_name or None, backend.client, share))
    return found, len(readings)


def _shares(moments_s: Sequence[float]) -> list[float]:
    """What part of the time each look stands for, newest first: that since the one before; of older ones few are kept."""
    lasted_s = [min(after - before, 2 * WHOLE_S) for after, before in pairwise(moments_s)]
    lasted_s.append(min(lasted_s, default=1.0))
    whole_s = sum(lasted_s)
    return [each / whole_s for each in lasted_s]


def _kind(backend: Backend) -> WaitCount | None:
    """What a session does, as a look at waits has it; None of one at rest."""
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
