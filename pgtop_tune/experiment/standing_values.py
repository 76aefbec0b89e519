"""Values that stay in force while something is measured: under both arms of an evaluation, or in a run of a series.

Pending confirmation like each switch, so that a kill reverts them. Where arms are switched besides, they are disjoint
from what an arm sets, so that the two change sets never stand on each other.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Mapping
from typing import Final

from pgtop_tune.changes.change_sets import ChangeSets
from pgtop_tune.changes.model.change import Terms, WantedParameter, WantedSetting
from pgtop_tune.changes.model.change_set import ChangeSet
from pgtop_tune.changes.ports import MachineControl, SetControl

_AWAY_S: Final = 30.0


class StandingValues:
    """One change set at a time.

    Args:
        door: Makes and reverts the server's half.
        before: Told the id of a set before it is made.
        reason: Begins what the journal says of them.
        machine: As the door, of the machine's half; None where no value is a setting of it.
        settings: Names that are settings of the machine.
    """

    def __init__(
        self,
        door: SetControl,
        before: Callable[[str], None],
        reason: str,
        machine: MachineControl | None = None,
        settings: frozenset[str] = frozenset(),
    ) -> None:
        self._sets: Final = ChangeSets(door, machine)
        self._door: Final = door
        self._machine: Final = machine
        self._settings: Final = settings
        self._before: Final = before
        self._reason: Final = reason
        self._set_id = ""
        self.values: Mapping[str, str] = {}

    def differs(self, values: Mapping[str, str]) -> bool:
        """Whether `to` would change anything."""
        return dict(values) != dict(self.values)

    async def to(self, values: Mapping[str, str], within_s: float) -> None:
        """Puts exactly these into force, or prolongs them; they revert by themselves after `within_s`.

        Raises:
            PgtopError: The server or the machine refused, or the server is not there.
        """
        if not self.differs(values):
            if self._set_id:
                await self._prolong(within_s)
            return
        await self.revert("other values follow")
        if not values:
            return
        set_id = uuid.uuid4().hex[:12]
        self._before(set_id)
        words = ", ".join(f"{name}={value}" for name, value in values.items())
        terms = Terms(keep_within_s=within_s, reason=f"{self._reason} {words}", set_id=set_id, of_experiment=True)
        self._set_id = set_id
        await self._sets.apply(
            ChangeSet(
                parameters=tuple(WantedParameter(*each) for each in values.items() if each[0] not in self._settings),
                settings=tuple(WantedSetting(*each) for each in values.items() if each[0] in self._settings),
            ),
            terms,
        )
        self.values = dict(values)

    async def _prolong(self, within_s: float) -> None:
        if not self._settings.issuperset(self.values):
            await self._door.begin_deadline(self._set_id, within_s)
        if self._machine is not None and not self._settings.isdisjoint(self.values):
            await self._machine.begin_deadline(self._set_id, within_s)

    async def revert(self, why: str) -> None:
        """Takes them out of force; a server that is away is waited for. Raises as `to`."""
        if self._set_id:
            until_s = time.monotonic() + _AWAY_S
            settled = await self._sets.revert_until_done(
                self._set_id, f"{self._reason} {why}", lambda problem: None, lambda: time.monotonic() < until_s
            )
            settled.checked()
        self._set_id, self.values = "", {}
