"""Made-up waits and lock queues, for frames of `tests.support.frames`."""

from __future__ import annotations

from typing import Final

from pgtop_tune.model.postgres import Activity
from pgtop_tune.model.statements import StatementText, StatementTexts
from pgtop_tune.model.waits import (
    LockCounters,
    LockCounterSample,
    LockSample,
    LockWait,
    TailRow,
    TailSample,
    WaitCount,
    WaitPeak,
    WaitSample,
)
from pgtop_tune.runtime.session import Session
from pgtop_tune.tui.widgets.time_axis import CHARTED
from tests.support.frames import EPOCH_MS, backend, postgres_sample, session_of

UPDATE: Final = "UPDATE pgbench_branches SET bbalance = bbalance + $1 WHERE bid = $2"
HOSTILE: Final = "SELECT '\x1b[31m[red]boo' -- \u202eevil\n FROM t"

BUSY: Final = (
    WaitCount("IO", "WalSync", "client backend", 30, 11, "bench", "bench", True),
    WaitCount("Lock", "transactionid", "client backend", 20, 12, "bench", "bench", True),
    WaitCount("CPU", "", "client backend", 10, 12, "bench", "bench", True),
    WaitCount("CPU", "", "client backend", 10, 13, "shop", 'odd "name"'),
    WaitCount("Client", "turn", "client backend", 40, None, "bench", "bench", True),
    WaitCount("Client", "between", "client backend", 10, None, "bench", "bench", True),
    WaitCount("IO", "DataFileFlush", "checkpointer", 5),
    WaitCount("LWLock", "WALWrite", "client backend", 0, 11, "bench", "bench", True),
)
"""Of ten looks: 7.5 sessions at work, 5 whose client has the word."""


def waits_at(second: int) -> WaitSample:
    """Calm in the first half minute, busy afterwards."""
    herd = (WaitPeak("IO", "WalSync", 20 if second == 70 else 4), WaitPeak("Lock", "transactionid", 2))
    return WaitSample(float(second), 10, BUSY if second >= 30 else BUSY[2:4], peaks=herd if second >= 30 else ())


def tail_at(second: int) -> TailSample:
    """Two slow transactions a second behind a lock of changing sessions, one in three seconds at the WAL."""
    locked = TailRow(44, False, "Lock", "transactionid", 1.9, 40, 12, 4711, "UPDATE", True)
    rows = (locked, TailRow(42, False, "IO", "WalSync", 1.1 if second % 3 else 0.1, 9, 11, None, "", True))
    return TailSample(float(second), 10, 100.0, 50, 1, rows if second >= 30 else ())


def texts_at(second: int) -> StatementTexts:
    """Of two of the three statements."""
    words = {11: "END", 12: UPDATE}
    return StatementTexts(float(second), tuple(StatementText(key, text, len(text)) for key, text in words.items()))


def waiting_session(n_seconds: int = 90) -> Session:
    """A session with these waits and texts; the third statement is only seen in a session that runs it."""

    def change(second: int) -> dict[str, object]:
        now_ms = EPOCH_MS + second * 1000
        seen = backend(77, now_ms, query_id=13, query=HOSTILE)
        activity = Activity(float(second), now_ms, (seen,))
        return {
            "postgres": postgres_sample(
                second,
                waits=waits_at(second),
                statement_texts=texts_at(second),
                activity=activity,
                tail=tail_at(second),
            )
        }

    return session_of(n_seconds, charted=CHARTED, change=change)


def queue_at(second: int) -> tuple[Activity, LockSample]:
    """Two roots: one idle in transaction with a chain below it, and a prepared transaction."""
    now_ms = EPOCH_MS + second * 1000
    idle = {"state": "idle in transaction", "state_change_ms": now_ms - 192_000, "xact_start_ms": now_ms - 200_000}
    wait = {"wait_event_type": "Lock", "wait_event": "transactionid", "query": UPDATE}
    rows = (
        backend(100, now_ms, usename="app", query="SELECT * FROM cart FOR UPDATE", **idle),
        backend(101, now_ms, blocked_by=(100,), query_start_ms=now_ms - 60_000, **wait),
        backend(102, now_ms, blocked_by=(101, 100), query_start_ms=now_ms - 5_000, **wait),
        backend(103, now_ms, blocked_by=(0,), query=HOSTILE, wait_event_type="Lock", wait_event="relation"),
        backend(104, now_ms, blocked_by=(105,), **wait),
        backend(105, now_ms, blocked_by=(104,), **wait),
    )
    locks = (
        LockWait(101, "transactionid", "ShareLock", "cart", "row (3,7), xid 812", now_ms - 60_000, (100,),
                 ("ExclusiveLock",), ()),
        LockWait(102, "tuple", "ExclusiveLock", "cart", "row (3,7)", now_ms - 5_000, (101,), ("ExclusiveLock",), ()),
        LockWait(103, "relation", "AccessExclusiveLock", "\x1b[31mtable", "relation", now_ms - 900, (0,),
                 ("AccessShareLock, RowExclusiveLock",), ("pay 'now'",)),
    )  # fmt: skip
    return Activity(float(second), now_ms, rows), LockSample(float(second), locks, 3)


def lock_counters_at(second: int) -> LockCounterSample:
    """Every other second a wait of 3 s for a transaction ends, and 40 locks a second find the fast path full."""
    ended = second // 2
    rows = (
        LockCounters("relation", 0, 0, 40 * second, EPOCH_MS),
        LockCounters("transactionid", 7 + ended, 21_000_000 + 3_000_000 * ended, 0, EPOCH_MS),
        LockCounters("tuple", 2, 5_000_000, 0, EPOCH_MS),
        LockCounters("advisory", 0, 0, 0, EPOCH_MS),
    )  # fmt: skip
    return LockCounterSample(float(second), rows)


def queueing_session(n_seconds: int = 5) -> Session:
    """A session with that queue."""

    def change(second: int) -> dict[str, object]:
        activity, locks = queue_at(second)
        counters = lock_counters_at(second)
        return {"postgres": postgres_sample(second, activity=activity, locks=locks, lock_counters=counters)}

    return session_of(n_seconds, change=change)
