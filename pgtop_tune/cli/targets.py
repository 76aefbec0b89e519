"""Where `bench run` sends its load: the endpoints as typed, resolved."""

from __future__ import annotations

from collections.abc import Sequence
from ipaddress import ip_address
from typing import TYPE_CHECKING

from pgtop_tune.cli.wiring import endpoint_of
from pgtop_tune.experiment.endpoints import EndpointWords, Target, parse_endpoint
from pgtop_tune.postgres.server.conninfo import ConnInfo, resolve
from pgtop_tune.postgres.server.straight_way import leads_straight

if TYPE_CHECKING:
    from pgtop_tune.postgres.server.sql_session import PsycopgSession


async def targets(
    endpoints: Sequence[str], hand: PsycopgSession, conninfo: ConnInfo, *, from_here: bool
) -> tuple[Target, ...]:
    """The endpoints; without any, the server that is watched.

    Args:
        endpoints: As typed: NAME=HOST:PORT/DATABASE, or NAME=postgresql://…
        hand: A session on the server that is watched.
        conninfo: What it was opened with; what an endpoint leaves out is taken from it.
        from_here: pgbench runs on this machine. Elsewhere, this machine's own addresses mean another server.

    Raises:
        UsageProblem: Words that are no endpoint.
    """
    if not endpoints:
        return (Target(str(conninfo.endpoints[0]), endpoint_of(conninfo)),)
    found = []
    for typed in endpoints:
        words = parse_endpoint(typed)
        meant = _resolved(words, conninfo)
        asked = from_here or not _of_this_machine(meant)
        direct = asked and await leads_straight(meant, hand, conninfo)
        found.append(Target(words.name, endpoint_of(meant), direct))
    return tuple(found)


def _resolved(words: EndpointWords, conninfo: ConnInfo) -> ConnInfo:
    if words.uri:
        return resolve(words.uri, user=conninfo.user)
    return resolve(
        words.database or conninfo.dbname,
        host=words.host or conninfo.host,
        port=words.port or str(conninfo.port),
        user=conninfo.user,
        password=conninfo.password,
    )


def _of_this_machine(conninfo: ConnInfo) -> bool:
    endpoint = conninfo.endpoints[0]
    if endpoint.is_socket or endpoint.host == "localhost":
        return True
    try:
        return ip_address(endpoint.hostaddr or endpoint.host).is_loopback
    except ValueError:
        return False
