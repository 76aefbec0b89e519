"""Readings of tables and indexes, of replication and open transactions, of input and output.

Tables take two statements: the first reads the use of every table, the second all columns of the chosen tables. So a
database of ten thousand tables costs one pass over pg_class, and its frames stay small.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from heapq import nlargest
from operator import attrgetter
from typing import Any, Final, TypeVar

from msgspec import Struct

from pgtop_tune.model.absence import Reason, Unavailable, grant
from pgtop_tune.model.io import DatabaseRow, DatabaseSample, IoCounters, IoSample
from pgtop_tune.model.relations import (
    FIRST_USER_OID,
    DatabaseFacts,
    DatabaseLimits,
    IndexCounters,
    RelationSample,
    RoleLimit,
    TableCounters,
)
from pgtop_tune.model.replication import (
    HorizonSample,
    OpenTransaction,
    PreparedTransaction,
    Receiver,
    ReplicationSample,
    Sender,
    Slot,
    SlotSample,
    SubscriptionSample,
    SubscriptionWorker,
)
from pgtop_tune.postgres.readers.section_readers import ReadContext
from pgtop_tune.postgres.server.own_sessions import OwnSessions

ALL_UP_TO: Final = 200
"""Number of tables up to which all of them are read."""
USED_LATELY: Final = 100
FIRST_BY_EACH: Final = 40
"""Number of tables with the most dead tuples, age, pages, and use."""
SYSTEM_TABLES: Final = 5
INDEXES_AT_MOST: Final = 400

_Row = TypeVar("_Row", TableCounters, IndexCounters)


class TableLook(Struct, frozen=True):
    """One row of relation_activity.14.sql.

    Attributes:
        used: Counter that grows with each read or write of the table or one of its indexes.
        dead: n_dead_tup.
        xid_age: age(relfrozenxid).
        pages: relpages.
    """

    oid: int
    used: int
    dead: int
    xid_age: int
    pages: int


class RelationChoice:
    """Choice of the tables that get a row; it keeps the last use of each, so that rows do not come and go."""

    def __init__(self) -> None:
        self._used: dict[int, int] = {}
        self._last_used: dict[int, int] = {}
        self._looks = 0

    def choose(self, looks: Sequence[TableLook]) -> list[int]:
        """Return the oids of the chosen tables, ascending.

        Args:
            looks: All tables of the database.
        """
        self._looks += 1
        before, self._used = self._used, {look.oid: look.used for look in looks}
        for oid, used in self._used.items():
            if self._looks > 1 and before.get(oid) != used:
                self._last_used[oid] = self._looks
        self._last_used = {oid: when for oid, when in self._last_used.items() if oid in self._used}
        users = [look for look in looks if look.oid >= FIRST_USER_OID]
        system = [look for look in looks if look.oid < FIRST_USER_OID]
        chosen = {look.oid for look in nlargest(SYSTEM_TABLES, system, key=lambda look: look.dead) if look.dead}
        chosen |= {look.oid for look in nlargest(SYSTEM_TABLES, system, key=lambda look: look.xid_age)}
        if len(users) <= ALL_UP_TO:
            return sorted(chosen | {look.oid for look in users})
        lately = [look for look in users if look.oid in self._last_used]
        chosen |= {look.oid for look in nlargest(USED_LATELY, lately, key=lambda look: self._last_used[look.oid])}
        for by in ("dead", "xid_age", "pages", "used"):
            largest = nlargest(FIRST_BY_EACH, users, key=attrgetter(by))
            chosen |= {look.oid for look in largest if getattr(look, by)}
        return sorted(chosen)


class RelationReader:
    """Reader of RelationSamples, over one connection after the other."""

    def __init__(self) -> None:
        self._choice = RelationChoice()

    def forget(self) -> None:
        """Forget the tables: another connection may be to another database."""
        self._choice = RelationChoice()

    async def read(self, context: ReadContext) -> RelationSample:
        """Read the chosen tables with their indexes."""
        rows = await context.fetch("relation_activity")
        looks = [
            TableLook(oid=row[0], used=row[1], dead=row[2] or 0, xid_age=row[3] or 0, pages=row[4] or 0) for row in rows
        ]
        chosen = self._choice.choose(looks)
        tables = await context.fetch("relation_tables", chosen)
        indexes = await context.fetch("relation_indexes", chosen)
        clock = (await context.fetch("relation_clock"))[0]
        return RelationSample(
            context.at_s,
            **clock,
            n_tables=sum(1 for look in looks if look.oid >= FIRST_USER_OID),
            n_indexes=len(indexes),
            tables=_by_oid(TableCounters(**{**row, "options": tuple(row["options"])}) for row in tables),
            indexes=_by_oid(_most_used(IndexCounters(**row) for row in indexes)),
        )


def _most_used(indexes: Iterable[IndexCounters]) -> list[IndexCounters]:
    """Return the largest indexes, unused ones first, and the most used ones."""
    all_indexes = list(indexes)
    if len(all_indexes) <= INDEXES_AT_MOST:
        return all_indexes
    largest = nlargest(INDEXES_AT_MOST // 2, all_indexes, key=lambda index: (index.idx_scan == 0, index.pages))
    kept = {index.oid for index in largest}
    remaining = [index for index in all_indexes if index.oid not in kept]
    return largest + nlargest(INDEXES_AT_MOST // 2, remaining, key=lambda index: index.idx_scan)


def _by_oid(rows: Iterable[_Row]) -> tuple[_Row, ...]:
    return tuple(sorted(rows, key=lambda row: row.oid))


async def read_database_limits(context: ReadContext) -> DatabaseLimits:
    """Read pg_database, and the roles with a limit."""
    rows = [dict(row) for row in await context.fetch("database_limits")]
    clocks = [(row.pop("next_xid"), row.pop("next_multixact")) for row in rows]
    roles = await context.fetch("role_limits")
    return DatabaseLimits(
        context.at_s, *clocks[0], tuple(DatabaseFacts(**row) for row in rows), tuple(RoleLimit(**row) for row in roles)
    )


def temp_files_closed(_: str, user: str) -> str:
    """Return the GRANT that opens pg_ls_tmpdir()."""
    return f"temporary files are hidden: {grant('pg_monitor', user)} shows them"


# Readings of replication, and of transactions that hold back vacuum.

_RECEIVER: Final = (
    "status",
    "sender",
    "slot_name",
    "received_lsn_bytes",
    "latest_end_lsn_bytes",
    "message_ms",
    "replay_lsn_bytes",
    "replayed_xact_ms",
    "replay_state",
    "replay_timeline",
    "caught_up_ms",
    "promoting",
)


async def read_replication(context: ReadContext) -> ReplicationSample | Unavailable:
    """Read the senders, and on a standby the receiver."""
    rows = [dict(row) for row in await context.fetch("replication")]
    first = rows[0]
    if first["receiver_pid"] is not None and first["status"] is None:
        return Unavailable(Reason.NO_PERMISSION, "the state of the WAL receiver")
    senders = []
    for row in rows:
        common = {name: row.pop(name) for name in _COMMON}
        if row["pid"] is None:
            continue
        if row["state"] is None:
            return Unavailable(Reason.NO_PERMISSION, "the state of the WAL senders")
        senders.append(Sender(**row))
    receiver = None
    if common["in_recovery"]:
        common["replay_lsn_bytes"] = common["standby_replay_lsn_bytes"]
        receiver = Receiver(**{name: common[name] for name in _RECEIVER})
    return ReplicationSample(
        at_s=context.answered_s,
        now_ms=common["now_ms"],
        lsn_bytes=common["lsn_bytes"],
        senders=tuple(senders),
        receiver=receiver,
    )


_COMMON: Final = (
    "now_ms",
    "in_recovery",
    "lsn_bytes",
    "receiver_pid",
    "standby_replay_lsn_bytes",
    *(name for name in _RECEIVER if name != "replay_lsn_bytes"),
)


def replication_closed(hidden: str, user: str) -> str:
    """Return the GRANT that shows hidden columns."""
    return f"{hidden} is hidden: {grant('pg_monitor', user)} shows it"


async def read_slots(context: ReadContext) -> SlotSample:
    """Read pg_replication_slots."""
    rows = [dict(row) for row in await context.fetch("slots")]
    clocks = _popped(rows, ("now_ms", "lsn_bytes", "next_xid"))
    return SlotSample(
        context.answered_s, **clocks, slots=tuple(Slot(**row) for row in rows if row["slot_name"] is not None)
    )


async def read_subscriptions(context: ReadContext) -> SubscriptionSample:
    """Read pg_stat_subscription."""
    rows = [dict(row) for row in await context.fetch("subscriptions")]
    clocks = _popped(rows, ("now_ms",))
    workers = tuple(SubscriptionWorker(**row) for row in rows if row["id"] is not None)
    return SubscriptionSample(context.answered_s, **clocks, workers=workers)


async def read_horizon(our_sessions: OwnSessions, context: ReadContext) -> HorizonSample:
    """Read open and prepared transactions, without those of our own sessions."""
    own_pids = our_sessions.pids
    rows = [dict(row) for row in await context.fetch("horizon")]
    clocks = _popped(rows, ("now_ms", "next_xid", "n_open"))
    open_rows = [row for row in rows if row["pid"] is not None]
    foreign = tuple(OpenTransaction(**row) for row in open_rows if row["pid"] not in own_pids)
    clocks["n_open"] -= len(open_rows) - len(foreign)
    prepared = tuple(PreparedTransaction(**row) for row in await context.fetch("prepared"))
    return HorizonSample(context.at_s, **clocks, open=foreign, prepared=prepared)


def _popped(rows: list[dict[str, Any]], names: tuple[str, ...]) -> dict[str, Any]:
    """Remove columns from all rows that have the same value in each, and return their values."""
    popped: dict[str, Any] = {}
    for row in rows:
        popped = {name: row.pop(name) for name in names}
    return popped


# Readings of the server's input and output: databases, pg_stat_io.


async def read_databases(context: ReadContext) -> DatabaseSample:
    """Read pg_stat_database, a row for each database."""
    rows = [dict(row) for row in await context.fetch("databases")]
    left_out = max((row.pop("left_out") for row in rows), default=0)
    return DatabaseSample(context.answered_s, tuple(DatabaseRow(**row) for row in rows), max(left_out, 0))


async def read_io(context: ReadContext) -> IoSample:
    """Read pg_stat_io."""
    rows = [dict(row) for row in await context.fetch("io")]
    resets = [moment for row in rows if (moment := row.pop("stats_reset_ms")) is not None]
    return IoSample(context.answered_s, max(resets, default=None), tuple(IoCounters(**row) for row in rows))


def wal_files_closed(_: str, user: str) -> str:
    """Return the GRANT that opens pg_ls_waldir()."""
    return f"the WAL directory is hidden: {grant('pg_monitor', user)} shows it"
