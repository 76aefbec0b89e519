"""Exported metrics: one row per number or counter, with its name, unit and labels in every format.

Names and units as Prometheus wants them: base units, the unit at the end of the name.
Source: the OpenMetrics specification, 1.0, "Units and Base Units"; prometheus.io, "Metric and label naming".
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import Enum
from math import inf, isfinite
from types import MappingProxyType
from typing import Final, NamedTuple, TypeVar

from msgspec import Struct

from pgtop_tune.metrics.catalogue import Interval, Reading
from pgtop_tune.model.absence import Unavailable
from pgtop_tune.model.frame import Frame

PREFIX: Final = "pgtop_"


class BaseUnit(NamedTuple):
    """A unit of Prometheus.

    Attributes:
        word: End of a name: "bytes_per_second"; "" for none.
        factor: Base units in one of ours.
    """

    word: str
    factor: float = 1.0


_BASE: Final[Mapping[str, BaseUnit]] = MappingProxyType(
    {
        "": BaseUnit(""),
        "sessions": BaseUnit(""),
        "pages": BaseUnit("pages"),
        "segments": BaseUnit("segments"),
        "%": BaseUnit("ratio", 0.01),
        "1/s": BaseUnit("per_second"),
        "bytes": BaseUnit("bytes"),
        "bytes/s": BaseUnit("bytes_per_second"),
        "us": BaseUnit("seconds", 1e-6),
        "ms": BaseUnit("seconds", 1e-3),
        "ms/s": BaseUnit("seconds_per_second", 1e-3),
        "s": BaseUnit("seconds"),
        "min": BaseUnit("seconds", 60.0),
        "MHz": BaseUnit("hertz", 1e6),
    }
)

_RENAMED: Final[Mapping[str, str]] = MappingProxyType(
    {
        "server.tps": "server_transactions_per_second",
        "server.qps": "server_statements_per_second",
        "client.tps": "client_transactions_per_second",
        "host.space.minutes_left": "host_space_left_seconds",
        "host.space.inodes": "host_space_inodes_used_ratio",
        "host.load_1m": "host_load1",
        "host.load_5m": "host_load5",
        "host.load_15m": "host_load15",
    }
)
"""Names of ids for which the rule of `exposed_name` gives bad ones."""

_UNSAFE: Final = re.compile(r"[^a-z0-9_]+")
_OWN_UNIT: Final = re.compile(r"_(?:bytes|ms|us|s)\Z")


def exposed_name(identity: str, unit: str) -> str:
    """Return the name of a family: "host.memory.free" in bytes is pgtop_host_memory_free_bytes.

    Our prefix replaces pg_ of a view: pg_stat_wal.wal_fpi is pgtop_stat_wal_wal_fpi. The suffix _count is dropped:
    histograms own it.

    Raises:
        KeyError: The unit has no base unit.
    """
    if identity in _RENAMED:
        return PREFIX + _RENAMED[identity]
    stem = _UNSAFE.sub("_", identity.removeprefix("pg_").lower()).removesuffix("_count")
    word = _BASE[unit].word
    return PREFIX + (f"{_OWN_UNIT.sub('', stem)}_{word}" if word else stem)


S = TypeVar("S", bound=Reading)
T = TypeVar("T")


class MetricKind(Enum):
    """The kind of a metric; the value is its word in OpenMetrics."""

    GAUGE = "gauge"
    COUNTER = "counter"
    INFO = "info"


class DefaultRows(Enum):
    """The formats that have a row without a choice of rows."""

    EVERYWHERE = "everywhere"
    NOT_IN_TABLES = "OpenMetrics"
    """Tables have its rates."""
    WHEN_NAMED = "when named"
    """It has a series for each session or statement."""


class ExportedPoint(NamedTuple):
    """A value and the values of the row's labels, in their order."""

    labels: tuple[str, ...]
    value: float


Points = Iterable[tuple[tuple[str, ...], float | None]]
"""Labels and values, as of `ExportedPoint`; None is a missing value."""
ReadPoints = Callable[[Interval], Points]
"""Reads a row in an interval."""


def one_point(value: Callable[[Interval], float | None]) -> ReadPoints:
    """Return a reader of a number without labels."""
    return lambda interval: (((), value(interval)),)


class Exported(Struct, frozen=True):
    """A number, or a family of numbers with labels.

    Attributes:
        id: In tables and for `--metrics`: "server.tps", "pg_stat_wal.wal_bytes".
        kind: Gauge, counter, or a text in labels.
        unit: In tables, as on the screen: "ms", "%", "bytes/s"; "" for a plain count.
        help: Meaning and source.
        read: Reads its points in an interval.
        labels: Names of the labels.
        default_for: Formats that have it by default.
        section: Section of a counter. One that is read every two seconds stands in two frames.
        name: In OpenMetrics, without "_total" and "_info"; "" derives it from id and unit.
    """

    id: str
    kind: MetricKind
    unit: str
    help: str
    read: ReadPoints
    labels: tuple[str, ...] = ()
    default_for: DefaultRows = DefaultRows.EVERYWHERE
    section: Callable[[Frame], Reading | Unavailable] | None = None
    name: str = ""

    @property
    def exposed(self) -> str:
        """Return the name of the family in OpenMetrics."""
        return self.name or exposed_name(self.id, self.unit)

    @property
    def exposed_unit(self) -> str:
        """Return the base unit at the end of its name; "" without one."""
        word = _BASE[self.unit].word
        return word if word and self.exposed.endswith(f"_{word}") else ""

    @property
    def factor(self) -> float:
        """Return the base units in one unit of its values."""
        return _BASE[self.unit].factor


CANNOT_SAY: Final = "cannot be said"
"""Reason of a missing value without a missing section: the first reading, a restart, a reset, or a divisor of 0."""


class WatchedInterval(Interval):
    """An interval that remembers absent sections.

    Attributes:
        absent: The last absent section since the caller set it to None.
    """

    __slots__ = ("_behind", "absent")

    def __init__(self, frames: Sequence[Frame]) -> None:
        super().__init__(frames)
        self.absent: Unavailable | None = None
        self._behind: dict[object, Unavailable | None] = {}

    def once(self, compute: Callable[[Interval], T]) -> T:
        """See `Interval.once`; a kept result keeps its absent section."""
        if compute not in self._behind:
            before, self.absent = self.absent, None
            super().once(compute)
            self._behind[compute], self.absent = self.absent, before
        self.absent = self._behind[compute] or self.absent
        return super().once(compute)

    def now(self, section: Callable[[Frame], S | Unavailable]) -> S | None:
        """See `Interval.now`."""
        readings = super().now(section)
        if readings is None:
            self._note(section)
        return readings

    def pair(
        self, section: Callable[[Frame], S | Unavailable], least_s: float = 0.0, *, over_gaps: bool = False
    ) -> tuple[S, S] | None:
        """See `Interval.pair`."""
        readings = super().pair(section, least_s, over_gaps=over_gaps)
        if readings is None:
            self._note(section)
        return readings

    def recent(self, section: Callable[[Frame], S | Unavailable], window_s: float, least: int = 1) -> Sequence[S]:
        """See `Interval.recent`."""
        readings = super().recent(section, window_s, least)
        if not readings:
            self._note(section)
        return readings

    def _note(self, section: Callable[[Frame], S | Unavailable]) -> None:
        sample = section(self.newest)
        if isinstance(sample, Unavailable):
            self.absent = sample


class ReadRow(NamedTuple):
    """A row as read in an interval.

    Attributes:
        points: Labels and finite values.
        reason: Why there are none; "" when there are, or when the family has no member (no standby, no pool).
        at_s: Time of the reading on the session's clock; for a gauge that of the frame.
    """

    row: Exported
    points: tuple[ExportedPoint, ...]
    reason: str
    at_s: float


def read_all(rows: Iterable[Exported], interval: WatchedInterval) -> Iterable[ReadRow]:
    """Yield every row, in order."""
    for row in rows:
        interval.absent = None
        points = tuple(
            ExportedPoint(labels, value)
            for labels, value in row.read(interval)
            if value is not None and isfinite(value)
        )
        reason, at_s = "", interval.newest.elapsed_s
        if not points:
            absent = interval.absent
            reason = str(absent.reason) if absent is not None else "" if row.labels else CANNOT_SAY
        elif row.section is not None and (sample := interval.now(row.section)) is not None:
            at_s = sample.at_s
        yield ReadRow(row, points, reason, at_s)


def read_once(
    rows: Sequence[Exported], moments: Iterable[WatchedInterval]
) -> Iterator[tuple[WatchedInterval, list[ReadRow]]]:
    """Yield the rows of each moment; a counter only where it was read since the moment before.

    A counter repeated with the time of a later frame would make a rate of 0, and a doubled rate after it.
    """
    last_s: dict[str, float] = {}
    for interval in moments:
        new_rows = []
        for read in read_all(rows, interval):
            if read.points and read.row.section is not None:
                if read.at_s <= last_s.get(read.row.id, -inf):
                    continue
                last_s[read.row.id] = read.at_s
            new_rows.append(read)
        yield interval, new_rows


def wall_clock_ms(interval: WatchedInterval, at_s: float) -> int:
    """Return a moment of the session in milliseconds since the epoch, by the clock of the interval's newest frame."""
    return round(interval.newest.taken_at_ms + 1000.0 * (at_s - interval.newest.elapsed_s))
