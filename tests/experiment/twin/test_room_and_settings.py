"""What copies take and what they are set to: refusals have their arithmetic, and nothing leads outwards."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from pgtop_tune.cluster.stopped_directory import StoppedDirectory
from pgtop_tune.errors import ClusterProblem, UsageProblem
from pgtop_tune.experiment.switchback.arms import Rival
from pgtop_tune.experiment.switchback.blocks import Arm
from pgtop_tune.experiment.twin.original import Original, check
from pgtop_tune.experiment.twin.room import DiskUse, check_disk, check_huge_pages, check_memory, cpu_words
from pgtop_tune.experiment.twin.settings import FIXED, check_judged, left_out, of_copy
from pgtop_tune.metrics.memory_rule import MemoryUse
from pgtop_tune.model.host import HugePages
from pgtop_tune.model.instance import ServerPlace
from pgtop_tune.units import GB, MB

RIVALS = (Rival("shared_buffers", "4GB", "8GB"),)
IN_FORCE = (
    ("shared_buffers", "4GB"),
    ("work_mem", "16MB"),
    ("port", "5433"),
    ("archive_command", "cp %p /archive/%f"),
    ("archive_mode", "on"),
    ("synchronous_standby_names", "ANY 1 (s1)"),
    ("primary_conninfo", "host=elsewhere"),
    ("hba_file", "/etc/postgresql/17/main/pg_hba.conf"),
    ("shared_preload_libraries", 'pg_stat_statements, "pg_cron"'),
    ("pg_stat_statements.max", "5000"),
    ("ssl_key_file", "/etc/ssl/key"),
)


def use(shared_bytes: float) -> MemoryUse:
    return MemoryUse(
        major=18, ram_bytes=16 * GB, max_connections=4, shared_buffers_bytes=shared_bytes, work_mem_bytes=4 * MB,
        autovacuum_max_workers=3, maintenance_work_mem_bytes=64 * MB,
    )  # fmt: skip


def test_two_copies_that_do_not_fit_into_memory_are_refused_with_the_sum() -> None:
    uses = {Arm.A: use(4 * GB), Arm.B: use(8 * GB)}
    assert "together 12.4 GB of 13 GB available" in check_memory(uses, 13 * GB)
    with pytest.raises(ClusterProblem, match=r"B: shared_buffers and related memory 8 GB.*together 12.4 GB of 10 GB"):
        check_memory(uses, 10 * GB)
    # Pages that are set aside are no memory that is available.
    assert "together 448 MB of 1 GB available" in check_memory(uses, GB, huge_pages=True)


def test_copies_have_huge_pages_both_or_neither() -> None:
    sizes = {Arm.A: 100 * MB, Arm.B: 300 * MB}
    pool = HugePages(page_bytes=2 * MB, total=300, free=250, reserved=50, surplus=0)
    assert check_huge_pages("try", sizes, pool) == "huge pages: A 50 + B 150 = 200 of 2 MB needed, 200 free"
    assert not check_huge_pages("try", sizes, replace(pool, free=249))
    assert not check_huge_pages("try", sizes, None)
    assert not check_huge_pages("off", sizes, pool)
    with pytest.raises(ClusterProblem, match="200 of 2 MB needed, 199 free"):
        check_huge_pages("on", sizes, replace(pool, free=249))


def test_a_disk_that_is_short_is_refused_with_the_sum() -> None:
    disk = DiskUse("/data", 10 * GB, {Arm.A: 1 * GB, Arm.B: 4 * GB}, 30 * GB)
    assert check_disk(disk) == "disk: 2 × 10 GB of data + 5 GB of WAL = 25 GB of 30 GB free in /data"
    with pytest.raises(ClusterProblem, match="the disk is short for two copies: 2 × 10 GB"):
        check_disk(replace(disk, free_bytes=24 * GB))
    # Something stays free for the server.
    with pytest.raises(ClusterProblem, match=r"5 GB of WAL \+ 1 GB to spare = 26 GB of 25 GB free"):
        check_disk(replace(disk, free_bytes=25 * GB, spare_bytes=GB))


def test_the_cpus_of_a_copy_are_told() -> None:
    assert cpu_words(((0,), (1,)), 2) == "CPUs: 1 of 2 for each copy and its load"
    assert cpu_words(((0, 1), (2, 3)), 5) == "CPUs: 2 of 5 for each copy and its load, 1 left to others"
    assert cpu_words((), 1) == "CPUs: 1, too few for halves: both copies share them"


def test_a_copy_has_what_is_in_force_and_nothing_that_leads_outwards() -> None:
    a, b = (of_copy(IN_FORCE, RIVALS, arm, huge_pages=True) for arm in Arm)
    assert a == dict(FIXED) | {
        "shared_buffers": "4GB", "work_mem": "16MB", "pg_stat_statements.max": "5000",
        "shared_preload_libraries": '"pg_stat_statements"',
    }  # fmt: skip
    assert {name for name in a if a[name] != b[name]} == {"shared_buffers"}
    assert [a[name] for name in ("archive_mode", "synchronous_standby_names", "primary_conninfo")] == ["off", "", ""]
    assert left_out(IN_FORCE) == ("pg_cron",)
    assert of_copy(IN_FORCE, RIVALS, Arm.A, huge_pages=False)["huge_pages"] == "off"


@pytest.mark.parametrize("name", ["port", "archive_mode", "archive_timeout", "ssl", "primary_slot_name", "hba_file"])
def test_what_every_copy_has_of_its_own_is_not_judged(name: str) -> None:
    with pytest.raises(UsageProblem, match="a twin cannot judge it"):
        check_judged([Rival(name, "1", "2")])


@pytest.mark.parametrize("name", ["max_wal_size", "checkpoint_timeout", "wal_compression"])
def test_what_works_through_checkpoints_is_refused_with_the_command_that_judges_it(name: str) -> None:
    with pytest.raises(UsageProblem, match=f"{name} works through checkpoints") as refused:
        check_judged([Rival("shared_buffers", "1GB", "2GB"), Rival(name, "1", "2")])
    assert refused.value.hint == f"pgtop-tune ab {name}=current,2 judges it over whole checkpoint cycles"


HERE = Original(
    version_num=180_000, in_recovery=False, superuser=True, has_replication=True, free_senders=2, free_slots=1,
    identifier="1", in_force=(), tablespaces=(), parameters={}, names=(),
    place=ServerPlace("here:5432", "/nowhere", "pg_ctl", uid=100, gid=100),
)  # fmt: skip


@pytest.mark.parametrize(
    ("original", "euid", "said"),
    [
        (replace(HERE, away="its backend does not run here"), 0, "the server is not on this machine"),
        (HERE, 101, "the copies belong to the server's user"),
        (replace(HERE, place=replace(HERE.place, uid=None)), 0, "the copies belong to the server's user"),
        (replace(HERE, in_recovery=True), 0, "the server is a standby"),
        (replace(HERE, superuser=False), 100, "superuser's session"),
        (replace(HERE, has_replication=False), 0, "wal_level = replica"),
        (replace(HERE, free_senders=1), 0, "needs 2 WAL senders, and 1 are free"),
        (HERE, 0, "/nowhere is not to be seen here"),
    ],
)
def test_a_server_that_cannot_be_copied_is_refused_with_the_reason(original: Original, euid: int, said: str) -> None:
    with pytest.raises(ClusterProblem, match=said):
        check(original, euid)


def test_a_directory_needs_no_walsenders_and_has_to_be_of_the_same_cluster() -> None:
    stopped = StoppedDirectory(
        path=Path("/backup"), identifier=2, entries=(), wal=Path("/backup/pg_wal"), tablespaces=(), backup=True
    )
    with pytest.raises(ClusterProblem, match="/backup is of another cluster than the server"):
        check(HERE, 0, stopped)
    with pytest.raises(ClusterProblem, match="/nowhere is not to be seen here"):
        check(replace(HERE, identifier="2", has_replication=False, free_senders=0), 0, stopped)
