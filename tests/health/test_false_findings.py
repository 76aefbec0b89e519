"""What was found of servers that had nothing of the kind, on real ones."""

from __future__ import annotations

import asyncio
import gc
import socket
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest

from pgtop_tune.cluster.throwaway import Throwaway
from pgtop_tune.health.gather import gather
from pgtop_tune.health.judge import judge
from pgtop_tune.health.registry import chosen
from pgtop_tune.health.report import Report
from pgtop_tune.postgres.queries import sql
from pgtop_tune.postgres.server.conninfo import resolve
from pgtop_tune.postgres.server.own_sessions import OwnSessions
from pgtop_tune.postgres.survey import survey
from tests.postgres.conftest import place
from tests.support.by_pg_ctl import by_pg_ctl
from tests.support.real_check import checked, ids
from tests.support.servers import conninfo

YOUNG = ("WAL-01", "WAL-02", "BGW-01", "BGW-03", "IDX-03")
AT_ANY_AGE = ("WAL-01.age=0", "WAL-02.age=0")


def unknown(report: Report) -> dict[str, str]:
    return {check.id: said.reason for check, said in report.unknowns}


def test_checkpoints_that_commands_asked_for_are_not_those_of_the_volume_of_wal(fresh_server: Throwaway) -> None:
    with psycopg.connect(conninfo(fresh_server), autocommit=True) as connection:
        for number in range(6):
            connection.execute("CHECKPOINT")
            connection.execute(f"CREATE DATABASE copied_{number} STRATEGY file_copy".encode())
        row = connection.execute("SELECT num_requested FROM pg_stat_checkpointer").fetchone()
        assert row is not None
        assert int(row[0]) >= 10
    young = checked(fresh_server, "postgres", select=YOUNG)
    assert ids(young) == set()
    assert set(unknown(young)) == set(YOUNG)
    assert all("too young" in reason for reason in unknown(young).values())
    assert ids(checked(fresh_server, "postgres", *AT_ANY_AGE, select=YOUNG[:2])) == set()


@pytest.mark.long
def test_checkpoints_that_the_volume_of_wal_asks_for_are_found(make_server: Callable[..., Throwaway]) -> None:
    server = make_server(max_wal_size="32MB", checkpoint_timeout="1h")
    with psycopg.connect(conninfo(server), autocommit=True) as connection:
        connection.execute(
            "CREATE TABLE work AS SELECT g AS id, repeat('x', 500) AS filler FROM generate_series(1, 9000) g"
        )
        requested = 0
        for _ in range(300):
            connection.execute("UPDATE work SET id = id + 1")
            row = connection.execute("SELECT num_requested FROM pg_stat_checkpointer").fetchone()
            requested = 0 if row is None else int(row[0])
            if requested >= 30:
                break
        assert requested >= 30
    report = checked(server, "postgres", *AT_ANY_AGE, select=YOUNG[:2])
    # Requests that come while one is under way are counted and make none.
    assert ids(report) == {"WAL-01", "WAL-02"}
    assert all("the finding remains until" in finding.evidence[-1].says for _, finding in report.findings)


@pytest.mark.parametrize("until", ["infinity", "-infinity", "2030-01-01"])
def test_a_role_whose_password_never_ends_is_a_superuser_like_others(server: Throwaway, until: str) -> None:
    with psycopg.connect(conninfo(server), autocommit=True) as root:
        root.execute(f"CREATE ROLE for_ever SUPERUSER LOGIN VALID UNTIL '{until}'".encode())
        try:
            report = checked(server, "postgres", "SEC-03=0", select=("SEC-03",))
        finally:
            root.execute("DROP ROLE for_ever")
    assert unknown(report) == {}
    assert "for_ever" in " ".join(finding.says for _, finding in report.findings)


def test_our_own_sessions_are_not_clients_without_encryption(
    make_server: Callable[..., Throwaway], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Loopback, which the check leaves out, is taken for a network here."""

    def with_loopback(name: str, major: int) -> str:
        return sql(name, major).replace("127.0.0.0/8", "127.255.0.0/16")

    monkeypatch.setattr("pgtop_tune.postgres.survey.sql", with_loopback)
    server = make_server()
    (Path(str(server.data_dir)) / "pg_hba.conf").write_text("local all all trust\nhost all all 127.0.0.1/32 trust\n")
    with socket.create_server(("127.0.0.1", 0)) as reserved:
        port = str(reserved.getsockname()[1])
    with by_pg_ctl(server, listen_addresses="127.0.0.1", port=port, ssl="off"):
        where = resolve("postgres", host="127.0.0.1", port=port, user=server.user)
        screen = {"host": "127.0.0.1", "port": port, "user": server.user, "dbname": "postgres"}

        def found() -> list[str]:
            checks = chosen(("SEC-04",), ())
            report = judge(checks, asyncio.run(gather(where, checks)))
            return [finding.says for _, finding in report.findings]

        with psycopg.connect(**screen, application_name="pgtop-tune control"):
            assert found() == []
        with psycopg.connect(**screen, application_name="shop"):
            assert found() == ["1 of 1 sessions from other machines are not encrypted"]


async def test_a_survey_that_is_cancelled_says_nothing_afterwards(server: Throwaway) -> None:
    said: list[dict[str, object]] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: said.append(context))
    own, name = OwnSessions(), "asked_as_well"
    with psycopg.connect(conninfo(server), autocommit=True) as root:
        root.execute(f"CREATE DATABASE {name}".encode())
        try:
            asking = asyncio.create_task(survey(place(server, "postgres"), own, 18, (), ("check_bloat",) * 200, 30.0))
            async with asyncio.timeout(10):
                while len(own.pids) < 2:
                    await asyncio.sleep(0)
            asking.cancel()
            with pytest.raises(asyncio.CancelledError):
                await asking
            assert own.pids == set()
        finally:
            root.execute(f"DROP DATABASE {name} WITH (FORCE)".encode())
    del asking
    gc.collect()
    await asyncio.sleep(0)
    assert said == []
