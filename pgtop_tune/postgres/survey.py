"""Asks databases a few questions of their own, each once: every database in parallel, bounded, those that refuse told.

Sessions are those of the sampler: read-only, no waiting for locks, limited in time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import asyncpg

from pgtop_tune.errors import ConnectionProblem
from pgtop_tune.model.absence import Reason, Unavailable
from pgtop_tune.postgres.connecting import open_connection
from pgtop_tune.postgres.connection import ReadConnection
from pgtop_tune.postgres.conninfo import ConnInfo
from pgtop_tune.postgres.failures import absence
from pgtop_tune.postgres.own_sessions import OwnSessions
from pgtop_tune.postgres.queries import sql

AT_ONCE: Final = 4
"""Databases asked at the same time."""
_STATEMENT_S: Final = 10
_ANSWER_S: Final = _STATEMENT_S + 3.0
_DATABASES: Final = "SELECT datname::text, datallowconn FROM pg_database WHERE NOT datistemplate ORDER BY datname"
_GONE: Final = (asyncpg.UndefinedTableError, asyncpg.UndefinedObjectError, asyncpg.InternalServerError)
"""What a query meets whose snapshot still has a relation that was dropped by now: asked once more."""
_CLOSED: Final = "it takes no connections (datallowconn)"

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Asked:
    """What one database said.

    Attributes:
        database: Its name.
        answers: By the name of the query: rows, or why there are none.
        refused: Why it could not be asked at all; "" when it could. Foreign text.
    """

    database: str
    answers: Mapping[str, Sequence[Row] | Unavailable] = field(default_factory=dict)
    refused: str = ""


async def ask_here(conninfo: ConnInfo, own: OwnSessions, major: int, names: Sequence[str]) -> Asked:
    """The answers of the database that is connected to.

    Args:
        conninfo: The server.
        own: Our sessions.
        major: Of the server.
        names: Of the queries (`queries.sql`).
    """
    try:
        return await _asked(conninfo, own, major, names, conninfo.dbname)
    except ConnectionProblem as problem:
        return Asked(conninfo.dbname, refused=problem.message)


async def ask_everywhere(
    conninfo: ConnInfo, own: OwnSessions, major: int, names: Sequence[str], limit_s: float
) -> tuple[Asked, ...]:
    """The answers of all databases but templates, in the order of their names.

    Args:
        conninfo: The server.
        own: Our sessions.
        major: Of the server.
        names: Of the queries (`queries.sql`).
        limit_s: How long all of it may take; databases not asked by then are refused with that reason.

    Raises:
        ConnectionProblem: The server is not there.
    """
    connection = await open_connection(conninfo, own)
    try:
        within = [(str(name), bool(allows)) for name, allows in await connection.fetch(_DATABASES)]
    finally:
        await connection.aclose()
    gate = asyncio.Semaphore(AT_ONCE)
    loop = asyncio.get_running_loop()
    until_s = loop.time() + limit_s

    async def one(database: str, allows: bool) -> Asked:
        if not allows:
            return Asked(database, refused=_CLOSED)
        async with gate:
            if loop.time() >= until_s:
                return Asked(database, refused=f"not asked: {limit_s:.0f} s were over")
            try:
                return await _asked(replace(conninfo, dbname=database), own, major, names, database)
            except ConnectionProblem as problem:
                return Asked(database, refused=problem.message)

    return tuple(await asyncio.gather(*(one(*each) for each in within)))


async def _asked(conninfo: ConnInfo, own: OwnSessions, major: int, names: Sequence[str], database: str) -> Asked:
    connection = await open_connection(conninfo, own, _ANSWER_S)
    try:
        if not connection.pooled:
            # What is set behind a pooler is found by whoever is lent the same session; there the usual limit stands.
            await connection.execute(f"SET statement_timeout = '{_STATEMENT_S}s'")
        return Asked(database, {name: await _answer(connection, major, name) for name in names})
    finally:
        await connection.aclose()


async def _answer(connection: ReadConnection, major: int, name: str) -> Sequence[Row] | Unavailable:
    try:
        return await _rows(connection, sql(name, major))
    except asyncpg.PostgresError as error:
        return absence(error)
    except LookupError as problem:
        return Unavailable(Reason.NOT_SUPPORTED, str(problem))


async def _rows(connection: ReadConnection, text: str) -> Sequence[Row]:
    try:
        return [dict(row) for row in await connection.fetch(text)]
    except _GONE:
        return [dict(row) for row in await connection.fetch(text)]
