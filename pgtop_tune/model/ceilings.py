"""What a server and its machine were measured to do at most."""

from __future__ import annotations

from typing import Annotated

from msgspec import Struct

from pgtop_tune.model.recorded_as import Keyed


class MeasuredLimit(Struct, frozen=True):
    """Something measured that a load cannot go beyond.

    Attributes:
        id: Stable: "wal-flushes".
        says: "the WAL device flushes 1940 times a second".
        value: The number.
        unit: "1/s", "ns", "ms", "bytes/s".
        source: How it was measured.
    """

    id: str
    says: str
    value: float
    unit: str
    source: str


class Measured(Struct, frozen=True):
    """One measurement of everything.

    Attributes:
        ceilings: What could be measured.
        missing: (what, why not) of the rest. Foreign text.
        at_ms: When, milliseconds since the epoch; 0 where it is not known.
    """

    ceilings: Annotated[tuple[MeasuredLimit, ...], Keyed("id")]
    missing: tuple[tuple[str, str], ...] = ()
    at_ms: int = 0

    def value(self, id_: str) -> float | None:
        """One number; None where it was not measured."""
        return next((each.value for each in self.ceilings if each.id == id_), None)
