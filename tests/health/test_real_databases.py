"""Checks of what is in databases, on real ones: the real condition is made and found."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
import pytest

from pgtop_tune.cluster.throwaway import Throwaway
from pgtop_tune.health.report import Report
from tests.support.real_check import DEADLINE_S, checked, ids, missing, sayings
from tests.support.servers import conninfo

BAD_DATABASE = (
    "CREATE TABLE parent (id int PRIMARY KEY)",
    "CREATE TABLE child (id serial PRIMARY KEY, parent_id int REFERENCES parent, x int)",
    "INSERT INTO parent SELECT generate_series(1, 100)",
    "INSERT INTO child (parent_id, x) SELECT g, g % 2 FROM generate_series(1, 100) g",
    "CREATE INDEX child_x ON child (x)",
    "CREATE INDEX child_x_again ON child (x)",
    "CREATE UNIQUE INDEX parent_again ON parent (id)",
    "SELECT setval('child_id_seq', 2000000000)",
    "CREATE TABLE full_key (id int PRIMARY KEY)",
    "INSERT INTO full_key SELECT 2147483647 - g FROM generate_series(0, 1000) g",
    "ANALYZE full_key",
    'CREATE TABLE "bloated""one" (id int, filler text) WITH (autovacuum_enabled = off)',
    """INSERT INTO "bloated""one" SELECT g, repeat('x', 100) FROM generate_series(1, 20000) g""",
    'DELETE FROM "bloated""one" WHERE id % 10 <> 0',
    'ANALYZE "bloated""one"',
    'UPDATE "bloated""one" SET id = -id',
    "CREATE TABLE pgbench_branches (bid int)",
    "INSERT INTO pgbench_branches VALUES (1)",
    "ANALYZE pgbench_branches",
    "CREATE UNLOGGED TABLE pgbench_accounts (aid int)",
    "CREATE TABLE never_analyzed (id int) WITH (autovacuum_enabled = off)",
    "INSERT INTO never_analyzed SELECT generate_series(1, 2000)",
    "CREATE TABLE twice (id int)",
    "INSERT INTO twice VALUES (1), (1)",
    "GRANT CREATE ON SCHEMA public TO PUBLIC",
)
SMALL = (
    "TAB-02.bytes=1",
    "IDX-03=0",
    "IDX-04=1",
    "BEN-01.clients=2",
    "TAB-04.rows=100",
    "TAB-04.age=0",
    "TAB-01.rows=1000",
)
FOUND_IN_IT = {
    "IDX-01", "IDX-02", "IDX-03", "IDX-04", "KEY-01", "KEY-02", "TAB-01", "TAB-02", "TAB-03", "TAB-04", "VAC-04",
    "SEC-05", "BEN-01", "BEN-02",
}  # fmt: skip


@contextmanager
def bad_database(server: Throwaway, name: str) -> Iterator[str]:
    with psycopg.connect(conninfo(server), autocommit=True) as admin:
        admin.execute(f"CREATE DATABASE {name}")
        try:
            with psycopg.connect(conninfo(server, name), autocommit=True) as connection:
                for statement in BAD_DATABASE:
                    connection.execute(statement)
                with pytest.raises(psycopg.errors.UniqueViolation):
                    connection.execute("CREATE UNIQUE INDEX CONCURRENTLY broken ON twice (id)")
            yield name
        finally:
            admin.execute(f"DROP DATABASE {name} WITH (FORCE)")


def find_all(server: Throwaway, name: str) -> Report:
    """Looks until counters of the sessions that made the database have arrived."""
    until = time.monotonic() + DEADLINE_S
    while True:
        report = checked(server, name, *SMALL, select=("TAB", "VAC-04", "IDX", "KEY", "SEC-05", "BEN"))
        if not missing(report, FOUND_IN_IT) or time.monotonic() > until:
            return report


def test_a_database_with_everything_wrong_is_seen_through(server: Throwaway) -> None:
    with bad_database(server, "all_wrong") as name:
        report = find_all(server, name)
        assert missing(report, FOUND_IN_IT) == ""
        says = sayings(report)
        for part in ("child_x_again", "parent_again", "broken", "child_parent_id_fkey", "child_id_seq", "full_key.id"):
            assert part in says
        assert "parent_pkey (" not in says
        for _, finding in report.findings:
            if finding.fix is not None and finding.subject == f'{name}: public.bloated"one':
                assert '"public"."bloated""one"' in finding.fix.do


def test_a_role_without_rights_is_told_what_it_did_not_see(server: Throwaway) -> None:
    with bad_database(server, "closed_up") as name, psycopg.connect(conninfo(server), autocommit=True) as admin:
        admin.execute("CREATE ROLE nobody_to_check LOGIN")
        try:
            report = checked(server, name, select=("TAB-02", "KEY", "SEC", "ARC-03", "CFG-02"), user="nobody_to_check")
        finally:
            admin.execute("DROP ROLE nobody_to_check")
        unknown = {check.id for check, _ in report.unknowns}
        assert {"TAB-02", "KEY-01", "KEY-02", "SEC-01", "SEC-02", "ARC-03", "CFG-02"} <= unknown


def test_a_database_that_lets_nobody_in_is_counted(server: Throwaway) -> None:
    with psycopg.connect(conninfo(server), autocommit=True) as admin:
        admin.execute("CREATE DATABASE shut ALLOW_CONNECTIONS false")
        try:
            report = checked(server, "postgres", select=("IDX-01",))
        finally:
            admin.execute("DROP DATABASE shut")
    assert "shut" in " ".join(unknown.reason for _, unknown in report.unknowns)


def test_tables_that_are_dropped_meanwhile_do_not_stop_it(server: Throwaway, database: str) -> None:
    done = threading.Event()

    def churn() -> None:
        with psycopg.connect(database, autocommit=True) as connection:
            while not done.is_set():
                connection.execute("CREATE TABLE come_and_go (id serial PRIMARY KEY)")
                connection.execute("DROP TABLE come_and_go")

    name = psycopg.conninfo.conninfo_to_dict(database)["dbname"]
    coming_and_going = threading.Thread(target=churn)
    coming_and_going.start()
    try:
        report = checked(server, str(name), select=("IDX", "KEY", "TAB", "VAC"))
    finally:
        done.set()
        coming_and_going.join()
    assert not [check.id for check, _ in report.findings if check.id in ("IDX-01", "IDX-02", "KEY-01")]


def test_many_sequences_do_not_fill_the_table_of_locks(server: Throwaway, database: str) -> None:
    name = str(psycopg.conninfo.conninfo_to_dict(database)["dbname"])
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute(
            "DO $$BEGIN FOR i IN 1..250 LOOP EXECUTE format('CREATE SEQUENCE s%s AS int', i); END LOOP; END$$"
        )
        connection.execute("CREATE SEQUENCE other AS bigint")
    report = checked(server, name, select=("KEY-01",))
    assert [unknown.reason for _, unknown in report.unknowns if unknown.reason.startswith(name)] == [
        f"{name}: 50 sequences of the smallest tables were not read: each takes a lock"
    ]


def test_an_index_that_is_being_built_is_work_and_not_broken(server: Throwaway, database: str) -> None:
    name = str(psycopg.conninfo.conninfo_to_dict(database)["dbname"])
    with psycopg.connect(database, autocommit=True) as admin, psycopg.connect(database) as writing:
        admin.execute("CREATE TABLE busy (id int)")
        writing.execute("INSERT INTO busy VALUES (1)")

        def build() -> None:
            with psycopg.connect(database, autocommit=True) as connection:
                connection.execute("CREATE INDEX CONCURRENTLY ON busy (id)")

        building = threading.Thread(target=build)
        building.start()
        try:
            until = time.monotonic() + DEADLINE_S
            report = checked(server, name, select=("IDX-01", "BEN-03"))
            while "BEN-03" not in ids(report) and time.monotonic() < until:
                report = checked(server, name, select=("IDX-01", "BEN-03"))
        finally:
            writing.rollback()
            building.join()
    assert ids(report) == {"BEN-03"}
    assert "CREATE INDEX CONCURRENTLY" in sayings(report)
