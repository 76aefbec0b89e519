"""The door to the server's sessions (session.ports.BackendControl): cancel, terminate, EXPLAIN.

What goes through it is in `backend_acts`, which is imported by the first act: it takes psycopg.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING

from pgtop_tune.model.backend_action import BackendAct, BackendKey, BackendResult, QueryPlan
from pgtop_tune.postgres.backend_statement import signal_statement
from pgtop_tune.postgres.conninfo import ConnInfo
from pgtop_tune.postgres.own_sessions import OwnSessions

if TYPE_CHECKING:
    from pgtop_tune.postgres.backend_acts import BackendActs


class PostgresBackends:
    """Fits BackendControl.

    Attributes:
        conninfo: The server; replaced when a password was typed.
    """

    def __init__(self, conninfo: ConnInfo, own: OwnSessions | None = None) -> None:
        """Args:
        conninfo: The server.
        own: Our sessions: never signalled; the cost of these statements is counted there.
        """
        self.conninfo = conninfo
        self._own = own if own is not None else OwnSessions()

    def statement(self, act: BackendAct, backend: BackendKey) -> str:
        """The exact SQL `signal` would run, for the screen."""
        return f"{signal_statement(act, backend)};"

    async def signal(self, act: BackendAct, backends: Sequence[BackendKey]) -> tuple[BackendResult, ...]:
        """Signals sessions, one after the other.

        Returns:
            What came of each, in their order.

        Raises:
            ConnectionProblem: The server is not there, or went away in between.
        """
        return await (await self._acts()).signal(act, backends)

    async def explain(self, backend: BackendKey, seen: str) -> QueryPlan:
        """The plan of a session's statement; nothing of it is executed.

        Args:
            backend: Which session.
            seen: Its statement as the operator saw it, perhaps only the first 500 characters.

        Raises:
            UsageProblem: It is not one complete plain query, or another one by now.
            ServerProblem: The server refuses it.
            ConnectionProblem: The server, or the session's database, does not let us in.
        """
        return await (await self._acts()).explain(backend, seen)

    async def _acts(self) -> BackendActs:
        # Frames are sampled in this loop.
        kind = await asyncio.to_thread(_kind)
        return kind(self.conninfo, self._own)


def _kind() -> type[BackendActs]:
    from pgtop_tune.postgres.backend_acts import BackendActs

    return BackendActs
