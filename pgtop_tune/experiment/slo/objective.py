"""An objective of a load, such as "p99 < 20ms and failed < 0.1%", and what the seconds of a run say of it. Pure.

Each limit becomes a number per second whose mean is above 0 exactly where the limit is broken:

    p99 < L      transactions above L less 1 % of all
    mean < L     sum of the latencies less L for each
    failed < S   failed transactions less the share S of all

The mean of such a series has an error that knows how much neighbouring seconds resemble each other (`mean_variance`),
and is at least that of independent late transactions.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from enum import StrEnum
from statistics import variance
from typing import Final

from msgspec import Struct

from pgtop_tune.base.errors import UsageProblem
from pgtop_tune.base.units import TIMES, share, with_ms
from pgtop_tune.compare.statistics.before_after import FEWEST_AFTER, mean_variance
from pgtop_tune.compare.statistics.effect import t_quantile
from pgtop_tune.metrics.percentiles import Buckets, bucket_edges, merge, merge_scripts, percentiles
from pgtop_tune.model.bench import LatencySecond, ScriptLatencies

_TERM: Final = re.compile(
    r"\s*(?:(p\d{1,2}(?:\.\d{1,3})?|mean)|(failed))(?:\s+of\s+(\"[^\"]+\"|\S+))?\s*<=?\s*(\d{1,12}(?:\.\d{1,6})?)\s*(us|ms|s|m|%)\s*",
    re.IGNORECASE,
)
_AND: Final = re.compile(r'\s+and\s+(?=(?:[^"]*"[^"]*")*[^"]*\Z)', re.IGNORECASE)
"""Outside of quotes, which a name of a script with blanks needs."""
_EXAMPLE: Final = "write for example 'p99 < 20ms', 'p95 of new-order < 1s' or 'mean < 5ms and failed < 0.1%'"
_FEWEST_DEGREES: Final = 5
_APART: Final = 3.0
"""Late transactions that come together, on average: they are late for the same reason."""


class Standing(StrEnum):
    """A verdict on an objective at one rate."""

    HOLDS = "holds"
    BREAKS = "breaks"
    UNCLEAR = "unclear"


class Excess(Struct, frozen=True, gc=False):
    """One second of a run, by one limit.

    Attributes:
        count: Transactions that the limit is about.
        amount: Late (or failed) transactions, or the sum of latencies in ms.
    """

    count: float
    amount: float


class ObjectiveLimit(Struct, frozen=True):
    """One limit of an objective.

    Attributes:
        text: The limit in words.
        figure: "mean", "failed", or the quantile as pNN.
        limit: Milliseconds; of "failed" a share.
        allowed: Share of transactions that may be late, or failed; of "mean" the limit in ms.
        script: Name of the script that it is about; "" for all transactions.
    """

    text: str
    figure: str
    limit: float
    allowed: float
    script: str = ""

    @property
    def spread(self) -> float:
        """Return the variance of one transaction's amount at the limit; 0 where it is not known."""
        return 0.0 if self.figure == "mean" else _APART * self.allowed * (1.0 - self.allowed)

    def of(self, second: LatencySecond, scripts: Sequence[str]) -> Excess:
        """Return a second by this limit.

        Args:
            scripts: Names of the scripts of the run, in their order.
        """
        part: LatencySecond | ScriptLatencies | None = second
        if self.script and second.scripts:
            part = next((row for row in second.scripts if scripts[row.script] == self.script), None)
        if part is None:
            return Excess(0.0, 0.0)
        if self.figure == "mean":
            return Excess(part.logged, part.sum_us / 1000.0)
        if self.figure == "failed":
            return Excess(part.logged + part.failed, part.failed)
        return Excess(part.logged, late_of(part.buckets, 1000.0 * self.limit))

    def of_all(self, parts: Sequence[LatencySecond], scripts: Sequence[str]) -> Excess:
        """Return a second of which the log came in several parts; see `of`."""
        excesses = [self.of(part, scripts) for part in parts]
        return Excess(sum(excess.count for excess in excesses), sum(excess.amount for excess in excesses))

    def latency_ms(self, seconds: Iterable[Sequence[LatencySecond]], scripts: Sequence[str]) -> float | None:
        """Return the latency that the limit is about over all seconds; None for "failed", and with too few of them."""
        parts = [part for second in seconds for part in second]
        merged = merge(parts)
        if self.script and any(part.scripts for part in parts):
            merged = merge_scripts(parts).get(scripts.index(self.script), merge(()))
        if self.figure == "failed" or not merged.logged:
            return None
        if self.figure == "mean":
            return merged.sum_us / merged.logged / 1000.0
        [latency_us] = percentiles(merged.buckets, (float(self.figure[1:]),), merged.max_us)
        return None if latency_us is None else latency_us / 1000.0

    def words(self, value: float) -> str:
        """Return a value of the judged figure for people: a share, or a mean latency."""
        return with_ms(value) if self.figure == "mean" else share(100.0 * value)


def late_of(buckets: Buckets, limit_us: float) -> float:
    """Return the transactions slower than a limit; those of its own bucket count in proportion."""
    late = 0.0
    for index, count in buckets:
        low, beyond = bucket_edges(index)
        if low >= limit_us:
            late += count
        elif beyond > limit_us:
            late += count * (beyond - limit_us) / (beyond - low)
    return late


def parse_objective(text: str) -> tuple[ObjectiveLimit, ...]:
    """Parse an objective.

    Raises:
        UsageProblem: It is not of that form.
    """
    return tuple(_limit(part, text) for part in _AND.split(text.strip()))


def _limit(part: str, text: str) -> ObjectiveLimit:
    match = _TERM.fullmatch(part)
    if match is None:
        raise UsageProblem(f"{text!r} is not an objective", _EXAMPLE)
    latency, failed, script, typed_number, unit = match.groups()
    figure, value = (latency or failed).lower(), float(typed_number)
    if (unit == "%") is not bool(failed) or not value > 0.0:
        raise UsageProblem(f"{part.strip()!r} is not an objective", _EXAMPLE)
    limit_text = f"{figure}{f' of {script}' if script else ''} < {typed_number}{unit}"
    if failed:
        limit = allowed = value / 100.0
    else:
        limit = 1000.0 * value * TIMES[unit.lower()]
        allowed = limit if figure == "mean" else 1.0 - float(figure[1:]) / 100.0
    if not allowed < 1.0 and figure != "mean":
        raise UsageProblem(f"{part.strip()!r} is not an objective", _EXAMPLE)
    return ObjectiveLimit(
        text=limit_text, figure=figure, limit=limit, allowed=allowed, script=(script or "").strip('"')
    )


class Judged(Struct, frozen=True):
    """The evidence of a run on one limit.

    Attributes:
        value: Share of late or failed transactions, or the mean latency in ms; None without transactions.
        error: Its standard error; 0.0 where it is not known.
        degrees: Degrees of freedom of the error.
        allowed: The value that it is held against.
        is_time: Whether these are milliseconds, and no shares.
    """

    value: float | None
    error: float
    degrees: int
    allowed: float
    is_time: bool = False

    def standing(self, chance: float) -> Standing:
        """Return whether the limit holds for certain, does not, or neither; each is wrong in this share at most."""
        if self.value is None or self.error <= 0.0:
            return Standing.UNCLEAR
        t = (self.value - self.allowed) / self.error
        if abs(t) < t_quantile(1.0 - chance, self.degrees):
            return Standing.UNCLEAR
        return Standing.BREAKS if t > 0.0 else Standing.HOLDS

    def fewest(self, chance: float) -> float:
        """Return the transactions below which not even a share of 0 holds for certain; 0 for a mean."""
        return 0.0 if self.is_time else _APART * t_quantile(1.0 - chance, _FEWEST_DEGREES) ** 2 / self.allowed

    @property
    def holds(self) -> bool:
        """Return whether the value itself is within the limit."""
        return self.value is not None and self.value <= self.allowed

    def interval(self, chance: float) -> tuple[float, float] | None:
        """Return the interval of the value, one-sided `chance` on either side."""
        if self.value is None or self.error <= 0.0:
            return None
        half = t_quantile(1.0 - chance, self.degrees) * self.error
        most = math.inf if self.is_time else 1.0
        return max(self.value - half, 0.0), min(self.value + half, most)


def judged_by(limit: ObjectiveLimit, seconds: Sequence[Excess]) -> Judged:
    """Judge one limit by the seconds of a run, or of several runs one after the other."""
    total = math.fsum(second.count for second in seconds)
    if total <= 0.0:
        return Judged(value=None, error=0.0, degrees=1, allowed=limit.allowed)
    value = math.fsum(second.amount for second in seconds) / total
    per_second = total / len(seconds)
    excess = [(second.amount - value * second.count) / per_second / limit.allowed for second in seconds]
    variance_of_value = 0.0
    if len(seconds) >= FEWEST_AFTER:
        # A few cosines may miss a single burst.
        variance_of_value = limit.allowed**2 * max(mean_variance(excess), variance(excess) / len(excess))
    least = limit.spread / total
    degrees = max(_FEWEST_DEGREES, 2 * min(8, len(seconds) // 30))
    error = math.sqrt(max(variance_of_value, least)) if len(seconds) >= FEWEST_AFTER else 0.0
    return Judged(value=value, error=error, degrees=degrees, allowed=limit.allowed, is_time=limit.figure == "mean")


def together(standings: Iterable[Standing]) -> Standing:
    """Return the standing of limits that must all hold."""
    different = set(standings)
    if Standing.BREAKS in different:
        return Standing.BREAKS
    return Standing.HOLDS if different == {Standing.HOLDS} else Standing.UNCLEAR
