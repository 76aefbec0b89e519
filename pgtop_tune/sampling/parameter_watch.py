"""Changes of the server's parameters, whoever made them: ticks read off two looks at pg_settings."""

from __future__ import annotations

from typing import Final

from pgtop_tune.metrics import sections
from pgtop_tune.model.absence import Unavailable
from pgtop_tune.model.events import Event, EventKind
from pgtop_tune.model.frame import Frame
from pgtop_tune.model.postgres import Parameter, ParameterSample

_SHOWN: Final = 60
"""Characters of a value in the tick; the whole of it is in the detail."""
_AT_MOST: Final = 12
"""Ticks for one look; another server behind the same name differs in more, and one tick says so."""
_NO_TICK: Final = frozenset({"transaction_read_only", "transaction_isolation", "transaction_deferrable"})
"""What belongs to a transaction of ours."""
_DERIVED: Final = "internal"
"""Context of what nobody sets: it follows from others."""


class ParameterWatch:
    """Remembers the last look, also while the server is away: what a restart brought is told after it."""

    def __init__(self) -> None:
        self._known: ParameterSample | None = None

    def events(self, frame: Frame) -> tuple[Event, ...]:
        """What differs from the look before, when the frame brings a new one."""
        sample = sections.parameters(frame)
        before = self._known
        if isinstance(sample, Unavailable) or sample is before:
            return ()
        self._known = sample
        return () if before is None else parameter_events(before, sample, frame.taken_at_ms)


def parameter_events(before: ParameterSample, now: ParameterSample, at_ms: int) -> tuple[Event, ...]:
    """One tick per parameter whose value is another, or that waits for a restart since: "max_wal_size 1GB→16GB".

    Args:
        before: The look before.
        now: The newest look.
        at_ms: When it was noticed.
    """
    known = {parameter.name: parameter for parameter in before.parameters}
    found = [
        _tick(known[parameter.name], parameter, at_ms)
        for parameter in now.parameters
        if parameter.name in known and _differs(known[parameter.name], parameter)
    ]
    if len(found) <= _AT_MOST:
        return tuple(found)
    detail = "; ".join(event.text for event in found)
    return (Event(at_ms=at_ms, kind=EventKind.PARAMETER, text=f"{len(found)} parameters changed", detail=detail),)


def _differs(before: Parameter, now: Parameter) -> bool:
    is_pending = now.pending_restart and not before.pending_restart
    is_ours_to_tell = now.name not in _NO_TICK and now.context != _DERIVED
    return is_ours_to_tell and (before.shown != now.shown or is_pending)


def _tick(before: Parameter, now: Parameter, at_ms: int) -> Event:
    if before.shown == now.shown:
        return Event(
            at_ms=at_ms,
            kind=EventKind.PARAMETER,
            text=f"{now.name} waits for a restart",
            detail=f"until then {now.shown}",
        )
    where = f"  ({now.sourcefile})" if now.sourcefile else f"  ({now.source})"
    detail = f"{before.shown}→{now.shown}{where}"
    return Event(
        at_ms=at_ms, kind=EventKind.PARAMETER, text=f"{now.name} {_cut(before.shown)}→{_cut(now.shown)}", detail=detail
    )


def _cut(value: str) -> str:
    return f"{value[: _SHOWN - 1]}…" if len(value) > _SHOWN else value or "''"
