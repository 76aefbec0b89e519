"""A server of our own is there when we need it and gone afterwards, for root and for everybody else."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import LiteralString

import psycopg
import pytest

from pgtop_tune.base.errors import ClusterProblem
from pgtop_tune.cluster.binaries import Binaries, inspect
from pgtop_tune.cluster.throwaway import KEPT, Throwaway
from tests.support.processes import alive, eventually
from tests.support.quick_server import QUICK
from tests.support.servers import Servers, conninfo

ROOT = Path(__file__).resolve().parents[2]

SCRIPT = """
import sys, time
from pathlib import Path
from pgtop_tune.cluster.binaries import find_binaries
from pgtop_tune.cluster.throwaway import Throwaway
def step(words):
    print("step", words, flush=True)
server = Throwaway.create(find_binaries(Path(sys.argv[1])), settings={"fsync": "off"}, on_step=step)
print(server.socket_dir, server.postmaster_pid, flush=True)
time.sleep(60)
"""


@pytest.fixture
def embedded(servers: Servers) -> Binaries:
    return servers.binaries(18)


@pytest.fixture
def reachable() -> Iterator[Path]:
    """A directory that other users may enter, which pytest's own is not."""
    with tempfile.TemporaryDirectory(prefix="reach-") as name:
        Path(name).chmod(0o755)
        yield Path(name)


def one(connection: psycopg.Connection, query: LiteralString) -> object:
    row = connection.execute(query).fetchone()
    assert row is not None
    return row[0]


def script(binaries: Binaries, **environment: str) -> subprocess.Popen[str]:
    """SCRIPT in a process of its own."""
    return subprocess.Popen(
        [sys.executable, "-c", SCRIPT, str(binaries.bin_dir)],
        stdout=subprocess.PIPE,
        text=True,
        env={"PATH": os.defpath, "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1", **environment},
        cwd="/",
    )


def answer(running: subprocess.Popen[str]) -> tuple[Path, int]:
    """Socket directory and postmaster of a SCRIPT."""
    assert running.stdout is not None
    for line in running.stdout:
        if not line.startswith("step "):
            directory, pid = line.split()
            return Path(directory), int(pid)
    raise AssertionError("the script ended without a server")


def test_every_major_takes_connections_and_has_statement_statistics(all_servers: Throwaway) -> None:
    assert all_servers.has_statements
    with psycopg.connect(conninfo(all_servers)) as connection:
        assert one(connection, "SELECT current_setting('server_version_num')::int") == all_servers.binaries.version_num
        assert one(connection, "SELECT current_setting('track_io_timing')") == "on"
        assert isinstance(one(connection, "SELECT count(*) FROM pg_stat_statements"), int)


def test_new_databases_have_statement_statistics(database: str) -> None:
    with psycopg.connect(database) as connection:
        assert isinstance(one(connection, "SELECT count(*) FROM pg_stat_statements"), int)


def test_it_is_private_and_listens_on_its_socket_only(server: Throwaway) -> None:
    assert Path(str(server.socket_dir)).stat().st_mode & 0o777 == 0o700
    assert Path(str(server.log_file)).stat().st_mode & 0o077 == 0
    with psycopg.connect(conninfo(server)) as connection:
        assert one(connection, "SELECT current_setting('listen_addresses')") == ""
        assert one(connection, "SELECT current_setting('data_directory')") == str(server.data_dir)


def test_the_server_is_ours_and_that_of_root_an_unprivileged_accounts(server: Throwaway) -> None:
    status = Path(f"/proc/{server.postmaster_pid}/status").read_text()
    uid = next(line for line in status.splitlines() if line.startswith("Uid:")).split()[1]
    if os.geteuid() == 0:
        assert pwd.getpwuid(int(uid)).pw_name in ("postgres", "nobody")
    else:
        assert int(uid) == os.geteuid()
    assert Path(str(server.data_dir)).stat().st_uid == int(uid)


@pytest.mark.long
@pytest.mark.root
def test_programs_that_only_root_can_reach_are_copied(embedded: Binaries, tmp_path: Path) -> None:
    home = tmp_path / "home"
    package = embedded.bin_dir.parents[1]
    shutil.copytree(package, home / package.name)
    for libraries in package.parent.glob("*.libs"):
        shutil.copytree(libraries, home / libraries.name)
    for each in home.rglob("*"):
        each.chmod(each.stat().st_mode & 0o700)
    home.chmod(0o700)
    hidden = inspect(home / embedded.bin_dir.relative_to(package.parent), "hidden")
    steps: list[str] = []
    with Throwaway.create(hidden, settings=QUICK, on_step=steps.append) as server:
        assert steps[0].startswith("copying the programs")
        assert server.bin_dir == hidden.bin_dir
        with psycopg.connect(conninfo(server)) as connection:
            assert isinstance(one(connection, "SELECT count(*) FROM pg_stat_statements"), int)
    assert not Path(str(server.socket_dir)).exists()


@pytest.mark.parametrize("ending", [signal.SIGKILL, signal.SIGTERM, signal.SIGHUP])
def test_nothing_is_left_when_its_parent_is_killed(embedded: Binaries, ending: signal.Signals) -> None:
    with script(embedded) as running:
        directory, postmaster = answer(running)
        client = psycopg.connect(f"host={directory} user=postgres dbname=postgres")
        backend = client.info.backend_pid
        running.send_signal(ending)
    assert eventually(lambda: not alive(postmaster))
    assert eventually(lambda: not alive(backend))
    assert eventually(lambda: not directory.exists())
    client.close()


def test_nothing_is_left_when_its_parent_is_killed_while_the_cluster_is_made(
    embedded: Binaries, reachable: Path
) -> None:
    with script(embedded, TMPDIR=str(reachable)) as running:
        assert eventually(lambda: any(reachable.glob("*/pg/data/PG_VERSION")))
        running.kill()
    assert eventually(lambda: not any(reachable.iterdir()))


def test_stopping_ends_it_and_removes_everything(fresh_server: Throwaway) -> None:
    postmaster = fresh_server.postmaster_pid
    fresh_server.stop()
    assert not alive(postmaster)
    assert not Path(str(fresh_server.socket_dir)).exists()
    fresh_server.stop()
    with pytest.raises(ClusterProblem, match="is not running"):
        _ = fresh_server.postmaster_pid


def test_a_restart_keeps_the_data_and_takes_settings_up(fresh_server: Throwaway) -> None:
    before = fresh_server.postmaster_pid
    with psycopg.connect(conninfo(fresh_server), autocommit=True) as connection:
        connection.execute("CREATE TABLE kept AS SELECT 7 AS value")
        connection.execute("ALTER SYSTEM SET max_connections = 33")
    fresh_server.restart()
    assert fresh_server.postmaster_pid != before
    with psycopg.connect(conninfo(fresh_server)) as connection:
        assert one(connection, "SELECT value FROM kept") == 7
        assert one(connection, "SELECT current_setting('max_connections')") == "33"


def test_a_restart_that_fails_shows_the_last_words_and_can_be_mended(fresh_server: Throwaway) -> None:
    with psycopg.connect(conninfo(fresh_server), autocommit=True) as connection:
        connection.execute("ALTER SYSTEM SET max_connections = 1")
    with pytest.raises(ClusterProblem, match="must be less than"):
        fresh_server.restart()
    (Path(str(fresh_server.data_dir)) / "postgresql.auto.conf").write_text("")
    fresh_server.restart()
    assert alive(fresh_server.postmaster_pid)


def test_settings_it_cannot_start_with_are_told_in_its_words_and_nothing_is_left(
    embedded: Binaries, reachable: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(reachable))
    with pytest.raises(ClusterProblem, match='invalid value for parameter "shared_buffers": "lots"'):
        Throwaway.create(embedded, settings={"shared_buffers": "lots"})
    assert not any(reachable.iterdir())


def test_a_long_path_for_temporary_files_is_no_obstacle(
    embedded: Binaries, reachable: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    long = reachable / ("x" * 100)
    long.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(long))
    with Throwaway.create(embedded, settings=QUICK) as server, psycopg.connect(conninfo(server)) as connection:
        assert one(connection, "SELECT 1") == 1


def test_a_kept_cluster_is_used_again(embedded: Binaries, reachable: Path) -> None:
    keep = reachable / 'a place, "kept"'
    with (
        Throwaway.create(embedded, keep=keep, settings=QUICK) as server,
        psycopg.connect(conninfo(server), autocommit=True) as connection,
    ):
        connection.execute("CREATE TABLE kept AS SELECT 7 AS value")
    assert not Path(str(server.socket_dir)).exists()
    steps: list[str] = []
    with (
        Throwaway.create(embedded, keep=keep, settings={**QUICK, "work_mem": "7MB"}, on_step=steps.append) as server,
        psycopg.connect(conninfo(server)) as connection,
    ):
        assert one(connection, "SELECT value FROM kept") == 7
        assert one(connection, "SELECT current_setting('work_mem')") == "7MB"
    assert steps == ["starting the server"]
    assert (keep / "data" / "PG_VERSION").exists()


def test_a_kept_cluster_keeps_its_settings_until_it_is_given_others(embedded: Binaries, reachable: Path) -> None:
    def work_mem(settings: dict[str, str] | None) -> object:
        with (
            Throwaway.create(embedded, keep=reachable / "kept", settings=settings) as server,
            psycopg.connect(conninfo(server)) as connection,
        ):
            return one(connection, "SELECT current_setting('work_mem')")

    assert work_mem({"work_mem": "7MB"}) == "7MB"
    assert work_mem(None) == "7MB"
    with pytest.raises(ClusterProblem, match="shared_buffers"):
        work_mem({"shared_buffers": "lots"})
    assert work_mem(None) == "7MB"
    assert work_mem({}) == "4MB"


def test_a_running_server_is_given_other_settings_and_has_its_former_ones_where_it_does_not_start(
    embedded: Binaries, reachable: Path
) -> None:
    keep = reachable / "kept"
    with Throwaway.create(embedded, keep=keep, settings=QUICK) as server:
        server.configure({**QUICK, "work_mem": "7MB"})
        with psycopg.connect(conninfo(server)) as connection:
            assert one(connection, "SELECT current_setting('work_mem')") == "7MB"
        with pytest.raises(ClusterProblem, match="max_connections"):
            server.configure({"max_connections": "1", "work_mem": "8MB"})
    with Throwaway.create(embedded, keep=keep) as server, psycopg.connect(conninfo(server)) as connection:
        assert one(connection, "SELECT current_setting('work_mem')") == "7MB"


def test_a_kept_cluster_of_another_major_is_refused(embedded: Binaries, reachable: Path) -> None:
    (reachable / KEPT).touch()
    (reachable / "data").mkdir()
    (reachable / "data" / "PG_VERSION").write_text("15\n")
    with pytest.raises(ClusterProblem, match=r"contains a cluster of PostgreSQL 15, but the programs are version 18\."):
        Throwaway.create(embedded, keep=reachable)
    assert [each.name for each in (reachable / "data").iterdir()] == ["PG_VERSION"]


def test_a_directory_of_somebody_else_is_not_taken(
    embedded: Binaries, tmp_path: Path, reachable: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(reachable))
    (tmp_path / "PG_VERSION").write_text("18\n")
    before = tmp_path.stat()
    with pytest.raises(ClusterProblem, match="is not empty"):
        Throwaway.create(embedded, keep=tmp_path)
    after = tmp_path.stat()
    assert [each.name for each in tmp_path.iterdir()] == ["PG_VERSION"]
    assert (before.st_uid, before.st_mode) == (after.st_uid, after.st_mode)
    assert not any(reachable.iterdir())


@pytest.mark.root
def test_a_place_the_server_cannot_get_to_is_told(embedded: Binaries, reachable: Path) -> None:
    (reachable / "closed").mkdir(mode=0o700)
    with pytest.raises(ClusterProblem, match="which cannot access"):
        Throwaway.create(embedded, keep=reachable / "closed" / "kept")
