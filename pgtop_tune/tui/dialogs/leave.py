"""Leaving: a question if something would be lost or left in force, and the chosen answer carried out first."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import TYPE_CHECKING

from pgtop_tune.base.errors import PgtopError, UsageProblem
from pgtop_tune.changes.model.change import HostChange
from pgtop_tune.tui.parameters.change_words import told

if TYPE_CHECKING:
    from pgtop_tune.changes.confirm.pending_sets import Pending
    from pgtop_tune.changes.model.change_set import Change
    from pgtop_tune.model.bench import BenchRun
    from pgtop_tune.tui.app_context import AppContext
    from pgtop_tune.tui.dialogs.confirm import ConfirmDialog, Paragraph
    from pgtop_tune.tui.experiment.actions import ExperimentActions
    from pgtop_tune.tui.load.actions import LoadActions
    from pgtop_tune.tui.parameters.actions import ParameterActions
    from pgtop_tune.tui.widgets.glyphs import Glyphs


class Leaving(Enum):
    """How to leave."""

    PLAINLY = "leave"
    UNDOING = "undo and leave"
    KEEPING = "confirm and leave"


class LeaveActions:
    """Leaves the screen.

    Args:
        context: The application.
        load: May run, or be made.
        parameters: Changes may be in force, or pending.
        experiment: May run.
    """

    def __init__(
        self, context: AppContext, load: LoadActions, parameters: ParameterActions, experiment: ExperimentActions
    ) -> None:
        self._context = context
        self._load = load
        self._parameters = parameters
        self._experiment = experiment

    def leave(self) -> None:
        """Leaves; asks when a load or an experiment runs, and when changes are in force or pending."""
        run, going_on = self._load.running, self._load.going_on
        made = () if self._parameters.changes is None else self._parameters.changes.made
        pending = self._parameters.pending
        if self._context.options.throwaway:
            # The server is thrown away, the machine is not.
            made, pending = tuple(change for change in made if isinstance(change, HostChange)), None
        experiment = self._experiment.running
        if run is None and not going_on and not experiment and not made and pending is None:
            self._context.app.exit(0)
        else:
            question = leave_question(run, made, self._context.glyphs, going_on, pending, experiment)
            self._context.app.push_screen(question, self._leave_so)

    def _leave_so(self, how: Leaving | None) -> None:
        if how is not None:
            self._context.app.run_worker(self._settle(how), group="leave", exclusive=True)

    async def _settle(self, how: Leaving) -> None:
        """Stops and undoes what was asked for; stays when that fails, so that nothing is left behind unseen."""
        self._context.leaving = True
        changes = self._parameters.changes
        try:
            await self._experiment.stop()
            await self._load.stop()
            if how is Leaving.UNDOING and changes is not None:
                await changes.undo_made()
            if how is Leaving.KEEPING and changes is not None and not await changes.keep():
                raise UsageProblem("too late: the pending change has been reverted")
        except PgtopError as problem:
            self._context.leaving = False
            self._context.tell(f"{problem}\nthe program did not end; q asks again", "error")
            return
        self._context.app.exit(0)


def leave_question(
    run: BenchRun | None,
    made: Sequence[Change],
    glyphs: Glyphs,
    going_on: str = "",
    pending: Pending | None = None,
    experiment: str = "",
) -> ConfirmDialog[Leaving]:
    """Asks what becomes of a load that runs, of a data set in the making, and of changes in force.

    Args:
        run: The load under way.
        made: Changes made in this session and not undone, oldest first; pending ones included.
        glyphs: What it is drawn with.
        going_on: Steps of a load, or a data set in the making; "" for none.
        pending: What is taken back unless it is kept.
        experiment: What is compared by turns; "" for nothing.
    """
    from pgtop_tune.tui.dialogs.confirm import AnswerKey, ConfirmDialog, Paragraph

    said: list[Paragraph] = []
    if experiment:
        said.append(Paragraph(f"An experiment is running ({experiment}); leaving stops it and puts A back."))
    if going_on:
        said.append(Paragraph(f"{going_on}: still running; it ends with this program."))
    elif run is not None:
        said.append(Paragraph(f"A load is running ({run.profile}, {run.clients} clients); it ends with this program."))
    pending_ids = {change.id for change in pending.changes} if pending is not None else set()
    staying = [change for change in made if change.id not in pending_ids and not _can_lose(change)]
    ending = [change for change in made if change.id not in pending_ids and _can_lose(change)]
    said += _listed("Pending confirmation; leaving reverts it:", () if pending is None else pending.changes)
    said += _listed("This can lose data; leaving reverts it:", ending)
    said += _listed("These changes are in force; `pgtop-tune revert` undoes them later:", staying)
    stop = "stop it and leave" if going_on else "stop the load and leave" if run is not None else "leave"
    plainly = ("l", "ctrl+c") if made or pending is not None else ("y", "enter", "q", "ctrl+c")
    choices = [AnswerKey(plainly, f"{stop}, the changes stay" if staying else stop, Leaving.PLAINLY)]
    if pending is not None:
        choices.insert(0, AnswerKey(("k",), f"confirm the pending changes, {stop}", Leaving.KEEPING))
    if staying:
        choices.insert(0, AnswerKey(("u",), f"undo the changes, {stop}", Leaving.UNDOING))
    return ConfirmDialog("leave?", said, choices, glyphs)


def _can_lose(change: Change) -> bool:
    return not isinstance(change, HostChange) and bool(change.loss)


def _listed(title: str, changes: Sequence[Change]) -> list[Paragraph]:
    from pgtop_tune.tui.dialogs.confirm import Paragraph

    return [Paragraph(title), *(Paragraph(f"  {told(change)}", "strong") for change in changes)] if changes else []
