"""The control of a load: requests, and the state of the load.

Everything is called from the engine's thread unless it says otherwise.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Final, Protocol

from msgspec import Struct

if TYPE_CHECKING:
    from pgtop_tune.metrics.knee import Knee, LoadPoint
    from pgtop_tune.model.bench import LoadLevel, LoadSpec, ProfileSummary
    from pgtop_tune.model.run_result import RunResult


class DatasetFound(Struct, frozen=True):
    """A data set that profiles need, as the database has it.

    Attributes:
        name: pgbench or bus.
        found: The present data set in a few words: "scale 100"; "" without one. May hold foreign text.
        problem: Why it cannot be used; "" when it can.
    """

    name: str
    found: str = ""
    problem: str = ""


class MakingPlan(Struct, frozen=True):
    """A data set to be made.

    Attributes:
        dataset: pgbench or bus.
        size: As typed: the scale of pgbench's tables; tickets (6M) or room on disk (0.6GB) of the bus company.
    """

    dataset: str
    size: str


class MakingPreview(Struct, frozen=True):
    """Consequences of making a data set.

    Attributes:
        title: The data set to be made: "scale 5".
        needed_bytes: Needed disk space, an estimate.
        available_bytes: None when it is not known, for the reason `why`.
        dropped: Present data that would be dropped; "" when nothing is lost.
        note: A further remark: that an unfinished data set is continued, or exists already.
        database: Name of the database.
    """

    title: str
    needed_bytes: int
    available_bytes: int | None
    why: str = ""
    dropped: str = ""
    note: str = ""
    database: str = ""


class MakingProgress(Struct, frozen=True):
    """Progress of making a data set.

    Attributes:
        step: In pgbench's words, or ours.
        done, total: Amounts of `unit`; 0 where nothing is counted.
        estimated: `done` is read off the size of the database.
        per_s, remaining_s: None before they can be said.
    """

    step: str
    done: int = 0
    total: int = 0
    unit: str = "rows"
    estimated: bool = False
    per_s: float | None = None
    remaining_s: float | None = None


class DataSetMade(Struct, frozen=True):
    """A data set that was made.

    Attributes:
        steps_s: (name, seconds) in the order done.
    """

    title: str
    steps_s: tuple[tuple[str, float], ...]
    total_s: float


class EndConditions(Struct, frozen=True):
    """Reasons to end a load before its time.

    Attributes:
        abort_if: Conditions as typed: "p99 > 50ms for 10s".
        stops: Whether overload ends it; else it is only told.
    """

    abort_if: tuple[str, ...] = ()
    stops: bool = True


NO_CONDITIONS: Final = EndConditions()


class SearchWish(Struct, frozen=True, kw_only=True):
    """A search for the highest rate that keeps an objective, as the operator describes it.

    Attributes:
        objective: As typed: "p99 < 20ms and failed < 0.1%".
        first_rate: The first rate; None takes a part of the throughput without a rate.
        confirm_s: Length of a run that confirms; None is one minute, or one checkpoint of a load that writes.
        budget_s: The most time; None has no limit.
        resume: Id of the search that is continued, or "last"; "" begins a new one.
    """

    objective: str
    first_rate: float | None = None
    confirm_s: int | None = None
    budget_s: float | None = None
    resume: str = ""


class RatePoint(Struct, frozen=True):
    """One rate of a search.

    Attributes:
        latency_ms: Median over its runs; None where none of them had transactions enough.
        standing: Whether the objective holds at it: "holds", "breaks" or "unclear".
    """

    rate: float
    latency_ms: float | None
    standing: str


class RateCurve(Struct, frozen=True):
    """Latency over the rates of a search.

    Attributes:
        figure: The latency in words: "p99", "mean of new-order".
        limit_ms: Its limit; None where the objective is not about a latency.
        points: In ascending order.
        low, high: The highest rate that holds the objective and the lowest that breaks it; None where not known.
    """

    figure: str
    limit_ms: float | None
    points: tuple[RatePoint, ...]
    low: float | None
    high: float | None


class LoadSearch(Struct, frozen=True, kw_only=True):
    """A search for the highest rate as it stands.

    Attributes:
        so_far: The objective and the interval so far, in words.
        now: The run under way in words; "" after the last one.
        ends_ms: Expected end, milliseconds since the epoch.
        outcomes: A line for each run so far. Scripts have foreign names.
        curve: None before the first run.
        result: The result, its doubts, latencies and the bottleneck, a line each; () before the end. Foreign text.
    """

    so_far: str
    now: str
    ends_ms: float
    outcomes: tuple[str, ...] = ()
    curve: RateCurve | None = None
    result: tuple[str, ...] = ()


class LoadSeries(Struct, frozen=True):
    """Runs that were started together: one, the steps of a load, or the runs of a search.

    Attributes:
        number: Number of the series in this session, from 1.
        axis: "clients" or "rate"; "" for a single run.
        asked: Runs there will be; 0 where that is not known.
        results: Records so far, in order.
        points, knee: Results of the steps so far.
        over: True when no more will come.
        search: The search that the runs belong to; None without one.
        problem: Why it ended before its time, one sentence; "" otherwise. May hold foreign text.
    """

    number: int
    axis: str
    asked: int
    results: tuple[RunResult, ...] = ()
    points: tuple[LoadPoint, ...] = ()
    knee: Knee | None = None
    over: bool = False
    search: LoadSearch | None = None
    problem: str = ""


_COMPARED: Final = {
    "steps": "the steps of the load are compared with each other",
    "search": "the search for the highest rate compares its runs with each other",
}


class LoadState(Struct, frozen=True):
    """State of runs and data sets.

    Attributes:
        doing: "run", "steps", "search" or "making"; "" when nothing is under way.
        title: The current step: "step 2 of 7: 4 clients".
        detail: The current part of the step: "housekeeping: vacuum".
        overload: Overload of the load under way that does not end it, one sentence; "" without.
        problem: Why the last one ended before its time, one sentence; "" otherwise. May hold foreign text.
        making: Progress of a data set.
        made: The last data set that was made.
        series: The last runs, also while they last.
    """

    doing: str = ""
    title: str = ""
    detail: str = ""
    overload: str = ""
    problem: str = ""
    making: MakingProgress | None = None
    made: DataSetMade | None = None
    series: LoadSeries | None = None

    @property
    def compares(self) -> str:
        """Return why the server has to stay as it is: runs are compared with each other; "" where they are not."""
        return _COMPARED.get(self.doing, "")


class LoadChange(StrEnum):
    """A change of the load under way, by a key."""

    MORE_CLIENTS = "more clients"
    FEWER_CLIENTS = "fewer clients"
    RATE_UP = "rate up"
    RATE_DOWN = "rate down"
    PAUSE = "pause"
    """Pause, or go on."""


class LoadControl(Protocol):
    """The operator's control of pgbench; one thing at a time."""

    def state(self) -> LoadState:
        """Return the state now. Thread-safe."""
        ...

    async def profiles(self) -> tuple[ProfileSummary, ...]:
        """Return the profiles that can be run."""
        ...

    async def datasets(self) -> tuple[DatasetFound, ...]:
        """Return every data set that a profile needs, present or not.

        Raises:
            ConnectionProblem: The server is not there.
        """
        ...

    async def preview(self, spec: LoadSpec) -> str:
        """Return the exact command line `start` would run, shell-quoted.

        Raises:
            LoadProblem: No pgbench, or a spec it would refuse.
        """
        ...

    async def start(self, spec: LoadSpec, ends: EndConditions = NO_CONDITIONS) -> None:
        """Start pgbench; frames show its life, `state` its record once it has ended.

        Raises:
            UsageProblem: A condition is none.
            LoadProblem: It cannot be started, would surely die of a limit, or something else is under way.
        """
        ...

    async def start_steps(self, spec: LoadSpec, steps: str, *, tidy: bool, ends: EndConditions = NO_CONDITIONS) -> None:
        """Begin a series of runs, one after the other.

        Args:
            spec: Settings common to all runs.
            steps: clients=1,2,4 or rate=100,200.
            tidy: Housekeeping before each, and waiting for quiet.
            ends: A condition that ends a run ends the series.

        Raises:
            UsageProblem: No list of steps, or a condition that is none.
            LoadProblem: As `start`.
        """
        ...

    async def look_at_search(self, spec: LoadSpec, wish: SearchWish) -> str:
        """Return the expected time of a search in words; starts nothing.

        Raises:
            UsageProblem: No objective, one that the load cannot have, or nothing to be resumed.
            LoadProblem: As `start`, or a script that sleeps.
        """
        ...

    async def start_search(self, spec: LoadSpec, wish: SearchWish) -> None:
        """Begin a search for the highest rate; `state` shows it. Raises as `look_at_search`.

        Args:
            spec: The load; its rate and its length have no effect.
            wish: The objective.
        """
        ...

    async def change(self, change: LoadChange) -> LoadLevel:
        """Change the load under way by a quarter, or pause it; return its clients and rate once the new clients run.

        Raises:
            LoadProblem: No load runs, it cannot be changed, or its new clients would surely die of a limit.
        """
        ...

    async def stop(self) -> None:
        """End the current run or making, and wait until pgbench is gone. What was measured is kept."""
        ...

    async def look(self, plan: MakingPlan) -> MakingPreview:
        """Return the consequences of making a data set; changes nothing.

        Raises:
            LoadProblem: A size that cannot be made, tables that are something else, a disk that is too small.
            ConnectionProblem: The server is not there.
        """
        ...

    async def make(self, plan: MakingPlan, *, replace: bool) -> None:
        """Begin to make a data set; `state` shows its progress.

        Args:
            replace: The operator has agreed that what is there goes.

        Raises:
            LoadProblem: As `look`; something would be lost and `replace` is not set; something else is under way.
        """
        ...
