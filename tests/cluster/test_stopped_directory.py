"""Copies of a directory in which no server runs: the same rows, and the directory is as it was; else a refusal."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest
from msgspec.json import encode
from msgspec.structs import replace

from pgtop_tune.cluster.account import server_account
from pgtop_tune.cluster.copied_server import CopiedServer
from pgtop_tune.cluster.leftover_copies import OWNER, CopyOwner, remove_leftovers
from pgtop_tune.cluster.stopped_directory import look_at
from pgtop_tune.cluster.throwaway import Throwaway
from pgtop_tune.errors import ClusterProblem
from pgtop_tune.process import guard
from pgtop_tune.process.process_key import own_key
from tests.support.servers import conninfo

_SETTINGS = {"shared_buffers": "1MB", "max_connections": "10"}


def state(*tops: Path) -> dict[str, tuple[int, int, int, bytes]]:
    """Mode, owner, time of the last change and content of every file."""
    return {
        str(path): (
            path.lstat().st_mode, path.lstat().st_uid, path.lstat().st_mtime_ns,
            path.read_bytes() if path.is_file() and not path.is_symlink() else b"",
        )
        for top in tops
        for path in (top, *sorted(top.rglob("*")))
    }  # fmt: skip


@pytest.fixture
def stopped(make_server: Callable[..., Throwaway]) -> Throwaway:
    """Stopped in order, with a tablespace and its WAL elsewhere."""
    server = make_server()
    account = server_account()
    for name in ("outside", "wal"):
        (server.socket_dir / name).mkdir(mode=0o700)
        account.own(server.socket_dir / name)
    with psycopg.connect(conninfo(server), autocommit=True) as connection:
        connection.execute(f"CREATE TABLESPACE aside LOCATION '{server.socket_dir / 'outside'}'".encode())
        connection.execute("CREATE TABLE kept TABLESPACE aside AS SELECT generate_series(1, 1000) AS id")
        connection.execute("SELECT pg_create_physical_replication_slot('somebody', true)")
    assert server._end("fast")
    for segment in (server.data_dir / "pg_wal").iterdir():
        shutil.move(segment, server.socket_dir / "wal" / segment.name)
    (server.data_dir / "pg_wal").rmdir()
    (server.data_dir / "pg_wal").symlink_to(server.socket_dir / "wal")
    return server


def test_a_stopped_directory_is_copied_and_stays_as_it_was(stopped: Throwaway) -> None:
    before = state(stopped.data_dir, stopped.socket_dir / "outside", stopped.socket_dir / "wal")
    found = look_at(stopped.data_dir, 18)
    assert not found.backup
    assert found.data_bytes > 2**20
    with (
        CopiedServer.create(stopped._programs, server_account(), stopped.data_dir.parent) as first,
        CopiedServer.create(stopped._programs, server_account(), stopped.data_dir.parent) as second,
    ):
        first.copy_stopped(found)
        second.clone(first)
        for copy in (first, second):
            copy.configure(_SETTINGS)
            copy.start()
            where = f"host={copy.socket_dir} port={copy.port} user={stopped.user} dbname=postgres"
            with psycopg.connect(where, autocommit=True) as connection:
                assert connection.execute("SELECT count(*) FROM kept").fetchone() == (1000,)
                assert connection.execute("SELECT count(*) FROM pg_replication_slots").fetchone() == (0,)
                connection.execute("DELETE FROM kept")
                connection.execute("SELECT pg_switch_wal()")
                connection.execute("CHECKPOINT")
    assert state(stopped.data_dir, stopped.socket_dir / "outside", stopped.socket_dir / "wal") == before
    stopped._start()
    with (
        CopiedServer.create(stopped._programs, server_account(), stopped.data_dir.parent) as late,
        pytest.raises(ClusterProblem, match="a server runs in"),
    ):
        late.copy_stopped(found)
    with psycopg.connect(conninfo(stopped)) as connection:
        assert connection.execute("SELECT count(*) FROM kept").fetchone() == (1000,)


def test_a_directory_whose_server_runs_or_did_not_end_in_order_is_refused(fresh_server: Throwaway) -> None:
    data, pid = fresh_server.data_dir, fresh_server.postmaster_pid
    with pytest.raises(ClusterProblem, match=f"a server runs in .*postmaster.pid names process {pid}"):
        look_at(data, 18)
    with pytest.raises(ClusterProblem, match="is of PostgreSQL 18, and the server is 17"):
        look_at(data, 17)
    fresh_server._end("immediate")
    (data / "postmaster.pid").unlink(missing_ok=True)
    with pytest.raises(ClusterProblem, match="was not shut down in order, and there is no backup_label"):
        look_at(data, 18)
    # What pg_basebackup makes last.
    (data / "backup_label").touch()
    assert look_at(data, 18).backup
    (data / "backup_manifest.tmp").touch()
    with pytest.raises(ClusterProblem, match="is not finished"):
        look_at(data, 18)
    (data / "backup_manifest.tmp").unlink()
    (data / "base" / "link").symlink_to("/etc/hostname")
    with pytest.raises(ClusterProblem, match="base/link is a link: a copy of it would lead to the same files"):
        look_at(data, 18)
    (data / "base" / "link").unlink()
    (data / "global" / "pg_control").unlink()
    with pytest.raises(ClusterProblem, match="pg_control cannot be read"):
        look_at(data, 18)


def test_a_tablespace_that_is_not_in_place_is_refused(stopped: Throwaway) -> None:
    (stopped.data_dir / "tablespace_map").write_text("99999 /somewhere\n")
    with pytest.raises(ClusterProblem, match=r"tablespace 99999 of .* is not in place"):
        look_at(stopped.data_dir, 18)
    (stopped.data_dir / "tablespace_map").unlink()
    (stopped.socket_dir / "outside").rename(stopped.socket_dir / "moved")
    with pytest.raises(ClusterProblem, match="is not there: "):
        look_at(stopped.data_dir, 18)


def test_what_is_no_data_directory_is_refused(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "nothing"):
        with pytest.raises(ClusterProblem, match="is no data directory"):
            look_at(path, 18)


# Left behind.


def made(directory: Path, name: str, owner: CopyOwner | None) -> Path:
    home = directory / f"pgtop-twin-{name}"
    (home / "data").mkdir(parents=True)
    (home / guard.MARKER).touch()
    if owner is not None:
        (home / OWNER).write_bytes(encode(owner))
    return home


def test_copies_that_nobody_uses_are_removed_and_others_stay_and_are_named(tmp_path: Path) -> None:
    work = tmp_path / "pgtop-work"
    work.mkdir()
    (work / guard.MARKER).touch()
    gone = replace(own_key(), start_ticks=own_key().start_ticks + 1)
    dead = made(tmp_path, "dead", CopyOwner(gone, str(work)))
    earlier = made(tmp_path, "earlier", CopyOwner(replace(gone, boot_id="before"), "/"))
    alive = made(tmp_path, "alive", CopyOwner(own_key(), str(work)))
    unknown = made(tmp_path, "unknown", None)
    elsewhere = made(tmp_path, "elsewhere", CopyOwner(replace(gone, namespace="pid:[1]"), str(work)))
    strange = tmp_path / "pgtop-twin-strange"
    strange.mkdir()
    serving = made(tmp_path, "serving", CopyOwner(gone, str(work)))
    server = subprocess.Popen(["/bin/sh", "-c", "read x", str(serving)], stdin=subprocess.PIPE)
    (serving / "data" / "postmaster.pid").write_text(f"{server.pid}\n")
    while str(serving) not in Path(f"/proc/{server.pid}/cmdline").read_text():
        time.sleep(0.01)
    try:
        said = remove_leftovers(tmp_path, {os.geteuid()})
    finally:
        server.communicate(b"\n")
    assert [path.exists() for path in (dead, earlier, work)] == [False] * 3
    assert [path.exists() for path in (alive, unknown, elsewhere, strange, serving)] == [True] * 5
    assert len(said) == 5
    assert f"{dead} was left of another twin, and is removed" in said
    assert f"{serving} is left of another twin, and stays: a server runs in it (pid {server.pid})" in said
    assert any(f"rm -r {unknown}" in line for line in said)
    assert remove_leftovers(tmp_path, {os.geteuid() + 1}) == ()
    assert any(str(serving) in line and "removed" in line for line in remove_leftovers(tmp_path, {os.geteuid()}))
