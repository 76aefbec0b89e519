"""The bus company's tables, made step by step, in parts; the parts that are done are written down beside them.

A making that was cut off is gone on with: steps and parts that are there are not made again.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Final

from pgtop_tune.base.errors import LoadProblem, ServerProblem
from pgtop_tune.base.foreign_answers import decodes
from pgtop_tune.bench.datasets.bus import BusPlan, chunk_statements, statements
from pgtop_tune.bench.datasets.pgbench_tables import Initialised, InitialiseProgress, StepWatch, Tell
from pgtop_tune.bench.datasets.recognise import recognise_bus
from pgtop_tune.bench.ports import SqlSession

OpenSqlSession = Callable[[], Awaitable[SqlSession]]
"""Opens a session on the server."""

GENERATE: Final = "server-side generate"
_LOCK: Final = "hashtext('pgtop-tune bus')"
_ATTEMPTS: Final = 10
_AGAIN_S: Final = 0.2
_MOST_JOBS: Final = 64


@decodes
async def _locked(sql_session: SqlSession) -> bool:
    """Try to take the lock of this data set; a session that has just ended gives it back within moments."""
    for attempt in range(_ATTEMPTS):
        if attempt:
            await asyncio.sleep(_AGAIN_S)
        [(locked,)] = await sql_session.rows(f"SELECT pg_try_advisory_lock({_LOCK})")
        if locked:
            return True
    return False


async def make_bus(
    open_sql_session: OpenSqlSession, plan: BusPlan, *, anew: bool, jobs: int, tell: Tell
) -> Initialised:
    """Make the tables, or the missing part of them.

    When the task is cancelled, nothing runs on the server any more when it returns; the parts that were done stay.

    Args:
        open_sql_session: Called once for each job, and once to ask how far it is.
        anew: Drops what is there; else a data set of the same plan that is not complete is gone on with.
        jobs: Sessions that fill the tickets at the same time.
        tell: Told of every step, of every part of the tickets, and of vacuum and indexes as the server knows them.

    Returns:
        Seconds of each step that was done now.

    Raises:
        LoadProblem: Another making is under way, other tables are in the way and `anew` is not set, or the server
            refused, in its own words; a full disk among it.
        ConnectionProblem: The server is gone.
    """
    if not 1 <= jobs <= _MOST_JOBS:
        raise LoadProblem(f"jobs must be from 1 to {_MOST_JOBS}")
    async with _opened(open_sql_session) as sql_session, _opened(open_sql_session) as looking:
        watch = StepWatch(tell, looking)
        try:
            if not await _locked(sql_session):
                raise LoadProblem(
                    "another pgtop-tune is creating the bus data set in this database", "wait until it ends, or stop it"
                )
            return await _Making(open_sql_session, sql_session, plan, jobs, watch).run(anew)
        except ServerProblem as refusal:
            hint = refusal.hint or "finished parts are kept; run the same command to resume"
            raise LoadProblem(refusal.message, hint) from None
        finally:
            await watch.end()


@contextlib.asynccontextmanager
async def _opened(open_sql_session: OpenSqlSession) -> AsyncIterator[SqlSession]:
    sql_session = await open_sql_session()
    try:
        yield sql_session
    finally:
        await asyncio.shield(sql_session.aclose())


class _Making:
    """One making, with what it has measured."""

    def __init__(
        self, open_sql_session: OpenSqlSession, sql_session: SqlSession, plan: BusPlan, jobs: int, watch: StepWatch
    ) -> None:
        self._open_sql_session = open_sql_session
        self._sql_session = sql_session
        self._plan = plan
        self._jobs = jobs
        self._tell = watch.tell
        self._seconds: list[tuple[str, float]] = []

    async def run(self, anew: bool) -> Initialised:
        started_s = time.monotonic()
        existing = await recognise_bus(self._sql_session)
        if existing is not None and not anew and not existing.is_of(self._plan):
            raise LoadProblem(f"another bus data set exists: {existing.describe()}", "pass --force to replace it")
        done = set(existing.done) if existing is not None and not anew else set[str]()
        if existing is not None and anew:
            await self._step("drop tables", self._run("drop"))
        if "create tables" not in done:
            if not await self._sql_session.rows("SELECT FROM pg_namespace WHERE nspname = 'bus'"):
                # Not IF NOT EXISTS: a schema of a stranger's that comes in between is not taken.
                await self._sql_session.execute("CREATE SCHEMA bus")
            await self._step("create tables", self._run("tables"))
        if GENERATE not in done:
            await self._step(GENERATE, self._generate())
        for name, needed, making in (
            ("vacuum", True, self._vacuum),
            ("primary keys", True, lambda: self._run("primary_keys", "primary keys")),
            ("indexes", True, lambda: self._run("indexes", "indexes")),
            ("foreign keys", self._plan.foreign_keys, lambda: self._run("foreign_keys", "foreign keys")),
        ):
            if needed and name not in done:
                await self._step(name, making())
        return Initialised(time.monotonic() - started_s, tuple(self._seconds))

    async def _step(self, name: str, work: Awaitable[None]) -> None:
        self._tell(InitialiseProgress(name))
        started_s = time.monotonic()
        await work
        self._seconds.append((name, time.monotonic() - started_s))

    async def _run(self, file: str, done: str = "") -> None:
        """Run the statements of a file and note that they are done, in one transaction."""
        note = _noted(done) if done else ""
        await self._sql_session.execute(statements(file, self._plan) + note)

    async def _vacuum(self) -> None:
        await self._sql_session.execute(statements("vacuum", self._plan))
        await self._sql_session.execute(_noted("vacuum"))

    @decodes
    async def _generate(self) -> None:
        if not await self._sql_session.rows("SELECT 1 FROM bus.cities LIMIT 1"):
            await self._sql_session.execute(statements("company", self._plan))
        there = {row[0] for row in await self._sql_session.rows("SELECT chunk FROM bus.chunks")}
        missing = deque(number for number in range(self._plan.chunks) if number not in there)
        tickets = sum(last - first + 1 for first, last in (self._plan.chunk(int(str(number))) for number in there))
        done = [tickets]

        async def fill(sql_session: SqlSession) -> None:
            while missing:
                number = missing.popleft()
                await sql_session.execute(chunk_statements(self._plan, number))
                first, last = self._plan.chunk(number)
                done[0] += last - first + 1
                self._tell(InitialiseProgress(GENERATE, done[0], self._plan.tickets))

        self._tell(InitialiseProgress(GENERATE, tickets, self._plan.tickets))
        jobs = min(self._jobs, max(1, len(missing)))
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(fill(self._sql_session))
                for _ in range(jobs - 1):
                    group.create_task(self._beside(fill))
        except ExceptionGroup as problems:
            # Every job fails for the same reason, a full disk or a server that is gone: one is reported.
            raise problems.exceptions[0] from None
        await self._sql_session.execute(
            "SELECT setval(pg_get_serial_sequence('bus.tickets', 'ticket_id'), max(tickets)) FROM bus.dataset;"
            + _noted(GENERATE)
        )

    async def _beside(self, fill: Callable[[SqlSession], Awaitable[None]]) -> None:
        async with _opened(self._open_sql_session) as sql_session:
            await fill(sql_session)


def _noted(step: str) -> str:
    return f"UPDATE bus.dataset SET done = done || '{step}'::text;"
