"""The figures of a comparison, each read from two frames as numerator and denominator; and the waits."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from math import ceil
from statistics import fmean
from typing import Final

from msgspec import Struct

from pgtop_tune.compare.sides.material import BUDGET_S, Budget, Gathered, Runs
from pgtop_tune.compare.statistics.before_after import mean_variance
from pgtop_tune.compare.statistics.effect import (
    TIMES,
    Effect,
    autocorrelation_time,
    run_noise,
    runs_effect,
    share_effect,
)
from pgtop_tune.metrics import host, sections, server
from pgtop_tune.metrics.catalogue import Interval, Keyed, Metric
from pgtop_tune.metrics.load import CLIENT_TPS, P50, P95, P99, Quantile
from pgtop_tune.metrics.steady_state import FEWEST_S, steady_state
from pgtop_tune.model.absence import Unavailable
from pgtop_tune.model.bench import BenchProgress
from pgtop_tune.model.waits import CLIENT, CPU, QUEUE

_A_LINE_S: Final = 2.5
"""As long as the newest progress line speaks for all that was done since the frame before."""
TPS: Final = "tps"
LATENCY: Final = "latency"
FAILED: Final = "failed"


class Better(StrEnum):
    """The direction in which a figure improves."""

    HIGHER = "higher"
    LOWER = "lower"
    NEITHER = "neither"
    """It explains, and is no aim by itself."""


class Figure(Struct, frozen=True):
    """One line of a comparison.

    Attributes:
        id: As --fail-if has it.
        unit: "1/s", "ms", "bytes/s", "%", "bytes".
        source: What it is made of.
        quantile: Of latencies, for such a figure.
        points: Of a figure in per cent, the change in percentage points that counts as much as doubling does of
            others; None where changes are ratios.
    """

    id: str
    title: str
    unit: str
    better: Better
    source: str
    quantile: Quantile | None = None
    points: float | None = None


FIGURES: Final = (
    Figure(TPS, "tps", "1/s", Better.HIGHER, "tps of pgbench's progress lines"),
    Figure(
        "server_tps",
        "tps of the server",
        "1/s",
        Better.HIGHER,
        "Δ(xact_commit + xact_rollback) of pg_stat_database ÷ Δt; without a load started by pgtop-tune",
    ),
    Figure("p50", "latency p50", "ms", Better.LOWER, "pgbench's transaction log", P50),
    Figure("p95", "latency p95", "ms", Better.LOWER, "pgbench's transaction log", P95),
    Figure("p99", "latency p99", "ms", Better.LOWER, "pgbench's transaction log", P99),
    Figure(LATENCY, "latency mean", "ms", Better.LOWER, "lat of pgbench's progress lines, by transactions"),
    Figure(FAILED, "failed", "%", Better.LOWER, "failed of pgbench's progress lines ÷ all transactions", points=10.0),
    Figure("cpu_per_tx", "CPU per transaction", "ms", Better.LOWER, "busy time of all CPUs ÷ transactions"),
    Figure("wal_per_tx", "WAL per transaction", "bytes", Better.LOWER, "Δ pg_current_wal_insert_lsn() ÷ transactions"),
    Figure("wal", "WAL", "bytes/s", Better.NEITHER, "Δ pg_current_wal_insert_lsn() ÷ Δt"),
    Figure(
        "cpu",
        "CPU busy",
        "%",
        Better.NEITHER,
        "/proc/stat: not idle and not waiting for I/O, all cores are 100",
        points=100.0,
    ),
    Figure(
        "cache_hit",
        "buffer hits",
        "%",
        Better.NEITHER,
        "blks_hit ÷ (blks_hit + blks_read) of pg_stat_database",
        points=100.0,
    ),
    Figure("psi_io", "I/O pressure", "%", Better.LOWER, "/proc/pressure/io some: Δ total ÷ Δt", points=100.0),
    Figure(
        "disk_busy",
        "disk busy",
        "%",
        Better.NEITHER,
        "Δ io_ticks of /proc/diskstats ÷ Δt, of the data's disk",
        points=100.0,
    ),
    Figure("read_await", "read await", "ms", Better.LOWER, "/proc/diskstats: Δ ms reading ÷ Δ reads"),
    Figure("write_await", "write await", "ms", Better.LOWER, "/proc/diskstats: Δ ms writing ÷ Δ writes"),
    Figure(
        "wal_disk_busy",
        "WAL disk busy",
        "%",
        Better.NEITHER,
        "as disk busy, if WAL has a separate disk",
        points=100.0,
    ),
    Figure("wal_write_await", "WAL write await", "ms", Better.LOWER, "as write await, if WAL has a separate disk"),
)
"""Figures, in the order of the table."""
PERCENTILES: Final = tuple(figure for figure in FIGURES if figure.quantile is not None)
FORESEEN: Final = frozenset({TPS, "server_tps", LATENCY})
"""Figures whose difference from run to run is known beforehand."""
BY_ID: Final = {figure.id: figure for figure in FIGURES}

Found = Iterator[tuple[str, float, float]]


def frame_sums(interval: Interval, seconds: float, *, loaded: bool) -> Found:
    """Yield (figure, dividend, divisor) of the newest frame.

    Args:
        interval: Frames up to it.
        seconds: Since the frame before.
        loaded: Whether it is of a run of ours, whose transactions are those that count.
    """
    for figure, metric, scale in _PER_TIME:
        value = metric(interval)
        if value is not None:
            yield figure, value * scale * seconds, seconds
    yield from _per_transaction(interval, seconds, loaded)
    yield from _of_disks(interval, seconds)


def line_sums(line: BenchProgress, seconds: float) -> tuple[tuple[str, float, float], ...]:
    """Return the sums of a progress line of pgbench, as `frame_sums` does; none of a line that no figure includes."""
    if line.left_out:
        return ()
    done = line.tps * seconds
    return (
        (TPS, done, seconds),
        (LATENCY, line.latency_ms * done, done),
        (FAILED, 100.0 * line.failed, done + line.failed),
    )


def settling(gathered: Gathered) -> tuple[float, bool | None, str]:
    """Return seconds of warm-up, whether throughput settled, and why; unknown (0, None, "") where a run is short."""
    steps = [part / seconds for part, seconds in gathered.sums(TPS)]
    if len(steps) < FEWEST_S:
        return 0.0, None, ""
    steady = steady_state(steps)
    return (steady.warm_up_s or 0.0) * gathered.step_s, steady.steady, steady.reason


_PER_TIME: Final[tuple[tuple[str, Metric, float], ...]] = (
    ("wal", server.WAL_BYTES, 1.0),
    ("cpu", host.CPU_BUSY, 1.0),
    ("cache_hit", server.CACHE_HIT, 1.0),
    ("psi_io", host.PSI_IO_SOME, 1.0),
)


def _per_transaction(interval: Interval, seconds: float, loaded: bool) -> Found:
    tps = _client_tps(interval, seconds) if loaded else server.TPS(interval)
    if not loaded and tps is not None:
        yield "server_tps", tps * seconds, seconds
    if not tps:
        return
    wal, busy, cpu = server.WAL_BYTES(interval), host.CPU_BUSY(interval), interval.now(sections.cpu)
    if wal is not None:
        yield "wal_per_tx", wal * seconds, tps * seconds
    if busy is not None and cpu is not None and cpu.cores:
        yield "cpu_per_tx", busy / 100.0 * len(cpu.cores) * 1000.0 * seconds, tps * seconds


def _client_tps(interval: Interval, seconds: float) -> float | None:
    """Return the tps of the newest line; over a minute the mean of its lines."""
    return CLIENT_TPS(interval) if seconds < _A_LINE_S else CLIENT_TPS.mean(interval, seconds / 2)


class _OfDisk(Struct, frozen=True):
    """A figure of the disk that holds something.

    Attributes:
        weight: How many of them there were per second; None where time is what counts.
    """

    figure: str
    role: str
    value: Keyed[str]
    weight: Keyed[str] | None = None


_OF_DISKS: Final = (
    _OfDisk("disk_busy", "data", host.DISK_BUSY),
    _OfDisk("read_await", "data", host.DISK_READ_AWAIT, host.DISK_READS),
    _OfDisk("write_await", "data", host.DISK_WRITE_AWAIT, host.DISK_WRITES),
    _OfDisk("wal_disk_busy", "wal", host.DISK_BUSY),
    _OfDisk("wal_write_await", "wal", host.DISK_WRITE_AWAIT, host.DISK_WRITES),
)


def _of_disks(interval: Interval, seconds: float) -> Found:
    names = disks_by_role(interval)
    values_by_metric: dict[str, Mapping[str, float]] = {}
    for row in _OF_DISKS:
        name = names.get(row.role)
        if name is None:
            continue
        value = _once(values_by_metric, row.value, interval).get(name)
        weight = 1.0 if row.weight is None else _once(values_by_metric, row.weight, interval).get(name, 0.0)
        if value is not None and weight:
            yield row.figure, value * weight * seconds, weight * seconds


def _once(
    values_by_metric: dict[str, Mapping[str, float]], metric: Keyed[str], interval: Interval
) -> Mapping[str, float]:
    if metric.id not in values_by_metric:
        values_by_metric[metric.id] = metric(interval)
    return values_by_metric[metric.id]


def disks_by_role(interval: Interval) -> dict[str, str]:
    """Return the disk with the data, and the one with WAL where it is another.

    The device that a directory is on, or one below it; where no role is known and there is one disk only, that one.
    """
    sample = sections.disks(interval.newest)
    if isinstance(sample, Unavailable):
        return {}
    names = {role: disk.name for disk in reversed(sample.disks) for role in disk.roles if role in ("data", "wal")}
    plain = [disk.name for disk in sample.disks if not disk.stacked]
    if not names and len(plain) == 1:
        names["data"] = plain[0]
    if names.get("wal") == names.get("data"):
        names.pop("wal", None)
    return names


# Where the time of a transaction goes, side by side: milliseconds of each wait, and of each class of waits.

LEAST_SHARE: Final = 0.005
"""Waits with less than this share of the quicker side's time on both sides are left out."""
NOT_TOLD: Final = "not known"
"""Text in place of a verdict about the CPU queue, which the kernel of one side does not tell."""
WITH_QUEUE: Final = "queue included"
"""Text in place of a verdict about the classes that hold the CPU queue of such a side."""
_WITH_QUEUE: Final = (CPU, CLIENT)


def sides_without_queue(a: Runs, b: Runs) -> tuple[str, ...]:
    """Return the one of "A" and "B" that does not tell the CPU queue; none where both are alike in that."""
    untold = [name for name, runs in (("A", a), ("B", b)) if not any(budget.queue_told for budget in _budgets(runs))]
    return tuple(untold) if len(untold) == 1 else ()


class WaitRow(Struct, frozen=True):
    """Milliseconds per transaction.

    Attributes:
        label: "IO:WALSync"; of a class its name.
        whole_class: Whether this is the sum of a class.
        a_ms, b_ms: None where that side does not tell this wait.
        effect: Of it as a share of A's latency; with interval for classes.
        verdict: "" for a single wait, and until it is judged beside the other figures; `NOT_TOLD` or `WITH_QUEUE` where
            it is not judged.
    """

    label: str
    wait_event_type: str
    whole_class: bool
    a_ms: float | None
    b_ms: float | None
    effect: Effect | None
    verdict: str = ""

    @property
    def change_ms(self) -> float | None:
        """Return the milliseconds more in B; None where a side does not tell them."""
        return None if self.a_ms is None or self.b_ms is None else self.b_ms - self.a_ms


def wait_rows(
    a: Runs,
    b: Runs,
    latency_ms: tuple[float | None, float | None],
    *,
    windows: bool = False,
) -> tuple[WaitRow, ...]:
    """Return classes, largest change first, each followed by its waits; empty where a side has no samples.

    Args:
        latency_ms: Of A and B; without a load of ours the sum of all waits stands for it.
        windows: Both are parts of runs, judged by blocks of seconds; else each run is one value.
    """
    sides = (_budgets(a), _budgets(b))
    if not all(sides):
        return ()
    means = [_ms(side) for side in sides]
    latency = latency_ms[0] or sum(means[0].values())
    if latency <= 0:
        return ()
    # What is nothing in a transaction of 20 s may be all of one of 2 ms.
    least = LEAST_SHARE * min(sum(mean.values()) for mean in means)
    classes = {label: kind for side in sides for budget in side for label, kind in budget.classes.items()}
    untold = sides_without_queue(a, b)
    rows: list[WaitRow] = []
    for kind in dict.fromkeys(classes.values()):
        labels = [label for label, of in classes.items() if of == kind]
        verdict = "" if not untold else NOT_TOLD if kind == QUEUE else WITH_QUEUE if kind in _WITH_QUEUE else ""
        effect = None if verdict else _effect((a, b), sides, labels, latency, windows=windows)
        sums = [sum(mean[label] for label in labels) for mean in means]
        if max(sums) < least:
            continue
        rows.append(
            WaitRow(
                label=kind,
                wait_event_type=kind,
                whole_class=True,
                a_ms=None if verdict == NOT_TOLD and "A" in untold else sums[0],
                b_ms=None if verdict == NOT_TOLD and "B" in untold else sums[1],
                effect=effect,
                verdict=verdict,
            )
        )
        rows += [
            WaitRow(
                label=label,
                wait_event_type=kind,
                whole_class=False,
                a_ms=means[0][label],
                b_ms=means[1][label],
                effect=None,
            )
            for label in labels
            if label != kind and max(mean[label] for mean in means) >= least
        ]
    heads = {row.wait_event_type: abs(row.change_ms or 0.0) for row in rows if row.whole_class}
    return tuple(
        sorted(
            rows,
            key=lambda row: (
                -heads[row.wait_event_type], row.wait_event_type, not row.whole_class,
                -max(row.a_ms or 0.0, row.b_ms or 0.0),
            ),
        )
    )  # fmt: skip


def _effect(
    runs: tuple[Runs, Runs],
    budgets: tuple[Sequence[Budget], Sequence[Budget]],
    labels: Sequence[str],
    latency: float,
    *,
    windows: bool,
) -> Effect | None:
    """Return the effect of a class of waits as a share of the latency."""
    if windows:
        return share_effect(_class_blocks(budgets[0], labels), _class_blocks(budgets[1], labels), latency)
    run_budgets = [[budgets_of_run for run in side if (budgets_of_run := _budgets((run,)))] for side in runs]
    values_a, values_b = (
        [sum(_ms(budgets_of_run)[label] for label in labels) / latency for budgets_of_run in side]
        for side in run_budgets
    )
    within = (
        fmean(mean_variance(_class_values(budgets_of_run, labels)) for side in run_budgets for budgets_of_run in side)
        / latency**2
    )
    a, b = (sum(_ms(side)[label] for label in labels) / latency for side in budgets)
    return runs_effect(
        values_a, values_b, run_noise(values_a, values_b, within, foreseen=False), ratio=False, change=b - a
    )


def _budgets(runs: Runs) -> list[Budget]:
    """Return the budgets behind the warm-ups."""
    return [
        budget
        for run in runs
        for budget in run.budgets
        if budget.transactions > 0 and (not run.warm_up_s or budget.at_s - BUDGET_S >= run.warm_up_s)
    ]


def _ms(budgets: Sequence[Budget]) -> defaultdict[str, float]:
    """Return milliseconds per transaction, by label."""
    transactions = sum(budget.transactions for budget in budgets)
    total: defaultdict[str, float] = defaultdict(float)
    for budget in budgets:
        for label, ms in budget.ms.items():
            total[label] += ms / transactions
    return total


def _class_values(budgets: Sequence[Budget], labels: Sequence[str]) -> list[float]:
    return [sum(budget.ms.get(label, 0.0) for label in labels) / budget.transactions for budget in budgets]


def _class_blocks(budgets: Sequence[Budget], labels: Sequence[str]) -> list[float]:
    """Return ms per transaction in blocks of ten seconds, or of more where neighbours are correlated."""
    values = _class_values(budgets, labels)
    time = autocorrelation_time(values)
    length = ceil(TIMES * time) if time > 1.5 else 1
    return [fmean(values[at : at + length]) for at in range(len(values) % length, len(values), length)]
