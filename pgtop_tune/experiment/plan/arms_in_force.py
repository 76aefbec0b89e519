"""Puts the arm of a stage into force, pending confirmation, and reverts it; also what an earlier process has left."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Final

from pgtop_tune.changes.change_sets import ChangeSets
from pgtop_tune.changes.model.change import Terms, WantedParameter, WantedSetting
from pgtop_tune.changes.model.change_set import ChangeSet
from pgtop_tune.errors import ConnectionProblem, PgtopError
from pgtop_tune.experiment.plan.log import ExperimentLog
from pgtop_tune.experiment.plan.model import Arm, BoundPlan, Stage
from pgtop_tune.experiment.plan.parts import ExperimentParts, until
from pgtop_tune.experiment.plan.status import arm_words
from pgtop_tune.metrics.setting_risks import risk_of
from pgtop_tune.metrics.value_risks import RiskClass

_SLACK_S: Final = 3600.0
_WATCHDOG_S: Final = 180.0
"""How long what an earlier process has left is waited for, before it is put back from here."""


class NotMade(Exception):
    """An arm cannot be made here; nothing is changed.

    Attributes:
        reason: In the server's words.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class ArmsInForce:
    """The change sets of an experiment, in its journal before they are made.

    Args:
        plan: With the arms.
        log: The journal, open.
        parts: Of the session.
    """

    def __init__(self, plan: BoundPlan, log: ExperimentLog, parts: ExperimentParts) -> None:
        self._plan: Final = plan
        self._log: Final = log
        self._parts: Final = parts
        self._told: Final = parts.told

    async def settle(self, set_ids: Sequence[str]) -> None:
        """Waits for revert watchdogs that are at work, and reverts what they have left.

        Raises:
            PgtopError: A change cannot be reverted, or the server is gone.
        """
        for set_id in set_ids:
            self._told(f"set {set_id} was left: waiting until it is reverted")
            if not await until(partial(self._reverted, set_id), _WATCHDOG_S):
                arm = next((each for each in self._plan.arms if each.restart), self._plan.arms[0])
                (await self._parts.doors.sets(arm).revert(set_id, "resumed")).checked()
            self._log.write("set_ended", set_id=set_id)
        if set_ids:
            await until(self._nothing_waits, _WATCHDOG_S)

    async def _reverted(self, set_id: str) -> bool:
        return all(change.set_id != set_id for change in await self._parts.doors.in_force())

    async def _nothing_waits(self) -> bool:
        names = {name for arm in self._plan.arms if arm.restart for name, _ in arm.parameters}
        return not any(each.name in names for each in await self._parts.doors.pending())

    @asynccontextmanager
    async def of(self, stage: Stage) -> AsyncIterator[None]:
        """The arm of a stage in force, and reverted on the way out.

        Raises:
            NotMade: It cannot be made; nothing is changed.
            ConnectionProblem: The server is gone.
        """
        arm = self._plan.arm(stage.arm)
        if not arm.changes:
            yield
            return
        set_id = uuid.uuid4().hex[:12]
        sets = self._parts.doors.sets(arm)
        self._log.write("set_began", set_id=set_id, stage=stage.number)
        try:
            await self._apply(sets, arm, set_id, stage)
        except ConnectionProblem:
            raise
        except PgtopError as problem:
            self._log.write("set_ended", set_id=set_id)
            raise NotMade(problem.message) from None
        try:
            yield
        finally:
            await asyncio.shield(self._revert(sets, arm, set_id))

    async def _apply(self, sets: ChangeSets, arm: Arm, set_id: str, stage: Stage) -> None:
        names = tuple(name for name, _ in arm.parameters)
        if names:
            await self._parts.doors.listed(names)
        # What runs code is shown whole before it is put into force.
        self._told(f"setting {arm.name}: {arm_words(arm)}")
        each_s = self._plan.time_s + self._plan.warm_up_s + 120
        terms = Terms(
            keep_within_s=len(stage.cells) * each_s + stage.scale * 10 + _SLACK_S,
            reason=f"experiment {self._plan.name}: {arm.name}",
            confirmed=self._parts.confirmed | self._unlocked(arm),
            set_id=set_id,
            of_experiment=True,
        )
        wanted = ChangeSet(
            parameters=tuple(WantedParameter(name, value) for name, value in arm.parameters),
            settings=tuple(WantedSetting(name, value) for name, value in arm.settings),
        )
        applying = asyncio.ensure_future(sets.apply(wanted, terms))
        try:
            await asyncio.shield(applying)
        except asyncio.CancelledError:
            # A change half-made is worse than one made.
            await asyncio.wait((applying,))
            if applying.exception() is None:
                await asyncio.shield(self._revert(sets, arm, set_id))
            raise

    def _unlocked(self, arm: Arm) -> frozenset[str]:
        """Return the names that --allow-unsafe unlocks: those whose values run no code."""
        risks = {name: risk_of(name, value) for name, value in arm.parameters} if self._parts.unsafe else {}
        return frozenset(name for name, risk in risks.items() if risk is None or risk.kind is not RiskClass.RUNS_CODE)

    async def _revert(self, sets: ChangeSets, arm: Arm, set_id: str) -> None:
        self._told(f"reverting {arm.name}")
        (await sets.revert(set_id, "the stage has ended")).checked()
        self._log.write("set_ended", set_id=set_id)
