"""`twin` on real servers: refusals, an experiment from its copies to its verdict, and a kill that leaves nothing."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest

from pgtop_tune.cli.twinning import losses
from pgtop_tune.cluster.account import server_account
from pgtop_tune.cluster.leftover_copies import OWNER, PREFIX
from pgtop_tune.cluster.throwaway import Throwaway
from pgtop_tune.experiment.switchback.arms import Rival
from tests.cli.runs import PROGRAM, ROOT, environment, run
from tests.cli.test_set import until
from tests.support.plans import parameter
from tests.support.servers import conninfo

_CHANGING = ("pg_wal", "pg_xact", "pg_stat", "pg_logical", "pg_subtrans", "pg_multixact", "base", "pg_stat_tmp")
"""Directories of a running server in which files change by themselves."""


def still_files(server: Throwaway) -> dict[str, str]:
    """Checksums of the files that nothing changes while a server runs; a checkpoint changes pg_control."""
    return {
        str(path.relative_to(server.data_dir)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(server.data_dir.rglob("*"))
        if path.is_file()
        and path.relative_to(server.data_dir).parts[0] not in _CHANGING
        and path.name not in ("pg_control", "pg_internal.init")
    }


def asked(server: Throwaway, query: str) -> object:
    with psycopg.connect(conninfo(server)) as connection:
        row = connection.execute(query).fetchone()
        assert row is not None
        return row[0]


def test_a_value_that_can_lose_data_says_so_beside_its_verdict() -> None:
    parameters = {name: parameter(name, "on", boot_val="on") for name in ("fsync", "enable_sort")}
    rivals = [Rival("enable_sort", "on", "off"), Rival("fsync", "on", "off")]
    (words,) = losses(parameters, rivals)
    assert words.startswith("fsync = off can lose ")
    assert words.endswith(": this verdict is about its speed alone")


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        ((), 2, "nothing to judge"),
        (("shared_buffers",), 2, "is not NAME=VALUE"),
        (("shared_buffers=1MB", "SHARED_BUFFERS=2MB"), 2, "named twice"),
        (("shared_bufers=1MB",), 2, "did you mean shared_buffers"),
        (("shared_buffers=32MB",), 2, "shared_buffers is 32MB already"),
        (("block_size=4096",), 2, "block_size cannot be changed"),
        (("archive_mode=on",), 2, "a twin cannot judge it"),
        (("shared_buffers=1MB", "--for", "1m"), 2, "1m00s is too short for a verdict"),
        (("shared_buffers=900TB",), 2, "out of range"),
        (("shared_buffers=500GB",), 1, "memory is short for two copies"),
        (("max_wal_size=2GB",), 2, "pgtop-tune ab max_wal_size=current,2GB judges it over whole checkpoint cycles"),
        (("shared_buffers=1MB", "--directory", "/nowhere"), 1, "/nowhere is not a directory"),
        (("shared_buffers=1MB", "--copy", "/nowhere"), 1, "/nowhere is no data directory"),
    ],
)
def test_what_cannot_be_judged_is_refused_before_anything_is_copied(
    server: Throwaway, tmp_path: Path, words: tuple[str, ...], status: int, said: str
) -> None:
    ran = run("twin", *words, "-w", "-d", conninfo(server), home=tmp_path)
    assert said in ran.err
    assert ran.status == status
    assert not list(server.data_dir.parent.glob(f"{PREFIX}*"))


def test_a_load_that_pgbench_would_not_take_is_refused_before_copying(fresh_server: Throwaway, tmp_path: Path) -> None:
    ran = run("twin", "work_mem=8MB", "-R", "-1", "-d", conninfo(fresh_server), home=tmp_path)
    assert (ran.status != 0, ran.out) == (True, ""), ran.err
    assert "the rate must be from 0.001" in ran.err


def test_another_role_than_a_superuser_is_refused(fresh_server: Throwaway, tmp_path: Path) -> None:
    with psycopg.connect(conninfo(fresh_server), autocommit=True) as connection:
        connection.execute("CREATE ROLE watcher LOGIN REPLICATION IN ROLE pg_monitor")
    as_watcher = conninfo(fresh_server).replace("user=postgres", "user=watcher")
    ran = run("twin", "shared_buffers=1MB", "-w", "-d", as_watcher, home=tmp_path)
    assert "a copy takes a superuser's session" in ran.err
    assert ran.status == 1


def test_a_load_without_its_tables_or_with_unlogged_ones_is_refused(fresh_server: Throwaway, tmp_path: Path) -> None:
    """A backup has no rows of unlogged tables."""
    words = ("twin", "work_mem=8MB", "-w", "-d", conninfo(fresh_server))
    ran = run(*words, home=tmp_path)
    assert "create them first: pgtop-tune bench init" in ran.err
    assert ran.status == 4
    run("bench", "init", "-s", "1", "--unlogged", "-w", "-d", conninfo(fresh_server), home=tmp_path)
    ran = run(*words, home=tmp_path)
    assert "unlogged tables are empty in a copy" in ran.err
    assert ran.status == 1


@pytest.fixture
def loaded(make_server: Callable[..., Throwaway], tmp_path: Path) -> Throwaway:
    """A server with pgbench's tables and commits that do not wait for a disk."""
    server = make_server(fsync="on", synchronous_commit="off", shared_buffers="64MB")
    assert run("bench", "init", "-s", "2", "-w", "-d", conninfo(server), home=tmp_path).status == 0
    return server


@pytest.mark.long
def test_buffers_for_next_to_nothing_are_found_worse_and_the_server_is_as_it_was(
    loaded: Throwaway, tmp_path: Path
) -> None:
    before, started = still_files(loaded), asked(loaded, "SELECT pg_postmaster_start_time()")
    ran = run(
        "twin", "shared_buffers=128kB", "-c", "4", "--for", "8m", "--format", "json", "-w", "-d", conninfo(loaded),
        home=tmp_path, timeout_s=900,
    )  # fmt: skip
    record = json.loads(ran.out)
    assert record["format"] == "pgtop-tune-twin/1"
    # A machine that others load may allow no claim; never the wrong one.
    assert record["ending"] in ("worse", "stopped", "undecided", "not attributable"), ran.err
    assert record["evaluation"]["main"]["relative"] < 0.0
    assert ran.status == (0 if record["ending"] in ("worse", "stopped") else 8)
    assert record["placement"].startswith("by ")
    assert {pair["crossed"] for pair in record["pairs"]} == {False, True}
    blocks = [block for pair in record["pairs"] for both in pair["blocks"] for block in (both["a"], both["b"])]
    assert all(0.0 <= block["checkpoint"] <= 1.0 and block["foreign"] >= 0.0 for block in blocks)
    assert len(record["evaluation"]["others"]) == 4 or record["evaluation"]["paired"]["pairs"] < 4
    (kept,) = (tmp_path / ".local/state/pgtop-tune/experiments").glob("twin-*.json")
    assert json.loads(kept.read_text())["pairs"] == record["pairs"]
    assert still_files(loaded) == before
    assert asked(loaded, "SELECT pg_postmaster_start_time()") == started
    assert asked(loaded, "SELECT count(*) FROM pg_replication_slots") == 0
    assert not list(loaded.data_dir.parent.glob(f"{PREFIX}*"))


@pytest.mark.parametrize(
    "moment",
    [
        "warming up",
        pytest.param("copying the server", marks=pytest.mark.long),
        pytest.param("cloning the copy", marks=pytest.mark.long),
    ],
)
def test_a_kill_leaves_no_copy_no_server_and_no_slot(loaded: Throwaway, tmp_path: Path, moment: str) -> None:
    """Also between two servers: while one copy is cloned, nothing runs in the other."""
    before = still_files(loaded)
    home = loaded.data_dir.parent
    process = subprocess.Popen(
        [*PROGRAM, "twin", "shared_buffers=1MB", "-c", "2", "-w", "-d", conninfo(loaded)],
        cwd=ROOT, env=environment(tmp_path), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stderr is not None
    for line in process.stderr:
        if moment in line:
            break
    copies = list(home.glob(f"{PREFIX}*"))
    assert len(copies) == 2
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stderr.close()
    until(lambda: not list(home.glob(f"{PREFIX}*")))
    until(lambda: not _in(copies))
    until(lambda: not _groups_of(process.pid))
    until(lambda: asked(loaded, "SELECT count(*) FROM pg_replication_slots") == 0)
    assert still_files(loaded) == before


@pytest.mark.long
@pytest.mark.parametrize("moment", ["copying the server", "warming up"])
def test_an_interrupt_removes_the_copies_and_keeps_the_record(loaded: Throwaway, tmp_path: Path, moment: str) -> None:
    process = subprocess.Popen(
        [*PROGRAM, "twin", "shared_buffers=1MB", "-c", "2", "-w", "-d", conninfo(loaded)],
        cwd=ROOT, env=environment(tmp_path), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stderr is not None
    for line in process.stderr:
        if moment in line:
            break
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 128 + signal.SIGINT
    assert "interrupted" in out
    assert "removing the copies" in err
    assert not list(loaded.data_dir.parent.glob(f"{PREFIX}*"))
    assert list((tmp_path / ".local/state/pgtop-tune/experiments").glob("twin-*.json"))


def started(server: Throwaway, home: Path, *words: str) -> subprocess.Popen[str]:
    """`twin` under way."""
    return subprocess.Popen(
        [*PROGRAM, "twin", "max_files_per_process=1200", "-c", "2", *words, "-w", "-d", conninfo(server)],
        cwd=ROOT, env=environment(home), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def said_until(process: subprocess.Popen[str], words: str) -> list[str]:
    """Its lines up to the one with these words."""
    assert process.stderr is not None
    lines = []
    for line in process.stderr:
        lines.append(line)
        if words in line:
            return lines
    raise AssertionError("".join(lines))


@pytest.mark.long
def test_copies_of_a_base_backup_run_and_the_backup_stays_as_it_was(loaded: Throwaway, tmp_path: Path) -> None:
    backup = loaded.data_dir.parent / "backup"
    taken = [str(loaded.bin_dir / "pg_basebackup"), "-d", conninfo(loaded), "-D", str(backup), "--checkpoint=fast"]
    subprocess.run(taken, check=True, env=loaded.binaries.environment())
    account = server_account()
    for path in (backup, *backup.rglob("*")):
        account.own(path)
    before = {path: path.read_bytes() for path in backup.rglob("*") if path.is_file()}
    process = started(loaded, tmp_path, "--copy", str(backup))
    said_until(process, "warming up")
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=120)
    assert process.returncode == 128 + signal.SIGINT
    assert {path: path.read_bytes() for path in backup.rglob("*") if path.is_file()} == before
    assert not list(loaded.data_dir.parent.glob(f"{PREFIX}*"))


@pytest.mark.long
def test_a_crash_of_a_copy_ends_the_experiment_in_the_words_of_its_server(loaded: Throwaway, tmp_path: Path) -> None:
    process = started(loaded, tmp_path)
    said_until(process, "warming up")
    first, second = sorted(loaded.data_dir.parent.glob(f"{PREFIX}*"))
    assert first != second
    postmaster = int((first / "data" / "postmaster.pid").read_text().split()[0])
    until(lambda: bool(_backends(postmaster)))
    os.kill(_backends(postmaster)[0], signal.SIGKILL)
    out, _ = process.communicate(timeout=120)
    assert "its server crashed: " in out
    assert "was terminated by signal 9" in out
    assert process.returncode == 4
    assert not list(loaded.data_dir.parent.glob(f"{PREFIX}*"))


@pytest.mark.long
def test_what_a_kill_of_program_and_guards_leaves_is_removed_by_the_next_twin(
    loaded: Throwaway, tmp_path: Path
) -> None:
    process = started(loaded, tmp_path)
    said_until(process, "warming up")
    copies = sorted(loaded.data_dir.parent.glob(f"{PREFIX}*"))
    sockets = [Path(json.loads((copy / OWNER).read_text())["work_dir"]) for copy in copies]
    guards = _children(process.pid)
    for pid in (process.pid, *guards):
        os.kill(pid, signal.SIGKILL)
    process.communicate()
    until(lambda: not _in(copies))
    assert all(path.exists() for path in (*copies, *sockets))
    again = started(loaded, tmp_path)
    lines = "".join(said_until(again, "copying the server"))
    again.send_signal(signal.SIGINT)
    again.communicate(timeout=120)
    assert all(f"{copy} was left of another twin, and is removed" in lines for copy in copies)
    assert not any(path.exists() for path in sockets)
    assert not _groups_of(process.pid)
    assert not list(loaded.data_dir.parent.glob(f"{PREFIX}*"))


def test_the_directory_of_a_running_server_is_not_copied(server: Throwaway, tmp_path: Path) -> None:
    words = ("twin", "shared_buffers=1MB", "--copy", str(server.data_dir))
    ran = run(*words, "-w", "-d", conninfo(server), home=tmp_path)
    assert "a server runs in" in ran.err
    assert ran.status == 1


def _groups_of(pid: int) -> list[Path]:
    """Control groups that a program has made."""
    groups = Path("/sys/fs/cgroup")
    return [*groups.glob(f"pgtop-tune-twin-{pid}-*"), *groups.glob(f"*/pgtop-tune-twin-{pid}-*")]


def _children(pid: int) -> list[int]:
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return [int(word) for task in tasks for word in (task / "children").read_text().split()]


def _backends(postmaster: int) -> list[int]:
    """Sessions of a load."""
    found = []
    for pid in _children(postmaster):
        try:
            words = Path(f"/proc/{pid}/cmdline").read_bytes()
        except OSError:
            continue
        if b"[local]" in words and b"idle in transaction" not in words:
            found.append(pid)
    return found


def _in(copies: list[Path]) -> list[str]:
    """Processes whose command line names one of the copies."""
    found = []
    for directory in Path("/proc").iterdir():
        if directory.name.isdecimal() and int(directory.name) != os.getpid():
            try:
                words = (directory / "cmdline").read_bytes().decode(errors="replace")
            except OSError:
                continue
            found += [words for copy in copies if str(copy) in words]
    return found
