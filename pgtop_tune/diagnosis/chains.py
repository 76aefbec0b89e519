"""Waits for another process, attributed to the work of that process before findings are ranked.

Lock:transactionid, tuple   the root of the blockers: while it flushes WAL, its share goes to the WAL device
LWLock:LockManager          the queue for a row, while that is longer than the wait for the lock manager
LWLock:WALWrite             the WAL device while it is busy for half of the time, else the CPUs
IPC of parallel queries     what the parallel workers wait for
"""

from __future__ import annotations

from typing import Final

from pgtop_tune.diagnosis.facts import FULL, GATHER, WORKER, Facts
from pgtop_tune.metrics import host, io
from pgtop_tune.model.waits import CPU, QUEUE

WRITING: Final = ("io:walwrite", "io:walinitsync", "io:walinitwrite")
INSERTING: Final = ("lwlock:walinsert", "lwlock:walbufmapping")
DEVICE: Final = ("lwlock:walwrite", "io:walsync", "io:walwrite", "io:walinitsync", "io:walinitwrite")
READS: Final = ("io:datafileread", "io:aioiocompletion", "ipc:bufferio")
TEMP_WAITS: Final = ("io:buffile*",)
_ROW: Final = ("lock:transactionid", "lock:tuple")
_MANAGER: Final = "lwlock:lockmanager"
_FEWEST_ROOTS: Final = 5
_HOLDER_RUNS: Final = 0.5
FAR_SLOWER: Final = 5.0
_HALF: Final = 0.5
HANDED: Final = 0.5
"""U_wal from which on a flush by the holder of a row is a wait for the device; holders one by one do not fill it."""


def wal_busy(facts: Facts) -> float:
    """Return U_wal, the share of the time in which the WAL device is busy, 0 to 1."""
    return (facts.interval.once(io.WAL_BUSY.value) or 0.0) / 100.0


def manager_is_of_rows(facts: Facts) -> bool:
    """Return whether LWLock:LockManager is the queue for a row, and not the lock table."""
    return facts.s(*_ROW) >= facts.s(_MANAGER)


def row_ms(facts: Facts) -> float:
    """Return the ms of each transaction in the queue for rows, for holders of any kind."""
    return facts.b(*_ROW, *((_MANAGER,) if manager_is_of_rows(facts) else ()))


def roots_flushing(facts: Facts) -> float:
    """Return the share of roots, look by look, that waited for their own flush; 0 with fewer than five looks."""
    looks = [look for look in facts.roots if look.blocked and look.pid is not None]
    if len(looks) < _FEWEST_ROOTS:
        return 0.0
    return sum(look.flushes for look in looks) / len(looks)


def handed_to_wal_ms(facts: Facts) -> float:
    """Return the part of the queue for rows that is the WAL device's: an owner holds its rows while it flushes."""
    return row_ms(facts) * facts.once(roots_flushing) if wal_busy(facts) >= HANDED else 0.0


def wal_ms(facts: Facts) -> float:
    """Return the ms of each transaction that wait for the WAL device, and for rows held meanwhile."""
    return facts.b(*DEVICE) + handed_to_wal_ms(facts)


def flush_for_cpu(facts: Facts) -> float:
    """Return the share of waits for WAL, 0 to 1, that is a wait for a CPU: cores are full, and the device is quick.

    A session that flushes while every core is taken waits for a core before its write and again after it. So the device
    is busy for a small part of the time in which sessions write and flush, and tasks are blocked for I/O (pressure) for
    a small part of it. The pressure also sees a limit of a control group, which the figures of the disk do not show. It
    lacks the wait for a file system's journal: where the kernel was asked, the CPU queue of a transaction is the most
    that its flush can have waited for one.
    """
    flush_ms, device = facts.interval.once(io.WAL_FLUSH_MS.value), facts.disk_of("wal")
    if device is None or not flush_ms or (facts.busy or 0.0) < FULL or facts.number("commit_delay"):
        # With commit_delay the session that flushes for the group sleeps first.
        return 0.0
    await_ms = facts.by(host.DISK_WRITE_AWAIT).get(device, 0.0)
    used = facts.by(host.DISK_BUSY).get(device, 100.0)
    slower = await_ms > 0.0 and flush_ms >= FAR_SLOWER * await_ms
    if not slower or used >= _HALF * 100.0 * wal_busy(facts):
        return 0.0
    blocked = (facts.of(host.PSI_IO_SOME) or 0.0) / 100.0 / wal_busy(facts)
    late, queued_ms = max(1.0 - max(await_ms / flush_ms, blocked), 0.0), facts.b(QUEUE.lower())
    return min(late, queued_ms / flush_ms) if queued_ms else late


def wal_bytes_ms(facts: Facts) -> float:
    """Return the ms of each transaction that fewer bytes of WAL would shorten: inserts and writes, not flushes."""
    writing, flushing = facts.s(*WRITING), facts.s("io:walsync")
    queue = facts.b("lwlock:walwrite") * writing / (writing + flushing) if writing else 0.0
    return facts.b(*WRITING, *INSERTING) + queue


def _of_workers(facts: Facts, *waits: str) -> float:
    """Return the part of the waits for parallel workers in which the workers are in these waits, in ms."""
    gathered = facts.b(*GATHER)
    all_workers = facts.s_of(WORKER, "*")
    return gathered * facts.s_of(WORKER, *waits) / all_workers if gathered and all_workers else 0.0


def cpu_ms(facts: Facts) -> float:
    """Return the ms on a CPU, those of parallel workers included."""
    waiting_ms = 0.0 if facts.b(QUEUE.lower()) else max(facts.queue_ms - facts.b(CPU.lower()), 0.0)
    return facts.cpu_ms + max(_of_workers(facts, CPU.lower()) - waiting_ms, 0.0)


def queue_ms(facts: Facts) -> float:
    """Return the ms waiting for a CPU, and those in the queue for a lock whose holder waits for a CPU."""
    if put_off := facts.once(flush_for_cpu):
        return facts.queue_ms + put_off * wal_ms(facts)
    preempted = facts.is_full and wal_busy(facts) < _HOLDER_RUNS
    return facts.queue_ms + (facts.b("lwlock:walwrite") if preempted else 0.0)


def temp_ms(facts: Facts) -> float:
    """Return the ms in temporary files, those of parallel workers included."""
    return facts.b(*TEMP_WAITS) + _of_workers(facts, *TEMP_WAITS)


def read_ms(facts: Facts) -> float:
    """Return the ms in reads of table and index files, those of parallel workers included."""
    return facts.b(*READS) + _of_workers(facts, *READS)
