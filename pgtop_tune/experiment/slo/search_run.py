"""The search for the highest rate on a server that is watched: its plan, its runs, its journal; for every front end."""

from __future__ import annotations

import math
import resource
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from pgtop_tune.base.errors import LoadProblem, UsageProblem
from pgtop_tune.base.units import duration
from pgtop_tune.bench.argv import threads_for
from pgtop_tune.bench.profiles import Profile
from pgtop_tune.experiment.load_run import BeforeEachRun, LoadRun, RunCell
from pgtop_tune.experiment.path import LoadTarget
from pgtop_tune.experiment.plan.results import ExperimentLog, new_directory
from pgtop_tune.experiment.preflight import connection_room, file_room
from pgtop_tune.experiment.series import cells
from pgtop_tune.experiment.server_state import changes_between, parameters_of, server_state
from pgtop_tune.experiment.server_times import OpenSqlSession
from pgtop_tune.experiment.slo.kept_search import (
    KIND,
    SearchSubject,
    check_same,
    check_same_beginning,
    kept_search,
    whole_load,
    write_end,
    write_outcome,
    write_parameters,
    write_search,
)
from pgtop_tune.experiment.slo.objective import ObjectiveLimit, parse_objective
from pgtop_tune.experiment.slo.rate_runs import SHORTEST_S, RateRuns, check_no_sleep, writes
from pgtop_tune.experiment.slo.report import (
    expected_s,
    next_words,
    outcome_line,
    rate_curve,
    result_sentences,
    so_far_words,
)
from pgtop_tune.experiment.slo.search import RateEnding, RateSearch, SearchEnd, SearchPlan, SearchStep, StepKind
from pgtop_tune.metrics import sections
from pgtop_tune.metrics.catalogue import Interval
from pgtop_tune.metrics.server import number
from pgtop_tune.model.absence import Unavailable
from pgtop_tune.model.bench import LoadSpec
from pgtop_tune.model.run_result import RunResult
from pgtop_tune.runtime.load_control import LoadSearch, SearchWish
from pgtop_tune.runtime.run_frames import FrameKeeper

_CLOSED_S: Final = 10
_OF_CLOSED: Final = 0.5
"""Share of the throughput without a rate with which a search begins."""
_MOST_CLIENTS: Final = 1024
_LEAST_CONFIRM_S: Final = 20
_CONTRADICTS: Final = {
    "transactions": ("number of transactions (-t)", "it makes its own runs: leave it out"),
    "phases": ("phases (--phases)", "it makes its own runs: leave them out"),
    "per_statement": ("report of statements (-r)", "it judges transactions: leave it out"),
    "connect_per_transaction": ("connection per transaction (-C)", "leave it out"),
    "latency_limit_ms": (
        "latency limit (-L)",
        "it skips late transactions, which the objective is about: leave it out",
    ),
}
"""Fields of a load that a search cannot have: in words for every front end, and the hint."""
_BUDGET: Final = "the budget is used up"


def search_cell(
    target: LoadTarget,
    profile: Profile,
    spec: LoadSpec,
    wish: SearchWish,
    *,
    clients: int | None,
    protocol: str | None,
    allow_shell: bool = False,
) -> RunCell:
    """Return the load of a search without its rate, once it is one that a search can have.

    Raises:
        UsageProblem: The objective is none, names another script, or contradicts the load; too short a run.
        LoadProblem: A script is not there, may not be used, or sleeps.
    """
    limits = parse_objective(wish.objective)
    for field, (refused, hint) in _CONTRADICTS.items():
        if getattr(spec, field):
            raise UsageProblem(f"a search for the highest rate has no {refused}", hint)
    if wish.confirm_s is not None and wish.confirm_s < _LEAST_CONFIRM_S:
        problem = f"{wish.confirm_s} s are too short for a run that confirms (-T)"
        raise UsageProblem(problem, f"pass {_LEAST_CONFIRM_S} s or more")
    check_no_sleep(spec, profile)
    (cell,) = cells(
        [target], [profile], replace(spec, rate_per_s=None, duration_s=_CLOSED_S), None,
        clients=clients, protocol=protocol, allow_shell=allow_shell,
    )  # fmt: skip
    names = [script.name for script in cell.scripts]
    for limit in limits:
        if limit.script and names.count(limit.script) != 1:
            problem = "several scripts are named" if limit.script in names else "there is no script"
            raise UsageProblem(f"{problem} {limit.script}", f"the load has {', '.join(sorted(names))}")
    return cell


class SearchRun:
    """One search, from its plan to its end.

    Args:
        run: Makes each run.
        keeper: The frames, with an answer of the server among them.
        open_sql_session: SQL on the server that is watched.
        cell: See `search_cell`.
        wish: The objective, and the limits of the search.
        before: Steps before the first run.
        tell: Takes what is going on, one line.
        take_record: Takes the record of each run.
        take_state: Takes the search as it stands, whenever that has changed.

    Attributes:
        limits: The objective.
        subject: The subject of the search.
        identity: Name with which it is resumed; "" before its journal is begun.
        search: The search; None before it is planned.
        end: Its end; None before.
    """

    def __init__(
        self,
        run: LoadRun,
        keeper: FrameKeeper,
        open_sql_session: OpenSqlSession,
        cell: RunCell,
        wish: SearchWish,
        before: BeforeEachRun,
        *,
        tell: Callable[[str], None],
        take_record: Callable[[RunResult], None] = lambda result: None,
        take_state: Callable[[LoadSearch], None] = lambda state: None,
    ) -> None:
        self._keeper = keeper
        self._open_sql_session = open_sql_session
        self._parameters: Mapping[str, str] = {}
        self._cell = cell
        self._wish = wish
        self._tell = tell
        self._take_state = take_state
        self._now = ""
        interval = keeper.interval
        confirm_s = wish.confirm_s or SHORTEST_S
        if wish.confirm_s is None and interval is not None and writes(cell.spec, cell.profile):
            confirm_s = max(confirm_s, round(number(interval, "checkpoint_timeout") or 0.0))
        self.limits: Final[Sequence[ObjectiveLimit]] = parse_objective(wish.objective)
        self.subject: Final = SearchSubject(
            server=_identifier(interval),
            objective=" and ".join(limit.text for limit in self.limits),
            load=whole_load(cell, run.machine),
            confirm_s=confirm_s,
        )
        self._runs = RateRuns(run, keeper, cell, self.limits, confirm_s, before, take_record)
        self._until_s: float | None = None
        self.identity = ""
        self.search: RateSearch | None = None
        self.end: SearchEnd | None = None

    @property
    def confirmed(self) -> bool:
        """Return whether it ended with a confirmed interval."""
        return self.end is not None and self.end.ending is RateEnding.CONFIRMED

    @property
    def is_out_of_time(self) -> bool:
        """Return whether its budget ended it."""
        return self.end is not None and self.end.reason == _BUDGET

    async def make(self) -> None:
        """Make the whole search.

        Raises:
            UsageProblem: The search to be resumed is none, or one of something else.
            LoadProblem: A run failed, or the server has other parameters than at the beginning.
            ConnectionProblem: The server is not there.
            JournalProblem: The journal cannot be written.
        """
        wish = self._wish
        if wish.budget_s is not None:
            self._until_s = time.monotonic() + wish.budget_s
        if wish.resume:
            search, directory = self.resume()
        else:
            search, directory = RateSearch(await self._plan(), []), new_directory(KIND)
        self.search, self.identity = search, directory.name
        self._keeper.beside = self._runs.bottlenecks
        try:
            with ExperimentLog(directory) as log:
                if not wish.resume:
                    write_search(log, self.subject, search.plan)
                self._tell(self.time_words)
                self.end = await self._search(search, log)
                if not self.is_out_of_time:
                    write_end(log)
        finally:
            self._keeper.beside = None
        self._changed("")

    def resume(self) -> tuple[RateSearch, Path]:
        """Take up the search that is continued, and return it with its directory. Blocking.

        Raises:
            UsageProblem: There is none, or one of something else.
            JournalProblem: It cannot be read.
        """
        directory, kept = kept_search(self._wish.resume)
        check_same(kept, self.subject)
        check_same_beginning(kept, self._wish.first_rate, self._cell.spec.clients)
        self._parameters = kept.parameters
        self.search = RateSearch(kept.plan, list(kept.outcomes))
        return self.search, directory

    @property
    def time_words(self) -> str:
        """Return the expected time of the rest, the length of the runs that confirm, and the budget."""
        confirm_s = self._runs.seconds(StepKind.LOWER)
        confirming = f"each of the runs that confirm takes {duration(confirm_s)}"
        if self._wish.confirm_s is None and self.subject.confirm_s > SHORTEST_S:
            confirming += ", to hold one checkpoint (checkpoint_timeout)"
        budget = "" if self._wish.budget_s is None else f"; at most {duration(self._wish.budget_s)}"
        return f"expected time: {duration(self._expected_s())}; {confirming}{budget}"

    def _expected_s(self) -> float:
        seconds = {kind: self._runs.seconds(kind) for kind in StepKind}
        # Without a first rate, the pace is not known.
        search = self.search or RateSearch(SearchPlan(start=self._wish.first_rate or math.inf), [])
        return expected_s(search, seconds, threads_for(self._cell.spec))

    async def _plan(self) -> SearchPlan:
        """Return the plan; without a rate to begin with, a closed loop of ten seconds gives one."""
        clients, start = self._cell.spec.clients, self._wish.first_rate
        if start is None:
            step_words = f"measuring {_CLOSED_S} s without a rate, to know where to begin"
            self._tell(step_words)
            self._changed(step_words)
            start = _OF_CLOSED * await self._runs.closed(_CLOSED_S)
        return SearchPlan(start=start, clients=clients, most_clients=self._most_clients(clients))

    def _most_clients(self, clients: int) -> int:
        """Return the most clients, in doublings, that there is room for."""
        interval, files = self._keeper.interval, resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        while 2 * clients <= _MOST_CLIENTS and not file_room(files, 2 * clients):
            if self._cell.target.direct and interval is not None and connection_room(interval, 2 * clients):
                break
            clients *= 2
        return clients

    async def _check_server(self, log: ExperimentLog) -> None:
        """Make sure that all runs are of one server: what it was given since the first one is not to be compared."""
        async with aclosing(await self._open_sql_session()) as sql_session:
            now = parameters_of(await server_state(sql_session))
        if not self._parameters:
            self._parameters = now
            write_parameters(log, now)
        elif changed := changes_between(self._parameters, now):
            raise LoadProblem(changed, "restore the value and continue the search, or begin a new one")

    async def _search(self, search: RateSearch, log: ExperimentLog) -> SearchEnd:
        if isinstance(search.next(), SearchStep):
            await self._check_server(log)
        while isinstance(step := search.next(), SearchStep):
            longest_s = self._runs.seconds(step.kind)
            if self._until_s is not None and time.monotonic() + longest_s > self._until_s:
                low, high = search.ends()
                return SearchEnd(RateEnding.UNCONFIRMED, low, high, _BUDGET)
            step_words = next_words(step)
            self._tell(step_words)
            self._changed(step_words)
            outcome = await self._runs.make(step)
            await self._check_server(log)
            write_outcome(log, outcome)
            search.tell(outcome)
            self._tell(outcome_line(outcome, self.limits))
        return step

    def _changed(self, now: str) -> None:
        search, end = self.search, self.end
        outcomes = () if search is None else search.outcomes
        left_s = self._expected_s()
        if self._until_s is not None:
            left_s = min(left_s, self._until_s - time.monotonic())
        self._take_state(
            LoadSearch(
                so_far=so_far_words(self.subject, search),
                now=now,
                ends_ms=1000.0 * (time.time() + left_s),
                outcomes=tuple(outcome_line(outcome, self.limits) for outcome in outcomes),
                curve=None if search is None else rate_curve(search, self.limits, end),
                result=()
                if search is None or end is None
                else result_sentences(search, end, self.subject, self.limits),
            )
        )


def _identifier(interval: Interval | None) -> str:
    server = None if interval is None else sections.server(interval.newest)
    return "" if server is None or isinstance(server, Unavailable) else str(server.system_identifier or "")
