"""Trials whose time passed while nobody was there to end them, for instance through a power loss: taken back first."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from pgtop_tune.errors import ConnectionProblem, PgtopError
from pgtop_tune.host.block_devices import ROOT
from pgtop_tune.host.control import overdue, revert
from pgtop_tune.model.change import ChangeState, ParameterChange
from pgtop_tune.model.system_setting import HostChange
from pgtop_tune.postgres.changes import now_ms
from pgtop_tune.postgres.control import PostgresControl
from pgtop_tune.postgres.reverting import any_overdue

WHY: Final = "nobody kept it in time"
_AGAIN_S: Final = 2.0


def words(change: ParameterChange) -> str:
    """What is said of one that was taken back."""
    if change.state is ChangeState.SUPERSEDED:
        return f"{change.name}: {change.value or 'default'} was on trial; {change.message}"
    restart = "; that takes effect with a restart" if change.restart else ""
    back = f"{change.name} is {change.shown_after} again" if not change.restart else f"{change.name} is taken back"
    return f"{back}: {change.value or 'default'} was on trial, and {WHY}{restart}"


async def take_back_overdue(
    control: PostgresControl, directory: Path | None, tell: Callable[[str], None]
) -> Sequence[ParameterChange]:
    """Takes them back on the server of a control, with a sentence for each; asks it only where a journal has any."""
    if not await asyncio.to_thread(any_overdue, now_ms(), directory):
        return ()
    undone = await control.revert_overdue()
    for change in undone:
        tell(words(change))
    return undone


async def take_back_overdue_settings(
    directory: Path | None, tell: Callable[[str], None], root: Path = ROOT
) -> Sequence[HostChange]:
    """The same for settings of this machine; where we may not, that is told."""
    try:
        undone = await asyncio.to_thread(revert, overdue(now_ms()), root, directory, WHY)
    except PgtopError as problem:
        tell(f"a trial of the machine is overdue and cannot be taken back: {problem.message}")
        return ()
    for change in undone:
        tell(f"{change.name} is {change.shown_after} again: {change.value} was on trial, and {WHY}")
    return undone


async def keep_trying(
    control: PostgresControl, directory: Path | None, tell: Callable[[str], None], leaving: asyncio.Event
) -> None:
    """The same for a screen, whose server may not be there yet; until we are leaving."""
    while not leaving.is_set():
        try:
            await take_back_overdue(control, directory, tell)
            return
        except ConnectionProblem:
            with suppress(TimeoutError):
                await asyncio.wait_for(leaving.wait(), _AGAIN_S)
        except PgtopError as problem:
            tell(f"a trial is overdue and cannot be taken back: {problem.message}")
            return
