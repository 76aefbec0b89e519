"""A pooler that is restarted on purpose: a daemon of this machine comes back, also without us."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import msgspec
import psycopg
import pytest

from pgtop_tune.base.errors import UsageProblem
from pgtop_tune.changes.restart.pooler_outages import PoolerOutages, pooler_place
from pgtop_tune.cluster.throwaway import Throwaway, server_account
from tests.changes.server.test_control import ROOT
from tests.support.poolers import LOOPBACK, PgBouncer, program
from tests.support.processes import alive, eventually, revert_watchdogs

PASSWORD = "s3cret"
SCRIPT = """
import sys
import msgspec
from pgtop_tune.changes.restart import pooler_outages
from pgtop_tune.model.instance import ServerPlace
def stand_still(*arguments):
    print("now", flush=True)
    sys.stdin.read()
pooler_outages.start_again = stand_still
pooler = pooler_outages.PoolerOutages(msgspec.json.decode(sys.argv[1], type=ServerPlace))
with pooler.guarded():
    pooler.restart()
"""


@pytest.fixture
def pooler(server: Throwaway) -> Iterator[PgBouncer]:
    """A PgBouncer that has made a daemon of itself, as distributions without systemd start it: beside its files."""
    files = {"pidfile": "DIRECTORY/pid", "logfile": "DIRECTORY/log", "auth_file": "users"}
    with PgBouncer(server, password=PASSWORD, **files) as made:
        made.stop()
        # It may have been killed while it wrote its number.
        (made.directory / "pid").unlink(missing_ok=True)
        account = server_account()
        subprocess.run(
            [program("pgbouncer"), "-d", str(made.directory / "ini")],
            user=account.uid,
            group=account.gid,
            extra_groups=[] if account.uid is not None else None,
            cwd=made.directory,
            check=True,
        )
        assert eventually(lambda: answers(made))
        try:
            yield made
        finally:
            with suppress(OSError):
                os.kill(pid_of(made), signal.SIGKILL)


def pid_of(pooler: PgBouncer) -> int:
    return int((pooler.directory / "pid").read_text())


def answers(pooler: PgBouncer) -> bool:
    try:
        psycopg.connect(f"{pooler.conninfo()} password={PASSWORD}").close()
    except psycopg.OperationalError:
        return False
    return True


def test_a_daemon_is_another_process_afterwards_and_takes_clients(pooler: PgBouncer) -> None:
    pid = pid_of(pooler)
    place = pooler_place(LOOPBACK, pooler.port, [f"{LOOPBACK}:{pooler.port}"])
    PoolerOutages(place).restart()
    assert answers(pooler)
    assert not alive(pid)
    again = pid_of(pooler)
    assert Path(f"/proc/{again}").stat().st_uid == place.uid
    PoolerOutages(place).restore()
    assert pid_of(pooler) == again


def test_it_comes_back_though_we_are_killed(pooler: PgBouncer) -> None:
    place = pooler_place(LOOPBACK, pooler.port, [f"{LOOPBACK}:{pooler.port}"])
    with subprocess.Popen(
        [sys.executable, "-c", SCRIPT, msgspec.json.encode(place).decode()],
        cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    ) as killed:  # fmt: skip
        assert killed.stdout is not None
        assert killed.stdout.readline() == "now\n"
        assert not answers(pooler)
        [watchdog] = revert_watchdogs(killed.pid)
        killed.send_signal(signal.SIGKILL)
    assert eventually(lambda: answers(pooler))
    assert eventually(lambda: not alive(watchdog))


def test_one_that_was_not_named_or_that_another_program_runs_is_refused(server: Throwaway) -> None:
    with PgBouncer(server, password=PASSWORD) as pooler:
        with pytest.raises(UsageProblem, match="is not allowed") as problem:
            pooler_place(LOOPBACK, pooler.port, ["127.0.0.1:1"])
        assert f"--allow-outage {LOOPBACK}:{pooler.port}" in problem.value.hint
        with pytest.raises(UsageProblem, match="runs it, and may end with it"):
            pooler_place(LOOPBACK, pooler.port, [f"{LOOPBACK}:{pooler.port}"])
        with pytest.raises(UsageProblem, match="not this machine"):
            pooler_place("192.0.2.1", 6432, ["192.0.2.1:6432"])
        assert answers(pooler)
