"""Sets of changes in the operator's hand: what a `ParameterControl` can beyond one change at a time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from pgtop_tune.session.ports import ParameterControl

if TYPE_CHECKING:
    from pgtop_tune.model.change import ParameterChange, Terms, Wanted
    from pgtop_tune.model.proof import Proof


class SetControl(Protocol):
    """Several changes as one, on trial if wanted; every call is journaled before it acts."""

    async def apply_set(self, wanted: Sequence[Wanted], terms: Terms) -> tuple[ParameterChange, ...]:
        """Makes several changes as one, in the right order, with one reload; all or nothing.

        On trial it is taken back when its time is over, when the program ends, and when it is killed.

        Raises:
            UnsafeChange: A value can lose data and was not unlocked; nothing was changed.
            ChangedMeanwhile: One is not what `list` showed last; nothing was changed.
            ServerProblem: One was refused; nothing is changed.
            JournalProblem: The journal could not be written; nothing is changed.
            ConnectionProblem: Lost half-way; what became of it is found out when the server answers again.
        """
        ...

    async def keep(self, set_id: str) -> tuple[ParameterChange, ...]:
        """A set on trial stays; empty when it is not in force (any more)."""
        ...

    async def revert_set(self, set_id: str, why: str = "") -> tuple[ParameterChange, ...]:
        """Takes a set back, last change first; empty when it is not in force (any more)."""
        ...


class ChangeControl(ParameterControl, SetControl, Protocol):
    """All that an operator can do to parameters without a restart."""

    async def revert_overdue(self) -> tuple[ParameterChange, ...]:
        """Takes back what nobody kept in time, also of processes that are gone."""
        ...

    async def undo_last(self) -> tuple[ParameterChange, ...]:
        """Takes back the last change that is still in force, with its set, last first; empty when there is none."""
        ...

    async def redo(self) -> tuple[ParameterChange, ...]:
        """Makes again what `undo` or `undo_all` took back last; empty when there is nothing."""
        ...

    async def prove(self, changes: Sequence[ParameterChange]) -> tuple[Proof, ...]:
        """What running and new sessions have after changes, and what wins over them.

        Raises:
            ConnectionProblem: No new session can be had.
        """
        ...
