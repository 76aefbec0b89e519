"""EXPLAIN of a session's statement: plain EXPLAIN, of one complete plain query, as its own role, in a transaction that
may not write.

Planning executes functions of the statement (`planners` chooses the role), and a read-only transaction does not prevent
all of their effects, such as COPY TO PROGRAM.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, Final

import psycopg
from msgspec import Struct
from msgspec.structs import replace
from psycopg.generators import execute
from psycopg.pq import ExecStatus
from psycopg.rows import dict_row

from pgtop_tune.base.errors import ServerProblem, UsageProblem
from pgtop_tune.base.secret import MASK
from pgtop_tune.model.backend_action import BackendKey, PlanRisk, PlanShape, QueryPlan
from pgtop_tune.model.postgres import HIDDEN_QUERY
from pgtop_tune.model.statements import PLAIN_QUERIES
from pgtop_tune.postgres import queries
from pgtop_tune.postgres.readers.sessions import QUERY_CHARACTERS, shown_query
from pgtop_tune.postgres.server.capabilities import PREDEFINED
from pgtop_tune.postgres.server.own_sessions import marked

SUPERUSER: Final = "SUPERUSER"
ATTRIBUTES: Final = ("CREATEROLE", "REPLICATION", "BYPASSRLS")
"""Attributes of powerful roles: to create and alter roles; to copy all data and keep WAL; to bypass row security."""

Connection = psycopg.AsyncConnection[dict[str, Any]]


async def powers(connection: Connection, role: str) -> tuple[str, ...]:
    """Return the rights of a role that foreign code should not have, in words; () for an ordinary role.

    Planning a statement runs functions in it, as the role that plans, and that code may become any role that the login
    role may become, because SET ROLE ends with RESET ROLE. So a role has the powers of every role of which it is a
    member, inherited or not. Source: PostgreSQL documentation, "Role Attributes" and "Predefined Roles"; pg_has_role(…,
    'MEMBER').

    Args:
        connection: Connection to the server.
        role: A role of the server.
    """
    rows = await _rows(connection, "role_powers", (role, list(PREDEFINED)))
    rights = []
    for row in rows:
        name = row["name"]
        if row[SUPERUSER]:
            # A superuser is a member of every role, so further roles add nothing.
            return ("a superuser" if name == role else f"a member of {name}, a superuser",)
        attributes = [attribute for attribute in ATTRIBUTES if row[attribute]]
        if name == role:
            rights += attributes
        elif attributes:
            rights.append(f"a member of {name} ({', '.join(attributes)})")
        else:
            rights.append(f"a member of {name}")
    return tuple(rights)


async def _rows(connection: Connection, name: str, values: Sequence[Any] | None = None) -> list[dict[str, Any]]:
    """Return the rows of one of the program's own queries."""
    text = queries.sql(name, connection.info.server_version // 10_000)
    cursor = psycopg.AsyncRawCursor(connection, row_factory=dict_row)
    return await (await cursor.execute(marked(text).encode(), values)).fetchall()


# The shape of a plan: nodes, indexes and the order of joins, without costs and conditions. Pure.

_MOST_NODES: Final = 400
_DEEPEST: Final = 100
_ON: Final = ("Relation Name", "Function Name", "CTE Name", "Tuplestore Name", "Table Function Name")
_UNSAID: Final = {"Strategy": "Plain", "Join Type": "Inner", "Partial Mode": "Simple"}
"""Usual values, which the text format of EXPLAIN leaves out as well."""


def shape_of(explained: Any) -> tuple[str, ...]:
    """Return the lines of EXPLAIN (FORMAT JSON, COSTS OFF), one for each node; () for anything but a plan."""
    try:
        return tuple(_nodes(explained[0]["Plan"], 0))[:_MOST_NODES]
    except (KeyError, IndexError, TypeError, AttributeError):
        return ()


def _nodes(node: Any, depth: int) -> Iterator[str]:
    if depth > _DEEPEST:
        return
    named = "".join(f"{node[key]} " for key, plain in _UNSAID.items() if node.get(key, plain) != plain)
    line = f"{named}{node.get('Operation') or node['Node Type']}"
    if index := node.get("Index Name"):
        line += f" using {index}"
    if on := next((node[key] for key in _ON if node.get(key)), None):
        line += f" on {on}"
    subplan = node.get("Subplan Name")
    yield "  " * depth + (f"{subplan}: " if subplan else "") + line
    for below in node.get("Plans", ()):
        yield from _nodes(below, depth + 1)


# Check that a text is one complete plain query for EXPLAIN. Pure.
#
# This is no parser: it distinguishes comments, quotes and words, as PostgreSQL's scanner does, and refuses everything
# uncertain. The server's own parser decides before anything is run (`explain`).

_TARGETED: Final = ("INSERT", "MERGE")
"""Words before an INTO that names the target table."""

_TOKEN: Final = re.compile(
    r"""
    (?P<blank>\s+|--[^\n\r]*)
  | (?P<comment>/\*)
  | (?P<dollar>\$(?:[A-Za-z_\u0080-\uffff][A-Za-z0-9_\u0080-\uffff]*)?\$)
  | (?P<placeholder>\$[0-9]+)
  | (?P<escaped>[eE]'(?:[^'\\]|\\.|'')*')
  | (?P<torn>[eE]')
  | (?P<string>(?:[bBxXnN]|[uU]&)?'(?:[^']|'')*')
  | (?P<quoted>(?:[uU]&)?"(?:[^"]|"")*")
  | (?P<number>[0-9][A-Za-z0-9_.]*)
  | (?P<word>[A-Za-z_\u0080-\uffff][A-Za-z0-9_$\u0080-\uffff]*)
  | (?P<open>[(\[])
  | (?P<close>[)\]])
  | (?P<semicolon>;)
  | (?P<unfinished>['"])
  | (?P<other>.)
    """,
    re.VERBOSE | re.DOTALL,
)
_COMMENT_EDGE: Final = re.compile(r"/\*|\*/")


class PlainQuery(Struct, frozen=True):
    """A query that EXPLAIN may see.

    Attributes:
        text: The query without a semicolon at its end.
        placeholders: Whether it has $1, $2, ….
    """

    text: str
    placeholders: bool


def plain_query(text: str) -> PlainQuery:
    """Return the query in a text.

    Args:
        text: A statement of pg_stat_activity; foreign.

    Raises:
        UsageProblem: The text is no query, several statements, or an incomplete one; the message says which.
    """
    keywords: list[str] = []
    depth = 0
    # A union may begin with parentheses; words count up to the depth of the first one.
    looked_at = 0
    end: int | None = None
    placeholders = False
    for kind, token, at in _tokens(text):
        if end is not None:
            raise UsageProblem("the text contains more than one statement")
        if kind == "semicolon":
            if depth:
                raise UsageProblem("the statement is incomplete: a parenthesis is not closed")
            end = at
        elif kind == "open":
            depth += 1
        elif kind == "close":
            depth -= 1
            if depth < 0:
                raise UsageProblem("the statement is incomplete: a closing parenthesis has no opening one")
        elif kind == "placeholder":
            placeholders = True
        elif depth <= looked_at or not keywords:
            looked_at = looked_at if keywords else depth
            keywords.append(token.upper() if kind == "word" else "")
        if keywords and keywords[0] not in PLAIN_QUERIES:
            raise UsageProblem(
                f"EXPLAIN accepts only plain queries, but this one begins with {keywords[0] or 'something else'}",
                "plain queries begin with SELECT, INSERT, UPDATE, DELETE, MERGE, VALUES, TABLE or WITH",
            )
    if not keywords:
        raise UsageProblem("the text contains no plain query")
    if depth:
        raise UsageProblem("the statement is incomplete: a parenthesis is not closed")
    if any(word == "INTO" and before not in _TARGETED for before, word in pairwise(keywords)):
        raise UsageProblem("SELECT INTO creates a table, so it is not explained")
    return PlainQuery(text[:end].strip(), placeholders)


def _tokens(text: str) -> Iterator[tuple[str, str, int]]:
    """Yield kind, text and position of each token that is neither blank nor comment."""
    at = 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        assert match is not None
        kind, begin = match.lastgroup or "", at
        at = match.end()
        if kind == "comment":
            at = _after_comment(text, at)
        elif kind == "dollar":
            closing = text.find(match.group(), at)
            if closing < 0:
                raise UsageProblem("the text ends inside a string; it may be truncated")
            at = closing + len(match.group())
            yield "string", text[begin:at], begin
        elif kind in ("unfinished", "torn"):
            raise UsageProblem("the text ends inside a string or a name; it may be truncated")
        elif kind != "blank":
            yield kind, match.group(), begin


def _after_comment(text: str, at: int) -> int:
    """Return the position behind a comment; comments nest."""
    depth = 1
    while depth:
        edge = _COMMENT_EDGE.search(text, at)
        if edge is None:
            raise UsageProblem("the text ends inside a comment; it may be truncated")
        depth += 1 if edge.group() == "/*" else -1
        at = edge.end()
    return at


_GENERIC_SINCE: Final = 16
_LONGEST_CHARACTER: Final = 4
"""Bytes of the longest character, before which the server may cut a text."""


class SeenStatement(Struct, frozen=True):
    """A full statement, its database, and the role of its session ("" where it was dropped)."""

    query: str
    datname: str
    role: str


async def whole_statement(connection: Connection, backend: BackendKey, seen_text: str) -> SeenStatement:
    """Return the full statement that the operator saw.

    Args:
        connection: Connection to any database of the server.
        backend: The session.
        seen_text: Text on the screen, at most the first `QUERY_CHARACTERS`.

    Raises:
        UsageProblem: The session has ended, its text is cut or hidden, or it runs another statement now.
    """
    rows = await _rows(connection, "one_backend", backend)
    if not rows or rows[0]["datname"] is None:
        raise UsageProblem("the session has ended, or runs no queries")
    row = rows[0]
    if seen_text == HIDDEN_QUERY or not seen_text:
        raise UsageProblem("this role may not see the session's query", "GRANT pg_monitor to the role")
    role = row["role"] or ""
    full_text = bytes(row["query"] or b"")
    most_bytes = row["most_bytes"] - _LONGEST_CHARACTER
    if shown_query(full_text) == seen_text:
        if row["query_bytes"] >= most_bytes:
            raise UsageProblem(
                f"the server keeps only the first {row['most_bytes'] - 1} bytes of a statement, but this one is longer",
                "raise track_activity_query_size (needs a restart)",
            )
        return SeenStatement(full_text.decode("utf-8", "replace"), row["datname"], role)
    if MASK in seen_text:
        raise UsageProblem("the session runs another statement now, and a secret was removed from this one")
    if len(seen_text) < QUERY_CHARACTERS and len(seen_text.encode("utf-8", "replace")) < most_bytes:
        return SeenStatement(seen_text, row["datname"], role)
    raise UsageProblem("the session runs another statement now, and only the beginning of this one is known")


def explainable(connection: Connection, statement: SeenStatement) -> PlainQuery:
    """Return the query of a statement that this server can plan outside of its session.

    Raises:
        UsageProblem: The statement is not one complete plain query.
        ServerProblem: It has placeholders, and the server is older than 16.
    """
    query = plain_query(statement.query)
    major = connection.info.server_version // 10_000
    if query.placeholders and major < _GENERIC_SINCE:
        raise ServerProblem(
            "the statement has placeholders ($1), but EXPLAIN (GENERIC_PLAN) exists only from PostgreSQL 16 on",
            "pgbench -M simple sends statements without them",
        )
    return query


async def explained(connection: Connection, seen_statement: SeenStatement, role: str) -> QueryPlan:
    """Return the plan in the server's format. The statement is not executed; functions in it may be, as this role.

    Args:
        connection: Connection to the database of the session, in a transaction that is read-only and rolled back, with
            the search_path of the role, in which names of the statement are looked up.
        seen_statement: The statement.
        role: Login role of the connection.

    Raises:
        UsageProblem, ServerProblem: See `explainable`.
        psycopg.Error: The server refuses it.
    """
    query = explainable(connection, seen_statement)
    statement = explain_statement(query)
    return QueryPlan(
        lines=tuple(map(str, await _answers(connection, query, statement))),
        statement=statement,
        database=seen_statement.datname,
        user=role,
        session_role=seen_statement.role,
        generic=query.placeholders,
    )


async def planned_shape(connection: Connection, seen_statement: SeenStatement, role: str) -> PlanShape:
    """Return the shape of the plan; arguments and errors as for `explained`."""
    query = explainable(connection, seen_statement)
    answers = await _answers(connection, query, explain_statement(query, "FORMAT JSON, COSTS OFF"))
    nodes = shape_of(answers[0] if answers else None)
    if not nodes:
        raise ServerProblem("the server's answer is not a plan")
    return PlanShape(nodes=nodes, role=role, generic=query.placeholders)


async def _answers(connection: Connection, query: PlainQuery, statement: str) -> list[Any]:
    # First, the server's own parser checks that this is one statement: it refuses several here.
    await _parsed(connection, query.text)
    rows = await (await connection.execute(marked(statement).encode())).fetchall()
    return [next(iter(row.values())) for row in rows]


def explain_statement(query: PlainQuery, options: str = "SETTINGS") -> str:
    """Return the EXPLAIN of a query, never with ANALYZE."""
    return f"EXPLAIN ({options}{', GENERIC_PLAN' if query.placeholders else ''}) {query.text}"


async def _parsed(connection: Connection, text: str) -> None:
    """Send only a Parse message, in which several statements are a syntax error."""
    connection.pgconn.send_prepare(b"", text.encode())
    for result in await connection.wait(execute(connection.pgconn)):
        if result.status == ExecStatus.FATAL_ERROR:
            raise psycopg.errors.error_from_result(result, encoding=connection.info.encoding)


# Role that plans a session's statement.
#
# Planning executes functions of the statement that are marked IMMUTABLE or STABLE, as the role that plans, and SET ROLE
# does not help, because the function can reset it. So the session's own role plans, logged in as itself, or an ordinary
# role of the operator; a powerful role only once the operator has agreed to it.


async def planners(connection: Connection, statement: SeenStatement) -> tuple[str | None, ...]:
    """Return the roles that may plan a statement, in order; None stands for the operator's own, which is the last.

    The session's own role comes first, unless it is powerful and the operator's is an ordinary one.

    Args:
        connection: Connection of the operator.
        statement: The statement.
    """
    operator, _ = await _logged_in_as(connection)
    if statement.role in ("", operator):
        return (None,)
    if await powers(connection, statement.role) and not await powers(connection, operator):
        return (None,)
    return statement.role, None


async def login_role(connection: Connection, role: str | None) -> str | None:
    """Return the login role of a connection; None where it is not the requested one, because a pooler replaced it.

    Args:
        connection: Connection to the server.
        role: The requested role, see `planners`.
    """
    login, acting = await _logged_in_as(connection)
    return login if role is None or (login, acting) == (role, role) else None


async def unagreed(
    connection: Connection, statement: SeenStatement, role: str, not_as_session: str, agreed: PlanRisk | None
) -> PlanRisk | None:
    """Return the risk of planning, where the role of a connection is powerful and that was not agreed to; else None.

    Args:
        connection: Connection to the database of the session.
        statement: The statement.
        role: Login role of the connection.
        not_as_session: Reason why the session's own role does not plan.
        agreed: See `PostgresBackends.explain`.
    """
    found_powers = await powers(connection, role)
    risk = PlanRisk(
        query=statement.query,
        database=statement.datname,
        role=role,
        powers=found_powers,
        session_role=statement.role,
        not_as_session=not_as_session,
    )
    agreed_to = agreed is not None and replace(agreed, not_as_session=not_as_session) == risk
    return risk if found_powers and not agreed_to else None


async def _logged_in_as(connection: Connection) -> tuple[str, str]:
    (row,) = await _rows(connection, "login_role")
    return row["login"], row["acting"]
