"""`pgtop-tune revert` for the operating system of this machine: which changes, and what came of them."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from pgtop_tune.changes.model.change import ChangeState
from pgtop_tune.changes.model.revert_outcome import RevertOutcome
from pgtop_tune.cli.output import say, tell
from pgtop_tune.cli.revert_words import sum_of

if TYPE_CHECKING:
    from pgtop_tune.changes.model.machine_change import HostChange
    from pgtop_tune.changes.selection import Selection


def revert_machine(selection: Selection, directory: Path | None) -> None:
    """Takes the changes back and tells of each."""
    from pgtop_tune.changes.machine.control import revert

    say(sum_of(RevertOutcome(), revert(selection, directory=directory, each=say_reverted)))


def tell_of_the_rest(directory: Path | None) -> None:
    """That settings of this machine are still in force, where some are."""
    from pgtop_tune.changes.journal import path_for, read
    from pgtop_tune.changes.machine.control import machine

    left = len(read(path_for(machine().key, directory)).host_in_force)
    if left:
        what = "a setting of this machine is" if left == 1 else f"{left} settings of this machine are"
        tell(f"{what} still changed: `pgtop-tune revert --machine`")


def say_reverted(change: HostChange) -> None:
    """What came of reverting a change, in a line."""
    if change.state is ChangeState.SUPERSEDED:
        say(f"{change.name}: {change.message}")
        return
    note = f"  ({change.message})" if change.message else ""
    say(f"{change.name}: {change.value} → {change.shown_after}{note}")


def told(change: HostChange) -> str:
    """One change in force in a line, with the words to revert it by."""
    notes = (
        str(change.state),
        f"{datetime.fromtimestamp(change.at_ms / 1000):%Y-%m-%d %H:%M:%S}",
        f"by {change.by}" if change.by else "",
        f"also in {change.drop_in}" if change.drop_in else "",
        "" if change.kept else "pending confirmation",
        change.reason,
        change.message,
        f"--machine --set {change.set_id or change.id}",
    )
    return f"{change.name}: {change.value_before} → {change.value}  ({'; '.join(filter(None, notes))})"
