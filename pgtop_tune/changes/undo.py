"""Undoing by hand in a session: the last set, everything in force, what the session made; both halves together."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from pgtop_tune.changes.change_sets import ChangeSets
from pgtop_tune.changes.model.change import ParameterChange
from pgtop_tune.changes.model.change_set import Change
from pgtop_tune.changes.model.machine_change import HostChange
from pgtop_tune.changes.ports import ChangeControl, MachineControl


class Undo:
    """The operator's undo. Coroutines run in the engine's loop.

    Args:
        server: The door to the server; it remembers undone sets for `redo`.
        machine: The door to its machine; None where there is none.
        sets: Reverts sets of both.
    """

    def __init__(self, server: ChangeControl, machine: MachineControl | None, sets: ChangeSets) -> None:
        self._server: Final = server
        self._machine: Final = machine
        self._sets: Final = sets

    async def in_force(self, ours: Sequence[Change]) -> tuple[Change, ...]:
        """Everything the journals hold as made and not reverted, also by earlier sessions and by others; oldest first.

        Of the machine only changes of `ours`: its journal is not about one server.
        """
        of_server = await self._server.in_force()
        own = {each.id for each in ours if isinstance(each, HostChange)}
        if self._machine is None or not own:
            return of_server
        of_machine = (each for each in await self._machine.in_force() if each.id in own)
        return tuple(sorted((*of_machine, *of_server), key=lambda each: each.at_ms))

    async def last(self, shown: Sequence[Change]) -> tuple[Change, ...]:
        """Reverts the last set in force; empty when there is none.

        Args:
            shown: The set as `in_force` had it.

        Raises:
            PgtopError: Refused, or not possible.
        """
        of_server = any(isinstance(each, ParameterChange) for each in shown)
        return await self._around(shown, self._server.undo_last if of_server else _nothing)

    async def everything(self, ours: Sequence[Change]) -> tuple[Change, ...]:
        """Reverts everything in force on the server, last first, and `ours` on the machine. Raises as `last`."""
        return await self._around(ours, self._server.undo_all)

    async def sets(self, ours: Sequence[Change]) -> tuple[Change, ...]:
        """Reverts the sets of some changes, the last first, and nothing of anybody else's. Raises as `last`."""
        undone: list[Change] = []
        for set_id in reversed(dict.fromkeys(each.set_id or each.id for each in ours)):
            undone += (await self._sets.revert(set_id)).checked().changes
        return tuple(undone)

    async def _around(
        self, changes: Sequence[Change], server_half: Callable[[], Awaitable[tuple[ParameterChange, ...]]]
    ) -> tuple[Change, ...]:
        set_ids = tuple(dict.fromkeys(each.set_id or each.id for each in changes if isinstance(each, HostChange)))
        undone = (await self._sets.revert_around(set_ids, server_half)).checked()
        return (*undone.parameters, *undone.settings)


async def _nothing() -> tuple[ParameterChange, ...]:
    return ()
