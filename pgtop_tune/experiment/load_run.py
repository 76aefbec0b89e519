"""One run: housekeeping, quiet, start, watch, record."""

from __future__ import annotations

import asyncio
import math
import resource
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from pgtop_tune.base.errors import ConnectionProblem, LoadProblem, NotLetIn, PgtopError, ServerProblem
from pgtop_tune.bench.datasets.recognise import PgbenchFacts, found_variables, recognise_pgbench
from pgtop_tune.bench.housekeeping import QUIET, TRUNCATE, DatasetTable, find_tables, tidy
from pgtop_tune.bench.ports import SqlSession, safe_path
from pgtop_tune.bench.profiles import reads_scale, with_variables
from pgtop_tune.bench.runner import PgbenchRunner
from pgtop_tune.experiment.path import limits, path_facts, poolers_looked_at, unreachable
from pgtop_tune.experiment.record import AskedRun, record_of, record_of_nothing
from pgtop_tune.experiment.run_cell import NOTHING_BEFORE, BeforeEachRun, RunCell, RunConfigurations
from pgtop_tune.experiment.server_times import CounterReading, ServerClock
from pgtop_tune.metrics import sections
from pgtop_tune.metrics.catalogue import Interval
from pgtop_tune.metrics.run_evidence import evidence_of
from pgtop_tune.metrics.server import client_backends, number
from pgtop_tune.metrics.steady_state import SILENT, unrest
from pgtop_tune.model.absence import Unavailable
from pgtop_tune.model.bench import BenchReport, LoadSpec, RunState
from pgtop_tune.model.frame import Frame
from pgtop_tune.model.instance import Instance, Kin, joined, kin
from pgtop_tune.model.run_result import HousekeepingStep, RunFacts, RunResult, ServerTimes
from pgtop_tune.runtime.run_frames import FrameKeeper

# Checks before a run: whether its tables exist, and whether there is room for its clients.

PGBENCH_FILES: Final = 3
"""stdin, stdout, stderr: pgbench wants clients + 3 open files (its own check)."""


def shows_connections(interval: Interval) -> bool:
    """Whether the newest frame has what `connection_room` is computed from."""
    return not isinstance(sections.server(interval.newest), Unavailable) and interval.now(sections.activity) is not None


def connection_room(interval: Interval, clients: int) -> str:
    """Why the clients will not all get a connection of this server, with numbers; "" when they will, or who knows.

    Source: max_connections less superuser_reserved_connections and reserved_connections (16), neither of which binds
    a superuser, and the second no member of pg_use_reserved_connections, less the sessions that are there.
    """
    server, activity = sections.server(interval.newest), interval.now(sections.activity)
    if isinstance(server, Unavailable) or activity is None:
        return ""
    names = ["superuser_reserved_connections", *([] if server.may_use_reserved else ["reserved_connections"])]
    reserved = 0 if server.superuser else int(sum(number(interval, name) or 0 for name in names))
    there = len(client_backends(activity)) + activity.own_backends
    room = server.max_connections - reserved - there
    if clients <= room:
        return ""
    words = f", {reserved} of them reserved" if reserved else ""
    return (
        f"{clients} clients will not fit: max_connections is {server.max_connections}{words}, and {there} sessions "
        f"are connected already, which leaves {max(room, 0)}"
    )


def file_room(limit: int, clients: int) -> str:
    """Why pgbench cannot open so many connections, with numbers; "" when it can.

    Args:
        limit: RLIMIT_NOFILE (ulimit -n), the soft one; negative is no limit.
    """
    needed = clients + PGBENCH_FILES
    if limit < 0 or needed <= limit:
        return ""
    return f"{clients} clients need {needed} open files and pgbench may have {limit}: raise the limit with ulimit -n"


# Whether a load can run on the tables that are there, before anything is done to them.


async def pgbench_ready(sql_session: SqlSession) -> str:
    """What is missing of pgbench's tables that a load can do without, at a price; "" when nothing is.

    Raises:
        LoadProblem: They are not there, empty, those of an ordinary role where ours is a superuser, or other tables
            have their names.
        ConnectionProblem: The connection is gone.
    """
    try:
        facts = await recognise_pgbench(sql_session)
    except ServerProblem:
        # Who may not read them is told so by pgbench.
        return ""
    if facts is None or _nothing_in(facts):
        missing = "it does not exist" if facts is None else facts.incomplete
        raise LoadProblem(
            f"the pgbench data set cannot be used: {missing}", "create it: pgtop-tune bench init --dataset pgbench"
        )
    if facts.stranger:
        raise LoadProblem(
            f"pgbench's tables belong to {facts.stranger}: their triggers and expressions would run as a superuser",
            f"connect as {facts.stranger}, or take ownership: ALTER TABLE … OWNER TO",
        )
    return f"the pgbench data set is incomplete: {facts.incomplete}" if facts.incomplete else ""


def _nothing_in(facts: PgbenchFacts) -> bool:
    # Without a primary key the number of rows is an estimate, 0 before the first ANALYZE.
    return facts.scale == 0 or facts.size_bytes == 0 or (facts.primary_keys and facts.rows == 0)


_FRAME_DEADLINE_S: Final = 20.0
_LOOK_DEADLINE_S: Final = 5.0
_AWAY_S: Final = 60.0
_AGAIN_S: Final = 5.0
_SILENCE_S: Final = 10.0
"""A server that says nothing for so long does not become quiet."""
_OVER: Final = (RunState.STOPPED, RunState.FINISHED, RunState.FAILED)

OpenSqlSession = Callable[[], Awaitable[SqlSession]]


class UnderWay(Struct, frozen=True):
    """A run that was started.

    Attributes:
        number: Of the run, as frames have it.
        asked, facts: For its record.
        before: What the server had counted of statements, where that is asked for.
    """

    number: int
    asked: AskedRun
    facts: RunFacts
    before: CounterReading | None


class LoadRun:
    """Makes runs against a server that is watched, one at a time, in the engine's loop.

    Args:
        runner: pgbench, not used before; a part of the source whose frames the keeper gets.
        keeper: The frames.
        open_sql_session: SQL on the server that is watched.
        told: Takes what is going on, one line.
        configurations: Of the cells; None where no cell has one.
        one_server: Its runs are compared with each other: another server in place of the first one is refused.
        restarts: Somebody restarts the server between them on purpose.
    """

    def __init__(
        self,
        runner: PgbenchRunner,
        keeper: FrameKeeper,
        open_sql_session: OpenSqlSession,
        told: Callable[[str], None],
        configurations: RunConfigurations | None = None,
        *,
        one_server: bool = True,
        restarts: bool = False,
    ) -> None:
        self._runner = runner
        self._keeper = keeper
        self._open_sql_session = open_sql_session
        self._clock = ServerClock(open_sql_session)
        self._told = told
        self._configurations = configurations
        self._one_server = one_server
        self._restarts = restarts
        self._first: Instance | None = None
        self._restarted = ""
        self._runs = 0

    async def measure(self, cell: RunCell, before: BeforeEachRun) -> RunResult:
        """Makes the run. One that fails, or cannot begin, is a result with its reason.

        Raises:
            Cancelled: A run under way was stopped; `partial` of it is its record.
            asyncio.CancelledError: Nothing was under way yet.
        """
        asked, facts = _asked(cell), _facts(cell)
        try:
            asked, facts = await self._prepare_soon(cell, before)
            if before.warm_up_s:
                await self._warm_up(asked.spec, before.warm_up_s)
            await self._keeper.fresh(_FRAME_DEADLINE_S)
            self._keeper.begin()
            looked = await self._look(asked.spec)
            run = UnderWay(number=await self._start(asked.spec), asked=asked, facts=facts, before=looked)
        except PgtopError as problem:
            return record_of_nothing(asked, facts, problem.message, problem.hint, _now_ms())
        except asyncio.CancelledError:
            await asyncio.shield(self._runner.stop())
            raise
        try:
            await self._runner.ended()
        except asyncio.CancelledError:
            raise Cancelled(await asyncio.shield(self._stopped(run))) from None
        return await self._record(replace(run, facts=replace(run.facts, lost=await self._lost(cell))))

    async def _lost(self, cell: RunCell) -> str:
        """See `RunConfigurations.lost`; a server that is gone is told by the frames."""
        try:
            return "" if self._configurations is None else await self._configurations.lost(cell)
        except ConnectionProblem:
            return ""

    async def start(self, cell: RunCell, before: BeforeEachRun = NOTHING_BEFORE) -> UnderWay:
        """Starts a run that somebody else ends.

        Args:
            cell: The load.
            before: What precedes it, but for a warm-up; nothing: the run starts at once, as it stands.

        Raises:
            LoadProblem: It cannot be started, or would surely die of a limit; with the numbers.
            ConnectionProblem: The server is not there.
        """
        if words := await self._will_not_fit(cell):
            raise LoadProblem("; ".join(words), "fewer clients, or raise the limit")
        asked, facts = await self._prepare(cell, before)
        self._keeper.begin()
        looked = await self._look(asked.spec)
        return UnderWay(number=await self._start(asked.spec), asked=asked, facts=facts, before=looked)

    async def finish(self, run: UnderWay) -> RunResult:
        """Waits for a run to end, by itself or stopped, and gives its record."""
        await self._runner.ended()
        return await self._record(run)

    async def _complete(self, cell: RunCell, spec: LoadSpec) -> AskedRun:
        """What is asked for, once pgbench is there and takes it.

        Raises:
            LoadProblem: No pgbench, or a load that it would refuse.
        """
        version = (await self._runner.pgbench()).version
        command = await self._runner.preview(spec)
        return replace(_asked(cell), spec=spec, pgbench_version=version, command=command)

    async def _start(self, spec: LoadSpec) -> int:
        """Starts pgbench; the number of the run."""
        await self._runner.start(spec)
        self._runs += 1
        return self._runs

    async def _look(self, spec: LoadSpec) -> CounterReading | None:
        """What the server counted of statements up to now; None where nobody asks for statements."""
        where = self._runner.endpoint
        return await self._clock.before(where.user, where.dbname) if spec.per_statement else None

    async def _server_times(self, run: UnderWay, report: BenchReport | None) -> ServerTimes:
        where = self._runner.endpoint
        if run.before is None or report is None:
            return ServerTimes()
        return await self._clock.after(run.before, where.user, where.dbname, report)

    async def _stopped(self, run: UnderWay) -> RunResult:
        await self._runner.stop()
        return await self._record(run)

    async def _record(self, run: UnderWay) -> RunResult:
        """What was seen, once a frame has shown the end of the run."""
        ended_ms = _now_ms()
        shown = await self._keeper.until(_shows_the_end(run.number), _FRAME_DEADLINE_S)
        report = self._runner.report
        facts = replace(_with_report(run.facts, report), logged=self._runner.log_statistics.lines)
        frames = self._keeper.frames
        evidence = evidence_of(frames if shown else self._with_the_rest(frames), run.number, facts)
        if evidence is None:
            problem = "no frame covers the run: the session ended first"
            return record_of_nothing(run.asked, facts, problem, "", ended_ms)
        record = record_of(run.asked, evidence, report, self._runner.output, ended_ms)
        return replace(record, server_times=await self._server_times(run, report))

    def _with_the_rest(self, frames: tuple[Frame, ...]) -> tuple[Frame, ...]:
        """No frame will show the end, the session has ended before: what pgbench said since is taken from itself."""
        if not frames:
            return ()
        sample = self._runner.sample(frames[-1].elapsed_s)
        return frames if isinstance(sample, Unavailable) else (*frames, replace(frames[-1], bench=sample))

    async def _prepare_soon(self, cell: RunCell, before: BeforeEachRun) -> tuple[AskedRun, RunFacts]:
        """`_prepare` under the configuration of the cell; after an earlier run, a server that is away is waited for."""
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
        """Looks at all that the run needs, and does the housekeeping when it can begin.

        Returns:
            The load with the numbers that its data set gives, and the facts with what was found.

        Raises:
            PgtopError: The run cannot begin; nothing was changed.
        """
        self._runner.endpoint = cell.target.endpoint
        tables: tuple[DatasetTable, ...] = ()
        try:
            sql_session = await self._open_sql_session()
        except ConnectionProblem as problem:
            if cell.target.direct and not isinstance(problem, NotLetIn):
                raise
            warnings = [*self._warn(*await self._will_not_fit(cell)), *await self._check_the_way(cell)]
            asked = await self._complete(cell, self._with_numbers(cell, {}))
            steps = tuple(HousekeepingStep(step, 0.0, problem.message) for step in before.housekeeping)
            proven = False
        else:
            try:
                proven = cell.target.direct and await self._is_watched(sql_session)
                await self._check_first(sql_session)
                no_room = self._warn(*await self._will_not_fit(cell))
                warnings = [*no_room, *await self._check_the_way(cell)]
                tables = await find_tables(sql_session, cell.dataset)
                must_be_there(cell, tables)
                if cell.dataset == "pgbench" and cell.target.direct:
                    warnings += self._warn(await pgbench_ready(sql_session))
                # A pooler lets no PGOPTIONS through; scripts of the operator's may want the path as it is.
                pinned = await safe_path(sql_session) if cell.target.direct and not cell.spec.scripts else ()
                found: dict[str, str] = {}
                if cell.profile.from_dataset and not cell.spec.scripts:
                    found = await found_variables(sql_session, cell.dataset)
                elif reads_scale(cell.spec):
                    found = await self._scale(sql_session)
                asked = await self._complete(cell, self._with_numbers(cell, found, pinned))
                # Nothing was changed up to here. A run that will hardly begin is not worth a history.
                wanted = [step for step in before.housekeeping if not (no_room and step == TRUNCATE)]
                steps = await tidy(sql_session, wanted, tables, lambda step: self._told(f"housekeeping: {step}"))
                if no_room and TRUNCATE in before.housekeeping:
                    steps = (HousekeepingStep(TRUNCATE, 0.0, "the clients will not fit"), *steps)
            finally:
                await sql_session.aclose()
            if QUIET in before.housekeeping:
                steps = (*steps, await self._wait_for_quiet(before.quiet_deadline_s))
        names = tuple(table.name for table in tables)
        unlogged = tuple(table.name for table in tables if table.unlogged)
        facts = replace(
            _facts(cell),
            tables=names,
            unlogged=unlogged,
            housekeeping=steps,
            warnings=tuple(warnings),
            proven=proven,
            restarted=self._restarted,
        )
        return asked, facts

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
                    f"another server than the one of the first run answers at {self._runner.endpoint}",
                    "its figures are not comparable with those of the runs before: start again",
                )
            if relation is Kin.PERHAPS and not self._restarts and not self._restarted:
                self._restarted = f"at {datetime.fromtimestamp(watched.started_ms / 1000):%H:%M:%S}"
                self._told(f"warning: the server was restarted {self._restarted}, after the first run")
        self._first = joined(self._first, now)

    @staticmethod
    def _with_numbers(cell: RunCell, found: Mapping[str, str], pinned: tuple[tuple[str, str], ...] = ()) -> LoadSpec:
        if cell.spec.scripts:
            return replace(cell.spec, variables=(*found.items(), *cell.spec.variables))
        spec = with_variables(cell.spec, cell.profile, found)
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
            self._told(":scale is 1: this database has no tables of pgbench")
            return {}
        self._told(f":scale is {facts.scale}, as pgbench's tables are; -D scale=NUMBER sets another")
        return {"scale": str(facts.scale)}

    def _warn(self, *words: str) -> list[str]:
        """Tells what is to be said; what is "" is not."""
        said = [each for each in words if each]
        for each in said:
            self._told(f"warning: {each}")
        return said

    async def _will_not_fit(self, cell: RunCell) -> list[str]:
        if cell.target.direct:
            # A busy machine misses a look now and then.
            await self._keeper.until(shows_connections, _LOOK_DEADLINE_S)
        interval = self._keeper.interval
        files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        words = [file_room(files, cell.spec.clients)]
        if interval is not None and cell.target.direct:
            words.append(connection_room(interval, cell.spec.clients))
        return [each for each in words if each]

    async def _check_the_way(self, cell: RunCell) -> list[str]:
        """Says what stands in the way to the target.

        Raises:
            LoadProblem: The run would surely die of it, or nobody answers there.
        """
        if not cell.target.direct and not self._runner.machine and (problem := await unreachable(cell.target.endpoint)):
            raise LoadProblem(problem, "the endpoint does not answer, or listens elsewhere")
        await self._keeper.until(poolers_looked_at, _FRAME_DEADLINE_S)
        interval = self._keeper.interval
        if interval is None:
            return []
        found = limits(await path_facts(cell.target, cell.spec, interval, from_here=not self._runner.machine))
        for limit in found:
            if limit.refuses:
                raise LoadProblem(limit.reason, limit.advice)
            self._told(f"warning: {limit.reason} -> {limit.advice}")
        return [limit.reason for limit in found]

    async def _wait_for_quiet(self, deadline_s: float) -> HousekeepingStep:
        started_s = time.monotonic()
        await self._keeper.fresh(_FRAME_DEADLINE_S)
        seen: tuple[str, ...] = ()
        since_s = started_s

        def is_quiet(interval: Interval) -> bool:
            nonlocal seen, since_s
            now = unrest(interval)
            if now and now != seen:
                self._told(f"housekeeping: waiting for quiet: {'; '.join(now)}")
                since_s = time.monotonic()
            seen = now
            return not now or (now == SILENT and time.monotonic() - since_s >= _SILENCE_S)

        await self._keeper.until(is_quiet, deadline_s)
        took_s = time.monotonic() - started_s
        return HousekeepingStep(QUIET, took_s, f"after {took_s:.0f} s still {'; '.join(seen)}" if seen else "")

    async def _warm_up(self, spec: LoadSpec, seconds: int) -> None:
        self._told(f"warming up for {seconds} s")
        number = await self._start(replace(spec, duration_s=seconds, transactions=None))
        await self._runner.ended()
        await self._keeper.until(_shows_the_end(number), _FRAME_DEADLINE_S)


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


def _with_report(facts: RunFacts, report: BenchReport | None) -> RunFacts:
    if report is None:
        return facts
    return replace(
        facts,
        processed=report.processed,
        failed=report.failed,
        serialization_failures=report.serialization_failures,
        deadlock_failures=report.deadlock_failures,
        skipped=report.skipped,
        scale=report.scale if facts.builtin else None,
    )


def must_be_there(cell: RunCell, tables: Sequence[DatasetTable]) -> None:
    """Raises a LoadProblem where the server has no tables of the load's data set."""
    if cell.dataset and cell.target.direct and not tables:
        raise LoadProblem(
            f"there are no tables of the {cell.dataset} data set in {cell.target.endpoint.dbname}",
            f"create them first: pgtop-tune bench init --dataset {cell.dataset}",
        )


def _shows_the_end(number: int) -> Callable[[Interval], bool]:
    def shows(interval: Interval) -> bool:
        bench = interval.newest.bench
        return not isinstance(bench, Unavailable) and bench.run.run == number and bench.run.state in _OVER

    return shows


def _now_ms() -> int:
    return math.floor(time.time() * 1000)
