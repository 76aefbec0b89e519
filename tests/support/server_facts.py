"""Facts of a made-up server that is set well and idle, for checks of the server: spoilt in one place by a test.

spoiled(parameters={"fsync": "off"}); values are those of pg_settings.setting, in the parameter's unit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from msgspec.structs import replace

from pgtop_tune.health.facts import Answers, CheckFacts, Refused
from pgtop_tune.health.questions import QUESTIONS, CatalogueCondition
from pgtop_tune.model.absence import Unavailable
from pgtop_tune.model.io import ArchiverStatus, DatabaseRow, DatabaseSample
from pgtop_tune.model.postgres import (
    Activity,
    Backend,
    CheckpointCounters,
    DatabaseCounters,
    Parameter,
    ParameterSample,
    WalCounters,
)
from pgtop_tune.model.relations import DatabaseFacts, DatabaseLimits, ProgressSample
from pgtop_tune.model.replication import HorizonSample, ReplicationSample, Sender, Slot, SlotSample, SubscriptionSample
from tests.support import frames
from tests.support.frames import EPOCH_MS, GIB
from tests.support.health_facts import spoilt

SECOND: Final = 101
NOW_MS: Final = EPOCH_MS + SECOND * 1000
DAY_MS: Final = 86_400_000
RESET_MS: Final = NOW_MS - 10 * DAY_MS
NEXT_XID: Final = 2_000_000_000
LSN: Final = 400 * GIB

_ROWS: Final = """
archive_command|cp %p /archive/%f||string|sighup
archive_mode|on||enum|postmaster
archive_timeout|300|s|integer|sighup
autovacuum|on||bool|sighup
autovacuum_max_workers|3||integer|sighup
autovacuum_vacuum_cost_delay|2|ms|real|sighup
autovacuum_vacuum_cost_limit|-1||integer|sighup
bgwriter_delay|200|ms|integer|sighup
bgwriter_lru_maxpages|100||integer|sighup
bgwriter_lru_multiplier|2||real|sighup
block_size|8192||integer|internal
checkpoint_completion_target|0.9||real|sighup
checkpoint_timeout|900|s|integer|sighup
compute_query_id|auto||enum|superuser
data_checksums|on||bool|internal
debug_assertions|off||bool|internal
default_transaction_isolation|read committed||enum|user
enable_partitionwise_join|off||bool|user
enable_seqscan|on||bool|user
fsync|on||bool|sighup
full_page_writes|on||bool|sighup
hash_mem_multiplier|2||real|user
idle_in_transaction_session_timeout|300000|ms|integer|user
ignore_checksum_failure|off||bool|superuser
jit|off||bool|user
jit_above_cost|100000||real|user
listen_addresses|localhost||string|postmaster
log_autovacuum_min_duration|600000|ms|integer|sighup
log_checkpoints|on||bool|sighup
log_destination|stderr||string|sighup
log_duration|off||bool|superuser
log_lock_waits|on||bool|superuser
log_min_duration_sample|-1|ms|integer|superuser
log_min_duration_statement|1000|ms|integer|superuser
log_min_messages|warning||enum|superuser
log_statement|none||enum|superuser
log_statement_sample_rate|1||real|superuser
logging_collector|off||bool|postmaster
log_temp_files|10240|kB|integer|superuser
max_connections|100||integer|postmaster
max_slot_wal_keep_size|51200|MB|integer|sighup
max_wal_size|16384|MB|integer|sighup
max_worker_processes|8||integer|postmaster
password_encryption|scram-sha-256||enum|user
pg_stat_statements.track|top||enum|superuser
pg_stat_statements.track_planning|off||bool|superuser
port|5432||integer|postmaster
random_page_cost|1.1||real|user
seq_page_cost|1||real|user
shared_buffers|524288|8kB|integer|postmaster
shared_preload_libraries|pg_stat_statements||string|postmaster
data_directory|/var/lib/postgresql/data||string|postmaster
ssl|on||bool|sighup
superuser_reserved_connections|3||integer|postmaster
synchronous_commit|on||enum|user
synchronous_standby_names|||string|sighup
track_counts|on||bool|superuser
track_io_timing|on||bool|superuser
vacuum_cost_delay|0|ms|real|user
vacuum_cost_limit|200||integer|user
vacuum_cost_page_dirty|20||integer|user
wal_buffers|2048|8kB|integer|postmaster
wal_keep_size|0|MB|integer|sighup
wal_level|replica||enum|postmaster
wal_segment_size|16777216|B|integer|internal
wal_writer_delay|200|ms|integer|sighup
zero_damaged_pages|off||bool|superuser
"""
"""name, setting, unit, vartype, context of pg_settings."""


STATEMENTS: Final = CatalogueCondition("extension", 1, ["pg_stat_statements"], "1.12", "1.12")
"""What the library of the well-set server counts for."""


def spoiled(
    parameters: Mapping[str, str] | None = None,
    *,
    more: Sequence[Parameter] = (),
    activity: Sequence[Backend] = (),
    answers: Mapping[str, Sequence[object]] | None = None,
    refused: Sequence[Refused] = (),
    postgres: Mapping[str, Any] | None = None,
    server: Mapping[str, Any] | None = None,
    **other: Any,
) -> CheckFacts:
    """Facts of a server set well but for what is given.

    Args:
        parameters: pg_settings.setting by name.
        more: Further rows, or others of the same name.
        activity: Sessions besides none.
        answers: Rows by question, of database "bench".
        refused: Databases that no question was answered by.
        postgres: Sections by name.
        server: Fields of ServerFacts.
        other: As `health_facts.spoilt` has it.
    """
    known = {row.name: row for row in _parameters(parameters or {})} | {row.name: row for row in more}
    sections: dict[str, Any] = {
        "parameters": ParameterSample(float(SECOND), tuple(known.values())),
        "activity": Activity(float(SECOND), NOW_MS, tuple(activity), own_backends=1),
        "database": _database(),
        "wal": wal(),
        "checkpoints": checkpoints(),
        "archiver": ArchiverStatus(float(SECOND), 10, "000000010000000000000001", NOW_MS, 0, "", None, RESET_MS),
        "slots": SlotSample(float(SECOND), NOW_MS, LSN, NEXT_XID, ()),
        "horizon": HorizonSample(float(SECOND), NOW_MS, NEXT_XID, 0, ()),
        "replication": ReplicationSample(float(SECOND), NOW_MS, LSN, ()),
        "subscriptions": SubscriptionSample(float(SECOND), NOW_MS, ()),
        "progress": ProgressSample(float(SECOND), ()),
        "databases": DatabaseSample(float(SECOND), (database_row(),)),
        "database_limits": limits(),
    }
    given = {"check_objects": (STATEMENTS,), **(answers or {})}
    answered: dict[str, Answers[Any] | Unavailable] = {
        question.name: Answers(
            tuple(("bench", row) for row in given.get(question.name, ())), ("bench",), tuple(refused)
        )
        for question in QUESTIONS
    }
    sections["server"] = frames.facts(**{"started_ms": RESET_MS, **(server or {})})
    return spoilt(postgres=sections | dict(postgres or {}), answers=answered, **other)


def _parameters(changed: Mapping[str, str]) -> Sequence[Parameter]:
    rows = [line.split("|") for line in _ROWS.strip().splitlines()]
    assert set(changed) <= {row[0] for row in rows}, changed
    return [row_of(*row, setting=changed.get(row[0], row[1])) for row in rows]


def row_of(name: str, default: str, unit: str, vartype: str, context: str, *, setting: str | None = None) -> Parameter:
    """A row of pg_settings."""
    value = default if setting is None else setting
    row = frames.parameter(name, value, f"{value}{unit}", unit, vartype)
    return replace(row, context=context, boot_val=default, in_auto_conf=False)


def _database() -> DatabaseCounters:
    found = frames.postgres_sample(SECOND).database
    assert isinstance(found, DatabaseCounters)
    return replace(found, stats_reset_ms=RESET_MS)


def checkpoints(**other: Any) -> CheckpointCounters:
    """Ten days of one checkpoint every quarter of an hour."""
    values: dict[str, Any] = {
        "at_s": float(SECOND), "timed": 960, "requested": 2, "write_ms": 0.0, "sync_ms": 0.0,
        "buffers_checkpoint": 1_000_000, "buffers_clean": 100_000, "maxwritten_clean": 0, "buffers_backend": 1_000,
        "buffers_alloc": 1, "redo_lsn_bytes": LSN, "checkpoint_time_ms": NOW_MS, "stats_reset_ms": RESET_MS,
        "done": 960, "slru_written": 0, "backend_fsyncs": 0,
    }  # fmt: skip
    return CheckpointCounters(**(values | other))


def wal(**other: Any) -> WalCounters:
    """Ten days of 100 kB a second."""
    values: dict[str, Any] = {
        "at_s": float(SECOND), "lsn_bytes": LSN, "wal_records": 1, "wal_fpi": 1, "wal_bytes": 864_000 * 100_000,
        "wal_buffers_full": 10, "stats_reset_ms": RESET_MS,
    }  # fmt: skip
    return WalCounters(**(values | other))


def session(pid: int, idle_s: float = 0.0, **other: Any) -> Backend:
    """A client's session that does nothing since so long."""
    then = NOW_MS - int(idle_s * 1000)
    values: dict[str, Any] = {
        "application_name": "shop", "usename": "app", "state": "idle", "xact_start_ms": None, "state_change_ms": then,
    }  # fmt: skip
    return frames.backend(pid, NOW_MS, **(values | other))


def database_row(**other: Any) -> DatabaseRow:
    """pg_stat_database of "bench"."""
    numbers = dict.fromkeys(DatabaseRow.__struct_fields__, 0)
    return DatabaseRow(**({**numbers, "datid": 16_384, "datname": "bench", "stats_reset_ms": RESET_MS} | other))


def limits(xid_age: int = 1_000, multixact_age: int = 10) -> DatabaseLimits:
    """One database, so many transactions and multixacts old."""
    oldest, oldest_multixact = ((NEXT_XID - each) % 2**32 for each in (xid_age, multixact_age))
    row = DatabaseFacts(16_384, "bench", oldest, oldest_multixact, -1, True)
    return DatabaseLimits(float(SECOND), NEXT_XID, NEXT_XID, (row,))


def slots(*found: Slot) -> dict[str, Any]:
    """The section of slots."""
    return {"slots": SlotSample(float(SECOND), NOW_MS, LSN, NEXT_XID, found)}


def standby(
    behind_bytes: int = 0, behind_ms: float = 0.0, sync_state: str = "async", state: str = "streaming"
) -> Sender:
    """A standby that is so far behind."""
    at = LSN - behind_bytes
    return Sender(
        4_100, "replicator", "standby1", "10.0.0.8", state, LSN, LSN, LSN, at, 0.1, 0.1, behind_ms, sync_state,
        NOW_MS,
    )  # fmt: skip
