"""`bench run --slo`: the search for the highest rate that keeps an objective."""

from __future__ import annotations

import asyncio
import json
import resource
import sys
import time
from collections.abc import Callable, Sequence
from typing import Final

from msgspec.structs import replace

from pgtop_tune.base.errors import PgtopError, UsageProblem
from pgtop_tune.base.units import duration
from pgtop_tune.bench.housekeeping import parse_housekeeping
from pgtop_tune.bench.profiles import load_profiles, profile_directories
from pgtop_tune.changes.confirm.orphans import pending_looked_after
from pgtop_tune.cli.commands.bench import RunRequest
from pgtop_tune.cli.connections import live_options, opened
from pgtop_tune.cli.exit_codes import ExitCode
from pgtop_tune.cli.headless import run_beside
from pgtop_tune.cli.options import TableFormat, for_seconds
from pgtop_tune.cli.output import not_stdout, say, say_as_it_is, tell
from pgtop_tune.cli.typed_load import TypedLoad
from pgtop_tune.cli.wiring import LiveSession, first_answer, targets
from pgtop_tune.experiment.load_run import BeforeEachRun, LoadRun, RunCell, connection_room, file_room
from pgtop_tune.experiment.plan.results import ExperimentLog, new_directory
from pgtop_tune.experiment.run_guard import RunGuard
from pgtop_tune.experiment.series import cells
from pgtop_tune.experiment.slo.kept_search import (
    KIND,
    SearchSubject,
    check_same,
    kept_search,
    write_end,
    write_outcome,
    write_search,
)
from pgtop_tune.experiment.slo.objective import ObjectiveLimit, parse_objective
from pgtop_tune.experiment.slo.rate_runs import SHORTEST_S, Bottlenecks, RateRuns, check_no_sleep, writes
from pgtop_tune.experiment.slo.report import expected_s, next_words, outcome_line, search_json, search_lines
from pgtop_tune.experiment.slo.search import RateEnding, RateSearch, SearchEnd, SearchPlan, SearchStep, StepKind
from pgtop_tune.metrics import sections
from pgtop_tune.metrics.catalogue import Interval
from pgtop_tune.metrics.server import number
from pgtop_tune.model.absence import Unavailable
from pgtop_tune.model.bench import BenchProgress, BenchRun
from pgtop_tune.model.run_result import RunResult
from pgtop_tune.runtime.run_frames import FrameKeeper

_CLOSED_S: Final = 10
_OF_CLOSED: Final = 0.25
"""Share of the throughput without a rate with which a search begins."""
_MOST_CLIENTS: Final = 1024
_CONTRADICTS: Final = ("steps", "repeat", "until", "configuration", "abort_if", "warm_up")
_LOAD_CONTRADICTS: Final = {"transactions": "-t", "connect": "-C", "phases": "--phases"}
_SHORTEST_S: Final = 20


def check_request(request: RunRequest, load: TypedLoad) -> None:
    """Refuse options that mean nothing for a search.

    Raises:
        UsageProblem: There is such an option.
    """
    for name in _CONTRADICTS:
        if getattr(request, name):
            option = {"warm_up": "warmup"}.get(name, name.replace("_", "-"))
            raise UsageProblem(f"--slo contradicts --{option}", "a search makes its own runs: leave it out")
    for name, option in _LOAD_CONTRADICTS.items():
        if getattr(request.load, name):
            raise UsageProblem(f"--slo contradicts {option}", "a search makes its own runs: leave it out")
    if len(load.profiles) > 1 or len(request.endpoint or ()) > 1:
        raise UsageProblem("--slo searches under one load on one server", "pass one --profile and one --endpoint")
    if request.format is TableFormat.MARKDOWN:
        raise UsageProblem("--slo has no Markdown", "pass --format text or json")
    if request.load.seconds is not None and request.load.seconds < _SHORTEST_S:
        raise UsageProblem(f"-T {request.load.seconds} is too short", f"runs that confirm take {_SHORTEST_S} s or more")


async def search_rate(request: RunRequest, load: TypedLoad) -> int:
    """Search for the highest rate, print the result, and return the exit status.

    Raises:
        PgtopError: The search could not begin, or cannot go on.
    """
    check_request(request, load)
    limits = parse_objective(request.slo or "")
    budget_s = None if request.budget is None else for_seconds(request.budget, "--budget")
    not_stdout(request.record)
    live = live_options(request.session, query_text=not request.no_query_text, interval_s=request.interval)
    directories = profile_directories(request.profiles)
    profile = load_profiles(directories).get(load.profiles[0])
    check_no_sleep(load.spec, profile)
    async with opened(request.connection) as (sql_session, conninfo):
        load_targets = await targets(request.endpoint or (), sql_session, conninfo, from_here=live.load_from is None)
        reached = sql_session.reached
    (cell,) = cells(
        load_targets, [profile], replace(load.spec, rate_per_s=None, duration_s=_CLOSED_S), None,
        clients=load.clients, protocol=load.protocol, allow_shell=load.allow_shell,
    )  # fmt: skip
    names = {script.name for script in cell.scripts}
    for limit in limits:
        if limit.script and limit.script not in names:
            raise UsageProblem(f"there is no script {limit.script}", f"the load has {', '.join(sorted(names))}")
    session = LiveSession(conninfo, live, reached)
    session.load.directories = directories
    session.load.prepare = None
    if request.record is not None:
        session.recorder.start(str(request.record))
    seconds: list[BenchProgress] = []

    def progress(run: BenchRun, line: BenchProgress) -> None:
        seconds.append(line)

    keeper, bottlenecks = FrameKeeper(progress), Bottlenecks()
    session.engine.attach(keeper)
    session.engine.attach(bottlenecks)
    searching = _Searching(request, session, keeper, bottlenecks, cell, limits, budget_s)
    async with pending_looked_after(session.parameters, session.machine, live.journal_directory, tell):
        signalled = await run_beside(session.engine, searching.run)
    if signalled:
        return ExitCode.SIGNALLED + signalled
    return ExitCode.OK if searching.confirmed else ExitCode.CANNOT_TELL


class _Searching:
    """A search under way on a server.

    Attributes:
        confirmed: Whether it ended with a confirmed interval.
    """

    def __init__(
        self,
        request: RunRequest,
        session: LiveSession,
        keeper: FrameKeeper,
        bottlenecks: Bottlenecks,
        cell: RunCell,
        limits: Sequence[ObjectiveLimit],
        budget_s: float | None,
    ) -> None:
        self.confirmed = False
        self._request = request
        self._session = session
        self._keeper = keeper
        self._bottlenecks = bottlenecks
        self._cell = cell
        self._limits = tuple(limits)
        self._budget_s = budget_s
        self._until_s = None if budget_s is None else time.monotonic() + budget_s
        self._made: list[RunResult] = []

    async def run(self) -> None:
        """Make the whole search."""
        await first_answer(self._session, self._keeper)
        runs, subject = self._runs()
        if self._request.resume:
            directory, kept = kept_search(self._request.resume)
            check_same(kept, subject)
            plan, outcomes = kept.plan, list(kept.outcomes)
        else:
            plan, outcomes = await self._plan(runs), []
            directory = new_directory(KIND)
        search = RateSearch(plan, outcomes)
        with ExperimentLog(directory) as log:
            if not self._request.resume:
                write_search(log, subject, plan)
            self._tell_time(search, runs)
            try:
                end = await self._search(search, runs, log)
            except (PgtopError, asyncio.CancelledError):
                tell(f"stopped; the same command with --resume {directory.name} continues")
                raise
            if self._out_of_time(end):
                tell(f"the same command with --resume {directory.name} and another --budget continues")
            else:
                write_end(log)
        self.confirmed = end.ending is RateEnding.CONFIRMED
        self._print(search, end, subject)

    def _runs(self) -> tuple[RateRuns, SearchSubject]:
        request, cell, interval = self._request, self._cell, self._keeper.interval
        confirm_s = request.load.seconds or SHORTEST_S
        if request.load.seconds is None and interval is not None and writes(cell.spec, cell.profile):
            confirm_s = max(confirm_s, round(number(interval, "checkpoint_timeout") or 0.0))
        before = BeforeEachRun(parse_housekeeping(request.housekeeping))

        def make_load_run(guard: Callable[[], RunGuard]) -> LoadRun:
            return LoadRun(self._session.load, self._keeper, self._session.open_sql_session, tell, guard=guard)

        runs = RateRuns(
            make_load_run, self._keeper, self._bottlenecks, cell, self._limits, confirm_s, before, self._made.append
        )
        return runs, SearchSubject(
            server=_identifier(interval),
            objective=" and ".join(limit.text for limit in self._limits),
            load=f"{cell.profile_name or ' '.join(script.name for script in cell.scripts)} on {cell.target.name}",
            confirm_s=confirm_s,
        )

    async def _plan(self, runs: RateRuns) -> SearchPlan:
        """Return the plan; without a rate to begin with, a closed loop of ten seconds gives one."""
        clients, start = self._cell.spec.clients, self._request.load.rate
        if start is None:
            tell(f"measuring {_CLOSED_S} s without a rate, to know where to begin")
            start = _OF_CLOSED * await runs.closed(_CLOSED_S)
        return SearchPlan(start=start, clients=clients, most_clients=self._most_clients(clients))

    def _most_clients(self, clients: int) -> int:
        """Return the most clients, in doublings, that there is room for."""
        interval, files = self._keeper.interval, resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        while 2 * clients <= _MOST_CLIENTS and not file_room(files, 2 * clients):
            is_direct = self._cell.target.direct and interval is not None
            if is_direct and interval is not None and connection_room(interval, 2 * clients):
                break
            clients *= 2
        return clients

    def _tell_time(self, search: RateSearch, runs: RateRuns) -> None:
        seconds = {kind: runs.seconds(kind) for kind in StepKind}
        confirming = f"each of the runs that confirm takes {duration(seconds[StepKind.LOWER])}"
        if seconds[StepKind.LOWER] > SHORTEST_S * 2:
            confirming += ", to hold one checkpoint (checkpoint_timeout; -T shortens it)"
        budget = "" if self._budget_s is None else f"; at most {duration(self._budget_s)}"
        tell(f"expected time: {duration(expected_s(search, seconds))}; {confirming}{budget}")

    async def _search(self, search: RateSearch, runs: RateRuns, log: ExperimentLog) -> SearchEnd:
        while isinstance(step := search.next(), SearchStep):
            if self._until_s is not None and time.monotonic() + runs.seconds(step.kind, step.times) > self._until_s:
                low, high = search.ends()
                return SearchEnd(RateEnding.UNCONFIRMED, low, high, _BUDGET)
            tell(next_words(step))
            outcome = await runs.make(step)
            write_outcome(log, outcome)
            search.tell(outcome)
            tell(outcome_line(outcome, self._limits))
        return step

    def _out_of_time(self, end: SearchEnd) -> bool:
        return end.reason == _BUDGET

    def _print(self, search: RateSearch, end: SearchEnd, subject: SearchSubject) -> None:
        if self._request.format is TableFormat.JSON:
            say_as_it_is(json.dumps(search_json(search, end, subject), ensure_ascii=True))
            return
        block = "█" if (sys.stdout.encoding or "").lower().startswith("utf") else "#"
        for line in search_lines(search, end, subject, self._limits, block):
            say(line)


_BUDGET: Final = "the budget is used up"


def _identifier(interval: Interval | None) -> str:
    server = None if interval is None else sections.server(interval.newest)
    return "" if server is None or isinstance(server, Unavailable) else str(server.system_identifier or "")
