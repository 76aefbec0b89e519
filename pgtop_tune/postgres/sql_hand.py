"""SQL for those who may not know a driver: data sets, housekeeping between runs (fits bench.ports.SqlHand).

One psycopg session in autocommit. When the awaiting task is cancelled, psycopg cancels the statement; when this
process is killed, the server notices within a second (client_connection_check_interval, PostgreSQL 14).
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, Final

import psycopg
from psycopg.rows import tuple_row

from pgtop_tune.errors import ConnectionProblem, PasswordNeeded, PgtopError, ServerProblem
from pgtop_tune.postgres.conninfo import APPLICATION_NAME, ConnInfo
from pgtop_tune.postgres.failures import connection_problem, not_text, server_words, sqlstate_of
from pgtop_tune.postgres.own_sessions import OwnSessions, marked

HAND_NAME: Final = f"{APPLICATION_NAME} dataset"
_CONNECT_TIMEOUT_S: Final = 5
_SETTINGS: Final = tuple(
    marked(f"SELECT set_config('{name}', '{value}', false)")
    for name, value in (
        ("lock_timeout", "10s"),
        ("statement_timeout", "0"),
        ("client_min_messages", "warning"),
        ("client_connection_check_interval", "1s"),
    )
)
"""Made after connecting: a pooler between us and the server knows no startup options."""
_CONNECTION_CLASSES: Final = ("08", "28", "57P")
"""Beginnings of SQLSTATEs that speak of the connection, not of a statement."""
_WITHOUT_POLLING: Final = "22023"
"""The kernel of the server cannot tell that a client is gone (invalid_parameter_value)."""


class PsycopgHand:
    """A session; made by `open_hand`."""

    def __init__(self, connection: psycopg.AsyncConnection[Any], conninfo: ConnInfo, own: OwnSessions) -> None:
        self._connection = connection
        self._conninfo = conninfo
        self._own = own
        self._pid = connection.info.backend_pid
        own.pids.add(self._pid)

    @property
    def backend_pid(self) -> int:
        """The process as it was told when we were let in: the backend's, or a number that a pooler made up."""
        return self._pid

    async def execute(self, sql: str) -> None:
        """Runs statements that give no rows; several separated by semicolons are one transaction.

        They are work, as a load's are: pg_stat_statements shows them as they are.

        Raises:
            ServerProblem: Refused, in the server's words.
            ConnectionProblem: The connection is gone.
        """
        await self._run(sql, None)

    async def rows(self, sql: str, parameters: Sequence[object] = ()) -> list[tuple[object, ...]]:
        """Rows of one statement, a question of ours; parameters are written `%s`. Raises as `execute`."""
        cursor = await self._run(marked(sql), parameters or None)
        try:
            return list(await cursor.fetchall())
        except UnicodeError as error:
            raise not_text(error) from None

    async def aclose(self) -> None:
        """Says goodbye."""
        self._own.pids.discard(self._pid)
        await self._connection.close()

    async def settle(self) -> None:
        """Makes the session's settings.

        Raises:
            ServerProblem: Refused.
            ConnectionProblem: The connection is gone.
        """
        for statement in _SETTINGS:
            try:
                await self._run(statement, None)
            except ServerProblem as problem:
                if problem.sqlstate != _WITHOUT_POLLING:
                    raise

    async def _run(self, sql: str, parameters: Sequence[object] | None) -> psycopg.AsyncCursor[Any]:
        started = time.perf_counter()
        try:
            return await self._connection.execute(sql.encode(), parameters)
        except psycopg.Error as error:
            raise self._told(error) from None
        except UnicodeError as error:
            raise not_text(error) from None
        finally:
            self._own.statements += 1
            self._own.calls += 1
            self._own.transactions += 1
            self._own.statement_ms += (time.perf_counter() - started) * 1000

    def _told(self, error: psycopg.Error) -> PgtopError:
        state = sqlstate_of(error)
        if self._connection.broken or self._connection.closed or state.startswith(_CONNECTION_CLASSES):
            words = server_words(error) or "the connection was cut"
            return ConnectionProblem(f"{self._conninfo.describe()}: {words}", "the server may be restarting; try again")
        return ServerProblem(server_words(error) or str(error), sqlstate=state)


async def open_hand(conninfo: ConnInfo, own: OwnSessions | None = None) -> PsycopgHand:
    """Connects.

    Args:
        conninfo: The server; its first database that lets us in.
        own: Our sessions, left out of what the others do; None where nobody watches.

    Raises:
        ConnectionProblem: Not there, or it does not let us in; in libpq's words.
        PasswordNeeded: It wants a password.
    """
    arguments: dict[str, Any] = {"connect_timeout": _CONNECT_TIMEOUT_S, **conninfo.as_psycopg()}
    arguments["application_name"] = HAND_NAME
    try:
        connection = await psycopg.AsyncConnection.connect(autocommit=True, row_factory=tuple_row, **arguments)
    except psycopg.OperationalError as error:
        needs_password = error.pgconn is not None and error.pgconn.needs_password
        words = " ".join(str(error).removeprefix("connection failed: ").split())
        kind = PasswordNeeded if needs_password else ConnectionProblem
        raise kind(f"{conninfo.describe()}: {words}") from None
    except (OSError, UnicodeError) as error:
        # psycopg looks host names up by itself, before libpq has a say.
        raise connection_problem(error, conninfo) from None
    hand = PsycopgHand(connection, conninfo, own if own is not None else OwnSessions())
    try:
        await hand.settle()
    except BaseException:
        await hand.aclose()
        raise
    return hand
