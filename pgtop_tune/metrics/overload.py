"""Overload: the rate of a load is more than the server does, so that its backlog grows and the run does not recover.

The backlog, in seconds, is how far transactions begin behind their schedule, and with a latency limit also the time that
the skipped ones would have taken:

    backlog = lag + skipped / rate

It is read in steps of two seconds. From the last step without a backlog on, its growth per step is judged by the
always-valid bound of Student's t, which holds at all looks together. A backlog that has fallen by half is being worked
off: a stall of the server does that, and is no overload. Growth while a checkpoint runs is explained by it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean
from typing import Final

from msgspec import Struct

from pgtop_tune.base.units import duration, number
from pgtop_tune.model.bench import BenchProgress

_MIXTURE: Final = 2.0


def always_valid_t(count: int, alpha: float) -> float:
    """Return the t beyond which a claim is valid at every look; infinite with too few values.

    Source: Lai, "On confidence sequences", 1976, as a mixture over the effect size with weight 1/2.
    """
    k = 1.0 + _MIXTURE * count
    q = (k / alpha**2) ** (1.0 / count)
    return math.sqrt((count - 1) * (q - 1.0) / (1.0 - q / k)) if q < k else math.inf


STEP_S: Final = 2.0
CHANCE: Final = 0.001
"""How seldom the growth of a backlog that is worked off is taken for overload, per beginning of a backlog."""
NONE_S: Final = 0.1
"""Lag up to which a load has no backlog."""
LEAST_S: Final = 0.5
"""Backlog below which nothing is concluded."""
_LINE_S: Final = 1.0
"""Seconds that a line of progress is about."""
_WORKED_OFF: Final = 0.5
_PRIOR_SD: Final = 0.02
"""Share of the capacity by which two seconds differ, for a backlog of few steps."""
_PRIOR_WEIGHT: Final = 3


class Overload(Struct, frozen=True):
    """An overload that was found.

    Attributes:
        onset_s: Second of the run at which the backlog began to grow.
        found_s: Second of the run at which that was certain.
        growth: Seconds by which the backlog grew per second.
        backlog_s: Backlog when it was found.
        due: Transactions that were due by then, and had not begun.
    """

    onset_s: float
    found_s: float
    growth: float
    backlog_s: float
    due: float

    @property
    def sentence(self) -> str:
        """Return the finding with its numbers."""
        return (
            f"since second {self.onset_s:.0f} the backlog grows by {self.growth:.2f} s per second: after"
            f" {duration(self.found_s)} transactions are {self.backlog_s:.1f} s late, and {number(round(self.due))} are due"
        )


class _Step(Struct, frozen=True):
    at_s: float
    backlog_s: float
    latency_s: float


class OverloadWatch:
    """The progress of one run with a rate, line by line.

    Attributes:
        overload: The overload; None while there is none. The first one stands.
    """

    def __init__(self, rate_per_s: float) -> None:
        self.overload: Overload | None = None
        self._rate = rate_per_s
        self._lines: list[BenchProgress] = []
        self._steps: list[_Step] = []
        self._onset_s = 0.0
        self._skipped = 0
        self._peak_s = 0.0
        self._excused = False

    def take(self, line: BenchProgress, *, excused: bool = False) -> Overload | None:
        """Take the next line and return the overload, if there is one by now.

        Args:
            excused: Whether a checkpoint that will end in time explains a backlog.
        """
        self._lines.append(line)
        at_s = line.elapsed_s
        if not self._steps:
            # Phases begin at another second of the run than 0.
            self._onset_s = max(at_s - _LINE_S, 0.0)
            self._steps = [_Step(self._onset_s, 0.0, 0.0)]
        if self.overload is None and at_s - self._steps[-1].at_s >= STEP_S - 0.5:
            lines, self._lines = self._lines, []
            self._skipped += sum(second.skipped or 0 for second in lines)
            weight = math.fsum(second.tps for second in lines)
            # Without a transaction nobody knows the backlog: the next step tells.
            if weight > 0.0:
                lag_s, latency_s = (
                    math.fsum((value or 0.0) * tps for value, tps in pairs) / weight / 1000.0
                    for pairs in zip(
                        *(((second.lag_ms, second.tps), (second.latency_ms, second.tps)) for second in lines),
                        strict=True,
                    )
                )
                self._next(at_s, lag_s, latency_s, any(second.skipped for second in lines), excused)
        return self.overload

    def _next(self, at_s: float, lag_s: float, latency_s: float, skips: bool, excused: bool) -> None:
        if lag_s <= NONE_S and not skips:
            self._skipped = 0
        step = _Step(at_s, lag_s + self._skipped / self._rate, latency_s)
        self._peak_s = max(self._peak_s, step.backlog_s)
        is_none = lag_s <= NONE_S and not skips
        if is_none or step.backlog_s <= _WORKED_OFF * self._peak_s:
            self._steps, self._onset_s, self._peak_s = [step], at_s, step.backlog_s
        elif excused or self._excused:
            self._steps = [step]
        else:
            self._steps.append(step)
        self._excused = excused
        if len(self._steps) > 1 and step.backlog_s >= LEAST_S and self._rises():
            grown_s = step.backlog_s - self._steps[0].backlog_s
            self.overload = Overload(
                onset_s=self._onset_s,
                found_s=at_s,
                growth=grown_s / (at_s - self._steps[0].at_s),
                backlog_s=step.backlog_s,
                due=step.backlog_s * self._rate,
            )

    def _rises(self) -> bool:
        """Return whether backlog and latency rise for certain; skipping holds the latency at its limit."""
        backlogs = [step.backlog_s for step in self._steps]
        latencies = [step.latency_s for step in self._steps]
        times = [step.at_s for step in self._steps]
        return _is_rise(times, backlogs) and (self._skipped > 0 or _is_rise(times, latencies))


def _is_rise(times: Sequence[float], values: Sequence[float]) -> bool:
    growth = [(b - a) / (t - s) for a, b, s, t in zip(values, values[1:], times, times[1:], strict=False)]
    count, mean = len(growth), fmean(growth)
    squares = math.fsum((step - mean) ** 2 for step in growth) + _PRIOR_WEIGHT * _PRIOR_SD**2
    error = math.sqrt(squares / (count - 1 + _PRIOR_WEIGHT) / count)
    return mean > always_valid_t(count, CHANCE) * error


def overload_in(lines: Sequence[BenchProgress], rate_per_s: float) -> Overload | None:
    """Return the overload in the progress of a run; nothing is known of checkpoints."""
    watch = OverloadWatch(rate_per_s)
    for line in lines:
        watch.take(line)
    return watch.overload
