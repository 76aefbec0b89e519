"""Readings of replication and of the holders of dead rows. Positions are bytes since 0/0."""

from __future__ import annotations

from typing import Annotated

from msgspec import Struct

from pgtop_tune.model.recorded_as import KeyedBy


class Sender(Struct, frozen=True, gc=False):
    """One row of pg_stat_replication."""

    pid: int
    usename: str | None
    application_name: str | None
    client: str | None
    """Client address, "local" for a Unix socket."""
    state: str | None
    """startup, catchup, streaming, backup, stopping."""
    sent_lsn_bytes: int | None
    write_lsn_bytes: int | None
    flush_lsn_bytes: int | None
    replay_lsn_bytes: int | None
    write_lag_ms: float | None
    """Time until the standby reported the last positions; None if no WAL was sent for a while."""
    flush_lag_ms: float | None
    replay_lag_ms: float | None
    sync_state: str | None
    reply_time_ms: int | None


class Receiver(Struct, frozen=True, gc=False):
    """pg_stat_wal_receiver and the replay, on a standby.

    Attributes:
        status: Status of the receiver; None if no receiver runs (the standby restores from an archive, or cannot reach
            the primary).
        sender: "host:port" of the sender; "" if unknown.
        received_lsn_bytes: Position flushed to disk here.
        latest_end_lsn_bytes: The sender's last reported end of WAL.
        message_ms: Time of its last message.
        replay_lsn_bytes: pg_last_wal_replay_lsn().
        replayed_xact_ms: pg_last_xact_replay_timestamp(): end of the last replayed transaction on the primary.
        replay_state: pg_get_wal_replay_pause_state(): "not paused", "pause requested", "paused".
        replay_timeline: Timeline of the last replayed record (19+).
        caught_up_ms: pg_stat_recovery.current_chunk_start_time (19+): time when replay last began new WAL after it had
            caught up, from which max_standby_streaming_delay counts.
        promoting: Whether a promotion was requested (19+).
    """

    status: str | None
    sender: str
    slot_name: str | None
    received_lsn_bytes: int | None
    latest_end_lsn_bytes: int | None
    message_ms: int | None
    replay_lsn_bytes: int | None
    replayed_xact_ms: int | None
    replay_state: str
    replay_timeline: int | None = None
    caught_up_ms: int | None = None
    promoting: bool | None = None


class ReplicationSample(Struct, frozen=True, gc=False):
    """pg_stat_replication, and pg_stat_wal_receiver on a standby.

    Attributes:
        now_ms: clock_timestamp() of the server.
        lsn_bytes: End of the WAL that can be sent: pg_current_wal_flush_lsn(), on a standby the received position.
        senders: WAL senders.
        receiver: WAL receiver of a standby.
    """

    at_s: float
    now_ms: int
    lsn_bytes: int | None
    senders: Annotated[tuple[Sender, ...], KeyedBy("pid")]
    receiver: Receiver | None = None


class Slot(Struct, frozen=True, gc=False):
    """One row of pg_replication_slots, with pg_stat_replication_slots for a logical one.

    Attributes:
        active_pid: Pid of the slot's consumer; None if the slot has none.
        xmin, catalog_xmin: Transaction ids with which the slot holds back vacuum; None without one.
        wal_status: reserved, extended, unreserved or lost.
        safe_wal_bytes: safe_wal_size: WAL that may be written before the slot is in danger; None without a limit.
        inactive_since_ms: Time when the slot was last used; None before 17, and while the slot is in use.
        invalid: invalidation_reason (17+), "conflicting" (16); "" otherwise.
        failover: 17+; None before.
        two_phase: Whether the slot decodes prepared transactions; None in recordings without this field.
        mem_exceeded: Number of times that logical_decoding_work_mem was exceeded (19+).
        sync_skips: Number of skipped synchronizations of the slot to this standby (19+).
        sync_skip_reason: slotsync_skip_reason of the last attempt (19+); "" without.
        spill_*, stream_*, total_*: Transactions and bytes of logical decoding; None for a physical slot.
    """

    slot_name: str
    slot_type: str
    plugin: str | None
    database: str | None
    temporary: bool
    active_pid: int | None
    xmin: int | None
    catalog_xmin: int | None
    restart_lsn_bytes: int | None
    confirmed_lsn_bytes: int | None
    wal_status: str | None
    safe_wal_bytes: int | None
    inactive_since_ms: int | None
    invalid: str
    failover: bool | None
    spill_txns: int | None
    spill_bytes: int | None
    stream_txns: int | None
    stream_bytes: int | None
    total_txns: int | None
    total_bytes: int | None
    stats_reset_ms: int | None
    two_phase: bool | None = None
    mem_exceeded: int | None = None
    sync_skips: int | None = None
    sync_skip_reason: str = ""


class SlotSample(Struct, frozen=True, gc=False):
    """pg_replication_slots, read every few seconds.

    Attributes:
        lsn_bytes: End of WAL on this server, from which retained WAL is counted.
        next_xid: Next transaction id, from which ages are computed.
    """

    at_s: float
    now_ms: int
    lsn_bytes: int | None
    next_xid: int
    slots: Annotated[tuple[Slot, ...], KeyedBy("slot_name")]


class SubscriptionWorker(Struct, frozen=True, gc=False):
    """One row of pg_stat_subscription.

    Attributes:
        id: Subscription and pid: "orders:4711", "orders:" without a worker.
        name: Subscription.
        kind: "apply", "parallel apply", "table synchronization", "sequence synchronization"; "none" when no worker
            runs.
        pid: Pid of the worker.
        relation: Table that is synchronized; "" for other workers.
        received_lsn_bytes, latest_end_lsn_bytes: Received position, and position reported back.
        message_ms: Time of the last message.
        apply_errors, sync_errors: pg_stat_subscription_stats (15+); None before.
        sequence_errors: Errors of the synchronization of sequences (19+); None before.
    """

    id: str
    name: str
    kind: str
    pid: int | None
    relation: str
    received_lsn_bytes: int | None
    latest_end_lsn_bytes: int | None
    message_ms: int | None
    apply_errors: int | None
    sync_errors: int | None
    sequence_errors: int | None = None


class SubscriptionSample(Struct, frozen=True, gc=False):
    """pg_stat_subscription: this server as a subscriber."""

    at_s: float
    now_ms: int
    workers: Annotated[tuple[SubscriptionWorker, ...], KeyedBy("id")]


# Open and prepared transactions, which keep old rows from removal.


class OpenTransaction(Struct, frozen=True, gc=False):
    """A backend with a transaction id or a snapshot: pg_stat_activity.backend_xid, backend_xmin.

    Attributes:
        pid: Pid of the backend; the section `activity` has its other columns.
        backend_type: "walsender" for the feedback of a standby.
        xid: Its own transaction id; None if the transaction has written nothing.
        xmin: Oldest transaction that its snapshot considers running; None between statements of READ COMMITTED.
        is_vacuum: Whether the transaction is a plain VACUUM, which does not hold back vacuum.
    """

    pid: int
    datname: str | None
    usename: str | None
    backend_type: str | None
    state: str | None
    xact_start_ms: int | None
    xid: int | None
    xmin: int | None
    is_vacuum: bool


class PreparedTransaction(Struct, frozen=True, gc=False):
    """One row of pg_prepared_xacts."""

    gid: str
    xid: int
    owner: str
    database: str
    prepared_ms: int


class HorizonSample(Struct, frozen=True, gc=False):
    """The oldest open transactions and all prepared ones, read every few seconds.

    Attributes:
        now_ms: clock_timestamp() of the server.
        next_xid: Next transaction id, from which ages are computed.
        open: The oldest open transactions, at most twenty.
        n_open: Number of open transactions.
        prepared: Prepared transactions.
    """

    at_s: float
    now_ms: int
    next_xid: int
    n_open: int
    open: Annotated[tuple[OpenTransaction, ...], KeyedBy("pid")]
    prepared: Annotated[tuple[PreparedTransaction, ...], KeyedBy("gid")] = ()
