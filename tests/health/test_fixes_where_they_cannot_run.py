"""Fixes that this server would refuse are not offered as statements, and an undo makes what was there."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psycopg
import pytest

from pgtop_tune.cluster.throwaway import Throwaway
from pgtop_tune.health.check import Fix, Language
from pgtop_tune.health.fixes import set_parameter
from pgtop_tune.health.judge import judge
from pgtop_tune.model.relations import DatabaseFacts, DatabaseLimits
from tests.health.test_real_databases import SMALL
from tests.support.health_facts import parameter
from tests.support.processes import eventually
from tests.support.real_check import checked
from tests.support.server_conditions import BY_ID
from tests.support.server_facts import NEXT_XID, SECOND, spoiled
from tests.support.servers import conninfo
from tests.support.standby import standby_of

NEAR_THE_END = "INSERT INTO {} SELECT 2147483646 - g FROM generate_series(0, 1000) g; ANALYZE {}"
LONG = "t" * 63
KEPT_TYPES = (
    "CREATE TABLE viewed (id serial PRIMARY KEY)",
    "CREATE VIEW of_viewed AS SELECT id FROM viewed",
    "SELECT setval('viewed_id_seq', 2100000000)",
    "CREATE TABLE viewed_key (id int PRIMARY KEY, twice bigint GENERATED ALWAYS AS (id::bigint * 2) STORED)",
    NEAR_THE_END.format("viewed_key", "viewed_key"),
    "CREATE TABLE parted (id int PRIMARY KEY) PARTITION BY RANGE (id)",
    "CREATE TABLE part PARTITION OF parted FOR VALUES FROM (0) TO (2147483647)",
    NEAR_THE_END.format("parted", "parted"),
    "CREATE TABLE base (id int)",
    "CREATE TABLE heir (UNIQUE (id)) INHERITS (base)",
    NEAR_THE_END.format("heir", "heir"),
    "CREATE TABLE plain (id int PRIMARY KEY)",
    NEAR_THE_END.format("plain", "plain"),
)
INDEXES = (
    "CREATE TABLE parent (id int PRIMARY KEY)",
    "CREATE TABLE child (parent_id int REFERENCES parent, live bool)",
    "CREATE INDEX ON child (parent_id) WHERE live",
    f"CREATE TABLE {LONG} (p int REFERENCES parent, q int REFERENCES parent)",
    f"INSERT INTO parent VALUES (1); INSERT INTO child VALUES (1); INSERT INTO {LONG} VALUES (1, 1)",
    "CREATE TABLE secret (id int, token text)",
    "CREATE INDEX secret_a ON secret (id) WHERE token = 'x9Kq2Lm7Zp4Rt8Wv3Yb6'",
    "CREATE INDEX secret_b ON secret (id) WHERE token = 'x9Kq2Lm7Zp4Rt8Wv3Yb6'",
    "CREATE TABLE spaced (id int)",
    "CREATE INDEX spaced_a ON spaced (id)",
    'CREATE INDEX spaced_b ON spaced (id) TABLESPACE "else where"',
    "CREATE TABLE apart (id int, EXCLUDE USING btree (id WITH =)) WITH (autovacuum_enabled = off)",
    "INSERT INTO apart SELECT generate_series(1, 80000); DELETE FROM apart WHERE id % 20 <> 0; VACUUM ANALYZE apart",
    "CREATE TABLE divided (id int); INSERT INTO divided VALUES (0)",
)
INDEXES_NOW = "SELECT tablespace, indexdef FROM pg_indexes WHERE schemaname = 'public' ORDER BY 2"


def execute(connection: psycopg.Connection, *texts: str) -> None:
    """Each statement by itself: some run in no transaction."""
    for text in texts:
        for statement in text.replace("; ", ";\n").splitlines():
            connection.execute(statement.encode())


def offered(server: Throwaway, database: str, *select: str) -> dict[str, Fix]:
    report = checked(server, database, *SMALL, "IDX-04=0", select=select)
    return {f"{check.id} {finding.subject}": finding.fix for check, finding in report.findings if finding.fix}


def test_a_column_whose_type_the_server_keeps_is_no_statement(server: Throwaway, database: str) -> None:
    with psycopg.connect(database, autocommit=True) as connection:
        execute(connection, *KEPT_TYPES)
        name = connection.info.dbname
        fixes = {
            subject.partition(": public.")[2]: fix
            for subject, fix in offered(server, name, "KEY").items()
            if f" {name}: " in subject
        }
        for subject, reason in (
            ("viewed_id_seq", "view public.of_viewed"), ("viewed_key.id", "column twice"),
            ("part.id", "topmost parent"), ("heir.id", "topmost parent"),
        ):  # fmt: skip
            assert fixes[subject].language is Language.WORDS, subject
            assert reason in fixes[subject].do
        ran = [subject for subject, fix in fixes.items() if fix.language is Language.SQL]
        assert "plain.id" in ran
        for subject in ran:
            execute(connection, fixes[subject].do, fixes[subject].undo)


def test_indexes_come_back_as_they_were_and_new_ones_have_a_free_name(make_server: Callable[..., Throwaway]) -> None:
    server = make_server()
    space, owner = Path(str(server.data_dir)).parent / "space", Path(str(server.data_dir)).stat()
    space.mkdir()
    os.chown(space, owner.st_uid, owner.st_gid)
    with psycopg.connect(conninfo(server), autocommit=True) as connection:
        connection.execute(f"CREATE TABLESPACE \"else where\" LOCATION '{space}'".encode())
        execute(connection, *INDEXES)
        with pytest.raises(psycopg.errors.DivisionByZero):
            connection.execute("CREATE INDEX CONCURRENTLY quotient ON divided ((1 / id))")
        fixes = offered(server, "postgres", "IDX-01", "IDX-02", "IDX-04", "TAB-02")
        assert fixes["IDX-01 postgres: public.quotient"].language is Language.WORDS
        assert fixes["IDX-02 postgres: public.secret_b"].undo.startswith("-- its definition")
        made = [fix.do for subject, fix in fixes.items() if subject.startswith("IDX-04")]
        assert len(made) == 3
        ran = 0
        for subject, fix in fixes.items():
            if fix.language is not Language.SQL or "secret" in subject:
                continue
            before = connection.execute(INDEXES_NOW).fetchall()
            with psycopg.connect(conninfo(server), autocommit=True) as session:
                execute(session, fix.do)
            with psycopg.connect(conninfo(server), autocommit=True) as session:
                execute(session, fix.undo)
            assert connection.execute(INDEXES_NOW).fetchall() == before, subject
            ran += 1
        assert ran >= 5
        for statement in made:
            connection.execute(statement.encode())
        assert not any(subject.startswith("IDX-04") for subject in offered(server, "postgres", "IDX-04"))


@pytest.mark.parametrize("major", [pytest.param(14, marks=pytest.mark.long), 18])
def test_a_slot_comes_back_with_all_it_was_made_with(major: int, make_server: Callable[..., Throwaway]) -> None:
    server = make_server(major, wal_level="logical")
    with psycopg.connect(conninfo(server), autocommit=True) as connection:
        execute(
            connection,
            "SELECT pg_create_physical_replication_slot('kept', true)",
            "SELECT pg_create_physical_replication_slot('new')",
            "SELECT pg_create_logical_replication_slot('plain', 'pgoutput')",
            "SELECT pg_create_logical_replication_slot('phases', 'pgoutput', twophase => true)",
        )
        columns = "slot_name, plugin, database, two_phase, restart_lsn IS NULL"
        if major >= 17:
            connection.execute("SELECT pg_create_logical_replication_slot('over', 'pgoutput', failover => true)")
            columns += ", failover"
        slots = f"SELECT {columns} FROM pg_replication_slots ORDER BY 1".encode()
        before = connection.execute(slots).fetchall()
        fixes = offered(server, "postgres", "SLOT-02")
        assert len(fixes) == len(before)
        for fix in fixes.values():
            execute(connection, fix.do, fix.undo)
        assert connection.execute(slots).fetchall() == before


def test_a_database_that_an_interrupted_drop_has_left_is_dropped(server: Throwaway) -> None:
    with psycopg.connect(conninfo(server), autocommit=True) as connection:
        connection.execute("CREATE DATABASE half_gone")
        try:
            connection.execute("UPDATE pg_database SET datconnlimit = -2 WHERE datname = 'half_gone'")
            report = checked(server, "postgres", "VAC-02=1", select=("VAC-02",))
            (fix,) = (finding.fix for _, finding in report.findings if finding.subject == "half_gone")
            assert fix is not None
            assert fix.language is Language.WORDS
            assert 'DROP DATABASE "half_gone";' in fix.do
        finally:
            connection.execute("DROP DATABASE half_gone")


def test_words_with_a_statement_name_the_primary_of_a_standby() -> None:
    closed = DatabaseFacts(4, "template0", NEXT_XID - 600_000_000, NEXT_XID - 10, -1, False)
    limits = DatabaseLimits(float(SECOND), NEXT_XID, NEXT_XID, (closed,))
    facts = spoiled(postgres={"database_limits": limits}, server={"in_recovery": True})
    ((_, finding),) = judge([BY_ID["VAC-02"]], facts).findings
    assert finding.fix is not None
    assert finding.fix.remark.startswith("run it on the primary")


@pytest.mark.parametrize("major", [17, 18])
def test_without_alter_system_no_statement_of_it_is_offered(major: int, make_server: Callable[..., Throwaway]) -> None:
    server = make_server(major, allow_alter_system="off", log_statement="all")
    report = checked(server, "postgres", select=("LOG", "DUR", "OBS"))
    fixes = [finding.fix for _, finding in report.findings if finding.fix is not None]
    assert not any(fix.do.startswith("ALTER SYSTEM SET") for fix in fixes)
    assert any("allow_alter_system" in fix.do and "log_statement = ddl" in fix.do for fix in fixes)


def test_each_reason_that_statements_are_not_counted_goes_away_with_its_fix(fresh_server: Throwaway) -> None:
    with psycopg.connect(conninfo(fresh_server), autocommit=True) as connection:
        execute(
            connection,
            "ALTER SYSTEM SET pg_stat_statements.track = none",
            "ALTER SYSTEM SET compute_query_id = off",
            "SELECT pg_reload_conf()",
        )
        fixes = offered(fresh_server, "postgres", "OBS-02")
        assert len(fixes) == 2
        for fix in fixes.values():
            execute(connection, fix.do)
        assert not offered(fresh_server, "postgres", "OBS-02")


@pytest.mark.parametrize("source", ["command line", "environment variable"])
def test_a_value_that_wins_over_the_files_is_changed_where_it_is_given(source: str) -> None:
    fix = set_parameter(parameter("fsync", "off", source=source), "on")
    assert fix.language is Language.WORDS
    assert source in fix.do


@pytest.mark.long
def test_slots_of_a_standby_are_dropped_and_made_again_but_not_copies(make_server: Callable[..., Throwaway]) -> None:
    primary = make_server(wal_level="logical", hot_standby_feedback="on")
    with psycopg.connect(conninfo(primary), autocommit=True) as connection:
        connection.execute("SELECT pg_create_logical_replication_slot('copied', 'pgoutput', failover => true)")
        standby = standby_of(primary, make_server, "stream", primary.binaries)
        with psycopg.connect(conninfo(standby), autocommit=True) as session:
            upstream = f"host={primary.socket_dir} port={primary.port} user={primary.user} dbname=postgres"
            session.execute(f"ALTER SYSTEM SET primary_conninfo = '{upstream}'".encode())
            session.execute("SELECT pg_reload_conf()")

            def is_copied() -> bool:
                with contextlib.suppress(psycopg.errors.DatabaseError):
                    session.execute("SELECT pg_sync_replication_slots()")
                # The copy waits for a slot that is further than where the standby began.
                connection.execute("SELECT pg_log_standby_snapshot()")
                connection.execute("SELECT pg_replication_slot_advance('copied', pg_current_wal_lsn())")
                return bool(session.execute("SELECT FROM pg_replication_slots WHERE synced").fetchall())

            assert eventually(is_copied)

            def executed(statement: str) -> None:
                """With what a new slot of a standby waits for."""
                with ThreadPoolExecutor(1) as pool:
                    running = pool.submit(session.execute, statement.encode())

                    def is_done() -> bool:
                        connection.execute("SELECT pg_log_standby_snapshot()")
                        return running.done()

                    assert eventually(is_done) or session.cancel()
                    running.result()

            executed("SELECT pg_create_logical_replication_slot('own', 'pgoutput', twophase => true)")
            report = checked(standby, "postgres", "SLOT-01=0", select=("SLOT-01", "SLOT-02"))
            fixes = [finding.fix for _, finding in report.findings if finding.subject == "copied"]
            assert [fix.language for fix in fixes if fix is not None] == [Language.WORDS]
            fix = next(finding.fix for _, finding in report.findings if finding.subject == "own")
            assert fix is not None
            assert "pg_log_standby_snapshot" in fix.remark
            executed(fix.do)
            executed(fix.undo)
            of_own = "SELECT two_phase FROM pg_replication_slots WHERE slot_name = 'own'"
            assert session.execute(of_own.encode()).fetchall() == [(True,)]
