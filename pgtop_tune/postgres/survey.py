"""Asks databases a few questions of their own, each once: every database in parallel, bounded, those that refuse told.

Sessions are those of the sampler: read-only, no waiting for locks, limited in time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Final

import asyncpg
from msgspec import Struct, field
from msgspec.structs import replace

from pgtop_tune.base.errors import ConnectionProblem, ServerProblem
from pgtop_tune.base.foreign_answers import MALFORMED, decodes, decoding, malformed
from pgtop_tune.base.secret import without_secrets
from pgtop_tune.model.absence import Reason, Unavailable, grant
from pgtop_tune.model.statements import OWN_MARK
from pgtop_tune.postgres.queries import sql
from pgtop_tune.postgres.server.closed_rights import with_grants
from pgtop_tune.postgres.server.connecting import open_connection
from pgtop_tune.postgres.server.connection import ReadConnection
from pgtop_tune.postgres.server.conninfo import ConnInfo
from pgtop_tune.postgres.server.failures import absence
from pgtop_tune.postgres.server.file_looks import new_hangs
from pgtop_tune.postgres.server.own_sessions import OwnSessions
from pgtop_tune.postgres.server.sql_session import open_sql_session

AT_ONCE: Final = 4
"""Databases asked at the same time."""
_STATEMENT_S: Final = 10
_ANSWER_S: Final = _STATEMENT_S + 3.0
_DATABASES: Final = (
    "SELECT datname::text, datallowconn, datname = current_database() FROM pg_database WHERE NOT datistemplate"
    " ORDER BY pg_stat_get_db_xact_commit(oid) DESC, datname"
)
"""The busiest first: of thousands not all may be asked in time."""
_STILL_THERE: Final = "SELECT datname::text FROM pg_database"
_GONE: Final = (asyncpg.UndefinedTableError, asyncpg.UndefinedObjectError, asyncpg.InternalServerError)
"""What a query meets whose snapshot still has a relation that was dropped by now: asked once more."""
_HIDDEN: Final = "other databases"
_CLOSED: Final = "takes no connections (datallowconn)"

Row = Mapping[str, Any]


class DatabaseAnswer(Struct, frozen=True):
    """What one database said.

    Attributes:
        database: Its name.
        answers: By the name of the query: rows, or why there are none.
        refused: Why it could not be asked at all; "" when it could. Foreign text.
    """

    database: str
    answers: Mapping[str, Sequence[Row] | Unavailable] = field(default_factory=dict)
    refused: str = ""


class Survey(Struct, frozen=True):
    """What a server said.

    Attributes:
        here: The database that is connected to, by what was asked once.
        everywhere: All databases but templates, in the order of their names, by what was asked in each; without those
            that were dropped meanwhile.
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
    """The answers of the database that is connected to, and of all others at the same time.

    Args:
        conninfo: The server.
        our_sessions: Our sessions.
        major: Of the server.
        here: Queries (`queries.sql`) that are asked once.
        everywhere: Those that are asked in every database.
        limit_s: For how long questions are asked in the other databases; what was not asked by then has that reason.

    Raises:
        ConnectionProblem: The server is not there, or gone.
    """
    session = _Session(conninfo, our_sessions, major)
    await session.open()
    other_answers: asyncio.Future[list[DatabaseAnswer]] | None = None
    try:
        within, hidden = await _databases(session.connection) if everywhere else ({}, ())
        other_databases = _Rest(conninfo, our_sessions, major, everywhere, limit_s)
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
            # One that is cancelled and not waited for is told of on stderr when it is collected.
            await asyncio.gather(other_answers, return_exceptions=True)
        await session.connection.aclose()
    answers |= {answer.database: answer for answer in hidden}
    answers |= {name: DatabaseAnswer(name, own_answers) for name, (_, connected) in within.items() if connected}
    return Survey(DatabaseAnswer(conninfo.dbname, once), tuple(answers[name] for name in sorted(answers)))


async def _databases(connection: ReadConnection) -> tuple[dict[str, tuple[bool, bool]], tuple[DatabaseAnswer, ...]]:
    """Databases by name, whether each takes connections and whether it is ours; and a row for those that are hidden."""
    try:
        rows = await connection.fetch(_DATABASES)
    except asyncpg.PostgresError as error:
        refusal = await with_grants(connection, absence(error), [_DATABASES])
        return {connection.conninfo.dbname: (True, True)}, (DatabaseAnswer(_HIDDEN, refused=str(refusal)),)
    return {str(name): (bool(allows), bool(connected)) for name, allows, connected in rows}, ()


class _Rest:
    """Databases besides the one that is connected to, some at a time; arguments as those of `survey`."""

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
        """One of them."""
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
        return f"not asked: {self._limit_s:.0f} s have passed"

    async def _answer(self, session: _Session, name: str) -> Sequence[Row] | Unavailable:
        """None of the questions begins after the limit, so a slow database cannot hold up all of them for long."""
        return Unavailable(Reason.NO_ANSWER, self._late) if self._over else await session.answer(name)


async def _opened(conninfo: ConnInfo, our_sessions: OwnSessions) -> ReadConnection:
    connection = await open_connection(conninfo, our_sessions, _ANSWER_S)
    try:
        if not connection.pooled:
            # What is set behind a pooler is found by whoever is lent the same session; there the usual limit stands.
            await connection.execute(f"SET {OWN_MARK} statement_timeout = '{_STATEMENT_S}s'")
    except BaseException:
        connection.terminate()
        raise
    return connection


class _Session:
    """A session in one database, and the next one where files of the server hold up the first for ever.

    Attributes:
        connection: Its own, from `open` on.
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
        """Return rows of a question, or why there are none.

        Raises:
            ConnectionProblem: The server is gone.
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


# How much data a server holds: asked once, within a few seconds.

_LONGEST: Final = "5s"
_CANCELED: Final = "57014"
_ASKED: Final = """
SELECT sum(CASE WHEN permitted THEN pg_database_size(oid) END)::bigint, count(*) FILTER (WHERE NOT permitted)
  FROM (SELECT oid, has_database_privilege(oid, 'connect') OR pg_has_role('pg_read_all_stats', 'usage') AS permitted
          FROM pg_database
         WHERE datallowconn) d
"""


async def data_bytes(conninfo: ConnInfo) -> int | Unavailable:
    """The size of all databases that take connections: pg_database_size() of each, added up.

    Returns:
        NO_PERMISSION where some are closed to this role, TOO_SLOW where the server needs more than 5 s: it looks at
        every file.

    Raises:
        ConnectionProblem: The server is not there or does not let us in.
    """
    sql_session = await open_sql_session(conninfo)
    try:
        with decoding():
            ((size, closed),) = await sql_session.rows(_ASKED, longest=_LONGEST)
    except ServerProblem as problem:
        if problem.sqlstate == _CANCELED:
            return Unavailable(Reason.TOO_SLOW, f"adding up the files takes more than {_LONGEST}")
        return Unavailable(Reason.FAILED, problem.message)
    finally:
        await sql_session.aclose()
    if closed or not isinstance(size, int):
        return Unavailable(Reason.NO_PERMISSION, f"{closed} databases are hidden: {grant('pg_monitor', conninfo.user)}")
    return size
