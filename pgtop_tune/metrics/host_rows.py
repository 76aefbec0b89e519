"""Numbers per row of a section of the machine: an interface, a file system, a node."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import TypeVar

from pgtop_tune.metrics.catalogue import Interval, Reading, rate
from pgtop_tune.metrics.host_values import same_boot, with_facts
from pgtop_tune.model.absence import Unavailable
from pgtop_tune.model.frame import Frame

S = TypeVar("S", bound=Reading)
R = TypeVar("R")
K = TypeVar("K", bound=Hashable)


def row_gauge(
    reach: Callable[[Frame], S | Unavailable],
    rows: Callable[[S], Iterable[R]],
    key: Callable[[R], K],
    pick: Callable[[R], float | None],
) -> Callable[[Interval], dict[K, float]]:
    """A number per row of the newest look; rows that do not have it are left out."""

    def values(interval: Interval) -> dict[K, float]:
        section = interval.now(reach)
        found = () if section is None else ((key(row), pick(row)) for row in rows(section))
        return {name: float(value) for name, value in found if value is not None}

    return values


def row_rate(
    reach: Callable[[Frame], S | Unavailable],
    rows: Callable[[S], Iterable[R]],
    key: Callable[[R], K],
    pick: Callable[[R], float | None],
    scale: float = 1.0,
) -> Callable[[Interval], dict[K, float]]:
    """Increase of a counter per second, times the scale, per row that was there at both looks; silent over a reboot."""
    look = with_facts(reach)

    def values(interval: Interval) -> dict[K, float]:
        pair = same_boot(interval, look)
        if pair is None:
            return {}
        before = {key(row): pick(row) for row in rows(pair[0].section)}
        found: dict[K, float] = {}
        for row in rows(pair[1].section):
            older, newer = before.get(key(row)), pick(row)
            if older is None or newer is None:
                continue
            per_second = rate(older, newer, pair[0].at_s, pair[1].at_s)
            if per_second is not None:
                found[key(row)] = per_second * scale
        return found

    return values


def section_rate(
    reach: Callable[[Frame], S | Unavailable], pick: Callable[[S], float | None], scale: float = 1.0
) -> Callable[[Interval], float | None]:
    """Increase of a section's counter per second, times the scale."""
    values = row_rate(reach, lambda section: (section,), lambda section: 0, pick, scale)
    return lambda interval: values(interval).get(0)
