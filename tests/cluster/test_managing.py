"""What restarts a server: by what the kernel tells of its postmaster."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest
from msgspec.structs import replace

from pgtop_tune.cluster import postmaster
from pgtop_tune.cluster.postmaster import Here, Postmaster, managed, postmaster_of

DATA: Final = "/srv/pg"
CONF: Final = "/srv/pg/postgresql.conf"
DEBIAN_CONF: Final = "/etc/postgresql/17/main/postgresql.conf"
ROOT: Final = Here(0, lambda unit, of_user: 0, lambda name: True)
SERVER: Final = Postmaster(
    pid=700,
    uid=26,
    gid=26,
    program="/usr/pgsql-17/bin/postgres",
    arguments=(),
    cgroup="/",
    parent_pid=1,
    parent=("/sbin/init",),
    environment=(),
    stderr_file="/var/log/pg.log",
)
UNIT: Final = replace(SERVER, cgroup="/system.slice/system-postgresql.slice/postgresql@17-main.service")


def as_unit(pid: int, euid: int = 0) -> Here:
    return Here(euid, lambda unit, of_user: pid, lambda name: True)


def test_root_restarts_a_unit_of_systemd() -> None:
    found = managed(UNIT, DATA, CONF, as_unit(700))
    assert found.restart == ("systemctl", "restart", "postgresql@17-main.service")
    assert found.start == ("systemctl", "start", "postgresql@17-main.service")
    assert (found.unit, found.why_not) == ("postgresql@17-main.service", "")


def test_others_are_told_the_command_of_a_unit() -> None:
    found = managed(UNIT, DATA, CONF, as_unit(700, euid=1000))
    assert (found.restart, found.start) == ((), ())
    assert found.command == "sudo systemctl restart postgresql@17-main.service"
    assert "root" in found.why_not


def test_a_server_somebody_started_from_a_service_is_not_that_service() -> None:
    """Started by hand in a session of ssh.service or cron.service: restarting that would end the wrong thing."""
    server = replace(SERVER, cgroup="/system.slice/cron.service")
    assert managed(server, DATA, CONF, as_unit(1)).description == "pg_ctl"


@pytest.mark.parametrize(("euid", "ours"), [(1000, True), (0, False)])
def test_a_unit_of_a_user_is_restarted_by_that_user(euid: int, ours: bool) -> None:
    server = replace(SERVER, cgroup="/user.slice/user-1000.slice/user@1000.service/app.slice/pg.service")
    found = managed(server, DATA, CONF, as_unit(700, euid))
    assert found.command == "systemctl --user restart pg.service"
    assert bool(found.restart) is ours


@pytest.mark.parametrize(("euid", "ours"), [(0, True), (26, True), (1000, False)])
def test_a_cluster_of_debian_is_restarted_by_pg_ctlcluster(
    euid: int, ours: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postmaster, "content_of", lambda path, most: f"port=1\ndata_directory = '{DATA}'\n".encode())
    found = managed(SERVER, DATA, DEBIAN_CONF, as_unit(0, euid))
    assert found.command.endswith("pg_ctlcluster 17 main restart -m fast")
    assert found.restart == (("pg_ctlcluster", "17", "main", "restart", "-m", "fast") if ours else ())


def test_a_copy_with_the_configuration_of_a_cluster_is_not_that_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postmaster, "content_of", lambda path, most: f"data_directory = '{DATA}'\n".encode())
    assert "pg_ctlcluster" not in managed(SERVER, "/srv/copy", DEBIAN_CONF, ROOT).command


def test_pg_ctl_gets_the_options_back_that_the_server_had(tmp_path: Path) -> None:
    (tmp_path / "pg_ctl").touch()
    server = replace(SERVER, program=str(tmp_path / "postgres"), arguments=("-c", "log_line_prefix=%m '; reboot"))
    found = managed(server, DATA, CONF, ROOT)
    assert found.as_owner
    assert found.restart[:4] == (str(tmp_path / "pg_ctl"), "restart", "-m", "fast")
    assert found.start[-2:] == ("-o", "-c 'log_line_prefix=%m '\"'\"'; reboot'")
    assert found.start[found.start.index("-l") :][:2] == ("-l", "/var/log/pg.log")


@pytest.mark.parametrize(
    ("parent", "said"),
    [
        (("/usr/bin/python3", "-I", "/x/pgtop_tune/process/guard.py"), "only the pgtop-tune that created"),
        (("/usr/bin/python3", "/usr/bin/patroni", "/etc/patroni.yml"), "patronictl"),
        (("/usr/bin/containerd-shim-runc-v2",), "containerd-shim-runc-v2"),
        ((), "process"),
    ],
)
def test_what_would_miss_its_server_restarts_it_by_itself(parent: tuple[str, ...], said: str) -> None:
    found = managed(replace(SERVER, parent_pid=650, parent=parent), DATA, CONF, ROOT)
    assert (found.restart, found.start) == ((), ())
    assert said in found.why_not


@pytest.mark.parametrize(
    ("server", "words", "why_not"),
    [
        (replace(SERVER, pid=1, parent_pid=0, parent=()), "process 1 of its container", "which ends with the server"),
        (
            replace(SERVER, parent_pid=0, parent=()),
            "a program outside its container runs it",
            "restart the server there",
        ),
        (
            replace(SERVER, parent=("/usr/bin/tini", "--", "postgres"), begun_by_first=True),
            "tini (process 1 of its container) runs it",
            "tini, process 1 of its container, started it and may end with it: restart the container",
        ),
    ],
)
def test_a_restart_would_end_the_container(server: Postmaster, words: str, why_not: str) -> None:
    found = managed(server, DATA, CONF, ROOT)
    assert (found.description, found.restart, found.start) == (words, (), ())
    assert why_not in found.why_not


def test_a_server_in_the_session_of_process_1_was_started_by_it(tmp_path: Path) -> None:
    for pid, stat in ((1, "1 (tini) S 0 1 1 0"), (7, "7 (postgres) S 1 7 1 0"), (8, "8 (postgres) S 1 8 8 0")):
        (tmp_path / f"proc/{pid}").mkdir(parents=True)
        (tmp_path / f"proc/{pid}/stat").write_text(stat)
    assert [postmaster_of(pid, tmp_path).begun_by_first for pid in (1, 7, 8)] == [False, True, False]


@pytest.mark.skipif(os.geteuid() != 0 or shutil.which("unshare") is None, reason="only root makes a PID namespace")
def test_the_first_process_of_a_real_namespace_is_seen_as_one() -> None:
    program = "from pgtop_tune.cluster.postmaster import postmaster_of; print(postmaster_of(1).parent_pid)"
    words = ["unshare", "--pid", "--fork", "--mount-proc", sys.executable, "-c", program]
    assert subprocess.run(words, capture_output=True, text=True, check=True).stdout == "0\n"


def test_of_a_process_only_what_belongs_to_the_server_is_taken(tmp_path: Path) -> None:
    proc = tmp_path / "proc/70"
    (proc / "fd").mkdir(parents=True)
    (proc / "cmdline").write_bytes(b"/opt/pg/bin/postgres\0-D\0/srv/pg\0-c\0port=5433\0")
    (proc / "stat").write_bytes(b"70 (postgres) S 1 70 70 0")
    (proc / "cgroup").write_text("0::/system.slice/pg.service\n")
    (proc / "environ").write_bytes(b"LANG=C\0PGPASSWORD=hidden\0LD_LIBRARY_PATH=/opt/pg/lib\0")
    os.symlink("/opt/pg/bin/postgres", proc / "exe")
    log = tmp_path / "log"
    log.touch()
    os.symlink(log, proc / "fd/2")
    found = postmaster_of(70, tmp_path)
    assert found.arguments == ("-c", "port=5433")
    assert found.environment == (("LANG", "C"), ("LD_LIBRARY_PATH", "/opt/pg/lib"))
    assert (found.program, found.cgroup, found.parent_pid) == ("/opt/pg/bin/postgres", "/system.slice/pg.service", 1)
    assert found.stderr_file == str(log)
