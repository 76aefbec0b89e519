"""Waits for a server that is being restarted: whether it is back, still the old one, gone, or at another port."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from enum import StrEnum
from pathlib import Path
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from pgtop_tune.base.errors import ConnectionProblem, NotLetIn
from pgtop_tune.changes.journal import ServerName
from pgtop_tune.changes.server.control import PostgresControl
from pgtop_tune.changes.start.trial import started_ms
from pgtop_tune.cluster.postmaster import Listening, listening, pid_of
from pgtop_tune.model.instance import Instance, Kin, ServerPlace, kin
from pgtop_tune.postgres.server.conninfo import ConnInfo, ServerEndpoint

# Goes after a server whose port or addresses a restart has changed: to where its postmaster.pid says it listens.

_OF_ALL: Final = {"*": "localhost", "0.0.0.0": "127.0.0.1", "::": "::1"}
"""Addresses that stand for every interface → the one that leads there from this machine."""


def now_at(conninfo: ConnInfo, server_place: ServerPlace) -> ConnInfo | None:
    """Return the connection that reaches the server of a data directory now; None where it cannot be seen or is not
    ready."""
    if server_place.uid is None:
        return None
    try:
        listening_at = listening(Path(server_place.data_directory))
    except (PermissionError, TimeoutError):
        return None
    return leads_to(conninfo, listening_at) if listening_at is not None and listening_at.ready else None


def leads_to(conninfo: ConnInfo, listening_at: Listening) -> ConnInfo:
    """Return a connection to where a server of this machine listens: by the way it had, else by the other one."""
    first = conninfo.endpoints[0]
    address = _OF_ALL.get(listening_at.address, listening_at.address)
    by_tcp = [replace(first, host=address, hostaddr="", port=listening_at.port)] if address else []
    if not first.is_socket and by_tcp:
        by_tcp.insert(0, replace(first, port=listening_at.port))
    directory = listening_at.socket_directory
    if first.is_socket and _is_same_socket(first.host, directory, listening_at.port):
        # Another name of it, by which the operator knows it.
        directory = first.host
    has_socket = bool(directory) and Path(directory, f".s.PGSQL.{listening_at.port}").exists()
    by_socket = [replace(first, host=directory, hostaddr="", port=listening_at.port)] if has_socket else []
    ways = (*by_socket, *by_tcp) if first.is_socket else (*by_tcp, *by_socket)
    return _through(conninfo, tuple(dict.fromkeys(ways)) or (first,))


def _is_same_socket(one: str, second: str, port: int) -> bool:
    name = f".s.PGSQL.{port}"
    try:
        return bool(second) and Path(one, name).samefile(Path(second, name))
    except OSError:
        return False


def at_port(conninfo: ConnInfo, port: int) -> ConnInfo:
    """Return a connection to a server of another machine at a new port, or still at the old one. Pure."""
    ways = (*(replace(endpoint, port=port) for endpoint in conninfo.endpoints), *conninfo.endpoints)
    return _through(conninfo, tuple(dict.fromkeys(ways)))


def _through(conninfo: ConnInfo, endpoints: tuple[ServerEndpoint, ...]) -> ConnInfo:
    """libpq's password file knows a server by its port: the password of the old one is taken along.

    A host for which it said something else is not one of them.
    """
    password = conninfo.password
    endpoints = tuple(endpoint for endpoint in endpoints if endpoint.password == password)
    secrets = conninfo.secrets if password is None else {**conninfo.secrets, "password": password}
    return replace(conninfo, endpoints=endpoints, secrets=secrets)


_POLL_S: Final = 0.1
_PATIENCE_S: Final = 300.0
"""As long as a process holds the data directory: it recovers, or waits for a standby to be consistent."""
_OUT_OF_REACH_S: Final = 15.0
"""For so long it has let others in, and we have found no way to it."""
_GONE_S: Final = {False: 3.0, True: 0.3}
"""Without a process for so long it does not come by itself, by whether the program that started it has failed."""


class Return(StrEnum):
    """The state of a server that is being restarted."""

    BACK = "back"
    THE_OLD_ONE = "the old one"
    GONE = "gone"
    OUT_OF_REACH = "out of reach"
    """The server lets sessions in, but not ours."""
    LEFT = "left"
    """We were told to wait no longer."""


class ServerBefore(Struct, frozen=True):
    """The server before its restart.

    Attributes:
        name: Of its journal.
        instance: Only the same server is the one that is waited for.
        server_place: The place of the server.
        started_ms: When it was started.
        moves: Its port or its addresses change with the restart.
        port: The one it is to have; None where that is not known.
    """

    name: ServerName
    instance: Instance
    server_place: ServerPlace
    started_ms: int
    moves: bool = False
    port: int | None = None


class Waiting:
    """Waits for a server, and goes after it where it listens elsewhere afterwards.

    Args:
        control: To ask; it is led to where the server is.
        before: The server.
        progress: Takes a note when it takes long.
        given_up: Set to end the wait.
    """

    def __init__(
        self, control: PostgresControl, before: ServerBefore, progress: Callable[[str], None], given_up: asyncio.Event
    ) -> None:
        self._control: Final = control
        self._before: Final = before
        self._progress: Final = progress
        self._given_up: Final = given_up

    async def until_back(self, *, failed: bool) -> Return:
        """Wait until the server answers, or is gone.

        Args:
            failed: The program that was to restart it has failed.
        """
        deadline, gone_since, open_since, is_told = time.monotonic() + _PATIENCE_S, 0.0, 0.0, False
        while time.monotonic() < deadline:
            now_ms = await self._start()
            if now_ms is not None:
                return Return.BACK if now_ms != self._before.started_ms else Return.THE_OLD_ONE
            if runs(self._before.server_place):
                gone_since = 0.0
                if not is_told:
                    self._progress("the server is starting")
                    is_told = True
            else:
                gone_since = gone_since or time.monotonic()
                if time.monotonic() - gone_since >= _GONE_S[failed]:
                    return Return.GONE
            open_since = (open_since or time.monotonic()) if await asyncio.to_thread(self._lets_in) else 0.0
            if open_since and time.monotonic() - open_since >= _OUT_OF_REACH_S:
                return Return.OUT_OF_REACH
            if await self._left():
                return Return.LEFT
        return Return.GONE

    async def until_restarted(self) -> Return:
        """Wait until another user has restarted the server."""
        away = False
        while (now_ms := await self._start()) in (None, self._before.started_ms):
            if now_ms is None and not away:
                self._progress("the server is down")
            away = now_ms is None
            if await self._left():
                return Return.LEFT
        return Return.BACK

    def _lets_in(self) -> bool:
        try:
            listening_at = listening(Path(self._before.server_place.data_directory))
        except (PermissionError, TimeoutError):
            return False
        return listening_at is not None and listening_at.ready

    async def _left(self) -> bool:
        """Wait a little; return whether we are to wait no longer."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._given_up.wait(), _POLL_S)
        return self._given_up.is_set()

    async def _start(self) -> int | None:
        """Return the start of the server that answers, milliseconds since the epoch; None where it does not answer.

        Raises:
            NotLetIn: It is there, at the place it had, and says no.
        """
        try:
            now, at_ms = await self._control.ask(lambda session: (session.instance, started_ms(session)))
            if kin(self._before.instance, now) is not Kin.OTHER:
                return at_ms
        except NotLetIn:
            if not self._before.moves:
                raise
        except ConnectionProblem:
            pass
        if self._before.moves:
            await self._follow()
        return None

    async def _follow(self) -> None:
        """Lead the control to where the server listens now, where that is another place."""
        conninfo, before = self._control.conninfo, self._before
        there = await asyncio.to_thread(now_at, conninfo, before.server_place)
        if there is None and before.server_place.uid is None and before.port not in (None, conninfo.port):
            there = at_port(conninfo, before.port)
        if there is not None and there.endpoints != conninfo.endpoints:
            await self._control.lead_to(there)


def runs(server_place: ServerPlace) -> bool:
    """Return whether a process holds the data directory, or we may not look."""
    try:
        return pid_of(Path(server_place.data_directory)) is not None
    except (PermissionError, TimeoutError):
        return True
