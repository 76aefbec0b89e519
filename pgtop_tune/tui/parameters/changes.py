"""Changes of parameters made from the screen, remembered until they are undone.

The tape learns of them from the server, as of everybody else's changes; only what a session like ours does not see
is noted here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from msgspec import Struct
from msgspec.structs import replace

from pgtop_tune.advice.knobs.knob import Knob
from pgtop_tune.base.errors import PgtopError, UsageProblem
from pgtop_tune.changes.change_sets import ChangeSets, WithRestart
from pgtop_tune.changes.model.change import (
    SYSTEM,
    ChangeState,
    HostChange,
    ParameterChange,
    Scope,
    Terms,
    WantedParameter,
)
from pgtop_tune.changes.model.change_set import ChangeSet
from pgtop_tune.changes.ports import RestartControl
from pgtop_tune.model.absence import Reason, Unavailable
from pgtop_tune.model.events import EventKind
from pgtop_tune.runtime.engine import EngineClient
from pgtop_tune.tui.parameters.rows import ChangeConditions
from pgtop_tune.tui.scene.banners import brought, change_text

if TYPE_CHECKING:
    from pgtop_tune.advice.facts import MachineLook
    from pgtop_tune.changes.change_sets import Undo
    from pgtop_tune.changes.confirm.pending_sets import AutoReverted, Pending, PendingSets
    from pgtop_tune.changes.model.change import Proof, WantedSetting
    from pgtop_tune.changes.model.change_set import Change, RestartOutcome
    from pgtop_tune.changes.ports import ChangeControl, MachineControl
    from pgtop_tune.metrics.trip_wires import TripWire
    from pgtop_tune.model.postgres import Parameter
    from pgtop_tune.runtime.load_control import LoadControl
    from pgtop_tune.tui.parameters.rows import SettingRow


RELOAD: Final = "SELECT pg_reload_conf();"


class Changes:
    """The operator's hand on parameters.

    Args:
        control: The door to the server.
        client: The way to it.
        pending: Makes sets and watches those that are pending confirmation; a sink of the engine.
        undo: Reverts them by hand.
        machine: The door to the operating system; None where there is none.
        load: The load, which may need the server as it is; None without one.

    Attributes:
        made: Changes of this session that are still in force, oldest first.
        attempted: Whether anything was tried; what came of it may be known only to the journal.
    """

    def __init__(
        self,
        control: ChangeControl,
        client: EngineClient,
        pending: PendingSets,
        undo: Undo,
        machine: MachineControl | None = None,
        load: LoadControl | None = None,
    ) -> None:
        self._load: Final = load
        self._control: Final = control
        self._machine: Final = machine
        self._client: Final = client
        self._pending: Final = pending
        self._undo: Final = undo
        self._made: dict[str, Change] = {}
        self._told = 0
        self.attempted = False

    @property
    def made(self) -> tuple[Change, ...]:
        return tuple(self._made.values())

    @property
    def pending(self) -> Pending | None:
        """The set that reverts unless it is confirmed."""
        return self._pending.current

    def taken_back(self) -> AutoReverted | None:
        """Return a pending set that has ended since the last call; its changes are no longer in force."""
        ended = self._pending.ended
        if ended is None or ended.number <= self._told:
            return None
        self._told = ended.number
        for change in ended.changes:
            self._made.pop(change.id, None)
        return ended

    async def list(self, names: tuple[str, ...]) -> tuple[Parameter, ...]:
        return await self._client.ask(self._control.list(names))

    async def statements(self, changes: Sequence[WantedParameter]) -> tuple[str, ...]:
        """Return the exact SQL that `apply` would run, in this order, with a reload at the end where one is needed."""
        control = self._control

        async def compose() -> tuple[str, ...]:
            return tuple(control.statement(change.name, change.value, change.scope) for change in changes)

        composed = await self._client.ask(compose())
        plain = tuple(text.removesuffix(f" {RELOAD}") for text in composed)
        return plain if plain == composed else (*plain, RELOAD)

    async def statement(self, name: str, value: str | None, scope: Scope = SYSTEM) -> str:
        """Return the exact SQL of one change."""
        return " ".join(await self.statements((WantedParameter(name, value, scope),)))

    async def in_force(self) -> tuple[Change, ...]:
        """Return everything the journals hold as made and not reverted, also by earlier sessions and by others; oldest
        first.

        Of the machine only what this session made or adopted, and other halves of the server's sets: its journal is not
        about one server.
        """
        return await self._client.ask(self._undo.in_force(self._ours()))

    async def left(self) -> tuple[Change, ...]:
        """Return the changes that earlier sessions left in force; ask the server only where a journal has any."""
        return await self.in_force() if await self._client.ask(self._control.any_in_force()) else ()

    async def settings(self) -> MachineLook | Unavailable:
        """Return settings of the machine under the server, with what advice on them stands on; why not, where there are
        none.

        Raises:
            PgtopError: The engine has ended.
        """
        machine = self._machine
        if machine is None:
            return Unavailable(Reason.NOT_LOCAL)
        settings = await self._client.ask(machine.settings())
        if isinstance(settings, Unavailable):
            return settings
        from pgtop_tune.advice.facts import MachineLook

        return MachineLook(settings, await self._client.ask(machine.facts()), await self._client.ask(machine.disks()))

    def commands(self, name: str, value: str, *, survive: bool = True) -> tuple[str, ...]:
        """Return commands for a shell of root that change a setting of the machine, now and, to survive, for the next
        boot.
        """
        return () if self._machine is None else self._machine.commands(name, value, survive=survive)

    def commands_now(self, settings: Sequence[WantedSetting]) -> tuple[str, ...]:
        """Return the commands for a shell of root that change these settings until the next boot."""
        return tuple(command for setting in settings for command in self.commands(setting.name, setting.value)[:1])

    async def apply(
        self,
        parameters: Sequence[WantedParameter],
        terms: Terms,
        wires: Sequence[TripWire] = (),
        settings: Sequence[WantedSetting] = (),
    ) -> tuple[Change, ...]:
        """Make a set of changes.

        Raises:
            PgtopError: Refused, or not possible; see `PendingSets.apply`.
        """
        self._check_free()
        self.attempted = True
        change_set = ChangeSet(parameters=tuple(parameters), settings=tuple(settings))
        changes_made = (await self._client.ask(self._pending.apply(change_set, terms, wires))).changes
        await self._remember(changes_made)
        return changes_made

    async def restart(
        self,
        change_set: ChangeSet,
        terms: Terms,
        restart: RestartControl,
        progress: Callable[[str], None],
        *,
        anyway: bool,
    ) -> RestartOutcome:
        """Make a set with one restart of the server; the machine's half goes back when the server does not come up.

        Args:
            change_set: May be empty: then only values that wait for a restart already are taken over.
            terms: See `ChangeSets.apply`.
            restart: The door to it.
            progress: Takes the next step in a few words; called in the engine's thread.
            anyway: Restart even where a check says that the server would not start.

        Raises:
            PgtopError: Refused before the restart; nothing is changed.
        """
        self._check_free()
        self.attempted = True
        door = WithRestart(self._control, restart, progress, anyway=anyway)
        try:
            changes_made = await self._client.ask(
                ChangeSets(door, self._machine).apply(replace(change_set, with_restart=True), terms)
            )
        except PgtopError:
            if door.outcome is None:
                raise
            return door.outcome
        self._made |= {change.id: change for change in changes_made.changes if change.state is ChangeState.APPLIED}
        for setting in changes_made.settings:
            self._client.note(EventKind.PARAMETER, change_text(setting), setting.path)
        assert door.outcome is not None
        return door.outcome

    async def _remember(self, changes_made: Sequence[Change]) -> None:
        for change in changes_made:
            if change.state is ChangeState.APPLIED:
                self._made[change.id] = change
                if isinstance(change, HostChange):
                    self._client.note(EventKind.PARAMETER, change_text(change), change.path)
                elif change.message and not await self._waits_for_restart(change.name):
                    self._client.note(EventKind.PARAMETER, change_text(change), change.message)

    async def _waits_for_restart(self, name: str) -> bool:
        """Return whether the server says by itself that the value waits for a restart."""
        return any(parameter.pending_restart for parameter in await self.list((name,)))

    async def prove(self, changes_made: Sequence[Change]) -> tuple[Proof, ...]:
        """Return the values that running and new sessions have after changes."""
        of_server = [change for change in changes_made if isinstance(change, ParameterChange)]
        return await self._client.ask(self._control.prove(of_server)) if of_server else ()

    async def keep(self) -> tuple[Change, ...]:
        """Confirm the pending changes, adopted sets included; empty if nothing is pending, or no longer.

        Raises:
            PgtopError: It could not be written down; the set is still pending.
        """
        kept = await self._client.ask(self._pending.confirm())
        self._made |= {change.id: change for change in kept}
        return kept

    async def undo(self, changes: Sequence[Change]) -> tuple[Change, ...]:
        """Take back the last change still in force, with its set; empty when there is none.

        Args:
            changes: The set as `in_force` showed it.

        Raises:
            PgtopError: Refused, or not possible.
        """
        return await self._undone(changes)

    async def undo_all(self) -> tuple[Change, ...]:
        """Take back everything still in force, last first.

        Raises:
            PgtopError: Refused, or not possible; some may have been reverted.
        """
        return await self._undone(await self.in_force())

    async def undo_made(self) -> None:
        """Take back what this session made, last first, and nothing of anybody else's.

        Raises:
            PgtopError: Refused, or not possible; what came later is taken back.
        """
        await self._undone(self.made)

    async def _undone(self, changes: Sequence[Change]) -> tuple[Change, ...]:
        self._check_free()
        undone = await self._client.ask(self._undo.these(changes))
        forgotten = self._forget((*undone.parameters, *undone.settings))
        undone.checked()
        return forgotten

    def _check_free(self) -> None:
        """Raise UsageProblem while runs of a load are compared with each other: they would be of different servers."""
        reason = "" if self._load is None else self._load.state().compares
        if reason:
            raise UsageProblem(f"{reason}: the server stays as it is until they end", "stop them first: b, then x")

    def _ours(self) -> tuple[Change, ...]:
        pending = self.pending
        return (*self.made, *(pending.changes if pending else ()))

    async def redo(self) -> tuple[ParameterChange, ...]:
        """Make again what was undone last; empty when there is nothing.

        Raises:
            PgtopError: Refused, or not possible.
        """
        self._check_free()
        changes_made = await self._client.ask(self._control.redo())
        await self._remember(changes_made)
        return changes_made

    def _forget(self, undone: Sequence[Change]) -> tuple[Change, ...]:
        self._pending.reverted_by_hand(undone)
        for change in undone:
            known_change = self._made.pop(change.id, None)
            if isinstance(change, HostChange) or (known_change or change).message:
                was = brought(known_change) if known_change is not None else ""
                self._client.note(EventKind.PARAMETER, f"{change.name} {was}→{change.shown_after}")
        return tuple(undone)


# What the list of parameters is about, and what of it outlives the dialog.


class ListScope(Struct):
    """Scope of the list of parameters, one for each session.

    Attributes:
        knobs: The catalogue, in order.
        can_load: Whether a load can be started from here.
        allow_unsafe: Whether values that can lose data may be unlocked.
        client: The way to the controls below.
        restart: Changes that take a restart; None where there is no door to them.
        next_load: Values that sessions of the next load begin with, by name.
        conditions: Terms on which sets are made; None before anybody has chosen.
        staged: Rows with a staged value, also while the list is closed.
    """

    knobs: tuple[Knob, ...]
    can_load: bool = False
    allow_unsafe: bool = False
    client: EngineClient | None = None
    restart: RestartControl | None = None
    next_load: dict[str, str] = {}
    conditions: ChangeConditions | None = None
    staged: tuple[SettingRow, ...] = ()
