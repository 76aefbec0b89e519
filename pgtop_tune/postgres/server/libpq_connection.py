"""libpq, through psycopg, with the interface of an asyncpg connection: for keywords that only libpq obeys.

It has the methods that `ReadConnection` and `PooledConnection` use, returns values of the same types, and raises
exceptions of asyncpg. It is imported when such a keyword is set; otherwise the sampler does without psycopg.
"""

from __future__ import annotations

import asyncio
import re
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
from pgtop_tune.postgres.server.libpq import cut
from pgtop_tune.postgres.server.rows import NamedRow, kind_of

_SETTLING_S: Final = 1.0
"""Longest wait for a task whose socket has been shut down."""
_OWN_KEYWORDS: Final = frozenset({"application_name", "client_encoding"})
"""Parameters of a session that are keywords of libpq; others go through `options`."""
_FIELDS: Final[Mapping[str, str]] = {
    "S": "severity",
    "V": "severity_nonlocalized",
    "C": "sqlstate",
    "M": "message_primary",
    "D": "message_detail",
    "H": "message_hint",
    "R": "source_function",
}
"""Fields of an ErrorResponse, from which asyncpg makes an exception, and their names in psycopg."""

_T = TypeVar("_T")


class ServerSettings:
    """Settings that the server sent at the start, and decoders of its types.

    Attributes:
        server_encoding: Encoding of the database.
    """

    def __init__(self, connection: psycopg.AsyncConnection[NamedRow]) -> None:
        self._adapters = connection.adapters
        self.server_encoding = connection.info.parameter_status("server_encoding") or ""

    def add_python_codec(self, typeoid: int, typename: str, *, decoder: Callable[[bytes], Any], **_: object) -> None:
        """Set the decoder of a type, as asyncpg does."""

        class Decoded(Loader):
            """Loader of values of this type."""

            format = Format.BINARY

            def load(self, data: bytes | bytearray | memoryview) -> Any:
                return decoder(bytes(data))

        self._adapters.register_loader(typeoid, Decoded)


class LibpqConnection:
    """An open connection, made by `connect`."""

    def __init__(self, connection: psycopg.AsyncConnection[NamedRow], patience_s: float) -> None:
        self._connection = connection
        self._patience_s = patience_s
        self._busy = False
        connection.prepared_max = None
        connection.adapters.register_loader("xid", OidBinaryLoader)

    def get_server_pid(self) -> int:
        """Return the pid that the server sent at the start."""
        return self._connection.info.backend_pid

    def get_settings(self) -> ServerSettings:
        """Return the settings, as asyncpg does."""
        return ServerSettings(self._connection)

    def server_end(self) -> tuple[str, bool]:
        """Return the server's address, "" for a Unix socket; and whether TLS encrypts the connection."""
        return self._connection.info.hostaddr, bool(self._connection.pgconn.ssl_in_use)

    def is_closed(self) -> bool:
        """Return whether the connection is known to be lost."""
        return bool(self._connection.closed)

    async def prepare(self, text: str, *, name: str) -> LibpqStatement:
        """Return a statement that the server keeps, parsed by its first `fetch`; with an empty name, by each."""
        return LibpqStatement(self, text, bool(name))

    async def fetch(self, text: str) -> list[NamedRow]:
        """Return the rows of a statement that the server does not keep."""
        return await self._within(self._rows(text, (), kept=False))

    async def fetchval(self, text: str) -> Any:
        """Return the first value of the first row."""
        return (await self.fetch(text))[0][0]

    async def execute(self, text: str) -> None:
        """Run statements without parameters as one simple query."""
        await self._within(self._connection.execute(text.encode(), prepare=False))

    async def rows(self, text: str, arguments: Sequence[object], *, kept: bool, first: bool) -> list[NamedRow]:
        """Return the rows of a statement; parameters are written $1. The server infers the types of the arguments.

        Args:
            text: The statement.
            arguments: Its parameters.
            kept: Whether the server is to keep it.
            first: Whether it is not kept yet: it is parsed and run at once, as one transaction instead of two.
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
        """Drop the statements that the server keeps, because their tables have changed."""
        await self.execute("DEALLOCATE ALL")

    def terminate(self) -> None:
        """Close the connection at once, also during a statement."""
        cut(self._connection)
        if not self._busy:
            self._connection.pgconn.finish()

    async def close(self, *, timeout: float) -> None:  # noqa: ASYNC109 (as asyncpg)
        """Close the connection; during a statement like `terminate`."""
        if self._busy:
            self.terminate()
        else:
            await self._connection.close()

    async def _within(self, work: Coroutine[Any, Any, _T]) -> _T:
        """Return the result of a coroutine within `patience_s`.

        A shutdown of the socket ends the wait: psycopg itself would send a cancel request to a server that hangs, and
        wait for it.

        Raises:
            TimeoutError: No answer; the connection is closed, as after a cancellation.
        """
        task = asyncio.ensure_future(work)
        self._busy = True
        try:
            if not (await asyncio.wait((task,), timeout=self._patience_s))[0]:
                raise TimeoutError
        except BaseException:
            cut(self._connection)
            # The result is retrieved, because an exception that is not retrieved is reported on stderr.
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


class LibpqStatement:
    """A prepared statement."""

    def __init__(self, connection: LibpqConnection, text: str, kept: bool) -> None:
        self._connection = connection
        self._text = text
        self._kept = kept
        self._first = True

    async def fetch(self, *arguments: object) -> list[NamedRow]:
        """Return its rows."""
        rows = await self._connection.rows(self._text, arguments, kept=self._kept, first=self._first)
        self._first = False
        return rows


async def connect(
    arguments: Mapping[str, Any], settings: Mapping[str, str], conninfo: ConnInfo, timeout_s: float, patience_s: float
) -> LibpqConnection:
    """Connect to one endpoint.

    Args:
        arguments: One of `ConnInfo.as_libpq`.
        settings: Parameters of the session, which override those in the user's `options`.
        conninfo: The connection, for messages.
        timeout_s: Time-out of the connection without connect_timeout of the user.
        patience_s: Longest wait for an answer.

    Raises:
        ConnectionProblem: The server is not there or refuses us, or a keyword excludes it.
        TimeoutError: There was no answer.
        PasswordNeeded: The server asks for a password.
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
        # psycopg resolves host names itself, before libpq runs.
        raise connection_problem(error, conninfo) from None
    return LibpqConnection(connection, patience_s)


def translated(error: psycopg.Error) -> Exception:
    """Return the exception of asyncpg for one of psycopg, by sqlstate; ConnectionResetError for a lost connection."""
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
