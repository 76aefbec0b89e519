"""Outages on purpose of a server that the operator has allowed, and its return. Blocking."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from pgtop_tune.base.errors import UsageProblem
from pgtop_tune.changes.restart.start_again import start_until_ready, started_again, until_ready
from pgtop_tune.changes.start.checks import check_possible
from pgtop_tune.changes.start.places import find_place
from pgtop_tune.cluster.crash import crash
from pgtop_tune.cluster.service import run_program
from pgtop_tune.model.instance import ServerPair, ServerPlace

if TYPE_CHECKING:
    from pgtop_tune.changes.restart.control import RestartService
    from pgtop_tune.changes.server.control import PostgresControl
    from pgtop_tune.changes.server.operator_session import OperatorSession

_STANDING: Final = """
SELECT pg_is_in_recovery() AS in_recovery,
       current_setting('synchronous_standby_names') AS synchronous,
       EXISTS (SELECT FROM pg_stat_replication WHERE sync_state IN ('sync', 'quorum')) AS followed
"""


class OutageServer(Struct, frozen=True, kw_only=True):
    """A server before outages of it.

    Attributes:
        server_place: The place of the server.
        in_recovery: Whether it is a standby.
        synchronous: synchronous_standby_names. Foreign text.
        followed: Whether a synchronous standby streams.
    """

    server_place: ServerPlace
    in_recovery: bool
    synchronous: str
    followed: bool


def outage_server(session: OperatorSession) -> OutageServer:
    """Return a session's server."""
    return OutageServer(server_place=find_place(session), **session.rows(_STANDING)[0])


async def checked_place(control: PostgresControl, service: RestartService, allowed: Sequence[str]) -> ServerPlace:
    """Return the place of a control's server, where an outage of it is allowed and ours to end.

    Args:
        control: Its parameters.
        service: Its restarts.
        allowed: HOST:PORT of the servers that the operator allows.

    Raises:
        UsageProblem: It is not.
        ServerProblem: The server would not start again.
    """
    server = await control.ask(outage_server)
    server_place = allowed_place(server.server_place, allowed)
    endpoint = server_place.endpoint
    if server.in_recovery:
        raise UsageProblem(
            f"{endpoint} is a standby: its primary may wait for it during an outage", "connect to the primary"
        )
    if server.synchronous and not server.followed:
        raise UsageProblem(
            f"commits on {endpoint} wait for a synchronous standby, and none streams: clients would hang",
            "start the standby, or empty synchronous_standby_names",
        )
    plan = await service.plan()
    check_possible(plan.checks)
    if plan.pending or any(not change.kept for change in await control.in_force()):
        raise UsageProblem(
            f"a parameter change of {endpoint} is pending, and an outage would put it into force or revert it",
            "confirm it, or `pgtop-tune revert` first",
        )
    return server_place


def allowed_place(server_place: ServerPlace, allowed: Sequence[str]) -> ServerPlace:
    """Return the place of a server where an outage of it is allowed and ours to end. Raises UsageProblem."""
    endpoint = server_place.endpoint
    if endpoint not in allowed:
        raise UsageProblem(
            f"the plan causes outages of {endpoint}, which is not allowed",
            f'pass --allow-outage {endpoint}; or set servers = "throwaway" in the plan',
        )
    if not (server_place.restart and server_place.start):
        reason = server_place.why_not or "it cannot be started from here"
        raise UsageProblem(
            f"pgtop-tune cannot cause an outage of {endpoint}: {reason}",
            "run on the machine of the server, as its user or root",
        )
    return server_place


class ServerOutages:
    """Outages of one server.

    Args:
        server_place: The place of the server, whose restart is ours to run.
    """

    def __init__(self, server_place: ServerPlace) -> None:
        self._server_place: Final = server_place

    @property
    def place(self) -> ServerPlace | ServerPair:
        """See `OutageServers.place`."""
        return self._server_place

    @property
    def actions(self) -> Mapping[str, Callable[[], None]]:
        """Return what can be done to it, by name."""
        return {"restart": self.restart, "kill": self.kill}

    def guarded(self) -> AbstractContextManager[None]:
        """Have a process of its own start the server when this program is gone. Raises ClusterProblem."""
        return started_again(self._server_place)

    def restart(self) -> None:
        """Restart the server (fast). Raises ClusterProblem where it does not come back."""
        ran = run_program(self._server_place.restart, self._server_place, as_owner=self._server_place.as_owner)
        if ran.status == 0:
            until_ready(self._server_place)
        else:
            self.restore()

    def kill(self) -> None:
        """Kill the postmaster, and start the server again.

        Raises:
            ClusterProblem: It was not killed, or does not come back.
        """
        crash(self._server_place)
        self.restore()

    def restore(self) -> None:
        """Have the server run. Raises ClusterProblem where it does not start."""
        start_until_ready(self._server_place)
