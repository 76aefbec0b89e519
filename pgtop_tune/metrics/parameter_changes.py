"""Parameters that are not as the server would have them by itself."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from msgspec import Struct

from pgtop_tune.metrics import sections
from pgtop_tune.metrics.catalogue import Interval
from pgtop_tune.model.events import Event, EventKind
from pgtop_tune.model.postgres import Parameter

_OWN: Final = frozenset({"default", "override", "client", "session"})
"""Sources that are nobody's choice, or that of our own connection alone."""


class SetParameter(Struct, frozen=True):
    """A parameter somebody set.

    Attributes:
        parameter: The row.
        changed_ms: When it was last changed since the session began; None when it was not.
        change: What changed, in the words of the event: "1GB→16GB"; "" without.
    """

    parameter: Parameter
    changed_ms: int | None
    change: str


def set_parameters(interval: Interval, events: Iterable[Event]) -> list[SetParameter]:
    """Parameters with a source other than default, those that wait for a restart, and those changed meanwhile.

    Args:
        interval: Where to look.
        events: Of the session, oldest first; a change's event begins with the name of the parameter.
    """
    sample = interval.now(sections.parameters)
    if sample is None:
        return []
    changes: dict[str, tuple[int, str]] = {}
    for event in events:
        if event.kind is EventKind.PARAMETER:
            name, _, change = event.text.partition(" ")
            changes[name] = event.at_ms, change
    return [
        SetParameter(parameter, *changes.get(parameter.name, (None, "")))
        for parameter in sample.parameters
        if parameter.source not in _OWN or parameter.pending_restart or parameter.name in changes
    ]
