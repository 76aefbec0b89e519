"""`pgtop-tune revert` for the operating system of this machine: which changes, and what came of them."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from pgtop_tune.cli.output import say

if TYPE_CHECKING:
    from pgtop_tune.host.control import Choice
    from pgtop_tune.model.system_setting import HostChange


def choice(last: bool, set_id: str, since_ms: int | None) -> Choice:
    """Which changes the words of the command mean; all of them without any."""
    from pgtop_tune.host.control import everything, of_set, since
    from pgtop_tune.host.control import last as last_set

    if since_ms is not None:
        return since(since_ms)
    if set_id:
        return of_set(set_id)
    return last_set if last else everything


def revert_machine(chosen: Choice, directory: Path | None) -> None:
    """Takes the changes back and tells of each."""
    from pgtop_tune.host.control import revert

    reverted = revert(chosen, directory=directory)
    for change in reverted:
        note = f"  ({change.message})" if change.message else ""
        say(f"{change.name}: {change.value} → {change.shown_after}{note}")
    say(f"{len(reverted)} change{'' if len(reverted) == 1 else 's'} reverted" if reverted else "nothing to revert")


def told(change: HostChange) -> str:
    """One change in force in a line, with the words to revert it by."""
    notes = (
        str(change.state),
        f"{datetime.fromtimestamp(change.at_ms / 1000):%Y-%m-%d %H:%M:%S}",
        f"by {change.by}" if change.by else "",
        f"also in {change.drop_in}" if change.drop_in else "",
        "" if change.kept else "on trial",
        change.reason,
        f"--machine --set {change.set_id or change.id}",
    )
    return f"{change.name}: {change.value_before} → {change.value}  ({'; '.join(filter(None, notes))})"
