"""One side of a comparison: its runs, measurements, environment and events."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

from msgspec import Struct, field

from pgtop_tune.base import units
from pgtop_tune.compare.sides.gathered import Gathered
from pgtop_tune.compare.sides.statements import StatementsSeen
from pgtop_tune.metrics.run_validity import why_no_reference
from pgtop_tune.model.bench import LoadSpec
from pgtop_tune.model.events import Event
from pgtop_tune.model.run_result import Doubt

_WARMTH_S: Final = 10
BUDGET_S: Final = 10.0
"""From one look at where the time goes to the next, at least."""


class FactKind(StrEnum):
    """What a fact of a fingerprint means for a comparison."""

    IDENTITY = "identity"
    """Tells one from the other and changes nothing: names, moments."""
    SETTING = "setting"
    """Somebody can set it: where it differs it is under test."""
    CONDITION = "condition"
    """What a result depends on: where it differs, results are not comparable unless it is said to be under test."""


class Fact(Struct, frozen=True):
    """One line of a fingerprint.

    Attributes:
        group: machine, system, server, parameters, data or load.
        value: As text. Foreign.
        source: Who set it, of a parameter; "" elsewhere. Foreign.
        shipped: Nobody set it: a side that tells only what was set has the same, as far as is known.
    """

    group: str
    name: str
    value: str
    kind: FactKind
    source: str = ""
    shipped: bool = False


class LoadKey(Struct, frozen=True):
    """What two phases must have in common to be compared.

    Attributes:
        name: Of the profile or the scripts; "" for a recording without load.
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
        """In words: "tpcb-like ×16"."""
        if not self.name:
            return "everything, no load of ours"
        rate = "" if self.rate_per_s is None else f" at {units.number(self.rate_per_s)}/s"
        connect = ", a connection each" if self.connect_per_transaction else ""
        where = "".join(f", {each}" for each in (self.endpoint, self.configuration) if each)
        return f"{self.name} ×{self.clients}{rate}{connect}{where}"


class Summary(Struct, frozen=True):
    """pgbench's own account of a run; None is what it did not say.

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
    """Where the time of transactions went in ten seconds, of a long recording in a minute.

    Attributes:
        at_s: When they ended, seconds since the run began.
        transactions: Done in that time.
        ms: Milliseconds of all of them together, by label.
        classes: Class of each label.
        queue_told: Whether the kernel told the CPU queue; without, its time is in CPU and in Client.
    """

    at_s: float
    transactions: float
    ms: Mapping[str, float]
    classes: Mapping[str, str]
    queue_told: bool = True


class Bound(Struct, frozen=True):
    """What stood first among the findings.

    Attributes:
        rule: Of the finding.
        share: Of the looks at the run in which it was first, 0 to 1.
        sentence: Of the newest of these looks.
    """

    rule: str
    share: float
    sentence: str


class ComparedRun(Struct):
    """One run of a load, or a whole recording without one.

    Attributes:
        began_ms: Wall clock, milliseconds since the epoch.
        seconds: How long it was measured.
        warm_up_s: What is left out at the beginning.
        steady: Whether it settled; None when that cannot be said.
        whole: Figures over all of it where steps cannot give them (percentiles of a record), by figure.
        checkpoints_s: When checkpoints began, seconds since the run began; None where that is not known.
        looks: How often it was looked whether a disk stood at the most it does.
        at_cap: How often one did, by disk and what was reached: "vda (data): 6000 IOPS".
        findings: What stood first in a fifth of the looks and more, most often first; of a long run nothing.
        spec: What it takes to run it again; None without a load, and for scripts, which are not kept.
        scripts: SHA-256 of each script file; empty for pgbench's own.
        statements: Counters of statements, look by look; without looks where they were not recorded.
    """

    began_ms: int
    key: LoadKey
    gathered: Gathered
    seconds: float = 0.0
    warm_up_s: float = 0.0
    steady: bool | None = None
    steady_words: str = ""
    whole: dict[str, float] = field(default_factory=dict)
    checkpoints_s: list[float] | None = None
    budgets: list[Budget] = field(default_factory=list)
    doubts: tuple[Doubt, ...] = ()
    summary: Summary = Summary()
    looks: int = 0
    at_cap: Mapping[str, int] = field(default_factory=dict)
    findings: tuple[Bound, ...] = ()
    spec: LoadSpec | None = None
    scripts: tuple[str, ...] = ()
    statements: StatementsSeen = field(default_factory=StatementsSeen)

    @property
    def why_no_reference(self) -> str:
        """See `metrics.run_validity.why_no_reference`."""
        return why_no_reference(self.summary.state, self.doubts)

    @property
    def first_hits(self) -> tuple[int, float] | None:
        """Seconds at the begin, and the share of buffers found in shared_buffers in them, per cent: a cold cache."""
        sums = self.gathered.sums("cache_hit")[: max(_WARMTH_S // self.gathered.step_s, 1)]
        if not sums:
            return None
        return len(sums) * self.gathered.step_s, sum(part for part, _ in sums) / sum(whole for _, whole in sums)

    @property
    def bound_by(self) -> tuple[str, ...]:
        """Disks that stood at the most they do in at least half of the looks, in words."""
        return tuple(
            f"bound by the disk {words} in {100 * count / self.looks:.0f} % of the time"
            for words, count in self.at_cap.items()
            if 2 * count >= self.looks > 0
        )


class DatasetMade(Struct, frozen=True):
    """What `bench init` told.

    Attributes:
        title: What was made: "scale 5". Foreign text.
        steps_s: (name, seconds) in the order done, the total last.
    """

    title: str
    steps_s: tuple[tuple[str, float], ...]


class Material(Struct, frozen=True):
    """A recording, or records of runs.

    Attributes:
        name: What it was asked for by, a file or a directory, or the name of a baseline.
        began_ms: Wall clock of its begin, milliseconds since the epoch; 0 when not known.
        seconds: From begin to end.
        runs: In the order of time.
        facts: The fingerprint.
        events: What happened, oldest first.
        problems: What could not be read.
        all_parameters: Whether the facts hold every parameter, or only what was set.
        made: Data sets that were made for it, where that was kept beside the records.
    """

    name: str
    began_ms: int
    seconds: float
    runs: tuple[ComparedRun, ...]
    facts: tuple[Fact, ...]
    events: tuple[Event, ...] = ()
    problems: tuple[str, ...] = ()
    all_parameters: bool = True
    made: tuple[DatasetMade, ...] = ()

    @property
    def phases(self) -> Mapping[LoadKey, tuple[ComparedRun, ...]]:
        """Runs of the same load together, in the order of the first of each. A failed run is no phase."""
        found: dict[LoadKey, list[ComparedRun]] = {}
        for run in self.runs:
            if run.summary.state != "failed":
                found.setdefault(run.key, []).append(run)
        return {key: tuple(runs) for key, runs in found.items()}
