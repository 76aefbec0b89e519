"""A run that is detached goes on without its terminal, is followed from another, and stopped there."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import psycopg

from pgtop_tune.cluster.throwaway import Throwaway
from tests.cli.runs import PROGRAM, ROOT, environment, run
from tests.cli.test_set import until
from tests.support.locked_server import ask_for_password
from tests.support.processes import descendants, shows
from tests.support.servers import conninfo

PASSWORD = "hunter2-of-the-operator"


def test_a_detached_run_is_followed_left_and_stopped_and_shows_no_password(
    make_server: Callable[..., Throwaway], tmp_path: Path
) -> None:
    server = make_server()
    ask_for_password(server, "boss", PASSWORD)
    with psycopg.connect(conninfo(server), autocommit=True) as connection:
        connection.execute("ALTER ROLE boss SUPERUSER")
    variables = {"PGPASSWORD": PASSWORD}
    place = f"host={server.socket_dir} port={server.port} user=boss dbname=postgres"
    assert run("bench", "init", "-s", "1", "-w", "-d", place, home=tmp_path, variables=variables).status == 0
    before = (Path(str(server.data_dir)) / "postgresql.auto.conf").read_bytes()
    target = f"{place} password={PASSWORD}"
    words = ("ab", "work_mem=current,64MB", "-c", "1", "-R", "100", "--detach", "-w", "-d", target)
    started = run(*words, home=tmp_path, variables=variables)
    assert started.status == 0, started.err
    name, pid = started.out.split()[0], int(started.out.split()[4])
    try:
        follower = subprocess.Popen(
            [*PROGRAM, "experiment", "attach"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True, env=environment(tmp_path), cwd=ROOT,
        )  # fmt: skip
        assert follower.stdout is not None
        assert any("warming up" in line for line in follower.stdout)
        assert any("pgbench" in Path(f"/proc/{each}/comm").read_text() for each in descendants(pid))
        assert shows(pid, PASSWORD) == []
        follower.send_signal(signal.SIGINT)
        _, told = follower.communicate(timeout=60)
        assert (follower.returncode, told.strip()) == (0, f"{name} keeps running")
        status = run("experiment", "status", home=tmp_path)
        assert name in status.out
        assert "no experiments" not in status.out + status.err
        refused = run("set", "work_mem=8MB", "-w", "-d", conninfo(server), home=tmp_path)
        assert refused.status == 2
        assert "work_mem is under experiment (ab, process " in refused.err
        assert f"`pgtop-tune experiment stop {name}`" in refused.err
    finally:
        stopped = run("experiment", "stop", name, home=tmp_path)
    assert stopped.status == 0, stopped.err
    assert "interrupted: stopped by the operator" in run("experiment", "attach", name, home=tmp_path).out
    assert name not in run("experiment", "status", home=tmp_path).out
    until(lambda: (Path(str(server.data_dir)) / "postgresql.auto.conf").read_bytes() == before)
    again = run("experiment", "stop", name, home=tmp_path)
    assert again.status == 2
    assert f"{name} has ended" in again.err


def test_a_detached_run_is_this_program_and_no_module_of_the_directory_it_is_started_in(tmp_path: Path) -> None:
    package, ran_foreign = tmp_path / "hostile/pgtop_tune", tmp_path / "ran"
    package.mkdir(parents=True)
    for name in ("__init__.py", "__main__.py"):
        (package / name).write_text(f"open({str(ran_foreign)!r}, 'w').close()\n")
    words = ["ab", "work_mem=4MB,8MB", "--detach", "-w", "-h", str(tmp_path)]
    started = subprocess.run(
        [sys.executable, "-P", "-m", "pgtop_tune", *words], stdin=subprocess.DEVNULL, capture_output=True, text=True,
        timeout=90, env=environment(tmp_path), cwd=package.parent, check=False,
    )  # fmt: skip
    assert started.returncode == 0, started.stderr
    lines = run("experiment", "attach", started.stdout.split()[0], home=tmp_path)
    assert "nothing is listening on this socket" in lines.out
    assert not ran_foreign.exists()


def test_without_a_detached_run_there_is_nothing_to_follow_and_damaged_files_are_none(tmp_path: Path) -> None:
    directory = tmp_path / ".local/state/pgtop-tune/experiments/detached"
    directory.mkdir(parents=True, mode=0o700)
    (directory / "ab-1.json").write_text("{")
    (directory / "ab-2.json").write_text("[1]")
    found = run("experiment", "attach", home=tmp_path)
    assert found.status == 2
    assert "no detached run" in found.err
