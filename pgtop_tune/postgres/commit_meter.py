"""How many commits a second a server makes durable, and how long a round trip to it takes.

Each commit writes a logical message of a few bytes and nothing else: no table, no row, no bloat. It uses up a
transaction id and a flush. Source: PostgreSQL documentation, pg_logical_emit_message().
"""

from __future__ import annotations

import asyncio
import time
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
    """A statement again and again.

    Attributes:
        sessions: At the same time.
        count: All together.
        median_ms: Of one, as the client sees it.
        rates: All sessions together, a second, of each pass.
    """

    sessions: int
    count: int
    median_ms: float
    rates: tuple[float, ...]

    @property
    def per_s(self) -> float:
        """The median of the passes."""
        return median(self.rates)


async def measure_commits(
    conninfo: ConnInfo, our_sessions: OwnSessions, sessions: int, seconds: float, synchronous_commit: str
) -> Repeated:
    """Commits of so many sessions at the same time.

    Args:
        conninfo: The server.
        our_sessions: Our sessions.
        sessions: How many.
        seconds: How long.
        synchronous_commit: Of each commit, whatever our role or database has for its own.

    Raises:
        ConnectionProblem: The server does not let as many in.
        ServerProblem: It refuses: a standby, a read-only transaction, a role without the right.
    """
    return await _measured(
        conninfo, our_sessions, marked(_COMMIT.format(literal(synchronous_commit))), sessions, seconds
    )


async def measure_round_trips(conninfo: ConnInfo, our_sessions: OwnSessions, seconds: float) -> Repeated:
    """Statements that do nothing. Raises as `measure_commits`."""
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
            each_s = [
                one
                for some in await asyncio.gather(
                    *(_again(sql_session, statement, until) for sql_session in sql_sessions)
                )
                for one in some
            ]
            rates.append(len(each_s) / (time.perf_counter() - began))
            durations_s += each_s
    finally:
        for sql_session in sql_sessions:
            await sql_session.aclose()
    return Repeated(sessions=sessions, count=len(durations_s), median_ms=1000 * median(durations_s), rates=tuple(rates))


async def _again(sql_session: PsycopgSession, statement: str, until: float) -> list[float]:
    """Seconds of each; at least one."""
    durations_s: list[float] = []
    before = time.perf_counter()
    while not durations_s or before < until:
        await sql_session.execute(statement)
        now = time.perf_counter()
        durations_s.append(now - before)
        before = now
    return durations_s
