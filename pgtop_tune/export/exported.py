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
    """A unit that names end in; "" for none.

    Attributes:
        word: As in the name: "bytes_per_second".
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
"""Ids that a rule would make a bad name of."""

_UNSAFE: Final = re.compile(r"[^a-z0-9_]+")
_OWN_UNIT: Final = re.compile(r"_(?:bytes|ms|us|s)\Z")


def base_unit(unit: str) -> BaseUnit:
    """What Prometheus counts in instead.

    Raises:
        KeyError: A unit that has no row here.
    """
    return _BASE[unit]


def exposed_name(identity: str, unit: str) -> str:
    """The name of a family: "host.memory.free" in bytes is pgtop_host_memory_free_bytes.

    The prefix pg_ of a view's name gives way to ours: pg_stat_wal.wal_fpi is pgtop_stat_wal_wal_fpi. The suffix _count
    is taken (histograms): a column that ends in it goes without.
    """
    if identity in _RENAMED:
        return PREFIX + _RENAMED[identity]
    stem = _UNSAFE.sub("_", identity.removeprefix("pg_").lower()).removesuffix("_count")
    word = base_unit(unit).word
    return PREFIX + (f"{_OWN_UNIT.sub('', stem)}_{word}" if word else stem)


S = TypeVar("S", bound=Reading)
T = TypeVar("T")


class MetricKind(Enum):
    """As OpenMetrics has it; the value is its word."""

    GAUGE = "gauge"
    COUNTER = "counter"
    INFO = "info"


class WantedRows(Enum):
    """Where a row stands when nobody says which are wanted."""

    EVERYWHERE = "everywhere"
    NOT_IN_TABLES = "OpenMetrics"
    """Tables have the rates made of it."""
    WHEN_NAMED = "when named"
    """It has as many series as there are sessions or statements."""


class ExportedPoint(NamedTuple):
    """A value and the values of the row's labels, in their order."""

    labels: tuple[str, ...]
    value: float


ReadPoints = Callable[[Interval], Iterable[ExportedPoint]]
"""Points of a row in an interval."""


def one_point(value: Callable[[Interval], float | None]) -> ReadPoints:
    """Return a reader of a number without labels; none where it cannot be said."""
    return each_point(lambda interval: [((), value(interval))])


def each_point(values: Callable[[Interval], Iterable[tuple[tuple[str, ...], float | None]]]) -> ReadPoints:
    """Return a reader of labelled numbers, without those that cannot be said."""

    def read(interval: Interval) -> Iterable[ExportedPoint]:
        return [ExportedPoint(labels, value) for labels, value in values(interval) if value is not None]

    return read


class Exported(Struct, frozen=True):
    """One number, or one family of them told apart by labels.

    Attributes:
        id: In tables and for `--metrics`: "server.tps", "pg_stat_wal.wal_bytes".
        kind: Gauge, counter, or a text worn as labels.
        unit: In tables, as on the screen: "ms", "%", "bytes/s"; "" for a plain count.
        help: What it says, and where it comes from.
        read: Its points in an interval; none when it cannot be said.
        labels: Names of the labels.
        wanted: Where it stands by default.
        section: Of a counter: the section that it is read with. A section read every two seconds stands in two frames.
        name: In OpenMetrics, without "_total" and "_info"; "" makes it from id and unit.
    """

    id: str
    kind: MetricKind
    unit: str
    help: str
    read: ReadPoints
    labels: tuple[str, ...] = ()
    wanted: WantedRows = WantedRows.EVERYWHERE
    section: Callable[[Frame], Reading | Unavailable] | None = None
    name: str = ""

    @property
    def exposed(self) -> str:
        """The name of the family in OpenMetrics."""
        return self.name or exposed_name(self.id, self.unit)

    @property
    def exposed_unit(self) -> str:
        """The base unit its name ends in; "" without one."""
        word = base_unit(self.unit).word
        return word if word and self.exposed.endswith(f"_{word}") else ""

    @property
    def factor(self) -> float:
        """What a value is multiplied with to be in the base unit."""
        return base_unit(self.unit).factor


CANNOT_SAY: Final = "cannot be said"
"""Reason of an absence that no section explains: the first reading, a restart, a reset, or nothing to divide by."""


class WatchedInterval(Interval):
    """An interval that remembers which section was asked for and was not there.

    Attributes:
        absent: The last one since it was set to None.
    """

    __slots__ = ("_behind", "absent")

    def __init__(self, frames: Sequence[Frame]) -> None:
        super().__init__(frames)
        self.absent: Unavailable | None = None
        self._behind: dict[object, Unavailable | None] = {}

    def once(self, compute: Callable[[Interval], T]) -> T:
        """See `Interval.once`; what was absent is remembered with it."""
        if compute not in self._behind:
            before, self.absent = self.absent, None
            super().once(compute)
            self._behind[compute], self.absent = self.absent, before
        self.absent = self._behind[compute] or self.absent
        return super().once(compute)

    def now(self, section: Callable[[Frame], S | Unavailable]) -> S | None:
        """See `Interval.now`."""
        found = super().now(section)
        if found is None:
            self._note(section)
        return found

    def pair(
        self, section: Callable[[Frame], S | Unavailable], least_s: float = 0.0, *, over_gaps: bool = False
    ) -> tuple[S, S] | None:
        """See `Interval.pair`."""
        found = super().pair(section, least_s, over_gaps=over_gaps)
        if found is None:
            self._note(section)
        return found

    def recent(self, section: Callable[[Frame], S | Unavailable], window_s: float, least: int = 1) -> Sequence[S]:
        """See `Interval.recent`."""
        found = super().recent(section, window_s, least)
        if not found:
            self._note(section)
        return found

    def _note(self, section: Callable[[Frame], S | Unavailable]) -> None:
        found = section(self.newest)
        if isinstance(found, Unavailable):
            self.absent = found


class ReadRow(NamedTuple):
    """A row as read in an interval.

    Attributes:
        row: Which one.
        points: Its values.
        reason: Why there are none; "" when there are, or when nothing of the kind exists (no standby, no pool).
        at_s: When they were read, seconds on the session's clock; for a gauge the moment of the frame.
    """

    row: Exported
    points: tuple[ExportedPoint, ...]
    reason: str
    at_s: float


def read_all(rows: Iterable[Exported], interval: WatchedInterval) -> Iterable[ReadRow]:
    """Every row, in order."""
    for row in rows:
        interval.absent = None
        points = tuple(point for point in row.read(interval) if isfinite(point.value))
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
    """Rows of one moment after the other; a counter only where it was read since the moment before.

    A counter that is repeated with the time of a later frame makes a rate of 0, and a doubled one after it.
    """
    told: dict[str, float] = {}
    for interval in moments:
        found = []
        for read in read_all(rows, interval):
            if read.points and read.row.section is not None:
                if read.at_s <= told.get(read.row.id, -inf):
                    continue
                told[read.row.id] = read.at_s
            found.append(read)
        yield interval, found


def wall_clock_ms(interval: WatchedInterval, at_s: float) -> int:
    """A moment of the session in milliseconds since the epoch, by the clock of the interval's newest frame."""
    return round(interval.newest.taken_at_ms + 1000.0 * (at_s - interval.newest.elapsed_s))
