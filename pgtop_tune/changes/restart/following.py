"""Goes after a server whose port or addresses a restart has changed: to where its postmaster.pid says it listens."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from msgspec.structs import replace

from pgtop_tune.cluster.postmaster import Listening, listening
from pgtop_tune.model.instance import ServerPlace
from pgtop_tune.postgres.server.conninfo import ConnInfo, ServerEndpoint

_OF_ALL: Final = {"*": "localhost", "0.0.0.0": "127.0.0.1", "::": "::1"}
"""Addresses that stand for every interface → the one that leads there from this machine."""


def now_at(conninfo: ConnInfo, place: ServerPlace) -> ConnInfo | None:
    """How the server of a data directory is reached now; None where it cannot be seen or lets nobody in yet."""
    if place.uid is None:
        return None
    try:
        found = listening(Path(place.data_directory))
    except PermissionError:
        return None
    return leads_to(conninfo, found) if found is not None and found.ready else None


def leads_to(conninfo: ConnInfo, found: Listening) -> ConnInfo:
    """A connection to where a server of this machine listens: by the way it had, else by the other one. Pure."""
    first = conninfo.endpoints[0]
    address = _OF_ALL.get(found.address, found.address)
    by_tcp = [replace(first, host=address, hostaddr="", port=found.port)] if address else []
    if not first.is_socket and by_tcp:
        by_tcp.insert(0, replace(first, port=found.port))
    directories = (first.host if first.is_socket else "", found.socket_directory)
    by_socket = [
        replace(first, host=directory, hostaddr="", port=found.port)
        for directory in dict.fromkeys(directories)
        if directory and Path(directory, f".s.PGSQL.{found.port}").exists()
    ]
    ways = (*by_socket, *by_tcp) if first.is_socket else (*by_tcp, *by_socket)
    return _through(conninfo, tuple(dict.fromkeys(ways)) or (first,))


def at_port(conninfo: ConnInfo, port: int) -> ConnInfo:
    """A connection to a server of another machine at a new port, or still at the old one. Pure."""
    ways = (*(replace(each, port=port) for each in conninfo.endpoints), *conninfo.endpoints)
    return _through(conninfo, tuple(dict.fromkeys(ways)))


def _through(conninfo: ConnInfo, endpoints: tuple[ServerEndpoint, ...]) -> ConnInfo:
    """libpq's password file knows a server by its port: what it said for the old one is taken along."""
    password = conninfo.password
    secrets = conninfo.secrets if password is None else {**conninfo.secrets, "password": password}
    return replace(conninfo, endpoints=endpoints, secrets=secrets)
