"""Situations made for real, and the first sentence that is said of them: docs/guide/diagnosis.md has the table.

With PGTOP_TUNE_WRITE_SITUATIONS=1 the table is written anew.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

import psycopg
import pytest

from pgtop_tune.cluster.throwaway import Throwaway
from pgtop_tune.diagnosis.quiet import NONE
from pgtop_tune.diagnosis.rules.cpus import _OTHERS
from tests.support.accounts import require_root
from tests.support.poolers import PgBouncer
from tests.support.real_situations import (
    CGROUPS,
    Said,
    connect,
    control_group,
    device_of,
    initialised,
    said_of,
    spinner,
    under_load,
    without_load,
)
from tests.support.servers import Servers
from tests.support.standby import standby_of

pytestmark = pytest.mark.long

TABLE = Path(__file__).resolve().parents[2] / "docs/guide/diagnosis.md"
WRITES = "PGTOP_TUNE_WRITE_SITUATIONS"
Make = Callable[..., Throwaway]
HOT = "UPDATE hot SET v = v + 1 WHERE id = 1;\n"


def noted(situation: str, said: Said, *expected: str) -> None:
    """Holds the sentence against the rules that may be first, and keeps it.

    Other programs may stand before them, and before "none", where they took as much of the machine as the rule wants.
    """
    print(
        f"\n{situation}: {dict(said.rules)} | {said.last.sentence} | behind: {', '.join(said.others)}"
        f" | taken by others: {100 * said.taken:.0f} %"
    )
    if os.environ.get(WRITES):
        row = f"| {situation} | {said.last.sentence.replace('|', '/')} |"
        text = TABLE.read_text()
        pattern = re.compile(rf"^\| {re.escape(situation)} \|.*$", re.MULTILINE)
        row_end = "<!-- end of the table -->"
        TABLE.write_text(
            pattern.sub(lambda _: row, text) if pattern.search(text) else text.replace(row_end, f"{row}\n{row_end}")
        )
    taken = said.last.rule == "cpu.others" and said.taken >= _OTHERS
    behind = taken and not set(expected).isdisjoint((*said.others, NONE))
    assert said.last.rule in expected or behind, said


def with_hot_row(server: Throwaway) -> None:
    with connect(server) as session:
        session.execute("CREATE TABLE hot (id int PRIMARY KEY, v int)")
        session.execute("INSERT INTO hot SELECT n, 0 FROM generate_series(1, 8) n")


def data_device(server: Throwaway) -> str:
    """Number of the device that the data directory is on, as control groups want it."""
    return device_of(Path(str(server.data_dir)))


@pytest.fixture
def slow_disk() -> None:
    require_root()
    if not (CGROUPS / "blkio/blkio.throttle.write_iops_device").exists():
        pytest.skip("no control groups of version 1 with blkio")


def test_an_idle_server(make_server: Make, tmp_path: Path) -> None:
    noted("an idle server", said_of(without_load(make_server(), tmp_path)), "none")


def test_a_lock_jam(make_server: Make, tmp_path: Path) -> None:
    server = make_server()
    with_hot_row(server)

    def jam(over: threading.Event) -> None:
        if over.wait(12):
            return
        with connect(server) as session, session.transaction():
            session.execute(HOT)
            over.wait(60)

    recording = under_load(
        server, tmp_path, "-c", "16", "-L", "100", script=HOT, beside=lambda over: until(over, 14, jam)
    )
    noted("a session idle in a transaction holds a row", said_of(recording), "out.stall", "lock.jam")


def until(over: threading.Event, seconds: float, work: Callable[[threading.Event], None]) -> None:
    """The work, and its end after so many seconds: pgbench does not stop by itself while it waits for a lock."""
    ends = threading.Event()
    timer = threading.Timer(seconds + 18, ends.set)
    timer.start()
    work(ends)
    timer.cancel()


def test_a_hot_row(make_server: Make, tmp_path: Path) -> None:
    server = make_server()
    with_hot_row(server)
    script = f"BEGIN;\n{HOT}\\sleep 2 ms\nEND;\n"
    noted("one hot row, 16 clients", said_of(under_load(server, tmp_path, "-c", "16", script=script)), "lock.row")


@pytest.mark.root
def test_a_slow_wal_device(make_server: Make, tmp_path: Path, slow_disk: None) -> None:
    server = make_server(fsync="on")
    initialised(server, tmp_path, 20)
    with control_group("blkio", server, blkio__throttle__write_iops_device=f"{data_device(server)} 300"):
        recording = under_load(server, tmp_path, "-c", "16", "--profile", "simple-update")
    noted("WAL on a device of 300 writes per second", said_of(recording), "wal.flush")


@pytest.mark.root
def test_a_hot_row_on_a_slow_wal_device(make_server: Make, tmp_path: Path, slow_disk: None) -> None:
    server = make_server(fsync="on")
    initialised(server, tmp_path, 1)
    with control_group("blkio", server, blkio__throttle__write_iops_device=f"{data_device(server)} 300"):
        recording = under_load(server, tmp_path, "-c", "16", "--profile", "tpcb-like")
    said = said_of(recording)
    # On a machine without a free CPU the holder of the row waits for that as well, and the queue is its own.
    noted("the same device and one hot row", said, "wal.flush", "lock.row")
    assert "wal.flush" in (said.last.rule, *said.others), said


@pytest.mark.root
def test_much_wal(make_server: Make, tmp_path: Path, slow_disk: None) -> None:
    server = make_server(fsync="on", max_wal_size="4GB")
    with connect(server) as session:
        session.execute("CREATE TABLE wide (id bigserial, t text)")
    with control_group("blkio", server, blkio__throttle__write_bps_device=f"{data_device(server)} 30000000"):
        script = "INSERT INTO wide (t) SELECT repeat(md5(n::text), 40) FROM generate_series(1, 50) n;\n"
        recording = under_load(server, tmp_path, "-c", "8", script=script)
    noted(
        "50 wide rows per insert, 30 MB/s", said_of(recording), "wal.volume", "wal.buffers", "io.extend", "ckpt.often"
    )


def test_small_wal_buffers(make_server: Make, tmp_path: Path) -> None:
    server = make_server(fsync="on", wal_buffers="64kB", max_wal_size="4GB")
    with connect(server) as session:
        session.execute("CREATE TABLE wide (id bigserial, t text)")
    script = "INSERT INTO wide (t) SELECT repeat(md5(n::text), 40) FROM generate_series(1, 50) n;\n"
    noted("wal_buffers of 64 kB", said_of(under_load(server, tmp_path, "-c", "8", script=script)), "wal.buffers")


def test_a_full_machine(make_server: Make, tmp_path: Path) -> None:
    server = make_server()
    initialised(server, tmp_path, 2)
    recording = under_load(server, tmp_path, "-c", "16", "-j", "2", "--profile", "select-only")
    noted("point reads, 16 clients, pgbench beside", said_of(recording), "cpu.server", "cpu.pgbench", "cpu.full")


def test_a_client_that_is_the_limit(make_server: Make, tmp_path: Path) -> None:
    server = make_server()
    initialised(server, tmp_path, 2)
    script = "\\set a random_zipfian(1, 100000, 1.2)\n" * 150 + "SELECT 1;\n"
    recording = under_load(server, tmp_path, "-c", "4", "-j", "1", script=script)
    noted("a pgbench script with 150 random numbers", said_of(recording), "client.thread", "cpu.pgbench")


def test_thinking_within_transactions(make_server: Make, tmp_path: Path) -> None:
    script = "BEGIN;\nSELECT 1;\n\\sleep 10 ms\nSELECT 2;\nEND;\n"
    noted(
        "10 ms of thinking within a transaction",
        said_of(under_load(make_server(), tmp_path, "-c", "8", script=script)),
        "client.think",
    )


def test_a_rate_that_is_reached(make_server: Make, tmp_path: Path) -> None:
    server = make_server()
    initialised(server, tmp_path, 2)
    recording = under_load(server, tmp_path, "-c", "4", "-R", "100", "--profile", "select-only")
    noted("a rate of 100 per second", said_of(recording), "none")


def test_checkpoints_without_end(make_server: Make, tmp_path: Path) -> None:
    server = make_server(fsync="on", max_wal_size="64MB", min_wal_size="32MB", checkpoint_timeout="5min")
    initialised(server, tmp_path, 20)
    recording = under_load(server, tmp_path, "-c", "8", "--profile", "simple-update")
    noted("max_wal_size of 64 MB", said_of(recording), "ckpt.often")


def test_spilling_sorts(make_server: Make, tmp_path: Path) -> None:
    server = make_server(work_mem="64kB", fsync="on")
    with connect(server) as session:
        session.execute("CREATE TABLE wide AS SELECT n, repeat(md5(n::text), 10) t FROM generate_series(1, 60000) n")
    script = "SELECT count(*) FROM (SELECT t FROM wide ORDER BY t OFFSET 0) s;\n"
    said = said_of(under_load(server, tmp_path, "-c", "2", script=script))
    noted("sorts of 60,000 rows with little work_mem", said, "io.temp", "cpu.server", "cpu.full", "none")
    assert "io.temp" in (said.last.rule, *said.others), said


def test_connections_run_out(make_server: Make, tmp_path: Path) -> None:
    server = make_server(max_connections="20")
    idle = [connect(server, "idle shop") for _ in range(13)]
    try:
        recording = under_load(server, tmp_path, "-c", "2", "-R", "20", script="SELECT 1;\n")
    finally:
        for session in idle:
            session.close()
    noted("15 of 20 connections", said_of(recording), "full.connections")


def test_a_synchronous_standby_that_is_not_there(make_server: Make, tmp_path: Path) -> None:
    server = make_server(fsync="on")
    with_hot_row(server)

    def waits(ends: threading.Event) -> None:
        if ends.wait(10):
            return
        with connect(server) as session:
            session.execute("ALTER SYSTEM SET synchronous_standby_names = 'nobody'")
            session.execute("SELECT pg_reload_conf()")
            ends.wait(60)
            session.execute("ALTER SYSTEM RESET synchronous_standby_names")
            session.execute("SELECT pg_reload_conf()")

    script = "UPDATE hot SET v = v + 1 WHERE id = :client_id + 1;\n"
    recording = under_load(server, tmp_path, "-c", "8", script=script, beside=lambda over: until(over, 13, waits))
    noted("a synchronous standby that does not exist", said_of(recording), "out.syncrep")


def test_deadlocks(make_server: Make, tmp_path: Path) -> None:
    server = make_server()
    with_hot_row(server)
    script = (
        "\\set a random(1, 8)\n\\set b random(1, 8)\nBEGIN;\nUPDATE hot SET v = v + 1 WHERE id = :a;\n"
        "\\sleep 1 ms\nUPDATE hot SET v = v + 1 WHERE id = :b;\nEND;\n"
    )
    recording = under_load(server, tmp_path, "-c", "8", "--max-tries", "0", script=script)
    noted("two rows of eight in any order", said_of(recording), "lock.dead", "out.stall")


def test_a_table_locked_by_a_waiting_ddl(make_server: Make, tmp_path: Path) -> None:
    server = make_server()
    with_hot_row(server)

    def locks(ends: threading.Event) -> None:
        if ends.wait(10):
            return
        with connect(server, "report") as report, connect(server, "migration") as migration, report.transaction():
            report.execute("SELECT count(*) FROM hot")
            altering = threading.Thread(target=altered, args=(migration,))
            altering.start()
            ends.wait(60)
            report.execute("SELECT 1")
            end_of(server, "migration")
            altering.join()

    script = "SELECT v FROM hot WHERE id = 1;\n"
    recording = under_load(server, tmp_path, "-c", "8", script=script, beside=lambda over: until(over, 13, locks))
    noted("ALTER TABLE behind a long report", said_of(recording), "out.stall", "lock.table")


def altered(session: psycopg.Connection[tuple[object, ...]]) -> None:
    try:
        session.execute("ALTER TABLE hot ADD COLUMN w int")
    except psycopg.Error:
        return


def end_of(server: Throwaway, name: str) -> None:
    with connect(server) as session:
        session.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = %s", [name])


def test_a_connection_for_each_transaction(make_server: Make, tmp_path: Path) -> None:
    server = make_server()
    recording = under_load(server, tmp_path, "-c", "4", "-C", script="SELECT 1;\n")
    noted("a connection for each transaction", said_of(recording), "conn.storm")


@pytest.mark.root
def test_a_quota_of_cpu_time(make_server: Make, tmp_path: Path, slow_disk: None) -> None:
    server = make_server()
    initialised(server, tmp_path, 2)
    with control_group("cpu", server, cpu__cfs_quota_us="10000"):
        recording = under_load(server, tmp_path, "-c", "8", "-j", "1", "--profile", "select-only")
    noted("a quota of 0.1 CPUs", said_of(recording), "cpu.quota")


def test_a_small_pool(make_server: Make, tmp_path: Path) -> None:
    server = make_server()
    with PgBouncer(server, default_pool_size=2) as bouncer:
        script = "BEGIN;\nSELECT 1;\n\\sleep 10 ms\nEND;\n"
        words = ("-c", "16", "-M", "simple", "--pooler", f"bouncer={bouncer.console()}", "--endpoint")
        recording = under_load(server, tmp_path, *words, f"pooled=127.0.0.1:{bouncer.port}", script=script)
    noted("PgBouncer with two connections, 16 clients", said_of(recording), "pool.queue")


def test_other_programs(make_server: Make, tmp_path: Path) -> None:
    server = make_server()
    initialised(server, tmp_path, 2)
    others = [spinner() for _ in range(2 * (os.cpu_count() or 1))]
    try:
        recording = under_load(server, tmp_path, "-c", "4", "-R", "100", "--profile", "select-only")
    finally:
        for other in others:
            other.kill()
            other.wait()
    said = said_of(recording)
    noted("four programs in endless loops beside, 100 per second", said, "cpu.others", "none")
    assert "cpu.others" in (said.last.rule, *said.others), said


@pytest.mark.root
def test_reads_from_a_slow_disk(make_server: Make, tmp_path: Path, slow_disk: None) -> None:
    server = make_server(fsync="on", shared_buffers="16MB")
    initialised(server, tmp_path, 20)

    def forget(over: threading.Event) -> None:
        while not over.wait(0.5):
            for path in (Path(str(server.data_dir)) / "base").rglob("*"):
                if path.is_file():
                    drop(path)

    with control_group("blkio", server, blkio__throttle__read_iops_device=f"{data_device(server)} 400"):
        recording = under_load(server, tmp_path, "-c", "4", "--profile", "select-only", beside=forget)
    noted("reads from a disk of 400 requests per second", said_of(recording), "io.read.disk")


def drop(path: Path) -> None:
    try:
        handle = os.open(path, os.O_RDONLY)
    except OSError:
        return
    try:
        os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(handle)


def test_a_server_that_went_away(make_server: Make, tmp_path: Path) -> None:
    server = make_server()
    timer = threading.Timer(9, lambda: server.stop("immediate"))
    timer.start()
    recording = without_load(server, tmp_path, seconds=20)
    timer.join()
    noted("the server is gone", said_of(recording, judged_s=4), "out.server")


def test_a_slot_without_a_consumer(make_server: Make, tmp_path: Path) -> None:
    server = make_server(max_wal_size="32MB", min_wal_size="32MB")
    with connect(server) as session:
        session.execute("SELECT pg_create_physical_replication_slot('gone', true)")
        session.execute("CREATE TABLE wide (t text)")
    script = "INSERT INTO wide SELECT repeat(md5(n::text), 40) FROM generate_series(1, 50) n;\n"
    said = said_of(under_load(server, tmp_path, "-c", "2", "-R", "60", script=script))
    assert "full.slot" in (said.last.rule, *said.others), said


def test_a_standby_that_applies_late(make_server: Make, servers: Servers, tmp_path: Path) -> None:
    server = make_server(fsync="on")
    with_hot_row(server)
    standby = standby_of(server, make_server, "late", servers.binaries(18))
    with connect(standby) as session:
        session.execute("ALTER SYSTEM SET recovery_min_apply_delay = '60ms'")
        session.execute("SELECT pg_reload_conf()")
    with connect(server) as session:
        session.execute("ALTER SYSTEM SET synchronous_standby_names = '*'")
        session.execute("ALTER SYSTEM SET synchronous_commit = 'remote_apply'")
        session.execute("SELECT pg_reload_conf()")
    script = "UPDATE hot SET v = v + 1 WHERE id = :client_id + 1;\n"
    recording = under_load(server, tmp_path, "-c", "8", script=script)
    with connect(server) as session:
        session.execute("ALTER SYSTEM RESET synchronous_standby_names")
        session.execute("SELECT pg_reload_conf()")
    noted("remote_apply with a standby that applies 60 ms late", said_of(recording), "sync.apply")


def test_many_partitions_without_pruning(make_server: Make, tmp_path: Path) -> None:
    server = make_server(max_locks_per_transaction="10", max_connections="60")
    with connect(server) as session:
        session.execute("CREATE TABLE parts (id int, k int) PARTITION BY RANGE (id)")
        for n in range(100):
            session.execute(f"CREATE TABLE parts_{n} PARTITION OF parts FOR VALUES FROM ({n}) TO ({n + 1})")
        session.execute("CREATE INDEX ON parts (k)")
    script = "\\set k random(1, 1000)\nSELECT count(*) FROM parts WHERE k = :k;\n"
    recording = under_load(server, tmp_path, "-c", "32", "-M", "simple", script=script)
    noted(
        "100 partitions, none pruned, 32 clients",
        said_of(recording),
        "lw.locks",
        "plan.time",
        "cpu.server",
        "cpu.full",
        "cpu.pgbench",
    )


def test_an_archiver_that_fails(make_server: Make, tmp_path: Path) -> None:
    server = make_server(archive_mode="on", archive_command="false", fsync="on")
    with connect(server) as session:
        session.execute("CREATE TABLE wide (t text)")
    script = "INSERT INTO wide SELECT repeat(md5(n::text), 40) FROM generate_series(1, 50) n;\n"
    said = said_of(under_load(server, tmp_path, "-c", "2", "-R", "60", script=script))
    assert "wal.archive" in said.others, said


def filled(server: Throwaway, *statements: str) -> None:
    with connect(server) as session:
        for statement in statements:
            session.execute(statement)


def test_a_missing_index(make_server: Make, tmp_path: Path) -> None:
    server = make_server(shared_buffers="256MB")
    filled(
        server,
        "CREATE TABLE orders AS SELECT n id, n % 50000 customer, n % 997 amount FROM generate_series(1, 600000) n",
        "VACUUM ANALYZE orders",
    )
    script = "\\set c random(1, 50000)\nSELECT sum(amount) FROM orders WHERE customer = :c;\n"
    said = said_of(under_load(server, tmp_path, "-c", "4", script=script))
    noted("600,000 rows without an index", said, "stmt.scan")
    assert "rows of orders to return 1" in said.last.sentence


def test_a_foreign_key_without_an_index(make_server: Make, tmp_path: Path) -> None:
    server = make_server(shared_buffers="256MB")
    filled(
        server,
        "CREATE TABLE cust (id int PRIMARY KEY)",
        "CREATE TABLE inv (id int PRIMARY KEY, cust int REFERENCES cust)",
        "INSERT INTO cust SELECT n FROM generate_series(1, 300000) n",
        "INSERT INTO inv SELECT n, 1 FROM generate_series(1, 400000) n",
        "VACUUM ANALYZE",
    )
    script = "\\set c random(2, 300000)\nDELETE FROM cust WHERE id = :c;\n"
    said = said_of(under_load(server, tmp_path, "-c", "4", script=script))
    noted("DELETE with a foreign key without an index", said, "stmt.scan")
    assert "likely a foreign key of inv without an index" in said.last.sentence


def test_a_queue_whose_dead_rows_a_report_holds_back(make_server: Make, tmp_path: Path) -> None:
    server = make_server()
    filled(
        server,
        "CREATE TABLE jobs (id bigserial PRIMARY KEY, payload text)",
        "INSERT INTO jobs (payload) SELECT 'x' FROM generate_series(1, 300000)",
    )
    with connect(server, "nightly_report") as report:
        report.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
        report.execute("SELECT count(*) FROM jobs")
        filled(server, "DELETE FROM jobs WHERE id < 300000", "ANALYZE jobs")
        script = (
            "DELETE FROM jobs WHERE id = (SELECT id FROM jobs ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED);\n"
            "INSERT INTO jobs (payload) VALUES ('y');\n"
        )
        said = said_of(under_load(server, tmp_path, "-c", "4", script=script))
    noted("a queue whose dead rows a report holds back", said, "stmt.scan")
    assert "(nightly_report)" in said.last.culprit


def test_an_index_built_concurrently_behind_a_forgotten_transaction(make_server: Make, tmp_path: Path) -> None:
    server = make_server()
    initialised(server, tmp_path, 2)
    with connect(server, "bi_tool") as idle, connect(server, "deploy") as deploy:
        idle.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
        idle.execute("SELECT count(*) FROM pgbench_branches")
        building = threading.Thread(target=built, args=(deploy,))
        building.start()
        recording = without_load(server, tmp_path, seconds=20)
        end_of(server, "deploy")
        building.join()
    said = said_of(recording)
    noted("CREATE INDEX CONCURRENTLY behind a forgotten transaction", said, "lock.jam")
    assert said.last.sentence.startswith("CREATE INDEX (")


def built(session: psycopg.Connection[tuple[object, ...]]) -> None:
    try:
        session.execute("CREATE INDEX CONCURRENTLY ON pgbench_accounts (abalance)")
    except psycopg.Error:
        return


@pytest.mark.root
def test_commits_that_notify(make_server: Make, tmp_path: Path, slow_disk: None) -> None:
    server = make_server(fsync="on")
    filled(server, "CREATE TABLE n (t text)")
    script = "BEGIN;\nINSERT INTO n VALUES ('x');\nSELECT pg_notify('changes', 'x');\nEND;\n"
    with control_group("blkio", server, blkio__throttle__write_iops_device=f"{data_device(server)} 300"):
        recording = under_load(server, tmp_path, "-c", "16", script=script)
    noted("NOTIFY in each of 16 writers", said_of(recording), "lock.other")


def test_decoding_that_spills(make_server: Make, tmp_path: Path) -> None:
    server = make_server(wal_level="logical", logical_decoding_work_mem="64kB", max_wal_size="2GB")
    filled(
        server,
        "CREATE TABLE wide (id int, t text)",
        "SELECT pg_create_logical_replication_slot('cdc', 'test_decoding')",
        "INSERT INTO wide SELECT n, repeat(md5(n::text), 4) FROM generate_series(1, 1500000) n",
    )

    def decodes(over: threading.Event) -> None:
        with connect(server, "cdc") as session:
            while not over.is_set():
                session.execute("SELECT count(*) FROM pg_logical_slot_peek_changes('cdc', NULL, NULL)")

    recording = under_load(server, tmp_path, "-c", "2", "-R", "50", script="SELECT 1;\n", beside=decodes)
    said = said_of(recording)
    assert "slot.spill" in (said.last.rule, *said.others), said


def test_jit_compilation_of_short_statements(make_server: Make, tmp_path: Path) -> None:
    server = make_server(15, jit_above_cost="10")
    with connect(server) as session:
        if session.execute("SELECT pg_jit_available()").fetchone() != (True,):
            pytest.skip("this server has no JIT")
    initialised(server, tmp_path, 2)
    script = (
        "\\set a random(1, 100000)\n"
        "SELECT sum(abalance + bid * 2 + aid % 7) FROM pgbench_accounts WHERE aid BETWEEN :a AND :a + 3000;\n"
    )
    noted("JIT above a cost of 10", said_of(under_load(server, tmp_path, "-c", "3", script=script)), "plan.jit")


@pytest.mark.parametrize("tracked", ["off", "on"])
def test_planning_of_many_partitions(make_server: Make, tmp_path: Path, tracked: str) -> None:
    settings = {"pg_stat_statements.track_planning": tracked, "max_parallel_workers_per_gather": "0"}
    server = make_server(**settings)
    filled(
        server,
        "CREATE TABLE big (id int, d int, v int) PARTITION BY RANGE (d)",
        *(f"CREATE TABLE big_{n} PARTITION OF big FOR VALUES FROM ({n}) TO ({n + 1})" for n in range(300)),
    )
    script = "\\set k random(1, 300)\nSELECT count(*) FROM big a JOIN big b USING (id) WHERE a.v = :k;\n"
    said = said_of(under_load(server, tmp_path, "-c", "3", "-M", "simple", script=script))
    noted(f"300 partitions in each plan, track_planning {tracked}", said, "plan.time")


def test_a_query_for_each_row(make_server: Make, tmp_path: Path) -> None:
    server = make_server()
    initialised(server, tmp_path, 2)
    query = "\\set a random(1, 200000)\nSELECT * FROM pgbench_accounts WHERE aid = :a;\n\\sleep 1 ms\n"
    said = said_of(under_load(server, tmp_path, "-c", "2", "-j", "1", script=f"BEGIN;\n{query * 100}END;\n"))
    noted("100 queries in each transaction", said, "client.think")
    assert "executions per transaction of SELECT * FROM pgbench_accounts" in said.last.sentence


def test_a_storm_of_timeouts(make_server: Make, tmp_path: Path) -> None:
    server = make_server(shared_buffers="256MB")
    filled(
        server,
        "CREATE TABLE orders AS SELECT n id, n % 997 amount, repeat('x', 40) note FROM generate_series(1, 1200000) n",
        "VACUUM ANALYZE orders",
    )
    over = threading.Event()

    def retries() -> None:
        with connect(server, "web") as session:
            session.execute("SET statement_timeout = '300ms'")
            while not over.is_set():
                with suppress(psycopg.errors.QueryCanceled):
                    session.execute("SELECT sum(amount * sqrt(id)) FROM orders WHERE note LIKE '%y%z%'")

    clients = [threading.Thread(target=retries) for _ in range(6)]
    for client in clients:
        client.start()
    recording = without_load(server, tmp_path, seconds=24)
    over.set()
    for client in clients:
        client.join()
    noted("statements that time out and are sent again", said_of(recording), "stmt.fails")


@pytest.mark.root
def test_a_synchronous_standby_on_a_slow_disk(
    make_server: Make, servers: Servers, tmp_path: Path, slow_disk: None
) -> None:
    server = make_server(fsync="on")
    initialised(server, tmp_path, 2)
    standby = standby_of(server, partial(make_server, fsync="on"), "replica1", servers.binaries(18))
    filled(server, "ALTER SYSTEM SET synchronous_standby_names = '*'", "SELECT pg_reload_conf()")
    with control_group("blkio", standby, blkio__throttle__write_iops_device=f"{data_device(standby)} 60"):
        recording = under_load(server, tmp_path, "-c", "8", "--profile", "simple-update")
    filled(server, "ALTER SYSTEM RESET synchronous_standby_names", "SELECT pg_reload_conf()")
    said = said_of(recording)
    noted("a synchronous standby on a disk of 60 writes per second", said, "sync.disk")
    assert "(flush)" in said.last.sentence
