"""One side of a comparison, read from a window of frames: only the marked frames are read.

Rates, waits and budgets of the first seconds are therefore missing; frames before the window do not supply them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

from msgspec import Struct

from pgtop_tune.compare.sides.figures import disks_by_role, frame_sums, line_sums
from pgtop_tune.compare.sides.fingerprint import FactsSeen
from pgtop_tune.compare.sides.from_recording import CheckpointsSeen, budget_of, load_key, spec_of
from pgtop_tune.compare.sides.material import BUDGET_S, Budget, ComparedRun, Gathered, LoadKey, Material, StatementsSeen
from pgtop_tune.metrics import (
    ceilings,
    checkpoints,
    host,
    host_details,
    io,
    load,
    pooler,
    server,
    statements,
    waits,
)
from pgtop_tune.metrics.catalogue import Interval, Keyed, Metric
from pgtop_tune.metrics.load import ProgressMetric, under_way
from pgtop_tune.model.bench import BenchRun, BenchSample, RunState
from pgtop_tune.model.events import Event
from pgtop_tune.model.frame import Frame
from pgtop_tune.recording.minutes import MinuteLook
from pgtop_tune.runtime.window import Window

# Every number of the catalogue that two windows are compared by, beside the figures of a comparison.

FIGURED: Final = frozenset(
    {load.CLIENT_TPS.id, load.CLIENT_LATENCY.id, load.CLIENT_FAILED.id, server.TPS.id, server.WAL_BYTES.id}
    | {server.CACHE_HIT.id, host.CPU_BUSY.id, host.PSI_IO_SOME.id}
    | {quantile.id for quantile in load.QUANTILES}
)
"""Told by a figure of `compare.sides.figures`, over the whole window."""
PER_TRANSACTION: Final = frozenset(metric.id for metric in waits.METRICS)
"""Told as milliseconds of a transaction where that can be said."""
PASSING: Final = frozenset(
    metric.id
    for metric in (
        *host.PROCESS_METRICS, host.CPU_SPLIT, host.OTHER_PROGRAMS, host_details.PROCESS_RUN_DELAY,
        host_details.BUSIEST_THREAD,
    )
)  # fmt: skip
"""Metrics of processes, which come and go; the split of the CPUs is a sum over them."""
OF_OTHER_TIMES: Final = frozenset(
    metric.id
    for metric in (
        host.LOAD_1M, host.LOAD_5M, host.LOAD_15M, host_details.MINUTES_LEFT, io.SINCE_ARCHIVED, io.WAL_DISK_UNTIL_FULL,
        ceilings.MOST_FLUSHES, ceilings.CEILING_AGE,
        checkpoints.SINCE_CHECKPOINT, checkpoints.FULL_PAGES_SINCE, server.WAL_SINCE_REDO, *load.STALL_METRICS,
        *io.WAL_METRICS,
    )
)  # fmt: skip
"""Means over minutes, times since something, forecasts, what was measured before: told of more than the window."""
OF_FIGURED_DISKS: Final = frozenset({host.DISK_BUSY.id, host.DISK_READ_AWAIT.id, host.DISK_WRITE_AWAIT.id})
"""Told by a figure for the disks of the data and of WAL."""
MOST_KEYS: Final = 64
"""Most keys of a family (cores, disks): a longer table is not read."""

SINGLE: Final[tuple[Metric | ProgressMetric, ...]] = tuple(
    metric
    for metric in (
        *server.METRICS, *waits.METRICS, *checkpoints.METRICS, *io.METRICS, io.WAL_FLUSHES, io.COMMITS_PER_FLUSH,
        ceilings.FLUSHES_USED,
        *statements.METRICS, *host.METRICS, *host_details.METRICS, *host_details.GROUP_METRICS, *host.OWN_METRICS,
    )
    if metric.id not in FIGURED | OF_OTHER_TIMES
)  # fmt: skip
FAMILIES: Final[tuple[Keyed[Any], ...]] = tuple(
    family
    for family in (
        *host.CORE_METRICS, *host.DISK_METRICS, *host.HUGE_PAGE_METRICS, *host_details.KEYED,
        *host_details.NODE_METRICS, *host_details.NETWORK_METRICS, *host_details.SPACE_METRICS, *pooler.METRICS,
    )
    if family.id not in PASSING | OF_OTHER_TIMES
)  # fmt: skip


class Number(Struct, frozen=True):
    """One number of the catalogue.

    Attributes:
        name: The id of the metric, with its key: "host.disk.writes vda". The key is foreign.
        metric: Its row.
    """

    name: str
    metric: Metric | ProgressMetric | Keyed[Any]

    @property
    def title(self) -> str:
        """Name for a reader, from the parts of the id: "disk vda writes". The key is foreign."""
        id, _, key = self.name.partition(" ")
        if id in _TITLES:
            return _TITLES[id]
        area, _, last = id.rpartition(".")
        parts = [_WORDS.get(part, part) for part in last.split("_")]
        return " ".join(part for part in (_AREAS.get(area, area.rpartition(".")[2]), key, *parts) if part)


_AREAS: Final = {
    "server": "", "io.wal": "WAL", "ceiling": "", "host": "", "own": "pgtop-tune", "waits": "sessions in",
    "host.cpu": "CPU", "host.psi": "pressure", "host.io": "I/O", "host.space": "file system", "host.node": "NUMA node",
    "host.huge": "huge pages", "host.huge_pages": "huge pages",
}  # fmt: skip
"""Areas of ids that are not called by their last part."""
_WORDS: Final = {
    "wal": "WAL", "cpu": "CPU", "cpus": "CPUs", "io": "I/O", "oom": "OOM", "lwlock": "LWLock", "ipc": "IPC",
    "arc": "ARC",
}  # fmt: skip
_TITLES: Final = {
    "server.qps": "statements", "server.connects": "new sessions", "server.temp_bytes": "temporary files",
    "server.active": "active sessions", "server.idle_in_transaction": "sessions idle in transaction",
    "server.blocked": "blocked sessions", "waits.active": "active sessions, mean",
    "waits.turn": "sessions in client think/network", "waits.background": "background processes at work",
    "waits.io_workers": "I/O workers busy", "server.statement_load": "sessions kept busy by statements",
    "server.statements_filled": "entries of pg_stat_statements", "ceiling.wal_flushes_used": "WAL flushes of the limit",
    "host.cpu.foreign": "CPU of other programs",
}  # fmt: skip
"""Numbers whose ids say too little."""


def every_number(interval: Interval) -> Iterator[tuple[Number, float]]:
    """Yield all that can be said of the newest frame."""
    for metric in SINGLE:
        value = metric(interval)
        if value is not None:
            yield Number(metric.id, metric), value
    figured = set(disks_by_role(interval).values())
    for family in FAMILIES:
        for key, value in list(family(interval).items())[:MOST_KEYS]:
            if family.id in OF_FIGURED_DISKS and key in figured:
                continue
            yield Number(f"{family.id} {key}", family), value


LATE_S: Final = 5.0
"""Seconds of the transaction log come so much later than they were."""
LEAST_FRAMES: Final = 2
_PAST: Final = 130
_MOST_EVENTS: Final = 2_000


class WindowSide(Struct, frozen=True):
    """A window as it was read.

    Attributes:
        material: With one run: the window, whatever ran in it.
        numbers: Numbers of the catalogue that are in the run's `gathered`, by name.
        moving: Names of those that were not the same all the time.
        loads: Runs of pgbench that were under way in it.
        since_s: Moment of its first frame: later than asked for where no more was kept.
    """

    material: Material
    numbers: dict[str, Number]
    moving: frozenset[str]
    loads: tuple[BenchRun, ...]
    since_s: float

    @property
    def run(self) -> ComparedRun:
        return self.material.runs[0]


def read_window(
    frames: Iterable[Frame], window: Window, name: str, given_up: Callable[[], bool] | None = None
) -> WindowSide | None:
    """Read a window as `read_looks` does, from frames that each stand for themselves."""
    return read_looks(map(MinuteLook, frames), window, name, given_up)


def read_looks(
    looks: Iterable[MinuteLook], window: Window, name: str, given_up: Callable[[], bool] | None = None
) -> WindowSide | None:
    """Read a window.

    Args:
        looks: Those of the window and, for what arrives late, of `LATE_S` after it; others do no harm. Oldest first.
        name: Name of the side.
        given_up: Asked at each of them; the rest is not read when it says so.

    Returns:
        None without two frames in it, and when it was given up.
    """
    reading = _WindowReading(window)
    for look in looks:
        if given_up is not None and given_up():
            return None
        frame = look.frame
        if frame.elapsed_s > window.until_s + LATE_S:
            break
        if frame.elapsed_s > window.until_s:
            reading.take_late(frame)
        elif frame.elapsed_s >= window.since_s:
            reading.take(frame, look.folded)
    return reading.finished(name)


class _WindowReading:
    """The window so far; moments are told from its first frame."""

    def __init__(self, window: Window) -> None:
        self._window = window
        self._gathered = Gathered()
        self._facts = FactsSeen()
        self._statements = StatementsSeen()
        self._past: list[Frame] = []
        self._first: Frame | None = None
        self._last: Frame | None = None
        self._events: list[Event] = []
        self._numbers: dict[str, Number] = {}
        self._firsts: dict[str, float] = {}
        self._moving: set[str] = set()
        self._loads: dict[int, BenchRun] = {}
        self._run_before: int | None = None
        self._progress_s: dict[int, float] = {}
        self._checkpoints = CheckpointsSeen()
        self._budgets: list[Budget] = []
        self._due_s = BUDGET_S

    def take(self, frame: Frame, folded: int) -> None:
        """Take the next frame, which stands for so many before it."""
        before, self._last = self._last, frame
        self._past.append(frame)
        if len(self._past) > 2 * _PAST:
            del self._past[:-_PAST]
        self._facts.take(frame)
        self._statements.take(frame, folded)
        if self._first is None or before is None:
            self._first = frame
            self._run_before = frame.bench.run.run if isinstance(frame.bench, BenchSample) else None
            self._take_load(frame, None)
            return
        if len(self._events) < _MOST_EVENTS:
            self._events.extend(frame.events)
        interval, seconds = Interval(self._past), frame.elapsed_s - before.elapsed_s
        at_s = frame.elapsed_s - self._first.elapsed_s - seconds / 2
        if folded:
            self._gathered.widen(seconds)
        loaded = under_way(frame) is not None
        for figure, part, divisor in frame_sums(interval, seconds, loaded=loaded):
            self._gathered.add(figure, at_s, part, divisor)
        for number, value in every_number(interval):
            self._take_number(number, value, at_s, seconds)
        self._take_load(frame, at_s)
        self.take_late(frame)
        self._checkpoints.take(interval, frame.elapsed_s - self._first.elapsed_s)
        if frame.elapsed_s - self._first.elapsed_s >= self._due_s:
            self._due_s = frame.elapsed_s - self._first.elapsed_s + BUDGET_S
            budget = budget_of(
                interval, frame.elapsed_s - self._first.elapsed_s, seconds if folded else None, loaded=loaded
            )
            self._budgets += [] if budget is None else [budget]

    def _take_number(self, number: Number, value: float, at_s: float, seconds: float) -> None:
        self._gathered.add(number.name, at_s, value * seconds, seconds)
        if number.name not in self._numbers:
            self._numbers[number.name] = number
            self._firsts[number.name] = value
        elif value != self._firsts[number.name]:
            self._moving.add(number.name)

    def _take_load(self, frame: Frame, at_s: float | None) -> None:
        """Take progress lines; those of the first frame belong to the time before it."""
        bench = frame.bench
        if not isinstance(bench, BenchSample):
            return
        run = bench.run
        if run.state in (RunState.STARTING, RunState.RUNNING):
            self._loads[run.run] = run
        for line in bench.progress:
            # Of a run that was there when the window began, the first line may be of a longer time.
            before_s = self._progress_s.get(run.run, None if run.run == self._run_before else 0.0)
            self._progress_s[run.run] = line.elapsed_s
            if before_s is None or at_s is None or line.elapsed_s <= before_s:
                continue
            seconds = line.elapsed_s - before_s
            for figure, part, divisor in line_sums(line, seconds):
                self._gathered.add(figure, at_s, part, divisor)

    def take_late(self, frame: Frame) -> None:
        """Take seconds of the transaction log that lie in the window, whenever they came."""
        first, last = self._first, self._last
        if first is None or last is None or not isinstance(frame.bench, BenchSample):
            return
        length_s = last.elapsed_s - first.elapsed_s
        for second in frame.bench.latencies:
            at_s = second.second - first.taken_at_ms / 1000.0
            if second.logged and not second.left_out and -0.5 <= at_s < length_s:
                self._gathered.add_latencies(at_s, second)

    def finished(self, name: str) -> WindowSide | None:
        first, last = self._first, self._last
        if first is None or last is None or last is first:
            return None
        loads = tuple(self._loads.values())
        run = ComparedRun(
            began_ms=first.taken_at_ms,
            key=load_key(loads[0]) if loads else LoadKey(),
            gathered=self._gathered,
            seconds=last.elapsed_s - first.elapsed_s,
            checkpoints_s=self._checkpoints.began_s,
            budgets=self._budgets,
            spec=spec_of(loads[0]) if loads else None,
            statements=self._statements,
        )
        material = Material(
            name=name,
            began_ms=first.taken_at_ms,
            seconds=run.seconds,
            runs=(run,),
            facts=self._facts.facts((run,)),
            events=tuple(self._events),
        )
        return WindowSide(
            material=material,
            numbers=self._numbers,
            moving=frozenset(self._moving),
            loads=loads,
            since_s=first.elapsed_s,
        )
