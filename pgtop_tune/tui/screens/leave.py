"""The question on the way out: only when something would be lost or left behind."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

from pgtop_tune.model.bench import BenchRun
from pgtop_tune.model.change import ParameterChange
from pgtop_tune.tui.changes import told
from pgtop_tune.tui.glyphs import Glyphs
from pgtop_tune.tui.screens.confirm import Choice, ConfirmDialog, Said


class Leaving(Enum):
    """How to leave."""

    PLAINLY = "leave"
    UNDOING = "undo and leave"


def leave_question(
    run: BenchRun | None, made: Sequence[ParameterChange], glyphs: Glyphs, going_on: str = ""
) -> ConfirmDialog[Leaving]:
    """Asks what becomes of a load that runs, of a data set in the making, and of changes in force.

    Args:
        run: The load under way.
        made: Changes made in this session and not undone, oldest first.
        glyphs: What it is drawn with.
        going_on: Steps of a load, or a data set in the making; "" for none.
    """
    said: list[Said] = []
    if going_on:
        said.append(Said(f"{going_on}: not done yet; it ends with this program."))
    elif run is not None:
        said.append(Said(f"A load is running ({run.profile}, {run.clients} clients); it ends with this program."))
    if made:
        said.append(Said("These changes are in force; `pgtop-tune revert` undoes them later:"))
        said += [Said(f"  {told(change)}", "strong") for change in made]
    stop = "stop it and leave" if going_on else "stop the load and leave" if run is not None else "leave"
    choices = [Choice(("l", "ctrl+c") if made else ("y", "enter", "q", "ctrl+c"), stop, Leaving.PLAINLY)]
    if made:
        choices[0] = Choice(("l", "ctrl+c"), f"{stop}, the changes stay", Leaving.PLAINLY)
        choices.insert(0, Choice(("u",), f"undo the changes, {stop}", Leaving.UNDOING))
    return ConfirmDialog("leave?", said, choices, glyphs)
