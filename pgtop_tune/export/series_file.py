"""Points by moment in, points by series out: what OpenMetrics wants of a history, without keeping it in memory."""

from __future__ import annotations

import tempfile
from array import array
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final, TextIO

from pgtop_tune.export.exported import Exported, ExportedPoint, WatchedInterval, read_once, wall_clock_ms
from pgtop_tune.export.openmetrics import END, Syntax, distinct, head, line

_POINTS: Final = 256
"""Of a series in memory before they go to the file; a point is two numbers of eight bytes."""


class SeriesFile:
    """An unnamed file of blocks of points, each of one series. Closed with the last reference to it.

    Args:
        directory: Where it lies; None is where temporary files do.
    """

    def __init__(self, directory: Path | None = None) -> None:
        self._file = tempfile.TemporaryFile(dir=directory)  # noqa: SIM115
        self._waiting: list[array[float]] = []
        self._blocks: list[list[int]] = []
        self._newest_ms: list[int] = []

    def new(self) -> int:
        """A series without points; gives its number."""
        self._waiting.append(array("d"))
        self._blocks.append([])
        self._newest_ms.append(-1)
        return len(self._waiting) - 1

    def add(self, series: int, at_ms: int, value: float) -> bool:
        """A point; False when it is not after the one before: a clock was set back, and series only go forward."""
        if at_ms <= self._newest_ms[series]:
            return False
        self._newest_ms[series] = at_ms
        waiting = self._waiting[series]
        waiting.extend((at_ms, value))
        if len(waiting) >= 2 * _POINTS:
            self._blocks[series].append(self._file.seek(0, 2))
            self._file.write(waiting.tobytes())
            del waiting[:]
        return True

    def points(self, series: int) -> Iterator[tuple[int, float]]:
        """Its points in order."""
        for offset in self._blocks[series]:
            self._file.seek(offset)
            yield from _pairs(array("d", self._file.read(2 * _POINTS * 8)))
        yield from _pairs(self._waiting[series])


def _pairs(numbers: array[float]) -> Iterator[tuple[int, float]]:
    for place in range(0, len(numbers), 2):
        yield int(numbers[place]), numbers[place + 1]


def write_openmetrics(
    file: TextIO, rows: Sequence[Exported], moments: Iterable[WatchedInterval], directory: Path | None = None
) -> tuple[int, int]:
    """OpenMetrics with timestamps, series by series as its specification wants.

    Args:
        file: Where to.
        rows: What is wanted.
        moments: Read once.
        directory: Has room for 16 bytes a point meanwhile; None is where temporary files lie.

    Returns:
        Points written, and points left out because the clock of the recording was set back.
    """
    store = SeriesFile(directory)
    numbers: dict[str, dict[tuple[str, ...], int]] = {row.id: {} for row in rows}
    written = left_out = 0
    for interval, found in read_once(rows, moments):
        for read in found:
            at_ms = wall_clock_ms(interval, read.at_s)
            known = numbers[read.row.id]
            for labels, value in distinct(read.points):
                if labels not in known:
                    known[labels] = store.new()
                if store.add(known[labels], at_ms, value):
                    written += 1
                else:
                    left_out += 1
    for row in rows:
        if numbers[row.id]:
            file.write(head(row, Syntax.OPENMETRICS))
        for labels, series in numbers[row.id].items():
            for at_ms, value in store.points(series):
                file.write(line(row, ExportedPoint(labels, value), at_ms))
    file.write(END)
    return written, left_out
