"""Trials whose time passed while nobody was there to end them, for instance through a power loss: taken back first."""

from __future__ import annotations

from typing import Final

from pgtop_tune.changes.model.change import ChangeState, ParameterChange
from pgtop_tune.changes.model.machine_change import HostChange

WHY: Final = "not confirmed in time"


def words(change: ParameterChange) -> str:
    """What is said of one that was taken back."""
    if change.state is ChangeState.SUPERSEDED:
        return f"{change.name}: {change.value or 'default'} was pending confirmation; {change.message}"
    restart = "; that takes effect with a restart" if change.restart else ""
    back = f"{change.name} is {change.shown_after} again" if not change.restart else f"{change.name} is reverted"
    return f"{back}: {change.value or 'default'} was {WHY}{restart}"


def setting_words(change: HostChange) -> str:
    """The same of a setting of the machine."""
    return f"{change.name} is {change.shown_after} again: {change.value} was {WHY}"
