"""Checks of the server on real ones: the real condition is made and found; test_well_set has where all are silent."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest

from pgtop_tune.cli.connections import pooler_addresses
from pgtop_tune.cluster.throwaway import Throwaway
from pgtop_tune.health.gather import BESIDE_PARAMETERS, gather
from pgtop_tune.health.judge import judge
from pgtop_tune.health.questions import QUESTIONS
from pgtop_tune.health.registry import chosen
from tests.postgres.conftest import place
from tests.support.poolers import PgBouncer, program
from tests.support.real_check import DEADLINE_S, checked, ids, missing, sayings
from tests.support.servers import MAJORS, conninfo
from tests.support.standby import standby_of

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

WAITING = "SELECT 1 FROM pg_settings WHERE pending_restart"
WRONG_LINE = "no_such_parameter_here = 1\n"


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
        with (Path(str(server.data_dir)) / "postgresql.conf").open("a") as settings:
            settings.write(WRONG_LINE)
        with (Path(str(server.data_dir)) / "pg_hba.conf").open("a") as rules:
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
        settings = Path(str(server.data_dir)) / "postgresql.conf"
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
AFTER_WORK = ("BGW-01.buffers=100", "VAC-02=1", "VAC-03=0", "WAL-01.age=0", "WAL-02.age=0")
FOUND_AFTER_WORK = {"WAL-01", "WAL-02", "BGW-01", "ARC-01", "REP-04", "VAC-02", "VAC-03"}


def work(server: Throwaway) -> None:
    """More changes than its settings are for, and a subscription without a publisher."""
    with psycopg.connect(conninfo(server), autocommit=True) as connection:
        connection.execute("CREATE TABLE work (id int, filler text)")
        connection.execute("INSERT INTO work SELECT g, repeat('x', 100) FROM generate_series(1, 100000) g")
        connection.execute("CREATE SUBSCRIPTION stopped CONNECTION 'host=nowhere' PUBLICATION p WITH (connect = false)")
        for _ in range(12):
            connection.execute("UPDATE work SET id = id + 1")


@pytest.mark.long
@pytest.mark.parametrize("major", MAJORS)
def test_a_server_that_works_with_too_little(major: int, make_server: Callable[..., Throwaway]) -> None:
    server = make_server(major, **WORKED)
    work(server)
    until = time.monotonic() + DEADLINE_S
    report = checked(server, "postgres", *AFTER_WORK)
    while missing(report, FOUND_AFTER_WORK) and time.monotonic() < until:
        report = checked(server, "postgres", *AFTER_WORK)
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
    with (Path(str(server.data_dir)) / str(row[0])).open("r+b") as file:
        file.seek(4_000)
        file.write(b"damage")
    with psycopg.connect(conninfo(server), autocommit=True) as connection, pytest.raises(psycopg.errors.DataCorrupted):
        connection.execute("SELECT count(*) FROM damaged")
    until = time.monotonic() + DEADLINE_S
    report = checked(server, "postgres", select=("DUR-06",))
    while not report.findings and time.monotonic() < until:
        report = checked(server, "postgres", select=("DUR-06",))
    assert ids(report) == {"DUR-06"}


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


def test_every_question_is_asked_by_a_check_or_with_the_parameters() -> None:
    asked = {need.name for check in chosen((), ()) for need in (*check.needs, *check.asks)}
    asked |= {question.name for question in BESIDE_PARAMETERS}
    assert {question.name for question in QUESTIONS} <= asked


def test_a_server_of_a_major_that_nobody_knows_is_said_to_be_one(newer_server: Throwaway) -> None:
    report = checked(newer_server, "postgres")
    assert "CFG-07 20 is newer than pgtop-tune supports: shown as 19" in sayings(report)
    unknown = {check.id: why.reason for check, why in report.unknowns}
    assert any("safe_wal_size does not exist" in reason for reason in unknown.values())
    assert len(unknown) < len(report.results) / 3
