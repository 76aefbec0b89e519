"""Values that stay in force while something is measured: under both arms of an evaluation, or in a run of a series.

Pending confirmation like each switch, so that a kill reverts them. Where arms are switched besides, they are disjoint
from what an arm sets, so that the two change sets never stand on each other.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from typing import Final

from pgtop_tune.changes.change_sets import ChangeSets
from pgtop_tune.changes.model.change import Terms, WantedParameter
from pgtop_tune.changes.model.change_set import ChangeSet
from pgtop_tune.changes.ports import SetControl


class StandingValues:
    """One change set at a time.

    Args:
        sets: Makes and reverts it.
        door: The server's half of these sets, for deadlines.
        before: Told the id of a set before it is made.
        reason: Begins what the journal says of them.
    """

    def __init__(self, sets: ChangeSets, door: SetControl, before: Callable[[str], None], reason: str) -> None:
        self._sets: Final = sets
        self._door: Final = door
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
            PgtopError: The server refused, or is not there.
        """
        if not self.differs(values):
            if self._set_id:
                await self._door.begin_deadline(self._set_id, within_s)
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
            ChangeSet(parameters=tuple(WantedParameter(name, value) for name, value in values.items())), terms
        )
        self.values = dict(values)

    async def revert(self, why: str) -> None:
        """Takes them out of force. Raises as `to`."""
        if self._set_id:
            (await self._sets.revert(self._set_id, f"{self._reason} {why}")).checked()
        self._set_id, self.values = "", {}
