"""Means of a series in the columns of a chart, weighted by time; a point more changes the columns it speaks for."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from itertools import pairwise
from math import isfinite
from statistics import median_low
from typing import Final

PAUSE: Final = 4.0
"""A point speaks for the time since the one before it, unless that is longer than so many usual distances."""
_ENOUGH: Final = 0.5
"""Share of a column that must be known for its mean to be drawn."""
_EQUAL: Final = 1e-9
_DONE: Final = 0.95
"""And of the newest column, where it has several seconds: a part is not shown for the whole."""


def usual_s(moments: Sequence[float]) -> float:
    """The usual distance of points, to two digits: it stays the same while they jitter; 0 of a single one."""
    distances = [after - before for before, after in pairwise(moments)]
    return float(f"{median_low(distances):.1e}") if distances else 0.0


class ColumnMeans:
    """Takes points, oldest first, and gives the mean of each column.

    Args:
        since_s: Begin of the first column.
        until_s: End of the last one.
        columns: At least 1.
        usual_s: As the function of this name says of the points.

    Attributes:
        last_s: The newest point taken; None before the first.
    """

    def __init__(self, since_s: float, until_s: float, columns: int, usual_s: float) -> None:
        self.window = since_s, until_s, columns, usual_s
        self.last_s: float | None = None
        self._since_s = since_s
        self._each_s = (until_s - since_s) / columns
        self._usual_s = usual_s or self._each_s
        self._columns = columns
        self._sums = array("d", bytes(8 * columns))
        self._known_s = array("d", bytes(8 * columns))
        self._means: list[float | None] = [None] * columns
        self._newest = columns

    def moved(self, window: tuple[float, float, int, float]) -> bool:
        """Goes on by whole columns to another window; whether that is possible, and what it has taken is kept."""
        since_s, until_s, columns, usual = window
        by = (since_s - self._since_s) / self._each_s
        wide = abs((until_s - since_s) / columns - self._each_s) < _EQUAL * self._each_s
        if columns != self._columns or usual != self.window[3] or not wide or not 0 <= by < columns or by != int(by):
            return False
        if by:
            for each in (self._sums, self._known_s):
                del each[: int(by)]
                each.frombytes(bytes(8 * int(by)))
            self._means = [*self._means[int(by) :], *[None] * int(by)]
            self._newest = max(self._newest - int(by), 0)
            self._since_s, self.window = since_s, window
        return True

    def take(self, points: Iterable[tuple[float, float | None]]) -> None:
        """Takes more points: moment and value, which may be unknown or no number."""
        since_s, each_s, usual = self._since_s, self._each_s, self._usual_s
        sums, known, before_s = self._sums, self._known_s, self.last_s
        first = self._columns
        for at_s, value in points:
            begin_s = at_s - usual if before_s is None or at_s - before_s > PAUSE * usual else before_s
            before_s = at_s
            if value is None or not isfinite(value) or at_s <= since_s:
                continue
            begin_s = max(begin_s, since_s)
            left = int((begin_s - since_s) / each_s)
            first = min(first, left)
            for column in range(left, min(int((at_s - since_s) / each_s) + 1, self._columns)):
                left_s = since_s + column * each_s
                overlap_s = min(at_s, left_s + each_s) - max(begin_s, left_s)
                if overlap_s > 0:
                    sums[column] += overlap_s * value
                    known[column] += overlap_s
        self.last_s = before_s
        unfinished = before_s is not None and each_s > 1.5 * usual
        newest = int((before_s - since_s) / each_s) if unfinished and before_s is not None else self._columns
        changed = range(max(min(first, self._newest, newest), 0), self._columns)
        self._newest = newest
        for column in changed:
            enough_s = each_s * (_DONE if column == newest else _ENOUGH)
            self._means[column] = sums[column] / known[column] if known[column] >= enough_s else None

    @property
    def means(self) -> list[float | None]:
        """Per column; None where less than half of it is known."""
        return self._means.copy()
