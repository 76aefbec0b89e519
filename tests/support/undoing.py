"""Taking back what a door has made, as the screen and `revert` ask for it: by the changes in force, last first."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pgtop_tune.changes.machine.control import HostControl
from pgtop_tune.changes.model.change import HostChange, ParameterChange
from pgtop_tune.changes.selection import everything, last
from pgtop_tune.changes.server.control import PostgresControl
from pgtop_tune.changes.server.reverts import ServerSelection, try_to_revert
from pgtop_tune.postgres.server.conninfo import ConnInfo


def revert_parameters(
    conninfo: ConnInfo, selection: ServerSelection = everything, *, directory: Path | None = None
) -> tuple[ParameterChange, ...]:
    """Revert without the program that made the changes; what is not in force any more. Raises what was refused."""
    outcome = try_to_revert(conninfo, selection, directory=directory)
    outcome.check_none_refused()
    return outcome.settled


async def undo(door: PostgresControl) -> ParameterChange | None:
    """The last change in force, with its set."""
    undone = await undo_last(door)
    return undone[0] if undone else None


async def undo_last(door: PostgresControl) -> tuple[ParameterChange, ...]:
    """All of that set."""
    return await door.undo_these([each.id for each in last(await door.in_force())])


async def undo_all(door: PostgresControl) -> tuple[ParameterChange, ...]:
    """Everything in force."""
    return await door.undo_these([each.id for each in await door.in_force()])


async def undo_setting(door: HostControl) -> HostChange | None:
    """The last change of the machine in force, with its set."""
    undone = await _settings_undone(door, last(await door.in_force()))
    return undone[0] if undone else None


async def undo_settings(door: HostControl) -> tuple[HostChange, ...]:
    """Everything in force on the machine."""
    return await _settings_undone(door, await door.in_force())


async def _settings_undone(door: HostControl, changes: Sequence[HostChange]) -> tuple[HostChange, ...]:
    undone: list[HostChange] = []
    for set_id in dict.fromkeys(each.set_id or each.id for each in reversed(changes)):
        undone += await door.revert_set(set_id)
    return tuple(undone)
