"""A change set: parameters of the server and settings of its machine, made as one and reverted as one.

What came of taking changes back: only what was done counts as done.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct, field
from msgspec.structs import replace

from pgtop_tune.base.errors import ConnectionProblem, PgtopError
from pgtop_tune.changes.model.change import ChangeState, HostChange, ParameterChange, WantedParameter, WantedSetting


class Refusal(Struct, frozen=True):
    """A change that is still in force.

    Attributes:
        problem: Why.
    """

    change: ParameterChange
    problem: PgtopError


class RevertOutcome(Struct, frozen=True):
    """The outcome of reverting changes, last change first.

    Attributes:
        settled: What is not in force any more, in the order it was looked at.
        written: Ids of those whose old value was written.
        elsewhere: Made on another server of the same cluster, as far as can be told; still in force.
        refused: Still in force.
        origins: The other server that a change was made on, by id of the change: of those in `elsewhere`, and of those
            that this server has inherited. Foreign text.
    """

    settled: tuple[ParameterChange, ...] = ()
    written: frozenset[str] = frozenset()
    elsewhere: tuple[ParameterChange, ...] = ()
    refused: tuple[Refusal, ...] = ()
    origins: Mapping[str, str] = field(default_factory=dict)

    @property
    def reverted(self) -> tuple[ParameterChange, ...]:
        """The scope has been given its old value back."""
        return tuple(change for change in self.settled if change.id in self.written)

    @property
    def already(self) -> tuple[ParameterChange, ...]:
        """The scope had its old value by then; nothing was written."""
        return tuple(
            change
            for change in self.settled
            if change.id not in self.written and change.state is not ChangeState.SUPERSEDED
        )

    @property
    def left_alone(self) -> tuple[ParameterChange, ...]:
        """The scope has a value of somebody else's, or of a later change of ours; nothing was written."""
        return tuple(change for change in self.settled if change.state is ChangeState.SUPERSEDED)

    def after_writing(self, ids: frozenset[str]) -> RevertOutcome:
        """Return the outcome where this command had written some old values while the server was down."""
        own_ids = {change.id for change in self.already} & ids
        settled = tuple(replace(change, message="") if change.id in own_ids else change for change in self.settled)
        return replace(self, settled=settled, written=self.written | own_ids)

    def and_then(self, second: RevertOutcome) -> RevertOutcome:
        """Return both outcomes together."""
        return RevertOutcome(
            settled=(*self.settled, *second.settled),
            written=self.written | second.written,
            elsewhere=(*self.elsewhere, *second.elsewhere),
            refused=(*self.refused, *second.refused),
            origins={**self.origins, **second.origins},
        )

    def check_none_refused(self) -> None:
        """Raise the first of the problems."""
        if self.refused:
            raise self.refused[0].problem


Change = ParameterChange | HostChange
"""Of the server, or of its machine."""


class ChangeSet(Struct, frozen=True, kw_only=True):
    """The changes asked for; once the set is planned, in the order in which they are made.

    Attributes:
        parameters: Of the server.
        settings: Of the machine; once planned, those made before the server's half.
        settings_after: Those made after it, and after its restart; they may set one of `settings` again.
        persist: Whether the machine's half goes into our file of sysctl.d as well.
        with_restart: Whether the door to the server is asked also without parameters: it restarts, and takes over
            values that wait for that.
    """

    parameters: tuple[WantedParameter, ...] = ()
    settings: tuple[WantedSetting, ...] = ()
    settings_after: tuple[WantedSetting, ...] = ()
    persist: bool = False
    with_restart: bool = False

    @property
    def of_machine(self) -> tuple[WantedSetting, ...]:
        """Settings of the machine, in order."""
        return (*self.settings, *self.settings_after)


class Settled(Struct, frozen=True, kw_only=True):
    """The outcome of making, confirming or reverting a set.

    Attributes:
        set_id: The same in the journals of the server and of the machine.
        parameters: Changes of the server it came to.
        settings: Changes of the machine it came to.
        problem: Why a half of it could not be reverted; that half is still in force.
    """

    set_id: str
    parameters: tuple[ParameterChange, ...] = ()
    settings: tuple[HostChange, ...] = ()
    problem: PgtopError | None = None

    @property
    def changes(self) -> tuple[Change, ...]:
        """Changes of both halves."""
        return (*self.settings, *self.parameters)

    def checked(self) -> Settled:
        """Return the outcome itself.

        Raises:
            PgtopError: A half is still in force.
        """
        if self.problem is not None:
            raise self.problem
        return self


class LostBetweenHalves(ConnectionProblem):
    """The connection was lost while a set with two halves was made: whether the server has its half is not known.

    Attributes:
        made: The half that is in force.
    """

    def __init__(self, lost: ConnectionProblem, settled: Settled) -> None:
        hint = f"`pgtop-tune revert --set {settled.set_id}` reverts both halves when the server answers again"
        super().__init__(lost.message, hint)
        self.made = settled


def value_before(change: Change) -> str:
    """Return the value before a change, as the server or the kernel shows it."""
    return change.value_before if isinstance(change, HostChange) else change.shown_before
