"""The load: the operator's specification, readings of pgbench's progress and transaction log, and pgbench's final
report.

None stands for figures that a report lacks: an older version, an option that was not given, a divisor of 0.
"""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct


class StatementReport(Struct, frozen=True, gc=False):
    """A line of a script, with -r.

    Attributes:
        text: First line of its text. Foreign text.
        latency_ms: Mean time on the client, from sending to the result; a meta-command has one as well.
        failures: Serialization and deadlock failures that ended a transaction here (pgbench 15 and later).
        retries: Number of retries because of this statement; with --max-tries only.
    """

    text: str
    latency_ms: float
    failures: int | None = None
    retries: int | None = None

    @property
    def trouble(self) -> str:
        """Failures and retries, for display after its text; "" without any."""
        counts = ((self.failures, "failed"), (self.retries, "retries"))
        return "".join(f"  {number} {name}" for number, name in counts if number)


class ScriptReport(Struct, frozen=True, gc=False):
    """One of several scripts.

    Attributes:
        number: From 1, in the order of the command line; the transaction log counts from 0.
        name: Name of the file, or "<builtin: …>". Foreign text.
        target_percent: Its share of the transactions by weight.
        processed: Successful transactions.
        tps: Successful transactions per second of the run.
        failed: Failed transactions of all kinds, including the next two.
        statements: Its statements, with -r.
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


class BenchReport(Struct, frozen=True, gc=False):
    """Figures of the whole run.

    pgbench prints a report with a tps line after an aborted run as well: only the exit status shows whether the figures
    count.

    Attributes:
        tps: Successful transactions per second, without the time to connect (with -C: including it).
        latency_average_ms: Mean latency; with a rate from the scheduled start, so with the lag; else from the
            transaction's begin. With -C and no rate, without the time to connect.
        processed: Successful transactions.
        asked: Requested transactions of all clients together, with -t.
        failed: Failed transactions of all kinds, including the next two (pgbench 15 and later).
        retried: Transactions that were tried more than once.
        retries: Total number of tries beyond the first.
        skipped: Transactions that were not started, because they could not have met --latency-limit.
        latency_limit_exceeded: Transactions above --latency-limit.
        schedule_lag_ms: Mean lag behind the schedule, with --rate.
        scale: Scaling factor that pgbench found.
        version: Version of pgbench in its first line (14 and later).
        server_version: Version of the server; None where it is the same.
        transaction_type: The script's name, or "multiple scripts". Foreign text.
        scripts: Reports of the scripts, where there are several.
        statements: Statements of the only script, with -r.
        raw: stdout, bounded. Foreign text.
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


class ScriptChoice(Struct, frozen=True, gc=False):
    """A script of the operator's own with its weight (-f FILE@WEIGHT)."""

    file: str
    weight: int = 1


class LoadSpec(Struct, frozen=True, gc=False):
    """A load as the operator describes it; the runner turns it into a command line.

    Attributes:
        profile: Name of a profile: tpcb-like, select-only, simple-update, or one of the user's.
        clients: Concurrent sessions (pgbench -c).
        threads: pgbench -j; 0 stands for the number of cores, at most `clients`.
        duration_s: Seconds (-T); None runs until stopped, or until `transactions` are done.
        rate_per_s: Scheduled transactions per second (-R); None runs without a schedule.
        protocol: simple, extended or prepared (-M).
        transactions: Transactions of each client (-t), in place of a duration.
        latency_limit_ms: Limit above which transactions are counted, and with a rate are skipped when too late (-L).
        max_tries: Most tries of a transaction that fails by serialization or deadlock (--max-tries, pgbench 15 and
            later); 0 has no limit, None is one try.
        continue_on_error: Whether a client continues after any error, which counts as a failed transaction
            (--continue-on-error, pgbench 19 and later); else the client ends.
        connect_per_transaction: Whether each transaction has a new connection (-C).
        seed: Seed of the random numbers (--random-seed); None is a new one each time.
        per_statement: Whether the report has the mean latency of each statement (-r).
        scripts: Scripts in place of those of the profile.
        variables: (name, value) for the scripts (-D).
        settings: (parameter, value) with which its sessions begin (PGOPTIONS), for this load only.
        further: Further options of pgbench as typed, such as --exit-on-abort.
    """

    profile: str = "tpcb-like"
    clients: int = 8
    threads: int = 0
    duration_s: int | None = None
    rate_per_s: float | None = None
    protocol: str = "prepared"
    transactions: int | None = None
    latency_limit_ms: float | None = None
    max_tries: int | None = None
    connect_per_transaction: bool = False
    seed: int | None = None
    per_statement: bool = False
    scripts: tuple[ScriptChoice, ...] = ()
    variables: tuple[tuple[str, str], ...] = ()
    settings: tuple[tuple[str, str], ...] = ()
    continue_on_error: bool = False
    further: tuple[str, ...] = ()


class ProfileSummary(Struct, frozen=True, gc=False):
    """A load profile as the load screen lists it."""

    name: str
    title: str
    description: str
    clients: int
    """Sensible number of clients on this machine."""
    protocol: str
    dataset: str = ""
    """Data set that its scripts need: pgbench or bus; "" for tables of their own."""


class RunState(StrEnum):
    """State of a run of pgbench."""

    STARTING = "starting"
    RUNNING = "running"
    STOPPED = "stopped"
    """The operator ended it; the results are partial, unless the run was to last until stopped."""
    FINISHED = "finished"
    """Exit status 0."""
    FAILED = "failed"
    """Exit status other than 0; `BenchRun.message` has pgbench's message."""


OVERLOADED = "OVERLOADED"
ABORTED = "ABORTED"
"""Reasons for which pgtop-tune ends a run, by the doubt that each raises."""


class BenchRun(Struct, frozen=True, gc=False):
    """One run of pgbench; only its state changes while it lasts.

    Attributes:
        run: Number of the run in this session, from 1.
        command: The exact command line, shell-quoted; never holds a password.
        sampling_rate: Share of transactions in the transaction log, 0 to 1.
        duration_s: Value of -T; None for a run with a number of transactions or until stopped.
        rate_per_s: Value of --rate; None without a schedule.
        exit_status: Exit status of pgbench; None while it runs. Negative for the signal that ended it.
        message: pgbench's last lines on stderr when it failed, or why pgtop-tune ended the run. Foreign text.
    """

    run: int
    profile: str
    command: str
    pgbench_version: str
    pid: int | None
    started_ms: int
    state: RunState
    clients: int
    threads: int
    duration_s: int | None
    rate_per_s: float | None
    protocol: str
    sampling_rate: float
    exit_status: int | None = None
    message: str = ""
    transactions: int | None = None
    """Transactions of each client, the value of -t."""
    latency_limit_ms: float | None = None
    max_tries: int | None = None
    """--max-tries; None means one try."""
    connect_per_transaction: bool = False
    scripts: tuple[str, ...] = ()
    """Names in the order of the command line; `ScriptLatencies.script` counts them from 0. Foreign text."""
    machine: str = ""
    """Machine on which pgbench runs, as the operator named it; "" for this one."""
    clock_ahead_ms: float | None = None
    """Time by which the clock of `machine` is ahead of ours; None for this machine."""
    clock_uncertain_ms: float | None = None
    """Largest error of `clock_ahead_ms`: half of the shortest round trip of its measurement."""
    seed: int | None = None
    """--random-seed; None means a new seed for each run."""
    script_hashes: tuple[str, ...] = ()
    """SHA-256 of each script file, in the order of `scripts`; empty for a builtin, and in older recordings."""
    continue_on_error: bool = False
    ended_for: str = ""
    """OVERLOADED or ABORTED where pgtop-tune ended the run; "" else."""

    @property
    def open_loop(self) -> bool:
        """Return whether transactions begin on a schedule, independent of the server.

        With a rate, latencies count from the scheduled start, so a stall shows in all transactions that were due in it.
        Without one, the loop is closed: a waiting client begins no transaction, and a stall is a single slow
        transaction of each client. Source: pgbench's manual, --rate.
        """
        return self.rate_per_s is not None

    @property
    def complete(self) -> bool:
        """Return whether the run ended as specified: by itself, or stopped, if it was to last until then."""
        return self.state is RunState.FINISHED or (
            self.state is RunState.STOPPED and self.until_stopped and not self.ended_for
        )

    @property
    def until_stopped(self) -> bool:
        """Return whether the run lasts until it is stopped, so that no recording of it is partial."""
        return self.duration_s is None and self.transactions is None


class BenchProgress(Struct, frozen=True, gc=False):
    """One `progress:` line of pgbench: figures of the interval that ended at `elapsed_s` of the run."""

    elapsed_s: float
    tps: float
    latency_ms: float
    stddev_ms: float
    failed: int = 0
    """Failed transactions in the interval (pgbench 15+)."""
    lag_ms: float | None = None
    """Mean schedule lag, with --rate only."""
    skipped: int | None = None
    """With --rate and --latency-limit only."""
    retried: int | None = None
    retries: int | None = None


class Silence(Struct, frozen=True, gc=False):
    """A series of progress lines in which no transaction ended, successful or failed.

    Attributes:
        since_ms: Time of the last line with a transaction, on our clock; before the first such line, the start of the
            load.
        until_ms: Time of the next line with a transaction, or of the run's end; None while the silence lasts.
        zero_s: Seconds of the lines without a transaction.
        usual_ms: Mean latency of all transactions before the silence, from pgbench's progress lines; None before the
            first transaction.
    """

    since_ms: int
    until_ms: int | None
    zero_s: float
    usual_ms: float | None


def estimate_mark(percentile: float | None, counted_below: float) -> str:
    """Return "~" for a percentile in a range in which some transactions were only counted; else "". In one unit."""
    return "~" if percentile is not None and percentile < counted_below else ""


class ScriptLatencies(Struct, frozen=True, gc=False):
    """The transactions of one script in a `LatencySecond`, with the same fields; only with several scripts.

    Attributes:
        script: Number of the script from 0, in the order of the command line.
    """

    script: int
    logged: int
    sum_us: int
    max_us: int
    buckets: tuple[tuple[int, int], ...]
    failed: int = 0
    skipped: int = 0
    counted: int = 0
    counted_below_us: int = 0


class LatencySecond(Struct, frozen=True, gc=False):
    """Logged transactions that ended within one second of the wall clock.

    Latencies are of successful transactions, including all their tries. With --rate they count from the scheduled
    start, including the lag; without --rate, from the start of the transaction, after connecting. Counts refer to the
    log: divide by the sampling rate to estimate all transactions.

    Attributes:
        second: Seconds since the epoch, on our clock.
        logged: Transactions in this histogram; 0 for a second without a successful transaction.
        sum_us: Sum of their latencies, for the mean.
        max_us: Exact maximum of their latencies; 0 without transactions.
        buckets: (index, count) pairs, ascending; `metrics.percentiles` defines the edges of a bucket.
        failed: Failed transactions of all kinds, including the next two (pgbench 15 and later).
        skipped: Transactions that were not started, because they could not have met --latency-limit.
        lag_sum_us: Sum of their lags behind the schedule, estimated if lines were only counted; None without --rate.
        lag_max_us: Largest lag read from the log; None without --rate.
        scripts: Histograms by script, if the run has several.
        counted: Transactions in `logged` that were only counted; they are spread over buckets and scripts like the
            other transactions.
        counted_below_us: Upper bound of the latency of these transactions; 0 if there are none.
    """

    second: int
    logged: int
    sum_us: int
    max_us: int
    buckets: tuple[tuple[int, int], ...]
    failed: int = 0
    serialization_failures: int = 0
    deadlock_failures: int = 0
    skipped: int = 0
    lag_sum_us: int | None = None
    lag_max_us: int | None = None
    scripts: tuple[ScriptLatencies, ...] = ()
    counted: int = 0
    counted_below_us: int = 0


class BenchSample(Struct, frozen=True, gc=False):
    """Reading of pgbench since the previous frame.

    Attributes:
        run: The run, or the last one that ended.
        progress: Progress lines that arrived since the previous frame, oldest first.
        latencies: Seconds of the transaction log that became complete. pgbench buffers its log, so a second can come
            several frames late, and with few transactions many seconds at once. A second is repeated with transactions
            that pgbench wrote even later: add up the histograms of a second.
        silences: Silences that ended since the previous frame, and the one that still lasts, oldest first.
    """

    at_s: float
    run: BenchRun
    progress: tuple[BenchProgress, ...] = ()
    latencies: tuple[LatencySecond, ...] = ()
    silences: tuple[Silence, ...] = ()
