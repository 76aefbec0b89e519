"""Copies of a running server: with tablespaces, from an older major, and gone in the end."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest

from pgtop_tune.cluster.account import server_account
from pgtop_tune.cluster.binaries import available
from pgtop_tune.cluster.copied_server import BackupSource, CopiedServer, with_backup
from pgtop_tune.cluster.throwaway import Throwaway
from pgtop_tune.errors import ClusterProblem
from tests.support.servers import conninfo

_SETTINGS = {"shared_buffers": "1MB", "max_connections": "10"}


@pytest.mark.parametrize("major", [14, 18])
def test_both_copies_have_the_rows_of_a_tablespace_in_directories_of_their_own(
    make_server: Callable[..., Throwaway], major: int
) -> None:
    server = make_server(major)
    account = server_account()
    outside = server.socket_dir / "outside"
    outside.mkdir(mode=0o700)
    account.own(outside)
    with psycopg.connect(conninfo(server), autocommit=True) as connection:
        connection.execute(f"CREATE TABLESPACE aside LOCATION '{outside}'".encode())
        connection.execute("CREATE TABLE kept TABLESPACE aside AS SELECT generate_series(1, 1000) AS id")
        row = connection.execute("SELECT oid::bigint FROM pg_tablespace WHERE spcname = 'aside'").fetchone()
    assert row is not None
    programs = server._programs
    backup = with_backup((programs, *available()), major)
    assert backup is not None
    source = BackupSource(
        words=("-h", str(server.socket_dir), "-p", str(server.port), "-U", server.user),
        environment={}, tablespaces=((row[0], str(outside)),),
    )  # fmt: skip
    with (
        CopiedServer.create(programs, account, server.data_dir.parent) as first,
        CopiedServer.create(programs, account, server.data_dir.parent) as second,
    ):
        first.take_backup(source, backup)
        first.configure(_SETTINGS)
        first.start()
        first.halt()
        second.clone(first)
        for copy in (first, second):
            copy.configure(_SETTINGS)
            copy.start()
            link = copy.data_dir / "pg_tblspc" / str(row[0])
            assert Path(os.readlink(link)) == copy.home / "tablespaces" / str(row[0])
            where = f"host={copy.socket_dir} port={copy.port} user={server.user} dbname=postgres"
            with psycopg.connect(where, autocommit=True) as connection:
                assert connection.execute("SELECT count(*) FROM kept").fetchone() == (1000,)
                connection.execute("DELETE FROM kept")
        homes = [first.home, second.home]
    assert not [home for home in homes if home.exists()]
    with psycopg.connect(conninfo(server)) as connection:
        assert connection.execute("SELECT count(*) FROM kept").fetchone() == (1000,)


def test_a_backup_that_is_refused_says_why_and_leaves_nothing(fresh_server: Throwaway) -> None:
    source = BackupSource(words=("-h", str(fresh_server.socket_dir), "-p", "1"), environment={})
    with CopiedServer.create(fresh_server._programs, server_account(), fresh_server.data_dir.parent) as copy:
        backup = with_backup(available(), 18)
        assert backup is not None
        with pytest.raises(ClusterProblem, match=r"pg_basebackup failed:\n.*connection to server"):
            copy.take_backup(source, backup)
    assert not copy.home.exists()
