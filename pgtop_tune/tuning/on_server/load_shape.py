"""What a load that another program drives is like, and when it has become another one: a setting was found for the
one before.

Two numbers of the server: transactions per second, and how the time of active sessions is divided among waits. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Final

from msgspec import Struct

from pgtop_tune.metrics import server
from pgtop_tune.metrics.active_sessions import CLIENT_BACKEND
from pgtop_tune.metrics.catalogue import Interval
from pgtop_tune.metrics.waits import wait_profile

WINDOW_S: Final = 10.0
LOOKS: Final = 6
"""In a row that must differ, so that a pause or a batch is no other load."""
_IDLE: Final = 5.0
"""Transactions per second that may be ours, counted late, or those of a vacuum."""
TIMES: Final = 1.5
"""As many transactions, or sessions, by which a load is another one: one that doubles is never told as less."""
MOVED: Final = 0.35
"""Of the time, from some waits to others, or from some statements to others."""


class LoadShape(Struct, frozen=True):
    """A load over ten seconds.

    Attributes:
        tps: Transactions per second of the server.
        shares: Of the time of active sessions, by wait.
    """

    tps: float
    shares: Mapping[str, float]


def load_shape(interval: Interval) -> LoadShape | None:
    """The shape of the newest seconds; None where they tell nothing."""
    tps = server.TPS(interval)
    waits = wait_profile(interval, WINDOW_S, CLIENT_BACKEND)
    whole = sum(each.sessions for each in waits)
    if tps is None or whole <= 0.0:
        return None
    return LoadShape(tps, {each.label: each.sessions / whole for each in waits})


def change_of(before: LoadShape, looks: Sequence[LoadShape]) -> str:
    """How the load has changed, in words; "" while any of the newest looks is like before, or there are too few."""
    newest = looks[-LOOKS:]
    if len(newest) < LOOKS:
        return ""
    if all(not before.tps / TIMES <= each.tps <= before.tps * TIMES for each in newest):
        return rate_words(median(each.tps for each in newest), before.tps)
    if all(moved(before.shares, each.shares) > MOVED for each in newest):
        label, share, was = largest_gain(before.shares, newest[-1].shares)
        return f"{label} is {100.0 * share:.0f} % of the sessions' time, {100.0 * was:.0f} % before"
    return ""


def idle(tps: float, clients: float | None) -> bool:
    """Whether there is no load at all: no client is connected, and next to no transaction ends, by the median."""
    return clients == 0.0 and tps < _IDLE


def rate_words(tps: float, before: float) -> str:
    """ "400 transactions per second, 200 before"."""
    return f"{tps:,.0f} transactions per second, {before:,.0f} before"


def moved(one: Mapping[str, float], other: Mapping[str, float]) -> float:
    """Half of the sum of all differences: what has gone from some shares to others."""
    names = {*one, *other}
    return sum(abs(one.get(name, 0.0) - other.get(name, 0.0)) for name in names) / 2.0


def largest_gain(before: Mapping[str, float], now: Mapping[str, float]) -> tuple[str, float, float]:
    """The name whose share has grown most, its share now and before."""
    name = max(now, key=lambda each: now[each] - before.get(each, 0.0))
    return name, now[name], before.get(name, 0.0)
