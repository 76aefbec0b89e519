"""The text that Prometheus reads: OpenMetrics 1.0, or its own older format 0.0.4.

Source: github.com/prometheus/OpenMetrics (specification), prometheus.io "Exposition formats".
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import Enum
from types import MappingProxyType
from typing import Final

from pgtop_tune.export.exported import Exported, ExportedPoint, MetricKind, WatchedInterval, read_all
from pgtop_tune.safe_text import printable

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
