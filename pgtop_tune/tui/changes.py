"""Changes of parameters made from the screen: asked for, remembered until they are undone.

The tape learns of them from the server, as of everybody else's changes; only what a session like ours does not see
is noted here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from pgtop_tune.model.change import SYSTEM, ChangeState, ParameterChange, Scope, Terms, Wanted
from pgtop_tune.model.events import EventKind

if TYPE_CHECKING:
    from pgtop_tune.metrics.trip_wires import TripWire
    from pgtop_tune.model.postgres import Parameter
    from pgtop_tune.model.proof import Proof
    from pgtop_tune.session.change_control import ChangeControl
    from pgtop_tune.session.trial_desk import OnTrial, TakenBack, TrialDesk
    from pgtop_tune.tui.hands import Hands

RELOAD: Final = "SELECT pg_reload_conf();"


class Changes:
    """The operator's hand on parameters.

    Args:
        control: The door to the server.
        hands: The way to it.
        trials: Where sets on trial are watched; a sink of the engine.

    Attributes:
        made: Changes of this session that are still in force, oldest first.
        attempted: Whether anything was tried; what came of it may be known only to the journal.
    """

    def __init__(self, control: ChangeControl, hands: Hands, trials: TrialDesk) -> None:
        self._control: Final = control
        self._hands: Final = hands
        self._trials: Final = trials
        self._made: dict[str, ParameterChange] = {}
        self._told = 0
        self.attempted = False

    @property
    def made(self) -> tuple[ParameterChange, ...]:
        return tuple(self._made.values())

    @property
    def on_trial(self) -> OnTrial | None:
        """The set that is taken back unless somebody keeps it."""
        return self._trials.current

    def taken_back(self) -> TakenBack | None:
        """A trial that has ended since this was asked last; its changes are not in force any more."""
        ended = self._trials.ended
        if ended is None or ended.number <= self._told:
            return None
        self._told = ended.number
        for change in ended.changes:
            self._made.pop(change.id, None)
        return ended

    async def list(self, names: tuple[str, ...]) -> tuple[Parameter, ...]:
        """See `ParameterControl.list`."""
        return await self._hands.ask(self._control.list(names))

    async def statements(self, wanted: Sequence[Wanted]) -> tuple[str, ...]:
        """The exact SQL that `apply` would run, in this order; with one reload at the end where one is needed."""
        control = self._control

        async def compose() -> tuple[str, ...]:
            return tuple(control.statement(each.name, each.value, each.scope) for each in wanted)

        composed = await self._hands.ask(compose())
        plain = tuple(text.removesuffix(f" {RELOAD}") for text in composed)
        return plain if plain == composed else (*plain, RELOAD)

    async def statement(self, name: str, value: str | None, scope: Scope = SYSTEM) -> str:
        """The exact SQL of one change."""
        return " ".join(await self.statements((Wanted(name, value, scope),)))

    async def in_force(self) -> tuple[ParameterChange, ...]:
        """Everything the journal holds as made and not reverted, also by earlier sessions and by others."""
        return await self._hands.ask(self._control.in_force())

    async def apply(
        self, wanted: Sequence[Wanted], terms: Terms, wires: Sequence[TripWire] = ()
    ) -> tuple[ParameterChange, ...]:
        """Makes a set of changes.

        Raises:
            PgtopError: Refused, or not possible; see `TrialDesk.apply`.
        """
        self.attempted = True
        made = await self._hands.ask(self._trials.apply(wanted, terms, wires))
        await self._remember(made)
        return made

    def restarted(self, made: Sequence[ParameterChange]) -> None:
        """What was changed with a restart is in force, as far as it was applied."""
        self.attempted = True
        self._made |= {change.id: change for change in made if change.state is ChangeState.APPLIED}

    async def _remember(self, made: Sequence[ParameterChange]) -> None:
        for change in made:
            if change.state is ChangeState.APPLIED:
                self._made[change.id] = change
                if change.message and not await self._waits_for_restart(change.name):
                    self._hands.note(EventKind.PARAMETER, told(change), change.message)

    async def _waits_for_restart(self, name: str) -> bool:
        """Then the server says so itself."""
        return any(parameter.pending_restart for parameter in await self.list((name,)))

    async def prove(self, made: Sequence[ParameterChange]) -> tuple[Proof, ...]:
        """What running and new sessions have after changes."""
        return await self._hands.ask(self._control.prove(made))

    async def keep(self) -> tuple[ParameterChange, ...]:
        """What is on trial stays; empty when nothing is, or not any more.

        Raises:
            PgtopError: It could not be written down; it is still on trial.
        """
        kept = await self._hands.ask(self._trials.keep())
        for change in kept:
            if change.id in self._made:
                self._made[change.id] = change
        return kept

    async def undo(self) -> tuple[ParameterChange, ...]:
        """Takes back the last change still in force, with its set; empty when there is none.

        Raises:
            PgtopError: Refused, or not possible.
        """
        return self._forget(await self._hands.ask(self._control.undo_last()))

    async def undo_all(self) -> tuple[ParameterChange, ...]:
        """Takes back everything still in force, last first.

        Raises:
            PgtopError: Refused, or not possible; some may have been reverted.
        """
        return self._forget(await self._hands.ask(self._control.undo_all()))

    async def undo_made(self) -> None:
        """Takes back what this session made, last first, and nothing of anybody else's.

        Raises:
            PgtopError: Refused, or not possible; what came later is taken back.
        """
        for set_id in reversed(dict.fromkeys(change.set_id or change.id for change in self.made)):
            self._forget(await self._hands.ask(self._control.revert_set(set_id)))

    async def redo(self) -> tuple[ParameterChange, ...]:
        """Makes again what was undone last; empty when there is nothing.

        Raises:
            PgtopError: Refused, or not possible.
        """
        made = await self._hands.ask(self._control.redo())
        await self._remember(made)
        return made

    def _forget(self, undone: tuple[ParameterChange, ...]) -> tuple[ParameterChange, ...]:
        self._trials.undone(undone)
        for change in undone:
            before = self._made.pop(change.id, change)
            if before.message:
                known = _shown(before) if before is not change else ""
                self._hands.note(EventKind.PARAMETER, f"{change.name} {known}→{change.shown_after}")
        return undone


def _shown(change: ParameterChange) -> str:
    """What the change brought: what was read back, or what was asked for where that waits for a restart."""
    return change.value if change.message and change.value is not None else change.shown_after


def told(change: ParameterChange) -> str:
    """A change in a few words: "max_wal_size 1GB→16GB"."""
    return f"{change.name} {change.shown_before}→{_shown(change)}"
