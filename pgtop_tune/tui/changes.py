"""Changes of parameters made from the screen: asked for, remembered until they are undone.

The tape learns of them from the server, as of everybody else's changes; only what a session like ours does not see
is noted here.
"""

from __future__ import annotations

from typing import Final

from pgtop_tune.model.change import ChangeState, ParameterChange
from pgtop_tune.model.events import EventKind
from pgtop_tune.model.postgres import Parameter
from pgtop_tune.session.ports import ParameterControl
from pgtop_tune.tui.hands import Hands


class Changes:
    """The operator's hand on parameters.

    Args:
        control: The door to the server.
        hands: The way to it.

    Attributes:
        made: Changes of this session that are still in force, oldest first.
        attempted: Whether anything was tried; what came of it may be known only to the journal.
    """

    def __init__(self, control: ParameterControl, hands: Hands) -> None:
        self._control: Final = control
        self._hands: Final = hands
        self._made: dict[str, ParameterChange] = {}
        self.attempted = False

    @property
    def made(self) -> tuple[ParameterChange, ...]:
        return tuple(self._made.values())

    async def list(self, names: tuple[str, ...]) -> tuple[Parameter, ...]:
        """See `ParameterControl.list`."""
        return await self._hands.ask(self._control.list(names))

    async def statement(self, name: str, value: str | None) -> str:
        """The exact SQL that `apply` would run."""
        control = self._control

        async def compose() -> str:
            return control.statement(name, value)

        return await self._hands.ask(compose())

    async def in_force(self) -> tuple[ParameterChange, ...]:
        """Everything the journal holds as made and not reverted, also by earlier sessions."""
        return await self._hands.ask(self._control.in_force())

    async def apply(self, name: str, value: str | None) -> ParameterChange:
        """Changes a parameter.

        Raises:
            PgtopError: Refused, or not possible.
        """
        self.attempted = True
        change = await self._hands.ask(self._control.apply(name, value))
        if change.state is ChangeState.APPLIED:
            self._made[change.id] = change
            if change.message and not await self._waits_for_restart(change.name):
                self._hands.note(EventKind.PARAMETER, told(change), change.message)
        return change

    async def _waits_for_restart(self, name: str) -> bool:
        """Then the server says so itself."""
        return any(parameter.pending_restart for parameter in await self.list((name,)))

    async def undo(self) -> ParameterChange | None:
        """Reverts the last change still in force; None when there is none.

        Raises:
            PgtopError: Refused, or not possible.
        """
        undone = await self._hands.ask(self._control.undo())
        if undone is not None:
            self._forget(undone)
        return undone

    async def undo_all(self) -> tuple[ParameterChange, ...]:
        """Reverts everything still in force, last first.

        Raises:
            PgtopError: Refused, or not possible; some may have been reverted.
        """
        undone = await self._hands.ask(self._control.undo_all())
        for change in undone:
            self._forget(change)
        return undone

    def _forget(self, undone: ParameterChange) -> None:
        before = self._made.pop(undone.id, undone)
        if before.message:
            known = _shown(before) if before is not undone else ""
            self._hands.note(EventKind.PARAMETER, f"{undone.name} {known}→{undone.shown_after}")


def _shown(change: ParameterChange) -> str:
    """What the change brought: what was read back, or what was asked for where that waits for a restart."""
    return change.value if change.message and change.value is not None else change.shown_after


def told(change: ParameterChange) -> str:
    """A change in a few words: "max_wal_size 1GB→16GB"."""
    return f"{change.name} {change.shown_before}→{_shown(change)}"
