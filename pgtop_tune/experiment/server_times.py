"""Execution times of a load's statements on the server, beside pgbench's means on the client.

pgbench -r knows a mean per statement and nothing of how it varies. The server does where pg_stat_statements is loaded:
two readings of its counters, before and after the run, give mean and standard deviation over the run alone. Its
minimum and maximum are of all time, and percentiles are not kept.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing
from typing import Final

from msgspec import Struct

from pgtop_tune.base.errors import LoadProblem, PgtopError
from pgtop_tune.base.foreign_answers import decodes
from pgtop_tune.base.sql_quoting import ME, real_owner, trusted
from pgtop_tune.bench.ports import SqlSession
from pgtop_tune.model.bench import BenchReport, ScriptReport, StatementReport
from pgtop_tune.model.run_result import ServerTimes, StatementTimes

_SCHEMA: Final = f"""
SELECT quote_ident(n.nspname), {trusted("n.nspowner")}, pg_get_userbyid({real_owner("n.nspowner")})::text
  FROM pg_extension e JOIN pg_namespace n ON n.oid = e.extnamespace CROSS JOIN {ME}
 WHERE e.extname = 'pg_stat_statements'
"""
"""The second column: whether this session may call functions of the schema, whose owner can replace them."""
_MEMORY: Final = "(SELECT pg_catalog.set_config('work_mem', '256MB', true) AS given OFFSET 0) memory"
"""work_mem until the statement ends: otherwise all entries of the extension would fill temporary files, which count as
the server's. The extension's function takes its argument from this row, so it runs afterwards."""
_COUNTERS: Final = f"""
SELECT s.queryid, s.calls, s.total_exec_time, s.stddev_exec_time
  FROM {_MEMORY} CROSS JOIN LATERAL {{schema}}.pg_stat_statements(memory.given IS NULL) s
 WHERE s.queryid IS NOT NULL AND s.toplevel
   AND s.userid = (SELECT r.oid FROM pg_roles r WHERE r.rolname = %s)
   AND s.dbid = (SELECT d.oid FROM pg_database d WHERE d.datname = %s)
"""
_TEXTS: Final = f"""
SELECT DISTINCT s.queryid, left(s.query, 10000)
  FROM {_MEMORY} CROSS JOIN LATERAL {{schema}}.pg_stat_statements(memory.given IS NOT NULL) s
 WHERE s.queryid = ANY (%s)
"""
_PLACEHOLDER: Final = re.compile(r"'(?:[^']|'')*'|(?<!:):\w+|\$\d+|(?<![\w.])-?\d+(?:\.\d+)?(?!\w)")
_BLANKS: Final = re.compile(r"\s+")

OpenSqlSession = Callable[[], Awaitable[SqlSession]]


class QueryCounters(Struct, frozen=True):
    """Counters of one query id.

    Attributes:
        total_ms: total_exec_time.
        squares: Sum of the squares of all times, ms², computed from standard deviation and mean.
    """

    calls: int
    total_ms: float
    squares: float


class RoleCounters(Struct, frozen=True):
    """A reading of the counters of a role in a database.

    Attributes:
        counted: Counters by query id.
        problem: Reason why the counters could not be read; "" where they could.
    """

    counted: Mapping[int, QueryCounters]
    problem: str = ""


class ServerClock:
    """The reader of pg_stat_statements before and after a run.

    Args:
        open_sql_session: SQL on the server that is watched.
    """

    def __init__(self, open_sql_session: OpenSqlSession) -> None:
        self._open_sql_session = open_sql_session

    async def before(self, user: str, database: str) -> RoleCounters:
        """Return the counters of this moment, or the reason why they cannot be read."""
        try:
            async with aclosing(await self._open_sql_session()) as sql_session:
                return await _look(sql_session, user, database)
        except PgtopError as problem:
            return RoleCounters({}, problem.message)

    async def after(self, before: RoleCounters, user: str, database: str, report: BenchReport) -> ServerTimes:
        """Return the server's execution times of the report's statements since `before`."""
        if before.problem:
            return ServerTimes(problem=before.problem)
        try:
            async with aclosing(await self._open_sql_session()) as sql_session:
                now = await _look(sql_session, user, database)
                grown = {
                    queryid: counters
                    for queryid, counted in now.counted.items()
                    if (counters := _grown(before.counted.get(queryid), counted)) is not None
                }
                texts = await sql_session.rows(await _with_schema(sql_session, _TEXTS), (list(grown),))
        except PgtopError as problem:
            return ServerTimes(problem=problem.message)
        return ServerTimes(rows=matched(report, {int(str(queryid)): str(text) for queryid, text in texts}, grown))


def matched(
    report: BenchReport, texts: Mapping[int, str], grown: Mapping[int, QueryCounters]
) -> tuple[StatementTimes, ...]:
    """Return the statements of a report, each with the server's counts.

    A statement is found by its text with all values replaced. pgbench reports only the first line of a statement: a
    statement of several lines is found only where no other one begins with that line. Equal statements have one entry
    on the server: its figures cover all of them, and are marked. Counts below half or above twice the executions of the
    load are left out: they are those of another load, or pg_stat_statements.track_utility is off.
    """
    normal_texts = {queryid: normalised(text) for queryid, text in texts.items()}
    parts = report.scripts or (report,)
    executed, occurrences = Counter[str](), Counter[str]()
    for part in parts:
        tries = (part.processed or 0) + (part.failed or 0) + (part.retries or 0)
        for statement in part.statements:
            executed[normalised(statement.text)] += tries
            occurrences[normalised(statement.text)] += 1
    rows = []
    for part in parts:
        script = part.name if isinstance(part, ScriptReport) else ""
        for statement in part.statements:
            if not statement.text.startswith("\\"):
                counted = _of(statement, normal_texts, grown)
                calls, expected = sum(row.calls for row in counted), executed[normalised(statement.text)]
                is_foreign = 2 * calls < expected or calls > 2 * expected
                shared = occurrences[normalised(statement.text)] > 1
                figures = _mean_and_deviation([] if is_foreign else counted)
                rows.append(StatementTimes(script, statement.text, *figures, shared=shared))
    return tuple(rows)


def normalised(text: str) -> str:
    """Return a statement in the form for comparison: one blank between words, "?" for each value, no ";" at the end.

    END is COMMIT: the server keeps one entry for both, under the name that came first.
    """
    normal_text = _PLACEHOLDER.sub("?", _BLANKS.sub(" ", text).strip().rstrip("; ")).casefold()
    return "commit" if normal_text == "end" else normal_text


def _of(
    statement: StatementReport, normal_texts: Mapping[int, str], grown: Mapping[int, QueryCounters]
) -> list[QueryCounters]:
    normal_text = normalised(statement.text)
    if statement.text.rstrip().endswith(";"):
        ids = [queryid for queryid, text in normal_texts.items() if text == normal_text]
    else:
        ids = [queryid for queryid, text in normal_texts.items() if text.startswith(normal_text)]
        if len({normal_texts[queryid] for queryid in ids}) > 1:
            return []
    return [grown[queryid] for queryid in ids]


def _mean_and_deviation(rows: Sequence[QueryCounters]) -> tuple[int | None, float | None, float | None]:
    """Return calls, mean and standard deviation in ms; all None without a call."""
    calls = sum(row.calls for row in rows)
    if not calls:
        return None, None, None
    mean_ms = sum(row.total_ms for row in rows) / calls
    variance = sum(row.squares for row in rows) / calls - mean_ms**2
    return calls, mean_ms, math.sqrt(max(variance, 0.0))


def _grown(before: QueryCounters | None, now: QueryCounters) -> QueryCounters | None:
    """Return the growth between two readings; None without a call in between, and where the counters were reset."""
    if before is None:
        return now
    if now.calls <= before.calls:
        return None
    return QueryCounters(now.calls - before.calls, now.total_ms - before.total_ms, now.squares - before.squares)


@decodes
async def _look(sql_session: SqlSession, user: str, database: str) -> RoleCounters:
    rows: Iterable[tuple[object, ...]] = await sql_session.rows(
        await _with_schema(sql_session, _COUNTERS), (user, database)
    )
    return RoleCounters(
        {int(str(queryid)): _counted(calls, total, deviation) for queryid, calls, total, deviation in rows}
    )


def _counted(calls: object, total: object, deviation: object) -> QueryCounters:
    number, total_ms, deviation_ms = int(str(calls)), float(str(total)), float(str(deviation))
    mean_ms = total_ms / number if number else 0.0
    return QueryCounters(number, total_ms, number * (deviation_ms**2 + mean_ms**2))


@decodes
async def _with_schema(sql_session: SqlSession, statement: str) -> str:
    """Return the statement with the extension's schema, quoted by the server.

    Raises:
        LoadProblem: The extension is missing, or its schema is one where another role's functions would run as a
            superuser.
    """
    rows = await sql_session.rows(_SCHEMA)
    if not rows:
        raise LoadProblem(
            "pg_stat_statements is not installed in the watched database", "CREATE EXTENSION pg_stat_statements"
        )
    schema, is_trusted, owner = rows[0]
    if not is_trusted:
        raise LoadProblem(
            f"pg_stat_statements is in a schema of {owner}: functions of that role would run as a superuser",
            "ALTER EXTENSION pg_stat_statements SET SCHEMA …, to one that a superuser owns",
        )
    return statement.format(schema=schema)
