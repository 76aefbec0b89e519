"""A primary, its standbys and copies share identifier and path: each takes back its own, and nothing else is said."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest

from pgtop_tune.changes.journal import journals, read
from pgtop_tune.cluster.throwaway import Throwaway
from tests.changes.confirm.test_overdue import left_behind
from tests.cli.runs import run
from tests.cli.test_set import shown
from tests.support.one_path import OnePath, one_path
from tests.support.processes import eventually
from tests.support.servers import Servers, conninfo
from tests.support.standby import standby_of

JOURNALS = ".local/state/pgtop-tune/journal"


@pytest.fixture
def pair(make_server: Callable[..., Throwaway], servers: Servers) -> Iterator[tuple[OnePath, Throwaway, Throwaway]]:
    primary = make_server(18)
    standby = standby_of(primary, make_server, "there", servers.binaries(18))
    with one_path(primary, standby) as place:
        yield place, primary, standby


def in_force(home: Path) -> list[str]:
    found = [change for path in journals(home / JOURNALS) for change in read(path).in_force]
    return sorted(f"{change.name}={change.value}" for change in found)


def origin_of(server: Throwaway) -> str:
    return f"postgres@{server.socket_dir}:{server.port}/postgres"


def directory_of(server: Throwaway) -> str:
    return shown(server, "data_directory")


@pytest.mark.root
@pytest.mark.long
def test_a_primary_and_its_standby_at_one_path_take_back_their_own(
    pair: tuple[OnePath, Throwaway, Throwaway], tmp_path: Path
) -> None:
    place, primary, standby = pair
    assert directory_of(primary) == directory_of(standby)
    assert run("set", "max_wal_size=4GB", "-d", conninfo(primary), home=tmp_path).status == 0
    nothing = run("revert", "-d", conninfo(standby), home=tmp_path)
    assert (nothing.status, nothing.out) == (0, "nothing to revert\n"), nothing.err
    assert "max_wal_size = 4GB was probably set on another server of this cluster, and stays in force" in nothing.err
    assert run("set", "max_wal_size=3GB", "-d", conninfo(standby), home=tmp_path).status == 0
    assert in_force(tmp_path) == ["max_wal_size=3GB", "max_wal_size=4GB"]
    place.restart(primary)
    place.restart(standby)
    own = run("revert", "--last", "-d", conninfo(standby), home=tmp_path)
    assert own.out == "max_wal_size: 3GB → 1GB\n1 change reverted\n", own.err
    assert (shown(primary, "max_wal_size"), shown(standby, "max_wal_size")) == ("4GB", "1GB")
    assert in_force(tmp_path) == ["max_wal_size=4GB"]
    set_id = next(change.id for path in journals(tmp_path / JOURNALS) for change in read(path).in_force)
    missed = run("revert", "--set", set_id, "-d", conninfo(standby), home=tmp_path)
    assert (missed.status, missed.out) == (6, "nothing to revert\n"), missed.err
    there = run("revert", "-d", conninfo(primary), home=tmp_path)
    assert there.out == "max_wal_size: 4GB → 1GB\n1 change reverted\n", there.err
    assert (shown(primary, "max_wal_size"), in_force(tmp_path)) == ("1GB", [])


@pytest.mark.root
@pytest.mark.long
async def test_a_trial_of_the_primary_is_not_ended_by_a_set_on_its_standby(
    pair: tuple[OnePath, Throwaway, Throwaway], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, primary, standby = pair
    await left_behind(primary, tmp_path / JOURNALS, monkeypatch)
    ran = run("set", "commit_siblings=7", "-d", conninfo(standby), home=tmp_path)
    assert (ran.status, "commit_delay" in ran.out + ran.err) == (0, False), ran.err
    assert (shown(primary, "commit_delay"), in_force(tmp_path)) == ("123", ["commit_delay=123", "commit_siblings=7"])
    ran = run("set", "commit_siblings=8", "-d", conninfo(primary), home=tmp_path)
    assert "commit_delay is 0 again: 123 was not confirmed in time" in ran.err
    assert shown(primary, "commit_delay") == "0"


@pytest.mark.root
@pytest.mark.long
def test_after_a_failover_the_old_primarys_changes_wait_for_it(
    pair: tuple[OnePath, Throwaway, Throwaway], tmp_path: Path
) -> None:
    place, primary, standby = pair
    assert run("set", "max_wal_size=4GB", "-d", conninfo(primary), home=tmp_path).status == 0
    assert (
        run("set", "work_mem=9MB", "--scope", "database=postgres", "-d", conninfo(primary), home=tmp_path).status == 0
    )
    with psycopg.connect(conninfo(primary)) as asked, psycopg.connect(conninfo(standby)) as waits:
        written = asked.execute("SELECT pg_current_wal_lsn()").fetchone()
        assert written is not None
        assert eventually(
            lambda: waits.execute("SELECT pg_last_wal_replay_lsn() >= %s::pg_lsn", written).fetchone() == (True,)
        )
    place.stop(primary)
    with psycopg.connect(conninfo(standby), autocommit=True) as connection:
        connection.execute("SELECT pg_promote()")
    ran = run("revert", "-d", conninfo(standby), home=tmp_path)
    assert (ran.status, ran.out) == (0, "nothing to revert\n"), ran.err
    assert in_force(tmp_path) == ["max_wal_size=4GB", "work_mem=9MB"]
    # A value in the catalogue came along; a line of postgresql.auto.conf did not.
    ran = run("revert", "--adopt", "-d", conninfo(standby), home=tmp_path)
    assert ran.out == (
        "work_mem: 9MB → default  (takes effect in sessions in database postgres that start from now on)\n"
        "1 change reverted\n"
    )
    assert f"work_mem was set on {origin_of(primary)}, " in ran.err
    place.start(primary)
    ran = run("revert", "-d", conninfo(primary), home=tmp_path)
    assert ran.out == "max_wal_size: 4GB → 1GB\n1 change reverted\n", ran.err
    assert in_force(tmp_path) == []


@pytest.mark.root
@pytest.mark.long
def test_servers_of_one_image_take_back_their_own_also_after_a_restart(
    make_server: Callable[..., Throwaway], tmp_path: Path
) -> None:
    one, two = make_server(18), make_server(18)
    one._end("fast")
    two._end("fast")
    shutil.rmtree(Path(str(two.data_dir)))
    # As layers of an image are unpacked: every time of writing is kept.
    owner = Path(str(one.data_dir)).stat()
    shutil.copytree(Path(str(one.data_dir)), Path(str(two.data_dir)))
    for path in (Path(str(two.data_dir)), *Path(str(two.data_dir)).rglob("*")):
        shutil.chown(path, owner.st_uid, owner.st_gid)
    with one_path(one, two) as place:
        assert run("set", "max_wal_size=4GB", "work_mem=5MB", "-d", conninfo(one), home=tmp_path).status == 0
        assert run("set", "max_wal_size=3GB", "-d", conninfo(two), home=tmp_path).status == 0
        place.restart(two)
        place.restart(one)
        ran = run("revert", "-d", conninfo(two), home=tmp_path)
        assert ran.out == "max_wal_size: 3GB → 1GB\n1 change reverted\n", ran.err
        assert (shown(one, "max_wal_size"), in_force(tmp_path)) == ("4GB", ["max_wal_size=4GB", "work_mem=5MB"])
        ran = run("revert", "-d", conninfo(one), home=tmp_path)
        assert ran.out == "work_mem: 5MB → 4MB\nmax_wal_size: 4GB → 1GB\n2 changes reverted\n", ran.err


def test_a_copy_of_a_data_directory_names_the_original(make_server: Callable[..., Throwaway], tmp_path: Path) -> None:
    original, copy = make_server(18), make_server(18)
    copy._end("fast")
    assert run("set", "work_mem=5MB", "-d", conninfo(original), home=tmp_path).status == 0
    original._end("fast")
    owner = Path(str(original.data_dir)).stat()
    shutil.rmtree(Path(str(copy.data_dir)))
    shutil.copytree(Path(str(original.data_dir)), Path(str(copy.data_dir)))
    for path in (Path(str(copy.data_dir)), *Path(str(copy.data_dir)).rglob("*")):
        shutil.chown(path, owner.st_uid, owner.st_gid)
    original._start()
    copy._start()
    place = f"{origin_of(original)}, {Path(str(original.data_dir))}"
    ran = run("revert", "-d", conninfo(copy), home=tmp_path)
    assert f"connect to that server ({place}), or pass --adopt" in ran.err
    ran = run("revert", "--adopt", "-d", conninfo(copy), home=tmp_path)
    assert ran.out == "work_mem: 5MB → 4MB\n1 change reverted\n", ran.err
    assert f"work_mem was set on {place}. If that server still runs, it keeps 5MB, and" in ran.err
    assert shown(original, "work_mem") == "5MB"
