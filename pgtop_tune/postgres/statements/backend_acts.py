"""Actions on the server's sessions, with psycopg: signals and EXPLAIN.

Each action opens a connection of its own: actions are rare, and none may wait for another.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any, Final, TypeVar

import psycopg
from msgspec import Struct
from msgspec.structs import replace
from psycopg.rows import dict_row

from pgtop_tune.base.errors import ConnectionProblem, ServerProblem, UsageProblem
from pgtop_tune.base.secret import MASK
from pgtop_tune.base.sql_quoting import literal, quoted
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
    prepared_statement,
)
from pgtop_tune.postgres.server.conninfo import APPLICATION_NAME, ConnInfo
from pgtop_tune.postgres.server.failures import (
    libpq_problem,
    not_text,
    refused_in_other_words,
    server_words,
    sqlstate_of,
)
from pgtop_tune.postgres.server.libpq import connect_async
from pgtop_tune.postgres.server.own_sessions import READ_ONLY_BEGIN, OwnSessions, marked
from pgtop_tune.postgres.server.read_only_connection import refusal
from pgtop_tune.postgres.server.search_path import pin
from pgtop_tune.postgres.statements.backend_control import signal_statement
from pgtop_tune.postgres.statements.explain import (
    SeenStatement,
    explainable,
    explained,
    login_role,
    planned_shape,
    planners,
    unagreed,
    whole_statement,
)

_DEADLINE_S: Final = 15.0
_LIMITS: Final = (
    "pg_catalog.set_config('statement_timeout', '5s', true), pg_catalog.set_config('lock_timeout', '200ms', true),"
    " pg_catalog.set_config('idle_in_transaction_session_timeout', '10s', true)"
)
_BEGIN: Final = f"{READ_ONLY_BEGIN}; {marked(f'SELECT {_LIMITS}')}"
"""Begin of a transaction with its limits: a pooler accepts no start-up options, and lends the session to others."""
_BEGIN_PINNED: Final = f"{READ_ONLY_BEGIN}; {marked(f'SELECT {pin(local=True)}, {_LIMITS}')}"
_PREPARED: Final = (
    "SELECT (date_part('epoch', prepared) * 1000)::bigint AS prepared_ms, owner::text AS owner"
    " FROM pg_prepared_xacts WHERE gid = {}"
)
_NOT_PARSED: Final = ("42601", "42P18", "42725")
"""Sqlstates of a placeholder where only a constant is possible: syntax, unknown type, several possible operators."""
_CONNECTION_CLASSES: Final = ("08", "28", "53", "57P", "3D")
"""Beginnings of sqlstates about the connection, not about a statement."""

Connection = psycopg.AsyncConnection[dict[str, Any]]
T = TypeVar("T")


class BackendActs(Struct, frozen=True):
    """Implementation of `PostgresBackends`.

    Attributes:
        conninfo: The server.
        our_sessions: Our sessions.
    """

    conninfo: ConnInfo
    our_sessions: OwnSessions

    async def signal(self, act: BackendAct, backends: Sequence[BackendKey]) -> tuple[BackendResult, ...]:
        """See `PostgresBackends.signal`."""
        async with self._connected(self.conninfo) as connection:
            return tuple([await self._signalled(connection, act, backend) for backend in backends])

    async def end_prepared(self, act: PreparedAct, transaction: PreparedKey) -> tuple[BackendOutcome, str]:
        """See `PostgresBackends.end_prepared`."""
        async with self._connected(replace(self.conninfo, dbname=transaction.database)) as connection:
            async with _bounded(connection):
                row = await (
                    await connection.execute(marked(_PREPARED.format(literal(transaction.gid))).encode())
                ).fetchone()
            if row is None or row["prepared_ms"] != transaction.prepared_ms:
                return BackendOutcome.GONE, ""
            try:
                await connection.execute(prepared_statement(act, transaction.gid).encode())
            except psycopg.errors.InsufficientPrivilege as error:
                return (
                    BackendOutcome.NOT_PERMITTED,
                    f"{server_words(error)}; its role {row['owner']} or a superuser may",
                )
            except psycopg.errors.UndefinedObject:
                return BackendOutcome.GONE, ""
        return BackendOutcome.DONE, ""

    async def explain(self, backend: BackendKey, seen_text: str, agreed: PlanRisk | None) -> QueryPlan | PlanRisk:
        """See `PostgresBackends.explain`."""
        async with self._connected(self.conninfo) as connection, _bounded(connection):
            statement = await whole_statement(connection, backend, seen_text)
            # Checked first: for a statement that cannot be explained, the following steps would be in vain.
            explainable(connection, statement)
            candidates = await planners(connection, statement)
        return await self._by_one_of(candidates, statement, agreed, explained)

    async def plan_statement(self, statement: StatementToPlan, agreed: PlanRisk | None) -> QueryPlan | PlanRisk:
        """See `PostgresBackends.plan_statement`."""
        return await self._of_statement(statement, agreed, explained)

    async def plan_shape(self, statement: StatementToPlan, agreed: PlanRisk | None) -> PlanShape | PlanRisk:
        """See `PostgresBackends.plan_shape`."""
        return await self._of_statement(statement, agreed, planned_shape)

    async def _of_statement(
        self,
        statement: StatementToPlan,
        agreed: PlanRisk | None,
        plan: Callable[[Connection, SeenStatement, str], Awaitable[T]],
    ) -> T | PlanRisk:
        """Plan the normalized text; where that is no SQL, the text of a session."""
        if agreed is not None and agreed.query == statement.sampled:
            statement = replace(statement, query=statement.sampled)
        seen_statement = SeenStatement(statement.query, statement.datname, statement.role)
        if MASK in seen_statement.query:
            raise UsageProblem("a secret was removed from this statement, so it cannot be explained")
        async with self._connected(self.conninfo) as connection, _bounded(connection):
            explainable(connection, seen_statement)
            candidates = await planners(connection, seen_statement)
        try:
            return await self._by_one_of(candidates, seen_statement, agreed, plan)
        except ServerProblem as problem:
            if (
                problem.sqlstate not in _NOT_PARSED
                or statement.query == statement.sampled
                or "$" not in statement.query
            ):
                raise
            if not statement.sampled:
                raise ServerProblem(
                    f"pg_stat_statements keeps placeholders for constants, and with them it is no SQL ({problem})",
                    "plan a session that runs it: e on its row of page 2",
                    sqlstate=problem.sqlstate,
                ) from None
            return await self._of_statement(replace(statement, query=statement.sampled), agreed, plan)

    async def _by_one_of(
        self,
        candidates: Sequence[str | None],
        statement: SeenStatement,
        agreed: PlanRisk | None,
        plan: Callable[[Connection, SeenStatement, str], Awaitable[T]],
    ) -> T | PlanRisk:
        """Plan as the first candidate role that can log in, if planning as that role is harmless or agreed to."""
        why_not_session_role = ""
        async with contextlib.AsyncExitStack() as stack:
            for role in candidates:
                conninfo = self.conninfo if role is None else self.conninfo.as_role(role)
                try:
                    connection = await stack.enter_async_context(
                        self._connected(replace(conninfo, dbname=statement.datname))
                    )
                except ConnectionProblem as problem:
                    if role is None:
                        raise
                    why_not_session_role = problem.message
                    continue
                await stack.enter_async_context(_bounded(connection))
                login = await login_role(connection, role)
                if login is not None:
                    risk = await unagreed(connection, statement, login, why_not_session_role, agreed)
                    if risk is not None:
                        return risk
                    return await self._planned(replace(conninfo, dbname=statement.datname), statement, login, plan)
                why_not_session_role = f"{conninfo.describe()}: a pooler changes the role of this connection"
        raise AssertionError("the operator's own role is always among them")

    async def _planned(
        self,
        conninfo: ConnInfo,
        statement: SeenStatement,
        role: str,
        plan: Callable[[Connection, SeenStatement, str], Awaitable[T]],
    ) -> T:
        """Plan in a session like the role's own: names in the statement are looked up in its search_path.

        Call this only once the session is harmless or agreed to: login triggers of the database run in it.
        """
        async with self._connected(conninfo, pinned=False) as connection, _bounded(connection, _BEGIN):
            return await plan(connection, statement, role)

    async def _signalled(self, connection: Connection, act: BackendAct, backend: BackendKey) -> BackendResult:
        pid, started_ms = backend
        if pid in self.our_sessions.pids:
            return BackendResult(backend, BackendOutcome.REFUSED, "this session belongs to pgtop-tune")
        if started_ms is None:
            return BackendResult(
                backend, BackendOutcome.NOT_PERMITTED, f"this role may not see that session; {self._grant()}"
            )
        try:
            async with _bounded(connection):
                statement = marked(signal_statement(act, backend))
                row = await (await connection.execute(statement.encode())).fetchone()
        except psycopg.errors.InsufficientPrivilege as error:
            return BackendResult(backend, BackendOutcome.NOT_PERMITTED, f"{server_words(error)}; {self._grant()}")
        if row is None:
            return BackendResult(backend, BackendOutcome.GONE)
        if not row["sent"]:
            return BackendResult(
                backend, BackendOutcome.REFUSED, "an auxiliary process of the server does not accept this signal"
            )
        return BackendResult(backend, BackendOutcome.DONE)

    def _grant(self) -> str:
        return f"GRANT pg_signal_backend, pg_monitor TO {quoted(self.conninfo.user)}"

    @contextlib.asynccontextmanager
    async def _connected(self, conninfo: ConnInfo, *, pinned: bool = True) -> AsyncIterator[Connection]:
        """Open a connection for one action, within a deadline; exceptions of psycopg become ours."""
        name = f"{APPLICATION_NAME} control"
        try:
            async with asyncio.timeout(_DEADLINE_S):
                connection = await connect_async(
                    conninfo, name, pinned=pinned, row_factory=dict_row, prepare_threshold=None
                )
                pid = connection.info.backend_pid
                self.our_sessions.pids.add(pid)
                try:
                    yield connection
                finally:
                    self.our_sessions.pids.discard(pid)
                    await connection.close()
        except TimeoutError:
            raise ConnectionProblem(f"{conninfo.describe()}: no answer within {_DEADLINE_S:.0f} s") from None
        except UnicodeError as error:
            raise not_text(error) from None
        except psycopg.Error as error:
            if sqlstate_of(error) and not sqlstate_of(error).startswith(_CONNECTION_CLASSES):
                raise ServerProblem(server_words(error), sqlstate=sqlstate_of(error)) from None
            if isinstance(error, psycopg.OperationalError) and not sqlstate_of(error):
                # Only for the operator's own role: for another one, asyncpg would send the password of PGPASSWORD.
                may_send_password = conninfo.user == self.conninfo.user and refused_in_other_words(error)
                state = await refusal(conninfo) if may_send_password else ""
                raise (await asyncio.to_thread(libpq_problem, error, conninfo, state)) from None
            raise ConnectionProblem(f"{conninfo.describe()}: {server_words(error)}") from None


@contextlib.asynccontextmanager
async def _bounded(connection: Connection, begin: str = _BEGIN_PINNED) -> AsyncIterator[None]:
    """Run a transaction that cannot write, within time limits; roll it back at the end."""
    await connection.execute(begin.encode())
    try:
        yield
    except Exception:
        # Not after a cancellation: with a server that hangs, this would hang, too.
        if not connection.closed:
            await connection.execute("ROLLBACK")
        raise
    await connection.execute("ROLLBACK")
