"""Readings of replication, of what holds back vacuum, and of commands that tell how far they are."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Final

from pgtop_tune.model.absence import Reason, Unavailable, grant
from pgtop_tune.model.horizon import HorizonSample, OpenTransaction, PreparedTransaction
from pgtop_tune.model.postgres import ServerFacts
from pgtop_tune.model.progress import ProgressRow, ProgressSample
from pgtop_tune.model.replication import (
    Receiver,
    ReplicationSample,
    Sender,
    Slot,
    SlotSample,
    SubscriptionSample,
    SubscriptionWorker,
)
from pgtop_tune.postgres.queries import sql
from pgtop_tune.postgres.server.connection import ReadConnection

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
)


async def read_progress(connection: ReadConnection, major: int, at_s: float) -> ProgressSample:
    """All pg_stat_progress_* views."""
    return ProgressSample(at_s, tuple(ProgressRow(**row) for row in await connection.fetch(sql("progress", major))))


async def read_replication(connection: ReadConnection, major: int, at_s: float) -> ReplicationSample | Unavailable:
    """Senders, and on a standby the receiver."""
    rows = [dict(row) for row in await connection.fetch(sql("replication", major))]
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
    return ReplicationSample(at_s, common["now_ms"], common["lsn_bytes"], tuple(senders), receiver)


_COMMON: Final = (
    "now_ms",
    "in_recovery",
    "lsn_bytes",
    "receiver_pid",
    "standby_replay_lsn_bytes",
    *(name for name in _RECEIVER if name != "replay_lsn_bytes"),
)


def replication_refused(why: Unavailable, facts: ServerFacts | None) -> Unavailable:
    """Rows whose columns are hidden, with what would open them."""
    if why.reason is not Reason.NO_PERMISSION or facts is None:
        return why
    return Unavailable(why.reason, f"{why.detail} is closed to us: {grant('pg_monitor', facts.user)} opens it")


async def read_slots(connection: ReadConnection, major: int, at_s: float) -> SlotSample:
    """pg_replication_slots."""
    rows = [dict(row) for row in await connection.fetch(sql("slots", major))]
    clocks = _popped(rows, ("now_ms", "lsn_bytes", "next_xid"))
    return SlotSample(at_s, **clocks, slots=tuple(Slot(**row) for row in rows if row["slot_name"] is not None))


async def read_subscriptions(connection: ReadConnection, major: int, at_s: float) -> SubscriptionSample:
    """pg_stat_subscription."""
    rows = [dict(row) for row in await connection.fetch(sql("subscriptions", major))]
    clocks = _popped(rows, ("now_ms",))
    workers = tuple(SubscriptionWorker(**row) for row in rows if row["id"] is not None)
    return SubscriptionSample(at_s, **clocks, workers=workers)


async def read_horizon(connection: ReadConnection, major: int, at_s: float, own: Collection[int]) -> HorizonSample:
    """Open and prepared transactions.

    Args:
        own: Pids of our own sessions, left out.
    """
    rows = [dict(row) for row in await connection.fetch(sql("horizon", major))]
    clocks = _popped(rows, ("now_ms", "next_xid", "n_open"))
    found = [row for row in rows if row["pid"] is not None]
    others = tuple(OpenTransaction(**row) for row in found if row["pid"] not in own)
    clocks["n_open"] -= len(found) - len(others)
    prepared = tuple(PreparedTransaction(**row) for row in await connection.fetch(sql("prepared", major)))
    return HorizonSample(at_s, **clocks, open=others, prepared=prepared)


def _popped(rows: list[dict[str, Any]], names: tuple[str, ...]) -> dict[str, Any]:
    """Takes out of every row what is the same in all."""
    popped: dict[str, Any] = {}
    for row in rows:
        popped = {name: row.pop(name) for name in names}
    return popped
