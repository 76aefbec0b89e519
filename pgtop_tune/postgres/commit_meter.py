"""Measurement of the durable commits per second of a server, and of the round trip to it.

Each commit writes a logical message of a few bytes and nothing else: no table, no row, no bloat. It uses up a
transaction id and a flush. Source: PostgreSQL documentation, pg_logical_emit_message().
"""

from __future__ import annotations

import asyncio
import time
from itertools import chain
from statistics import median
from typing import Final

from msgspec import Struct

from pgtop_tune.base.sql_quoting import literal
from pgtop_tune.postgres.server.conninfo import ConnInfo
from pgtop_tune.postgres.server.own_sessions import OwnSessions, marked
from pgtop_tune.postgres.server.sql_session import PsycopgSession, open_sql_session

_COMMIT: Final = (
    "SELECT pg_catalog.set_config('synchronous_commit', {}, true), "
    "pg_catalog.pg_logical_emit_message(true, 'pgtop-tune', '')"
)
PASSES: Final = 5
_NOTHING: Final = marked("SELECT 1")


class Repeated(Struct, frozen=True):
    """Result of a statement that was repeated.

    Attributes:
        sessions: Number of concurrent sessions.
        count: Number of executions.
        median_ms: Median time of an execution, as the client sees it.
        rates: Executions per second of all sessions together, for each pass.
    """

    sessions: int
    count: int
    median_ms: float
    rates: tuple[float, ...]

    @property
    def per_s(self) -> float:
        """Median rate of the passes."""
        return median(self.rates)


async def measure_commits(
    conninfo: ConnInfo, our_sessions: OwnSessions, sessions: int, seconds: float, synchronous_commit: str
) -> Repeated:
    """Measure the commits of several concurrent sessions.

    Args:
        conninfo: The server.
        our_sessions: Our sessions.
        sessions: Number of sessions.
        seconds: Duration.
        synchronous_commit: Value for each commit, in place of that of our role or database.

    Raises:
        ConnectionProblem: The server does not accept that many sessions.
        ServerProblem: It refuses: a standby, a read-only transaction, a role without the right.
    """
    return await _measured(
        conninfo, our_sessions, marked(_COMMIT.format(literal(synchronous_commit))), sessions, seconds
    )


async def measure_round_trips(conninfo: ConnInfo, our_sessions: OwnSessions, seconds: float) -> Repeated:
    """Measure statements that do nothing. Raises as `measure_commits`."""
    return await _measured(conninfo, our_sessions, _NOTHING, 1, seconds)


async def _measured(
    conninfo: ConnInfo, our_sessions: OwnSessions, statement: str, sessions: int, seconds: float
) -> Repeated:
    sql_sessions: list[PsycopgSession] = []
    try:
        for _ in range(sessions):
            sql_sessions.append(await open_sql_session(conninfo, our_sessions))
        durations_s: list[float] = []
        rates: list[float] = []
        for _ in range(PASSES):
            began = time.perf_counter()
            until = began + seconds / PASSES
            repeated = await asyncio.gather(*(_repeat(sql_session, statement, until) for sql_session in sql_sessions))
            rates.append(sum(map(len, repeated)) / (time.perf_counter() - began))
            durations_s += chain.from_iterable(repeated)
    finally:
        for sql_session in sql_sessions:
            await sql_session.aclose()
    return Repeated(sessions=sessions, count=len(durations_s), median_ms=1000 * median(durations_s), rates=tuple(rates))


async def _repeat(sql_session: PsycopgSession, statement: str, until: float) -> list[float]:
    """Repeat a statement, at least once; return the seconds of each execution."""
    durations_s: list[float] = []
    before = time.perf_counter()
    while not durations_s or before < until:
        await sql_session.execute(statement)
        now = time.perf_counter()
        durations_s.append(now - before)
        before = now
    return durations_s
