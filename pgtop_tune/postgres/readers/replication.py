"""Readings of replication, and of what holds back vacuum."""

from __future__ import annotations

from typing import Any, Final

from pgtop_tune.model.absence import Reason, Unavailable, grant
from pgtop_tune.model.horizon import HorizonSample, OpenTransaction, PreparedTransaction
from pgtop_tune.model.replication import (
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


async def read_replication(context: ReadContext) -> ReplicationSample | Unavailable:
    """Senders, and on a standby the receiver."""
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
        at_s=context.at_s,
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
    """The GRANT that opens rows with hidden columns."""
    return f"{hidden} is closed to us: {grant('pg_monitor', user)} opens it"


async def read_slots(context: ReadContext) -> SlotSample:
    """pg_replication_slots."""
    rows = [dict(row) for row in await context.fetch("slots")]
    clocks = _popped(rows, ("now_ms", "lsn_bytes", "next_xid"))
    return SlotSample(context.at_s, **clocks, slots=tuple(Slot(**row) for row in rows if row["slot_name"] is not None))


async def read_subscriptions(context: ReadContext) -> SubscriptionSample:
    """pg_stat_subscription."""
    rows = [dict(row) for row in await context.fetch("subscriptions")]
    clocks = _popped(rows, ("now_ms",))
    workers = tuple(SubscriptionWorker(**row) for row in rows if row["id"] is not None)
    return SubscriptionSample(context.at_s, **clocks, workers=workers)


async def read_horizon(own: OwnSessions, context: ReadContext) -> HorizonSample:
    """Open and prepared transactions, without those of our own sessions."""
    own_pids = own.pids
    rows = [dict(row) for row in await context.fetch("horizon")]
    clocks = _popped(rows, ("now_ms", "next_xid", "n_open"))
    found = [row for row in rows if row["pid"] is not None]
    others = tuple(OpenTransaction(**row) for row in found if row["pid"] not in own_pids)
    clocks["n_open"] -= len(found) - len(others)
    prepared = tuple(PreparedTransaction(**row) for row in await context.fetch("prepared"))
    return HorizonSample(context.at_s, **clocks, open=others, prepared=prepared)


def _popped(rows: list[dict[str, Any]], names: tuple[str, ...]) -> dict[str, Any]:
    """Takes out of every row what is the same in all."""
    popped: dict[str, Any] = {}
    for row in rows:
        popped = {name: row.pop(name) for name in names}
    return popped
