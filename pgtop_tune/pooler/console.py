"""Looks at one admin console, again and again, over one connection that is made anew when it was lost."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from pgtop_tune.errors import ServerProblem
from pgtop_tune.model.pooler import PGCAT, ConsoleSample, PoolerSettings
from pgtop_tune.pooler.address import PoolerAddress
from pgtop_tune.pooler.rows import Row, counters_of, databases_of, lists_of, pools_of, settings_of, version_of
from pgtop_tune.pooler.simple_connection import SimpleConnection, open_console

_SETTINGS_EVERY_S: Final = 30.0
"""RELOAD may change them; nothing else does."""


class PoolerConsole:
    """Reads and never changes: SHOW commands only.

    Args:
        address: Where it is.
        clock: Seconds on the session's monotonic clock.
        application_name: What we call ourselves.
    """

    def __init__(self, address: PoolerAddress, clock: Callable[[], float], application_name: str) -> None:
        self._address = address
        self._clock = clock
        self._application_name = application_name
        self._connection: SimpleConnection | None = None
        self._kind = self._version = ""
        self._settings = PoolerSettings()
        self._settings_due_s = 0.0

    @property
    def name(self) -> str:
        """As the operator calls it."""
        return self._address.name

    @property
    def address(self) -> str:
        """user@host:port/database."""
        return self._address.described

    @property
    def place(self) -> tuple[str, int]:
        """Host and port."""
        return self._address.host, self._address.port

    async def look(self) -> ConsoleSample:
        """What it says now.

        Raises:
            ConnectionProblem: It is not there or does not let us in; the next look connects anew.
            ServerProblem: This is no console of a pooler, or we may not see pools.
        """
        try:
            return await self._look()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Lets go of the connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    async def _look(self) -> ConsoleSample:
        if self._connection is None:
            self._connection = await open_console(self._address, self._application_name)
            self._kind, self._version = version_of(await self._maybe(self._connection, "SHOW VERSION"))
            self._settings_due_s = 0.0
        connection = self._connection
        at_s = self._clock()
        if at_s >= self._settings_due_s:
            self._settings = await self._read_settings(connection)
            self._settings_due_s = at_s + _SETTINGS_EVERY_S
        try:
            pools = pools_of(await connection.rows("SHOW POOLS"))
        except ServerProblem as problem:
            raise ServerProblem(
                f"{self.address}: {problem.message}",
                "check that this is a pooler's console; its database is pgbouncer or pgcat",
            ) from None
        lists = lists_of(await self._maybe(connection, "SHOW LISTS"))
        return ConsoleSample(
            at_s=at_s,
            kind=self._kind,
            version=self._version,
            settings=self._settings,
            clients=lists.get("used_clients"),
            login_clients=lists.get("login_clients"),
            servers=lists.get("used_servers"),
            pools=pools,
            counters=counters_of(await self._maybe(connection, "SHOW STATS")),
            databases=databases_of(await self._maybe(connection, "SHOW DATABASES")),
        )

    async def _read_settings(self, connection: SimpleConnection) -> PoolerSettings:
        config = await self._maybe(connection, "SHOW CONFIG")
        # One row per server connection: worth it only where it says something that CONFIG does not.
        servers = await self._maybe(connection, "SHOW SERVERS") if self._kind == PGCAT else []
        return settings_of(config, servers, self._kind)

    async def _maybe(self, connection: SimpleConnection, command: str) -> list[Row]:
        """Rows of a command that this pooler, or our user's rights on it, may not have."""
        try:
            return await connection.rows(command)
        except ServerProblem:
            return []
