"""Trip wires: a number and a limit that it must not cross while a change is pending confirmation. Pure.

p99>50ms   tps<1000   errors>0   lag>10MB   free<5GB
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final

from msgspec import Struct

from pgtop_tune.base.errors import UsageProblem
from pgtop_tune.metrics import sections
from pgtop_tune.metrics.catalogue import Interval
from pgtop_tune.metrics.load import (
    CLIENT_FAILED,
    CLIENT_LATENCY,
    CLIENT_TPS,
    PER_SECOND,
    Quantile,
    logged_seconds,
    running,
    stalled_s,
)
from pgtop_tune.metrics.percentiles import merge
from pgtop_tune.metrics.replication import sender_lags
from pgtop_tune.metrics.server import TPS

WINDOW_S: Final = 5.0
_MS: Final[Mapping[str, float]] = {"": 1.0, "us": 0.001, "ms": 1.0, "s": 1000.0}
_BYTES: Final[Mapping[str, float]] = {
    "": 1.0, "b": 1.0, "kb": 2.0**10, "mb": 2.0**20, "gb": 2.0**30, "tb": 2.0**40,
}  # fmt: skip
_PLAIN: Final[Mapping[str, float]] = {"": 1.0, "k": 1000.0}
_SHARES: Final[Mapping[str, float]] = {"": 1.0, "%": 1.0}
_WIRE: Final = re.compile(r"\s*([a-z][a-z0-9.]*)\s*([<>])\s*(\d{1,15}(?:\.\d{1,6})?)\s*([A-Za-z%]*)\s*")


class WatchedNumber(Struct, frozen=True):
    """A number that a trip wire can watch.

    Attributes:
        name: Name that the operator types.
        says: Its meaning, for help.
        units: Factors of the units that the operator can type; "" is its own unit.
        value: Returns the present value; None when it is not known, which never trips.
    """

    name: str
    says: str
    units: Mapping[str, float]
    value: Callable[[Interval], float | None]


class TripWire(Struct, frozen=True):
    """A limit that a number must not cross.

    Attributes:
        watched: The number.
        text: Text that the operator typed, without blanks.
        above: Whether values above the limit trip; else values below it.
        limit: The limit, in the unit of `watched`.
    """

    watched: WatchedNumber
    text: str
    above: bool
    limit: float

    def crossed(self, interval: Interval) -> bool | None:
        """Return whether the newest frame crosses the limit; None when the number is not known."""
        value = self.watched.value(interval)
        if value is None:
            return None
        return value > self.limit if self.above else value < self.limit


def _watched(quantile: Quantile) -> WatchedNumber:
    def value(interval: Interval) -> float | None:
        if running(interval) is None:
            return None
        # An estimate from few transactions is better than a blind wire under a slow load.
        return _at_least(interval, quantile.estimate(merge(logged_seconds(interval, WINDOW_S))))

    return WatchedNumber(
        name=quantile.title, says=f"{quantile.title} latency of the load over the last 5 s, ms", units=_MS, value=value
    )


def _mean_latency(interval: Interval) -> float | None:
    return _at_least(interval, CLIENT_LATENCY.mean(interval, WINDOW_S))


def _at_least(interval: Interval, latency_ms: float | None) -> float | None:
    """Return the latency, at least the length of the present stall: the next transaction will have taken as long."""
    since_s = stalled_s(interval)
    return latency_ms if since_s is None else max(latency_ms or 0.0, 1000.0 * since_s)


def _tps(interval: Interval) -> float | None:
    """Return the client's throughput where a load of ours runs, else the server's."""
    return CLIENT_TPS(interval) if running(interval) is not None else TPS(interval)


def _errors(interval: Interval) -> float | None:
    return CLIENT_FAILED.mean(interval, WINDOW_S)


def _failed(interval: Interval) -> float | None:
    failed, done = _errors(interval), CLIENT_TPS.mean(interval, WINDOW_S)
    return None if failed is None or done is None or not failed + done else 100.0 * failed / (failed + done)


def _lag(interval: Interval) -> float | None:
    return max((lag.total_bytes for lag in sender_lags(interval) if lag.total_bytes is not None), default=None)


def _free(interval: Interval) -> float | None:
    sample = interval.now(sections.file_systems)
    if sample is None:
        return None
    return min((row.available_bytes for row in sample.file_systems if {"data", "wal"} & set(row.roles)), default=None)


WATCHED: Final[tuple[WatchedNumber, ...]] = (
    *map(_watched, PER_SECOND),
    WatchedNumber("latency", "mean latency of the load over the last 5 s, ms", _MS, _mean_latency),
    WatchedNumber("tps", "transactions per second of the load, or of the server without a load", _PLAIN, _tps),
    WatchedNumber("errors", "failed transactions of the load per second", _PLAIN, _errors),
    WatchedNumber("failed", "failed transactions of the load over the last 5 s, per cent", _SHARES, _failed),
    WatchedNumber("lag", "WAL that the slowest standby has not replayed, bytes", _BYTES, _lag),
    WatchedNumber("free", "free space on the file systems of data and WAL, bytes", _BYTES, _free),
)
_WRITTEN: Final = {"kb": "kB", "mb": "MB", "gb": "GB", "tb": "TB"}
"""Units as PostgreSQL writes them; they are read in any case."""
_BY_NAME: Final = {watched.name: watched for watched in WATCHED}


def trip_wire(text: str) -> TripWire:
    """Parse a trip wire.

    Raises:
        UsageProblem: The text is not of the form NAME<VALUE or NAME>VALUE, or there is no such number or unit.
    """
    match = _WIRE.fullmatch(text.lower())
    known_names = ", ".join(_BY_NAME)
    if match is None:
        raise UsageProblem(f"{text!r} is not a trip wire", "pass for example p99>50ms or tps<1000")
    name, sign, number, unit = match.groups()
    watched = _BY_NAME.get(name)
    if watched is None:
        raise UsageProblem(f"no trip wire can watch {name!r}", f"known names: {known_names}")
    if unit not in watched.units:
        units = ", ".join(word for word in watched.units if word)
        raise UsageProblem(f"{text!r}: {name} is not measured in {unit}", f"known units: {units}")
    return TripWire(
        watched=watched,
        text=f"{name}{sign}{number}{_WRITTEN.get(unit, unit)}",
        above=sign == ">",
        limit=float(number) * watched.units[unit],
    )
