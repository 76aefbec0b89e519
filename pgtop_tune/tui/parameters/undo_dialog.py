"""Undo and confirm: the changes concerned, the exact SQL, one key, and the result."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from textual.app import App

from pgtop_tune.base.errors import PgtopError
from pgtop_tune.changes.model.change import ChangeState, HostChange
from pgtop_tune.changes.model.change_set import Change
from pgtop_tune.changes.selection import last
from pgtop_tune.tui.dialogs.confirm import AnswerKey, ConfirmDialog, Paragraph
from pgtop_tune.tui.parameters.change_words import told
from pgtop_tune.tui.parameters.changes import Changes
from pgtop_tune.tui.widgets.glyphs import Glyphs


async def undo_asked(app: App[Any], changes: Changes, glyphs: Glyphs, *, everything: bool) -> tuple[str, bool]:
    """Asks, undoes the last set of changes or all of them, and says what came of it. Runs in a worker.

    Returns:
        One sentence, and whether all is well.
    """
    try:
        in_force = await changes.in_force()
        if not in_force:
            return "no change is in force: there is nothing to undo", True
        wanted = tuple(reversed(in_force if everything else last(in_force)))
        if not await app.push_screen_wait(await _question(changes, wanted, glyphs)):
            return "nothing was undone", True
        if [each.id for each in await changes.in_force()] != [each.id for each in in_force]:
            return "another user has made a change meanwhile; nothing was undone: look again", False
        undone = await (changes.undo_all() if everything else changes.undo(wanted))
    except PgtopError as problem:
        return str(problem), False
    return "; ".join(_result(change) for change in undone) or "nothing was undone", True


async def redo_said(changes: Changes) -> tuple[str, bool]:
    """Makes again what was undone last, and says what came of it."""
    try:
        made = await changes.redo()
    except PgtopError as problem:
        return str(problem), False
    return "; ".join(f"{told(change)} again" for change in made) or "there is nothing to redo", True


async def keep_said(changes: Changes) -> tuple[str, bool]:
    """Confirms the pending change set, and shows the result."""
    if changes.pending is None:
        return "no change is pending confirmation", True
    try:
        kept = await changes.keep()
    except PgtopError as problem:
        return f"not confirmed: {problem}", False
    if not kept:
        return "too late: it has been reverted already", False
    lossy = any(not isinstance(change, HostChange) and change.loss for change in kept)
    ends = "; reverts when this program ends: it can lose data" if lossy else ""
    return f"confirmed: {'; '.join(told(change) for change in kept)}{ends}", True


async def _question(changes: Changes, wanted: Sequence[Change], glyphs: Glyphs) -> ConfirmDialog[bool]:
    said: list[Paragraph] = []
    for change in wanted:
        by = f"   (by {change.by})" if change.by and change.id not in {each.id for each in changes.made} else ""
        said.append(Paragraph(told(change) + by, "strong"))
        if isinstance(change, HostChange):
            said.append(Paragraph(f"{change.value_before} into {change.path}"))
        else:
            said.append(Paragraph(await changes.statement(change.name, change.auto_conf_before, change.scope)))
    title = "undo the last change" if len(wanted) == 1 else f"undo {len(wanted)} changes"
    return ConfirmDialog(title, said, (AnswerKey(("y", "enter"), "undo", True),), glyphs)


def _result(change: Change) -> str:
    if change.state is ChangeState.SUPERSEDED:
        return f"{change.name}: {change.message}"
    where = change.path if isinstance(change, HostChange) else "pg_settings"
    words = f"{change.name} is {change.shown_after} again, read back from {where}"
    return f"{words} ({change.message})" if change.message else words
