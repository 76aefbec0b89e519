"""Cancels, terminates and explains the server's sessions (runtime.ports.BackendControl).

What goes through it is in `backend_acts`, which is imported by the first act: it takes psycopg.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from pgtop_tune.model.backend_action import (
    BackendAct,
    BackendKey,
    BackendResult,
    PlanRisk,
    PlanShape,
    QueryPlan,
    StatementToPlan,
)
from pgtop_tune.postgres.server.conninfo import ConnInfo
from pgtop_tune.postgres.server.own_sessions import OwnSessions

_FUNCTIONS: Final = {BackendAct.CANCEL: "pg_cancel_backend", BackendAct.TERMINATE: "pg_terminate_backend"}


def signal_statement(act: BackendAct, backend: BackendKey) -> str:
    """The one statement that finds the session by pid and start and signals it; no row when it is another by now."""
    pid, started_ms = backend
    started = "NULL" if started_ms is None else f"{started_ms:d}"
    return (
        f"SELECT {_FUNCTIONS[act]}(pid) AS sent FROM pg_stat_activity"
        f" WHERE pid = {pid:d} AND (date_part('epoch', backend_start) * 1000)::bigint = {started}"
    )


if TYPE_CHECKING:
    from pgtop_tune.postgres.statements.backend_acts import BackendActs


class PostgresBackends:
    """Fits BackendControl.

    Attributes:
        conninfo: The server; replaced when a password was typed.
    """

    def __init__(self, conninfo: ConnInfo, our_sessions: OwnSessions | None = None) -> None:
        """Args:
        conninfo: The server.
        our_sessions: Our sessions: never signalled; the cost of these statements is counted there.
        """
        self.conninfo = conninfo
        self._own = our_sessions if our_sessions is not None else OwnSessions()

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

    async def explain(
        self, backend: BackendKey, seen_text: str, agreed: PlanRisk | None = None
    ) -> QueryPlan | PlanRisk:
        """The plan of a session's statement, or what has to be agreed to before it is made.

        The statement is not executed, but planning executes functions in it. So it is planned by the session's own
        role, logged in as such, where that role is an ordinary one and lets us in without a password of the operator;
        else by the operator's role where that is an ordinary one; else only once the risk is agreed to.

        Args:
            backend: Which session.
            seen_text: Its statement as the operator saw it, perhaps only the first 500 characters.
            agreed: The risk that the operator has agreed to; None before the question.

        Returns:
            The plan; or the risk, where it is another one than was agreed to.

        Raises:
            UsageProblem: It is not one complete plain query, or another one by now.
            ServerProblem: The server refuses it.
            ConnectionProblem: The server, or the session's database, does not let us in.
        """
        return await (await self._acts()).explain(backend, seen_text, agreed)

    async def plan_statement(self, statement: StatementToPlan, agreed: PlanRisk | None = None) -> QueryPlan | PlanRisk:
        """The plan of a statement of pg_stat_statements; as `plan_shape`."""
        return await (await self._acts()).plan_statement(statement, agreed)

    async def plan_shape(self, statement: StatementToPlan, agreed: PlanRisk | None = None) -> PlanShape | PlanRisk:
        """The shape of the plan of a statement of pg_stat_statements; roles, risk and errors as of `explain`.

        A statement with placeholders has its generic plan, from PostgreSQL 16 on.
        """
        return await (await self._acts()).plan_shape(statement, agreed)

    async def _acts(self) -> BackendActs:
        # Frames are sampled in this loop.
        kind = await asyncio.to_thread(_kind)
        return kind(self.conninfo, self._own)


def _kind() -> type[BackendActs]:
    from pgtop_tune.postgres.statements.backend_acts import BackendActs

    return BackendActs
