"""Knobs of reading ahead and asynchronous I/O. Source: PostgreSQL documentation, "Resource Consumption: I/O"."""

from __future__ import annotations

from typing import Final

from pgtop_tune.advice.knobs.knob import Knob

_DEPTHS: Final = ("0", "1", "2", "4", "8", "16", "32", "64", "128", "200", "256", "512", "1000")

KNOBS: Final[tuple[Knob, ...]] = (
    Knob(
        name="effective_io_concurrency",
        group="I/O",
        why="How many reads are asked for ahead of a scan; matters on storage that serves many at once.",
        trades="Queue length on the disk; no effect on data in cache.",
        panes=("host", "latency"),
        steps=_DEPTHS,
        special=(("0", "no reading ahead"),),
        moves_with=("io_combine_limit",),
    ),
    Knob(
        name="maintenance_io_concurrency",
        group="I/O",
        why="The same for VACUUM, ANALYZE, CREATE INDEX and recovery.",
        trades="Queue length on the disk.",
        panes=("host", "latency"),
        steps=_DEPTHS,
        special=(("0", "no reading ahead"),),
    ),
    Knob(
        name="io_combine_limit",
        group="I/O",
        why="How large a read of neighbouring pages may get: fewer, larger requests where the disk counts them.",
        trades="Nothing known up to 256kB.",
        panes=("host",),
        steps=("8kB", "16kB", "32kB", "64kB", "128kB", "256kB", "512kB", "1MB"),
        moves_with=("io_max_combine_limit",),
    ),
    Knob(
        name="io_max_combine_limit",
        group="I/O",
        why="The bound of io_combine_limit that only a restart changes.",
        trades="Shared memory.",
        panes=("host",),
        steps=("128kB", "256kB", "512kB", "1MB"),
        moves_with=("io_combine_limit",),
    ),
    Knob(
        name="io_method",
        group="I/O",
        why="Who reads ahead: I/O workers, the kernel's io_uring, or each backend for itself as before 18.",
        trades="io_uring needs a kernel that permits it and file descriptors for each backend.",
        panes=("host", "latency"),
        steps=("sync", "worker", "io_uring"),
        moves_with=("io_workers", "io_max_concurrency"),
    ),
    Knob(
        name="io_workers",
        group="I/O",
        why="How many processes read for all backends with io_method=worker; too few and reads queue up.",
        trades="CPU of these processes.",
        panes=("host", "sessions"),
        steps=("1", "2", "3", "4", "6", "8", "12", "16", "24", "32"),
        moves_with=("io_method",),
    ),
    Knob(
        name="io_max_concurrency",
        group="I/O",
        why="How many I/Os one process may have under way.",
        trades="Shared memory.",
        panes=("host",),
        steps=("-1", "16", "32", "64", "128", "256"),
        special=(("-1", "from shared_buffers and the number of processes, at most 64"),),
    ),
)
