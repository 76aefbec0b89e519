"""What `set` meets on servers that are not as one would wish: the words, the status, and that nothing is changed."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest

from pgtop_tune.cluster.throwaway import Throwaway
from tests.cli.runs import PROGRAM, ROOT, environment, run
from tests.cli.test_set import shown
from tests.support.by_pg_ctl import auto_conf_of
from tests.support.kernel import kernel, kernel_of_our_own
from tests.support.servers import Servers, conninfo
from tests.support.standby import standby_of

pytestmark = pytest.mark.long

FULL = 'mount -t tmpfs -o size=64k none "$1" && head -c 65536 /dev/zero > "$1/fill"; shift; exec "$@"'
"""Into a mount namespace of our own, with a full disk at a directory."""


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("max_wal_size=1TiB", "max_wal_size: "),
        ("checkpoint_timeout=5MB", "checkpoint_timeout: "),
        ("checkpoint_timeout=1s", "from 30 to 86400 in units of s"),
        ("random_page_cost=-1", "out of range"),
        ("autovacuum=perhaps", "autovacuum: "),
        ("shared_buffer=1GB", "did you mean shared_buffers"),
        ("bench.no_such_thing=1", "custom parameters are known once their library is loaded"),
        ("max_wal_size", "is not NAME=VALUE"),
        ("max wal size=1GB", "is not the name of a parameter"),
        ("max_wal_size;DROP TABLE x=1GB", "is not the name of a parameter"),
    ],
)
def test_words_that_the_server_would_not_take(server: Throwaway, tmp_path: Path, word: str, said: str) -> None:
    before = auto_conf_of(server)
    ran = run("set", word, "-d", conninfo(server), home=tmp_path)
    assert (ran.status, said in ran.err, "Traceback" in ran.err) == (2, True, False), ran.err
    assert auto_conf_of(server) == before


def test_quotes_and_semicolons_go_there_and_back(fresh_server: Throwaway, tmp_path: Path) -> None:
    before = auto_conf_of(fresh_server)
    evil = '%m \'; SELECT pg_reload_conf(); -- \\ "x" $1 ${HOME} `id`'
    for value in (evil, "'", "''", "\\'", ";"):
        ran = run("set", f"log_line_prefix={value}", "-d", conninfo(fresh_server), home=tmp_path)
        assert ran.status == 0, ran.err
        assert shown(fresh_server, "log_line_prefix") == value
    ran = run("revert", "-d", conninfo(fresh_server), home=tmp_path)
    assert ran.status == 0, ran.err
    assert auto_conf_of(fresh_server) == before


def test_a_role_that_may_not_is_told_what_it_takes_by_major(all_servers: Throwaway, tmp_path: Path) -> None:
    with psycopg.connect(conninfo(all_servers), autocommit=True) as connection:
        connection.execute("CREATE ROLE poor LOGIN")
        connection.execute("GRANT pg_monitor TO poor")
        connection.execute("GRANT SELECT ON pg_file_settings TO poor")
        connection.execute("GRANT EXECUTE ON FUNCTION pg_show_all_file_settings(), pg_reload_conf() TO poor")
    try:
        target = conninfo(all_servers).replace("user=postgres", "user=poor")
        ran = run("set", "max_wal_size=4GB", "-d", target, home=tmp_path)
        assert ran.status == 6
        assert 'GRANT ALTER SYSTEM ON PARAMETER "max_wal_size" TO "poor"  (PostgreSQL 15+)' in ran.err
        assert shown(all_servers, "max_wal_size") == "1GB"
    finally:
        with psycopg.connect(conninfo(all_servers), autocommit=True) as connection:
            connection.execute("DROP OWNED BY poor")
            connection.execute("DROP ROLE poor")


def test_a_standby_has_its_own_system_and_its_primarys_roles(
    make_server: Callable[..., Throwaway], servers: Servers, tmp_path: Path
) -> None:
    primary = make_server(18)
    standby = standby_of(primary, make_server, "bad_changes", servers.binaries(18))
    ran = run("set", "work_mem=9MB", "-d", conninfo(standby), home=tmp_path)
    assert ran.status == 0, ran.err
    assert (shown(standby, "work_mem"), shown(primary, "work_mem")) == ("9MB", "4MB")
    ran = run("set", "work_mem=10MB", "--scope", "role=postgres", "-d", conninfo(standby), home=tmp_path)
    assert (ran.status, "this is a standby: roles and databases are changed on the primary" in ran.err) == (6, True)
    assert run("revert", "-d", conninfo(standby), home=tmp_path).status == 0
    assert shown(standby, "work_mem") == "4MB"
    ran = run("experiment", "check", "P1", "-d", conninfo(standby), home=tmp_path)
    assert (ran.status, "the experiment cannot create its database there" in ran.err) == (2, True), ran.out


@pytest.mark.parametrize("name", ["postgresql.auto.conf", "postgresql.conf"])
@pytest.mark.parametrize("damage", ["unreadable", "a line that is no setting"])
def test_where_a_file_cannot_be_read_nothing_is_changed_and_nothing_taken_for_taken_back(
    fresh_server: Throwaway, tmp_path: Path, damage: str, name: str
) -> None:
    """The server then says nothing of what ALTER SYSTEM has set: as if there were no entries."""
    target = conninfo(fresh_server)
    whole = auto_conf_of(fresh_server)
    assert run("set", "max_wal_size=2GB", "-d", target, home=tmp_path).status == 0
    changed, file = auto_conf_of(fresh_server), Path(str(fresh_server.data_dir)) / name
    good, mode = file.read_bytes(), file.stat().st_mode
    if damage == "unreadable":
        file.chmod(0)
    else:
        file.write_bytes(good + b"this is = = nothing\n")
    for words in (("set", "max_wal_size=3GB"), ("revert",)):
        ran = run(*words, "-d", target, home=tmp_path)
        assert (ran.status, name in ran.err, "Traceback" in ran.err) == (6, True, False), ran.err
    listed = run("revert", "--list", home=tmp_path).out
    assert listed.count("max_wal_size") == 1
    file.chmod(mode)
    file.write_bytes(good)
    assert auto_conf_of(fresh_server) == changed
    ran = run("revert", "-d", target, home=tmp_path)
    assert (ran.status, shown(fresh_server, "max_wal_size")) == (0, "1GB"), ran.err
    assert auto_conf_of(fresh_server) == whole


def test_a_file_of_alter_system_edited_by_hand_keeps_what_it_says(fresh_server: Throwaway, tmp_path: Path) -> None:
    file = Path(str(fresh_server.data_dir)) / "postgresql.auto.conf"
    with file.open("a") as opened:
        opened.write("# ours, since May\nwork_mem 5MB # quickly\nMAX_WAL_SIZE='3GB'\n")
    with psycopg.connect(conninfo(fresh_server), autocommit=True) as connection:
        connection.execute("SELECT pg_reload_conf()")
    words = ("max_wal_size=2GB", "work_mem=6MB", "-d", conninfo(fresh_server))
    assert run("set", *words, home=tmp_path).status == 0
    assert (shown(fresh_server, "max_wal_size"), shown(fresh_server, "work_mem")) == ("2GB", "6MB")
    ran = run("revert", "--last", "-d", conninfo(fresh_server), home=tmp_path)
    assert ran.status == 0, ran.err
    assert (shown(fresh_server, "max_wal_size"), shown(fresh_server, "work_mem")) == ("3GB", "5MB")


@pytest.mark.root
@pytest.mark.parametrize("word", ["max_wal_size=2GB", "vm.dirty_expire_centisecs=2911"])
def test_a_disk_that_is_full_under_the_journal_changes_nothing(server: Throwaway, tmp_path: Path, word: str) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    if subprocess.run(["unshare", "-m", "true"], capture_output=True, check=False).returncode:
        pytest.skip("a disk of 64 kB takes a mount namespace")
    with kernel_of_our_own() as before:
        ran = subprocess.run(
            ["unshare", "-m", "sh", "-c", FULL, "sh", str(disk), *PROGRAM, "set", word, "-d", conninfo(server)],
            env=environment(tmp_path, XDG_STATE_HOME=str(disk)), cwd=ROOT, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert (ran.returncode, "cannot be written" in ran.stderr, "nothing was changed" in ran.stderr) == (
            6,
            True,
            True,
        ), ran.stderr
        assert (shown(server, "max_wal_size"), kernel()) == ("1GB", before)
