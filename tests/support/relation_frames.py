"""A made-up server with tables, commands in progress, a standby, slots, and somebody who holds back vacuum."""

from __future__ import annotations

from msgspec.structs import replace

from pgtop_tune.model.events import Event, EventKind, LogLine, LogTail
from pgtop_tune.model.frame import Frame
from pgtop_tune.model.postgres import Parameter, ParameterSample, PostgresSample
from pgtop_tune.model.relations import (
    DatabaseFacts,
    DatabaseLimits,
    IndexCounters,
    ProgressRow,
    ProgressSample,
    RelationSample,
    RoleLimit,
    TableCounters,
    TempFiles,
    TempFileSample,
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
from pgtop_tune.runtime.ports import Step
from pgtop_tune.runtime.session import Session
from tests.support.frames import EPOCH_MS, GIB, MIB, PARAMETERS, frame, parameter, postgres_sample

NEXT_XID = 150_000_000
NEXT_MULTIXACT = 9_000
LOOK_S = 15
VACUUM_PER_S = 1_000
"""Blocks the made-up VACUUM scans a second, of 100,000."""


def table(oid: int, name: str, second: int, **other: object) -> TableCounters:
    """A table of 100,000 rows that is inserted into and updated 10 times a second."""
    values: dict[str, object] = {
        "oid": oid, "name": name, "kind": "table", "seq_scan": 2 * second, "seq_tup_read": 2_000 * second,
        "idx_scan": 40 * second, "idx_tup_fetch": 40 * second, "n_tup_ins": 10 * second, "n_tup_upd": 10 * second,
        "n_tup_del": 0, "n_tup_hot_upd": 9 * second, "newpage_upd": second, "n_live_tup": 100_000,
        "n_dead_tup": 10_025, "n_mod_since_analyze": 5_025, "n_ins_since_vacuum": 10_500, "last_vacuum_ms": None,
        "last_autovacuum_ms": EPOCH_MS - 600_000, "last_analyze_ms": EPOCH_MS - 300_000, "last_autoanalyze_ms": None,
        "vacuum_count": 0, "autovacuum_count": 3, "analyze_count": 1, "autoanalyze_count": 0, "vacuum_ms": 812.0,
        "analyze_ms": 40.0, "blks_read": 5 * second, "blks_hit": 95 * second, "tuples": 100_000, "pages": 12_800,
        "frozen_pages": 6_400, "frozen_xid": NEXT_XID - 100_000_000, "min_multixact": 1, "options": (),
    }  # fmt: skip
    return TableCounters(**(values | other))  # type: ignore[arg-type]


def relations(second: int, **other: object) -> RelationSample:
    """Three tables of 5,000, read every 15 s."""
    at = second // LOOK_S * LOOK_S
    quiet = dict.fromkeys(("seq_scan", "idx_scan", "n_tup_ins", "n_tup_upd", "blks_read", "blks_hit"), 7)
    values: dict[str, object] = {
        "at_s": float(at), "now_ms": EPOCH_MS + at * 1000, "next_xid": NEXT_XID, "next_multixact": NEXT_MULTIXACT,
        "n_tables": 5_000, "n_indexes": 2,
        "tables": (
            table(16_400, "public.accounts", at),
            table(16_410, "public.[evil]\x1b[31m\u202e表", at, n_dead_tup=0, options=("autovacuum_enabled=off",)),
            table(16_420, "public.quiet", 0, **quiet, n_dead_tup=0, n_live_tup=0, tuples=-1, pages=0, frozen_pages=0),
        ),
        "indexes": (
            IndexCounters(16_401, 16_400, "public.accounts_pkey", "public.accounts", True, True, 40 * at, 40 * at,
                          40 * at, at, 99 * at, EPOCH_MS, 2_745),
            IndexCounters(16_402, 16_400, "public.accounts_unused", "public.accounts", False, False, 0, 0, 0, 0, 0,
                          None, 9_000),
        ),
    }  # fmt: skip
    return RelationSample(**(values | other))  # type: ignore[arg-type]


def progress(second: int) -> ProgressSample:
    """A VACUUM at a thousand blocks a second, a COPY that does not know its end, a base backup."""
    blank = dict.fromkeys(("steps_done", "steps_total", "tuples", "memory_bytes", "memory_limit_bytes", "passes"))
    rows = (
        ProgressRow(2_231, "VACUUM", "bench", "accounts", "scanning heap", VACUUM_PER_S * second, 100_000, "blocks",
                    VACUUM_PER_S * second, 100_000, "heap blocks", 4_000, 96_000, 64 * MIB, 1, 250.0),
        ProgressRow(2_232, "COPY FROM", "bench", "loaded", "pipe", 3 * MIB * second, None, "bytes", steps_unit="",
                    **{**blank, "tuples": 30_000 * second}, delay_ms=None),
        ProgressRow(4_100, "BASE BACKUP", None, "", "streaming database files", 16 * MIB * second, 4 * GIB, "bytes",
                    steps_unit="tablespaces", **{**blank, "steps_done": 0, "steps_total": 1}, delay_ms=None),
    )  # fmt: skip
    return ProgressSample(float(second), rows)


def replication(second: int, receiver: Receiver | None = None) -> ReplicationSample:
    """One standby that is 3 MiB behind: 1 not sent, 1 not flushed, 1 not replayed."""
    lsn = 40 * GIB + 8 * MIB * second
    sender = Sender(
        4_100, "replicator", "standby1", "10.0.0.8", "streaming", lsn - MIB, lsn - MIB, lsn - 2 * MIB, lsn - 3 * MIB,
        0.8, 2.5, 12.0, "async", EPOCH_MS + second * 1000 - 400,
    )  # fmt: skip
    return ReplicationSample(float(second), EPOCH_MS + second * 1000, lsn, (sender,), receiver)


def slot(name: str, **other: object) -> Slot:
    """A physical slot in use."""
    values: dict[str, object] = {
        "slot_name": name, "slot_type": "physical", "plugin": None, "database": None, "temporary": False,
        "active_pid": 4_100, "xmin": NEXT_XID - 500, "catalog_xmin": None, "restart_lsn_bytes": 40 * GIB,
        "confirmed_lsn_bytes": None, "wal_status": "reserved", "safe_wal_bytes": None, "inactive_since_ms": None,
        "invalid": "", "failover": False, "spill_txns": None, "spill_bytes": None, "stream_txns": None,
        "stream_bytes": None, "total_txns": None, "total_bytes": None, "stats_reset_ms": None,
    }  # fmt: skip
    return Slot(**(values | other))  # type: ignore[arg-type]


def slots(second: int) -> SlotSample:
    """One in use, one that nobody reads and that grows by 8 MiB a second."""
    at = second // 5 * 5
    forgotten = slot(
        "forgotten", slot_type="logical", plugin="pgoutput", database="bench", active_pid=None, xmin=None,
        catalog_xmin=NEXT_XID - 2_000_000, confirmed_lsn_bytes=39 * GIB, restart_lsn_bytes=39 * GIB,
        wal_status="extended", safe_wal_bytes=GIB - 8 * MIB * at, inactive_since_ms=EPOCH_MS - 7_200_000,
        spill_txns=at, spill_bytes=MIB * at, stream_txns=0, stream_bytes=0, total_txns=at, total_bytes=2 * MIB * at,
    )  # fmt: skip
    now_ms = EPOCH_MS + at * 1000
    return SlotSample(float(at), now_ms, 40 * GIB + 8 * MIB * at, NEXT_XID, (slot("standby1"), forgotten))


def horizon(second: int) -> HorizonSample:
    """A session idle in transaction, a prepared transaction, a standby's feedback, a vacuum that counts for nothing."""
    at = second // 5 * 5
    now_ms = EPOCH_MS + at * 1000

    def open_(pid: int, kind: str, age: int, state: str | None, **other: object) -> OpenTransaction:
        values: dict[str, object] = {
            "pid": pid, "datname": "bench", "usename": "app", "backend_type": kind, "state": state,
            "xact_start_ms": EPOCH_MS - 90_000, "xid": None, "xmin": NEXT_XID - age, "is_vacuum": False,
        }  # fmt: skip
        return OpenTransaction(**(values | other))  # type: ignore[arg-type]

    open_ones = (
        open_(3_000, "client backend", 0, "idle in transaction", xid=NEXT_XID - 1_200_000, xmin=None),
        open_(4_100, "walsender", 400, "active", datname=None),
        open_(2_231, "client backend", 5_000_000, "active", is_vacuum=True),
    )
    prepared = (PreparedTransaction("tx-1", NEXT_XID - 70_000, "app", "bench", EPOCH_MS - 600_000),)
    return HorizonSample(float(at), now_ms, NEXT_XID, 3, open_ones, prepared)


def database_limits(second: int) -> DatabaseLimits:
    """bench may have 40 connections and is 150 million transactions old."""
    databases = (
        DatabaseFacts(1, "template1", NEXT_XID - 1_000, 1, -1, True),
        DatabaseFacts(4, "template0", NEXT_XID - 1_000, 1, -1, False),
        DatabaseFacts(16_384, "bench", 3, 1, 40, True),
    )
    return DatabaseLimits(0.0, NEXT_XID, NEXT_MULTIXACT, databases, (RoleLimit(16_390, "app", 10),))


SETTINGS: tuple[Parameter, ...] = tuple(
    parameter(name, setting, setting)
    for name, setting in (
        ("autovacuum", "on"),
        ("autovacuum_analyze_scale_factor", "0.1"),
        ("autovacuum_analyze_threshold", "50"),
        ("autovacuum_freeze_max_age", "200000000"),
        ("autovacuum_multixact_freeze_max_age", "400000000"),
        ("autovacuum_vacuum_insert_scale_factor", "0.2"),
        ("autovacuum_vacuum_insert_threshold", "1000"),
        ("autovacuum_vacuum_max_threshold", "100000000"),
        ("autovacuum_vacuum_scale_factor", "0.2"),
        ("autovacuum_vacuum_threshold", "50"),
        ("reserved_connections", "5"),
        ("superuser_reserved_connections", "3"),
    )
)
SET = replace(
    parameter("shared_buffers", "524288", "4GB"), source="configuration file", sourcefile="/etc/postgresql.conf:12",
    pending_restart=True,
)  # fmt: skip
CHANGED = Event(EPOCH_MS + 20_000, EventKind.PARAMETER, "max_wal_size 1GB→16GB")

LOG = LogTail(
    0.0, "log/postgresql.log", 0, 3,
    (
        LogLine("log/postgresql.log:0", "LOG", "2026-11-06 22:00:00 [2001]", "checkpoint starting: time"),
        LogLine("log/postgresql.log:90", "ERROR", "2026-11-06 22:00:01 [2231] app@bench",
                'relation "[evil]\x1b[31m\u202e" does not exist'),
    ),
)  # fmt: skip

WORKERS = (
    SubscriptionWorker("16500:4200", "orders", "apply", 4_200, "", 40 * GIB, 40 * GIB - MIB, EPOCH_MS - 1_000, 2, 0),
    SubscriptionWorker("16501:", "stopped", "none", None, "", None, None, None, 0, 0),
)


def server(second: int, **other: object) -> PostgresSample:
    """Everything of pages 8 and 9 at that second."""
    values: dict[str, object] = {
        "relations": relations(second), "progress": progress(second), "replication": replication(second),
        "slots": slots(second), "horizon": horizon(second), "database_limits": database_limits(second),
        "subscriptions": SubscriptionSample(float(second), EPOCH_MS + second * 1000, WORKERS),
        "temp_files": TempFileSample(0.0, (TempFiles(2_231, 2, 14 * MIB),)), "server_log": LOG,
        "parameters": ParameterSample(0.0, (*PARAMETERS, *SETTINGS, SET)),
    }  # fmt: skip
    return postgres_sample(second, **(values | other))  # type: ignore[arg-type]


def moment(second: int, **other: object) -> Frame:
    """The frame of that second; a parameter is changed in second 20."""
    return frame(second, postgres=server(second, **other), events=(CHANGED,) if second == 20 else ())


def watched(seconds: int) -> Session:
    """A session that has watched this server for so long."""
    session = Session()
    for second in range(seconds):
        session.apply(Step((moment(second),)))
    return session
