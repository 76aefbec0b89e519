"""Survey of all databases of a server: each query runs once in each database, a few databases at a time.

Sessions are like those of the sampler: read-only, without waiting for locks, limited in time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Final

import asyncpg
from msgspec import Struct
from msgspec.structs import replace

from pgtop_tune.base.errors import ConnectionProblem, ServerProblem
from pgtop_tune.base.foreign_answers import MALFORMED, decodes, decoding, malformed
from pgtop_tune.base.secret import without_secrets
from pgtop_tune.model.absence import Reason, Unavailable, grant
from pgtop_tune.model.statements import OWN_MARK
from pgtop_tune.postgres.queries import sql
from pgtop_tune.postgres.server.closed_rights import with_grants
from pgtop_tune.postgres.server.connection import ReadConnection
from pgtop_tune.postgres.server.conninfo import ConnInfo
from pgtop_tune.postgres.server.failures import absence
from pgtop_tune.postgres.server.file_looks import new_hangs
from pgtop_tune.postgres.server.own_sessions import OwnSessions
from pgtop_tune.postgres.server.read_only_connection import open_connection
from pgtop_tune.postgres.server.sql_session import open_sql_session

AT_ONCE: Final = 4
"""Databases read at the same time."""
_STATEMENT_S: Final = 10
_ANSWER_S: Final = _STATEMENT_S + 3.0
_DATABASES: Final = (
    "SELECT datname::text, datallowconn, datname = current_database() FROM pg_database WHERE NOT datistemplate"
    " ORDER BY pg_stat_get_db_xact_commit(oid) DESC, datname"
)
"""Query for the databases, the busiest first: of thousands not all may be read in time."""
_STILL_THERE: Final = "SELECT datname::text FROM pg_database"
_GONE: Final = (asyncpg.UndefinedTableError, asyncpg.UndefinedObjectError, asyncpg.InternalServerError)
"""Errors of a query whose snapshot has a relation that was dropped since: it is sent once more."""
_HIDDEN: Final = "other databases"
_CLOSED: Final = "does not allow connections (datallowconn)"

Row = Mapping[str, Any]


class DatabaseAnswer(Struct, frozen=True):
    """Answers of one database.

    Attributes:
        database: Its name.
        answers: Rows by the name of the query, or the reason why there are none.
        refused: Reason why the database could not be read; "" when it could. Foreign text.
    """

    database: str
    answers: Mapping[str, Sequence[Row] | Unavailable] = {}
    refused: str = ""


class Survey(Struct, frozen=True):
    """Answers of a server.

    Attributes:
        here: Answers of the connected database to the queries that are sent once.
        everywhere: Answers of all databases but templates, in the order of their names, to the queries that are sent to
            each; without databases that were dropped in between.
    """

    here: DatabaseAnswer
    everywhere: tuple[DatabaseAnswer, ...]


@decodes
async def survey(
    conninfo: ConnInfo,
    our_sessions: OwnSessions,
    major: int,
    here: Sequence[str],
    everywhere: Sequence[str],
    limit_s: float,
) -> Survey:
    """Read the answers of the connected database, and of all others at the same time.

    Args:
        conninfo: The server.
        our_sessions: Our sessions.
        major: Major version of the server.
        here: Queries (`queries.sql`) that are sent once.
        everywhere: Queries that are sent to every database.
        limit_s: Time within which queries are sent to the other databases; later ones are Unavailable.

    Raises:
        ConnectionProblem: The server is not there, or the connection is lost.
    """
    session = _Session(conninfo, our_sessions, major)
    await session.open()
    other_answers: asyncio.Future[list[DatabaseAnswer]] | None = None
    try:
        within, hidden = await _databases(session.connection) if everywhere else ({}, ())
        other_databases = _OtherDatabases(conninfo, our_sessions, major, everywhere, limit_s)
        other_answers = asyncio.gather(
            *(other_databases.ask(name, allows) for name, (allows, is_here) in within.items() if not is_here)
        )
        once = {name: await session.answer(name) for name in here}
        own_answers = {name: await session.answer(name) for name in everywhere}
        answers = {answer.database: answer for answer in await other_answers}
        if any(answer.refused for answer in answers.values()):
            there = {str(name) for (name,) in await session.connection.fetch(_STILL_THERE)}
            answers = {name: answer for name, answer in answers.items() if name in there or not answer.refused}
    finally:
        if other_answers is not None:
            other_answers.cancel()
            # A cancelled future that is not awaited is reported on stderr.
            await asyncio.gather(other_answers, return_exceptions=True)
        await session.connection.aclose()
    answers |= {answer.database: answer for answer in hidden}
    answers |= {name: DatabaseAnswer(name, own_answers) for name, (_, connected) in within.items() if connected}
    return Survey(DatabaseAnswer(conninfo.dbname, once), tuple(answers[name] for name in sorted(answers)))


async def _databases(connection: ReadConnection) -> tuple[dict[str, tuple[bool, bool]], tuple[DatabaseAnswer, ...]]:
    """Return databases by name, each with whether it accepts connections and is ours; and an answer for hidden ones."""
    try:
        rows = await connection.fetch(_DATABASES)
    except asyncpg.PostgresError as error:
        refusal = await with_grants(connection, absence(error), [_DATABASES])
        return {connection.conninfo.dbname: (True, True)}, (DatabaseAnswer(_HIDDEN, refused=str(refusal)),)
    return {str(name): (bool(allows), bool(connected)) for name, allows, connected in rows}, ()


class _OtherDatabases:
    """The databases that are not connected, some at a time; arguments as those of `survey`."""

    def __init__(
        self, conninfo: ConnInfo, our_sessions: OwnSessions, major: int, names: Sequence[str], limit_s: float
    ) -> None:
        self._conninfo = conninfo
        self._own = our_sessions
        self._major = major
        self._names = names
        self._limit_s = limit_s
        self._gate = asyncio.Semaphore(AT_ONCE - 1)
        self._clock = asyncio.get_running_loop().time
        self._until_s = self._clock() + limit_s

    async def ask(self, database: str, allows: bool) -> DatabaseAnswer:
        """Read one database."""
        if not allows:
            return DatabaseAnswer(database, refused=_CLOSED)
        conninfo = replace(self._conninfo, dbname=database)
        async with self._gate:
            if self._over:
                return DatabaseAnswer(database, refused=self._late)
            try:
                session = _Session(conninfo, self._own, self._major)
                await session.open()
                try:
                    return DatabaseAnswer(database, {name: await self._answer(session, name) for name in self._names})
                finally:
                    await session.connection.aclose()
            except ConnectionProblem as problem:
                return DatabaseAnswer(database, refused=problem.message.removeprefix(f"{conninfo.describe()}: "))
            except asyncpg.PostgresError as error:
                return DatabaseAnswer(database, refused=str(absence(error)))

    @property
    def _over(self) -> bool:
        return self._clock() >= self._until_s

    @property
    def _late(self) -> str:
        return f"not queried within {self._limit_s:.0f} s"

    async def _answer(self, session: _Session, name: str) -> Sequence[Row] | Unavailable:
        """Send a query, unless the limit is over: a slow database cannot delay all of them for long."""
        return Unavailable(Reason.NO_ANSWER, self._late) if self._over else await session.answer(name)


async def _opened(conninfo: ConnInfo, our_sessions: OwnSessions) -> ReadConnection:
    connection = await open_connection(conninfo, our_sessions, _ANSWER_S)
    try:
        if not connection.pooled:
            # Behind a pooler, the next client of the session would find this setting; the usual limit applies there.
            await connection.execute(f"SET {OWN_MARK} statement_timeout = '{_STATEMENT_S}s'")
    except BaseException:
        connection.terminate()
        raise
    return connection


class _Session:
    """A session in one database, which is replaced when files of the server block it for ever.

    Attributes:
        connection: Its connection, from `open` on.
    """

    connection: ReadConnection

    def __init__(self, conninfo: ConnInfo, our_sessions: OwnSessions, major: int) -> None:
        self._conninfo = conninfo
        self._own = our_sessions
        self._major = major

    async def open(self) -> None:
        """Connect. Raises as `open_connection` does."""
        self.connection = await _opened(self._conninfo, self._own)

    async def answer(self, name: str) -> Sequence[Row] | Unavailable:
        """Return the rows of a query, or the reason why there are none.

        Raises:
            ConnectionProblem: The connection is lost.
        """
        stuck = dict(self._own.stuck)
        try:
            return await _answer(self.connection, self._major, name)
        except ConnectionProblem:
            new = new_hangs(stuck, self._own.stuck)
            if not new:
                raise
            await self.open()
            return absence(new[0])


async def _answer(connection: ReadConnection, major: int, name: str) -> Sequence[Row] | Unavailable:
    try:
        text = sql(name, major)
    except LookupError as problem:
        return Unavailable(Reason.NOT_SUPPORTED, str(problem))
    try:
        return await _rows(connection, text)
    except (asyncpg.PostgresError, ServerProblem) as error:
        return await with_grants(connection, absence(error), [text])
    except MALFORMED as error:
        return absence(malformed(error, name))


async def _rows(connection: ReadConnection, text: str) -> Sequence[Row]:
    try:
        records = await connection.fetch(text)
    except _GONE:
        records = await connection.fetch(text)
    return [{name: _masked(value) for name, value in row.items()} for row in records]


def _masked(value: Any) -> Any:
    if isinstance(value, list):
        return [_masked(element) for element in value]
    return without_secrets(value) if isinstance(value, str) else value


# The size of a server's data, read once, within a few seconds.

_LONGEST: Final = "5s"
_CANCELED: Final = "57014"
_ASKED: Final = """
SELECT sum(CASE WHEN permitted THEN pg_database_size(oid) END)::bigint, count(*) FILTER (WHERE NOT permitted)
  FROM (SELECT oid, has_database_privilege(oid, 'connect') OR pg_has_role('pg_read_all_stats', 'usage') AS permitted
          FROM pg_database
         WHERE datallowconn) d
"""


async def data_bytes(conninfo: ConnInfo) -> int | Unavailable:
    """Return the size of all databases that accept connections: the sum of pg_database_size().

    Returns:
        NO_PERMISSION where some are closed to this role, TOO_SLOW where the server needs more than 5 s, because it
        reads the size of every file.

    Raises:
        ConnectionProblem: The server is not there or refuses us.
    """
    sql_session = await open_sql_session(conninfo)
    try:
        with decoding():
            ((size, closed),) = await sql_session.rows(_ASKED, longest=_LONGEST)
    except ServerProblem as problem:
        if problem.sqlstate == _CANCELED:
            return Unavailable(Reason.TOO_SLOW, f"adding up the file sizes takes more than {_LONGEST}")
        return Unavailable(Reason.FAILED, problem.message)
    finally:
        await sql_session.aclose()
    if closed or not isinstance(size, int):
        return Unavailable(Reason.NO_PERMISSION, f"{closed} databases are hidden: {grant('pg_monitor', conninfo.user)}")
    return size
