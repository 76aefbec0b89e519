"""SQL for packages that import no driver: data sets, housekeeping between runs (bench.ports.SqlSession).

One psycopg session in autocommit. When the awaiting task is cancelled, psycopg cancels the statement; when this
process is killed, the server notices within a second (client_connection_check_interval, PostgreSQL 14).
"""

from __future__ import annotations

import asyncio
import os
import socket
import struct
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import psycopg
from psycopg.rows import tuple_row

from pgtop_tune.base.errors import ConnectionProblem, PgtopError, ServerProblem
from pgtop_tune.base.foreign_answers import check_sizes, decodes
from pgtop_tune.base.safe_text import one_line
from pgtop_tune.base.sql_quoting import ME, trusted
from pgtop_tune.model.instance import AnsweringServer
from pgtop_tune.postgres.server import own_sessions
from pgtop_tune.postgres.server.conninfo import APPLICATION_NAME, ConnInfo, Reached, ServerEndpoint
from pgtop_tune.postgres.server.failures import connection_problem, libpq_problem, not_text, server_words, sqlstate_of
from pgtop_tune.postgres.server.libpq import connect_async
from pgtop_tune.postgres.server.own_sessions import OwnSessions, marked
from pgtop_tune.postgres.server.search_path import NAME, catalog_first, in_order, pin, schemas

# The process that listens at a Unix socket: the server itself, or a proxy in front of it.
#
# Source: SO_PEERCRED of unix(7), the process that called listen(2); proc_pid_stat(5), proc_pid_status(5) (NSpid),
# proc_tid_children(5).

_CREDENTIALS: Final = struct.Struct("3i")
"""struct ucred: process, user, group."""


def is_of_server(descriptor: int, backend_pid: int) -> bool:
    """Return whether the listener of a Unix socket is the parent of a backend; False where that is not visible.

    Args:
        descriptor: The connected socket.
        backend_pid: pg_backend_pid() of the session, in the server's namespace of process numbers.
    """
    if not hasattr(socket, "SO_PEERCRED"):
        return False
    with socket.socket(fileno=os.dup(descriptor)) as connected:
        credentials = connected.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    listener, _, _ = _CREDENTIALS.unpack(credentials)
    if listener <= 0:
        # The listener is in another namespace, and not visible from ours.
        return False
    try:
        if _parent_of(backend_pid) == listener:
            return True
        children = Path(f"/proc/{listener}/task/{listener}/children").read_text(encoding="ascii").split()
        return any(_number_inside(child) == backend_pid for child in children)
    except OSError:
        return False


def _parent_of(pid: int) -> int | None:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    return int(stat.rpartition(")")[2].split()[1])


def _number_inside(pid: str) -> int | None:
    """Return the pid of a process in its own namespace."""
    try:
        status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    numbers = next((line.split() for line in status.splitlines() if line.startswith("NSpid:")), [""])
    return int(numbers[-1]) if numbers[-1].isdecimal() else None


SQL_SESSION_NAME: Final = f"{APPLICATION_NAME} dataset"
_SETTINGS: Final = (
    ("lock_timeout", "10s"),
    ("client_min_messages", "warning"),
    ("client_connection_check_interval", "1s"),
)
_PIN: Final = marked(f"SELECT {pin(local=True)}")
_ALONE: Final = ("VACUUM", "CHECKPOINT")
"""Statements that cannot run in a transaction; they name tables with their schemas."""
_CONNECTION_CLASSES: Final = ("08", "28", "57P")
"""Beginnings of sqlstates about the connection, not about a statement."""
_LOGIN_TRIGGER: Final = "SELECT EXISTS (SELECT FROM pg_event_trigger WHERE evtevent = 'login' AND evtenabled <> 'D')"
_CONFIGURED: Final = f"""
SELECT (SELECT substr(entry, strpos(entry, '=') + 1)
          FROM pg_db_role_setting s CROSS JOIN LATERAL unnest(s.setconfig) AS entry
         WHERE s.setdatabase IN (0, (SELECT oid FROM pg_database WHERE datname = current_database()))
           AND s.setrole IN (0, (SELECT oid FROM pg_roles WHERE rolname = session_user))
           AND split_part(entry, '=', 1) = '{NAME}'
         ORDER BY s.setrole <> 0 DESC, s.setdatabase <> 0 DESC
         LIMIT 1),
       (SELECT boot_val FROM pg_settings WHERE name = '{NAME}')
"""
"""Query for the effective search_path of role and database (ApplySetting in postinit.c), and the server's default."""
_DATABASE_OWNER: Final = f"SELECT pg_get_userbyid(me.datdba)::text, {trusted('me.datdba')} FROM {ME}"
_SAFE_SCHEMAS: Final = f"""
SELECT n.nspname::text FROM pg_namespace n CROSS JOIN {ME}
 WHERE n.nspname = ANY (%s) AND n.nspname NOT IN ('pg_catalog', 'pg_temp') AND {trusted("n.nspowner")}
"""
_MAY_READ_FILES: Final = "SELECT has_function_privilege('pg_show_all_file_settings()', 'execute')"
_WHO: Final = marked("SELECT pg_catalog.pg_backend_pid()")
_SERVER: Final = """
SELECT (date_part('epoch', pg_postmaster_start_time()) * 1000)::bigint, pg_backend_pid(),
       host(inet_server_addr()), inet_server_port()
"""
"""Query for the start of the server, in the form of frames (facts.14.sql), and the addresses of the session."""
_TIMELINE: Final = "SELECT substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8)"
_WITHOUT_POLLING: Final = "22023"
"""sqlstate of a server whose kernel cannot notice a lost client (invalid_parameter_value)."""


class PsycopgSession:
    """A session, made by `open_sql_session`.

    Behind a pooler, each call may be served by another backend: our settings last for one transaction then, and a
    statement outside of a transaction has none of them.
    """

    def __init__(self, connection: psycopg.AsyncConnection[Any], conninfo: ConnInfo, our_sessions: OwnSessions) -> None:
        self._connection = connection
        self._conninfo = conninfo
        self._own = our_sessions
        self._pid = connection.info.backend_pid
        self._pooled = True
        our_sessions.pids.add(self._pid)

    @property
    def backend_pid(self) -> int:
        """The pid that the server sent at the start: that of the backend, or an arbitrary number of a pooler."""
        return self._pid

    @property
    def reached(self) -> Reached:
        """The address that the session has reached."""
        info = self._connection.info
        endpoint = ServerEndpoint(host=info.host, port=info.port, hostaddr=info.hostaddr)
        return Reached(endpoint, bool(self._connection.pgconn.ssl_in_use))

    async def server(self) -> AnsweringServer:
        """Return the server that answers. Raises as `execute`."""
        [(started_ms, pid, address, port)] = await self.rows(_SERVER)
        endpoint = self.reached.endpoint
        straight = pid == self._pid and reached_there(endpoint, address, port)
        if straight and endpoint.is_socket:
            straight = await asyncio.to_thread(is_of_server, self._connection.fileno(), self._pid)
        return AnsweringServer(str(endpoint), int(str(started_ms)), straight)

    async def timeline(self) -> str:
        """Return `SqlSession.timeline`."""
        try:
            return str((await self.rows(_TIMELINE))[0][0])
        except ServerProblem:
            # A standby writes no WAL.
            return ""

    async def execute(self, sql: str) -> None:
        """Run statements without rows; several, separated by semicolons, are one transaction.

        They are not marked as ours in pg_stat_statements. Names without a schema are those of pg_catalog.

        Raises:
            ServerProblem: The server refuses a statement.
            ConnectionProblem: The connection is lost.
        """
        pinned = self._pooled and not sql.lstrip().upper().startswith(_ALONE)
        await self._run(f"{_PIN}; {sql}" if pinned else sql, None)

    async def rows(self, sql: str, parameters: Sequence[object] = (), *, longest: str = "") -> list[tuple[object, ...]]:
        """Return the rows of one statement, which is marked as ours. Raises as `execute`.

        Args:
            sql: The statement; parameters are written `%s`.
            parameters: Their values.
            longest: statement_timeout for this statement; "" for that of the session.
        """
        if not self._pooled and not longest:
            return await self._fetched(sql, parameters)
        async with self._connection.transaction():
            await self._run(_PIN, None)
            if longest:
                await self._run(marked(f"SELECT pg_catalog.set_config('statement_timeout', '{longest}', true)"), None)
            return await self._fetched(sql, parameters)

    @decodes
    async def search_path(self) -> tuple[str, ...]:
        """Return the schemas that other sessions of this role in this database search, in their order.

        Raises:
            ServerProblem: The server refuses a statement.
            ConnectionProblem: There is no further session.
        """
        if self._pooled:
            setting = await self._shown(self._connection)
        elif (await self.rows(_LOGIN_TRIGGER))[0][0]:
            # A login trigger would run in a session that is not pinned, so the value comes from the catalogue.
            setting = await self._configured()
        else:
            setting = await self._shown_elsewhere()
        return schemas(setting, self._connection.info.user)

    @decodes
    async def safe_path(self) -> str:
        """Return a search_path for a load's sessions without schemas of untrusted roles before pg_catalog.

        Returns:
            "" where that of other sessions is safe. Raises as `search_path`.

        Raises:
            ServerProblem: There is no safe one, or the pooler does not allow it to be set.
        """
        names = await self.search_path()
        [(owner, owner_is_safe)] = await self.rows(_DATABASE_OWNER)
        if owner_is_safe:
            path = catalog_first(names)
        else:
            # That role can create a schema of any name on the path, and tables in it, while the load runs.
            safe = {str(name) for (name,) in await self.rows(_SAFE_SCHEMAS, [list(names)])}
            path = in_order([name for name in names if name in safe]) if safe else ""
        if (path or not owner_is_safe) and self._pooled:
            raise ServerProblem(
                f"through this pooler, functions of {owner}, the owner of the database, would replace PostgreSQL's "
                f"own and run as {self._connection.info.user}",
                f"connect to the server directly, or as {owner}",
            )
        if not path and not owner_is_safe:
            raise ServerProblem(
                f"every schema in search_path belongs to an ordinary role, and the database belongs to {owner}: "
                "functions of that role would run as a superuser",
                f"connect as {owner}, or use your own database",
            )
        return path

    async def limits(self) -> tuple[str, ...]:
        """Return `SqlSession.limits`."""
        major = self._connection.info.server_version // 10_000
        return () if self._pooled else own_sessions.of_major(major)

    async def count_rows(self, table: str) -> int:
        """Count the rows of a table with COPY, which plans nothing and so evaluates no functions of the table.

        Args:
            table: Schema and name, quoted; no partitioned table and no view. Raises as `execute`.
        """
        try:
            async with self._connection.cursor() as cursor, cursor.copy(f"COPY {table} TO STDOUT".encode()) as copy:
                return sum([1 async for _ in copy.rows()])
        except psycopg.Error as error:
            raise self._told(error) from None

    async def aclose(self) -> None:
        """Close the session."""
        self._own.pids.discard(self._pid)
        await self._connection.close()

    @decodes
    async def settle(self) -> None:
        """Apply the session's settings, unless a pooler is in between.

        Raises:
            ServerProblem: The server refuses a statement.
            ConnectionProblem: The connection is lost.
        """
        [(pid,)] = await (await self._run(_WHO, None)).fetchall()
        self._pooled = pid != self._pid
        if self._pooled:
            return
        await self._run(marked(f"SELECT {pin(local=False)}"), None)
        limits = [(name, "0") for name in await self.limits() if name != "lock_timeout"]
        for name, value in (*_SETTINGS, *limits):
            try:
                await self._run(marked(f"SELECT pg_catalog.set_config('{name}', '{value}', false)"), None)
            except ServerProblem as problem:
                if problem.sqlstate != _WITHOUT_POLLING:
                    raise

    async def _shown(self, connection: psycopg.AsyncConnection[Any]) -> str:
        """Return the search_path of a session; SHOW looks up no names."""
        try:
            row = await (await connection.execute("SHOW search_path")).fetchone()
        except psycopg.Error as error:
            raise self._told(error) from None
        return str(row[0]) if row else ""

    async def _shown_elsewhere(self) -> str:
        try:
            plain = await connect_async(self._conninfo, SQL_SESSION_NAME, pinned=False, row_factory=tuple_row)
        except psycopg.Error as error:
            raise self._told(error) from None
        self._own.pids.add(plain.info.backend_pid)
        try:
            return await self._shown(plain)
        finally:
            self._own.pids.discard(plain.info.backend_pid)
            await plain.close()

    async def _configured(self) -> str:
        [(scoped, default)] = await self.rows(_CONFIGURED)
        if scoped is None and (await self.rows(_MAY_READ_FILES))[0][0]:
            lines = await self.rows(own_sessions.IN_FILES, [[NAME]])
            scoped = lines[0][1] if lines else None
        return str(default if scoped is None else scoped)

    async def _fetched(self, sql: str, parameters: Sequence[object]) -> list[tuple[object, ...]]:
        cursor = await self._run(marked(sql), parameters or None)
        try:
            rows = list(await cursor.fetchall())
        except UnicodeError as error:
            raise not_text(error) from None
        except psycopg.Error as error:
            raise self._told(error) from None
        check_sizes(rows)
        return rows

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
            message = server_words(error) or "the connection was cut"
            return ConnectionProblem(
                f"{self._conninfo.describe()}: {message}", "the server may be restarting; try again"
            )
        return ServerProblem(server_words(error) or one_line(str(error), 2_000), sqlstate=state)


def reached_there(endpoint: ServerEndpoint, address: object, port: object) -> bool:
    """Return whether the server's end of a session is the endpoint: a proxy has a connection of its own to the server.

    Args:
        endpoint: Endpoint of the session.
        address: inet_server_addr() of the session; NULL for a Unix socket.
        port: inet_server_port() of the session.
    """
    return (
        port is None if endpoint.is_socket else (address, port) == (endpoint.address.partition("%")[0], endpoint.port)
    )


async def open_sql_session(conninfo: ConnInfo, our_sessions: OwnSessions | None = None) -> PsycopgSession:
    """Open a session.

    Args:
        conninfo: The server.
        our_sessions: Our sessions, whose statistics are subtracted; None where no reader watches the server.

    Raises:
        ConnectionProblem: The server is not there or refuses us, in libpq's words.
        PasswordNeeded: The server asks for a password.
    """
    try:
        connection = await connect_async(conninfo, SQL_SESSION_NAME, row_factory=tuple_row)
    except psycopg.OperationalError as error:
        raise (await asyncio.to_thread(libpq_problem, error, conninfo)) from None
    except (OSError, UnicodeError) as error:
        # psycopg resolves host names itself, before libpq runs.
        raise connection_problem(error, conninfo) from None
    sql_session = PsycopgSession(connection, conninfo, our_sessions if our_sessions is not None else OwnSessions())
    try:
        await sql_session.settle()
    except BaseException:
        await sql_session.aclose()
        raise
    return sql_session
