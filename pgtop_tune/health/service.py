"""The check as a live session offers it: a `CheckControl` for one server."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING

from msgspec.structs import replace

from pgtop_tune.host.source_names import HostSource

if TYPE_CHECKING:
    from pgtop_tune.health.facts import CheckFacts
    from pgtop_tune.health.report import Report
    from pgtop_tune.health.setup import CheckSetup
    from pgtop_tune.model.pooler import PoolerAddress
    from pgtop_tune.postgres.server.conninfo import ConnInfo


class CheckService:
    """Checks of one server, as `pgtop-tune check` without options makes them with the project's file.

    The first check imports the registry with all its checks, which takes 2 MB of memory.

    Args:
        conninfo: The server.
        poolers: Admin consoles to look at.
        host_source: Source of numbers of this machine.

    Attributes:
        conninfo: Address of the server; replaced after the operator has typed a password.
    """

    def __init__(
        self, conninfo: ConnInfo, poolers: Sequence[PoolerAddress] = (), host_source: HostSource = HostSource.AUTO
    ) -> None:
        self.conninfo = conninfo
        self._poolers = tuple(poolers)
        self._host_source = host_source

    async def check(self) -> Report:
        """See `CheckControl.check`."""
        setup, facts = await self._gathered()
        return await asyncio.to_thread(setup.judged, facts)

    async def measure(self, *, anyway: bool) -> Report | tuple[str, ...]:
        """See `CheckControl.measure`."""
        setup, facts = await self._gathered()
        from pgtop_tune.health.measure import busy, keep, measure

        disturbances = busy(facts)
        if disturbances and not anyway:
            return disturbances
        measured = await measure(self.conninfo, facts)
        await asyncio.to_thread(keep, facts, measured)
        return await asyncio.to_thread(setup.judged, replace(facts, measured=measured))

    async def _gathered(self) -> tuple[CheckSetup, CheckFacts]:
        # The caller's loop samples frames: files are read, modules imported and facts judged in threads beside it.
        setup, gather = await asyncio.to_thread(_loaded)
        facts = await gather(self.conninfo, setup.checks, poolers=self._poolers, host_source=self._host_source)
        return setup, facts


def _loaded() -> tuple[CheckSetup, Callable[..., Awaitable[CheckFacts]]]:
    from pgtop_tune.health.gather import gather
    from pgtop_tune.health.setup import CheckSetup

    return CheckSetup.by_project(), gather
