"""The table in which counting clients leave a row for each commit, and the comparison with their log afterwards."""

from __future__ import annotations

import asyncio
import re
import secrets
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing, asynccontextmanager
from typing import Final

from msgspec.structs import replace

from pgtop_tune.base.errors import ConnectionProblem, PgtopError, ServerProblem
from pgtop_tune.base.foreign_answers import decodes
from pgtop_tune.base.safe_text import one_line
from pgtop_tune.bench.commit_log import AcknowledgedLines, CountingClients
from pgtop_tune.bench.ports import SqlSession
from pgtop_tune.experiment.server_times import OpenSqlSession
from pgtop_tune.model.outage import AcknowledgedCommits, ClientCommits

SCHEMA: Final = "pgtop_tune_outage"
"""Our schema; `bench/commits.sql` names it, too."""
_NAME: Final = re.compile(r"run_(\d{10})_[0-9a-f]{8}")
_KEPT_S: Final = 300
"""Time after the end of a run within which its table may still be needed."""
COUNTED_WITHIN_S: Final = 15.0
"""Patience with a server that does not answer after the run."""
_STATEMENTS_S: Final = 30.0
"""Patience with statements about the table, which a lock may hold up, and through a pooler have no lock_timeout."""
_AGAIN_S: Final = 0.5
_RACES: Final = ("23505", "42P06", "3F000")
"""sqlstates where another run creates or drops the schema at this moment: unique_violation, duplicate_schema,
invalid_schema_name."""
_MOST_RACES: Final = 10
_LOCAL: Final = "SET LOCAL synchronous_commit = local;"
"""Begins statements that outlive a crash, and need not wait for a standby, whatever the load's commits do."""
_NOW: Final = "SELECT extract(epoch FROM now())::bigint"
_HAS_SCHEMA: Final = "SELECT to_regnamespace(%s) IS NOT NULL"
_TABLES: Final = """
SELECT c.relname::text FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
 WHERE n.nspname = %s AND c.relkind = 'r' AND pg_has_role(c.relowner, 'USAGE')
"""
_EXISTS: Final = "SELECT to_regclass(%s) IS NOT NULL, pg_is_in_recovery()"
_COUNT: Final = """
SELECT k.number, count(DISTINCT r.n) FILTER (WHERE r.n BETWEEN 1 AND k.lines),
       count(DISTINCT r.n) FILTER (WHERE r.n > k.lines)
  FROM unnest(%s::int[], %s::int[], %s::int[], %s::bigint[]) WITH ORDINALITY
       AS k (group_number, attempt, client, lines, number)
  LEFT JOIN {table} r USING (group_number, attempt, client)
 GROUP BY k.number ORDER BY k.number
"""
_ALL: Final = "SELECT count(*) FROM (SELECT DISTINCT group_number, attempt, client, n FROM {table}) AS row"


class CommitTable:
    """A table for one run.

    Args:
        open_sql_session: A session on the server that the load's clients would reach now.
        name: The table in our schema.
        direct: The clients' sessions may have settings: no pooler is in between.

    Attributes:
        counting: The order for the clients.
    """

    def __init__(self, open_sql_session: OpenSqlSession, name: str, *, direct: bool) -> None:
        self._open_sql_session = open_sql_session
        self._name = name
        # Under stricter levels a transaction may fail, and its number would have no row.
        settings = (("default_transaction_isolation", "read committed"),) if direct else ()
        self.counting = CountingClients(name, settings)

    async def compare(self, acknowledged: Sequence[AcknowledgedLines], patience_s: float) -> AcknowledgedCommits:
        """Count the rows, and drop the table.

        Args:
            acknowledged: The log lines of each client.
            patience_s: Longest wait for a server that answers.
        """
        try:
            sql_session = await _answering(self._open_sql_session, patience_s)
        except PgtopError as problem:
            return _unknown(acknowledged, f"no server answered after the run: {problem.message}", self._name)
        async with aclosing(sql_session):
            try:
                async with _within(_STATEMENTS_S):
                    commits = await self._count(sql_session, acknowledged)
            except PgtopError as problem:
                commits = _unknown(acknowledged, problem.message)
            return replace(commits, left_behind=await self._drop(sql_session))

    @decodes
    async def _count(self, sql_session: SqlSession, acknowledged: Sequence[AcknowledgedLines]) -> AcknowledgedCommits:
        table = f"{SCHEMA}.{self._name}"
        [(exists, in_recovery)] = await sql_session.rows(_EXISTS, [table])
        if not exists:
            return _unknown(acknowledged, "the server that answers after the run does not have the table")
        if in_recovery:
            return _unknown(acknowledged, "a standby answers after the run, which may lack rows of its primary")
        columns = [[getattr(row, name) for row in acknowledged] for name in ("group", "attempt", "client", "lines")]
        counts = await sql_session.rows(_COUNT.format(table=table), columns)
        [(total,)] = await sql_session.rows(_ALL.format(table=table))
        clients = [
            _client(row, int(str(committed)), int(str(further)))
            for row, (_, committed, further) in zip(acknowledged, counts, strict=True)
        ]
        matched = sum(int(str(committed)) + int(str(further)) for _, committed, further in counts)
        return AcknowledgedCommits(
            clients=tuple(clients),
            other_rows=int(str(total)) - matched,
            counted_on=(await sql_session.server()).endpoint,
        )

    async def _drop(self, sql_session: SqlSession) -> str:
        """Drop the table, and the schema when it is empty; return why the table stays."""
        try:
            async with _within(_STATEMENTS_S):
                await sql_session.execute(f"{_LOCAL} DROP TABLE IF EXISTS {SCHEMA}.{self._name}")
        except PgtopError as problem:
            return _left_behind(self._name, problem.message)
        try:
            async with _within(_STATEMENTS_S):
                await sql_session.execute(f"{_LOCAL} DROP SCHEMA {SCHEMA}")
        except PgtopError:
            # Another run has a table there, or another role owns the schema.
            pass
        return ""


async def _answering(open_sql_session: OpenSqlSession, patience_s: float) -> SqlSession:
    until_s = time.monotonic() + patience_s - _AGAIN_S
    async with _within(patience_s):
        while True:
            try:
                return await open_sql_session()
            except ConnectionProblem:
                if time.monotonic() > until_s:
                    raise
            await asyncio.sleep(_AGAIN_S)


@asynccontextmanager
async def _within(patience_s: float) -> AsyncIterator[None]:
    """Cancel what takes longer, and raise ConnectionProblem then."""
    try:
        async with asyncio.timeout(patience_s):
            yield
    except TimeoutError:
        raise ConnectionProblem(f"no answer within {patience_s:.0f} s") from None


def _client(row: AcknowledgedLines, committed: int, further: int) -> ClientCommits:
    unknown = row.unknown
    if further > 1 and not unknown:
        unknown = f"{further} rows more than log lines"
    return ClientCommits(
        group=row.group,
        client=row.client,
        acknowledged=row.lines,
        committed=None if unknown else committed,
        in_doubt=0 if unknown else further,
        unknown=unknown,
    )


def _unknown(acknowledged: Sequence[AcknowledgedLines], problem: str, left_behind: str = "") -> AcknowledgedCommits:
    clients = [
        ClientCommits(group=row.group, client=row.client, acknowledged=row.lines, committed=None, unknown=row.unknown)
        for row in acknowledged
    ]
    return AcknowledgedCommits(
        clients=tuple(clients),
        problem=one_line(problem, 300),
        left_behind=left_behind and _left_behind(left_behind, "no server answered"),
    )


def _left_behind(name: str, problem: str) -> str:
    return one_line(f"{SCHEMA}.{name} stays ({problem}): a later run drops it", 300)


async def create_table(
    open_sql_session: OpenSqlSession, duration_s: float, *, direct: bool = True
) -> CommitTable | str:
    """Create a table for a run, and drop tables of runs that have ended without it.

    Args:
        open_sql_session: A session on the server of the load.
        duration_s: Length of the run.
        direct: The load's clients connect as this session does.

    Returns:
        The table, or why there is none.
    """
    try:
        async with aclosing(await open_sql_session()) as sql_session, _within(_STATEMENTS_S):
            direct = direct and bool(await sql_session.limits())
            return CommitTable(open_sql_session, await _created(sql_session, duration_s), direct=direct)
    except PgtopError as problem:
        return one_line(problem.message, 300)


@decodes
async def _created(sql_session: SqlSession, duration_s: float) -> str:
    [(now_s,)] = await sql_session.rows(_NOW)
    for (name,) in await sql_session.rows(_TABLES, [SCHEMA]):
        old = _NAME.fullmatch(str(name))
        if old is not None and int(old[1]) < int(str(now_s)):
            try:
                await sql_session.execute(
                    f"{_LOCAL} SET LOCAL lock_timeout = '1s'; DROP TABLE IF EXISTS {SCHEMA}.{old[0]}"
                )
            except ServerProblem:
                # Its run may still count in it.
                continue
    name = f"run_{int(str(now_s)) + round(duration_s) + _KEPT_S}_{secrets.token_hex(4)}"
    for races in range(_MOST_RACES):
        [(has_schema,)] = await sql_session.rows(_HAS_SCHEMA, [SCHEMA])
        schema = "" if has_schema else f"CREATE SCHEMA {SCHEMA};"
        try:
            await sql_session.execute(
                f"{_LOCAL} {schema} CREATE TABLE {SCHEMA}.{name} (group_number int, attempt int, client int, n bigint)"
            )
            break
        except ServerProblem as problem:
            if problem.sqlstate not in _RACES or races == _MOST_RACES - 1:
                raise
    return name
