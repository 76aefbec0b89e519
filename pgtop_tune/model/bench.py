"""The load: the operator's specification, readings of pgbench's progress and transaction log, and pgbench's final
report.

None stands for figures that a report lacks: an older version, an option that was not given, a divisor of 0.
"""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct

from pgtop_tune.base.units import number
from pgtop_tune.model.host import NetworkLoad
from pgtop_tune.model.outage import OutageSpan


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
    """A script of the operator's own with its weight (-f FILE@WEIGHT), or a copy of one of pgbench's."""

    file: str
    weight: int = 1
    builtin: bool = False


class LoadLevel(Struct, frozen=True, gc=False):
    """Clients and rate of a load at a time.

    Attributes:
        clients: Concurrent sessions; 0 is a pause.
        rate_per_s: Scheduled transactions per second of all clients together; None without a schedule.
    """

    clients: int
    rate_per_s: float | None = None

    @property
    def words(self) -> str:
        """Return it for display: "×8", "×8 at 500/s", "paused"."""
        if not self.clients:
            return "paused"
        return f"×{self.clients}" + ("" if self.rate_per_s is None else f" at {number(self.rate_per_s, 4)}/s")


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
        phases: Phases of the load as typed (`bench.phases`), in place of a duration; "" for a load that stays.
        through_outage: Whether lost clients are replaced until the time is over; else the run ends with them.
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
    phases: str = ""
    through_outage: bool = False

    @property
    def level(self) -> LoadLevel:
        """Return clients and rate of the load, before any phase."""
        return LoadLevel(self.clients, self.rate_per_s)


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


class ClientGroup(Struct, frozen=True, gc=False):
    """A pgbench of a run: clients that were started together.

    pgbench keeps its clients and its rate for as long as it runs: a change of the load ends groups and starts others.

    Attributes:
        number: From 1 in the run.
        rate_per_s: Its part of the rate; None without a schedule.
        command: The exact command line, shell-quoted; never holds a password.
        pid: Its process on this machine; None where it runs on another.
        machine: As the operator named it; "" for this one.
        clock_ahead_ms, clock_uncertain_ms: As in `BenchRun`.
        ended_ms: None while it runs.
        connection_ms: Time from its start to its first transaction; None before that.
        problem: Why it ended without our doing; "" otherwise. Foreign text.
        processed, latency_ms, lag_ms: Figures of its report; None while it runs, and without a report.
        cpus: Mean number of CPUs that it used; None while it runs, and where `BenchRun.pids` tells.
        network: The interface of its machine towards the server; None while it runs, and where that is unknown.
    """

    number: int
    clients: int
    rate_per_s: float | None
    threads: int
    started_ms: int
    command: str
    pid: int | None = None
    machine: str = ""
    clock_ahead_ms: float | None = None
    clock_uncertain_ms: float | None = None
    ended_ms: int | None = None
    connection_ms: float | None = None
    problem: str = ""
    processed: int | None = None
    latency_ms: float | None = None
    lag_ms: float | None = None
    cpus: float | None = None
    network: NetworkLoad | None = None


class Seam(Struct, frozen=True, gc=False):
    """A change of a load: pgbench processes ended and started. No figure includes these seconds.

    Attributes:
        from_ms: Its begin: the first signal, or the first start.
        until_ms: The first progress line of the new clients; without new ones, the end of the others.
        before, level: Clients and rate before and after; 0 clients are a pause.
        connection_ms: Time from the start of the new clients to their first transaction; None without new ones.
        lost: Transactions fewer than at the pace of the five seconds before, scaled down with the load; None where that
            pace is unknown, and for a pause.
    """

    from_ms: int
    until_ms: int
    before: LoadLevel
    level: LoadLevel
    connection_ms: float | None = None
    lost: float | None = None


class PhaseSpan(Struct, frozen=True, gc=False):
    """A time at one level of a load with phases.

    Attributes:
        phase: Number and words of the phase; one of a ramp's stairs, and each of several bursts, has a span of its own.
        until_ms: None while it lasts.
    """

    phase: str
    level: LoadLevel
    from_ms: int
    until_ms: int | None = None


class PathProcess(Struct, frozen=True, gc=False):
    """A process of a pooler or proxy on the way of a load, on this machine.

    Attributes:
        name: Name of the program, at most 15 characters; foreign text.
    """

    pid: int
    name: str


class BenchRun(Struct, frozen=True, gc=False):
    """One run of pgbench. While it lasts, its state changes, and with the load the clients, rate and groups.

    Attributes:
        run: Number of the run in this session, from 1.
        profile: Name of the profile; "" for scripts of the operator's. See `load_name`.
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
    groups: tuple[ClientGroup, ...] = ()
    """All groups of clients so far, in the order of their start; empty in older recordings."""
    paused: bool = False
    """Whether no client runs until the operator, or the next phase, goes on; `clients` are those of then."""
    spans: tuple[PhaseSpan, ...] = ()
    """Times at one level, of a load with phases, so far."""
    path: tuple[PathProcess, ...] = ()
    """Poolers and proxies on its way that run on this machine, as far as they are known."""
    through_outage: bool = False
    """Whether lost clients are replaced."""
    outages: tuple[OutageSpan, ...] = ()
    """Times in which clients were lost, so far."""

    @property
    def pids(self) -> frozenset[int]:
        """Return the processes of pgbench on this machine, those of former groups among them."""
        return frozenset(pid for pid in (self.pid, *(group.pid for group in self.groups)) if pid is not None)

    @property
    def changed(self) -> bool:
        """Return whether clients or rate have changed, so that no figure describes the whole run.

        Clients that replaced lost ones are no change.
        """
        return not self.through_outage and (len({group.started_ms for group in self.groups}) > 1 or self.paused)

    @property
    def connects(self) -> int:
        """Return the sessions that were opened at the start of groups."""
        return sum(group.clients for group in self.groups) or self.clients

    @property
    def peak_clients(self) -> int:
        """Return the most clients at once."""
        return max((self._clients_at(group.started_ms) for group in self.groups), default=self.clients)

    def _clients_at(self, at_ms: int) -> int:
        return sum(
            group.clients
            for group in self.groups
            if group.started_ms <= at_ms and (group.ended_ms is None or group.ended_ms > at_ms)
        )

    @property
    def load_name(self) -> str:
        """Return the profile, or the names of the operator's scripts. Foreign text."""
        return self.profile or " ".join(self.scripts) or "scripts"

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
    left_out: bool = False
    """Whether the load changed or paused in the interval: no figure includes it."""


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
        left_out: As of `BenchProgress`.
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
    left_out: bool = False


class BenchSample(Struct, frozen=True, gc=False):
    """Reading of pgbench since the previous frame.

    Attributes:
        run: The run, or the last one that ended.
        progress: Progress lines that arrived since the previous frame, oldest first.
        latencies: Seconds of the transaction log that became complete. pgbench buffers its log, so a second can come
            several frames late, and with few transactions many seconds at once. A second is repeated with transactions
            that pgbench wrote even later: add up the histograms of a second.
        silences: Silences that ended since the previous frame, and the one that still lasts, oldest first.
        seams: Changes of clients or rate that ended since the previous frame, oldest first.
    """

    at_s: float
    run: BenchRun
    progress: tuple[BenchProgress, ...] = ()
    latencies: tuple[LatencySecond, ...] = ()
    silences: tuple[Silence, ...] = ()
    seams: tuple[Seam, ...] = ()
