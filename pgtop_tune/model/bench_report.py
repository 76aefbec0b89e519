"""pgbench's final report: figures of the whole run, of each script and of each statement.

None is what the report does not have: an older version, an option that was not given, nothing that could be divided by.
"""

from __future__ import annotations

from msgspec import Struct


class StatementReport(Struct, frozen=True):
    """A line of a script, with -r.

    Attributes:
        text: Its first line. Foreign text.
        latency_ms: Mean time on the client, from sending to the result; a meta-command has one as well.
        failures: Serialization and deadlock failures that ended a transaction here (pgbench 15 and later).
        retries: How often a transaction was tried again because of this statement; with --max-tries only.
    """

    text: str
    latency_ms: float
    failures: int | None = None
    retries: int | None = None


class ScriptReport(Struct, frozen=True):
    """One of several scripts.

    Attributes:
        number: From 1, in the order of the command line; the transaction log counts from 0.
        name: Of the file, or "<builtin: …>". Foreign text.
        target_percent: Its share of the transactions by weight.
        processed: Transactions that ended well.
        tps: The same per second of the run.
        failed: Of all kinds, the next two among them.
        statements: With -r.
    """

    number: int
    name: str
    weight: int | None = None
    target_percent: float | None = None
    processed: int | None = None
    tps: float | None = None
    failed: int | None = None
    serialization_failures: int | None = None
    deadlock_failures: int | None = None
    retried: int | None = None
    retries: int | None = None
    skipped: int | None = None
    latency_average_ms: float | None = None
    latency_stddev_ms: float | None = None
    statements: tuple[StatementReport, ...] = ()


class BenchReport(Struct, frozen=True):
    """Figures of the whole run.

    A report is printed after an aborted run as well, with a tps line in it: whether the figures count is said by the
    exit status, never by their being there.

    Attributes:
        tps: Without the time to connect (with -C: including it), successful transactions only.
        latency_average_ms: With a rate from the scheduled start, so with the lag; else from the transaction's begin.
            With -C and no rate, connecting is not in it.
        processed: Transactions that ended well.
        asked: Transactions of all clients together, with -t.
        failed: Of all kinds, the next two among them (pgbench 15 and later).
        retried: Transactions that were tried more than once.
        retries: Tries beyond the first, of all of them.
        skipped: Not begun, because they could not have met --latency-limit.
        latency_limit_exceeded: Transactions above --latency-limit.
        schedule_lag_ms: Mean lag behind the schedule, with --rate.
        scale: Scaling factor pgbench found.
        version: Of pgbench, as its first line has it (14 and later).
        server_version: Of the server; None where it is the same.
        transaction_type: The script's name, or "multiple scripts". Foreign text.
        scripts: One for each where there are several.
        statements: Of the only script, with -r.
        raw: stdout as it came, bounded. Foreign text.
    """

    tps: float | None = None
    latency_average_ms: float | None = None
    latency_stddev_ms: float | None = None
    initial_connection_ms: float | None = None
    average_connection_ms: float | None = None
    processed: int | None = None
    asked: int | None = None
    failed: int | None = None
    serialization_failures: int | None = None
    deadlock_failures: int | None = None
    retried: int | None = None
    retries: int | None = None
    skipped: int | None = None
    latency_limit_exceeded: int | None = None
    schedule_lag_ms: float | None = None
    schedule_lag_max_ms: float | None = None
    scale: int | None = None
    clients: int | None = None
    threads: int | None = None
    max_tries: int | None = None
    duration_s: int | None = None
    transactions_per_client: int | None = None
    version: str | None = None
    server_version: str | None = None
    transaction_type: str | None = None
    query_mode: str | None = None
    scripts: tuple[ScriptReport, ...] = ()
    statements: tuple[StatementReport, ...] = ()
    raw: str = ""
