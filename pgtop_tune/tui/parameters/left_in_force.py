"""What the screen says at its start of changes that earlier sessions left in force. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from pgtop_tune.changes.model.change import HostChange
from pgtop_tune.changes.model.change_set import Change
from pgtop_tune.model.postgres import Parameter
from pgtop_tune.safe_text import one_line
from pgtop_tune.tui.parameters.change_words import told
from pgtop_tune.tui.widgets.phrase import lasting

_MOST: Final = 4


def left_words(changes: Sequence[Change], current: Mapping[str, Parameter], now_ms: int) -> str:
    """The newest changes first, with their author and age, and the values that others have set since; "" without any.

    Args:
        changes: Everything in force, oldest first; what is pending confirmation has a line of its own.
        current: The parameters as they are, by name.
        now_ms: Milliseconds since the epoch.
    """
    kept = [change for change in reversed(changes) if change.kept]
    if not kept:
        return ""
    named = [f"{one_line(told(each), 80)} ({_who(each)}, {_ago(each, now_ms)} ago)" for each in kept[:_MOST]]
    more = f" and {len(kept) - _MOST} more" if len(kept) > _MOST else ""
    words = f"in force from earlier: {', '.join(named)}{more}"
    since = [f"{each.name} is {one_line(now, 40)} now" for each in kept if (now := _other(each, current))]
    return words + (f"; set by others since: {', '.join(since[:_MOST])}" if since else "") + ". p lists, U undoes them."


def _who(change: Change) -> str:
    return one_line(change.by.rpartition(",")[0] or change.by or "us", 60)


def _ago(change: Change, now_ms: int) -> str:
    return lasting(max(now_ms - change.at_ms, 0) / 1000.0)


def _other(change: Change, current: Mapping[str, Parameter]) -> str:
    """The present value where it is another one than the change brought."""
    parameter = None if isinstance(change, HostChange) or change.message else current.get(change.name)
    return "" if parameter is None or parameter.shown == change.shown_after else parameter.shown
