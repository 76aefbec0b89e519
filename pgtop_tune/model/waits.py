"""Readings of waits: observations of each wait, old transactions with their waits, and queues for heavyweight locks."""

from __future__ import annotations

from collections.abc import Sequence
from math import floor, log2
from typing import Annotated, Final

from msgspec import Struct

from pgtop_tune.model.recorded_as import WIDE, KeyedBy

_CLASSES_AN_OCTAVE: Final = 4


def length_class(age_ms: float) -> int:
    """Return the class of a length: four classes for each doubling, 0 from 1 ms on."""
    return max(floor(_CLASSES_AN_OCTAVE * log2(max(age_ms, 1.0))), 0)


def class_edge_ms(length: int) -> float:
    """Return the lower edge of a class; its upper edge is that of the next class."""
    return float(2.0 ** (length / _CLASSES_AN_OCTAVE))


class OldTransaction(Struct, frozen=True, gc=False):
    """A transaction older than the floor in one sample.

    Attributes:
        pid: Pid of its backend.
        xact_start_ms: pg_stat_activity.xact_start; with the pid, it identifies the transaction.
        age_ms: Age at the sample.
        wait_event_type: Class, "CPU" without a wait event, "Client" while idle in transaction.
        wait_event: Event, "" for CPU, "turn" while idle in transaction.
        query_id: Id of the running statement; None while idle in transaction, or where the server has none.
        of_load: Whether application_name is pgbench.
    """

    pid: int
    xact_start_ms: int
    age_ms: float
    wait_event_type: str
    wait_event: str
    query_id: int | None
    of_load: bool


class Blocker(Struct, frozen=True, gc=False):
    """A session that blocks another one.

    Attributes:
        pid: Its pid; 0 for a prepared transaction.
        does: First word of its statement, or "idle in transaction"; "" where this role may not see it.
    """

    pid: int
    does: str


class TailRow(Struct, frozen=True, gc=False):
    """Transactions of one length class in one wait.

    Attributes:
        length: Class of their greatest sampled age, see `length_class`.
        open: Whether the transactions were still open at the last sample of the frame.
        wait_event_type: Class, see `OldTransaction`.
        wait_event: Event, see `OldTransaction`.
        transactions: Sum of the shares of the transactions' samples in this wait: a transaction counts 1 over all of
            its rows.
        looks: Number of samples in this wait.
        query_id: Id of the waiting statement.
        root_pid: Session at the root of the queue for a lock; 0 for a prepared transaction, None if unknown,
            or for several sessions.
        root: First word of the root's statement, or "idle in transaction"; "" where unknown.
        of_load: Whether application_name is pgbench.
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
    """Transactions older than a floor that ended since the previous frame or are still open.

    Attributes:
        looks: Number of samples since the previous frame, without the first sample of a connection.
        every_ms: Mean time between samples.
        floor_ms: Least age of the transactions.
        one_in: One in this number of sessions was followed; 1 means all. Rows are extrapolated to all sessions.
        rows: A limited number of rows; too many are merged without their roots and statements.
    """

    at_s: float
    looks: int
    every_ms: float
    floor_ms: float
    one_in: int
    rows: tuple[TailRow, ...] = ()


PREPARED_TRANSACTION: Final = 0
"""Pid of a blocker without a process, in pg_blocking_pids() and in `LockWait.holders`."""


class LockWait(Struct, frozen=True, gc=False):
    """Lock request of one backend, with the holders of the lock among the blocking sessions.

    Attributes:
        pid: Pid of the waiting backend.
        locktype: pg_locks.locktype: relation, tuple, transactionid, advisory, …
        mode: Requested mode: "AccessExclusiveLock".
        relation: The relation, if it is in our database; for a row, the table of the row. Foreign text.
        target: The locked object: "row (0,17)", "xid 1234", "relation 16384 of another database". Foreign text.
        wait_start_ms: pg_locks.waitstart; None for the first moments of a wait.
        holders: Pids of the holders, 0 for a prepared transaction; at most 16.
        held_modes: Modes of each holder, in the same order: "AccessShareLock, RowExclusiveLock".
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
    """Lock waits at one time, the longest waiting first; empty, without a query, when no session waited.

    Attributes:
        waits: Lock requests.
        left_out: Number of further waiting sessions.
    """

    at_s: float
    waits: Annotated[tuple[LockWait, ...], KeyedBy("pid")]
    left_out: int = 0


class LockCounters(Struct, frozen=True, gc=False):
    """One row of pg_stat_lock (19+).

    Attributes:
        locktype: "relation", "transactionid", "tuple", "advisory", …; the lock type is the wait event of class Lock.
        waits: Waits that lasted longer than deadlock_timeout and ended with the lock granted.
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
"""In place of a wait class: an active backend without a wait."""
QUEUE: Final = "CPU queue"
"""In place of a wait class: run-queue wait, counted by the kernel. No sample holds it."""
CLIENT: Final = "Client"
TURN: Final = "turn"
"""In place of an event: idle in transaction for less than a second, client think time."""
BETWEEN: Final = "between"
"""In place of an event: idle for less than a second, sessions of pgbench only; between two transactions."""
LOAD_APPLICATION: Final = "pgbench"
"""application_name of the load's sessions: pgbench's own fallback."""


class WaitCount(Struct, frozen=True, gc=False):
    """Observations of one kind of wait in the samples of a `WaitSample`.

    Attributes:
        wait_event_type: pg_stat_activity.wait_event_type; "CPU" for an active backend without a wait.
        wait_event: The event; "" for CPU; for idle sessions of class Client "turn" (shown as Client:think) and
            "between" (Client:idle).
        backend_type: "client backend", "checkpointer", …
        observations: Backends in this wait, summed over the samples; 0 for a kind of an earlier frame.
        query_id: Id of the running statement; None without a statement, and with too many kinds of waits at once.
        datname: Database; None for processes without one.
        usename: Role; None for processes without one.
        of_load: Whether application_name is pgbench.
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
        """Identity of a row from sample to sample: all fields but the observations, as one text."""
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
        """Return whether these sessions wait for their client's think time."""
        return self.wait_event_type == CLIENT and self.wait_event in (TURN, BETWEEN)


class WaitLook(Struct, frozen=True, gc=False):
    """Waits of one sample, or counted by the server since the sample before.

    Attributes:
        counts: The waits; a kind may occur more than once.
        samples: Number of samples.
        old: Transactions older than the requested floor, in one sample.
    """

    counts: Sequence[WaitCount]
    samples: int
    old: Sequence[OldTransaction] = ()


ACTIVITY_SOURCE: Final = "pg_stat_activity"
PROFILE_SOURCE: Final = "pg_wait_sampling"


class WaitPeak(Struct, frozen=True, gc=False):
    """The most sessions in a wait in one sample.

    Attributes:
        most: Number of sessions, at least 2; a wait of single sessions has no peak.
    """

    wait_event_type: str
    wait_event: str
    most: int


class WaitSample(Struct, frozen=True, gc=False):
    """Wait events counted since the last frame.

    Client backends count when their state is active or fastpath, auxiliary processes when they do not wait in class
    Activity (their idle loops). Sessions that have been idle in transaction for less than a second count as
    Client:think, because they wait for their client within a transaction. Sessions of pgbench that have been idle for
    less than a second count as Client:idle. Sessions that have been idle for longer do not count.

    Attributes:
        samples: Successful samples since the previous frame; observations / samples = mean sessions.
        counts: Observations by `WaitCount.kind`; old kinds stay for a while with 0 observations.
        source: "pg_stat_activity" sampled by us, or the profile of "pg_wait_sampling", in which every client wait of a
            session of pgbench counts as Client:think, and other sessions have no client waits.
        peaks: Peaks of the samples since the last frame, by class and event; none with pg_wait_sampling.
    """

    at_s: float
    samples: int
    counts: Annotated[tuple[WaitCount, ...], KeyedBy("kind")]
    source: str = ACTIVITY_SOURCE
    peaks: tuple[WaitPeak, ...] = ()
