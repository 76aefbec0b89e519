"""EXPLAIN of what a session runs: plain EXPLAIN, of one complete plain query, in a transaction that may not write.

Planning executes functions of the statement (`planning_role` says as whom), and a read-only transaction does not stop
all of what they may do: COPY TO PROGRAM, for one.
"""

from __future__ import annotations

from typing import Any, Final

import psycopg
from msgspec import Struct
from psycopg.generators import execute
from psycopg.pq import ExecStatus
from psycopg.rows import dict_row

from pgtop_tune.errors import ServerProblem, UsageProblem
from pgtop_tune.model.backend_action import BackendKey, QueryPlan
from pgtop_tune.model.postgres import HIDDEN_QUERY
from pgtop_tune.postgres import queries
from pgtop_tune.postgres.activity_rows import QUERY_CHARACTERS, shown_query
from pgtop_tune.postgres.server.own_sessions import marked
from pgtop_tune.postgres.statements.plain_query import PlainQuery, plain_query
from pgtop_tune.secret import MASK

_GENERIC_SINCE: Final = 16
_LONGEST_CHARACTER: Final = 4
"""Bytes: the server cuts a text before the character that would not fit."""

Connection = psycopg.AsyncConnection[dict[str, Any]]


class SeenStatement(Struct, frozen=True):
    """A statement in full, where it was run, and the role whose session ran it ("" where it was dropped)."""

    query: str
    datname: str
    role: str


async def whole_statement(connection: Connection, backend: BackendKey, seen: str) -> SeenStatement:
    """The statement an operator saw, in full.

    Args:
        connection: To any database of the server.
        backend: Which session.
        seen: What was on the screen: the first `QUERY_CHARACTERS` at most.

    Raises:
        UsageProblem: The session is gone, its text is cut or hidden, or it has another statement by now.
    """
    text = queries.sql("one_backend", connection.info.server_version // 10_000)
    cursor = psycopg.AsyncRawCursor(connection, row_factory=dict_row)
    row = await (await cursor.execute(marked(text).encode(), backend)).fetchone()
    if row is None or row["datname"] is None:
        raise UsageProblem("the session has ended, or runs no queries")
    if seen == HIDDEN_QUERY or not seen:
        raise UsageProblem("this role may not see the session's query", "pg_monitor lets it")
    role = row["role"] or ""
    whole = bytes(row["query"] or b"")
    most_bytes = row["most_bytes"] - _LONGEST_CHARACTER
    if shown_query(whole) == seen:
        if row["query_bytes"] >= most_bytes:
            raise UsageProblem(
                f"the server keeps only the first {row['most_bytes'] - 1} bytes of a statement, and this one is longer",
                "raise track_activity_query_size (needs a restart)",
            )
        return SeenStatement(whole.decode("utf-8", "replace"), row["datname"], role)
    if MASK in seen:
        raise UsageProblem("the session runs another statement now, and this one had a secret removed")
    if len(seen) < QUERY_CHARACTERS and len(seen.encode("utf-8", "replace")) < most_bytes:
        return SeenStatement(seen, row["datname"], role)
    raise UsageProblem("the session runs another statement now, and only the beginning of this one is known")


def explainable(connection: Connection, found: SeenStatement) -> PlainQuery:
    """The query in a statement that this server can plan without its session.

    Raises:
        UsageProblem: Not one complete plain query.
        ServerProblem: It has placeholders and the server is older than 16.
    """
    query = plain_query(found.query)
    major = connection.info.server_version // 10_000
    if query.placeholders and major < _GENERIC_SINCE:
        raise ServerProblem(
            "the statement has placeholders ($1), and EXPLAIN (GENERIC_PLAN) exists from PostgreSQL 16 on",
            "pgbench -M simple sends statements without them",
        )
    return query


async def explained(connection: Connection, found: SeenStatement, role: str) -> QueryPlan:
    """The plan, as the server writes it. The statement is not executed; functions in it may be, as this role.

    Args:
        connection: To the database of the session, in a transaction that is read-only and rolled back, with the
            search_path of the role: names in the statement are found along it.
        found: The statement.
        role: The role that is logged in there.

    Raises:
        UsageProblem, ServerProblem: See `explainable`.
        psycopg.Error: The server refuses it.
    """
    query = explainable(connection, found)
    statement = explain_statement(query)
    # The server's own parser is asked first whether this is one statement: it refuses several here.
    await _parsed(connection, query.text)
    rows = await (await connection.execute(marked(statement).encode())).fetchall()
    lines = tuple(str(next(iter(row.values()))) for row in rows)
    return QueryPlan(
        lines=lines,
        statement=statement,
        database=found.datname,
        user=role,
        session_role=found.role,
        generic=query.placeholders,
    )


def explain_statement(query: PlainQuery) -> str:
    """EXPLAIN of the query: never ANALYZE."""
    return f"EXPLAIN (SETTINGS{', GENERIC_PLAN' if query.placeholders else ''}) {query.text}"


async def _parsed(connection: Connection, text: str) -> None:
    """Sends a Parse message and nothing more; several statements in one are a syntax error there."""
    connection.pgconn.send_prepare(b"", text.encode())
    for result in await connection.wait(execute(connection.pgconn)):
        if result.status == ExecStatus.FATAL_ERROR:
            raise psycopg.errors.error_from_result(result, encoding=connection.info.encoding)
