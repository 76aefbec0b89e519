"""SQL files: every one of them runs on every server it is for, and its columns are the fields of the model."""

from __future__ import annotations

import re

import psycopg
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from msgspec import Struct
from psycopg import sql as compose

from pgtop_tune.base.safe_text import is_plain
from pgtop_tune.base.sql_quoting import quoted
from pgtop_tune.cluster.throwaway import Throwaway
from pgtop_tune.health.questions import QUESTIONS
from pgtop_tune.model.instance import Instance
from pgtop_tune.model.io import ArchiverStatus, DatabaseRow, IoCounters, SlruCounters, WalFiles
from pgtop_tune.model.postgres import (
    Backend,
    CheckpointCounters,
    DatabaseCounters,
    Parameter,
    ServerFacts,
    WalCounters,
)
from pgtop_tune.model.relations import (
    DatabaseFacts,
    DatabaseLimits,
    IndexCounters,
    ProgressRow,
    RelationSample,
    RoleLimit,
    TableCounters,
    TempFiles,
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
from pgtop_tune.model.statements import StatementCounters
from pgtop_tune.model.waits import LockCounters, LockWait, WaitCount
from pgtop_tune.postgres.queries import inventory, sql
from pgtop_tune.postgres.server.capabilities import PREDEFINED, Capabilities
from pgtop_tune.postgres.statements.explain import ATTRIBUTES, SUPERUSER
from tests.support.servers import MAJORS, conninfo


def names(model: type[Struct], *without: str) -> list[str]:
    return [name for name in model.__struct_fields__ if name not in without]


COLUMNS: dict[str, list[str]] = {
    "activity": [*names(Backend, "blocked_by"), "query_encoding", "now_ms", "configured_ms"],
    "auto_conf": ["name", "setting"],
    "blocking": ["pid", "blocked_by"],
    "one_backend": ["query", "query_bytes", "most_bytes", "datname", "role"],
    "login_role": ["login", "acting"],
    "role_powers": ["name", SUPERUSER, *ATTRIBUTES],
    "capabilities": names(Capabilities, "closed"),
    "checkpoints": names(CheckpointCounters, "at_s"),
    "database": names(DatabaseCounters, "at_s", "own_transactions"),
    "facts": names(ServerFacts, "endpoint", "local", "postmaster_pid", "pooled"),
    "own_backend": ["pid", "backend_start_ms", "data_directory"],
    "instance": [
        *names(Instance, "timeline", "system_identifier", "written_s", "put_there_s", "altered_s", "machine"),
        *("may_identify", "may_name_wal", "may_read", "may_stat"),
    ],
    "parameters": names(Parameter, "in_auto_conf", "stored", "pending"),
    "statements": [
        *("userid", "dbid", "dealloc", "stats_reset_ms"),
        *names(StatementCounters, "id", "usename", "datname"),
    ],
    "locks": names(LockWait),
    "lock_counters": names(LockCounters),
    "names": ["kind", "oid", "name"],
    "waits": [
        *("now_ms", "observations", "pids", "xact_starts_ms"),
        *names(WaitCount, "observations", "datname", "usename", "of_load"),
        *("datid", "usesysid", "of_load", "state"),
    ],
    "tail_blockers": ["pid", "blocker", "state", "query", "query_encoding"],
    "wait_profile": ["pid", *names(WaitCount, "datname", "usename", "of_load"), "datid", "usesysid", "of_load"],
    "wal": names(WalCounters, "at_s"),
    "statement_texts": ["queryid", "query", "encoding", "characters"],
    "running_texts": ["queryid", "query", "encoding", "characters"],
    "databases": [*names(DatabaseRow), "left_out"],
    "io": [*names(IoCounters), "stats_reset_ms"],
    "slru": names(SlruCounters),
    "archiver": names(ArchiverStatus, "at_s"),
    "places": ["tablespace_names", "tablespace_directories", "temp_tablespaces", "log_directory", "data_directory"],
    "server_files": ["number", "content"],
    "wal_files": names(WalFiles, "at_s"),
    "progress": names(ProgressRow),
    "replication": [
        *names(ReplicationSample, "at_s", "senders", "receiver"),
        *names(Receiver, "replay_lsn_bytes"),
        *names(Sender),
        *("in_recovery", "receiver_pid", "standby_replay_lsn_bytes"),
    ],
    "slots": [*names(SlotSample, "at_s", "slots"), *names(Slot)],
    "subscriptions": [*names(SubscriptionSample, "at_s", "workers"), *names(SubscriptionWorker)],
    "horizon": [*names(HorizonSample, "at_s", "open", "prepared"), *names(OpenTransaction)],
    "prepared": names(PreparedTransaction),
    "relation_activity": ["oid", "used", "dead", "xid_age", "pages"],
    "relation_tables": names(TableCounters),
    "relation_indexes": names(IndexCounters),
    "relation_clock": names(RelationSample, "at_s", "n_tables", "n_indexes", "tables", "indexes"),
    "database_limits": [*names(DatabaseLimits, "at_s", "databases", "role_limits"), *names(DatabaseFacts)],
    "role_limits": names(RoleLimit),
    "limits_of_session": ["name", "setting", "source"],
    "pending": ["name", "setting"],
    "temp_files": names(TempFiles),
    "server_log": [
        *("file", "size", "start", "content"),
        *("collector", "destination", "line_prefix", "languages", "encodings", "may_read_catalogue"),
    ],
    "locale_directory": ["setting"],
    "message_catalogues": ["number", "content"],
    **{question.name: names(question.row, "built_for") for question in QUESTIONS},
}
BY_POSITION = {"activity", "wait_profile", "relation_activity", "waits"}
OF_A_LIST = {
    "server_files",
    "message_catalogues",
    "limits_of_session",
    "pending",
    "blocking",
    "tail_blockers",
    "locks",
    "running_texts",
    "statement_texts",
    "relation_tables",
    "relation_indexes",
}
ARGUMENTS: dict[str, tuple[object, ...]] = {
    "capabilities": (list(PREDEFINED),),
    "one_backend": (1, 1),
    "waits": (50, 1),
    "role_powers": ("postgres", ["pg_read_all_data"]),
    "server_log": ("", 0, 1000),
}
WAIT_PROFILE = (
    "CREATE TEMP VIEW pg_wait_sampling_profile AS "
    "SELECT 1 AS pid, ''::text AS event_type, ''::text AS event, 1::bigint AS queryid, 1::bigint AS count"
)
"""As pg_wait_sampling makes it; the extension is not among the packages the servers come from."""


def _is_array(connection: psycopg.Connection[tuple[object, ...]], oid: int) -> bool:
    known = connection.adapters.types.get(oid)
    return known is not None and known.array_oid == oid and known.name not in ("text", "oid")


def test_every_file_is_looked_at() -> None:
    assert set(inventory()) == set(COLUMNS)


@pytest.mark.parametrize("name", sorted(COLUMNS))
def test_it_runs_everywhere_with_the_same_columns(all_servers: Throwaway, name: str) -> None:
    with psycopg.connect(conninfo(all_servers)) as connection:
        if inventory()[name][0] > connection.info.server_version // 10_000:
            pytest.skip(f"{name} came with {inventory()[name][0]}")
        connection.execute(WAIT_PROFILE)
        text = sql(name, connection.info.server_version // 10_000)
        text = text.replace("{schema}", "pg_temp" if name == "wait_profile" else "public").replace("{identifier}", "''")
        arguments = ([],) if name in OF_A_LIST else ARGUMENTS.get(name)
        if arguments is not None:
            text = re.sub(r"\$(\d)", r"%(p\1)s", text)
        named = None if arguments is None else {f"p{place}": value for place, value in enumerate(arguments, 1)}
        cursor = connection.execute(text.encode(), named)
        assert cursor.description is not None
        found = [column.name for column in cursor.description]
        rows = cursor.fetchall()
        arrays = {column.name for column in cursor.description if _is_array(connection, column.type_code)}
    assert not arrays, "the driver asks the catalogue about arrays it does not know"
    assert not re.search(r"\$\d::(?!(?:text|oid)\b)\w+\[\]", sql(name, MAJORS[-1]))
    assert (found if name in BY_POSITION else sorted(found)) == (
        COLUMNS[name] if name in BY_POSITION else sorted(COLUMNS[name])
    )
    if name in {"capabilities", "checkpoints", "database", "facts", "wal", "archiver", "wal_files"}:
        assert len(rows) == 1


def test_the_newest_variant_that_fits_is_taken() -> None:
    assert "pg_stat_checkpointer" not in sql("checkpoints", 16)
    assert "pg_stat_checkpointer" in sql("checkpoints", 17)
    assert sql("checkpoints", 18) == sql("checkpoints", 99) != sql("checkpoints", 17)


def test_a_marked_line_is_for_the_majors_it_names() -> None:
    """Facts of the manual, not of our files: who has which column."""
    assert [major for major in range(14, 20) if "conflicting" in sql("slots", major)] == [16]
    assert [major for major in range(14, 20) if "num_dead_tuples" in sql("progress", major)] == [14, 15, 16]
    assert [major for major in range(14, 20) if "s.failover" in sql("slots", major)] == [17, 18, 19]


def test_no_comment_reaches_the_server() -> None:
    for name in inventory():
        for major in range(inventory()[name][0], 20):
            assert "--" not in sql(name, major)


def test_a_server_older_than_all_variants_is_told_so() -> None:
    with pytest.raises(LookupError, match="needs PostgreSQL 14"):
        sql("wal", 13)


@given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")))
def test_names_are_quoted_as_libpq_quotes_them(name: str) -> None:
    assume(is_plain(name))
    assert quoted(name) == compose.Identifier(name).as_string(None)


def test_a_name_with_a_nul_is_refused() -> None:
    with pytest.raises(ValueError, match="NUL"):
        quoted("a\0b")


@pytest.mark.parametrize("name", sorted(inventory()))
def test_no_array_is_made_of_text_for_every_row(name: str) -> None:
    """A generic plan, taken from the sixth time on, makes it anew for each: up to five times the CPU."""
    for major in inventory()[name]:
        assert not re.search(r"ANY\s*\(\s*\$\d+::text\[\]::", sql(name, major))
