"""Page 9: standbys, slots, subscriptions, what holds back vacuum, prepared transactions, connections, settings, log."""

from __future__ import annotations

from operator import attrgetter
from typing import Final

from pgtop_tune.base.safe_text import one_line
from pgtop_tune.base.units import UNKNOWN, age, count, ms, size
from pgtop_tune.metrics import sections
from pgtop_tune.metrics.catalogue import Interval
from pgtop_tune.metrics.replication import (
    INACTIVE,
    ReceiverLag,
    SlotState,
    receiver_lag,
    sender_lags,
    slot_danger,
    slot_states,
)
from pgtop_tune.metrics.vacuum import IDLE, holders
from pgtop_tune.metrics.vacuum import age as xid_age
from pgtop_tune.model.absence import Unavailable
from pgtop_tune.model.replication import PreparedTransaction, SubscriptionWorker
from pgtop_tune.runtime.session import Session
from pgtop_tune.tui.pages.page import (
    Page,
    PageColumn,
    PageTable,
    figure,
    foreign,
    section_rows,
    unless_hidden,
    whole,
    word,
)
from pgtop_tune.tui.pages.sessions import LOG, SETTINGS
from pgtop_tune.tui.widgets.lines import PLAIN, Glyphs, Line
from pgtop_tune.tui.widgets.phrase import Phrase, labelled, lasting, summed

_OLD_XACTS: Final = 1_000_000.0
"""Transactions behind which a holder of the horizon is drawn red: dead rows of that many wait for it."""


_SENDER_COLUMNS: Final = (
    figure("pid", "PID", 7, attrgetter("sender.pid"), whole, "Process id of the WAL sender.",
           "pg_stat_replication.pid"),
    word("application", "application", 18, foreign(attrgetter("sender.application_name")),
         "Name of the standby, as synchronous_standby_names knows it.", "pg_stat_replication.application_name"),
    word("state", "state", 9, foreign(attrgetter("sender.state")), "startup, catchup, streaming, backup, stopping.",
         "pg_stat_replication.state"),
    word("sync", "sync", 9, foreign(attrgetter("sender.sync_state")), "async, potential, sync, quorum.",
         "pg_stat_replication.sync_state"),
    figure("total", "behind", 8, attrgetter("total_bytes"), size,
           "WAL flushed here and not yet replayed there, bytes.", "pg_current_wal_flush_lsn() − replay_lsn"),
    figure("replay-lag", "replay ms", 9, attrgetter("sender.replay_lag_ms"), ms,
           "Time until the standby replayed recent WAL; remote_apply waits for this.",
           "pg_stat_replication.replay_lag"),
    figure("write-lag", "write ms", 8, attrgetter("sender.write_lag_ms"), ms,
           "Time until the standby wrote recent WAL; remote_write waits for this.", "pg_stat_replication.write_lag"),
    figure("flush-lag", "flush ms", 8, attrgetter("sender.flush_lag_ms"), ms,
           "Time until the standby flushed recent WAL; synchronous_commit = on waits for this.",
           "pg_stat_replication.flush_lag"),
    figure("unsent", "unsent", 7, attrgetter("unsent_bytes"), size,
           "WAL not sent yet, bytes: slow network, or slow server here.", "pg_current_wal_flush_lsn() − sent_lsn"),
    figure("unflushed", "unflushd", 8, attrgetter("unflushed_bytes"), size,
           "WAL sent and not yet flushed by the standby, bytes.", "sent_lsn − flush_lsn"),
    figure("unreplayed", "unreplayd", 9, attrgetter("unreplayed_bytes"), size,
           "WAL flushed there and not yet replayed, bytes: slow recovery.", "flush_lsn − replay_lsn"),
    figure("sent", "sentB/s", 7, attrgetter("sent_bytes_per_s"), size, "WAL sent per second.", "Δ sent_lsn / Δt"),
    figure("reply", "reply", 6, attrgetter("reply_age_s"), age, "Time since the standby's last message.",
           "now − pg_stat_replication.reply_time"),
    word("client", "client", 15, foreign(attrgetter("sender.client")), "Address; local is a Unix socket.",
         "pg_stat_replication.client_addr"),
    word("user", "user", 12, foreign(attrgetter("sender.usename")), "Role.", "pg_stat_replication.usename",
         visible=False),
)  # fmt: skip

_CALM: Final = "in use"


def _slot_state(row: SlotState) -> str:
    return slot_danger(row.slot) or _CALM


_SLOT_COLUMNS: Final = (
    word("slot", "slot", 22, foreign(attrgetter("slot.slot_name")), "Name.", "pg_replication_slots.slot_name"),
    PageColumn("state", "state", 12, _slot_state,
               "in use; inactive: no consumer is connected and WAL accumulates; unreserved: about to be lost; lost, or "
               "the reason why it is invalid.", "active, wal_status, conflicting (16), invalidation_reason (17+) of "
                   "pg_replication_slots",
               value=_slot_state, largest_first=False,
               style=lambda row: {_CALM: "good", INACTIVE: "warning"}.get(_slot_state(row), "critical")),
    figure("retained", "retained", 8, attrgetter("retained_bytes"), size,
           "WAL retained on disk for the slot.", "pg_current_wal_insert_lsn() − restart_lsn"),
    figure("growth", "grows/s", 8, attrgetter("retained_per_s"), size,
           "Growth of the retained WAL; negative when the consumer catches up.", "Δ retained / Δt over 30 s"),
    word("wal", "wal", 10, foreign(attrgetter("slot.wal_status")), "reserved, extended, unreserved, lost.",
         "pg_replication_slots.wal_status"),
    figure("safe", "safe", 7, attrgetter("slot.safe_wal_bytes"), size,
           "WAL that may still be written before the slot is lost; - without max_slot_wal_keep_size.",
           "pg_replication_slots.safe_wal_size"),
    figure("lost-in", "lost in", 7, attrgetter("lost_in_s"), age, "Time until the slot is lost at the current rate.",
           "safe_wal_size / growth"),
    word("type", "type", 8, foreign(attrgetter("slot.slot_type")), "physical or logical.",
         "pg_replication_slots.slot_type"),
    word("database", "db", 10, foreign(attrgetter("slot.database")), "Database of a logical slot.",
         "pg_replication_slots.database"),
    word("plugin", "plugin", 13, foreign(attrgetter("slot.plugin")), "Output plugin of a logical slot.",
         "pg_replication_slots.plugin", visible=False),
    figure("pid", "PID", 7, attrgetter("slot.active_pid"), whole, "Process id of its consumer.",
           "pg_replication_slots.active_pid"),
    figure("unconfirmed", "unconf", 7, attrgetter("unconfirmed_bytes"), size,
           "WAL that the subscriber has not confirmed.", "pg_current_wal_insert_lsn() − confirmed_flush_lsn"),
    figure("xmin", "xmin", 7, attrgetter("xmin_age"), count, "Transactions by which the slot holds back vacuum.",
           "age(pg_replication_slots.xmin)", critical=_OLD_XACTS),
    figure("catalog-xmin", "catxmin", 7, attrgetter("catalog_xmin_age"), count,
           "Transactions by which the slot holds back vacuum of catalogs.",
           "age(pg_replication_slots.catalog_xmin)", critical=_OLD_XACTS),
    figure("inactive", "unused", 7, attrgetter("inactive_s"), age, "Time since the slot was last used (17+).",
           "now − pg_replication_slots.inactive_since"),
    figure("spilled", "spill/s", 7, attrgetter("spilled_per_s"), size,
           "Decoded changes spilled to disk per second: raise logical_decoding_work_mem.",
           "Δ pg_stat_replication_slots.spill_bytes / Δt"),
    figure("streamed", "strm/s", 7, attrgetter("streamed_per_s"), size,
           "Changes of transactions in progress sent per second.", "Δ pg_stat_replication_slots.stream_bytes / Δt"),
    figure("mem-exceeded", "mem full", 8, attrgetter("slot.mem_exceeded"), count,
           "Times decoding exceeded logical_decoding_work_mem since the reset (19+).",
           "pg_stat_replication_slots.mem_exceeded_count"),
    figure("sync-skips", "skips", 6, attrgetter("slot.sync_skips"), count,
           "Times that synchronization of the slot to this standby was skipped since the reset (19+).",
           "pg_stat_replication_slots.slotsync_skip_count"),
    word("sync-skip", "not synchronised", 22, foreign(attrgetter("slot.sync_skip_reason")),
         "Reason why the last synchronization of the slot to this standby was skipped (19+).",
         "pg_replication_slots.slotsync_skip_reason"),
)  # fmt: skip

_HOLDER_COLUMNS: Final = (
    word("name", "who", 18, foreign(attrgetter("name")), "Process, prepared transaction or slot.",
         "pg_stat_activity.pid, pg_prepared_xacts.gid, pg_replication_slots.slot_name"),
    word("kind", "kind", 19, foreign(attrgetter("kind")), "Kind of holder: it keeps vacuum from removing dead "
         "rows. A standby with hot_standby_feedback does so for its own queries; a catalog slot only for catalogs.",
         "backend_xid, backend_xmin; pg_prepared_xacts; xmin, catalog_xmin of slots"),
    figure("age", "xacts", 8, attrgetter("age"), count,
           "Transactions begun since the oldest one it can see: their dead rows remain.",
           "greatest(age(backend_xid), age(backend_xmin)), age(transaction), age(xmin)", critical=_OLD_XACTS),
    figure("since", "open", 7, attrgetter("since_s"), age, "Age of its transaction.",
           "now − xact_start, now − prepared"),
    word("who", "user@db", 22, foreign(attrgetter("owner")), "Role and database.",
         "usename, datname; owner, database"),
    word("what", "what", 24, foreign(attrgetter("activity")), "Its last statement, or the slot's plugin.",
         "pg_stat_activity.query", elastic=True),
)  # fmt: skip


_PREPARED_COLUMNS: Final = (
    word("gid", "prepared", 28, foreign(lambda row: row[0].gid), "Identifier of the prepared transaction (gid).",
         "pg_prepared_xacts.gid"),
    figure("age", "age", 7, lambda row: row[1], age, "Time since it was prepared; it holds locks until finished.",
           "now − pg_prepared_xacts.prepared", critical=300.0),
    figure("xacts", "xacts", 8, lambda row: row[2], count, "Transactions begun since then.",
           "age(pg_prepared_xacts.transaction)"),
    word("owner", "owner", 16, foreign(lambda row: row[0].owner), "Role that prepared it.", "pg_prepared_xacts.owner"),
    word("database", "database", 16, foreign(lambda row: row[0].database), "Database in which it can be finished.",
         "pg_prepared_xacts.database"),
)  # fmt: skip

_SUBSCRIPTION_COLUMNS: Final = (
    word("name", "subscription", 18, foreign(lambda row: row[0].name), "Name.", "pg_stat_subscription.subname"),
    word("kind", "worker", 22, lambda row: row[0].kind,
         "apply, parallel apply (16+), table or sequence (19+) synchronization; none: enabled and no worker runs; "
         "disabled.",
         "pg_stat_subscription, pg_subscription.subenabled"),
    figure("message", "message", 8, lambda row: row[1], age, "Time since the last message of the publisher.",
           "now − pg_stat_subscription.last_msg_receipt_time"),
    figure("unreported", "unrep", 7, lambda row: row[2], size, "WAL received and not yet reported back.",
           "received_lsn − latest_end_lsn of pg_stat_subscription"),
    figure("apply-errors", "apply err", 9, lambda row: row[0].apply_errors, count, "Errors while applying (15+).",
           "pg_stat_subscription_stats.apply_error_count", critical=1.0),
    figure("sync-errors", "sync err", 8, lambda row: row[0].sync_errors, count,
           "Errors while synchronizing tables (15+).",
           "pg_stat_subscription_stats.sync_table_error_count, before 19 sync_error_count", critical=1.0),
    figure("sequence-errors", "seq err", 7, lambda row: row[0].sequence_errors, count,
           "Errors while synchronizing sequences (19+).", "pg_stat_subscription_stats.sync_seq_error_count",
           critical=1.0),
    figure("pid", "PID", 7, lambda row: row[0].pid, whole, "Worker.", "pg_stat_subscription.pid"),
    word("relation", "table", 24, foreign(lambda row: row[0].relation), "Table being synchronized.",
         "pg_stat_subscription.relid"),
)  # fmt: skip


def _prepared_rows(interval: Interval) -> list[tuple[PreparedTransaction, float, int | None]]:
    sample = interval.now(sections.horizon)
    if sample is None:
        return []
    return [
        (row, max(sample.now_ms - row.prepared_ms, 0) / 1000.0, xid_age(sample.next_xid, row.xid))
        for row in sample.prepared
    ]


def _subscription_rows(interval: Interval) -> list[tuple[SubscriptionWorker, float | None, int | None]]:
    sample = interval.now(sections.subscriptions)
    if sample is None:
        return []
    rows = []
    for row in sample.workers:
        message_s = None if row.message_ms is None else max(sample.now_ms - row.message_ms, 0) / 1000.0
        unreported = None
        if row.received_lsn_bytes is not None and row.latest_end_lsn_bytes is not None:
            unreported = max(row.received_lsn_bytes - row.latest_end_lsn_bytes, 0)
        rows.append((row, message_s, unreported))
    return rows


def _summary(session: Session, width: int, height: int, glyphs: Glyphs) -> list[Line]:
    interval = session.interval
    if interval is None or height < 1:
        return []
    receiver = receiver_lag(interval)
    lines = [summed(_of_primary(interval), width, glyphs)]
    if receiver is not None:
        lines.insert(0, summed(_of_standby(receiver), width, glyphs))
    return lines[:height]


_REPLAYS: Final = "not paused"


def _of_standby(lag: ReceiverLag) -> list[Phrase]:
    receiver = lag.receiver
    source = f"{receiver.status} from {one_line(receiver.sender, 80)}" if receiver.status else "no WAL receiver"
    replay, goes_on = receiver.replay_state, receiver.replay_state == _REPLAYS
    caught_up_s = lag.not_caught_up_s
    return [
        Phrase((("promotion requested", "warning"),) if receiver.promoting else ()),
        Phrase(
            labelled("standby", source, PLAIN if receiver.status else "warning"),
            short=labelled("standby", receiver.status) if receiver.status else None,
        ),
        Phrase(labelled("replay", replay, PLAIN if goes_on else "warning"), 1 if goes_on else 0),
        Phrase(labelled("behind", lasting(lag.delay_s), "strong"), 0),
        Phrase(labelled("not received", size(lag.unreceived_bytes)), 2),
        Phrase(labelled("not replayed", size(lag.unreplayed_bytes)), 1),
        Phrase(labelled("last message", lasting(lag.message_age_s)), 3),
        Phrase(labelled("not caught up for", lasting(caught_up_s)) if caught_up_s is not None else (), 2),
        Phrase(labelled("timeline", str(receiver.replay_timeline)) if receiver.replay_timeline is not None else (), 4),
    ]


def _counted(label: str, section: object, rows: int, rank: int) -> Phrase:
    """Return a count; unknown where the role may not see the rows."""
    hidden = isinstance(section, Unavailable)
    return Phrase(labelled(label, UNKNOWN if hidden else count(rows), "dim" if hidden else PLAIN), rank)


def _of_primary(interval: Interval) -> list[Phrase]:
    senders, slots, holding = sender_lags(interval), slot_states(interval), holders(interval)
    retained = max((slot.retained_bytes or 0 for slot in slots), default=None)
    phrases = [
        _counted("senders", sections.replication(interval.newest), len(senders), 1),
        _counted("slots", sections.slots(interval.newest), len(slots), 2),
    ]
    if retained is not None:
        phrases.append(Phrase(labelled("most WAL retained", size(retained)), 3))
    if holding and holding[0].age > 0:
        oldest = holding[0]
        style = "critical" if oldest.age >= _OLD_XACTS else PLAIN
        full, short = (
            labelled("vacuum held back", f"{count(oldest.age)} {unit} by {title}", style)
            for unit, title in (("transactions", oldest.title), ("xacts", oldest.title.removesuffix(f", {IDLE}")))
        )
        phrases.append(Phrase(full, 0, short))
    return phrases


def _summary_needs(session: Session, width: int) -> int:
    return 2 if session.interval is not None and receiver_lag(session.interval) is not None else 1


SENDERS: Final = PageTable(
    id="senders",
    title="replication",
    columns=_SENDER_COLUMNS,
    rows=section_rows(sections.replication, sender_lags),
    key_of=attrgetter("sender.pid"),
    sort="total",
    empty="no standby, backup or subscriber is connected",
    about="A row per WAL sender: physical standbys, pg_receivewal, backups and logical subscribers. None has "
    "connected: see wal_level, max_wal_senders and pg_hba.conf.",
)
SLOTS: Final = PageTable(
    id="slots",
    title="slots",
    columns=_SLOT_COLUMNS,
    rows=section_rows(sections.slots, slot_states),
    key_of=attrgetter("slot.slot_name"),
    sort="retained",
    empty="no replication slots",
    about="A row per slot, with the WAL it retains. Slots are made by pg_create_physical_replication_slot, "
    "CREATE SUBSCRIPTION, or backups.",
)
HORIZON: Final = PageTable(
    id="horizon",
    title="horizon",
    columns=_HOLDER_COLUMNS,
    rows=unless_hidden(section_rows(sections.horizon, holders)),
    key_of=attrgetter("id"),
    backend_of=attrgetter("backend"),
    empty="no session, prepared transaction or slot holds back vacuum",
    about="A row per holder of an old snapshot or transaction: dead rows younger than it cannot be removed.",
)
PREPARED: Final = PageTable(
    id="prepared",
    title="prepared",
    columns=_PREPARED_COLUMNS,
    rows=section_rows(sections.horizon, _prepared_rows),
    key_of=lambda row: row[0].gid,
    sort="age",
    empty="no prepared transactions",
    about="A row per PREPARE TRANSACTION that is neither committed nor rolled back; it holds its locks over "
    "restarts. max_prepared_transactions is 0 by default.",
)
SUBSCRIPTIONS: Final = PageTable(
    id="subscriptions",
    title="subscriptions",
    columns=_SUBSCRIPTION_COLUMNS,
    rows=section_rows(sections.subscriptions, _subscription_rows),
    key_of=lambda row: row[0].id,
    sort="name",
    empty="no subscriptions",
    about="A row per subscription of this server and its workers; CREATE SUBSCRIPTION makes one. The publisher "
    "side is among the senders.",
)

PAGE: Final = Page(
    key="9",
    id="repl",
    title="repl",
    tables=(SENDERS, SLOTS, HORIZON, PREPARED, SUBSCRIPTIONS, SETTINGS, LOG),
    summary=_summary,
    summary_rows=lambda width, height: 2 if height >= 20 else 1,
    summary_needs=_summary_needs,
)
