"""Figures of a run second by second as sums that can be added up: of any block the true figure, not a mean of means."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from pgtop_tune.metrics.load import Quantile
from pgtop_tune.metrics.percentiles import Histogram, Merged, ascending

MOST_STEPS: Final = 4096
"""Steps kept; of more, neighbours are added up, so that a day costs no more memory than an hour."""
Sums = tuple[float, float]
"""What is divided, and by what: transactions and seconds, milliseconds and requests."""


class LatencySums:
    """Histograms added up."""

    __slots__ = ("_counts", "_logged", "_max_us", "_merged", "_sum_us")

    def __init__(self) -> None:
        self._logged = self._sum_us = self._max_us = 0
        self._counts: dict[int, int] = {}
        self._merged: Merged | None = None

    def add(self, histogram: Histogram) -> None:
        """One more."""
        self._merged = None
        self._logged += histogram.logged
        self._sum_us += histogram.sum_us
        self._max_us = max(self._max_us, histogram.max_us)
        counts = self._counts
        for index, count in histogram.buckets:
            counts[index] = counts.get(index, 0) + count

    def merged(self) -> Merged:
        """All of them."""
        if self._merged is None:
            self._merged = Merged(
                logged=self._logged, sum_us=self._sum_us, max_us=self._max_us, buckets=ascending(self._counts)
            )
        return self._merged


class Gathered:
    """Sums by figure and step.

    Attributes:
        step_s: Seconds of a step: 1, and twice as many each time there are too many steps.
    """

    def __init__(self) -> None:
        self.step_s = 1
        self._columns: dict[str, dict[int, Sums]] = {}
        self._latencies: dict[int, LatencySums] = {}

    def add(self, figure: str, at_s: float, part: float, whole: float) -> None:
        """Adds to the step of a moment.

        Args:
            at_s: Seconds since the run began; before it counts as its first.
        """
        column = self._columns.setdefault(figure, {})
        step = self._step(at_s)
        before = column.get(step, (0.0, 0.0))
        column[step] = before[0] + part, before[1] + whole

    def add_latencies(self, at_s: float, histogram: Histogram) -> None:
        """Adds transactions that ended in the step of a moment."""
        self._latencies.setdefault(self._step(at_s), LatencySums()).add(histogram)

    def widen(self, seconds: float) -> None:
        """Makes steps at least so long: what is read once in a minute fills no second."""
        while self.step_s < seconds:
            self._coarsen()

    def _step(self, at_s: float) -> int:
        while at_s >= MOST_STEPS * self.step_s:
            self._coarsen()
        return max(int(at_s // self.step_s), 0)

    def _coarsen(self) -> None:
        self.step_s *= 2
        for name, column in self._columns.items():
            halved: dict[int, Sums] = {}
            for step, (part, whole) in column.items():
                before = halved.get(step // 2, (0.0, 0.0))
                halved[step // 2] = before[0] + part, before[1] + whole
            self._columns[name] = halved
        pairs: dict[int, LatencySums] = {}
        for step, found in self._latencies.items():
            pairs.setdefault(step // 2, LatencySums()).add(found.merged())
        self._latencies = pairs

    @property
    def figures(self) -> tuple[str, ...]:
        """Names of figures there is something of, in the order in which they came."""
        return tuple(self._columns)

    def sums(self, figure: str, from_s: float = 0.0) -> list[Sums]:
        """The figure's sums in the order of time; steps without are left out.

        Args:
            from_s: What is before is left out, a warm-up.
        """
        first = from_s / self.step_s
        column = self._columns.get(figure, {})
        return [column[step] for step in sorted(column) if step >= first and column[step][1] > 0]

    def series(self, figure: str) -> list[tuple[float, float]]:
        """(seconds since the begin, value) of each step, for a chart."""
        column = self._columns.get(figure, {})
        return [(step * float(self.step_s), part / whole) for step, (part, whole) in sorted(column.items()) if whole]

    def latencies(self, from_s: float = 0.0) -> list[Merged]:
        """Histograms in the order of time."""
        first = from_s / self.step_s
        return [self._latencies[step].merged() for step in sorted(self._latencies) if step >= first]

    def latency_series(self, quantile: Quantile) -> list[tuple[float, float]]:
        """(seconds since the begin, ms) of each step that has transactions."""
        steps = sorted(self._latencies)
        found = ((step, quantile.of(self._latencies[step].merged())) for step in steps)
        return [(step * float(self.step_s), value) for step, value in found if value is not None]


def quotient(sums: Sequence[Sums]) -> float | None:
    """The figure over several steps; None without any."""
    whole = sum(each[1] for each in sums)
    return sum(each[0] for each in sums) / whole if whole > 0 else None


def blocks(count: int, length: int) -> Iterator[slice]:
    """Whole blocks of so many steps; the rest at the beginning, nearest to a warm-up, is left out."""
    return (slice(at, at + length) for at in range(count % length, count, length))
