"""Reader of one admin console, over one connection that uses only the simple query protocol."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

import psycopg
from psycopg import pq
from psycopg.conninfo import make_conninfo

from pgtop_tune.base.errors import ConnectionProblem, NotLetIn, PasswordNeeded, ServerProblem
from pgtop_tune.model.pooler import (
    PGCAT,
    ConsoleSample,
    Pool,
    PooledDatabase,
    PoolerAddress,
    PoolerCounters,
    PoolerSettings,
)

# Conversion of rows of an admin console to the model, by names of columns and never by position.
#
# Unknown columns are ignored, missing ones are None: PgBouncer 1.18 and 1.25, and PgCat, differ in both.
# Source: PgBouncer's usage page, its src/admin.c and stats.c; PgCat's src/admin.rs and src/stats/.

Row = Mapping[str, str | None]

_DIGITS: Final = 18
"""Most digits of a counter of 64 bits; a longer number is not accepted."""
_LONGEST_WAIT_S: Final = 10**12
"""Longest accepted wait; in microseconds it fits into 64 bits."""
_CONSOLE: Final = frozenset({"pgbouncer", "pgcat"})
"""Databases of the console itself."""


def version_of(rows: Sequence[Row]) -> tuple[str, str]:
    """Return kind and version from SHOW VERSION: ("PgBouncer", "1.18.0"); ("", "") without rows."""
    kind, _, version = _cell(rows[0], "version").strip().partition(" ") if rows else ("", "", "")
    return kind, version.strip()


def pools_of(rows: Iterable[Row]) -> tuple[Pool, ...]:
    """Convert SHOW POOLS, without the console's own pool."""
    names = _Unique()
    return tuple(
        Pool(
            id=names(f"{_cell(row, 'user')}@{_cell(row, 'database')}"),
            database=_cell(row, "database"),
            user=_cell(row, "user"),
            pool_mode=_cell(row, "pool_mode"),
            cl_active=_number(row, "cl_active"),
            cl_idle=_number(row, "cl_idle"),
            cl_waiting=_number(row, "cl_waiting"),
            sv_active=_number(row, "sv_active"),
            sv_idle=_number(row, "sv_idle"),
            sv_used=_number(row, "sv_used"),
            sv_tested=_number(row, "sv_tested"),
            sv_login=_number(row, "sv_login"),
            maxwait_us=_waited_us(row),
        )
        for row in rows
        if _cell(row, "database") not in _CONSOLE
    )


def counters_of(rows: Iterable[Row]) -> tuple[PoolerCounters, ...]:
    """Convert SHOW STATS, without the console's own row."""
    names = _Unique()
    counters = []
    for row in rows:
        database, user, instance = _cell(row, "database"), _cell(row, "user"), _cell(row, "instance")
        if database in _CONSOLE:
            continue
        counters.append(
            PoolerCounters(
                id=names(" ".join(filter(None, (instance, f"{user}@{database}" if user else database)))),
                database=database,
                user=user,
                instance=instance,
                xacts=_number(row, "total_xact_count"),
                queries=_number(row, "total_query_count"),
                received_bytes=_number(row, "total_received"),
                sent_bytes=_number(row, "total_sent"),
                xact_us=_number(row, "total_xact_time"),
                query_us=_number(row, "total_query_time"),
                wait_us=_number(row, "total_wait_time"),
                assignments=_number(row, "total_server_assignment_count"),
                logins=_number(row, "total_client_login_count"),
                errors=_number(row, "total_errors"),
            )
        )
    return tuple(counters)


def databases_of(rows: Iterable[Row]) -> tuple[PooledDatabase, ...]:
    """Convert SHOW DATABASES, without the console's own row."""
    names = _Unique()
    return tuple(
        PooledDatabase(
            id=names(f"{user}@{_cell(row, 'name')}" if (user := _cell(row, "force_user")) else _cell(row, "name")),
            name=_cell(row, "name"),
            host=_cell(row, "host"),
            port=_number(row, "port"),
            database=_cell(row, "database"),
            force_user=_cell(row, "force_user"),
            pool_mode=_cell(row, "pool_mode"),
            pool_size=_number(row, "pool_size"),
            min_pool_size=_number(row, "min_pool_size"),
            # Called reserve_pool up to PgBouncer 1.23, and by PgCat.
            reserve_pool_size=_number(row, "reserve_pool_size", "reserve_pool"),
            max_connections=_number(row, "max_connections"),
            current_connections=_number(row, "current_connections"),
            paused=_number(row, "paused"),
            disabled=_number(row, "disabled"),
        )
        for row in rows
        if _cell(row, "name") not in _CONSOLE
    )


def lists_of(rows: Iterable[Row]) -> Mapping[str, int | None]:
    """Convert SHOW LISTS to numbers by name."""
    return {_cell(row, "list"): _number(row, "items") for row in rows}


def settings_of(config: Iterable[Row], servers: Iterable[Row], kind: str) -> PoolerSettings:
    """Convert the limits of connections in SHOW CONFIG.

    Args:
        config: Rows of SHOW CONFIG.
        servers: Rows of SHOW SERVERS of PgCat, for its prepared statements; empty for other poolers.
        kind: Kind of the pooler.
    """
    values = {_cell(row, "key"): row for row in config}

    def number(key: str) -> int | None:
        return _number(values[key], "value") if key in values else None

    caches = [size for row in servers if (size := _number(row, "prepare_cache_size")) is not None]
    return PoolerSettings(
        pool_mode=_cell(values["pool_mode"], "value") if "pool_mode" in values else "",
        max_client_conn=number("max_client_conn"),
        default_pool_size=number("default_pool_size"),
        reserve_pool_size=number("reserve_pool_size"),
        max_db_connections=number("max_db_connections"),
        max_user_connections=number("max_user_connections"),
        max_prepared_statements=number("max_prepared_statements"),
        prepare_cache_size=max(caches, default=0) if kind == PGCAT else None,
    )


class _Unique:
    """Makes names unique: they are keys of tables, and a console may return a row twice."""

    def __init__(self) -> None:
        self._seen: Counter[str] = Counter()

    def __call__(self, name: str) -> str:
        self._seen[name] += 1
        while self._seen[name] > 1:
            candidate = f"{name} #{self._seen[name]}"
            self._seen[name] += 1
            if candidate not in self._seen:
                self._seen[candidate] = 1
                return candidate
        return name


def _cell(row: Row, column: str) -> str:
    return row.get(column) or ""


def _number(row: Row, *columns: str) -> int | None:
    """Return the value of the first of these columns that exists; None if it is not a whole number from 0 on."""
    for column in columns:
        value = row.get(column)
        if value is not None:
            return int(value) if value.isascii() and value.isdigit() and len(value) <= _DIGITS else None
    return None


def _waited_us(row: Row) -> int | None:
    """Return the sum of maxwait (whole seconds) and maxwait_us (their fraction); None for an impossible wait."""
    seconds, microseconds = _number(row, "maxwait"), _number(row, "maxwait_us")
    if seconds is None or seconds > _LONGEST_WAIT_S:
        return None
    return seconds * 1_000_000 + (microseconds or 0)


# A connection that uses only the simple query protocol, because an admin console knows no other.
#
# It uses libpq's asynchronous calls, so that a pooler that hangs costs a time-out and nothing more: the connection is
# just closed, without a cancel request. Values are text, whatever types the console declares.
#
# Source: libpq, "Asynchronous Command Processing"; PgBouncer, "Admin console".

CONNECT_TIMEOUT_S: Final = 5.0
ANSWER_TIMEOUT_S: Final = 3.0

_OURS: Final[Mapping[str, str]] = {"options": "", "client_encoding": "", "target_session_attrs": "any"}
"""Values in place of PGOPTIONS and similar variables: consoles refuse the first, and the others need a server."""
_PLACE: Final = re.compile(r'^connection to server (at|on) .*?" ?(\([^)]*\))?(, port \d+)? failed: ')
_ROWS: Final = pq.ExecStatus.TUPLES_OK
_FAILED: Final = frozenset({pq.ExecStatus.FATAL_ERROR, pq.ExecStatus.BAD_RESPONSE, pq.ExecStatus.NONFATAL_ERROR})
_MOST_ROWS: Final = 5_000


class SimpleConnection:
    """A session on a console, made by `open_console`."""

    def __init__(self, raw: pq.abc.PGconn, address: PoolerAddress) -> None:
        self._raw = raw
        self._address = address

    async def rows(self, command: str) -> list[Row]:
        """Return the rows of one command by names of columns, at most 5,000.

        Raises:
            ServerProblem: The console refused the command.
            ConnectionProblem: The connection is lost, or there was no answer in 3 s; the connection is closed.
        """
        try:
            async with asyncio.timeout(ANSWER_TIMEOUT_S):
                return await self._answer(command)
        except TimeoutError:
            self.close()
            raise ConnectionProblem(
                f"{self._address.described}: no answer for {ANSWER_TIMEOUT_S:.0f} s",
                "check whether the pooler or its host hangs",
            ) from None

    def close(self) -> None:
        """Close the connection at once."""
        self._raw.finish()

    async def _answer(self, command: str) -> list[Row]:
        raw = self._raw
        self._worked(raw.status == pq.ConnStatus.OK)
        try:
            raw.send_query(command.encode())
            while raw.flush():
                await _ready(raw.socket, writing=True)
            answer_rows: list[Row] = []
            refused = ""
            while True:
                while raw.is_busy():
                    await _ready(raw.socket, writing=False)
                    raw.consume_input()
                result = raw.get_result()
                if result is None:
                    break
                refused = refused or self._refusal(result)
                answer_rows += _rows(result)
        except psycopg.Error as error:
            raise self._gone(_one_line(str(error).encode())) from None
        self._worked(raw.status == pq.ConnStatus.OK)
        if refused:
            raise ServerProblem(refused)
        return answer_rows

    def _refusal(self, result: pq.abc.PGresult) -> str:
        if result.status not in _FAILED:
            return ""
        message = result.error_field(pq.DiagnosticField.MESSAGE_PRIMARY) or result.error_message
        return _one_line(message) or "refused"

    def _worked(self, is_ok: bool) -> None:
        if not is_ok:
            raise self._gone(_one_line(self._raw.error_message))

    def _gone(self, message: str) -> ConnectionProblem:
        return ConnectionProblem(f"{self._address.described}: {message or 'the connection was cut'}")


async def open_console(address: PoolerAddress, application_name: str) -> SimpleConnection:
    """Open a session on a console.

    Raises:
        ConnectionProblem: The console is not there, or there was no answer in 5 s.
        NotLetIn: The console refuses the user or the password, or its pg_hba.conf does.
        PasswordNeeded: The console asks for a password, and libpq found none.
    """
    keywords = {key: value for key, value in address.keywords.items() if value}
    secrets = {key: secret.reveal() for key, secret in address.secrets.items()}
    own_settings = {**_OURS, "application_name": application_name}
    conninfo = make_conninfo("", **{**keywords, **secrets, **own_settings}).encode()
    try:
        async with asyncio.timeout(CONNECT_TIMEOUT_S):
            # libpq resolves host names before it returns.
            raw = await asyncio.to_thread(pq.PGconn.connect_start, conninfo)
            try:
                await _connected(raw)
                _check(raw, address)
            except BaseException:
                raw.finish()
                raise
    except TimeoutError:
        raise ConnectionProblem(
            f"{address.described}: no answer for {CONNECT_TIMEOUT_S:.0f} s", "check the address"
        ) from None
    return SimpleConnection(raw, address)


async def _connected(raw: pq.abc.PGconn) -> None:
    while raw.status != pq.ConnStatus.BAD:
        state = raw.connect_poll()
        if state in (pq.PollingStatus.OK, pq.PollingStatus.FAILED):
            return
        await _ready(raw.socket, writing=state == pq.PollingStatus.WRITING)


def _check(raw: pq.abc.PGconn, address: PoolerAddress) -> None:
    if raw.status == pq.ConnStatus.OK:
        raw.nonblocking = 1
        return
    # Our message already has the address; further lines are only questions of libpq.
    first, *_ = _text(raw.error_message).splitlines() or [""]
    message = f"{address.described}: {_PLACE.sub('', first)}"
    if raw.needs_password:
        raise PasswordNeeded(message, "add the password to .pgpass or to the URI of --pooler")
    if "FATAL" in message:
        raise NotLetIn(
            message, "log in as a member of PgBouncer's stats_users or admin_users, or as PgCat's admin_username"
        )
    raise ConnectionProblem(message, "check that the pooler runs, and its port")


async def _ready(descriptor: int, *, writing: bool) -> None:
    """Wait until a socket can be read, or written."""
    loop = asyncio.get_running_loop()
    is_ready: asyncio.Future[None] = loop.create_future()

    def ready() -> None:
        if not is_ready.done():
            is_ready.set_result(None)

    add, remove = (loop.add_writer, loop.remove_writer) if writing else (loop.add_reader, loop.remove_reader)
    add(descriptor, ready)
    try:
        await is_ready
    finally:
        remove(descriptor)


def _rows(result: pq.abc.PGresult) -> list[Row]:
    if result.status != _ROWS:
        return []
    names = [_text(result.fname(column) or b"") for column in range(result.nfields)]
    return [
        {name: _maybe_text(result.get_value(row, column)) for column, name in enumerate(names)}
        for row in range(min(result.ntuples, _MOST_ROWS))
    ]


def _text(value: bytes) -> str:
    return value.decode(errors="replace")


def _maybe_text(value: bytes | None) -> str | None:
    return None if value is None else _text(value)


def _one_line(message: bytes) -> str:
    return " ".join(_text(message).split())


_SETTINGS_EVERY_S: Final = 30.0
"""Interval for reading the settings, which only RELOAD changes."""


class PoolerConsole:
    """Reader of a console, with SHOW commands only.

    Args:
        address: Address of the console.
        clock: Seconds on the session's monotonic clock.
        application_name: application_name of our session.
    """

    def __init__(self, address: PoolerAddress, clock: Callable[[], float], application_name: str) -> None:
        self._address = address
        self._clock = clock
        self._application_name = application_name
        self._connection: SimpleConnection | None = None
        self._kind = self._version = ""
        self._settings = PoolerSettings()
        self._settings_due_s = 0.0

    @property
    def name(self) -> str:
        """Name that the operator gave the console."""
        return self._address.name

    @property
    def address(self) -> str:
        """user@host:port/database."""
        return self._address.described

    @property
    def place(self) -> tuple[str, int]:
        """Host and port."""
        return self._address.host, self._address.port

    async def look(self) -> ConsoleSample:
        """Read the console.

        Raises:
            ConnectionProblem: The console is not there or refuses us; the next reading connects anew.
            ServerProblem: This is no console of a pooler, or the user may not see pools.
        """
        try:
            return await self._look()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    async def _look(self) -> ConsoleSample:
        if self._connection is None:
            self._connection = await open_console(self._address, self._application_name)
            self._kind, self._version = version_of(await self._maybe(self._connection, "SHOW VERSION"))
            self._settings_due_s = 0.0
        connection = self._connection
        at_s = self._clock()
        if at_s >= self._settings_due_s:
            self._settings = await self._read_settings(connection)
            self._settings_due_s = at_s + _SETTINGS_EVERY_S
        try:
            pools = pools_of(await connection.rows("SHOW POOLS"))
        except ServerProblem as problem:
            raise ServerProblem(
                f"{self.address}: {problem.message}",
                "connect to the admin console: its database is pgbouncer or pgcat",
            ) from None
        lists = lists_of(await self._maybe(connection, "SHOW LISTS"))
        return ConsoleSample(
            at_s=at_s,
            kind=self._kind,
            version=self._version,
            settings=self._settings,
            clients=lists.get("used_clients"),
            login_clients=lists.get("login_clients"),
            servers=lists.get("used_servers"),
            pools=pools,
            counters=counters_of(await self._maybe(connection, "SHOW STATS")),
            databases=databases_of(await self._maybe(connection, "SHOW DATABASES")),
        )

    async def _read_settings(self, connection: SimpleConnection) -> PoolerSettings:
        config = await self._maybe(connection, "SHOW CONFIG")
        # One row for each server connection: read only where CONFIG lacks the figure.
        servers = await self._maybe(connection, "SHOW SERVERS") if self._kind == PGCAT else []
        return settings_of(config, servers, self._kind)

    async def _maybe(self, connection: SimpleConnection, command: str) -> list[Row]:
        """Return the rows of a command; empty where this pooler does not know it, or our user may not use it."""
        try:
            return await connection.rows(command)
        except ServerProblem:
            return []
