"""The text that Prometheus reads: OpenMetrics 1.0, or its own older format 0.0.4; of one moment, or of a history.

Source: github.com/prometheus/OpenMetrics (specification), prometheus.io "Exposition formats".
"""

from __future__ import annotations

import tempfile
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import Enum
from pathlib import Path
from types import MappingProxyType
from typing import Final, TextIO

from pgtop_tune.base.safe_text import printable
from pgtop_tune.export.exported import (
    Exported,
    ExportedPoint,
    MetricKind,
    WatchedInterval,
    read_all,
    read_once,
    wall_clock_ms,
)

MOST_SERIES: Final = 1_000
"""Series of one family; a server with more databases or a machine with more interfaces must not drown Prometheus."""
_LONGEST_LABEL: Final = 256
END: Final = "# EOF\n"


class Syntax(Enum):
    """Which of the two; the value is the content type."""

    OPENMETRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"
    TEXT = "text/plain; version=0.0.4; charset=utf-8"


_SUFFIX: Final[Mapping[MetricKind, str]] = MappingProxyType(
    {MetricKind.GAUGE: "", MetricKind.COUNTER: "_total", MetricKind.INFO: "_info"}
)


def page(rows: Iterable[Exported], interval: WatchedInterval, syntax: Syntax) -> str:
    """One moment, without timestamps: Prometheus takes that of its scrape."""
    parts = []
    for read in read_all(rows, interval):
        if read.points:
            parts.append(head(read.row, syntax))
            parts += [line(read.row, each) for each in distinct(read.points)]
    return "".join(parts) + (END if syntax is Syntax.OPENMETRICS else "")


def head(row: Exported, syntax: Syntax) -> str:
    """The lines before a family's samples."""
    openmetrics = syntax is Syntax.OPENMETRICS
    name, kind = row.exposed, row.kind.value
    if not openmetrics:
        name += _SUFFIX[row.kind]
        kind = "gauge" if row.kind is MetricKind.INFO else kind
    lines = [f"# TYPE {name} {kind}\n", f"# HELP {name} {_help(row.help, openmetrics)}\n"]
    if openmetrics and row.exposed_unit:
        lines.insert(1, f"# UNIT {name} {row.exposed_unit}\n")
    return "".join(lines)


def line(row: Exported, point: ExportedPoint, at_ms: int | None = None) -> str:
    """One sample.

    Args:
        row: Its family.
        point: Labels and value.
        at_ms: Milliseconds since the epoch; None without a timestamp.
    """
    words = ",".join(f'{name}="{_label(value)}"' for name, value in zip(row.labels, point.labels, strict=True))
    labels = f"{{{words}}}" if words else ""
    moment = "" if at_ms is None else f" {at_ms // 1000}.{at_ms % 1000:03d}"
    return f"{row.exposed}{_SUFFIX[row.kind]}{labels} {number(point.value * row.factor)}{moment}\n"


def distinct(points: Sequence[ExportedPoint]) -> Iterator[ExportedPoint]:
    """Points whose labels are written differently, and no more than a family may have.

    Prometheus refuses a page on which a series stands twice; names that differ only in what is not printable would.
    """
    seen: set[tuple[str, ...]] = set()
    for point in points:
        written = tuple(_label(word) for word in point.labels)
        if written not in seen and len(seen) < MOST_SERIES:
            seen.add(written)
            yield point


def number(value: float) -> str:
    """As short as it can be without losing anything: whole numbers without a point."""
    return str(int(value)) if value == int(value) and abs(value) < 2**63 else repr(float(value))


def _label(value: str) -> str:
    text = printable(value, _LONGEST_LABEL)
    return text.replace("\\", "\\\\").replace('"', '\\"') if "\\" in text or '"' in text else text


def _help(text: str, openmetrics: bool) -> str:
    text = printable(text).replace("\\", "\\\\")
    return text.replace('"', '\\"') if openmetrics else text


# Points by moment in, points by series out: what OpenMetrics wants of a history, without keeping it in memory.

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
