"""What stands at the end of chains of blockers, look by look."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final

from msgspec import Struct

from pgtop_tune.metrics.blocking import IDLE_IN_TRANSACTION, blocking
from pgtop_tune.model.postgres import Activity, Backend
from pgtop_tune.model.replication import PreparedTransaction
from pgtop_tune.model.waits import LOAD_APPLICATION, PREPARED_TRANSACTION, LockSample

JAM_LOOKS: Final = 3
"""Looks with the same transaction at the end of the chain from which on it is a jam."""
JAM_IDLE_S: Final = 1.0
"""A holder of a hot row is idle in its transaction for moments as well."""
FLUSHING: Final = frozenset({"lwlock:walwrite", "io:walsync", "io:walwrite"})


class RootLook(Struct, frozen=True, kw_only=True):
    """The root of most chains in one look.

    Attributes:
        at_s: Moment of the look.
        blocked: How many sessions waited.
        pid: Of the root; 0 is a prepared transaction, None where all wait for each other.
        backend_start_ms, xact_start_ms: With the pid, which session and which transaction.
        backend: Its row; None for a process that was not seen.
        idle_s: How long it has been idle in its transaction; 0 while it is active.
        wait: What it waits for, "class:event" in lower case; "" for nothing.
        circle: Whether sessions wait for each other.
        events: Wait events of those that are blocked, and how many wait in each.
        gid, database, prepared_s: Of a prepared transaction; "" and 0 where they are not known.
        waited_s: The longest wait for the lock; how old the oldest statement is that waits, where that is not known.
    """

    at_s: float
    blocked: int
    pid: int | None
    backend_start_ms: int | None = None
    xact_start_ms: int | None = None
    backend: Backend | None = None
    idle_s: float = 0.0
    wait: str = ""
    circle: bool = False
    events: tuple[tuple[str, int], ...] = ()
    waited_s: float = 0.0
    gid: str = ""
    database: str = ""
    prepared_s: float = 0.0

    @property
    def of_load(self) -> bool:
        """Whether it is a session of pgbench."""
        return self.backend is not None and self.backend.application_name == LOAD_APPLICATION

    @property
    def transaction(self) -> tuple[int | None, int | None]:
        """Which transaction: the same one over several looks is a jam."""
        return self.pid, self.xact_start_ms

    @property
    def flushes(self) -> bool:
        """Whether it waits for its own commit to reach the WAL device."""
        return self.wait in FLUSHING


def jam_over_s(roots: Sequence[RootLook], now_s: float) -> float | None:
    """How long ago a transaction let go that had been idle while others waited for it; None while one still does."""
    idle = [look for look in roots if look.blocked and look.idle_s > JAM_IDLE_S]
    if not idle or idle[-1] is roots[-1]:
        return None
    last = idle[-1].transaction
    same = sum(look.transaction == last for look in idle)
    return now_s - idle[-1].at_s if same >= JAM_LOOKS else None


def root_look(
    activity: Activity, locks: LockSample | None = None, prepared: Sequence[PreparedTransaction] = ()
) -> RootLook:
    """One look at the sessions, at the locks they wait for, and at prepared transactions.

    A statement may have waited for others before: of those that a jam leaves behind, one waits for the next root.
    """
    waiting = [backend for backend in activity.backends if backend.blocked_by]
    if not waiting:
        return RootLook(at_s=activity.at_s, blocked=0, pid=None)
    found = blocking(activity)
    root = next((backend for backend in activity.backends if backend.pid == found.root), None)
    events = Counter(backend.wait_event or "" for backend in waiting)
    pids = {backend.pid for backend in waiting}
    known = [wait.wait_start_ms for wait in locks.waits if wait.pid in pids] if locks is not None else []
    starts_ms = [start_ms for start_ms in known if start_ms is not None]
    if not starts_ms:
        starts_ms = [backend.query_start_ms for backend in waiting if backend.query_start_ms is not None]
    idle = root is not None and root.state in IDLE_IN_TRANSACTION
    idle_ms = activity.now_ms - root.state_change_ms if idle and root and root.state_change_ms is not None else 0
    gids = Counter(gid for wait in locks.waits for gid in wait.prepared) if locks is not None else Counter()
    gid = gids.most_common(1)[0][0] if found.root == PREPARED_TRANSACTION and gids else ""
    row = next((each for each in prepared if each.gid == gid), None)
    return RootLook(
        gid=gid,
        database=row.database if row else "",
        prepared_s=max(activity.now_ms - row.prepared_ms, 0) / 1000.0 if row else 0.0,
        at_s=activity.at_s,
        blocked=found.blocked,
        pid=found.root,
        backend_start_ms=root.backend_start_ms if root else None,
        xact_start_ms=root.xact_start_ms if root else None,
        backend=root,
        idle_s=max(idle_ms, 0) / 1000.0,
        wait=f"{root.wait_event_type}:{root.wait_event}".lower() if root and root.wait_event_type else "",
        circle=found.root is None,
        events=tuple(events.most_common()),
        waited_s=max(activity.now_ms - min(starts_ms), 0) / 1000.0 if starts_ms else 0.0,
    )
