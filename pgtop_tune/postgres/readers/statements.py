"""Entries of pg_stat_statements: their sums, and the counters of those that were used since the last reading.

The function of the extension always returns every entry, under its lock. So one call for each reading serves sums and
counters. An entry that is not called does not change: its last reading stays true and is the older one of its next
rate.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from heapq import nlargest
from typing import Any, Final

import asyncpg
from msgspec import Struct
from msgspec.structs import replace

from pgtop_tune.base.errors import ConnectionProblem, ServerProblem
from pgtop_tune.base.foreign_answers import MALFORMED, check_shape
from pgtop_tune.base.secret import without_secrets
from pgtop_tune.base.sql_quoting import quoted
from pgtop_tune.model.postgres import StatementTotals
from pgtop_tune.model.statements import OWN_MARK, StatementCounters, StatementSample, StatementText, StatementTexts
from pgtop_tune.postgres.queries import sql
from pgtop_tune.postgres.readers.section_readers import ReadContext
from pgtop_tune.postgres.readers.sessions import converted, needs_server
from pgtop_tune.postgres.server.capabilities import PREDEFINED, Capabilities
from pgtop_tune.postgres.server.connection import ReadConnection, Rows
from pgtop_tune.postgres.server.encodings import NOT_CONVERTED, decoder
from pgtop_tune.postgres.server.failures import sqlstate_of
from pgtop_tune.postgres.server.read_only_connection import open_connection

# Texts of pg_stat_statements: each is fetched once, from another database where this one fails.
#
# The function of the extension converts all texts to the encoding of the database in which it is called. One text that
# cannot be converted ends it. A database in SQL_ASCII converts none, one in UTF8 converts texts that others cannot. If
# no such database has the extension, texts come from the sessions that run them.

TEXTS_AT_MOST: Final = 1_000
TEXT_CHARACTERS: Final = 4_000
_TEXT_COST: Final = 100.0
"""Pause after fetching texts, as a multiple of its time, because the server reads its whole file of texts."""
_TEXT_PAUSE_S: Final = 5.0
"""Least pause after fetching texts: new ids get theirs together."""
_LOST_PAUSE_S: Final = 60.0
"""Pause before ids whose text the server did not have are asked for again, and after a fetch that failed."""
_NOT_CONVERTED: Final = NOT_CONVERTED | {"42883"}
"""sqlstates of a failed conversion; some encodings, such as LATIN2 and WIN866, have none (undefined_function)."""
_OTHERS_AT_MOST: Final = 5
"""Most databases to try when this one cannot convert a text."""
_OTHERS: Final = f"""
SELECT datname::text AS name
  FROM pg_database
 WHERE datallowconn AND datname <> current_database() AND has_database_privilege(oid, 'connect')
   AND pg_encoding_to_char(encoding) IN ('SQL_ASCII', 'UTF8')
 ORDER BY pg_encoding_to_char(encoding) = 'UTF8', pg_stat_get_db_xact_commit(oid) DESC
 LIMIT {_OTHERS_AT_MOST}
"""

_EXTENSION_MAJORS: Final = (((1, 13), 19), ((1, 12), 18), ((1, 11), 17), ((1, 10), 15), ((1, 9), 14))
"""Version of the extension → major of the query's variant."""


def variant(version: str) -> int:
    """Return the major whose queries read this version of the extension."""
    numbers = tuple(int(part) for part in version.split(".")[:2])
    return next((major for first, major in _EXTENSION_MAJORS if numbers >= first), 14)


def query_text(query: str, capabilities: Capabilities) -> str:
    """Return the variant of a query that fits the installed version of the extension."""
    text = sql(query, variant(capabilities.statements_version or ""))
    return text.format(schema=quoted(capabilities.statements_schema or ""))


def as_text(queryids: Iterable[int]) -> list[str]:
    """Return ids for a text[] parameter, see `ReadConnection.fetch`."""
    return [str(queryid) for queryid in queryids]


class StatementTextReader:
    """Reader of texts by query id, which keeps them.

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
        self._ask_from_s = self._lost_from_s = 0.0
        self._shown: StatementTexts | None = None

    def forget(self) -> None:
        """Begin anew after a lost connection; the texts stay."""
        self._shown = None

    async def texts(self, context: ReadContext, queryids: set[int]) -> StatementTexts:
        """Return the texts of some ids; unknown ones are fetched, unless the pause after the last fetch lasts."""
        started_s = self._clock()
        missing = queryids - self._texts.keys()
        if started_s < self._lost_from_s:
            missing -= self._lost
        if missing and started_s >= self._ask_from_s:
            # Set before the fetch: after a time-out, the server must not get the same statement at once.
            self._ask_from_s = started_s + _LOST_PAUSE_S
            await self._read(context, queryids, missing)
            ended_s = self._clock()
            # Statements that follow the first sample, among them our own, need no pause.
            pause_s = max((ended_s - started_s) * _TEXT_COST, _TEXT_PAUSE_S) if self._shown is not None else 0.0
            self._ask_from_s = ended_s + pause_s
        lost = self._lost & queryids
        if lost:
            rows = await context.fetch("running_texts", as_text(lost))
            self._keep([await _readable(context, dict(row)) for row in rows], queryids)
        texts = tuple(text for queryid, text in self._texts.items() if queryid in queryids)
        if self._shown is None or self._shown.texts != texts:
            self._shown = StatementTexts(self._clock(), texts)
        return self._shown

    async def _read(self, context: ReadContext, queryids: set[int], missing: set[int]) -> None:
        query = query_text("statement_texts", context.capabilities)
        try:
            rows = await context.connection.fetch(query, as_text(missing))
        except asyncpg.PostgresError as error:
            if sqlstate_of(error) not in _NOT_CONVERTED:
                raise
            rows = await _elsewhere(context, missing)
        self._keep(rows, queryids)
        if lost := missing - self._texts.keys():
            self._lost |= lost
            self._lost_from_s = self._clock() + _LOST_PAUSE_S

    def _keep(self, rows: Rows, queryids: set[int]) -> None:
        if len(self._texts) + len(rows) > TEXTS_AT_MOST:
            self._texts = {queryid: text for queryid, text in self._texts.items() if queryid in queryids}
        texts = {row["queryid"]: _text(**row) for row in rows}
        self._texts |= texts
        self._lost -= texts.keys()
        self.own |= {queryid for queryid, text in texts.items() if text.query == OWN_MARK}


async def _elsewhere(context: ReadContext, queryids: Iterable[int]) -> Rows:
    """Return the rows of the first other database that has the extension and can convert all texts."""
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
    """Return the rows of another database, unless the owner of the extension's schema is not trusted."""
    [row] = await connection.fetch(sql("capabilities", context.major), list(PREDEFINED))
    capabilities = Capabilities(**row)
    check_shape(capabilities)
    if capabilities.statements(context.facts) is not None:
        raise LookupError("pg_stat_statements cannot be read in this database")
    return await connection.fetch(query_text("statement_texts", capabilities), queryids)


async def _readable(context: ReadContext, row: dict[str, Any]) -> dict[str, Any]:
    """Return a row with a session's text in an encoding that Python knows."""
    if not needs_server(row["query"], row["encoding"]):
        return row
    return {**row, "query": await converted(context, row["query"], row["encoding"]), "encoding": "UTF8"}


def _text(queryid: int, query: Any, encoding: str | None, characters: int) -> StatementText:
    """Return a text; for our own statements, which are long, only the mark."""
    text = decoder(encoding or "UTF8")(bytes(query))[:TEXT_CHARACTERS]
    return StatementText(queryid, OWN_MARK if OWN_MARK in text else without_secrets(text), characters)


PRIMED_AT_MOST: Final = 6_000
"""Most entries whose counters the first reading keeps, as the older reading of an old statement's next call."""
COMPARED_AT_MOST: Final = 400
"""Most changed entries whose counters one reading keeps."""
KEPT_AT_MOST: Final = 100
STAYS_S: Final = 60.0
"""Time for which an entry stays in the sample after it was last among the first by any criterion."""
FIRST_BY_EACH: Final = 12
FIRST_OF_ALL_TIMES: Final = 20

CRITERIA: Final[tuple[tuple[str, ...], ...]] = (
    ("exec_us",),
    ("calls",),
    ("shared_blks_read", "shared_blks_written"),
    ("wal_bytes",),
    ("temp_blks_read", "temp_blks_written"),
    ("jit_us",),
    ("plan_us",),
)
"""Criteria for keeping an entry: the summed growth of some counters. Each row is one criterion."""

_Key = tuple[int, int, int, bool]
_UNREAD: Final = {"id", "usename", "datname"}
_READ: Final = tuple(name for name in StatementCounters.__struct_fields__ if name not in _UNREAD)
"""Fields of StatementCounters that are columns of the query."""


class _Entry(Struct):
    """Last reading of an entry.

    Attributes:
        calls, plans, exec_us: Its counters.
        counters: The full row; None when it was not kept at its last change.
    """

    calls: int
    plans: int
    exec_us: int
    counters: Any = None


class _Reading(Struct, frozen=True):
    """One result of the function.

    Attributes:
        totals: Sums over all entries.
        rows: Rows by entry.
        hidden: Number of rows of other users, whose entries are hidden.
    """

    totals: StatementTotals
    rows: Mapping[_Key, Any]
    hidden: int


class StatementReader:
    """Reader of pg_stat_statements of one server, which keeps the reading before.

    Args:
        clock: The session's clock.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._texts = StatementTextReader(clock)
        self.forget()

    def forget(self) -> None:
        """Begin anew after a lost connection: no rate may span the time in between."""
        self._entries: dict[_Key, _Entry] = {}
        self._kept: dict[_Key, float] = {}
        self._rows: dict[_Key, tuple[Any, StatementCounters]] = {}
        self.forget_names()
        self._before_s: float | None = None
        self._sharing = False
        self._shared: _Reading | Exception | None = None
        self._texts.forget()

    def share(self, begin: bool) -> None:
        """Let the following sections share one reading; `begin` False ends that."""
        self._sharing, self._shared = begin, None

    def forget_names(self) -> None:
        """Read names anew: databases and roles can be renamed."""
        self._names: dict[tuple[str, int], str | None] = {}

    async def totals(self, context: ReadContext) -> StatementTotals:
        """Return sums over all entries."""
        return (await self._reading(context)).totals

    async def counters(self, context: ReadContext) -> StatementSample:
        """Return the most important entries, see StatementSample."""
        reading = await self._reading(context)
        first, before, rows = self._before_s is None, self._entries, reading.rows
        now: dict[_Key, _Entry] = {}
        changed: list[_Key] = []
        own_entries = 0
        for key, row in rows.items():
            if key[0] in self._texts.own:
                own_entries += 1
                continue
            entry, calls, plans = before.get(key), row["calls"], row["plans"]
            if entry is not None and entry.calls == calls and entry.plans == plans:
                now[key] = entry
            else:
                now[key] = _Entry(calls, plans, row["exec_us"])
                changed.append(key)
        self._entries = now
        for key in self._compared(changed, before, first):
            now[key].counters = rows[key]
        at_s = reading.totals.at_s
        if not first:
            self._keep(changed, before, at_s)
        lasting = nlargest(FIRST_OF_ALL_TIMES, now, key=lambda key: now[key].exec_us)
        for key in lasting:
            if now[key].counters is None:
                now[key].counters = rows[key]
        sampled = self._shown(lasting)
        new = [key for key in sampled if key not in self._rows and not first]
        olds = {key: before[key].counters for key in new if key in before}
        await self._name(context, sampled)
        sample = StatementSample(
            at_s=at_s,
            before_s=self._before_s,
            statements=self._made(sampled),
            before=tuple(self._counters(key, old) for key, old in olds.items() if old is not None),
            unknown_before=tuple(_id(key) for key, old in olds.items() if old is None),
            changed=0 if first else len(changed),
            left_out=0 if first else len(set(changed) - set(sampled)),
            hidden=reading.hidden,
            own=own_entries,
        )
        self._before_s = at_s
        return sample

    async def texts(self, context: ReadContext) -> StatementTexts:
        """Return the texts of the entries of the last sample, see `StatementTextReader.texts`."""
        return await self._texts.texts(context, {key[0] for key in self._rows})

    async def _reading(self, context: ReadContext) -> _Reading:
        """Return the shared reading, or raise its refusal. Raises as `ReadConnection.fetch` does."""
        if isinstance(self._shared, Exception):
            raise self._shared
        if self._shared is not None:
            return self._shared
        try:
            reading = await self._read(context)
        except Exception as error:
            self._shared = error if self._sharing else None
            raise
        self._shared = reading if self._sharing else None
        return reading

    async def _read(self, context: ReadContext) -> _Reading:
        # The server has not counted this statement itself yet.
        own_calls = context.connection.own.calls if context.capabilities.own_statements_counted else 0
        answer = await context.connection.fetch(query_text("statements", context.capabilities))
        rows: dict[_Key, Any] = {}
        calls = exec_us = entries = hidden = 0
        for row in answer:
            queryid, userid, dbid, toplevel = row[:4]
            if userid is None:
                continue
            if toplevel:
                calls += row["calls"]
                exec_us += row["exec_us"]
                entries += 1
            if queryid is None:
                hidden += 1
            else:
                rows[queryid, userid, dbid, toplevel] = row
        totals = StatementTotals(
            at_s=self._clock(),
            calls=calls,
            total_exec_ms=exec_us / 1000.0,
            entries=entries,
            dealloc=answer[0]["dealloc"],
            stats_reset_ms=answer[0]["stats_reset_ms"],
            own_calls=own_calls,
        )
        return _Reading(totals, rows, hidden)

    def _compared(self, changed: list[_Key], before: Mapping[_Key, _Entry], first: bool) -> list[_Key]:
        """Return changed entries whose counters are kept: of too many, those in the sample and those that grew most."""
        if first:
            return changed if len(changed) <= PRIMED_AT_MOST else []
        if len(changed) <= COMPARED_AT_MOST:
            return changed

        def growth(key: _Key) -> tuple[bool, int]:
            older = before.get(key)
            return key in self._kept, self._entries[key].exec_us - (older.exec_us if older else 0)

        return nlargest(COMPARED_AT_MOST, changed, key=growth)

    def _keep(self, changed: list[_Key], before: Mapping[_Key, _Entry], at_s: float) -> None:
        grown: list[tuple[_Key, Any, Any]] = [
            (key, before[key].counters if key in before else None, counters)
            for key in changed
            if (counters := self._entries[key].counters) is not None
        ]
        for fields in CRITERIA:
            growth = {key: sum(_growth(old, new, field) for field in fields) for key, old, new in grown}
            for key in nlargest(FIRST_BY_EACH, growth, key=lambda key: growth[key]):
                if growth[key] > 0:
                    self._kept[key] = at_s
        entries = self._entries
        staying = {
            key: last_s
            for key, last_s in self._kept.items()
            if at_s - last_s <= STAYS_S and key in entries and entries[key].counters is not None
        }
        if len(staying) > KEPT_AT_MOST:
            newest = set(nlargest(KEPT_AT_MOST, staying, key=lambda key: staying[key]))
            staying = {key: last_s for key, last_s in staying.items() if key in newest}
        self._kept = staying

    def _shown(self, lasting: Iterable[_Key]) -> list[_Key]:
        """Return the keys of the sample, old ones in their order, so that a recording need not write the order."""
        keys = self._kept.keys() | {key for key in lasting if self._entries[key].counters is not None}
        stayed = [key for key in self._rows if key in keys]
        return stayed + sorted(keys - self._rows.keys())

    def _made(self, keys: Iterable[_Key]) -> tuple[StatementCounters, ...]:
        rows: dict[_Key, tuple[Any, StatementCounters]] = {}
        for key in keys:
            counters = self._entries[key].counters
            cached = self._rows.get(key)
            rows[key] = cached if cached and cached[0] is counters else (counters, self._counters(key, counters))
        self._rows = rows
        return tuple(row for _, row in rows.values())

    def _counters(self, key: _Key, row: Any) -> StatementCounters:
        _, role, database, _ = key
        return StatementCounters(
            id=_id(key),
            usename=self._names.get(("role", role)),
            datname=self._names.get(("database", database)),
            **{name: row[name] for name in _READ},
        )

    async def _name(self, context: ReadContext, keys: Iterable[_Key]) -> None:
        """Read names when a role or a database has none yet."""
        oids = {oid for _, role, database, _ in keys for oid in (("role", role), ("database", database))}
        if not oids <= self._names.keys():
            self._names = dict.fromkeys(oids) | {(kind, oid): name for kind, oid, name in await context.fetch("names")}


def _growth(old: Any, new: Any, field: str) -> int:
    return (new[field] or 0) - ((old[field] or 0) if old is not None else 0)


def _id(key: _Key) -> str:
    return f"{key[0]}/{key[1]}/{key[2]}/{int(key[3])}"
