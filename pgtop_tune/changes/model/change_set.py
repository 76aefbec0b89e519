"""A change set: parameters of the server and settings of its machine, made as one and reverted as one."""

from __future__ import annotations

from msgspec import Struct

from pgtop_tune.changes.model.change import ParameterChange, Wanted
from pgtop_tune.changes.model.machine_change import HostChange, WantedSetting
from pgtop_tune.errors import ConnectionProblem, PgtopError

Change = ParameterChange | HostChange
"""Of the server, or of its machine."""


class ChangeSet(Struct, frozen=True, kw_only=True):
    """What is asked for, or, once it is planned, what is made and in which order.

    Attributes:
        parameters: Of the server.
        settings: Of the machine.
        machine_last: Whether the machine's half is made after the server's: memory is given up after it was left.
        persist: Whether the machine's half goes into our file of sysctl.d as well.
    """

    parameters: tuple[Wanted, ...] = ()
    settings: tuple[WantedSetting, ...] = ()
    machine_last: bool = False
    persist: bool = False


class Settled(Struct, frozen=True, kw_only=True):
    """What came of making, confirming or reverting a set.

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
        """Of both halves."""
        return (*self.settings, *self.parameters)

    def checked(self) -> Settled:
        """Itself.

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

    def __init__(self, lost: ConnectionProblem, made: Settled) -> None:
        hint = f"`pgtop-tune revert --set {made.set_id}` reverts both halves when the server answers again"
        super().__init__(lost.message, hint)
        self.made = made


def value_before(change: Change) -> str:
    """The value before a change, as the server or the kernel shows it."""
    return change.value_before if isinstance(change, HostChange) else change.shown_before
