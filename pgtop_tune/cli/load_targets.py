"""Where a load goes: the server that is watched, once it answers, or endpoints as typed."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from ipaddress import ip_address

from msgspec.structs import replace

from pgtop_tune.base.errors import ConnectionProblem
from pgtop_tune.cli.connecting import with_inherited_password
from pgtop_tune.cli.wiring import LiveSession, endpoint_of
from pgtop_tune.experiment.path import LoadTarget, parse_endpoint
from pgtop_tune.metrics import sections
from pgtop_tune.metrics.catalogue import Interval
from pgtop_tune.model.absence import Unavailable
from pgtop_tune.postgres.server.conninfo import ConnInfo
from pgtop_tune.postgres.server.other_address import resolve_other
from pgtop_tune.postgres.server.sql_session import PsycopgSession
from pgtop_tune.postgres.server.straight_way import Way, way_of
from pgtop_tune.runtime.run_frames import FrameKeeper


async def targets(
    endpoints: Sequence[str], sql_session: PsycopgSession, conninfo: ConnInfo, *, from_here: bool
) -> tuple[LoadTarget, ...]:
    """The endpoints; without any, the server that is watched.

    Args:
        endpoints: As typed: NAME=HOST:PORT/DATABASE, or NAME=postgresql://…
        sql_session: A session on the server that is watched.
        conninfo: What it was opened with; what an endpoint leaves out is taken from it, but for its secrets.
        from_here: pgbench runs on this machine. Elsewhere, this machine's own addresses mean another server.

    Raises:
        UsageProblem: Words that are no endpoint.
    """
    watched = conninfo.pinned(sql_session.reached)
    if not endpoints:
        return (LoadTarget(str(watched.endpoints[0]), endpoint_of(watched if from_here else _from_there(watched))),)
    found = []
    for typed in endpoints:
        words = parse_endpoint(typed)
        meant = with_inherited_password(await asyncio.to_thread(resolve_other, words.address, watched))
        asked = from_here or not _of_this_machine(meant)
        way = await way_of(meant, sql_session) if asked else Way(None, straight=False)
        meant = meant.only(meant.endpoints[0]) if way.reached is None else meant.pinned(way.reached)
        endpoint = endpoint_of(meant if from_here else _from_there(meant))
        found.append(
            LoadTarget(name=words.name, endpoint=endpoint, direct=way.straight, elsewhere=way.elsewhere and from_here)
        )
    return tuple(found)


def _from_there(conninfo: ConnInfo) -> ConnInfo:
    """As another machine reaches it: a name that means this machine's loopback here has another address there."""
    endpoint = conninfo.endpoints[0]
    if _is_loopback(endpoint.hostaddr) and not (endpoint.host == "localhost" or _is_loopback(endpoint.host)):
        return replace(conninfo, endpoints=(replace(endpoint, hostaddr=""),))
    return conninfo


def _of_this_machine(conninfo: ConnInfo) -> bool:
    endpoint = conninfo.endpoints[0]
    return endpoint.is_socket or endpoint.host == "localhost" or _is_loopback(endpoint.address)


def _is_loopback(address: str) -> bool:
    try:
        return ip_address(address).is_loopback
    except ValueError:
        return False


_FIRST_ANSWER_S = 30.0


async def first_answer(session: LiveSession, keeper: FrameKeeper) -> None:
    """Waits for the server, whose numbers the runs are judged by.

    Raises:
        ConnectionProblem: It does not answer.
    """

    def answers(interval: Interval) -> bool:
        return not isinstance(sections.server(interval.newest), Unavailable)

    if not await keeper.until(answers, _FIRST_ANSWER_S):
        server = session.source.server
        raise ConnectionProblem("the server does not answer", "" if server is None else server.why)
