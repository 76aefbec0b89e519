"""A door to the server behind which each change set comes with a restart, for `ChangeSets`."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pgtop_tune.changes.model.change import ParameterChange, Terms, WantedParameter
from pgtop_tune.changes.model.restart import RestartOutcome, RestartState
from pgtop_tune.changes.ports import ChangeControl, RestartControl
from pgtop_tune.errors import ServerProblem


class WithRestart:
    """A `SetControl` that restarts the server.

    Args:
        control: The door without a restart.
        restart: The restart.
        progress: Takes the next step in a few words, and the outcome.
        anyway: Also where a check says that the server would not start.

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

    async def apply_set(self, wanted: Sequence[WantedParameter], terms: Terms) -> tuple[ParameterChange, ...]:
        """See `SetControl.apply_set`.

        Raises:
            ServerProblem: The server did not come up with it; the message holds the lines of its log that explain it.
        """
        outcome = self.outcome = await self._restart.apply(wanted, terms, self._progress, anyway=self._anyway)
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
        await self._restart.keep(set_id)
        return tuple(change for change in await self._control.in_force() if change.set_id == set_id)

    async def revert_set(self, set_id: str, why: str = "") -> tuple[ParameterChange, ...]:
        """See `SetControl.revert_set`.

        Raises:
            ServerProblem: The old values are written, and the server did not come up with them.
        """
        outcome = await self._restart.revert_set(set_id, why, self._progress)
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
