"""The one orchestrator of changes: plans, makes, confirms and reverts sets with a half of the server and a half of its
machine, at a deadline or by hand.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from pgtop_tune.base.errors import ConnectionProblem, JournalProblem, PgtopError, ServerProblem, UsageProblem
from pgtop_tune.changes.journal import read_all
from pgtop_tune.changes.model.change import (
    HostChange,
    ParameterChange,
    Terms,
    WantedParameter,
    WantedSetting,
    joined_notes,
)
from pgtop_tune.changes.model.change_set import (
    Change,
    ChangeSet,
    LostBetweenHalves,
    RestartOutcome,
    RestartState,
    Settled,
)
from pgtop_tune.changes.ports import (
    BeforeRestart,
    ChangeControl,
    MachineControl,
    RestartControl,
    SetControl,
    nothing_before,
)
from pgtop_tune.changes.selection import around_server, goes_before_restart, goes_before_server
from pgtop_tune.changes.watchdogs import RESTART_S
from pgtop_tune.model.absence import Unavailable

# The machine's halves of sets that are reverted, by whichever program; the order around the server's halves.


def is_of_machine_only(set_id: str, directory: Path | None, copies: Iterable[bytes] = ()) -> bool:
    """Return whether a set is in force on this machine, and no journal has a server's half of it.

    Args:
        set_id: Id of the set.
        directory: Directory of the journals; paths.journal_dir() by default.
        copies: Lines of sets, for those that no journal has any more.
    """
    journals = read_all(directory)
    texts = [*journals.texts.values(), *(text for _, text in journals.lost(copies))]
    of_machine = any(set_id in (set_half.set_id, set_half.id) for text in texts for set_half in text.host_in_force)
    return of_machine and not any(
        set_id in (server_half.set_id, server_half.id) for text in texts for server_half in text.in_force
    )


class MachineHalves:
    """The machine's halves of sets that are reverted, around the server's halves: pools of huge pages that get larger
    again first, those that get smaller before a restart, all else afterwards.

    Args:
        machine: The door to it; None where there is none.
        set_ids: Sets known so far, in the order they were made.
        reason: Reason of the revert, for the journal.
        report: Takes each change that is reverted.

    Attributes:
        settled: The reverted changes.
    """

    def __init__(
        self,
        machine: MachineControl | None,
        set_ids: Sequence[str],
        reason: str = "",
        report: Callable[[HostChange], None] = lambda change: None,
    ) -> None:
        self._machine = machine
        self._ids = list(set_ids)
        self._reason = reason
        self._report = report
        self.settled: list[HostChange] = []

    async def before(self, changes: Sequence[ParameterChange] = ()) -> None:
        """Revert the settings that go before the server's halves, which are reverted even if this fails.

        Args:
            changes: The server's halves, where they say which sets are meant.
        """
        await self._try_to_revert(goes_before_server, changes)

    async def before_restart(self, changes: Sequence[ParameterChange] = ()) -> None:
        """Revert the settings that go between the old values of the server and a start with them; see `before`."""
        await self._try_to_revert(goes_before_restart, changes)

    async def after(self) -> Sequence[HostChange]:
        """Revert the rest, and return all reverted changes, those of `before` too.

        Raises:
            HostProblem: We may not, or the kernel refuses one; the others are reverted.
            JournalProblem: The journal cannot be read or written, or another process is writing it.
        """
        await self._revert(lambda change: True)
        return self.settled

    async def _try_to_revert(self, selects: Callable[[HostChange], bool], changes: Sequence[ParameterChange]) -> None:
        self._ids += [
            set_id for set_id in dict.fromkeys(change.set_id for change in changes) if set_id not in self._ids
        ]
        with suppress(PgtopError):
            # `after` tries again, and raises the problem.
            await self._revert(selects)

    async def _revert(self, selects: Callable[[HostChange], bool]) -> None:
        problems: list[PgtopError] = []
        for set_id in filter(None, reversed(self._ids if self._machine is not None else ())):
            assert self._machine is not None
            try:
                await self._machine.revert_set(set_id, self._reason, selects, self._reverted)
            except Exception as problem:
                problems.append(as_problem(problem))
        if problems:
            raise problems[0]

    def _reverted(self, change: HostChange) -> None:
        self.settled.append(change)
        self._report(change)


def as_problem(failure: Exception) -> PgtopError:
    """Return a failure of a revert as a problem, so that the other changes are reverted all the same."""
    if isinstance(failure, PgtopError):
        return failure
    return PgtopError(f"{type(failure).__name__}: {failure}", "please report this bug")


AGAIN_S: Final = 2.0
"""Seconds between two attempts to revert a set."""


class _SetStep(Struct, frozen=True):
    """A part of a set, which adds its changes to those of the parts before."""

    door: SetControl | MachineControl
    make: Callable[[Settled, Terms], Awaitable[Settled]]


class ChangeSets:
    """Makes and reverts sets. Coroutines run in the loop of the doors.

    Args:
        server: The door to the server; None where no set has parameters.
        machine: The door to its machine; None where there is no way to it.
        restart: Restarts the server where an adopted set needs it; None where no restart is possible.
    """

    def __init__(
        self, server: SetControl | None, machine: MachineControl | None, restart: RestartControl | None = None
    ) -> None:
        self._server: Final = server
        self._machine: Final = machine
        self._restart: Final = restart
        self._without_machine: Final[set[str]] = set()

    async def plan(self, change_set: ChangeSet) -> ChangeSet:
        """Return the set in the order in which it is made.

        The door to the server orders its parameters, by `selection.parameters_in_order`.
        """
        if not change_set.of_machine:
            return change_set
        settings = () if self._machine is None else await self._machine.settings()
        current = () if isinstance(settings, Unavailable) else settings
        live = {setting.name: setting.live for setting in current if not isinstance(setting.live, Unavailable)}
        restarts = isinstance(self._server, WithRestart)
        before, after = around_server(change_set.of_machine, live, restarts=restarts)
        return replace(change_set, settings=before, settings_after=after)

    async def apply(self, change_set: ChangeSet, terms: Terms) -> Settled:
        """Make both halves, or none.

        Args:
            change_set: Planned or not.
            terms: With a deadline, that counts from when both halves are made.

        Raises:
            UsageProblem: There is no way to the machine.
            LostBetweenHalves: The connection was lost and the other half is in force.
            PgtopError: See `SetControl.apply_set` and `MachineControl.apply_set`; nothing is changed.
        """
        if change_set.of_machine and self._machine is None:
            raise UsageProblem("the settings of the machine cannot be changed from here")
        planned = await self.plan(change_set)
        within_s = terms.keep_within_s
        terms = replace(terms, set_id=terms.set_id or uuid.uuid4().hex[:12])
        if not planned.of_machine:
            self._without_machine.add(terms.set_id)
        settled = Settled(set_id=terms.set_id)
        steps = self._steps(planned)
        if within_s is not None and len(steps) > 1:
            terms = replace(terms, keep_within_s=within_s + RESTART_S)
        try:
            for step in steps:
                settled = await step.make(settled, terms)
            if len(steps) > 1:
                await self._begin_deadlines(settled, steps, within_s)
        except ConnectionProblem as lost:
            if not planned.of_machine:
                raise
            with suppress(PgtopError):
                await self._begin_deadlines(settled, steps[:1], within_s)
            raise LostBetweenHalves(lost, settled) from lost
        except Exception as problem:
            await self._withdraw(settled, problem)
            raise
        except asyncio.CancelledError:
            if len(steps) > 1 and not planned.with_restart:
                # Only the journals know how far the half under way has come.
                await self.revert(settled.set_id, "the program ended while the change set was being applied")
            raise
        return settled

    def _steps(self, planned: ChangeSet) -> list[_SetStep]:
        """Return the halves in the order they are made; the machine's may be made before and after the server's."""
        server, machine = self._server, self._machine

        def of_machine(settings: tuple[WantedSetting, ...]) -> list[_SetStep]:
            async def make(settled: Settled, terms: Terms) -> Settled:
                assert machine is not None
                done = await machine.apply_set(settings, terms, survive=planned.persist)
                return replace(settled, settings=(*settled.settings, *done))

            return [_SetStep(machine, make)] if machine is not None and settings else []

        async def make(settled: Settled, terms: Terms) -> Settled:
            assert server is not None
            # Where it does not start with the new values, it gets its pool back before it starts with the old ones.
            halves = MachineHalves(machine, (settled.set_id,), "the server did not come up")
            return replace(settled, parameters=await server.apply_set(planned.parameters, terms, halves.before_restart))

        has_server = server is not None and bool(planned.parameters or planned.with_restart)
        of_server = [_SetStep(server, make)] if server is not None and has_server else []
        return [*of_machine(planned.settings), *of_server, *of_machine(planned.settings_after)]

    async def _begin_deadlines(self, settled: Settled, steps: Sequence[_SetStep], within_s: float | None) -> None:
        """Begin the deadline of each half: the first halves have waited until the last one was made."""
        if within_s is not None and settled.changes:
            for door in {id(step.door): step.door for step in steps}.values():
                await door.begin_deadline(settled.set_id, within_s)

    async def _withdraw(self, settled: Settled, problem: Exception) -> None:
        """Revert the half that was made; where even that fails, the hint of the problem says so."""
        if not settled.changes:
            return
        reason = "the other half of the change set was refused"
        if settled.parameters:
            failed = (await self.revert(settled.set_id, reason)).problem
        else:
            failed = (await self.revert_around((settled.set_id,), _nothing, reason)).problem
        if failed is not None and isinstance(problem, PgtopError):
            problem.hint = f"{failed.message}: `pgtop-tune revert --set {settled.set_id}` reverts the first half"

    async def confirm(self, set_id: str, *, of_server: bool = True) -> Settled:
        """Confirm both halves; the outcome is empty where they are not in force (any more).

        Args:
            set_id: Id of the set.
            of_server: Whether it has, or may have, a half of the server; else the server is not asked.

        Raises:
            PgtopError: It could not be written down; the set is still pending confirmation.
        """
        settings = await self._machine.keep(set_id) if self._machine is not None else ()
        parameters = await self._server.keep(set_id) if self._server is not None and of_server else ()
        return Settled(set_id=set_id, parameters=parameters, settings=settings)

    async def revert(
        self, set_id: str, reason: str = "", *, with_restart: bool = False, of_server: bool = True
    ) -> Settled:
        """Revert both halves once; a half that cannot be reverted does not stop the other.

        Pools of huge pages that get larger again go before the server's half, so that the server has them, and those
        that get smaller before its restart, so that it does not take them; the rest of the machine goes after it.

        Args:
            set_id: Id of the set.
            reason: The reason, for the journal.
            with_restart: Whether the server is restarted where the old values need it.
            of_server: Whether it has, or may have, a half of the server; else the server is not asked.
        """

        async def server_half(before_restart: BeforeRestart) -> tuple[ParameterChange, ...]:
            if self._server is None or not of_server:
                return ()
            if with_restart and self._restart is not None:
                return (await self._restart.revert_set(set_id, reason, before_restart=before_restart)).changes
            return await self._server.revert_set(set_id, reason, before_restart)

        return await self.revert_around((set_id,), server_half, reason)

    async def revert_around(
        self,
        set_ids: Sequence[str],
        server_half: Callable[[BeforeRestart], Awaitable[tuple[ParameterChange, ...]]],
        reason: str = "",
    ) -> Settled:
        """Revert the machine's halves of sets, the last set first, before and after the server's.

        Args:
            set_ids: Sets in the order they were made.
            server_half: Reverts the server's halves.
            reason: The reason, for the journal.
        """
        halves = MachineHalves(self._machine, set_ids, reason)
        parameters: tuple[ParameterChange, ...] = ()
        problem: PgtopError | None = None
        await halves.before()
        try:
            parameters = await server_half(halves.before_restart)
        except Exception as refused:
            problem = as_problem(refused)
        try:
            await halves.after()
        except PgtopError as refused:
            # The machine's journal has nothing of these sets, whether it can be read or not.
            if not (isinstance(refused, JournalProblem) and self._without_machine.issuperset(set_ids)):
                problem = problem or refused
        set_id = set_ids[-1] if set_ids else ""
        return Settled(set_id=set_id, parameters=parameters, settings=tuple(halves.settled), problem=problem)

    async def lost(self, set_id: str) -> JournalProblem | None:
        """Return why no journal has a set of this program any more; see `SetControl.lost`."""
        for door in (self._server, self._machine):
            problem = None if door is None else await door.lost(set_id)
            if problem is not None:
                return problem
        return None

    async def revert_until_done(
        self,
        set_id: str,
        reason: str,
        report: Callable[[PgtopError], None],
        still: Callable[[], bool],
        *,
        with_restart: bool = False,
        of_server: bool = True,
    ) -> Settled:
        """Revert both halves, again and again while one cannot be: a server may be away.

        Args:
            set_id, reason, with_restart, of_server: See `revert`.
            report: Takes each problem; a problem that repeats only once.
            still: Whether the set is still to be reverted; asked after each attempt that failed.
        """
        settled, last_message = Settled(set_id=set_id), ""
        while True:
            once = await self.revert(set_id, reason, with_restart=with_restart, of_server=of_server)
            settled = Settled(
                set_id=set_id,
                parameters=(*settled.parameters, *once.parameters),
                settings=(*settled.settings, *once.settings),
            )
            if once.problem is None:
                return settled
            if once.problem.message != last_message:
                last_message = once.problem.message
                report(once.problem)
            await asyncio.sleep(AGAIN_S)
            if not still():
                return replace(settled, problem=once.problem)


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

    async def in_force(self, own_changes: Sequence[Change]) -> tuple[Change, ...]:
        """Return all changes that the journals hold as made and not reverted, also by earlier sessions, oldest first.

        Of the machine's changes only `own_changes`, and the other halves of sets of this server: the machine's journal
        serves all its servers.
        """
        of_server = await self._server.in_force()
        own_ids = {change.id for change in own_changes if isinstance(change, HostChange)}
        sets = {change.set_id for change in of_server} - {""}
        if self._machine is None or not (own_ids or sets):
            return of_server
        of_machine = (
            change for change in await self._machine.in_force() if change.id in own_ids or change.set_id in sets
        )
        return tuple(sorted((*of_machine, *of_server), key=lambda change: change.at_ms))

    async def these(self, changes: Sequence[Change]) -> Settled:
        """Revert changes of `in_force`, with their sets, the last first, and nothing that was made since.

        Returns:
            The reverted changes; `problem` says why another one is still in force.
        """
        set_ids = tuple(dict.fromkeys(change.set_key for change in sorted(changes, key=lambda change: change.at_ms)))

        async def server_half(_: BeforeRestart) -> tuple[ParameterChange, ...]:
            of_server = [change.id for change in changes if isinstance(change, ParameterChange)]
            return await self._server.undo_these(of_server) if of_server else ()

        return await self._sets.revert_around(set_ids, server_half)


async def _nothing(_: BeforeRestart) -> tuple[ParameterChange, ...]:
    return ()


# A door to the server behind which each change set comes with a restart, for `ChangeSets`.


class WithRestart:
    """A `SetControl` that restarts the server.

    Args:
        control: The door without a restart.
        restart: The restart.
        progress: Takes the next step in a few words, and the outcome.
        anyway: Restart even where a check says that the server would not start.

    Attributes:
        outcome: Of the restart that made the last set; None before.
    """

    def __init__(
        self, control: ChangeControl, restart: RestartControl, progress: Callable[[str], None], *, anyway: bool
    ) -> None:
        self._control = control
        self._restart = restart
        self._progress = progress
        self._anyway = anyway
        self.outcome: RestartOutcome | None = None

    async def apply_set(
        self, requested: Sequence[WantedParameter], terms: Terms, before_restart: BeforeRestart = nothing_before
    ) -> tuple[ParameterChange, ...]:
        """See `SetControl.apply_set`.

        Raises:
            ServerProblem: The server did not come up with the set; the message holds the log lines that explain it.
        """
        outcome = self.outcome = await self._restart.apply(
            requested, terms, self._progress, before_restart, anyway=self._anyway
        )
        if outcome.state not in (RestartState.WAITING, RestartState.LEFT):
            check_up(outcome)
        self._progress(joined_notes(outcome.words, outcome.hint))
        if outcome.state is RestartState.LEFT:
            return outcome.changes
        for proof in await self._control.prove(outcome.changes):
            for note in (*proof.overrides, *proof.advice):
                self._progress(f"{proof.name}: {note}")
        return outcome.changes

    async def begin_deadline(self, set_id: str, within_s: float) -> None:
        """See `SetControl.begin_deadline`."""
        await self._restart.begin_deadline(set_id, within_s)

    async def keep(self, set_id: str) -> tuple[ParameterChange, ...]:
        """See `SetControl.keep`."""
        await self._restart.keep(set_id)
        return tuple(change for change in await self._control.in_force() if change.set_id == set_id)

    async def lost(self, set_id: str) -> JournalProblem | None:
        """See `SetControl.lost`."""
        return await self._control.lost(set_id)

    async def revert_set(
        self, set_id: str, reason: str = "", before_restart: BeforeRestart = nothing_before
    ) -> tuple[ParameterChange, ...]:
        """See `SetControl.revert_set`.

        Raises:
            ServerProblem: The old values are written, and the server did not come up with them.
        """
        outcome = await self._restart.revert_set(set_id, reason, self._progress, before_restart)
        if outcome.state not in (RestartState.NOT_RESTARTED, RestartState.WAITING, RestartState.LEFT):
            check_up(outcome)
        if outcome.state is not RestartState.NOT_RESTARTED:
            self._progress(": ".join(filter(None, (outcome.words, outcome.hint))))
        return outcome.changes


def check_up(outcome: RestartOutcome) -> None:
    """Make sure that a restart brought the server up with its new values.

    Raises:
        ServerProblem: It did not.
    """
    if outcome.state is not RestartState.CAME_UP:
        log = "".join(f"\n  {line}" for line in outcome.log)
        raise ServerProblem(f"{outcome.words}{log}", outcome.hint)
