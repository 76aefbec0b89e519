"""libpq, through psycopg, as an asyncpg connection: for keywords that only libpq obeys.

It has what `ReadConnection` and `PooledConnection` use, gives values of the same types, and raises exceptions of
asyncpg. Imported when such a keyword is set; else the sampler does without psycopg.
"""

from __future__ import annotations

import asyncio
import os
import re
import socket
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, Final, TypeVar

import asyncpg
import psycopg
from psycopg.adapt import Loader
from psycopg.pq import Format
from psycopg.types.numeric import OidBinaryLoader

from pgtop_tune.base.start_options import with_settings
from pgtop_tune.postgres.server.conninfo import ConnInfo
from pgtop_tune.postgres.server.failures import connection_problem, libpq_problem
from pgtop_tune.postgres.server.rows import NamedRow, kind_of

_SETTLING_S: Final = 1.0
"""A task whose socket has been cut has nothing to wait for any more."""
_OWN_KEYWORDS: Final = frozenset({"application_name", "client_encoding"})
"""Parameters of a session that libpq sends by themselves; others go through `options`."""
_FIELDS: Final[Mapping[str, str]] = {
    "S": "severity",
    "V": "severity_nonlocalized",
    "C": "sqlstate",
    "M": "message_primary",
    "D": "message_detail",
    "H": "message_hint",
    "R": "source_function",
}
"""Letters of an ErrorResponse, by which asyncpg makes an exception, and their names with psycopg."""

_T = TypeVar("_T")


class ServerSettings:
    """Settings that the server told when we connected, and decoders of its types.

    Attributes:
        server_encoding: Of the database.
    """

    def __init__(self, connection: psycopg.AsyncConnection[NamedRow]) -> None:
        self._adapters = connection.adapters
        self.server_encoding = connection.info.parameter_status("server_encoding") or ""

    def add_python_codec(self, typeoid: int, typename: str, *, decoder: Callable[[bytes], Any], **_: object) -> None:
        """Has values of a type read by `decoder`, as asyncpg has."""

        class Decoded(Loader):
            """Reads what comes from the server."""

            format = Format.BINARY

            def load(self, data: bytes | bytearray | memoryview) -> Any:
                return decoder(bytes(data))

        self._adapters.register_loader(typeoid, Decoded)


class LibpqConnection:
    """An open connection; made by `connect`."""

    def __init__(self, connection: psycopg.AsyncConnection[NamedRow], patience_s: float) -> None:
        self._connection = connection
        self._patience_s = patience_s
        self._busy = False
        connection.prepared_max = None
        connection.adapters.register_loader("xid", OidBinaryLoader)

    def get_server_pid(self) -> int:
        """The process as it was told when we were let in."""
        return self._connection.info.backend_pid

    def get_settings(self) -> ServerSettings:
        """As asyncpg."""
        return ServerSettings(self._connection)

    def server_end(self) -> tuple[str, bool]:
        """The address that the connection leads to, "" for a Unix socket; and whether TLS encrypts it."""
        return self._connection.info.hostaddr, bool(self._connection.pgconn.ssl_in_use)

    def is_closed(self) -> bool:
        """Whether the connection is known to be gone."""
        return bool(self._connection.closed)

    async def prepare(self, text: str, *, name: str) -> LibpqStatement:
        """A statement that the server keeps, parsed by its first `fetch`; with an empty name by every one."""
        return LibpqStatement(self, text, bool(name))

    async def fetch(self, text: str) -> list[NamedRow]:
        """Rows of a statement that is parsed and forgotten."""
        return await self._within(self._rows(text, (), kept=False))

    async def fetchval(self, text: str) -> Any:
        """The first value of the first row."""
        return (await self.fetch(text))[0][0]

    async def execute(self, text: str) -> None:
        """Runs statements without parameters as one simple query."""
        await self._within(self._connection.execute(text.encode(), prepare=False))

    async def rows(self, text: str, arguments: Sequence[object], *, kept: bool, first: bool) -> list[NamedRow]:
        """Rows of a statement; parameters are written $1. Arguments go as text, of the types that the server infers.

        Args:
            text: The statement.
            arguments: Its parameters.
            kept: Whether the server is to keep it.
            first: It is not kept yet: parsed and run in one go, so that it is one transaction and not two.
        """
        if not (kept and first):
            return await self._within(self._rows(text, arguments, kept=kept))
        return await self._within(self._rows_in_one_go(text, arguments))

    async def _rows(self, text: str, arguments: Sequence[object], *, kept: bool) -> list[NamedRow]:
        cursor = self._connection.cursor(binary=True)
        await cursor.execute(text.encode(), [_as_text(argument) for argument in arguments], prepare=kept)
        return await cursor.fetchall()

    async def _rows_in_one_go(self, text: str, arguments: Sequence[object]) -> list[NamedRow]:
        async with self._connection.pipeline():
            return await self._rows(text, arguments, kept=True)

    async def reload_schema_state(self) -> None:
        """Forgets the statements that the server has kept: what they speak of has changed."""
        await self.execute("DEALLOCATE ALL")

    def terminate(self) -> None:
        """Drops the connection at once, also under a statement."""
        self._cut()
        if not self._busy:
            self._connection.pgconn.finish()

    async def close(self, *, timeout: float) -> None:  # noqa: ASYNC109 (as asyncpg)
        """Says goodbye, without waiting for an answer: there is none. Under a statement as `terminate`."""
        if self._busy:
            self.terminate()
        else:
            await self._connection.close()

    async def _within(self, work: Coroutine[Any, Any, _T]) -> _T:
        """The result within our patience.

        The socket is cut to end the wait: psycopg by itself would ask a server that hangs to cancel, and wait for it.

        Raises:
            TimeoutError: No answer; the connection is closed, as after a cancellation.
        """
        task = asyncio.ensure_future(work)
        self._busy = True
        try:
            if not (await asyncio.wait((task,), timeout=self._patience_s))[0]:
                raise TimeoutError
        except BaseException:
            self._cut()
            # Nobody asks for what comes of it, also where that takes longer.
            task.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
            await asyncio.wait((task,), timeout=_SETTLING_S)
            self._connection.pgconn.finish()
            raise
        finally:
            self._busy = False
        try:
            return task.result()
        except psycopg.Error as error:
            raise translated(error) from None

    def _cut(self) -> None:
        try:
            with socket.socket(fileno=os.dup(self._connection.fileno())) as line:
                line.shutdown(socket.SHUT_RDWR)
        except (OSError, psycopg.Error):
            pass


class LibpqStatement:
    """A prepared statement."""

    def __init__(self, connection: LibpqConnection, text: str, kept: bool) -> None:
        self._connection = connection
        self._text = text
        self._kept = kept
        self._first = True

    async def fetch(self, *arguments: object) -> list[NamedRow]:
        """Its rows."""
        rows = await self._connection.rows(self._text, arguments, kept=self._kept, first=self._first)
        self._first = False
        return rows


async def connect(
    arguments: Mapping[str, Any], settings: Mapping[str, str], conninfo: ConnInfo, timeout_s: float, patience_s: float
) -> LibpqConnection:
    """Connects to one endpoint.

    Args:
        arguments: One of `ConnInfo.as_libpq`.
        settings: Parameters that the session begins with, over those that the user has in `options`.
        conninfo: Where it belongs to, for messages.
        timeout_s: For the connection, where the user says nothing.
        patience_s: How long one answer is waited for.

    Raises:
        ConnectionProblem: Not there, or it does not let us in, or a keyword forbids to be let in.
        TimeoutError: There was no answer.
        PasswordNeeded: It wants a password.
    """
    own_settings = {name: value for name, value in settings.items() if name in _OWN_KEYWORDS}
    other_settings = {name: value for name, value in settings.items() if name not in _OWN_KEYWORDS}
    keywords = {**arguments, **own_settings, "options": with_settings(arguments.get("options", ""), other_settings)}
    given_s = int(keywords.pop("connect_timeout", None) or 0)
    wait_s = float(max(given_s, 2)) if given_s > 0 else timeout_s
    try:
        async with asyncio.timeout(wait_s):
            connection = await psycopg.AsyncConnection.connect(
                autocommit=True,
                cursor_factory=psycopg.AsyncRawCursor,
                row_factory=_rows_of,
                **keywords,
            )
    except psycopg.errors.ConnectionTimeout:
        raise TimeoutError from None
    except psycopg.OperationalError as error:
        raise libpq_problem(error, conninfo) from None
    except (OSError, UnicodeError) as error:
        # psycopg looks host names up by itself, before libpq has a say.
        raise connection_problem(error, conninfo) from None
    return LibpqConnection(connection, patience_s)


def translated(error: psycopg.Error) -> Exception:
    """The same as asyncpg says it: by its class of the sqlstate; a cut connection as the system does."""
    if error.sqlstate:
        values = {letter: getattr(error.diag, name) for letter, name in _FIELDS.items()}
        refusal: Exception = asyncpg.PostgresError.new({letter: value for letter, value in values.items() if value})
        return refusal
    if isinstance(error, psycopg.OperationalError):
        return ConnectionResetError(str(error))
    closed: Exception = asyncpg.InterfaceError(str(error))
    return closed


def _rows_of(cursor: psycopg.AsyncCursor[Any]) -> Callable[[Sequence[Any]], NamedRow]:
    return kind_of(tuple(column.name for column in cursor.description or ()))


def _as_text(argument: object) -> str | None:
    if argument is None:
        return None
    if isinstance(argument, list | tuple):
        elements = ",".join('"' + re.sub(r'(["\\])', r"\\\1", str(element)) + '"' for element in argument)
        return "{" + elements + "}"
    return str(argument)
