"""Ports of changes: to the server, to its machine and to a restart, and the adopted sets.

Protocols only. Everything here is called from the engine's thread unless it says otherwise.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Protocol

from msgspec import Struct

from pgtop_tune.changes.model.change import SYSTEM, HostChange, ParameterChange, Scope

if TYPE_CHECKING:
    from pgtop_tune.base.errors import JournalProblem
    from pgtop_tune.changes.model.change import Proof, Terms, WantedParameter, WantedSetting
    from pgtop_tune.changes.model.change_set import RestartOutcome, RestartPlan
    from pgtop_tune.host.machine_setup import MachineFacts
    from pgtop_tune.model.absence import Unavailable
    from pgtop_tune.model.machine import Disk, SystemSetting
    from pgtop_tune.model.postgres import Parameter


def no_progress(message: str) -> None:
    """Ignore the progress."""


BeforeRestart = Callable[[], Awaitable[None]]
"""A step between old values, once they are written again, and the start with them."""


async def nothing_before() -> None:
    """Restart at once."""


class RestartControl(Protocol):
    """One restart for all that waits for it. Called from the engine's thread, as `ChangeControl`."""

    async def plan(self, requested: Sequence[WantedParameter] = ()) -> RestartPlan:
        """Return the plan of a restart with these changes and all that wait already; nothing is changed.

        Args:
            requested: For the whole server; may hold parameters that need no restart as well.

        Raises:
            ServerProblem: The server does not have one of them.
            ConnectionProblem: The server is not there.
        """
        ...

    async def apply(
        self,
        requested: Sequence[WantedParameter],
        terms: Terms,
        progress: Callable[[str], None] = no_progress,
        before_restart: BeforeRestart = nothing_before,
        *,
        anyway: bool = False,
    ) -> RestartOutcome:
        """Write the changes as one set, restart once, and make sure that the server is back.

        A server that does not come up gets its old values back and is started again. Where somebody else has to
        restart it, this waits for that; cancelled meanwhile, the changes wait for a restart. A pending set is taken
        back, with a second restart, when its time is over, when the program ends, and when it is killed.

        Args:
            requested: May be empty: then only what waits already is taken over.
            terms: As for a set without a restart.
            progress: Takes the next step in a few words; called in the loop this runs in.
            before_restart: Awaited before a start with the old values.
            anyway: Restart even where a check says that the server would not start: it gets its old values back then.

        Raises:
            ServerProblem: A check says that the server would not start; nothing was changed.
            PgtopError: As `SetControl.apply_set`; nothing is changed and nothing was restarted.
        """
        ...

    async def begin_deadline(self, set_id: str, within_s: float) -> None:
        """See `SetControl.begin_deadline`."""
        ...

    async def keep(self, set_id: str) -> None:
        """Confirm a pending set."""
        ...

    async def revert_set(
        self,
        set_id: str,
        reason: str = "",
        progress: Callable[[str], None] = no_progress,
        before_restart: BeforeRestart = nothing_before,
    ) -> RestartOutcome:
        """Revert a set, and restart the server where the old values need it.

        Where another user has to restart it, this does not wait: the hint of the outcome has the remaining step.
        """
        ...


class MachineControl(Protocol):
    """Settings of the kernel, several changed as one, pending confirmation if wanted; every call is journaled before it
    acts. The journal is that of the machine, whatever servers run on it."""

    async def settings(self) -> tuple[SystemSetting, ...] | Unavailable:
        """Return every setting with its live value, its value after a reboot, and whether this process may change it.

        Returns:
            NOT_LOCAL where the server runs on another machine, NOT_YET before it has answered.
        """
        ...

    async def facts(self) -> MachineFacts:
        """Return the facts for advice on these settings (`advice/rules/system`)."""
        ...

    async def disks(self) -> tuple[Disk, ...]:
        """Return the disks under the server's directories; likewise."""
        ...

    def commands(self, name: str, value: str, *, survive: bool = False) -> tuple[str, ...]:
        """Return the commands that change a setting in a shell, for the screen and where this process may not change
        it."""
        ...

    async def apply_set(
        self, requested: Sequence[WantedSetting], terms: Terms, *, survive: bool = False
    ) -> tuple[HostChange, ...]:
        """Make several changes as one, in the order given; all or nothing.

        A pending change reverts at its deadline, when the program ends, and when it is killed.

        Args:
            requested: The settings.
            terms: Whether it has to be kept, why it is made, and the set it belongs to.
            survive: Put into our file of sysctl.d as well.

        Raises:
            UsageProblem: No such setting here, a value it does not take, or one that no file can keep.
            HostProblem: We may not (the hint has the command), or the kernel refuses; nothing is changed.
            JournalProblem: The journal could not be written; nothing is changed.
        """
        ...

    async def begin_deadline(self, set_id: str, within_s: float) -> None:
        """Begin the deadline of a set now, since making its other half took time. Raises as `apply_set`."""
        ...

    async def keep(self, set_id: str) -> tuple[HostChange, ...]:
        """Confirm a pending set; empty when it is not in force (any more)."""
        ...

    async def revert_set(
        self,
        set_id: str,
        reason: str = "",
        only: Callable[[HostChange], bool] = lambda change: True,
        report: Callable[[HostChange], None] = lambda change: None,
    ) -> tuple[HostChange, ...]:
        """Revert a set, or those of its changes that are meant, last change first; empty when it is not in force.

        `report` takes each change that is reverted, also where another one cannot be.
        """
        ...

    async def lost(self, set_id: str) -> JournalProblem | None:
        """See `SetControl.lost`."""
        ...

    async def in_force(self) -> tuple[HostChange, ...]:
        """Return changes that the journal holds as made and not reverted, oldest first."""
        ...


class AdoptedSet(Struct, frozen=True):
    """A set, or the half of one, as it was adopted.

    Attributes:
        set_id: The same for both halves.
        changes: Of the server or of its machine, in the order they were made.
        until_ms: The deadline, milliseconds since the epoch.
        by: The program that is gone: "user@host, pid".
        trip_wires: As typed.
        with_restart: Whether reverting restarts the server where the old values need it.
    """

    set_id: str
    changes: tuple[ParameterChange | HostChange, ...]
    until_ms: int
    by: str
    trip_wires: tuple[str, ...] = ()
    with_restart: bool = False


class AdoptionControl(Protocol):
    """The sets that a session has adopted so far."""

    def adopted(self) -> tuple[AdoptedSet, ...]:
        """Return all adopted sets, oldest first, also those that have been confirmed or reverted since. Thread-safe."""
        ...


class SetControl(Protocol):
    """Several changes as one, pending confirmation if wanted; every call is journaled before it acts."""

    async def apply_set(
        self, requested: Sequence[WantedParameter], terms: Terms, before_restart: BeforeRestart = nothing_before
    ) -> tuple[ParameterChange, ...]:
        """Make several changes as one, in the right order, with one reload; all or nothing.

        A pending change reverts at its deadline, when the program ends, and when it is killed. `before_restart` is
        awaited where the server starts with its old values again.

        Raises:
            UnsafeChange: A value can lose data and was not unlocked; nothing was changed.
            ChangedMeanwhile: One is not what `list` showed last; nothing was changed.
            ServerProblem: One was refused; nothing is changed.
            JournalProblem: The journal could not be written; nothing is changed.
            ConnectionProblem: Lost half-way; what became of it is found out when the server answers again.
        """
        ...

    async def begin_deadline(self, set_id: str, within_s: float) -> None:
        """Begin the deadline of a set now, since making its other half took time. Raises as `apply_set`."""
        ...

    async def keep(self, set_id: str) -> tuple[ParameterChange, ...]:
        """Confirm a pending set; empty when it is not in force (any more)."""
        ...

    async def revert_set(
        self, set_id: str, reason: str = "", before_restart: BeforeRestart = nothing_before
    ) -> tuple[ParameterChange, ...]:
        """Take a set back, last change first; empty when it is not in force (any more)."""
        ...

    async def lost(self, set_id: str) -> JournalProblem | None:
        """Return why no journal has a set of this program any more; the hint has what restores the old values. None
        where a journal has it. Asks no server."""
        ...


class ChangeControl(SetControl, Protocol):
    """All that an operator can do to parameters without a restart."""

    async def list(self, names: tuple[str, ...]) -> tuple[Parameter, ...]:
        """Return the named rows of pg_settings that this server has, in the order asked for."""
        ...

    def statement(self, name: str, value: str | None, scope: Scope = SYSTEM) -> str:
        """Return the SQL that sets (with None resets) a parameter, with the reload it needs, for the screen."""
        ...

    async def in_force(self) -> tuple[ParameterChange, ...]:
        """Return changes that the journal holds as made and not reverted, oldest first."""
        ...

    async def any_in_force(self) -> bool:
        """Return whether a journal, of whichever server, holds changes in force; asks no server."""
        ...

    async def claim_experiment(self, names: Sequence[str] = ()) -> None:
        """Keep other programs from measuring on the server, and from changing the parameters of an experiment.

        Raises:
            PendingElsewhere: Another experiment runs, or a value is pending confirmation there.
        """
        ...

    async def release_experiment(self) -> None:
        """Let other programs change what an experiment of this program has switched."""
        ...

    async def undo_these(self, ids: Sequence[str]) -> tuple[ParameterChange, ...]:
        """Take back those of some changes that are still in force, last first; `redo` makes them again."""
        ...

    async def redo(self) -> tuple[ParameterChange, ...]:
        """Make again what `undo_these` took back last; empty when there is nothing."""
        ...

    async def prove(self, changes: Sequence[ParameterChange]) -> tuple[Proof, ...]:
        """Return the values of running and new sessions after changes, and the settings that win over them.

        Raises:
            ConnectionProblem: No new session can be had.
        """
        ...
