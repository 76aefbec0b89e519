"""Knobs of parallel queries. Source: PostgreSQL documentation, "Parallel Query" and "Worker Processes"."""

from __future__ import annotations

from typing import Final

from pgtop_tune.advice.knobs.knob import Knob

_WORKERS: Final = ("0", "1", "2", "4", "8", "16", "32")

KNOBS: Final[tuple[Knob, ...]] = (
    Knob(
        name="max_worker_processes",
        group="parallel",
        why="The pool of all background workers: parallel queries, logical replication, extensions.",
        trades="A little shared memory for each.",
        panes=("host",),
        steps=_WORKERS,
        moves_with=("max_parallel_workers",),
    ),
    Knob(
        name="max_parallel_workers",
        group="parallel",
        why="Background workers that parallel queries may use at the same time.",
        trades="CPU of other sessions.",
        panes=("host", "latency"),
        steps=_WORKERS,
        moves_with=("max_worker_processes", "max_parallel_workers_per_gather"),
    ),
    Knob(
        name="max_parallel_workers_per_gather",
        group="parallel",
        why="Workers for one part of a query; 0 keeps small transactions from starting any.",
        trades="CPU of other sessions, and work_mem for every worker.",
        panes=("host", "latency"),
        steps=("0", "1", "2", "3", "4", "8", "16"),
        special=(("0", "no parallel queries"),),
        moves_with=("max_parallel_workers", "work_mem"),
    ),
    Knob(
        name="max_parallel_maintenance_workers",
        group="parallel",
        why="Workers of one CREATE INDEX or VACUUM.",
        trades="CPU and disk of the load.",
        panes=("host",),
        steps=("0", "1", "2", "4", "8"),
        moves_with=("max_parallel_workers", "maintenance_work_mem"),
    ),
    Knob(
        name="min_parallel_table_scan_size",
        group="parallel",
        why="Tables below it are scanned by one process.",
        trades="Starting workers costs some milliseconds, more than a small scan.",
        panes=("latency", "host"),
        from_zero="1MB",
    ),
    Knob(
        name="parallel_setup_cost",
        group="parallel",
        why="Planner's cost of starting workers; higher keeps short queries in one process.",
        trades="Long queries may stay in one process too.",
        panes=("latency", "host"),
        steps=("0", "100", "1000", "5000", "10000"),
    ),
    Knob(
        name="parallel_tuple_cost",
        group="parallel",
        why="Planner's cost of passing a row from a worker.",
        trades="Long queries may stay in one process.",
        panes=("latency", "host"),
        steps=("0", "0.01", "0.05", "0.1", "0.2", "0.5"),
    ),
)
