"""Lags of standbys, slots and subscribers."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from msgspec import Struct

from pgtop_tune.metrics import sections
from pgtop_tune.metrics.catalogue import Interval, rate
from pgtop_tune.metrics.vacuum import age
from pgtop_tune.model.replication import Receiver, Sender, Slot

WINDOW_S: Final = 30.0
_COUNTED: Final = re.compile(r"\s*(?:(?:FIRST|ANY)\s+)?(\d+)\s*\(", re.IGNORECASE)
_NAMED: Final = frozenset({"sync", "quorum", "potential"})
_UP_TO_DATE: Final = frozenset({"streaming", "stopping"})


def _behind(ahead: int | None, position: int | None) -> int | None:
    """Return the bytes between two positions, which were read at nearly the same time: never negative."""
    return None if ahead is None or position is None else max(ahead - position, 0)


class SynchronousStandbys(Struct, frozen=True):
    """Number of standbys that a commit waits for, and of those that can confirm it.

    Attributes:
        needed: Number of FIRST or ANY in synchronous_standby_names; 1 for a plain list of names.
        ready: Standbys of these names that are connected and up to date.
    """

    needed: int
    ready: int


def synchronous_standbys(names: str, senders: Iterable[Sender], *, must_apply: bool = False) -> SynchronousStandbys:
    """Count the standbys that commits wait for. Source: SyncRepGetCandidateStandbys() in syncrep.c.

    Args:
        names: synchronous_standby_names; not empty.
        senders: Rows of pg_stat_replication.
        must_apply: Whether commits wait for the replay (remote_apply), which a pg_receivewal never makes.
    """
    counted = _COUNTED.match(names)
    return SynchronousStandbys(
        needed=1 if counted is None else int(counted[1]),
        ready=sum(
            sender.sync_state in _NAMED
            and sender.state in _UP_TO_DATE
            and not (must_apply and sender.replay_lsn_bytes is None)
            for sender in senders
        ),
    )


def with_fewer(names: str, number: int) -> str:
    """Return synchronous_standby_names that wait for another number of the same standbys."""
    counted = _COUNTED.match(names)
    return names if counted is None else f"{names[: counted.start(1)]}{number}{names[counted.end(1) :]}"


class SenderLag(Struct, frozen=True):
    """Lags of a standby, a backup or a logical subscriber, as its WAL sender reports them.

    Attributes:
        sender: The row.
        unsent_bytes: WAL written here and not sent yet.
        unflushed_bytes: WAL sent and not flushed there.
        unreplayed_bytes: WAL flushed and not replayed there.
        total_bytes: WAL written here and not replayed there.
        sent_bytes_per_s: Rate of sending; None before the second reading.
        reply_age_s: Time since its last status message.
    """

    sender: Sender
    unsent_bytes: int | None
    unflushed_bytes: int | None
    unreplayed_bytes: int | None
    total_bytes: int | None
    sent_bytes_per_s: float | None
    reply_age_s: float | None


def sender_lags(interval: Interval) -> list[SenderLag]:
    """Return the rows of pg_stat_replication with their lags; empty without the section."""
    now = interval.now(sections.replication)
    if now is None:
        return []
    pair = interval.pair(sections.replication)
    before = {} if pair is None else {sender.pid: sender for sender in pair[0].senders}
    lags = []
    for sender in now.senders:
        older = before.get(sender.pid)
        per_s = (
            rate(older.sent_lsn_bytes, sender.sent_lsn_bytes, pair[0].at_s, pair[1].at_s) if pair and older else None
        )
        lags.append(
            SenderLag(
                sender=sender,
                unsent_bytes=_behind(now.lsn_bytes, sender.sent_lsn_bytes),
                unflushed_bytes=_behind(sender.sent_lsn_bytes, sender.flush_lsn_bytes),
                unreplayed_bytes=_behind(sender.flush_lsn_bytes, sender.replay_lsn_bytes),
                total_bytes=_behind(now.lsn_bytes, sender.replay_lsn_bytes),
                sent_bytes_per_s=per_s,
                reply_age_s=_since(now.now_ms, sender.reply_time_ms),
            )
        )
    return lags


class ReceiverLag(Struct, frozen=True):
    """Lag of this standby behind its primary.

    Attributes:
        receiver: The row.
        unreceived_bytes: The primary's last reported end of WAL, less the WAL flushed here.
        unreplayed_bytes: WAL received and not replayed.
        delay_s: Time since the last replayed transaction ended on the primary; 0 when all received WAL is replayed.
        message_age_s: Time since the primary's last message.
        not_caught_up_s: Time since replay last had caught up (19+), which max_standby_streaming_delay limits; None when all
            WAL is replayed.
    """

    receiver: Receiver
    unreceived_bytes: int | None
    unreplayed_bytes: int | None
    delay_s: float | None
    message_age_s: float | None
    not_caught_up_s: float | None = None


def receiver_lag(interval: Interval) -> ReceiverLag | None:
    """Return the lag of this standby; None on a primary."""
    now = interval.now(sections.replication)
    if now is None or now.receiver is None:
        return None
    receiver = now.receiver
    unreplayed = _behind(receiver.received_lsn_bytes, receiver.replay_lsn_bytes)
    return ReceiverLag(
        receiver=receiver,
        unreceived_bytes=_behind(receiver.latest_end_lsn_bytes, receiver.received_lsn_bytes),
        unreplayed_bytes=unreplayed,
        delay_s=0.0 if unreplayed == 0 else _since(now.now_ms, receiver.replayed_xact_ms),
        message_age_s=_since(now.now_ms, receiver.message_ms),
        not_caught_up_s=_since(now.now_ms, receiver.caught_up_ms) if unreplayed else None,
    )


def is_cut_off(receiver: Receiver, primary_conninfo: str | None) -> bool:
    """Return whether a standby should stream and does not.

    Args:
        receiver: The standby's WAL receiver.
        primary_conninfo: "" for a standby that only restores from an archive; None, where the role may not see it, counts
            as set.
    """
    return receiver.status != "streaming" and primary_conninfo != ""


class SlotState(Struct, frozen=True):
    """A replication slot and its costs.

    Attributes:
        slot: The row.
        retained_bytes: WAL kept for it.
        retained_per_s: Growth of the retained WAL; negative when the consumer catches up.
        unconfirmed_bytes: WAL that its consumer has not confirmed; None for a physical slot.
        xmin_age, catalog_xmin_age: Number of transactions by which it holds back vacuum.
        inactive_s: Time since its last use (17+).
        lost_in_s: Time until safe_wal_size is used up, at the rate of the last half minute.
        spilled_per_s, streamed_per_s: Bytes per second that logical decoding spills to disk, and streams in progress.
    """

    slot: Slot
    retained_bytes: int | None
    retained_per_s: float | None
    unconfirmed_bytes: int | None
    xmin_age: int | None
    catalog_xmin_age: int | None
    inactive_s: float | None
    lost_in_s: float | None
    spilled_per_s: float | None
    streamed_per_s: float | None


def slot_states(interval: Interval) -> list[SlotState]:
    """Return the rows of pg_replication_slots with their costs; empty without the section."""
    recent = interval.recent(sections.slots, WINDOW_S, least=2)
    if not recent:
        return []
    now, before = recent[0], recent[-1]
    seconds = now.at_s - before.at_s
    older = {slot.slot_name: slot for slot in before.slots}
    states = []
    for slot in now.slots:
        older_slot = older.get(slot.slot_name)
        retained = _behind(now.lsn_bytes, slot.restart_lsn_bytes)
        growth = None
        if older_slot is not None and seconds > 0 and retained is not None:
            retained_before = _behind(before.lsn_bytes, older_slot.restart_lsn_bytes)
            growth = None if retained_before is None else (retained - retained_before) / seconds
        states.append(
            SlotState(
                slot=slot,
                retained_bytes=retained,
                retained_per_s=growth,
                unconfirmed_bytes=_behind(now.lsn_bytes, slot.confirmed_lsn_bytes),
                xmin_age=age(now.next_xid, slot.xmin),
                catalog_xmin_age=age(now.next_xid, slot.catalog_xmin),
                inactive_s=_since(now.now_ms, slot.inactive_since_ms),
                lost_in_s=max(slot.safe_wal_bytes, 0) / growth
                if slot.safe_wal_bytes is not None and growth is not None and growth > 0
                else None,
                spilled_per_s=_decoded(older_slot, slot, "spill_bytes", seconds),
                streamed_per_s=_decoded(older_slot, slot, "stream_bytes", seconds),
            )
        )
    return states


def _since(now_ms: int, moment_ms: int | None) -> float | None:
    return None if moment_ms is None else max(now_ms - moment_ms, 0) / 1000.0


def _decoded(older: Slot | None, newer: Slot, counter: str, seconds: float) -> float | None:
    if older is None or older.stats_reset_ms != newer.stats_reset_ms:
        return None
    return rate(getattr(older, counter), getattr(newer, counter), 0.0, seconds)


INACTIVE: Final = "inactive"


def slot_danger(slot: Slot) -> str:
    """Return the problem of a slot: lost, its invalidation, unreserved, inactive; "" without one."""
    if slot.wal_status == "lost" or slot.invalid:
        return slot.invalid or "lost"
    if slot.wal_status == "unreserved":
        return "unreserved"
    return INACTIVE if slot.active_pid is None else ""
