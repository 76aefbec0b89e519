"""The record of a run: its load, its results, and the doubts about them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from pgtop_tune.base.secret import MASK, without_secrets
from pgtop_tune.model.bench import (
    ABORTED,
    OVERLOADED,
    BenchProgress,
    BenchReport,
    ClientGroup,
    LoadLevel,
    LoadSpec,
    RunState,
    Seam,
    estimate_mark,
)
from pgtop_tune.model.host import MachineLoad
from pgtop_tune.model.outage import OutageResult

FORMAT: Final = "pgtop-tune-run/1"
INIT_FORMAT: Final = "pgtop-tune-init/1"
"""Format of `bench init --format json`."""


class RunVerdict(StrEnum):
    """Effect of a doubt on a result. Records hold these words."""

    INVALID = "invalid"
    """The figures do not count."""
    SUSPECT = "suspect"
    """The figures may not describe the intended load."""
    NOTE = "note"
    """The figures count; the note matters for comparisons."""


class Doubt(Struct, frozen=True, gc=False):
    """One reason to trust a result less.

    Attributes:
        id: Stable name: "CLIENT-BOUND".
        verdict: Its effect on the result.
        reason: The observation with its numbers, one sentence. May hold foreign text.
        advice: The remedy; "" without one.
        numbers: Numbers of the sentence, by name with unit.
    """

    id: str
    verdict: RunVerdict
    reason: str
    advice: str = ""
    numbers: tuple[tuple[str, float], ...] = ()


class LatencySummary(Struct, frozen=True, gc=False):
    """Latencies of logged transactions, in milliseconds.

    Attributes:
        logged: Number of logged transactions; less than were run where the log is sampled.
        quantiles: (per cent, ms): 50, 95, 99, 99.9, 99.99; None where too few were logged for it.
        histogram: (lowest µs of a bucket, count), ascending; `metrics.percentiles` defines the buckets.
        counted, counted_below_ms: Fields of `model.bench.LatencySecond`.
    """

    logged: int
    mean_ms: float
    max_ms: float
    quantiles: tuple[tuple[float, float | None], ...]
    histogram: tuple[tuple[int, int], ...] = ()
    counted: int = 0
    counted_below_ms: float = 0.0

    def at(self, quantile: float) -> float | None:
        """Return one of the computed percentiles; None for others, and where too few were logged for it."""
        return dict(self.quantiles).get(quantile)


class LatencyOf(Struct, frozen=True, gc=False):
    """Latencies of a part of the run.

    Attributes:
        part: A second since the epoch, or the name of a script.
        left_out: Of a second: whether no other figure includes it.
    """

    part: str
    latencies: LatencySummary
    left_out: bool = False


class SteadyState(Struct, frozen=True, gc=False):
    """Steady state of a run's throughput, see `metrics.steady_state`.

    Attributes:
        steady: Whether throughput settled; None when the run was too short.
        warm_up_s: Seconds cut off from the beginning; None when throughput did not settle.
        tps: Mean of the seconds after the warm-up (of all of them when throughput did not settle).
        error_tps: Half width of its 95 % interval; None with too few seconds.
        drift: Difference of the medians of the two halves after the warm-up, as a share of the median.
        reason: The finding, one sentence.
    """

    steady: bool | None
    warm_up_s: float | None
    tps: float | None
    error_tps: float | None
    drift: float | None
    reason: str


class ThroughputSpread(Struct, frozen=True, gc=False):
    """Throughput second by second.

    Attributes:
        p5_tps, p1_tps: Throughput below which one second in 20, and one in 100, was.
        slow_s: Seconds with less than half of the median, but some transactions.
        zero_s: Seconds without a successful transaction.
    """

    median_tps: float
    p5_tps: float
    p1_tps: float
    slow_s: int
    zero_s: int

    @property
    def words(self) -> str:
        """Return a description; slow seconds and those without a transaction are separate."""
        slow = f", {self.slow_s} s below half the median" if self.slow_s else ""
        none = f", {self.zero_s} s without a transaction" if self.zero_s else ""
        return f"median {self.median_tps:.1f}, p5 {self.p5_tps:.1f}, p1 {self.p1_tps:.1f} tps{slow}{none}"


class GeneratorLoad(Struct, frozen=True, gc=False):
    """Load of pgbench itself, see `metrics.client_bound`.

    Attributes:
        threads: Number of its threads; 0 when they are not known (pgbench on another machine, an old recording).
        cpus: CPUs of the machine of the server's numbers.
        cpu_cores: Mean number of CPUs that pgbench used.
        busiest_cpu: CPU time of its busiest thread, per cent of one core.
        busiest_demand: CPU time and run-queue wait of the thread with the most, per cent; at 100 it never slept.
        client_turn: Share of the load's sessions that waited for pgbench, per cent; None without wait samples.
        lag_ms: Mean schedule lag, with a rate only.
        machine_busy: Busy share of the server's machine, per cent.
        beside: Whether server and pgbench share a machine.
        bound: Whether pgbench was the limit.
        reason: Reason why it was the limit.
        advice: The remedy.
        most_queued: Run-queue wait of the thread with the most, per cent of the time.
    """

    threads: int
    cpus: int | None
    cpu_cores: float | None
    busiest_cpu: float | None
    busiest_demand: float | None
    client_turn: float | None
    lag_ms: float | None
    machine_busy: float | None
    beside: bool
    bound: bool
    reason: str = ""
    advice: str = ""
    most_queued: float | None = None


class HousekeepingStep(Struct, frozen=True, gc=False):
    """A step before a run.

    Attributes:
        name: truncate-history, vacuum, prewarm, checkpoint or quiet.
        seconds: Its duration.
        problem: Reason why it failed; "" when it did not. May hold foreign text.
    """

    name: str
    seconds: float
    problem: str = ""


class ScriptFile(Struct, frozen=True, gc=False):
    """A script of a run.

    Attributes:
        name: File name, or name of pgbench's builtin script.
        weight: Its weight.
        sha256: Hash of its text; "" for a builtin.
        statements: Statements of a transaction, including BEGIN and END; None where the script decides their number.
    """

    name: str
    weight: int
    sha256: str = ""
    statements: int | None = None


class RunFacts(Struct, frozen=True, gc=False):
    """Facts of a run besides its frames.

    Attributes:
        processed, failed, skipped: Counts of pgbench's report; None without one.
        serialization_failures, deadlock_failures: Kinds of the failed ones (pgbench 15 and later).
        logged: Transactions with a latency that were read from the log; None where they were not counted.
        scale: pgbench's scaling factor from its report; None for scripts from files, for which it reports 1.
        builtin: pgbench's own script of the run; "" for scripts from files.
        tables: Tables of its dataset, without schema; empty when not known.
        unlogged: Tables of the dataset that write no WAL.
        direct: Whether the endpoint is the watched server, with nothing in between.
        proven: Whether the load certainly ran on the watched server.
        elsewhere: Whether the load certainly ran on another server.
        housekeeping: Steps before the run.
        warnings: Warnings before the start, such as too many clients.
        lost: Reason why the run was not made under its configuration, or not all the time; "" where it was.
        restarted: Time of a restart of the server between the first run of the series and this one; "" without one.
        unseen: Why a pooler or proxy on the way of the load was not seen, so that its CPU is not known; "" else.
    """

    processed: int | None = None
    failed: int | None = None
    skipped: int | None = None
    serialization_failures: int | None = None
    deadlock_failures: int | None = None
    logged: int | None = None
    scale: int | None = None
    builtin: str = ""
    tables: tuple[str, ...] = ()
    unlogged: tuple[str, ...] = ()
    direct: bool = True
    proven: bool = True
    elsewhere: bool = False
    housekeeping: tuple[HousekeepingStep, ...] = ()
    warnings: tuple[str, ...] = ()
    lost: str = ""
    restarted: str = ""
    unseen: str = ""


class StatementTimes(Struct, frozen=True, gc=False):
    """The server's times of a statement of a load over the run, see `experiment.server_times`.

    Attributes:
        script: Name of its script; "" for the only one.
        text: Its text in pgbench's report. Foreign text.
        calls: Executions, of several scripts together where they share the statement; None where it was not found.
        mean_ms, stddev_ms: Mean and deviation of the execution time on the server; None where it was not found.
        shared: Whether the load has equal statements, which the server counts together.
    """

    script: str
    text: str
    calls: int | None = None
    mean_ms: float | None = None
    stddev_ms: float | None = None
    shared: bool = False


class ServerTimes(Struct, frozen=True, gc=False):
    """Counts of pg_stat_statements for a run's statements; empty where they were not requested.

    Attributes:
        rows: Statements in the order of pgbench's report, without meta-commands.
        problem: Reason why there are none; may hold foreign text.
    """

    rows: tuple[StatementTimes, ...] = ()
    problem: str = ""

    def of(self, script: str, text: str) -> StatementTimes | None:
        """Return the times of a statement; None where the server has none."""
        matching = (row for row in self.rows if (row.script, row.text) == (script, text) and row.calls)
        return next(matching, None)


class LevelResult(Struct, frozen=True, gc=False):
    """Results of a level of a load that changed: a phase, or the time at some clients and rate.

    Attributes:
        name: Number and words of the phase, or clients and rate.
        levels: Clients and rate, of a ramp the first and the last.
        transactions, failed: Successful and failed transactions by the log, those of seams among them; estimated where
            it has a share of them.
        seconds: Seconds that the following figures include: those without a seam.
        tps: Their mean; None without such a second.
        error_tps: Half width of its 95 % interval; None with too few seconds.
        latencies: None where nothing was logged in them.
    """

    name: str
    levels: tuple[LoadLevel, ...]
    transactions: int
    failed: int
    seconds: int
    tps: float | None
    error_tps: float | None
    latencies: LatencySummary | None


class RunResult(Struct, frozen=True, gc=False):
    """Record of one run.

    Attributes:
        endpoint: Name of the endpoint, or host:port of the server.
        profile: Name of the profile; "" when scripts were given.
        configuration: Name of the parameters' values in force; "" for the unchanged server.
        command: Exact command line, without password.
        state: finished, failed, or stopped (with partial results).
        message: pgbench's message when it failed, and the remedy. Foreign text.
        report: pgbench's own report; None where it printed none.
        tps: Throughput of pgbench's report after a successful run; for a partial run the mean of its seconds.
        facts: Facts besides the frames, by which the run was judged.
        host: hostname, kernel, cpus, memory_bytes, set-up, limits of the control group; empty when not known.
        server: version, build, extensions, database, user, started_ms, and changed settings with their sources; empty
            when not known.
        machine: Machine of pgbench, as the operator named it; "" for this one.
        server_times: The server's times of each statement, where pgbench's own (-r) were requested.
    """

    endpoint: str
    profile: str
    spec: LoadSpec
    command: str
    pgbench_version: str
    server_version: str
    state: RunState
    exit_status: int | None
    message: str
    started_ms: int
    ended_ms: int
    open_loop: bool
    sampling_rate: float
    tps: float | None
    latency_average_ms: float | None
    latency_stddev_ms: float | None
    connection_ms: float | None
    processed: int | None
    failed: int | None
    failures: Mapping[str, int]
    scripts: tuple[ScriptFile, ...]
    report: BenchReport | None
    latencies: LatencySummary | None
    by_second: tuple[LatencyOf, ...]
    by_script: tuple[LatencyOf, ...]
    progress: tuple[BenchProgress, ...]
    steady: SteadyState
    spread: ThroughputSpread | None
    generator: GeneratorLoad | None
    doubts: tuple[Doubt, ...]
    facts: RunFacts
    host: Mapping[str, Any] = {}
    server: Mapping[str, Any] = {}
    stdout: str = ""
    stderr: str = ""
    machine: str = ""
    server_times: ServerTimes = ServerTimes()
    configuration: str = ""
    levels: tuple[LevelResult, ...] = ()
    """Results by level, of a load that changed."""
    seams: tuple[Seam, ...] = ()
    """Changes of the load."""
    groups: tuple[ClientGroup, ...] = ()
    """All pgbench processes of the run, of a load that changed or that came from several machines."""
    server_load: MachineLoad = MachineLoad()
    """Load of the server's machine, of a load that came from several machines."""
    outage: OutageResult | None = None
    """Results of a load that went through an outage; None where lost clients were not replaced."""

    @property
    def clients_words(self) -> str:
        """Return the number of clients; of a load that changed, the fewest and the most at work: "8..64"."""
        counts = {level.clients for row in self.levels for level in row.levels if level.clients}
        fewest, most = (min(counts), max(counts)) if counts else (self.spec.clients, self.spec.clients)
        return str(most) if fewest == most else f"{fewest}..{most}"

    @property
    def qps(self) -> float | None:
        """Statements per second, including BEGIN and END; None where a script decides their number itself."""
        counts = [script.statements for script in self.scripts]
        if self.tps is None or not counts or None in counts:
            return None
        done = [] if self.report is None else [script.processed or 0 for script in self.report.scripts]
        if len(done) != len(counts) or not sum(done):
            done = [script.weight for script in self.scripts]
        return (
            self.tps
            * math.fsum((statements or 0) * times for statements, times in zip(counts, done, strict=True))
            / sum(done)
        )

    @property
    def counted(self) -> tuple[tuple[int, str], ...]:
        """Numbers of transactions by outcome, and of tries beyond the first (--max-tries), each with its name."""
        report = self.report or BenchReport()
        endings = ((self.failed, "failed"), (self.facts.skipped, "skipped"))
        kinds = [(number, kind) for kind, number in self.failures.items() if number]
        tries = [
            (number, name) for number, name in ((report.retried, "retried"), (report.retries, "retries")) if number
        ]
        return (
            (self.processed or 0, "done"),
            *((number, name) for number, name in endings if number is not None),
            *kinds,
            *tries,
        )

    @property
    def valid(self) -> bool:
        """Return whether no doubt makes the run invalid."""
        return all(doubt.verdict is not RunVerdict.INVALID for doubt in self.doubts)

    @property
    def partial(self) -> bool:
        """Return whether the run ended early."""
        until_stopped = self.spec.duration_s is None and self.spec.transactions is None and not self.ended_for
        return self.state is not RunState.FINISHED and not (self.state is RunState.STOPPED and until_stopped)

    @property
    def ended_for(self) -> str:
        """Return the doubt for which pgtop-tune ended the run; "" else."""
        invalid = (doubt.id for doubt in self.doubts if doubt.verdict is RunVerdict.INVALID)
        return next((name for name in invalid if name in (ABORTED, OVERLOADED)), "")

    @property
    def log_mark(self) -> str:
        """Return "~" for percentiles and a maximum of only a part of the transactions; else ""."""
        return "~" if any(doubt.id == "LOG-INCOMPLETE" for doubt in self.doubts) else ""

    def mark(self, latencies: LatencySummary, quantile: float) -> str:
        """Return the mark before one percentile of the run or of a part of it."""
        return self.log_mark or estimate_mark(latencies.at(quantile), latencies.counted_below_ms)

    def percentile(self, quantile: float) -> float | None:
        """Return a percentile of the run in ms; None when nothing was logged."""
        return None if self.latencies is None else self.latencies.at(quantile)


def as_json(result: RunResult) -> dict[str, Any]:
    """Return the record for JSON: tps, percentiles, validity and command first, then all other fields."""
    latencies = result.latencies
    validity = {
        "valid": result.valid,
        "partial": result.partial,
        "doubts": [plain(doubt) | {"numbers": dict(doubt.numbers)} for doubt in result.doubts],
    }
    first = {
        "format": FORMAT,
        "tps": result.tps,
        "percentiles": None if latencies is None else _percentiles(latencies),
        "validity": validity,
        "command": plain(result.command),
        "qps": result.qps,
    }
    remaining = plain(result)
    for name in ("latencies", "doubts", "by_second", "by_script", "levels"):
        del remaining[name]
    if remaining["report"] is not None:
        # The record's stdout has its text.
        del remaining["report"]["raw"]
    if result.outage is not None:
        commits = result.outage.commits
        totals = {name: getattr(commits, name) for name in ("missing", "acknowledged", "in_doubt", "unknown_clients")}
        remaining["outage"]["commits"] = totals | remaining["outage"]["commits"]
    remaining["by_second"] = {
        row.part: _percentiles(row.latencies) | {"left_out": row.left_out} for row in result.by_second
    }
    remaining["by_script"] = [{"script": row.part} | _percentiles(row.latencies) for row in result.by_script]
    remaining["levels"] = [
        plain(replace(level, latencies=None)) | {"latencies": level.latencies and _percentiles(level.latencies)}
        for level in result.levels
    ]
    return first | {name: value for name, value in remaining.items() if name not in first}


def _percentiles(latencies: LatencySummary) -> dict[str, Any]:
    quantiles = {
        f"p{quantile:g}_ms": None if value is None else round(value, 3) for quantile, value in latencies.quantiles
    }
    return {
        **quantiles,
        "max_ms": latencies.max_ms,
        "mean_ms": round(latencies.mean_ms, 3),
        "logged": latencies.logged,
        "counted": latencies.counted,
        "counted_below_ms": latencies.counted_below_ms,
        "histogram": " ".join(f"{low_us}:{count}" for low_us, count in latencies.histogram),
    }


def plain(value: Any) -> Any:
    """Convert structs, tuples and mappings for JSON; numbers that JSON lacks become None, and secrets are masked."""
    if isinstance(value, Struct):
        return {name: plain(getattr(value, name)) for name in value.__struct_fields__}
    if isinstance(value, Mapping):
        return {str(key): plain(element) for key, element in value.items()}
    if isinstance(value, list | tuple):
        pair = [plain(element) for element in value]
        if len(value) == 2 and all(isinstance(element, str) for element in value):
            # A variable of a script, or a setting: its name shows whether its value is a secret.
            named = f"{value[0]}={value[1]}"
            return pair if without_secrets(named) == named else [pair[0], MASK]
        return pair
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, StrEnum):
        return str(value)
    return without_secrets(value) if isinstance(value, str) else value
