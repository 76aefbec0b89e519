"""A `CheckControl` for one server."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING

from pgtop_tune.host.source_names import HostSource

if TYPE_CHECKING:
    from pgtop_tune.health.looking import Looking
    from pgtop_tune.health.report import Report
    from pgtop_tune.model.pooler import PoolerAddress
    from pgtop_tune.postgres.server.conninfo import ConnInfo


class CheckService:
    """Imports what checks when it is first asked for: the registry with all its checks weighs 2 MB.

    Args:
        conninfo: The server.
        poolers: Admin consoles to look at.
        host_source: Where numbers of this machine come from.

    Attributes:
        conninfo: Set anew when a password was typed.
    """

    def __init__(
        self, conninfo: ConnInfo, poolers: Sequence[PoolerAddress] = (), host_source: HostSource = HostSource.AUTO
    ) -> None:
        self.conninfo = conninfo
        self._poolers = tuple(poolers)
        self._host_source = host_source

    async def check(self) -> Report:
        """See `CheckControl.check`."""
        return await (await self._looking()).check()

    async def measure(self, *, anyway: bool) -> Report | tuple[str, ...]:
        """See `CheckControl.measure`."""
        return await (await self._looking()).measure(anyway=anyway)

    async def _looking(self) -> Looking:
        # Frames are sampled in this loop, and the imports take some hundred milliseconds.
        kind = await asyncio.to_thread(_kind)
        return kind(self.conninfo, self._poolers, self._host_source)


def _kind() -> type[Looking]:
    from pgtop_tune.health.looking import Looking

    return Looking
