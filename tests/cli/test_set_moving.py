"""`set --restart` and `revert` where the server moves, is slow to come back, or is not the only one that was there."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest

from pgtop_tune.changes.journal import journals, read
from pgtop_tune.cluster.throwaway import Throwaway
from tests.cli.runs import PROGRAM, ROOT, environment, run
from tests.cli.test_set_restart import until
from tests.support.by_pg_ctl import auto_conf_of, by_pg_ctl, run_pg_ctl
from tests.support.servers import conninfo

pytestmark = pytest.mark.long


def started(*words: str, home: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*PROGRAM, *words],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env=environment(home), cwd=ROOT,
    )  # fmt: skip


def at(host: Path, port: int = 5432) -> str:
    return f"host={host} port={port} user=postgres dbname=postgres"


def shown(where: str, name: str) -> str:
    with psycopg.connect(where) as connection:
        row = connection.execute("SELECT current_setting(%s)", (name,)).fetchone()
    assert row is not None
    return str(row[0])


@pytest.fixture
def shared(make_server: Callable[..., Throwaway]) -> Iterator[tuple[Throwaway, Throwaway, Path]]:
    """Two clusters that listen at the same place, one after the other; neither runs."""
    first, second = make_server(), make_server(16)
    directory = Path(tempfile.mkdtemp(prefix="pgtop-both-"))
    owner = Path(str(first.data_dir)).stat()
    os.chown(directory, owner.st_uid, owner.st_gid)
    try:
        with (
            by_pg_ctl(first, unix_socket_directories=str(directory)),
            by_pg_ctl(second, unix_socket_directories=str(directory), port="5433"),
        ):
            for server in (first, second):
                run_pg_ctl(server, "stop", "-m", "fast")
            with (Path(str(second.data_dir)) / "pgtop-tune.conf").open("a") as file:
                file.write("port = 5432\n")
            yield first, second, directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def test_a_port_goes_there_and_back_by_commands(make_server: Callable[..., Throwaway], tmp_path: Path) -> None:
    with by_pg_ctl(make_server()) as server:
        before, old = auto_conf_of(server), ("-d", conninfo(server))
        ran = run("set", "port=6543", "--restart", "--yes", *old, home=tmp_path)
        assert ran.status == 0, ran.err
        assert f"the server is back at {server.socket_dir}:6543" in ran.err
        ran = run("revert", "--last", "--restart", *old, home=tmp_path)
        assert ran.status == 0, ran.err
        assert f"listens at {server.socket_dir}:6543 now" in ran.err
        assert shown(conninfo(server), "port") == "5432"
        assert auto_conf_of(server) == before


@pytest.mark.also_from_one_file
@pytest.mark.usefixtures("started_from")
def test_a_port_on_trial_is_taken_back_after_a_kill(make_server: Callable[..., Throwaway], tmp_path: Path) -> None:
    with by_pg_ctl(make_server()) as server:
        before, words = auto_conf_of(server), ("port=6543", "--restart", "--yes", "--for", "1h", "-w")
        process = started("set", *words, "-d", conninfo(server), home=tmp_path)
        try:
            until(lambda: shown(at(str(server.socket_dir), 6543), "port") == "6543")
        finally:
            process.kill()
            process.communicate()
        until(lambda: shown(conninfo(server), "port") == "5432")
        assert auto_conf_of(server) == before


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_wait_for_a_server_that_lets_nobody_in(
    make_server: Callable[..., Throwaway], tmp_path: Path, number: int
) -> None:
    with by_pg_ctl(make_server()) as server:
        with (Path(str(server.data_dir)) / "pgtop-tune.conf").open("a") as file:
            file.write("hot_standby = off\n")
        signal_file = Path(str(server.data_dir)) / "standby.signal"
        signal_file.touch()
        owner = Path(str(server.data_dir)).stat()
        os.chown(signal_file, owner.st_uid, owner.st_gid)
        words = ("max_connections=111", "--restart", "--yes", "--anyway", "-w", "-d", conninfo(server))
        process = started("set", *words, home=tmp_path)
        try:
            assert process.stderr is not None
            while "the server is starting" not in (line := process.stderr.readline()):
                assert line, "it ended before it waited"
            process.send_signal(number)
            _, err = process.communicate(timeout=30)
        finally:
            process.kill()
            process.communicate()
        assert process.returncode == 128 + number
        assert "the wait has ended: the server is being restarted, and its new values are written" in err
        assert "pgtop-tune revert --last --restart" in err
        signal_file.unlink()
        run_pg_ctl(server, "restart", "-m", "fast", "-w", "-l", str(Path(str(server.socket_dir)) / "own.log"))
        assert shown(conninfo(server), "max_connections") == "111"


def test_the_newest_of_several_at_one_place_is_shown_and_none_is_started_unasked(
    shared: tuple[Throwaway, Throwaway, Path], tmp_path: Path
) -> None:
    old, new, directory = shared
    log = str(directory / "log")
    for server, value in ((old, "48MB"), (new, "64MB")):
        run_pg_ctl(server, "start", "-w", "-l", log)
        ran = run("set", f"shared_buffers={value}", "-d", at(directory), home=tmp_path)
        assert ran.status == 0, ran.err
        run_pg_ctl(server, "stop", "-m", "fast")
    ran = run("revert", "-d", at(directory), home=tmp_path)
    assert ran.status != 0
    assert f"PostgreSQL 16 in {Path(str(new.data_dir))}" in ran.err
    ran = run("revert", "--yes", "-d", at(directory), home=tmp_path)
    assert ran.status != 0
    assert "several data directories" in ran.err
    assert not (Path(str(old.data_dir)) / "postmaster.pid").exists()
    assert not (Path(str(new.data_dir)) / "postmaster.pid").exists()
    texts = [read(path) for path in journals(tmp_path / ".local/state/pgtop-tune/journal")]
    (set_id,) = [
        text.in_force[0].id
        for text in texts
        if text.server_place and text.server_place.data_directory == str(new.data_dir)
    ]
    ran = run("revert", "--set", set_id, "--yes", "-d", at(directory), home=tmp_path)
    assert ran.status == 0, ran.err
    assert shown(at(directory), "data_directory") == str(new.data_dir)
    assert not (Path(str(old.data_dir)) / "postmaster.pid").exists()


def test_another_server_at_the_old_place_does_not_hide_a_set(
    shared: tuple[Throwaway, Throwaway, Path], tmp_path: Path
) -> None:
    moved, other, directory = shared
    log = str(directory / "log")
    run_pg_ctl(moved, "start", "-w", "-l", log)
    ran = run("set", "port=6543", "--restart", "--yes", "-d", at(directory), home=tmp_path)
    assert ran.status == 0, ran.err
    run_pg_ctl(other, "start", "-w", "-l", log)
    (path,) = journals(tmp_path / ".local/state/pgtop-tune/journal")
    ran = run("revert", "--set", read(path).in_force[0].id, "-d", at(directory), home=tmp_path)
    assert ran.status == 0, ran.err
    assert f"the server of {Path(str(moved.data_dir))} listens at {directory}:6543 now" in ran.err
    assert read(path).in_force == ()


def test_a_directory_that_holds_another_cluster_by_now_is_left_alone(
    shared: tuple[Throwaway, Throwaway, Path], tmp_path: Path
) -> None:
    old, other, directory = shared
    run_pg_ctl(old, "start", "-w", "-l", str(directory / "log"))
    ran = run("set", "shared_buffers=48MB", "-d", at(directory), home=tmp_path)
    assert ran.status == 0, ran.err
    run_pg_ctl(old, "stop", "-m", "fast")
    kept = Path(str(old.data_dir)).with_name("kept")
    Path(str(old.data_dir)).rename(kept)
    shutil.copytree(Path(str(other.data_dir)), Path(str(old.data_dir)))
    try:
        ran = run("revert", "--yes", "-d", at(directory), home=tmp_path)
        assert ran.status == 3
        assert f"{Path(str(old.data_dir))} holds another cluster now" in ran.err
        assert not (Path(str(old.data_dir)) / "postmaster.pid").exists()
    finally:
        shutil.rmtree(Path(str(old.data_dir)))
        kept.rename(Path(str(old.data_dir)))
