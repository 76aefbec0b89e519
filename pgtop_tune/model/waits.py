"""Readings of waits: the number of observations of each wait, and the queues for locks.

What was seen of the queues for heavyweight locks.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import floor, log2
from typing import Annotated, Final

from msgspec import Struct

from pgtop_tune.model.recorded_as import WIDE, KeyedBy

_CLASSES_AN_OCTAVE: Final = 4


def length_class(age_ms: float) -> int:
    """Class of a length: four classes to each doubling, 0 from 1 ms on."""
    return max(floor(_CLASSES_AN_OCTAVE * log2(max(age_ms, 1.0))), 0)


def class_edge_ms(length: int) -> float:
    """Lower edge of a class; the upper one is that of the next class."""
    return float(2.0 ** (length / _CLASSES_AN_OCTAVE))


class OldTransaction(Struct, frozen=True, gc=False):
    """What one look saw of a transaction that was older than the floor.

    Attributes:
        xact_start_ms: pg_stat_activity.xact_start; with the pid it names the transaction.
        age_ms: Age at the look.
        wait_event_type: Class, "CPU" without a wait event, "Client" while idle in transaction.
        wait_event: Event, "" for CPU, "turn" while idle in transaction.
        query_id: Of the statement under way; None while idle in transaction, or where the server has none.
        of_load: The session calls itself pgbench.
    """

    pid: int
    xact_start_ms: int
    age_ms: float
    wait_event_type: str
    wait_event: str
    query_id: int | None
    of_load: bool


class Blocker(Struct, frozen=True, gc=False):
    """A session at whose lock another one waits.

    Attributes:
        pid: 0 for a prepared transaction.
        does: First word of its statement, or "idle in transaction"; "" where this role may not see it.
    """

    pid: int
    does: str


class TailRow(Struct, frozen=True, gc=False):
    """Transactions of one length that had one wait.

    Attributes:
        length: Class of the greatest age that looks saw, see `length_class`.
        open: The transactions were still open at the last look of the frame.
        wait_event_type: As of `OldTransaction`.
        wait_event: As of `OldTransaction`.
        transactions: Sum of the shares of their looks that these waits had: a transaction counts 1 over all its rows.
        looks: Looks that saw them in this wait.
        query_id: Of the waiting statement.
        root_pid: Session at the root of the queue for a lock; 0 for a prepared transaction, None where it is not known
            or where several are meant.
        root: What that session did: the first word of its statement, or "idle in transaction"; "" where unknown.
        of_load: The sessions call themselves pgbench.
    """

    length: int
    open: bool
    wait_event_type: str
    wait_event: str
    transactions: float
    looks: int
    query_id: Annotated[int | None, WIDE] = None
    root_pid: int | None = None
    root: str = ""
    of_load: bool = False


class TailSample(Struct, frozen=True, gc=False):
    """Transactions older than a floor: those that ended since the previous frame, and those that are open.

    Attributes:
        looks: Looks since the previous frame; the first one of a connection is none.
        every_ms: Mean time between these and the look before each.
        floor_ms: Younger transactions were not followed.
        one_in: Every session was followed, or one in so many; rows are counted up to all.
        rows: Bounded; where there are more, they lose roots and statements first.
    """

    at_s: float
    looks: int
    every_ms: float
    floor_ms: float
    one_in: int
    rows: tuple[TailRow, ...] = ()


PREPARED_TRANSACTION: Final = 0
"""pg_blocking_pids() gives 0 for a blocker without a process, and so do the holders here."""


class LockWait(Struct, frozen=True, gc=False):
    """What one backend waits for, and who of those that hold anybody up has it.

    Attributes:
        pid: Of the waiting backend.
        locktype: pg_locks.locktype: relation, tuple, transactionid, advisory, …
        mode: The mode it wants: "AccessExclusiveLock".
        relation: The relation, where it is in our database; of a row the table it is in. Foreign text.
        target: What exactly: "row (0,17)", "xid 1234", "relation 16384 of another database". Foreign text.
        wait_start_ms: pg_locks.waitstart; None for the first moments of a wait.
        holders: Processes that have this lock, 0 for a prepared transaction; at most 16.
        held_modes: The modes each of them has it in, in the same order: "AccessShareLock, RowExclusiveLock".
        prepared: Global identifiers of the prepared transactions among the holders. Foreign text.
    """

    pid: int
    locktype: str
    mode: str
    relation: str | None
    target: str
    wait_start_ms: int | None
    holders: tuple[int, ...]
    held_modes: tuple[str, ...]
    prepared: tuple[str, ...]


class LockSample(Struct, frozen=True, gc=False):
    """Lock waits at one moment, the longest waiting first; empty, and nothing was asked, when nobody waited.

    Attributes:
        waits: Of the waiters asked about.
        left_out: Further waiters, not asked about.
    """

    at_s: float
    waits: Annotated[tuple[LockWait, ...], KeyedBy("pid")]
    left_out: int = 0


class LockCounters(Struct, frozen=True, gc=False):
    """One row of pg_stat_lock (19+).

    Attributes:
        locktype: "relation", "transactionid", "tuple", "advisory", …; the lock type is the wait event of class Lock.
        waits: Waits that lasted longer than deadlock_timeout and ended with the lock.
        wait_us: Time of these waits.
        fastpath_exceeded: Locks that went to the shared lock table because the fast-path slots of their session were
            full.
    """

    locktype: str
    waits: int
    wait_us: int
    fastpath_exceeded: int
    stats_reset_ms: int | None


class LockCounterSample(Struct, frozen=True, gc=False):
    """pg_stat_lock: long waits for heavyweight locks by type."""

    at_s: float
    types: Annotated[tuple[LockCounters, ...], KeyedBy("locktype")]


CPU: Final = "CPU"
"""In place of a wait class: an active backend that waits for nothing."""
QUEUE: Final = "CPU queue"
"""In place of a wait class: ready to run and not on a CPU, as the kernel counts it. No sample holds it."""
CLIENT: Final = "Client"
TURN: Final = "turn"
"""In place of an event: idle in transaction for less than a second; the client's turn."""
BETWEEN: Final = "between"
"""In place of an event: idle for less than a second, sessions of pgbench only; between two transactions."""
LOAD_APPLICATION: Final = "pgbench"
"""application_name of the load's sessions: pgbench's own fallback."""


class WaitCount(Struct, frozen=True, gc=False):
    """How often one wait was seen over the samples of a `WaitSample`.

    Attributes:
        wait_event_type: pg_stat_activity.wait_event_type; "CPU" for an active backend that waits for nothing.
        wait_event: The event; "" for CPU, "turn" and "between" of class Client for sessions that are idle.
        backend_type: "client backend", "checkpointer", …
        observations: Backends seen in this wait, summed over the samples; 0 for one that was seen a moment ago.
        query_id: Of the statement under way; None without one, and where too many kinds of waits were seen at once.
        datname: Database; None for processes without one.
        usename: Role; None for processes without one.
        of_load: The session calls itself pgbench.
    """

    wait_event_type: str
    wait_event: str
    backend_type: str
    observations: int
    query_id: Annotated[int | None, WIDE] = None
    datname: str | None = None
    usename: str | None = None
    of_load: bool = False

    @property
    def kind(self) -> str:
        """Everything but the observations, as one text: what a row is known by from sample to sample."""
        # No name on a server holds a zero byte.
        return "\0".join(
            (
                self.wait_event_type,
                self.wait_event,
                self.backend_type,
                "" if self.query_id is None else str(self.query_id),
                self.datname or "",
                self.usename or "",
                "1" if self.of_load else "",
            )
        )

    @property
    def is_idle(self) -> bool:
        """Whether the server had nothing to do for these sessions: the client's turn."""
        return self.wait_event_type == CLIENT and self.wait_event in (TURN, BETWEEN)


class WaitLook(Struct, frozen=True, gc=False):
    """Waits found in one look, or counted by the server since the look before.

    Attributes:
        counts: The waits; a kind may stand here more than once.
        samples: How many looks they are from.
        old: Transactions older than the floor that was asked for, of one look.
    """

    counts: Sequence[WaitCount]
    samples: int
    old: Sequence[OldTransaction] = ()


ACTIVITY_SOURCE: Final = "pg_stat_activity"
PROFILE_SOURCE: Final = "pg_wait_sampling"


class WaitPeak(Struct, frozen=True, gc=False):
    """The most sessions that one look saw in a wait.

    Attributes:
        most: At least 2; a wait that no look saw more than once has no peak.
    """

    wait_event_type: str
    wait_event: str
    most: int


class WaitSample(Struct, frozen=True, gc=False):
    """Wait events counted since the last frame.

    Client backends count when their state is active or fastpath; auxiliary processes when they do not wait in class
    Activity (their idle loops). Sessions that have been idle in transaction for less than a second count as
    Client:think: in the middle of a transaction they wait for their client. Sessions of pgbench that have been idle for
    less than a second count as Client:idle. Sessions that have been idle for longer do not count.

    Attributes:
        samples: Looks that succeeded since the previous frame; observations / samples = mean sessions.
        counts: By `WaitCount.kind`; kinds gone stay for a while with 0 observations.
        source: "pg_stat_activity" sampled by us, or the profile of "pg_wait_sampling", where every client wait of a
            session of pgbench counts as Client:think and nobody else's is there.
        peaks: Over the looks since the last frame, by class and event; none of pg_wait_sampling's.
    """

    at_s: float
    samples: int
    counts: Annotated[tuple[WaitCount, ...], KeyedBy("kind")]
    source: str = ACTIVITY_SOURCE
    peaks: tuple[WaitPeak, ...] = ()
