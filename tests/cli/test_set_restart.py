"""`set --restart` and `revert` on a server that pg_ctl manages, as a user runs them."""

from __future__ import annotations

import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import psycopg
import pytest

from pgtop_tune.cluster.throwaway import Throwaway
from tests.cli.runs import PROGRAM, ROOT, environment, run
from tests.support.by_pg_ctl import auto_conf_of, by_pg_ctl, run_pg_ctl
from tests.support.quick_server import quick_server
from tests.support.servers import Servers, conninfo

TOO_MUCH: Final = "shared_buffers=900GB"


@pytest.fixture(scope="module")
def managed(servers: Servers) -> Iterator[Throwaway]:
    """Started by pg_ctl; every test gives it back as it was."""
    made = quick_server(servers.binaries(18))
    try:
        with by_pg_ctl(made) as server:
            yield server
    finally:
        made.stop("immediate")


def shown(server: Throwaway, name: str) -> str:
    with psycopg.connect(conninfo(server)) as connection:
        row = connection.execute("SELECT current_setting(%s)", (name,)).fetchone()
    assert row is not None
    return str(row[0])


def until(condition: Callable[[], bool], seconds: float = 90) -> None:
    """Waits, also while the server is away."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            if condition():
                return
        except psycopg.OperationalError:
            pass
        assert time.monotonic() < deadline, "it did not come about"
        time.sleep(0.1)


def test_a_restart_is_shown_asked_for_made_and_taken_back_by_another(managed: Throwaway, tmp_path: Path) -> None:
    before = auto_conf_of(managed)
    words = ("set", "shared_buffers=48MB", "max_wal_size=2GB", "--restart", "-d", conninfo(managed))
    ran = run(*words, home=tmp_path)
    assert (ran.status, auto_conf_of(managed)) == (2, before)
    assert "--yes" in ran.err
    assert re.search(r"^shared memory +fine +the server needs", ran.out, re.MULTILINE), ran.out
    assert "pg_ctl restart -D" in ran.out
    ran = run(*words, "--yes", home=tmp_path)
    assert ran.status == 0, ran.err
    assert "shared_buffers: 32MB → 48MB" in ran.out
    assert "the server is back" in ran.err
    assert shown(managed, "shared_buffers") == "48MB"
    revert = ("revert", "-d", conninfo(managed))
    assert "shared_buffers: 48MB → 32MB" in run(*revert, home=tmp_path).out
    ran = run(*revert, home=tmp_path)
    assert (ran.status, ran.out) == (0, "nothing to revert\n")
    assert "shared_buffers: the old value waits for a restart: `pgtop-tune revert --restart`" in ran.err
    ran = run(*revert, "--restart", home=tmp_path)
    assert (ran.status, "the server is back" in ran.err) == (0, True), ran.err
    assert (shown(managed, "shared_buffers"), shown(managed, "max_wal_size")) == ("32MB", "1GB")
    assert auto_conf_of(managed) == before


@pytest.mark.long
def test_what_would_not_start_is_refused_before(managed: Throwaway, tmp_path: Path) -> None:
    before = auto_conf_of(managed)
    ran = run("set", TOO_MUCH, "--restart", "--yes", "-d", conninfo(managed), home=tmp_path)
    assert ran.status == 6
    assert "more than the machine has" in ran.err
    assert "nothing was changed" in ran.err
    assert auto_conf_of(managed) == before


@pytest.mark.long
def test_what_does_not_start_has_its_old_values_and_the_reason_is_told(managed: Throwaway, tmp_path: Path) -> None:
    before = auto_conf_of(managed)
    ran = run("set", TOO_MUCH, "--restart", "--yes", "--anyway", "-d", conninfo(managed), home=tmp_path)
    assert ran.status == 6
    assert "it runs with its old values" in ran.err
    assert "could not map anonymous shared memory" in ran.err
    assert "Traceback" not in ran.err
    assert shown(managed, "shared_buffers") == "32MB"
    assert auto_conf_of(managed) == before


@pytest.mark.long
def test_for_a_while_means_two_restarts_and_says_so(managed: Throwaway, tmp_path: Path) -> None:
    before = auto_conf_of(managed)
    words = ("set", "max_connections=55", "--restart", "--yes", "--for", "1s", "-d", conninfo(managed))
    ran = run(*words, home=tmp_path)
    assert ran.status == 0, ran.err
    assert "with a second restart" in ran.out
    assert "max_connections: 100 → 55" in ran.out
    assert shown(managed, "max_connections") == "100"
    assert auto_conf_of(managed) == before


@pytest.mark.also_from_one_file
@pytest.mark.usefixtures("started_from")
@pytest.mark.long
def test_after_a_kill_the_old_values_are_in_force_again_without_us(managed: Throwaway, tmp_path: Path) -> None:
    before = auto_conf_of(managed)
    process = subprocess.Popen(
        [*PROGRAM, "set", "max_connections=55", "--restart", "--yes", "--for", "1h", "-w", "-d", conninfo(managed)],
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        env=environment(tmp_path), cwd=ROOT,
    )  # fmt: skip
    try:
        until(lambda: shown(managed, "max_connections") == "55")
    finally:
        process.kill()
        process.wait()
    until(lambda: shown(managed, "max_connections") == "100")
    assert auto_conf_of(managed) == before


@pytest.mark.also_from_one_file
@pytest.mark.usefixtures("started_from")
@pytest.mark.long
def test_killed_between_the_revert_and_its_restart_the_watchdog_restarts_the_server(
    managed: Throwaway, tmp_path: Path
) -> None:
    before = auto_conf_of(managed)
    process = subprocess.Popen(
        [*PROGRAM, "set", "max_connections=55", "--restart", "--yes", "--for", "1h", "-w", "-d", conninfo(managed)],
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        env=environment(tmp_path), cwd=ROOT,
    )  # fmt: skip
    try:
        until(lambda: shown(managed, "max_connections") == "55")
        process.send_signal(signal.SIGINT)
        deadline = time.monotonic() + 60
        while auto_conf_of(managed) != before:
            assert time.monotonic() < deadline, "Ctrl-C reverts it"
    finally:
        process.kill()
        process.wait()
    until(lambda: shown(managed, "max_connections") == "100")
    assert auto_conf_of(managed) == before


@pytest.mark.parametrize("how", ["fast", "immediate"])
def test_a_stopped_server_has_its_old_values_in_the_file_and_stays_down(
    managed: Throwaway, tmp_path: Path, how: str
) -> None:
    before = auto_conf_of(managed)
    # One for a restart, one for a reload, and one whose server is found by another name.
    words = ("set", "shared_buffers=48MB", "work_mem=8MB", "-d", conninfo(managed))
    assert run(*words, home=tmp_path).status == 0
    run_pg_ctl(managed, "stop", "-m", how)
    another = tmp_path / "sockets"
    another.symlink_to(str(managed.socket_dir))
    named = conninfo(managed).replace(str(managed.socket_dir), str(another))
    ran = run("revert", "--all", "-d", named, home=tmp_path)
    assert ran.status == 0, ran.err
    assert ran.out.splitlines()[-1] == "2 changes reverted"
    assert f"PostgreSQL 18 in {managed.data_dir}" in ran.err
    assert "the server stays down; this starts it:" in ran.err
    assert auto_conf_of(managed) == before
    with pytest.raises(psycopg.OperationalError):
        shown(managed, "work_mem")
    assert run("revert", "--list", home=tmp_path).out == "no changes in force\n"
    started = re.search(r"this starts it: (?:sudo -u \S+ )?(.*pg_ctl start -D .*)", ran.err)
    assert started is not None
    run_pg_ctl(managed, "start", "-w", "-l", str(Path(str(managed.socket_dir)) / "own.log"))
    assert (shown(managed, "shared_buffers"), shown(managed, "work_mem")) == ("32MB", "4MB")


def test_a_stopped_server_is_started_after_a_yes(managed: Throwaway, tmp_path: Path) -> None:
    before = auto_conf_of(managed)
    assert run("set", "work_mem=8MB", "-d", conninfo(managed), home=tmp_path).status == 0
    run_pg_ctl(managed, "stop", "-m", "fast")
    ran = run("revert", "--all", "--yes", "-d", conninfo(managed), home=tmp_path)
    assert ran.status == 0, ran.err
    assert shown(managed, "work_mem") == "4MB"
    assert auto_conf_of(managed) == before


@pytest.mark.parametrize("up_again", [True, False])
def test_a_pending_value_goes_back_although_the_server_was_stopped(
    managed: Throwaway, tmp_path: Path, up_again: bool
) -> None:
    before = auto_conf_of(managed)
    process = subprocess.Popen(
        [*PROGRAM, "set", "work_mem=9MB", "--for", "2s", "-w", "-d", conninfo(managed)],
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
        env=environment(tmp_path), cwd=ROOT,
    )  # fmt: skip
    assert process.stderr is not None
    start = ("start", "-w", "-l", str(Path(str(managed.socket_dir)) / "own.log"))
    try:
        assert any("reverts after" in line for line in process.stderr)
        run_pg_ctl(managed, "stop", "-m", "immediate")
        if up_again:
            run_pg_ctl(managed, *start)
            until(lambda: shown(managed, "work_mem") == "4MB")
        until(lambda: auto_conf_of(managed) == before)
        if not up_again:
            with pytest.raises(psycopg.OperationalError):
                shown(managed, "work_mem")
            run_pg_ctl(managed, *start)
        assert shown(managed, "work_mem") == "4MB"
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.wait()
    assert run("revert", "--list", home=tmp_path).out == "no changes in force\n"


def test_who_waits_for_somebody_elses_restart_can_stop_waiting(server: Throwaway, tmp_path: Path) -> None:
    words = ("max_connections=66", "--restart", "--yes", "-w", "-d", conninfo(server))
    process = subprocess.Popen(
        [*PROGRAM, "set", *words],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env=environment(tmp_path), cwd=ROOT,
    )  # fmt: skip
    try:
        assert process.stderr is not None
        while "waiting for the restart" not in (line := process.stderr.readline()):
            assert line, "it ended before it waited"
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    finally:
        process.kill()
        process.communicate()
    assert process.returncode == 130, err
    assert "pgtop-tune cannot restart the server: only the pgtop-tune that created this throwaway server" in out
    assert "takes effect when the server is restarted; until then 100" in out
    assert "the server was not restarted: the changes stay pending" in err
    ran = run("revert", "--last", "-d", conninfo(server), home=tmp_path)
    assert ran.status == 0, ran.err


@pytest.mark.long
def test_a_reset_takes_a_restart_as_well(managed: Throwaway, tmp_path: Path) -> None:
    where = ("-d", conninfo(managed))
    assert run("set", "max_connections=55", "--restart", "--yes", *where, home=tmp_path).status == 0
    ran = run("reset", "max_connections", "--restart", "--yes", *where, home=tmp_path)
    assert ran.status == 0, ran.err
    assert "max_connections: 55 → 100" in ran.out
    assert shown(managed, "max_connections") == "100"
    ran = run("revert", "--all", "--restart", *where, home=tmp_path)
    assert ran.status == 0, ran.err
    assert shown(managed, "max_connections") == "100"
