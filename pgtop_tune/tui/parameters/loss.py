"""The risk of a staged value, a loss in numbers of now, and whether it is locked. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pgtop_tune.errors import UsageProblem
from pgtop_tune.metrics.catalogue import Interval
from pgtop_tune.metrics.durability import WINDOW, lost_in_a_crash
from pgtop_tune.model.parameter_values import parse
from pgtop_tune.tui.parameters.row import SettingRow
from pgtop_tune.tui.parameters.staged import Conditions

_COMMIT: Final = "synchronous_commit"
_OFF: Final = "off"


def loss_words(row: SettingRow, rows: Sequence[SettingRow], interval: Interval | None) -> str:
    """Return the risk of the staged value, a loss in numbers of now; "" where it is safe.

    Args:
        row: The parameter.
        rows: All of them: of asynchronous commits the loss depends on wal_writer_delay, staged or in force.
        interval: For numbers of now.
    """
    if row.staged is None:
        return ""
    by_name = {each.name: each for each in rows}
    commit, delay = by_name.get(_COMMIT), by_name.get(WINDOW)
    if row.name in (_COMMIT, WINDOW) and commit is not None and delay is not None and _value(commit) == _OFF:
        try:
            lost = lost_in_a_crash(parse(_value(delay), delay.parameter.unit, integer=True), interval)
        except UsageProblem:
            lost = ""
        if lost:
            return f"can lose {lost}"
    return "" if row.risk is None else row.risk.words


def lock_words(row: SettingRow, conditions: Conditions, *, allow_unsafe: bool) -> str:
    """Return whether the staged value is locked, and what unlocks it; "" where it is safe.

    Args:
        row: The parameter.
        conditions: A deadline replaces unlocking where the value may be tried.
        allow_unsafe: Whether losses may be unlocked in this session.
    """
    risk = row.risk
    if risk is None:
        return ""
    if not risk.locked(ends=conditions.keep_within_s is not None):
        once_confirmed = ", and once confirmed when this program ends" if risk.loses_data else ""
        return f"reverts at its deadline{once_confirmed}"
    deadline = "" if risk.locked(ends=True) else "o sets a deadline, or "
    permitted = allow_unsafe or not risk.loses_data
    unlock = "a asks for its name" if permitted else "start with --allow-unsafe to unlock it"
    return f"locked: {deadline}{unlock}"


def _value(row: SettingRow) -> str:
    staged = None if row.staged is None else row.staged.value
    return row.parameter.setting if staged is None else staged
