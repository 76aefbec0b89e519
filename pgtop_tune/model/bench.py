"""Readings of the load: pgbench's progress and the transactions of its log.

What the operator asks of pgbench.

pgbench's final report: figures of the whole run, of each script and of each statement.
None is what the report does not have: an older version, an option that was not given, nothing that could be divided by.
"""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct


class StatementReport(Struct, frozen=True, gc=False):
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

    @property
    def trouble(self) -> str:
        """Return its failures and retries, to be put behind its text; "" without any."""
        counts = ((self.failures, "failed"), (self.retries, "retries"))
        return "".join(f"  {number} {name}" for number, name in counts if number)


class ScriptReport(Struct, frozen=True, gc=False):
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


class BenchReport(Struct, frozen=True, gc=False):
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


class ScriptChoice(Struct, frozen=True, gc=False):
    """A script of the operator's own and how often it is chosen (-f FILE@WEIGHT)."""

    file: str
    weight: int = 1


class LoadSpec(Struct, frozen=True, gc=False):
    """A load as the operator describes it; the runner turns it into a command line.

    Attributes:
        profile: Name of a profile: tpcb-like, select-only, simple-update, or one of the user's.
        clients: Concurrent sessions (pgbench -c).
        threads: pgbench -j; 0 means as many as there are cores, at most `clients`.
        duration_s: Seconds (-T); None runs until stopped, or until `transactions` are done.
        rate_per_s: Scheduled transactions per second (-R); None is as fast as they go.
        protocol: simple, extended or prepared (-M).
        transactions: Of each client (-t), in place of a duration.
        latency_limit_ms: Slower ones are counted, and with a rate those that cannot make it are skipped (-L).
        max_tries: How often a transaction is tried that fails by serialization or deadlock (--max-tries, pgbench 15
            and later); 0 is as often as it takes, None is once.
        continue_on_error: A transaction that fails by any error counts as failed, and its client goes on with the next
            (--continue-on-error, pgbench 19 and later); else its client ends.
        connect_per_transaction: A new connection for each transaction (-C).
        seed: Of the random numbers (--random-seed); None is a new one each time.
        per_statement: Mean latency of each statement in the report (-r).
        scripts: In place of those of the profile.
        variables: (name, value) for the scripts (-D).
        settings: (parameter, value) that its sessions begin with (PGOPTIONS): changed for this load only.
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


class ProfileSummary(Struct, frozen=True, gc=False):
    """A load profile as the load screen lists it."""

    name: str
    title: str
    description: str
    clients: int
    """Sensible number of clients on this machine."""
    protocol: str
    dataset: str = ""
    """The data set its scripts need: pgbench or bus; "" where they have tables of their own."""


class RunState(StrEnum):
    """Where a run of pgbench stands."""

    STARTING = "starting"
    RUNNING = "running"
    STOPPED = "stopped"
    """Ended by the operator; what was measured counts as partial, unless that was how it was to end."""
    FINISHED = "finished"
    """Exit status 0."""
    FAILED = "failed"
    """Exit status other than 0; `BenchRun.message` has pgbench's own words."""


class BenchRun(Struct, frozen=True, gc=False):
    """One run of pgbench, unchanged but for its state while it lasts.

    Attributes:
        run: Number of the run in this session, from 1.
        command: The exact command line, shell-quoted; never holds a password.
        sampling_rate: Share of transactions in the transaction log, 0 to 1.
        duration_s: Asked for with -T; None when the run is by transactions or until stopped.
        rate_per_s: Asked for with --rate; None is as fast as the clients go.
        exit_status: Of pgbench; None while it runs. Negative: ended by that signal.
        message: pgbench's last words on stderr when it failed. Foreign text.
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
    """Of each client, asked for with -t."""
    latency_limit_ms: float | None = None
    max_tries: int | None = None
    """--max-tries; None is once."""
    connect_per_transaction: bool = False
    scripts: tuple[str, ...] = ()
    """Names in the order of the command line; `ScriptLatencies.script` counts them from 0. Foreign text."""
    machine: str = ""
    """Where pgbench runs, as it was named; "" beside us."""
    clock_ahead_ms: float | None = None
    """How far the clock of that machine is before ours; None beside us."""
    clock_uncertain_ms: float | None = None
    """Half of the quickest round trip in which that was measured: the true figure is not further off."""
    seed: int | None = None
    """--random-seed; None is a new one each time."""
    script_hashes: tuple[str, ...] = ()
    """SHA-256 of each script file, in the order of `scripts`; empty for a builtin, and in older recordings."""
    continue_on_error: bool = False

    @property
    def open_loop(self) -> bool:
        """Whether transactions begin on schedule, whatever the server does.

        With a rate a latency counts from the scheduled start, so a stall shows in all that should have begun in it.
        Without one the loop is closed: a client that waits asks for nothing, and a stall is a single slow transaction
        per client. Source: pgbench's manual, --rate.
        """
        return self.rate_per_s is not None

    @property
    def complete(self) -> bool:
        """Whether the run ended as it was to end: by itself, or, asked for until stopped, by being stopped."""
        return self.state is RunState.FINISHED or (self.state is RunState.STOPPED and self.until_stopped)

    @property
    def until_stopped(self) -> bool:
        """Whether it goes on until somebody stops it: what was recorded of it is no part of a whole."""
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
    """A stretch of progress lines in which no transaction ended, neither well nor failed.

    Attributes:
        since_ms: When the last line before it came that had a transaction, by our clock; before the first one when
            the run began its work.
        until_ms: When a line came that had one again, or the run ended; None while the silence lasts.
        zero_s: Seconds of the lines without any.
        usual_ms: Mean latency of all transactions before it, by pgbench's progress lines; None before the first.
    """

    since_ms: int
    until_ms: int | None
    zero_s: float
    usual_ms: float | None


def estimate_mark(percentile: float | None, counted_below: float) -> str:
    """Stands before a percentile that lies where some transactions were only counted; else "". Of the same unit."""
    return "~" if percentile is not None and percentile < counted_below else ""


class ScriptLatencies(Struct, frozen=True, gc=False):
    """The part of a `LatencySecond` that one of several scripts has; fields as there.

    Attributes:
        script: From 0, in the order of the command line.
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

    Latencies are of transactions that ended well, with all their tries. With --rate they count from the scheduled
    start, so the lag is part of them; without, from the begin of the transaction, after connecting. Counts are of the
    log: divide by the sampling rate for an estimate of all.

    Attributes:
        second: Seconds since the epoch, on our clock.
        logged: Transactions in this histogram; 0 when none of that second ended well.
        sum_us: Sum of their latencies, for the mean.
        max_us: Largest of them, exact; 0 when there are none.
        buckets: (index, count) pairs, ascending; `metrics.percentiles` defines the edges of a bucket.
        failed: Transactions that failed, of all kinds, the next two among them (pgbench 15 and later).
        skipped: Not begun, because they could not have met --latency-limit.
        lag_sum_us: Sum of their lags behind the schedule, estimated where lines were only counted; None without --rate.
        lag_max_us: The largest of those that were read; None without --rate.
        scripts: By script, where there are several.
        counted: How many of `logged` were only counted: spread over buckets and scripts like those that were read.
        counted_below_us: All of these were quicker; 0 when there are none.
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
    """What pgbench said since the previous frame.

    Attributes:
        run: The run, or the last one that ended.
        progress: Progress lines that arrived since the previous frame, oldest first.
        latencies: Seconds of the transaction log that became complete. pgbench buffers its log, so a second can come
            several frames late, and with few transactions many seconds at once. A second comes again with the
            transactions that pgbench wrote later still: the histograms of a second add up.
        silences: Those that ended since the previous frame and the one that lasts, oldest first.
    """

    at_s: float
    run: BenchRun
    progress: tuple[BenchProgress, ...] = ()
    latencies: tuple[LatencySecond, ...] = ()
    silences: tuple[Silence, ...] = ()
