"""Two accounts on one server, on other ways than a connection of their own to a primary that runs on."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import psycopg
import pytest

from pgtop_tune.base.errors import PendingElsewhere
from pgtop_tune.changes.model.change import SYSTEM, Scope, ScopeKind
from pgtop_tune.cluster.throwaway import Throwaway
from pgtop_tune.postgres.server.conninfo import resolve
from tests.changes.server.test_control import ROOT, auto_conf
from tests.changes.server.test_matrix_of_accounts import Account, value
from tests.support.poolers import LOOPBACK, PgBouncer
from tests.support.processes import eventually
from tests.support.servers import Servers, conninfo
from tests.support.standby import standby_of


def through(account: Account, bouncer: PgBouncer) -> Account:
    where = resolve("postgres", host=LOOPBACK, port=str(bouncer.port), user="postgres")
    account.conninfo = account.control.conninfo = where
    return account


@pytest.mark.parametrize(("mode", "major"), [("transaction", 14), ("transaction", 18), ("session", 14)])
async def test_behind_a_pooler_markers_refuse_and_no_lock_stays(
    server_for_major: Callable[[int], Throwaway], tmp_path: Path, mode: str, major: int
) -> None:
    server = server_for_major(major)
    before = auto_conf(server)
    noisy = threading.Event()

    def busy(bouncer: PgBouncer) -> None:
        with bouncer.connect() as connection:
            connection.prepare_threshold = None
            while not noisy.is_set():
                connection.execute("SELECT pg_sleep(0.001)")

    with PgBouncer(server, user="postgres", pool_mode=mode) as bouncer:
        others = [threading.Thread(target=busy, args=(bouncer,)) for _ in range(3)]
        for thread in others:
            thread.start()
        ana, ben = through(Account(server, tmp_path / "ana"), bouncer), Account(server, tmp_path / "ben")
        try:
            for first, second in ((ana, ben), (ben, ana)):
                set_id = await first.set("8MB", SYSTEM, 600.0)
                with pytest.raises(PendingElsewhere, match="work_mem = 8MB is pending confirmation by "):
                    await second.set("16MB", SYSTEM)
                await first.control.revert_set(set_id)
                assert value(server, SYSTEM) is None
            with psycopg.connect(conninfo(server)) as connection:
                locks = connection.execute("SELECT FROM pg_locks WHERE locktype = 'advisory'").fetchall()
            assert locks == []
        finally:
            noisy.set()
            for thread in others:
                thread.join()
            await ana.control.aclose()
            await ben.control.aclose()
    assert auto_conf(server) == before


async def test_a_crash_of_the_server_leaves_the_marker_and_a_server_that_starts(
    fresh_server: Throwaway, tmp_path: Path
) -> None:
    ana, ben = Account(fresh_server, tmp_path / "ana"), Account(fresh_server, tmp_path / "ben")
    set_id = await ana.set("8MB", SYSTEM, 600.0)
    with psycopg.connect(conninfo(fresh_server), autocommit=True) as connection:
        os.kill(connection.info.backend_pid, signal.SIGKILL)
    assert eventually(lambda: value_or_away(fresh_server) == "8MB")
    with pytest.raises(PendingElsewhere, match="work_mem = 8MB is pending confirmation by "):
        await ben.set("16MB", SYSTEM)
    await ana.control.revert_set(set_id)
    assert value(fresh_server, SYSTEM) is None
    await ben.set("16MB", SYSTEM)
    await ben.revert()
    await ana.control.aclose()
    await ben.control.aclose()


def value_or_away(server: Throwaway) -> str | None:
    with suppress(psycopg.OperationalError):
        return value(server, SYSTEM)
    return None


@pytest.mark.long
async def test_on_a_standby_it_holds_and_a_copy_says_where_its_marker_came_from(
    fresh_server: Throwaway, make_server: Callable[..., Throwaway], servers: Servers, tmp_path: Path
) -> None:
    ana = Account(fresh_server, tmp_path / "ana")
    set_id = await ana.set("8MB", SYSTEM, 600.0)
    standby = standby_of(fresh_server, make_server, "copied", servers.binaries(18))
    ben, eve = Account(standby, tmp_path / "ben"), Account(standby, tmp_path / "eve")
    with pytest.raises(PendingElsewhere, match="on the server that this one is a copy of") as refused:
        await ben.set("16MB", SYSTEM)
    assert "revert --adopt" in refused.value.hint
    await ana.control.revert_set(set_id)
    assert value(standby, SYSTEM) == "8MB"
    await ben.revert_adopting()
    assert value(standby, SYSTEM) is None
    set_id = await ben.set("16MB", SYSTEM, 600.0)
    with pytest.raises(PendingElsewhere, match="work_mem = 16MB is pending confirmation by "):
        await eve.set("8MB", SYSTEM)
    await ben.control.revert_set(set_id)
    for each in (ana, ben, eve):
        await each.control.aclose()


AS_NOBODY = """
import importlib, os, pkgutil, pgtop_tune
# The account may not read the interpreter's own files, so all of them are read before.
for module in pkgutil.walk_packages(pgtop_tune.__path__, "pgtop_tune."):
    if not module.name.startswith(("pgtop_tune.tui", "pgtop_tune.__main__")):
        importlib.import_module(module.name)
os.setgroups([])
os.setgid(65534)
os.setuid(65534)
from pgtop_tune.cli.app import main
main()
"""


def command(host: object, port: int, home: Path, *words: str, nobody: bool = False) -> subprocess.Popen[str]:
    """`pgtop-tune` of an account of the operating system."""
    program = ("-c", AS_NOBODY) if nobody else ("-m", "pgtop_tune")
    variables = {"HOME": str(home), "XDG_STATE_HOME": str(home), "PYTHONDONTWRITEBYTECODE": "1"}
    where = ("-h", str(host), "-p", str(port), "-U", "postgres", "-d", "postgres")
    return subprocess.Popen(
        [sys.executable, *program, *words, *where],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd=ROOT,
        env={**os.environ, **variables},
    )


@pytest.fixture
def tmp_path_of_all() -> Iterator[Path]:
    """A directory in which every account may look: pytest's own are private."""
    with tempfile.TemporaryDirectory() as directory:
        Path(directory).chmod(0o755)
        yield Path(directory)


@pytest.mark.skipif(os.geteuid() != 0, reason="another account takes root")
@pytest.mark.parametrize("scope", [(), ("--scope", "database=postgres")], ids=["system", "database"])
def test_another_account_of_the_machine_is_refused_by_name_and_the_value_goes_back(
    server: Throwaway, tmp_path: Path, tmp_path_of_all: Path, scope: tuple[str, ...]
) -> None:
    before = auto_conf(server)
    home = tmp_path_of_all / "nobody"
    home.mkdir()
    os.chown(home, 65534, 65534)
    where = Scope(ScopeKind.DATABASE, database="postgres") if scope else SYSTEM
    off = ("set", "synchronous_commit=off", *scope, "--for", "10m")
    with (
        PgBouncer(server, user="postgres") as bouncer,
        command(server.socket_dir, server.port, tmp_path, *off) as ana,
    ):
        try:
            assert eventually(lambda: value(server, where, "synchronous_commit") == "off")
            words = ("set", "synchronous_commit=remote_write", *scope, "--for", "10m")
            with command(LOOPBACK, bouncer.port, home, *words, nobody=True) as ben:
                said, _ = ben.communicate(timeout=60)
            assert ben.returncode == 6, said
            assert "synchronous_commit = off is pending confirmation" in said
            assert f" by root@{os.uname().nodename} (pid {ana.pid})" in said
        finally:
            ana.terminate()
            ana.communicate(timeout=60)
    assert value(server, where, "synchronous_commit") is None
    assert auto_conf(server) == before
