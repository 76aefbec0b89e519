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
"""Series of one family: many databases or interfaces must not flood Prometheus."""
_LONGEST_LABEL: Final = 256
END: Final = "# EOF\n"


class Syntax(Enum):
    """The two formats; the value is the content type."""

    OPENMETRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"
    TEXT = "text/plain; version=0.0.4; charset=utf-8"


_SUFFIX: Final[Mapping[MetricKind, str]] = MappingProxyType(
    {MetricKind.GAUGE: "", MetricKind.COUNTER: "_total", MetricKind.INFO: "_info"}
)


def page(rows: Iterable[Exported], interval: WatchedInterval, syntax: Syntax) -> str:
    """Return the text of one moment, without timestamps: Prometheus takes that of its scrape."""
    parts = []
    for read in read_all(rows, interval):
        if read.points:
            parts.append(head(read.row, syntax))
            parts += [line(read.row, point) for point in distinct(read.points)]
    return "".join(parts) + (END if syntax is Syntax.OPENMETRICS else "")


def head(row: Exported, syntax: Syntax) -> str:
    """Return the lines before a family's samples."""
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
    """Return one sample.

    Args:
        row: Its family.
        at_ms: Milliseconds since the epoch; None leaves the timestamp out.
    """
    labels, value = point
    text = ",".join(f'{name}="{_label(label)}"' for name, label in zip(row.labels, labels, strict=True))
    text = f"{{{text}}}" if text else ""
    moment = "" if at_ms is None else f" {at_ms // 1000}.{at_ms % 1000:03d}"
    return f"{row.exposed}{_SUFFIX[row.kind]}{text} {shortest_number(value * row.factor)}{moment}\n"


def distinct(points: Iterable[ExportedPoint]) -> Iterator[ExportedPoint]:
    """Yield points with different labels in print, no more than a family may have.

    Prometheus refuses a page with a series that stands twice, as of names that differ in unprintable characters.
    """
    printed: set[tuple[str, ...]] = set()
    for point in points:
        labels = tuple(map(_label, point.labels))
        if labels not in printed and len(printed) < MOST_SERIES:
            printed.add(labels)
            yield point


def shortest_number(value: float) -> str:
    """Return the shortest exact text of a number: whole numbers without a point."""
    return str(int(value)) if value == int(value) and abs(value) < 2**63 else repr(float(value))


def _label(value: str) -> str:
    text = printable(value, _LONGEST_LABEL)
    return text.replace("\\", "\\\\").replace('"', '\\"') if "\\" in text or '"' in text else text


def _help(text: str, openmetrics: bool) -> str:
    text = printable(text).replace("\\", "\\\\")
    return text.replace('"', '\\"') if openmetrics else text


# A history by series, as OpenMetrics wants it, without keeping it in memory.

_POINTS: Final = 256
"""Points of a series in memory before they go to the file; a point is two numbers of eight bytes."""


class SeriesFile:
    """An unnamed file of blocks of points, each of one series; closed with the last reference to it.

    Args:
        directory: None is the usual one of temporary files.
    """

    def __init__(self, directory: Path | None = None) -> None:
        self._file = tempfile.TemporaryFile(dir=directory)  # noqa: SIM115
        self._waiting: list[array[float]] = []
        self._blocks: list[list[int]] = []
        self._newest_ms: list[int] = []

    def new(self) -> int:
        """Add a series without points, and return its number."""
        self._waiting.append(array("d"))
        self._blocks.append([])
        self._newest_ms.append(-1)
        return len(self._waiting) - 1

    def add(self, series: int, at_ms: int, value: float) -> bool:
        """Add a point; return False for one that is not after the last: a clock was set back."""
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
        """Yield the points of a series in order."""
        for offset in self._blocks[series]:
            self._file.seek(offset)
            yield from _pairs(array("d", self._file.read(2 * _POINTS * 8)))
        yield from _pairs(self._waiting[series])


def _pairs(numbers: array[float]) -> Iterator[tuple[int, float]]:
    for index in range(0, len(numbers), 2):
        yield int(numbers[index]), numbers[index + 1]


def write_openmetrics(
    file: TextIO, rows: Sequence[Exported], moments: Iterable[WatchedInterval], directory: Path | None = None
) -> tuple[int, int]:
    """Write OpenMetrics with timestamps, series by series as its specification wants.

    Args:
        directory: Has room for 16 bytes a point meanwhile; None is the usual one of temporary files.

    Returns:
        Points written, and points left out because the clock of the recording was set back.
    """
    store = SeriesFile(directory)
    numbers: dict[str, dict[tuple[str, ...], int]] = {row.id: {} for row in rows}
    written = left_out = 0
    for interval, reads in read_once(rows, moments):
        for read in reads:
            at_ms = wall_clock_ms(interval, read.at_s)
            of_row = numbers[read.row.id]
            for labels, value in distinct(read.points):
                if labels not in of_row:
                    of_row[labels] = store.new()
                if store.add(of_row[labels], at_ms, value):
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
