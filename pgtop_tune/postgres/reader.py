"""The sampler's eye: one look at one view of the server, as a model dataclass or the reason why not."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Final, TypeVar

import asyncpg
from msgspec import Struct

from pgtop_tune.errors import ConnectionProblem
from pgtop_tune.model.absence import NOT_YET, Unavailable
from pgtop_tune.model.horizon import HorizonSample
from pgtop_tune.model.io import ArchiverStatus, DatabaseSample, IoSample, SlruSample, WalFiles
from pgtop_tune.model.locks import LockSample
from pgtop_tune.model.places import ServerPlaces
from pgtop_tune.model.postgres import (
    Activity,
    CheckpointCounters,
    DatabaseCounters,
    ParameterSample,
    ServerFacts,
    StatementTotals,
    WalCounters,
)
from pgtop_tune.model.progress import ProgressSample
from pgtop_tune.model.relations import DatabaseLimits, RelationSample, RelationSizes, TempFileSample
from pgtop_tune.model.replication import ReplicationSample, SlotSample, SubscriptionSample
from pgtop_tune.model.server_log import LogTail
from pgtop_tune.model.statements import StatementSample, StatementTexts
from pgtop_tune.model.waits import WaitCount, WaitLook
from pgtop_tune.postgres.activity_rows import ActivityRows
from pgtop_tune.postgres.queries import sql
from pgtop_tune.postgres.readers import io, machine, relations, replication
from pgtop_tune.postgres.readers.locks import LockReader
from pgtop_tune.postgres.readers.parameters import read_parameters
from pgtop_tune.postgres.readers.server_log import LogReader, log_refused
from pgtop_tune.postgres.readers.statements import StatementReader
from pgtop_tune.postgres.readers.waits import WaitReader
from pgtop_tune.postgres.server.capabilities import Capabilities, too_old
from pgtop_tune.postgres.server.connecting import open_connection
from pgtop_tune.postgres.server.connection import ReadConnection
from pgtop_tune.postgres.server.conninfo import ConnInfo
from pgtop_tune.postgres.server.failures import absence
from pgtop_tune.postgres.server.own_sessions import OwnSessions
from pgtop_tune.postgres.server.powerful import PREDEFINED
from pgtop_tune.sql_quoting import quoted

_FIRST_PAUSE_S: Final = 5.0
_LONGEST_PAUSE_S: Final = 300.0
_FORCED_FLUSH_SINCE: Final = 15
_IDENTIFIER: Final = "(SELECT system_identifier::text FROM pg_control_system())"

_T = TypeVar("_T")


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
        own: What our sessions have cost so far.
    """

    def __init__(self, conninfo: ConnInfo, clock: Callable[[], float], own: OwnSessions | None = None) -> None:
        self.conninfo = conninfo
        self._clock = clock
        self.own = own if own is not None else OwnSessions()
        self._connection: ReadConnection | None = None
        self._capabilities: Capabilities | None = None
        self._facts: ServerFacts | None = None
        self._major = 0
        self._refusals: dict[str, _Refusal] = {}
        self._activity_rows = ActivityRows(self.own)
        self._waits = WaitReader()
        self._locks = LockReader()
        self._statements = StatementReader(clock)
        self._relations = relations.RelationReader()
        self._log = LogReader()

    @property
    def connected(self) -> bool:
        """Whether there is a connection that is not known to be dead."""
        return self._connection is not None and not self._connection.is_closed

    @property
    def backend_pid(self) -> int | None:
        """Our own backend, for finding the server's processes on this machine."""
        return self._connection.backend_pid if self._connection else None

    @property
    def capabilities(self) -> Capabilities | Unavailable:
        """Probed when connecting, and anew with each look at the parameters."""
        return self._capabilities or NOT_YET

    async def connect(self) -> ServerFacts:
        """Connects (anew) and probes the server.

        Returns:
            What `facts` returns.

        Raises:
            ConnectionProblem: Not there, or it does not let us in.
            PasswordNeeded: It wants a password.
        """
        await self.aclose()
        connection = await open_connection(self.conninfo, self.own)
        try:
            version_num = int((await connection.fetch("SELECT current_setting('server_version_num')"))[0][0])
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
        except asyncpg.PostgresError as error:
            self._drop(connection)
            raise ConnectionProblem(f"{self.conninfo.describe()}: {error}") from None
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
        return await self._guarded("facts", self._read_facts)

    async def activity(self, *, blocking: bool = True) -> Activity | Unavailable:
        """pg_stat_get_activity() without our own sessions; with `blocking`, who blocks those that wait for a lock."""
        if why := self._capabilities and self._capabilities.activity():
            return why
        activity = await self._guarded("activity", self._read_activity)
        if not blocking or isinstance(activity, Unavailable):
            return activity
        pids = self._locks.waiters(activity)
        if not pids:
            return activity
        rows = await self._guarded(
            "blocking", lambda c: c.fetch(sql("blocking", self._major), [str(pid) for pid in pids])
        )
        if isinstance(rows, Unavailable):
            return activity
        blockers = {pid: tuple(map(int, by)) for pid, by in rows if by}
        self._locks.blockers(blockers)
        return self._activity_rows.blocked(activity, blockers)

    async def locks(self) -> LockSample | Unavailable:
        """What the lock waiters of the last `activity` wait for; nothing is asked when there were none."""
        if self._locks.nobody_waits:
            return LockSample(self._clock(), ())
        return await self._guarded("locks", self._topic(self._locks.read))

    async def waits(self) -> list[WaitCount] | Unavailable:
        """One look at what every working backend waits for (see WaitSample); sums are the caller's."""
        if why := self._capabilities and self._capabilities.activity():
            return why
        return await self._guarded("waits", self._read_waits)

    async def exact_waits(self) -> WaitLook | Unavailable:
        """What pg_wait_sampling has counted since the last call; nothing is asked where it is not."""
        if self._capabilities and (why := self._capabilities.exact_waits()):
            return why
        return await self._guarded("exact_waits", self._read_exact_waits)

    async def database(self) -> DatabaseCounters | Unavailable:
        """pg_stat_database, all databases."""
        if why := self._capabilities and self._capabilities.counters():
            return why
        return await self._guarded("database", self._read_database)

    async def wal(self) -> WalCounters | Unavailable:
        """pg_stat_wal and the insert (or replay) position."""
        return await self._guarded("wal", self._one_row("wal", WalCounters))

    async def checkpoints(self) -> CheckpointCounters | Unavailable:
        """pg_stat_checkpointer, pg_stat_bgwriter, pg_control_checkpoint()."""
        return await self._guarded("checkpoints", self._one_row("checkpoints", CheckpointCounters))

    async def statements(self) -> StatementTotals | Unavailable:
        """pg_stat_statements(false), top-level statements, summed."""
        if self._capabilities and self._facts and (why := self._capabilities.statements(self._facts)):
            return why
        return await self._guarded("statements", self._read_statements)

    async def statement_counters(self) -> StatementSample | Unavailable:
        """Entries of pg_stat_statements(false) that matter."""
        if self._capabilities and self._facts and (why := self._capabilities.statements(self._facts)):
            return why
        return await self._guarded("statement_counters", self._with_capabilities(self._statements.counters))

    async def statement_texts(self) -> StatementTexts | Unavailable:
        """Texts of the entries that `statement_counters` gave last."""
        if self._capabilities and self._facts and (why := self._capabilities.statements(self._facts)):
            return why
        return await self._guarded("statement_texts", self._with_capabilities(self._statements.texts))

    async def databases(self) -> DatabaseSample | Unavailable:
        """pg_stat_database, one row per database."""
        if why := self._capabilities and self._capabilities.counters():
            return why
        return await self._guarded("databases", self._topic(io.read_databases))

    async def io(self) -> IoSample | Unavailable:
        """pg_stat_io (16+)."""
        return io.NO_IO if self._major < io.IO_SINCE else await self._guarded("io", self._topic(io.read_io))

    async def slru(self) -> SlruSample | Unavailable:
        """pg_stat_slru."""
        return await self._guarded("slru", self._topic(io.read_slru))

    async def archiver(self) -> ArchiverStatus | Unavailable:
        """pg_stat_archiver."""
        return await self._guarded("archiver", self._topic(io.read_archiver))

    async def wal_files(self) -> WalFiles | Unavailable:
        """pg_ls_waldir(), counted."""
        found = await self._guarded("wal_files", self._topic(io.read_wal_files))
        return io.wal_files_refused(found, self._facts) if isinstance(found, Unavailable) else found

    async def progress(self) -> ProgressSample | Unavailable:
        """All pg_stat_progress_* views."""
        return await self._guarded("progress", self._topic(replication.read_progress))

    async def replication(self) -> ReplicationSample | Unavailable:
        """pg_stat_replication and pg_stat_wal_receiver."""
        found = await self._guarded("replication", self._topic(replication.read_replication))
        return replication.replication_refused(found, self._facts) if isinstance(found, Unavailable) else found

    async def slots(self) -> SlotSample | Unavailable:
        """pg_replication_slots and pg_stat_replication_slots."""
        return await self._guarded("slots", self._topic(replication.read_slots))

    async def subscriptions(self) -> SubscriptionSample | Unavailable:
        """pg_stat_subscription and pg_stat_subscription_stats."""
        return await self._guarded("subscriptions", self._topic(replication.read_subscriptions))

    async def horizon(self) -> HorizonSample | Unavailable:
        """The oldest open transactions, and pg_prepared_xacts."""
        own = self.own.pids
        return await self._guarded("horizon", lambda c: replication.read_horizon(c, self._major, self._clock(), own))

    async def server_log(self) -> LogTail | Unavailable:
        """The end of pg_current_logfile()."""
        found = await self._guarded("server_log", self._topic(self._log.read))
        return log_refused(found, self._facts) if isinstance(found, Unavailable) else found

    async def relations(self) -> RelationSample | Unavailable:
        """Tables and indexes of this database."""
        if why := self._capabilities and self._capabilities.counters():
            return why
        return await self._guarded("relations", self._topic(self._relations.read))

    async def database_limits(self) -> DatabaseLimits | Unavailable:
        """pg_database, and roles with a CONNECTION LIMIT."""
        return await self._guarded("database_limits", self._topic(relations.read_database_limits))

    async def temp_files(self) -> TempFileSample | Unavailable:
        """pg_ls_tmpdir() of every tablespace."""
        found = await self._guarded("temp_files", self._topic(relations.read_temp_files))
        return relations.temp_files_refused(found, self._facts) if isinstance(found, Unavailable) else found

    async def relation_sizes(self, oid: int) -> RelationSizes | Unavailable:
        """Exact sizes of one table of this database; when the operator asks, never automatically."""
        return await self._guarded("relation_sizes", lambda c: relations.read_sizes(c, self._major, oid))

    async def parameters(self) -> ParameterSample | Unavailable:
        """pg_settings as a session without our own settings has it, with the entries of postgresql.auto.conf."""
        return await self._guarded("parameters", self._read_parameters)

    async def places(self) -> ServerPlaces | Unavailable:
        """Directories besides the data directory: tablespaces, where temporary files and the log go."""
        return await self._guarded("places", lambda connection: machine.read_places(connection, self._major))

    async def server_files(self, paths: Sequence[str]) -> list[bytes | None] | Unavailable:
        """Contents of files on the server's machine (see `machine.read_files`); a refusal is not remembered."""
        return await self._guarded(
            "server_files", lambda connection: machine.read_files(connection, self._major, paths)
        )

    async def _guarded(self, name: str, read: Callable[[ReadConnection], Awaitable[_T]]) -> _T | Unavailable:
        """Runs a reading; a refusal is remembered and the query left alone for a while."""
        connection = self._connection
        if connection is None:
            raise ConnectionProblem(f"{self.conninfo.describe()}: not connected")
        refusal = self._refusals.get(name)
        if refusal is not None and self._clock() < refusal.until_s:
            return refusal.why
        try:
            answer = await read(connection)
        except asyncpg.PostgresError as error:
            pause_s = min(refusal.pause_s * 2, _LONGEST_PAUSE_S) if refusal else _FIRST_PAUSE_S
            why = absence(error)
            self._refusals[name] = _Refusal(why, pause_s, self._clock() + pause_s)
            return why
        except ConnectionProblem:
            if self._connection is connection:
                self._connection = None
            raise
        if refusal is not None:
            del self._refusals[name]
        return answer

    async def _probe(self, connection: ReadConnection) -> None:
        rows = await connection.fetch(sql("capabilities", self._major), list(PREDEFINED))
        self._capabilities = Capabilities(**rows[0])

    def _drop(self, connection: ReadConnection) -> None:
        connection.terminate()
        self._connection = None

    def _one_row(self, name: str, model: Callable[..., _T]) -> Callable[[ReadConnection], Awaitable[_T]]:
        async def read(connection: ReadConnection) -> _T:
            row = (await connection.fetch(sql(name, self._major)))[0]
            return model(at_s=self._clock(), **row)

        return read

    def _topic(
        self, read: Callable[[ReadConnection, int, float], Awaitable[_T]]
    ) -> Callable[[ReadConnection], Awaitable[_T]]:
        return lambda connection: read(connection, self._major, self._clock())

    def _with_capabilities(
        self, read: Callable[[ReadConnection, Capabilities], Awaitable[_T]]
    ) -> Callable[[ReadConnection], Awaitable[_T]]:
        capabilities = self._capabilities
        assert capabilities is not None
        return lambda connection: read(connection, capabilities)

    async def _read_facts(self, connection: ReadConnection) -> ServerFacts:
        permitted = self._capabilities is not None and self._capabilities.read_control
        text = sql("facts", self._major).format(identifier=_IDENTIFIER if permitted else "''")
        row = dict((await connection.fetch(text))[0])
        where = str(connection.endpoint)
        row["extensions"] = tuple(row["extensions"])
        self._facts = ServerFacts(**row, endpoint=where, local=False, postmaster_pid=None, pooled=connection.pooled)
        return self._facts

    async def _read_activity(self, connection: ReadConnection) -> Activity:
        rows = await connection.fetch(sql("activity", self._major))
        return self._activity_rows.activity(self._clock(), rows)

    async def _read_waits(self, connection: ReadConnection) -> list[WaitCount]:
        return await self._waits.look(connection, self._major)

    async def _read_exact_waits(self, connection: ReadConnection) -> WaitLook:
        assert self._capabilities is not None
        return await self._waits.exact(connection, self._major, self._clock(), self._capabilities)

    async def _read_database(self, connection: ReadConnection) -> DatabaseCounters:
        if self._major >= _FORCED_FLUSH_SINCE:
            # A backend reports its transactions once a second; ours must all be in what we subtract them from.
            await connection.fetch("SELECT pg_stat_force_next_flush()")
        # Another look of ours can come in between. The server does not report it yet, so it is not subtracted yet.
        reported = self.own.transactions
        row = (await connection.fetch(sql("database", self._major)))[0]
        return DatabaseCounters(at_s=self._clock(), **row, own_transactions=reported)

    async def _read_statements(self, connection: ReadConnection) -> StatementTotals:
        capabilities = self._capabilities
        assert capabilities is not None
        own_calls = self.own.calls if capabilities.own_statements_counted else 0
        schema = quoted(capabilities.statements_schema or "")
        row = (await connection.fetch(sql("statements", self._major).format(schema=schema)))[0]
        return StatementTotals(at_s=self._clock(), **row, own_calls=own_calls)

    async def _read_parameters(self, connection: ReadConnection) -> ParameterSample:
        # The slow cadence is where an extension created or a track_* setting changed since is noticed.
        await self._probe(connection)
        self._waits.forget_names()
        in_files = self._capabilities is not None and self._capabilities.read_file_settings
        return await read_parameters(connection, self._major, self._clock, in_files)
