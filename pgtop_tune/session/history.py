"""Series for charts: metric values kept per frame, so that an hour is drawn without keeping an hour of frames.

A cache, nothing more: every value was computed by a metric from the frames when they arrived.
"""

from __future__ import annotations

import math
from array import array
from bisect import bisect_left, bisect_right, insort
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, Protocol

from msgspec import Struct
from msgspec.structs import replace

from pgtop_tune.metrics.percentiles import percentiles

if TYPE_CHECKING:
    from pgtop_tune.metrics.catalogue import Interval
    from pgtop_tune.model.bench import LatencySecond

CAPACITY: Final = 18_000
"""Points kept per series: five hours at 1 Hz, one at 5 Hz; 144 kB each."""
QUANTILES: Final = (50.0, 95.0, 99.0, 99.9)


class Charted(Protocol):
    """Anything with an id that gives a number for an interval: `Metric`, `ProgressMetric`."""

    @property
    def id(self) -> str: ...

    def __call__(self, interval: Interval) -> float | None: ...


class Point(Struct, frozen=True):
    """One value of a series; `None` is a gap."""

    at_s: float
    value: float | None


class History:
    """Values of some metrics over the session's time.

    Args:
        metrics: Which ones are kept.
    """

    def __init__(self, metrics: Sequence[Charted]) -> None:
        self._metrics = tuple(metrics)
        self._at_s = array("d")
        self._values = {metric.id: array("d") for metric in self._metrics}

    def append(self, interval: Interval) -> None:
        """Computes every metric for the newest frame and keeps the values."""
        if len(self._at_s) >= CAPACITY + CAPACITY // 8:
            surplus = len(self._at_s) - CAPACITY
            for column in (self._at_s, *self._values.values()):
                del column[:surplus]
        self._at_s.append(interval.newest.elapsed_s)
        for metric in self._metrics:
            value = metric(interval)
            self._values[metric.id].append(math.nan if value is None else value)

    def adopt(self, other: History, until_s: float = math.inf) -> None:
        """Takes over the values of another history of the same metrics, up to and with that moment."""
        end = bisect_right(other._at_s, until_s)
        self._at_s = other._at_s[:end]
        self._values = {name: column[:end] for name, column in other._values.items()}

    def cut(self, until_s: float) -> None:
        """Forgets what came after that moment."""
        end = bisect_right(self._at_s, until_s)
        for column in (self._at_s, *self._values.values()):
            del column[end:]

    def clear(self) -> None:
        """Forgets everything."""
        for column in (self._at_s, *self._values.values()):
            del column[:]

    def series(self, metric: Charted, since_s: float = 0.0, until_s: float = math.inf) -> list[Point]:
        """Values from that moment of the session on and before the other, oldest first.

        Raises:
            KeyError: The metric is not kept.
        """
        column = self._values[metric.id]
        first, end = bisect_left(self._at_s, since_s), bisect_left(self._at_s, until_s)
        return [
            Point(at_s, None if math.isnan(value) else value)
            for at_s, value in zip(self._at_s[first:end], column[first:end], strict=True)
        ]


class LatencyPoint(Struct, frozen=True):
    """Percentiles of one second of the transaction log, milliseconds.

    Attributes:
        at_s: The end of that second on the session's clock.
        logged: Transactions they are from.
        quantiles_ms: As `QUANTILES`; None where the second has too few transactions, see `metrics.percentiles`.
        max_ms: The slowest.
        mean_ms: Their mean.
        known_s: When the frame was made that brought it.
    """

    at_s: float
    second: int
    logged: int
    quantiles_ms: tuple[float | None, ...]
    max_ms: float
    mean_ms: float
    known_s: float = 0.0


class LatencyHistory:
    """Percentiles per second, in the order of the seconds, whenever they arrived."""

    def __init__(self) -> None:
        self._points: list[LatencyPoint] = []

    def add(self, latencies: Sequence[LatencySecond], wall_minus_elapsed_s: float, known_s: float = 0.0) -> None:
        """Takes the seconds that a frame brought.

        Args:
            latencies: As in `BenchSample.latencies`.
            wall_minus_elapsed_s: Offset between the wall clock and the session's clock when the frame was made.
            known_s: The frame's moment.
        """
        for latency in latencies:
            if not latency.logged:
                continue
            values = percentiles(latency.buckets, QUANTILES, latency.max_us)
            point = LatencyPoint(
                at_s=latency.second + 1 - wall_minus_elapsed_s,
                second=latency.second,
                logged=latency.logged,
                quantiles_ms=tuple(None if value is None else value / 1000.0 for value in values),
                max_ms=latency.max_us / 1000.0,
                mean_ms=latency.sum_us / latency.logged / 1000.0,
                known_s=known_s,
            )
            at = bisect_right(self._points, latency.second, key=lambda point: point.second)
            if at and self._points[at - 1].second == latency.second:
                point = _together(self._points[at - 1], point)
            insort(self._points, point, key=lambda point: (point.at_s, point.known_s))
        if len(self._points) > CAPACITY:
            del self._points[: len(self._points) - CAPACITY]

    def adopt(self, other: LatencyHistory, until_s: float = math.inf) -> None:
        """Takes over the seconds of another that were known by that moment."""
        self._points = [point for point in other._points if point.known_s <= until_s]

    def cut(self, until_s: float) -> None:
        """Forgets what was not known by that moment."""
        self.adopt(self, until_s)

    def clear(self) -> None:
        """Forgets everything."""
        self._points.clear()

    def newest(self) -> LatencyPoint | None:
        """The last complete second."""
        return self._points[-1] if self._points else None

    def series(self, since_s: float = 0.0) -> list[LatencyPoint]:
        """Seconds from that moment of the session on, oldest first."""
        first = bisect_left(self._points, since_s, key=lambda point: point.at_s)
        found = self._points[first:]
        # Of a second that came again the last, which has all of it.
        after = (*(point.second for point in found[1:]), None)
        return [point for point, second in zip(found, after, strict=False) if point.second != second]


def _together(before: LatencyPoint, late: LatencyPoint) -> LatencyPoint:
    """A second with its transactions that came late; its percentiles stay those of the larger part."""
    logged = before.logged + late.logged
    return replace(
        before,
        logged=logged,
        quantiles_ms=max(before, late, key=lambda point: point.logged).quantiles_ms,
        max_ms=max(before.max_ms, late.max_ms),
        mean_ms=(before.mean_ms * before.logged + late.mean_ms * late.logged) / logged,
        known_s=late.known_s,
    )
