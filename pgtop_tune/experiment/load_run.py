"""One run: the load that is asked for, housekeeping, quiet, start, watch, record."""

from __future__ import annotations

import asyncio
import math
import resource
import time
from collections.abc import Callable, Mapping
from contextlib import aclosing
from datetime import datetime
from typing import Final, Protocol

from msgspec import Struct
from msgspec.structs import replace

from pgtop_tune.base.errors import ConnectionProblem, LoadProblem, NotLetIn, PgtopError, ServerProblem
from pgtop_tune.base.foreign_answers import decodes
from pgtop_tune.bench.argv import threads_for
from pgtop_tune.bench.commit_log import CountingClients
from pgtop_tune.bench.datasets.recognise import found_variables, recognise_pgbench
from pgtop_tune.bench.housekeeping import CHECKPOINT, OF_TABLES, QUIET, TRUNCATE, DatasetTable, find_tables, tidy
from pgtop_tune.bench.phases import peak_clients, steps_of
from pgtop_tune.bench.ports import SqlSession, safe_path
from pgtop_tune.bench.profiles import Profile, reads_scale, with_variables
from pgtop_tune.bench.runner import PgbenchRunner
from pgtop_tune.experiment.commit_table import COUNTED_WITHIN_S, CommitTable, create_table
from pgtop_tune.experiment.path import LoadTarget, between, limits, path_facts, poolers_looked_at, unreachable
from pgtop_tune.experiment.preflight import connection_room, file_room, pgbench_ready, shows_connections
from pgtop_tune.experiment.record import AskedRun, record_of, record_of_nothing
from pgtop_tune.experiment.run_guard import RunGuard
from pgtop_tune.experiment.server_times import OpenSqlSession, RoleCounters, ServerClock
from pgtop_tune.metrics import sections
from pgtop_tune.metrics.catalogue import Interval
from pgtop_tune.metrics.outage import outage_rows, primary_elsewhere, server_changes, silent_s
from pgtop_tune.metrics.run_evidence import RunEvidence, evidence_of
from pgtop_tune.metrics.server import checkpoints_between
from pgtop_tune.metrics.steady_state import SILENT, unrest
from pgtop_tune.model.absence import Unavailable
from pgtop_tune.model.bench import BenchReport, LoadSpec, RunState
from pgtop_tune.model.frame import Frame
from pgtop_tune.model.instance import Instance, Kin, joined, kin
from pgtop_tune.model.outage import AcknowledgedCommits, OutageResult
from pgtop_tune.model.run_result import HousekeepingStep, RunFacts, RunResult, ScriptFile, ServerTimes
from pgtop_tune.runtime.run_frames import FrameKeeper

QUIET_DEADLINE_S: Final = 60.0


class RunCell(Struct, frozen=True):
    """A run to be made.

    Attributes:
        profile: The profile that runs, where the spec has no scripts of its own.
        spec: The load with everything that the profile leaves open filled in.
        scripts: The scripts, for the record.
        configuration: Name of the parameters' values that are in force; "" for the server as it is.
    """

    target: LoadTarget
    profile: Profile
    spec: LoadSpec
    scripts: tuple[ScriptFile, ...] = ()
    configuration: str = ""

    @property
    def profile_name(self) -> str:
        """Return "" for scripts that the operator gave."""
        return "" if self.spec.scripts else self.profile.name

    @property
    def load_name(self) -> str:
        """Return the profile, or the names of the operator's scripts. Foreign text."""
        return self.profile_name or " ".join(script.name for script in self.scripts)

    @property
    def dataset(self) -> str:
        """Return the data set that the scripts run on; "" where it is not known."""
        if self.spec.scripts:
            return "pgbench" if all(script.builtin for script in self.spec.scripts) else ""
        return self.profile.dataset or ("pgbench" if self.profile.builtin else "")


class BeforeEachRun(Struct, frozen=True):
    """Steps that precede each run.

    Attributes:
        housekeeping: Steps, see `bench.housekeeping`.
        warm_up_s: The same load for so long, thrown away; 0 for none.
        quiet_deadline_s: The longest wait for quiet.
    """

    housekeeping: tuple[str, ...] = ()
    warm_up_s: int = 0
    quiet_deadline_s: float = QUIET_DEADLINE_S


NOTHING_BEFORE: Final = BeforeEachRun()


class RunConfigurations(Protocol):
    """The configurations that runs are made under."""

    async def to(self, cell: RunCell) -> None:
        """Put the configuration of a run into force; raises a PgtopError where that cannot be done."""

    async def lost(self, cell: RunCell) -> str:
        """Return why a run was not made under its configuration, or not throughout; "" where it was."""


ANSWER_S: Final = 120.0
_STARTED: Final = "SELECT extract(epoch FROM pg_postmaster_start_time())::float8"


@decodes
async def until_frames_show_it(open_sql_session: OpenSqlSession, keeper: FrameKeeper) -> None:
    """Wait for a frame of the server that answers now.

    Raises:
        ConnectionProblem: It does not answer, or frames do not show it in time.
    """
    async with aclosing(await open_sql_session()) as sql_session:
        [[started_s]] = await sql_session.rows(_STARTED)

    def shows(interval: Interval) -> bool:
        facts = sections.server(interval.newest)
        return not isinstance(facts, Unavailable) and abs(facts.started_ms / 1000.0 - float(str(started_s))) < 1.0

    if not await keeper.until(shows, ANSWER_S):
        raise ConnectionProblem("the server does not answer")


_MORE_ROOM: Final = "fewer clients, or raise the limit"
_CONNECTS_S: Final = 5.0
"""A pgbench that has opened no connection for so long will hardly open another one, where a limit was seen before."""
_LOOK_S: Final = 0.5
_FRAME_DEADLINE_S: Final = 20.0
_LOOK_DEADLINE_S: Final = 5.0
_AWAY_S: Final = 60.0
_AGAIN_S: Final = 5.0
_SILENCE_S: Final = 10.0
"""A server that says nothing for so long does not become quiet."""
_COUNTED: Final = ("processed", "failed", "serialization_failures", "deadlock_failures", "skipped")
"""Fields of pgbench's report that the facts of a run have as well."""
_WITHOUT_COLLECTOR: Final = 150_000
_COLLECTED_MS: Final = 2000
_OVER: Final = (RunState.STOPPED, RunState.FINISHED, RunState.FAILED)


class UnderWay(Struct, frozen=True):
    """A run that was started.

    Attributes:
        number: The number of the run, as frames have it.
        asked_run, facts: The request and the facts, for its record.
        before: The server's counters of statements before the run, where these are asked for.
        commits: The table of the counting clients, or why there is none; for a run through an outage.
    """

    number: int
    asked_run: AskedRun
    facts: RunFacts
    before: RoleCounters | None
    commits: CommitTable | str = ""


class LoadRun:
    """The maker of runs against a server that is watched, one at a time, in the engine's loop.

    Args:
        runner: pgbench, not used before; a part of the source whose frames the keeper gets.
        keeper: The frames.
        open_sql_session: SQL on the server that is watched.
        tell: Takes what is going on, one line.
        configurations: The configurations of the cells; None where no cell has one.
        one_server: Its runs are compared with each other: another server in place of the first one is refused.
        restarts: Somebody restarts the server between them on purpose.
        guard: Makes the guard of each run that comes without one; None guards none.
    """

    def __init__(
        self,
        runner: PgbenchRunner,
        keeper: FrameKeeper,
        open_sql_session: OpenSqlSession,
        tell: Callable[[str], None],
        configurations: RunConfigurations | None = None,
        *,
        one_server: bool = True,
        restarts: bool = False,
        guard: Callable[[], RunGuard] | None = None,
    ) -> None:
        self._guard = guard
        self._runner = runner
        self._keeper = keeper
        self._open_sql_session = open_sql_session
        self._clock = ServerClock(open_sql_session)
        self._told = tell
        self._configurations = configurations
        self._one_server = one_server
        self._restarts = restarts
        self._first: Instance | None = None
        self._restarted = self._unseen = ""
        self._runs = 0

    @property
    def machine(self) -> str:
        """Return the machines that the load comes from; "" for this one."""
        return self._runner.machine

    def compare(self, one_server: bool) -> None:
        """Compare the runs from the next one on with each other, or none: see `one_server`."""
        self._one_server, self._first, self._restarted = one_server, None, ""

    async def measure(self, cell: RunCell, before: BeforeEachRun, guard: RunGuard | None = None) -> RunResult:
        """Make the run. One that fails, or cannot begin, is a result with its reason.

        Args:
            cell: The load.
            before: Steps that precede it.
            guard: Its guard; None makes the usual one.

        Raises:
            Cancelled: A run under way was stopped; `partial` of it is its record.
            asyncio.CancelledError: Nothing was under way yet.
        """
        asked_run, facts = _asked(cell), _facts(cell)
        try:
            asked_run, facts = await self._prepare_soon(cell, before)
            if before.warm_up_s:
                await self._warm_up(asked_run.spec, before.warm_up_s)
            await self._keeper.fresh(_FRAME_DEADLINE_S)
            run = await self._begin(asked_run, facts)
        except PgtopError as problem:
            return record_of_nothing(asked_run, facts, problem.message, problem.hint, _now_ms())
        except asyncio.CancelledError:
            await asyncio.shield(self._runner.stop())
            raise
        try:
            await self._until_over(run, guard)
        except asyncio.CancelledError:
            raise Cancelled(await asyncio.shield(self._stopped(run))) from None
        return await self._record(replace(run, facts=replace(run.facts, lost=await self._lost(cell))))

    async def _lost(self, cell: RunCell) -> str:
        """See `RunConfigurations.lost`; frames show a server that is gone."""
        try:
            return "" if self._configurations is None else await self._configurations.lost(cell)
        except ConnectionProblem:
            return ""

    async def start(self, cell: RunCell, before: BeforeEachRun = NOTHING_BEFORE) -> UnderWay:
        """Start a run that the caller ends.

        Args:
            cell: The load.
            before: Steps that precede it, but for a warm-up; without any, the run starts at once.

        Raises:
            LoadProblem: It cannot be started, or would surely die of a limit; with the numbers.
            ConnectionProblem: The server is not there.
        """
        if obstacles := await self._will_not_fit(cell):
            raise LoadProblem("; ".join(obstacles), _MORE_ROOM)
        asked_run, facts = await self._prepare(cell, before)
        return await self._begin(asked_run, facts)

    async def _begin(self, asked_run: AskedRun, facts: RunFacts) -> UnderWay:
        self._keeper.begin()
        where, spec = self._runner.endpoint, asked_run.spec
        before = await self._clock.before(where.user, where.dbname) if spec.per_statement else None
        commits: CommitTable | str = ""
        if spec.through_outage:
            commits = await create_table(self._open_sql_session, spec.duration_s or 0, direct=facts.direct)
        counting = commits.counting if isinstance(commits, CommitTable) else None
        try:
            number = await self._start(spec, counting)
        except BaseException:
            if isinstance(commits, CommitTable):
                await asyncio.shield(commits.compare((), _LOOK_DEADLINE_S))
            raise
        return UnderWay(number=number, asked_run=asked_run, facts=facts, before=before, commits=commits)

    async def finish(self, run: UnderWay) -> RunResult:
        """Wait for a run to end, by itself or stopped, and return its record."""
        await self._until_over(run)
        return await self._record(run)

    async def _until_over(self, run: UnderWay, guard: RunGuard | None = None) -> None:
        """Wait for the end of a run; its guard may end it, and a limit that was seen before it."""
        if guard is None and self._guard is not None:
            guard = self._guard()
        ended = asyncio.create_task(self._runner.ended())
        enders = [] if guard is None else [asyncio.create_task(self._end_as_guarded(guard))]
        is_watched = run.facts.warnings and not run.asked_run.spec.through_outage
        enders += [asyncio.create_task(self._end_without_connections())] if is_watched else []
        try:
            await ended
        finally:
            for task in (ended, *enders):
                task.cancel()

    async def _end_as_guarded(self, guard: RunGuard) -> None:
        if await self._keeper.until(guard.ends, None) and guard.ended_for is not None:
            await self._runner.stop(guard.ended_for.doubt, guard.ended_for.reason)

    async def _end_without_connections(self) -> None:
        """End the run once a client was refused, or pgbench has long opened no further connection."""
        opened, since_s = -1, time.monotonic()
        while not self._runner.lost_connections:
            files = self._runner.opening
            if files != opened or files is None:
                opened, since_s = -1 if files is None else files, time.monotonic()
            elif time.monotonic() - since_s > _CONNECTS_S:
                break
            await asyncio.sleep(_LOOK_S)
        refusal = self._runner.lost_connections
        await self._runner.fail(refusal or f"pgbench opened no further connection for {_CONNECTS_S:.0f} s")

    async def _complete(self, cell: RunCell, spec: LoadSpec) -> AskedRun:
        """Return the run with all options filled in, once pgbench is there and accepts it.

        Raises:
            LoadProblem: No pgbench, or a load that it would refuse.
        """
        version = (await self._runner.pgbench()).version
        command = await self._runner.preview(spec)
        return replace(_asked(cell), spec=spec, pgbench_version=version, command=command)

    async def _start(self, spec: LoadSpec, counting: CountingClients | None = None) -> int:
        """Start pgbench; the number of the run."""
        await self._runner.start(spec, counting)
        self._runs += 1
        return self._runs

    async def _server_times(self, run: UnderWay, report: BenchReport | None) -> ServerTimes:
        where = self._runner.endpoint
        if run.before is None or report is None:
            return ServerTimes()
        return await self._clock.after(run.before, where.user, where.dbname, report)

    async def _stopped(self, run: UnderWay) -> RunResult:
        await self._runner.stop()
        return await self._record(run)

    async def _record(self, run: UnderWay) -> RunResult:
        """Return the record of a run, once a frame has shown its end."""
        ended_ms = _now_ms()
        commits = await self._commits(run)
        end_is_shown = await self._keeper.until(_shows_the_end(run.number), _FRAME_DEADLINE_S)
        report = self._runner.report
        facts = replace(run.facts, logged=self._runner.log_statistics.lines)
        if report is not None:
            counted = {name: getattr(report, name) for name in _COUNTED}
            facts = replace(facts, **counted, scale=report.scale if facts.builtin else None)
        frames = self._keeper.frames
        evidence = evidence_of(frames if end_is_shown else self._with_the_rest(frames), run.number, facts)
        if evidence is None:
            problem = "no frame covers the run: the session ended too early"
            return record_of_nothing(run.asked_run, facts, problem, "", ended_ms)
        outage = None if commits is None else await self._outage(evidence, commits)
        record = record_of(run.asked_run, evidence, report, self._runner.output, ended_ms)
        return replace(record, server_times=await self._server_times(run, report), outage=outage)

    async def _commits(self, run: UnderWay) -> AcknowledgedCommits | None:
        """Return the commits of the counting clients and their rows; None for a run that replaces no clients."""
        clients = self._runner.outage_clients
        if clients is None:
            return None
        if isinstance(run.commits, str):
            return AcknowledgedCommits(problem=run.commits)
        patience_s = COUNTED_WITHIN_S if clients.finished else _LOOK_DEADLINE_S
        commits = await run.commits.compare(clients.acknowledged, patience_s)
        return replace(commits, problem=clients.uncounted or commits.problem)

    async def _outage(self, evidence: RunEvidence, commits: AcknowledgedCommits) -> OutageResult:
        # Our own session may need longer to come back than clients do.
        await self._keeper.until(shows_server, _LOOK_DEADLINE_S)
        clients = self._runner.outage_clients
        return OutageResult(
            outages=outage_rows(evidence),
            changes=server_changes(self._keeper.frames),
            commits=replace(commits, elsewhere=primary_elsewhere(self._keeper.frames[-1], commits.counted_on)),
            waiting_clients=0 if clients is None else clients.waiting,
            silent_s=silent_s(evidence),
        )

    def _with_the_rest(self, frames: tuple[Frame, ...]) -> tuple[Frame, ...]:
        """Return the frames with pgbench's own last words: the session has ended, and no frame will show the end."""
        if not frames:
            return ()
        sample = self._runner.sample(frames[-1].elapsed_s)
        return frames if isinstance(sample, Unavailable) else (*frames, replace(frames[-1], bench=sample))

    async def _prepare_soon(self, cell: RunCell, before: BeforeEachRun) -> tuple[AskedRun, RunFacts]:
        """Prepare a run under the configuration of its cell; after an earlier run, wait for a server that is away."""
        until_s = time.monotonic() + (_AWAY_S if self._runs else 0.0)
        while True:
            try:
                if self._configurations is not None:
                    await self._configurations.to(cell)
                return await self._prepare(cell, before)
            except ConnectionProblem as problem:
                if isinstance(problem, NotLetIn) or time.monotonic() > until_s:
                    raise
                self._told(f"waiting for the server: {problem.message}")
                await asyncio.sleep(_AGAIN_S)

    async def _prepare(self, cell: RunCell, before: BeforeEachRun) -> tuple[AskedRun, RunFacts]:
        """Look at all that the run needs, and do the housekeeping when it can begin.

        Returns:
            The load with the numbers that its data set gives, and the facts with what was found.

        Raises:
            PgtopError: The run cannot begin; nothing was changed.
        """
        self._runner.endpoint, self._runner.path, self._unseen = cell.target.endpoint, (), ""
        tables: tuple[DatasetTable, ...] = ()
        try:
            sql_session = await self._open_sql_session()
        except ConnectionProblem as problem:
            if cell.target.direct and not isinstance(problem, NotLetIn):
                raise
            warnings = [*await self._check_room(cell), *await self._check_the_way(cell)]
            asked_run = await self._complete(cell, self._with_numbers(cell, {}))
            steps = tuple(HousekeepingStep(step, 0.0, problem.message) for step in before.housekeeping)
            proven = False
        else:
            try:
                proven = cell.target.direct and await self._is_watched(sql_session)
                await self._check_first(sql_session)
                no_room = await self._check_room(cell)
                warnings = [*no_room, *await self._check_the_way(cell)]
                elsewhere = await _elsewhere(sql_session, cell.target)
                is_direct = cell.target.direct and not elsewhere
                tables = () if elsewhere else await find_tables(sql_session, cell.dataset)
                if cell.dataset and is_direct and not tables:
                    raise LoadProblem(
                        f"there are no tables of the {cell.dataset} data set in {cell.target.endpoint.dbname}",
                        f"create them first: pgtop-tune bench init --dataset {cell.dataset}",
                    )
                if cell.dataset == "pgbench" and is_direct:
                    warnings += self._warn(await pgbench_ready(sql_session))
                # A pooler lets no PGOPTIONS through; scripts of the operator's may want the path as it is.
                is_ours = bool(cell.dataset) or not cell.spec.scripts
                pinned = await safe_path(sql_session) if is_direct and is_ours else ()
                variables: dict[str, str] = {}
                if elsewhere:
                    pass
                elif cell.profile.from_dataset and not cell.spec.scripts:
                    variables = await found_variables(sql_session, cell.dataset)
                elif reads_scale(cell.spec):
                    variables = await self._scale(sql_session)
                asked_run = await self._complete(cell, self._with_numbers(cell, variables, pinned))
                # Nothing was changed up to here. A run that will hardly begin is not worth a history.
                wanted_steps = [
                    step
                    for step in before.housekeeping
                    if not (elsewhere or (no_room and step == TRUNCATE) or (step in OF_TABLES and not tables))
                ]
                if CHECKPOINT in wanted_steps:
                    await self._keeper.until(_shows_checkpoints, _LOOK_DEADLINE_S)
                earlier = self._keeper.interval
                steps = await tidy(sql_session, wanted_steps, tables, lambda step: self._told(f"housekeeping: {step}"))
                if elsewhere:
                    steps = tuple(HousekeepingStep(step, 0.0, elsewhere) for step in before.housekeeping)
                elif no_room and TRUNCATE in before.housekeeping:
                    steps = (HousekeepingStep(TRUNCATE, 0.0, "the clients will not fit"), *steps)
            finally:
                await sql_session.aclose()
            if any(step.name == CHECKPOINT and not step.problem for step in steps):
                # Else the run would have this checkpoint for its own.
                await self._keeper.until(_counts_a_checkpoint(earlier, _now_ms()), _LOOK_DEADLINE_S)
            if QUIET in before.housekeeping and not elsewhere:
                steps = (*steps, await self._wait_for_quiet(before.quiet_deadline_s))
        facts = replace(
            _facts(cell),
            tables=tuple(table.name for table in tables),
            unlogged=tuple(table.name for table in tables if table.unlogged),
            housekeeping=steps,
            warnings=tuple(warnings),
            proven=proven,
            restarted=self._restarted,
            unseen=self._unseen,
        )
        return asked_run, facts

    async def _is_watched(self, sql_session: SqlSession) -> bool:
        """Return whether the load surely runs on the server that is watched.

        Args:
            sql_session: At the load's address.

        Raises:
            LoadProblem: Another server answers there.
        """
        server = await sql_session.server()

        def shows_it(interval: Interval) -> bool:
            watched = sections.server(interval.newest)
            return not isinstance(watched, Unavailable) and watched.started_ms == server.started_ms

        # A server that was restarted is another one in frames that are older.
        if not await self._keeper.until(shows_it, _FRAME_DEADLINE_S):
            interval = self._keeper.interval
            if interval is not None and not isinstance(sections.server(interval.newest), Unavailable):
                raise LoadProblem(
                    f"another server than the one that is watched answers at {self._runner.endpoint}",
                    "after a failover, start again; -h names one host",
                )
            return False
        from_there = bool(self._runner.machine) and self._runner.endpoint.of_this_machine
        return server.straight and not from_there

    async def _check_first(self, sql_session: SqlSession) -> None:
        """Make sure that the server is the one of the first run, and remember a restart since.

        Raises:
            LoadProblem: It is another one.
        """
        interval = self._keeper.interval
        watched = None if interval is None else sections.server(interval.newest)
        if not self._one_server or watched is None or isinstance(watched, Unavailable):
            return
        now = Instance(
            system_identifier=watched.system_identifier,
            started_us=watched.started_ms * 1000,
            in_recovery=watched.in_recovery,
            timeline=await sql_session.timeline(),
            data_directory=watched.data_directory,
        )
        if self._first is not None:
            relation = kin(self._first, now)
            if relation is Kin.OTHER:
                raise LoadProblem(
                    f"a different server than in the first run answers at {self._runner.endpoint}",
                    "its figures cannot be compared with the earlier runs: start again",
                )
            if relation is Kin.PERHAPS and not self._restarts and not self._restarted:
                self._restarted = f"at {datetime.fromtimestamp(watched.started_ms / 1000):%H:%M:%S}"
                self._told(f"warning: the server was restarted {self._restarted}, after the first run")
        self._first = joined(self._first, now)

    @staticmethod
    def _with_numbers(
        cell: RunCell, variables: Mapping[str, str], pinned: tuple[tuple[str, str], ...] = ()
    ) -> LoadSpec:
        if cell.spec.scripts:
            spec = replace(cell.spec, variables=(*variables.items(), *cell.spec.variables))
        else:
            spec = with_variables(cell.spec, cell.profile, variables)
        # The same parameter of the operator's wins: it stands behind ours.
        return replace(spec, settings=(*pinned, *spec.settings))

    async def _scale(self, sql_session: SqlSession) -> dict[str, str]:
        """Return :scale from the tables, as pgbench's own scripts have it; with -f pgbench takes 1."""
        try:
            facts = await recognise_pgbench(sql_session)
        except (LoadProblem, ServerProblem) as problem:
            self._told(f":scale is 1: {problem.message}")
            return {}
        if facts is None or not facts.scale:
            self._told(":scale is 1: this database has no pgbench tables")
            return {}
        self._told(f":scale is {facts.scale}, from pgbench's tables; -D scale=NUMBER overrides it")
        return {"scale": str(facts.scale)}

    def _warn(self, *warnings: str) -> list[str]:
        """Tell the warnings that are not "", and return them."""
        said_warnings = [warning for warning in warnings if warning]
        for warning in said_warnings:
            self._told(f"warning: {warning}")
        return said_warnings

    async def _check_room(self, cell: RunCell) -> list[str]:
        """Say why some clients will not fit.

        Raises:
            LoadProblem: They never will.
        """
        never = await self._will_not_fit(cell, alone=True)
        if never and not cell.spec.connect_per_transaction:
            raise LoadProblem("; ".join(never), _MORE_ROOM)
        return self._warn(*await self._will_not_fit(cell))

    async def _will_not_fit(self, cell: RunCell, *, alone: bool = False) -> list[str]:
        """Return the reasons; see `connection_room`."""
        if cell.target.direct:
            # A busy machine misses a look now and then.
            await self._keeper.until(shows_connections, _LOOK_DEADLINE_S)
        interval = self._keeper.interval
        files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        clients = peak_clients(cell.spec)
        # Of another machine the limit is not known.
        obstacles = [] if self._runner.machine else [file_room(files, clients, threads_for(cell.spec))]
        if interval is not None and cell.target.direct:
            obstacles.append(connection_room(interval, clients, alone=alone))
        return [obstacle for obstacle in obstacles if obstacle]

    async def _check_the_way(self, cell: RunCell) -> list[str]:
        """Say what stands in the way to the target.

        Raises:
            LoadProblem: The run would surely die of it, or no server answers there.
        """
        if not cell.target.direct and not self._runner.machine and (problem := await unreachable(cell.target.endpoint)):
            raise LoadProblem(problem, "check that the server runs, and its host and port")
        await self._keeper.until(poolers_looked_at, _FRAME_DEADLINE_S)
        interval = self._keeper.interval
        if interval is None:
            return []
        facts = await path_facts(cell.target, cell.spec, interval, from_here=not self._runner.machine)
        self._runner.path = () if cell.target.direct else between(facts)
        self._unseen = facts.unseen
        path_limits = limits(facts)
        for limit in path_limits:
            if limit.refuses:
                raise LoadProblem(limit.reason, limit.advice)
            self._told(f"warning: {limit.reason} -> {limit.advice}")
        return [limit.reason for limit in path_limits]

    async def _wait_for_quiet(self, deadline_s: float) -> HousekeepingStep:
        started_s = time.monotonic()
        await self._keeper.fresh(_FRAME_DEADLINE_S)
        reasons: tuple[str, ...] = ()
        since_s = started_s

        def is_quiet(interval: Interval) -> bool:
            nonlocal reasons, since_s
            now = unrest(interval)
            if now and now != reasons:
                self._told(f"housekeeping: waiting for quiet: {'; '.join(now)}")
                since_s = time.monotonic()
            reasons = now
            return not now or (now == SILENT and time.monotonic() - since_s >= _SILENCE_S)

        await self._keeper.until(is_quiet, deadline_s)
        took_s = time.monotonic() - started_s
        return HousekeepingStep(QUIET, took_s, f"after {took_s:.0f} s still {'; '.join(reasons)}" if reasons else "")

    async def _warm_up(self, spec: LoadSpec, seconds: int) -> None:
        self._told(f"warming up for {seconds} s")
        level = next((step.level for step in steps_of(spec) if step.level.clients), spec.level)
        number = await self._start(
            replace(
                spec, duration_s=seconds, transactions=None, phases="", through_outage=False, clients=level.clients,
                rate_per_s=level.rate_per_s,
            )
        )  # fmt: skip
        await self._runner.ended()
        await self._keeper.until(_shows_the_end(number), _FRAME_DEADLINE_S)


async def _elsewhere(sql_session: SqlSession, target: LoadTarget) -> str:
    """Return why what a session does concerns another database than the load's; "" where it is the same."""
    [[name]] = await sql_session.rows("SELECT current_database()")
    if not target.elsewhere and name == target.endpoint.dbname:
        return ""
    return f"the load runs in another database, {target.endpoint.dbname} at {target.name}"


class Cancelled(asyncio.CancelledError):
    """A run under way was stopped.

    Attributes:
        partial: Its record, as far as it went.
    """

    def __init__(self, partial: RunResult) -> None:
        super().__init__("stopped")
        self.partial = partial


def _asked(cell: RunCell) -> AskedRun:
    return AskedRun(
        endpoint=cell.target.name,
        profile=cell.profile_name,
        spec=cell.spec,
        scripts=cell.scripts,
        configuration=cell.configuration,
    )


def _facts(cell: RunCell) -> RunFacts:
    return RunFacts(
        builtin="" if cell.spec.scripts else cell.profile.builtin,
        direct=cell.target.direct,
        elsewhere=cell.target.elsewhere,
    )


def _shows_the_end(number: int) -> Callable[[Interval], bool]:
    def shows(interval: Interval) -> bool:
        bench = interval.newest.bench
        return not isinstance(bench, Unavailable) and bench.run.run == number and bench.run.state in _OVER

    return shows


def _counts_a_checkpoint(earlier: Interval | None, ended_ms: int) -> Callable[[Interval], bool]:
    """Return whether frames count a checkpoint that began after `earlier` and has ended; true where they cannot tell.

    Before 15 all counters come from a collector, which is up to two seconds late.
    """
    before = None if earlier is None else earlier.now(sections.checkpoints)

    def counts(interval: Interval) -> bool:
        server, now = sections.server(interval.newest), interval.now(sections.checkpoints)
        if isinstance(server, Unavailable) or server.in_recovery:
            return True
        if server.version_num < _WITHOUT_COLLECTOR and interval.newest.taken_at_ms - ended_ms < _COLLECTED_MS:
            return False
        return before is None or now is None or checkpoints_between(before, now) != (0, 0)

    return counts


def _shows_checkpoints(interval: Interval) -> bool:
    return interval.now(sections.checkpoints) is not None


def shows_server(interval: Interval) -> bool:
    """Return whether the newest frame has an answer of the server."""
    return not isinstance(sections.server(interval.newest), Unavailable)


def _now_ms() -> int:
    return math.floor(time.time() * 1000)
