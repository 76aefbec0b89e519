"""One read-only asyncpg connection that costs the server little and cannot hang us."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final

import asyncpg
from msgspec import Struct
from msgspec.structs import replace

from pgtop_tune.base.errors import ConnectionProblem
from pgtop_tune.base.foreign_answers import MALFORMED, check_sizes
from pgtop_tune.model.statements import OWN_MARK
from pgtop_tune.postgres.server import encodings
from pgtop_tune.postgres.server.conninfo import ConnInfo, Reached, ServerEndpoint
from pgtop_tune.postgres.server.failures import connection_problem, sqlstate_of
from pgtop_tune.postgres.server.file_looks import IS_WAITING, place_of, stuck_at
from pgtop_tune.postgres.server.own_sessions import OwnSessions, marked
from pgtop_tune.postgres.server.rows import TEXT_ARRAYS, TEXTS, RowForm, text_array, text_decoders
from pgtop_tune.postgres.server.rows_as_bytes import RowsAsBytes, error_fields, transport_of
from pgtop_tune.postgres.server.search_path import NAME, PINNED, pin

ANSWER_TIMEOUT_S: Final = 4.0
"""Longer than the server's own statement_timeout: whoever misses this one is hung or cut off."""

SESSION_SETTINGS: Final[Mapping[str, str]] = {
    "default_transaction_read_only": "on",
    "statement_timeout": "1s",
    "lock_timeout": "50ms",
    "idle_in_transaction_session_timeout": "10s",
    "idle_session_timeout": "0",
    "jit": "off",
    "work_mem": "256MB",
}
"""Made after connecting, not at the start: so a reset shows what the server would have given us.

Readings fill less than 1 MB of `work_mem`, those of crowds some dozens. They would else write temporary files, which
count as the server's.
"""

_LONGER_TRANSACTIONS: Final = (
    "CASE WHEN pg_catalog.current_setting('transaction_timeout', true) ~ '^([1-4]s|[0-9]+ms)$'"
    " THEN pg_catalog.set_config('transaction_timeout', '0', false) END"
)
"""From 17 on: one that would end our looks is lifted, any other stays to be seen. A reset would end us at once."""
_SETTLE: Final = f"SELECT {OWN_MARK} " + ", ".join(
    (
        pin(local=False),
        _LONGER_TRANSACTIONS,
        *(f"pg_catalog.set_config('{name}', '{value}', false)" for name, value in SESSION_SETTINGS.items()),
    )
)
"""Where something on the way has dropped the start-up packet's search_path, this is where it is pinned."""
_SETTLE_BY_SET: Final = "; ".join(
    (
        f"SET {OWN_MARK} {NAME} = {PINNED}",
        *(f"SET {OWN_MARK} {name} = '{value}'" for name, value in SESSION_SETTINGS.items()),
    )
)
"""The same where set_config() or current_setting() is closed to our role; a transaction_timeout stays."""
_WITHOUT_OWN: Final = (
    f"WITH {OWN_MARK} given AS MATERIALIZED (SELECT count(set_config(name, NULL, true)) AS settings"
    f" FROM unnest('{{{{{','.join(SESSION_SETTINGS)}}}}}'::text[]) AS name)"
    " SELECT * FROM ({}) AS seen WHERE (SELECT settings FROM given) >= 0"
)
"""A setting that is given NULL is reset until the transaction ends; the condition is judged before the first row.

RESET and ROLLBACK would do the same, but pg_stat_statements would not show that they are ours.
"""

CLIENT_ERRORS: Final[tuple[type[BaseException], ...]] = (
    OSError,
    TimeoutError,
    EOFError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
)
"""The network's errors and asyncpg's own, which the server has not sent: there is no server to ask now."""

_LOST: Final[tuple[type[BaseException], ...]] = (
    *CLIENT_ERRORS,
    asyncpg.PostgresConnectionError,
    asyncpg.AdminShutdownError,
    asyncpg.CrashShutdownError,
    asyncpg.CannotConnectNowError,
    asyncpg.IdleSessionTimeoutError,
    asyncpg.IdleInTransactionSessionTimeoutError,
)
_ENDING: Final = ("FATAL", "PANIC")
"""Severities after which there is no session."""
_STALE: Final[tuple[type[BaseException], ...]] = (
    asyncpg.InvalidCachedStatementError,
    asyncpg.OutdatedSchemaCacheError,
    asyncpg.InvalidSQLStatementNameError,
)

Rows = Sequence[Any]
Looked = Callable[[Sequence[bytes] | None, RowForm], None]
"""Takes the rows of a look, as in DataRow messages, and how they are read; None where the server refused or is gone:
`fetch` tells why."""


class Answered(Struct, frozen=True):
    """The moment at which an answer had come.

    Attributes:
        at_s: On the clock of `time.perf_counter`.
        own_transactions: `OwnSessions.transactions` then: our transactions that the server had ended by that moment.
    """

    at_s: float
    own_transactions: int


class ReadConnection:
    """Prepared statements over one connection, one at a time.

    Attributes:
        conninfo: The server that the operator named.
        own: Our sessions.
        endpoint: Where the connection was made.
        backend_pid: Process id of the session, as the server said when we connected; behind a pooler nobody's.
        answered: When the answer of the last `fetch` had come; perhaps before it was called.
        pooled: Behind a pooler: every statement may be served by another backend.
    """

    pooled = False
    _calls_of_a_reset = 1

    def __init__(self, raw: Any, endpoint: ServerEndpoint, conninfo: ConnInfo, own_sessions: OwnSessions) -> None:
        self._raw = raw
        self.conninfo = conninfo
        self.own = own_sessions
        self._prepared: dict[str, Any] = {}
        self._names = 0
        self._busy = asyncio.Lock()
        transport = None if self.pooled else transport_of(raw)
        self._come = asyncio.Event()
        self._as_bytes = None if transport is None else RowsAsBytes(transport, self._come.set)
        self._forms: dict[str, tuple[Any, str, RowForm | None]] = {}
        self._asked_s = 0.0
        self._decode = encodings.decoder("UTF8")
        self._converted = True
        self.answered = Answered(time.perf_counter(), own_sessions.transactions)
        self.endpoint = endpoint
        self.backend_pid: int = raw.get_server_pid()
        own_sessions.pooled = self.pooled
        if not self.pooled:
            own_sessions.pids.add(self.backend_pid)

    @property
    def reached(self) -> Reached:
        """Return the endpoint of the connection, with the address of the server's end."""
        address, tls = _server_end(self._raw)
        return Reached(replace(self.endpoint, hostaddr=address or self.endpoint.hostaddr), tls)

    async def settle(self) -> None:
        """Make the session one that cannot write and does not wait. Raises as `execute` does."""
        try:
            await self.execute(_SETTLE)
        except asyncpg.InsufficientPrivilegeError:
            await self.execute(_SETTLE_BY_SET)

    async def read_texts(self) -> None:
        """Has every text of this session read in its encoding, see `encodings`; raises as `execute` does.

        Of an encoding that Python does not know the server converts what it can: `fetch` notes when it cannot.
        """
        encoding = self._raw.get_settings().server_encoding
        if encodings.is_known(encoding):
            await self._read_in(encoding)

    async def _read_in(self, encoding: str) -> None:
        if encoding != "UTF8":
            await self.execute(f"SET {OWN_MARK} client_encoding = '{encodings.RAW}'")
        self._decode, encode = encodings.decoder(encoding), encodings.encoder(encoding)
        decoders = text_decoders(self._decode)
        add = partial(self._raw.get_settings().add_python_codec, typeschema="pg_catalog", typekind="scalar")
        for oid, name in TEXTS.items():
            add(oid, name, typeinfos=(), encoder=encode, decoder=decoders[oid], format="binary")
        for oid, name in TEXT_ARRAYS.items():
            add(
                oid, name, typeinfos=(), encoder=partial(text_array, encode), decoder=decoders[oid], format="binary"
            )  # fmt: skip
        self._converted = False
        self._prepared.clear()

    async def fetch(self, text: str, *arguments: object) -> Rows:
        """Rows of a prepared statement; arrays that come or go are text[] or oid[].

        To learn what another array is made of, asyncpg asks the catalogue, in statements without our mark.

        Raises:
            ConnectionProblem: The connection is gone (and closed).
            asyncpg.PostgresError: The server refused the statement; the connection is fine.
            FilesHang: It was not sent, because a backend of ours waits for the same files.
        """
        file_place = place_of(text)
        if file_place:
            async with self.own.looks.setdefault(file_place, asyncio.Lock()):
                return await self._ask_alone(text, arguments)
        return await self._ask_alone(text, arguments)

    async def _ask_alone(self, text: str, arguments: tuple[object, ...]) -> Rows:
        async with self._busy:
            try:
                await self._check_files(text)
                return await self._fetch(text, arguments)
            except _STALE:
                self._prepared.pop(text, None)
                await self._raw.reload_schema_state()
                return await self._fetch(text, arguments)
            except UnicodeDecodeError:
                # asyncpg reads the server's refusal by itself.
                raise asyncpg.CharacterNotInRepertoireError(
                    "the server refused the statement with a message that is not valid text"
                ) from None
            except _LOST as error:
                self._note_stuck(text, error)
                raise self._lost(error) from None
            except asyncpg.PostgresError as error:
                if getattr(error, "severity_en", None) in _ENDING:
                    raise self._lost(error) from None
                if not self._converted or sqlstate_of(error) not in encodings.NOT_CONVERTED:
                    raise
        await self._read_in(self._raw.get_settings().server_encoding)
        return await self._ask_alone(text, arguments)

    def ask(self, text: str, arguments: tuple[int, ...], looked: Looked) -> bool:
        """Ask for the rows of a statement as bytes, see `RowsAsBytes`, and wakes no task.

        Args:
            text: A statement that `fetch` has prepared.
            arguments: As many numbers as it takes.
            looked: Called once, in the loop, if this returns True.

        Returns:
            Whether it is asked. Not behind a pooler, nor over libpq; not while something else is asked; not before the
            first `fetch` of this text. `fetch` is the way then.
        """
        if not self._may_ask:
            return False
        prepared = self._known(text)
        if prepared is None:
            return False
        name, form = prepared
        asked_s = time.perf_counter()

        def come(rows: list[bytes] | None) -> None:
            self._count(asked_s)
            try:
                looked(rows, form)
            except MALFORMED:
                # `fetch` tells why.
                looked(None, form)

        assert self._as_bytes is not None
        self._come.clear()
        self._asked_s = asked_s
        self._as_bytes.ask(name, arguments, come)
        return True

    @property
    def _may_ask(self) -> bool:
        return self._as_bytes is not None and not self._busy.locked() and not self._raw.is_closed()

    def _known(self, text: str) -> tuple[str, RowForm] | None:
        """Name and form of a prepared statement whose types are known."""
        statement = self._prepared.get(text)
        if statement is None:
            return None
        prepared, name, form = self._forms.get(text, (None, "", None))
        if prepared is not statement:
            name = statement.get_name()
            form = RowForm.of([column.type.oid for column in statement.get_attributes()], self._decode)
            self._forms[text] = statement, name, form
        return None if form is None else (name, form)

    async def execute(self, text: str) -> None:
        """Runs statements without parameters, as one simple query. Raises as `fetch` does."""
        async with self._busy:
            try:
                await self._timed(self._raw.execute(text), calls=text.count(";") + 1)
            except _LOST as error:
                raise self._lost(error) from None

    async def fetch_without_own_settings(self, text: str) -> Rows:
        """Rows as a session sees them that has none of `SESSION_SETTINGS`. Raises as `fetch` does."""
        async with self._busy:
            try:
                answer = self._inside_reset(text)
                return await self._timed(answer, calls=self._calls_of_a_reset)  # type: ignore[no-any-return]
            except _LOST as error:
                raise self._lost(error) from None

    @property
    def is_closed(self) -> bool:
        """Return True once the connection is known to be gone."""
        return bool(self._raw.is_closed())

    def terminate(self) -> None:
        """Drops the connection at once."""
        self.own.pids.discard(self.backend_pid)
        self._raw.terminate()

    async def aclose(self) -> None:
        """Says goodbye to the server, or drops the connection when it does not answer."""
        self.own.pids.discard(self.backend_pid)
        try:
            await self._raw.close(timeout=1.0)
        except (*_LOST, asyncpg.PostgresError):
            self._raw.terminate()

    async def _fetch(self, text: str, arguments: Sequence[object]) -> Rows:
        statement = self._prepared.get(text)
        if statement is None:
            # Named: an unnamed statement would be parsed and planned anew by the server at every look.
            self._names += 1
            prepared = self._raw.prepare(marked(text), name=f"pgtop_{self._names}")
            statement = await self._timed(prepared, calls=0, transactions=0)
            self._prepared[text] = statement
        rows: Rows = await self._timed(statement.fetch(*arguments))
        check_sizes(rows)
        return rows

    def _note_stuck(self, text: str, error: BaseException) -> None:
        if isinstance(error, TimeoutError) and not self.pooled and (file_place := place_of(text)):
            self.own.stuck[file_place] = self.backend_pid

    async def _check_files(self, text: str) -> None:
        """Make sure that no backend of ours waits for the files of a statement. Raises as `fetch` does."""
        hang = stuck_at(text, self.own.stuck) if self.own.stuck else None
        if hang is None:
            return
        try:
            waits = await self._fetch(IS_WAITING, (hang.pid,))
        except asyncpg.InsufficientPrivilegeError:
            raise hang from None
        if waits:
            raise hang
        self.own.stuck = {file_place: pid for file_place, pid in self.own.stuck.items() if pid != hang.pid}

    async def _inside_reset(self, text: str) -> Rows:
        return await self._raw.fetch(_WITHOUT_OWN.format(text))  # type: ignore[no-any-return]

    async def _timed(self, answer: Any, *, calls: int = 1, transactions: int = 1) -> Any:
        if self._as_bytes is not None and self._as_bytes.under_way:
            await self._until_bytes_come(answer)
        started = time.perf_counter()
        try:
            return await answer
        finally:
            self._count(started, transactions=transactions, calls=calls)
            self.answered = Answered(time.perf_counter(), self.own.transactions)

    async def _until_bytes_come(self, answer: Any) -> None:
        try:
            async with asyncio.timeout(max(self._asked_s + ANSWER_TIMEOUT_S - time.perf_counter(), 0.0)):
                await self._come.wait()
        except BaseException:
            # It is never awaited.
            answer.close()
            raise

    def _count(self, started: float, *, transactions: int = 1, calls: int = 1) -> None:
        self.own.statement_ms += (time.perf_counter() - started) * 1000
        self.own.statements += 1
        self.own.transactions += transactions
        self.own.calls += calls

    def _lost(self, error: BaseException) -> ConnectionProblem:
        """Return why the connection is gone: in the server's words where it has said why."""
        # asyncpg gives a connection that was closed under a statement a state of its own (08003).
        unsaid = sqlstate_of(error)[:2] in ("", "08")
        if unsaid and self._as_bytes is not None and self._as_bytes.farewell:
            fields = error_fields(self._as_bytes.farewell)
            error = asyncpg.PostgresError.new({letter: self._decode(value) for letter, value in fields.items()})
        self.terminate()
        return connection_problem(error, self.conninfo, reached=True)


def _server_end(raw: Any) -> tuple[str, bool]:
    """The address that a driver's connection leads to, "" for a Unix socket; and whether TLS encrypts it."""
    transport = transport_of(raw)
    if transport is None:
        server_end: tuple[str, bool] = raw.server_end()
        return server_end
    peer = transport.get_extra_info("peername")
    return str(peer[0]) if isinstance(peer, tuple) else "", transport.get_extra_info("ssl_object") is not None
