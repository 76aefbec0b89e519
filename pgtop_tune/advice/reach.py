"""Waits of a transaction that a parameter can shorten at best, as prefixes of the labels of waits.

The rows are assumptions and no measurement: a parameter shortens no wait that is missing from its row. Locks that are
held for a shorter time make others wait less, so every parameter that shortens a transaction shortens waits for locks.
Source: PostgreSQL documentation, "Server Configuration" and "Wait Events"; wait events are those of 14 to 19.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from pgtop_tune.model.waits import CPU, QUEUE

HELD: Final = ("Lock", "LWLock", QUEUE)
"""Prefixes of waits for other transactions: these waits get shorter when the other transactions do."""
_COMMIT: Final = ("IO:WalSync", "IO:WALSync", "LWLock:WALWrite", "IPC:SyncRep", "Timeout:CommitDelay")
_WAL: Final = (
    *_COMMIT,
    "IO:WALWrite",
    "IO:WalWrite",
    "IO:WALInit",
    "IO:WalInit",
    "LWLock:WALInsert",
    "LWLock:WALBufMapping",
)
_READ: Final = (
    "IO:DataFileRead", "IO:DataFilePrefetch", "IO:Aio", "IO:AIO", "LWLock:BufferMapping", "LWLock:BufferIO",
    "IPC:BufferIO", "BufferPin", "Buffer",
)  # fmt: skip
_WRITE: Final = ("IO:DataFileWrite", "IO:DataFileFlush", "IO:DataFileSync", "IO:DataFileExtend")
_WORK: Final = (CPU, QUEUE)
_SPILL: Final = ("IO:BufFile", "IO:BuffileRead", "IO:BuffileWrite")

_ROWS: Final[tuple[tuple[tuple[str, ...], tuple[str, ...]], ...]] = (
    (("synchronous_commit", "commit_delay", "commit_siblings", "wal_sync_method"), _COMMIT),
    (("wal_writer_delay", "wal_writer_flush_after", "wal_init_zero", "wal_recycle", "wal_buffers"), _WAL),
    (
        (
            "wal_compression", "full_page_writes", "max_wal_size", "min_wal_size", "checkpoint_timeout",
            "checkpoint_completion_target", "checkpoint_flush_after",
        ),
        (*_WAL, *_READ, *_WRITE, *_WORK),
    ),
    (("fsync",), (*_WAL, *_WRITE)),
    (("shared_buffers",), (*_READ, *_WRITE, *_WORK)),
    (
        (
            "effective_io_concurrency", "io_method", "io_workers", "io_min_workers", "io_max_workers",
            "io_worker_idle_timeout", "io_worker_launch_interval", "io_combine_limit", "io_max_concurrency",
            "maintenance_io_concurrency",
        ),
        _READ,
    ),
    (
        (
            "bgwriter_delay", "bgwriter_lru_maxpages", "bgwriter_lru_multiplier", "bgwriter_flush_after",
            "backend_flush_after",
        ),
        (*_WRITE, *_READ, "IO:WalSync", "IO:WALSync"),
    ),
    (("work_mem", "hash_mem_multiplier", "temp_buffers", "logical_decoding_work_mem"), (*_SPILL, *_READ, *_WORK)),
    (
        (
            "random_page_cost", "seq_page_cost", "cpu_tuple_cost", "cpu_index_tuple_cost", "cpu_operator_cost",
            "effective_cache_size", "default_statistics_target", "jit", "jit_above_cost", "plan_cache_mode",
            "max_parallel_workers_per_gather", "max_parallel_workers", "from_collapse_limit", "join_collapse_limit",
        ),
        (*_WORK, *_READ, *_SPILL, "IPC"),
    ),
    (("huge_pages", "huge_page_size", "track_io_timing", "track_wal_io_timing", "track_functions"), _WORK),
    (("deadlock_timeout",), ("Lock",)),
    (
        (
            "autovacuum", "autovacuum_naptime", "autovacuum_vacuum_cost_limit", "autovacuum_vacuum_cost_delay",
            "autovacuum_max_workers", "vacuum_cost_limit", "vacuum_cost_delay", "vacuum_buffer_usage_limit",
        ),
        (*_WORK, *_READ, *_WRITE, *_WAL),
    ),
)  # fmt: skip
_REACH: Final = {name: waits for names, waits in _ROWS for name in names}


def reach_of(names: Iterable[str]) -> tuple[str, ...] | None:
    """Return prefixes of waits that these parameters together can shorten; None where one has no row."""
    own_waits = own_reach_of(names)
    return None if own_waits is None else tuple(dict.fromkeys((*HELD, *own_waits)))


def own_reach_of(names: Iterable[str]) -> tuple[str, ...] | None:
    """Return the prefixes of `reach_of` without waits for other transactions."""
    reachable: list[str] = []
    for name in names:
        waits = _REACH.get(name.lower())
        if waits is None:
            return None
        reachable += waits
    return tuple(dict.fromkeys(reachable))


def reached(label: str, prefixes: Iterable[str]) -> bool:
    """Return whether a wait ("IO:WalSync", "CPU") has one of the prefixes."""
    return any(label == prefix or label.startswith(prefix) for prefix in prefixes if prefix != CPU) or (
        label == CPU and CPU in prefixes
    )
