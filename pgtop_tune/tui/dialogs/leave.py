"""The question on the way out: only when something would be lost or left behind."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

from pgtop_tune.changes.confirm.pending_sets import Pending
from pgtop_tune.changes.model.change_set import Change
from pgtop_tune.changes.model.machine_change import HostChange
from pgtop_tune.model.bench import BenchRun
from pgtop_tune.tui.dialogs.confirm import Choice, ConfirmDialog, Said
from pgtop_tune.tui.parameters.changes import told
from pgtop_tune.tui.widgets.glyphs import Glyphs


class Leaving(Enum):
    """How to leave."""

    PLAINLY = "leave"
    UNDOING = "undo and leave"
    KEEPING = "confirm and leave"


def leave_question(
    run: BenchRun | None,
    made: Sequence[Change],
    glyphs: Glyphs,
    going_on: str = "",
    trial: Pending | None = None,
) -> ConfirmDialog[Leaving]:
    """Asks what becomes of a load that runs, of a data set in the making, and of changes in force.

    Args:
        run: The load under way.
        made: Changes made in this session and not undone, oldest first; also what is on trial.
        glyphs: What it is drawn with.
        going_on: Steps of a load, or a data set in the making; "" for none.
        trial: What is taken back unless it is kept.
    """
    said: list[Said] = []
    if going_on:
        said.append(Said(f"{going_on}: still running; it ends with this program."))
    elif run is not None:
        said.append(Said(f"A load is running ({run.profile}, {run.clients} clients); it ends with this program."))
    on_trial = {change.id for change in trial.changes} if trial is not None else set()
    staying = [change for change in made if change.id not in on_trial and not _can_lose(change)]
    ending = [change for change in made if change.id not in on_trial and _can_lose(change)]
    said += _listed("Pending confirmation; leaving reverts it:", () if trial is None else trial.changes)
    said += _listed("This can lose data; leaving reverts it:", ending)
    said += _listed("These changes are in force; `pgtop-tune revert` undoes them later:", staying)
    stop = "stop it and leave" if going_on else "stop the load and leave" if run is not None else "leave"
    plainly = ("l", "ctrl+c") if made or trial is not None else ("y", "enter", "q", "ctrl+c")
    choices = [Choice(plainly, f"{stop}, the changes stay" if staying else stop, Leaving.PLAINLY)]
    if trial is not None:
        choices.insert(0, Choice(("k",), f"confirm the pending changes, {stop}", Leaving.KEEPING))
    if staying:
        choices.insert(0, Choice(("u",), f"undo the changes, {stop}", Leaving.UNDOING))
    return ConfirmDialog("leave?", said, choices, glyphs)


def _can_lose(change: Change) -> bool:
    return not isinstance(change, HostChange) and bool(change.loss)


def _listed(title: str, changes: Sequence[Change]) -> list[Said]:
    return [Said(title), *(Said(f"  {told(change)}", "strong") for change in changes)] if changes else []
