"""Texts of pg_stat_statements: each fetched once, and from elsewhere where the server has none.

The function of the extension converts all texts to the encoding of the database in which it is called. One text that
cannot be converted ends it. A database in SQL_ASCII converts none, one in UTF8 converts what others cannot; where no
such database has the extension, sessions show what they run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

import asyncpg
from msgspec.structs import replace

from pgtop_tune.answer_shape import check_shape
from pgtop_tune.errors import ConnectionProblem, ServerProblem
from pgtop_tune.foreign_answers import MALFORMED
from pgtop_tune.model.statements import OWN_MARK, StatementText, StatementTexts
from pgtop_tune.postgres.queries import sql
from pgtop_tune.postgres.readers.section_readers import ReadContext
from pgtop_tune.postgres.readers.sessions import converted, needs_server
from pgtop_tune.postgres.server.capabilities import Capabilities
from pgtop_tune.postgres.server.connecting import open_connection
from pgtop_tune.postgres.server.connection import ReadConnection, Rows
from pgtop_tune.postgres.server.encodings import NOT_CONVERTED, decoder
from pgtop_tune.postgres.server.failures import sqlstate_of
from pgtop_tune.postgres.server.powerful import PREDEFINED
from pgtop_tune.secret import without_secrets
from pgtop_tune.sql_quoting import quoted

TEXTS_AT_MOST: Final = 1_000
TEXT_CHARACTERS: Final = 4_000
_TEXT_COST: Final = 600.0
"""Fetching texts takes a sixth of a per cent of the time: the server reads its whole file of texts for it."""
_TEXT_PAUSE_S: Final = 60.0
_NOT_CONVERTED: Final = NOT_CONVERTED | {"42883"}
"""Between two encodings, LATIN2 and WIN866 for instance, there is no conversion at all (undefined_function)."""
_OTHERS_AT_MOST: Final = 5
"""Databases that are tried when this one cannot convert a text."""
_OTHERS: Final = f"""
SELECT datname::text AS name
  FROM pg_database
 WHERE datallowconn AND datname <> current_database() AND has_database_privilege(oid, 'connect')
   AND pg_encoding_to_char(encoding) IN ('SQL_ASCII', 'UTF8')
 ORDER BY pg_encoding_to_char(encoding) = 'UTF8', pg_stat_get_db_xact_commit(oid) DESC
 LIMIT {_OTHERS_AT_MOST}
"""

_EXTENSION_MAJORS: Final = (((1, 13), 19), ((1, 12), 18), ((1, 11), 17), ((1, 10), 15), ((1, 9), 14))
"""Version of the extension → the major whose variant of the query reads it."""


def variant(version: str) -> int:
    """The major whose queries read this version of the extension."""
    found = tuple(int(part) for part in version.split(".")[:2])
    return next((major for first, major in _EXTENSION_MAJORS if found >= first), 14)


def query_text(query: str, capabilities: Capabilities) -> str:
    """Return the variant of a query that fits the installed version of the extension."""
    text = sql(query, variant(capabilities.statements_version or ""))
    return text.format(schema=quoted(capabilities.statements_schema or ""))


def as_text(queryids: Iterable[int]) -> list[str]:
    """For a text[] parameter: see `ReadConnection.fetch`."""
    return [str(queryid) for queryid in queryids]


class StatementTextReader:
    """Reads texts by query id, and keeps them.

    Args:
        clock: The session's clock.

    Attributes:
        own: Query ids of our own statements.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self.own: set[int] = set()
        self._texts: dict[int, StatementText] = {}
        self._lost: set[int] = set()
        self._ask_from_s = 0.0
        self._shown: StatementTexts | None = None

    def forget(self) -> None:
        """Starts anew after a connection was lost, and keeps the texts."""
        self._shown = None

    async def texts(self, context: ReadContext, wanted: set[int]) -> StatementTexts:
        """Texts of these ids; those not known yet are fetched, when that is not too dear."""
        started_s = self._clock()
        if wanted - self._texts.keys() and started_s >= self._ask_from_s:
            # Set before asking: a server that takes so long that we give it up is not asked again at once.
            self._ask_from_s = started_s + _TEXT_PAUSE_S
            await self._read(context, wanted)
            ended_s = self._clock()
            self._ask_from_s = max(ended_s + (ended_s - started_s) * _TEXT_COST, self._ask_from_s if self._lost else 0)
        lost = self._lost & wanted
        if lost:
            rows = await context.fetch("running_texts", as_text(lost))
            self._keep([await _readable(context, dict(row)) for row in rows], wanted)
        texts = tuple(text for queryid, text in self._texts.items() if queryid in wanted)
        if self._shown is None or self._shown.texts != texts:
            self._shown = StatementTexts(self._clock(), texts)
        return self._shown

    async def _read(self, context: ReadContext, wanted: set[int]) -> None:
        missing = wanted - self._texts.keys()
        query = query_text("statement_texts", context.capabilities)
        try:
            rows = await context.connection.fetch(query, as_text(missing))
        except asyncpg.PostgresError as error:
            if sqlstate_of(error) not in _NOT_CONVERTED:
                raise
            rows = await _elsewhere(context, missing)
        self._keep(rows, wanted)
        self._lost = missing - self._texts.keys()

    def _keep(self, rows: Rows, wanted: set[int]) -> None:
        if len(self._texts) + len(rows) > TEXTS_AT_MOST:
            self._texts = {queryid: text for queryid, text in self._texts.items() if queryid in wanted}
        found = {row["queryid"]: _text(**row) for row in rows}
        self._texts |= found
        self._lost -= found.keys()
        self.own |= {queryid for queryid, text in found.items() if text.query == OWN_MARK}


async def _elsewhere(context: ReadContext, queryids: Iterable[int]) -> Rows:
    """Rows from the first other database that has the extension and can convert all texts."""
    for (name,) in await context.connection.fetch(_OTHERS):
        try:
            connection = await open_connection(
                replace(context.connection.conninfo, dbname=name), context.connection.own
            )
        except (ConnectionProblem, ServerProblem, asyncpg.PostgresError):
            continue
        try:
            return await _rows_there(connection, context, as_text(queryids))
        except (LookupError, ConnectionProblem, ServerProblem, asyncpg.PostgresError, *MALFORMED):
            continue
        finally:
            await connection.aclose()
    return ()


async def _rows_there(connection: ReadConnection, context: ReadContext, queryids: Sequence[str]) -> Rows:
    """Rows of another database; none of a schema whose owner may not be trusted."""
    [row] = await connection.fetch(sql("capabilities", context.major), list(PREDEFINED))
    capabilities = Capabilities(**row)
    check_shape(capabilities)
    if capabilities.statements(context.facts) is not None:
        raise LookupError("the extension cannot be read in this database")
    return await connection.fetch(query_text("statement_texts", capabilities), queryids)


async def _readable(context: ReadContext, row: dict[str, Any]) -> dict[str, Any]:
    """A row of a session's text in an encoding that Python knows."""
    if not needs_server(row["query"], row["encoding"]):
        return row
    return {**row, "query": await converted(context, row["query"], row["encoding"]), "encoding": "UTF8"}


def _text(queryid: int, query: Any, encoding: str | None, characters: int) -> StatementText:
    """Return a text; of our own statements, which are long, the mark alone."""
    words = decoder(encoding or "UTF8")(bytes(query))[:TEXT_CHARACTERS]
    return StatementText(queryid, OWN_MARK if OWN_MARK in words else without_secrets(words), characters)
