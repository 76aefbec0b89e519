"""Changes that take a restart, in the operator's hand: collected, checked, applied with one restart, or taken back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from pgtop_tune.model.change import Terms, Wanted
    from pgtop_tune.model.restart import PendingParameter, RestartOutcome, RestartPlan


def silent(words: str) -> None:
    """Nobody wants to hear of the progress."""


class RestartControl(Protocol):
    """One restart for all that waits for it. Called from the engine's thread, as `ChangeControl`."""

    async def pending(self) -> tuple[PendingParameter, ...]:
        """What is written and waits for a restart, also what others have written.

        Raises:
            ConnectionProblem: The server is not there.
        """
        ...

    async def plan(self, wanted: Sequence[Wanted] = ()) -> RestartPlan:
        """What a restart with these changes and all that waits already would do; nothing is changed.

        Args:
            wanted: For the whole server; may hold parameters that need no restart as well.

        Raises:
            ServerProblem: The server does not have one of them.
            ConnectionProblem: The server is not there.
        """
        ...

    async def apply(
        self, wanted: Sequence[Wanted], terms: Terms, progress: Callable[[str], None] = silent, *, anyway: bool = False
    ) -> RestartOutcome:
        """Writes the changes as one set, restarts once, and makes sure that the server is back.

        A server that does not come up gets its old values back and is started again. Where somebody else has to
        restart it, this waits for that; cancelled meanwhile, the changes wait for a restart. On trial it is taken
        back, with a second restart, when its time is over, when the program ends, and when it is killed.

        Args:
            wanted: May be empty: then only what waits already is taken over.
            terms: As for a set without a restart.
            progress: Told in a few words what is done next; called in the loop this runs in.
            anyway: Also where a check says that the server would not start: it gets its old values back then.

        Raises:
            ServerProblem: A check says that the server would not start; nothing was changed.
            PgtopError: As `SetControl.apply_set`; nothing is changed and nothing was restarted.
        """
        ...

    async def keep(self, set_id: str) -> None:
        """A set on trial stays."""
        ...

    async def revert_set(self, set_id: str, why: str = "", progress: Callable[[str], None] = silent) -> RestartOutcome:
        """Takes a set back, and restarts where that is needed for the old values to be in force.

        Where somebody else has to restart it, this does not wait: the hint of the outcome is what is left to be done.
        """
        ...
