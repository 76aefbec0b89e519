"""Knobs of reading ahead and asynchronous I/O. Source: PostgreSQL documentation, "Resource Consumption: I/O"."""

from __future__ import annotations

from typing import Final

from pgtop_tune.advice.knobs.knob import Knob

_DEPTHS: Final = ("0", "1", "2", "4", "8", "16", "32", "64", "128", "200", "256", "512", "1000")

KNOBS: Final[tuple[Knob, ...]] = (
    Knob(
        name="effective_io_concurrency",
        group="I/O",
        why="Reads requested ahead of a scan; matters on storage that serves many at once.",
        trades="Queue length on the disk; no effect on data in cache.",
        panes=("host", "latency"),
        steps=_DEPTHS,
        special=(("0", "no read-ahead"),),
        moves_with=("io_combine_limit",),
    ),
    Knob(
        name="maintenance_io_concurrency",
        group="I/O",
        why="The same for VACUUM, ANALYZE, CREATE INDEX and recovery.",
        trades="Queue length on the disk.",
        panes=("host", "latency"),
        steps=_DEPTHS,
        special=(("0", "no read-ahead"),),
    ),
    Knob(
        name="io_combine_limit",
        group="I/O",
        why="Maximum size of a combined read: fewer, larger requests if the disk limits their number.",
        trades="No known cost up to 256kB.",
        panes=("host",),
        steps=("8kB", "16kB", "32kB", "64kB", "128kB", "256kB", "512kB", "1MB"),
        moves_with=("io_max_combine_limit",),
    ),
    Knob(
        name="io_max_combine_limit",
        group="I/O",
        why="Upper bound of io_combine_limit; changing it needs a restart.",
        trades="Shared memory.",
        panes=("host",),
        steps=("128kB", "256kB", "512kB", "1MB"),
        moves_with=("io_combine_limit",),
    ),
    Knob(
        name="io_method",
        group="I/O",
        why="Method of asynchronous reads: I/O workers, the kernel's io_uring, or synchronous in each backend as "
        "before 18.",
        trades="io_uring needs a kernel that permits it and file descriptors for each backend.",
        panes=("host", "latency"),
        steps=("sync", "worker", "io_uring"),
        moves_with=("io_workers", "io_max_concurrency"),
    ),
    Knob(
        name="io_workers",
        group="I/O",
        why="Processes that read for all backends with io_method=worker; with too few, reads queue.",
        trades="CPU of these processes.",
        panes=("host", "sessions"),
        steps=("1", "2", "3", "4", "6", "8", "12", "16", "24", "32"),
        moves_with=("io_method",),
    ),
    Knob(
        name="io_max_concurrency",
        group="I/O",
        why="Maximum of concurrent I/Os of one process.",
        trades="Shared memory.",
        panes=("host",),
        steps=("-1", "16", "32", "64", "128", "256"),
        special=(("-1", "from shared_buffers and the number of processes, at most 64"),),
    ),
)
