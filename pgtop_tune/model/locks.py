"""What was seen of the queues for heavyweight locks."""

from __future__ import annotations

from typing import Annotated, Final

from msgspec import Struct

from pgtop_tune.model.recorded_as import Keyed

PREPARED_TRANSACTION: Final = 0
"""pg_blocking_pids() gives 0 for a blocker without a process, and so do the holders here."""


class LockWait(Struct, frozen=True):
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


class LockSample(Struct, frozen=True):
    """Lock waits at one moment, the longest waiting first; empty, and nothing was asked, when nobody waited.

    Attributes:
        waits: Of the waiters asked about.
        left_out: Further waiters, not asked about.
    """

    at_s: float
    waits: Annotated[tuple[LockWait, ...], Keyed("pid")]
    left_out: int = 0
