"""Knobs of statistics and logging.

Source: PostgreSQL documentation, "Error Reporting and Logging" and "Run-time Statistics".
"""

from __future__ import annotations

from typing import Final

from pgtop_tune.advice.knobs.knob import Knob

_MEASURED: Final = "It affects the measurement: leave it alone within a comparison."

_RUNS: Final = ("-1", "0", "100ms", "1s", "10s", "10min")
_NONE_OR_ALL: Final = (("-1", "none"), ("0", "all"))

KNOBS: Final[tuple[Knob, ...]] = (
    Knob(
        name="track_io_timing",
        group="observability",
        why="Times every read and write; the I/O page and pg_stat_statements then have milliseconds.",
        trades="Two clock readings per I/O, expensive with a slow clock source (pg_test_timing). " + _MEASURED,
        panes=("host", "latency"),
    ),
    Knob(
        name="track_wal_io_timing",
        group="observability",
        why="Times writing and flushing of WAL.",
        trades="As track_io_timing. " + _MEASURED,
        panes=("wal",),
        moves_with=("track_io_timing",),
    ),
    Knob(
        name="track_activities",
        group="observability",
        why="Shows what each session does; off leaves this program half blind.",
        trades="Almost nothing.",
        panes=("sessions", "budget"),
    ),
    Knob(
        name="track_activity_query_size",
        group="observability",
        why="Visible length of a query text.",
        trades="Shared memory of each session, and more data for every monitoring query.",
        panes=("sessions",),
        steps=("1kB", "2kB", "4kB", "8kB", "16kB"),
    ),
    Knob(
        name="track_functions",
        group="observability",
        why="Counts calls and time of functions.",
        trades="CPU at each call. " + _MEASURED,
        panes=("host",),
        steps=("none", "pl", "all"),
    ),
    Knob(
        name="compute_query_id",
        group="observability",
        why="Gives statements an identifier, which joins pg_stat_statements and sessions.",
        trades="Some microseconds for each statement.",
        panes=("sessions", "throughput"),
        steps=("off", "auto", "on", "regress"),
    ),
    Knob(
        name="log_checkpoints",
        group="observability",
        why="A line for each checkpoint: cause, amount, duration.",
        trades="Nothing.",
        panes=("wal",),
    ),
    Knob(
        name="log_lock_waits",
        group="observability",
        why="A line for each lock wait longer than deadlock_timeout.",
        trades="Many lines under contention.",
        panes=("budget",),
        moves_with=("deadlock_timeout",),
    ),
    Knob(
        name="log_temp_files",
        group="observability",
        why="A line for each temporary file of at least this size: shows statements that need more work_mem.",
        trades="Many lines when small.",
        panes=("host",),
        steps=("-1", "0", "1MB", "10MB", "100MB"),
        special=(("-1", "none"), ("0", "all")),
        moves_with=("work_mem",),
    ),
    Knob(
        name="log_min_duration_statement",
        group="observability",
        why="A line for each statement that takes at least this long.",
        trades="0 logs everything: it slows the load and fills the disk. " + _MEASURED,
        panes=("latency",),
        steps=("-1", "10s", "1s", "500ms", "100ms", "0"),
        special=(("-1", "none"), ("0", "every statement")),
    ),
    Knob(
        name="log_autovacuum_min_duration",
        group="observability",
        why="A line for each run of autovacuum that takes at least this long; from 19 on for its vacuums only.",
        trades="Negligible.",
        panes=("host",),
        steps=_RUNS,
        special=_NONE_OR_ALL,
    ),
    Knob(
        name="log_autoanalyze_min_duration",
        group="observability",
        why="A line for each ANALYZE by autovacuum that takes at least this long.",
        trades="Negligible.",
        panes=("host",),
        steps=_RUNS,
        special=_NONE_OR_ALL,
    ),
)
