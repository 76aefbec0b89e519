"""Control of the server's sessions: cancel, terminate, explain (runtime.ports.BackendControl).

The actions themselves are in `backend_acts`, which needs psycopg and is imported by the first action.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from pgtop_tune.model.backend_action import (
    BackendAct,
    BackendKey,
    BackendOutcome,
    BackendResult,
    PlanRisk,
    PlanShape,
    PreparedAct,
    PreparedKey,
    QueryPlan,
    StatementToPlan,
)
from pgtop_tune.postgres.server.conninfo import ConnInfo
from pgtop_tune.postgres.server.own_sessions import OwnSessions

_FUNCTIONS: Final = {BackendAct.CANCEL: "pg_cancel_backend", BackendAct.TERMINATE: "pg_terminate_backend"}


def signal_statement(act: BackendAct, backend: BackendKey) -> str:
    """Return the statement that finds a session by pid and start and signals it; no row if the pid was reused."""
    pid, started_ms = backend
    started = "NULL" if started_ms is None else f"{started_ms:d}"
    return (
        f"SELECT {_FUNCTIONS[act]}(pid) AS sent FROM pg_stat_activity"
        f" WHERE pid = {pid:d} AND (date_part('epoch', backend_start) * 1000)::bigint = {started}"
    )


if TYPE_CHECKING:
    from pgtop_tune.postgres.statements.backend_acts import BackendActs


class PostgresBackends:
    """BackendControl of a PostgreSQL server.

    Attributes:
        conninfo: The server; replaced when the user types a password.
    """

    def __init__(self, conninfo: ConnInfo, our_sessions: OwnSessions | None = None) -> None:
        """Args:
        conninfo: The server.
        our_sessions: Our sessions, which are never signalled.
        """
        self.conninfo = conninfo
        self._own = our_sessions if our_sessions is not None else OwnSessions()

    def statement(self, act: BackendAct, backend: BackendKey) -> str:
        """Return the exact SQL that `signal` would run, for display."""
        return f"{signal_statement(act, backend)};"

    async def signal(self, act: BackendAct, backends: Sequence[BackendKey]) -> tuple[BackendResult, ...]:
        """Signal sessions, one after the other.

        Returns:
            The result for each, in their order.

        Raises:
            ConnectionProblem: The server is not there, or the connection was lost in between.
        """
        return await (await self._acts()).signal(act, backends)

    async def end_prepared(self, act: PreparedAct, transaction: PreparedKey) -> tuple[BackendOutcome, str]:
        """End a prepared transaction, unless its name belongs to another one by now.

        Returns:
            How it went, and details of a refusal.

        Raises:
            ConnectionProblem: The server is not there, or the transaction's database refuses the login.
            ServerProblem: The server refuses it.
        """
        return await (await self._acts()).end_prepared(act, transaction)

    async def explain(
        self, backend: BackendKey, seen_text: str, agreed: PlanRisk | None = None
    ) -> QueryPlan | PlanRisk:
        """Plan a session's statement, or return the risk to which the operator must agree first.

        The statement is not executed, but planning executes functions in it. So the session's own role plans it, if
        that is an ordinary role which can log in without the operator's password; else the operator's role, if that is
        an ordinary one; else a powerful role, only once the operator has agreed to the risk.

        Args:
            backend: The session.
            seen_text: Its statement on the screen, perhaps only the first 500 characters.
            agreed: The risk to which the operator has agreed; None before the question.

        Returns:
            The plan; or the risk, where it is not the one agreed to.

        Raises:
            UsageProblem: The statement is not one complete plain query, or has changed.
            ServerProblem: The server refuses it.
            ConnectionProblem: The server, or the session's database, refuses the login.
        """
        return await (await self._acts()).explain(backend, seen_text, agreed)

    async def plan_statement(self, statement: StatementToPlan, agreed: PlanRisk | None = None) -> QueryPlan | PlanRisk:
        """Plan a statement of pg_stat_statements; roles, risk and errors as for `explain`."""
        return await (await self._acts()).plan_statement(statement, agreed)

    async def plan_shape(self, statement: StatementToPlan, agreed: PlanRisk | None = None) -> PlanShape | PlanRisk:
        """Return the shape of the plan of a statement of pg_stat_statements; roles, risk and errors as for `explain`.

        A statement with placeholders gets its generic plan, from PostgreSQL 16 on.
        """
        return await (await self._acts()).plan_shape(statement, agreed)

    async def _acts(self) -> BackendActs:
        # In a thread, because this loop samples frames.
        kind = await asyncio.to_thread(_kind)
        return kind(self.conninfo, self._own)


def _kind() -> type[BackendActs]:
    from pgtop_tune.postgres.statements.backend_acts import BackendActs

    return BackendActs
