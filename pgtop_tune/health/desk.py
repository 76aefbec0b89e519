"""A `CheckControl` for one server."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pgtop_tune.health.report import Report
    from pgtop_tune.pooler.address import PoolerAddress
    from pgtop_tune.postgres.conninfo import ConnInfo


class CheckDesk:
    """Checks as `pgtop-tune check` does without options, with what the project wishes.

    Args:
        conninfo: The server.
        poolers: Admin consoles to look at.

    Attributes:
        conninfo: Set anew when a password was typed.
    """

    def __init__(self, conninfo: ConnInfo, poolers: Sequence[PoolerAddress] = ()) -> None:
        self.conninfo = conninfo
        self._poolers = tuple(poolers)

    async def check(self) -> Report:
        """See `CheckControl.check`."""
        # The registry with all its checks weighs 2 MB, and most sessions never ask for it.
        from pgtop_tune.health.gather import gather
        from pgtop_tune.health.judge import judge
        from pgtop_tune.health.project_file import project_wishes
        from pgtop_tune.health.registry import chosen, thresholds

        wishes = await asyncio.to_thread(project_wishes)
        checks, limits = chosen(wishes.select, wishes.ignore), thresholds(wishes.thresholds)
        facts = await gather(self.conninfo, checks, poolers=self._poolers)
        # Frames are sampled in this loop.
        return await asyncio.to_thread(judge, checks, facts, limits)
