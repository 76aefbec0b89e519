"""Undoing changes of parameters: what would be undone and the exact SQL, one key, and what came of it."""

from __future__ import annotations

from typing import Any

from textual.app import App

from pgtop_tune.errors import PgtopError
from pgtop_tune.model.change import ParameterChange
from pgtop_tune.tui.changes import Changes, told
from pgtop_tune.tui.glyphs import Glyphs
from pgtop_tune.tui.screens.confirm import Choice, ConfirmDialog, Said


async def undo_asked(app: App[Any], changes: Changes, glyphs: Glyphs, *, everything: bool) -> tuple[str, bool]:
    """Asks, undoes the last change or all of them, and says what came of it. Runs in a worker.

    Returns:
        One sentence, and whether all is well.
    """
    try:
        in_force = await changes.in_force()
        if not in_force:
            return "no change is in force: there is nothing to undo", True
        wanted = tuple(reversed(in_force)) if everything else in_force[-1:]
        if not await app.push_screen_wait(await _question(changes, wanted, glyphs)):
            return "nothing was undone", True
        if everything:
            undone = await changes.undo_all()
        else:
            last = await changes.undo()
            undone = () if last is None else (last,)
    except PgtopError as problem:
        return str(problem), False
    return "; ".join(_result(change) for change in undone) or "nothing was undone", True


async def _question(changes: Changes, wanted: tuple[ParameterChange, ...], glyphs: Glyphs) -> ConfirmDialog[bool]:
    said: list[Said] = []
    for change in wanted:
        said.append(Said(told(change), "strong"))
        said.append(Said(await changes.statement(change.name, change.auto_conf_before)))
    title = "undo the last change" if len(wanted) == 1 else f"undo {len(wanted)} changes"
    return ConfirmDialog(title, said, (Choice(("y", "enter"), "undo", True),), glyphs)


def _result(change: ParameterChange) -> str:
    words = f"{change.name} is {change.shown_after} again, read back from pg_settings"
    return f"{words} ({change.message})" if change.message else words
