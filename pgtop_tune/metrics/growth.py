"""Growth of the counters in rows of a view between two readings."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Generic, TypeVar

from msgspec import Struct

from pgtop_tune.metrics.catalogue import Interval, Reading
from pgtop_tune.model.absence import Unavailable
from pgtop_tune.model.frame import Frame

ROWS_WINDOW_S: Final = 10.0
"""Seconds over which rates of rows are means, so that long statements and slow cadences do not flicker."""

R = TypeVar("R")
S = TypeVar("S", bound=Reading)


class Grown(Struct, Generic[R], frozen=True):
    """A row and the growth of its counters.

    Attributes:
        row: The newest reading of it.
        seconds: Length of the window.
        by: Counter → growth; None when it is not known (read once, or reset in between). Counters that the server does
            not have are missing.
    """

    row: R
    seconds: float
    by: Mapping[str, int] | None

    def sum(self, *names: str) -> int | None:
        """Return the growth of these counters together; None when none of them is known."""
        by = self.by
        if by is None:
            return None
        counts = [by[name] for name in names if name in by]
        return sum(counts) if counts else None

    def per_s(self, *names: str) -> float | None:
        """Return the growth per second of these counters together."""
        grown = self.sum(*names)
        return None if grown is None or self.seconds <= 0 else grown / self.seconds

    def each(self, part: str, unit: str) -> float | None:
        """Return the growth of one counter per unit of another, such as milliseconds per call; None without units."""
        grown, units = self.sum(part), self.sum(unit)
        return None if grown is None or not units else grown / units

    def share(self, part: str, complement: str) -> float | None:
        """Return the growth of one counter in per cent of the growth of both."""
        one, remainder = self.sum(part), self.sum(complement)
        if one is None or remainder is None or one + remainder <= 0:
            return None
        return 100.0 * one / (one + remainder)


def readings(interval: Interval, section: Callable[[Frame], S | Unavailable]) -> Sequence[S]:
    """Return readings of the last `ROWS_WINDOW_S`, newest first; of a section that is read less often the last two."""
    return interval.recent(section, ROWS_WINDOW_S, least=2)


def growth(older: Any, newer: Any, names: Sequence[str]) -> dict[str, int] | None:
    """Return the growth of counters between two readings of a row; `older` is None for a row that did not exist.

    Returns:
        Counter → growth, without those that are None in either; None when one went backwards (it was reset).
    """
    grown: dict[str, int] = {}
    for name in names:
        now = getattr(newer, name)
        before = 0 if older is None else getattr(older, name)
        if now is None or before is None:
            continue
        if now < before:
            return None
        grown[name] = now - before
    return grown


def grown_rows(
    interval: Interval,
    section: Callable[[Frame], S | Unavailable],
    rows: Callable[[S], Sequence[R]],
    key: Callable[[R], Any],
    reset: Callable[[R], Any],
    names: Sequence[str],
) -> list[Grown[R]]:
    """Return the growth of the rows of a section over the last `ROWS_WINDOW_S`.

    Args:
        interval: Frames.
        section: The section.
        rows: Its rows.
        key: Returns the identity of a row.
        reset: Returns the time of the row's last reset; a row with a reset in between has no growth.
        names: Counters.
    """
    recent = readings(interval, section)
    if not recent:
        return []
    newer, older = recent[0], recent[-1]
    before = {key(row): row for row in rows(older)}
    seconds = newer.at_s - older.at_s
    grown = []
    for row in rows(newer):
        older_row = before.get(key(row))
        by = None
        if seconds > 0 and older_row is not None and reset(older_row) == reset(row):
            by = growth(older_row, row, names)
        grown.append(Grown(row, seconds, by))
    return grown
