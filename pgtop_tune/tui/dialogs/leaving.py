"""The key that leaves: asks when something would be lost or left behind, and settles it first."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pgtop_tune.changes.model.machine_change import HostChange
from pgtop_tune.errors import PgtopError, UsageProblem

if TYPE_CHECKING:
    from pgtop_tune.tui.app_context import Actions, AppContext
    from pgtop_tune.tui.dialogs.leave import Leaving
    from pgtop_tune.tui.load.actions import LoadActions
    from pgtop_tune.tui.parameters.actions import ParameterActions


class LeaveActions:
    """Leaves the screen.

    Args:
        context: The application.
        load: May run, or be made.
        parameters: Changes may be in force, or pending.
    """

    def __init__(self, context: AppContext, load: LoadActions, parameters: ParameterActions) -> None:
        self._context = context
        self._load = load
        self._parameters = parameters

    def actions(self) -> Actions:
        """By name."""
        return {"quit": self.leave}

    def leave(self) -> None:
        """Leaves; asks when a load runs, and when changes are in force or pending."""
        from pgtop_tune.tui.dialogs.leave import leave_question

        run, going_on = self._load.running, self._load.going_on
        made = () if self._parameters.changes is None else self._parameters.changes.made
        pending = self._parameters.pending
        if self._context.options.throwaway:
            # The server is thrown away, the machine is not.
            made, pending = tuple(change for change in made if isinstance(change, HostChange)), None
        if run is None and not going_on and not made and pending is None:
            self._context.app.exit(0)
        else:
            question = leave_question(run, made, self._context.glyphs, going_on, pending)
            self._context.app.push_screen(question, self._leave_so)

    def _leave_so(self, how: Leaving | None) -> None:
        if how is not None:
            self._context.app.run_worker(self._settle(how), group="leave", exclusive=True)

    async def _settle(self, how: Leaving) -> None:
        """Stops and undoes what was asked for; stays when that fails, so that nothing is left behind unseen."""
        from pgtop_tune.tui.dialogs.leave import Leaving

        self._context.leaving = True
        changes = self._parameters.changes
        try:
            await self._load.stop()
            if how is Leaving.UNDOING and changes is not None:
                await changes.undo_made()
            if how is Leaving.KEEPING and changes is not None and not await changes.keep():
                raise UsageProblem("too late: what was on trial has been taken back")
        except PgtopError as problem:
            self._context.leaving = False
            self._context.tell(f"{problem}\nnot left; q asks again", "error")
            return
        self._context.app.exit(0)
