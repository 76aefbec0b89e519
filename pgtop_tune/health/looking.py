"""One look of the check over a live session: gathers, measures where that is asked for, and judges."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from pgtop_tune.health.check import Check, Limits
from pgtop_tune.health.facts import CheckFacts
from pgtop_tune.health.gather import gather
from pgtop_tune.health.judge import judge
from pgtop_tune.health.measure import busy, keep, measure
from pgtop_tune.health.project_file import project_wishes
from pgtop_tune.health.registry import chosen, thresholds
from pgtop_tune.health.report import Report
from pgtop_tune.pooler.address import PoolerAddress
from pgtop_tune.postgres.server.conninfo import ConnInfo


class Looking(Struct, frozen=True):
    """See `CheckControl`; checks as `pgtop-tune check` does without options, with what the project wishes.

    Attributes:
        conninfo: The server.
        poolers: Admin consoles to look at.
    """

    conninfo: ConnInfo
    poolers: Sequence[PoolerAddress]

    async def check(self) -> Report:
        """See `CheckControl.check`."""
        wishes = await _wishes()
        return await wishes.judged(await self._gathered(wishes))

    async def measure(self, *, anyway: bool) -> Report | tuple[str, ...]:
        """See `CheckControl.measure`."""
        wishes = await _wishes()
        facts = await self._gathered(wishes)
        disturbs = busy(facts)
        if disturbs and not anyway:
            return disturbs
        measured = await measure(self.conninfo, facts)
        await asyncio.to_thread(keep, facts, measured)
        return await wishes.judged(replace(facts, measured=measured))

    async def _gathered(self, wishes: _Wishes) -> CheckFacts:
        return await gather(self.conninfo, wishes.checks, poolers=self.poolers)


class _Wishes(Struct, frozen=True):
    """What the project wants to be checked."""

    checks: tuple[Check, ...]
    limits: Mapping[str, Limits]

    async def judged(self, facts: CheckFacts) -> Report:
        """Frames are sampled in the caller's loop: it is done beside it."""
        return await asyncio.to_thread(judge, self.checks, facts, self.limits)


async def _wishes() -> _Wishes:
    wishes = await asyncio.to_thread(project_wishes)
    return _Wishes(chosen(wishes.select, wishes.ignore), thresholds(wishes.thresholds))
