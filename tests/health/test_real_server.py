"""Checks of the server on real ones: the real condition is made and found; test_well_set has where all are silent."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import psycopg
import pytest

from pgtop_tune.cli.poolers import pooler_addresses
from pgtop_tune.cluster.throwaway import Throwaway
from pgtop_tune.health.check import Language
from pgtop_tune.health.gather import gather
from pgtop_tune.health.judge import judge
from pgtop_tune.health.questions import QUESTIONS
from pgtop_tune.health.registry import chosen, thresholds
from pgtop_tune.health.report import Report
from tests.postgres.conftest import place
from tests.support.poolers import PgBouncer, program
from tests.support.servers import MAJORS, conninfo
from tests.support.standby import standby_of

GROUPS = ("DUR", "ARC", "WAL", "SLOT", "BGW", "CON", "TXN", "VAC", "TAB", "PLAN", "IDX", "KEY", "REP", "LOG", "OBS")
OF_THE_SERVER = (*GROUPS, "SEC", "CFG", "BEN")
DEADLINE_S = 30.0

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
SMALL = ("TAB-02.bytes=1", "IDX-03=0", "IDX-04=1", "BEN-01.clients=2", "TAB-04.rows=100", "TAB-01.rows=1000")
FOUND_IN_IT = {
    "IDX-01", "IDX-02", "IDX-03", "IDX-04", "KEY-01", "KEY-02", "TAB-01", "TAB-02", "TAB-03", "TAB-04", "VAC-04",
    "SEC-05", "BEN-01", "BEN-02",
}  # fmt: skip

BAD_SETTINGS = {
    "fsync": "off", "full_page_writes": "off", "synchronous_commit": "off", "zero_damaged_pages": "on",
    "archive_mode": "on", "archive_command": "false", "checkpoint_completion_target": "0.1", "max_wal_size": "100TB",
    "bgwriter_lru_maxpages": "0", "max_connections": "120", "idle_in_transaction_session_timeout": "0",
    "autovacuum": "off", "autovacuum_vacuum_cost_delay": "100ms", "autovacuum_max_workers": "12", "jit": "on",
    "enable_seqscan": "off", "log_statement": "all", "log_min_duration_statement": "0", "log_duration": "on",
    "log_checkpoints": "off", "track_io_timing": "off", "compute_query_id": "off", "password_encryption": "md5",
    "session_preload_libraries": "auto_explain", "auto_explain.log_min_duration": "0", "auto_explain.log_analyze": "on",
    "max_prepared_transactions": "5", "max_slot_wal_keep_size": "-1",
}  # fmt: skip
FOUND_ON_IT = {
    "DUR-01", "DUR-02", "DUR-03", "DUR-04", "ARC-02", "ARC-03", "WAL-03", "WAL-05", "SLOT-01", "SLOT-02", "SLOT-03",
    "BGW-02", "CON-01", "CON-02", "TXN-01", "TXN-02", "TXN-03", "TXN-04", "TXN-05", "VAC-01", "VAC-05", "VAC-06",
    "PLAN-02", "PLAN-03", "LOG-01", "LOG-02", "LOG-03", "LOG-04", "LOG-05", "OBS-01", "OBS-02", "SEC-01", "SEC-02",
    "SEC-03", "CFG-01", "CFG-02", "CFG-03", "CFG-06",
}  # fmt: skip
FOUND_BEFORE_18 = {"DUR-05"}
"""Checksums, which initdb leaves off."""


def checked(
    server: Throwaway, database: str, *limits: str, select: Sequence[str] = OF_THE_SERVER, user: str = "postgres"
) -> Report:
    """What the checks of the server say of it now."""
    checks = chosen(select, ())
    facts = asyncio.run(gather(place(server, database, user), checks))
    return judge(checks, facts, thresholds(limits))


def ids(report: Report) -> set[str]:
    return {check.id for check, _ in report.findings}


def sayings(report: Report) -> str:
    return "\n".join(f"{check.id} {finding.says}" for check, finding in report.findings)


def missing(report: Report, wanted: set[str]) -> str:
    """What was not found, with what was unknown; "" when all was."""
    gone = wanted - ids(report)
    unknown = [f"{check.id}: {why.reason}" for check, why in report.unknowns]
    return f"{sorted(gone)} among {sorted(ids(report))}, unknown {unknown}" if gone else ""


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


WAITING = "SELECT 1 FROM pg_settings WHERE pending_restart"
WRONG_LINE = "no_such_parameter_here = 1\n"


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


def spoil(server: Throwaway) -> list[psycopg.Connection[tuple[object, ...]]]:
    """Makes what settings alone do not make; the sessions are to be kept open."""
    with psycopg.connect(conninfo(server), autocommit=True) as admin:
        for number in range(4):
            admin.execute(f"CREATE ROLE super{number} SUPERUSER LOGIN PASSWORD 'x'")
        admin.execute("ALTER ROLE super0 SET enable_hashjoin = off")
        admin.execute("SELECT pg_create_physical_replication_slot('forgotten', true)")
        admin.execute("ALTER SYSTEM SET max_worker_processes = 20")
        admin.execute("SELECT pg_reload_conf()")
        until = time.monotonic() + DEADLINE_S
        while time.monotonic() < until and not admin.execute(WAITING).fetchone():
            time.sleep(0.05)
        with (server.data_dir / "postgresql.conf").open("a") as settings:
            settings.write(WRONG_LINE)
        with (server.data_dir / "pg_hba.conf").open("a") as rules:
            rules.write("host all all 0.0.0.0/0 trust\nhost all all nonsense/99 trust\n")
    prepared = psycopg.connect(conninfo(server))
    prepared.execute("CREATE TABLE kept (id int)")
    prepared.execute("PREPARE TRANSACTION 'left behind'")
    idle = psycopg.connect(conninfo(server))
    idle.execute("SELECT 1")
    working = psycopg.connect(conninfo(server))
    threading.Thread(target=_sleep, args=(working,), daemon=True).start()
    with psycopg.connect(conninfo(server), autocommit=True) as admin:
        admin.execute("SELECT pg_switch_wal()")
    return [prepared, idle, working]


def _sleep(connection: psycopg.Connection[tuple[object, ...]]) -> None:
    with pytest.raises(psycopg.Error):
        connection.execute("SELECT pg_sleep(600)")


STRICT = (
    "CON-01=0.1", "TXN-02=0", "TXN-03=0", "TXN-05=0", "ARC-03=0", "SLOT-01=0", "TXN-04=1",
)  # fmt: skip


@pytest.mark.long
@pytest.mark.parametrize("major", MAJORS)
def test_a_server_with_everything_wrong(major: int, make_server: Callable[..., Throwaway]) -> None:
    server = make_server(major, **BAD_SETTINGS)
    kept = spoil(server)
    wanted = FOUND_ON_IT | (FOUND_BEFORE_18 if major < 18 else set())
    try:
        until = time.monotonic() + DEADLINE_S
        report = checked(server, "postgres", *STRICT)
        while missing(report, wanted) and time.monotonic() < until:
            report = checked(server, "postgres", *STRICT)
        assert missing(report, wanted) == ""
        settings = server.data_dir / "postgresql.conf"
        settings.write_text(settings.read_text().replace(WRONG_LINE, ""))
        with psycopg.connect(conninfo(server), autocommit=True) as admin:
            admin.execute("ALTER SYSTEM SET synchronous_commit = on")
            admin.execute("ALTER SYSTEM SET synchronous_standby_names = 'ghost'")
            admin.execute("SELECT pg_reload_conf()")
        until = time.monotonic() + DEADLINE_S
        while "REP-02" not in ids(report) and time.monotonic() < until:
            report = checked(server, "postgres", select=("REP-02",))
        assert "REP-02" in ids(report)
    finally:
        for connection in kept:
            connection.close()


WORKED = {"shared_buffers": "1MB", "max_wal_size": "32MB", "bgwriter_lru_maxpages": "1", "checkpoint_timeout": "1h"}
FOUND_AFTER_WORK = {"WAL-01", "WAL-02", "BGW-01", "ARC-01", "REP-04", "VAC-02", "VAC-03"}


@pytest.mark.long
@pytest.mark.parametrize("major", MAJORS)
def test_a_server_that_works_with_too_little(major: int, make_server: Callable[..., Throwaway]) -> None:
    server = make_server(major, **WORKED)
    with psycopg.connect(conninfo(server), autocommit=True) as connection:
        connection.execute("CREATE TABLE work (id int, filler text)")
        connection.execute("INSERT INTO work SELECT g, repeat('x', 100) FROM generate_series(1, 100000) g")
        connection.execute("CREATE SUBSCRIPTION stopped CONNECTION 'host=nowhere' PUBLICATION p WITH (connect = false)")
        for _ in range(12):
            connection.execute("UPDATE work SET id = id + 1 WHERE id % 10 = 0")
            connection.execute("CHECKPOINT")
    until = time.monotonic() + DEADLINE_S
    report = checked(server, "postgres", "BGW-01.buffers=100", "VAC-02=1", "VAC-03=0")
    while missing(report, FOUND_AFTER_WORK) and time.monotonic() < until:
        report = checked(server, "postgres", "BGW-01.buffers=100", "VAC-02=1", "VAC-03=0")
    assert missing(report, FOUND_AFTER_WORK) == ""


@pytest.mark.long
@pytest.mark.parametrize("major", MAJORS)
def test_backends_that_sync_because_the_checkpointer_does_not_keep_up(
    major: int, make_server: Callable[..., Throwaway]
) -> None:
    server = make_server(major, shared_buffers="1MB")
    with psycopg.connect(conninfo(server), autocommit=True) as connection:
        assert ids(checked(server, "postgres", select=("BGW-03",))) == set()
        row = connection.execute("SELECT pid FROM pg_stat_activity WHERE backend_type = 'checkpointer'").fetchone()
        assert row is not None
        # Its queue has a place for each shared buffer, and nobody empties it.
        os.kill(int(str(row[0])), signal.SIGSTOP)
        try:
            connection.execute(
                "DO $$BEGIN FOR i IN 1..600 LOOP EXECUTE format('CREATE TABLE many%s AS SELECT 1', i); END LOOP; END$$"
            )
        finally:
            os.kill(int(str(row[0])), signal.SIGCONT)
        until = time.monotonic() + DEADLINE_S
        report = checked(server, "postgres", select=("BGW-03",))
        while not report.findings and time.monotonic() < until:
            report = checked(server, "postgres", select=("BGW-03",))
    assert ids(report) == {"BGW-03"}


@pytest.mark.long
def test_the_rate_of_wal_is_that_between_two_looks_at_a_working_server(make_server: Callable[..., Throwaway]) -> None:
    server = make_server(18, max_wal_size="32MB", checkpoint_timeout="1h")
    done = threading.Event()

    def write() -> None:
        with psycopg.connect(conninfo(server), autocommit=True) as connection:
            connection.execute("CREATE TABLE work (filler text)")
            while not done.is_set():
                connection.execute("INSERT INTO work SELECT repeat('x', 1000) FROM generate_series(1, 5000)")

    writing = threading.Thread(target=write)
    writing.start()
    try:
        until = time.monotonic() + DEADLINE_S
        report = checked(server, "postgres", select=("WAL-04",))
        while "WAL-04" not in ids(report) and time.monotonic() < until:
            report = checked(server, "postgres", select=("WAL-04",))
    finally:
        done.set()
        writing.join()
    assert "WAL-04" in ids(report)


@pytest.mark.long
def test_a_page_that_fails_its_checksum_is_damage(make_server: Callable[..., Throwaway]) -> None:
    server = make_server(18)
    with psycopg.connect(conninfo(server), autocommit=True) as connection:
        connection.execute("CREATE TABLE damaged AS SELECT generate_series(1, 1000) AS id")
        row = connection.execute("SELECT pg_relation_filepath('damaged')").fetchone()
    assert row is not None
    server.restart()
    with (server.data_dir / str(row[0])).open("r+b") as file:
        file.seek(4_000)
        file.write(b"damage")
    with psycopg.connect(conninfo(server), autocommit=True) as connection, pytest.raises(psycopg.errors.DataCorrupted):
        connection.execute("SELECT count(*) FROM damaged")
    until = time.monotonic() + DEADLINE_S
    report = checked(server, "postgres", select=("DUR-06",))
    while not report.findings and time.monotonic() < until:
        report = checked(server, "postgres", select=("DUR-06",))
    assert ids(report) == {"DUR-06"}


RUN_BY_PEOPLE = ("\\", "--", "SELECT pg_terminate", "ROLLBACK PREPARED")
"""Beginnings of lines that are no statements for any session, or that have no way back."""


@pytest.mark.long
@pytest.mark.parametrize("major", MAJORS)
def test_every_fix_and_its_undoing_are_statements_the_server_takes(
    major: int, make_server: Callable[..., Throwaway]
) -> None:
    server = make_server(major, **BAD_SETTINGS)
    kept = spoil(server)
    ran = set()
    try:
        with bad_database(server, "mended") as name:
            report = checked(server, name, *SMALL, *STRICT)
            for check, finding in report.findings:
                if finding.fix is None or finding.fix.language is not Language.SQL or "broken" in finding.subject:
                    continue
                for line in (*finding.fix.do.splitlines(), *finding.fix.undo.splitlines()):
                    if not line.startswith(RUN_BY_PEOPLE):
                        with psycopg.connect(conninfo(server, name), autocommit=True) as connection:
                            connection.execute("SET lock_timeout = '20s'")
                            connection.execute(line.encode())
                        ran.add(check.id)
    finally:
        for connection in kept:
            connection.close()
    assert {"DUR-01", "SLOT-02", "PLAN-03", "IDX-02", "IDX-04", "TAB-02", "KEY-01", "SEC-05", "VAC-04"} <= ran


@pytest.mark.long
def test_a_standby_is_checked_and_its_primary_sees_it(make_server: Callable[..., Throwaway]) -> None:
    primary = make_server(18)
    standby = standby_of(primary, make_server, "standby1", primary.binaries)
    with psycopg.connect(conninfo(standby), autocommit=True) as admin:
        admin.execute("SELECT pg_wal_replay_pause()")
    until = time.monotonic() + DEADLINE_S
    report = checked(standby, "postgres")
    while "REP-03" not in ids(report) and time.monotonic() < until:
        report = checked(standby, "postgres")
    assert "REP-03" in ids(report)
    assert {"ARC-01", "REP-02"} <= {check.id for check, _ in report.unknowns}
    with psycopg.connect(conninfo(primary), autocommit=True) as admin:
        admin.execute("CREATE TABLE not_replayed AS SELECT 1 AS id")
    until = time.monotonic() + DEADLINE_S
    report = checked(primary, "postgres", "REP-01.bytes=1", select=("REP-01",))
    while not report.findings and time.monotonic() < until:
        report = checked(primary, "postgres", "REP-01.bytes=1", select=("REP-01",))
    assert ids(report) == {"REP-01"}
    primary.stop("immediate")
    report = checked(standby, "postgres", select=("REP-03",))
    while "receiver" not in sayings(report) and time.monotonic() < until + DEADLINE_S:
        report = checked(standby, "postgres", select=("REP-03",))
    assert "receiver" in sayings(report)


def passing_nothing_on() -> dict[str, object]:
    """Settings of a PgBouncer that keeps no prepared statements; before 1.21 there is no such setting."""
    said = subprocess.run([program("pgbouncer"), "--version"], capture_output=True, text=True, check=True).stdout
    version = re.search(r"(\d+)\.(\d+)", said)
    assert version is not None, said
    return {"max_prepared_statements": 0} if (int(version[1]), int(version[2])) >= (1, 21) else {}


@pytest.mark.parametrize(("mode", "found"), [("transaction", {"CON-03", "CON-04"}), ("session", {"CON-03"})])
def test_the_pools_of_a_pooler_are_summed_up(server: Throwaway, mode: str, found: set[str]) -> None:
    checks = chosen(("CON-03", "CON-04"), ())
    settings = {"default_pool_size": 500, "pool_mode": mode, **passing_nothing_on()}
    with PgBouncer(server, databases=("postgres =",), **settings) as bouncer:
        addresses = pooler_addresses((f"bouncer={bouncer.console()}", "away=postgresql://x@127.0.0.1:1/pgbouncer"))
        with psycopg.connect(f"host=127.0.0.1 port={bouncer.port} dbname=postgres user=postgres"):
            facts = asyncio.run(gather(place(server), checks, poolers=addresses))
    report = judge(checks, facts)
    assert "500 connections" in sayings(report)
    assert ids(report) == found
    assert "away" in " ".join(unknown.reason for _, unknown in report.unknowns)


def test_every_question_is_asked_by_a_check() -> None:
    asked = {need.name for check in chosen((), ()) for need in check.needs}
    assert {question.name for question in QUESTIONS} <= asked
