"""Figures of a run second by second as sums that can be added up: of any block the true figure, not a mean of means."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from pgtop_tune.metrics.percentiles import Histogram, Merged, merge, percentile

MOST_STEPS: Final = 4096
"""Steps kept; of more, neighbours are added up, so that a day costs no more memory than an hour."""
Sums = tuple[float, float]
"""What is divided, and by what: transactions and seconds, milliseconds and requests."""


class Gathered:
    """Sums by figure and step.

    Attributes:
        step_s: Seconds of a step: 1, and twice as many each time there are too many steps.
    """

    def __init__(self) -> None:
        self.step_s = 1
        self._columns: dict[str, dict[int, Sums]] = {}
        self._latencies: dict[int, Merged] = {}

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
        step = self._step(at_s)
        before = self._latencies.get(step)
        self._latencies[step] = merge((histogram,) if before is None else (before, histogram))

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
        pairs: dict[int, list[Merged]] = {}
        for step, merged in self._latencies.items():
            pairs.setdefault(step // 2, []).append(merged)
        self._latencies = {step: merge(parts) for step, parts in pairs.items()}

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
        return [self._latencies[step] for step in sorted(self._latencies) if step >= first]

    def latency_series(self, quantile: float) -> list[tuple[float, float]]:
        """(seconds since the begin, ms) of each step that has transactions."""
        found = ((step, milliseconds(merged, quantile)) for step, merged in sorted(self._latencies.items()))
        return [(step * float(self.step_s), value) for step, value in found if value is not None]


def quotient(sums: Sequence[Sums]) -> float | None:
    """The figure over several steps; None without any."""
    whole = sum(each[1] for each in sums)
    return sum(each[0] for each in sums) / whole if whole > 0 else None


def milliseconds(merged: Merged, quantile: float) -> float | None:
    """A percentile in ms; None without transactions."""
    found = percentile(merged.buckets, quantile, merged.max_us)
    return None if found is None else found / 1000.0


def blocks(count: int, length: int) -> Iterator[slice]:
    """Whole blocks of so many steps; the rest at the beginning, nearest to a warm-up, is left out."""
    return (slice(at, at + length) for at in range(count % length, count, length))
