"""Which ways to a server are its own, and which lead through a pooler or a proxy."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from pgtop_tune.cluster.throwaway import Throwaway
from pgtop_tune.postgres.server.conninfo import ServerEndpoint, resolve
from pgtop_tune.postgres.server.sql_session import open_sql_session, reached_there
from pgtop_tune.postgres.server.straight_way import way_of
from tests.support.poolers import LOOPBACK, HaProxy, PgBouncer, number_of, reserved_port
from tests.support.servers import conninfo


def straight(server: Throwaway, way: str) -> bool:
    async def ask() -> bool:
        watched = resolve(conninfo(server))
        sql_session = await open_sql_session(watched)
        try:
            return (await way_of(resolve(way, user="postgres"), sql_session)).straight
        finally:
            await sql_session.aclose()

    return asyncio.run(ask())


def test_the_same_address_in_other_words_is_straight(server: Throwaway, tmp_path: Path) -> None:
    (tmp_path / "same").symlink_to(str(server.socket_dir))
    assert straight(server, conninfo(server))
    assert straight(server, f"host={tmp_path}/same port={server.port} dbname=elsewhere")


def test_another_address_of_the_same_server_is_straight(server: Throwaway, tmp_path: Path) -> None:
    (tmp_path / f".s.PGSQL.{server.port}").symlink_to(Path(str(server.socket_dir)) / f".s.PGSQL.{server.port}")
    assert straight(server, f"host={tmp_path} port={server.port} dbname=postgres")


def test_what_stands_in_front_of_it_or_is_not_there_is_not(server: Throwaway) -> None:
    socket_file = f"unix@{server.socket_dir}/.s.PGSQL.{server.port}"
    with PgBouncer(server, user="postgres") as bouncer, HaProxy(socket_file) as front:
        assert not straight(server, f"host={front.directory} port={front.port} dbname=postgres")
        assert not straight(server, bouncer.conninfo())
        assert not straight(server, f"host={LOOPBACK} port={front.port} dbname=postgres")
    with reserved_port() as nobody:
        assert not straight(server, f"host={LOOPBACK} port={number_of(nobody)} dbname=postgres")


def test_another_server_is_not(server: Throwaway, fresh_server: Throwaway) -> None:
    assert not straight(server, conninfo(fresh_server))


@pytest.mark.parametrize(
    ("host", "port", "address", "server_port", "there"),
    [
        ("127.0.0.1", 5432, "127.0.0.1", 5432, True),
        ("127.0.0.1", 8432, "127.0.0.1", 5432, False),
        ("127.0.0.1", 5432, "10.0.0.2", 5432, False),
        ("127.0.0.1", 5432, None, None, False),
        ("/run/postgresql", 5432, None, None, True),
        ("/run/proxy", 5432, "127.0.0.1", 5432, False),
    ],
)
def test_a_proxy_is_known_by_where_the_server_was_reached(
    host: str, port: int, address: str | None, server_port: int | None, there: bool
) -> None:
    assert reached_there(ServerEndpoint(host, port), address, server_port) is there
