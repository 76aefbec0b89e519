"""A change in a few words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pgtop_tune.changes.model.change_set import value_before

if TYPE_CHECKING:
    from pgtop_tune.changes.model.change_set import Change


def brought(change: Change) -> str:
    """What the change brought: what was read back, or what was asked for where that waits for a restart."""
    return change.value if change.message and change.value is not None else change.shown_after


def told(change: Change) -> str:
    """A change in a few words: "max_wal_size 1GB→16GB"."""
    return f"{change.name} {value_before(change)}→{brought(change)}"
