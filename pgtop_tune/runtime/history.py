"""Series for charts: metric values kept per frame, so that an hour is drawn without keeping an hour of frames.

A cache, nothing more: every value was computed by a metric from the frames when they arrived.

Means of a series in the columns of a chart, weighted by time; a new point changes the columns it stands for.
"""

from __future__ import annotations

import math
from array import array
from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Sequence
from itertools import pairwise
from math import isfinite
from statistics import median_low
from typing import TYPE_CHECKING, Final, Protocol

from msgspec import Struct

from pgtop_tune.metrics.load import P99, PER_SECOND, Quantile, quantiles_ms
from pgtop_tune.metrics.percentiles import Merged, enough, merge

PAUSE: Final = 4.0
"""A point stands for the time since the point before it, at most for so many usual distances."""
_ENOUGH: Final = 0.5
"""Share of a column that must be known for its mean to be drawn."""
_EQUAL: Final = 1e-9


def usual_s(moments: Sequence[float]) -> float:
    """Return the usual distance of points, to two digits: it stays the same while they jitter; 0 of a single one."""
    distances = [after - before for before, after in pairwise(moments)]
    return float(f"{median_low(distances):.1e}") if distances else 0.0


class ColumnMeans:
    """Means of the columns of a chart, from points that come oldest first.

    Args:
        since_s: Start of the first column.
        until_s: End of the last one.
        columns: At least 1.
        usual_s: Usual distance of the points, see the function of this name.

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
        """Advance by whole columns to another window and keep the points taken; return whether that is possible."""
        since_s, until_s, columns, usual = window
        by = (since_s - self._since_s) / self._each_s
        same_width = abs((until_s - since_s) / columns - self._each_s) < _EQUAL * self._each_s
        if (
            columns != self._columns
            or usual != self.window[3]
            or not same_width
            or not 0 <= by < columns
            or by != int(by)
        ):
            return False
        if by:
            for column in (self._sums, self._known_s):
                del column[: int(by)]
                column.frombytes(bytes(8 * int(by)))
            self._means = [*self._means[int(by) :], *[None] * int(by)]
            self._newest = max(self._newest - int(by), 0)
            self._since_s, self.window = since_s, window
        return True

    def take(self, points: Iterable[tuple[float, float | None]]) -> None:
        """Take more points: moment and value, which may be unknown or no number."""
        since_s, each_s, usual = self._since_s, self._each_s, self._usual_s
        sums, known_s, before_s = self._sums, self._known_s, self.last_s
        first = self._columns
        for at_s, value in points:
            begin_s = at_s - usual if before_s is None or at_s - before_s > PAUSE * usual else before_s
            before_s = at_s
            if value is None or not isfinite(value) or at_s <= since_s:
                continue
            begin_s = max(begin_s, since_s)
            begin_column = int((begin_s - since_s) / each_s)
            first = min(first, begin_column)
            for column in range(begin_column, min(int((at_s - since_s) / each_s) + 1, self._columns)):
                left_s = since_s + column * each_s
                overlap_s = min(at_s, left_s + each_s) - max(begin_s, left_s)
                if overlap_s > 0:
                    sums[column] += overlap_s * value
                    known_s[column] += overlap_s
        self.last_s = before_s
        newest = self._columns if before_s is None else int((before_s - since_s) / each_s)
        changed = range(max(min(first, self._newest, newest), 0), self._columns)
        self._newest = newest
        for column in changed:
            # The newest column is not over: the part of it that is known stands for it.
            enough_s = _EQUAL if column == newest else each_s * _ENOUGH
            self._means[column] = sums[column] / known_s[column] if known_s[column] >= enough_s else None

    @property
    def means(self) -> list[float | None]:
        """The mean of each column; None where less than half of it is known, of the newest nothing."""
        return self._means.copy()


if TYPE_CHECKING:
    from pgtop_tune.metrics.catalogue import Interval
    from pgtop_tune.model.bench import LatencySecond

CAPACITY: Final = 18_000
"""Points kept per series: five hours at 1 Hz, one at 5 Hz; 144 kB each."""
_HISTOGRAMS: Final = 200
"""Seconds whose histograms are kept, for late transactions and for the percentiles of the next seconds."""


class Charted(Protocol):
    """Anything with an id that gives a number for an interval: `Metric`, `ProgressMetric`."""

    @property
    def id(self) -> str: ...

    def __call__(self, interval: Interval) -> float | None: ...


class SeriesPoint(Struct, frozen=True):
    """One value of a series; `None` is a gap."""

    at_s: float
    value: float | None


class History:
    """Values of some metrics over the session's time.

    Args:
        metrics: Metrics whose values are kept.
    """

    def __init__(self, metrics: Sequence[Charted]) -> None:
        self._metrics = tuple(metrics)
        self._at_s = array("d")
        self._values = {metric.id: array("d") for metric in self._metrics}
        self._means: dict[tuple[str, int], ColumnMeans] = {}
        self._usual: tuple[tuple[int, float], float] = ((0, 0.0), 0.0)

    def append(self, interval: Interval) -> None:
        """Compute every metric for the newest frame and keep the values."""
        if len(self._at_s) >= CAPACITY + CAPACITY // 8:
            surplus = len(self._at_s) - CAPACITY
            for column in (self._at_s, *self._values.values()):
                del column[:surplus]
        self._at_s.append(interval.newest.elapsed_s)
        for metric in self._metrics:
            value = metric(interval)
            self._values[metric.id].append(math.nan if value is None else value)

    def adopt(self, history: History, until_s: float = math.inf) -> None:
        """Take over the values of another history of the same metrics, up to and including `until_s`."""
        end = bisect_right(history._at_s, until_s)
        self._means.clear()
        self._at_s = history._at_s[:end]
        self._values = {name: column[:end] for name, column in history._values.items()}

    def cut(self, until_s: float) -> None:
        """Forget the values after that moment."""
        end = bisect_right(self._at_s, until_s)
        self._means.clear()
        for column in (self._at_s, *self._values.values()):
            del column[end:]

    def clear(self) -> None:
        """Forget everything."""
        self._means.clear()
        for column in (self._at_s, *self._values.values()):
            del column[:]

    def count(self, since_s: float, until_s: float) -> int:
        """Return how many values there are from `since_s` on and before `until_s`."""
        return bisect_left(self._at_s, until_s) - bisect_left(self._at_s, since_s)

    def series(self, metric: Charted, since_s: float = 0.0, until_s: float = math.inf) -> list[SeriesPoint]:
        """Return the values from `since_s` of the session on and before `until_s`, oldest first.

        Raises:
            KeyError: The metric is not kept.
        """
        column = self._values[metric.id]
        first, end = bisect_left(self._at_s, since_s), bisect_left(self._at_s, until_s)
        return [
            SeriesPoint(at_s, None if math.isnan(value) else value)
            for at_s, value in zip(self._at_s[first:end], column[first:end], strict=True)
        ]

    def told_by(self, at_s: float) -> float:
        """Return the moment of the frame whose values stand for `at_s`: the first from then on, or `at_s` itself after
        the last."""
        index = bisect_left(self._at_s, at_s)
        return self._at_s[index] if index < len(self._at_s) else at_s

    def is_known(self, metric: Charted, since_s: float, until_s: float) -> bool:
        """Return whether there is a value from `since_s` of the session on and before `until_s`."""
        column = self._values[metric.id]
        return any(
            value == value for value in column[bisect_left(self._at_s, since_s) : bisect_left(self._at_s, until_s)]
        )

    def means(self, metric: Charted, since_s: float, until_s: float, columns: int) -> list[float | None]:
        """Return the means in the columns of a chart. The points of one column before them count too; columns that were
        drawn before are only added to."""
        first, end = bisect_left(self._at_s, since_s - (until_s - since_s) / columns), bisect_left(self._at_s, until_s)
        window = since_s, until_s, columns, self._usual_s(first, end)
        drawn = self._means.get((metric.id, columns))
        if drawn is None or not drawn.moved(window):
            drawn = self._means[metric.id, columns] = ColumnMeans(*window)
        begin = first if drawn.last_s is None else bisect_right(self._at_s, drawn.last_s)
        if begin < end:
            drawn.take(zip(self._at_s[begin:end], self._values[metric.id][begin:end], strict=True))
        return drawn.means

    def _usual_s(self, first: int, end: int) -> float:
        """Return the usual distance of these points, which is asked for many series."""
        points = end - first, self._at_s[end - 1] if end > first else 0.0
        if self._usual[0] != points:
            self._usual = points, usual_s(self._at_s[first:end])
        return self._usual[1]


class LatencyPoint(Struct, frozen=True):
    """Latencies of one second of the transaction log, milliseconds.

    Attributes:
        at_s: The end of that second on the session's clock.
        logged: Transactions in it.
        max_ms: The slowest of them.
        rough_p99_ms: Their p99, however few they are: for the scale of a chart, not to be shown.
        quantiles_ms: `metrics.load.PER_SECOND` of `span_s` seconds up to this one; None where they, too, have too
            few transactions.
        span_s: Seconds that a p99 needs, ten at most.
        span_mean_ms, span_max_ms: Mean and slowest of the same seconds.
        span_counted_below_ms: Latency below which some transactions were only counted, see `model.bench.estimate_mark`.
        known_s: Moment of the frame that brought the second.
    """

    at_s: float
    second: int
    logged: int
    max_ms: float
    rough_p99_ms: float
    quantiles_ms: tuple[float | None, ...]
    span_s: int
    span_mean_ms: float
    span_max_ms: float
    span_counted_below_ms: float = 0.0
    known_s: float = 0.0

    def at(self, quantile: Quantile) -> float | None:
        """Return one of `metrics.load.PER_SECOND`."""
        return self.quantiles_ms[PER_SECOND.index(quantile)]


class LatencyHistory:
    """Percentiles per second, in the order of the seconds, whenever they arrived."""

    def __init__(self) -> None:
        self._points: list[LatencyPoint] = []
        self._newest: dict[int, Merged] = {}
        self._run = 0

    def add(
        self, latencies: Sequence[LatencySecond], wall_minus_elapsed_s: float, known_s: float = 0.0, run: int = 0
    ) -> None:
        """Take the seconds of a frame; a second that came before is computed anew with the transactions that came late.

        Args:
            latencies: As in `BenchSample.latencies`.
            wall_minus_elapsed_s: Offset between the wall clock and the session's clock when the frame was made.
            known_s: The frame's moment.
            run: Number of the pgbench run: seconds of different runs do not mix.
        """
        if run != self._run:
            self._run = run
            self._newest.clear()
        for latency in latencies:
            if not latency.logged:
                continue
            second = latency.second
            histogram = merge([self._newest[second], latency] if second in self._newest else [latency])
            self._newest[second] = histogram
            span_s, span = enough(self._newest, second)
            point = LatencyPoint(
                at_s=second + 1 - wall_minus_elapsed_s,
                second=second,
                logged=histogram.logged,
                max_ms=histogram.max_us / 1000.0,
                rough_p99_ms=P99.estimate(histogram) or 0.0,
                quantiles_ms=quantiles_ms(span, PER_SECOND),
                span_s=span_s,
                span_mean_ms=span.sum_us / span.logged / 1000.0,
                span_max_ms=span.max_us / 1000.0,
                span_counted_below_ms=span.counted_below_us / 1000.0,
                known_s=known_s,
            )
            insort(self._points, point, key=lambda point: (point.at_s, point.known_s))
        if len(self._newest) > 2 * _HISTOGRAMS:
            self._newest = dict(sorted(self._newest.items())[-_HISTOGRAMS:])
        if len(self._points) > CAPACITY:
            del self._points[: len(self._points) - CAPACITY]

    def adopt(self, history: LatencyHistory, until_s: float = math.inf) -> None:
        """Take over the seconds of another history that were known by that moment."""
        self._points = [point for point in history._points if point.known_s <= until_s]
        self._run = history._run
        known_seconds = {point.second for point in self._points[-2 * _HISTOGRAMS :]}
        self._newest = {second: histogram for second, histogram in history._newest.items() if second in known_seconds}

    def cut(self, until_s: float) -> None:
        """Forget the seconds that were not known by that moment."""
        self.adopt(self, until_s)

    def clear(self) -> None:
        """Forget everything."""
        self._points.clear()
        self._newest.clear()

    def histograms(self, since_s: float = 0.0) -> list[tuple[float, Merged]]:
        """Return the histograms of the newest seconds, some minutes of them, each with the end of its second; oldest
        first."""
        return [
            (point.at_s, self._newest[point.second]) for point in self.series(since_s) if point.second in self._newest
        ]

    def newest(self) -> LatencyPoint | None:
        """Return the last complete second."""
        return self._points[-1] if self._points else None

    def series(self, since_s: float = 0.0) -> list[LatencyPoint]:
        """Return the seconds from that moment of the session on, oldest first."""
        first = bisect_left(self._points, since_s, key=lambda point: point.at_s)
        points = self._points[first:]
        # A second that came again has several points; its last point has all transactions.
        after = (*(point.second for point in points[1:]), None)
        return [point for point, second in zip(points, after, strict=False) if point.second != second]
