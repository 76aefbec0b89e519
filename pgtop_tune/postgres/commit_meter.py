"""How many commits a second a server makes durable, and how long a round trip to it takes.

Each commit writes a logical message of a few bytes and nothing else: no table, no row, no bloat. It uses up a
transaction id and a flush. Source: PostgreSQL documentation, pg_logical_emit_message().
"""

from __future__ import annotations

import asyncio
import time
from typing import Final

from msgspec import Struct

from pgtop_tune.postgres.conninfo import ConnInfo
from pgtop_tune.postgres.own_sessions import OwnSessions, marked
from pgtop_tune.postgres.sql_hand import PsycopgHand, open_hand

_COMMIT: Final = marked("SELECT pg_catalog.pg_logical_emit_message(true, 'pgtop-tune', '')")
_NOTHING: Final = marked("SELECT 1")


class Repeated(Struct, frozen=True):
    """A statement again and again.

    Attributes:
        sessions: At the same time.
        count: All together.
        seconds: How long.
        median_ms: Of one, as the client sees it.
    """

    sessions: int
    count: int
    seconds: float
    median_ms: float

    @property
    def per_s(self) -> float:
        """All sessions together."""
        return self.count / self.seconds


async def measure_commits(conninfo: ConnInfo, own: OwnSessions, sessions: int, seconds: float) -> Repeated:
    """Commits of so many sessions at the same time.

    Raises:
        ConnectionProblem: The server does not let as many in.
        ServerProblem: It refuses: a standby, a read-only transaction, a role without the right.
    """
    return await _measured(conninfo, own, _COMMIT, sessions, seconds)


async def measure_round_trips(conninfo: ConnInfo, own: OwnSessions, seconds: float) -> Repeated:
    """Statements that do nothing. Raises as `measure_commits`."""
    return await _measured(conninfo, own, _NOTHING, 1, seconds)


async def _measured(conninfo: ConnInfo, own: OwnSessions, statement: str, sessions: int, seconds: float) -> Repeated:
    hands: list[PsycopgHand] = []
    try:
        for _ in range(sessions):
            hands.append(await open_hand(conninfo, own))
        began = time.perf_counter()
        taken = await asyncio.gather(*(_again(hand, statement, began + seconds) for hand in hands))
        ended = time.perf_counter()
    finally:
        for hand in hands:
            await hand.aclose()
    ordered = sorted(each for times in taken for each in times)
    return Repeated(sessions, len(ordered), ended - began, 1000 * ordered[len(ordered) // 2])


async def _again(hand: PsycopgHand, statement: str, until: float) -> list[float]:
    """Seconds of each; at least one."""
    taken: list[float] = []
    before = time.perf_counter()
    while not taken or before < until:
        await hand.execute(statement)
        now = time.perf_counter()
        taken.append(now - before)
        before = now
    return taken
