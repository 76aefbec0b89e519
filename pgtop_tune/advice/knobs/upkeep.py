"""Knobs of autovacuum, statistics and logging.

Source: PostgreSQL documentation, "Vacuuming", "Routine Vacuuming", "Error Reporting and Logging" and "Run-time
Statistics".
"""

from __future__ import annotations

from typing import Final

from pgtop_tune.advice.knobs.knob import Knob

_SHARES: Final = ("0", "0.005", "0.01", "0.02", "0.05", "0.1", "0.2", "0.4")
_WEIGHTS: Final = ("0", "0.5", "1", "2", "5", "10")
_NO_ORDER: Final = ("0", "ignored in the order; 0 for all five: the order of pg_class, as before 19")
_OTHERS_WAIT: Final = "Other tables wait longer; how much is vacuumed, and when a table is due, does not change."
_NOT_BELOW_ONE: Final = "Below 1, tables near wraparound may wait behind others."
_IO_NOW: Final = "Disk and CPU now; without it tables and indexes grow."

AUTOVACUUM: Final[tuple[Knob, ...]] = (
    Knob(
        "autovacuum",
        "autovacuum",
        why="On keeps tables from growing and transaction ids from running out. Use off only in a short test.",
        trades="A test without it measures a server that cannot run in production.",
        panes=("host", "latency"),
    ),
    Knob(
        "track_counts",
        "autovacuum",
        why="Counts the changes that trigger autovacuum; off disables it and most metrics of this program.",
        trades="Almost nothing.",
        panes=("throughput",),
        moves_with=("autovacuum",),
    ),
    Knob(
        "autovacuum_max_workers",
        "autovacuum",
        why="Number of tables vacuumed at the same time. They share the cost limit: with more workers each is slower.",
        trades="autovacuum_work_mem for each.",
        panes=("host",),
        steps=("1", "2", "3", "4", "5", "8", "10", "16"),
        moves_with=("autovacuum_vacuum_cost_limit", "autovacuum_work_mem", "autovacuum_worker_slots"),
    ),
    Knob(
        "autovacuum_worker_slots",
        "autovacuum",
        why="Upper bound for changing autovacuum_max_workers without a restart.",
        trades="A little shared memory for each.",
        panes=("host",),
        steps=("4", "8", "16", "32"),
        moves_with=("autovacuum_max_workers",),
    ),
    Knob(
        "autovacuum_naptime",
        "autovacuum",
        why="Time between two autovacuum runs in a database; hot small tables need less than the default minute.",
        trades="CPU with many databases.",
        panes=("host",),
        steps=("1s", "5s", "10s", "15s", "30s", "1min", "5min"),
    ),
    Knob(
        "autovacuum_vacuum_cost_limit",
        "autovacuum",
        why="Work of all workers together between two sleeps: the throttle of autovacuum.",
        trades=_IO_NOW,
        panes=("host", "latency"),
        steps=("-1", "200", "400", "1000", "2000", "5000", "10000"),
        special=(("-1", "as vacuum_cost_limit"),),
        moves_with=("autovacuum_vacuum_cost_delay", "autovacuum_max_workers", "vacuum_cost_limit"),
    ),
    Knob(
        "autovacuum_vacuum_cost_delay",
        "autovacuum",
        why="Length of a sleep of the throttle; 0 turns the throttle off.",
        trades=_IO_NOW,
        panes=("host", "latency"),
        steps=("0", "1ms", "2ms", "5ms", "10ms", "20ms"),
        special=(("0", "no throttle"), ("-1", "as vacuum_cost_delay")),
        moves_with=("autovacuum_vacuum_cost_limit",),
    ),
    Knob(
        "vacuum_cost_limit",
        "autovacuum",
        why="The throttle's limit for manual VACUUM, and for autovacuum while its own limit is -1.",
        trades=_IO_NOW,
        panes=("host", "latency"),
        steps=("200", "400", "1000", "2000", "5000", "10000"),
        moves_with=("autovacuum_vacuum_cost_limit",),
    ),
    Knob(
        "autovacuum_vacuum_scale_factor",
        "autovacuum",
        why="A table is vacuumed when this share of its rows is dead; large tables need a smaller share.",
        trades=_IO_NOW,
        panes=("host",),
        steps=_SHARES,
        moves_with=("autovacuum_vacuum_threshold",),
    ),
    Knob(
        "autovacuum_vacuum_threshold",
        "autovacuum",
        why="Dead rows a table must have in addition to the share.",
        trades=_IO_NOW,
        panes=("host",),
        steps=("10", "50", "100", "500", "1000", "5000"),
        moves_with=("autovacuum_vacuum_scale_factor",),
    ),
    Knob(
        "autovacuum_vacuum_insert_scale_factor",
        "autovacuum",
        why="A table that only grows is vacuumed after this share of new rows: for index-only scans and freezing.",
        trades=_IO_NOW,
        panes=("host",),
        steps=_SHARES,
    ),
    Knob(
        "autovacuum_analyze_scale_factor",
        "autovacuum",
        why="Statistics are renewed when this share of the rows has changed.",
        trades="CPU and reads now; with old statistics, bad plans.",
        panes=("host", "latency"),
        steps=_SHARES,
        moves_with=("default_statistics_target",),
    ),
    Knob(
        "autovacuum_max_parallel_workers",
        "autovacuum",
        why="Parallel workers of all autovacuum runs together: they vacuum the indexes of large tables side by side.",
        trades="Uses max_parallel_workers, and more reads and writes at once; 0 vacuums one index after the other.",
        panes=("host",),
        steps=("0", "1", "2", "4", "8"),
        moves_with=("max_parallel_workers", "autovacuum_max_workers"),
    ),
    *(
        Knob(
            f"autovacuum_{part}_score_weight",
            "autovacuum",
            why=f"Weight of {counts} when a worker decides which table comes first; a higher one moves such tables "
            "forward.",
            trades=_OTHERS_WAIT,
            panes=("host",),
            steps=_WEIGHTS,
            special=(_NO_ORDER,),
            warning=warning,
            moves_with=(f"autovacuum_{moves_with}",),
        )
        for part, counts, moves_with, warning in (
            ("vacuum", "dead rows", "vacuum_scale_factor", ""),
            ("vacuum_insert", "new rows", "vacuum_insert_scale_factor", ""),
            ("analyze", "changed rows", "analyze_scale_factor", ""),
            ("freeze", "the age of transaction ids", "freeze_max_age", _NOT_BELOW_ONE),
            ("multixact_freeze", "the age of multixacts", "freeze_max_age", _NOT_BELOW_ONE),
        )
    ),
    Knob(
        "autovacuum_freeze_max_age",
        "autovacuum",
        why="A table is vacuumed unconditionally when its oldest transaction id has this age.",
        trades="Higher means rarer and longer vacuums, closer to the end of the transaction ids.",
        panes=("host",),
        steps=("100000000", "200000000", "400000000", "800000000"),
        warning="At about 2.1 billion the server stops writing; leave room for a vacuum of the largest table.",
    ),
)


_MEASURED: Final = "It affects the measurement: leave it alone within a comparison."

_RUNS: Final = ("-1", "0", "100ms", "1s", "10s", "10min")
_NONE_OR_ALL: Final = (("-1", "none"), ("0", "all"))

OBSERVABILITY: Final[tuple[Knob, ...]] = (
    Knob(
        "track_io_timing",
        "observability",
        why="Times every read and write; the I/O page and pg_stat_statements then have milliseconds.",
        trades="Two clock readings per I/O, expensive with a slow clock source (pg_test_timing). " + _MEASURED,
        panes=("host", "latency"),
    ),
    Knob(
        "track_wal_io_timing",
        "observability",
        why="Times writing and flushing of WAL.",
        trades="As track_io_timing. " + _MEASURED,
        panes=("wal",),
        moves_with=("track_io_timing",),
    ),
    Knob(
        "track_activities",
        "observability",
        why="Shows what each session does; off hides most session data from this program.",
        trades="Almost nothing.",
        panes=("sessions", "budget"),
    ),
    Knob(
        "track_activity_query_size",
        "observability",
        why="Visible length of a query text.",
        trades="Shared memory of each session, and more data for every monitoring query.",
        panes=("sessions",),
        steps=("1kB", "2kB", "4kB", "8kB", "16kB"),
    ),
    Knob(
        "track_functions",
        "observability",
        why="Counts calls and time of functions.",
        trades="CPU at each call. " + _MEASURED,
        panes=("host",),
        steps=("none", "pl", "all"),
    ),
    Knob(
        "compute_query_id",
        "observability",
        why="Gives statements an identifier, which joins pg_stat_statements and sessions.",
        trades="Some microseconds for each statement.",
        panes=("sessions", "throughput"),
        steps=("off", "auto", "on", "regress"),
    ),
    Knob(
        "log_checkpoints",
        "observability",
        why="A line for each checkpoint: cause, amount, duration.",
        trades="Nothing.",
        panes=("wal",),
    ),
    Knob(
        "log_lock_waits",
        "observability",
        why="A line for each lock wait longer than deadlock_timeout.",
        trades="Many lines under contention.",
        panes=("budget",),
        moves_with=("deadlock_timeout",),
    ),
    Knob(
        "log_temp_files",
        "observability",
        why="A line for each temporary file of at least this size: shows statements that need more work_mem.",
        trades="Many lines when small.",
        panes=("host",),
        steps=("-1", "0", "1MB", "10MB", "100MB"),
        special=(("-1", "none"), ("0", "all")),
        moves_with=("work_mem",),
    ),
    Knob(
        "log_min_duration_statement",
        "observability",
        why="A line for each statement that takes at least this long.",
        trades="0 logs everything: it slows the load and fills the disk. " + _MEASURED,
        panes=("latency",),
        steps=("-1", "10s", "1s", "500ms", "100ms", "0"),
        special=(("-1", "none"), ("0", "every statement")),
    ),
    Knob(
        "log_autovacuum_min_duration",
        "observability",
        why="A line for each run of autovacuum that takes at least this long; from 19 on for its vacuums only.",
        trades="Negligible.",
        panes=("host",),
        steps=_RUNS,
        special=_NONE_OR_ALL,
    ),
    Knob(
        "log_autoanalyze_min_duration",
        "observability",
        why="A line for each ANALYZE by autovacuum that takes at least this long.",
        trades="Negligible.",
        panes=("host",),
        steps=_RUNS,
        special=_NONE_OR_ALL,
    ),
)
