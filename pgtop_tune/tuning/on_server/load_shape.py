"""What a load of somebody else is like, and when it has become another one: a setting was found for the one before.

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
_TIMES: Final = 2.0
_MOVED: Final = 0.35
"""Of the time of active sessions, from some waits to others."""


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
    if all(not before.tps / _TIMES <= each.tps <= before.tps * _TIMES for each in newest):
        return f"{median(each.tps for each in newest):,.0f} transactions per second, {before.tps:,.0f} before"
    if all(_moved(before, each) > _MOVED for each in newest):
        label = max(newest[-1].shares, key=lambda name: newest[-1].shares[name] - before.shares.get(name, 0.0))
        share, was = newest[-1].shares[label], before.shares.get(label, 0.0)
        return f"{label} is {100.0 * share:.0f} % of the sessions' time, {100.0 * was:.0f} % before"
    return ""


def _moved(one: LoadShape, other: LoadShape) -> float:
    """Half of the sum of all differences: the share of the time that went from some waits to others."""
    labels = {*one.shares, *other.shares}
    return sum(abs(one.shares.get(name, 0.0) - other.shares.get(name, 0.0)) for name in labels) / 2.0
