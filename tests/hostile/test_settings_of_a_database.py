"""What the owner of a database sets for it keeps no operator from changing parameters, nor from taking changes back."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from pgtop_tune.cluster.throwaway import Throwaway
from tests.cli.runs import run
from tests.support.servers import conninfo

DATABASE = "obstinate"
WAITING = ("default_transaction_isolation=serializable", "default_transaction_deferrable=on",
           "default_transaction_read_only=on")  # fmt: skip


@pytest.fixture
def where(server: Throwaway) -> Iterator[str]:
    with psycopg.connect(conninfo(server), autocommit=True) as root:
        root.execute(f"CREATE DATABASE {DATABASE}".encode())
        yield conninfo(server, DATABASE)
        root.execute(f"DROP DATABASE {DATABASE} WITH (FORCE)".encode())


def sets(where: str, *settings: str) -> None:
    with psycopg.connect(where, autocommit=True) as root:
        for each in settings:
            root.execute(f"ALTER DATABASE {DATABASE} SET {each}".encode())


def there_and_back(where: str, home: Path) -> None:
    for words in (("set", "work_mem=9MB"), ("parameters",), ("revert",)):
        done = run(*words, "-w", "-d", where, home=home, timeout_s=40)
        assert done.status == 0, done.err
        assert "Traceback" not in done.err


@pytest.mark.parametrize(
    "setting",
    [
        "client_encoding = 'SQL_ASCII'",
        "client_encoding = 'EUC_TW'",
        "client_encoding = 'LATIN1'",
        "DateStyle = 'German'",
    ],
)
def test_how_values_are_written(where: str, setting: str, tmp_path: Path) -> None:
    sets(where, setting)
    there_and_back(where, tmp_path)


def test_transactions_that_wait_for_others(where: str, tmp_path: Path) -> None:
    """A transaction that only reads, serializable and deferrable waits until others that write have ended."""
    with psycopg.connect(where) as other:
        other.execute("SET TRANSACTION ISOLATION LEVEL SERIALIZABLE")
        other.execute("CREATE TABLE written (a int)")
        sets(where, *WAITING)
        there_and_back(where, tmp_path)
        checked = run("check", "-w", "-d", where, home=tmp_path, timeout_s=60)
        assert checked.status in (0, 1), checked.err


def test_another_role(where: str, tmp_path: Path) -> None:
    with psycopg.connect(where, autocommit=True) as root:
        root.execute("CREATE ROLE somebody")
        try:
            sets(where, "role = 'somebody'")
            for words in (("check",), ("parameters",), ("record", "-q", "--seconds", "1", "-o", f"{tmp_path}/a.gz")):
                done = run(*words, "-w", "-d", where, home=tmp_path, timeout_s=60)
                assert done.status in (0, 1), done.err
                assert "Traceback" not in done.err
        finally:
            root.execute(f"ALTER DATABASE {DATABASE} RESET role".encode())
            root.execute("DROP ROLE somebody")


def test_a_database_that_makes_every_session_another_role(where: str, tmp_path: Path) -> None:
    with psycopg.connect(where, autocommit=True) as root:
        root.execute("CREATE ROLE gus")
        try:
            sets(where, "role = gus")
            there_and_back(where, tmp_path)
        finally:
            root.execute(f"ALTER DATABASE {DATABASE} RESET role".encode())
            root.execute("DROP ROLE gus")


def test_a_database_whose_transactions_only_read(where: str, tmp_path: Path) -> None:
    with psycopg.connect(where, autocommit=True) as root:
        root.execute("CREATE ROLE gus")
        try:
            sets(where, "default_transaction_read_only = on")
            done = run("set", "work_mem=9MB", "--scope", "role=gus", "-w", "-d", where, home=tmp_path)
            assert done.status == 0, done.err
            done = run("revert", "-w", "-d", where, home=tmp_path)
            assert done.status == 0, done.err
            assert root.execute("SELECT setconfig FROM pg_db_role_setting WHERE setrole <> 0").fetchall() == []
        finally:
            root.execute("DROP ROLE gus")


@pytest.mark.parametrize(
    "limit",
    ["statement_timeout", "idle_in_transaction_session_timeout", "idle_session_timeout", "transaction_timeout"],
)
def test_time_limits_that_end_every_session(where: str, limit: str, tmp_path: Path) -> None:
    sets(where, f"{limit} = '1ms'")
    for words in (("check",), ("record", "-q", "--seconds", "1", "-o", f"{tmp_path}/a.gz")):
        done = run(*words, "-w", "-d", where, home=tmp_path, timeout_s=60)
        assert done.status in (0, 1), done.err
        assert "Traceback" not in done.err
