"""Twenty servers that are stopped while changes of ours are in force: old values in the file, and none is started."""

from __future__ import annotations

import itertools
import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import psycopg
import pytest

from pgtop_tune.cluster.throwaway import Throwaway
from tests.cli.runs import PROGRAM, ROOT, environment, run
from tests.support.by_pg_ctl import auto_conf_of, by_pg_ctl, run_pg_ctl
from tests.support.servers import conninfo

CHANGES: Final = (
    ("work_mem=9MB",),
    ("shared_buffers=48MB", "max_wal_size=2GB", "log_min_messages=error"),
    ("max_connections=77", "search_path=a, \"B\"", "work_mem=9MB"),
    ("log_directory=other", "cluster_name=ü", "checkpoint_timeout=7min"),
)  # fmt: skip
CASES: Final = [
    (major, how, pending)
    for (major, how), pending in itertools.product(
        itertools.product((14, 15, 16, 17, 18), ("fast", "immediate")), (False, True)
    )
]


def is_up(server: Throwaway) -> bool:
    try:
        psycopg.connect(conninfo(server)).close()
    except psycopg.OperationalError:
        return False
    return True


@pytest.mark.long
@pytest.mark.parametrize(("major", "how", "pending"), CASES)
def test_the_old_values_are_in_the_file_and_nobody_starts_it(
    make_server: Callable[..., Throwaway], tmp_path: Path, major: int, how: str, pending: bool
) -> None:
    with by_pg_ctl(make_server(major)) as server:
        run("set", "random_page_cost=1.5", "-d", conninfo(server), home=tmp_path)
        assert run("revert", "-d", conninfo(server), home=tmp_path).status == 0
        before = auto_conf_of(server)
        words = CHANGES[(major + len(how)) % len(CHANGES)]
        if pending:
            process = subprocess.Popen(
                [*PROGRAM, "set", *words, "--for", "3s", "-w", "-d", conninfo(server)],
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                env=environment(tmp_path), cwd=ROOT,
            )  # fmt: skip
            assert process.stderr is not None
            assert any("reverts after" in line for line in process.stderr)
            run_pg_ctl(server, "stop", "-m", how)
            deadline = time.monotonic() + 60
            try:
                while auto_conf_of(server) != before:
                    assert time.monotonic() < deadline, "a pending value stays in the file of a stopped server"
                    time.sleep(0.1)
            finally:
                process.kill()
                process.wait()
        else:
            unlocked = ("--confirm", "search_path") if any("search_path" in word for word in words) else ()
            assert run("set", *words, *unlocked, "-d", conninfo(server), home=tmp_path).status == 0
            run_pg_ctl(server, "stop", "-m", how)
            ran = run("revert", "-d", conninfo(server), home=tmp_path)
            assert ran.status == 0, ran.err
            assert f"{len(words)} change" in ran.out.splitlines()[-1]
            assert auto_conf_of(server) == before
        assert not is_up(server)
        assert run("revert", "--list", home=tmp_path).out == "no changes in force\n"
        run_pg_ctl(server, "start", "-w", "-l", str(Path(str(server.socket_dir)) / "own.log"))
        assert is_up(server)
        assert auto_conf_of(server) == before


@pytest.mark.skipif(os.geteuid() != 0, reason="only root trusts no link of the server's account")
@pytest.mark.also_root
def test_a_data_directory_behind_a_link_of_its_account_is_restored(
    make_server: Callable[..., Throwaway], tmp_path: Path
) -> None:
    with by_pg_ctl(make_server()) as server:
        data = Path(str(server.data_dir))
        run_pg_ctl(server, "stop", "-m", "fast")
        status, real = data.stat(), data.with_name("real")
        data.rename(real)
        data.symlink_to("real")
        os.lchown(data, status.st_uid, status.st_gid)
        run_pg_ctl(server, "start", "-w", "-l", str(Path(str(server.socket_dir)) / "own.log"))
        before = auto_conf_of(server)
        ran = run("set", "work_mem=9MB", "-d", conninfo(server), home=tmp_path)
        assert (ran.status, "was not tried" in ran.err) == (0, False), ran.err
        run_pg_ctl(server, "stop", "-m", "fast")
        ran = run("revert", "-d", conninfo(server), home=tmp_path)
        assert (ran.status, auto_conf_of(server)) == (0, before), ran.err
        data.unlink()
        real.rename(data)
