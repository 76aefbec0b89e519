"""Sets whose making and taking back come with a restart, as a `SetControl`."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pgtop_tune.changes.model.change import ParameterChange, Terms, Wanted
from pgtop_tune.changes.model.restart import RestartOutcome, RestartState
from pgtop_tune.changes.restart.control import RestartService
from pgtop_tune.changes.server.control import PostgresControl
from pgtop_tune.errors import ServerProblem


class WithRestart:
    """A door to the parameters behind which the server is restarted.

    Args:
        control: The door.
        desk: The restart.
        progress: Told what is done next.
        anyway: Also where a check says that the server would not start.
    """

    def __init__(
        self, control: PostgresControl, desk: RestartService, progress: Callable[[str], None], *, anyway: bool
    ) -> None:
        self._control = control
        self._desk = desk
        self._progress = progress
        self._anyway = anyway

    async def apply_set(self, wanted: Sequence[Wanted], terms: Terms) -> tuple[ParameterChange, ...]:
        """See `SetControl.apply_set`.

        Raises:
            ServerProblem: The server did not come up with it; the message holds the lines of its log that explain it.
        """
        outcome = await self._desk.apply(wanted, terms, self._progress, anyway=self._anyway)
        if outcome.state not in (RestartState.WAITING, RestartState.LEFT):
            check_up(outcome)
        self._progress("; ".join(filter(None, (outcome.words, outcome.hint))))
        if outcome.state is RestartState.LEFT:
            return outcome.changes
        for proof in await self._control.prove(outcome.changes):
            for words in (*proof.overrides, *proof.advice):
                self._progress(f"{proof.name}: {words}")
        return outcome.changes

    async def keep(self, set_id: str) -> tuple[ParameterChange, ...]:
        """See `SetControl.keep`."""
        await self._desk.keep(set_id)
        return tuple(change for change in await self._control.in_force() if change.set_id == set_id)

    async def revert_set(self, set_id: str, why: str = "") -> tuple[ParameterChange, ...]:
        """See `SetControl.revert_set`.

        Raises:
            ServerProblem: The old values are written, and the server did not come up with them.
        """
        outcome = await self._desk.revert_set(set_id, why, self._progress)
        if outcome.state not in (RestartState.NOT_RESTARTED, RestartState.WAITING, RestartState.LEFT):
            check_up(outcome)
        if outcome.state is not RestartState.NOT_RESTARTED:
            self._progress(": ".join(filter(None, (outcome.words, outcome.hint))))
        return outcome.changes


def check_up(outcome: RestartOutcome) -> None:
    """Makes sure that a restart came to what was wanted.

    Raises:
        ServerProblem: It did not.
    """
    if outcome.state is not RestartState.CAME_UP:
        log = "".join(f"\n  {line}" for line in outcome.log)
        raise ServerProblem(f"{outcome.words}{log}", outcome.hint)
