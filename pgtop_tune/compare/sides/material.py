"""One side of a comparison: its runs, measurements, environment and events."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from functools import partial
from typing import Final

from msgspec import Struct, field

from pgtop_tune.base import units
from pgtop_tune.metrics import sections
from pgtop_tune.metrics.growth import growth
from pgtop_tune.metrics.load import Quantile
from pgtop_tune.metrics.percentiles import Histogram, Merged, ascending
from pgtop_tune.metrics.run_validity import why_no_reference
from pgtop_tune.model.absence import Unavailable
from pgtop_tune.model.bench import LoadSpec
from pgtop_tune.model.events import Event
from pgtop_tune.model.frame import Frame
from pgtop_tune.model.outage import OutageResult
from pgtop_tune.model.postgres import StatementTotals
from pgtop_tune.model.run_result import Doubt
from pgtop_tune.model.statements import OWN_MARK, StatementCounters, StatementSample

# A run's figures, second by second, kept as sums: added up, they give the true figure of a block, no mean of means.

MOST_STEPS: Final = 4096
"""Most steps that are kept; beyond, neighbours are added up, so that a day costs no more memory than an hour."""
Sums = tuple[float, float]
"""Dividend and divisor of a figure: transactions and seconds, milliseconds and requests."""


class LatencySums:
    """Histograms added up."""

    __slots__ = ("_counts", "_logged", "_max_us", "_merged", "_sum_us")

    def __init__(self) -> None:
        self._logged = self._sum_us = self._max_us = 0
        self._counts: dict[int, int] = {}
        self._merged: Merged | None = None

    def add(self, histogram: Histogram) -> None:
        self._merged = None
        self._logged += histogram.logged
        self._sum_us += histogram.sum_us
        self._max_us = max(self._max_us, histogram.max_us)
        counts = self._counts
        for index, count in histogram.buckets:
            counts[index] = counts.get(index, 0) + count

    def merged(self) -> Merged:
        """Return the sum of all histograms."""
        if self._merged is None:
            self._merged = Merged(
                logged=self._logged, sum_us=self._sum_us, max_us=self._max_us, buckets=ascending(self._counts)
            )
        return self._merged


class Gathered:
    """Sums by figure and step.

    Attributes:
        step_s: Seconds of a step: 1, and twice as many each time there are too many steps.
    """

    def __init__(self) -> None:
        self.step_s = 1
        self._columns: dict[str, dict[int, Sums]] = {}
        self._latencies: dict[int, LatencySums] = {}

    def add(self, figure: str, at_s: float, part: float, divisor: float) -> None:
        """Add to the step of a moment.

        Args:
            at_s: Seconds since the run began; an earlier moment counts as the first step.
        """
        column = self._columns.setdefault(figure, {})
        step = self._step(at_s)
        before = column.get(step, (0.0, 0.0))
        column[step] = before[0] + part, before[1] + divisor

    def add_latencies(self, at_s: float, histogram: Histogram) -> None:
        """Add transactions that ended in the step of a moment."""
        self._latencies.setdefault(self._step(at_s), LatencySums()).add(histogram)

    def widen(self, seconds: float) -> None:
        """Make steps at least so long, for figures that are read less often than once a second."""
        while self.step_s < seconds:
            self._coarsen()

    def _step(self, at_s: float) -> int:
        while at_s >= MOST_STEPS * self.step_s:
            self._coarsen()
        return max(int(at_s // self.step_s), 0)

    def _coarsen(self) -> None:
        self.step_s *= 2
        for name, column in self._columns.items():
            halved: dict[int, Sums] = {}
            for step, (part, divisor) in column.items():
                before = halved.get(step // 2, (0.0, 0.0))
                halved[step // 2] = before[0] + part, before[1] + divisor
            self._columns[name] = halved
        pairs: dict[int, LatencySums] = {}
        for step, latencies in self._latencies.items():
            pairs.setdefault(step // 2, LatencySums()).add(latencies.merged())
        self._latencies = pairs

    @property
    def figures(self) -> tuple[str, ...]:
        """Return the names of the figures that have sums, in the order of their first one."""
        return tuple(self._columns)

    def sums(self, figure: str, from_s: float = 0.0) -> list[Sums]:
        """Return the figure's sums in the order of time; steps without a divisor are left out.

        Args:
            from_s: Seconds since the run began; earlier steps, a warm-up, are left out.
        """
        first = from_s / self.step_s
        column = self._columns.get(figure, {})
        return [column[step] for step in sorted(column) if step >= first and column[step][1] > 0]

    def series(self, figure: str) -> list[tuple[float, float]]:
        """Return (seconds since the begin, value) of each step, for a chart."""
        column = self._columns.get(figure, {})
        return [
            (step * float(self.step_s), part / divisor) for step, (part, divisor) in sorted(column.items()) if divisor
        ]

    def latencies(self, from_s: float = 0.0) -> list[Merged]:
        """Return histograms in the order of time."""
        first = from_s / self.step_s
        return [self._latencies[step].merged() for step in sorted(self._latencies) if step >= first]

    def latency_series(self, quantile: Quantile) -> list[tuple[float, float]]:
        """Return (seconds since the begin, ms) of each step that has transactions."""
        steps = sorted(self._latencies)
        values = ((step, quantile.of(self._latencies[step].merged())) for step in steps)
        return [(step * float(self.step_s), value) for step, value in values if value is not None]


def quotient(sums: Sequence[Sums]) -> float | None:
    """Return the figure over several steps; None without any."""
    divisor = sum(step[1] for step in sums)
    return sum(step[0] for step in sums) / divisor if divisor > 0 else None


def blocks(count: int, length: int) -> Iterator[slice]:
    """Return whole blocks of so many steps; the rest at the beginning, nearest to a warm-up, is left out."""
    return (slice(at, at + length) for at in range(count % length, count, length))


# Counters of statements over a stretch of frames, look by look: calls and time of each between two readings.
#
# A look has the section's own clock: it holds the counts between two readings of pg_stat_statements. A reset between
# them leaves no look; an entry that was made anew between them is left out of the look.

MOST_LOOKS: Final = 480
"""Most looks that are kept: of a longer stretch, neighbours are put together."""
_OWN_MS_PER_S: Final = 10.0
"""Execution time that is taken for our own: our sessions take less."""
Counted = tuple[int, float]
"""Calls, and milliseconds of all of them."""
Look = Mapping[str, Counted]
"""Calls and time of each statement that was called between two readings, by id of the entry."""


class StatementName(Struct, frozen=True):
    """The origin of a statement. All but the query id is foreign text.

    Attributes:
        usename, datname: None when the role or the database is gone.
    """

    queryid: int
    usename: str | None
    datname: str | None


class StatementsSeen:
    """Counters of statements in a stretch of frames.

    Args:
        since_s: Readings before this moment of the session do not count.

    Attributes:
        looks: Oldest first.
        texts: By query id; foreign.
        names: Origins, by id of the entry.
        every_s: Seconds between the last two readings; 0 before there were two.
    """

    def __init__(self, since_s: float = 0.0) -> None:
        self.looks: list[Look] = []
        self.texts: dict[int, str] = {}
        self.names: dict[str, StatementName] = {}
        self.every_s = 0.0
        self._since_s = since_s
        self._times: list[tuple[float, float]] = []
        self._width, self._joined = 1, 0
        self._first_s: float | None = None
        self._last: StatementSample | None = None
        self._reset_ms: int | None = None
        self._totals: list[StatementTotals] = []

    def take(self, frame: Frame, folded: int = 0) -> None:
        """Take the next frame.

        Args:
            folded: Frames before it that were not read; after any, only entries that both readings have count.
        """
        if self._first_s is None:
            self._first_s = frame.elapsed_s
        texts, totals = sections.statement_texts(frame), sections.statements(frame)
        if not isinstance(texts, Unavailable):
            self.texts |= {text.queryid: text.query for text in texts.texts}
        reset_ms = self._reset_ms
        if not isinstance(totals, Unavailable):
            self._totals[min(len(self._totals), 1) :] = [totals]
            reset_ms = totals.stats_reset_ms
        sample = sections.statement_counters(frame)
        if isinstance(sample, Unavailable):
            # Of a long recording, pairs of neighbouring frames are read now and then: others make no pair.
            self._last = None if folded else self._last
            return
        if sample.at_s < self._since_s or (self._last is not None and sample.at_s <= self._last.at_s):
            return
        older, self._last = self._last, sample
        was_reset, self._reset_ms = reset_ms != self._reset_ms, reset_ms
        if older is None or was_reset or (sample.before_s != older.at_s and not folded):
            return
        self.every_s = sample.at_s - older.at_s
        self._keep(self._grown_since(older, sample, folded), older.at_s - self._first_s)

    def _grown_since(self, older: StatementSample, sample: StatementSample, folded: int) -> Look:
        before = {row.id: row for row in ((*older.statements,) if folded else (*older.statements, *sample.before))}
        look: dict[str, Counted] = {}
        for row in sample.statements:
            if folded and row.id not in before:
                continue
            grown = _grown(before.get(row.id), row, sample)
            if row.toplevel and grown is not None and grown["calls"] > 0:
                look[row.id] = grown["calls"], grown["exec_us"] / 1000.0
                self.names[row.id] = StatementName(row.queryid, row.usename, row.datname)
        return look

    def _keep(self, look: Look, began_s: float) -> None:
        if self._joined:
            began_s, seconds = self._times[-1]
            self.looks[-1], self._times[-1] = summed((self.looks[-1], look)), (began_s, seconds + self.every_s)
        else:
            self.looks.append(look)
            self._times.append((began_s, self.every_s))
        self._joined = (self._joined + 1) % self._width
        if len(self.looks) > MOST_LOOKS and not self._joined and len(self.looks) % 2 == 0:
            self.looks = [summed(self.looks[at : at + 2]) for at in range(0, len(self.looks), 2)]
            times = self._times
            self._times = [(times[at][0], times[at][1] + times[at + 1][1]) for at in range(0, len(times), 2)]
            self._width *= 2

    def behind(self, warm_up_s: float) -> list[Look]:
        """Return the looks that began at least so many seconds after the first frame."""
        return [look for look, (began_s, _) in zip(self.looks, self._times, strict=True) if began_s >= warm_up_s]

    def seconds(self, warm_up_s: float = 0.0) -> float:
        """Return the length of the looks behind the warm-up."""
        return sum(seconds for began_s, seconds in self._times if began_s >= warm_up_s)

    def all_ms(self, warm_up_s: float = 0.0) -> float | None:
        """Return the time of all statements but our own in the looks behind the warm-up; None where it is unknown."""
        if len(self._totals) < 2 or self._totals[0].stats_reset_ms != self._totals[1].stats_reset_ms:
            return None
        first, last = self._totals
        grown = last.total_exec_ms - first.total_exec_ms
        # Totals and entries are read at moments of their own.
        lasted_s = last.at_s - first.at_s
        if grown <= 0 or lasted_s <= 0:
            return None
        # Our own are in the sum; on a server with little to do they would be most of it.
        others_ms = (grown / lasted_s - _OWN_MS_PER_S) * self.seconds(warm_up_s)
        return max(others_ms, sum(ms for look in self.behind(warm_up_s) for _, ms in look.values()))

    def foreign(self) -> Look:
        """Return all looks together, without statements of this program."""
        return {id: counted for id, counted in summed(self.looks).items() if OWN_MARK not in self.text(id)}

    def text(self, id: str) -> str:
        """Return the text of a statement; "" where it is not known."""
        name = self.names.get(id)
        return "" if name is None else self.texts.get(name.queryid, "")


def _grown(older: StatementCounters | None, newer: StatementCounters, sample: StatementSample) -> dict[str, int] | None:
    if older is None:
        return None if newer.id in sample.unknown_before else growth(None, newer, ("calls", "exec_us"))
    return growth(older, newer, ("calls", "exec_us")) if older.stats_since_ms == newer.stats_since_ms else None


def summed(looks: Iterable[Look]) -> dict[str, Counted]:
    """Return several looks as one."""
    totals: dict[str, Counted] = {}
    for look in looks:
        for id, (calls, ms) in look.items():
            total = totals.get(id, (0, 0.0))
            totals[id] = total[0] + calls, total[1] + ms
    return totals


def mean_ms(counted: Counted) -> float:
    """Return the mean time of a call in milliseconds."""
    return counted[1] / counted[0]


_WARMTH_S: Final = 10
BUDGET_S: Final = 10.0
"""Shortest time from one `Budget` of a run to the next."""


class FactKind(StrEnum):
    """The meaning of a fact for a comparison."""

    IDENTITY = "identity"
    """A name or a moment: it tells one side from the other, and no result depends on it."""
    SETTING = "setting"
    """A value that can be set: where it differs it is under test."""
    CONDITION = "condition"
    """A condition of results: where it differs, they are not comparable unless it is said to be under test."""


class Fact(Struct, frozen=True):
    """One line of a fingerprint.

    Attributes:
        group: machine, system, server, parameters, data or load.
        value: As text. Foreign.
        source: Source of a parameter's value; "" elsewhere. Foreign.
        shipped: Whether it is the shipped value: a side that holds only values that were set is taken to have it, too.
    """

    group: str
    name: str
    value: str
    kind: FactKind
    source: str = ""
    shipped: bool = False


identity_fact: Final = partial(Fact, kind=FactKind.IDENTITY)
setting_fact: Final = partial(Fact, kind=FactKind.SETTING)
condition_fact: Final = partial(Fact, kind=FactKind.CONDITION)


class LoadKey(Struct, frozen=True):
    """The properties that two loads must share to be compared.

    Attributes:
        name: Name of the profile or of the scripts; "" for a recording without load.
        endpoint, configuration: Only where one side has several; "" otherwise.
    """

    name: str = ""
    clients: int = 0
    rate_per_s: float | None = None
    protocol: str = ""
    connect_per_transaction: bool = False
    endpoint: str = ""
    configuration: str = ""

    @property
    def title(self) -> str:
        """Return the load in words: "tpcb-like ×16"."""
        if not self.name:
            return "everything, no load of ours"
        rate = "" if self.rate_per_s is None else f" at {units.number(self.rate_per_s)}/s"
        connect = ", a connection each" if self.connect_per_transaction else ""
        where = "".join(f", {place_name}" for place_name in (self.endpoint, self.configuration) if place_name)
        return f"{self.name} ×{self.clients}{rate}{connect}{where}"


class Summary(Struct, frozen=True):
    """pgbench's own account of a run; figures that it did not print are None.

    Attributes:
        state: finished, stopped or failed; "" without a load.
        message: Why it failed. Foreign text.
        statements: (script, text, mean ms) with -r.
    """

    state: str = ""
    tps: float | None = None
    latency_ms: float | None = None
    stddev_ms: float | None = None
    p50_ms: float | None = None
    p95_ms: float | None = None
    p99_ms: float | None = None
    connect_ms: float | None = None
    transactions: float | None = None
    failed: float | None = None
    message: str = ""
    statements: tuple[tuple[str, str, float], ...] = ()


class Budget(Struct, frozen=True):
    """The time of transactions by wait, over ten seconds; in a long recording, over a minute.

    Attributes:
        at_s: End of the ten seconds or the minute, in seconds since the run began.
        transactions: Transactions that ended in that time.
        ms: Milliseconds of all of them together, by label.
        classes: Class of each label.
        queue_told: Whether the kernel told the CPU queue; without, its time is in CPU and in Client.
    """

    at_s: float
    transactions: float
    ms: Mapping[str, float]
    classes: Mapping[str, str]
    queue_told: bool = True


class LeadingFinding(Struct, frozen=True):
    """The finding that was first in a share of the looks.

    Attributes:
        rule: Rule of the finding.
        share: Share of the looks at the run in which it was first, 0 to 1.
        sentence: Its sentence in the newest of these looks.
    """

    rule: str
    share: float
    sentence: str


class ComparedRun(Struct):
    """One run of a load, or a whole recording without one.

    Attributes:
        began_ms: Wall clock, milliseconds since the epoch.
        seconds: How long it was measured.
        warm_up_s: Seconds left out at the beginning.
        steady: Whether it settled; None when that cannot be said.
        whole_run: Figures over all of it where steps cannot give them (percentiles of a record), by figure.
        checkpoints_s: When checkpoints began, seconds since the run began; None where that is not known.
        looks: Number of looks at whether a disk was at its ceiling.
        at_cap: Number of these looks that found a disk there, by disk and ceiling: "vda (data): 6000 IOPS".
        findings: Findings that led in at least a fifth of the looks, the most frequent first; none of a long run.
        spec: Parameters to run it again; None without a load, and for scripts in a recording, which has no files.
        scripts: SHA-256 of each script file; empty for pgbench's own.
        statements: Counters of statements, look by look; without looks where they were not recorded.
        outage: Results of a load that replaced lost clients; None for others.
    """

    began_ms: int
    key: LoadKey
    gathered: Gathered
    seconds: float = 0.0
    warm_up_s: float = 0.0
    steady: bool | None = None
    steady_words: str = ""
    whole_run: dict[str, float] = {}
    checkpoints_s: list[float] | None = None
    budgets: list[Budget] = []
    doubts: tuple[Doubt, ...] = ()
    summary: Summary = Summary()
    looks: int = 0
    at_cap: Mapping[str, int] = {}
    findings: tuple[LeadingFinding, ...] = ()
    spec: LoadSpec | None = None
    scripts: tuple[str, ...] = ()
    statements: StatementsSeen = field(default_factory=StatementsSeen)
    outage: OutageResult | None = None

    @property
    def why_no_reference(self) -> str:
        return why_no_reference(self.summary.state, self.doubts)

    @property
    def first_hits(self) -> tuple[int, float] | None:
        """Return (seconds, per cent of buffer hits) of the begin of the run: few hits mean a cold cache."""
        sums = self.gathered.sums("cache_hit")[: max(_WARMTH_S // self.gathered.step_s, 1)]
        if not sums:
            return None
        return len(sums) * self.gathered.step_s, sum(part for part, _ in sums) / sum(buffers for _, buffers in sums)

    @property
    def bound_by(self) -> tuple[str, ...]:
        """Return the disks that were at their ceiling in at least half of the looks, in words."""
        return tuple(
            f"bound by the disk {disk} in {100 * count / self.looks:.0f} % of the time"
            for disk, count in self.at_cap.items()
            if 2 * count >= self.looks > 0
        )


Runs = Sequence[ComparedRun]


class DatasetMade(Struct, frozen=True):
    """A data set that `bench init` made.

    Attributes:
        title: What was made: "scale 5". Foreign text.
        steps_s: (name, seconds) in the order done, the total last.
    """

    title: str
    steps_s: tuple[tuple[str, float], ...]


class Material(Struct, frozen=True):
    """A recording, or records of runs.

    Attributes:
        name: Name by which it was opened: of a file, a directory or a baseline.
        began_ms: Wall clock of its begin, milliseconds since the epoch; 0 when not known.
        seconds: From begin to end.
        runs: In the order of time.
        facts: The fingerprint.
        events: Events, oldest first.
        problems: Parts that could not be read, in words.
        all_parameters: Whether the facts hold every parameter, or only what was set.
        datasets: Data sets that were made for it, where that was kept beside the records.
    """

    name: str
    began_ms: int
    seconds: float
    runs: tuple[ComparedRun, ...]
    facts: tuple[Fact, ...]
    events: tuple[Event, ...] = ()
    problems: tuple[str, ...] = ()
    all_parameters: bool = True
    datasets: tuple[DatasetMade, ...] = ()

    @property
    def phases(self) -> Mapping[LoadKey, tuple[ComparedRun, ...]]:
        """Return runs of the same load together, in the order of the first of each. A failed run is no phase."""
        runs_by_load: dict[LoadKey, list[ComparedRun]] = {}
        for run in self.runs:
            if run.summary.state != "failed":
                runs_by_load.setdefault(run.key, []).append(run)
        return {key: tuple(runs) for key, runs in runs_by_load.items()}
