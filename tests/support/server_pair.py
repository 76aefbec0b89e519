"""A primary and its standby, each started as an operator's is, which change roles."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import psycopg
import pytest

from pgtop_tune.changes.restart.control import RestartService
from pgtop_tune.changes.restart.pair_checks import checked_pair
from pgtop_tune.changes.restart.switchover import PairOutages
from pgtop_tune.changes.server.control import PostgresControl
from pgtop_tune.cluster.throwaway import Throwaway
from pgtop_tune.model.instance import ServerPair
from pgtop_tune.postgres.server.conninfo import ConnInfo, resolve
from tests.support.by_pg_ctl import by_pg_ctl
from tests.support.processes import eventually
from tests.support.quick_server import quick_server
from tests.support.servers import NotAvailable, Servers, conninfo
from tests.support.standby import standby_of


class Pair:
    """A primary and its standby, each started by pg_ctl."""

    def __init__(self, primary: Throwaway, standby: Throwaway, directory: Path) -> None:
        self.primary = primary
        self.standby = standby
        self.directory = directory
        self.allowed = [f"{server.socket_dir}:{server.port}" for server in (primary, standby)]

    def words(self, attributes: str = "read-write") -> str:
        """Connection string to whichever is the primary."""
        hosts = f"{self.primary.socket_dir},{self.standby.socket_dir}"
        user = f"user={self.primary.user} dbname=postgres target_session_attrs={attributes}"
        return f"host={hosts} port={self.primary.port},{self.standby.port} {user}"

    def conninfo(self, attributes: str = "read-write") -> ConnInfo:
        """The same, resolved."""
        return resolve(self.words(attributes))

    async def checked(self, allowed: list[str] | None = None, conninfo: ConnInfo | None = None) -> ServerPair:
        """The pair as a plan finds it."""
        control = PostgresControl(self.conninfo(), directory=self.directory)
        try:
            named = self.allowed if allowed is None else allowed
            return await checked_pair(control, RestartService(control), named, conninfo or self.conninfo())
        finally:
            await control.aclose()

    async def outages(self) -> PairOutages:
        """What a plan would cause."""
        return PairOutages(await self.checked(), resolve(conninfo(self.standby)))

    def write(self, text: str, *, to_standby: bool = False) -> None:
        """Insert a row."""
        with psycopg.connect(conninfo(self.standby if to_standby else self.primary), autocommit=True) as connection:
            connection.execute("INSERT INTO kept VALUES (%s)", [text])

    def rows(self, server: Throwaway) -> list[str]:
        """The rows of a server, in their order."""
        with psycopg.connect(conninfo(server)) as connection:
            return [text for (text,) in connection.execute("SELECT text FROM kept ORDER BY number").fetchall()]

    def has_roles(self) -> bool:
        """Whether both run in their roles, and the standby streams."""
        try:
            with psycopg.connect(conninfo(self.primary)) as one, psycopg.connect(conninfo(self.standby)) as other:
                roles = [side.execute("SELECT pg_is_in_recovery()").fetchone() for side in (one, other)]
                [(streams,)] = one.execute("SELECT count(*) FROM pg_stat_replication").fetchall()
        except psycopg.Error:
            return False
        return roles == [(False,), (True,)] and streams == 1

    def is_whole(self) -> bool:
        """Whether the standby has all rows of the primary."""
        return self.has_roles() and self.rows(self.primary) == self.rows(self.standby)


def made_pair(servers: Servers, major: int, directory: Path, stack: ExitStack) -> Pair:
    def make(major: int) -> Throwaway:
        try:
            server = quick_server(servers.binaries(major))
        except NotAvailable as problem:
            pytest.skip(f"no PostgreSQL {major}: {problem}")
        stack.callback(server.stop, "immediate")
        return server

    primary = make(major)
    standby = standby_of(primary, make, "kept", servers.binaries(max(major, 18)))
    pair = Pair(*(stack.enter_context(by_pg_ctl(server)) for server in (primary, standby)), directory)
    with psycopg.connect(conninfo(pair.primary), autocommit=True) as connection:
        connection.execute("CREATE TABLE kept (text text, number int GENERATED ALWAYS AS IDENTITY)")
    assert eventually(pair.has_roles)
    return pair
