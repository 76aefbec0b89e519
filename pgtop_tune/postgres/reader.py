"""The sampler's reader: one reading of one section of the server, or the reason why it is missing."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Final, TypeVar

import asyncpg
from msgspec import Struct

from pgtop_tune.base.errors import ConnectionProblem, ServerProblem
from pgtop_tune.base.foreign_answers import MALFORMED, check_shape, malformed
from pgtop_tune.metrics import sections
from pgtop_tune.metrics.catalogue import Reading, Section
from pgtop_tune.model.absence import NOT_YET, Unavailable
from pgtop_tune.model.machine import ServerPlaces
from pgtop_tune.model.postgres import Activity, DatabaseCounters, ParameterSample, ServerFacts
from pgtop_tune.model.waits import Blocker, WaitLook
from pgtop_tune.postgres.queries import inventory, sql
from pgtop_tune.postgres.readers import relations, server
from pgtop_tune.postgres.readers.section_readers import ReadContext, SectionReaders
from pgtop_tune.postgres.readers.server import read_parameters
from pgtop_tune.postgres.readers.server_log import LogReader, log_closed
from pgtop_tune.postgres.readers.sessions import ActivityRows, LockReader
from pgtop_tune.postgres.readers.statements import StatementReader
from pgtop_tune.postgres.readers.waits import WaitReader
from pgtop_tune.postgres.server.capabilities import PREDEFINED, Capabilities, too_old
from pgtop_tune.postgres.server.closed_rights import fetch_open, with_grants
from pgtop_tune.postgres.server.connection import ReadConnection
from pgtop_tune.postgres.server.conninfo import ConnInfo, Reached
from pgtop_tune.postgres.server.failures import absence, server_words
from pgtop_tune.postgres.server.file_looks import FilesHang, new_hangs
from pgtop_tune.postgres.server.own_sessions import OwnSessions
from pgtop_tune.postgres.server.read_only_connection import open_connection
from pgtop_tune.postgres.server.rows import RowForm

_FIRST_PAUSE_S: Final = 5.0
_LONGEST_PAUSE_S: Final = 300.0
_FORCED_FLUSH_SINCE: Final = 15
_IDENTIFIER: Final = "(SELECT system_identifier::text FROM pg_control_system())"

_FLUSH: Final = "SELECT pg_stat_force_next_flush()"


_T = TypeVar("_T")
R = TypeVar("R", bound=Reading)


class _Refusal(Struct):
    """A query the server refused: left alone until a moment, then for twice as long."""

    why: Unavailable
    pause_s: float
    until_s: float


class PostgresReader:
    """Reads sections of a PostgresSample; every method but `connect` and `aclose` may be called at any pace.

    Each returns Unavailable when the server cannot or will not tell, and raises ConnectionProblem when the
    connection is gone; the caller then calls `connect` again, with back-off. Calls may overlap: they queue.

    Attributes:
        conninfo: Where the next `connect` goes; replaced when a password was typed.
        own: Cost of our sessions so far.
    """

    def __init__(self, conninfo: ConnInfo, clock: Callable[[], float], own_sessions: OwnSessions | None = None) -> None:
        self.conninfo = conninfo
        self._clock = clock
        self.own = own_sessions if own_sessions is not None else OwnSessions()
        self._connection: ReadConnection | None = None
        self._capabilities: Capabilities | None = None
        self._facts: ServerFacts | None = None
        self._major = 0
        self._refusals: dict[str, _Refusal] = {}
        self._activity_rows = ActivityRows(self.own)
        self._reported = self._watched = 0
        self._waits = WaitReader()
        self._locks = LockReader()
        self._statements = StatementReader(clock)
        self._relations = relations.RelationReader()
        self._log = LogReader()
        self._readers = self._section_readers()

    @property
    def connected(self) -> bool:
        """Return True while there is a connection that is not known to be dead."""
        return self._connection is not None and not self._connection.is_closed

    @property
    def reached(self) -> Reached | None:
        """Return the address of our session; None without one."""
        return self._connection.reached if self._connection is not None and self.connected else None

    @property
    def capabilities(self) -> Capabilities | Unavailable:
        """Probed when connecting, and anew with each look at the parameters."""
        return self._capabilities or NOT_YET

    def own_backend(self) -> tuple[int, int | None]:
        """Return pid and start of our session, milliseconds since the epoch; zeros before the first one."""
        probed = self._capabilities
        return (0, 0) if probed is None else (probed.backend_pid, probed.backend_start_ms)

    async def connect(self) -> ServerFacts:
        """Connect (anew) and probe the server.

        Returns:
            What `facts` returns.

        Raises:
            ConnectionProblem: Not there, or it does not let us in.
            PasswordNeeded: It wants a password.
        """
        stuck = dict(self.own.stuck)
        try:
            return await self._connect()
        except ConnectionProblem:
            if self.own.stuck == stuck:
                raise
            # Files of the server do not answer. From now on nobody asks for them.
            return await self._connect()

    async def _connect(self) -> ServerFacts:
        await self.aclose()
        connection = await open_connection(self.conninfo, self.own)
        try:
            version_num = int((await connection.fetch("SHOW server_version_num"))[0][0])
            if problem := too_old(version_num):
                raise ConnectionProblem(f"{self.conninfo.describe()}: {problem}", "pgtop-tune cannot watch it")
            self._major = version_num // 10_000
            await self._probe(connection)
            self._connection = connection
            self._refusals.clear()
            self._waits.forget_profile()
            self._statements.forget()
            self._relations.forget()
            return await self._read_facts(connection)
        except (asyncpg.PostgresError, ServerProblem, *MALFORMED) as error:
            self._drop(connection)
            message = server_words(malformed(error) if isinstance(error, MALFORMED) else error)
            raise ConnectionProblem(f"{self.conninfo.describe()}: {message}") from None
        except BaseException:
            self._drop(connection)
            raise

    async def aclose(self) -> None:
        """Closes the connection, if there is one."""
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.aclose()

    async def facts(self) -> ServerFacts | Unavailable:
        """facts.14.sql. `local` is False and `postmaster_pid` None: the host side knows these."""
        return await self._guarded("facts", lambda context: self._read_facts(context.connection))

    async def read(self, section: Section[R]) -> R | Unavailable:
        """A section of `metrics.sections.READ`, as its row says. Of `locks` it is about the last `activity`."""
        context, reader = self._context(), self._readers[section]
        absence = reader.unasked(context)
        if absence is not None:
            return absence
        reading = await self._guarded(section.name, reader.read, context)
        return reader.refused(reading, context.facts) if isinstance(reading, Unavailable) else reading

    async def waits(self, floor_ms: int, one_in: int = 1) -> WaitLook | Unavailable:
        """One look at what every working backend waits for (see WaitSample); sums are the caller's.

        Args:
            floor_ms: Clients' transactions older than this stand there one by one as well.
            one_in: Those of one session in so many.
        """
        if absence := self._capabilities and self._capabilities.activity():
            return absence
        return await self._guarded("waits", partial(self._waits.look, floor_ms, one_in))

    def look_at_waits(self, floor_ms: int, one_in: int, take_look: Callable[[WaitLook | None], None]) -> bool:
        """`waits` without waking a task, where that is possible now.

        Args:
            floor_ms, one_in: As of `waits`.
            take_look: Called once, in the loop, if this returns True; with None where `waits` has to be asked instead.
        """
        connection, capabilities = self._connection, self._capabilities
        if connection is None or capabilities is None or "waits" in self._refusals or capabilities.activity():
            return False

        def looked(rows: Sequence[bytes] | None, form: RowForm) -> None:
            take_look(None if rows is None else self._waits.look_of_bytes(rows, form))

        return connection.ask(sql("waits", self._major), (floor_ms, one_in), looked)

    def share_statements(self, shared: bool) -> None:
        """Let the sections that follow share one reading of pg_stat_statements, or end that."""
        self._statements.share(shared)

    async def blockers(self, pids: Sequence[int]) -> dict[int, Blocker] | Unavailable:
        """A session that blocks each of these, and each of those that wait themselves."""
        return await self._guarded("tail_blockers", partial(self._waits.blockers, pids))

    async def exact_waits(self) -> WaitLook | Unavailable:
        """Return the waits that pg_wait_sampling has counted since the last call; without it ask nothing."""
        if self._capabilities and (absence := self._capabilities.exact_waits()):
            return absence
        return await self._guarded("exact_waits", self._waits.exact)

    async def places(self) -> ServerPlaces | Unavailable:
        """Directories besides the data directory: tablespaces, where temporary files and the log go."""
        return await self._guarded("places", server.read_places)

    async def server_files(self, paths: Sequence[str]) -> list[bytes | None] | Unavailable:
        """Contents of files on the server's machine (see `machine.read_files`); a refusal is not remembered."""
        return await self._guarded("server_files", lambda context: server.read_files(context, paths))

    def _section_readers(self) -> SectionReaders:
        """Sections that take more than their row: state from look to look, a right, several kinds of rows."""
        readers = SectionReaders()
        readers[sections.activity].set(self._read_activity, unasked=lambda context: context.capabilities.activity())
        readers[sections.locks].set(self._locks.read, unasked=self._locks.unasked)
        readers[sections.database].set(self._read_database, unasked=_uncounted)
        readers[sections.statements].set(self._statements.totals, unasked=_no_statements)
        readers[sections.statement_counters].set(self._statements.counters, unasked=_no_statements)
        readers[sections.statement_texts].set(self._statements.texts, unasked=_no_statements)
        readers[sections.parameters].set(self._read_parameters)
        readers[sections.databases].set(relations.read_databases, unasked=_uncounted)
        readers[sections.io].set(relations.read_io)
        readers[sections.wal_files].set(closed=relations.wal_files_closed)
        readers[sections.replication].set(relations.read_replication, closed=relations.replication_closed)
        readers[sections.slots].set(relations.read_slots)
        readers[sections.subscriptions].set(relations.read_subscriptions)
        readers[sections.horizon].set(partial(relations.read_horizon, self.own))
        readers[sections.server_log].set(self._log.read, closed=log_closed)
        readers[sections.relations].set(self._relations.read, unasked=_uncounted)
        readers[sections.database_limits].set(relations.read_database_limits)
        readers[sections.temp_files].set(closed=relations.temp_files_closed)
        return readers

    def _context(self) -> ReadContext:
        if self._connection is None or self._capabilities is None or self._facts is None:
            raise ConnectionProblem(f"{self.conninfo.describe()}: not connected")
        return ReadContext(
            connection=self._connection,
            major=self._major,
            clock=self._clock,
            at_s=self._clock(),
            capabilities=self._capabilities,
            facts=self._facts,
        )

    async def _guarded(
        self, name: str, read: Callable[[ReadContext], Awaitable[_T]], context: ReadContext | None = None
    ) -> _T | Unavailable:
        """Runs a reading; a refusal is remembered and the query left alone for a while."""
        context = context or self._context()
        stuck = dict(self.own.stuck)
        refusal = self._refusals.get(name)
        if refusal is not None and self._clock() < refusal.until_s:
            return refusal.why
        try:
            answer = await read(context)
            check_shape(answer)
        except (asyncpg.PostgresError, ServerProblem, *MALFORMED) as error:
            pause_s = min(refusal.pause_s * 2, _LONGEST_PAUSE_S) if refusal else _FIRST_PAUSE_S
            unavailable = absence(malformed(error, name) if isinstance(error, MALFORMED) else error)
            unavailable = await with_grants(context.connection, unavailable, self._texts_of(name))
            self._refusals[name] = _Refusal(unavailable, pause_s, self._clock() + pause_s)
            return unavailable
        except ConnectionProblem:
            if self._connection is context.connection:
                self._connection = None
            new = new_hangs(stuck, self.own.stuck)
            if not new:
                raise
            await self._connect()
            return absence(new[0])
        if refusal is not None:
            del self._refusals[name]
        return answer

    def _texts_of(self, name: str) -> list[str]:
        """Statements of a reading."""
        queries = {section.name: section.queries for section in sections.READ}.get(name, (name,))
        return [sql(query, self._major) for query in queries if self._major >= inventory().get(query, (99,))[0]]

    async def _probe(self, connection: ReadConnection) -> None:
        rows, closed = await fetch_open(connection, sql("capabilities", self._major), list(PREDEFINED))
        capabilities = Capabilities(**rows[0], closed={right.name: right.opening for right in closed})
        check_shape(capabilities)
        self._capabilities = capabilities

    def _drop(self, connection: ReadConnection) -> None:
        connection.terminate()
        self._connection = None

    async def _read_facts(self, connection: ReadConnection) -> ServerFacts:
        permitted = self._capabilities is not None and self._capabilities.read_control
        text = sql("facts", self._major).format(identifier=_IDENTIFIER if permitted else "''")
        try:
            rows, _ = await fetch_open(connection, text)
        except FilesHang:
            rows, _ = await fetch_open(connection, sql("facts", self._major).format(identifier="''"))
        row = dict(rows[0])
        where = str(connection.endpoint)
        row["extensions"] = tuple(row["extensions"])
        facts = ServerFacts(**row, endpoint=where, local=False, postmaster_pid=None, pooled=connection.pooled)
        check_shape(facts)
        self._facts = facts
        return facts

    async def _read_activity(self, context: ReadContext) -> Activity:
        """pg_stat_get_activity() without our own sessions, and who blocks those that wait for a lock."""
        seen = await context.fetch("activity")
        await self._activity_rows.convert(context, seen)
        activity = self._activity_rows.activity(self._clock(), seen)
        pids = self._locks.waiters(activity)
        if not pids:
            return activity
        rows = await self._guarded(
            "blocking", lambda context: context.fetch("blocking", [str(pid) for pid in pids]), context
        )
        if isinstance(rows, Unavailable):
            return activity
        blockers = {pid: tuple(map(int, by)) for pid, by in rows if by}
        self._locks.blockers(blockers)
        return self._activity_rows.blocked(activity, blockers)

    async def _read_database(self, context: ReadContext) -> DatabaseCounters:
        reported = self.own.transactions
        if self._major >= _FORCED_FLUSH_SINCE:
            # A backend reports its transactions once a second; ours must all be in what we subtract them from.
            await context.connection.fetch(_FLUSH)
            # Another look of ours can come in between. The server does not report it yet, so it is not subtracted yet.
            reported = context.connection.answered.own_transactions
        row = (await context.fetch("database"))[0]
        return DatabaseCounters(at_s=context.answered_s, **row, own_transactions=reported + self._of_watchers(reported))

    def _of_watchers(self, reported: int) -> int:
        """Transactions of other instances of this program: as many as ours, for they do the same at the same pace."""
        self._watched += self.own.watchers * max(reported - self._reported, 0)
        self._reported = reported
        return self._watched

    async def _read_parameters(self, context: ReadContext) -> ParameterSample:
        # The slow cadence is where an extension created or a track_* setting changed since is noticed.
        await self._probe(context.connection)
        self._waits.forget_names()
        self._statements.forget_names()
        in_files = self._capabilities is not None and self._capabilities.read_file_settings
        return await read_parameters(context, in_files)


def _uncounted(context: ReadContext) -> Unavailable | None:
    return context.capabilities.counters()


def _no_statements(context: ReadContext) -> Unavailable | None:
    return context.capabilities.statements(context.facts)
