"""Which changes of a journal are meant: everything, the last set, one set, since a moment, overdue. Pure.

The same words for changes of the server and of its machine.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol, TypeVar

from pgtop_tune.changes.model.change import HostChange, ParameterChange

C = TypeVar("C", ParameterChange, HostChange)


class Selection(Protocol):
    """From the changes in force, oldest first, those that are meant."""

    def __call__(self, in_force: Sequence[C], /) -> Sequence[C]:
        """Those that are meant, in the same order."""
        ...


def everything(in_force: Sequence[C], /) -> Sequence[C]:
    """All of them."""
    return in_force


def last(in_force: Sequence[C], /) -> Sequence[C]:
    """The last change, with the set it belongs to."""
    return whole_sets(in_force, in_force[-1:])


def of_set(set_id: str) -> Selection:
    """A set, or a single change, by its id."""

    def selected(in_force: Sequence[C], /) -> Sequence[C]:
        return [change for change in in_force if set_id in (change.set_id, change.id)]

    return selected


def named(names: Sequence[str]) -> Selection:
    """Changes of some parameters or settings, whatever sets they belong to."""

    def selected(in_force: Sequence[C], /) -> Sequence[C]:
        return [change for change in in_force if change.name in names]

    return selected


def since(moment_ms: int) -> Selection:
    """Changes made after a moment, milliseconds since the epoch."""

    def selected(in_force: Sequence[C], /) -> Sequence[C]:
        return [change for change in in_force if change.at_ms > moment_ms]

    return selected


def overdue(now_ms: int) -> Selection:
    """Changes pending confirmation whose deadline has passed."""

    def selected(in_force: Sequence[C], /) -> Sequence[C]:
        return [
            change
            for change in in_force
            if not change.kept and change.until_ms is not None and change.until_ms < now_ms
        ]

    return selected


def whole_sets(in_force: Sequence[C], some: Sequence[C]) -> Sequence[C]:
    """Some changes and all that belong to the same sets."""
    ids: Final = {change.id for change in some}
    sets: Final = {change.set_id for change in some if change.set_id}
    return [change for change in in_force if change.id in ids or change.set_id in sets]
