"""A cause stands before the CPUs that it uses, and no figure rests on transactions that the server does not count."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from pgtop_tune.diagnosis.diagnoser import Diagnoser
from pgtop_tune.diagnosis.finding import DeedKind, Diagnosis, FindingKind
from pgtop_tune.metrics.io import database_rates
from pgtop_tune.metrics.server import TPS, why_uncounted
from pgtop_tune.model.host import DiskSample, FileSystem, FileSystemSample
from pgtop_tune.model.io import ArchiverStatus, WalFiles
from pgtop_tune.model.replication import HorizonSample, OpenTransaction
from tests.support.frames import EPOCH_MS, backend, parameter
from tests.support.made_situations import (
    MADE,
    NO_TABLE,
    checkpoints_often,
    idle_disk,
    of_short_age,
    of_statements,
    sampled,
)
from tests.support.relation_frames import relations, table
from tests.support.situations import Situation

MIB = 1 << 20


def said(situation: Situation) -> Diagnosis:
    return Diagnoser().look(situation.interval(40))


def test_transactions_that_the_server_does_not_count_give_no_figure_of_a_transaction() -> None:
    """ "1423 ms of each transaction on a CPU, 4701 ms waiting for one" was said of statements of 11 ms."""
    assert TPS(NO_TABLE.interval(40)) is None
    first = said(NO_TABLE).first
    assert first.sentence == (
        "the server's own work saturates the 2 CPUs: 100 % of the server's time; 100 % by SELECT sum(sqrt(i)) FROM"
        " generate_serie…"
    )
    assert (first.impact_ms, first.share) == (None, pytest.approx(1.0))
    assert not any(" ms" in value for _, value in first.evidence)
    assert ("waiting for a CPU", "6.1 sessions") in first.evidence


@pytest.mark.parametrize(("tps", "counted"), [(0.0, None), (6.0, 6.0)])
def test_sessions_that_are_idle_after_another_statement_have_ended_a_transaction(
    tps: float, counted: float | None
) -> None:
    """A function of 2 ms that reads no table was "0.0 tps" beside 700 queries a second."""

    def idle(second: int, now_ms: int) -> tuple[Any, ...]:
        start = {"query_start_ms": now_ms - 100, "xact_start_ms": None}
        return tuple(backend(pid, now_ms, state="idle", **start) for pid in range(10, 16))

    assert TPS(Situation(load=False, tps=tps, backends=idle).interval(40)) == counted


def test_reads_that_wait_above_a_disk_that_answers_at_once_are_not_its_fault() -> None:
    """With a limit of a control group the advice was more memory, and a faster disk was bought."""
    made = MADE["reads from a disk"][1]
    assert not said(made).first.next_step.startswith("find what limits reads above the disk")

    def quick(second: int) -> DiskSample:
        disk = idle_disk(second).disks[0]
        return DiskSample(float(second), (replace(disk, read_ms=40 * second),))

    first = said(replace(made, host={"disks": quick})).first
    assert first.next_step.startswith("find what limits reads above the disk: io.max of a control group")
    assert ("time per read of the disk", "0.10 ms: the rest is above it") in first.evidence


def test_parallel_workers_are_no_transactions() -> None:
    """They were counted: 100 reports a second with two workers each were 500 tps, and a fifth of their latency."""

    def workers(age_ms: int) -> Any:
        def of_second(second: int, now_ms: int) -> tuple[Any, ...]:
            start_ms = now_ms - age_ms
            return tuple(
                backend(pid, now_ms, backend_type="parallel worker", backend_start_ms=start_ms) for pid in range(10, 26)
            )

        return of_second

    counters = {"database.parallel_workers": 200.0, "databases.parallel_workers": 200.0, "databases.xact_commit": 500.0}
    counted = Situation(load=False, tps=500.0, version_num=180_000, counters=counters, backends=workers(50))
    assert TPS(counted.interval(40)) == pytest.approx(100.0)
    assert database_rates(counted.interval(40))[0].per_s("xact_commit") == pytest.approx(100.0)
    # To 17 samples tell how many begin: 16 workers of up to 70 ms are more than 200 per second.
    brief = Situation(load=False, tps=500.0, version_num=170_000, backends=workers(50))
    assert TPS(brief.interval(40)) is None
    assert "parallel workers" in why_uncounted(brief.interval(40))
    assert TPS(replace(brief, backends=workers(20_000)).interval(40)) == pytest.approx(500.0)


@pytest.mark.parametrize(
    ("tps", "sessions", "age_s"),
    [
        # They have begun at once and have not ended: none had to be counted.
        (0.0, 40, None),
        # As old as so many are at that throughput.
        (16.0, 16, 0.5),
        (4_000.0, 16, 0.002),
    ],
)
def test_transactions_as_old_as_their_number_tells_are_counted(tps: float, sessions: int, age_s: float | None) -> None:
    def of_age(second: int, now_ms: int) -> tuple[Any, ...]:
        start_ms = EPOCH_MS + 38_000 if age_s is None else now_ms - round(1000 * age_s)
        rows = [backend(pid, now_ms, xact_start_ms=start_ms) for pid in range(10, 10 + sessions)]
        return tuple(rows if start_ms <= now_ms else ())

    counted = replace(NO_TABLE, tps=tps, backends=of_age).interval(40)
    assert TPS(counted) == pytest.approx(tps)


CHECKPOINTS = Situation(
    waits={"CPU:": 4.0, "LWLock:WALWrite": 1.8, "IO:WalSync": 0.6}, load=False, tps=5_700.0, cpu=1.3, cpus=2, busy=88.0,
    system=40.0,
    counters={"wal.wal_bytes": 45e6, "wal.wal_fpi": 5_400.0, "wal.lsn_bytes": 45e6, "wal.wal_syncs": 3_000.0},
    parameters=(parameter("max_wal_size", "64", "64MB", "MB"),), server={"checkpoints": checkpoints_often},
)  # fmt: skip


def test_checkpoints_that_make_full_pages_stand_before_the_cpus_that_these_use() -> None:
    """The first line was "the server takes 1.3 of the 2 CPUs", checkpoints came every 0.7 s."""
    queued = replace(CHECKPOINTS, load=True, waits={"CPU:": 1.2, "LWLock:WALWrite": 1.8, "IO:WalSync": 0.6}, queued=3.0,
                     clients=8, latency_ms=1.4)  # fmt: skip
    rules = [finding.rule for finding in said(queued).findings]
    assert rules[0] == "ckpt.often"
    assert "cpu.server" in rules
    # CPUs that programs fill, and not the kernel: full pages are the smaller part.
    assert said(replace(queued, busy=99.0, system=10.0)).first.rule == "cpu.server"


SORT = "SELECT * FROM report ORDER BY k"
SPILLS = Situation(
    load=False, tps=9.4, cpu=1.7, cpus=2, busy=99.0, system=65.0, clients=6,
    counters={"database.temp_bytes": 380e6},
    server={
        **of_statements({"calls": 9, "exec_us": 5_500_000, "temp_blks_written": 9 * 16_384}, text=SORT),
        "waits": sampled({"CPU:": 5.0, "IO:BuffileWrite": 1.2}),
    },
)  # fmt: skip


def test_a_statement_that_spills_is_told_before_the_cpus_that_the_kernel_needs_for_its_files() -> None:
    """ "The server saturates the 2 CPUs" was the first line, and work_mem was not offered for the role."""
    diagnosis = said(SPILLS)
    assert [finding.rule for finding in diagnosis.findings[:2]] == ["io.temp", "cpu.server"]
    first = diagnosis.first
    assert first.deeds[0].target == "ALTER ROLE \"bench\" SET work_mem = '128MB';"
    assert "SET LOCAL) towards 128 MB per execution" in first.next_step
    few_waits = {**SPILLS.server, "waits": sampled({"CPU:": 5.7, "IO:BuffileWrite": 0.5})}
    assert said(replace(SPILLS, system=10.0, server=few_waits)).first.rule == "cpu.server"


MANY = "SELECT sum(v) FROM parts WHERE ref = $1"


def partitions(second: int) -> Any:
    """Two hundred tables of one page, each scanned by each of a thousand executions a second."""
    at = second // 15 * 15
    return relations(
        second,
        tables=tuple(
            table(20_000 + n, f"public.parts_{n}", 0, seq_scan=1_000 * at, seq_tup_read=9_000 * at, n_dead_tup=0)
            for n in range(200)
        ),
    )  # fmt: skip


PARTITIONS = Situation(
    load=False, tps=1_000.0, cpu=1.9, cpus=2, busy=99.0, clients=24,
    server={
        **of_statements({"calls": 1_000, "exec_us": 2_500_000, "rows": 1_000, "shared_blks_hit": 200_000}, text=MANY),
        "waits": sampled({"CPU:": 4.0, "LWLock:LockManager": 2.0}), "relations": partitions,
    },
)  # fmt: skip


def test_pages_of_many_small_scans_are_no_missing_index_and_their_locks_come_first() -> None:
    """200 partitions with an index each were "200 pages to return 1: likely a missing index"."""
    diagnosis = said(PARTITIONS)
    assert [finding.rule for finding in diagnosis.findings[:2]] == ["lw.locks", "cpu.server"]
    assert "each execution scans 200 tables" in diagnosis.first.sentence
    by_pages = next(finding for finding in diagnosis.findings if finding.rule == "stmt.scan")
    assert (by_pages.kind, "missing index" in by_pages.sentence) == (FindingKind.NOTE, False)


def old_writer(second: int) -> HorizonSample:
    """A transaction that wrote for 150,000 transaction ids."""
    writer = OpenTransaction(9, "bench", "app", "client backend", "idle in transaction", EPOCH_MS, 700, None, False)
    return HorizonSample(float(second // 5 * 5), EPOCH_MS + 1000 * second, 150_700, 1, (writer,))


def readers(second: int, now_ms: int) -> tuple[Any, ...]:
    writer = backend(
        9, now_ms, application_name="etl_import", state="idle in transaction", xact_start_ms=EPOCH_MS,
        query_start_ms=EPOCH_MS, state_change_ms=EPOCH_MS, wait_event_type="Client", wait_event="ClientRead",
    )  # fmt: skip
    return (writer, *of_short_age(second, now_ms))


def test_subtransactions_of_an_old_transaction_are_told_with_its_session_before_the_statement_that_waits() -> None:
    """ "SELECT … reads 400 pages to return 1: likely a missing index": 100 keys by index."""
    by_keys = table(16_500, "public.stock", 0)
    stock = lambda second: relations(second, tables=(  # noqa: E731
        replace(by_keys, idx_scan=100_000 * (second // 15 * 15), idx_tup_fetch=100_000 * (second // 15 * 15)),
    ))  # fmt: skip
    overflown = replace(
        PARTITIONS, backends=readers,
        server={
            **of_statements({"calls": 1_000, "exec_us": 2_500_000, "rows": 1_000, "shared_blks_hit": 400_000},
                            text="SELECT sum(n) FROM stock WHERE id IN (SELECT …)"),
            "waits": sampled({"CPU:": 4.0, "LWLock:SubtransSLRU": 2.0}), "relations": stock, "horizon": old_writer,
        },
    )  # fmt: skip
    first = said(overflown).first
    assert (first.rule, first.culprit) == ("slru.sub", "session 9 (etl_import)")
    assert "the oldest writer is session 9 (etl_import), open for 39 s; at SELECT sum(n) FROM stock" in first.sentence
    assert (first.deeds[0].kind, first.deeds[0].target) == (DeedKind.END_SESSION, "9")


def wal_disk(second: int) -> FileSystemSample:
    """1.5 GB, of which 10 MB go each second."""
    at = second // 5 * 5
    left = (1_500 - 10 * at) * MIB
    return FileSystemSample(
        float(at), (FileSystem("/wal", "tmpfs", "wal", ("wal",), 1_500 * MIB, left, left, 0, 0),)
    )  # fmt: skip


def failing(second: int) -> ArchiverStatus:
    at = second // 5 * 5
    segment = "000000010000000000000001"
    return ArchiverStatus(float(at), 0, "", None, at, segment, EPOCH_MS + 1000 * at if at else None, EPOCH_MS)


def test_an_archiver_that_fails_is_told_with_the_time_until_its_disk_is_full_before_max_wal_size_is_reached() -> None:
    """ "No bottleneck: 78 tps": WAL grew by 10 MB/s on 1.5 GB, and was to stop at max_wal_size."""
    quiet = Situation(
        waits={"CPU:": 0.15}, load=False, tps=80.0, cpu=0.1, busy=7.0, clients=2, host={"file_systems": wal_disk},
        counters={"wal.lsn_bytes": 10.0 * MIB},
        parameters=(
            parameter("archive_command", "test -d /mnt/backup", "test -d /mnt/backup"),
            parameter("archive_library", "", ""), parameter("wal_keep_size", "0", "0", "MB"),
        ),
        server={
            "archiver": failing,
            "wal_files": lambda second: WalFiles(float(second // 5 * 5), 10, 10 * MIB * (second // 5 * 5), 0),
        },
    )  # fmt: skip
    first = said(quiet).first
    assert first.sentence == (
        "/wal (wal) will be full in 1m55s: 1.12 GB left; archive_command fails: 23 segments of WAL wait to be archived"
    )
    assert first.short == "/wal will be full in 1m55s: archive_command fails"
    assert {("archive_command", "test -d /mnt/backup"), ("last failed", "000000010000000000000001, 4.0 s ago")} <= set(
        first.evidence
    )
    works = lambda second: replace(failing(second), last_archived_ms=EPOCH_MS + 1000 * second)  # noqa: E731
    archived = replace(quiet, server={**quiet.server, "archiver": works})
    assert said(archived).first.rule == "none"
    # What has to be kept is more than the file system has room for.
    server = {"wal_files": quiet.server["wal_files"]}
    kept = said(replace(quiet, server=server, parameters=(parameter("wal_keep_size", "10240", "10GB", "MB"),))).first
    assert kept.sentence == "/wal (wal) will be full in 1m55s: 1.12 GB left; wal_keep_size is 10GB"
    assert kept.deeds[0].target == "wal_keep_size"
