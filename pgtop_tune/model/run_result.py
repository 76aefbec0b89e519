"""The record of a run: its load, its results, and the doubts about them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Final

from msgspec import Struct, field

from pgtop_tune.base.secret import MASK, without_secrets
from pgtop_tune.model.bench import BenchProgress, BenchReport, LoadSpec, RunState, estimate_mark

FORMAT: Final = "pgtop-tune-run/1"
INIT_FORMAT: Final = "pgtop-tune-init/1"
"""Of what `bench init --format json` writes."""


class RunVerdict(StrEnum):
    """How much a doubt takes from a result. The words stand in records."""

    INVALID = "invalid"
    """The figures do not count."""
    SUSPECT = "suspect"
    """They may say something else than what was asked."""
    NOTE = "note"
    """To be known when they are compared."""


class Doubt(Struct, frozen=True, gc=False):
    """One reason to trust a result less.

    Attributes:
        id: Stable name: "CLIENT-BOUND".
        reason: What was seen, with its numbers, one sentence. May hold foreign text.
        advice: What to do about it; "" when there is nothing to do.
        numbers: What the sentence is made of, by name with unit.
    """

    id: str
    verdict: RunVerdict
    reason: str
    advice: str = ""
    numbers: tuple[tuple[str, float], ...] = ()


class LatencySummary(Struct, frozen=True, gc=False):
    """Latencies of logged transactions, in milliseconds.

    Attributes:
        logged: How many were logged; fewer than were run where the log is sampled.
        quantiles: (per cent, ms): 50, 95, 99, 99.9, 99.99; None where too few were logged for it.
        histogram: (lowest µs of a bucket, count), ascending; `metrics.percentiles` defines the buckets.
        counted, counted_below_ms: As in `model.bench.LatencySecond`.
    """

    logged: int
    mean_ms: float
    max_ms: float
    quantiles: tuple[tuple[float, float | None], ...]
    histogram: tuple[tuple[int, int], ...] = ()
    counted: int = 0
    counted_below_ms: float = 0.0

    def at(self, quantile: float) -> float | None:
        """One of the percentiles that were computed; None for others, and where too few were logged for it."""
        return dict(self.quantiles).get(quantile)


class LatencyOf(Struct, frozen=True, gc=False):
    """Latencies of a part of the run.

    Attributes:
        part: A second since the epoch, or the name of a script.
    """

    part: str
    latencies: LatencySummary


class SteadyState(Struct, frozen=True, gc=False):
    """Whether throughput settled, and what it was from then on. See `metrics.steady_state`.

    Attributes:
        steady: None when the run was too short to say.
        warm_up_s: Cut off from the beginning; None when it did not settle.
        tps: Mean of the seconds after the warm-up (of all of them when it did not settle).
        error_tps: Half width of its 95 % interval; None with too few seconds.
        drift: Difference of the medians of the two halves behind the warm-up, as a share of the median.
        reason: One sentence.
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
        p5_tps, p1_tps: One second in 20, one in 100 was slower.
        slow_s: Seconds with less than half of the median, but some transactions.
        zero_s: Seconds in which no transaction ended well.
    """

    median_tps: float
    p5_tps: float
    p1_tps: float
    slow_s: int
    zero_s: int

    @property
    def words(self) -> str:
        """For people; slow seconds and those without a transaction are two things."""
        slow = f", {self.slow_s} s below half the median" if self.slow_s else ""
        none = f", {self.zero_s} s without a transaction" if self.zero_s else ""
        return f"median {self.median_tps:.1f}, p5 {self.p5_tps:.1f}, p1 {self.p1_tps:.1f} tps{slow}{none}"


class GeneratorLoad(Struct, frozen=True, gc=False):
    """How busy pgbench itself was. See `metrics.client_bound`.

    Attributes:
        threads: Threads seen; 0 when they are not known (pgbench on another machine, a recording of old).
        cpus: Of the machine the server's numbers are from.
        cpu_cores: CPUs pgbench used, mean.
        busiest_cpu: CPU of its busiest thread, per cent of one core.
        busiest_demand: CPU and waiting for a CPU of the thread that wanted most, per cent; at 100 it never slept.
        client_turn: Share of the load's sessions for which it was pgbench's turn, per cent; None without wait samples.
        lag_ms: Mean schedule lag, with a rate only.
        machine_busy: CPUs of the server's machine that were not idle, per cent.
        beside: Server and pgbench share a machine.
        bound: Whether pgbench was the limit.
        most_queued: Waiting for a CPU of the thread that waited most, per cent of the time.
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
    """One thing done before a run.

    Attributes:
        name: truncate-history, vacuum, prewarm, checkpoint or quiet.
        problem: Why it was not done, "" when it was. May hold foreign text.
    """

    name: str
    seconds: float
    problem: str = ""


class ScriptFile(Struct, frozen=True, gc=False):
    """A script that was run.

    Attributes:
        name: File name, or that of pgbench's builtin script.
        sha256: Of its text; "" for a builtin.
        statements: It sends in a transaction, BEGIN and END among them; None where it decides that itself.
    """

    name: str
    weight: int
    sha256: str = ""
    statements: int | None = None


class RunFacts(Struct, frozen=True, gc=False):
    """What is known of a run besides its frames.

    Attributes:
        processed, failed, skipped: Of pgbench's report; None without one.
        serialization_failures, deadlock_failures: Those among the failed (pgbench 15 and later).
        logged: Transactions with a latency that were read from the log; None where nobody counted.
        scale: pgbench's scaling factor, as its report says; None for scripts from files, of which it says 1.
        builtin: pgbench's own script that was run; "" for scripts from files.
        tables: Of its dataset, without schema; empty when not known.
        unlogged: Those of them that write no WAL.
        direct: The endpoint is the server that is watched, nothing stands in between.
        proven: It is certain that the load ran on the server that is watched.
        elsewhere: It is certain that it did not.
        warnings: What was said before the start: clients that will not find room.
        lost: Why the run was not made under its configuration, or not throughout; "" where it was.
        restarted: When the server was started between the first run of the series and this one; "" where it was not.
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


class StatementTimes(Struct, frozen=True, gc=False):
    """A statement of a load as the server timed it over the run. See `experiment.server_times`.

    Attributes:
        script: Its name; "" where there is only one.
        text: As in pgbench's report. Foreign text.
        calls: Executions, of several scripts together where they have the same statement; None where it was not found.
        mean_ms, stddev_ms: Of the time of execution on the server; None where it was not found.
        shared: The load has equal statements: the server counts them together, and the figures are of all of them.
    """

    script: str
    text: str
    calls: int | None = None
    mean_ms: float | None = None
    stddev_ms: float | None = None
    shared: bool = False


class ServerTimes(Struct, frozen=True, gc=False):
    """What pg_stat_statements counted of a run's statements; nothing where that was not asked for.

    Attributes:
        rows: In the order of pgbench's report, without meta-commands.
        problem: Why there are none; may hold foreign text.
    """

    rows: tuple[StatementTimes, ...] = ()
    problem: str = ""

    def of(self, script: str, text: str) -> StatementTimes | None:
        """One of them, where the server timed it."""
        matching = (row for row in self.rows if (row.script, row.text) == (script, text) and row.calls)
        return next(matching, None)


class RunResult(Struct, frozen=True, gc=False):
    """One run.

    Attributes:
        endpoint: Name of the endpoint, or host:port of the server.
        profile: Name of the profile; "" when scripts were given.
        configuration: Name of the parameters' values that were in force; "" for the server as it was.
        command: Exact command line, without password.
        state: finished, failed, or stopped (what there is counts as partial).
        message: pgbench's own words when it failed, and what to do. Foreign text.
        report: pgbench's own; None where it printed none.
        tps: Of pgbench's report when it ended well; of a partial run the mean of its seconds.
        facts: What the run was judged by besides its frames.
        host: hostname, kernel, cpus, memory_bytes, how it is set up, limits of the control group; empty when not known.
        server: version, build, extensions, database, user, started_ms, and the settings that were set, with what set
            them; empty when not known.
        machine: Where pgbench ran, as it was named; "" beside us.
        server_times: Of each statement on the server, where pgbench's own (-r) were asked for.
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
    host: Mapping[str, Any] = field(default_factory=dict)
    server: Mapping[str, Any] = field(default_factory=dict)
    stdout: str = ""
    stderr: str = ""
    machine: str = ""
    server_times: ServerTimes = ServerTimes()
    configuration: str = ""

    @property
    def qps(self) -> float | None:
        """Statements per second, BEGIN and END among them; None where a script decides itself how many it sends."""
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
        """Transactions by how they ended, and tries beyond the first (--max-tries), each with its name."""
        report = self.report or BenchReport()
        endings = ((self.failed, "failed"), (self.facts.skipped, "skipped"))
        kinds = [(number, kind) for kind, number in self.failures.items() if number]
        tries = [
            (number, name) for number, name in ((report.retried, "tried again"), (report.retries, "retries")) if number
        ]
        return (
            (self.processed or 0, "done"),
            *((number, name) for number, name in endings if number is not None),
            *kinds,
            *tries,
        )

    @property
    def valid(self) -> bool:
        """Whether no doubt takes the figures away altogether."""
        return all(doubt.verdict is not RunVerdict.INVALID for doubt in self.doubts)

    @property
    def partial(self) -> bool:
        """Whether it ended before its time."""
        until_stopped = self.spec.duration_s is None and self.spec.transactions is None
        return self.state is not RunState.FINISHED and not (self.state is RunState.STOPPED and until_stopped)

    @property
    def log_mark(self) -> str:
        """Stands before percentiles that are of a part of the transactions, and before their maximum; else ""."""
        return "~" if any(doubt.id == "LOG-INCOMPLETE" for doubt in self.doubts) else ""

    def mark(self, latencies: LatencySummary, quantile: float) -> str:
        """Stands before one percentile of the run or of a part of it."""
        return self.log_mark or estimate_mark(latencies.at(quantile), latencies.counted_below_ms)

    def percentile(self, quantile: float) -> float | None:
        """A percentile of the run in ms; None when nothing was logged."""
        return None if self.latencies is None else self.latencies.at(quantile)


def as_json(result: RunResult) -> dict[str, Any]:
    """The record as JSON has it: tps, percentiles, validity and command first, then everything else."""
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
    for name in ("latencies", "doubts", "by_second", "by_script"):
        del remaining[name]
    if remaining["report"] is not None:
        # Its text is in stdout.
        del remaining["report"]["raw"]
    remaining["by_second"] = {row.part: _percentiles(row.latencies) for row in result.by_second}
    remaining["by_script"] = [{"script": row.part} | _percentiles(row.latencies) for row in result.by_script]
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
    """Structs, tuples and mappings as JSON's objects and arrays; numbers JSON does not have as null; no secrets."""
    if isinstance(value, Struct):
        return {name: plain(getattr(value, name)) for name in value.__struct_fields__}
    if isinstance(value, Mapping):
        return {str(key): plain(element) for key, element in value.items()}
    if isinstance(value, list | tuple):
        pair = [plain(element) for element in value]
        if len(value) == 2 and all(isinstance(element, str) for element in value):
            # A variable of a script, or a setting: its name tells whether its value is a secret.
            named = f"{value[0]}={value[1]}"
            return pair if without_secrets(named) == named else [pair[0], MASK]
        return pair
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, StrEnum):
        return str(value)
    return without_secrets(value) if isinstance(value, str) else value
